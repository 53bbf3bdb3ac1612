"""connect: a streaming HTTP and WebSocket client for an ASGI app, in memory.

For tests of Polyport and of its users' agents. The app's lifespan is run; answers arrive as they are sent; leaving a stream
early hangs up and waits until the app has noticed. No sockets, no threads; an error of the app surfaces in the test.

    async with connect(app) as client:
        async with client.stream("POST", "/run_sse", json=body) as response:
            async for event in response.events(): ...
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import anyio

from polyport.testing.exchange import App, Body, Exchange, Headers, Response, asgi_of, body_of, joined, pairs, scope_of
from polyport.testing.websocket import WebSocket
from polyport.wire.sse import SseDecoder, SseEvent

T = TypeVar("T")


class Pieces(Generic[T]):
    """An iterator over an answer's body that may be left and taken up again."""

    def __init__(self, exchange: Exchange, feed: Callable[[bytes], Sequence[T]]) -> None:
        self._exchange = exchange
        self._feed = feed
        self._ready: deque[T] = deque()
        self._over = False

    def __aiter__(self) -> "Pieces[T]":
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            if self._over:
                raise StopAsyncIteration
            chunk = await self._exchange.chunk()
            self._over = not chunk
            self._ready.extend(self._feed(chunk))
        return self._ready.popleft()


class _Lines:
    """Bytes cut anywhere -> whole lines; an empty chunk flushes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk and self._rest:
            whole.append(self._rest)
            self._rest = b""
        return [line.decode().removesuffix("\r") for line in whole]


class StreamResponse:
    """An answer whose body may still be on its way. Read it with one of `chunks`, `lines`, `events`, `read`."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.status = exchange.status
        self.headers = joined(exchange.headers)
        self._chunks = Pieces[bytes](exchange, lambda chunk: [chunk] if chunk else [])
        self._lines = Pieces[str](exchange, _Lines().feed)
        self._events = Pieces[SseEvent](exchange, SseDecoder().feed)

    @property
    def late_writes(self) -> int:
        """How often the app wrote after the client had hung up."""
        return self._exchange.late_writes

    def chunks(self) -> Pieces[bytes]:
        """The body as the app sent it, one piece for each message."""
        return self._chunks

    def lines(self) -> Pieces[str]:
        """The body's lines without their line breaks."""
        return self._lines

    def events(self) -> Pieces[SseEvent]:
        """The body as server-sent events. Comments, such as heartbeats, are not events."""
        return self._events

    async def read(self) -> bytes:
        """What is left of the body."""
        return b"".join([chunk async for chunk in self._chunks])


class Client:
    """Talks to one ASGI app. `headers` go with every request; those of a request win. Made by `connect`.

    `state` is what the app's lifespan put into the ASGI state. Paths are sent as given, percent-encoded by the caller.
    """

    def __init__(self, app: Any, headers: Headers | None, hang_up_s: float) -> None:
        self._app = app
        self._headers = pairs(headers)
        self._hang_up_s = hang_up_s
        self.state: dict[str, Any] = {}

    def _scope(
        self, kind: str, path: str, query: Mapping[str, Any] | None, headers: list[tuple[bytes, bytes]]
    ) -> dict[str, Any]:
        names = {name for name, _ in headers}
        headers.extend((name, value) for name, value in self._headers if name not in names)
        return {**scope_of(kind, path, query, headers), "state": dict(self.state)}

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        body: Body = None,
        headers: Headers | None = None,
        query: Mapping[str, Any] | None = None,
        window: int | None = None,
    ) -> AsyncGenerator[StreamResponse]:
        """Send a request; the block starts when status and headers are there. `json` is encoded, `body` sent as it is (an
        iterator: chunked). Leaving the block hangs up and waits for the app to end. `window`: see `Exchange`."""
        own = pairs(headers)
        content = body_of(json, body, own)
        exchange = Exchange({**self._scope("http", path, query, own), "method": method}, content, window)
        async with _beside(partial(exchange.run, self._app), exchange.hang_up, self._hang_up_s, f"{method} {path}"):
            await exchange.started()
            yield StreamResponse(exchange)
        await exchange.aclose_body()
        if exchange.error is not None:
            raise exchange.error

    @asynccontextmanager
    async def websocket(
        self,
        path: str,
        *,
        headers: Headers | None = None,
        query: Mapping[str, Any] | None = None,
        subprotocols: Sequence[str] = (),
    ) -> AsyncGenerator[WebSocket]:
        """Open a WebSocket; Refused if the app answers with a status. Leaving the block closes it with 1000 and waits for
        the app to end."""
        scope = self._scope("websocket", path, query, pairs(headers))
        scope |= {"subprotocols": list(subprotocols), "extensions": {"websocket.http.response": {}}}
        socket = WebSocket(scope)
        async with _beside(partial(socket.run, self._app), socket.close, self._hang_up_s, f"websocket {path}"):
            await socket.opened()
            yield socket
        if socket.error is not None:
            raise socket.error

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        body: Body = None,
        headers: Headers | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Response:
        """The whole answer to a request."""
        async with self.stream(method, path, json=json, body=body, headers=headers, query=query) as response:
            return Response(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> Response:
        return await self.request("GET", path, **options)

    async def post(self, path: str, **options: Any) -> Response:
        return await self.request("POST", path, **options)

    async def put(self, path: str, **options: Any) -> Response:
        return await self.request("PUT", path, **options)

    async def patch(self, path: str, **options: Any) -> Response:
        return await self.request("PATCH", path, **options)

    async def delete(self, path: str, **options: Any) -> Response:
        return await self.request("DELETE", path, **options)


class _Life:
    """The server's side of the lifespan protocol, as a task beside the test."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.error: Exception | None = None
        self.ready = anyio.Event()
        self._state = state
        self._stop = anyio.Event()
        self._asked = 0

    async def run(self, app: Any) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        try:
            await app(scope, self._receive, self._send)
            if not self._stop.is_set():
                self.error = self.error or AssertionError("the app's lifespan ended before the shutdown")
        except Exception as error:  # noqa: BLE001 kept, and raised by `connect`
            self.error = error
        finally:
            self.ready.set()

    def stop(self) -> None:
        self._stop.set()

    async def started(self) -> None:
        await self.ready.wait()
        if self.error is not None:
            raise self.error

    async def _receive(self) -> dict[str, str]:
        self._asked += 1
        if self._asked == 1:
            return {"type": "lifespan.startup"}
        await self._stop.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        kind: str = message["type"]
        if kind.endswith(".failed"):
            self.error = self.error or RuntimeError(f"{kind}: {message.get('message', '')}")
        self.ready.set()


@asynccontextmanager
async def _beside(
    run: Callable[[], Awaitable[None]], stop: Callable[[], None], limit_s: float, what: str, essential: bool = False
) -> AsyncGenerator[None]:
    """Run the app's task beside the block. After the block `stop` is called and the task awaited; AssertionError when it does
    not end within `limit_s`. A block that is cancelled ends in the same way, for the app must notice by itself that its client
    has gone. What the block raises leaves as it is, not in a group. When an `essential` task ends first, the block is
    cancelled."""
    raised: BaseException | None = None
    gone: BaseException | None = None
    ended = anyio.Event()
    own = anyio.CancelScope(shield=True)
    stopping = False

    async def task() -> None:
        try:
            with own:
                await run()
        finally:
            ended.set()
        if essential and not stopping:
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(task)
            try:
                yield
            except anyio.get_cancelled_exc_class() as error:
                gone = error
            except BaseException as error:  # noqa: BLE001 raised below, outside of the group
                raised = error
            stopping = True
            stop()
            with anyio.move_on_after(limit_s, shield=True):
                await ended.wait()
            if not ended.is_set():
                own.cancel()
                raised = raised or AssertionError(
                    f"{what}: the app did not end within {limit_s} s after it was told to"
                )
            if gone is not None:
                raise gone
    except anyio.get_cancelled_exc_class():
        if raised is None:
            raise
    if raised is not None:
        raise raised


@asynccontextmanager
async def connect(
    app: App, *, headers: Headers | None = None, lifespan: bool = True, hang_up_s: float = 10.0
) -> AsyncGenerator[Client]:
    """A client for `app` (an ASGI callable, or anything with an `asgi` attribute), its lifespan run around the block.

    `hang_up_s` is how long the app may take to end after a hang-up or a shutdown. Errors of the app are raised here.
    """
    asgi = asgi_of(app)
    client = Client(asgi, headers, hang_up_s)
    if not lifespan:
        yield client
        return
    life = _Life(client.state)
    async with _beside(partial(life.run, asgi), life.stop, hang_up_s, "the lifespan", essential=True):
        await life.started()
        yield client
    if life.error is not None:
        raise life.error
