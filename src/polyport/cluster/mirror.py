"""A run of another process, as it is shown on NATS: one mirror for each run that somebody here follows.

Made by the cluster; given to protocols as `ports.runs.Run`. What is stored counts: a message that was heard is taken if it
is the next one, otherwise what is stored is read. While nobody uses it, it stands still.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from polyport.cluster.jetstream import Message
from polyport.cluster.link import Link
from polyport.cluster.shown import Shown, Tail, outcome_of, read_shown
from polyport.data.live import LiveRequest
from polyport.data.run import RunOutcome
from polyport.data.session import SessionKey
from polyport.errors import Conflict, Unavailable
from polyport.ports.runs import FeedItem
from polyport.runs.feed import Feed, until_woken, wake

log = logging.getLogger("polyport.cluster")
UNUSED_S = 30.0
"""How long a mirror that nobody uses goes on."""
OTHER_VERSION = "the run is carried out by another version, which says what is not known here"
LOST = "the process that carried it out is gone"


class Mirror(Feed):
    """`life` is the ticket's. An `attached` one was handed out here: it is cancelled when its last watcher here leaves."""

    def __init__(self, link: Link, run_id: str, life: int, limit: int, stop: "Stop") -> None:
        super().__init__(limit)
        self.id = run_id
        self.life = life
        self.key = SessionKey("", "", "")
        self.outcome: RunOutcome | None = None
        self.attached = False
        self.handed_out = False
        self.watchers = 0
        self.running = False
        self._link = link
        self._stop = stop
        self._look_s = link.lease_s / 2
        self._feed = link.subjects.feed(run_id, life)
        self._shown = link.subjects.shown(run_id, life)
        self.seq = 0
        self._pieces: list[bytes] = []
        self._behind = True
        self._news = anyio.Event()
        self._ends: set[asyncio.Future[None]] = set()
        self._used = 0.0

    # ---- what is shown

    async def _watch(self) -> None:
        """Keep up with the run until it ends, or nobody uses this any more."""
        try:
            await self._keep_up()
        finally:
            self.running = False
        if self._in_use():
            self.use()

    async def _keep_up(self) -> None:
        missing = 0
        async with self._link.jetstream.listening(self._shown, self._heard):
            self._behind = True
            while self.outcome is None and self._in_use():
                try:
                    if self._behind:
                        await self.catch_up()
                    if missing > 1:  # looked at twice, for the copy that answers may be behind
                        self.finish(RunOutcome(status="cancelled", reason=LOST))
                    elif await self._quiet():
                        held = await self._link.tickets.read(self.key)
                        missing = 0 if held is not None and held.life == self.life else missing + 1
                        self._behind = True  # the newest message may be lost: nothing after it tells
                    else:
                        missing = 0
                except Unavailable as error:
                    log.debug("run %s: %s", self.id, error)
                    self._behind = True
                    await anyio.sleep(self._look_s)

    async def _quiet(self) -> bool:
        """Wait for news, but not long; whether there are none."""
        if self._behind or self.outcome is not None:
            return False
        self._news = anyio.Event()
        with anyio.move_on_after(self._look_s):
            await self._news.wait()
        return not self._news.is_set()

    def nudge(self) -> None:
        """Something may have been lost: read what is stored."""
        self._behind = True
        self._news.set()

    async def catch_up(self) -> None:
        """Read what is stored and not known yet."""
        self._behind = False
        jetstream, subjects = self._link.jetstream, self._link.subjects
        for message in await jetstream.since(subjects.feeds, self._feed, self.seq + 1):
            self._take(message)

    def _heard(self, message: Message) -> None:
        if message.seq <= self.seq:
            return
        if message.previous == self.seq and not self._behind:
            self._take(message)
        else:
            self._behind = True
        self._news.set()

    def _take(self, message: Message) -> None:
        if message.seq <= self.seq:
            return
        self.seq = message.seq
        tail = Tail.of(message.headers)
        if tail is None:
            self._unreadable("not a message of ours")
            return
        if tail.part == 0:
            self._pieces = []
        elif len(self._pieces) != tail.part:
            return  # the rest of a message whose beginning was forgotten
        self._pieces.append(message.data)
        if tail.more:
            return
        data = b"".join(self._pieces)
        self._pieces = []
        try:
            self._show(read_shown(data))
        except msgspec.DecodeError as error:
            self._unreadable(str(error))

    def _unreadable(self, why: str) -> None:
        log.warning("run %s cannot be shown: %s", self.id, why)
        self.finish(RunOutcome(status="failed", error=Unavailable(OTHER_VERSION), reason=OTHER_VERSION))

    def _show(self, shown: Shown) -> None:
        self.key, self.base = shown.key, shown.base
        for offset, (stored, event) in enumerate(shown.items, shown.first):
            if offset <= self.offset:
                continue
            if offset > self.offset + 1:  # what was before is so old that it was forgotten
                self._items.clear()
                self.offset = self.forgotten = offset - 1
            self.offset = offset
            self._items.append(FeedItem(offset, stored, event))
        if self._followers:
            wake(self._followers)
        if shown.ended is not None:
            self.finish(outcome_of(shown.ended))

    def finish(self, outcome: RunOutcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.close()
            wake(self._ends)

    def _in_use(self) -> bool:
        if self.handed_out or self.watchers or self._followers or self._ends:
            return True
        return asyncio.get_running_loop().time() - self._used < UNUSED_S

    def use(self) -> None:
        """Somebody uses it: keep up."""
        self._used = asyncio.get_running_loop().time()
        if not self.running and self.outcome is None:
            self.running = True
            self._link.start(self._watch)

    # ---- ports.runs.Run

    async def changed(self, after: int) -> bool:
        self.use()
        return await super().changed(after)

    async def stirred(self) -> None:
        self.use()
        await super().stirred()

    async def wait(self) -> RunOutcome:
        self.use()
        while self.outcome is None:
            await until_woken(self._ends)
        return self.outcome

    async def ends_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self.wait()
        return self.outcome is not None

    async def tell(self, said: LiveRequest) -> None:
        raise Conflict(f"run {self.id!r} is carried out by another process; it takes no messages here")

    def hang_up(self) -> None: ...

    def forget(self, upto: int) -> None:
        if self.watchers <= 1:
            super().forget(upto)

    def watching(self) -> "_Watching":
        return _Watching(self, self._stop)


class _Watching:
    """See ports.runs.Run.watching."""

    __slots__ = ("_mirror", "_stop")

    def __init__(self, mirror: Mirror, stop: "Stop") -> None:
        self._mirror = mirror
        self._stop = stop

    async def __aenter__(self) -> None:
        self._mirror.watchers += 1
        self._mirror.use()

    async def __aexit__(self, *_: object) -> None:
        mirror = self._mirror
        mirror.watchers -= 1
        if mirror.attached and mirror.watchers == 0 and mirror.outcome is None:
            with anyio.CancelScope(shield=True), anyio.move_on_after(30):
                await self._stop(mirror, "the client went away")


Stop = Callable[[Mirror, str], Awaitable[None]]
"""Stops a run of another process, for a reason, and returns when it has ended."""
