"""Which agent a run begins with (spec core 2.2.3). Pure; used by the runner.

A message with results goes to the agent that asked for them, and one without to the task that is open; a run that died goes
on where it was; all else is the turn of the agent that spoke last, or of the root. An agent that works for another one's call
is reached through that one.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from polyport.data.content import Content, Part
from polyport.data.event import Event
from polyport.engine.flow import point
from polyport.engine.journal import way_back
from polyport.engine.pairing import RESERVED
from polyport.engine.scopes import call_event, callers, open_task, settled_ids
from polyport.engine.spec import LlmSpec
from polyport.ports.agent import Agent, Tree


class Start(Struct):
    """The first agent and its branch. `askers` are the agents with which the run goes on: isolation scope -> names;
    `reopened` are the calls that they work for."""

    agent: Agent
    branch: str = ""
    askers: dict[str, set[str]] = {}
    reopened: set[str] = set()
    scope: str = ""
    """The isolation scope to which the message belongs."""
    scopes: dict[str, str] = {}
    """Those of its results, by call id."""

    def places(self, message: Content) -> list[tuple[str, Content]]:
        """The message by isolation scope: each asker sees the answers to its own calls. One scope, unless the message answers
        askers in several."""
        if len(set(self.scopes.values())) < 2:
            return [(self.scope, message)]
        parts: dict[str, list[Part]] = {}
        for part in message.parts:
            response = part.function_response
            place = self.scopes.get(response.id, self.scope) if response is not None else self.scope
            parts.setdefault(place, []).append(part)
        return [(place, structs.replace(message, parts=some)) for place, some in parts.items()]


def pick_start(tree: Tree, events: Sequence[Event], message: Content | None, run_id: str) -> Start:
    """Who answers `message`; without one, who goes on with the run `run_id`."""
    if message is None:
        asked = _newest_of_run(events, run_id)
        if asked:
            start = _at(tree, events, asked, pure=True)
            if start is not None:
                return start
        message = message_of(events, run_id)
        return pick_start(tree, events, message, run_id) if message is not None else Start(_next(tree, events))
    asked = _asked(events, message) if message.responses else {}
    if asked:
        settles = any(c.name in RESERVED and c.id == id for id, e in asked.items() for c in e.calls)
        pure = settles or len(message.responses) == len(message.parts)
        start = _at(tree, events, list(asked.values()), pure)
        if start is not None:
            start.scopes = {id: e.isolation_scope for id, e in asked.items()}
            start.scope = next(iter(start.scopes.values()))
            return start
    return _at_task(tree, events) or Start(_next(tree, events))


def _at(tree: Tree, events: Sequence[Event], asked: Sequence[Event], pure: bool) -> Start | None:
    """The first of the askers, in the flow around it, or the agent it works for; None when all are gone. With text beside the
    results a flow begins anew (statement 35), unless a human's answer to a request is among them: that goes on where it was."""
    askers: dict[str, set[str]] = {}
    reopened: set[str] = set()
    first: Event | None = None
    closed: set[str] | None = None
    for event in asked:
        chain = list(way_back(events, event))
        top = chain[-1]
        if top.isolation_scope or tree.find(top.author) is None:
            continue
        if len(chain) > 1:
            closed = closed or {id for e in events for id in settled_ids(e)}
            if any(e.isolation_scope in closed for e in chain):
                continue  # nobody waits for it any more
        first = first or top
        if pure or event.isolation_scope:
            reopened.update(e.isolation_scope for e in chain[:-1])
            for one in chain:
                askers.setdefault(one.isolation_scope, set()).add(one.author)
    asker = tree.find(first.author) if first is not None else None
    if first is None or asker is None:
        return None
    if not isinstance(tree.root, LlmSpec):
        return Start(tree.root, askers=askers, reopened=reopened)
    agent, branch = point(tree, asker, first.branch) if askers else (asker, first.branch)
    return Start(agent, branch, askers, reopened)


def _at_task(tree: Tree, events: Sequence[Event]) -> Start | None:
    """The task that is open, if there is one: the message is for it (spec core 3.15)."""
    if not tree.has_tasks:
        return None
    found: dict[str, tuple[Tree, Agent] | None] = {}

    def is_task(scope: str) -> bool:
        found[scope] = worker = _worker(tree, events, scope)
        return worker is not None and isinstance(worker[1], LlmSpec) and worker[1].mode == "task"

    scope = open_task(events, is_task)
    worker, asked = found.get(scope), call_event(events, scope)
    start = _at(tree, events, [asked[0]], pure=True) if worker is not None and asked is not None else None
    if worker is not None and start is not None:
        speaker = _speaker(*worker, (e for e in reversed(events) if e.isolation_scope == scope))
        start.askers = {**start.askers, scope: {speaker.name}}
        start.reopened.add(scope)
        start.scope = scope
    return start


def _worker(tree: Tree, events: Sequence[Event], scope: str) -> tuple[Tree, Agent] | None:
    """Who carries out the call whose id is `scope`, and the tree in which it does; None when somebody on the way is gone."""
    found = call_event(events, scope)
    chain = list(callers(events, found[0])) if found is not None else []
    if not chain or chain[-1].isolation_scope:
        return None
    agent: Agent | None = None
    for event, call_id in zip(reversed(chain), [*(e.isolation_scope for e in chain[-2::-1]), scope], strict=True):
        caller = tree.find(event.author)
        name = next(c.name for c in event.calls if c.id == call_id)
        agent = tree.called(caller, name) if caller is not None else None
        if caller is None or agent is None:
            return None
        tree = tree.below(caller, agent)
    return (tree, agent) if agent is not None else None


def _next(tree: Tree, events: Sequence[Event]) -> Agent:
    """The last agent that spoke, if the conversation may be taken back from it; else the root."""
    root = tree.root
    if root.sub_agents and isinstance(root, LlmSpec):
        return _speaker(tree, root, (e for e in reversed(events) if not e.isolation_scope))
    return root


def _speaker(tree: Tree, top: Agent, newest_first: Iterable[Event]) -> Agent:
    """The last agent that spoke, if it may hand back all the way to `top`; else `top`."""
    for event in newest_first:
        agent = tree.find(event.author) if event.author != "user" else None
        if agent is not None and _transferable(tree, agent, top):
            return agent
    return top


def _transferable(tree: Tree, agent: Agent | None, top: Agent) -> bool:
    while isinstance(agent, LlmSpec) and not agent.disallow_transfer_to_parent:
        if agent is top:
            return True
        agent = tree.parent(agent)
    return False


def _asked(events: Sequence[Event], message: Content) -> dict[str, Event]:
    """The newest event with the call of each result, by its id, in the order of the results."""
    wanted = {r.id for r in message.responses if r.id}
    found: dict[str, Event] = {}
    for event in reversed(events):
        for call in event.calls if event.author != "user" else ():
            if call.id in wanted:
                wanted.discard(call.id)
                found[call.id] = event
        if not wanted:
            break
    return {r.id: found[r.id] for r in message.responses if r.id in found}


def _newest_of_run(events: Sequence[Event], run_id: str) -> list[Event]:
    """The newest event of the run in each scope and on each branch, the newest of all first."""
    found: dict[tuple[str, str], Event] = {}
    for event in reversed(events):
        if event.invocation_id == run_id and event.author != "user":
            found.setdefault((event.isolation_scope, event.branch), event)
    return list(found.values())


def message_of(events: Sequence[Event], run_id: str) -> Content | None:
    """The user's message that began a run."""
    return next((e.content for e in events if e.invocation_id == run_id and e.author == "user"), None)
