"""What a run has done of a workflow so far, read from the session's events (spec core 4.7).

Made when a workflow begins to work in a run, also for the first time. Reads only; a run that begins looks at its own events
only, however long the session is.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from polyport.data.asking import INPUT, input_value
from polyport.data.event import Event
from polyport.engine.journal import Record, node_scope, read, workflow_of
from polyport.ports.agent import RunContext


def goes_on(ctx: RunContext) -> bool:
    """Whether this run goes on with something, and does not begin."""
    message = ctx.scope.user_content
    return ctx.scope.resumed or (message is not None and bool(message.responses))


def newest_first(ctx: RunContext) -> Iterator[Event]:
    """The events of this run, the newest first."""
    run_id, old, begun = ctx.scope.id, goes_on(ctx), False
    for event in reversed(ctx.session.events):
        if event.invocation_id == run_id:
            yield event
            begun = event.author == "user" and event.node_info is None
        elif begun and not old:
            return  # what is older was there before the run's message; what lies between is somebody's change of the state


def events_of(ctx: RunContext) -> list[Event]:
    """The events of this run, oldest first."""
    return list(newest_first(ctx))[::-1]


class History:
    """One activation of a workflow. `scope` is the isolation scope of its notes, `path` its own path; `done` are the records of
    its nodes, and of their children, by path, in the order in which they were done."""

    def __init__(self, ctx: RunContext, name: str, path: str, events: Sequence[Event]) -> None:
        self._ctx = ctx
        self.path = path
        self.scope = node_scope(ctx.isolation_scope, ctx.scope.id, name, path)
        self.start: Record | None = None
        self.done: dict[str, Record] = {}
        self.ended: Record | None = None
        self._seen: set[str] = set()
        for event in events:
            if event.node_info is not None and event.node_info.path.startswith(path + "/"):
                self._seen.add(event.node_info.path)
            record = read(ctx.scope.secret, ctx.session, event, scope=self.scope)
            if record is None:
                continue
            if record.kind == "start":  # a later one is that of a new attempt
                self.start, self.ended = record, None
                self.done.clear()
            elif record.kind == "done":
                self.done[record.path] = record
                self.ended = None
            else:
                self.ended = record

    def nodes(self) -> list[Record]:
        """The records of the graph's own nodes."""
        return [r for p, r in self.done.items() if "/" not in p[len(self.path) + 1 :]]

    def begun(self, path: str) -> bool:
        """Whether a node, or a child of it, had said something before this run, or this part of it, began."""
        return any(p == path or p.startswith(path + "/") for p in self._seen)

    def asked(self, path: str) -> dict[str, Any]:
        """What a function has asked, by interrupt id in the order of the questions: the answer, or UNSET."""
        found: dict[str, Any] = {}
        author = self._ctx.agent.name
        for event in events_of(self._ctx):
            if event.author == "user":
                for response in event.responses:
                    if found.get(response.id) is UNSET:
                        found[response.id] = input_value(response)
            elif event.author == author and event.node_info is not None and event.node_info.path == path:
                for call in event.calls:
                    if call.name == INPUT and call.id in event.long_running_tool_ids:
                        found.pop(call.id, None)
                        found[call.id] = UNSET
        return found


def newest(ctx: RunContext, name: str, base: str, events: Sequence[Event]) -> int:
    """How often a workflow has begun at `base` in this run."""
    numbers = [0]
    for event in events:
        record = read(ctx.scope.secret, ctx.session, event, kind="start")
        if record is not None and workflow_of(record.scope) == (ctx.isolation_scope, name):
            before, _, number = record.path.rpartition("@")
            if before == base and number.isdecimal():
                numbers.append(int(number))
    return max(numbers)


def unused(base: str, events: Sequence[Event], number: int) -> int:
    """A number above `number` for a workflow that begins at `base`, of which no event says anything. What a run knows of itself
    by its journal is sealed, but where its agents were is not: a history from outside must not have been there before."""
    mark = re.compile(rf"(?:^|\|){re.escape(base)}@([0-9]+)(?=[/#|]|$)")
    places = (place for e in events for place in (e.isolation_scope, e.node_info.path if e.node_info else "") if place)
    taken = {found for place in places for found in mark.findall(place)}
    number += 1
    while str(number) in taken:
        number += 1
    return number


def last_word(ctx: RunContext, path: str) -> Event | None:
    """The newest event of this run whose output counts for a path."""
    for event in newest_first(ctx):
        if event.node_info is not None and path in event.node_info.output_for:
            return event
    return None


def settled_word(ctx: RunContext, path: str) -> Event | None:
    """The newest event of this run that is the output of an agent's node, unless somebody has answered a call of it since:
    then it has more to say."""
    found: Event | None = None
    asked: set[str] = set()
    for event in events_of(ctx):
        if event.author == "user":
            if any(r.id in asked for r in event.responses):
                found = None
        elif event.node_info is not None and event.node_info.path == path:
            asked.update(event.long_running_tool_ids)
            found = event if path in event.node_info.output_for else found
    return found


def open_calls(ctx: RunContext, scope: str) -> list[str]:
    """The names of the calls in an isolation scope that nobody has answered for in this run."""
    found: dict[str, str] = {}
    for event in events_of(ctx):
        if event.author == "user":
            for response in event.responses:
                found.pop(response.id, None)
        elif event.isolation_scope == scope:
            found.update({c.id: c.name for c in event.calls if c.id in event.long_running_tool_ids})
    return list(found.values())
