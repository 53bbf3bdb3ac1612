"""A task that somebody in this process works on or looks at: how it is written, and what its readers see.

Used by the executor and the handler. Every step is stored with a version check before anybody sees it; a step of token
streaming is only shown. The writer never waits for a reader.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import anyio
from msgspec import Struct, structs

from polyport.errors import Conflict, LimitExceeded, PolyportError
from polyport.ports.peers import Peers
from polyport.ports.tasks import MessageKey, TaskChange, TaskHead, TaskScope, TaskStore, TaskUpdate
from polyport.protocols.a2a.calls import Push
from polyport.protocols.a2a.fold import TaskView, Update, changes_of, ms_of, read_change, update_of
from polyport.protocols.a2a.turns import Turn
from polyport.runs.alone import Alone
from polyport.runs.feed import until_woken, wake
from polyport.runs.workers import Work
from polyport.seams import Seams
from polyport.wire.a2a import (
    INTERRUPTED,
    Message,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    new_status,
)

log = logging.getLogger("polyport.a2a")

TRIM = 64
"""How many frames are kept before it is looked which of them everybody has read."""


class Backing(NamedTuple):
    """What all tasks of a handler share. `feed_items` is how many frames a reader may be behind."""

    store: TaskStore
    seams: Seams
    push: Push | None = None
    feed_items: int = 10_000
    peers: Peers = Alone()

    @property
    def shared(self) -> bool:
        """Whether other replicas may work on the same tasks."""
        return bool(self.peers.name)

    @property
    def instant(self) -> bool:
        """Whether nothing waits while steps are written, so that it needs neither a lock nor a shield from cancellation."""
        return self.store.instant and self.push is None

    def now_ms(self) -> int:
        return int(self.seams.clock() * 1000)


class Reader(Protocol):
    """Somebody who follows a task; `after` is the offset of the last frame that was read."""

    after: int


class NewStatus(Struct, frozen=True, kw_only=True):
    """A status to be written; its time is that of the writing."""

    state: TaskState
    message: Message | None = None
    metadata: dict[str, object] | None = None


Step = NewStatus | Message | TaskArtifactUpdateEvent
"""What can be written to a task. A message goes into the history, and is not shown on streams."""


class StateChanged(PolyportError):
    """The task is not in a state any more in which this step makes sense. No Conflict: a run tries that again."""

    kind = "conflict"


Heard = Callable[["LiveTask", Sequence[Message], bool], None]
"""`(task, messages, claimed)`: what others added, and whether one of them has taken the task over."""


class LiveTask:
    """See the module. `view` and `head` are what is stored, plus what is being streamed. Kept by `registry.Tasks`."""

    def __init__(self, backing: Backing, head: TaskHead, view: TaskView) -> None:
        self._backing = backing
        self.head = head
        self.view = view
        self.lock = asyncio.Lock()
        """Held by who writes."""
        self.turns: deque[Turn] = deque()
        """Messages to be worked on, the first of them just now."""
        self.waiting: list[Turn] = []
        """Turns whose streams are open, or whose sender waits."""
        self.messages: set[MessageKey] = set()
        """The messages that came to this task while it was alive here."""
        self.working = False
        self.worker: Work | None = None
        self.heard: Heard | None = None
        """Told what other replicas write, while this one works."""
        self.watch: anyio.CancelScope | None = None
        """Of who follows what other replicas write, while somebody here looks at it."""
        self.offset = 0
        """How many frames there were."""
        self.broken: Exception | None = None
        self._feed: deque[Update] = deque(maxlen=backing.feed_items)
        self._waiting: set[asyncio.Future[None]] = set()
        self._readers: list[Reader] = []
        self._shown: set[str] = set()
        self._trim_at = TRIM

    @property
    def id(self) -> str:
        return self.head.id

    @property
    def scope(self) -> TaskScope:
        return self.head.scope

    @property
    def context_id(self) -> str:
        return self.head.context_id

    @property
    def state(self) -> TaskState:
        return self.view.state

    @property
    def shared(self) -> bool:
        """Whether other replicas may work on it, too."""
        return self._backing.shared

    @property
    def instant(self) -> bool:
        """Whether writing never waits."""
        return self._backing.instant

    # ---- writing

    async def write(
        self,
        *steps: Step,
        event_id: str = "",
        run_id: str | None = None,
        message: MessageKey | None = None,
        only_in: Collection[TaskState] | None = None,
        unless: Callable[[], bool] | None = None,
    ) -> bool:
        """Store steps, all or nothing, and then show them. False, with nothing done, when `unless()` is true at that moment.

        StateChanged when the task has ended, or is in no state of `only_in`. Once begun it is not stopped by a cancellation.
        What the caller does right after it, before it waits for anything, comes before anybody else writes.
        """
        if self._backing.instant:
            return await self._write(steps, event_id, run_id, message, only_in, unless)
        with anyio.CancelScope(shield=True):
            async with self.lock:
                return await self._write(steps, event_id, run_id, message, only_in, unless)
        raise AssertionError("unreachable")

    async def _write(
        self,
        steps: Sequence[Step],
        event_id: str,
        run_id: str | None,
        message: MessageKey | None,
        only_in: Collection[TaskState] | None,
        unless: Callable[[], bool] | None,
    ) -> bool:
        while True:
            self._check(only_in)
            if unless is not None and unless():
                return False
            updates, state, status_ms = self._updates(steps)
            changes = changes_of(updates, event_id)
            update = TaskUpdate(changes=changes, state=state, status_ms=status_ms, run_id=run_id, message=message)
            if await self._stored(update):
                break
            if message is not None:
                raise StateChanged(f"task {self.id!r} has changed; it may have this message now")
        if self._backing.shared:
            self._backing.peers.ring(topic(self.id))
        await self.tell(updates)
        self._take(updates)
        if message is not None:
            self.messages.add(message)
        return True

    def _check(self, only_in: Collection[TaskState] | None) -> None:
        if self.state.terminal or (only_in is not None and self.state not in only_in):
            raise StateChanged(f"task {self.id!r} is {self.state} now")

    def _updates(self, steps: Sequence[Step]) -> tuple[list[Update], str | None, int | None]:
        """The steps as frames, the last state and its time. The times of a task's statuses rise (T056)."""
        found: list[Update] = []
        state: str | None = None
        status_ms: int | None = None
        for version, step in enumerate(steps, self.head.version + 1):
            if isinstance(step, NewStatus):
                state = step.state.value
                status_ms = max(self._backing.now_ms(), (status_ms or self.head.status_ms) + 1)
                step = TaskStatusUpdateEvent(
                    task_id=self.id,
                    context_id=self.context_id,
                    status=new_status(step.state, status_ms, step.message),
                    metadata=step.metadata,
                )
            found.append(update_of(step, version))
        return found, state, status_ms

    async def _stored(self, update: TaskUpdate) -> bool:
        """Whether the store took it; when somebody else was faster, what they wrote is taken in instead."""
        try:
            self.head = await self._backing.store.append(self.scope, self.id, self.head.version, update)
        except Conflict:
            if not await self.refresh():
                raise
            return False
        return True

    async def refresh(self) -> bool:
        """Take in what other processes stored; whether there was something. The caller holds the lock."""
        found = await self._backing.store.changes(self.scope, self.id, self.head.version)
        if not found:
            return False
        updates = [
            Update(read_change(self.id, change), version, change.body)
            for version, change in found
            if change.kind != "claim"
        ]
        self._take(updates)
        state = self.view.status
        self.head = structs.replace(
            self.head, version=found[-1][0], state=state.state.value, status_ms=ms_of(state.timestamp)
        )
        if self.heard is not None:
            said = [u.frame.message for u in updates if u.frame.message is not None]
            self.heard(self, said, len(updates) < len(found))
        self._settle_elsewhere()
        return True

    async def claim(self, version: int) -> bool:
        """Take over a task of which this version is known, whoever works on it: that one's next write tells it so. False when
        somebody was faster."""
        name = self._backing.peers.name
        async with self.lock:
            if self.head.version != version:
                return False
            change = TaskChange(kind="claim", body=b"{}", event_id=name)
            try:
                self.head = await self._backing.store.append(self.scope, self.id, version, TaskUpdate(changes=[change]))
            except Conflict:
                return False
        return True

    def lose(self) -> None:
        """Another replica goes on with the task."""
        self.turns, self.working, self.worker, self.heard = deque(), False, None, None

    async def tell(self, updates: Sequence[Update]) -> None:
        """Have push notifications noted. A task does not depend on whether that works."""
        push = self._backing.push
        if push is None or not (shown := [u for u in updates if u.frame.message is None]):
            return
        try:
            await push.changed(self.scope, self.id, shown)
        except Exception:
            log.exception("task %s: its push notifications could not be noted", self.id)

    # ---- showing

    def _take(self, updates: Sequence[Update]) -> None:
        """Stored steps become true: for the view, the streams, and those who wait."""
        for update in updates:
            self.view.apply(update.frame)
            if self._shown and update.frame.artifact_update is not None:
                self._shown.discard(update.frame.artifact_update.artifact.artifact_id)
            if update.frame.message is None:
                self._publish(update)
            if update.frame.status_update is not None:
                self._settle(self.state)

    def _settle(self, state: TaskState) -> None:
        """Who waits may go when the task has ended, or asks; an asking one keeps the streams of turns that come later, and one
        that wants credentials keeps all (spec a2a 1.8)."""
        if not state.terminal and state not in INTERRUPTED:
            return
        self.forget_shown()
        open_still = state is TaskState.AUTH_REQUIRED
        for turn in self.waiting:
            if state.terminal or turn.begun:
                turn.settle(None if open_still else self.offset)
        self.waiting = [t for t in self.waiting if t.ended_at is None]
        self.ring()

    def _settle_elsewhere(self) -> None:
        """The same for turns that another replica carries out. It does not let the task rest before the last of them."""
        if self.waiting and self.state in INTERRUPTED:
            for turn in self.waiting:
                turn.begun = turn.begun or turn not in self.turns
            self._settle(self.state)

    def show(self, payload: TaskArtifactUpdateEvent) -> None:
        """A step of token streaming: seen by all, stored nowhere."""
        if not self.state.terminal:
            update = update_of(payload)
            self.view.apply(update.frame)
            self._shown.add(payload.artifact.artifact_id)
            self._publish(update)

    def forget_shown(self) -> None:
        """Drop what was only streamed: the view is what is stored again (T100)."""
        for artifact_id in self._shown:
            self.view.drop_artifact(artifact_id)
        self._shown.clear()

    def _publish(self, update: Update) -> None:
        self.offset += 1
        if not self._readers:
            return
        self._feed.append(update)
        if len(self._feed) >= self._trim_at:
            self._trim()
        self.ring()

    def _trim(self) -> None:
        """Let go of frames that everybody has read."""
        behind = max(self.offset - reader.after for reader in self._readers)
        while len(self._feed) > behind:
            self._feed.popleft()
        self._trim_at = max(TRIM, 2 * len(self._feed))

    def ring(self) -> None:
        """Wake all who wait in `changed`."""
        if self._waiting:
            wake(self._waiting)

    def fail(self, error: Exception) -> None:
        """Nothing can be stored any more: tell everybody."""
        self.broken = error
        for turn in self.waiting:
            turn.settle(None)
        self.ring()

    # ---- reading

    def enter(self, reader: Reader) -> None:
        """From now on frames are kept for this reader, until `leave`."""
        self._readers.append(reader)

    def leave(self, reader: Reader) -> None:
        self._readers.remove(reader)
        if not self._readers:
            self._feed.clear()

    def read(self, after: int) -> Sequence[Update]:
        """The frames after this offset that are there now. LimitExceeded when some are gone."""
        count = self.offset - after
        if count > len(self._feed):
            raise LimitExceeded(
                f"the stream of task {self.id!r} was read too slowly, and {count - len(self._feed)} frames are gone; "
                "subscribe to it again"
            )
        if not count:
            return ()
        newest = list(islice(reversed(self._feed), count))
        newest.reverse()
        return newest

    async def changed(self) -> None:
        """Wait until something happens. Safe to cancel."""
        await until_woken(self._waiting)


def topic(task_id: str) -> str:
    """What replicas ring when they have written to a task."""
    return f"task.{task_id}"
