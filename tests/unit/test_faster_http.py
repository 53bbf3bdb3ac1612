"""The HTTP protocol of `polyport serve` against uvicorn's own: the same bytes, the same ends of connections, the same requests
for the app, also where the client is hostile."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import anyio
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from polyport.cli.serve_http import HttpProtocol

App = Callable[[Any, Any, Any], Awaitable[None]]


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.text = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.text += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Seen(NamedTuple):
    """What a connection came to: what was written and whether it is closed after each piece, and what the app was given."""

    written: list[tuple[bytes, bool]]
    requests: list[dict[str, Any]]
    bodies: list[bytes]


async def seen(protocol: type[HttpToolsProtocol], app: App, pieces: Sequence[bytes]) -> Seen:
    got = Seen([], [], [])

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        got.requests.append({key: value for key, value in scope.items() if key != "state"})

        async def heard() -> Any:
            message = await receive()
            got.bodies.append(message.get("body", message["type"].encode()))
            return message

        await app(scope, heard, send)

    config = uvicorn.Config(
        watched, interface="asgi3", log_config=None, access_log=False, ws="none", timeout_keep_alive=65
    )
    state = ServerState()
    state.default_headers = [(b"date", b"today")]
    wire = Wire()
    connection = protocol(config, state, {})
    connection.access_log = False
    connection.connection_made(wire)
    for piece in pieces:
        if not wire.closed:  # a transport reads no more after it was closed
            connection.data_received(piece)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        got.written.append((wire.text, wire.closed))
    connection.connection_lost(None)
    with anyio.fail_after(10):
        while state.tasks:
            await anyio.lowlevel.checkpoint()
    return got


async def same(app: App, *pieces: bytes) -> Seen:
    ours, theirs = await seen(HttpProtocol, app, pieces), await seen(HttpToolsProtocol, app, pieces)
    assert ours == theirs
    return ours


def answering(status: int = 200, headers: Sequence[tuple[bytes, bytes]] = (), *bodies: bytes) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        for body in bodies:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        body, more = body + message["body"], message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


GET = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nhost: h\r\n"
REQUESTS: dict[str, tuple[bytes, ...]] = {
    "plain": (GET,),
    "twice": (GET, GET),
    "pipelined": (GET * 3,),
    "pipelined_with_bodies": ((POST + b"content-length: 2\r\n\r\nab") * 3 + GET,),
    "byte_by_byte": tuple(bytes([b]) for b in POST + b"content-length: 3\r\n\r\nabc" + GET),
    "http_1_0": (b"GET / HTTP/1.0\r\n\r\n",),
    "http_1_0_keep_alive": (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",),
    "close": (b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",),
    "close_then_more": (b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n" + GET,),
    "head": (b"HEAD / HTTP/1.1\r\nhost: h\r\n\r\n" + GET,),
    "options_star": (b"OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n",),
    "absolute": (b"GET http://h/a?b=c HTTP/1.1\r\nhost: h\r\n\r\n",),
    "escapes": (b"GET /a%2Fb%00/../%E2%82%AC%ff?q=%0d%0a#f HTTP/1.1\r\nhost: h\r\n\r\n",),
    "raw_high_bytes": (b"GET /\xff HTTP/1.1\r\nhost: h\r\n\r\n",),
    "length_and_chunked": (POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + GET,),
    "chunked_and_length": (POST + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n" + GET,),
    "two_lengths": (POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd" + GET,),
    "two_equal_lengths": (POST + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc" + GET,),
    "length_signed": (POST + b"content-length: +3\r\n\r\nabc" + GET,),
    "length_with_list": (POST + b"content-length: 3, 3\r\n\r\nabc" + GET,),
    "encoding_folded": (POST + b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + GET,),
    "encoding_twice": (POST + b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + GET,),
    "encoding_unknown": (POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + GET,),
    "encoding_not_last": (POST + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n" + GET,),
    "space_before_colon": (POST + b"content-length : 3\r\n\r\nabc" + GET,),
    "bare_lf": (b"GET / HTTP/1.1\nhost: h\n\n" + GET,),
    "nul_in_header": (b"GET / HTTP/1.1\r\nhost: h\x00\r\n\r\n" + GET,),
    "chunks": (POST + b"transfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n", b"0\r\ntrailer: t\r\n\r\n" + GET),
    "chunk_size_bad": (POST + b"transfer-encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n" + GET,),
    "chunk_size_huge": (POST + b"transfer-encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\nabc",),
    "expect": (POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n", b"ab"),
    "expect_pipelined": (GET + POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n", b"ab", GET),
    "expect_else": (POST + b"expect: 200-ok\r\ncontent-length: 2\r\n\r\nab",),
    "upgrade_websocket": (
        b"GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\r\n",
        GET,
    ),
    "upgrade_h2c": (b"GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", GET),
    "prior_knowledge_h2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",),
    "connect": (b"CONNECT h:443 HTTP/1.1\r\nhost: h\r\n\r\n",),
    "garbage": (b"\x16\x03\x01\x02\x00", GET),
    "garbage_behind": (GET + b"\r\n\x00\x00garbage\r\n\r\n", GET),
    "unknown_method": (b"BREW / HTTP/1.1\r\nhost: h\r\n\r\n",),
    "long_header": (b"GET / HTTP/1.1\r\nhost: h\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",),
    "many_headers": (b"GET / HTTP/1.1\r\nhost: h\r\n" + b"x: y\r\n" * 2_000 + b"\r\n",),
    "left_in_a_head": (b"GET / HTTP/1.1\r\nho",),
    "left_in_a_body": (POST + b"content-length: 10\r\n\r\nabc",),
    "left_in_a_chunk": (POST + b"transfer-encoding: chunked\r\n\r\n5\r\nab",),
    "large_body": (POST + b"content-length: 200000\r\n\r\n" + b"x" * 100_000, b"x" * 100_000 + GET),
}


@pytest.mark.parametrize("pieces", REQUESTS.values(), ids=REQUESTS.keys())
async def test_the_same_requests_and_answers_as_uvicorn(pieces: tuple[bytes, ...]):
    await same(answering(200, [(b"content-length", b"0")]), *pieces)
    await same(answering(200, [], b"one", b"", b"two"), *pieces)
    await same(echo, *pieces)


ANSWERS: dict[str, App] = {
    "no_content": answering(204),
    "not_modified": answering(304, [(b"etag", b"x")]),
    "length": answering(200, [(b"Content-Length", b"6")], b"abc", b"def"),
    "empty_length": answering(200, [(b"content-length", b"0")]),
    "chunked_said": answering(200, [(b"transfer-encoding", b"Chunked")], b"abc"),
    "length_then_chunked": answering(200, [(b"content-length", b"3"), (b"transfer-encoding", b"chunked")], b"abc"),
    "chunked_then_length": answering(200, [(b"transfer-encoding", b"chunked"), (b"content-length", b"3")], b"abc"),
    "close": answering(200, [(b"connection", b"Close"), (b"content-length", b"3")], b"abc"),
    "close_in_a_list": answering(200, [(b"connection", b"x, CLOSE ,y")], b"abc"),
    "keep_alive": answering(200, [(b"connection", b"keep-alive")], b"abc"),
    "names_are_lowered": answering(418, [(b"X-One", b"A"), (b"x-one", b"B"), (b"set-cookie", b"a=b; c")], b"abc"),
    "tab_and_high_bytes": answering(200, [(b"x", b"a\tb\xff")], b"abc"),
    "large": answering(200, [], b"x" * 65_536, b"y" * 65_537),
}


@pytest.mark.parametrize("app", ANSWERS.values(), ids=ANSWERS.keys())
async def test_the_same_frames_as_uvicorn(app: App):
    for method in (b"GET", b"HEAD", b"POST"):
        for version in (b"1.0", b"1.1"):
            request = method + b" / HTTP/" + version + b"\r\nhost: h\r\n\r\n"
            await same(app, request, request)
    await same(app, GET * 2)


BROKEN: dict[str, App] = {
    "cr_lf_in_a_value": answering(200, [(b"x", b"a\r\nset-cookie: b")]),
    "nul_in_a_value": answering(200, [(b"x", b"a\x00b")]),
    "colon_in_a_name": answering(200, [(b"x: y", b"a")]),
    "cr_lf_in_a_name": answering(200, [(b"x\r\ny", b"a")]),
    "length_is_no_number": answering(200, [(b"content-length", b"x")]),
}


@pytest.mark.parametrize("app", BROKEN.values(), ids=BROKEN.keys())
async def test_a_head_that_must_not_leave_closes_the_connection_without_a_byte(app: App):
    assert (await same(app, GET, GET)).written[0] == (b"", True)


@pytest.mark.parametrize(
    "app",
    [answering(200, [(b"content-length", b"2")], b"abc"), answering(200, [(b"content-length", b"4")], b"abc")],
    ids=["longer", "shorter"],
)
async def test_a_body_of_another_length_than_said_ends_the_connection_and_nothing_of_it_is_too_much(app: App):
    for protocol in (HttpProtocol, HttpToolsProtocol):
        text, closed = (await seen(protocol, app, [GET, GET])).written[-1]
        assert closed
        assert text.count(b"HTTP/1.1") <= 1
        assert len(text.partition(b"\r\n\r\n")[2]) <= 3


async def test_an_app_that_fails_after_its_head_says_nothing_whole():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("broken")

    text, closed = (await seen(HttpProtocol, app, [GET, GET])).written[-1]
    assert closed
    assert b"0\r\n\r\n" not in text


class Big:
    """What a request may have in its variables."""


HELD: ContextVar[Big] = ContextVar("held")


async def test_an_idle_connection_keeps_nothing_of_its_requests():
    kept: list[weakref.ref[Big]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        big = Big()
        kept.append(weakref.ref(big))
        HELD.set(big)
        await whole(scope, receive, send)

    whole = answering(200, [(b"content-length", b"0")])
    config = uvicorn.Config(app, interface="asgi3", log_config=None, ws="none")
    state = ServerState()
    connection = HttpProtocol(config, state, {})
    connection.connection_made(Wire())
    for _ in range(2):
        connection.data_received(GET)
        while state.tasks:
            await anyio.lowlevel.checkpoint()
    gc.collect()
    assert [ref() for ref in kept] == [None, None]
    connection.connection_lost(None)
