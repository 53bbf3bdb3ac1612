"""The REST vocabulary of ADK: JSON shapes of events, sessions and run requests (spec rest 1.4, TARGET lines).

Used by the REST and live protocols. camelCase out; camelCase and snake_case in. Differs from the stored form: some members
are always there, times are float seconds. Pure.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field, structs

from polyport.codec import Data, encode
from polyport.data.content import Blob, Content, Part
from polyport.data.event import Compaction, Event, EventActions, NodeInfo, RequestInput, ToolConfirmation
from polyport.data.model import Transcription, Usage
from polyport.data.session import Session
from polyport.errors import BadRequest


class RunBody(Data, frozen=True, kw_only=True):
    """The body of `/run` and `/run_sse`. `function_call_event_id` is accepted and has no effect (spec rest 37)."""

    app_name: str = ""
    user_id: str = ""
    session_id: str = ""
    new_message: Content | None = None
    streaming: bool = False
    state_delta: dict[str, Any] | None = None
    function_call_event_id: str = ""
    invocation_id: str = ""
    custom_metadata: dict[str, Any] | None = None
    save_input_blobs_as_artifacts: bool = False


class SessionBody(Data, frozen=True, kw_only=True):
    """The body of a create-session request."""

    session_id: str | None = None
    state: dict[str, Any] | None = None
    events: list[Event] | None = None


class PatchBody(Data, frozen=True, kw_only=True):
    state_delta: dict[str, Any] | None = None


class ArtifactBody(Data, frozen=True, kw_only=True):
    """The body of a save-artifact request."""

    filename: str = ""
    artifact: Part | None = None
    custom_metadata: dict[str, Any] | None = None


class ActionsShape(Struct, rename="camel", omit_defaults=True, gc=False):
    """The actions of an event as REST shows them: both deltas are always there."""

    state_delta: dict[str, Any] | None = field(default_factory=lambda: None)
    artifact_delta: dict[str, int] | None = field(default_factory=lambda: None)
    escalate: bool = False
    skip_summarization: bool = False
    transfer_to_agent: str = ""
    requested_tool_confirmations: dict[str, ToolConfirmation] = {}
    end_invocation: bool = False
    compaction: Compaction | None = None


class EventShape(Struct, rename="camel", omit_defaults=True, gc=False):
    """An event as REST shows it; the order of the fields is the order on the wire."""

    id: str = field(default_factory=lambda: "")
    invocation_id: str = field(default_factory=lambda: "")
    branch: str = ""
    author: str = field(default_factory=lambda: "")
    partial: bool = False
    long_running_tool_ids: list[str] = []
    content: Content | None = field(default_factory=lambda: None)
    grounding_metadata: dict[str, Any] | None = field(default_factory=lambda: None)
    usage_metadata: Usage | None = field(default_factory=lambda: None)
    turn_complete: bool = False
    interrupted: bool = False
    error_code: str = ""
    error_message: str = ""
    avg_logprobs: float | None = None
    finish_reason: str = ""
    model_version: str = ""
    input_transcription: Transcription | None = None
    output_transcription: Transcription | None = None
    actions: ActionsShape = field(default_factory=lambda: ActionsShape())
    output: Any = None
    node_info: NodeInfo | None = None
    isolation_scope: str = ""
    routes: list[str] = []
    requested_input: RequestInput | None = None
    timestamp: float | UnsetType = UNSET
    custom_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None
    logprobs_result: dict[str, Any] | None = None
    session_resumption_handle: str = ""


class SessionShape(Struct, rename="camel", gc=False):
    """A session as REST shows it."""

    id: str
    app_name: str
    user_id: str
    last_update_time: float
    events: list[EventShape]
    state: dict[str, Any]


_NO_ACTIONS: Any = msgspec.Raw(b'{"stateDelta":{},"artifactDelta":{}}')


def _actions(actions: EventActions) -> ActionsShape:
    return ActionsShape(
        actions.state_delta,
        actions.artifact_delta,
        actions.escalate,
        actions.skip_summarization,
        actions.transfer_to_agent,
        actions.requested_tool_confirmations,
        actions.end_invocation,
        actions.compaction,
    )


def event_shape(event: Event) -> EventShape:
    """What to encode for an event."""
    return EventShape(
        event.id,
        event.invocation_id,
        event.branch,
        event.author,
        event.partial,
        event.long_running_tool_ids,
        event.content,
        event.grounding_metadata,
        event.usage_metadata,
        event.turn_complete,
        event.interrupted,
        event.error_code,
        event.error_message,
        event.avg_logprobs,
        event.finish_reason,
        event.model_version,
        event.input_transcription,
        event.output_transcription,
        _NO_ACTIONS if event.partial else _actions(event.actions),
        event.output,
        event.node_info,
        event.isolation_scope,
        event.routes,
        event.requested_input,
        UNSET if event.timestamp is None else event.timestamp.timestamp(),
        event.custom_metadata,
        event.citation_metadata,
        event.logprobs_result,
        event.session_resumption_handle,
    )


def encode_event(event: Event) -> bytes:
    """The JSON of one event."""
    return encode(event_shape(event))


def session_shape(session: Session) -> SessionShape:
    """What to encode for a session; `events` and `state` are never null."""
    app, user, name = session.key
    events = [event_shape(e) for e in session.events] if session.events else []
    return SessionShape(name, app, user, session.updated_at, events, session.state)


def clean_message(content: Content) -> Content:
    """A message from outside made fit for any model: role "user" by default, data URLs in `fileData` become inline data.

    BadRequest for a wildcard media type or a malformed data URL (FR-013).
    """
    changed = False
    parts: list[Part] = []
    for index, part in enumerate(content.parts):
        where = f"newMessage.parts[{index}]"
        if part.file_data is not None and part.file_data.file_uri.startswith("data:"):
            part = structs.replace(part, file_data=None, inline_data=_from_data_url(part.file_data.file_uri, where))
            changed = True
        if part.inline_data is not None and (
            "*" in part.inline_data.mime_type or "/" not in part.inline_data.mime_type
        ):
            raise BadRequest(
                f"{where}.inlineData.mimeType must be a media type such as image/png, got {part.inline_data.mime_type!r}",
                f"{where}.inlineData.mimeType",
            )
        parts.append(part)
    if changed or not content.role:
        return structs.replace(content, parts=parts, role=content.role or "user")
    return content


def _from_data_url(url: str, where: str) -> Blob:
    head, comma, data = url.removeprefix("data:").partition(",")
    mime, *options = head.split(";")
    if not comma or "base64" not in options:
        raise BadRequest(f"{where}.fileData.fileUri is not a base64 data URL", f"{where}.fileData.fileUri")
    try:
        return msgspec.convert({"mimeType": mime or "text/plain", "data": data}, Blob)
    except msgspec.ValidationError:
        raise BadRequest(f"{where}.fileData.fileUri holds bad base64", f"{where}.fileData.fileUri") from None
