"""ModelRequest -> the request JSON of the Anthropic Messages API. The half of wire/anthropic that speaks to the provider.

The API refuses histories that ADK-shaped sessions do hold: unanswered calls, late or double results, two turns of one role,
ids of other providers, blank text. `_Turns` repairs them in the request only; stored history is never touched (FR-033).
Thoughts are sent only with the provider's signature, byte for byte as it came (FR-086); other providers' own
`toolCall`/`toolResponse` parts are not sent. Shapes are those of the `anthropic` SDK's types. No I/O.
"""

import base64
import binascii
import mimetypes
import re
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from polyport.codec import convert, encode
from polyport.data.content import Content, FileData, FunctionCall, FunctionResponse, Part
from polyport.data.model import GenerateConfig, ModelRequest, Schema
from polyport.errors import BadRequest

Block = dict[str, Any]
USER, ASSISTANT = "user", "assistant"
MAX_TOKENS = 8192
"""`max_tokens` when the config has none; the API insists on a value."""
GO_ON = "Please continue."
"""Stands where the API wants a user's turn and the history has none."""
NO_RESULT = "No result is on record for this call; its outcome is unknown."
"""Stands for the result of a call that was never answered (FR-033): it claims neither that the tool ran nor that not."""
REDACTED = {"anthropic": "redacted_thinking"}
"""The `part_metadata` of a thought whose `thought_signature` is the data of a redacted_thinking block."""

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_TEXTS = ("application/json", "application/xml", "application/yaml", "application/javascript", "image/svg+xml")
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
_THINKING = ("thinking", "redacted_thinking")


def max_tokens(config: GenerateConfig, default: int = MAX_TOKENS) -> int:
    """The `max_tokens` of a request. Thinking counts towards it, so a default grows by the thinking budget."""
    return config.max_output_tokens or default + max(config.thinking_budget or 0, 0)


def encode_request(request: ModelRequest, *, model: str, stream: bool, max_tokens_default: int = MAX_TOKENS) -> bytes:
    """The JSON body of `POST /v1/messages`.

    `config.extra` goes in last and wins, but its `tools` (server tools, say) are added to ours and its `output_config` is
    merged with ours. BadRequest for what the API has no word for: seed, penalties, a schema with free-form objects.
    """
    config = request.config
    for name in ("seed", "presence_penalty", "frequency_penalty"):
        if getattr(config, name) is not None:
            raise BadRequest(f"the Anthropic API has no {name}; leave it unset", f"config.{name}")
    turns = _Turns()
    for content in request.contents:
        turns.add(content)
    body: Block = {
        "model": model,
        "max_tokens": max_tokens(config, max_tokens_default),
        "messages": turns.messages(),
    }
    if request.system.strip():
        body["system"] = request.system
    for name in ("temperature", "top_p", "top_k", "stop_sequences"):
        value = getattr(config, name)
        if value is not None and value != []:
            body[name] = value
    body.update(_tools(request))
    thinking = _thinking_config(config)
    if thinking:
        body["thinking"] = thinking
    if request.response_schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": strict_schema(request.response_schema)}}
    for name, value in config.extra.items():
        if name == "tools":
            body[name] = [*body.get(name, []), *value]
        elif name == "output_config":
            body[name] = {**body.get(name, {}), **value}
        else:
            body[name] = value
    body["stream"] = stream
    return encode(body)


def _tools(request: ModelRequest) -> Block:
    if not request.tools:
        return {}
    tools = [
        {"name": t.name, **({"description": d} if (d := t.whole_description) else {}), "input_schema": t.parameters}
        for t in request.tools
    ]
    choice = request.config.tool_choice
    if choice in ("", "auto"):
        return {"tools": tools}
    said: Block = {"type": choice} if choice in ("any", "none") else {"type": "tool", "name": choice}
    return {"tools": tools, "tool_choice": said}


def _thinking_config(config: GenerateConfig) -> Block:
    """A budget above 0 is that many tokens, 0 is no thinking, below 0 is as the model likes. Without a budget nothing is
    said, unless thoughts are wanted."""
    budget = config.thinking_budget
    if budget is None and not config.include_thoughts:
        return {}
    if budget is not None and budget > 0:
        return {"type": "enabled", "budget_tokens": budget}
    if budget == 0:
        return {"type": "disabled"}
    return {"type": "adaptive", **({"display": "summarized"} if config.include_thoughts else {})}


def strict_schema(schema: Any, where: str = "") -> Schema:
    """`schema` in the subset that the API's structured output takes: objects are closed, `oneOf` is `anyOf`, and what it
    has no word for (limits, patterns, defaults) moves into the description. BadRequest for an object without named
    properties, which such an answer could only leave empty."""
    if not isinstance(schema, dict):
        return {}  # `true`: anything
    schema = cast("Schema", schema)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        outer = {k: v for k, v in schema.items() if k in ("title", "description", "$defs")}
        inner = {k: v for k, v in schema.items() if k not in outer and k != "type"}
        options = [{"type": k} if k == "null" else {**inner, "type": k} for k in cast("list[str]", kinds)]
        schema = {**outer, **(inner if "enum" in inner else {"anyOf": options})}
    out: Schema = {}
    notes: list[str] = []
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions"):
            named = cast("dict[str, Schema]", value)
            out[key] = {name: strict_schema(item, f"{where}.{name}") for name, item in named.items()}
        elif key in ("anyOf", "oneOf", "allOf"):
            out["anyOf" if key == "oneOf" else key] = [strict_schema(item, where) for item in value]
        elif key == "items" and isinstance(value, dict):
            out[key] = strict_schema(cast("Schema", value), f"{where}[]")
        elif key in ("type", "enum", "const", "$ref", "required", "title", "description") or (
            (key == "format" and value in _FORMATS) or (key == "minItems" and value in (0, 1))
        ):
            out[key] = value
        elif key not in ("additionalProperties", "$schema"):
            notes.append(f"{key}: {encode(value).decode()}")
    if out.get("type") == "object":
        if "properties" not in out:
            raise BadRequest(
                f"the Anthropic API cannot answer with an object of unknown properties (at {where or 'the root'}); name "
                "the properties in the schema, or use a list of pairs",
                f"response_schema{where}",
            )
        out["additionalProperties"] = False
    if notes:
        out["description"] = f"{out.get('description', '')} ({', '.join(notes)})".strip()
    return out


class _Call(Struct, eq=False):
    """A call in the history. `id` is as stored, `wire_id` as sent."""

    id: str
    name: str
    wire_id: str
    result: Block | None = None


class _Turn(Struct, eq=False):
    role: str
    blocks: list[Block] = []
    calls: list[_Call] = []


class _Turns:
    """Contents in, messages out that alternate, begin and end with the user's, and answer each call exactly once.

    A result goes to the newest unanswered call with its id, or, when one of the two has no id, with its name (within one
    turn the first). A result that no call waits for becomes the user's text.
    """

    def __init__(self) -> None:
        self._turns: list[_Turn] = []
        self._ids: set[str] = set()

    def add(self, content: Content) -> None:
        role = ASSISTANT if content.role in ("model", ASSISTANT) else USER
        for part in content.parts:
            if part.function_call is not None:
                self._add_call(part.function_call)
            elif part.function_response is not None:
                self._add_result(part.function_response)
            else:
                block = _block(part, role)
                if block is not None:
                    self._turn(role).blocks.append(block)

    def _turn(self, role: str) -> _Turn:
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
        return self._turns[-1]

    def _add_call(self, call: FunctionCall) -> None:
        base = re.sub("[^a-zA-Z0-9_-]", "_", call.id) or f"call_{len(self._ids)}"
        wire_id, n = base, 2
        while wire_id in self._ids:
            wire_id, n = f"{base}_{n}", n + 1
        self._ids.add(wire_id)
        turn = self._turn(ASSISTANT)
        turn.blocks.append({"type": "tool_use", "id": wire_id, "name": call.name, "input": call.args})
        turn.calls.append(_Call(call.id, call.name, wire_id))

    def _add_result(self, response: FunctionResponse) -> None:
        text, media = encode(response.response).decode(), _result_media(response)
        found = self._waiting(response)
        if found is None:
            self._turn(USER).blocks += [_text(f"Result of the tool {response.name}: {text}"), *media]
            return
        turn, call = found
        call.result = {"type": "tool_result", "tool_use_id": call.wire_id, "content": [_text(text), *media]}
        if not media:
            call.result["content"] = text
        if response.response is not None and set(response.response) == {"error"}:
            call.result["is_error"] = True
        if turn is self._turns[-1]:
            self._turns.append(_Turn(USER))  # the result, put in by messages(), is what the user says here

    def _waiting(self, response: FunctionResponse) -> tuple[_Turn, _Call] | None:
        open_calls = [(t, c) for t in reversed(self._turns) for c in t.calls if c.result is None]
        by_id = (x for x in open_calls if response.id and x[1].id == response.id)
        by_name = (x for x in open_calls if x[1].name == response.name and not (response.id and x[1].id))
        return next(by_id, None) or next(by_name, None)

    def messages(self) -> list[Block]:
        out: list[Block] = []
        results: list[Block] = []
        for turn in [*self._turns, _Turn(USER)]:
            if turn.role == USER:
                blocks, results = results + turn.blocks, []
            else:
                blocks = list(turn.blocks)
                while blocks and blocks[-1]["type"] in _THINKING:
                    blocks.pop()  # the API refuses a message that ends with thinking
                results = [call.result or _no_result(call) for call in turn.calls]
            if blocks and out and out[-1]["role"] == turn.role:
                out[-1]["content"] += blocks
            elif blocks:
                out.append({"role": turn.role, "content": blocks})
        if not out or out[0]["role"] == ASSISTANT:
            out.insert(0, {"role": USER, "content": [_text(GO_ON)]})
        if out[-1]["role"] == ASSISTANT:
            out.append({"role": USER, "content": [_text(GO_ON)]})
        return out


def _no_result(call: _Call) -> Block:
    return {"type": "tool_result", "tool_use_id": call.wire_id, "content": NO_RESULT}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _block(part: Part, role: str) -> Block | None:
    """A part that is neither call nor result, or None when there is nothing to send (blank text is refused)."""
    if part.thought:
        return _thinking(part) if role == ASSISTANT else None
    if part.text is not None:
        return _text(part.text) if part.text.strip() else None
    if part.inline_data is not None:
        blob = part.inline_data
        return _media(blob.mime_type, blob.data, blob.display_name, role)
    if part.file_data is not None:
        return _file(part.file_data, role)
    if part.executable_code is not None:
        code = part.executable_code
        return _text(f"```{code.language.lower()}\n{code.code}\n```")
    if part.code_execution_result is not None:
        result = part.code_execution_result
        return _text(f"{result.outcome}\n{result.output}".strip() or "(no output)")
    return None


def _thinking(part: Part) -> Block | None:
    try:
        signature = (part.thought_signature or b"").decode()
    except UnicodeDecodeError:
        return None  # another provider's signature: this API's are ASCII
    if not signature:
        return None
    if part.part_metadata == REDACTED:
        return {"type": "redacted_thinking", "data": signature}
    return {"type": "thinking", "thinking": part.text or "", "signature": signature}


def _media(mime: str, data: bytes, name: str, role: str) -> Block:
    """Bytes as an image or document block. What the API cannot take becomes a note, so that the model can say so and the
    session stays usable."""
    kind = mime.partition(";")[0].strip().lower().replace("image/jpg", "image/jpeg")
    if role == USER and data:
        source: Block = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
        if kind in _IMAGES:
            return {"type": "image", "source": source}
        titled: Block = {"title": name} if name else {}
        if kind == "application/pdf":
            return {"type": "document", "source": source, **titled}
        if kind.startswith("text/") or kind in _TEXTS:
            text = data.decode("utf-8", "replace")
            return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **titled}
    return _left_out(name, kind)


def _left_out(name: str, mime: str) -> Block:
    return _text(f"[An attachment{f' {name!r}' if name else ''} of type {mime or 'unknown'} cannot be shown here.]")


def _file(file: FileData, role: str) -> Block:
    uri, name = file.file_uri, file.display_name
    if uri[:5].lower() == "data:":
        head, _, body = uri[5:].partition(",")
        data = unquote_to_bytes(body)
        if head.lower().endswith(";base64"):
            try:
                data = base64.b64decode(data + b"=" * (-len(data) % 4), validate=True)
            except binascii.Error:
                data = b""
        return _media(head.partition(";")[0] or file.mime_type or "text/plain", data, name, role)
    mime = (file.mime_type or mimetypes.guess_type(uri)[0] or "").lower()
    source: Block = {"type": "url", "url": uri}
    if uri.startswith("file_"):
        source = {"type": "file", "file_id": uri}  # an id of the provider's Files API
    elif not uri.lower().startswith(("https://", "http://")):
        return _left_out(name or uri, mime)
    if role == USER and mime.startswith("image/"):
        return {"type": "image", "source": source}
    if role == USER and mime == "application/pdf":
        return {"type": "document", "source": source, **({"title": name} if name else {})}
    return _left_out(name or uri, mime)


def _result_media(response: FunctionResponse) -> list[Block]:
    parts = (p if isinstance(p, Part) else convert(p, Part, unknown="drop") for p in response.parts)
    return [block for p in parts if (block := _block(p, USER)) is not None]
