"""A run of this process: its feed, its inbox if it is live, and how it is waited for and stopped.

Made by the coordinator, which owns its task; given to protocols as `ports.runs.Run`. Never starts anything by itself.
"""

import asyncio
from collections.abc import Callable

import anyio

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.live import LiveRequest
from polyport.data.run import RunOutcome
from polyport.data.session import SessionKey
from polyport.errors import Conflict
from polyport.runs.feed import Feed, until_woken, wake
from polyport.runs.inbox import ITEM_BYTES, Inbox
from polyport.runs.workers import Work


class LiveRun(Feed):
    """A run of this process; see ports.runs.Run."""

    __slots__ = (
        "_bytes",
        "_waiting",
        "attached",
        "check",
        "id",
        "inbox",
        "key",
        "outcome",
        "reason",
        "taken",
        "task",
        "timed_out",
        "watchers",
    )

    def __init__(self, run_id: str, key: SessionKey, attached: bool, feed_items: int, base: int) -> None:
        super().__init__(feed_items, base)
        self.id = run_id
        self.key = key
        self.attached = attached
        self.watchers = 0
        self.outcome: RunOutcome | None = None
        self.reason = ""
        self.taken = False
        """It began in another process: its feed is the rest only. The whole is what all processes show."""
        self.timed_out = False
        self.task: Work | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._bytes = 0
        """About how much the kept items of a live run hold."""
        self.inbox: Inbox | None = None
        self.check: Callable[[Content], None] | None = None
        """Refuses answers that must not be acted on; of a live run."""

    async def tell(self, said: LiveRequest) -> None:
        """See ports.runs.Run."""
        if self.inbox is None:
            raise Conflict(f"run {self.id!r} is not live; it takes no more messages")
        if self.check is not None and said.content is not None and said.content.responses:
            self.check(said.content)
        await self.inbox.put(said)

    def hang_up(self) -> None:
        """See ports.runs.Run."""
        if self.inbox is not None:
            self.inbox.close()

    def publish_live(self, event: Event, stored: bool = True) -> None:
        """As `publish`, of a live run: its events may be large, so those that wait for a follower are bounded in bytes, too."""
        assert self.inbox is not None
        if self.kept == self.limit:
            self._bytes -= _size(self._items[0].event)
        self.publish(event, stored)
        self._bytes += _size(event)
        while self._bytes > self.inbox.limit and self.kept > 1:
            self._bytes -= _size(self._items.popleft().event)

    def forget(self, upto: int) -> None:
        """See ports.runs.Run."""
        if self.watchers <= 1:
            super().forget(upto)
            self._bytes = sum(_size(item.event) for item in self._items)

    def finish(self, outcome: RunOutcome) -> None:
        self.outcome = outcome
        self.hang_up()
        self.close()
        wake(self._waiting)

    def cancel(self, reason: str) -> None:
        """Ask the run to stop. The first reason counts."""
        if self.outcome is None and not self.reason:
            self.reason = reason
            assert self.task is not None
            self.task.cancel()

    def expire(self, limit_s: float) -> None:
        """Stop because the wall clock of the run is over."""
        self.timed_out = self.outcome is None and not self.reason
        self.cancel(f"the run took longer than {limit_s:g} s and was stopped")

    async def wait(self) -> RunOutcome:
        while self.outcome is None:
            await until_woken(self._waiting)
        return self.outcome

    async def ends_within(self, seconds: float) -> bool:
        if self.outcome is None:
            await asyncio.sleep(0)  # a run that waits for nothing ends in the next turn of the loop
        if self.outcome is None:  # a timer is a third of a cancel scope's price
            timer = asyncio.get_running_loop().call_later(seconds, wake, self._waiting)
            try:
                await until_woken(self._waiting)
            finally:
                timer.cancel()
        return self.outcome is not None

    async def gone(self) -> None:
        """Return when the run has ended and the session's summary, if one was due, is stored."""
        if self.task is not None:
            await self.task.wait()

    def leave(self) -> None:
        """Store no summary of the session any more, if the run has ended and is at that."""
        if self.outcome is not None and self.task is not None:
            self.task.cancel()

    def watching(self) -> "_Watching":
        return _Watching(self)


class _Watching:
    """See ports.runs.Run.watching."""

    __slots__ = ("_run",)

    def __init__(self, run: LiveRun) -> None:
        self._run = run

    async def __aenter__(self) -> None:
        self._run.watchers += 1

    async def __aexit__(self, *_: object) -> None:
        run = self._run
        run.watchers -= 1
        if run.attached and run.watchers == 0 and run.outcome is None:
            run.cancel("the client went away")
            with anyio.CancelScope(shield=True), anyio.move_on_after(30):
                await run.wait()


def _size(event: Event) -> int:
    parts = event.content.parts if event.content is not None else ()
    return ITEM_BYTES + sum(len(part.inline_data.data) for part in parts if part.inline_data is not None)
