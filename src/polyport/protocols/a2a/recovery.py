"""What becomes of a task that was being worked on when its process died (T109): it goes on, or it fails.

Called at start, before anything else works on the task. Reads the session, which knows more than the task: an event is stored
there first.
"""

from collections.abc import Mapping, Sequence

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.session import Session
from polyport.engine.flow import more_follows
from polyport.engine.resume import unfinished
from polyport.errors import BadRequest, NotFound
from polyport.ports.tasks import TaskChange
from polyport.protocols.a2a.answers import answered, content_of
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.executor import Executor
from polyport.protocols.a2a.fold import read_change
from polyport.protocols.a2a.tasks import LiveTask, NewStatus
from polyport.protocols.a2a.turns import Past, Turn
from polyport.wire.a2a import Message, Role, SendMessageRequest

STOPPED = "the server stopped while it worked on this task"


async def recovered(
    executor: Executor, live: LiveTask, changes: Sequence[TaskChange], *, resume: bool
) -> list[Turn] | NewStatus:
    """The turns with which a task goes on, or the status with which it ends. `changes` are the task's."""
    call = CallContext(caller=live.scope.owner, tenant=live.scope.tenant)
    key = executor.key(live.scope, call, live.context_id)
    failed = executor.projector(live, key).failed
    first = _first_open(live.view.history)
    if not resume or first is None:
        return failed(STOPPED)
    try:
        session = await executor.runs.stores.sessions.get(key)
    except NotFound:
        if live.head.run_id:
            return failed(f"{STOPPED}, and its session is gone")
        session = Session(key=key)
    history = live.view.history
    asker = _asker(history, first)
    run_id = live.head.run_id or _run_of(executor, session, history[first], asker, live.head.status_ms)
    events, newest = _since_user(session, run_id)
    if live.head.run_id and newest is not None:
        first = _index_of(executor, history, newest, first)
    turns: list[Turn] = []
    for at in range(first, len(history)):
        if history[at].role is Role.USER:
            request = SendMessageRequest(message=history[at])
            late = bool(turns)
            turns.append(Turn(call, request, streaming=True, late=late, question=None if late else asker))
    if run_id:
        turns[0].past = Past(run_id, events, _seen(live.id, changes), _ended(executor, session, run_id))
    return turns


def _ended(executor: Executor, session: Session, run_id: str) -> bool:
    """Whether nothing of a run is left to do: neither of its last agent, nor of one that comes after it in a flow."""
    events = session.events
    return not (unfinished(events, run_id) or more_follows(executor.tree, events, run_id))


def _first_open(history: Sequence[Message]) -> int | None:
    """The index of the first message that has come since the agent asked last."""
    at = None
    for index in range(len(history) - 1, -1, -1):
        if history[index].role is not Role.USER:
            break
        at = index
    return at


def _asker(history: Sequence[Message], at: int) -> Message | None:
    """The question that the message at this index answers."""
    return history[at - 1] if at > 0 and history[at - 1].role is Role.AGENT else None


def _index_of(executor: Executor, history: Sequence[Message], newest: Event, otherwise: int) -> int:
    """The index of the message that a run was working on: messages after it were waiting."""
    for index in range(len(history) - 1, -1, -1):
        content = (
            _content(executor, history[index], _asker(history, index)) if history[index].role is Role.USER else None
        )
        if content is not None and newest.content is not None and content.parts == newest.content.parts:
            return index
    return otherwise


def _content(executor: Executor, message: Message, question: Message | None) -> Content | None:
    """What the agent was given of a message; None if it was not asked at all."""
    try:
        content = content_of(message, executor.config.from_a2a_part)
    except BadRequest:
        return None
    found = content if question is None else answered(content, question)
    return None if isinstance(found, list) else found


def _run_of(executor: Executor, session: Session, message: Message, question: Message | None, since_ms: int) -> str:
    """The run that began with this message when the process died before it could note it; "" if there is none."""
    content = _content(executor, message, question)
    for event in reversed(session.events) if content is not None else ():
        if event.author != "user" or event.timestamp is None or event.timestamp.timestamp() * 1000 < since_ms - 1000:
            continue
        if content is not None and event.content is not None and event.content.parts == content.parts:
            return event.invocation_id
    return ""


def _since_user(session: Session, run_id: str) -> tuple[list[Event], Event | None]:
    """The agent's events of a run since the user's last word in it, and that word."""
    events: list[Event] = []
    for event in reversed(session.events) if run_id else ():
        if event.invocation_id != run_id:
            continue
        if event.author == "user":
            return events[::-1], event
        if not event.unpublished:
            events.append(event)
    return events[::-1], None


def _seen(task_id: str, changes: Sequence[TaskChange]) -> Mapping[str, str]:
    """Event id -> the artifact that it is in."""
    found: dict[str, str] = {}
    for change in changes:
        update = read_change(task_id, change).artifact_update if change.event_id else None
        if update is not None:
            found[change.event_id] = update.artifact.artifact_id
    return found
