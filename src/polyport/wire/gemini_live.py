"""What Gemini's Live API (BidiGenerateContent) says, as pure functions and one reader: frames to LiveMessages.

Used by `models/gemini_live.py`. Members that we do not know are dropped. Sources: the API's reference; spec core 2.4, 8.3;
FR-028 for what a close means. Never does I/O; what goes to the API is made by `wire/gemini_live_request.py`.
"""

import re
from typing import Any

from msgspec import Struct

from polyport import codec
from polyport.data.content import Content, FunctionCall
from polyport.data.live import LiveMessage
from polyport.data.model import Transcription, Usage
from polyport.errors import BadRequest, ModelError
from polyport.wire.gemini import read_error

LOST = "CONNECTION_LOST"
"""See `ports.live.CONNECTION_LOST`, which means the same; a wire module does not know the ports."""

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")
_FINE = ("", "TURN_COMPLETE_REASON_UNSPECIFIED", "NEED_MORE_INPUT")
"""Reasons for the end of a turn that say nothing of a failure."""


class _Words(Struct, rename="camel"):
    text: str | None = None
    finished: bool | None = None


class _Said(Struct, rename="camel"):
    """BidiGenerateContentServerContent."""

    model_turn: Content | None = None
    turn_complete: bool | None = None
    interrupted: bool | None = None
    generation_complete: bool | None = None
    input_transcription: _Words | None = None
    output_transcription: _Words | None = None
    grounding_metadata: dict[str, Any] | None = None
    turn_complete_reason: str | None = None
    interaction_status: str | None = None


class _Calls(Struct, rename="camel"):
    function_calls: list[FunctionCall] | None = None


class _Cancelled(Struct, rename="camel"):
    ids: list[str] | None = None


class _GoAway(Struct, rename="camel"):
    time_left: str | None = None


class _Handle(Struct, rename="camel"):
    new_handle: str | None = None
    resumable: bool | None = None


class _Usage(Struct, rename="camel"):
    """What the Live API calls a response is a candidate everywhere else."""

    prompt_token_count: int | None = None
    response_token_count: int | None = None
    total_token_count: int | None = None
    cached_content_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    prompt_tokens_details: list[Any] | None = None
    response_tokens_details: list[Any] | None = None
    cache_tokens_details: list[Any] | None = None


class _Frame(Struct, rename="camel"):
    """BidiGenerateContentServerMessage."""

    setup_complete: dict[str, Any] | None = None
    server_content: _Said | None = None
    tool_call: _Calls | None = None
    tool_call_cancellation: _Cancelled | None = None
    go_away: _GoAway | None = None
    session_resumption_update: _Handle | None = None
    usage_metadata: _Usage | None = None
    error: dict[str, Any] | None = None


class LiveReader:
    """Reads the frames of one connection. `ready` once the API has accepted the set-up."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._grounding: dict[str, Any] | None = None
        self.ready = False

    def read(self, data: bytes) -> LiveMessage | None:
        """The message; None for one that says nothing to us. ModelError for an error, and for what is no message."""
        try:
            frame = codec.decode(data, _Frame, unknown="drop")
        except BadRequest as error:
            raise ModelError(f"Gemini sent what is no message of its Live API: {error}", code="BAD_ANSWER") from None
        if frame.error is not None:
            raise read_error(0, data)
        self.ready = self.ready or frame.setup_complete is not None
        said = frame.server_content or _Said()
        done = bool(said.turn_complete)
        self._grounding = said.grounding_metadata or self._grounding
        reason = said.turn_complete_reason or ""
        failed = done and reason not in _FINE
        handle, away = frame.session_resumption_update, frame.go_away
        message = LiveMessage(
            content=_content(said.model_turn),
            input_transcription=_words(said.input_transcription),
            output_transcription=_words(said.output_transcription),
            calls=(frame.tool_call.function_calls or []) if frame.tool_call is not None else [],
            cancelled_calls=(frame.tool_call_cancellation.ids or [])
            if frame.tool_call_cancellation is not None
            else [],
            interrupted=bool(said.interrupted),
            generation_complete=bool(said.generation_complete),
            turn_complete=done,
            go_away_s=_seconds(away.time_left) if away is not None else None,
            resumption_handle=(handle.new_handle or "") if handle is not None and handle.resumable else "",
            usage_metadata=_usage(frame.usage_metadata),
            grounding_metadata=self._grounding if done else None,
            finish_reason=reason if done and reason != _FINE[1] else "",
            error_code=reason if failed else "",
            error_message=f"Gemini did not answer: {reason}" if failed else "",
            model_version=self._name if done else "",
            custom_metadata={"interactionStatus": said.interaction_status}
            if done and said.interaction_status
            else None,
        )
        if done:
            self._grounding = None
        return None if message == _NOTHING else message


_NOTHING = LiveMessage()


def _content(turn: Content | None) -> Content | None:
    """Calls come by a message of their own."""
    parts = [p for p in turn.parts if not p.empty and p.function_call is None] if turn is not None else []
    return Content(role="model", parts=parts) if parts else None


def _words(words: _Words | None) -> Transcription | None:
    if words is None or not (words.text or words.finished):
        return None
    return Transcription(text=words.text or "", finished=bool(words.finished))


def _seconds(duration: str | None) -> float:
    found = _SECONDS.fullmatch(duration or "")
    return float(found[1]) if found else 0.0


def _usage(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    return Usage(
        prompt_token_count=usage.prompt_token_count,
        candidates_token_count=usage.response_token_count,
        total_token_count=usage.total_token_count,
        cached_content_token_count=usage.cached_content_token_count,
        thoughts_token_count=usage.thoughts_token_count,
        tool_use_prompt_token_count=usage.tool_use_prompt_token_count,
        prompt_tokens_details=usage.prompt_tokens_details or [],
        candidates_tokens_details=usage.response_tokens_details or [],
        cache_tokens_details=usage.cache_tokens_details or [],
    )


# --- the end ----------------------------------------------------------------------------------------------------------

_REFUSALS = (
    (re.compile(r"quota|resource.?exhausted|rate.?limit|billing|credits", re.I), 429, "RESOURCE_EXHAUSTED"),
    (re.compile(r"api.?key|unauthenticated|credential|access token", re.I), 401, "UNAUTHENTICATED"),
    (re.compile(r"permission|denied|forbidden|location is not supported", re.I), 403, "PERMISSION_DENIED"),
    (re.compile(r"not found for api|not supported for bidi", re.I), 404, "NOT_FOUND"),
)
"""What in the reason of a close means that a new connection would be closed as well."""

_ENDED = (1000, 1005)
_REFUSED = (1002, 1003, 1007, 1009, 1010)


def read_close(code: int, reason: str, *, ready: bool) -> ModelError | None:
    """What a close of the WebSocket means; None for the proper end of a session that was `ready`.

    ModelError with the status of a refusal where the reason or the code tells one, else with `code` CONNECTION_LOST. The API
    aborts running sessions with 1008, which a new connection mends (FR-028); before that 1008 refuses the set-up.
    """
    if ready and code in _ENDED:
        return None
    message = f"Gemini closed the live session ({code})" + (f": {reason}" if reason else "")
    for pattern, status, word in _REFUSALS:
        if pattern.search(reason):
            return ModelError(message, http_status=status, code=word)
    if code in _REFUSED:
        return ModelError(message, http_status=400, code="INVALID_ARGUMENT")
    if code == 1008 and not ready:
        return ModelError(message, http_status=400, code="FAILED_PRECONDITION")
    return ModelError(message, code=LOST)
