"""What a client knows of one remote task: frames in, news out.

Used by `a2a_client` to make one gapless sequence of several streams, snapshots and looks at a task. A snapshot that comes after
the first frame is told as the updates that were missing, so nothing is told twice (FR-178). Pure, but for the object being
changed in place.
"""

from collections.abc import Sequence

from msgspec import structs

from polyport.wire.a2a import (
    Artifact,
    Message,
    Part,
    Payload,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from polyport.wire.a2a_errors import InvalidAgentResponse

_NO_STATUS = TaskStatus(state=TaskState.UNSPECIFIED)


class RemoteTask:
    """`id` is "" until the first frame of a task; `message` is set when the answer is a message instead."""

    def __init__(self, id: str = "") -> None:
        self.id = id
        self.context_id = ""
        self.status = _NO_STATUS
        self.message: Message | None = None
        self._parts: dict[str, list[Part]] = {}
        self.news = 0
        """How many payloads were told."""
        self._begun = False

    @property
    def begun(self) -> bool:
        """Whether a frame of the task has come."""
        return self._begun

    @property
    def ended(self) -> bool:
        """Whether nothing can come any more."""
        return self.status.state.terminal

    @property
    def waits(self) -> bool:
        """Whether the task asks its caller for something."""
        return self.status.state.interrupted

    def take(self, payload: Payload) -> list[Payload]:
        """What is new in a frame. InvalidAgentResponse for a frame that cannot belong here (FR-163)."""
        return self._told(self._take(payload))

    def _told(self, news: list[Payload]) -> list[Payload]:
        self.news += len(news)
        return news

    def _take(self, payload: Payload) -> list[Payload]:
        if isinstance(payload, Message):
            if self._begun or self.message is not None:
                raise InvalidAgentResponse(
                    "the remote agent sent a message in the middle of a task, or a second message"
                )
            self.message = payload
            self.context_id = payload.context_id
            return [payload]
        if self.message is not None:
            raise InvalidAgentResponse("the remote agent went on after its message")
        self._check(payload.id if isinstance(payload, Task) else payload.task_id, payload.context_id)
        if isinstance(payload, Task):
            return self._missing(payload)
        self._begun = True
        if isinstance(payload, TaskStatusUpdateEvent):
            if payload.status == self.status and payload.metadata is None:
                return []
            self.status = payload.status
        else:
            self._add(payload)
        return [payload]

    def _check(self, task_id: str, context_id: str) -> None:
        if self.id and task_id and task_id != self.id:
            raise InvalidAgentResponse(
                f"the remote agent sent a frame of task {task_id!r:.80} for task {self.id!r:.80}"
            )
        self.id = self.id or task_id
        self.context_id = self.context_id or context_id

    def _first(self, task: Task) -> list[Payload]:
        self._begun = True
        self.status = task.status
        for artifact in task.artifacts or ():
            self._replace(artifact)
        return [task]

    def _replace(self, artifact: Artifact) -> None:
        self._parts[artifact.artifact_id] = list(artifact.parts)

    def _add(self, update: TaskArtifactUpdateEvent) -> None:
        artifact = update.artifact
        known = self._parts.get(artifact.artifact_id)
        if update.append and known is not None:
            known += artifact.parts
        else:
            self._replace(artifact)

    def catch_up(self, task: Task) -> list[Payload]:
        """The updates that lead from what is known to a snapshot: new artifacts, the missing ends of known ones (the whole
        of one that became another), the status. An older snapshot of a task that has ended says nothing."""
        self._check(task.id, task.context_id)
        return self._told(self._missing(task))

    def _missing(self, task: Task) -> list[Payload]:
        if not self._begun:
            return self._first(task)
        if self.ended:
            return []
        news: list[Payload] = []
        for artifact in task.artifacts or ():
            known = self._parts.get(artifact.artifact_id)
            rest = artifact.parts if known is None else _rest_of(joined(known), joined(artifact.parts))
            if known is not None and rest == []:
                continue
            append = known is not None and rest is not None
            news.append(
                TaskArtifactUpdateEvent(
                    task_id=self.id,
                    context_id=self.context_id,
                    artifact=artifact if rest is None else structs.replace(artifact, parts=rest),
                    append=append,
                )
            )
            self._replace(artifact)
        if task.status != self.status:
            self.status = task.status
            update = TaskStatusUpdateEvent(
                task_id=self.id, context_id=self.context_id, status=task.status, metadata=task.metadata
            )
            news.append(update)
        return news


def joined(parts: Sequence[Part]) -> list[Part]:
    """`parts` with neighbouring texts of the same kind made one: servers differ in how they keep chunks."""
    out: list[Part] = []
    texts: list[str] = []
    for part in parts:
        if out and part.text is not None and out[-1].text is not None and same_kind(out[-1], part):
            texts.append(part.text)
            continue
        _close(out, texts)
        out.append(part)
    _close(out, texts)
    return out


def _close(out: list[Part], texts: list[str]) -> None:
    if texts:
        out[-1] = structs.replace(out[-1], text=(out[-1].text or "") + "".join(texts))
        texts.clear()


def same_kind(a: Part, b: Part) -> bool:
    """Whether two texts may become one."""
    return (a.metadata or None) == (b.metadata or None) and (a.filename, a.media_type) == (b.filename, b.media_type)


def _rest_of(known: list[Part], now: list[Part]) -> list[Part] | None:
    """What `now` has after `known`; None when it does not begin with it."""
    if not known:
        return now
    *before, last = known
    if len(now) < len(known) or now[: len(before)] != before:
        return None
    other = now[len(before)]
    rest = now[len(known) :]
    if other == last:
        return rest
    if last.text is not None and other.text is not None and same_kind(last, other) and other.text.startswith(last.text):
        return [structs.replace(other, text=other.text[len(last.text) :]), *rest]
    return None
