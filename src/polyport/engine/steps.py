"""A step: one answer of the model with calls, and what has come of it since (spec core 3.9, 3.11).

Used by the turn loop when it goes on with a step that waited. Pure; reads stored events only.
"""

from collections.abc import Iterator, Sequence

from msgspec import structs

from polyport.data.asking import RESERVED
from polyport.data.content import Content, Part
from polyport.data.event import Event
from polyport.engine.approvals import call_of, find_requests
from polyport.engine.pause import records_of
from polyport.engine.scopes import answered_ids


def told_ids(events: Sequence[Event], asked: Event) -> set[str]:
    """Ids of all responses after `asked`, those included that only say that a human is waited for."""
    return {r.id for event in _after(events, asked) for r in event.responses}


def step_waits(events: Sequence[Event], asked: Event) -> bool:
    """Whether a call of the step waits for a human, or goes on in another agent."""
    answered = answered_ids(events, asked)
    if any(c.id not in answered and c.id not in asked.long_running_tool_ids for c in asked.calls):
        return True
    ids = {call.id for call in asked.calls}
    for request in find_requests(events).values():
        call_id = str((request.record or {}).get("call", ""))
        if request.answer is None and call_id in ids and request.event.author == asked.author:
            place = call_of(events, request, call_id)
            if place is not None and place.event.id == asked.id:
                return True
    return False


def waits_outside(events: Sequence[Event], asked: Event) -> bool:
    """Whether a long-running call of the step waits for its result from outside: what its agent has said of it so far is no
    error."""
    waits = set(asked.long_running_tool_ids)
    for event in _after(events, asked):
        for response in event.responses:
            if event.author == "user":
                waits.discard(response.id)
            elif response.id in asked.long_running_tool_ids:
                failed = "error" in (response.response or {})
                (waits.discard if failed else waits.add)(response.id)
    return bool(waits)


def unasked_step(events: Sequence[Event], last: Event) -> Event | None:
    """The step whose responses, in `last`, announce approvals that nobody was asked for: the run died in between."""
    wanted = last.actions.requested_tool_confirmations
    at = next((at for at in range(len(events) - 1, -1, -1) if events[at].id == last.id), -1)
    if not wanted or any(_asks(event, last) for event in events[at + 1 :]):
        return None
    for event in reversed(events[:at]):
        if event.author == last.author and any(call.id in wanted and call.name not in RESERVED for call in event.calls):
            return event
    return None


def whole_step(events: Sequence[Event], asked: Event, newest: Event | None) -> Event:
    """All that has come of a step, as one event that is never stored: the latest response to each call, in call order. What
    the newest responses (`newest`, when some have just come) want to happen is still to be done, and so is the transfer or
    escalation of those that had to wait."""
    latest: dict[str, Part] = {}
    actions = structs.replace(asked.actions, transfer_to_agent="", escalate=False, skip_summarization=False)
    transfer, escalate = "", False
    for event in (*_after(events, asked), *((newest,) if newest is not None else ())):
        if _asks(event, asked):  # a human was asked, so nothing that the responses before wanted was done
            transfer, escalate = actions.transfer_to_agent or transfer, actions.escalate or escalate
            continue
        if event.author != asked.author:
            continue
        actions = event.actions
        for part in event.content.parts if event.content is not None else ():
            if part.function_response is not None:
                latest[part.function_response.id] = part
    parts = [latest[call.id] for call in asked.calls if call.id in latest]
    actions = structs.replace(
        actions,
        transfer_to_agent=actions.transfer_to_agent or transfer,
        escalate=actions.escalate or escalate,
        requested_tool_confirmations={},
    )
    return structs.replace(asked, content=Content(role="user", parts=parts) if parts else None, actions=actions)


def _asks(event: Event, asked: Event) -> bool:
    return event.author == asked.author and bool(records_of(event))


def _after(events: Sequence[Event], asked: Event) -> Iterator[Event]:
    """The events after `asked` that hold responses to its calls or ask about them, until the model uses an id of it anew."""
    ids = {call.id for call in asked.calls}
    at = next((at for at in range(len(events) - 1, -1, -1) if events[at].id == asked.id), len(events))
    for event in events[at + 1 :]:
        if event.author not in (asked.author, "user") or event.isolation_scope != asked.isolation_scope:
            continue
        if any(call.id in ids for call in event.calls):
            return
        records = records_of(event).values()
        if any(r.id in ids for r in event.responses) or any(r.get("call") in ids for r in records):
            yield event
