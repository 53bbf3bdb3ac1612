"""The load client: HTTP/1.1 keep-alive over asyncio protocols, a closed loop of N connections, no task per request.

Used by `rows.py`, `servers.py` and `streams.py`. A connection sends its next request from the callback that ends the answer
before, so the client costs 10-20 us per request. It knows just enough HTTP for the servers of this benchmark.
"""

import asyncio
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import msgspec

FRAME = b"\ndata:"
END = b"\r\n0\r\n\r\n"
TAIL = max(len(FRAME), len(END)) - 1


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


def delete(path: str) -> bytes:
    return f"DELETE {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


def post(path: str, body: Any, more: str = "") -> bytes:
    """`more`: further header lines, each with its end."""
    data = msgspec.json.encode(body)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n"
    )
    return f"{head}{more}\r\n".encode() + data


def decode(body: bytes) -> Any:
    return msgspec.json.decode(body)


def run_body(app: str, session: str, text: str, streaming: bool = False) -> dict[str, Any]:
    body: dict[str, Any] = {
        "appName": app,
        "userId": "u",
        "sessionId": session,
        "newMessage": {"role": "user", "parts": [{"text": text}]},
    }
    if streaming:
        body["streaming"] = True
    return body


@dataclass
class Expect:
    """What a right answer is: a status of 2xx, `marker` in the body, and so many SSE frames."""

    marker: bytes = b""
    frames: int = 0


@dataclass
class Result:
    """What came out of one load. `seconds` runs from the first request to the last answer."""

    expected: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    frames: int = 0
    errors: int = 0
    first_error: str = ""

    def fail(self, what: str, count: int = 1) -> None:
        self.errors += count
        self.first_error = self.first_error or what

    def numbers(self) -> dict[str, float]:
        ordered = sorted(self.latencies) or [float("nan")]
        return {
            "requests": len(self.latencies),
            "per_second": len(self.latencies) / self.seconds,
            "frames_per_second": self.frames / self.seconds,
            "p50_ms": statistics.median(ordered) * 1000,
            "p99_ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000,
            "errors": self.errors,
        }


class Connection(asyncio.Protocol):
    """One keep-alive connection. Calls `owner.answered` for each answer and `owner.lost` when the peer closes."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.transport: Any = None
        self.began = 0.0
        self.busy = False
        self._clear()

    def _clear(self) -> None:
        self.buffer = b""
        self.status = 0
        self.missing = -1  # bytes of the body still to come; -1 in a chunked one
        self.frames = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.owner.lost(self)

    def send(self, request: bytes) -> None:
        self.busy = True
        self.began = perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self.status:
            self._body(data)
            return
        data = self.buffer + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self.buffer = data
            return
        head = data[:end].lower()
        self.status = int(head[9:12])
        at = head.find(b"content-length:")
        if at >= 0:
            self.missing = int(head[at + 15 :].split(b"\r\n", 1)[0])
        elif self.status == 204:
            self.missing = 0
        self.buffer = b"" if self.missing >= 0 else b"\r\n"  # so that END is found in an empty chunked body, too
        self._body(data[end + 4 :])

    def _body(self, data: bytes) -> None:
        if self.missing >= 0:
            self.buffer += data
            if len(self.buffer) >= self.missing:
                self._done(self.buffer)
            return
        tail = self.buffer[-TAIL:]
        joined = tail + data
        self.frames += joined.count(FRAME) - tail.count(FRAME)
        self.buffer = joined if self.owner.keep else joined[-TAIL:]
        if joined.endswith(END):
            self._done(joined)

    def _done(self, body: bytes) -> None:
        status, frames = self.status, self.frames
        self._clear()
        self.busy = False
        self.owner.answered(self, status, body, frames)


class Batch:
    """Requests spread over connections, each connection taking the next one as soon as it is free."""

    keep = False

    def __init__(self, requests: list[bytes], expect: Expect) -> None:
        self.todo = iter(requests)
        self.expect = expect
        self.result = Result(len(requests))
        self.open = 0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def next(self, connection: Connection) -> None:
        request = next(self.todo, None)
        if request is not None:
            connection.send(request)
            return
        self.open -= 1
        if not self.open and not self.finished.done():
            self.finished.set_result(None)

    def answered(self, connection: Connection, status: int, body: bytes, frames: int) -> None:
        self.result.latencies.append(perf_counter() - connection.began)
        self.result.frames += frames
        if not 200 <= status < 300 or frames != self.expect.frames or self.expect.marker not in body:
            self.result.fail(f"status {status}, {frames} frames: {body[:300]!r}")
        self.next(connection)

    def lost(self, connection: Connection) -> None:
        if not connection.busy:
            return
        connection.busy = False
        self.result.fail("connection lost", 0)  # counted as unanswered
        self.open -= 1
        if not self.open and not self.finished.done():
            self.finished.set_result(None)


async def drive(port: int, requests: list[bytes], concurrency: int, expect: Expect, timeout: float = 180) -> Result:
    """Send all requests over `concurrency` connections; what is not answered counts as an error."""
    loop = asyncio.get_running_loop()
    batch = Batch(requests, expect)
    connections: list[Connection] = []
    for _ in range(min(concurrency, len(requests))):
        _, connection = await loop.create_connection(lambda: Connection(batch), "127.0.0.1", port)
        connections.append(connection)
    batch.open = len(connections)
    began = perf_counter()
    for connection in connections:
        batch.next(connection)
    try:
        async with asyncio.timeout(timeout):
            await batch.finished
    except TimeoutError:
        batch.result.fail(f"no answer within {timeout} s", 0)
    batch.result.seconds = perf_counter() - began
    for connection in connections:
        connection.busy = False
        connection.transport.close()
    batch.result.errors += len(requests) - len(batch.result.latencies)
    return batch.result


class One:
    """The owner of a connection that asks once and keeps the body."""

    keep = True

    def __init__(self) -> None:
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def answered(self, connection: Connection, status: int, body: bytes, frames: int) -> None:
        self.answer.set_result((status, body))

    def lost(self, connection: Connection) -> None:
        if not self.answer.done():
            self.answer.set_exception(ConnectionError("the server closed the connection"))


async def fetch(port: int, request: bytes, timeout: float = 120) -> tuple[int, bytes]:
    """One request on a connection of its own: status and body."""
    owner = One()
    transport, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(owner), "127.0.0.1", port
    )
    connection.send(request)
    try:
        async with asyncio.timeout(timeout):
            return await owner.answer
    finally:
        transport.close()


async def must(port: int, requests: Iterable[bytes], concurrency: int = 8) -> None:
    """Send requests that prepare a measurement; RuntimeError if one fails."""
    result = await drive(port, list(requests), concurrency, Expect(), 600)
    if result.errors:
        raise RuntimeError(f"{result.errors} of {result.expected} requests failed: {result.first_error}")
