"""Requests of the Chat Completions API, which OpenAI, Ollama, vLLM, llama.cpp, LM Studio and many others speak.

`models/openai` calls `encode_request` for each question and `simpler` after a refusal; `wire/openai_answer` reads the
answers. Every history gives a valid request: calls and results are paired here, whatever order they came in (FR-033). Left
out are thoughts and what only its own provider understands (signatures, server-side tools). Never does I/O.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast
from urllib.parse import unquote, unquote_to_bytes

from polyport.codec import convert, encode
from polyport.data.content import Blob, Content, FileData, FunctionCall, FunctionResponse, Part
from polyport.data.model import GenerateConfig, ModelRequest, Schema, ToolDeclaration
from polyport.errors import BadRequest
from polyport.wire.openai_schema import structured

Json = dict[str, Any]

NO_RESULT = "No result of this call is known."
"""Stands for the result of a call that has none in the history. It claims neither that the tool ran nor that it did not."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server can do. The defaults suit servers of open models; OFFICIAL suits OpenAI's own."""

    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    """How a response schema is asked for; all but the first also say it in the system text."""
    strict: bool = True
    """Whether to ask for strict schemas, where the schema allows it."""
    stream_usage: bool = True
    """Whether to ask for token counts in streams (FR-075)."""
    reasoning_content: bool = False
    """Whether thoughts of earlier turns are sent back."""
    top_k: bool = True
    schema_with_tools: bool = False
    """Whether a response schema is honoured beside tools (FR-087)."""


OFFICIAL = Dialect(max_tokens="max_completion_tokens", top_k=False, schema_with_tools=True)


def encode_request(request: ModelRequest, *, model: str, stream: bool, dialect: Dialect) -> Json:
    """The body of `POST /chat/completions`. BadRequest for what the API has no words for, naming the place."""
    system = request.system
    if request.response_schema is not None and dialect.structured != "json_schema":
        wish = f"Answer with one JSON value that fits this JSON Schema:\n{_json(request.response_schema)}"
        system = f"{system}\n\n{wish}" if system else wish
    body: Json = {"model": model, "messages": _Messages(request.contents, dialect).build(system)}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        _choose_tool(body, request)
    if request.response_schema is not None and dialect.structured != "none":
        body["response_format"] = _response_format(request.response_schema, dialect)
    _options(body, request.config, dialect)
    if stream and dialect.stream_usage:
        body["stream_options"] = {"include_usage": True}
    body.update(request.config.extra)
    body["stream"] = stream
    return body


_FORMAT_WORDS = re.compile(r"response_format|schema|grammar|structured|json mode|json_object", re.IGNORECASE)
_UNKNOWN_WORDS = re.compile(
    r"unsupported|not supported|unknown|unrecognized|unexpected|extra|not permitted", re.IGNORECASE
)
_OTHER_WORDS = re.compile(r"context|length|message|tool|model|image|key|credit|quota|temperature", re.IGNORECASE)
_PARAM = re.compile(r'"param"\s*:\s*"([^"]+)"')


def simpler(dialect: Dialect, body: Json, complaint: str) -> Dialect | None:
    """After a 400 or 422: the dialect to try `body`'s request with again, or None when that would not help.

    `complaint` is the text of the refusal. One that says nothing of use costs first the token counts, then the schema.
    """
    param = _PARAM.search(complaint)
    said = param.group(1) if param else complaint
    usage = dialect.stream_usage and "stream_options" in body
    schema = dialect.structured != "none" and "response_format" in body
    if usage and ("stream_options" in said or "include_usage" in said):
        return replace(dialect, stream_usage=False)
    if schema and _FORMAT_WORDS.search(said):
        return _less_structured(dialect, body)
    if dialect.max_tokens in body and dialect.max_tokens in said and _UNKNOWN_WORDS.search(complaint):
        other = "max_tokens" if dialect.max_tokens == "max_completion_tokens" else "max_completion_tokens"
        return replace(dialect, max_tokens=other)
    if param or _OTHER_WORDS.search(said) or any(name in said for name in body):
        return None
    if usage:
        return replace(dialect, stream_usage=False)
    return _less_structured(dialect, body) if schema else None


def _less_structured(dialect: Dialect, body: Json) -> Dialect:
    if body["response_format"].get("json_schema", {}).get("strict"):
        return replace(dialect, strict=False)
    return replace(dialect, structured="json_object" if dialect.structured == "json_schema" else "none")


def _json(value: Any) -> str:
    return encode(value).decode()


_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _tool(tool: ToolDeclaration) -> Json:
    if not _TOOL_NAME.fullmatch(tool.name):
        raise BadRequest(f"tool name {tool.name!r} must be 1 to 64 letters, digits, _ or -", "tools")
    function: Json = {"name": tool.name}
    if description := tool.whole_description:
        function["description"] = description
    function["parameters"] = tool.parameters
    return {"type": "function", "function": function}


def _choose_tool(body: Json, request: ModelRequest) -> None:
    choice = request.config.tool_choice
    if choice == "auto":
        return
    if choice in ("none", "any"):
        body["tool_choice"] = "required" if choice == "any" else "none"
    elif any(tool.name == choice for tool in request.tools):
        body["tool_choice"] = {"type": "function", "function": {"name": choice}}
    else:
        raise BadRequest(f"tool_choice {choice!r} is not auto, none, any or the name of a tool", "tool_choice")


def _response_format(schema: Schema, dialect: Dialect) -> Json:
    if dialect.structured == "json_object":
        return {"type": "json_object"}
    sent, strict = structured(schema, strict=dialect.strict)
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", str(schema.get("title", ""))).strip("_")[:64] or "answer"
    return {"type": "json_schema", "json_schema": {"name": name, "schema": sent, "strict": strict}}


_SAME = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")


def _options(body: Json, config: GenerateConfig, dialect: Dialect) -> None:
    for name in _SAME:
        value = getattr(config, name)
        if value is not None:
            body[name] = value
    if config.max_output_tokens is not None:
        body[dialect.max_tokens] = config.max_output_tokens
    if config.stop_sequences:
        body["stop"] = config.stop_sequences
    if config.top_k is not None:
        if not dialect.top_k:
            raise BadRequest("this model's API has no top_k; use top_p, or a dialect with top_k", "config.top_k")
        body["top_k"] = config.top_k
    if config.thinking_budget is not None and config.thinking_budget >= 0:
        body["reasoning_effort"] = _effort(config.thinking_budget)


def _effort(budget: int) -> str:
    """The API has words for effort where Gemini counts tokens; Google's own table of the two."""
    if budget == 0:
        return "none"
    return "low" if budget <= 1024 else "medium" if budget <= 8192 else "high"


@dataclass(slots=True)
class _Call:
    """A call of the history, the id it is sent with, and its result once found."""

    call: FunctionCall
    at: int
    id: str
    response: FunctionResponse | None = None


class _Messages:
    """Contents -> messages. Pieces of a message's content stay a list until `build` ends."""

    def __init__(self, contents: Sequence[Content], dialect: Dialect) -> None:
        self._contents = contents
        self._dialect = dialect
        self._calls: dict[tuple[int, int], _Call] = {}
        self._answers: set[tuple[int, int]] = set()
        self._out: list[Json] = []

    def build(self, system: str) -> list[Json]:
        self._pair()
        if system:
            self._out.append({"role": "system", "content": system})
        for at, content in enumerate(self._contents):
            if content.role in ("model", "assistant") or content.calls:
                self._model(at, content)
            elif content.role in ("", "user", "tool", "function", "system", "developer"):
                role = "system" if content.role in ("system", "developer") else "user"
                self._add(role, self._pieces(at, content))
            else:
                raise BadRequest(f"contents[{at}] has the unknown role {content.role!r}", f"contents[{at}].role")
        for message in self._out:
            content = message["content"]
            if isinstance(content, list):
                message["content"] = _simplest(cast("list[Json]", content))
        return self._out

    def _pair(self) -> None:
        """Find the result of each call: by id, else by name, of the newest turn that still waits for one."""
        waiting: list[_Call] = []
        for at, content in enumerate(self._contents):
            for index, part in enumerate(content.parts):
                if part.function_call is not None:
                    call = part.function_call
                    paired = _Call(call, at, call.id or f"call_{at}_{index}")
                    self._calls[at, index] = paired
                    waiting.append(paired)
                elif part.function_response is not None:
                    found = _match(waiting, part.function_response)
                    if found is not None:
                        found.response = part.function_response
                        waiting.remove(found)
                        self._answers.add((at, index))

    def _model(self, at: int, content: Content) -> None:
        texts: list[str] = []
        others: list[Json] = []  # what only a user message may hold
        for piece in self._pieces(at, content):
            if piece["type"] == "text":
                texts.append(piece["text"])
            else:
                others.append(piece)
        calls = [self._calls[at, i] for i, part in enumerate(content.parts) if part.function_call is not None]
        message: Json = {"role": "assistant", "content": "".join(texts) or None}
        thoughts = "".join(part.text or "" for part in content.parts if part.thought)
        if thoughts and self._dialect.reasoning_content:
            message["reasoning_content"] = thoughts
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        if texts or calls:
            self._out.append(message)
        for call in calls:
            self._out.append({"role": "tool", "tool_call_id": call.id, "content": _result(call.response)})
            others += _attachments(call)
        self._add("user", others)

    def _add(self, role: str, pieces: list[Json]) -> None:
        """Add a message, or go on with the last one of that role: many chat templates want the roles to alternate."""
        if not pieces:
            return
        if self._out and self._out[-1]["role"] == role and isinstance(self._out[-1]["content"], list):
            self._out[-1]["content"] += pieces
        else:
            self._out.append({"role": role, "content": pieces})

    def _pieces(self, at: int, content: Content) -> list[Json]:
        out: list[Json] = []
        for index, part in enumerate(content.parts):
            if part.function_response is not None and (at, index) not in self._answers:
                response = part.function_response  # of no call, or a second one: it can only be told
                out.append(_text(f"Result of the tool {response.name}: {_json(response.response)}"))
            elif not part.thought:
                out += _piece(part, f"contents[{at}].parts[{index}]")
        return out


def _match(waiting: list[_Call], response: FunctionResponse) -> _Call | None:
    if response.id:
        fits = [c for c in waiting if c.call.id == response.id]
        fits = fits or [c for c in waiting if not c.call.id and c.call.name == response.name]
    else:
        fits = [c for c in waiting if c.call.name == response.name]
    newest = max((c.at for c in fits), default=-1)
    return next((c for c in fits if c.at == newest), None)


def _call(call: _Call) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.call.name, "arguments": _json(call.call.args)}}


def _result(response: FunctionResponse | None) -> str:
    return NO_RESULT if response is None else _json(response.response)


def _attachments(call: _Call) -> list[Json]:
    """Images and files in a tool's result: a tool message holds text only, so that a user message follows with them."""
    out: list[Json] = []
    for raw in call.response.parts if call.response is not None else ():
        part = raw if isinstance(raw, Part) else convert(raw, Part, unknown="drop")
        out += _piece(part, f"the result of tool {call.call.name}")
    return out


def _simplest(pieces: list[Json]) -> str | list[Json]:
    """One string where it can be one, for some servers know nothing else."""
    if all(piece["type"] == "text" for piece in pieces):
        return "\n".join(piece["text"] for piece in pieces)
    return pieces


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _piece(part: Part, where: str) -> list[Json]:
    """One part as content pieces; none for what is sent elsewhere or left out."""
    if part.text:
        return [_text(part.text)]
    if part.inline_data is not None:
        return [_blob(part.inline_data, where)]
    if part.file_data is not None:
        return [_file(part.file_data, where)]
    if part.executable_code is not None:
        return [_text(f"```{part.executable_code.language.lower()}\n{part.executable_code.code}\n```")]
    if part.code_execution_result is not None:
        return [_text(f"Output:\n```\n{part.code_execution_result.output}\n```")]
    return []


_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


def _blob(blob: Blob, where: str) -> Json:
    kind = blob.mime_type.partition(";")[0].strip().lower()
    if kind.startswith("text/") or kind == "application/json":
        return _text(blob.data.decode("utf-8", "replace"))
    data = base64.b64encode(blob.data).decode()
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    if kind in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO[kind]}}
    if kind == "application/pdf":
        name = blob.display_name or "document.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": f"data:{kind};base64,{data}"}}
    raise BadRequest(f"{where}: this model's API takes no data of type {blob.mime_type or 'unknown'!r}", where)


def _file(file: FileData, where: str) -> Json:
    uri, kind = file.file_uri, file.mime_type
    if uri.startswith("data:"):
        return _blob(_data_uri(uri, kind, where), where)
    if uri.startswith(("http://", "https://")) and (not kind or kind.startswith("image/")):
        return {"type": "image_url", "image_url": {"url": uri}}
    raise BadRequest(
        f"{where}: this model's API takes files only as image links (http, https, data); send {kind or 'it'} inline",
        where,
    )


def _data_uri(uri: str, kind: str, where: str) -> Blob:
    head, comma, data = uri[5:].partition(",")
    if not comma:
        raise BadRequest(f"{where}: a data: URI without a comma", where)
    kind = head.partition(";")[0] or kind or "text/plain"
    try:
        raw = base64.b64decode(unquote(data), validate=True) if head.endswith(";base64") else unquote_to_bytes(data)
    except binascii.Error:
        raise BadRequest(f"{where}: a data: URI that is not base64", where) from None
    return Blob(mime_type=kind, data=raw)
