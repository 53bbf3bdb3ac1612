"""Where a remote agent's card comes from: an object, a URL, or looked for at a base URL; kept as long as its server says.

Used by `a2a_client`. A card is fetched once per TTL, then asked for with If-None-Match (T105); a card that cannot be renewed
because its server is down is still used for a while. Cards are looked for at the origin first, then relative to the URL
(FR-184). Signatures are checked when keys are given, before anything is believed.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from polyport import codec
from polyport.agents.a2a_door import ANYONE, A2ALimits, Caller, Door, http_error
from polyport.agents.a2a_http import Answer, Outgoing, origin, place
from polyport.errors import BadRequest, ConfigError, NotFound, PolyportError, TimedOut, Unauthenticated, Unavailable
from polyport.wire.a2a_card import AgentCard, AgentInterface
from polyport.wire.a2a_errors import InvalidAgentResponse
from polyport.wire.a2a_sign import Jwk, verify
from polyport.wire.a2a_v03_card import read_card

log = logging.getLogger("polyport.a2a")

WELL_KNOWN = "/.well-known/agent-card.json"
OLD_WELL_KNOWN = "/.well-known/agent.json"
"""The path of A2A 0.2, which some servers still have as their only one."""
_ABSENT = (404, 405, 410)
_MAX_CARDS = 256


class CardRules(Struct, frozen=True, kw_only=True):
    """`ttl_s` is for servers that say nothing; a longer one than `max_ttl_s` is cut. `stale_s` is how long an old card is used
    when its server cannot be reached. With `keys` (JWKs with kid) a card must be signed by one of them."""

    keys: Iterable[Jwk] = ()
    ttl_s: float = 300.0
    max_ttl_s: float = 86_400.0
    stale_s: float = 86_400.0


class Found(Struct, frozen=True):
    """A card and where it was; `url` is "" for one that was given as an object."""

    card: AgentCard
    url: str = ""
    plain: dict[str, Any] = {}
    etag: str = ""
    modified: str = ""
    fresh_until: float = 0.0
    shared: bool = True


class CardCache:
    """The card of one remote agent, for all its callers. `where` is a URL, or a card as an object or plain JSON."""

    def __init__(
        self,
        where: str | AgentCard | Mapping[str, Any],
        door: Door,
        *,
        exact: bool,
        rules: CardRules,
        limits: A2ALimits,
        public_only: bool,
        clock: Callable[[], float],
    ) -> None:
        self._door = door
        self._rules = rules
        self._keys = list(rules.keys)
        self._limits = limits
        self._public_only = public_only
        self._clock = clock
        self._kept: OrderedDict[str, Found] = OrderedDict()
        self._per_caller = False
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._given: Found | None = None
        self._where = ""
        self._exact = False
        if isinstance(where, str):
            origin(where)
            self._where = where
            self._exact = exact or names_card(where)
        else:
            self._given = self._from_object(where)

    def _from_object(self, card: AgentCard | Mapping[str, Any]) -> Found:
        plain: Any = msgspec.json.decode(codec.encode(card)) if isinstance(card, AgentCard) else dict(card)
        try:
            return Found(self._checked(plain))
        except InvalidAgentResponse as error:
            raise ConfigError(str(error)) from None

    def _checked(self, plain: dict[str, Any]) -> AgentCard:
        """The card in `plain`; InvalidAgentResponse for what is none, or not signed by a trusted key."""
        if self._keys:
            verify(plain, self._keys)
        try:
            card = read_card(plain)
        except BadRequest as error:
            raise InvalidAgentResponse(f"the agent card cannot be read: {error}") from None
        if not card.supported_interfaces:
            raise InvalidAgentResponse("the agent card names no interface")
        return card

    @property
    def given_interfaces(self) -> list[AgentInterface]:
        """The interfaces of a card that was given."""
        return self._given.card.supported_interfaces if self._given is not None else []

    async def get(self, caller: Caller = ANYONE) -> Found:
        """The card as `caller` may see it. NotFound when there is none, InvalidAgentResponse for one that is no card or is not
        signed as it must be; or the error of its server."""
        if self._given is not None:
            return self._given
        kept = self._fresh(caller)
        if kept is not None:
            return kept
        if self._per_caller:
            return await self._renew(caller)  # callers need not wait for each other
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with lock:
            return self._fresh(caller) or await self._renew(caller)

    def _fresh(self, caller: Caller) -> Found | None:
        kept = self._known(caller)
        return kept if kept is not None and kept.fresh_until > self._clock() else None

    def _known(self, caller: Caller) -> Found | None:
        return self._kept.get("") or self._kept.get(_identity(caller))

    async def _renew(self, caller: Caller) -> Found:
        old = self._known(caller)
        try:
            found = await (self._look(caller) if old is None else self._revalidate(old, caller))
        except (Unavailable, TimedOut) as error:
            if old is None or self._clock() > old.fresh_until + self._rules.stale_s:
                raise
            log.warning("the card at %s could not be renewed, the old one is used: %s", place(old.url), error)
            found = msgspec.structs.replace(old, fresh_until=self._clock() + min(self._rules.ttl_s, 30.0))
        self._kept.pop("", None)
        self._per_caller = not found.shared
        key = "" if found.shared else _identity(caller)
        self._kept[key] = found
        self._kept.move_to_end(key)
        while len(self._kept) > _MAX_CARDS:
            self._kept.popitem(last=False)
        return found

    async def _revalidate(self, old: Found, caller: Caller) -> Found:
        headers = {"if-none-match": old.etag} if old.etag else {}
        if old.modified:
            headers["if-modified-since"] = old.modified
        answer = await self._fetch(old.url, caller, headers)
        if answer.status == 304:
            return self._entry(old.card, old.plain, old.url, answer, caller, old)
        if answer.status in _ABSENT:
            return await self._look(caller)
        return self._read(answer, old.url, caller)

    # ---- discovery

    async def _look(self, caller: Caller) -> Found:
        """The first card there is: at a URL that names one, else at the origin, else relative to the URL. A card at the origin
        that is about other URLs only gives way to one at the URL itself: a host may have many agents."""
        if self._exact:
            answer = await self._fetch(self._where, caller)
            if answer.status in _ABSENT:
                raise NotFound(f"there is no agent card at {place(self._where)} ({answer.status})")
            return self._read(answer, self._where, caller)
        refused: PolyportError | None = None
        other: Found | None = None
        for url in candidates(self._where):
            try:
                found = await self._try(url, caller)
            except Unauthenticated as error:
                refused = refused or error
                continue
            if found is not None and (other is not None or self._is_about(found.card)):
                return found
            other = other or found
        if other is not None:
            return other
        raise refused or NotFound(f"there is no agent card at {place(self._where)}: looked for {WELL_KNOWN}")

    async def _try(self, url: str, caller: Caller) -> Found | None:
        answer = await self._fetch(url, caller)
        if answer.status in _ABSENT or (answer.status == 200 and not _is_object(answer.body)):
            return None  # also a page that is there whatever is asked for
        return self._read(answer, url, caller)

    def _is_about(self, card: AgentCard) -> bool:
        """Whether the card is the only one to expect: nothing but an origin was given, or an interface is at or below it."""
        path = urlsplit(self._where).path.rstrip("/")
        if not path:
            return True
        urls = [urlsplit(interface.url) for interface in card.supported_interfaces]
        return any((u.path.rstrip("/") + "/").startswith(path + "/") for u in urls)

    async def _fetch(self, url: str, caller: Caller, headers: Mapping[str, str] | None = None) -> Answer:
        request = Outgoing(
            method="GET",
            url=url,
            headers={"accept": "application/json", **(headers or {})},
            timeout_s=self._limits.call_timeout_s,
            public_only=self._public_only,
        )
        return await self._door.send(request, caller, self._limits.card_bytes)

    def _read(self, answer: Answer, url: str, caller: Caller) -> Found:
        if answer.status != 200:
            raise http_error(place(url), answer)
        try:
            codec.check_depth(answer.body)
            plain = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadRequest):
            plain = None
        if not isinstance(plain, dict):
            raise InvalidAgentResponse(f"{place(url)} is no agent card: not a JSON object")
        found = cast("dict[str, Any]", plain)
        return self._entry(self._checked(found), found, url, answer, caller)

    def _entry(
        self,
        card: AgentCard,
        plain: dict[str, Any],
        url: str,
        answer: Answer,
        caller: Caller,
        old: Found | None = None,
    ) -> Found:
        control = answer.headers.get("cache-control", "").lower()
        age = _max_age(control)
        ttl = self._rules.ttl_s if age is None else age
        shared = not caller.identity or ("public" in control and "private" not in control)
        return Found(
            card,
            url,
            plain,
            answer.headers.get("etag", "") or (old.etag if old is not None else ""),
            answer.headers.get("last-modified", "") or (old.modified if old is not None else ""),
            self._clock() + min(ttl, self._rules.max_ttl_s),
            old.shared if old is not None and not control else shared,
        )


def _identity(caller: Caller) -> str:
    return caller.identity and "caller " + caller.identity


def names_card(url: str) -> bool:
    """Whether a URL is that of a card itself."""
    path = urlsplit(url).path
    return path.endswith(".json") or "/.well-known/" in path


def candidates(url: str) -> list[str]:
    """Where the card of an agent at `url` may be, the likeliest first."""
    parts = urlsplit(url)
    at_origin = f"{parts.scheme}://{parts.netloc}"
    below = at_origin + parts.path.rstrip("/")
    return list(
        dict.fromkeys([at_origin + WELL_KNOWN, below + WELL_KNOWN, at_origin + OLD_WELL_KNOWN, below + OLD_WELL_KNOWN])
    )


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(body), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _max_age(control: str) -> float | None:
    """Seconds from a Cache-Control in lower case; None when it says nothing of this."""
    words = [word.strip() for word in control.split(",")]
    if "no-cache" in words or "no-store" in words:
        return 0.0
    for word in words:
        name, _, value = word.partition("=")
        if name == "max-age" and value.strip('"').isdigit():
            return float(value.strip('"'))
    return None
