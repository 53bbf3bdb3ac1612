"""A strict server of the Anthropic Messages API on loopback, for tests.

It answers from a script and refuses, as the real one does, with 400 and a reason, whatever is malformed: turns that do not
alternate, calls that are not answered at once and exactly once, thinking that does not come back as it was sent, unknown
parameters. `check` is usable by itself. Leftover replies fail on exit.
"""

import base64
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web

KEY = "sk-ant-test-0123456789abcdef"
PARAMETERS = {
    "model", "messages", "max_tokens", "system", "temperature", "top_p", "top_k", "stop_sequences", "stream", "tools",
    "tool_choice", "thinking", "output_config", "metadata", "cache_control", "service_tier", "container",
}  # fmt: skip
CONSTRAINTS = {"minimum", "maximum", "minLength", "maxLength", "maxItems", "multipleOf", "pattern", "default", "oneOf"}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
ID = re.compile(r"[a-zA-Z0-9_-]+")


class Refused(Exception):
    """The request is malformed; the message says how."""


def need(fine: object, reason: str) -> None:
    if not fine:
        raise Refused(reason)


def sse(*events: dict[str, Any]) -> bytes:
    """The events of a stream as bytes, each named by its type."""
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n".encode() for e in events)


def message(*content: dict[str, Any], stop: str = "end_turn", usage: dict[str, Any] | None = None) -> dict[str, Any]:
    """A whole answer."""
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-1", "content": list(content),
        "stop_reason": stop, "stop_sequence": None, "usage": usage or {"input_tokens": 3, "output_tokens": 5},
    }  # fmt: skip


def as_events(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The same answer as the events of a stream."""
    usage = whole["usage"]
    start = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        empty, deltas = _deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": usage["output_tokens"]},
        }
    )
    return [*events, {"type": "message_stop"}]


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        half = len(block["text"]) // 2
        pieces = (block["text"][:half], block["text"][half:])
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": t} for t in pieces]
    if block["type"] == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if block["type"] == "tool_use":
        args = json.dumps(block["input"]) if block["input"] else ""
        pieces = ("", args[:5], args[5:]) if args else ()
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": p} for p in pieces]
    return block, []


def call_of(id: str, name: str, **args: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": args}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


THINKING = {"type": "thinking", "thinking": "Ich grüble 🤔", "signature": "EqQBCgIYAhIM+/=="}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgB=="}
USAGE = {
    "input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7, "output_tokens": 50,
}  # fmt: skip
MIXED = message(
    THINKING, REDACTED, said("Schön 🎉"), call_of("toolu_1", "get", ort="Köln", n=[1, {"x": None}]),
    call_of("toolu_2", "now"), said("after"), stop="tool_use", usage=USAGE,
)  # fmt: skip


# ---------------------------------------------------------------- what is refused


def check(body: dict[str, Any], sent: dict[str, list[dict[str, Any]]] | None = None) -> None:
    """Refused when the real API would answer 400. `sent` maps the id of a call that this server made to the thinking blocks
    that came before it: they must come back as they were."""
    unknown = body.keys() - PARAMETERS
    need(not unknown, f"{sorted(unknown)}: Extra inputs are not permitted")
    need(isinstance(body.get("model"), str) and body["model"], "model: Field required")
    limit = body.get("max_tokens")
    need(isinstance(limit, int) and limit > 0, "max_tokens: Field required")
    need(body.get("system", "x").strip(), "system: text content blocks must be non-empty")
    _check_tools(body)
    _check_thinking(body)
    config = body.get("output_config", {})
    need(config.keys() <= {"format", "effort"}, "output_config: Extra inputs are not permitted")
    if "format" in config:
        need(config["format"].keys() == {"type", "schema"} and config["format"]["type"] == "json_schema", "format")
        _check_schema(config["format"]["schema"])
    messages = body.get("messages")
    need(isinstance(messages, list) and messages, "messages: at least one message is required")
    assert isinstance(messages, list)
    _check_messages(messages, sent or {})


def _check_tools(body: dict[str, Any]) -> None:
    names = [t.get("name", "") for t in body.get("tools", [])]
    need(len(names) == len(set(names)), "tools: Tool names must be unique")
    for tool in body.get("tools", []):
        need(NAME.fullmatch(tool["name"]), f"tools: name {tool['name']!r} should match pattern")
        if "type" not in tool:
            need(tool.get("input_schema", {}).get("type") == "object", "tools: input_schema.type: Field required")
    choice = body.get("tool_choice")
    if choice is not None:
        need(names, "tool_choice may only be specified while providing tools")
        need(choice.get("type") in ("auto", "any", "none", "tool"), "tool_choice: unknown type")
        need(choice["type"] != "tool" or choice.get("name") in names, "tool_choice: tool not found")


def _check_thinking(body: dict[str, Any]) -> None:
    thinking = body.get("thinking")
    if thinking is None or thinking == {"type": "disabled"}:
        return
    need(thinking.get("type") in ("enabled", "adaptive"), "thinking.type")
    if thinking["type"] == "enabled":
        need(1024 <= thinking.get("budget_tokens", 0) < body["max_tokens"], "thinking.budget_tokens")
    need(body.get("temperature", 1) == 1, "temperature may only be set to 1 when thinking is enabled")
    forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    need(not forced, "Thinking may not be enabled when tool_choice forces tool use")


def _check_schema(schema: Any) -> None:
    if isinstance(schema, list):
        for item in schema:
            _check_schema(item)
    if not isinstance(schema, dict):
        return
    bad = schema.keys() & CONSTRAINTS
    need(not bad, f"output_config.format.schema: {sorted(bad)} not supported")
    need(not isinstance(schema.get("type"), list), "output_config.format.schema: a list of types is not supported")
    if schema.get("type") == "object":
        need(schema.get("additionalProperties") is False, "'additionalProperties' must be explicitly set to false")
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            for item in value.values():
                _check_schema(item)
        else:
            _check_schema(value)


def _check_messages(messages: list[dict[str, Any]], sent: dict[str, list[dict[str, Any]]]) -> None:
    need(messages[0]["role"] == "user", "messages: first message must use the user role")
    need(messages[-1]["role"] == "user", "this model does not support assistant message prefill")
    seen: set[str] = set()
    waiting: list[str] = []
    for at, said in enumerate(messages):
        where = f"messages.{at}"
        need(said.keys() == {"role", "content"}, f"{where}: role and content")
        need(said["role"] == ("user", "assistant")[at % 2], f"{where}: roles must alternate")
        blocks = said["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        need(blocks, f"{where}: content must be non-empty")
        for block in blocks:
            _check_block(block, said["role"], where)
        if said["role"] == "assistant":
            need(blocks[-1]["type"] not in ("thinking", "redacted_thinking"), f"{where}: final block is thinking")
            waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
            need(len({*waiting}) == len(waiting) and not seen & {*waiting}, f"{where}: `tool_use` ids must be unique")
            seen |= {*waiting}
            _check_replay(blocks, sent, where)
        else:
            results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
            first = [b.get("tool_use_id") for b in blocks[: len(results)]]
            need(first == results, f"{where}: tool_result blocks must come first")
            need(sorted(results) == sorted(waiting), f"{where}: {waiting} need one `tool_result` each, got {results}")
            waiting = []


def _check_replay(blocks: list[dict[str, Any]], sent: dict[str, list[dict[str, Any]]], where: str) -> None:
    for at, block in enumerate(blocks):
        if block["type"] == "tool_use" and block["id"] in sent:
            before = [b for b in blocks[:at] if b["type"] in ("thinking", "redacted_thinking")]
            need(before == sent[block["id"]], f"{where}: thinking blocks cannot be modified")


def _check_block(block: dict[str, Any], role: str, where: str) -> None:
    kind = block.get("type")
    kinds = ("text", "image", "document", "tool_result") if role == "user" else (
        "text", "thinking", "redacted_thinking", "tool_use",
    )  # fmt: skip
    need(kind in kinds, f"{where}: block type {kind!r} is not allowed for {role}")
    if kind == "text":
        need(block["text"].strip(), f"{where}: text content blocks must contain non-whitespace text")
    elif kind in ("image", "document"):
        _check_source(kind, block["source"], where)
    elif kind == "thinking":
        need(block.keys() == {"type", "thinking", "signature"} and block["signature"], f"{where}: signature")
    elif kind == "redacted_thinking":
        need(block.keys() == {"type", "data"} and block["data"], f"{where}: data")
    elif kind == "tool_use":
        need(ID.fullmatch(block["id"]), f"{where}: id {block['id']!r} should match pattern")
        need(NAME.fullmatch(block["name"]) and isinstance(block["input"], dict), f"{where}: tool_use")
    elif kind == "tool_result":
        need(block.keys() <= {"type", "tool_use_id", "content", "is_error"}, f"{where}: tool_result keys")
        need(ID.fullmatch(block["tool_use_id"]), f"{where}: tool_use_id should match pattern")
        for inner in block["content"] if isinstance(block["content"], list) else []:
            need(inner["type"] != "tool_result", f"{where}: nested tool_result")
            _check_block(inner, "user", where)


def _check_source(kind: str, source: dict[str, Any], where: str) -> None:
    if source["type"] == "base64":
        images = ("image/png", "image/jpeg", "image/gif", "image/webp")
        need(source["media_type"] in (images if kind == "image" else ("application/pdf",)), f"{where}: media_type")
        need(base64.b64decode(source["data"], validate=True), f"{where}: data")
    elif source["type"] == "text":
        need(kind == "document" and source["media_type"] == "text/plain" and source["data"], f"{where}: text source")
    else:
        need(source["type"] == "url" and source["url"].startswith("http"), f"{where}: source")


# ---------------------------------------------------------------- the server


@dataclass
class Reply:
    """What to answer. Bytes in `chunks` are sent one by one, and the connection is cut after them if `cut`."""

    chunks: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cut: bool = False
    before_chunk: Callable[[int], Awaitable[None]] | None = None


def stream(*events: dict[str, Any], cut: bool = False) -> Reply:
    return Reply([sse(e) for e in events], headers={"content-type": "text/event-stream; charset=utf-8"}, cut=cut)


def whole(body: dict[str, Any]) -> Reply:
    return Reply([json.dumps(body).encode()], headers={"content-type": "application/json"})


def error(status: int, kind: str, text: str, **headers: str) -> Reply:
    body = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}
    return Reply(
        [json.dumps(body).encode()],
        status=status,
        headers={"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}},
    )


class AnthropicFake:
    """`async with AnthropicFake() as fake: fake.script(...)`. An answer (`message(...)`) in the script is streamed or not, as
    the request wants it."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.peers: list[int] = []
        """The client's port of each request."""
        self._replies: list[Reply | dict[str, Any]] = []
        self._sent: dict[str, list[dict[str, Any]]] = {}
        self.url = ""

    def script(self, *replies: Reply | dict[str, Any]) -> None:
        self._replies += replies

    async def __aenter__(self) -> "AnthropicFake":
        app = web.Application()
        app.router.add_post("/v1/messages", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        if kind is None:
            assert not self._replies, f"replies that nobody asked for: {self._replies}"

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        assert request.transport is not None
        self.peers.append(request.transport.get_extra_info("peername")[1])
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        reply = self._answer(request, body)
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        await response.prepare(request)
        for at, chunk in enumerate(reply.chunks):
            if reply.before_chunk is not None:
                await reply.before_chunk(at)
            await response.write(chunk)
        if reply.cut:
            request.transport.close()
        else:
            await response.write_eof()
        return response

    def _answer(self, request: web.Request, body: dict[str, Any]) -> Reply:
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if key != KEY:
            return error(401, "authentication_error", f"invalid x-api-key {key}")
        try:
            version = request.headers.get("anthropic-version")
            need(version in ("2023-06-01", "2026-10-21"), "anthropic-version: header is required")
            sampling = body.keys() & {"temperature", "top_p", "top_k"}
            need(version == "2023-06-01" or not sampling, f"{sorted(sampling)}: Extra inputs are not permitted")
            check(body, self._sent)
        except Refused as refused:
            return error(400, "invalid_request_error", str(refused))
        assert self._replies, f"nobody expected this request: {body}"
        reply = self._replies.pop(0)
        if isinstance(reply, Reply):
            return reply
        thinking: list[dict[str, Any]] = []
        for block in reply["content"]:
            if block["type"] in ("thinking", "redacted_thinking"):
                thinking.append(block)
            elif block["type"] == "tool_use":
                self._sent[block["id"]] = list(thinking)
        return stream(*as_events(reply)) if body.get("stream") else whole(reply)
