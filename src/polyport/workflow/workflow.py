"""Workflow: an agent that runs a graph of functions, tools and agents (spec core 4.2 to 4.8).

For users: as the root, as a sub-agent, as a tool, or as a node of another workflow. Holds the graph only; the scheduler does
the work, so that one object can serve any number of runs at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_type_hints

from polyport.data.run import Ending
from polyport.engine.flow import FlowSpec, going_on
from polyport.engine.journal import trunk
from polyport.engine.spec import LlmSpec
from polyport.errors import ConfigError
from polyport.ports.agent import Agent, RunContext
from polyport.workflow.board import Activation
from polyport.workflow.graph import Graph, GraphData, agents_of, read_edges
from polyport.workflow.history import History, events_of, goes_on, newest, unused
from polyport.workflow.nodes import AgentNode
from polyport.workflow.place import Placed
from polyport.workflow.scheduler import Execution, Outcome
from polyport.workflow.turn import Setting
from polyport.workflow.values import said_text
from polyport.workflow.work import Work


@dataclass(frozen=True, kw_only=True, eq=False)
class Workflow(FlowSpec):
    """`Workflow("name", edges=[(START, a, b), (b, {"yes": c, "no": d, DEFAULT: e})])`.

    Functions, tools and agents in `edges` become nodes; `node(...)` gives them settings. `max_concurrency` nodes work at once
    (0: no limit). `state_schema`, a type with fields or names, are the keys of the state that functions may ask for.

    The input is the text of the user's message. An agent right after START works in the conversation itself, unless its mode is
    single_turn; every other one works on its input, in a place of its own. ConfigError for a graph that cannot work.
    """

    live = False

    name: str = field(kw_only=False)
    sub_agents: Sequence[Agent] = field(default=(), init=False)
    edges: Sequence[Any] = ()
    max_concurrency: int = 0
    state_schema: Any = None
    plan: Graph = field(init=False)

    def __post_init__(self) -> None:
        plan = read_edges(self.name, self.edges, _keys(self.state_schema))
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "sub_agents", tuple(cast("Iterable[Agent]", agents_of(plan.nodes.values()))))

    @property
    def graph(self) -> GraphData:
        """The nodes and edges as plain data, for drawing."""
        return self.plan.data()

    def follows(self, child: Agent) -> bool:
        return not self.plan.last(child.name)

    def outer(self, branch: str, child: Agent) -> str:
        return trunk(branch)

    async def run(self, ctx: RunContext) -> Ending:
        """Begin, or go on with what this run has begun of the workflow."""
        place = ctx.place if isinstance(ctx, Placed) else None
        if place is not None and place.agent == self.name:
            events = events_of(ctx) if goes_on(ctx) and place.attempt == 1 else []
            path, outputs, home = place.path, place.outputs[1:], place.home
            input, on = place.input, True
        else:
            events = events_of(ctx)
            base = f"{place.path}/{self.name}" if place is not None else self.name
            number = newest(ctx, self.name, base, events)
            on = number > 0 and (ctx.called_back or bool(going_on(ctx, self.sub_agents)))
            path, outputs = f"{base}@{number if on else unused(base, events, number)}", []
            home = ctx.isolation_scope
            first = next((e.content for e in events if e.author == "user"), None) if not ctx.isolation_scope else None
            input = said_text(first or ctx.user_content)
        history = History(ctx, self.name, path, events)
        if on and history.ended is not None and not history.ended.waits:
            return "escalated" if history.ended.escalated else "done"
        execution = Execution(ctx, self.plan, history, outputs, home)

        async def start(activation: Activation) -> Outcome:
            return await Work(execution, activation.node, activation.input, self._at(execution, activation)).perform()

        return await execution.run(input, self.max_concurrency, start)

    def _at(self, execution: Execution, activation: Activation) -> Setting:
        node, plan = activation.node, self.plan
        last = plan.last(node.name)
        at = Setting(
            execution.path_of(activation),
            activation.branch,
            execution.outputs if last else (),
            execution.home if last else None,
        )
        at.activation = activation
        if isinstance(node, AgentNode):
            single = isinstance(node.agent, LlmSpec) and node.agent.mode == "single_turn"
            at.conversation = plan.first(node.name) and not single and node.kind == "agent"
        return at


def _keys(schema: Any) -> frozenset[str] | None:
    """The names of the fields of a state schema. ConfigError for what has none."""
    if schema is None:
        return None
    if isinstance(schema, Mapping) or (isinstance(schema, Iterable) and not isinstance(schema, str)):
        return frozenset(str(name) for name in cast("Iterable[Any]", schema))
    fields = get_type_hints(schema) if isinstance(schema, type) else {}
    if not fields:
        raise ConfigError(f"state_schema takes a class with fields, or names; not {schema!r}")
    return frozenset(fields)
