"""The feed of one run: an append-only log that any number of followers read at their own pace.

Written by commit, read by protocols. A slow follower never holds up the run; one that falls behind the window of kept items
is told so. No task group, no scope: leaving a `follow` at any point is safe.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from itertools import islice

from polyport.data.event import Event
from polyport.errors import LimitExceeded
from polyport.ports.runs import FeedItem


class Feed:
    """Keeps at most `limit` items. Offsets count from 1. `base` is how many events of the run were stored before this feed
    began: those of a run that died, or paused, and goes on."""

    __slots__ = ("_done", "_followers", "_items", "_stored", "base", "forgotten", "limit", "offset")

    def __init__(self, limit: int = 100_000, base: int = 0) -> None:
        self._items: deque[FeedItem] = deque(maxlen=limit)
        self._followers: set[asyncio.Future[None]] = set()  # one for each that waits: a shared one falls with the first
        self._done = False
        self._stored = base
        self.base = base
        self.forgotten = 0
        self.limit = limit
        self.offset = 0

    @property
    def kept(self) -> int:
        """How many items are kept. Not `__len__`: a run without items yet would be false."""
        return len(self._items)

    def publish(self, event: Event, stored: bool = True) -> None:
        self.offset += 1
        if stored and not event.partial:
            self._stored += 1
        self._items.append(FeedItem(self.offset, self._stored, event))
        if self._followers:
            wake(self._followers)

    def close(self) -> None:
        """No more items; followers end when they have read what there is. Idempotent."""
        self._done = True
        wake(self._followers)

    async def changed(self, after: int) -> bool:
        """Wait until there is an item after this offset or the feed is closed; whether there may be more later."""
        while self.offset <= max(after, self.forgotten) and not self._done:
            await until_woken(self._followers)
        return not self._done

    async def stirred(self) -> None:
        """See ports.runs.Run.stirred."""
        await until_woken(self._followers)

    def stir(self) -> None:
        """See ports.runs.Run.stir."""
        wake(self._followers)

    def read(self, after: int) -> Sequence[FeedItem]:
        """The kept items after this offset, at once. LimitExceeded when some are gone that nobody forgot on purpose."""
        after = max(after, self.forgotten)
        first = self.offset - len(self._items) + 1
        if after + 1 < first:
            raise LimitExceeded(f"the follower fell behind: items {after + 1} to {first - 1} of the run are gone")
        if after >= self.offset:
            return ()
        if after + 1 == first:
            return tuple(self._items)
        # from the end, for that is where followers are: a long feed costs nothing more
        newest = list(islice(reversed(self._items), self.offset - after))
        newest.reverse()
        return newest

    def forget(self, upto: int) -> None:
        """Drop the items up to this offset; whoever follows from before them begins behind them."""
        first = self.offset - len(self._items) + 1
        for _ in range(min(upto, self.offset) - first + 1):
            self._items.popleft()
        self.forgotten = max(self.forgotten, min(upto, self.offset))

    async def follow(self, after: int = 0) -> AsyncGenerator[Sequence[FeedItem]]:
        """Batches of items after an offset: those there are, then new ones as they come, until the feed is closed."""
        while True:
            more = await self.changed(after)
            items = self.read(after)
            if items:
                after = items[-1].offset
                yield items
            elif not more:
                return


async def until_woken(waiting: set[asyncio.Future[None]]) -> None:
    """Wait for the next `wake(waiting)`. An asyncio.Event does the same, and costs three times as much."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.add(waiter)
    try:
        await waiter
    finally:
        waiting.discard(waiter)


def wake(waiting: set[asyncio.Future[None]]) -> None:
    """Wake all that wait now."""
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
    waiting.clear()
