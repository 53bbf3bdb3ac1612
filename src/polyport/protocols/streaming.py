"""Event streams: the SSE answer, its heartbeat, and what to do when the client hangs up.

Used by handlers that answer with server-sent events, or that wait long for one answer. The iterator of a stream is read by
one task from its start to its end; quiet time is filled by another task, so that no step of an iterator is ever cancelled
and then taken again. Never makes the frames of a protocol.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Literal, TypeVar

import anyio

from polyport.data.run import RunRequest
from polyport.errors import unwrap
from polyport.ports.runs import Run, Runs
from polyport.protocols.answers import EVENTS
from polyport.protocols.http import ClientGone, Header, Request, Send
from polyport.wire import sse

T = TypeVar("T")
Ended = Literal["done", "gone", "timeout"]
"""How a stream ended: the iterator ended; the client hung up; its time was over."""

UNWATCHED_S = 0.05
"""How long a stream goes on before anybody looks whether its client is still there: a watcher costs more than a short one."""


class SseStream:
    """An event stream as an answer; with another `kind` of Content-Type, one of lines. `start` sends status 200 and the headers
    at once; `send` takes whole frames."""

    __slots__ = ("_send", "writes")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.writes = 0

    async def start(self, headers: Iterable[Header] = (), kind: Header = EVENTS, *, soon: bool = False) -> None:
        """`soon` says that frames follow at once; without it an empty body moves the headers of a server that waits for one."""
        fixed = [
            kind,
            (b"cache-control", b"no-cache"),
            (b"connection", b"keep-alive"),
            (b"x-accel-buffering", b"no"),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": [*fixed, *headers]})
        if not soon:
            await self._send({"type": "http.response.body", "body": b"", "more_body": True})

    def send(self, frames: bytes) -> Awaitable[None]:
        """Write one or more whole frames; awaiting it is the back-pressure of the connection."""
        self.writes += 1
        return self._send({"type": "http.response.body", "body": frames, "more_body": True})

    async def close(self) -> None:
        """End the answer. Nothing may be sent after it."""
        await self._send({"type": "http.response.body", "body": b""})


async def pump(
    request: Request,
    stream: SseStream,
    batches: AsyncIterator[bytes],
    *,
    heartbeat_s: float = 0.0,
    timeout_s: float | None = None,
    nudge: Callable[[], None] | None = None,
) -> Ended:
    """Write each batch of frames to a started stream until `batches` ends, the client hangs up or `timeout_s` is over.

    Sends a comment when the stream was quiet for `heartbeat_s` (0 is never). The stream is left open, so that the caller
    can say goodbye. `batches` is closed before this returns. What `batches` raises is raised here, not in a group.
    With `nudge`, which has `batches` give an empty batch where it waits, the client is not watched for UNWATCHED_S; a write
    to one that left is nobody's loss.
    """
    ended: Ended = "timeout"
    with nullcontext() if timeout_s is None else anyio.move_on_after(timeout_s):
        try:
            soon = nudge is not None and await _over_soon(stream, batches, nudge)
            ended = "done" if soon else await _watched(request, stream, batches, heartbeat_s)
        except BaseException:
            await _close(batches)
            raise
    return ended


async def _over_soon(stream: SseStream, batches: AsyncIterator[bytes], nudge: Callable[[], None]) -> bool:
    """Write what comes within UNWATCHED_S, without another task; whether that was all."""
    late = False

    def ring() -> None:
        nonlocal late
        late = True
        nudge()

    timer = asyncio.get_running_loop().call_later(UNWATCHED_S, ring)
    try:
        async for batch in batches:
            if batch:
                await stream.send(batch)
            if late:
                return False
    finally:
        timer.cancel()
    return True


async def _watched(request: Request, stream: SseStream, batches: AsyncIterator[bytes], heartbeat_s: float) -> Ended:
    """Write the rest, with an eye on the client."""
    ended: Ended = "gone"

    async def watch() -> None:
        await request.disconnected()
        tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            if heartbeat_s > 0:
                tasks.start_soon(_beat, stream, heartbeat_s)
            try:
                async for batch in batches:
                    if batch:
                        await stream.send(batch)
            except BaseException:
                await _close(batches)
                raise
            ended = "done"
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise unwrap(group) from None
    return ended


async def _close(batches: AsyncIterator[bytes]) -> None:
    close = getattr(batches, "aclose", None)
    if close is not None:
        with anyio.CancelScope(shield=True):
            await close()


async def _beat(stream: SseStream, quiet_s: float) -> None:
    """Two ticks without a write between them are at most `quiet_s` of silence."""
    seen = -1
    while True:
        await anyio.sleep(quiet_s / 2)
        if stream.writes == seen:
            await stream.send(sse.HEARTBEAT)
        seen = stream.writes


async def unless_gone(request: Request, wait: Callable[[], Awaitable[T]]) -> T:
    """What `wait` returns; ClientGone if the client hangs up first, and `wait` is cancelled.

    For handlers that answer once, after a time. What `wait` raises is raised here, not in a group.
    """
    answers: list[T] = []

    async def watch() -> None:
        await request.disconnected()
        tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            answers.append(await wait())
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise unwrap(group) from None
    if not answers:
        raise ClientGone("the client closed the connection")
    return answers[0]


async def attached_run(request: Request, runs: Runs, asked: RunRequest) -> Run:
    """A run that is cancelled when its watchers leave. ClientGone when the client hangs up while the run waits for its turn: it
    is never begun then. The rest as `Runs.start`."""
    if not runs.busy(asked.key):
        return await runs.start(asked, attached=True)  # the common case does without another task
    return await unless_gone(request, partial(runs.start, asked, attached=True))
