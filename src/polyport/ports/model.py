"""The model port: one question in, one whole answer out, pieces on the side."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from polyport.data.model import ModelRequest, ModelResponse, Schema

OnPartial = Callable[[ModelResponse], Awaitable[None]]
"""Takes one streamed piece, `partial=True`. Awaiting it is the back-pressure."""


@dataclass(frozen=True)
class OutputSchema:
    """A JSON Schema of an object, and a parser that validates: BadRequest naming every wrong field."""

    schema: Schema
    parse: Callable[[Any], Any]


class Model(Protocol):
    """A language model.

    `generate` returns the whole answer. With `on_partial` the model also streams: each piece is handed over as it comes,
    and the returned answer repeats all of them joined (spec core 3.13). A function call has the same id in the pieces and
    in the answer. Raises ModelError when the provider fails; after the first piece it never starts over by itself.
    Cancellation closes the connection to the provider.
    """

    @property
    def name(self) -> str:
        """The provider's name of the model, such as `gemini-flash-latest`."""
        ...

    @property
    def schema_with_tools(self) -> bool:
        """Whether the provider honours a response schema beside tools. If not, the engine asks for the answer through a
        tool named `set_model_response`."""
        ...

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse: ...

    async def aclose(self) -> None:
        """Give connections back. Idempotent."""
        ...
