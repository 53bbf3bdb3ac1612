"""A strict Chat Completions server on loopback, for tests of OpenAIModel and of the vendor's own client.

It answers what a test scripted and refuses every malformed request with 400 and a reason, as OpenAI's server does; it keeps the
bodies and headers that it saw. It knows only the parameters of the public API reference.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from aiohttp import web

_PARAMETERS = """
model messages tools tool_choice parallel_tool_calls response_format temperature top_p seed stop n stream stream_options
max_tokens max_completion_tokens presence_penalty frequency_penalty reasoning_effort user metadata logprobs
top_logprobs logit_bias store service_tier modalities
"""
PARAMETERS = frozenset(_PARAMETERS.split())
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Refused(Exception):
    """A malformed request; `param` as OpenAI names it."""

    def __init__(self, message: str, param: str = "") -> None:
        super().__init__(message)
        self.param = param


@dataclass
class Reply:
    """One scripted reply. `chunks` are written one by one; with `cut` the connection is then dropped."""

    status: int = 200
    chunks: list[bytes] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    hang: bool = False


def whole(body: dict[str, Any], status: int = 200, **headers: str) -> Reply:
    return Reply(status, [json.dumps(body).encode()], {"content-type": "application/json", **headers})


def refusal(status: int, message: str, param: str | None = None, **headers: str) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": None}
    return whole({"error": error}, status, **headers)


def events(*chunks: dict[str, Any], done: bool = True, cut: bool = False) -> Reply:
    """A stream with one event a chunk."""
    lines = [b"data: " + json.dumps(c, ensure_ascii=False).encode() + b"\n\n" for c in chunks]
    if done:
        lines.append(b"data: [DONE]\n\n")
    return Reply(200, lines, {"content-type": "text/event-stream"}, cut=cut)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake-1", "choices": choices}
    return {**base, **more}


def completion(message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, "logprobs": None}
    base = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "fake-1", "choices": [choice]}
    return {**base, **more}


USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


@dataclass
class FakeOpenAI:
    """`refuses` are parameters that this server does not know, beyond those that none knows."""

    replies: list[Reply]
    url: str = ""
    refuses: set[str] = field(default_factory=set)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    peers: list[Any] = field(default_factory=list)
    hung_up: anyio.Event = field(default_factory=anyio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self.peers.append(request.transport.get_extra_info("peername") if request.transport else None)
        try:
            check(body, self.refuses)
        except Refused as error:
            self.refused.append(str(error))
            reply = refusal(400, str(error), error.param or None)
        else:
            assert self.replies, "a request that the test did not script"
            reply = self.replies.pop(0)
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        await response.prepare(request)
        for piece in reply.chunks:
            await response.write(piece)
        if reply.hang:
            try:
                await anyio.sleep_forever()
            finally:
                self.hung_up.set()
        if reply.cut and request.transport is not None:
            request.transport.abort()
        return response


@asynccontextmanager
async def fake_openai(*replies: Reply, refuses: set[str] = frozenset()) -> AsyncIterator[FakeOpenAI]:
    """The server, running. At the end all scripted replies must have been used."""
    fake = FakeOpenAI(list(replies), refuses=set(refuses))
    app = web.Application()
    app.router.add_post("/v1/chat/completions", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield fake
    finally:
        await runner.cleanup()
    assert not fake.replies, f"{len(fake.replies)} scripted replies were not asked for"


def check(body: dict[str, Any], refuses: set[str]) -> None:
    """Raise Refused for anything that OpenAI's server would refuse."""
    for name in body:
        if name not in PARAMETERS or name in refuses:
            raise Refused(f"Unknown parameter: '{name}'.", name)
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Refused("you must provide a model parameter", "model")
    if not body.get("messages"):
        raise Refused("[] is too short - 'messages'", "messages")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise Refused("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if "max_tokens" in body and "max_completion_tokens" in body:
        raise Refused(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", "max_tokens"
        )
    check_tools(body)
    check_messages(body["messages"])
    if "response_format" in body:
        check_format(body["response_format"], body["messages"], refuses)


def check_tools(body: dict[str, Any]) -> None:
    names: set[str] = set()
    for tool in body.get("tools", []):
        function = tool.get("function", {})
        if set(tool) != {"type", "function"} or tool["type"] != "function":
            raise Refused("Invalid value: 'tools[0]'", "tools")
        if not NAME.fullmatch(function.get("name", "")):
            raise Refused("Invalid 'tools[0].function.name': string does not match pattern.", "tools")
        if function.get("parameters", {}).get("type") != "object":
            raise Refused('Invalid schema for function: schema must be of type "object"', "tools")
        names.add(function["name"])
    choice = body.get("tool_choice")
    if choice is not None and not names:
        raise Refused("Invalid value for 'tool_choice': only allowed when 'tools' are specified.", "tool_choice")
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        raise Refused("Invalid value for 'tool_choice'", "tool_choice")
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise Refused(f"Invalid value: '{choice}'.", "tool_choice")


def check_messages(messages: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for at, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                raise Refused(
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.", "messages"
                )
            if not isinstance(message.get("content"), str):
                raise Refused(f"messages[{at}].content must be a string", "messages")
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            raise Refused(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
                "messages",
            )
        if role == "assistant":
            waiting = check_assistant(message, at)
        elif role in ("user", "system", "developer"):
            check_content(message.get("content"), at, role)
        else:
            raise Refused(f"Invalid value: '{role}'. messages[{at}].role", "messages")
    if waiting:
        raise Refused("An assistant message with 'tool_calls' must be followed by tool messages", "messages")


def check_assistant(message: dict[str, Any], at: int) -> list[str]:
    if set(message) - {"role", "content", "tool_calls", "refusal", "name"}:
        raise Refused(f"Unknown parameter in messages[{at}]", "messages")
    calls = message.get("tool_calls")
    if calls is not None and not calls:
        raise Refused(f"[] is too short - 'messages.{at}.tool_calls'", "messages")
    if not calls and not isinstance(message.get("content"), str):
        raise Refused(f"Invalid value for 'content': expected a string, got null. messages[{at}]", "messages")
    for call in calls or []:
        if set(call) != {"id", "type", "function"} or not NAME.fullmatch(call["function"]["name"]):
            raise Refused(f"Invalid tool call in messages[{at}]", "messages")
        if not call["id"] or len(call["id"]) > 40 or not isinstance(json.loads(call["function"]["arguments"]), dict):
            raise Refused(f"Invalid tool call in messages[{at}]", "messages")
    return [call["id"] for call in calls or []]


PIECES = {"text": "text", "image_url": "image_url", "input_audio": "input_audio", "file": "file"}


def check_content(content: Any, at: int, role: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise Refused(f"Invalid type for 'messages[{at}].content'", "messages")
    for piece in content:
        kind = piece.get("type")
        if kind not in PIECES or set(piece) != {"type", PIECES[kind]} or (role != "user" and kind != "text"):
            raise Refused(f"Invalid content piece in messages[{at}]: {kind!r}", "messages")
        if kind == "image_url" and not re.match(r"https?://|data:image/", piece["image_url"]["url"]):
            raise Refused(f"Invalid image URL in messages[{at}]", "messages")


def check_format(wish: dict[str, Any], messages: list[dict[str, Any]], refuses: set[str]) -> None:
    kind = wish.get("type")
    if kind in refuses:
        raise Refused(f"Invalid parameter: 'response_format' of type '{kind}' is not supported.", "response_format")
    if kind == "json_object":
        if set(wish) != {"type"} or not any("json" in json.dumps(m["content"]).lower() for m in messages):
            raise Refused("'messages' must contain the word 'json' in some form, to use 'response_format'", "messages")
    elif kind == "json_schema":
        inner = wish.get("json_schema", {})
        if set(wish) != {"type", "json_schema"} or set(inner) - {"name", "schema", "strict", "description"}:
            raise Refused("Unknown parameter: 'response_format.response_schema'.", "response_format")
        if not NAME.fullmatch(inner.get("name", "")):
            raise Refused("Missing required parameter: 'response_format.json_schema.name'", "response_format")
        if inner.get("strict"):
            check_strict(inner["schema"], root=True)
    elif kind != "text":
        raise Refused(f"Invalid value: {kind!r}", "response_format")


_STRICT_WORDS = """
type properties required additionalProperties items anyOf $ref $defs definitions enum const title description
pattern format multipleOf maximum minimum exclusiveMaximum exclusiveMinimum minItems maxItems
"""
STRICT_WORDS = frozenset(_STRICT_WORDS.split())


def check_strict(schema: dict[str, Any], *, root: bool = False) -> None:
    def wrong(why: str) -> Refused:
        return Refused(f"Invalid schema for response_format: {why}", "response_format")

    if set(schema) - STRICT_WORDS:
        raise wrong(f"{sorted(set(schema) - STRICT_WORDS)} are not permitted")
    if root and schema.get("type") != "object":
        raise wrong("schema must be a JSON Schema of 'type: \"object\"'")
    if "$ref" in schema and len(schema) > 1:
        raise wrong("$ref cannot have keywords beside it")
    if not set(schema) & {"type", "anyOf", "$ref", "enum", "const"}:
        raise wrong("schema must have a 'type' key")
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            raise wrong("'additionalProperties' is required to be supplied and to be false")
        if set(schema.get("required", [])) != set(schema.get("properties", {})):
            raise wrong("'required' is required to be supplied and to be an array including every key in properties")
    for group in ("properties", "$defs", "definitions"):
        for item in schema.get(group, {}).values():
            check_strict(item)
    for item in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        check_strict(item)
