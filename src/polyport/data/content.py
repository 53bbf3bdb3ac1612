"""Content and Part: what a user or a model says, in the JSON of the Gemini API (spec core 1.2).

Used by every floor above. A Part is one Struct with optional members, for the wire tells the kinds apart by the key
that is present. All immutable: make a changed copy with `msgspec.structs.replace`.
"""

from typing import Any

from msgspec import field

from polyport.codec import Data

INVALID_ARGS = "__invalid_json__"
"""The one argument of a call whose arguments were no JSON object; its value is what the model wrote. The engine does not run
such a call but tells the model."""


def _args() -> dict[str, Any]:
    return {}  # a factory of our own makes msgspec write the field even when it is empty


class Blob(Data, frozen=True, kw_only=True):
    """Bytes with their media type; standard base64 in JSON."""

    mime_type: str = ""
    data: bytes = b""
    display_name: str = ""


class FileData(Data, frozen=True, kw_only=True):
    file_uri: str = ""
    mime_type: str = ""
    display_name: str = ""


class PartialArg(Data, frozen=True, kw_only=True):
    """One piece of a function call whose arguments are streamed; `json_path` is dotted, with or without `$.`."""

    json_path: str = ""
    string_value: str | None = None
    number_value: float | None = None
    bool_value: bool | None = None
    null_value: Any = None
    will_continue: bool = False


class FunctionCall(Data, frozen=True, kw_only=True):
    id: str = ""
    name: str = ""
    args: dict[str, Any] = field(default_factory=_args)
    partial_args: list[PartialArg] = []
    will_continue: bool = False


class FunctionResponse(Data, frozen=True, kw_only=True):
    """`response` is None when the tool gave nothing (spec core 3.9)."""

    id: str = ""
    name: str = ""
    response: dict[str, Any] | None = field(default_factory=lambda: None)
    parts: list[Any] = []
    will_continue: bool | None = None
    scheduling: str = ""


class ExecutableCode(Data, frozen=True, kw_only=True):
    language: str = ""
    code: str = ""
    id: str = ""


class CodeExecutionResult(Data, frozen=True, kw_only=True):
    outcome: str = ""
    output: str = ""
    id: str = ""


class Part(Data, frozen=True, kw_only=True):
    """Exactly one of the first members is set in a meaningful part; a part with none is legal on input and ignored."""

    text: str | None = None
    inline_data: Blob | None = None
    file_data: FileData | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    executable_code: ExecutableCode | None = None
    code_execution_result: CodeExecutionResult | None = None
    thought: bool = False
    thought_signature: bytes | None = None
    video_metadata: dict[str, Any] | None = None
    media_resolution: Any = None
    part_metadata: dict[str, Any] | None = None
    tool_call: dict[str, Any] | None = None
    tool_response: dict[str, Any] | None = None

    @property
    def empty(self) -> bool:
        """Whether the part says nothing at all (Gemini 3 ends streams with one)."""
        return self == EMPTY_PART


EMPTY_PART = Part()


class Content(Data, frozen=True, kw_only=True):
    """Parts said by one role: "user" or "model"."""

    parts: list[Part] = []
    role: str = ""

    @property
    def text(self) -> str:
        """All text that is not a thought, joined."""
        return "".join(p.text for p in self.parts if p.text and not p.thought)

    @property
    def calls(self) -> list[FunctionCall]:
        found: list[FunctionCall] = []
        for part in self.parts:  # asked often, and a comprehension is one call more
            if part.function_call is not None:
                found.append(part.function_call)
        return found

    @property
    def responses(self) -> list[FunctionResponse]:
        found: list[FunctionResponse] = []
        for part in self.parts:
            if part.function_response is not None:
                found.append(part.function_response)
        return found


def user_text(text: str) -> Content:
    return Content(role="user", parts=[Part(text=text)])


def model_text(text: str) -> Content:
    return Content(role="model", parts=[Part(text=text)])
