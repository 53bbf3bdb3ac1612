"""Going on in the middle: how a run finds its way back to the agents that asked, or that were at work when it died.

FlowSpec is what sequential, loop and parallel agents have in common for the engine. Used by the runner, by the choice of the
first agent, and by those agents themselves. Reads the tree and the events; never runs anything.
"""

from collections.abc import Sequence

from polyport.data.event import Event
from polyport.engine.journal import ended, waits, way_back
from polyport.engine.spec import LlmSpec
from polyport.ports.agent import Agent, RunContext, Tree


class FlowSpec(Agent):
    """An agent that only decides which of its sub-agents runs when. It can begin with the one that `going_on` names."""

    live = True

    def place(self, branch: str, child: Agent) -> str:
        """The branch on which a child works when this agent works on `branch`."""
        return branch

    def outer(self, branch: str, child: Agent) -> str:
        """The branch on which this agent works when a child works on `branch`."""
        return branch.removesuffix(self.place("", child)).removesuffix(".")

    def follows(self, child: Agent) -> bool:
        """Whether this agent surely runs another one when `child` has answered."""
        return False


def point(tree: Tree, agent: Agent, branch: str) -> tuple[Agent, str]:
    """Where to begin so that `agent`, on `branch`, goes on and what comes after it follows: the topmost flow around it, and
    that one's branch."""
    parent = tree.parent(agent)
    while isinstance(parent, FlowSpec):
        branch = parent.outer(branch, agent)
        agent, parent = parent, tree.parent(parent)
    return agent, branch


def going_on(ctx: RunContext, children: Sequence[Agent]) -> list[Agent]:
    """Those of `children` that are, or have below them, an agent with which the run goes on. Empty in a run that begins."""
    tree, askers = ctx.tree, ctx.askers
    return [c for c in children if any(_within(tree, name, c) for name in askers)] if askers else []


def asker_below(ctx: RunContext) -> Agent | None:
    """An agent below this one with which the run goes on."""
    tree = ctx.tree
    name = next((n for n in ctx.askers if _within(tree, n, ctx.agent)), None)
    return tree.find(name) if name is not None else None


def still_waits(ctx: RunContext, children: Sequence[Agent]) -> bool:
    """Whether an agent of `children`, or one that works for it, has a long-running call in this run that the user has not
    answered."""
    tree, run_id, events = ctx.tree, ctx.scope.id, ctx.session.events
    answered: set[str] = set()
    for event in reversed(events):
        if event.invocation_id != run_id:
            continue
        if event.author == "user":
            answered.update(r.id for r in event.responses)
        elif any(id not in answered for id in event.long_running_tool_ids):
            here = next((e for e in way_back(events, event) if e.isolation_scope == ctx.isolation_scope), None)
            if here is not None and any(_within(tree, here.author, child) for child in children):
                return True
    return False


def more_follows(tree: Tree, events: Sequence[Event], run_id: str) -> bool:
    """Whether the newest event of the run is an answer after which a flow runs another agent: the run died in between. Of an
    agent without a model nobody knows whether it was done, and it would begin anew; so it does not count."""
    mine = [e for e in events if e.invocation_id == run_id]
    open_ids = {id for e in mine if e.author != "user" for id in e.long_running_tool_ids}
    open_ids.difference_update(r.id for e in mine if e.author == "user" for r in e.responses)
    last = mine[-1] if mine else None
    if open_ids or last is None or last.actions.end_invocation:
        return False
    if ended(last):  # a workflow says that it is done, in a place of its own
        last = list(way_back(events, last))[1] if not waits(last) else None
    elif not isinstance(tree.find(last.author), LlmSpec):
        return False
    if last is None or last.isolation_scope:
        return False
    agent = tree.find(last.author)
    while agent is not None:
        child, agent = agent, tree.parent(agent)
        if isinstance(agent, FlowSpec) and agent.follows(child):
            return True
    return False


def _within(tree: Tree, name: str, top: Agent) -> bool:
    agent = tree.find(name)
    while agent is not None and agent is not top:
        agent = tree.parent(agent)
    return agent is not None
