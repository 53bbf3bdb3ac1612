"""What the HTTP bindings of A2A share: who calls and with which service parameters, what is echoed, how errors are told.

Used by `jsonrpc`, `http` and `card`. An Edge is one app's handler with its card, as callers reach it. Never reads a body.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from polyport.errors import Forbidden, PolyportError, TimedOut, TooLarge, Unauthenticated
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.card import Card
from polyport.protocols.a2a.handler import A2aHandler
from polyport.protocols.answers import unwrap
from polyport.protocols.http import Header, Request, Send
from polyport.protocols.streaming import SseStream, pump
from polyport.wire import sse
from polyport.wire.a2a_check import read_extensions, read_version
from polyport.wire.a2a_errors import A2AError, VersionNotSupported

log = logging.getLogger("polyport.a2a")

V1, V03 = "1.0", "0.3"
TRANSPORT_ERRORS = (Unauthenticated, Forbidden, TooLarge)
"""Errors of the way here rather than of the call: they have their HTTP status in every binding (spec a2a 1.5)."""


class Edge(NamedTuple):
    """One app, served. `codes` is the table of status codes, see `wire.a2a_errors.CODES`."""

    handler: A2aHandler
    card: Card
    codes: str
    heartbeat_s: float
    stream_s: float | None


Find = Callable[[Request], Edge]
"""The app that a request is for. NotFound."""
Base = Callable[[Request], str]
"""The base URL under which a request reached this server, without a slash at its end."""


class Headers(Mapping[str, str]):
    """All headers of a request, by lower-case names; read when somebody asks."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request = request

    def __getitem__(self, name: str) -> str:
        return self._request.headers[name.encode("latin-1")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._request.headers)

    def __len__(self) -> int:
        return len(self._request.headers)


def call_of(edge: Edge, request: Request, spoken: str, tenant: str = "") -> CallContext:
    """Who calls. `spoken` is the version whose method or path was used; VersionNotSupported when A2A-Version says another."""
    names = request.headers
    said = names[b"a2a-version"].decode("latin-1") if b"a2a-version" in names else request.query_text("A2A-Version")
    values: list[str] = []
    if b"a2a-extensions" in names:
        values = request.header_values("a2a-extensions")
    if spoken == V03 and b"x-a2a-extensions" in names:
        values += request.header_values("x-a2a-extensions")
    return CallContext(
        caller=request.caller.user,
        tenant=tenant,
        version=version_of(edge.handler, said, spoken),
        extensions=tuple(read_extensions(values)) if values else (),
        headers=Headers(request),
    )


def version_of(handler: A2aHandler, said: str, spoken: str) -> str:
    """The version of a call: what it says, or what it speaks. "" when it says nothing and that is taken for 1.0."""
    if said == spoken:
        return said
    if not said.strip():
        if spoken == V1 and handler.settings.strict_version:
            raise VersionNotSupported("a call without A2A-Version is one of A2A 0.3; send A2A-Version: 1.0")
        return V03 if spoken == V03 else ""
    version = read_version(said)
    if version != spoken and version in handler.settings.versions:
        raise VersionNotSupported(f"this is an operation of A2A {spoken}, but A2A-Version says {version}")
    return said


def echo(edge: Edge, call: CallContext) -> Sequence[Header]:
    """The header that names the extensions which the call activated (spec a2a 1.6)."""
    active = edge.handler.admit(call) if call.extensions else ()
    return ((b"a2a-extensions", ", ".join(active).encode("latin-1", "replace")),) if active else ()


def told(error: BaseException, request: Request) -> BaseException:
    """The error as its caller may know it. One that is not ours goes to the log, and is told by the request's id (T076)."""
    error = unwrap(error)
    if not isinstance(error, PolyportError):
        log.error("request %s: %s %s failed", request.id, request.method, request.path, exc_info=error)
        return internal(request.id)
    if error.status.http >= 500:
        log.warning("request %s: %s %s: %s", request.id, request.method, request.path, error)
    return error


def too_long(edge: Edge) -> TimedOut:
    """Why a stream ends that was open for `stream_s`."""
    return TimedOut(f"the stream was open for {edge.stream_s:g} s (stream_s); subscribe to the task again")


def internal(request_id: str) -> PolyportError:
    """An error that says nothing but where to look."""
    text = f"internal error; the server's log has the details under request id {request_id}"
    return A2AError(text, {"requestId": request_id})


async def stream_frames(
    edge: Edge,
    request: Request,
    send: Send,
    frames: AsyncGenerator[bytes],
    headers: Sequence[Header],
    failed: Callable[[BaseException], bytes],
    nudge: Callable[[], None],
) -> None:
    """Answer with a stream, whose first frame is there already; `failed` makes the data of a last frame that says why there are
    no more, `nudge` is that of the TaskStream behind the frames."""
    stream = SseStream(send)
    await stream.start(headers, soon=True)
    quiet, limit = edge.heartbeat_s, edge.stream_s
    try:
        ended = await pump(request, stream, frames, heartbeat_s=quiet, timeout_s=limit, nudge=nudge)
        if ended == "gone":
            return
        if ended == "timeout":
            raise too_long(edge)
    except Exception as error:  # noqa: BLE001  the caller is told, and the log
        await stream.send(sse.frame(failed(told(error, request))))
    await stream.close()
