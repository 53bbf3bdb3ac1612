"""Delegation: an agent carries out a call of another one, inside the same run (spec core 3.15, 6.3, 12.19, 12.21).

Used by the turn loop for sub-agents in `single_turn` and `task` mode, and by `tools/agent_tool`. The child works in the
isolation scope of the call and on a branch of its own, with the session, commit, plugins, budget and artifacts of the run, and
is cancelled with it. So nothing is lost at the boundary, but for its `temp:` state. A child that waits leaves the call open:
the caller waits, too, and both go on when the answer comes. Runs agents only through the runner.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

from polyport import codec
from polyport.data.content import Content, user_text
from polyport.data.event import Event
from polyport.data.model import Schema, ToolDeclaration
from polyport.data.run import Ending
from polyport.engine.output import parse_answer
from polyport.engine.pairing import json_text
from polyport.engine.scopes import FINISH_TOOL, TASK_DONE, answered_ids, call_event, finished_with
from polyport.engine.spec import LlmSpec
from polyport.errors import AgentError, BadRequest
from polyport.ports.agent import Agent, Delegation, OutputSchema, RunContext, Tool, ToolContext, Tree

REQUEST: Schema = {
    "type": "object",
    "properties": {"request": {"type": "string", "description": "What is to be done, with all that is needed for it."}},
    "required": ["request"],
}
"""The parameters of a child without an input schema."""
RESULT: Schema = {
    "type": "object",
    "properties": {"result": {"type": "string", "description": "What the task came to."}},
    "required": ["result"],
}
"""The parameters of `finish_task` for a task without an output schema."""


class Delegate(Tool, ABC):
    """A tool whose calls an agent carries out. To go on in the middle of a call is safe, so it counts as idempotent."""

    idempotent = True

    def __init__(self, agent: Agent, parameters: Schema, description: str = "") -> None:
        self.agent = agent
        self.name = agent.name
        self.description = description or agent.description
        self._declaration = ToolDeclaration(name=self.name, description=self.description, parameters=parameters)

    def declaration(self) -> ToolDeclaration:
        return self._declaration

    @abstractmethod
    def asked(self, ctx: ToolContext, args: dict[str, Any]) -> Content:
        """What the child is asked. BadRequest for arguments that do not fit."""

    @abstractmethod
    def result(self, run: RunContext, ending: Ending) -> Any:
        """What the call came to when the child's turn has ended; None while it is open."""

    def hides(self, hidden: bool) -> bool:
        """Whether what the child does is kept from those who watch the run; `hidden` is that of the caller."""
        return hidden

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        """The child's turn, or what is left of it; the result, or None when the call stays open."""
        scope, call_id = ctx.scope, ctx.function_call_id
        run = self._place(ctx, self.asked(ctx, args))
        ending = await scope.run_agent(run, self.agent)
        result = self.result(run, ending)
        if result is None:
            ctx.waits = True
        elif scope.delegations[call_id].hidden:
            _tell_of_artifacts(ctx)
        return result

    def _place(self, ctx: ToolContext, asked: Content) -> RunContext:
        """Where the child works. A call that goes on in the same run keeps its place."""
        scope, call_id = ctx.scope, ctx.function_call_id
        if call_id not in scope.delegations:
            above = scope.delegations.get(ctx.isolation_scope)
            scope.delegations[call_id] = Delegation(
                tree=ctx.tree.below(ctx.agent, self.agent),
                caller=ctx.isolation_scope,
                hidden=self.hides(above is not None and above.hidden),
                user_content=_said_to(ctx) or asked,
                seed=asked,
            )
        branch = f"{self.agent.name}@{call_id}"
        return RunContext(scope, self.agent, f"{ctx.branch}.{branch}" if ctx.branch else branch, call_id)


def _said_to(ctx: ToolContext) -> Content | None:
    """What the user says in this run to the child of an open call."""
    if ctx.function_call_id not in ctx.scope.askers:
        return None
    told = (e for e in reversed(ctx.session.events) if e.isolation_scope == ctx.function_call_id and e.author == "user")
    return next((e.content for e in told if e.invocation_id == ctx.scope.id), None)


def _tell_of_artifacts(ctx: ToolContext) -> None:
    """Files that were saved out of sight are named by the response, so that a client learns of them."""
    delta = ctx.actions.artifact_delta
    assert delta is not None
    for event in ctx.session.events:
        if event.isolation_scope == ctx.function_call_id:
            for name, version in (event.actions.artifact_delta or {}).items():
                delta[name] = max(version, delta.get(name, 0))


class ChildTool(Delegate):
    """How an LLM agent calls a sub-agent in `single_turn` mode: one question, one answer, any number side by side."""

    def __init__(self, agent: LlmSpec, accepts: OutputSchema | None, description: str = "") -> None:
        super().__init__(agent, accepts.schema if accepts is not None else REQUEST, description)
        self._accepts = accepts

    def asked(self, ctx: ToolContext, args: dict[str, Any]) -> Content:
        check_arguments(self.name, args, self._accepts)
        return user_text(json_text(args))

    def result(self, run: RunContext, ending: Ending) -> Any:
        if ending == "paused":
            return None
        found = answer_of(run.session.events, run.isolation_scope, run.tree)
        return {} if found is None else {"result": found}


class TaskTool(ChildTool):
    """How an LLM agent calls a sub-agent in `task` mode, which may talk with the user until it calls `finish_task`."""

    def __init__(self, agent: LlmSpec, accepts: OutputSchema | None, gives: OutputSchema | None) -> None:
        more = "Not to be called in parallel: start one task at a time, and wait for its result."
        super().__init__(agent, accepts, f"{agent.description} {more}".strip())
        self._gives = gives

    def hides(self, hidden: bool) -> bool:
        return False  # a task talks with the user

    def asked(self, ctx: ToolContext, args: dict[str, Any]) -> Content:
        events = ctx.session.events
        found = call_event(events, ctx.function_call_id)
        if found is not None:
            done = answered_ids(events, found[0])
            for call in found[0].calls:
                if call.id == ctx.function_call_id:
                    break
                worker = ctx.tree.called(ctx.agent, call.name)
                if call.id not in done and isinstance(worker, LlmSpec) and worker.mode == "task":
                    raise BadRequest(
                        f"the task {call.name!r} is not done yet: wait for its result, then call {self.name!r}"
                    )
        return super().asked(ctx, args)

    def result(self, run: RunContext, ending: Ending) -> Any:
        given = finished_with(run.session.events, run.isolation_scope)
        if given is None or self._gives is None:
            return given
        value = codec.json_safe(self._gives.parse(given), "the result of the task")
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {"result": value}


class FinishTool(Tool):
    """How a task says what it came to. Its arguments are the result."""

    name = FINISH_TOOL
    description = "End the task, once it is done, with its result."
    idempotent = True

    def __init__(self, agent: LlmSpec, gives: OutputSchema | None) -> None:
        self._agent = agent
        self._gives = gives

    def declaration(self) -> ToolDeclaration:
        parameters = self._gives.schema if self._gives is not None else RESULT
        return ToolDeclaration(name=FINISH_TOOL, description=self.description, parameters=parameters)

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        if self._gives is not None:
            value = codec.json_safe(self._gives.parse(args), "the result of the task")
        else:
            value = args.get("result")
            if not isinstance(value, str) or len(args) > 1:
                raise BadRequest(f"{FINISH_TOOL} takes one argument, the text `result`", "result")
        if self._agent.output_key:
            ctx.state[self._agent.output_key] = value
        return {"result": TASK_DONE}


FINISH_NOTE = (
    f"You work on a task. Ask the user if something is missing. When the task is done, call `{FINISH_TOOL}` with its result; "
    "the task stays open until you do."
)


def child_tools(tree: Tree, agent: LlmSpec) -> list[Tool]:
    """One tool for each direct sub-agent in `single_turn` or `task` mode (spec core 3.1)."""
    found: list[Tool] = []
    for child in agent.sub_agents:
        if not isinstance(child, LlmSpec) or child.mode == "chat":
            continue
        bound = tree.bound(child)
        if child.mode == "task":
            found.append(TaskTool(child, bound.input, bound.output))
        else:
            found.append(ChildTool(child, bound.input))
    return found


def check_arguments(name: str, args: dict[str, Any], accepts: OutputSchema | None) -> None:
    """BadRequest naming missing, wrong and unknown arguments (statement 114)."""
    schema = accepts.schema if accepts is not None else REQUEST
    known = cast("dict[str, Any]", schema.get("properties", {}))
    unknown = [key for key in args if key not in known]
    if unknown and not schema.get("additionalProperties"):
        raise BadRequest(f"{name} has no parameter {unknown[0]!r}; it has: {', '.join(known)}", unknown[0])
    if accepts is not None:
        accepts.parse(args)
    elif args.get("request") is None:
        raise BadRequest(f"{name} needs the parameter 'request'", "request")


def answer_of(events: Sequence[Event], scope: str, tree: Tree) -> Any:
    """The last answer that was given in an isolation scope: its text without thoughts, or its value when the agent has an
    output schema; None when nothing was said. AgentError when something failed there, BadRequest for a misfit."""
    mine = [e for e in events if e.isolation_scope == scope and e.author != "user"]
    for event in mine:
        if event.error_code or event.error_message:
            why = ": ".join(filter(None, (event.error_code, event.error_message)))
            raise AgentError(f"agent {event.author!r} failed: {why}")
    for event in reversed(mine):
        if event.output is not None:
            return event.output
        if event.final and event.text.strip():
            agent = tree.find(event.author)
            output = tree.bound(agent).output if isinstance(agent, LlmSpec) else None
            return event.text if output is None else parse_answer(event.text, output)
        given = [r.response for r in event.responses if r.response]
        if event.actions.skip_summarization and len(given) == 1:
            return given[0].get("result", given[0])
    return None
