"""Access tokens of clouds: fetched off the event loop, kept, and renewed before they end, one fetch at a time.

Used by models/vertex and models/azure, which know how to fetch one. Never writes a token anywhere; what fails says so with
the names of errors only.
"""

import logging
import math
import re
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from msgspec import Struct

from polyport.errors import ConfigError, ModelError
from polyport.seams import REAL, Seams

log = logging.getLogger("polyport.models")

EARLY_S = 240.0
"""A token is renewed this long before it ends, or in the last tenth of its life if that is shorter."""
FRESH_S = 60.0
"""A token that is refused so soon after it was fetched is not replaced: another one would be refused as well."""
AGAIN_S = 30.0
"""When an early renewal failed, the next one is tried after this time; the token at hand is still good."""

T = TypeVar("T")


class Token(Struct, frozen=True):
    """An access token. `expires_at` is in epoch seconds; infinite when nobody said."""

    value: str
    expires_at: float = math.inf

    def __repr__(self) -> str:
        return "Token(***)"


class Tokens:
    """The tokens of one identity. `fetch` blocks, and is called in a thread, with whether the token at hand must be replaced;
    it raises ConfigError or ModelError only."""

    def __init__(self, fetch: Callable[[bool], Token], seams: Seams = REAL) -> None:
        self._fetch = fetch
        self._seams = seams
        self._turn = anyio.Lock()
        self._token: Token | None = None
        self._fetched_at = -math.inf
        self._renew_at = -math.inf

    async def get(self) -> str:
        """A token that is valid. When renewing it early fails, the one at hand is used for as long as it lasts."""
        if self._token is None or self._seams.clock() >= self._renew_at:
            async with self._turn:
                if self._token is None or self._seams.clock() >= self._renew_at:  # somebody else may have been first
                    return (await self._next(self._token)).value
        return self._token.value

    async def renew(self, refused: str) -> bool:
        """Whether there is another token than `refused` now; one is fetched unless that one was fresh."""
        async with self._turn:
            if self._token is None or self._token.value == refused:
                if self._seams.clock() - self._fetched_at < FRESH_S:
                    return False
                try:
                    await self._take(replace=True)
                except ModelError as error:
                    log.warning("a refused token cannot be renewed: %s", error)
                    return False
            return self._token is not None and self._token.value != refused

    def secrets(self) -> tuple[str, ...]:
        return () if self._token is None else (self._token.value,)

    async def _next(self, old: Token | None) -> Token:
        try:
            return await self._take(replace=old is not None)
        except ModelError as error:
            if old is None or self._seams.clock() >= old.expires_at:
                raise
            self._renew_at = self._seams.clock() + AGAIN_S
            log.warning("a token cannot be renewed yet: %s", error)
            return old

    async def _take(self, *, replace: bool) -> Token:
        token = await in_thread(lambda: self._fetch(replace))
        now = self._seams.clock()
        if token != self._token:
            self._fetched_at = now
        self._token = token
        self._renew_at = token.expires_at - min(EARLY_S, (token.expires_at - now) / 10)
        return token


async def in_thread(work: Callable[[], T]) -> T:
    """`work()`, in a thread of its own kind: tools that hold up all of theirs hold up no sign-in. A run that is cancelled does
    not wait for it."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(8)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)


_limiter = RunVar[anyio.CapacityLimiter]("polyport_sign_in")
"""One for each event loop."""


def refused(where: str, error: Exception, todo: str) -> ModelError:
    """What to raise when `where` gave no token: `error` itself may hold secrets, so only its name is told. A 401, which is not
    tried again."""
    text = f"signing in to {where} failed ({type(error).__name__}): {todo}"
    return ModelError(text, http_status=401, code="UNAUTHENTICATED")


def checked_url(url: str, what: str) -> str:
    """`url` without the slash at its end. ConfigError unless it is https, or of this machine: credentials go there."""
    parts = urlsplit(url.strip())
    inside = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"{what} must be like https://host, without a login or a query")
    if parts.scheme != "https" and not (parts.scheme == "http" and inside):
        raise ConfigError(f"{what} must be an https URL, for credentials are sent there; not {url!r:.200}")
    return url.strip().rstrip("/")


def checked_word(value: str, what: str) -> str:
    """`value`, which will stand in an address. ConfigError unless it is a plain word such as `europe-west1`."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.:-]*", value):
        raise ConfigError(f"{what} is {value!r:.100}; it should be a plain name")
    return value
