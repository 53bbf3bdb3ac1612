"""The turn of an agent in a node: where it works, what it is asked, and what it came to (spec core 4.3).

Used by `work.Work` for agent and tool nodes. An agent works in the conversation itself, or in an isolation scope of its own
that begins with the node's input, so that agents side by side do not see each other's work (FR-065).
"""

from collections.abc import Sequence
from typing import Any, Literal

from polyport.data.asking import RESERVED
from polyport.data.event import Event
from polyport.engine.flow import going_on, still_waits
from polyport.engine.journal import node_scope
from polyport.engine.output import parse_answer
from polyport.engine.resume import newest_event
from polyport.engine.spec import LlmSpec
from polyport.ports.agent import Agent, Delegation, RunContext
from polyport.workflow.board import Activation
from polyport.workflow.context import NodeWaits
from polyport.workflow.history import last_word, open_calls, settled_word
from polyport.workflow.place import Place, Placed
from polyport.workflow.retry import RetryPolicy
from polyport.workflow.scheduler import Execution
from polyport.workflow.values import as_content


class Setting:
    """Where a run of a node stands. `outputs` are the paths for which its output counts, `home` the isolation scope in which
    that is said, if not its own. `conversation`: its agent works in the conversation itself; `lenient`: an open long-running
    call does not park it; `many`: it may have several outputs, which become a list."""

    __slots__ = ("activation", "branch", "conversation", "home", "lenient", "many", "outputs", "path", "retry", "said")

    def __init__(self, path: str, branch: str, outputs: Sequence[str], home: str | None = None) -> None:
        self.path = path
        self.branch = branch
        self.outputs = [path, *outputs]
        self.home = home
        self.activation: Activation | None = None
        self.conversation = False
        self.lenient = False
        self.many = False
        self.retry: RetryPolicy | None = None
        self.said: Event | None = None
        """What the agent had said before its run died, when it was done with that."""


def enter(execution: Execution, at: Setting, input: Any) -> str:
    """The isolation scope in which the agent of a node works; it is made ready."""
    ctx = execution.ctx
    if at.conversation:
        return ctx.isolation_scope
    where = node_scope(ctx.isolation_scope, ctx.scope.id, execution.graph.name, at.path)
    if where not in ctx.scope.delegations:
        asked = as_content(input, ctx.user_content)
        ctx.scope.delegations[where] = Delegation(
            tree=ctx.tree, caller=ctx.isolation_scope, hidden=_hidden(ctx), user_content=asked, seed=asked
        )
    return where


def stands(execution: Execution, at: Setting, input: Any, agent: Agent) -> Event | Literal["works", "waits"]:
    """How it stands with an agent that had begun before: it has work to do, waits for somebody, or has said its last word, and
    its run died then. Agents that are no LLM agents know best themselves."""
    scope, where = execution.ctx.scope, enter(execution, at, input)
    ctx = RunContext(scope, agent, at.branch, where)
    if not scope.resumed and going_on(ctx, [agent]):
        return "works"
    if still_waits(ctx, [agent]):
        last = newest_event(ctx.session.events, scope.id, agent.name, where)
        idle = isinstance(agent, LlmSpec) and (last is None or (last.author == agent.name and last.final))
        return "waits" if idle or not scope.resumed else "works"
    return (settled_word(ctx, at.path) if isinstance(agent, LlmSpec) else None) or "works"


async def run_turn(execution: Execution, at: Setting, input: Any, agent: Agent, attempt: int) -> Any:
    """The turn of an agent, or what is left of it; its output. NodeWaits when it waits."""
    ctx, where = execution.ctx, enter(execution, at, input)
    said = at.said if attempt == 1 else None
    if said is None:
        home = at.home if at.home is not None else where
        place = Place(path=at.path, agent=agent.name, attempt=attempt, input=input, outputs=at.outputs, home=home)
        ending = await ctx.scope.run_agent(Placed(ctx.scope, agent, place, at.branch, where), agent)
        execution.escalated |= ending == "escalated"
        if ending == "paused" and not (at.lenient and _only_long_running(ctx, where)):
            raise NodeWaits
        said = last_word(ctx, at.path)
    if said is None:
        return None
    if said.output is not None:
        return said.output
    output = ctx.tree.bound(agent).output if isinstance(agent, LlmSpec) else None
    return said.text if output is None else parse_answer(said.text, output)


def _hidden(ctx: RunContext) -> bool:
    above = ctx.scope.delegations.get(ctx.isolation_scope)
    return above is not None and above.hidden


def _only_long_running(ctx: RunContext, scope: str) -> bool:
    """Whether an agent waits for results of long-running calls, and for no human."""
    names = open_calls(ctx, scope)
    return bool(names) and not any(name in RESERVED for name in names)
