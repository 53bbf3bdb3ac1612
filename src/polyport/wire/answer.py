"""Answer: collects the streamed pieces of one model answer into the whole (spec core 3.13).

Used by the wire modules of all providers, so that every model's stream ends in the same form. Never does I/O.
"""

from typing import Any

from msgspec import structs

from polyport.data.content import Content, FunctionCall, Part
from polyport.data.model import ModelResponse, Usage


class Answer:
    """Feed it parts in order of arrival, take `response()` at the end.

    Adjacent text of the same kind (thought or not) is joined; other parts keep their place; parts that say nothing are
    dropped. A thought signature seen on an earlier part goes to the first function call that has none (once).
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._text: list[str] = []
        self._thought = False
        self._signature: bytes | None = None
        self._loose_signature: bytes | None = None
        self._signed_call = False
        self.usage: Usage | None = None
        self.finish_reason = ""
        self.error_code = ""
        self.error_message = ""
        self.model_version = ""
        self.grounding_metadata: dict[str, Any] | None = None
        self.citation_metadata: dict[str, Any] | None = None
        self.custom_metadata: dict[str, Any] | None = None
        self.logprobs_result: dict[str, Any] | None = None
        self.avg_logprobs: float | None = None

    def text(self, text: str, *, thought: bool = False, signature: bytes | None = None) -> None:
        """A piece of text. A piece with a signature closes its part: text after it starts a new one."""
        if self._text and (self._thought != thought or self._signature is not None):
            self._flush()
        if signature is not None:
            self._signature = self._loose_signature = signature
        if text or signature is not None:
            self._text.append(text)
            self._thought = thought

    def call(self, call: FunctionCall, signature: bytes | None = None) -> None:
        """A whole function call."""
        self._flush()
        if signature is None and not self._signed_call:
            signature = self._loose_signature
        if signature is not None:
            self._signed_call = True
        self._parts.append(Part(function_call=call, thought_signature=signature))

    def part(self, part: Part) -> None:
        """Any part, as it came."""
        if part.empty:
            return
        if part.text is not None and structs.replace(part, text=None, thought=False, thought_signature=None).empty:
            self.text(part.text, thought=part.thought, signature=part.thought_signature)
        elif part.function_call is not None:
            self.call(part.function_call, part.thought_signature)
        else:
            self._flush()
            if part.thought_signature is not None:
                self._loose_signature = part.thought_signature
            self._parts.append(part)

    def _flush(self) -> None:
        if self._text:
            text = "".join(self._text)
            if text or self._signature is not None:
                self._parts.append(Part(text=text, thought=self._thought, thought_signature=self._signature))
        self._text, self._signature = [], None

    def response(self) -> ModelResponse:
        """The whole answer, role "model". Content is None when nothing was said."""
        self._flush()
        return ModelResponse(
            content=Content(role="model", parts=list(self._parts)) if self._parts else None,
            usage_metadata=self.usage,
            finish_reason=self.finish_reason,
            error_code=self.error_code,
            error_message=self.error_message,
            model_version=self.model_version,
            grounding_metadata=self.grounding_metadata,
            citation_metadata=self.citation_metadata,
            custom_metadata=self.custom_metadata,
            logprobs_result=self.logprobs_result,
            avg_logprobs=self.avg_logprobs,
        )
