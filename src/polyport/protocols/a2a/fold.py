"""Frames and what they add up to: an Update is one step of a task, a TaskView is the task after all its steps.

Used by the handler and its tasks. A task is only ever what its stored changes say, folded here; frames of token streaming
change the view in memory and are never stored. Pure, but for the view being changed in place.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from msgspec import structs

from polyport.codec import decode, encode
from polyport.errors import BadRequest, Unavailable
from polyport.ports.tasks import ChangeKind, StoredTask, TaskChange
from polyport.wire.a2a import (
    Artifact,
    Part,
    Payload,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    frame,
    read_time,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Update:
    """One frame of a task's stream. `version` is that of the stored task after it, 0 for a frame that is not stored."""

    __slots__ = ("_json", "frame", "version")

    def __init__(self, frame: StreamResponse, version: int = 0, json: bytes | None = None) -> None:
        self.frame = frame
        self.version = version
        self._json = json

    @property
    def json(self) -> bytes:
        """The frame in JSON, made once for the store and all streams."""
        if self._json is None:
            self._json = encode(self.frame)
        return self._json

    @property
    def status(self) -> TaskStatus | None:
        """The status that this frame tells."""
        if self.frame.status_update is not None:
            return self.frame.status_update.status
        return self.frame.task.status if self.frame.task is not None else None


def update_of(payload: Payload, version: int = 0) -> Update:
    return Update(frame(payload), version)


def kind_of(frame: StreamResponse) -> ChangeKind:
    """What kind of change a frame is in the store."""
    if frame.status_update is not None:
        return "status"
    if frame.artifact_update is not None:
        return "artifact"
    return "message" if frame.message is not None else "task"


class _Kept:
    """An artifact that may still grow."""

    __slots__ = ("head", "parts")

    def __init__(self, artifact: Artifact) -> None:
        self.head = artifact
        self.parts: list[Part] = list(artifact.parts)

    def extend(self, artifact: Artifact) -> None:
        self.parts.extend(artifact.parts)
        if artifact.metadata:
            self.head = structs.replace(self.head, metadata={**(self.head.metadata or {}), **artifact.metadata})

    @property
    def artifact(self) -> Artifact:
        return structs.replace(self.head, parts=list(self.parts))


class TaskView:
    """A task as of now. `apply` takes its steps in order."""

    __slots__ = ("_artifacts", "_task", "history", "status")

    def __init__(self, task: Task) -> None:
        self._task = task
        self.status = task.status
        self.history = list(task.history)
        self._artifacts = {a.artifact_id: _Kept(a) for a in task.artifacts or ()}

    @property
    def id(self) -> str:
        return self._task.id

    @property
    def context_id(self) -> str:
        return self._task.context_id

    @property
    def state(self) -> TaskState:
        return self.status.state

    @property
    def metadata(self) -> dict[str, object]:
        return self._task.metadata or {}

    def apply(self, step: StreamResponse) -> None:
        """Take one step: a message for the history, a status, a piece of an artifact, or the whole task."""
        if step.artifact_update is not None:
            self._take_artifact(step.artifact_update)
        elif step.status_update is not None:
            self._take_status(step.status_update)
        elif step.message is not None:
            self._leave_status()
            self.history.append(step.message)
        elif step.task is not None:
            self.__init__(step.task)

    def _take_artifact(self, update: TaskArtifactUpdateEvent) -> None:
        """Create, replace or extend. What is to extend an artifact that is not there creates it (T041, FR-162)."""
        artifact = update.artifact
        known = self._artifacts.get(artifact.artifact_id)
        if update.append and known is not None:
            known.extend(artifact)
        else:
            self._artifacts[artifact.artifact_id] = _Kept(artifact)

    def _take_status(self, update: TaskStatusUpdateEvent) -> None:
        self._leave_status()
        self.status = update.status
        if update.metadata:
            self._task = structs.replace(self._task, metadata={**(self._task.metadata or {}), **update.metadata})

    def _leave_status(self) -> None:
        """The message of a status that is over belongs to the history (spec a2a 1.7)."""
        if self.status.message is not None:
            self.history.append(self.status.message)
            self.status = structs.replace(self.status, message=None)

    def drop_artifact(self, artifact_id: str) -> None:
        """Forget an artifact that was only streamed."""
        self._artifacts.pop(artifact_id, None)

    def snapshot(self, history_length: int | None = None, *, artifacts: bool | None = None) -> Task:
        """The task as a value of its own. `history_length` as in spec a2a 1.7; `artifacts` None shows them if there are any,
        True also when there are none, False never."""
        history = self.history
        if history_length is not None:
            history = history[-history_length:] if history_length else []
        shown: list[Artifact] | None = None
        if artifacts is not False and (self._artifacts or artifacts):
            shown = [kept.artifact for kept in self._artifacts.values()]
        return structs.replace(self._task, status=self.status, history=list(history), artifacts=shown)


def read_change(task_id: str, change: TaskChange) -> StreamResponse:
    try:
        return decode(change.body, StreamResponse, unknown="drop")  # a newer Polyport may have written more
    except BadRequest as error:
        raise Unavailable(f"task {task_id!r} is damaged in the store: {error}") from None


def view_of(stored: StoredTask) -> TaskView:
    """The task that a store holds. Unavailable when its changes cannot be read."""
    steps = iter(stored.changes)
    first = next(steps, None)
    task = read_change(stored.head.id, first).task if first is not None else None
    if task is None:
        raise Unavailable(f"task {stored.head.id!r} is damaged in the store: it has no beginning")
    view = TaskView(task)
    for change in steps:
        view.apply(read_change(stored.head.id, change))
    return view


def changes_of(updates: Iterable[Update], event_id: str = "") -> list[TaskChange]:
    return [TaskChange(kind=kind_of(u.frame), body=u.json, event_id=event_id) for u in updates]


def ms_of(timestamp: str, *, up: bool = False) -> int:
    """RFC 3339 text in epoch milliseconds, cut or (`up`) rounded up; 0 for none."""
    if not timestamp:
        return 0
    micros = (read_time(timestamp, "timestamp") - _EPOCH) // timedelta(microseconds=1)
    return -(-micros // 1000) if up else micros // 1000
