"""The other processes, on NATS: who runs what, what is shown of runs, and what is left behind (see ports.peers.Peers).

Made by the App, used by the coordinator and by protocols. The session store says what is true; NATS may lose what it has, and
nothing is lost but the sight of it. Whoever has the ticket of a session runs it; whoever takes it over raises the fence of the
session first, so that the former owner cannot write any more.
"""

import logging
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Literal

import anyio
from msgspec import structs

from polyport.cluster.jetstream import CONNECT_S, Message, unique
from polyport.cluster.link import AGAIN_S, Link
from polyport.cluster.mirror import Mirror
from polyport.cluster.mirrors import Mirrors
from polyport.cluster.nats_url import parse
from polyport.cluster.questions import Questions
from polyport.cluster.showing import Showing
from polyport.cluster.shown import ended_of
from polyport.cluster.taking import Taking
from polyport.data.event import Event
from polyport.data.run import RunOutcome, RunRequest
from polyport.data.session import SessionKey
from polyport.errors import ConfigError, Conflict, Superseded, Unavailable
from polyport.ports.peers import TAKEN_OVER, Take, Ticket
from polyport.ports.runs import Run
from polyport.runs.feed import Feed

log = logging.getLogger("polyport.cluster")
NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


class Cluster:
    """The processes that share `prefix` on the NATS server (with JetStream) at `url`: `nats://user:password@host:4222`, `tls://`.

    `runs` is who carries out what comes in here: "here", or "workers", which are those with `worker` and those with "here".
    `name` is how this process is called in logs, that of the host by default. A process that says nothing for `lease_s`
    seconds (whole, at least 1) is taken for gone, and others go on with its runs. `replicas` is how many servers of NATS keep
    each message, `feed_age_s` for how long a run can be followed from its beginning. ConfigError says what is wrong.
    """

    def __init__(
        self,
        url: str,
        *,
        runs: Literal["here", "workers"] = "here",
        worker: bool = False,
        name: str = "",
        prefix: str = "polyport",
        lease_s: float = 6.0,
        replicas: int = 1,
        feed_age_s: float = 3600,
    ) -> None:
        address = parse(url)
        self.shown = address.shown
        """The URL, without its secrets."""
        if runs not in ("here", "workers"):
            raise ConfigError(f"the cluster's runs= is {runs!r}; it must be here or workers")
        for what, word in (("name", name or "host"), ("prefix", prefix)):
            if not NAME.fullmatch(word):
                raise ConfigError(f"the cluster's {what} {word!r} must be 1 to 40 letters, digits, - and _")
        if lease_s < 1 or lease_s != int(lease_s):
            raise ConfigError(f"the cluster's lease_s is {lease_s:g}; it must be whole seconds, at least 1")
        if not 1 <= replicas <= 5 or feed_age_s < 60:
            raise ConfigError("the cluster's replicas must be 1 to 5, and its feed_age_s at least 60")
        self._runs = runs
        self._called = name or re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:40]
        self._kept = (feed_age_s, replicas)
        self._link = Link(address, prefix, int(lease_s))
        self._taking = Taking(self._link, runs == "here" or worker, self._beaten)
        self._questions = Questions(self._link)
        self._mirrors = Mirrors(self._link, self._stop)
        self._shared: dict[str, Showing] = {}
        self._cancels: dict[str, Showing] = {}
        self._questions.holds("run", lambda ids: [id for id in ids if id in self._shared])
        self.name = self._new_name()

    def _new_name(self) -> str:
        return f"{self._called}-{unique()}"

    def __repr__(self) -> str:
        return f"Cluster({self.shown!r})"

    # ---- life

    @asynccontextmanager
    async def serving(self, take: Take, apps: Collection[str]) -> AsyncGenerator[None]:
        link = self._link
        self.name = link.name = self._new_name()  # one that was restarted has nothing of its former self
        link.replicas.enter(self.name)
        async with link.connected(self._back):
            await self._begin_streams()
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(link.jetstream.listening(link.subjects.all_cancels, self._cancelled))
                await stack.enter_async_context(self._questions.answered())
                await stack.enter_async_context(self._taking.running(take, apps))
                log.info("process %s is part of the cluster at %s", self.name, self.shown)
                try:
                    yield
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._leave()

    async def _begin_streams(self) -> None:
        """Servers that have just started need some seconds to agree on who leads."""
        until = anyio.current_time() + CONNECT_S * 2
        while True:
            try:
                return await self._make_streams()
            except Unavailable:
                if anyio.current_time() > until:
                    raise
                await anyio.sleep(AGAIN_S)

    async def _make_streams(self) -> None:
        for stream, subjects, settings in self._link.subjects.streams(*self._kept):
            await self._link.jetstream.ensure(stream, subjects, **settings)

    async def _leave(self) -> None:
        try:
            await self._link.replicas.leave()
        except Unavailable as error:
            log.warning("the others will notice within %d s that this process has left: %s", self._link.lease_s, error)

    def _back(self) -> None:
        """The connection was lost, and is there again: what was told meanwhile is not known here."""
        self._link.replicas.known = {}
        self._link.start(self._begin_streams)
        self._taking.wake()
        self._mirrors.nudge()
        self._questions.all_heard()

    def _beaten(self, gone: bool) -> None:
        self._questions.all_heard()
        if gone:
            log.warning("process %s was taken for gone; it goes on with what nobody has taken over", self.name)
            for showing in list(self._shared.values()):
                self._link.start(self._check, showing)

    async def _check(self, showing: Showing) -> None:
        if not await self._link.ours(showing.ticket):
            showing.stop(TAKEN_OVER)

    async def ping(self) -> None:
        await self._link.jetstream.check(self._link.subjects.signals)

    # ---- tickets

    async def claim(self, ticket: Ticket) -> tuple[bool, Ticket]:
        key, mine = ticket.request.key, self._link.mine
        here = mine.get(key)
        if here is not None:
            if here.run_id == ticket.run_id:
                raise Conflict(f"run {here.run_id!r} is active; follow it at /runs/{here.run_id}/events")
            return False, here
        mine[key] = ticket
        claimed, held = False, ticket
        try:
            with anyio.CancelScope(shield=True):  # or nobody would know whether it is ours
                claimed, held = await self._link.tickets.claim(structs.replace(ticket, owner=self.name))
        except Unavailable:
            self._taking.doubt()
            raise
        finally:
            if mine.get(key) is ticket:  # else it was taken up meanwhile
                del mine[key]
        if claimed:
            mine[key] = held
        return claimed, held

    async def renew(self, ticket: Ticket) -> Ticket:
        changed = await self._link.tickets.change(ticket, ticket)
        if changed is None:
            raise Superseded(f"another process has taken over {ticket.request.key}")
        self._link.mine[ticket.request.key] = changed
        return changed

    async def release(self, ticket: Ticket) -> None:
        key, mine = ticket.request.key, self._link.mine
        held = mine.get(key)
        if held is None or held.life != ticket.life:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(1) as scope:
            await self._give_back(held)
        if scope.cancelled_caught:
            log.warning("%s is given back as soon as the cluster can be reached", key)
            try:
                self._link.start(self._give_back, held)
            except Unavailable:
                log.warning("%s is free when the others notice that this process has left", key)

    async def _give_back(self, held: Ticket) -> None:
        await self._link.let_go(held)
        if self._link.mine.get(held.request.key) is held:
            del self._link.mine[held.request.key]

    async def freed(self, ticket: Ticket, wait_s: float) -> bool:
        return await self._link.tickets.freed(ticket, wait_s)

    # ---- runs that are carried out here

    def share(self, run: Run, ticket: Ticket, past: Sequence[Event], stop: Callable[[str], None]) -> None:
        link = self._link
        ours = partial(link.ours, ticket)
        showing = Showing(link.jetstream, link.subjects, run, ticket, past, ours, stop)
        self._shared[run.id] = showing
        self._cancels[link.subjects.cancel(run.id, ticket.life)] = showing
        link.start(showing.show)
        if ticket.revision != ticket.life:
            link.start(self._look_for_cancel, showing)

    async def _look_for_cancel(self, showing: Showing) -> None:
        """One that came while nobody had the run."""
        subject = self._link.subjects.cancel(showing.ticket.run_id, showing.ticket.life)
        message = await self._link.jetstream.last(self._link.subjects.signals, subject)
        if message is not None and subject in self._cancels:
            showing.stop(message.data.decode())

    def _cancelled(self, message: Message) -> None:
        showing = self._cancels.get(message.subject)
        if showing is not None:
            showing.stop(message.data.decode())

    def _unshare(self, run_id: str) -> Showing | None:
        showing = self._shared.pop(run_id, None)
        if showing is not None:
            self._cancels.pop(self._link.subjects.cancel(run_id, showing.ticket.life), None)
        return showing

    async def ended(self, run: Run, outcome: RunOutcome) -> None:
        showing = self._unshare(run.id)
        if showing is None:
            return
        showing.end(ended_of(outcome))
        if not await self._all_shown(showing):
            log.warning("run %s has ended, but the cluster cannot be told yet", run.id)

    async def _all_shown(self, showing: Showing) -> bool:
        with anyio.CancelScope(shield=True), anyio.move_on_after(self._link.lease_s):
            await showing.done.wait()
        return showing.done.is_set()

    async def hand_over(self, run: Run) -> bool:
        showing = self._shared.get(run.id)
        if showing is None or showing.lost or showing.ticket.request.config.live is not None:
            return False
        self._taking.stop()
        self._unshare(run.id)
        showing.end(None)
        with anyio.CancelScope(shield=True):
            if not await self._all_shown(showing) or showing.lost:
                return False
            try:
                return await self._give_out(showing.ticket) is not None
            except Unavailable as error:
                log.warning("run %s could not be handed over: %s", run.id, error)
        return False

    async def _give_out(self, ticket: Ticket) -> Ticket | None:
        """Leave a ticket of ours to others; None when it is ours no more."""
        link, key = self._link, ticket.request.key
        waiting = await link.tickets.change(ticket, structs.replace(ticket, owner=""))
        link.mine.pop(key, None)
        if waiting is not None:
            try:
                await link.tickets.offer(key)
            except Unavailable:
                link.start(self._offer, key)
        return waiting

    async def _offer(self, key: SessionKey) -> None:
        """Say that a ticket waits, whatever it takes: otherwise it is only found by the next look at all of them."""
        while True:
            await anyio.sleep(AGAIN_S)
            try:
                return await self._link.tickets.offer(key)
            except Unavailable as error:
                log.debug("%s: %s", key, error)

    # ---- runs that others carry out

    @property
    def handed_out(self) -> int:
        return self._mirrors.handed_out

    def hands_out(self, request: RunRequest) -> bool:
        return self._runs == "workers" and request.config.live is None

    async def hand_out(self, ticket: Ticket, attached: bool) -> Run:
        await self._show(ticket, None)  # so that it can be found
        with anyio.CancelScope(shield=True):  # or it would be carried out, and nobody would know
            if await self._give_out(ticket) is None:
                raise Superseded(f"another process has taken over {ticket.request.key}")
        return self._mirrors.handed(ticket, attached)

    async def find(self, run_id: str) -> Run | None:
        return await self._find(run_id)

    async def _find(self, run_id: str) -> Mirror | None:
        found = await self._mirrors.find(run_id)
        if found is None and await self._questions.held("run", [run_id]):
            found = await self._mirrors.find(run_id, begun=True)
        return found

    async def cancel(self, run_id: str, reason: str) -> bool:
        mirror = await self._find(run_id)
        if mirror is None or mirror.outcome is not None:
            return False
        await self._stop(mirror, reason)
        return True

    async def _stop(self, mirror: Mirror, reason: str) -> None:
        """Stop a run that somebody else carries out, or that waits for somebody."""
        link = self._link
        subject = link.subjects.cancel(mirror.id, mirror.life)
        await link.jetstream.put(subject, reason.encode(), ttl_s=600)
        ticket = await link.tickets.read(mirror.key)
        if ticket is not None and ticket.life == mirror.life and not ticket.owner and mirror.key not in link.mine:
            link.mine[mirror.key] = ticket
            try:
                ours = await link.tickets.change(ticket, structs.replace(ticket, owner=self.name))
                if ours is not None:
                    await self._show(ours, RunOutcome(status="cancelled", reason=reason))
                    await link.let_go(ours)
                    await link.tickets.taken(mirror.key)
            finally:
                del link.mine[mirror.key]
        await mirror.wait()

    async def _show(self, ticket: Ticket, outcome: RunOutcome | None) -> None:
        """Show that a run has begun, or how it ended, which nobody carries out."""
        link = self._link
        nothing = Feed()
        nothing.close()
        showing = Showing(link.jetstream, link.subjects, nothing, ticket, [], partial(link.ours, ticket), _ignore)
        showing.end(None if outcome is None else ended_of(outcome))
        with anyio.move_on_after(link.lease_s) as scope:
            await showing.show()
        if scope.cancelled_caught:
            raise Unavailable(f"the cluster at {self.shown} does not take the run")

    # ---- everything else

    async def held(self, kind: str, ids: Sequence[str]) -> set[str]:
        return await self._questions.held(kind, ids)

    def holds(self, kind: str, which: Callable[[Sequence[str]], Sequence[str]]) -> None:
        self._questions.holds(kind, which)

    def on_loss(self, kind: str, recover: Callable[[], Awaitable[None]]) -> None:
        self._taking.on_loss(kind, recover)

    def ring(self, topic: str) -> None:
        self._questions.ring(topic)

    @asynccontextmanager
    async def listening(self, topic: str, heard: Callable[[], None]) -> AsyncGenerator[None]:
        async with self._questions.listening(topic, heard):
            yield


def _ignore(reason: str) -> None: ...
