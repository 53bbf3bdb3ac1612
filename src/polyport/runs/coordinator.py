"""Runs of one process: start, follow, cancel, resume, drain (DESIGN sections 3.4 and 5).

Every run is a task of the one task group that `serving` holds (concurrency place 1), not of the request that asked for it.
One run at a time per session; what happens to a second one is `on_busy`. Every end has a reason.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.abc
from msgspec import structs

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.data.run import RunOutcome, RunRequest
from polyport.data.session import Session, SessionKey
from polyport.engine.flow import more_follows
from polyport.engine.replies import check_awaited, check_replies
from polyport.engine.resume import shown, unfinished
from polyport.engine.runner import Engine
from polyport.errors import Conflict, LimitExceeded, NotFound, PolyportError, TimedOut, Unavailable
from polyport.ports.agent import Agent
from polyport.ports.runs import Run, Sink
from polyport.ports.stores import Stores
from polyport.runs.inbox import Inbox
from polyport.runs.run import LiveRun
from polyport.runs.sessions import Turnstile
from polyport.tools.json_schema import check

log = logging.getLogger("polyport.runs")

INTERRUPTED = "interrupted by a newer message"
SHUTTING_DOWN = "the server is shutting down"
FOREVER_S = 10 * 365 * 86400.0
"""The longest timer that is set; event loops refuse infinite ones."""


class Coordinator:
    """Runs for one app: `engines` maps app names to what runs them. Use inside `async with coordinator.serving()`."""

    def __init__(self, engines: dict[str, Engine], stores: Stores, limits: Limits) -> None:
        self._engines = dict(sorted(engines.items()))
        self.stores = stores
        self.limits = limits
        self.agents: dict[str, Agent] = {name: engine.tree.root for name, engine in self._engines.items()}
        self._live: dict[str, LiveRun] = {}
        self._ended: OrderedDict[str, LiveRun] = OrderedDict()
        self._ended_items = 0
        self._turns = Turnstile(limits.queue_length, limits.queue_wait_s)
        self._group: anyio.abc.TaskGroup | None = None
        self._closing = False
        self._tell: list[Callable[[Run], None]] = []

    @asynccontextmanager
    async def serving(self, grace_s: float = 20.0) -> AsyncGenerator[None]:
        """Accept runs inside the block. On leaving, runs get `grace_s` seconds to end, then are cancelled."""
        if self._group is not None:
            raise Conflict("this app is running already")
        raised: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                self._group, self._closing = group, False
                try:
                    yield
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as error:  # noqa: BLE001  raised below, for it should leave as it is, not in a group
                    raised = error
                finally:
                    with anyio.CancelScope(shield=True):
                        await self.drain(grace_s)
        finally:
            self._group = None
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
        return self._group is not None and not self._closing

    @property
    def active(self) -> int:
        """See ports.runs.Runs.active."""
        return len(self._live)

    def on_end(self, tell: Callable[[Run], None]) -> None:
        """See ports.runs.Runs.on_end."""
        self._tell.append(tell)

    async def start(self, request: RunRequest, *, attached: bool = False, sinks: Sequence[Sink] = ()) -> LiveRun:
        """See ports.runs.Runs.start."""
        group = self._open_group()
        if len(self._live) >= self.limits.max_runs:
            raise LimitExceeded(f"{self.limits.max_runs} runs are active (max_runs); try again later", 1.0)
        key = request.key
        active = self._turns.holder(key)
        if active is not None:
            await self._check_answers(request)  # a second answer must not stop the run that carries the first one out
            await self._make_way(key)
        else:
            self._check_user(key.user)  # before a session is made for a run that cannot be
        await self._turns.enter(key)
        try:
            self._open_group()
            session = await self._load(request)
            engine = self._engines.get(key.app)
            if engine is None:
                raise NotFound(f"failed to load agent: there is no app {key.app!r}; see /list-apps")
            run_id = self._run_id(request, session, engine)
            self._check_user(key.user)
            goes_on = request.message is None or bool(request.message.responses)
            base = sum(e.invocation_id == run_id and shown(e) for e in session.events) if goes_on else 0
            run = LiveRun(run_id, key, attached, self.limits.feed_items, base)
            if request.config.live is not None:
                run.inbox = Inbox(request.config.live, self.limits.live_queue_bytes)
                run.check = partial(_check_told, engine, session)
        except BaseException:
            self._turns.leave(key)
            raise
        self._live[run_id] = run
        self._turns.hold(key, run_id)
        run.task = group.start_soon(self._body, run, engine, request, session, sinks)
        if self.limits.on_busy == "interrupt" and self._turns.waiting(key):
            run.cancel(INTERRUPTED)  # a still newer message came while this one was being taken in
        return run

    def _open_group(self) -> anyio.abc.TaskGroup:
        if self._group is None:
            raise Unavailable(
                "the app has not been started: its ASGI lifespan did not run. Serve it with `polyport serve` or uvicorn, or "
                "enter `async with app:` in the lifespan of the app it is mounted in"
            )
        if self._closing:
            raise Unavailable("the server is shutting down")
        return self._group

    def _check_user(self, user: str) -> None:
        limit = self.limits.user_runs
        if limit and sum(run.key.user == user for run in self._live.values()) >= limit:
            raise LimitExceeded(f"{limit} of your runs are active (user_runs); wait for one, or cancel it", 1.0)

    async def _check_answers(self, request: RunRequest) -> None:
        """Refuse a message with answers that must not be acted on, as things are now."""
        engine = self._engines.get(request.key.app)
        if engine is not None and request.message is not None and request.message.responses:
            session = await self.stores.sessions.get(request.key)
            _check_replies(engine, session, request.message)

    async def _make_way(self, key: SessionKey) -> None:
        """Deal with the active run of a session by the policy, before waiting for its end. One that has ended, and only stores
        a summary, is waited for in any case."""
        run_id = self._turns.holder(key)
        run = self._live.get(run_id) if run_id else None
        if self.limits.on_busy == "reject" and (run is None or run.outcome is None):
            raise Conflict(f"{key} has an active run; wait for it, or cancel it")
        if self.limits.on_busy == "interrupt" and run is not None:
            run.cancel(INTERRUPTED)

    async def _load(self, request: RunRequest) -> Session:
        sessions = self.stores.sessions
        key = request.key
        try:
            return await sessions.get(key)
        except NotFound:
            if not request.create_session:
                raise
        try:
            return await sessions.create(key.app, key.user, key.id)
        except Conflict:  # somebody else made it in this moment
            return await sessions.get(key)

    def _run_id(self, request: RunRequest, session: Session, engine: Engine) -> str:
        """A new invocation id, or the one that the message answers or resumes (spec core 2.2.4)."""
        if request.message is None and request.config.live is None:
            return self._resumable(request.invocation_id, session, engine)
        if request.message is not None and request.message.responses:
            _check_replies(engine, session, request.message)
            wanted = {r.id for r in request.message.responses if r.id}
            for event in reversed(session.events):
                if event.author != "user" and any(call.id in wanted for call in event.calls):
                    return event.invocation_id if event.invocation_id not in self._live else self._new_id(engine)
        return self._new_id(engine)

    @staticmethod
    def _new_id(engine: Engine) -> str:
        return "e-" + engine.seams.new_id()

    def busy(self, key: SessionKey) -> bool:
        """See ports.runs.Runs.busy."""
        return self._turns.holder(key) is not None

    def can_go_on(self, session: Session, run_id: str) -> bool:
        """See ports.runs.Runs.can_go_on."""
        engine = self._engines.get(session.key.app)
        if engine is None or run_id in self._live:
            return False
        return unfinished(session.events, run_id) or more_follows(engine.tree, session.events, run_id)

    def _resumable(self, invocation_id: str, session: Session, engine: Engine) -> str:
        if invocation_id in self._live:
            raise Conflict(f"run {invocation_id!r} is active; follow it at /runs/{invocation_id}/events")
        if not any(e.invocation_id == invocation_id for e in session.events):
            raise NotFound(f"{session.key} has no run {invocation_id!r} to go on with")
        if not self.can_go_on(session, invocation_id):
            raise Conflict(f"run {invocation_id!r} has ended or waits for an answer; there is nothing to resume")
        return invocation_id

    async def _body(
        self, run: LiveRun, engine: Engine, request: RunRequest, session: Session, sinks: Sequence[Sink]
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
            raise
        finally:
            timer.cancel()
            assert outcome is not None
            run.finish(outcome)
            del self._live[run.id]
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

    def get(self, run_id: str) -> LiveRun | None:
        """A run that is alive or whose feed is still kept."""
        return self._live.get(run_id) or self._ended.get(run_id)

    async def cancel(self, run_id: str, reason: str) -> bool:
        """See ports.runs.Runs.cancel."""
        run = self._live.get(run_id)
        if run is None or run.outcome is not None:
            return False
        run.cancel(reason)
        await run.wait()
        return True


def _check_replies(engine: Engine, session: Session, message: Content) -> None:
    """See engine.replies.check_replies."""
    check_replies(engine.tree, session, message, engine.secret, check)


def _check_told(engine: Engine, session: Session, message: Content) -> None:
    """The same, of what a live client says."""
    _check_replies(engine, session, message)
    check_awaited(session, message)
