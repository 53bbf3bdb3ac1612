"""The port of a live model: one connection over which user and model talk at the same time (spec core 2.4).

A `Model` whose class also has `connect` is a `LiveModel`, and may be the model of an agent in a live session, itself or as the
`live` of another; `generate` goes on serving all other runs. Implemented in `models/`, used by `engine/live_loop` only. Nothing
here does I/O.

What an implementation must keep:
- `connect` makes the connection, sends the set-up, and gives it out once the provider has accepted it. One `connect` is one
  connection: it never reconnects by itself, for the engine does (go-away, lost connections, transfers). Leaving the block
  closes the connection at once, also when cancelled, and leaves no task behind.
- Messages are handed over in the provider's order, each one as soon as it comes; nothing is joined or held back.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.live import LiveConfig, LiveInput, LiveMessage, LiveRequest
from polyport.data.model import ModelRequest, ModelResponse
from polyport.ports.model import Model, OnPartial

CONNECTION_LOST = "CONNECTION_LOST"
"""The `code` of a ModelError that says: the connection broke, or the provider closed it in the middle; a new one may work."""


class LiveConnection(Protocol):
    """An open connection. One task iterates over it; any task may send, and sends of several tasks do not mix."""

    async def send(self, message: LiveInput) -> None:
        """Hand one input to the provider. Waits while its connection takes no more (that is the back-pressure).

        A LiveContent without `turn_complete` is kept by the provider and answered with a later one. Kinds that the provider
        does not know are left out silently, if leaving them out does no harm; else BadRequest says what it does not take, and
        the connection stays usable. ModelError with `code` CONNECTION_LOST when the connection is gone."""
        ...

    def __aiter__(self) -> AsyncIterator[LiveMessage]:
        """What the model says, until the provider ends the session properly.

        ModelError: with `code` CONNECTION_LOST for a broken or dropped connection, and for a close that is not the end of the
        conversation (WebSocket 1001, 1006, 1011, 1012, 1013, 1014; expired sessions); with the provider's code and status for a
        refusal that a new connection would meet again (a bad request, no permission, no quota)."""
        ...


@runtime_checkable
class LiveModel(Protocol):
    """A `ports.model.Model` that can also hold live sessions."""

    @property
    def name(self) -> str: ...

    @property
    def schema_with_tools(self) -> bool: ...

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse: ...

    async def aclose(self) -> None: ...

    def connect(self, request: ModelRequest, config: LiveConfig) -> AbstractAsyncContextManager[LiveConnection]:
        """A connection, as an async context manager.

        `request` has the model's name, `system`, `tools` and `config` as for `generate`. Its `contents` are the conversation so
        far: they are sent before anything else; if the last one is a user's the model is to answer it, else it waits. They are
        empty when there is none, and with `config.resumption_handle`, for then the provider has them.

        Raises on entering: ModelError as `generate` does, with `code` CONNECTION_LOST if trying again may help; ConfigError for
        what the provider cannot do (two modalities at once, say)."""
        ...


def live_model(model: Model) -> LiveModel | None:
    """What holds live sessions for a model: itself, or, for one that wraps another, what its `live` names; None if neither."""
    if isinstance(model, LiveModel):
        return model
    inner = getattr(model, "live", None)
    return inner if isinstance(inner, LiveModel) else None


class LiveSource(Protocol):
    """Where the engine gets what the client of a live run says. Implemented in `runs/`."""

    @property
    def config(self) -> LiveConfig: ...

    async def take(self) -> LiveRequest | None:
        """The next message, once there is one; None when there will be no more. A cancelled call loses none."""
        ...

    def put_back(self, request: LiveRequest) -> None:
        """Let the next `take` give this message again."""
        ...


Listener = Callable[[Any], Coroutine[Any, Any, None]]


@dataclass(slots=True, kw_only=True, eq=False)
class LiveScope:
    """What belongs to one live run, beside its `RunScope`."""

    source: LiveSource
    show: Callable[[Event], Awaitable[None]]
    """Publish an event without storing it: what is played once, such as audio."""
    take_in: Callable[[LiveRequest], Awaitable[Content | None]]
    """Make what a client says true: plugins, state, store. What is to be sent of it; None without content."""
    over: bool = False
    """Whether one side has hung up, so that no agent after the one that speaks has anybody to talk with."""
    speaker: str = ""
    """The name of the agent that holds the conversation now."""
    listeners: dict[str, Listener] = field(default_factory=dict[str, Listener])
    """Call id -> who takes the pieces of a streaming tool's result as they come."""
