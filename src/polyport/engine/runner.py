"""The spine: one run from the user's message to its outcome (spec core 2.2, on one path for every kind of agent).

Called by `runs/`, which owns the task. Loads nothing: the coordinator hands in the session it loaded. Knows no protocol.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

import anyio
from msgspec import structs

from polyport.data.content import Content, FunctionResponse, Part
from polyport.data.event import Event, EventActions, new_actions
from polyport.data.live import LiveRequest
from polyport.data.run import Ending, RunOutcome, RunRequest
from polyport.data.session import Session
from polyport.engine.commit import Commit, Publish
from polyport.engine.compaction import Compactor
from polyport.engine.contained import Contained, Enclosed
from polyport.engine.flow import asker_below, point
from polyport.engine.hooks import Callbacks, first, wrap
from polyport.engine.output import remember
from polyport.engine.replies import refuse_answered, without_credentials
from polyport.engine.spec import LlmSpec, can_be_live
from polyport.engine.start import Start, message_of, pick_start
from polyport.errors import AgentError, Conflict, Superseded
from polyport.ports.agent import Agent, CallbackContext, Hooks, RunContext, RunScope, Tree
from polyport.ports.live import LiveScope, LiveSource
from polyport.ports.runs import Sink
from polyport.ports.stores import Stores
from polyport.seams import Seams

log = logging.getLogger("polyport.runs")

AFTER_RUN_S = 10.0
"""How long the `after_run` hooks of one run may take together; a cancelled run waits for them."""
_ENDINGS: tuple[str, ...] = get_args(Ending)


@dataclass(frozen=True)
class Engine:
    """What all runs of one app share."""

    tree: Tree
    stores: Stores
    hooks: Hooks
    seams: Seams
    compaction: Compactor | None = None
    secret: bytes = field(default=b"", repr=False)
    """The key with which requests for a human's approval are sealed; empty for none."""
    claims: bool = True
    """Whether a run takes its session from whoever has it, with its first event. Not in a cluster: who may run is settled
    before, and a process that was taken for gone must not write when it wakes up."""

    async def execute(
        self,
        run_id: str,
        request: RunRequest,
        session: Session,
        publish: Publish,
        sinks: Sequence[Sink] = (),
        source: LiveSource | None = None,
    ) -> RunOutcome:
        """Carry out one run. Raises what ended it (any error of an agent, Superseded); cancellation passes through.

        The user's message is stored before any agent runs and published only if `yield_user_message`. A live run has a `source`
        of messages instead.
        """
        commit = Commit(session, self.stores.sessions, publish, self.hooks, sinks, claims=self.claims)
        message = request.message
        credentials: dict[str, dict[str, Any]] = {}
        if message is not None:
            message, credentials = without_credentials(session.events, message)
        start = pick_start(self.tree, session.events, message, run_id)
        if source is not None:
            start = live_start(self.tree, start)
        scope = RunScope(
            id=run_id,
            session=session,
            stores=self.stores,
            hooks=self.hooks,
            tree=self.tree,
            seams=self.seams,
            config=request.config,
            commit=commit,
            run_agent=run_agent,
            user_content=message if message is not None else message_of(session.events, run_id),
            resumed=message is None and source is None,
            askers=start.askers,
            reopened=start.reopened,
            calls_left=request.config.max_llm_calls or 0,
            secret=self.secret,
            credentials=credentials,
        )
        ctx = RunContext(scope, start.agent, start.branch)
        commit.context = ctx
        if source is not None:
            scope.live = LiveScope(source=source, show=commit.show, take_in=partial(self._hear, ctx, commit, request))
        try:
            with Enclosed("the run"):
                if message is not None:
                    await self._take_message(ctx, commit, message, request, start)
                ending = await self._drive(ctx)
        finally:
            commit.context = None  # or else every run is a circle, which only the garbage collector can free
        return RunOutcome(status="paused" if ending == "paused" else "finished", reason=scope.end_reason)

    async def _hear(self, ctx: RunContext, commit: Commit, request: RunRequest, said: LiveRequest) -> Content | None:
        """See LiveScope.take_in. What is said in a live session is stored as a message is."""
        scope = ctx.scope
        if said.content is None:
            if said.state_delta:
                event = ctx.event(actions=EventActions(state_delta=dict(said.state_delta), artifact_delta={}))
                await commit.store(structs.replace(event, author="user"), publish=False)
            return None
        message, scope.credentials = without_credentials(ctx.session.events, said.content)
        request = structs.replace(request, state_delta=said.state_delta)
        await self._take_message(ctx, commit, message, request, Start(ctx.agent))
        return scope.user_content

    async def _drive(self, ctx: RunContext) -> Ending:
        """The agent between the hooks of the run; `after_run` comes in every case, also on an error and when cancelled."""
        if "after_run" not in self.hooks:
            return await self._before_run(ctx)
        try:
            ending = await self._before_run(ctx)
        except BaseException:
            problem = await self._after_run(ctx)
            if problem is not None:
                log.warning("after_run failed, too", exc_info=problem)
            raise
        problem = await self._after_run(ctx)
        if problem is not None:
            raise problem
        return ending

    async def _before_run(self, ctx: RunContext) -> Ending:
        """A `before_run` hook may answer in the agent's place: once, as the agent (spec core 12.3)."""
        if "before_run" in self.hooks and await _ask(ctx, "before_run", ()):
            return "done"
        if ctx.scope.ended:
            return "ended"
        return await wrap(self.hooks, "around_run", partial(run_agent, ctx, ctx.agent), ctx)()

    async def _take_message(
        self, ctx: RunContext, commit: Commit, message: Content, request: RunRequest, start: Start
    ) -> None:
        scope = ctx.scope
        actions = new_actions()
        if "on_user_message" in self.hooks:
            message = await first(self.hooks, "on_user_message", (), CallbackContext(ctx, actions), message) or message
        if not message.role:
            message = structs.replace(message, role="user")
        scope.user_content = message
        if request.config.save_input_blobs and self.stores.artifacts is not None:
            stored = await _save_blobs(CallbackContext(ctx, actions), message)
            scope.uploads = (stored, message)  # the model of this run still gets the bytes (FR-014)
            message = stored
        assert actions.state_delta is not None
        actions.state_delta.update(request.state_delta)
        answers = message.responses
        for place, content in start.places(message):
            event = Event(
                id=scope.seams.new_id(),
                timestamp=scope.seams.now(),
                invocation_id=scope.id,
                author="user",
                content=content,
                actions=actions,
                isolation_scope=place,
            )
            await self._store(commit, event, answers, scope.session, request.config.yield_user_message)
            actions, answers = new_actions(), []

    async def _store(
        self, commit: Commit, event: Event, answers: Sequence[FunctionResponse], session: Session, publish: bool
    ) -> None:
        """Store the message; one with answers only while they are the first. Of two equal ones a single one counts, also when
        they come to two processes at once. Other changes of the session are taken in."""
        for left in (2, 1, 0):
            try:
                await commit.store(event, publish=publish, strict=bool(answers))
                return
            except Superseded:
                raise
            except Conflict:
                if not left:
                    raise
                now = await self.stores.sessions.get(session.key)
                refuse_answered(now, answers)
                session.events[:], session.revision, session.fence = now.events, now.revision, now.fence
                session.state.update(now.state)

    async def _after_run(self, ctx: RunContext) -> Exception | None:
        """Ask every `after_run` hook, whatever the others do; the first error."""
        problem: Exception | None = None
        with anyio.CancelScope(shield=True), anyio.move_on_after(AFTER_RUN_S) as waited:
            for hook in self.hooks["after_run"]:
                callback = CallbackContext(ctx)
                try:
                    with Contained("after_run of a plugin"):
                        await hook(callback)
                    if callback.actions != new_actions():
                        await ctx.emit(ctx.event(actions=callback.actions))
                except Exception as error:  # noqa: BLE001  the others have a right to their call
                    problem = problem or error
        if waited.cancelled_caught:
            log.warning("run %s: the after_run hooks did not end within %g s", ctx.invocation_id, AFTER_RUN_S)
        return problem


async def run_agent(ctx: RunContext, agent: Agent) -> Ending:
    """Run an agent with its callbacks (spec core 3.2): before-agent may answer in its place, after-agent may add to it.

    An agent that hands over (`next_agent`) has its after-agent asked when those that went on have ended; they do not stand
    on each other's stack, so a conversation may go to and fro as often as the budget allows (FR-107).
    """
    with Contained(f"agent {agent.name!r}"):
        return await wrap(ctx.scope.hooks, "watch_agent", partial(_turns, ctx), ctx)()


async def _turns(ctx: RunContext) -> Ending:
    """The turn of an agent, and those of all to whom it and they hand over. The watch of the first one sees all of it; of the
    others theirs sees what comes before after-agent."""
    entered: list[RunContext] = []
    ending, left = await _enter(ctx)
    while True:
        if not left:
            entered.append(ctx)
        if ctx.next_agent is None:
            break
        ctx = ctx.at(ctx.next_agent)
        ending, left = await wrap(ctx.scope.hooks, "watch_agent", partial(_enter, ctx), ctx)()
    for one in reversed(entered):
        ending = await _leave(one, ending)
    return ending


async def _enter(ctx: RunContext) -> tuple[Ending, bool]:
    """Before-agent and the agent itself: how it ended, and whether that was before it began."""
    agent, scope = ctx.agent, ctx.scope
    if scope.askers and ctx.askers and _goes_on_below(ctx):
        return "done", False
    if "before_agent" in scope.hooks or agent.before_agent:
        answered = await _ask(ctx, "before_agent", agent.before_agent)
        if scope.ended:
            return "ended", True
        if answered:
            return "escalated" if ctx.escalated else "done", True
    ending = await wrap(scope.hooks, "around_agent", partial(_work, ctx), ctx, agent)()
    if ending == "ended":
        scope.ended = True
    return "ended" if scope.ended else ending, False


async def _work(ctx: RunContext) -> Ending:
    """The agent itself; how its turn ended."""
    ending = await ctx.agent.run(ctx)
    if ending is None:
        return "paused" if ctx.paused else "escalated" if ctx.escalated else "done"
    if ending not in _ENDINGS:
        raise AgentError(
            f"agent {ctx.agent.name!r} returned a {type(ending).__name__}; events are emitted (`await ctx.emit(event)`), and "
            f"run returns None or one of: {', '.join(_ENDINGS)}"
        )
    return ending


def _goes_on_below(ctx: RunContext) -> bool:
    """Whether the run goes on with an agent to which this one had handed over, and not with this one."""
    agent = ctx.agent
    if agent.name in ctx.askers:
        ctx.askers.discard(agent.name)
        ctx.called_back, ctx.goes_on = True, ctx.scope.resumed
        return False
    below = asker_below(ctx) if isinstance(agent, LlmSpec) else None
    if below is not None:
        ctx.next_agent, _ = point(ctx.tree, below, "")
    return below is not None


async def _leave(ctx: RunContext, ending: Ending) -> Ending:
    """After-agent, unless the run has ended or waits for somebody."""
    agent, scope = ctx.agent, ctx.scope
    if scope.ended or ending == "paused":
        return ending
    if "after_agent" in scope.hooks or agent.after_agent:
        await _ask(ctx, "after_agent", agent.after_agent)
    if scope.ended:
        return "ended"
    return "escalated" if ctx.escalated else ending


async def _ask(ctx: RunContext, name: str, own: Callbacks) -> bool:
    """Ask the callbacks of one kind, and emit what they said and wrote as the agent's; whether they said something."""
    actions = new_actions()
    content: Content | None = await first(ctx.scope.hooks, name, own, CallbackContext(ctx, actions))
    if content is None and actions == new_actions():
        return False
    if content is not None and not content.role:
        content = structs.replace(content, role="model")
    event = ctx.event(content=content, actions=actions)
    if isinstance(ctx.agent, LlmSpec):
        event = remember(ctx.agent, event, ctx.tree.bound(ctx.agent).output)
    await ctx.emit(event)
    return content is not None


def live_start(tree: Tree, start: Start) -> Start:
    """Who begins a live session: the agent that spoke last, or the root. AgentError if neither can take part in one."""
    for agent, branch in ((start.agent, start.branch), (tree.root, "")):
        if can_be_live(tree, agent):
            return Start(agent, branch)
    what = (
        "its model has no live sessions" if isinstance(tree.root, LlmSpec) else f"a {type(tree.root).__name__} has none"
    )
    raise AgentError(f"agent {tree.root.name!r} cannot take part in a live session: {what}")


async def _save_blobs(callback: CallbackContext, message: Content) -> Content:
    """Uploads become artifacts `artifact_<invocation>_<index>`, recorded in `artifactDelta`; the event keeps a reference
    (spec core 2.2.5b, FR-014)."""
    parts: list[Part] = []
    for index, part in enumerate(message.parts):
        if part.inline_data is None:
            parts.append(part)
            continue
        name = f"artifact_{callback.invocation_id}_{index}"
        await callback.save_artifact(name, part)
        shown = part.inline_data.display_name or name
        parts.append(Part(text=f"[Uploaded file: {shown}; stored as artifact {name}]"))
    return structs.replace(message, parts=parts)
