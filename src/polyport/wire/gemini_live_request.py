"""What goes to Gemini's Live API (BidiGenerateContent) as pure functions: the set-up, the history, and each input as frames.

Used by `models/gemini_live.py`. Sources: the API's reference, the pages of its models, spec core 8.3. Models from Gemini 3 on
take words in the middle of a conversation as real-time input only, and a history only when the set-up announces it; older
ones take both as client content. Never does I/O; what comes back is read by `wire/gemini_live.py`.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import structs

from polyport import codec
from polyport.data.content import Blob, Content, Part, user_text
from polyport.data.live import LiveBlob, LiveConfig, LiveContent, LiveInput, LiveResponses, LiveSignal
from polyport.data.model import ModelRequest, ToolDeclaration
from polyport.errors import BadRequest, ConfigError
from polyport.wire.gemini_live_schema import parameters
from polyport.wire.gemini_request import GO_ON, encode_request

LOOK = "See the picture."
"""What is said with a picture that comes without words, for pictures alone are not answered."""

_NUMBER = re.compile(r"(?<![\w.])(\d+)(?:\.\d+)?(?=-|$)")
_UNUSED = ("stopSequences", "responseMimeType", "responseSchema", "responseJsonSchema", "responseLogprobs", "logprobs")
"""Members of a generation config that the Live API refuses. They serve the other runs of the same agent."""

_SIGNALS: dict[str, dict[str, Any]] = {
    "activity_start": {"activityStart": {}},
    "activity_end": {"activityEnd": {}},
    "audio_stream_end": {"audioStreamEnd": True},
}


def is_new(name: str) -> bool:
    """Whether a model is of Gemini 3 or later; a name without a number is that of the newest."""
    found = _NUMBER.search(name.rpartition("/")[2])
    return found is None or int(found[1]) >= 3


class LiveWriter:
    """Makes the frames of one connection. Remembers what has to come together: parts of what the user says, activity."""

    def __init__(self, request: ModelRequest, config: LiveConfig, name: str) -> None:
        """ConfigError for what the API cannot do; BadRequest for a part of the history that cannot be sent."""
        self._new = is_new(name)
        _check(config, self._new)
        self._manual = config.activity == "manual"
        self._speaking = False
        self._held: list[Part] = []
        """What was said without being the end of it."""
        told, self._question = _split(request.contents) if self._new else (request.contents, None)
        self._history = _turns(told)
        self._answer_now = bool(request.contents) and not _is_model(request.contents[-1])
        setup = _setup(request, config, name, announced=self._new and bool(self._history))
        self.setup = codec.encode({"setup": setup})
        """The first frame."""
        self.preview = not self._new and (config.affective_dialog or config.proactive_audio)
        """Whether only the preview of the API (v1alpha) knows what the set-up asks for."""

    def opening(self) -> list[bytes]:
        """The frames after the set-up was accepted: the conversation so far, so that the model answers, or waits."""
        frames: list[bytes] = []
        if self._history:
            complete = self._new or self._answer_now  # a history that was announced ends so, and is never answered
            frames.append(_frame("clientContent", {"turns": self._history, "turnComplete": complete}))
        if self._new and self._answer_now:
            frames += self._realtime((self._question or user_text(GO_ON)).parts)
        return frames

    def write(self, message: LiveInput) -> list[bytes]:
        """The frames of one input, at times none. BadRequest for what the API does not take, before anything is sent."""
        if isinstance(message, LiveContent):
            return self._content(message)
        if isinstance(message, LiveBlob):
            return [_frame("realtimeInput", _media(message.blob))]
        if isinstance(message, LiveSignal):
            return self._signal(message)
        return _responses(message)

    def _content(self, message: LiveContent) -> list[bytes]:
        if self._new:
            parts = [*self._held, *(p for p in message.content.parts if not p.empty and not p.thought)]
            frames = self._realtime(parts)  # refuses before anything is held
            self._held = [] if message.turn_complete else parts
            return frames if message.turn_complete else []
        for part in message.content.parts:
            if part.inline_data is not None and part.inline_data.mime_type.startswith("audio/"):
                raise BadRequest("the Gemini Live API takes sound as a stream, not as content")
        turns = _turns([message.content])
        if not turns and not message.turn_complete:
            return []
        return [_frame("clientContent", {"turns": turns, "turnComplete": message.turn_complete})]

    def _realtime(self, parts: Sequence[Part]) -> list[bytes]:
        """Words and pictures as real-time input: pictures first, for the words end what is said."""
        pictures = [_frame("realtimeInput", _picture(p)) for p in parts if not p.text]
        words = "\n".join(p.text for p in parts if p.text)
        if not words and not pictures:
            return []
        frames = [*pictures, _frame("realtimeInput", {"text": words or LOOK})]
        if self._manual and not self._speaking:  # the API takes words for the user's only in an activity then
            start, end = (_frame("realtimeInput", _SIGNALS[kind]) for kind in ("activity_start", "activity_end"))
            return [start, *frames, end]
        return frames

    def _signal(self, signal: LiveSignal) -> list[bytes]:
        if self._manual == (signal.kind == "audio_stream_end"):
            if self._manual:
                return []  # the end of an activity has said it
            raise BadRequest(f"{signal.kind} needs activity=manual: now Gemini listens for it", "activity")
        starts, speaking = signal.kind == "activity_start", self._speaking
        self._speaking = starts
        if starts and speaking:
            return []  # the API ends a session in which an activity starts or ends twice
        frames = [_frame("realtimeInput", _SIGNALS[signal.kind])]
        if not starts and not speaking and self._manual:  # it started on the connection before
            frames.insert(0, _frame("realtimeInput", _SIGNALS["activity_start"]))
        return frames


def _frame(kind: str, body: Any) -> bytes:
    return codec.encode({kind: body})


# --- the set-up -------------------------------------------------------------------------------------------------------


def _check(config: LiveConfig, new: bool) -> None:
    if len(config.modalities) != 1:
        raise ConfigError(
            f"Gemini answers with AUDIO or with TEXT, not with {' and '.join(config.modalities) or 'none'}"
        )
    if config.explicit_vad_signal:
        raise ConfigError("the Gemini API sends no explicit VAD signal; leave explicit_vad_signal away")
    if config.affective_dialog and new:
        raise ConfigError(
            "Gemini 3 has no affective dialog; leave enable_affective_dialog away, or take a model of Gemini 2.5"
        )


def _setup(request: ModelRequest, config: LiveConfig, name: str, *, announced: bool) -> dict[str, Any]:
    plain = structs.replace(request, contents=[], tools=[], response_schema=None)
    body = cast("dict[str, Any]", msgspec.json.decode(encode_request(plain)))
    audio, new = "AUDIO" in config.modalities, is_new(name)
    tools = [{"functionDeclarations": [_declaration(t, new) for t in request.tools]}] if request.tools else []
    out: dict[str, Any] = {
        "model": name if "/" in name else f"models/{name}",
        "generationConfig": _generation(body.get("generationConfig", {}), config),
        "systemInstruction": body.get("systemInstruction"),
        "safetySettings": body.get("safetySettings"),
        "tools": [*tools, *body.get("tools", [])] or None,
        "realtimeInputConfig": {"automaticActivityDetection": {"disabled": True}}
        if config.activity == "manual"
        else None,
        "sessionResumption": _resumption(config),
        "contextWindowCompression": {"slidingWindow": {}},
        "inputAudioTranscription": {} if config.input_transcription else None,
        "outputAudioTranscription": {} if config.output_transcription and audio else None,
        "proactivity": {"proactiveAudio": True} if config.proactive_audio and not new else None,  # Gemini 3 always is
        "historyConfig": {"initialHistoryInClientContent": True} if announced else None,
    }
    return _merged(out, config.extra)


def _resumption(config: LiveConfig) -> dict[str, Any] | None:
    if config.resumption_handle:
        return {"handle": config.resumption_handle}
    return {} if config.resumption else None


def _generation(given: dict[str, Any], config: LiveConfig) -> dict[str, Any]:
    out = {k: v for k, v in given.items() if k not in _UNUSED}
    out["responseModalities"] = list(config.modalities)
    speech: dict[str, Any] = {}
    if config.voice:
        speech["voiceConfig"] = {"prebuiltVoiceConfig": {"voiceName": config.voice}}
    if config.language:
        speech["languageCode"] = config.language
    if speech and "AUDIO" in config.modalities:
        out["speechConfig"] = speech
    if config.affective_dialog:
        out["enableAffectiveDialog"] = True
    return out


def _declaration(tool: ToolDeclaration, new: bool) -> dict[str, Any]:
    """The Live API has no field for the schema of results, so the description tells it."""
    out: dict[str, Any] = {"name": tool.name}
    if text := tool.whole_description:
        out["description"] = text
    if new:
        out["parametersJsonSchema"] = tool.parameters
    elif told := parameters(tool.parameters):
        out["parameters"] = told
    return out


def _merged(base: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """`base` with `extra` put in: objects member by member, tools appended; null takes a member away."""
    out = dict(base)
    for key, value in extra.items():
        old = out.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            out[key] = _merged(cast("dict[str, Any]", old), cast("dict[str, Any]", value))
        elif key == "tools" and isinstance(old, list) and isinstance(value, list):
            out[key] = [*cast("list[Any]", old), *cast("list[Any]", value)]
        else:
            out[key] = value
    return {k: v for k, v in out.items() if v is not None}


# --- contents ---------------------------------------------------------------------------------------------------------


def _is_model(content: Content) -> bool:
    return content.role in ("model", "assistant")


def _split(contents: Sequence[Content]) -> tuple[Sequence[Content], Content | None]:
    """What was said before, and the user's last words if these can be said in real time."""
    if not contents or _is_model(contents[-1]):
        return contents, None
    asked = contents[-1]
    if all(p.text or _is_picture(p) for p in asked.parts) and asked.parts:
        return contents[:-1], asked
    return contents, None


def _turns(contents: Sequence[Content]) -> list[dict[str, Any]]:
    """Contents as `generateContent` takes them, but for the words that it wants at the end of what the model said."""
    body = msgspec.json.decode(encode_request(ModelRequest(contents=list(contents))))
    turns = cast("list[dict[str, Any]]", body["contents"])
    if contents and _is_model(contents[-1]) and turns and turns[-1]["parts"] == [{"text": GO_ON}]:
        turns.pop()
    return turns


def _is_picture(part: Part) -> bool:
    return part.inline_data is not None and part.inline_data.mime_type.startswith("image/")


def _picture(part: Part) -> dict[str, Any]:
    if part.inline_data is None or not _is_picture(part):
        kind = part.inline_data.mime_type if part.inline_data is not None else "other content"
        raise BadRequest(f"the Gemini Live API takes words and pictures in a conversation, not {kind[:100]!r}")
    return _media(part.inline_data)


def _media(blob: Blob) -> dict[str, Any]:
    """Sound or a picture. Anything else would make the API close the connection."""
    kind = blob.mime_type.partition(";")[0].strip().lower()
    body = Blob(mime_type=blob.mime_type, data=blob.data)
    if kind == "audio/pcm":
        return {"audio": body}
    if kind.startswith("image/") and "*" not in kind:
        return {"video": body}
    raise BadRequest(f"the Gemini Live API takes audio/pcm and pictures, not {blob.mime_type[:100]!r}", "blob.mimeType")


def _responses(message: LiveResponses) -> list[bytes]:
    told = [structs.replace(r, response={"result": None}) if r.response is None else r for r in message.responses]
    return [_frame("toolResponse", {"functionResponses": told})] if told else []
