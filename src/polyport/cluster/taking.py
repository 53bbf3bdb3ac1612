"""Taking up what other processes leave behind: runs of one that is gone, and runs that wait for somebody who carries them out.

Used by the cluster: one task that says that we are there, and looks who is not any more, every third of a lease. Of two that
see the same loss, whoever changes a ticket first has it.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
from msgspec import structs

from polyport.cluster.jetstream import Message
from polyport.cluster.link import Link
from polyport.cluster.replicas import Replica
from polyport.cluster.shown import Tail
from polyport.cluster.tickets import session_key
from polyport.data.session import SessionKey
from polyport.errors import LimitExceeded, PolyportError, Unavailable
from polyport.ports.peers import Take, Ticket

log = logging.getLogger("polyport.cluster")
AT_ONCE = 16
"""How many runs of one that is gone are taken up side by side."""
WAIT_S = 0.02
APPEAR_TRIES, APPEAR_AGAIN_S = 5, 0.5
LOOK_EVERY = 10
"""Leases between looks at all tickets, in case a loss was seen by nobody."""


class Taking:
    """`willing` is whether we carry out runs at all. `tell` is called on every beat: whether we were taken for gone."""

    def __init__(self, link: Link, willing: bool, tell: Callable[[bool], None]) -> None:
        self._link = link
        self._willing = willing
        self._tell = tell
        self._take: Take | None = None
        self._apps: frozenset[str] = frozenset()
        self._recover: dict[str, Callable[[], Awaitable[None]]] = {}
        self._woken = anyio.Event()
        self._rests_until = 0.0
        self._suspects: set[str] = set()
        self._strays: set[int] = set()
        self._doubts = False
        self._at_once = anyio.CapacityLimiter(AT_ONCE)
        self._looks = False

    def on_loss(self, kind: str, recover: Callable[[], Awaitable[None]]) -> None:
        self._recover[kind] = recover

    @asynccontextmanager
    async def running(self, take: Take, apps: Collection[str]) -> AsyncGenerator[None]:
        """Be there, inside the block."""
        link = self._link
        self._take, self._apps = take, frozenset(apps) if self._willing else frozenset()
        self._rests_until, self._suspects, self._strays = 0.0, set(), set()
        async with AsyncExitStack() as stack:
            for app in sorted(self._apps):
                work = link.subjects.work(app)
                await stack.enter_async_context(link.jetstream.listening(work, self._hear, queue="takers"))
            await self._appear()
            link.start(self._beat)
            yield

    async def _appear(self) -> None:
        """Say for the first time that we are there: of a stream that was just made, no server may be the leader yet."""
        for left in reversed(range(APPEAR_TRIES)):
            try:
                await self._link.replicas.say([*self._recover])
                return
            except Unavailable:
                if not left:
                    raise
                await anyio.sleep(APPEAR_AGAIN_S)

    def stop(self) -> None:
        """Take nothing any more: this process is about to leave."""
        self._rests_until = float("inf")

    def doubt(self) -> None:
        """We may have a ticket and not know of it: look at all of them soon."""
        self._doubts = True

    def wake(self) -> None:
        """Look now: we may have missed something."""
        self._woken.set()

    async def _beat(self) -> None:
        """Nothing here may take long: who says nothing for a lease is gone."""
        beats = 0
        while True:
            try:
                self._tell(not await self._link.replicas.say([*self._recover]))
                for lost in await self._link.replicas.lost():
                    log.warning("process %s is gone", lost.name)
                    self._suspects.add(lost.name)  # what cannot be taken up at once is looked for again
                    self._link.start(self._take_over_all, lost)
                    self._link.start(self._care_for, lost)
            except Unavailable as error:
                log.debug("%s", error)
            except Exception:  # whatever it is, who is there must say so
                log.exception("a look at the other processes failed")
            if not self._looks:
                doubts = self._doubts or bool(self._suspects or self._strays)
                self._link.start(self._look, doubts or beats % (LOOK_EVERY * 3) == 3)
            beats += 1
            self._woken = anyio.Event()
            with anyio.move_on_after(self._link.lease_s / 3):
                await self._woken.wait()

    async def _look(self, everywhere: bool) -> None:
        self._looks = True
        try:
            if self._able:
                await self._look_for_waiting()
            if everywhere:
                await self._look_for_orphans()
        finally:
            self._looks = False

    @property
    def _able(self) -> bool:
        return bool(self._apps) and anyio.current_time() >= self._rests_until

    # ---- runs of a process that is gone

    async def _take_over_all(self, lost: Replica) -> None:
        if self._able:
            for ticket in await self._link.tickets.all():
                if ticket.owner == lost.name:
                    self._link.start(self._take_over, ticket)

    async def _care_for(self, lost: Replica) -> None:
        for kind in lost.kinds:
            recover = self._recover.get(kind)
            if recover is not None and await self._link.replicas.first_at(lost, kind):
                await recover()

    async def _take_over(self, ticket: Ticket) -> None:
        async with self._at_once:
            if self._able and ticket.request.key.app in self._apps:
                await self._make_ours(ticket, structs.replace(ticket, owner=self._link.name, taken=ticket.taken + 1))

    async def _look_for_orphans(self) -> None:
        """Tickets of owners that are not there, at two looks: after a restart of the server, all have to come back first. And
        those that we have and do not know of, for the answer was lost: of a claim, which nobody counts on any more, or when
        we took up a run, which waits for somebody then."""
        link = self._link
        tickets = await link.tickets.all()
        self._doubts = False
        there = await link.replicas.names()
        owners = {ticket.owner for ticket in tickets if ticket.request.key.app in self._apps}
        gone, strays = owners - there - {"", link.name}, set[int]()
        for ticket in tickets:
            if ticket.owner in gone & self._suspects:
                link.start(self._take_over, ticket)
            elif ticket.owner == link.name and ticket.request.key not in link.mine:
                strays.add(ticket.revision)
                if ticket.revision in self._strays:
                    link.start(link.let_go if ticket.revision == ticket.life else self._put_back, ticket)
            elif not ticket.owner and ticket.request.key.app in self._apps:
                await self._try_waiting(ticket.request.key)
        self._suspects, self._strays = gone - self._suspects if self._able else gone, strays - self._strays

    # ---- runs that wait

    def _hear(self, message: Message) -> None:
        if self._able:
            self._link.start(self._take_waiting, session_key(message.data))

    async def _look_for_waiting(self) -> None:
        for key, seq in await self._link.tickets.waiting():
            if key.app in self._apps:
                await self._try_waiting(key, seq)

    async def _try_waiting(self, key: SessionKey, seq: int = 0) -> None:
        """As `_take_waiting`; one that cannot be read does not hide the others."""
        try:
            await self._take_waiting(key, seq)
        except PolyportError as error:
            log.debug("%s is not taken: %s", key, error)

    async def _take_waiting(self, key: SessionKey, seq: int = 0) -> None:
        if not self._able:
            return
        ticket = await self._link.tickets.read(key)
        if ticket is not None and not ticket.owner:
            await self._make_ours(ticket, structs.replace(ticket, owner=self._link.name))
        elif seq:
            await self._link.tickets.taken(key, seq)

    # ----

    async def _make_ours(self, ticket: Ticket, changed: Ticket) -> None:
        """Change the ticket, if nobody was faster, and begin what is left to do of it."""
        link, key = self._link, ticket.request.key
        while (here := link.mine.get(key)) is not None:
            if here.owner or here.run_id == ticket.run_id:
                return  # we have it, or are at it: a second change of ours would look like the first one
            await anyio.sleep(WAIT_S)  # a message that came in here asks for the session; it will not get it
        link.mine[key], ours = ticket, None
        try:
            ours = await link.tickets.change(ticket, changed)
        finally:
            if ours is None:
                link.mine.pop(key, None)
        if ours is None or self._take is None:
            return
        link.mine[key] = ours
        if not ticket.owner:
            link.start(link.tickets.taken, key)
        await self._begin(ours)

    async def _begin(self, ticket: Ticket) -> None:
        link, key, run_id = self._link, ticket.request.key, ticket.run_id
        assert self._take is not None
        try:
            shown = await link.jetstream.last(link.subjects.feeds, link.subjects.feed(run_id, ticket.life))
            tail = Tail.of(shown.headers) if shown is not None else None
            if tail is not None and tail.ended:
                return await self._let_go(ticket)  # its owner only did not give the session back any more
            log.info("run %s of %s is taken up", run_id, key)
            await self._take(ticket)
        except (LimitExceeded, Unavailable) as error:
            log.info("run %s is left to another process: %s", run_id, error)
            self._rests_until = max(self._rests_until, anyio.current_time() + link.lease_s / 3)
            await self._put_back(ticket)
        except PolyportError as error:
            log.warning("run %s could not be taken up: %s", run_id, error)
            await self._let_go(ticket)
        except Exception:
            log.exception("run %s could not be taken up", run_id)
            await self._let_go(ticket)

    async def _put_back(self, ticket: Ticket) -> None:
        link = self._link
        link.mine.pop(ticket.request.key, None)
        if await link.tickets.change(ticket, structs.replace(ticket, owner="")) is not None:
            await link.tickets.wait(ticket.request.key)

    async def _let_go(self, ticket: Ticket) -> None:
        self._link.mine.pop(ticket.request.key, None)
        await self._link.let_go(ticket)
