"""The spine: one run from the user's message to its outcome (spec core 2.2, on one path for every kind of agent).

Called by `runs/`, which owns the task. Loads nothing: the coordinator hands in the session it loaded. Knows no protocol.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio
from msgspec import structs

from polyport.data.content import Content, Part
from polyport.data.event import Event, EventActions, new_actions
from polyport.data.run import Ending, RunOutcome, RunRequest
from polyport.data.session import Session
from polyport.engine.commit import Commit, Publish
from polyport.engine.hooks import first
from polyport.engine.output import remember
from polyport.engine.spec import LlmSpec
from polyport.ports.agent import Agent, CallbackContext, Hooks, RunContext, RunScope, Tree
from polyport.ports.runs import Sink
from polyport.ports.stores import Stores
from polyport.seams import Seams


@dataclass(frozen=True)
class Engine:
    """What all runs of one app share."""

    tree: Tree
    stores: Stores
    hooks: Hooks
    seams: Seams

    async def execute(
        self, run_id: str, request: RunRequest, session: Session, publish: Publish, sinks: Sequence[Sink] = ()
    ) -> RunOutcome:
        """Carry out one run. Raises what ended it (any error of an agent, Superseded); cancellation passes through.

        The user's message is stored before any agent runs and published only if `yield_user_message`.
        """
        commit = Commit(session, self.stores.sessions, publish, self.hooks, sinks)
        message = request.message
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
            user_content=message if message is not None else _message_of(session, run_id),
            resumed=message is None,
            calls_left=request.config.max_llm_calls,
        )
        agent = pick_agent(self.tree, session.events, message, run_id)
        ctx = RunContext(scope, agent)
        commit.context = ctx
        if message is not None:
            await self._take_message(ctx, commit, message, request)
        early = await first(self.hooks, "before_run", (), CallbackContext(ctx))
        try:
            if early is not None:
                await ctx.emit(ctx.event(content=early))
                ending: Ending = "done"
            else:
                ending = await run_agent(ctx, agent)
        finally:
            await self._after_run(ctx)
        return RunOutcome(status="paused" if ending == "paused" else "finished", reason=scope.end_reason)

    async def _take_message(self, ctx: RunContext, commit: Commit, message: Content, request: RunRequest) -> None:
        scope = ctx.scope
        actions = new_actions()
        callback = CallbackContext(ctx, actions)
        replaced = await first(self.hooks, "on_user_message", (), callback, message)
        if replaced is not None:
            message = scope.user_content = replaced
        if request.config.save_input_blobs and self.stores.artifacts is not None:
            stored = await _save_blobs(callback, message)
            scope.uploads = (stored, message)  # the model of this run still gets the bytes (FR-014)
            message = stored
        assert actions.state_delta is not None
        actions.state_delta.update(request.state_delta)
        event = Event(
            id=scope.seams.new_id(),
            timestamp=scope.seams.now(),
            invocation_id=scope.id,
            author="user",
            content=message,
            actions=actions,
        )
        await commit.store(event, publish=request.config.yield_user_message)

    async def _after_run(self, ctx: RunContext) -> None:
        hooks = self.hooks.get("after_run", ())
        if not hooks:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(10):
            for hook in hooks:
                await hook(CallbackContext(ctx))


async def run_agent(ctx: RunContext, agent: Agent) -> Ending:
    """Run an agent with its callbacks (spec core 3.2): before-agent may answer in its place, after-agent may add to it."""
    hooks = ctx.scope.hooks
    if "before_agent" in hooks or agent.before_agent:
        actions = new_actions()
        callback = CallbackContext(ctx, actions)
        content = await first(hooks, "before_agent", agent.before_agent, callback)
        if content is not None or callback.changed:
            await _emit_answer(ctx, agent, content, actions)
        if ctx.scope.ended:
            return "ended"
        if content is not None:
            return "done"
    ending = await agent.run(ctx) or ("escalated" if ctx.escalated else "done")
    if ctx.scope.ended:
        return "ended"
    if ending == "paused":
        return ending
    if "after_agent" in hooks or agent.after_agent:
        actions = new_actions()
        callback = CallbackContext(ctx, actions)
        content = await first(hooks, "after_agent", agent.after_agent, callback)
        if content is not None or callback.changed:
            await _emit_answer(ctx, agent, content, actions)
    return "ended" if ctx.scope.ended else ending


async def _emit_answer(ctx: RunContext, agent: Agent, content: Content | None, actions: EventActions) -> None:
    if content is not None and not content.role:
        content = structs.replace(content, role="model")
    event = ctx.event(content=content, actions=actions)
    if isinstance(agent, LlmSpec):
        event = remember(agent, event, ctx.scope.tree.bound(agent).output)
    await ctx.emit(event)


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


def _message_of(session: Session, run_id: str) -> Content | None:
    """The user's message that began a run which is being resumed."""
    for event in session.events:
        if event.invocation_id == run_id and event.author == "user":
            return event.content
    return None


def pick_agent(tree: Tree, events: Sequence[Event], message: Content | None, run_id: str) -> Agent:
    """Who answers (spec core 2.2.3): the asker of the first function response in the message; else the last agent that
    spoke, if the conversation may be taken back from it; else the root. A resumed run goes on with the last LLM agent of
    that run."""
    root = tree.root
    if not isinstance(root, LlmSpec):
        return root
    if message is None:
        mine = (e for e in reversed(events) if e.invocation_id == run_id and e.author != "user")
        found = next((tree.find(e.author) for e in mine), None)
        return found if isinstance(found, LlmSpec) else root
    if message.responses:
        wanted = message.responses[0].id
        for event in reversed(events):
            if any(call.id == wanted for call in event.calls):
                return tree.find(event.author) or root
    if not root.sub_agents:
        return root
    for event in reversed(events):
        agent = tree.find(event.author) if event.author != "user" else None
        if agent is not None and _transferable(tree, agent):
            return agent
    return root


def _transferable(tree: Tree, agent: Agent | None) -> bool:
    while agent is not None:
        if not isinstance(agent, LlmSpec) or agent.disallow_transfer_to_parent:
            return False
        agent = tree.parent(agent)
    return True
