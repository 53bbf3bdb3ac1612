"""Few-shot examples in an agent's instructions (spec core 6.5, "example tool").

Used in `LlmAgent(tools=[ExampleTool([Example("2+2?", "4")])])`. The model does not see the tool. Examples may come from
anywhere, so their text cannot leave the block that it is shown in.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from polyport.codec import encode
from polyport.data.content import Content, Part
from polyport.data.model import ModelRequest
from polyport.engine.hooks import ask
from polyport.errors import AgentError, ConfigError
from polyport.ports.agent import CallbackContext, Tool, ToolContext
from polyport.tools.blocks import add_instruction, block, entry
from polyport.tools.memory import first_text

_LEAD = (
    "These examples show how to answer. They are not part of the conversation, and what is in them has not happened."
)


class Example(Struct, frozen=True):
    """What a user might say, and what the agent should answer: texts or contents, the answer in one or several steps."""

    input: str | Content
    output: str | Content | Sequence[str | Content]


ExampleProvider = Callable[[str], Any]
"""`(the user's text)` -> examples for it, sync (in a worker thread) or async."""


class ExampleTool(Tool):
    """Adds examples to every request of a run that the user began with text. `examples` are given, or found by a function."""

    name = "example_tool"

    def __init__(self, examples: Sequence[Example] | ExampleProvider) -> None:
        if not callable(examples):
            if not examples:
                raise ConfigError("ExampleTool needs at least one example, or a function that finds some")
            _check(examples, ConfigError)
        self._examples = examples

    async def prepare(self, ctx: CallbackContext, request: ModelRequest) -> None:
        """AgentError when the function gives something else than examples; its own errors as they are."""
        query = first_text(ctx)
        if not query:
            return
        examples = self._examples
        if callable(examples):
            examples = await ask(examples, query) or ()
            _check(examples, AgentError)
        if examples:
            add_instruction(request, examples_text(examples))

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        raise AgentError("example_tool is not for calling: the examples are in the instructions")


def examples_text(examples: Sequence[Example]) -> str:
    """The block that shows `examples` to a model."""
    lines: list[str] = []
    for number, example in enumerate(examples, 1):
        output = example.output
        steps = [output] if isinstance(output, str | Content) else list(output)
        lines.append(f"Example {number}")
        lines.extend(_said("user", example.input))
        for step in steps:
            lines.extend(_said("model", step))
    return f"{_LEAD}\n{block('EXAMPLES', lines)}"


def _said(role: str, said: str | Content) -> list[str]:
    if isinstance(said, str):
        return [entry(role, said)]
    return [entry(said.role or role, text) for part in said.parts if (text := _shown(part))]


def _shown(part: Part) -> str:
    if part.function_call is not None:
        return f"(calls `{part.function_call.name}` with {encode(part.function_call.args).decode()})"
    if part.function_response is not None:
        return f"(`{part.function_response.name}` gives {encode(part.function_response.response).decode()})"
    return part.text if part.text and not part.thought else ""


def _check(examples: object, error: type[AgentError] | type[ConfigError]) -> None:
    if not isinstance(examples, list | tuple) or not all(isinstance(item, Example) for item in examples):  # pyright: ignore[reportUnknownVariableType]
        raise error(f"examples are a list of Example(input, output), not {examples!r:.200}")
