"""The HTTP protocol of `polyport serve`, byte by byte: a connection that is a transport in memory, and small ASGI apps."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import uvicorn
from uvicorn.server import ServerState

from polyport.cli.serve_http import HttpProtocol

App = Callable[[Any, Any, Any], Awaitable[None]]
GET = b"GET /a%20b?x=1 HTTP/1.1\r\nhost: h\r\n\r\n"
DATE = (b"date", b"today")


class Wire(asyncio.Transport):
    """A transport that keeps what is written, each write on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False
        self.paused = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    @property
    def text(self) -> bytes:
        return b"".join(self.writes)


class Timers:
    """The loop as a connection sees it, with a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio.get_running_loop(), name)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], *, context: Any = None) -> "Timers":
        self.waiting.append((self.now + delay, callback))
        return self

    def cancel(self) -> None:
        self.waiting.clear()

    def pass_to(self, now: float) -> None:
        self.now = now
        due, self.waiting = [w for w in self.waiting if w[0] <= now], [w for w in self.waiting if w[0] > now]
        for _, callback in due:
            callback()


class Connection:
    def __init__(self, app: App, loop: Timers | None = None) -> None:
        config = uvicorn.Config(app, interface="asgi3", log_config=None, timeout_keep_alive=65)
        state = ServerState()
        state.default_headers = [DATE]
        self.state = state
        self.protocol = HttpProtocol(config, state, {}, loop)  # pyright: ignore[reportArgumentType]
        self.wire = Wire()
        self.protocol.connection_made(self.wire)

    async def sends(self, data: bytes) -> bytes:
        """What the server wrote by the time that its requests had ended."""
        self.protocol.data_received(data)
        await self.idle()
        return self.wire.text

    async def idle(self) -> None:
        while self.state.tasks:
            await anyio.lowlevel.checkpoint()


async def whole(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def streamed(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await send({"type": "http.response.body"})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def answer(*headers: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", b"date: today", *headers, b"", body])


async def test_head_and_body_leave_in_one_write():
    connection = Connection(whole)
    await connection.sends(GET)
    assert connection.wire.writes == [answer(b"content-length: 2", body=b"ok")]


async def test_a_large_body_is_not_copied_behind_its_head():
    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100000")]})
        await send({"type": "http.response.body", "body": b"x" * 100_000})

    connection = Connection(large)
    await connection.sends(GET)
    assert connection.wire.writes == [answer(b"content-length: 100000"), b"x" * 100_000]


async def test_the_head_of_a_stream_leaves_with_its_first_message_though_that_is_empty():
    connection = Connection(streamed)
    await connection.sends(GET)
    assert connection.wire.writes == [answer(b"transfer-encoding: chunked"), b"3\r\none\r\n", b"0\r\n\r\n"]


async def test_what_a_request_says_reaches_the_app():
    seen: dict[str, Any] = {}

    async def look(scope: Any, receive: Any, send: Any) -> None:
        seen.update(scope)
        await whole(scope, receive, send)

    await Connection(look).sends(b"GET /a%20b?x=1 HTTP/1.0\r\nX-Y: z\r\n\r\n")
    names = ("method", "path", "raw_path", "query_string", "headers", "http_version")
    assert [seen[name] for name in names] == ["GET", "/a b", b"/a%20b", b"x=1", [(b"x-y", b"z")], "1.0"]


async def test_a_body_is_read_in_as_many_parts_as_it_comes():
    connection = Connection(echo)
    connection.protocol.data_received(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 6\r\n\r\nab")
    await anyio.wait_all_tasks_blocked()
    connection.protocol.data_received(b"cd")
    await anyio.wait_all_tasks_blocked()
    assert await connection.sends(b"ef") == answer(b"content-length: 6", body=b"abcdef")


async def test_who_expects_100_continue_is_told_to_go_on():
    connection = Connection(echo)
    connection.protocol.data_received(
        b"POST / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n"
    )
    await anyio.wait_all_tasks_blocked()
    assert connection.wire.text == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await connection.sends(b"a")).endswith(answer(b"content-length: 1", body=b"a"))


async def test_pipelined_requests_are_answered_in_turn():
    connection = Connection(echo)
    post = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\n"
    one, two = (answer(b"content-length: 1", body=text) for text in (b"1", b"2"))
    assert await connection.sends(post + b"1" + post + b"2") == one + two
    assert not connection.wire.paused


async def test_head_has_no_body():
    connection = Connection(whole)
    assert await connection.sends(GET.replace(b"GET", b"HEAD")) == answer(b"content-length: 2")


@pytest.mark.parametrize("request_", [GET.replace(b"1.1", b"1.0"), GET.replace(b"host", b"connection: close\r\nhost")])
async def test_a_connection_that_is_not_kept_says_so_and_closes(request_: bytes):
    connection = Connection(whole)
    assert await connection.sends(request_) == answer(b"content-length: 2", b"connection: close", body=b"ok")
    assert connection.wire.closed


async def test_an_app_may_close_the_connection():
    async def closing(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"connection", b"Close"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    connection = Connection(closing)
    assert await connection.sends(GET) == answer(b"connection: Close", b"content-length: 0")
    assert connection.wire.closed


@pytest.mark.parametrize(
    "header", [(b"x-a", b"1\r\nx-b: 2"), (b"x-a", b"1\x00"), (b"x-a", b"\x7f"), (b"x a", b"1"), (b"x:a", b"1")]
)
async def test_a_header_with_a_character_that_none_may_have_never_leaves(header: tuple[bytes, bytes]):
    async def splitting(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0"), header]})
        await send({"type": "http.response.body"})

    connection = Connection(splitting)
    assert await connection.sends(GET) == b""
    assert connection.wire.closed


@pytest.mark.parametrize("body", [b"o", b"okk"])
async def test_a_body_of_another_length_than_was_said_breaks_the_connection(body: bytes):
    async def lying(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": body})

    connection = Connection(lying)
    await connection.sends(GET)
    assert connection.wire.closed


async def test_an_app_that_fails_before_its_answer_is_500():
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("no")

    assert (await Connection(failing).sends(GET)).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")


async def test_an_app_learns_that_its_client_left():
    got: list[str] = []

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        got.append((await receive())["type"])
        await whole(scope, receive, send)

    connection = Connection(waiting)
    connection.protocol.data_received(GET)
    await anyio.wait_all_tasks_blocked()
    connection.protocol.connection_lost(None)
    await connection.idle()
    assert got == ["http.disconnect"]
    assert connection.wire.writes == []


async def test_a_slow_client_holds_the_app_back():
    connection = Connection(streamed)
    connection.protocol.pause_writing()
    connection.protocol.data_received(GET)
    await anyio.wait_all_tasks_blocked()
    assert connection.wire.writes == []
    connection.protocol.resume_writing()
    await connection.idle()
    assert connection.wire.text.endswith(b"0\r\n\r\n")


async def test_an_idle_connection_is_closed_in_its_time_and_a_used_one_is_not():
    loop = Timers()
    connection = Connection(whole, loop)
    await connection.sends(GET)
    loop.pass_to(60)
    await connection.sends(GET)
    assert len(loop.waiting) == 1
    loop.pass_to(66)
    assert not connection.wire.closed
    loop.pass_to(124)
    assert not connection.wire.closed
    loop.pass_to(125)
    assert connection.wire.closed


async def test_a_connection_whose_request_is_coming_is_not_idle():
    loop = Timers()
    connection = Connection(whole, loop)
    await connection.sends(GET)
    connection.protocol.data_received(GET[:10])
    loop.pass_to(65)
    assert not connection.wire.closed
    await connection.sends(GET[10:])
    loop.pass_to(130)
    assert connection.wire.closed


async def test_a_connection_that_is_lost_leaves_no_timer():
    loop = Timers()
    connection = Connection(whole, loop)
    await connection.sends(GET)
    connection.protocol.connection_lost(None)
    assert not loop.waiting
