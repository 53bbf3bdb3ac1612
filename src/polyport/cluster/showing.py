"""Showing a run of this process to the others: one writer for each shared run, which follows it and puts what is new on NATS.

Made by the cluster, in one of its tasks. All that is new goes into one message, while the answer to the last one is on its way.
Each message says which one it expects before it: where another one is, somebody else has the run, and this one stops.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import anyio
from msgspec import Raw

from polyport.cluster.jetstream import JetStream, Message
from polyport.cluster.shown import Ended, Tail, ToShow
from polyport.cluster.subjects import Subjects
from polyport.codec import encode
from polyport.data.event import Event
from polyport.errors import LimitExceeded, Unavailable
from polyport.ports.peers import TAKEN_OVER, Ticket
from polyport.ports.runs import FeedItem

T = TypeVar("T")
log = logging.getLogger("polyport.cluster")
BATCH_BYTES = 256 * 1024
BATCH_ITEMS = 1000
AGAIN_S = 0.2


class Source(Protocol):
    """What is shown of a run: see ports.runs.Run."""

    @property
    def offset(self) -> int: ...

    async def changed(self, after: int) -> bool: ...

    def read(self, after: int) -> Sequence[FeedItem]: ...


class Showing:
    """`past` are the run's events since `ticket.base` that were stored before `source` began. `ours()` is whether the ticket
    still is. `stop(reason)` stops the run."""

    def __init__(
        self,
        jetstream: JetStream,
        subjects: Subjects,
        source: Source,
        ticket: Ticket,
        past: Sequence[Event],
        ours: Callable[[], Awaitable[bool]],
        stop: Callable[[str], None],
    ) -> None:
        self.ticket = ticket
        self.stop = stop
        self.done = anyio.Event()
        self.lost = False
        """Somebody else has the run now."""
        self._jetstream = jetstream
        self._stream = subjects.feeds
        self._subject = subjects.feed(ticket.run_id, ticket.life)
        self._source = source
        self._past = past
        self._ours = ours
        self._tail = Tail(ticket.revision, stored=ticket.base)
        self._seq = 0
        self._ended: Ended | None = None
        self._over = False
        self._idle: anyio.CancelScope | None = None
        self._live = ticket.request.config.live is not None

    def end(self, ended: Ended | None) -> None:
        """Show what is left, and how the run ended; None: not how, for it goes on elsewhere."""
        self._ended = ended
        self._over = True
        if self._idle is not None:
            self._idle.cancel()

    async def show(self) -> None:
        """Until the run is over, or taken over."""
        try:
            if self.ticket.revision != self.ticket.life:  # somebody else may have shown something already
                await self._stand()
            await self._put([], False)  # so that it can be found, and no former owner can write any more
            while not self.lost:
                items, read = self._next()
                over = self._over and read == self._source.offset and self._tail.stored >= self._expected
                if items or (over and self._ended is not None):
                    await self._put(items, over, read)
                    if over and self._tail.ended:
                        return
                elif over:
                    return
                else:
                    await self._news(read)
        finally:
            self.done.set()

    @property
    def _expected(self) -> int:
        """Up to which stored event the past goes."""
        return self.ticket.base + len(self._past)

    def _next(self) -> tuple[list[tuple[int, Raw]], int]:
        """The next items, and how far the run is read with them."""
        tail = self._tail
        items: list[tuple[int, Raw]] = []
        size = 0
        for n in range(tail.stored, self._expected):
            items.append((n + 1, Raw(encode(self._past[n - self.ticket.base]))))
            size += len(items[-1][1])
            if size > BATCH_BYTES or len(items) == BATCH_ITEMS:
                return items, tail.read
        read = tail.read
        try:
            found = self._source.read(read)
        except (
            LimitExceeded
        ):  # they are said faster than they are shown, and were forgotten: what is stored is not lost
            log.warning("run %s: the cluster is too slow to show all of it", self.ticket.run_id)
            return items, self._source.offset
        for item in found:
            if size > BATCH_BYTES or len(items) >= BATCH_ITEMS:
                break
            read = item.offset
            if self._live and item.event.partial:
                continue  # sound; those who talk have it already
            items.append((item.stored, Raw(encode(item.event))))
            size += len(items[-1][1])
        return items, read

    async def _news(self, read: int) -> None:
        """Wait until there is more to show."""
        self._tail = self._tail._replace(read=read)
        with anyio.CancelScope() as self._idle:
            if not await self._source.changed(read) and not self._over:
                await anyio.sleep_forever()  # the run is closed; how it ended comes in the next moment
        self._idle = None

    async def _put(self, items: list[tuple[int, Raw]], over: bool, read: int = 0) -> None:
        """Store one message, in as many pieces as it takes. The tail is behind it then, or where somebody else got to."""
        before, ticket = self._tail, self.ticket
        ended = self._ended if over else None
        shown = ToShow(ticket.run_id, ticket.request.key, ticket.base, before.offset + 1, items, ended)
        data = encode(shown)
        after = before._replace(
            offset=before.offset + len(items),
            stored=items[-1][0] if items else before.stored,
            read=max(read, before.read),
            ended=int(ended is not None),
        )
        limit = self._jetstream.max_payload
        count = max(1, -(-len(data) // limit))
        for part in range(count):
            last = part == count - 1
            about = (after if last else before)._replace(part=part, more=int(not last))
            seq = await self._again(
                lambda piece=data[part * limit : (part + 1) * limit], about=about: self._jetstream.put(
                    self._subject, piece, expect=self._seq, about=about.header
                )
            )
            if seq is None:
                return await self._contested()
            self._seq = seq
        self._tail = after

    async def _contested(self) -> None:
        """Another message is where ours should be: of somebody who has taken the run over, of the one who had it before us, or
        our own, of which the answer was lost."""
        message = await self._again(lambda: self._jetstream.last(self._stream, self._subject))
        tail = Tail.of(message.headers) if message is not None else None
        mine = tail is not None and tail.by == self._tail.by  # also when the ticket is given back already
        if mine or await self._again(self._ours):
            await self._stand()
        else:
            self.lost = True
            self.stop(TAKEN_OVER)

    async def _stand(self) -> None:
        """Find out where the feed stands."""
        message: Message | None = await self._again(lambda: self._jetstream.last(self._stream, self._subject))
        if message is None:  # nothing yet, or all of it is so old that it was forgotten
            self._seq = 0
            return
        self._seq = message.seq
        tail = Tail.of(message.headers)
        if tail is None:  # somebody else writes here; what we have shown is what counts
            return
        mine = tail.by == self._tail.by
        self._tail = tail._replace(by=self._tail.by, read=tail.read if mine else 0, part=0, more=0)

    async def _again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until the cluster answers."""
        while True:
            try:
                return await call()
            except Unavailable as error:
                log.debug("run %s: %s", self.ticket.run_id, error)
                await anyio.sleep(AGAIN_S)
