"""Isolation scopes: who delegated to whom, and which delegations are open, read from the events of a session.

A delegation's scope is the id of the call that began it (spec core 3.15). Used by the choice of the first agent, by flows
and by delegations. Pure; never runs anything.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

from polyport.data.content import FunctionCall, FunctionResponse
from polyport.data.event import Event

FINISH_TOOL = "finish_task"
TASK_DONE = "Task completed."
"""What `finish_task` answers when the task is done (spec core 2.5)."""


def call_event(events: Sequence[Event], call_id: str) -> tuple[Event, FunctionCall] | None:
    """The newest event with a call of that id, and the call."""
    for event in reversed(events):
        for call in event.calls:
            if call.id == call_id:
                return event, call
    return None


def callers(events: Sequence[Event], event: Event) -> Iterator[Event]:
    """`event`, then the event whose call began the delegation it belongs to, and so on; the last one belongs to none, unless
    its call is gone."""
    seen: set[str] = set()
    yield event
    while event.isolation_scope and event.isolation_scope not in seen:
        seen.add(event.isolation_scope)
        found = call_event(events, event.isolation_scope)
        if found is None:
            return
        event = found[0]
        yield event


def seen_from(events: Sequence[Event], event: Event, scope: str) -> Event | None:
    """The event of `scope` itself that `event` goes back to: itself, or the one whose call led to it. None when it happened
    elsewhere."""
    return next((e for e in callers(events, event) if e.isolation_scope == scope), None)


def answered_ids(events: Sequence[Event], asked: Event) -> set[str]:
    """Ids of all calls that have got their response after `asked`."""
    found: set[str] = set()
    for event in reversed(events):
        if event is asked or event.id == asked.id:
            break
        found.update(settled_ids(event))
    return found


def settled_ids(event: Event) -> list[str]:
    """Ids of the calls that have got their response in an event: not of those that it says wait for an approval."""
    waits = event.actions.requested_tool_confirmations
    return [r.id for r in event.responses if r.id not in waits]


def reopened_event(events: Sequence[Event], reopened: Set[str], author: str, scope: str) -> Event | None:
    """The newest event of an agent in a scope with a call whose delegation goes on."""
    if not reopened:
        return None
    mine = (e for e in reversed(events) if e.author == author and e.isolation_scope == scope)
    return next((e for e in mine if any(c.id in reopened for c in e.calls)), None)


def open_task(events: Sequence[Event], is_task: Callable[[str], bool]) -> str:
    """The newest isolation scope in which a task waits for the user's next message, else "" (spec core 2.5).

    A task is closed by `finish_task` with success, or by a response to the call that began it. `is_task` says whether a scope
    is that of a task.
    """
    closed: set[str] = set()
    for event in reversed(events):
        for response in event.responses:
            closed.add(response.id)
        scope = event.isolation_scope
        if not scope or scope in closed:
            continue
        if closes_task(event) or not is_task(scope):
            closed.add(scope)
            continue
        return scope
    return ""


def closes_task(event: Event) -> bool:
    """Whether the event says that its task is done."""
    return any(map(_done, event.responses))


def _done(response: FunctionResponse) -> bool:
    return response.name == FINISH_TOOL and (response.response or {}).get("result") == TASK_DONE


def finished_with(events: Sequence[Event], scope: str) -> dict[str, Any] | None:
    """The arguments with which the task of `scope` was finished; None while it is open."""
    done: set[str] = set()
    for event in reversed(events):
        if event.isolation_scope != scope:
            continue
        done.update(r.id for r in event.responses if _done(r))
        for call in event.calls if done else ():
            if call.id in done:
                return call.args
    return None
