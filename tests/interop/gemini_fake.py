"""A strict Gemini API (REST) on loopback, for tests of GeminiModel and of the vendor's own client.

It answers what a test scripted, and refuses every malformed request with 400 and a google.rpc.Status, as the real one does;
it keeps what it saw. It wants each thought signature that it gave out back, byte for byte. It knows only the public reference.
"""

import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from aiohttp import web

KEY = "test-key-0123456789"

_REQUEST = "contents systemInstruction tools toolConfig safetySettings generationConfig cachedContent serviceTier store"
_GENERATION = """
stopSequences responseMimeType responseSchema responseJsonSchema responseModalities candidateCount maxOutputTokens temperature
topP topK seed presencePenalty frequencyPenalty responseLogprobs logprobs speechConfig thinkingConfig mediaResolution
"""
_FIELDS: dict[str, frozenset[str]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "request": _REQUEST,
        "content": "role parts",
        "part": "text inlineData fileData functionCall functionResponse executableCode codeExecutionResult"
        " thought thoughtSignature videoMetadata mediaResolution toolCall toolResponse",
        "inlineData": "mimeType data",
        "fileData": "mimeType fileUri",
        "functionCall": "id name args",
        "functionResponse": "id name response parts willContinue scheduling",
        "executableCode": "id language code",
        "codeExecutionResult": "id outcome output",
        "tool": "functionDeclarations googleSearch codeExecution urlContext googleMaps fileSearch",
        "declaration": "name description behavior parameters parametersJsonSchema response responseJsonSchema",
        "toolConfig": "functionCallingConfig retrievalConfig includeServerSideToolInvocations",
        "calling": "mode allowedFunctionNames",
        "generation": _GENERATION,
        "thinking": "includeThoughts thinkingBudget thinkingLevel",
    }.items()
}
_DATA = frozenset(
    {"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"}
)
_OPAQUE = frozenset({"args", "response", "parametersJsonSchema", "responseJsonSchema"})
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")


class Refused(Exception):
    """A malformed request."""


@dataclass
class Reply:
    """One scripted reply. `chunks` are written one by one; with `cut` the connection is then dropped, with `hang` kept."""

    status: int = 200
    chunks: list[bytes] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    hang: bool = False


@dataclass
class Seen:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Server:
    """`url` has no version. `hung_up` is set when a client left a hanging reply, `reached` when one began to hang."""

    replies: list[Reply]
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)
    reached: anyio.Event = field(default_factory=anyio.Event)
    hung_up: anyio.Event = field(default_factory=anyio.Event)

    def note_signatures(self, reply: Reply) -> None:
        for line in b"".join(reply.chunks).splitlines():
            try:
                chunk = json.loads(line.removeprefix(b"data: "))
            except ValueError:
                continue
            for candidate in chunk.get("candidates", []) if isinstance(chunk, dict) else []:
                for part in candidate.get("content", {}).get("parts", []):
                    if "functionCall" in part and "thoughtSignature" in part:
                        self.signatures[_call_key(part["functionCall"])] = part["thoughtSignature"]

    def check(self, model: str, body: Any) -> None:
        """Refused for what the API would not take."""
        _known("request", body, "")
        _check_contents(body.get("contents"))
        for content in body["contents"]:
            for part in content["parts"]:
                wanted = self.signatures.get(_call_key(part["functionCall"])) if "functionCall" in part else None
                if wanted is not None and part.get("thoughtSignature") != wanted:
                    raise Refused("Function call is missing a thought_signature in functionCall parts.")
        names = _check_tools(body)
        generation = _known("generation", body.get("generationConfig", {}), "generation_config")
        _known("thinking", generation.get("thinkingConfig", {}), "thinking_config")
        if ("responseJsonSchema" in generation) != (generation.get("responseMimeType") == "application/json"):
            raise Refused("response_json_schema is only supported with response_mime_type application/json")
        if "responseJsonSchema" in generation and names and not re.search(r"gemini-[3-9]", model):
            raise Refused("Function calling with a response mime type: 'application/json' is unsupported")


def whole(body: dict[str, Any], status: int = 200, **headers: str) -> Reply:
    return Reply(status, [json.dumps(body).encode()], {"content-type": "application/json", **headers})


def refusal(status: int, code: str, message: str, *details: dict[str, Any], **headers: str) -> Reply:
    error = {"code": status, "message": message, "status": code, "details": list(details)}
    return whole({"error": error}, status, **{k.replace("_", "-"): v for k, v in headers.items()})


def events(*chunks: dict[str, Any], cut: bool = False, hang: bool = False) -> Reply:
    """A stream with one event a chunk."""
    lines = [b"data: " + json.dumps(c, ensure_ascii=False).encode() + b"\r\n\r\n" for c in chunks]
    return Reply(200, lines, {"content-type": "text/event-stream"}, cut=cut, hang=hang)


def said(*parts: dict[str, Any], finish: str = "", **more: Any) -> dict[str, Any]:
    """An answer or a chunk with one candidate."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "fake-1", "responseId": "r1", **more}


@asynccontextmanager
async def serve(*replies: Reply) -> AsyncIterator[Server]:
    """The server, for as long as the block runs. Each request takes the next reply; too many are a 500."""
    server = Server(list(replies))

    async def handle(request: web.Request) -> web.StreamResponse:
        return await _handle(server, request)

    app = web.Application()
    app.router.add_post("/v1beta/{model:.+}:{method}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


async def _handle(server: Server, request: web.Request) -> web.StreamResponse:
    body = camel(await request.json())
    headers = {k.lower(): v for k, v in request.headers.items()}
    server.seen.append(Seen(request.path_qs, headers, body))
    stream = request.match_info["method"] == "streamGenerateContent"
    if "key" in request.query or headers.get("x-goog-api-key") != KEY:
        return _answer(refusal(400, "INVALID_ARGUMENT", f"API key {headers.get('x-goog-api-key')} not valid."))
    try:
        if stream and request.query.get("alt") != "sse":
            raise Refused("this server streams with alt=sse only")
        server.check(request.match_info["model"], body)
    except (Refused, KeyError, TypeError, AttributeError) as error:
        return _answer(refusal(400, "INVALID_ARGUMENT", str(error) or type(error).__name__))
    if not server.replies:
        return _answer(refusal(500, "INTERNAL", "no reply is scripted for this request"))
    reply = server.replies.pop(0)
    server.note_signatures(reply)
    if not (stream and reply.status == 200):
        return _answer(reply)
    response = web.StreamResponse(headers=reply.headers)
    await response.prepare(request)
    for chunk in reply.chunks:
        await response.write(chunk)
    if reply.hang:
        server.reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            server.hung_up.set()
    if reply.cut:
        assert request.transport is not None
        request.transport.abort()
    return response


def camel(value: Any) -> Any:
    """`value` with all member names in camel case, for the API takes both spellings; data of the user is left alone."""
    if isinstance(value, list):
        return [camel(v) for v in value]
    if not isinstance(value, dict):
        return value
    out: dict[str, Any] = {}
    for name, inner in value.items():
        first, *more = name.split("_")
        known = first + "".join(w.capitalize() for w in more)
        out[known] = inner if known in _OPAQUE else camel(inner)
    return out


def _answer(reply: Reply) -> web.Response:
    return web.Response(status=reply.status, body=b"".join(reply.chunks), headers=reply.headers)


def _known(kind: str, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"Invalid value at '{where}'")
    for name in value.keys() - _FIELDS[kind]:
        raise Refused(f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field.")
    return value


def _check_contents(contents: Any) -> None:
    if not isinstance(contents, list) or not contents:
        raise Refused("* GenerateContentRequest.contents: contents is not specified")
    open_calls: list[str] = []
    for i, content in enumerate(contents):
        where = f"contents[{i}]"
        _known("content", content, where)
        if content.get("role") not in ("user", "model"):
            raise Refused("Please use a valid role: user, model.")
        if not content.get("parts"):
            raise Refused(f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.")
        for j, part in enumerate(content["parts"]):
            _check_part(part, f"{where}.parts[{j}]")
        calls = [p["functionCall"]["name"] for p in content["parts"] if "functionCall" in p]
        responses = [p["functionResponse"]["name"] for p in content["parts"] if "functionResponse" in p]
        if (calls and content["role"] != "model") or (responses and content["role"] != "user"):
            raise Refused(f"{where}: function calls are the model's, function responses the user's")
        if responses != open_calls:
            raise Refused(
                "Please ensure that the number of function response parts is equal to the number of function call parts of"
                f" the function call turn. ({where}: {responses} for {open_calls})"
            )
        open_calls = calls
    if contents[-1]["role"] != "user":
        raise Refused("Please ensure that multiturn requests end with a user role or a function response.")


def _check_part(part: Any, where: str) -> None:
    _known("part", part, where)
    kinds = part.keys() & _DATA
    if len(kinds) > 1 or not (kinds or part.keys() & {"thoughtSignature", "toolCall", "toolResponse"}):
        raise Refused(f"{where}: exactly one of the oneof field 'data' must be initialized")
    for kind in kinds - {"text"}:
        _known(kind, part[kind], f"{where}.{kind}")
    if part.get("text") == "" and "thoughtSignature" not in part:
        raise Refused(f"{where}: must have a non-empty text")
    for kind in kinds & {"inlineData", "fileData"}:
        if not _TYPE.fullmatch(part[kind].get("mimeType", "")):
            raise Refused(f"Unsupported MIME type: {part[kind].get('mimeType')}")
    if "inlineData" in part:
        base64.b64decode(part["inlineData"]["data"], validate=True)
    if part.get("fileData", {}).get("fileUri", "").startswith("data:"):
        raise Refused("Unsupported file URI type: data:")
    if "functionResponse" in part and not isinstance(part["functionResponse"].get("response"), dict):
        raise Refused(f"{where}.function_response.response: a Struct is required")
    if part.get("functionCall", {}).get("id", "").startswith("adk-"):
        raise Refused(f"{where}.function_call.id: not one of ours")


def _check_tools(body: dict[str, Any]) -> list[str]:
    names: list[str] = []
    for tool in body.get("tools", []):
        _known("tool", tool, "tools")
        for declaration in tool.get("functionDeclarations", []):
            _known("declaration", declaration, "function_declarations")
            if not re.fullmatch(r"[A-Za-z_][\w.:-]{0,63}", declaration["name"]):
                raise Refused(f"Invalid function name {declaration['name']!r}")
            names.append(declaration["name"])
    if len(set(names)) != len(names):
        raise Refused("Duplicate function declaration found")
    if sum("functionDeclarations" in tool for tool in body.get("tools", [])) > 1:
        raise Refused("Multiple tools with function declarations")
    config = _known("toolConfig", body.get("toolConfig", {}), "tool_config")
    calling = _known("calling", config.get("functionCallingConfig", {}), "function_calling_config")
    if calling.get("mode", "AUTO") not in ("AUTO", "ANY", "NONE"):
        raise Refused(f"Invalid mode {calling['mode']}")
    allowed = calling.get("allowedFunctionNames", [])
    if allowed and (calling.get("mode") != "ANY" or not set(allowed) <= set(names)):
        raise Refused("allowed_function_names needs mode ANY and declared functions")
    return names


def _call_key(call: dict[str, Any]) -> str:
    return json.dumps([call.get("name"), call.get("args", {})], sort_keys=True)
