"""LoggingPlugin: one line of the log for everything that happens in a run (spec core 7).

Put first into `App(plugins=[...])`, it sees what the other plugins and the callbacks have not touched yet. It never changes
anything. Texts are cut at 200 characters, arguments and results at 300; request headers and `extra` are never written, and of
an error that is not Polyport's own only the type.
"""

import logging
from typing import Any

from polyport.codec import encode
from polyport.data.content import Content, Part
from polyport.data.event import Event
from polyport.data.model import ModelRequest, ModelResponse
from polyport.errors import PolyportError
from polyport.ports.agent import CallbackContext, ReadContext, Tool, ToolContext
from polyport.ports.plugin import Plugin

TEXT_CHARS = 200
"""Where texts are cut."""
ARGS_CHARS = 300
"""Where arguments and results are cut."""


class LoggingPlugin(Plugin):
    """Logs at `level` to the logger `polyport.plugins.logging`, or to `logger`. Does no work while that level is off."""

    def __init__(
        self, *, level: int = logging.INFO, logger: logging.Logger | None = None, name: str = "logging"
    ) -> None:
        self.name = name
        self._level = level
        self._logger = logger or logging.getLogger("polyport.plugins.logging")

    @property
    def _on(self) -> bool:
        return self._logger.isEnabledFor(self._level)

    def _say(self, ctx: ReadContext, hook: str, *facts: str) -> None:
        said = "".join(f" {fact}" for fact in facts if fact)
        self._logger.log(self._level, "%s %s agent=%s%s", ctx.invocation_id, hook, ctx.agent_name, said)

    async def on_user_message(self, ctx: CallbackContext, message: Content) -> None:
        if self._on:
            who = f"app={ctx.app_name} user={ctx.user_id!r} session={ctx.session.key.id!r}"
            self._say(ctx, "on_user_message", who, _content(message))

    async def before_run(self, ctx: CallbackContext) -> None:
        if self._on:
            self._say(ctx, "before_run", f"streaming={ctx.config.streaming}")

    async def after_run(self, ctx: CallbackContext) -> None:
        if self._on:
            self._say(ctx, "after_run")

    async def on_event(self, ctx: ReadContext, event: Event) -> None:
        if self._on:
            kind = "partial" if event.partial else "final" if event.final else ""
            failed = f"error={event.error_code}: {_cut(event.error_message, TEXT_CHARS)}" if event.error_code else ""
            self._say(ctx, "on_event", f"id={event.id} author={event.author}", kind, failed, _content(event.content))

    async def before_agent(self, ctx: CallbackContext) -> None:
        if self._on:
            self._say(ctx, "before_agent", f"branch={ctx.branch}" if ctx.branch else "")

    async def after_agent(self, ctx: CallbackContext) -> None:
        if self._on:
            self._say(ctx, "after_agent")

    async def before_model(self, ctx: CallbackContext, request: ModelRequest) -> None:
        if self._on:
            tools = f"tools={','.join(tool.name for tool in request.tools)}" if request.tools else ""
            system = f"system={_cut(request.system, TEXT_CHARS)}" if request.system else ""
            last = f"last={_content(request.contents[-1])}" if request.contents else ""
            about = f"model={request.model} contents={len(request.contents)}"
            self._say(ctx, "before_model", about, tools, system, last)

    async def after_model(self, ctx: CallbackContext, response: ModelResponse) -> None:
        if self._on:
            usage = response.usage_metadata
            tokens = f"tokens={usage.prompt_token_count}+{usage.candidates_token_count}" if usage is not None else ""
            failed = f"error={response.error_code}" if response.error_code else ""
            ended = f"finish={response.finish_reason}" if response.finish_reason else ""
            kind = "partial" if response.partial else ""
            self._say(ctx, "after_model", kind, ended, failed, tokens, _content(response.content))

    async def on_model_error(self, ctx: CallbackContext, request: ModelRequest, error: Exception) -> None:
        if self._on:
            self._say(ctx, "on_model_error", f"model={request.model}", _error(error))

    async def before_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any]) -> None:
        if self._on:
            self._say(ctx, "before_tool", f"tool={tool.name} call={ctx.function_call_id}", f"args={_data(args)}")

    async def after_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], result: Any) -> None:
        if self._on:
            self._say(ctx, "after_tool", f"tool={tool.name} call={ctx.function_call_id}", f"result={_data(result)}")

    async def on_tool_error(self, ctx: ToolContext, tool: Tool | None, args: dict[str, Any], error: Exception) -> None:
        if self._on:
            named = f"tool={tool.name}" if tool is not None else "tool unknown"
            self._say(
                ctx, "on_tool_error", f"{named} call={ctx.function_call_id}", f"args={_data(args)}", _error(error)
            )

    async def close(self) -> None:
        if self._on:
            self._logger.log(self._level, "close")


def _cut(text: str, limit: int) -> str:
    """At most `limit` characters of a text, on one line."""
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}... ({len(text)} characters)"


def _data(value: Any) -> str:
    try:
        text = encode(value).decode()
    except (TypeError, NotImplementedError, ValueError, RecursionError):
        return f"a {type(value).__name__}"
    return text if len(text) <= ARGS_CHARS else f"{text[:ARGS_CHARS]}... ({len(text)} characters)"


def _content(content: Content | None) -> str:
    return " | ".join(map(_part, content.parts)) if content is not None else ""


def _part(part: Part) -> str:
    if part.text is not None:
        return f"{'thought ' if part.thought else ''}{_cut(part.text, TEXT_CHARS)}"
    if part.function_call is not None:
        return f"call {part.function_call.name}({_data(part.function_call.args)})"
    if part.function_response is not None:
        return f"result {part.function_response.name} {_data(part.function_response.response)}"
    if part.inline_data is not None:
        return f"{len(part.inline_data.data)} bytes of {part.inline_data.mime_type or 'unknown type'}"
    if part.file_data is not None:
        return f"file {_cut(part.file_data.file_uri, TEXT_CHARS)}"
    return "other part"


def _error(error: Exception) -> str:
    kind = type(error).__name__
    return f"error={kind}: {_cut(str(error), TEXT_CHARS)}" if isinstance(error, PolyportError) else f"error={kind}"
