"""What becomes of a task that was being worked on when its process died (T109): it goes on, or it fails.

At start, and with other replicas whenever one of them is gone, and now and then. Reads the session, which knows more than the
task: an event is stored there first. With other replicas a task is claimed first, in its own log: so one of them takes it up,
and one that was only thought dead finds that out when it writes.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import takewhile

import anyio

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.session import Session
from polyport.engine.flow import more_follows
from polyport.engine.resume import unfinished
from polyport.errors import BadRequest, NotFound, PolyportError
from polyport.ports.tasks import TaskChange, TaskHead
from polyport.protocols.a2a.answers import answered, content_of
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.executor import Executor
from polyport.protocols.a2a.fold import read_change
from polyport.protocols.a2a.intake import AT_WORK, Intake
from polyport.protocols.a2a.tasks import LiveTask, NewStatus
from polyport.protocols.a2a.turns import Past, Turn, since_user
from polyport.wire.a2a import Message, Role, SendMessageRequest

log = logging.getLogger("polyport.a2a")

STOPPED = "the server stopped while it worked on this task"
LOOK_S = 20.0
"""How often tasks are looked for that no replica works on: the store failed then, or who took them up died, too."""
AGAIN_S = 2.0
"""How soon it is looked again after it could not be seen."""
SOON_S = 0.5
ASKED = 5000
"""For how many tasks the others are asked at a time."""
ROUNDS = 3
"""How often it is looked again at once when tasks have changed meanwhile."""
CLAIMS = 100
"""How often one task is taken up without getting any further."""


class Recovery:
    """See the module. One for each handler."""

    def __init__(self, intake: Intake, executor: Executor, *, resume: bool) -> None:
        self._intake = intake
        self._tasks = intake.tasks
        self._peers = intake.tasks.backing.peers
        self._executor = executor
        self._resume = resume
        self._open = False
        self._one = asyncio.Lock()
        self._left = anyio.Event()
        self._kind = f"a2a:{executor.app}"
        executor.on_left = self._soon
        self._peers.holds(self._kind, self._tasks.busy)

    def on_loss(self) -> None:
        """From now on take up, inside `running`, what another replica leaves behind."""
        self._peers.on_loss(self._kind, self._again)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Take up what there is, and inside the block what other replicas leave behind."""
        await self.recover()
        if not self._tasks.backing.shared:
            yield
            return
        looking = anyio.CancelScope()
        self._intake.group().start_soon(self._look, looking)
        self._open = True
        try:
            yield
        finally:
            self._open = False
            looking.cancel()

    async def _look(self, scope: anyio.CancelScope) -> None:
        with scope:
            seen = True
            while True:
                with anyio.move_on_after(LOOK_S if seen else AGAIN_S):
                    await self._left.wait()
                    await anyio.sleep(SOON_S)
                self._left = anyio.Event()
                seen = await self._seen()

    def _soon(self) -> None:
        """Look again in a moment: a task was left that another process, or this one, goes on with."""
        self._left.set()

    async def _again(self) -> None:
        if self._open and not await self._seen():
            self._soon()

    async def _seen(self) -> bool:
        """Whether it could be seen what is left behind. There will be another time."""
        try:
            await self.recover()
        except PolyportError as error:
            log.warning("it cannot be seen which tasks nobody works on: %s", error)
            return False
        except Exception:
            log.exception("the tasks that nobody works on cannot be taken up")
            return False
        return True

    async def recover(self) -> int:
        """See A2aHandler.recover."""
        self._intake.group()
        found = 0
        async with self._one:
            for _ in range(ROUNDS):
                changed = False
                for head in await self._left_behind():
                    taken = await self._tried(head)
                    found += taken is True
                    changed = changed or taken is None
                if not changed:
                    break
        return found

    async def _left_behind(self) -> Sequence[TaskHead]:
        """The tasks that ought to be worked on, and that no other process works on. It is asked after their versions are
        known: who begins with one later changes that."""
        states = [state.value for state in AT_WORK]
        heads = await self._tasks.backing.store.in_state(self._executor.app, states)
        ours = set(self._tasks.busy([head.id for head in heads]))
        heads = [head for head in heads if head.id not in ours]
        held: set[str] = set()
        for at in range(0, len(heads), ASKED):
            held |= await self._peers.held(self._kind, [head.id for head in heads[at : at + ASKED]])
        return [head for head in heads if head.id not in held]

    async def _tried(self, head: TaskHead) -> bool | None:
        """Whether a task was taken up; None when it has changed, so that it is to be looked at again."""
        try:
            live = await self._tasks.get(head.scope, head.id)
        except PolyportError as error:
            log.warning("task %s cannot be taken up again: %s", head.id, error)
            return False
        try:
            if live.broken is not None:
                self._soon()  # once those have gone who are told so
            if live.working or live.broken is not None or live.state not in AT_WORK:
                return False
            with self._tasks.claiming(live):
                if live.shared and not await live.claim(head.version):
                    return None
                log.info("task %s is taken up", live.id)
                await self._take_up(live)
                return True
        except PolyportError as error:
            log.warning("task %s cannot be taken up again: %s", head.id, error)
            return False
        finally:
            self._tasks.release(live)

    async def _take_up(self, live: LiveTask) -> None:
        changes = (await self._tasks.backing.store.get(live.scope, live.id)).changes
        claims = [change.event_id for change in takewhile(lambda change: change.kind == "claim", reversed(changes))]
        lost = set(claims)
        if len(lost) > self._executor.max_takeovers or len(claims) > CLAIMS:
            key = self._executor.key(live.scope, CallContext(caller=live.scope.owner), live.context_id)
            why = f"the task was given up: it was taken up {len(claims)} times, by {len(lost)} processes, and got no further"
            await live.write(self._executor.projector(live, key).failed(why))
            return
        after = await recovered(self._executor, live, changes, resume=self._resume)
        if isinstance(after, NewStatus):
            await live.write(after)
        elif not live.working:  # nothing was waited for since: all messages that there are, are in these turns
            self._intake.take_up(live, after)


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
    events, newest = since_user(session, run_id)
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


def _seen(task_id: str, changes: Sequence[TaskChange]) -> Mapping[str, str]:
    """Event id -> the artifact that it is in."""
    found: dict[str, str] = {}
    for change in changes:
        update = read_change(task_id, change).artifact_update if change.event_id else None
        if update is not None:
            found[change.event_id] = update.artifact.artifact_id
    return found
