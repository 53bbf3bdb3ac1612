"""From events to turns: what an evaluation compares, and what a stored session becomes when it is made a case.

Used where cases are played and by the eval routes. Pure.
"""

from collections.abc import Sequence

from msgspec import structs

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.session import Session
from polyport.evals.cases import IntermediateData, Invocation, InvocationEvent


def turn_of(run_id: str, said: Content, at: float, events: Sequence[Event]) -> Invocation:
    """The turn that began with `said` at epoch time `at`. Its answer is the last event that ends a turn with words; a run
    that waits for something has none."""
    shown = [event for event in events if _tells(event)]
    answer = next((event for event in reversed(shown) if event.final and event.text and not event.calls), None)
    return Invocation(
        invocation_id=run_id,
        user_content=said,
        final_response=answer.content if answer is not None else None,
        intermediate_data=IntermediateData(invocation_events=[_step(event, event is answer) for event in shown]),
        creation_timestamp=at,
    )


def turns_of(session: Session) -> list[Invocation]:
    """A stored conversation, one turn for each message of the user."""
    turns: list[tuple[Event, list[Event]]] = []
    for event in session.events:
        if event.author == "user" and event.content is not None:
            turns.append((event, []))
        elif turns:
            turns[-1][1].append(event)
    return [
        turn_of(
            said.invocation_id,
            structs.replace(said.content, role="user") if said.content is not None else Content(role="user"),
            said.timestamp.timestamp() if said.timestamp is not None else 0.0,
            events,
        )
        for said, events in turns
    ]


def _tells(event: Event) -> bool:
    """Whether an event is a step of the agent's that the user could see."""
    hidden = event.partial or event.unpublished or event.actions.compaction is not None
    return not hidden and event.author != "user" and event.content is not None


def _step(event: Event, is_answer: bool) -> InvocationEvent:
    return InvocationEvent(
        author=event.author,
        content=None if is_answer else event.content,
        grounding_metadata=event.grounding_metadata,
        usage_metadata=event.usage_metadata,
        model_version=event.model_version,
    )
