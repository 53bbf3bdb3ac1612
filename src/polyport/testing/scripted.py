"""ScriptedModel: a model that answers what the test says, in order, and records what it was asked.

Strict both ways: a question too many fails, and answers left over fail `check`. Public: users' own tests are meant to use it.
"""

import inspect
from typing import Any, cast

from msgspec import structs

from polyport.data.content import Content, FunctionCall, Part, model_text
from polyport.data.model import ModelRequest, ModelResponse
from polyport.ports.model import OnPartial

Step = Any
"""A step of a script; see ScriptedModel."""


def call(name: str, args: dict[str, Any] | None = None, id: str = "") -> FunctionCall:
    """A function call, as a step of a script."""
    return FunctionCall(id=id, name=name, args=args or {})


class chunks:
    """An answer that is streamed in these pieces of text (or contents)."""

    def __init__(self, *pieces: str | Content) -> None:
        self.pieces = [model_text(p) if isinstance(p, str) else p for p in pieces]

    @property
    def whole(self) -> Content:
        texts = [p.text for p in self.pieces]
        return model_text("".join(texts))


class ScriptedModel:
    """`ScriptedModel("hello", call("tool", {...}, "c1"), [call(..), call(..)], chunks("a", "b"), ValueError("x"), fn)`.

    A step may be text, a Content, one or several calls, a ModelResponse, an exception to raise, `chunks`, or a function
    `(request, on_partial)` that gives any of these. `requests` are copies of what was asked, oldest first.
    """

    def __init__(self, *steps: Step, name: str = "scripted", schema_with_tools: bool = False) -> None:
        self.steps: list[Step] = list(steps)
        self.requests: list[ModelRequest] = []
        self.name = name
        self.schema_with_tools = schema_with_tools

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        self.requests.append(structs.replace(request, contents=list(request.contents), tools=list(request.tools)))
        if not self.steps:
            raise AssertionError(
                f"model {self.name!r} was asked once more than the script has answers (question {len(self.requests)})"
            )
        step: Any = self.steps.pop(0)
        if callable(step) and not isinstance(step, type):
            step = step(request, on_partial)
            if inspect.isawaitable(step):
                step = await step
        return await _answer(step, on_partial)

    def check(self) -> None:
        """AssertionError if answers are left over."""
        if self.steps:
            raise AssertionError(f"model {self.name!r} was not asked for {len(self.steps)} answers of its script")

    def prompt(self, index: int = -1) -> list[str]:
        """One request's contents as short lines, such as `user: hi`, `model: call f({...})`, `user: result f {...}`."""
        return [_line(c) for c in self.requests[index].contents]

    async def aclose(self) -> None:
        return None


async def _answer(step: Any, on_partial: OnPartial | None) -> ModelResponse:
    if isinstance(step, BaseException):
        raise step
    if isinstance(step, ModelResponse):
        return step
    if isinstance(step, chunks):
        if on_partial is not None:
            for piece in step.pieces:
                await on_partial(ModelResponse(content=piece, partial=True))
        step = step.whole
    if isinstance(step, str):
        step = model_text(step)
    if isinstance(step, FunctionCall):
        step = [step]
    if isinstance(step, list):
        step = Content(role="model", parts=[Part(function_call=c) for c in cast("list[FunctionCall]", step)])
    if not isinstance(step, Content):
        raise TypeError(f"a script cannot have a step of type {type(step).__name__}")
    return ModelResponse(content=step, finish_reason="STOP")


def _line(content: Content) -> str:
    shown: list[str] = []
    for part in content.parts:
        if part.function_call is not None:
            shown.append(f"call {part.function_call.name}({part.function_call.args})")
        elif part.function_response is not None:
            shown.append(f"result {part.function_response.name} {part.function_response.response}")
        elif part.text is not None:
            shown.append(part.text)
        else:
            shown.append("data")
    return f"{content.role}: " + " | ".join(shown)
