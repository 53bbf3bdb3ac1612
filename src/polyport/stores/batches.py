"""Group commit without a thread or a task of its own: what arrives while a batch is under way goes into the next one.

Called by stores whose database charges for each round trip and each commit (`postgres.py`), one Batches for each event loop.
Whoever finds room carries out a batch, its own item first; the others wait. Knows nothing of databases.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import anyio

from polyport.errors import PolyportError, Unavailable

T = TypeVar("T")
R = TypeVar("R")


class _Waiting(Generic[T]):
    """An item, and who waits for it. `turn` is True when it is to carry out a batch itself, False when that was done for it."""

    __slots__ = ("error", "item", "result", "then", "turn")

    def __init__(self, item: T, then: Callable[[Any], None]) -> None:
        self.item = item
        self.then = then
        self.turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.result: Any = None
        self.error: Exception | None = Unavailable("the write was broken off")


class Batches(Generic[T, R]):
    """Carries out items in order of arrival: `width` batches at a time, of `limit` items at most.

    `work(items)` gives a result or an error for each item; a PolyportError that it raises, each of them gets.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]],
        *,
        width: int = 2,
        limit: int = 256,
    ) -> None:
        self._work = work
        self._width = width
        self._limit = limit
        self._under_way = 0
        self._queue: deque[_Waiting[T]] = deque()

    async def do(self, item: T, then: Callable[[R], None]) -> R:
        """The item's result, or its error is raised. `then(result)` is called first, also when the caller was cancelled after
        its item had been taken up; an item that was not is left undone."""
        one = _Waiting(item, then)
        if self._under_way < self._width:
            self._under_way += 1
            await self._carry_out(one)
        else:
            self._queue.append(one)
            if await self._turn(one):
                await self._carry_out(one)
        if one.error is not None:
            raise one.error
        return cast("R", one.result)

    async def _turn(self, one: _Waiting[T]) -> bool:
        try:
            return await one.turn
        except asyncio.CancelledError:
            if not one.turn.cancelled() and one.turn.result():  # its turn came in the same moment: somebody else's now
                self._end()
            raise

    async def _carry_out(self, one: _Waiting[T]) -> None:
        batch = [one]
        while self._queue and len(batch) < self._limit:
            other = self._queue.popleft()
            if not other.turn.done():  # its caller was cancelled
                batch.append(other)
        try:
            with anyio.CancelScope(shield=True):  # the others must not suffer from a caller that is cancelled
                try:
                    results = await self._work([waiting.item for waiting in batch])
                    for waiting, result in zip(batch, results, strict=True):
                        _settle(waiting, result)
                except PolyportError as error:
                    for waiting in batch:
                        waiting.error = error
        finally:
            for waiting in batch:
                if not waiting.turn.done():
                    waiting.turn.set_result(False)
            self._end()

    def _end(self) -> None:
        """A batch is done: those that wait have their turn."""
        self._under_way -= 1
        while self._queue and self._under_way < self._width:
            one = self._queue.popleft()
            if not one.turn.done():
                self._under_way += 1
                one.turn.set_result(True)


def _settle(waiting: _Waiting[Any], result: object) -> None:
    if isinstance(result, Exception):
        waiting.error = result
    else:
        waiting.error = None
        waiting.result = result
        waiting.then(result)
