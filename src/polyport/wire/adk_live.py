"""The messages of a live client in ADK's JSON (spec rest 2.4, 10), and the query that sets a live session up.

Pure: text or bytes in, data out. Used by `protocols/live`. What the model says goes out as events, see `wire/adk`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from polyport.codec import Data, check_depth, convert
from polyport.data.content import Blob, Content
from polyport.data.live import AUDIO_IN, LiveBlob, LiveConfig, LiveRequest, LiveSignal, Modality
from polyport.errors import BadRequest
from polyport.wire.adk import clean_message

MODALITIES: dict[str, Modality | None] = {"AUDIO": "AUDIO", "TEXT": "TEXT", "VIDEO": None}
"""What a client may ask for. ADK's web page asks for VIDEO when it sends pictures; no model answers with it."""


class LiveFrame(Data, frozen=True, kw_only=True):
    """A text message. `partial` content is not the end of what the user says; signals are objects, or true."""

    content: Content | None = None
    blob: Blob | None = None
    activity_start: Any = None
    activity_end: Any = None
    audio_stream_end: Any = None
    partial: bool = False
    state_delta: dict[str, Any] | None = None
    close: bool = False


class Said(NamedTuple):
    """`request` is None for a message that says nothing; `close` asks for the end."""

    request: LiveRequest | None
    close: bool


def from_bytes(data: bytes) -> Said:
    """A binary message: sound."""
    if not data:
        return Said(None, False)
    return Said(LiveRequest(realtime=LiveBlob(Blob(mime_type=AUDIO_IN, data=data)), size=len(data)), False)


def from_text(text: str, depth: int) -> Said | None:
    """A text message; None for one that is no JSON object, which is ignored. BadRequest names the wrong field."""
    body = text.encode("utf-8", "replace")
    check_depth(body, depth)
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    frame: LiveFrame = convert(raw, LiveFrame, unknown="drop")
    content = clean_message(frame.content) if frame.content is not None and frame.content.parts else None
    request = LiveRequest(
        content=content,
        turn_complete=not frame.partial,
        realtime=_realtime(frame),
        state_delta=frame.state_delta or {},
        size=len(body),
    )
    empty = content is None and request.realtime is None and not request.state_delta
    return Said(None if empty else request, frame.close)


def _realtime(frame: LiveFrame) -> LiveBlob | LiveSignal | None:
    """One of the real-time members; the first counts (spec rest 2.4)."""
    if _given(frame.activity_start):
        return LiveSignal("activity_start")
    if _given(frame.activity_end):
        return LiveSignal("activity_end")
    if _given(frame.audio_stream_end):
        return LiveSignal("audio_stream_end")
    blob = frame.blob
    if blob is None or not blob.data:
        return None
    return LiveBlob(blob if blob.mime_type else structs.replace(blob, mime_type=AUDIO_IN))


def _given(signal: Any) -> bool:
    return signal is not None and signal is not False


_FLAGS = {
    "proactive_audio": "proactive_audio",
    "enable_affective_dialog": "affective_dialog",
    "enable_session_resumption": "resumption",
    "save_live_blob": "save_blobs",
    "explicit_vad_signal": "explicit_vad_signal",
}
"""Parameter -> member of LiveConfig. The names are those of ADK for Python."""
_TEXTS = {"voice": "voice", "language": "language"}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def read_config(query: Mapping[str, Sequence[str]], config: LiveConfig) -> LiveConfig:
    """`config` with what the query of a handshake asks for. BadRequest names the parameter. Unknown ones are ignored."""
    changed: dict[str, Any] = {}
    asked = [word for value in query.get("modalities", ()) for word in value.upper().split(",") if word.strip()]
    if asked:
        changed["modalities"] = _modalities([word.strip() for word in asked]) or config.modalities
    for name, field in _FLAGS.items():
        value = _value(query, name).lower()
        if value and value not in _BOOLEANS:
            raise BadRequest(f"{name} parameter must be true or false", name)
        if value:
            changed[field] = _BOOLEANS[value]
    for name, field in _TEXTS.items():
        if value := _value(query, name):
            if len(value) > 100 or not value.isprintable():
                raise BadRequest(f"{name} parameter must be a short name", name)
            changed[field] = value
    activity = _value(query, "activity")
    if activity not in ("", "automatic", "manual"):
        raise BadRequest("activity parameter must be automatic or manual", "activity")
    if activity:
        changed["activity"] = activity
    return structs.replace(config, **changed)


def _modalities(words: Sequence[str]) -> list[Modality]:
    found: list[Modality] = []
    for word in words:
        if word not in MODALITIES:
            known = ", ".join(MODALITIES)
            raise BadRequest(f"modalities parameter must be one of {known}, got {word[:40]!r}", "modalities")
        kind = MODALITIES[word]
        if kind is not None and kind not in found:
            found.append(kind)
    return found


def _value(query: Mapping[str, Sequence[str]], name: str) -> str:
    """The first value of a parameter, in snake_case or camelCase, or ""."""
    head, *rest = name.split("_")
    for spelling in (head + "".join(word.capitalize() for word in rest), name):
        values = query.get(spelling)
        if values and values[0]:
            return values[0]
    return ""
