"""From what a remote agent sends to events of the local session (spec a2a 3.3, 3.4, 4; core 8.4).

Used by `RemoteAgent` for one call. Chunks are told as partial events and become one whole event (T101, FR-173); a question
becomes a long-running call, so that the local run waits for the user; a failed task becomes an event with an error. Pure, but
for the object being changed in place.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from polyport.agents.a2a_task import joined
from polyport.agents.remote_message import INPUT_ID
from polyport.agents.remote_told import TOLD, Told
from polyport.data.content import Content, FunctionCall, Part
from polyport.errors import (
    BadRequest,
    Forbidden,
    LimitExceeded,
    NotFound,
    PolyportError,
    TimedOut,
    Unauthenticated,
    Unavailable,
)
from polyport.wire import a2a, a2a_errors
from polyport.wire.a2a_translate import (
    CONTEXT_ID,
    IS_ERROR,
    PREFIX,
    TASK_ID,
    call_ids,
    from_a2a_part,
    is_marked,
    restored,
)

log = logging.getLogger("polyport.a2a")

ERROR = "a2a:error"
METADATA = "a2a:metadata"
"""Keys of custom metadata: why a call failed, and what a remote agent says in metadata that are not ADK's."""
REQUEST_INPUT = "adk_request_input"
_FAILED = {
    a2a.TaskState.FAILED: ("REMOTE_TASK_FAILED", "the remote task failed"),
    a2a.TaskState.REJECTED: ("REMOTE_TASK_REJECTED", "the remote agent rejected the task"),
    a2a.TaskState.CANCELED: ("REMOTE_TASK_CANCELED", "the remote task was canceled"),
}

_NOT_TAKEN = (Unavailable, TimedOut, Unauthenticated, Forbidden, LimitExceeded, NotFound)
"""Errors after which a message may be sent again as it is."""

Fields = dict[str, Any]
"""Members of one event."""


class _Chunks:
    """An artifact that is not whole yet."""

    def __init__(self) -> None:
        self.parts: list[a2a.Part] = []
        self.metadata: dict[str, Any] = {}


class Reply:
    """`told` is what the session has of the task already. `escalate` lets the remote agent end the loop around the local
    one."""

    def __init__(self, new_id: Callable[[], str], told: Told, *, escalate: bool = False) -> None:
        self._new_id = new_id
        self._escalate = escalate
        self._told = told
        self._chunks: dict[str, _Chunks] = {}
        self._last_text = ""
        self._spoke = False
        self._heard = False
        self._state = a2a.TaskState.UNSPECIFIED
        self._status: a2a.TaskStatus | None = None
        self.task_id = ""
        self.context_id = ""
        self.over = False
        """Whether the remote agent is done, or waits for an answer: there is nothing to cancel."""
        self.paused = False
        """Whether the local run is to wait for an answer."""

    def take(self, payload: a2a.Payload) -> list[Fields]:
        """The events that a payload leads to, partial ones too."""
        self._heard = True
        self._note_ids(payload)
        if isinstance(payload, a2a.Message):
            self.over = True
            return [self._whole(payload.parts, payload.metadata, turn_complete=True)]
        if isinstance(payload, a2a.Task):
            return [*self._snapshot(payload), *self._status_of(payload.status, payload.metadata)]
        if isinstance(payload, a2a.TaskStatusUpdateEvent):
            return self._status_of(payload.status, payload.metadata)
        return self._artifact(payload)

    def _note_ids(self, payload: a2a.Payload) -> None:
        task_id = payload.id if isinstance(payload, a2a.Task) else payload.task_id
        self.task_id = task_id or self.task_id
        self.context_id = payload.context_id or self.context_id

    def end(self) -> list[Fields]:
        """What is left when the stream has ended: a task that waits for credentials asks for them now."""
        if self.over or self._status is None or self._state is not a2a.TaskState.AUTH_REQUIRED:
            return []
        self.over = True
        return [self._question(self._status, None, shown=True)]

    def failed(self, error: PolyportError) -> Fields:
        """The event for a call that failed, with what had come before: no text is lost (T103)."""
        parts, metadata = self._flush()
        fields = self._event(parts, metadata)
        if not self._heard and isinstance(error, _NOT_TAKEN):
            fields["custom_metadata"] = {}  # it did not arrive; without these keys it is sent again next time
        message = a2a_errors.text(error)
        fields["custom_metadata"] = {**fields["custom_metadata"], ERROR: message}
        code = "NOT_FOUND" if type(error) is NotFound else a2a_errors.row(error).reason  # of the card, not of a task
        return fields | {"error_code": code, "error_message": message, "turn_complete": True}

    # ---- artifacts

    def _snapshot(self, task: a2a.Task) -> list[Fields]:
        """The artifacts of a task as they are now; previews are left out. They are held until the task is over."""
        shown: list[a2a.Part] = []
        for artifact in task.artifacts or ():
            if (artifact.metadata or {}).get(PREFIX + "partial"):
                continue
            rest = self._told.rest(artifact)
            self._told.note(artifact.artifact_id, artifact.parts, append=False)
            if rest:
                self._hold(structs.replace(artifact, parts=rest), None, append=False)
                shown += rest
        ends = task.status.state.terminal or task.status.state.interrupted
        return [self._partial(shown)] if shown and not ends else []

    def _artifact(self, update: a2a.TaskArtifactUpdateEvent) -> list[Fields]:
        artifact = update.artifact
        said = {**(artifact.metadata or {}), **(update.metadata or {})}
        flag = said.get(PREFIX + "partial")
        if flag is True:
            return [] if update.last_chunk or not artifact.parts else [self._partial(artifact.parts)]
        id = artifact.artifact_id
        self._told.note(id, artifact.parts, append=update.append)
        if flag is False or (update.last_chunk and not update.append):
            self._chunks.pop(id, None)
            return [self._whole(artifact.parts, said, told=[id])] if artifact.parts else []
        self._hold(artifact, update.metadata, append=update.append)
        events = [self._partial(artifact.parts)] if artifact.parts else []
        if update.last_chunk:
            events.append(self._whole(*self._flush([id]), told=[id]))
        return events

    def _hold(self, artifact: a2a.Artifact, metadata: dict[str, Any] | None, *, append: bool) -> None:
        if not append:
            self._chunks.pop(artifact.artifact_id, None)
        chunks = self._chunks.setdefault(artifact.artifact_id, _Chunks())
        chunks.parts += artifact.parts
        chunks.metadata |= {**(artifact.metadata or {}), **(metadata or {})}

    def _flush(self, ids: Sequence[str] | None = None) -> tuple[list[a2a.Part], dict[str, Any]]:
        """Take out what is held, of all artifacts or of some: parts and metadata."""
        parts: list[a2a.Part] = []
        metadata: dict[str, Any] = {}
        for id in list(self._chunks) if ids is None else ids:
            chunks = self._chunks.pop(id)
            parts += joined(chunks.parts)
            metadata |= chunks.metadata
        return parts, metadata

    # ---- status

    def _status_of(self, status: a2a.TaskStatus, metadata: dict[str, Any] | None) -> list[Fields]:
        self._state, self._status = status.state, status
        if status.state.terminal:
            self.over = True
            return self._final(status, metadata)
        if status.state is a2a.TaskState.INPUT_REQUIRED:
            self.over = True
            return [self._question(status, metadata)]
        said = [part for part in _message_parts(status) if part.text]
        if said and status.state is a2a.TaskState.AUTH_REQUIRED:
            return [self._whole(said, metadata)]
        return [self._partial([_thought(part) for part in said])] if said else []

    def _final(self, status: a2a.TaskStatus, metadata: dict[str, Any] | None) -> list[Fields]:
        """What is held, with the last message; none when there is nothing to tell."""
        parts, held = self._flush()
        said = _message_parts(status)
        if status.state in _FAILED:
            return [self._failure(status, parts, said, {**held, **(metadata or {})})]
        text = "".join(part.text or "" for part in said)
        if said and not (text and text == (_text(parts) or self._last_text)):
            parts = [*parts, *said]
        silent = not self._spoke
        fields = self._whole(parts, {**held, **_metadata_of(status), **(metadata or {})}, turn_complete=True)
        tells = parts or fields.get("actions") is not None or METADATA in fields["custom_metadata"]
        return [fields] if tells or silent else []

    def _failure(
        self, status: a2a.TaskStatus, parts: list[a2a.Part], said: list[a2a.Part], metadata: dict[str, Any]
    ) -> Fields:
        code, default = _FAILED[status.state]
        marked = next((p for p in said if is_marked(p, IS_ERROR)), None)
        reason = marked or next((p for p in said if p.text), None)
        fields = self._event([*parts, *(p for p in said if p is not reason)], metadata)
        message = (reason.text if reason is not None else "") or default
        fields["custom_metadata"] = {**fields["custom_metadata"], ERROR: message}
        return {"error_code": code} | fields | {"error_message": message, "turn_complete": True}

    def _question(self, status: a2a.TaskStatus, metadata: dict[str, Any] | None, *, shown: bool = False) -> Fields:
        """An event that makes the local run wait: with the remote agent's long-running calls, or with a call that puts its
        plain question to the user. `shown`: the text of the question was told before."""
        self.paused = True
        told = list(self._chunks)
        held, more = self._flush()
        said = _message_parts(status)
        ids = call_ids(said, long_running=True)
        fields = self._event([*held, *(() if shown else said)], {**more, **(metadata or {})}, told)
        if not ids:
            id = "adk-" + self._new_id()
            text = "".join(part.text or "" for part in said) or "The agent needs your input."
            call = FunctionCall(id=id, name=REQUEST_INPUT, args={"interruptId": id, "message": text})
            content = fields["content"] or Content(role="model")
            fields["content"] = structs.replace(content, parts=[*content.parts, Part(function_call=call)])
            fields["custom_metadata"] = {**fields["custom_metadata"], INPUT_ID: id}
            ids = [id]
        return fields | {"long_running_tool_ids": ids, "turn_complete": True}

    # ---- events

    def _partial(self, parts: Sequence[a2a.Part]) -> Fields:
        return {"content": _content(parts), "partial": True, "custom_metadata": self._ids()}

    def _whole(
        self, parts: Sequence[a2a.Part], metadata: dict[str, Any] | None, *, told: Sequence[str] = (), **more: Any
    ) -> Fields:
        self._last_text = _text(parts) or self._last_text
        return self._event(joined(parts), metadata, told) | more

    def _event(self, parts: Sequence[a2a.Part], metadata: dict[str, Any] | None, told: Sequence[str] = ()) -> Fields:
        """A whole event; `told` are the artifacts that it tells of, for a task that may go on."""
        self._spoke = True
        fields = restored(metadata, escalate=self._escalate)
        own = {k: v for k, v in fields.get("custom_metadata", {}).items() if not k.startswith(("a2a:", "polyport:"))}
        foreign = {k: v for k, v in (metadata or {}).items() if not k.startswith(PREFIX) and not k.startswith("http")}
        places = self._told.plain(told)
        more = ({METADATA: foreign} if foreign else {}) | ({TOLD: places} if places else {})
        fields["custom_metadata"] = own | more | self._ids()
        fields["content"] = _content(parts)
        return fields

    def _ids(self) -> dict[str, str]:
        """Where this belongs; the keys are there in every event that came from the remote agent."""
        return {CONTEXT_ID: self.context_id} | ({TASK_ID: self.task_id} if self.task_id else {})


def _message_parts(status: a2a.TaskStatus) -> list[a2a.Part]:
    return status.message.parts if status.message is not None else []


def _metadata_of(status: a2a.TaskStatus) -> dict[str, Any]:
    return (status.message.metadata or {}) if status.message is not None else {}


def _text(parts: Sequence[a2a.Part]) -> str:
    return "".join(part.text or "" for part in parts)


def _thought(part: a2a.Part) -> a2a.Part:
    return structs.replace(part, metadata={**(part.metadata or {}), PREFIX + "thought": True})


def _content(parts: Sequence[a2a.Part]) -> Content | None:
    """The model's content; None without parts. A part of a kind that is not known is left out."""
    found: list[Part] = []
    for part in parts:
        try:
            found.append(from_a2a_part(part))
        except BadRequest as error:
            log.warning("a part of a remote agent's answer is left out: %s", error)
    return Content(role="model", parts=found) if found else None
