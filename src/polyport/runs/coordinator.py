"""Runs of one process: start, follow, cancel, resume, drain (DESIGN sections 3.4 and 5).

Every run has a task of the one task group that `serving` holds (concurrency place 1), not of the request that asked for it.
One run at a time per session, in all processes together (`peers`); what happens to a second one is `on_busy`. Every end has
a reason.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
from msgspec import structs

from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.data.run import RunOutcome, RunRequest
from polyport.data.session import Session, SessionKey
from polyport.engine.runner import Engine
from polyport.errors import AgentError, Conflict, LimitExceeded, NotFound, PolyportError, TimedOut, Unavailable
from polyport.ports.agent import Agent
from polyport.ports.peers import Peers, Ticket
from polyport.ports.runs import Run, Sink
from polyport.ports.stores import Stores
from polyport.runs.admission import INTERRUPTED, Admission, check_told, events_of, has_begun
from polyport.runs.alone import Alone
from polyport.runs.inbox import Inbox
from polyport.runs.run import LiveRun
from polyport.runs.sessions import Turnstile
from polyport.runs.workers import Workers

log = logging.getLogger("polyport.runs")

SHUTTING_DOWN = "the server is shutting down"
GONE = "the process that carried it out is gone"
FOREVER_S = 10 * 365 * 86400.0
"""The longest timer that is set; event loops refuse infinite ones."""


class Coordinator:
    """Runs for one app: `engines` maps app names to what runs them. Use inside `async with coordinator.serving()`."""

    def __init__(self, engines: dict[str, Engine], stores: Stores, limits: Limits, peers: Peers | None = None) -> None:
        self._engines = dict(sorted(engines.items()))
        self.peers: Peers = peers or Alone()
        self.stores = stores
        self.limits = limits
        self.agents: dict[str, Agent] = {name: engine.tree.root for name, engine in self._engines.items()}
        self._live: dict[str, LiveRun] = {}
        self._ended: OrderedDict[str, LiveRun] = OrderedDict()
        self._ended_items = 0
        self._turns = Turnstile(limits.queue_length, limits.queue_wait_s)
        self._admission = Admission(self._engines, stores, limits, self.peers, self._live)
        self._workers: Workers | None = None
        self._closing = False
        self._tell: list[Callable[[Run], None]] = []

    @asynccontextmanager
    async def serving(self, grace_s: float = 20.0) -> AsyncGenerator[None]:
        """Accept runs inside the block. On leaving, runs get `grace_s` seconds to end, then are cancelled."""
        if self._workers is not None:
            raise Conflict("this app is running already")
        raised: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                self._workers, self._closing = Workers(group), False
                try:
                    async with self.peers.serving(self._take, self._engines):
                        try:
                            yield
                        finally:
                            with anyio.CancelScope(shield=True):
                                await self.drain(grace_s)
                                self._workers.close()
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as error:  # noqa: BLE001  raised below, for it should leave as it is, not in a group
                    raised = error
        finally:
            self._workers = None
        if raised is not None:
            raise raised

    async def drain(self, grace_s: float) -> None:
        """Take no more runs, wait for those that are alive, cancel what is left after `grace_s`."""
        self._closing = True
        for run in self._live.values():
            run.hang_up()
        with anyio.move_on_after(grace_s):
            for run in list(self._live.values()):
                await run.gone()
        for run in list(self._live.values()):
            run.cancel(SHUTTING_DOWN)
            run.leave()
        with anyio.move_on_after(10):
            for run in list(self._live.values()):
                await run.gone()

    @property
    def serves(self) -> bool:
        """Whether runs are accepted now."""
        return self._workers is not None and not self._closing

    @property
    def active(self) -> int:
        """See ports.runs.Runs.active."""
        return len(self._live)

    def on_end(self, tell: Callable[[Run], None]) -> None:
        """See ports.runs.Runs.on_end."""
        self._tell.append(tell)

    async def start(self, request: RunRequest, *, attached: bool = False, sinks: Sequence[Sink] = ()) -> Run:
        """See ports.runs.Runs.start."""
        self._check_room()
        key = request.key
        active = self._turns.holder(key)
        if active is not None:
            # a second answer must not stop the run that carries the first one out
            await self._admission.check_answers(request)
            await self._make_way(key)
        else:
            self._admission.check_user(key.user)  # before a session is made for a run that cannot be
        await self._turns.enter(key)
        try:
            ticket = await self._admission.claim(request, kept=bool(sinks))
            try:
                self._check_open()
                engine, session, ticket = await self._admission.admit(request, ticket)
                if not sinks and self.peers.hands_out(request):
                    run = await self.peers.hand_out(ticket, attached)
                    self._turns.leave(key)
                    return run
            except BaseException:
                await self.peers.release(ticket)
                raise
        except BaseException:
            self._turns.leave(key)
            raise
        past = events_of(session, ticket.run_id) if request.message is None or request.message.responses else []
        run = self._begin(request, engine, session, ticket, past, attached, sinks)
        self._turns.hold(key, run.id)
        if self.limits.on_busy == "interrupt" and self._turns.waiting(key):
            run.cancel(INTERRUPTED)  # a still newer message came while this one was being taken in
        return run

    def _begin(
        self,
        request: RunRequest,
        engine: Engine,
        session: Session,
        ticket: Ticket,
        past: Sequence[Event],
        attached: bool,
        sinks: Sequence[Sink],
    ) -> LiveRun:
        """Make the run's task. `past` are its events that are stored already."""
        run = LiveRun(ticket.run_id, request.key, attached, self.limits.feed_items, len(past))
        if request.config.live is not None:
            run.inbox = Inbox(request.config.live, self.limits.live_queue_bytes)
            run.check = partial(check_told, engine, session)
        self._live[run.id] = run
        assert self._workers is not None
        run.task = self._workers.start(self._body(run, engine, request, session, sinks, ticket))
        self.peers.share(run, ticket, past[ticket.base :], run.cancel)
        return run

    async def _take(self, ticket: Ticket) -> None:
        """Go on with the run of a process that is gone (ports.peers.Take). What that one has not stored is not true, and from
        now on it cannot be. Others here may wait for the session: they wait for the ticket, so that this one need not."""
        request, run_id = ticket.request, ticket.run_id
        key = request.key
        self._check_room()
        if run_id in self._live:
            raise Unavailable(f"run {run_id!r} was taken over from here, and has not ended here yet")
        try:
            await self.stores.sessions.claim(key)
            session = await self.stores.sessions.get(key)
        except NotFound:
            session = Session(key=key)
        if ticket.kept or request.config.live is not None:
            return await self._give_up(ticket, session, RunOutcome(status="cancelled", reason=GONE))
        if ticket.taken > self.limits.max_takeovers:
            reason = f"the run was stopped: {ticket.taken} processes were lost while they carried it out"
            return await self._give_up(
                ticket, session, RunOutcome(status="failed", error=AgentError(reason), reason=reason)
            )
        if has_begun(session, run_id, request.message):
            if not self.can_go_on(session, run_id):
                return await self._give_up(ticket, session, RunOutcome(status="finished"))
            request = structs.replace(request, message=None, invocation_id=run_id, state_delta={}, create_session=False)
        try:
            engine, session = await self._admission.take(request)
        except (NotFound, Conflict) as error:
            return await self._give_up(ticket, session, RunOutcome(status="failed", error=error, reason=str(error)))
        self._check_room()
        run = self._begin(request, engine, session, ticket, events_of(session, run_id), False, ())
        run.taken = True

    async def _give_up(self, ticket: Ticket, session: Session, outcome: RunOutcome) -> None:
        """Show what is left to be shown of a run, and how it ended."""
        past = events_of(session, ticket.run_id)
        run = LiveRun(ticket.run_id, ticket.request.key, False, self.limits.feed_items, len(past))
        self.peers.share(run, ticket, past[ticket.base :], lambda reason: None)
        await self.peers.ended(run, outcome)
        run.finish(outcome)
        await self.peers.release(ticket)

    def _check_room(self) -> None:
        self._check_open()
        if len(self._live) + self.peers.handed_out >= self.limits.max_runs:
            raise LimitExceeded(f"{self.limits.max_runs} runs are active (max_runs); try again later", 1.0)

    def _check_open(self) -> None:
        if self._workers is None:
            raise Unavailable(
                "the app has not been started: its ASGI lifespan did not run. Serve it with `polyport serve` or uvicorn, or "
                "enter `async with app:` in the lifespan of the app it is mounted in"
            )
        if self._closing:
            raise Unavailable("the server is shutting down")

    async def _make_way(self, key: SessionKey) -> None:
        """Deal with the active run of a session by the policy, before waiting for its end. One that has ended, and only stores
        a summary, is waited for in any case."""
        run_id = self._turns.holder(key)
        run = self._live.get(run_id) if run_id else None
        if self.limits.on_busy == "reject" and (run is None or run.outcome is None):
            raise Conflict(f"{key} has an active run; wait for it, or cancel it")
        if self.limits.on_busy == "interrupt" and run is not None:
            run.cancel(INTERRUPTED)

    def busy(self, key: SessionKey) -> bool:
        """See ports.runs.Runs.busy."""
        return self._turns.holder(key) is not None or bool(self.peers.name)

    async def _body(
        self,
        run: LiveRun,
        engine: Engine,
        request: RunRequest,
        session: Session,
        sinks: Sequence[Sink],
        ticket: Ticket,
    ) -> None:
        """One run's task. What ended the run is its outcome; only cancellation is raised."""
        outcome: RunOutcome | None = None
        request = self._with_limits(request)
        usual = self.limits.run_timeout_s if run.inbox is None else self.limits.live_timeout_s or FOREVER_S
        limit = request.config.timeout_s or usual
        timer = asyncio.get_running_loop().call_later(limit, run.expire, limit)
        try:
            outcome = await self._execute(run, engine, request, session, sinks)
            if run.inbox is not None and self._closing and outcome.status == "finished":
                outcome = RunOutcome(status="cancelled", reason=SHUTTING_DOWN)
            if engine.compaction is not None and outcome.error is None:
                await self.peers.ended(run, outcome)
                run.finish(outcome)  # its followers need not wait; the session is the run's until the summary is stored
                await engine.compaction.compact(session, self.stores.sessions, engine.seams, run.id)
        except anyio.get_cancelled_exc_class():
            if run.outcome is not None:
                raise
            reason = run.reason or SHUTTING_DOWN
            if run.timed_out:
                outcome = RunOutcome(status="failed", error=TimedOut(reason), reason=reason)
            else:
                outcome = RunOutcome(status="cancelled", reason=reason)
            if reason == INTERRUPTED:
                with anyio.CancelScope(shield=True):
                    await self._mark_interrupted(run, engine, session)
            if (self._closing or not run.reason) and reason == SHUTTING_DOWN and not ticket.kept:
                await self.peers.hand_over(run)
            raise
        finally:
            timer.cancel()
            assert outcome is not None
            await self.peers.ended(run, outcome)
            run.finish(outcome)
            await self.peers.release(ticket)
            del self._live[run.id]
            if not run.taken:
                self._turns.leave(run.key)
            self._keep(run)
            for tell in self._tell:
                tell(run)

    def _with_limits(self, request: RunRequest) -> RunRequest:
        """What the request leaves open is what the limits say."""
        given, limits = request.config, self.limits
        config = structs.replace(
            given,
            max_llm_calls=limits.max_llm_calls if given.max_llm_calls is None else given.max_llm_calls,
            history_window=given.history_window or limits.history_window,
        )
        return structs.replace(request, config=config)

    async def _execute(
        self, run: LiveRun, engine: Engine, request: RunRequest, session: Session, sinks: Sequence[Sink]
    ) -> RunOutcome:
        try:
            publish = run.publish if run.inbox is None else run.publish_live
            return await engine.execute(run.id, request, session, publish, sinks, run.inbox)
        except PolyportError as error:
            log.warning("run %s failed: %s", run.id, error)
            return RunOutcome(status="failed", error=error, reason=str(error))
        except Exception as error:
            log.exception("run %s failed", run.id)
            return RunOutcome(status="failed", error=error, reason=type(error).__name__)

    async def _mark_interrupted(self, run: LiveRun, engine: Engine, session: Session) -> None:
        """Close the turn in the stored history, so that a reader sees why it stops (on_busy="interrupt")."""
        seams = engine.seams
        marker = Event(
            id=seams.new_id(),
            timestamp=seams.now(),
            invocation_id=run.id,
            author=engine.tree.root.name,
            interrupted=True,
            error_code="INTERRUPTED",
            error_message=run.reason,
        )
        try:
            run.publish(await self.stores.sessions.append(session, marker))
        except PolyportError as error:
            log.warning("run %s: its interruption could not be noted: %s", run.id, error)

    def _keep(self, run: LiveRun) -> None:
        """Keep the feed of an ended detached run for late followers, within the limits. The stored events of an attached one
        are replayed from the store, and so is what a run did before it went on."""
        before = self._ended.pop(run.id, None)
        if before is not None:
            self._ended_items -= before.kept
        if run.attached:
            return
        self._ended[run.id] = run
        self._ended_items += run.kept
        while self._ended and (
            len(self._ended) > self.limits.keep_ended or self._ended_items > self.limits.keep_ended_items
        ):
            _, old = self._ended.popitem(last=False)
            self._ended_items -= old.kept

    async def get(self, run_id: str) -> Run | None:
        """See ports.runs.Runs.get."""
        live = self._live.get(run_id)
        if live is not None and live.outcome is None and not live.taken:
            return live
        here = live or self._ended.get(run_id)
        try:
            return await self.peers.find(run_id) or here
        except Unavailable:
            if here is None:
                raise
            return here

    async def ping(self) -> None:
        """See ports.runs.Runs.ping."""
        await self.stores.sessions.ping()
        await self.peers.ping()

    def can_go_on(self, session: Session, run_id: str) -> bool:
        """See ports.runs.Runs.can_go_on."""
        return self._admission.can_go_on(session, run_id)

    async def cancel(self, run_id: str, reason: str) -> bool:
        """See ports.runs.Runs.cancel."""
        run = self._live.get(run_id)
        if run is None:
            return await self.peers.cancel(run_id, reason)
        if run.outcome is not None:
            return False
        run.cancel(reason)
        await run.wait()
        return True
