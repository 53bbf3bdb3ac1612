"""Our parts and events to and from A2A's parts and metadata, as ADK spells them (spec a2a 3.3-3.5, rest A.4).

Used by the A2A executor (out), by the handler for messages (in) and by remote agents (both, the other way round). What A2A has
no member for travels in metadata under `adk_` keys; other metadata of a part is our `part_metadata`. Pure.
"""

from base64 import b64encode
from collections.abc import Collection, Iterable
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, structs

from polyport import codec
from polyport.data.content import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    Part,
)
from polyport.data.event import Event, EventActions, new_actions
from polyport.data.model import Usage
from polyport.errors import BadRequest
from polyport.wire import a2a

EXTENSION = "https://google.github.io/adk-docs/a2a/a2a-extension/"
"""True under this key in the metadata of tasks and status updates: "an ADK agent speaks"."""
PREFIX = "adk_"
TASK_ID, CONTEXT_ID = "a2a:task_id", "a2a:context_id"
"""Keys in the custom metadata of an event that came from a remote agent."""
IS_ERROR, VALIDATION_ERROR = "adk_is_error_message", "validation_error"
_OPEN, _CLOSE = b"<a2a_datapart_json>", b"</a2a_datapart_json>"

_TYPED: dict[str, type[Struct]] = {
    "function_call": FunctionCall,
    "function_response": FunctionResponse,
    "executable_code": ExecutableCode,
    "code_execution_result": CodeExecutionResult,
    "part": Part,
}
"""adk_type -> what the data of such a part is. `part` is ours: the kinds that ADK has no type for, whole."""
_TYPE, _LONG_RUNNING, _THOUGHT = "adk_type", "adk_is_long_running", "adk_thought"
_SIGNATURE, _VIDEO, _RESOLUTION = "adk_thought_signature", "adk_video_metadata", "adk_media_resolution"
_REST = "adk_part_metadata"
_OURS = frozenset({_TYPE, _LONG_RUNNING, _THOUGHT, _SIGNATURE, _VIDEO, _RESOLUTION, _REST})


def plain(value: Any) -> Any:
    """A Struct as the JSON data that goes on the wire."""
    return msgspec.json.decode(codec.encode(value))


def to_a2a_part(part: Part, long_running: Collection[str] = ()) -> a2a.Part | None:
    """`part` for an A2A caller; None for one that says nothing. Calls whose id is in `long_running` are marked as such."""
    if part.empty:
        return None
    metadata = _flags(part)
    if part.text is not None:
        return a2a.Part(text=part.text, metadata=metadata or None)
    if part.inline_data is not None:
        blob = part.inline_data
        unwrapped = _unwrap(blob, metadata)
        if unwrapped is not None:
            return unwrapped
        return a2a.Part(raw=blob.data, media_type=blob.mime_type, filename=blob.display_name, metadata=metadata or None)
    if part.file_data is not None:
        file = part.file_data
        return a2a.Part(
            url=file.file_uri, media_type=file.mime_type, filename=file.display_name, metadata=metadata or None
        )
    kind = next((k for k in _TYPED if k != "part" and getattr(part, k) is not None), "part")
    if kind == "part":
        return a2a.Part(data=plain(part), metadata={_TYPE: kind})
    metadata[_TYPE] = kind
    if part.function_call is not None:
        metadata[_LONG_RUNNING] = part.function_call.id in long_running
    return a2a.Part(data=plain(getattr(part, kind)), metadata=metadata)


def _flags(part: Part) -> dict[str, Any]:
    """What a part has beside its content, as metadata."""
    own = part.part_metadata
    found: dict[str, Any] = {}
    if own is not None:
        found = {_REST: own} if not own or _OURS & own.keys() else dict(own)
    if part.thought:
        found[_THOUGHT] = True
    if part.thought_signature is not None:
        found[_SIGNATURE] = b64encode(part.thought_signature).decode()
    if part.video_metadata is not None:
        found[_VIDEO] = part.video_metadata
    if part.media_resolution is not None:
        found[_RESOLUTION] = part.media_resolution
    return found


def _unwrap(blob: Blob, metadata: dict[str, Any]) -> a2a.Part | None:
    """The data part that a text/plain blob between the tags stands for. ADK for Go wraps the bare data, ADK for Python
    `{"kind": "data", "data", "metadata"}`."""
    data = blob.data
    if blob.mime_type != "text/plain" or blob.display_name or not (data.startswith(_OPEN) and data.endswith(_CLOSE)):
        return None
    try:
        value = msgspec.json.decode(data[len(_OPEN) : -len(_CLOSE)])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if _is_whole(value):
        inner = cast("dict[str, Any]", value)
        own: dict[str, Any] = inner.get("metadata") or {}
        value, metadata = inner["data"], own | metadata
    return a2a.Part(data=value, metadata=metadata or None)


def _is_whole(value: Any) -> bool:
    if not isinstance(value, dict) or "data" not in value or not value.keys() <= {"kind", "data", "metadata"}:
        return False
    whole = cast("dict[str, Any]", value)
    return (whole.get("kind") == "data" or "metadata" in whole) and isinstance(whole.get("metadata", {}), dict | None)


def from_a2a_part(part: a2a.Part, where: str = "part") -> Part:
    """An A2A part as ours. BadRequest naming `where` for one without content, or whose adk_type and data do not fit."""
    said = part.metadata or {}
    rest: dict[str, Any] | None = {k: v for k, v in said.items() if k not in _OURS} or None
    if isinstance(said.get(_REST), dict):
        rest = said[_REST]
    signature = said.get(_SIGNATURE)
    flags = Part(
        thought=said.get(_THOUGHT) is True,
        thought_signature=_bytes(signature, where) if isinstance(signature, str) else None,
        video_metadata=said[_VIDEO] if isinstance(said.get(_VIDEO), dict) else None,
        media_resolution=said.get(_RESOLUTION),
        part_metadata=rest,
    )
    if part.text is not None:
        return structs.replace(flags, text=part.text)
    if part.raw is not None:
        blob = Blob(mime_type=part.media_type, data=part.raw, display_name=part.filename)
        return structs.replace(flags, inline_data=blob)
    if part.url is not None:
        file = FileData(file_uri=part.url, mime_type=part.media_type, display_name=part.filename)
        return structs.replace(flags, file_data=file)
    if part.data is UNSET:
        raise BadRequest(f"{where} has no content", where)
    return _from_data(part.data, said.get(_TYPE), flags, where)


def _bytes(text: str, where: str) -> bytes:
    return codec.convert({"raw": text}, a2a.Part).raw or b""


def _from_data(data: Any, kind: object, flags: Part, where: str) -> Part:
    known = _TYPED.get(kind) if isinstance(kind, str) else None
    if known is None:
        body = {"kind": "data", "data": data} if _is_whole(data) else data
        blob = Blob(mime_type="text/plain", data=_OPEN + codec.encode(body) + _CLOSE)
        return structs.replace(flags, inline_data=blob)
    if not isinstance(data, dict):
        raise BadRequest(f"{where}.data of adk_type {kind} must be an object", f"{where}.data")
    try:
        value = codec.convert(data, known, unknown="drop")
    except BadRequest as error:
        raise BadRequest(f"{where}.data is no {kind}: {error}", f"{where}.data") from None
    return value if isinstance(value, Part) else structs.replace(flags, **{cast("str", kind): value})


def to_content(message: a2a.Message, role: str = "user") -> Content:
    """A message as content of `role`. BadRequest names the wrong part. The metadata of a message has no effect here (T098)."""
    parts = [from_a2a_part(part, f"message.parts[{i}]") for i, part in enumerate(message.parts)]
    return Content(role=role, parts=parts)


def to_a2a_parts(parts: Iterable[Part], long_running: Collection[str] = ()) -> list[a2a.Part]:
    """Parts for an A2A caller, without those that say nothing."""
    return [found for part in parts if (found := to_a2a_part(part, long_running)) is not None]


def split_pending(event: Event, pending: Collection[str] = ()) -> tuple[list[Part], list[Part]]:
    """The parts of an event to show at once, and those to keep for the input-required status: calls that are long-running by
    this event or, by their ids in `pending`, by an earlier one, and interim responses to them (spec a2a 3.5)."""
    ids = {*event.long_running_tool_ids, *pending}
    shown: list[Part] = []
    kept: list[Part] = []
    for part in event.content.parts if event.content is not None else ():
        said = part.function_call or part.function_response
        (kept if said is not None and said.id in ids else shown).append(part)
    return shown, kept


def call_ids(parts: Iterable[a2a.Part], *, long_running: bool = False) -> list[str]:
    """The ids of the function calls in A2A parts, each once; only of those that are marked long-running if so asked."""
    found: dict[str, None] = {}
    for part in parts:
        said = part.metadata or {}
        if said.get(_TYPE) == "function_call":
            data = part.data
            id = cast("dict[str, Any]", data).get("id") if isinstance(data, dict) else None
            if isinstance(id, str) and (said.get(_LONG_RUNNING) is True or not long_running):
                found[id] = None
    return list(found)


def error_part(text: str) -> a2a.Part:
    """The first part of a FAILED status: clients may cut it off and show it as an error."""
    return a2a.Part(text=text, metadata={IS_ERROR: True})


def validation_error_part(text: str) -> a2a.Part:
    """Says in a repeated input-required status what was missing in the answer."""
    return a2a.Part(text=text, metadata={VALIDATION_ERROR: True})


def is_marked(part: a2a.Part, key: str) -> bool:
    """Whether a part's metadata has `key` as true."""
    return part.metadata is not None and part.metadata.get(key) is True


def base_metadata(app: str, user: str, session: str) -> dict[str, Any]:
    """Metadata of every update of a run."""
    return {"adk_app_name": app, "adk_user_id": user, "adk_session_id": session}


def event_metadata(event: Event, base: dict[str, Any]) -> dict[str, Any]:
    """`base` and what `event` says about itself; only what is set."""
    found: dict[str, Any] = {
        "adk_invocation_id": event.invocation_id,
        "adk_author": event.author,
        "adk_branch": event.branch,
        "adk_error_code": event.error_code,
        "adk_usage_metadata": None if event.usage_metadata is None else plain(event.usage_metadata),
        "adk_grounding_metadata": event.grounding_metadata,
        "adk_citation_metadata": event.citation_metadata,
        "adk_custom_metadata": event.custom_metadata,
    }
    return base | {key: value for key, value in found.items() if value not in (None, "", {})}


def final_metadata(base: dict[str, Any], *, escalate: bool, transfer: str) -> dict[str, Any]:
    """Metadata of the final status: the sticky escalate, the last transfer."""
    found = {EXTENSION: True, **base}
    if escalate:
        found["adk_escalate"] = True
    if transfer:
        found["adk_transfer_to_agent"] = transfer
    return found


def restored(metadata: dict[str, Any] | None, *, escalate: bool = False) -> dict[str, Any]:
    """Members for an Event made from a remote agent's answer. `adk_escalate` comes back only with `escalate`; a transfer never
    does, for a remote agent must not steer the local tree (T098). What has a wrong shape is left out."""
    said = metadata or {}
    found: dict[str, Any] = {}
    for name in ("grounding_metadata", "citation_metadata", "custom_metadata"):
        if isinstance(said.get(PREFIX + name), dict):
            found[name] = said[PREFIX + name]
    if isinstance(said.get("adk_error_code"), str):
        found["error_code"] = said["adk_error_code"]
    usage = _usage(said.get("adk_usage_metadata"))
    if usage is not None:
        found["usage_metadata"] = usage
    if escalate and said.get("adk_escalate") is True:
        actions: EventActions = new_actions()
        actions.escalate = True
        found["actions"] = actions
    return found


def _usage(value: Any) -> Usage | None:
    try:
        return codec.convert(value, Usage, unknown="drop") if isinstance(value, dict) else None
    except BadRequest:
        return None  # another agent's numbers are no reason to lose its answer


def partial(update: a2a.TaskArtifactUpdateEvent) -> bool | None:
    """Whether an artifact update is a preview; None for one to be dropped: without parts, or the reset of a preview."""
    said = {**(update.artifact.metadata or {}), **(update.metadata or {})}
    if not update.artifact.parts:
        return None
    flag = said.get("adk_partial")
    if flag is True and update.last_chunk:
        return None
    return flag if isinstance(flag, bool) else update.append or not update.last_chunk
