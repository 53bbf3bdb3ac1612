"""Credentials of tools: what proves to an API who is calling.

Given to toolsets as `auth=`. Static ones are here; OAuth is in `tools/oauth.py`. A secret lives in memory only, has no repr,
and is struck out of everything that a tool shows.
"""

import base64
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import quote

from polyport.engine.hooks import ask
from polyport.errors import AgentError, ConfigError, Unauthenticated
from polyport.ports.agent import ReadContext

Secret = str | Callable[[ReadContext], Any]
"""A secret, or a function `(ctx)` that gives it for the user of the run; sync (in a worker thread) or async."""
Headers = Mapping[str, str] | Callable[[ReadContext], Any]
"""Headers, or a function `(ctx) -> dict` that gives them; sync (in a worker thread) or async."""
PostForm = Callable[[str, Mapping[str, str], Mapping[str, str]], Awaitable[tuple[int, Any]]]
"""`(url, form, headers)` -> status and JSON of the answer. How a credential reaches its token endpoint."""
Place = Literal["header", "query", "cookie"]

SHORT = 6
"""Secrets of fewer characters are not struck out: they would strike out ordinary words."""
STRUCK = "***"
_TELLING = ("auth", "key", "token", "secret", "cookie", "password", "signature")


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What is added to one request."""

    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    cookies: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Further texts that must not be shown."""

    @property
    def secrets(self) -> set[str]:
        """All texts that must not be shown. A header counts if its name says so: others may hold ordinary words."""
        values = [*self.hidden, *(v for _, v in self.query), *(v for _, v in self.cookies)]
        values += [v for k, v in self.headers.items() if any(word in k.lower() for word in _TELLING)]
        return {part for value in values for part in (value, value.partition(" ")[2]) if len(part) >= SHORT}


class Credential(ABC):
    """Proves who is calling. One may be shared by several toolsets; then they share what it got as well."""

    @abstractmethod
    async def proof(self, ctx: ReadContext, post: PostForm) -> Proof:
        """What to add to a request of this run. Unauthenticated when there is nothing to prove it with."""

    async def refused(self, ctx: ReadContext, proof: Proof) -> bool:
        """The API answered 401 to this proof. True when it is worth asking for another one and sending the request again."""
        return False

    async def answer(self, app: str, user: str, response: Any, post: PostForm) -> bool:
        """Take a user's answer to a request to sign in; False when it is not for this credential."""
        return False

    @property
    def fills(self) -> frozenset[tuple[str, str]]:
        """The parameters, as (place, name), that the model need not give any more."""
        return frozenset()


@dataclass(frozen=True)
class ApiKey(Credential):
    """A key in a header, a query field or a cookie of a given name."""

    value: Secret = field(repr=False)
    name: str = "X-API-Key"
    place: Place = "header"

    def __post_init__(self) -> None:
        if self.place not in ("header", "query", "cookie") or not self.name:
            raise ConfigError(f"an API key is in a header, query or cookie of some name; not in {self.place!r}")

    async def proof(self, ctx: ReadContext, post: PostForm) -> Proof:
        value = await _secret(self.value, ctx, "the API key")
        if self.place == "header":
            return Proof(headers={self.name: value}, hidden=(value,))
        return Proof(query=((self.name, value),)) if self.place == "query" else Proof(cookies=((self.name, value),))

    @property
    def fills(self) -> frozenset[tuple[str, str]]:
        return frozenset({(self.place, self.name.lower() if self.place == "header" else self.name)})


@dataclass(frozen=True)
class Bearer(Credential):
    """A token that was got elsewhere: `Authorization: Bearer ...`."""

    token: Secret = field(repr=False)

    async def proof(self, ctx: ReadContext, post: PostForm) -> Proof:
        return bearer(await _secret(self.token, ctx, "the token"))


@dataclass(frozen=True)
class Basic(Credential):
    """A user name and a password: `Authorization: Basic ...`."""

    user: str
    password: Secret = field(repr=False)

    async def proof(self, ctx: ReadContext, post: PostForm) -> Proof:
        password = await _secret(self.password, ctx, "the password")
        return Proof(headers={"Authorization": basic(self.user, password)}, hidden=(password,))


@dataclass(frozen=True)
class HeaderProvider(Credential):
    """Headers from a function `(ctx) -> dict`, asked before each request; sync (in a worker thread) or async."""

    fn: Callable[[ReadContext], Any]

    async def proof(self, ctx: ReadContext, post: PostForm) -> Proof:
        return Proof(headers=checked_headers(await ask(self.fn, ctx), "the header function"))


def bearer(token: str) -> Proof:
    return Proof(headers={"Authorization": f"Bearer {token}"})


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def checked_headers(value: Any, what: str) -> dict[str, str]:
    """`value` as headers that can be sent. AgentError that names the header but not its value."""
    if not isinstance(value, Mapping):
        raise AgentError(f"{what} gave {type(value).__name__}, not a dict of headers")
    out: dict[str, str] = {}
    for name, text in cast("Mapping[Any, Any]", value).items():
        if not isinstance(name, str) or not isinstance(text, str) or not text.isprintable() or not name.isprintable():
            raise AgentError(f"{what} gave a header {name!r:.80} that is no printable text")
        out[name] = text
    return out


async def _secret(value: Secret, ctx: ReadContext, what: str) -> str:
    found = value if isinstance(value, str) else await ask(value, ctx)
    if not isinstance(found, str) or not found:
        raise Unauthenticated(f"{what} for this API is empty")
    if not found.isprintable():
        raise Unauthenticated(f"{what} for this API has a line break or another control character in it")
    return found


def together(proofs: Iterable[Proof]) -> Proof:
    """One proof of several."""
    found = list(proofs)
    return Proof(
        headers={k: v for p in found for k, v in p.headers.items()},
        query=tuple(pair for p in found for pair in p.query),
        cookies=tuple(pair for p in found for pair in p.cookies),
        hidden=tuple(text for p in found for text in p.hidden),
    )


def struck(value: Any, secrets: set[str]) -> Any:
    """Plain data with every secret in its texts struck out."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in sorted(secrets, key=len, reverse=True):
            for spelling in (secret, quote(secret, safe="")):
                value = value.replace(spelling, STRUCK)
        return value
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {struck(key, secrets): struck(item, secrets) for key, item in pairs}
    if isinstance(value, list):
        return [struck(item, secrets) for item in cast("list[Any]", value)]
    return value
