"""Carries out the turns of a task: from a message to a run, from its events to the steps of the task (spec a2a 3.1).

Called by the handler's worker, one turn of a task at a time. The run belongs to the coordinator, and its stored events become
steps inside commit, before anybody sees them; what is only streamed is fetched from its feed, in the same order.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NoReturn

import anyio
from msgspec import structs

from polyport.data.event import Event
from polyport.data.run import RunConfig, RunOutcome, RunRequest
from polyport.data.session import SessionKey
from polyport.engine.contained import Contained, Enclosed
from polyport.engine.hooks import ask
from polyport.errors import (
    AgentError,
    BadRequest,
    Conflict,
    LimitExceeded,
    NotFound,
    PolyportError,
    Superseded,
    Unavailable,
    describe,
)
from polyport.ports.peers import TAKEN_OVER
from polyport.ports.runs import Run, Sink
from polyport.ports.tasks import TaskScope
from polyport.protocols.a2a.answers import answered, asked_again, content_of
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.cleanup import below
from polyport.protocols.a2a.projection import Place, Projector
from polyport.protocols.a2a.settings import Execution, ExecutorConfig, TaskRejected
from polyport.protocols.a2a.tasks import LiveTask, NewStatus, StateChanged, Step
from polyport.protocols.a2a.turns import Past, Turn, since_user
from polyport.protocols.parts import Parts
from polyport.wire import a2a_translate as translate
from polyport.wire.a2a import INTERRUPTED, Message, TaskArtifactUpdateEvent, TaskState

log = logging.getLogger("polyport.a2a")

SHUTDOWN = "the server is shutting down"
"""Why the coordinator cancels runs at the end: their tasks are left as they are, for the next process."""
CANCELED = "the task was canceled"
TRY_S = 0.5
"""How soon a turn that was taken up is tried again where too many runs are active."""


class ProcessorFailed(AgentError):
    """A hook or a converter of the executor failed."""


class Executor:
    """Runs one app's agent for tasks."""

    def __init__(self, app: str, parts: Parts, config: ExecutorConfig) -> None:
        self.app = app
        self.runs = parts.runs
        self.config = config
        self.tree = parts.trees[app]
        self.max_takeovers = parts.limits.max_takeovers
        self.on_left: Callable[[], None] = lambda: None
        """Called when a task was left as it is, to be taken up by whoever looks next."""
        self._seams = parts.seams

    def key(self, scope: TaskScope, call: CallContext, context_id: str) -> SessionKey:
        """Where the session of a context lives (T088). Tenants do not share sessions. Whatever tenant a caller writes, the
        session is its own: a tenant is never part of the user."""
        if self.config.user_id is not None:
            return SessionKey(self.app, self.config.user_id(call, context_id), context_id)
        session = f"{scope.tenant}/{context_id}" if scope.tenant else context_id
        return SessionKey(self.app, scope.owner or f"A2A_USER_{context_id}", session)

    async def carry_out(self, live: LiveTask, turn: Turn) -> None:
        """Work on one message until its run has ended, and write the status. Raises nothing but a cancellation."""
        turn.begun = True
        work = Work(self, live, turn)
        try:
            with Enclosed("the work on a task"):
                status = await work.run()
                if status is not None:
                    await work.finish(status)
        except StateChanged:
            pass  # it was canceled, or ended by another process: there is nothing to add
        except Unavailable as error:
            live.fail(error)
            self.on_left()
        except Exception as error:
            log.exception("task %s: its work could not be stored", live.id)
            live.fail(error)
        finally:
            live.forget_shown()

    def projector(self, live: LiveTask, key: SessionKey) -> Projector:
        base = translate.base_metadata(key.app, key.user, key.id)
        place = Place(live.id, live.context_id, base, self._seams.new_id)
        return Projector(place, self.config.output, self.config.to_a2a_part)

    async def stop(self, live: LiveTask, wait_s: float) -> None:
        """Stop the work on a canceled task, here or in another replica, and wait at most so long for it to have stopped."""
        run = live.turns[0].run if live.turns else None
        if run is None and live.worker is not None:  # its turn has not come, or a hook hangs
            live.worker.cancel()
        run_id = live.head.run_id if not live.turns else run.id if run is not None else ""
        if run_id:
            with anyio.move_on_after(wait_s):
                try:
                    await self.runs.cancel(run_id, CANCELED)
                except Unavailable as error:  # who works on it will see it when it writes to the task
                    log.warning("task %s: its run could not be told to stop: %s", live.id, error)

    async def cleanup(self, live: LiveTask, call: CallContext) -> None:
        """After a waiting task was canceled: tell those who wait elsewhere (T099). Errors are logged."""
        try:
            session = await self.runs.stores.sessions.get(self.key(live.scope, call, live.context_id))
        except PolyportError as error:
            log.warning("task %s: no session to clean up: %s", live.id, error)
            return
        task = live.view.snapshot()
        ids = translate.call_ids(task.history[-1].parts) if task.history else []
        steps: list[Any] = [agent.cancel_remote for agent in below(self.runs.agents.get(self.app))] if ids else []
        for step in steps:
            await self._tried(live, step, session, ids)
        if self.config.cleanup is not None:
            await self._tried(live, self.config.cleanup, call, task, session)

    async def _tried(self, live: LiveTask, step: Any, *args: Any) -> None:
        try:
            with Contained("a clean-up"):
                await ask(step, *args)
        except Exception:  # the task is canceled in any case
            log.exception("task %s: a clean-up failed", live.id)


class Work:
    """One turn being carried out."""

    def __init__(self, executor: Executor, live: LiveTask, turn: Turn) -> None:
        self._executor = executor
        self._config = executor.config
        self._live = live
        self._turns = live.turns
        self._turn = turn
        key = executor.key(live.scope, turn.call, live.context_id)
        self._projector = executor.projector(live, key)
        self._execution = Execution(turn.call, turn.request, live.id, live.context_id, self._request(key))
        self._run: Run | None = None
        self._question: Message | None = None
        """What the task waits for."""
        self._cursor = 0
        self._taken = False
        self._previewed = False
        self._order = asyncio.Lock()
        """Whoever shows something holds it, so that pieces and what they are pieces of keep their order."""

    def _request(self, key: SessionKey) -> RunRequest:
        request, turn = self._turn.request, self._turn
        said = {
            "a2a_metadata": request.metadata,
            "a2a_message_metadata": request.message.metadata,
            "a2a_task_id": self._live.id,
            "a2a_context_id": self._live.context_id,
            "a2a_tenant": self._live.scope.tenant,
        }
        config = RunConfig(
            streaming=turn.streaming and self._config.streaming, metadata={k: v for k, v in said.items() if v}
        )
        return RunRequest(key=key, config=config, create_session=True)

    async def run(self) -> NewStatus | None:
        """The run from its start to its end; the status that it leads to. None when the task is to be left as it is."""
        try:
            refused = await self._prepare()
        except TaskRejected as error:
            return self._plain(TaskState.REJECTED, str(error))
        except Exception as error:
            log.warning("task %s: refused before its run", self._live.id, exc_info=error)
            return self._plain(TaskState.FAILED, str(describe(error)["message"]))
        if refused is not None:
            return refused
        try:
            run = await self._start()
        except NotFound as error:
            return self._plain(TaskState.FAILED, str(error))
        except (BadRequest, Conflict, LimitExceeded) as error:
            return self._refused(str(error))
        self._run = self._turn.run = run
        try:
            outcome = await self._follow(run)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._executor.runs.cancel(run.id, CANCELED)
            raise
        return self._status(outcome)

    async def _start(self) -> Run:
        """The run. One that was taken up is not refused, for it was taken in: by a replica that is gone, or is thought to be.
        If that one still has it, or has even ended it, it is looked again at what is stored."""
        instant = self._live.instant and not self._live.shared and self._config.after_event is None
        while True:
            try:
                return await self._executor.runs.start(self._execution.run, sinks=[Sink(self._sink, instant)])
            except LimitExceeded:
                if not self._turn.taken_up:
                    raise
            except Conflict as error:
                if not self._turn.taken_up or not self._live.shared:
                    raise
                self._leave(str(error))
            await anyio.sleep(TRY_S)

    def _leave(self, why: str) -> NoReturn:
        """Leave the task as it is, for whoever looks next."""
        self._live.lose()
        self._executor.on_left()
        raise StateChanged(f"task {self._live.id!r} is left for another look: {why}")

    async def _prepare(self) -> NewStatus | None:
        """What the agent is to be given. A status when it is not to be asked at all."""
        turn, execution = self._turn, self._execution
        if turn.past is not None:
            return await self._go_on(turn.past)
        content = turn.content or content_of(turn.request.message, self._config.from_a2a_part)
        execution.run = structs.replace(execution.run, message=content)
        if self._config.before_execute is not None:
            with Enclosed("before_execute"):
                await ask(self._config.before_execute, execution)
        question = self._question = turn.question
        if turn.late and self._live.state in INTERRUPTED:
            question = self._question = self._live.view.status.message
        if question is None or execution.run.message is None:
            return None
        found = answered(execution.run.message, question, late=turn.late)
        if isinstance(found, list):
            return NewStatus(state=TaskState.INPUT_REQUIRED, message=self._projector.place.message(found))
        execution.run = structs.replace(execution.run, message=found)
        return None

    async def _go_on(self, past: Past) -> NewStatus | None:
        """Take up what another process began: the steps that are missing, then the rest of the run."""
        for event in past.events:
            update = self._projected(event)
            if event.id in past.seen:
                self._projector.adopt(past.seen[event.id])
            elif update is not None:
                await self._write(await self._after_event(event, update), event_id=event.id)
        if past.ended:
            return self._projector.ending(RunOutcome(status="finished"))
        self._execution.run = structs.replace(self._execution.run, invocation_id=past.run_id, create_session=False)
        return None

    async def _follow(self, run: Run) -> RunOutcome:
        more = self._streams
        while more:
            more = await run.changed(self._cursor)
            async with self._order:
                await self._drain()
        return await run.wait()

    @property
    def _streams(self) -> bool:
        return self._execution.run.config.streaming

    def _status(self, outcome: RunOutcome) -> NewStatus | None:
        if outcome.status == "cancelled" and outcome.reason == SHUTDOWN:
            raise Unavailable(SHUTDOWN)
        error = outcome.error
        if isinstance(error, StateChanged):
            raise error
        if self._live.shared and (isinstance(error, Superseded) or outcome.reason == TAKEN_OVER):
            self._leave(str(error or outcome.reason))
        if isinstance(error, ProcessorFailed):
            return self._projector.failed(str(error))
        return self._projector.ending(outcome)

    def _refused(self, why: str) -> NewStatus:
        """The agent was not asked: what the task waits for stays open, a new task is rejected."""
        if self._question is None:
            return self._plain(TaskState.REJECTED, why)
        parts = asked_again(self._question, why)
        return NewStatus(state=TaskState.INPUT_REQUIRED, message=self._projector.place.message(parts))

    def _plain(self, state: TaskState, text: str) -> NewStatus:
        """A status that is not the agent's."""
        return NewStatus(state=state, message=self._projector.place.message([translate.error_part(text)]))

    # ---- events

    @property
    def _lost(self) -> bool:
        """Whether another replica has taken the task over."""
        return self._live.turns is not self._turns

    async def _write(self, *steps: Step, event_id: str = "", run_id: str | None = None) -> None:
        if not await self._live.write(*steps, event_id=event_id, run_id=run_id, unless=lambda: self._lost):
            raise StateChanged(f"task {self._live.id!r} is worked on by another replica")

    async def _sink(self, event: Event) -> None:
        """Inside commit: a stored event becomes a step of the task."""
        async with self._order:
            await self._drain()
            if not self._taken:
                self._taken = True
                if self._turn.past is not None and self._live.shared:
                    await self._make_up(self._turn.past, event)
                await self._begin(event.invocation_id)
            if event.author == "user" or event.unpublished:
                return
            update = self._projected(event)
            if update is not None:
                await self._write(await self._after_event(event, update), event_id=event.id)

    async def _make_up(self, past: Past, until: Event) -> None:
        """Take in what came before this event, the first of a run that goes on, and was not stored yet when it was looked: the
        process that was thought gone was only slow."""
        session = await self._executor.runs.stores.sessions.get(self._execution.run.key)
        known = {event.id for event in past.events}
        for event in since_user(session, past.run_id)[0]:
            if event.id == until.id:
                break
            update = None if event.id in known else self._projected(event)
            if update is not None:
                await self._write(await self._after_event(event, update), event_id=event.id)

    async def _after_event(self, event: Event, update: TaskArtifactUpdateEvent) -> TaskArtifactUpdateEvent:
        if self._config.after_event is None:
            return update
        try:
            with Contained("after_event"):
                return await ask(self._config.after_event, self._execution, event, update) or update
        except Exception as error:
            raise ProcessorFailed(f"processor failed: {describe(error)['message']}") from error

    def _projected(self, event: Event) -> TaskArtifactUpdateEvent | None:
        try:
            return self._projector.partial(event) if event.partial else self._projector.stored(event)
        except Exception as error:
            raise ProcessorFailed(f"processor failed: {describe(error)['message']}") from error

    async def _begin(self, run_id: str) -> None:
        if self._live.state is TaskState.WORKING:
            await self._write(run_id=run_id)
        else:
            await self._write(self._projector.working(), run_id=run_id)

    async def _drain(self) -> None:
        """Show what was streamed since the last time. The caller holds `_order`."""
        run = self._run
        if run is None or run.offset <= self._cursor:
            return
        try:
            items = run.read(self._cursor)
        except LimitExceeded:  # only previews are lost
            items = ()
        self._cursor = run.offset
        if not self._streams:
            return
        try:
            for item in items:
                update = self._projected(item.event) if item.event.partial else None
                if update is not None:
                    self._live.show(await self._after_event(item.event, update))
                    self._previewed = True
        except ProcessorFailed as error:  # the event itself will fail in the same way, and end the task
            log.warning("task %s: a piece of its stream was not shown: %s", self._live.id, error)

    # ---- the end

    async def finish(self, status: NewStatus) -> None:
        """Write the last status of the turn; a turn that others wait behind only completes with the last of them."""
        if self._config.after_execute is not None and self._run is not None:
            try:
                error = self._run.outcome.error if self._run.outcome is not None else None
                with Enclosed("after_execute"):
                    status = await ask(self._config.after_execute, self._execution, status, error) or status
            except Exception as problem:  # noqa: BLE001  the hook's failure is the task's
                status = self._plain(TaskState.FAILED, f"after execute: {describe(problem)['message']}")
        reset = self._projector.reset() if self._previewed else None
        if reset is not None:
            self._live.show(reset)
        live, state = self._live, status.state
        live.forget_shown()
        skips = state is TaskState.COMPLETED
        goes_on = live.shared and state in INTERRUPTED
        if (
            await live.write(status, unless=lambda: self._lost or ((skips or goes_on) and len(live.turns) > 1))
            or not goes_on
        ):
            return
        await self._write(status, self._projector.working())  # in one step: a task that rests may be taken elsewhere
        live.turns[1].question = status.message
