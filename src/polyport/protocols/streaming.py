"""Event streams: the SSE answer, its heartbeat, and what to do when the client hangs up.

Used by handlers that answer with server-sent events, or that wait long for one answer. The iterator of a stream is read by
one task from its start to its end; who has to say something in quiet time nudges it, so that no step of an iterator is ever
cancelled and then taken again. Never makes the frames of a protocol.
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
"""How long a stream, or a run, goes on before anybody looks whether its client is still there: a watcher costs more than a
short one."""


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
    nudge: Callable[[], None] | None = None,
    heartbeat_s: float = 0.0,
    timeout_s: float | None = None,
) -> Ended:
    """Write each batch of frames to a started stream until `batches` ends, the client hangs up or `timeout_s` is over.

    The stream is left open, so that the caller can say goodbye. `batches` is closed before this returns. What `batches` raises
    is raised here, not in a group. `nudge` has `batches` give an empty batch where it waits. With it the client is not watched
    for UNWATCHED_S (a write to one that left is nobody's loss), and a comment is sent when the stream was quiet for
    `heartbeat_s` (0 is never).
    """
    ended: Ended = "timeout"
    pulse = None if nudge is None else _Pulse(stream, nudge, heartbeat_s)
    with nullcontext() if timeout_s is None else anyio.move_on_after(timeout_s):
        try:
            if pulse is not None and await _over_soon(stream, batches, pulse):
                ended = "done"
            else:
                ended = await _watched(request, stream, batches)
        except BaseException:
            await _close(batches)
            raise
        finally:
            if pulse is not None:
                pulse.stop()
    return ended


class _Pulse:
    """Nudges the iterator of a stream: once after UNWATCHED_S, then whenever nothing was written between two ticks, which is at
    most `quiet_s` of silence. No task, for many streams are open for long and say little."""

    __slots__ = ("_nudge", "_quiet_s", "_seen", "_stream", "_timer", "late")

    def __init__(self, stream: SseStream, nudge: Callable[[], None], quiet_s: float) -> None:
        self._stream = stream
        self._nudge = nudge
        self._quiet_s = quiet_s
        self._seen = -1
        self._timer = asyncio.get_running_loop().call_later(UNWATCHED_S, self._tick)
        self.late = False
        """Whether UNWATCHED_S are over."""

    def _tick(self) -> None:
        if not self.late or self._stream.writes == self._seen:
            self._nudge()
        if self.late:
            self._seen = self._stream.writes
        self.late = True
        if self._quiet_s > 0:
            self._timer = asyncio.get_running_loop().call_later(self._quiet_s / 2, self._tick)

    def stop(self) -> None:
        self._timer.cancel()


async def _over_soon(stream: SseStream, batches: AsyncIterator[bytes], pulse: _Pulse) -> bool:
    """Write what comes within UNWATCHED_S, without another task; whether that was all."""
    async for batch in batches:
        if batch:
            await stream.send(batch)
        if pulse.late:
            return False
    return True


async def _watched(request: Request, stream: SseStream, batches: AsyncIterator[bytes]) -> Ended:
    """Write the rest, with an eye on the client."""
    ended: Ended = "gone"

    async def watch() -> None:
        await request.disconnected()
        tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                async for batch in batches:
                    await stream.send(batch or sse.HEARTBEAT)
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
