"""Plugins: hooks into every run of an app (spec core 7).

Written in `plugins/` and by users; asked by the engine (`engine/hooks` says who is asked when). Nothing here does I/O.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from polyport.data.content import Content, FunctionCall
from polyport.data.event import Event
from polyport.data.model import ModelRequest, ModelResponse
from polyport.data.run import Ending
from polyport.ports.agent import Agent, CallbackContext, ReadContext, RunContext, Tool, ToolContext

CallNext = Callable[..., Awaitable[Any]]
"""The next layer of an `around_*` hook; for a model `engine.hooks.ModelStep`, whose `on_partial` takes streamed pieces."""


class Plugin:
    """Hooks into every run of an app. Write the methods you need; the first that answers not None decides, and the agent's
    own callback of the same kind is then not asked (spec core 7)."""

    name: str = ""

    async def on_user_message(self, ctx: CallbackContext, message: Content) -> Content | None: ...

    async def before_run(self, ctx: CallbackContext) -> Content | None: ...

    async def after_run(self, ctx: CallbackContext) -> None: ...

    async def on_event(self, ctx: ReadContext, event: Event) -> Event | None: ...

    async def before_agent(self, ctx: CallbackContext) -> Content | None: ...

    async def after_agent(self, ctx: CallbackContext) -> Content | None: ...

    async def before_model(self, ctx: CallbackContext, request: ModelRequest) -> ModelResponse | None: ...

    async def after_model(self, ctx: CallbackContext, response: ModelResponse) -> ModelResponse | None: ...

    async def on_model_error(
        self, ctx: CallbackContext, request: ModelRequest, error: Exception
    ) -> ModelResponse | None: ...

    async def before_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any]) -> Any: ...

    async def after_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], result: Any) -> Any: ...

    async def on_tool_error(
        self, ctx: ToolContext, tool: Tool | None, args: dict[str, Any], error: Exception
    ) -> Any: ...

    # One coroutine around the thing itself, inside the hooks above: `call_next` goes on, with what may be changed, and may be
    # left out or called again. The first plugin is outermost.

    async def around_run(self, ctx: RunContext, call_next: CallNext) -> Ending:
        return await call_next()

    async def around_agent(self, ctx: RunContext, agent: Agent, call_next: CallNext) -> Ending:
        return await call_next()

    async def around_model(self, ctx: CallbackContext, request: ModelRequest, call_next: CallNext) -> ModelResponse:
        return await call_next(request)

    async def around_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], call_next: CallNext) -> Any:
        return await call_next(args)

    # For what measures, and changes nothing: around an agent with its callbacks and all to whom it hands over; around each
    # single question to the model, inside `around_model`; around the calls of one answer; and around one of them with its hooks
    # and callbacks, also when there is no such tool. What `call_next` gives is to be returned as it is.

    async def watch_agent(self, ctx: RunContext, call_next: CallNext) -> Any:
        return await call_next()

    async def watch_model(
        self, ctx: CallbackContext, event_id: str, request: ModelRequest, call_next: CallNext
    ) -> ModelResponse:
        """`event_id` is that of the event which the answer becomes."""
        return await call_next(request)

    async def watch_tools(self, ctx: RunContext, calls: Sequence[FunctionCall], call_next: CallNext) -> Any:
        """`call_next` gives an object whose `event` is the merged event, None when there is nothing to tell."""
        return await call_next()

    async def watch_tool(self, ctx: ToolContext, call: FunctionCall, tool: Tool | None, call_next: CallNext) -> Any:
        """`call_next` gives an object whose `response` is what the model will see, None when there is nothing yet."""
        return await call_next()

    async def watch_node(self, ctx: RunContext, path: str, call_next: CallNext) -> Ending:
        """Around one run of a node of a graph, with all its attempts. `path` ends with the node's name and number
        (`graph@1/node@2`); `ctx.agent` is the agent that holds the graph."""
        return await call_next()

    async def close(self) -> None: ...
