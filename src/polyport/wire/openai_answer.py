"""Answers of the Chat Completions API, whole or streamed, as ModelResponses.

Used by `models/openai` with the data strings of `wire/sse`. One Struct reads both forms; fields that it does not know are
ignored, for each server has its own. Never does I/O. The requests are in `wire/openai`.

Arguments that are no JSON object, even after the usual repairs, become a call with the one argument INVALID_ARGS that holds the
model's text: the engine answers such a call with an error, which the model can correct, and never runs the tool.
"""

import json
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from polyport.data.content import INVALID_ARGS, Content, FunctionCall, Part
from polyport.data.model import ModelResponse, Usage
from polyport.errors import ModelError
from polyport.seams import REAL
from polyport.wire.answer import Answer

_FINISH = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
"""finish_reason -> Gemini's word (FR-076); others are OTHER."""


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(Struct):
    """A whole message or a delta of one."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct):
    index: int | None = None
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _Details(Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Chunk(Struct):
    id: str | None = None
    object: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    message: Any = None
    code: Any = None


_read = msgspec.json.Decoder(_Chunk).decode


class _Slot:
    """A tool call that is being streamed."""

    __slots__ = ("arguments", "id", "index", "name", "sent_id")

    def __init__(self, index: int | None, sent_id: str, id: str) -> None:
        self.index = index
        self.sent_id = sent_id
        self.id = id
        self.name = ""
        self.arguments: list[str] = []


class AnswerDecoder:
    """Feed it the data of each server-sent event, take `finish()` when the stream has ended."""

    def __init__(self, new_id: Callable[[], str] = REAL.new_id) -> None:
        self._new_id = new_id
        self._answer = Answer()
        self._slots: list[_Slot] = []
        self._response_id = ""
        self.started = False
        """Whether anything has come: from then on the question must not be asked again."""
        self.done = False
        """Whether the server said that nothing follows."""

    def feed(self, data: str | bytes) -> list[ModelResponse]:
        """The pieces in one event: none or one. Raises ModelError for an error in it, or for nonsense."""
        if data == "[DONE]" or not data:
            self.done = self.done or bool(data)
            return []
        chunk = self._chunk(data)
        parts: list[Part] = []
        for choice in chunk.choices or ():
            if choice.index:
                continue  # of n answers the first counts
            said = choice.delta or choice.message
            if said is not None:
                parts += self._said(said)
            if choice.finish_reason:
                self._answer.finish_reason = _FINISH.get(choice.finish_reason, "OTHER")
        if not parts:
            return []
        return [ModelResponse(content=Content(role="model", parts=parts), partial=True)]

    def finish(self) -> ModelResponse:
        """The whole answer. ModelError when the stream ended before the server said that it was complete (FR-025)."""
        answer = self._answer
        if not (self.done or answer.finish_reason):
            raise ModelError("the model's stream ended before the answer was complete", code="INCOMPLETE")
        answer.finish_reason = answer.finish_reason or "STOP"
        for slot in self._slots:
            answer.call(FunctionCall(id=slot.id, name=slot.name, args=read_args("".join(slot.arguments))))
        self._slots = []
        if self._response_id:
            answer.custom_metadata = {"openai_response_id": self._response_id, "openai_model": answer.model_version}
        whole = answer.response()
        if whole.content is None and whole.finish_reason != "STOP":
            why = f"the model gave no answer ({whole.finish_reason})"
            return structs.replace(whole, error_code=whole.finish_reason, error_message=why)
        return whole

    def _chunk(self, data: str | bytes) -> _Chunk:
        try:
            chunk = _read(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ModelError(f"the model's server sent no chat completion: {error}", code="BAD_ANSWER") from None
        if chunk.error or chunk.object == "error":
            raise _provider_error(chunk)
        self.started = True
        self._response_id = chunk.id or self._response_id
        self._answer.model_version = chunk.model or self._answer.model_version
        if chunk.usage is not None:
            self._answer.usage = _usage(chunk.usage)
        return chunk

    def _said(self, said: _Message) -> list[Part]:
        pieces: list[tuple[str, bool]] = []
        thought = said.reasoning_content or (said.reasoning if isinstance(said.reasoning, str) else "")
        if thought:
            pieces.append((thought, True))
        if isinstance(said.content, str):
            pieces.append((said.content, False))
        elif said.content:
            pieces += _listed(said.content)
        if said.refusal:
            pieces.append((said.refusal, False))
        for call in said.tool_calls or ():
            self._called(call)
        parts: list[Part] = []
        for text, is_thought in pieces:
            if text:
                self._answer.text(text, thought=is_thought)
                parts.append(Part(text=text, thought=is_thought))
        return parts

    def _called(self, delta: _ToolCall) -> None:
        function = delta.function or _Function()
        slot = self._slot(delta, function)
        if slot is None:
            slot = _Slot(delta.index, delta.id or "", delta.id or f"adk-{self._new_id()}")
            self._slots.append(slot)
        elif delta.id and not slot.sent_id:
            slot.id = slot.sent_id = delta.id
        if function.name and function.name != slot.name:  # some servers repeat the name in each piece
            slot.name += function.name
        if isinstance(function.arguments, dict):
            slot.arguments.append(json.dumps(function.arguments))
        elif function.arguments:
            slot.arguments.append(function.arguments)

    def _slot(self, delta: _ToolCall, function: _Function) -> _Slot | None:
        """The call that a piece goes on with. Told by index; but a new id is a new call, for some servers number every
        call 0, and some give no index at all."""
        if delta.id and (same := next((s for s in self._slots if s.sent_id == delta.id), None)):
            return same if delta.index is None or same.index == delta.index else None
        if delta.index is not None:
            slot = next((s for s in reversed(self._slots) if s.index == delta.index), None)
            return None if slot is not None and delta.id and slot.sent_id else slot
        if delta.id or function.name or not self._slots:
            return None
        return self._slots[-1]


def decode_answer(body: bytes, new_id: Callable[[], str] = REAL.new_id) -> ModelResponse:
    """The answer in the body of a reply that was not streamed. Raises ModelError for an error in it, or for nonsense."""
    decoder = AnswerDecoder(new_id)
    decoder.feed(body or b" ")
    decoder.done = True
    return decoder.finish()


def read_args(text: str) -> dict[str, Any]:
    """A call's arguments. Repaired are: nothing at all, raw line breaks in strings, an object inside a string."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, strict=False)
        if isinstance(value, str):
            value = json.loads(value, strict=False)
    except (ValueError, RecursionError):
        return {INVALID_ARGS: text}
    if value is None:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {INVALID_ARGS: text}


def _listed(content: list[Any]) -> list[tuple[str, bool]]:
    """Content given as a list of pieces, as Mistral's reasoning models do."""
    out: list[tuple[str, bool]] = []
    for item in content:
        piece = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        if isinstance(piece.get("text"), str):
            out.append((piece["text"], False))
        elif isinstance(piece.get("thinking"), list):
            out += [(text, True) for text, _ in _listed(piece["thinking"])]
    return out


def _usage(usage: _Usage) -> Usage:
    """In Gemini's terms: the tokens of thoughts are not part of the candidates' tokens, so that both add up."""
    thoughts = usage.completion_tokens_details.reasoning_tokens if usage.completion_tokens_details else None
    said = usage.completion_tokens
    total = usage.total_tokens
    if total is None and usage.prompt_tokens is not None and said is not None:
        total = usage.prompt_tokens + said
    return Usage(
        prompt_token_count=usage.prompt_tokens,
        candidates_token_count=max(0, said - thoughts) if said is not None and thoughts else said,
        total_token_count=total,
        cached_content_token_count=usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None,
        thoughts_token_count=thoughts,
    )


def _provider_error(chunk: _Chunk) -> ModelError:
    """The error object of a server, in any of the shapes in use."""
    error: Any = chunk.error or {"message": chunk.message, "code": chunk.code}
    if not isinstance(error, dict):
        return ModelError(f"the model's server failed: {str(error)[:2000]}")
    known = cast("dict[str, Any]", error)
    code = known.get("code") or known.get("type") or ""
    number = code if isinstance(code, int) else int(code) if isinstance(code, str) and code.isdigit() else 0
    word = "" if number else str(code)
    return ModelError(
        f"the model's server failed: {str(known.get('message') or word or number)[:2000]}",
        http_status=number if 400 <= number < 600 else 0,
        code=word,
    )
