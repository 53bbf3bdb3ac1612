"""The in-memory client, against small apps that do right and wrong."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from polyport.testing.connect import connect
from polyport.testing.websocket import Closed, Refused


class Script:
    """An app that answers with given messages, and keeps what it received."""

    def __init__(self, *messages: dict[str, Any], then: Any = None) -> None:
        self.messages = messages
        self.then = then
        self.received: list[Any] = []
        self.scope: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        for message in self.messages:
            await send(message)
        if self.then is not None:
            await self.then(self, receive, send)


def start(status: int = 200, **headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


def body(data: bytes = b"", more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_a_whole_answer() -> None:
    app = Script(start(201, a="1"), body(b'{"x":', more=True), body(b"1}"))
    async with connect(app, lifespan=False, headers={"X-Mine": "a", "x-other": "b"}) as client:
        answer = await client.put("/p%2Fq?a=1", json={"k": "é"}, query={"b": ["2", "3"]}, headers={"x-other": "c"})
    assert (answer.status, answer.json(), answer.headers) == (201, {"x": 1}, {"a": "1"})
    assert (app.scope["path"], app.scope["raw_path"]) == ("/p/q", b"/p%2Fq")
    assert app.scope["query_string"] == b"a=1&b=2&b=3"
    assert dict(app.scope["headers"]) == {
        b"host": b"localhost",
        b"content-type": b"application/json",
        b"content-length": b"10",
        b"x-mine": b"a",
        b"x-other": b"c",
    }


async def test_status_and_pieces_arrive_before_the_body_ends() -> None:
    released = anyio.Event()

    async def later(app: Script, receive: Any, send: Any) -> None:
        await released.wait()
        await send(body(b"\ntwo\r\nrest"))

    async with (
        connect(Script(start(), body(b"on", True), body(b"e", True), then=later), lifespan=False) as client,
        client.stream("GET", "/") as response,
    ):
        assert await anext(response.chunks()) == b"on"
        released.set()
        assert [line async for line in response.lines()] == ["e", "two", "rest"]


async def test_events_may_be_left_and_taken_up_again() -> None:
    app = Script(start(), body(b"data: 1\n\ndata: 2\n\n: ping\n\ndat", True), body(b"a: 3\n\n"))
    async with connect(app, lifespan=False) as client, client.stream("GET", "/") as response:
        async for event in response.events():
            assert event.data == "1"
            break
        assert [event.data async for event in response.events()] == ["2", "3"]


async def test_leaving_early_hangs_up_and_waits_for_the_app() -> None:
    async def until_gone(app: Script, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] != "http.disconnect":
            app.received.append(message)
        await send(body(b"too late", True))
        app.received.append("gone")

    app = Script(start(), body(b"x", True), then=until_gone)
    async with connect(app, lifespan=False) as client:
        async with client.stream("POST", "/", body="hi") as response:
            assert app.received in ([], [{"type": "http.request", "body": b"hi", "more_body": False}])
        assert app.received[-1] == "gone"
        assert response.late_writes == 1


async def deaf(app: Script, receive: Any, send: Any) -> None:
    """Until the task is cancelled, whatever the client does."""
    app.received.append("begun")
    await anyio.sleep_forever()


async def test_a_client_that_is_cancelled_hangs_up_and_the_app_ends_by_itself() -> None:
    async def until_gone(app: Script, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await anyio.sleep(0)
        app.received.append("gone")

    app = Script(then=until_gone)
    async with connect(app, lifespan=False) as client:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await client.post("/")
    assert scope.cancelled_caught and app.received == ["gone"]


async def test_an_app_that_ignores_a_client_that_is_cancelled_fails_the_test() -> None:
    app = Script(then=deaf)
    async with connect(app, lifespan=False, hang_up_s=0.01) as client:
        with pytest.raises(AssertionError, match="did not end"), anyio.CancelScope() as scope:
            scope.cancel()
            await client.post("/")
    assert app.received == ["begun"]


async def test_an_app_that_ignores_the_hang_up_fails_the_test() -> None:
    async with connect(Script(start(), then=deaf), lifespan=False, hang_up_s=0.01) as client:
        with pytest.raises(AssertionError, match="did not end"):
            async with client.stream("GET", "/"):
                pass


async def test_a_chunked_body_is_pulled_as_the_app_reads() -> None:
    closed: list[str] = []

    async def numbers() -> AsyncIterator[bytes]:
        try:
            for i in range(1000):
                yield b"%d" % i
        finally:
            closed.append("closed")

    async def two(app: Script, receive: Any, send: Any) -> None:
        app.received = [await receive(), await receive()]
        await send(start())
        await send(body())

    app = Script(then=two)
    async with connect(app, lifespan=False) as client:
        await client.post("/", body=numbers())
    assert [message["body"] for message in app.received] == [b"0", b"1"]
    assert all(message["more_body"] for message in app.received)
    assert (b"transfer-encoding", b"chunked") in app.scope["headers"]
    assert closed == ["closed"]


async def test_a_window_makes_the_app_wait_for_a_slow_reader() -> None:
    sent: list[int] = []

    async def many(app: Script, receive: Any, send: Any) -> None:
        for i in range(10):
            await send(body(b"x" * 100, True))
            sent.append(i)
        await send(body())

    async with (
        connect(Script(start(), then=many), lifespan=False) as client,
        client.stream("GET", "/", window=250) as response,
    ):
        await anext(response.chunks())
        await anyio.lowlevel.checkpoint()
        assert len(sent) < 5
        assert len(await response.read()) == 900


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([body(b"x")], "before the start"),
        ([start(), start()], "twice"),
        ([start()], "without finishing"),
        ([start(), body(b"x", True)], "without finishing"),
        ([start(content_length="3"), body(b"ab")], "shorter"),
        ([start(content_length="1"), body(b"ab")], "longer"),
        ([start(), body(), body()], "after the end"),
        ([start(X="1")], "lower case"),
        ([start(x="a\nb")], "line break"),
        ([], "without finishing"),
    ],
)
async def test_wrong_messages_fail_the_test(messages: list[Any], says: str) -> None:
    async with connect(Script(*messages), lifespan=False) as client:
        with pytest.raises(AssertionError, match=says):
            await client.get("/")


@pytest.mark.parametrize("messages", [[], [start()], [start(), body(b"x", True)], [start(), body(b"x")]])
async def test_an_error_of_the_app_surfaces(messages: list[Any]) -> None:
    async def fail(app: Script, receive: Any, send: Any) -> None:
        raise ValueError("broken")

    async with connect(Script(*messages, then=fail), lifespan=False) as client:
        with pytest.raises(ValueError, match="broken"):
            await client.get("/")


async def test_an_error_in_the_block_leaves_as_it_is() -> None:
    async def until_gone(app: Script, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    app = Script(start(), then=until_gone)
    with pytest.raises(KeyError):
        async with connect(app, lifespan=False) as client, client.stream("GET", "/"):
            raise KeyError("mine")


class Living:
    """An app with a lifespan."""

    def __init__(self, fail: str = "") -> None:
        self.fail = fail
        self.seen: list[str] = []
        self.released = anyio.Event()

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.seen.append(scope["state"]["store"])
            await send(start())
            await send(body())
            return
        self.seen.append((await receive())["type"])
        if self.fail == "startup":
            await send({"type": "lifespan.startup.failed", "message": "no store"})
            return
        scope["state"]["store"] = "store"
        await send({"type": "lifespan.startup.complete"})
        if self.fail == "crash":
            await self.released.wait()
            raise ValueError("the store died")
        self.seen.append((await receive())["type"])
        await send({"type": "lifespan.shutdown.complete"})


async def test_the_lifespan_is_run_and_its_state_reaches_requests() -> None:
    app = Living()
    async with connect(app) as client:
        await client.get("/")
    assert app.seen == ["lifespan.startup", "store", "lifespan.shutdown"]


async def test_a_failed_startup_is_raised() -> None:
    with pytest.raises(RuntimeError, match="no store"):
        async with connect(Living("startup")):
            raise AssertionError("not reached")


async def test_a_lifespan_that_dies_ends_the_block() -> None:
    app = Living("crash")
    with pytest.raises(ValueError, match="the store died"):
        async with connect(app):
            app.released.set()
            await anyio.sleep_forever()


# ---- WebSocket


async def talk(app: Script, receive: Any, send: Any) -> None:
    app.received.append(await receive())
    await send({"type": "websocket.accept", "subprotocol": "p2", "headers": [(b"a", b"1")]})
    while True:
        message = await receive()
        app.received.append(message)
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") == "bye":
            await send({"type": "websocket.close", "code": 4001, "reason": "bye"})
        elif message.get("text") == "leave":
            return
        else:
            await send({"type": "websocket.send", **{k: v for k, v in message.items() if k != "type"}})


async def test_a_websocket_talks_both_ways_and_is_closed_with_the_block() -> None:
    app = Script(then=talk)
    async with connect(app, lifespan=False) as client, client.websocket("/w?x=1", subprotocols=["p1", "p2"]) as ws:
        assert (ws.subprotocol, ws.headers) == ("p2", {"a": "1"})
        await ws.send_json({"a": [1]})
        assert await ws.receive_json() == {"a": [1]}
        await ws.send_bytes(b"\0\1")
        assert await ws.receive() == b"\0\1"
    assert app.received[-1] == {"type": "websocket.disconnect", "code": 1000, "reason": ""}
    assert app.scope["subprotocols"] == ["p1", "p2"]


async def test_a_close_by_the_app_is_seen_with_code_and_reason() -> None:
    async with connect(Script(then=talk), lifespan=False) as client:
        async with client.websocket("/w") as ws:
            await ws.send_text("a")
            await ws.send_text("bye")
            assert [message async for message in ws] == ["a"]
            assert (ws.code, ws.reason) == (4001, "bye")
            with pytest.raises(Closed):
                await ws.send_text("more")
        async with client.websocket("/w") as ws:
            await ws.send_text("leave")
            with pytest.raises(Closed) as closed:
                await ws.receive()
    assert closed.value.code == 1006


async def test_a_dropped_connection_is_told_and_writes_fail() -> None:
    seen: list[Any] = []

    async def chatty(app: Script, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await receive()
        seen.append((await receive())["code"])
        try:
            await send({"type": "websocket.send", "text": "x"})
        except OSError:
            seen.append("gone")

    async with connect(Script(then=chatty), lifespan=False) as client, client.websocket("/w") as ws:
        ws.close(1006)
    assert seen == [1006, "gone"]


async def test_a_refused_handshake_has_its_answer() -> None:
    answer = {"type": "websocket.http.response.start", "status": 418, "headers": [(b"a", b"1")]}
    tea = Script(answer, {"type": "websocket.http.response.body", "body": b"tea"})
    closed = Script({"type": "websocket.close", "code": 1008})
    for app, status, text in ((tea, 418, "tea"), (closed, 403, "")):
        async with connect(app, lifespan=False) as client:
            with pytest.raises(Refused) as refused:
                async with client.websocket("/w"):
                    pass
        assert (refused.value.response.status, refused.value.response.text) == (status, text)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "websocket.send", "text": "x"},
        {"type": "websocket.close", "code": 1011, "reason": "é" * 62},
        {"type": "http.response.body"},
    ],
)
async def test_wrong_websocket_messages_fail_the_test(message: dict[str, Any]) -> None:
    async with connect(Script(message), lifespan=False) as client:
        with pytest.raises(AssertionError):
            async with client.websocket("/w"):
                pass


async def test_an_error_in_a_websocket_app_surfaces() -> None:
    async def fail(app: Script, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        raise ValueError("broken")

    async with connect(Script(then=fail), lifespan=False) as client:
        with pytest.raises(ValueError, match="broken"):
            async with client.websocket("/w") as ws:
                await ws.receive()
