"""What goes to a model and what comes back (spec core 1.3, 8.3). Neutral between providers; `wire/` spells it for each."""

from typing import Any

from msgspec import Struct, field

from polyport.codec import Data, encode
from polyport.data.content import Content

Schema = dict[str, Any]
"""A JSON Schema (draft 2020-12) as plain data."""


class Usage(Data, frozen=True, kw_only=True):
    """Token counts, as the provider told them; None is unknown."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    total_token_count: int | None = None
    cached_content_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    prompt_tokens_details: list[Any] = []
    candidates_tokens_details: list[Any] = []
    cache_tokens_details: list[Any] = []
    traffic_type: str = ""


class Transcription(Data, frozen=True, kw_only=True):
    text: str = ""
    finished: bool = False


class ToolDeclaration(Data, frozen=True, kw_only=True):
    """A tool as the model sees it. `parameters` is always an object schema; `response` may be None."""

    name: str
    description: str = ""
    parameters: Schema = field(default_factory=lambda: {"type": "object", "properties": {}})
    response: Schema | None = None

    @property
    def whole_description(self) -> str:
        """The description with the schema of results, for APIs that have no field for it (FR-215)."""
        if self.response is None:
            return self.description
        return f"{self.description}\n\nThe result is JSON of this schema: {encode(self.response).decode()}".strip()


class GenerateConfig(Data, frozen=True, kw_only=True):
    """How to generate. None means: leave it to the provider. `extra` is merged into the provider's request body as it is;
    `headers` are added to the HTTP request."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] = []
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    thinking_budget: int | None = None
    include_thoughts: bool = False
    tool_choice: str = "auto"
    """"auto", "none", "any" (must call one), or the name of the tool that must be called."""
    headers: dict[str, str] = {}
    extra: dict[str, Any] = {}


class ModelRequest(Struct, kw_only=True):
    """One question to a model. Mutable: hooks and tools may edit it before it is sent.

    `system` is the joined system instruction. `response_schema` asks for JSON of that schema.
    """

    contents: list[Content]
    model: str = ""
    system: str = ""
    tools: list[ToolDeclaration] = []
    response_schema: Schema | None = None
    config: GenerateConfig = GenerateConfig()


class ModelResponse(Data, frozen=True, kw_only=True):
    """One answer, whole or a piece (`partial`). `finish_reason` uses Gemini's words: STOP, MAX_TOKENS, SAFETY, ...

    `error_code` is set when the provider answered but refused or failed to answer (a blocked prompt, say).
    """

    content: Content | None = None
    partial: bool = False
    usage_metadata: Usage | None = None
    finish_reason: str = ""
    error_code: str = ""
    error_message: str = ""
    model_version: str = ""
    turn_complete: bool = False
    interrupted: bool = False
    grounding_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None
    custom_metadata: dict[str, Any] | None = None
    logprobs_result: dict[str, Any] | None = None
    avg_logprobs: float | None = None
    input_transcription: Transcription | None = None
    output_transcription: Transcription | None = None
    session_resumption_handle: str = ""
