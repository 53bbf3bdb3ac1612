"""Plays cases: the words of a scripted user, turn by turn, in a fresh session of an app that is set apart.

`apart` gives the same agents on stores of their own, so that an evaluation leaves nothing behind and finds nothing; `play`
says one case to it. Called by `evaluate` and `replay`. Scores nothing.
"""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from msgspec import Struct, structs

from polyport.data.content import Content, FunctionCall
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.data.model import ModelRequest, ModelResponse, ToolDeclaration, Usage
from polyport.data.run import RunOutcome, RunRequest
from polyport.data.session import Session, SessionKey
from polyport.engine.hooks import hook_table
from polyport.engine.runner import Engine
from polyport.engine.tree import AgentTree
from polyport.errors import PolyportError, describe
from polyport.evals.cases import AgentDetails, AppDetails, EvalCase, Invocation, with_ids
from polyport.evals.recording import turn_of
from polyport.ports.agent import CallbackContext, Tool, ToolContext
from polyport.ports.plugin import CallNext, Plugin
from polyport.ports.stores import Stores
from polyport.runs.coordinator import Coordinator
from polyport.seams import Seams
from polyport.stores.memory import KeywordMemory, MemoryArtifacts, MemorySessions

USER = "test_user_id"
"""Who talks in a case that does not say."""


class Subject(NamedTuple):
    """What is evaluated: the apps by name, and what their runs go through."""

    trees: Mapping[str, AgentTree]
    plugins: Sequence[Plugin]
    limits: Limits
    seams: Seams


class Spent(Struct):
    """What one run took. Seconds of calls that ran side by side are added up."""

    model_calls: int = 0
    model_s: float = 0.0
    tool_s: float = 0.0
    usage: list[Usage] = []
    agents: dict[str, AgentDetails] = {}


class Meter(Plugin):
    """Counts and times the calls of every run, and notes what the models were told. `spent` is by run."""

    name = "eval_meter"

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self.spent: dict[str, Spent] = {}

    async def watch_model(
        self, ctx: CallbackContext, event_id: str, request: ModelRequest, call_next: CallNext
    ) -> ModelResponse:
        spent = self._of(ctx.invocation_id)
        spent.model_calls += 1
        spent.agents[ctx.agent_name] = _told(ctx.agent_name, request)
        began = self._seams.clock()
        try:
            answer: ModelResponse = await call_next(request)
        finally:
            spent.model_s += self._seams.clock() - began
        if answer.usage_metadata is not None:
            spent.usage.append(answer.usage_metadata)
        return answer

    async def watch_tool(self, ctx: ToolContext, call: FunctionCall, tool: Tool | None, call_next: CallNext) -> Any:
        began = self._seams.clock()
        try:
            return await call_next()
        finally:
            self._of(ctx.invocation_id).tool_s += self._seams.clock() - began

    def _of(self, run_id: str) -> Spent:
        return self.spent.setdefault(run_id, Spent())


def _told(agent: str, request: ModelRequest) -> AgentDetails:
    tools = [{"functionDeclarations": [_declared(tool) for tool in request.tools]}] if request.tools else []
    return AgentDetails(name=agent, instructions=request.system, tool_declarations=tools)


def _declared(tool: ToolDeclaration) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}


class Played(NamedTuple):
    """One case, played once. `turns` may be fewer than were asked for: then `error` says why. `spent` is by turn."""

    user: str
    session: Session
    turns: list[Invocation]
    spent: list[Spent]
    error: str


@asynccontextmanager
async def apart(subject: Subject, *first: Plugin) -> AsyncGenerator[Coordinator]:
    """The agents of the subject on empty stores in memory, inside the block; plugins `first` are outermost. What connects
    (toolsets, models) is shared with the app, which must be running."""
    seams = subject.seams
    stores = Stores(MemorySessions(seams), MemoryArtifacts(seams), KeywordMemory())
    hooks = hook_table([*first, *subject.plugins])
    secret = os.urandom(32)
    engines = {name: Engine(tree, stores, hooks, seams, None, secret) for name, tree in subject.trees.items()}
    runs = Coordinator(engines, stores, subject.limits)
    async with runs.serving(subject.limits.shutdown_s):
        yield runs


async def play(runs: Coordinator, app: str, case: EvalCase, meter: Meter, seams: Seams) -> Played:
    """The turns of a case. A run that fails ends the case; answers to questions of the agent are given to the calls that
    asked in this very session."""
    given = case.session_input
    key = SessionKey(app, (given.user_id if given else "") or USER, "eval-" + seams.new_id())
    turns: list[Invocation] = []
    spent: list[Spent] = []
    ids: dict[str, str] = {}
    error = "" if case.conversation is not None else "the case is for a simulated user, which is not supported"
    try:
        await runs.stores.sessions.create(app, key.user, key.id, state=given.state if given else None)
    except PolyportError as refused:
        return Played(key.user, Session(key=key), [], [], f"the session was refused: {refused}")
    for expected in case.conversation or ():
        said = structs.replace(with_ids(expected.user_content, ids), role="user")
        began = seams.clock()
        try:
            run_id, events, outcome = await run_once(runs, key, said)
        except PolyportError as refused:
            error = f"turn {len(turns) + 1} was refused: {refused}"
            break
        turn = turn_of(run_id, said, began, events)
        cost = meter.spent.pop(run_id, Spent())
        turns.append(
            structs.replace(
                turn,
                duration=seams.clock() - began,
                model_duration=cost.model_s,
                tool_duration=cost.tool_s,
                app_details=AppDetails(agent_details=cost.agents),
            )
        )
        spent.append(cost)
        if outcome.status in ("failed", "cancelled"):
            error = f"turn {len(turns)}: the run {outcome.status}: {_reason(outcome)}"
            break
        ids.update(_pairs(expected, turn))
    return Played(key.user, await runs.stores.sessions.get(key), turns, spent, error)


async def run_once(runs: Coordinator, key: SessionKey, said: Content) -> tuple[str, list[Event], RunOutcome]:
    """(run id, its events without partial ones, how it ended). PolyportError when it is not even begun."""
    run = await runs.start(RunRequest(key=key, message=said), attached=True)
    events: list[Event] = []
    async with run.watching():
        async for items in run.follow():
            events.extend(item.event for item in items if not item.event.partial)
        outcome = await run.wait()
    return run.id, events, outcome


def _reason(outcome: RunOutcome) -> str:
    return describe(outcome.error)["message"] if outcome.error is not None else outcome.reason


def _pairs(expected: Invocation, actual: Invocation) -> dict[str, str]:
    """Ids of recorded calls -> those of the calls now, paired by name and order."""
    left = [call for step in actual.steps if step.content for call in step.content.calls]
    found: dict[str, str] = {}
    older = expected.intermediate_data.tool_uses if expected.intermediate_data is not None else []
    recorded = [*older, *(call for step in expected.steps if step.content for call in step.content.calls)]
    for old in recorded:
        new = next((call for call in left if call.name == old.name), None)
        if new is not None:
            left.remove(new)
            if old.id:
                found[old.id] = new.id
    return found
