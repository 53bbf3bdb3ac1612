"""The Anthropic Messages API without I/O: a ModelRequest becomes request JSON, answers become ModelResponses.

Called by models/anthropic. Thinking is kept as thought parts whose `thought_signature` is the provider's signature text,
byte for byte (FR-086). Every chunk is decoded once, leniently: unknown events, blocks and fields are ignored. Shapes are
those of the `anthropic` SDK's types. Never waits, never touches stored history.
"""

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from polyport.data.content import Content, FunctionCall, Part
from polyport.data.model import ModelResponse, Usage
from polyport.errors import ModelError
from polyport.seams import new_uuid
from polyport.wire.answer import Answer
from polyport.wire.anthropic_request import MAX_TOKENS, REDACTED, encode_request, max_tokens

__all__ = ["MAX_TOKENS", "AnthropicDecoder", "decode_response", "encode_request", "error_code", "max_tokens"]

_STOPS = {
    "end_turn": "STOP",
    "stop_sequence": "STOP",
    "tool_use": "STOP",
    "max_tokens": "MAX_TOKENS",
    "model_context_window_exceeded": "MAX_TOKENS",
    "refusal": "SAFETY",
}
_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use")
_DELTAS = ("text_delta", "thinking_delta", "signature_delta", "input_json_delta")
_EVENTS = frozenset(
    {
        "message",  # the name of an event without a name
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
    }
)


class _Details(Struct):
    thinking_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


class _Block(Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: Any = None

    @property
    def said(self) -> str:
        """The text that comes with the block itself."""
        return (self.text if self.type == "text" else self.thinking if self.type == "thinking" else "") or ""


class _StopDetails(Struct):
    explanation: str | None = None


class _Message(Struct):
    model: str | None = None
    content: list[Any] = []
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None
    usage: _Usage | None = None


class _Delta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Error(Struct):
    type: str = ""
    message: str = ""


class _Event(Struct):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: Any = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: _Error | None = None


def _block(raw: Any) -> _Block | None:
    """A block of a type that we know, or None."""
    if not isinstance(raw, dict) or cast("dict[str, Any]", raw).get("type") not in _BLOCKS:
        return None
    return msgspec.convert(raw, _Block)


def _is_foreign_delta(event: str, data: str) -> bool:
    """Whether a chunk that did not decode is a delta of a type that we do not know."""
    try:
        raw: Any = msgspec.json.decode(data)
        return event == "content_block_delta" and raw["delta"]["type"] not in _DELTAS
    except (msgspec.DecodeError, RecursionError, TypeError, KeyError):
        return False


_events = msgspec.json.Decoder(_Event)
_messages = msgspec.json.Decoder(_Message)


class _Said(Struct, eq=False):
    """One content block as far as it has come."""

    block: _Block
    pieces: list[str] = []
    call: FunctionCall | None = None

    def close(self, new_id: Callable[[], str]) -> FunctionCall | None:
        """The call of a whole tool_use block; None when it is none, or when its arguments are no whole JSON object."""
        if self.block.type == "tool_use" and self.call is None:
            text = "".join(self.pieces)
            try:
                args: Any = msgspec.json.decode(text) if text.strip() else self.block.input or {}
            except (msgspec.DecodeError, RecursionError):
                args = None
            if isinstance(args, dict):
                call_id = self.block.id or f"call_{new_id()}"
                self.call = FunctionCall(id=call_id, name=self.block.name or "", args=cast("dict[str, Any]", args))
        return self.call


class AnthropicDecoder:
    """The events of one streamed answer in, partial responses out; `finish()` gives the whole.

    Deltas are sorted by the index of their block, and a delta that does not fit its block's type is ignored. `new_id` makes
    an id for a call that has none; a call has the same id in its partial and in the whole (FR-068).
    """

    def __init__(self, new_id: Callable[[], str] = new_uuid) -> None:
        self._new_id = new_id
        self._said: dict[int, _Said] = {}
        self._message = _Message()
        self.done = False
        """Whether message_stop has come."""

    def feed(self, event: str, data: str) -> list[ModelResponse]:
        """The partials of one server-sent event. ModelError for an `error` event (its type is the code) and for nonsense."""
        if event not in _EVENTS or data == "[DONE]":
            return []
        try:
            chunk = _events.decode(data)
            block = _block(chunk.content_block) if chunk.content_block else None
        except (msgspec.DecodeError, RecursionError) as error:
            if _is_foreign_delta(event, data):
                return []
            raise _nonsense(error) from None
        kind = chunk.type or event
        if kind == "content_block_delta" and chunk.delta is not None:
            return self._delta(chunk.index, chunk.delta)
        if kind == "content_block_start" and block is not None:
            return self._start(chunk.index, block)
        if kind == "content_block_stop":
            said = self._said.get(chunk.index)
            call = said.close(self._new_id) if said else None
            return [_partial(Part(function_call=call))] if call else []
        if kind == "message_start" and chunk.message is not None:
            self._message = chunk.message
        elif kind == "message_delta":
            self._end(chunk)
        elif kind == "message_stop":
            self.done = True
        elif kind == "error":
            problem = chunk.error or _Error()
            raise ModelError(
                f"the model's server broke the answer off: {problem.type}: {problem.message}",
                code=problem.type or "ERROR",
            )
        return []

    def _start(self, index: int, block: _Block) -> list[ModelResponse]:
        self._said[index] = _Said(block)
        return self._add(self._said[index], block.said)

    def _delta(self, index: int, delta: _Delta) -> list[ModelResponse]:
        said = self._said.get(index)
        kind = said.block.type if said else ""
        if said is None:
            return []
        if delta.type == "text_delta" and kind == "text":
            return self._add(said, delta.text)
        if delta.type == "thinking_delta" and kind == "thinking":
            return self._add(said, delta.thinking)
        if delta.type == "signature_delta" and kind == "thinking":
            said.block.signature = delta.signature
        elif delta.type == "input_json_delta" and kind == "tool_use":
            said.pieces.append(delta.partial_json)
        return []

    def _add(self, said: _Said, text: str) -> list[ModelResponse]:
        if not text or said.block.type not in ("text", "thinking"):
            return []
        said.pieces.append(text)
        return [_partial(Part(text=text, thought=said.block.type == "thinking"))]

    def _end(self, chunk: _Event) -> None:
        message, delta = self._message, chunk.delta
        if delta is not None:
            message.stop_reason = delta.stop_reason or message.stop_reason
            message.stop_details = delta.stop_details or message.stop_details
        if chunk.usage is not None:  # totals so far, not additions; what is absent keeps its value
            newer = {k: v for k, v in structs.asdict(chunk.usage).items() if v is not None}
            message.usage = structs.replace(message.usage or _Usage(), **newer)

    def finish(self) -> ModelResponse:
        """The whole answer. ModelError when the stream ended before the answer did."""
        if not self.done and self._message.stop_reason is None:
            raise ModelError("the model's server ended the stream before the answer was whole", code="UNAVAILABLE")
        return _whole(self._message, [said for _, said in sorted(self._said.items())], self._new_id)


def decode_response(body: bytes, new_id: Callable[[], str] = new_uuid) -> ModelResponse:
    """The whole answer of a request that did not stream. ModelError when `body` is no message."""
    try:
        message = _messages.decode(body)
        blocks = [_block(raw) for raw in message.content]
    except (msgspec.DecodeError, RecursionError) as error:
        raise _nonsense(error) from None
    return _whole(message, [_Said(block, [block.said]) for block in blocks if block is not None], new_id)


def error_code(text: str) -> str:
    """The provider's word for an error, such as `overloaded_error`, out of text that holds its error body; or ""."""
    found = re.search(r'"error"\s*:\s*\{[^{}]*?"type"\s*:\s*"(\w+)"', text)
    return found[1] if found else ""


def _partial(part: Part) -> ModelResponse:
    return ModelResponse(partial=True, content=Content(role="model", parts=[part]))


def _nonsense(error: Exception) -> ModelError:
    return ModelError(f"the model's server sent what is not of the Messages API: {error}", code="MALFORMED_ANSWER")


def _whole(message: _Message, blocks: list[_Said], new_id: Callable[[], str]) -> ModelResponse:
    answer = Answer()
    answer.model_version = message.model or ""
    answer.usage = _usage(message.usage)
    answer.finish_reason = _STOPS.get(message.stop_reason, "OTHER") if message.stop_reason else ""
    for said in blocks:
        # A call without arguments at the very end of a cut answer lost them: it must not run.
        cut = said is blocks[-1] and answer.finish_reason == "MAX_TOKENS"
        _add(answer, said, new_id, cut)
    response = _without_call_signatures(answer.response())
    if response.content is None and not response.error_code and response.finish_reason not in ("", "STOP"):
        why = message.stop_details.explanation if message.stop_details else None
        response = structs.replace(
            response,
            error_code=response.finish_reason,
            error_message=why or f"the model stopped with {message.stop_reason} and said nothing",
        )
    return response


def _add(answer: Answer, said: _Said, new_id: Callable[[], str], cut: bool) -> None:
    block, text = said.block, "".join(said.pieces)
    if block.type == "text":
        answer.text(text)
    elif block.type == "thinking":
        answer.text(text, thought=True, signature=(block.signature or "").encode() or None)
    elif block.type == "redacted_thinking":
        data = (block.data or "").encode()
        answer.part(Part(text="", thought=True, thought_signature=data, part_metadata=REDACTED))
    elif block.type == "tool_use":
        call = said.close(new_id)
        if call is not None and (call.args or not cut):
            answer.call(call)
        else:
            answer.error_code = "MALFORMED_FUNCTION_CALL" if answer.finish_reason == "STOP" else answer.finish_reason
            answer.error_message = f"the model's call of {block.name!r} is left out: its arguments are not whole"


def _without_call_signatures(response: ModelResponse) -> ModelResponse:
    """Signatures belong to thinking here; Answer also puts them on calls, as Gemini wants it."""
    if response.content is None or not any(p.function_call and p.thought_signature for p in response.content.parts):
        return response
    parts = [structs.replace(p, thought_signature=None) if p.function_call else p for p in response.content.parts]
    return structs.replace(response, content=structs.replace(response.content, parts=parts))


def _usage(usage: _Usage | None) -> Usage | None:
    """In our words: the prompt includes what was read from and written to the cache, thoughts are not candidates."""
    if usage is None:
        return None
    counts = (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    prompt = sum(n or 0 for n in counts)
    output = usage.output_tokens or 0
    thoughts = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else None
    return Usage(
        prompt_token_count=prompt,
        candidates_token_count=output - (thoughts or 0),
        total_token_count=prompt + output,
        cached_content_token_count=usage.cache_read_input_tokens,
        thoughts_token_count=thoughts,
    )
