"""Methods as data: a name, what a deployment says of it, and the handler that carries it out.

Read by `mount`, which finds a method by the name in a call; the built-in ones are in `sessions` and `streams`, and users may
give more. Knows no path and no bytes of an answer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from polyport import codec
from polyport.data.limits import Limits
from polyport.data.session import SessionKey
from polyport.engine.imports import check_name, check_session_id
from polyport.errors import BadRequest, ConfigError
from polyport.ports.runs import Runs
from polyport.protocols.http import Request
from polyport.seams import Seams

T = TypeVar("T")
ApiMode = Literal["", "async", "stream", "async_stream"]
"""How a client library offers the method: as a function, a coroutine, a generator or an async generator."""


class Engine(NamedTuple):
    """What is served: one app, under the name `id`."""

    id: str
    app: str
    runs: Runs
    limits: Limits
    seams: Seams


@dataclass(frozen=True)
class Call:
    """One call of a method. `input` is what the caller sent, still undecoded."""

    engine: Engine
    request: Request
    input: dict[str, Any]

    def read(self, kind: type[T]) -> T:
        """The input as a `kind`. BadRequest names the wrong member."""
        return codec.convert(self.input, kind, unknown="drop")

    async def act_as(self, user: str) -> str:
        """The user, once it is known that the caller may act as this user; to be called before any storage is touched.
        BadRequest for no user."""
        if not user:
            raise BadRequest("user_id is required", "user_id")
        check_name("user_id", user)
        await self.request.act_as(user, self.engine.app)
        return user

    def key(self, user: str, session_id: str) -> SessionKey:
        """Where a session of the user lives. BadRequest for an id that no session may have."""
        check_session_id("session_id", session_id)
        return SessionKey(self.engine.app, user, session_id)


class Lines(NamedTuple):
    """A streamed answer: batches of whole lines, and the session that they are about."""

    session_id: str
    batches: AsyncIterator[bytes]


Unary = Callable[[Call], Awaitable[Any]]
"""What it returns is the `output` of the answer. A PolyportError is the status that its kind has."""
Streaming = Callable[[Call], AbstractAsyncContextManager[Lines]]
"""Entered before the first byte is sent, so that what is wrong with the call is still a status; left when the caller has
all lines, or has gone."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method that a call may name. `parameters` is a JSON Schema of the input. Just one of `unary` and `stream` is given."""

    name: str
    api_mode: ApiMode
    description: str
    parameters: dict[str, Any]
    unary: Unary | None = None
    stream: Streaming | None = None

    def __post_init__(self) -> None:
        if not self.name or (self.unary is None) == (self.stream is None):
            raise ConfigError(f"Agent Engine: method {self.name!r} needs a name, and either unary or stream")

    @property
    def metadata(self) -> dict[str, Any]:
        """What a deployment registers (spec rest 6.5)."""
        return {
            "name": self.name,
            "api_mode": self.api_mode,
            "description": self.description,
            "parameters": self.parameters,
        }


def table(methods: Iterable[Method]) -> dict[str, Method]:
    """The methods by name. ConfigError for a name that comes twice."""
    found: dict[str, Method] = {}
    for method in methods:
        if method.name in found:
            raise ConfigError(f"Agent Engine: duplicate method name: {method.name}")
        found[method.name] = method
    return found


def schema(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """The JSON Schema of an input."""
    return {"type": "object", "properties": properties, "required": list(required)}
