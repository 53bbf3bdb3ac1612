"""Event streams and WebSocket routes of the host: spec rest 2.3, 2.4 and statements 49-74."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from polyport.data.limits import Limits
from polyport.errors import (
    NotFound,
)
from polyport.protocols.answers import send_json
from polyport.protocols.host import Host
from polyport.protocols.http import ClientGone, Request, Send
from polyport.protocols.routes import Route
from polyport.protocols.streaming import SseStream, pump, unless_gone
from polyport.testing.connect import connect
from polyport.testing.websocket import Refused, WebSocket
from support.toys import ROUTES, served


def test_rest_59_an_sse_timeout_of_zero_is_the_default() -> None:
    assert [Limits(sse_timeout_s=s).sse_deadline_s for s in (0, -1, 3)] == [120.0, None, 3]


async def frames(count: int, released: anyio.Event | None = None) -> AsyncIterator[bytes]:
    for i in range(count):
        yield b"data: %d\n\n" % i
    if released is not None:
        await released.wait()
        yield b"data: last\n\n"


async def test_rest_49_51_a_stream_arrives_as_it_is_made() -> None:
    released = anyio.Event()
    ended: list[str] = []

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        ended.append(await pump(request, stream, frames(2, released)))
        await stream.close()

    async with served(Route("GET", "/s", handler)) as client, client.stream("GET", "/s") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["connection"] == "keep-alive"
        assert response.headers["x-accel-buffering"] == "no"
        events = response.events()
        assert [(await anext(events)).data, (await anext(events)).data] == ["0", "1"]
        released.set()
        assert [event.data async for event in events] == ["last"]
    assert ended == ["done"]


class Nudged:
    """Says one thing, and the last when it is `released`; gives an empty batch when it is nudged."""

    def __init__(self) -> None:
        self.released = False
        self.closed = False
        self._bell = anyio.Event()

    def nudge(self) -> None:
        self._bell.set()

    async def frames(self) -> AsyncIterator[bytes]:
        try:
            yield b"data: 0\n\n"
            while not self.released:
                await self._bell.wait()
                self._bell = anyio.Event()
                yield b""
            yield b"data: last\n\n"
        finally:
            self.closed = True


async def test_a_quiet_stream_gets_heartbeats_and_its_iterator_lives_on() -> None:
    source = Nudged()

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        await pump(request, stream, source.frames(), nudge=source.nudge, heartbeat_s=0.002)
        await stream.close()

    async with served(Route("GET", "/s", handler)) as client, client.stream("GET", "/s") as response:
        lines = [await anext(response.lines()) for _ in range(6)]
        assert lines == ["data: 0", "", ": ping", "", ": ping", ""]
        source.released = True
        rest = [line async for line in response.lines() if line.startswith("data")]
    assert rest == ["data: last"]


async def test_rest_57_a_hang_up_ends_the_stream_and_closes_the_iterator() -> None:
    told: list[str] = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            await anyio.sleep_forever()
        finally:
            told.append("closed")

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        told.append(await pump(request, stream, endless()))

    async with served(Route("GET", "/s", handler)) as client:
        async with client.stream("GET", "/s") as response:
            await anext(response.events())
        assert told == ["closed", "gone"]
        assert response.late_writes == 0


async def test_a_stream_that_is_over_soon_is_not_watched() -> None:
    ended: list[str] = []
    sent: list[Any] = []

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start(soon=True)
        ended.append(await pump(request, stream, frames(2), heartbeat_s=60, timeout_s=60, nudge=lambda: None))
        await stream.close()

    async def receive() -> dict[str, Any]:
        raise AssertionError("nobody looks whether the client is there")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/s", "query_string": b"", "headers": []}
    await Host([Route("GET", "/s", handler)])(scope, receive, send)
    assert ended == ["done"]
    assert [message.get("body") for message in sent] == [None, b"data: 0\n\n", b"data: 1\n\n", b""]


async def test_rest_57_a_stream_that_lasts_is_watched() -> None:
    source = Nudged()
    ended: list[str] = []

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        ended.append(await pump(request, stream, source.frames(), nudge=source.nudge))

    async with served(Route("GET", "/s", handler)) as client:
        async with client.stream("GET", "/s") as response:
            await anext(response.events())
        assert (ended, source.closed, response.late_writes) == (["gone"], True, 0)


async def test_rest_58_the_time_of_a_stream_may_be_over_before_it_is_watched() -> None:
    source = Nudged()

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        ended = await pump(request, stream, source.frames(), nudge=source.nudge, timeout_s=0.001)
        await stream.send(b"data: %s %d\n\n" % (ended.encode(), source.closed))
        await stream.close()

    async with served(Route("GET", "/s", handler)) as client, client.stream("GET", "/s") as response:
        assert [event.data async for event in response.events()] == ["0", "timeout 1"]


async def test_rest_58_the_time_of_a_stream_ends_it() -> None:
    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        ended = await pump(request, stream, frames(1, anyio.Event()), timeout_s=0.01)
        await stream.send(b"data: " + ended.encode() + b"\n\n")
        await stream.close()

    async with served(Route("GET", "/s", handler)) as client, client.stream("GET", "/s") as response:
        assert [event.data async for event in response.events()] == ["0", "timeout"]


async def test_an_error_of_the_iterator_is_raised_bare() -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise NotFound("gone")

    async def handler(request: Request, send: Send) -> None:
        stream = SseStream(send)
        await stream.start()
        try:
            await pump(request, stream, failing(), nudge=lambda: None)
        except NotFound as error:
            await stream.send(b"data: %s\n\n" % str(error).encode())
        await stream.close()

    async with served(Route("GET", "/s", handler)) as client, client.stream("GET", "/s") as response:
        assert [event.data async for event in response.events()] == ["1", "gone"]


async def test_an_answer_that_breaks_off_is_seen_by_the_client() -> None:
    async def handler(request: Request, send: Send) -> None:
        await SseStream(send).start()
        raise ValueError("late")

    async with served(Route("GET", "/s", handler)) as client:
        with pytest.raises(AssertionError, match="without finishing"):
            await client.get("/s")
        assert (await client.get("/health")).status == 200


async def test_unless_gone_cancels_the_work_of_a_client_that_left() -> None:
    told: list[str] = []
    working = anyio.Event()

    async def work() -> str:
        try:
            working.set()
            await anyio.sleep_forever()
        finally:
            told.append("cancelled")
        return ""

    async def handler(request: Request, send: Send) -> None:
        try:
            await unless_gone(request, work)
        except ClientGone:
            told.append("gone")
            raise

    async def quick(request: Request, send: Send) -> None:
        async def answer() -> dict[str, int]:
            return {"a": 1}

        await send_json(send, await unless_gone(request, answer))

    host = Host([Route("POST", "/slow", handler), Route("POST", "/quick", quick)])
    async with connect(host) as client:
        assert (await client.post("/quick")).json() == {"a": 1}
    scope = {"type": "http", "method": "POST", "path": "/slow", "query_string": b"", "headers": []}

    async def receive() -> dict[str, Any]:
        await working.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError("nobody reads an answer")

    await host(scope, receive, send)
    assert told == ["cancelled", "gone"]


async def test_a_websocket_route_gets_its_parameters() -> None:
    async with served() as client, client.websocket("/api/live/bob") as ws:
        await ws.send_text("hi ")
        assert await ws.receive() == "hi bob"


async def test_rest_65_a_plain_get_of_a_websocket_path_is_400() -> None:
    async with served() as client:
        assert (await client.get("/live/bob")).status == 400
        assert (await client.post("/live/bob")).headers["allow"] == "GET, OPTIONS"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/nope", {}, 404),
        ("/run", {}, 404),
        ("/live/..", {}, 400),
        ("/live/bob", {"origin": "http://evil.test"}, 403),
        ("/live/bob", {"host": "evil.test"}, 403),
    ],
)
async def test_rest_66_handshakes_are_refused_with_a_status(path: str, headers: dict[str, str], status: int) -> None:
    async with served() as client:
        with pytest.raises(Refused) as refused:
            async with client.websocket(path, headers=headers):
                pass
    assert refused.value.response.status == status
    assert set(refused.value.response.json()) == {"error", "detail"}


async def test_a_server_without_the_extension_closes_instead() -> None:
    ws = WebSocket({"type": "websocket", "path": "/nope", "query_string": b"", "headers": []})
    await ws.run(Host(ROUTES))
    assert (ws.code, ws.reason) == (1008, "HTTP 404")


async def test_rest_74_an_error_closes_with_1011_and_a_reason_that_fits() -> None:
    async with served() as client, client.websocket("/live/bob") as ws:
        await ws.send_text("fail")
        assert [message async for message in ws] == []
    assert ws.code == 1011
    assert ws.reason.startswith("ünknown ")
    assert 120 <= len(ws.reason.encode()) <= 123


async def test_a_websocket_client_that_left_ends_the_handler_quietly(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    async def chatty(request: Request, send: Send) -> None:
        await send({"type": "websocket.accept"})
        while (await request.receive())["type"] != "websocket.disconnect":
            pass
        try:
            await send({"type": "websocket.send", "text": "too late"})
        except ClientGone:
            told.append("gone")
            raise

    async with served(Route("WEBSOCKET", "/w", chatty)) as client, client.websocket("/w") as ws:
        ws.close(1006)
    assert told == ["gone"]
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
