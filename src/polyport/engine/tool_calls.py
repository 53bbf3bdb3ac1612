"""Carries out the function calls of one model answer, side by side, and merges the results in call order (spec core 3.9).

Called by the turn loop. Whatever goes wrong in a tool or its callbacks becomes a response that the model sees; only
cancellation passes through. Opens a task group of its own (concurrency place 2).
"""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import anyio
from msgspec import structs

from polyport import codec
from polyport.data.asking import NO_REPLY, Question, Reply
from polyport.data.content import INVALID_ARGS, Content, FunctionCall, FunctionResponse, Part
from polyport.data.event import Event, EventActions, new_actions
from polyport.engine.contained import Contained
from polyport.engine.hooks import first, wrap
from polyport.engine.pause import gated
from polyport.engine.prepare import Toolbox
from polyport.engine.spec import LlmSpec
from polyport.errors import AgentError, BadRequest, PolyportError
from polyport.ports.agent import RunContext, ToolContext

log = logging.getLogger("polyport.tools")


class Outcome:
    """What one call came to: its response (None = none yet), the side effects, and what it asks a human. `waits`: the call goes
    on later."""

    __slots__ = ("actions", "call", "questions", "response", "waits")

    def __init__(
        self,
        call: FunctionCall,
        response: dict[str, Any] | None,
        actions: EventActions,
        waits: bool = False,
        questions: Sequence[Question] = (),
    ) -> None:
        self.call = call
        self.response = response
        self.actions = actions
        self.waits = waits
        self.questions = questions


class Done(NamedTuple):
    """What some calls came to: one event with a function response per call, in call order, None when there is nothing to tell;
    what they ask a human, by call id (approvals are asked for in the event's actions); and which of them go on later."""

    event: Event | None
    questions: Mapping[str, Sequence[Question]]
    waits: frozenset[str]


NOTHING_DONE = Done(None, {}, frozenset())
NO_REPLIES: Mapping[str, Reply] = {}


async def run_calls(
    ctx: RunContext,
    agent: LlmSpec,
    box: Toolbox,
    calls: Sequence[FunctionCall],
    replies: Mapping[str, Reply] = NO_REPLIES,
) -> Done:
    """Carry out the calls side by side. `replies` are what a human has said about them, by call id."""
    if not calls:
        return NOTHING_DONE
    return await wrap(ctx.scope.hooks, "watch_tools", partial(_all, ctx, agent, box, calls, replies), ctx, calls)()


async def _all(
    ctx: RunContext, agent: LlmSpec, box: Toolbox, calls: Sequence[FunctionCall], replies: Mapping[str, Reply]
) -> Done:
    """The calls side by side, merged."""
    if len(calls) == 1:
        outcomes: list[Outcome | None] = [await _one(ctx, agent, box, calls[0], replies)]
    else:
        outcomes = [None] * len(calls)

        async def one(index: int, call: FunctionCall) -> None:
            outcomes[index] = await _one(ctx, agent, box, call, replies)

        async with anyio.create_task_group() as group:
            for index, call in enumerate(calls):
                group.start_soon(one, index, call)
    done = [o for o in outcomes if o is not None]
    questions = {o.call.id: o.questions for o in done if o.questions}
    return Done(merge(ctx, done, box), questions, frozenset(o.call.id for o in done if o.waits))


async def _one(
    ctx: RunContext, agent: LlmSpec, box: Toolbox, call: FunctionCall, replies: Mapping[str, Reply]
) -> Outcome:
    context = ToolContext(ctx, call.id, replies.get(call.id, NO_REPLY))
    tool = box.by_name.get(call.name)
    return await wrap(ctx.scope.hooks, "watch_tool", partial(_call, context, agent, box, call), context, call, tool)()


async def _call(context: ToolContext, agent: LlmSpec, box: Toolbox, call: FunctionCall) -> Outcome:
    """One call with its hooks and callbacks."""
    tool = box.by_name.get(call.name)
    args = codec.own(call.args)  # the event that holds the call is not the tool's
    result, problem = await _tried(call.name, _run(context, agent, box, call.name, args))
    if context.waits and problem is None:
        return Outcome(call, None, context.actions, waits=True)
    if problem is not None:
        asked = first(context.scope.hooks, "on_tool_error", agent.on_tool_error, context, tool, args, problem)
        mended, worse = await _tried(call.name, asked)
        result, problem = mended, worse or (problem if mended is None else None)
    if problem is not None:
        result = {"error": _error_text(call.name, problem)}
    if tool is not None and ("after_tool" in context.scope.hooks or agent.after_tool):
        asked = first(context.scope.hooks, "after_tool", agent.after_tool, context, tool, args, result)
        replaced, problem = await _tried(call.name, asked)
        if problem is not None:
            result = {"error": _error_text(call.name, problem)}
        elif replaced is not None:
            result = replaced
    return Outcome(call, _as_object(call.name, result), context.actions, questions=context.questions)


async def _run(context: ToolContext, agent: LlmSpec, box: Toolbox, name: str, args: dict[str, Any]) -> Any:
    """What `before_tool` answers, else the tool."""
    if INVALID_ARGS in args:
        raise BadRequest(f"the arguments are not a JSON object: {args[INVALID_ARGS]!r:.500}")
    tool = box.by_name.get(name)
    if tool is None:
        known = ", ".join(sorted(box.by_name)) or "none"
        raise AgentError(f"there is no tool {name!r}; the tools are: {known}")
    hooks = context.scope.hooks
    if "before_tool" in hooks or agent.before_tool:
        result = await first(hooks, "before_tool", agent.before_tool, context, tool, args)
        if result is not None:
            return result
    return await wrap(hooks, "around_tool", partial(gated, tool, context), context, tool)(args)


async def _tried(name: str, step: Awaitable[Any]) -> tuple[Any, Exception | None]:
    """What a step of a call gives, or how it failed. Only a real cancellation passes through."""
    try:
        with Contained(f"tool {name!r}"):
            return await step, None
    except Exception as error:  # noqa: BLE001  every failure of a tool or its callbacks goes back to the model
        return None, error


def _error_text(name: str, problem: BaseException) -> str:
    if isinstance(problem, PolyportError):
        return str(problem)
    log.warning("tool %s failed", name, exc_info=problem)
    if isinstance(problem, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", problem).exceptions
        return "; ".join(_error_text(name, e) for e in inner)
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__


def _as_object(name: str, result: Any) -> dict[str, Any] | None:
    """A tool's result as the JSON object of its response."""
    if result is None:
        return None
    try:
        plain = codec.json_safe(result, f"the result of tool {name}")
    except PolyportError as error:
        return {"error": str(error)}
    return cast("dict[str, Any]", plain) if isinstance(plain, dict) else {"result": plain}


def merge(ctx: RunContext, outcomes: Sequence[Outcome], box: Toolbox) -> Event | None:
    """One event from all outcomes: parts in call order, actions merged (spec core 3.9, statement 53)."""
    parts: list[Part] = []
    actions = new_actions()
    for outcome in outcomes:
        tool = box.by_name.get(outcome.call.name)
        merge_actions(actions, outcome.actions)
        if outcome.waits or (outcome.response is None and tool is not None and tool.long_running):
            continue
        response = FunctionResponse(id=outcome.call.id, name=outcome.call.name, response=outcome.response)
        parts.append(Part(function_response=response))
    if not parts and actions == new_actions():
        return None
    content = Content(role="user", parts=parts) if parts else None
    return ctx.event(content=content, actions=actions)


def merge_actions(into: EventActions, other: EventActions) -> None:
    """Add `other` to `into`: flags OR, state deep-merged and later wins, the highest artifact version, last transfer."""
    state, artifacts = into.state_delta, into.artifact_delta
    assert state is not None and artifacts is not None
    _deep_merge(state, other.state_delta or {})
    for name, version in (other.artifact_delta or {}).items():
        artifacts[name] = max(version, artifacts.get(name, 0))
    into.requested_tool_confirmations = {**into.requested_tool_confirmations, **other.requested_tool_confirmations}
    into.skip_summarization |= other.skip_summarization
    into.escalate |= other.escalate
    into.end_invocation |= other.end_invocation
    into.transfer_to_agent = other.transfer_to_agent or into.transfer_to_agent


def _deep_merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in other.items():
        known = into.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            merged = dict(cast("dict[str, Any]", known))
            _deep_merge(merged, cast("dict[str, Any]", value))
            into[key] = merged
        else:
            into[key] = value


def without_calls(event: Event) -> Event:
    """`event` without its function calls, for a closing answer in which tools may not be called any more."""
    if event.content is None or not event.calls:
        return event
    kept = [p for p in event.content.parts if p.function_call is None]
    content = structs.replace(event.content, parts=kept) if kept else None
    return structs.replace(event, content=content, long_running_tool_ids=[])
