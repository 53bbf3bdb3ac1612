"""Access tokens: kept, renewed and replaced, with one exchange at a time for each owner.

The state machine under the OAuth credentials. It asks a token endpoint through a function that it is given, so it does no I/O
of its own. Refreshing never sends `scope` (FR-200), and a code is exchanged once, whatever became of it (FR-199).
"""

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol
from urllib.parse import quote, urlsplit

from msgspec import Struct, structs

from polyport.errors import ConfigError, Unauthenticated, Unavailable
from polyport.seams import REAL, Seams
from polyport.tools.credentials import PostForm, basic, struck
from polyport.tools.json_schema import is_map
from polyport.tools.openapi_spec import is_inside
from polyport.tools.turns import Turns

EARLY_S = 60.0
"""A token is renewed this long before it ends, or in the last tenth of its life if that is shorter."""
FRESH_S = 60.0
"""A token that the API refuses so soon after it was issued is not replaced: another one would be refused as well."""


class Token(Struct, frozen=True, kw_only=True):
    """An access token. `expires_at` is in epoch seconds, with the margin taken off; infinite when nobody said."""

    access: str
    refresh: str = ""
    expires_at: float = math.inf
    issued_at: float = -math.inf

    def __repr__(self) -> str:
        return "Token(***)"


class TokenStore(Protocol):
    """Where tokens are kept. The default keeps them in memory; one of your own should encrypt them."""

    async def load(self, owner: str) -> Token | None: ...

    async def save(self, owner: str, token: Token | None) -> None:
        """Keep `token`, or forget what is kept when it is None."""
        ...


class MemoryTokens:
    """Tokens in memory; of more than `max_owners` the one that was used longest ago is forgotten."""

    def __init__(self, max_owners: int = 10_000) -> None:
        self.max_owners = max_owners
        self._kept: OrderedDict[str, Token] = OrderedDict()

    async def load(self, owner: str) -> Token | None:
        if owner in self._kept:
            self._kept.move_to_end(owner)
        return self._kept.get(owner)

    async def save(self, owner: str, token: Token | None) -> None:
        self._kept.pop(owner, None)
        if token is not None:
            self._kept[owner] = token
        while len(self._kept) > self.max_owners:
            self._kept.popitem(last=False)


class Endpoint(Struct, frozen=True, kw_only=True):
    """A token endpoint and how we sign in there: `basic` (a header), `post` (in the form), or `none` (a public client)."""

    url: str
    client_id: str
    client_secret: str = ""
    way: Literal["basic", "post", "none"] = "basic"
    extra: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r}, {self.client_id!r}, ***)"

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ConfigError(f"the token endpoint {self.url!r:.200} is no absolute http(s) URL")
        if parts.scheme == "http" and not is_inside(self.url):
            raise ConfigError(f"the token endpoint {self.url!r:.200} must use https: secrets are sent to it")
        if not self.client_id:
            raise ConfigError("an OAuth client needs a client_id")


class Refused(Unauthenticated):
    """The token endpoint said no; `code` is its own word, such as invalid_grant."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Tokens:
    """The tokens of one OAuth client, by owner."""

    def __init__(self, endpoint: Endpoint, store: TokenStore | None = None, seams: Seams = REAL) -> None:
        self.endpoint = endpoint
        self.store: TokenStore = store if store is not None else MemoryTokens()
        self.seams = seams
        self.turn = Turns()

    async def get(self, owner: str, post: PostForm, grant: Callable[[], Awaitable[Token]]) -> Token:
        """A token that is valid: the kept one, else a refreshed one, else what `grant` gives, which is kept.

        Unauthenticated when the endpoint refuses; Unavailable when it fails, and then what is kept stays.
        """
        token = await self.store.load(owner)
        if token is not None and self.valid(token):
            return token
        async with self.turn(owner):
            token = await self.store.load(owner)  # somebody else may have been first
            if token is not None and self.valid(token):
                return token
            if token is not None and token.refresh:
                renewed = await self._refreshed(owner, token, post)
                if renewed is not None:
                    return renewed
            token = await grant()
            await self.store.save(owner, token)
            return token

    def valid(self, token: Token) -> bool:
        return self.seams.clock() < token.expires_at

    async def _refreshed(self, owner: str, token: Token, post: PostForm) -> Token | None:
        """A new token for the old one's refresh token; None, and the old one is forgotten, when it is refused."""
        form = {"grant_type": "refresh_token", "refresh_token": token.refresh}
        try:
            renewed = await self.exchange(form, post, {token.refresh})
        except Refused:
            await self.store.save(owner, None)
            return None
        if not renewed.refresh:
            renewed = structs.replace(renewed, refresh=token.refresh)
        await self.store.save(owner, renewed)
        return renewed

    async def distrust(self, owner: str, access: str) -> bool:
        """The API refused this access token. True when `get` may now give another one."""
        async with self.turn(owner):
            token = await self.store.load(owner)
            if token is None or token.access != access:
                return True  # somebody else was first
            if self.seams.clock() - token.issued_at < FRESH_S:
                return False
            await self.store.save(owner, structs.replace(token, expires_at=0.0) if token.refresh else None)
            return True

    async def exchange(self, form: Mapping[str, str], post: PostForm, secrets: set[str] | None = None) -> Token:
        """Ask the endpoint for a token. Refused, or Unavailable; neither shows a secret."""
        end = self.endpoint
        sent = {**form, **end.extra}
        headers: dict[str, str] = {}
        if end.way == "basic" and end.client_secret:
            headers["Authorization"] = basic(quote(end.client_id, safe=""), quote(end.client_secret, safe=""))
        else:
            sent["client_id"] = end.client_id
            if end.way == "post" and end.client_secret:
                sent["client_secret"] = end.client_secret
        status, body = await post(end.url, sent, headers)
        return self._token(status, body, {end.client_secret, *(secrets or ())} - {""})

    def _token(self, status: int, body: Any, secrets: set[str]) -> Token:
        host = urlsplit(self.endpoint.url).hostname
        answer = body if is_map(body) else {}
        access = answer.get("access_token")
        if status == 200 and isinstance(access, str) and access and access.isprintable():
            kind = str(answer.get("token_type") or "bearer")
            if kind.lower() != "bearer":
                raise Unavailable(
                    f"the token endpoint at {host} gave a token of type {kind!r:.40}; only Bearer is known"
                )
            refresh = answer.get("refresh_token")
            return Token(
                access=access,
                refresh=refresh if isinstance(refresh, str) else "",
                expires_at=self._end(answer.get("expires_in")),
                issued_at=self.seams.clock(),
            )
        code = answer.get("error")
        if isinstance(code, str) and code and status < 500 and status != 429:
            why = str(answer.get("error_description") or "")
            said = struck(f"{code:.80}: {why:.300}" if why else f"{code:.80}", secrets)
            raise Refused(f"the token endpoint at {host} refused: {said}", code)
        if status in (400, 401, 403):
            raise Refused(f"the token endpoint at {host} refused with status {status}", "")
        raise Unavailable(f"the token endpoint at {host} answered {status} without a token")

    def _end(self, seconds: Any) -> float:
        """When a token of that many seconds ends; text is a number too for some servers."""
        try:
            life = float(seconds)
        except (TypeError, ValueError):
            return math.inf
        return self.seams.clock() + life - min(EARLY_S, life / 10) if math.isfinite(life) else math.inf
