"""Requests to the Gemini API (REST, v1beta) as pure functions: a ModelRequest to a path and a body.

Used by `models/gemini.py`. The API's Content is our Content, so most parts pass through untouched; what the API refuses is
taken out or put right here. Sources: the API's reference, spec core 8.3. Never does I/O; answers are read by
`wire/gemini.py`.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from msgspec import structs

from polyport import codec
from polyport.data.content import Blob, Content, FunctionCall, FunctionResponse, Part
from polyport.data.model import GenerateConfig, ModelRequest, ToolDeclaration
from polyport.errors import BadRequest

MADE_ID = "adk-"
"""Calls that came without an id get one that starts so; the API never sees it."""

UNKNOWN_RESULT = {"status": "unknown", "note": "No result was recorded for this call; whether it ran is not known."}
"""Stands in for the missing result of a call (FR-033)."""

GO_ON = "Please continue."

_NAME = re.compile(r"(?:[\w.@-]+/)*[\w.@-]+")
_MAGIC = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


def path(model: str, *, stream: bool) -> str:
    """Where a request for `model` goes, below the base URL. BadRequest for a name that cannot stand in a path."""
    if not _NAME.fullmatch(model) or ".." in model:
        raise BadRequest(f"{model!r} is not the name of a Gemini model", "model")
    name = model if "/" in model else f"models/{model}"
    return f"/{name}:streamGenerateContent?alt=sse" if stream else f"/{name}:generateContent"


def encode_request(request: ModelRequest) -> bytes:
    """The body for `generateContent`, with `config.extra` merged into it: objects member by member, `tools` appended.

    BadRequest when a part cannot be sent, naming it.
    """
    body: dict[str, Any] = {"contents": _contents(request.contents)}
    if request.system:
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(t) for t in request.tools]}]
        choice = _tool_choice(request.config.tool_choice, request.tools)
        if choice:
            body["toolConfig"] = {"functionCallingConfig": choice}
    generation = _generation(request.config)
    if request.response_schema is not None:
        generation["responseMimeType"] = "application/json"
        generation["responseJsonSchema"] = request.response_schema
    if generation:
        body["generationConfig"] = generation
    _merge(body, request.config.extra)
    return codec.encode(body)


def _declaration(tool: ToolDeclaration) -> dict[str, Any]:
    out: dict[str, Any] = {"name": tool.name}
    if tool.description:
        out["description"] = tool.description
    out["parametersJsonSchema"] = tool.parameters
    if tool.response is not None:
        out["responseJsonSchema"] = tool.response
    return out


def _tool_choice(choice: str, tools: Sequence[ToolDeclaration]) -> dict[str, Any]:
    if choice == "auto":
        return {}  # the API's default
    if choice in ("none", "any"):
        return {"mode": choice.upper()}
    if all(t.name != choice for t in tools):
        raise BadRequest(f"tool_choice {choice!r} is neither auto, none, any nor a declared tool", "tool_choice")
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _generation(config: GenerateConfig) -> dict[str, Any]:
    members: dict[str, Any] = {
        "temperature": config.temperature,
        "topP": config.top_p,
        "topK": config.top_k,
        "maxOutputTokens": config.max_output_tokens,
        "stopSequences": config.stop_sequences or None,
        "seed": config.seed,
        "presencePenalty": config.presence_penalty,
        "frequencyPenalty": config.frequency_penalty,
    }
    out = {k: v for k, v in members.items() if v is not None}
    thinking = {"thinkingBudget": config.thinking_budget, "includeThoughts": config.include_thoughts or None}
    thinking = {k: v for k, v in thinking.items() if v is not None}
    if thinking:
        out["thinkingConfig"] = thinking
    return out


def _merge(body: dict[str, Any], extra: dict[str, Any]) -> None:
    for key, value in extra.items():
        old = body.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged = dict(cast("dict[str, Any]", old))
            _merge(merged, cast("dict[str, Any]", value))
            body[key] = merged
        elif key == "tools" and isinstance(old, list) and isinstance(value, list):
            body[key] = [*cast("list[Any]", old), *cast("list[Any]", value)]
        else:
            body[key] = value


def _contents(contents: Sequence[Content]) -> list[Content]:
    """What the API takes: known roles, no empty content, as many responses as calls right after them, a user at the end."""
    out: list[Content] = []
    for i, content in enumerate(_paired(contents)):
        parts = [p for j, part in enumerate(content.parts) if (p := _sendable(part, f"contents[{i}].parts[{j}]"))]
        if parts:
            out.append(Content(role="model" if content.role in ("model", "assistant") else "user", parts=parts))
    if out and out[-1].role != "user":
        out.append(Content(role="user", parts=[Part(text=GO_ON)]))
    return out


def _paired(contents: Sequence[Content]) -> list[Content]:
    """Every content with calls is followed by one that holds exactly its responses, in call order, before anything else."""
    out: list[Content] = []
    calls: list[FunctionCall] = []
    reply: list[Content] = []
    for content in [*contents, None]:
        if content is not None and content.role not in ("model", "assistant"):
            reply.append(content)
            continue
        if calls or any(c.responses for c in reply):
            out.extend(_reply(calls, reply))
        else:
            out.extend(reply)
        reply = []
        if content is not None:
            out.append(content)
            calls = content.calls
    return out


def _reply(calls: list[FunctionCall], reply: list[Content]) -> list[Content]:
    """The contents after `calls`: first their responses, then what else was said; a response to nothing becomes text."""
    left = [r for c in reply for r in c.responses]
    answers: list[Part] = []
    for call in calls:
        found = next((r for r in left if call.id and r.id == call.id), None)
        if found is None:
            found = next((r for r in left if r.name == call.name and not (r.id and call.id)), None)
        if found is None:
            found = FunctionResponse(id=call.id, name=call.name, response=UNKNOWN_RESULT)
        else:
            left = [r for r in left if r is not found]
        answers.append(Part(function_response=found))
    others = [structs.replace(c, parts=list(_others(c.parts, left))) for c in reply]
    if not calls:
        return others
    head = others[0].parts if others else []
    return [Content(role="user", parts=[*answers, *head]), *others[1:]]


def _others(parts: Sequence[Part], left: list[FunctionResponse]) -> Iterator[Part]:
    for part in parts:
        answer = part.function_response
        if answer is None:
            yield part
        elif any(answer is r for r in left):
            yield Part(text=f"Result of {answer.name}, called earlier: {codec.encode(answer.response).decode()}")


def _sendable(part: Part, where: str) -> Part | None:
    """`part` without what the API refuses; None when nothing is left."""
    if part.text and part.part_metadata is None:
        return part
    change: dict[str, Any] = {}
    if part.part_metadata is not None:
        change["part_metadata"] = None
    if part.inline_data is not None:
        change["inline_data"] = _blob(part.inline_data, where)
    if part.file_data is not None:
        if part.file_data.file_uri[:5].lower() == "data:":
            change["inline_data"] = _from_data_uri(part.file_data.file_uri, part.file_data.mime_type, where)
            change["file_data"] = None
        elif part.file_data.display_name:
            change["file_data"] = structs.replace(part.file_data, display_name="")
    if (call := part.function_call) is not None:
        kept = "" if call.id.startswith(MADE_ID) else call.id
        change["function_call"] = FunctionCall(id=kept, name=call.name, args=call.args)
    if (answer := part.function_response) is not None:
        kept = "" if answer.id.startswith(MADE_ID) else answer.id
        body = {"result": None} if answer.response is None else answer.response
        change["function_response"] = structs.replace(answer, id=kept, response=body)
    if part.text == "":
        change["text"] = None if part.thought_signature is None else ""
    if change:
        part = structs.replace(part, **change)
    return None if structs.replace(part, thought=False).empty else part


def _from_data_uri(uri: str, mime_type: str, where: str) -> Blob:
    """The bytes of a `data:` URI (RFC 2397); the type in it wins over `mime_type` (FR-013)."""
    head, comma, payload = uri[5:].partition(",")
    if not comma:
        raise BadRequest(f"{where}.fileData.fileUri is a data: URI without a comma", f"{where}.fileData.fileUri")
    kind, *options = (o.strip() for o in head.split(";"))
    raw = unquote_to_bytes(payload)
    if any(o.lower() == "base64" for o in options):
        text = re.sub(rb"\s", b"", raw).replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
        try:
            raw = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
        except binascii.Error:
            raise BadRequest(f"{where}.fileData.fileUri is not base64", f"{where}.fileData.fileUri") from None
    return _blob(Blob(mime_type=kind or mime_type, data=raw), where)


def _blob(blob: Blob, where: str) -> Blob:
    """`blob` without a display name and with a type; a missing or wildcard type is read off the first bytes."""
    kind = blob.mime_type
    if not kind or "*" in kind:
        kind = _sniff(blob.data)
        if not kind:
            raise BadRequest(
                f"{where} needs a media type such as image/png; got {blob.mime_type!r}, and its bytes do not tell",
                f"{where}.inlineData.mimeType",
            )
    elif not blob.display_name:
        return blob
    return Blob(mime_type=kind, data=blob.data)


def _sniff(data: bytes) -> str:
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12], "")
    if data[4:8] == b"ftyp":
        return "image/heic" if data[8:12] in (b"heic", b"heix", b"mif1") else "video/mp4"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "")
