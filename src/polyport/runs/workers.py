"""Workers: the tasks in which runs are carried out, one after the other, for a task of anyio costs a fifth of a short run.

Made by the coordinator, in its task group. Whatever is carried out has the context variables of whoever started it, and
leaves none behind, as if the task were its own. A worker that was cancelled is never used again.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any

import anyio
import anyio.abc

from polyport.runs.feed import until_woken, wake

IDLE = 64
"""How many workers may wait for work; each holds about 3 kB."""

Body = Coroutine[Any, Any, None]


class Work:
    """A body that a worker carries out."""

    __slots__ = ("_waiting", "_worker", "over")

    def __init__(self, worker: "_Worker") -> None:
        self._worker = worker
        self._waiting: set[asyncio.Future[None]] = set()
        self.over = False

    def cancel(self) -> None:
        """Cancel the body: wherever it waits, again and again, until it ends."""
        if not self.over:
            self._worker.cancelled = True
            assert self._worker.task is not None
            self._worker.task.cancel()

    async def wait(self) -> None:
        """Return when the body has ended."""
        while not self.over:
            await until_woken(self._waiting)

    def end(self) -> None:
        """The body has ended."""
        self.over = True
        wake(self._waiting)


class _Worker:
    __slots__ = ("bell", "cancelled", "next", "task")

    def __init__(self) -> None:
        self.task: anyio.TaskHandle[None] | None = None
        self.next: tuple[Work, Body, Context] | None = None
        self.bell: asyncio.Future[None] | None = None
        self.cancelled = False


class Workers:
    """Those of one task group."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group
        self._idle: list[_Worker] = []
        self._closed = False

    def start(self, body: Body) -> Work:
        """Carry out `body`. It may raise nothing but a cancellation."""
        worker = self._idle.pop() if self._idle else _Worker()
        if worker.bell is not None and worker.bell.done():
            worker = _Worker()  # the group was cancelled in this turn of the loop, and the others do not know yet
        work = Work(worker)
        worker.next = (work, body, copy_context())
        if worker.bell is not None:
            worker.bell.set_result(None)
        else:
            # a task keeps the variables that it was made with for its life: none, for it outlives who started it
            worker.task = Context().run(self._group.start_soon, self._carry_out, worker)
        return work

    def close(self) -> None:
        """Let the workers go that have nothing to do, and the others when they are done."""
        self._closed = True
        for worker in self._idle:
            if worker.bell is not None and not worker.bell.done():
                worker.bell.set_result(None)
        self._idle.clear()

    async def _carry_out(self, worker: _Worker) -> None:
        task = asyncio.current_task()
        assert task is not None
        while worker.next is not None:
            work, body, context = worker.next
            worker.next = None
            try:
                await _within(context, body)
            finally:
                work.end()
            del work, body, context  # a worker that waits holds nothing of them
            if worker.cancelled or task.cancelling() or self._closed or len(self._idle) >= IDLE:
                return
            worker.bell = asyncio.get_running_loop().create_future()
            self._idle.append(worker)
            try:
                await worker.bell
            except anyio.get_cancelled_exc_class():
                if worker in self._idle:
                    self._idle.remove(worker)
                raise


@coroutine
def _within(context: Context, body: Body) -> Generator[Any, Any, None]:
    """Each step of `body` in `context`, as the event loop does it for a task, which has one context for its life."""
    step, value = body.send, None
    while True:
        try:
            wanted = context.run(step, value)
        except StopIteration:
            return
        try:
            step, value = body.send, (yield wanted)
        except BaseException as error:  # noqa: BLE001  a cancellation, above all: the body's to deal with
            step, value = body.throw, error
