"""Which agent a run begins with (spec core 2.2.3). Pure; used by the runner.

A message with results goes to the agent that asked for them; a run that died goes on where it was; all else is the turn of
the agent that spoke last, or of the root.
"""

from collections.abc import Sequence
from typing import NamedTuple

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.engine.flow import point
from polyport.engine.spec import LlmSpec
from polyport.ports.agent import Agent, Tree


class Start(NamedTuple):
    """The first agent and where it works; `askers` are the agents with which the run goes on, by name."""

    agent: Agent
    branch: str = ""
    isolation_scope: str = ""
    askers: frozenset[str] = frozenset()


def pick_start(tree: Tree, events: Sequence[Event], message: Content | None, run_id: str) -> Start:
    """Who answers `message`; without one, who goes on with the run `run_id`."""
    if message is None:
        asked = _newest_of_run(tree, events, run_id)
        message = message_of(events, run_id)
        if not asked and message is not None:
            return pick_start(tree, events, message, run_id)
        pure = True
    else:
        asked = _asked(tree, events, message) if message.responses else []
        pure = len(message.responses) == len(message.parts)
    return _at(tree, asked, pure) if asked else _next(tree, events)


def _at(tree: Tree, asked: list[Event], pure: bool) -> Start:
    """The first of the askers, in the flow around it. With text beside the results a flow begins anew (statement 35)."""
    root, first = tree.root, asked[0]
    askers = frozenset(e.author for e in asked) if pure else frozenset[str]()
    asker = tree.find(first.author)
    if asker is None or not isinstance(root, LlmSpec):
        return Start(root, askers=askers)
    agent, branch = point(tree, asker, first.branch) if pure else (asker, first.branch)
    return Start(agent, branch, first.isolation_scope, askers)


def _next(tree: Tree, events: Sequence[Event]) -> Start:
    """The last agent that spoke, if the conversation may be taken back from it; else the root."""
    root = tree.root
    if isinstance(root, LlmSpec) and root.sub_agents:
        for event in reversed(events):
            agent = tree.find(event.author) if event.author != "user" else None
            if agent is not None and _transferable(tree, agent):
                return Start(agent)
    return Start(root)


def _transferable(tree: Tree, agent: Agent | None) -> bool:
    while agent is not None:
        if not isinstance(agent, LlmSpec) or agent.disallow_transfer_to_parent:
            return False
        agent = tree.parent(agent)
    return True


def _asked(tree: Tree, events: Sequence[Event], message: Content) -> list[Event]:
    """The newest event with the call of each result, in the order of the results; those of agents that are gone are left
    out."""
    wanted = {r.id for r in message.responses if r.id}
    found: dict[str, Event] = {}
    for event in reversed(events):
        for call in event.calls:
            if call.id in wanted:
                wanted.discard(call.id)
                found[call.id] = event
        if not wanted:
            break
    asked = [found[r.id] for r in message.responses if r.id in found]
    return [e for e in asked if tree.find(e.author) is not None]


def _newest_of_run(tree: Tree, events: Sequence[Event], run_id: str) -> list[Event]:
    """The newest event of the run on each branch, the newest of all first."""
    found: dict[str, Event] = {}
    for event in reversed(events):
        if event.invocation_id == run_id and event.author != "user" and tree.find(event.author) is not None:
            found.setdefault(event.branch, event)
    return list(found.values())


def message_of(events: Sequence[Event], run_id: str) -> Content | None:
    """The user's message that began a run."""
    return next((e.content for e in events if e.invocation_id == run_id and e.author == "user"), None)
