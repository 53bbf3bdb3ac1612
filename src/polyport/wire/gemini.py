"""Answers of the Gemini API (REST, v1beta) as pure functions and one stream reader: bytes to ModelResponses.

Used by `models/gemini.py`. The API's Content is our Content; members that we do not know are dropped. Sources: the API's
reference, spec core 3.13. Never does I/O; requests are made by `wire/gemini_request.py`.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from polyport import codec
from polyport.data.content import Content, Part
from polyport.data.model import ModelResponse, Usage
from polyport.errors import BadRequest, ModelError
from polyport.wire.answer import Answer
from polyport.wire.gemini_args import StreamedCall
from polyport.wire.gemini_request import MADE_ID
from polyport.wire.sse import SseDecoder


class _Usage(Usage, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Usage with members that we do not know, so that they do not cost the fast path."""


class _Candidate(Struct, rename="camel"):
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    grounding_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None
    logprobs_result: dict[str, Any] | None = None
    avg_logprobs: float | None = None


class _Feedback(Struct, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Fault(Struct, rename="camel"):
    """google.rpc.Status."""

    code: int = 0
    message: str = ""
    status: str = ""
    details: list[Any] = []


class _Chunk(Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    error: _Fault | None = None


def read_answer(body: bytes, new_id: Callable[[], str]) -> ModelResponse:
    """The answer of `generateContent`. Parts stay as they came, but calls without an id get one.

    ModelError when there is neither a candidate nor a reason for its absence.
    """
    chunk = _decode(body)
    reply = _read(chunk)
    if not chunk.candidates and not reply.error_code:
        raise ModelError("the model's server answered without a candidate", code="NO_ANSWER")
    if reply.content is None:
        return reply
    parts = [_with_id(p, new_id) for p in reply.content.parts if not p.empty]
    return _settled(structs.replace(reply, content=Content(role="model", parts=parts)))


def _settled(reply: ModelResponse) -> ModelResponse:
    """A whole answer: one that ended well has a content, one that says nothing and did not end well has an error."""
    if reply.content is not None and reply.content.parts:
        return reply
    if reply.finish_reason == "STOP":
        return structs.replace(reply, content=Content(role="model"))
    return structs.replace(reply, content=None, error_code=reply.error_code or reply.finish_reason or "NO_ANSWER")


def _with_id(part: Part, new_id: Callable[[], str]) -> Part:
    call = part.function_call
    if call is None or call.id:
        return part
    return structs.replace(part, function_call=structs.replace(call, id=MADE_ID + new_id()))


def _decode(body: bytes | str) -> _Chunk:
    try:
        chunk = codec.decode(body, _Chunk, unknown="drop")
    except BadRequest as error:
        raise ModelError(f"the model's server sent what is no Gemini answer: {error}", code="BAD_ANSWER") from None
    if chunk.error is not None:
        raise _failure(chunk.error, 0)
    return chunk


def _read(chunk: _Chunk) -> ModelResponse:
    """One chunk by the candidate rule of spec core 3.13: content if it has parts or ended well, else an error code."""
    usage = Usage(**structs.asdict(chunk.usage_metadata)) if chunk.usage_metadata is not None else None
    version = chunk.model_version or ""
    if not chunk.candidates:
        feedback = chunk.prompt_feedback or _Feedback()
        return ModelResponse(
            usage_metadata=usage,
            model_version=version,
            error_code=feedback.block_reason or "",
            error_message=feedback.block_reason_message or "",
        )
    first = chunk.candidates[0]
    finish = first.finish_reason or ""
    said = first.content is not None and bool(first.content.parts)
    good = said or finish == "STOP"
    return ModelResponse(
        content=(first.content or Content(role="model")) if good else None,
        usage_metadata=usage,
        finish_reason=finish,
        error_code="" if good else finish,
        error_message="" if good else first.finish_message or "",
        model_version=version,
        grounding_metadata=first.grounding_metadata,
        citation_metadata=_citations(first.citation_metadata),
        logprobs_result=first.logprobs_result,
        avg_logprobs=first.avg_logprobs,
    )


def _citations(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """The API says `citationSources` where everybody else says `citations`."""
    if metadata is None or "citationSources" not in metadata:
        return metadata
    return {"citations": metadata["citationSources"]}


class GeminiStream:
    """Reads the answer of `streamGenerateContent?alt=sse`: bytes cut anywhere in, pieces out, the whole at the end.

    Every chunk gives one piece (`partial`), also one without a candidate. A function call has the same id in all pieces
    and in the whole (FR-068). ModelError for an error inside the stream; after it the reader is of no use.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._sse = SseDecoder()
        self._answer = Answer()
        self._open: StreamedCall | None = None
        self._seen = False

    def feed(self, data: bytes) -> Iterator[ModelResponse]:
        """The pieces that `data` completes, read one by one: those before an error come out before it is raised."""
        return (self._piece(_decode(e.data)) for e in self._sse.feed(data) if e.data != "[DONE]")

    def end(self) -> Iterator[ModelResponse]:
        """The last pieces, when the stream ended without the blank line that should close it."""
        return self.feed(b"\n\n")

    def answer(self) -> ModelResponse:
        """The whole answer: all pieces joined, in order. ModelError when there was not a single chunk."""
        if not self._seen:
            raise ModelError("the model's server ended the stream without an answer", code="NO_ANSWER")
        self._close_call()
        if self._answer.finish_reason == "STOP":
            self._answer.error_code = self._answer.error_message = ""
        return _settled(self._answer.response())

    def _piece(self, chunk: _Chunk) -> ModelResponse:
        self._seen = True
        reply = _read(chunk)
        self._note(reply, told=bool(chunk.candidates or chunk.prompt_feedback))
        parts: list[Part] = []
        for part in reply.content.parts if reply.content is not None else ():
            if part.function_call is not None:
                parts.extend(self._call(part))
            elif not part.empty:
                self._answer.part(part)
                parts.append(part)
        content = None if reply.error_code else Content(role="model", parts=parts)
        return structs.replace(reply, content=content, partial=True, turn_complete=bool(reply.finish_reason))

    def _note(self, reply: ModelResponse, *, told: bool) -> None:
        """What is known about the answer besides its parts: the last word counts, silence does not."""
        answer = self._answer
        answer.usage = reply.usage_metadata or answer.usage
        answer.finish_reason = reply.finish_reason or answer.finish_reason
        answer.model_version = reply.model_version or answer.model_version
        answer.grounding_metadata = reply.grounding_metadata or answer.grounding_metadata
        answer.citation_metadata = reply.citation_metadata or answer.citation_metadata
        answer.logprobs_result = reply.logprobs_result or answer.logprobs_result
        if reply.avg_logprobs is not None:
            answer.avg_logprobs = reply.avg_logprobs
        if told:
            answer.error_code, answer.error_message = reply.error_code, reply.error_message

    def _call(self, part: Part) -> list[Part]:
        """A whole call, or a piece of one; as it is to be shown. A nameless call that belongs to nothing says nothing."""
        call = part.function_call
        assert call is not None
        streamed = bool(call.partial_args) or call.will_continue
        current = self._open
        if current is not None and call.name and not self._same(current, part, streamed):
            self._close_call()
            current = None
        if current is None:
            if not streamed:
                if not call.name:
                    return []
                whole = _with_id(part, self._new_id)
                self._answer.part(whole)
                return [whole]
            current = self._open = StreamedCall(call.id or MADE_ID + self._new_id(), call.name, part.thought_signature)
        current.add(call, part.thought_signature)
        if not call.will_continue:
            self._close_call()
        return [structs.replace(part, function_call=structs.replace(call, id=current.id, name=current.name))]

    def _same(self, current: StreamedCall, part: Part, streamed: bool) -> bool:
        """Whether a named piece goes on with the open call, and is not the next call of the same tool."""
        call = part.function_call
        assert call is not None
        if call.name != (current.name or call.name) or (call.id and call.id != current.id):
            return False
        return streamed or not call.args

    def _close_call(self) -> None:
        if self._open is not None:
            self._answer.call(self._open.done(), self._open.signature)
            self._open = None


# --- errors -----------------------------------------------------------------------------------------------------------


def read_error(http_status: int, body: bytes, retry_after_s: float | None = None) -> ModelError:
    """The error that a body with google.rpc.Status tells; `retry_after_s` from the headers wins over its RetryInfo."""
    try:
        raw = msgspec.json.decode(body)
        if isinstance(raw, list) and raw:  # a streaming method wraps it
            raw = cast("list[Any]", raw)[0]
        fault = codec.convert(raw, _Chunk, unknown="drop").error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadRequest):
        fault = None
    if fault is None:
        text = body.decode("utf-8", "replace")[:2000].strip()
        message = f"the model's server answered {http_status}" + (f": {text}" if text else "")
        return ModelError(message, http_status=http_status, retry_after_s=retry_after_s)
    error = _failure(fault, http_status)
    error.retry_after_s = retry_after_s if retry_after_s is not None else error.retry_after_s
    return error


def _failure(fault: _Fault, http_status: int) -> ModelError:
    status = http_status or fault.code
    words = " ".join(w for w in (str(status or ""), fault.status) if w)
    message = f"Gemini answered {words or 'with an error'}" + (f": {fault.message[:2000]}" if fault.message else "")
    return ModelError(message, http_status=status, code=fault.status, retry_after_s=_retry_delay(fault.details))


def _retry_delay(details: list[Any]) -> float | None:
    """Seconds from a google.rpc.RetryInfo, such as `"17s"`."""
    for detail in details:
        if isinstance(detail, dict) and str(cast("dict[str, Any]", detail).get("@type", "")).endswith("RetryInfo"):
            found = re.fullmatch(r"(\d+(?:\.\d+)?)s", str(cast("dict[str, Any]", detail).get("retryDelay", "")))
            if found:
                return float(found[1])
    return None
