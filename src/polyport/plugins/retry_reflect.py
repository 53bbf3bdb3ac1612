"""RetryReflectPlugin: a tool that failed is explained to the model, so that it thinks and tries again (spec core 7).

Used in `App(plugins=[...])`. Counts the failures in a row of each tool; over the limit it tells the model to give up, or lets
the error stand. Never calls a tool by itself.
"""

from collections import OrderedDict
from typing import Any, Literal

from polyport.errors import ConfigError
from polyport.ports.agent import CallbackContext, Tool, ToolContext
from polyport.ports.plugin import Plugin

REFLECTION = "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN"
"""The `response_type` of the plugin's replies; ADK's word."""
MAX_SCOPES = 10_000
"""How many runs are counted at one time. More than a server has; only a bound."""

Scope = Literal["invocation", "global"]


class _Failures:
    """What failed within one scope: how often in a row by tool, and which calls of now."""

    __slots__ = ("calls", "in_a_row")

    def __init__(self) -> None:
        self.in_a_row: dict[str, int] = {}
        self.calls: set[str] = set()


class RetryReflectPlugin(Plugin):
    """Up to `max_retries` failures in a row of one tool are answered with guidance; 0 means none.

    After that the model is told to stop trying or, with `error_when_exceeded`, gets the tool's own error. A success sets the
    count back. `scope` is "invocation" (each run counts for itself) or "global" (all runs of an app count together).
    Errors of the classes in `ignore` are left alone and not counted. ConfigError for a negative `max_retries` or an unknown
    scope.
    """

    def __init__(
        self,
        max_retries: int = 3,
        error_when_exceeded: bool = False,
        scope: Scope = "invocation",
        *,
        ignore: tuple[type[Exception], ...] = (),
        name: str = "retry_reflect",
    ) -> None:
        if max_retries < 0:
            raise ConfigError(f"max_retries of RetryReflectPlugin is {max_retries}; it must be 0 or more")
        if scope not in ("invocation", "global"):
            raise ConfigError(f"scope of RetryReflectPlugin is {scope!r}; it must be 'invocation' or 'global'")
        self.name = name
        self._max_retries = max_retries
        self._error_when_exceeded = error_when_exceeded
        self._scope = scope
        self._ignore = ignore
        self._runs: OrderedDict[str, _Failures] = OrderedDict()
        self._apps: dict[str, _Failures] = {}

    async def on_tool_error(self, ctx: ToolContext, tool: Tool | None, args: dict[str, Any], error: Exception) -> Any:
        named = tool.name if tool is not None else ""  # a name that the model made up must not fill the memory
        self._run(ctx).calls.add(ctx.function_call_id)
        if isinstance(error, self._ignore):
            return None
        counts = self._counts(ctx)
        counts[named] = count = counts.get(named, 0) + 1
        if count <= self._max_retries:
            return _reply(error, count, _try_again(named, count, self._max_retries, args))
        return None if self._error_when_exceeded else _reply(error, count, _give_up(named, self._max_retries))

    async def after_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], result: Any) -> None:
        calls = self._run(ctx).calls
        if ctx.function_call_id in calls:
            calls.discard(ctx.function_call_id)  # what is seen here is the reply to a failure, not a success
        else:
            self._counts(ctx).pop(tool.name, None)

    async def after_run(self, ctx: CallbackContext) -> None:
        self._runs.pop(ctx.invocation_id, None)

    def _run(self, ctx: ToolContext) -> _Failures:
        found = self._runs.get(ctx.invocation_id)
        if found is None:
            found = self._runs[ctx.invocation_id] = _Failures()
            if len(self._runs) > MAX_SCOPES:
                self._runs.popitem(last=False)
        return found

    def _counts(self, ctx: ToolContext) -> dict[str, int]:
        if self._scope == "global":
            return self._apps.setdefault(ctx.app_name, _Failures()).in_a_row
        return self._run(ctx).in_a_row


def _reply(error: Exception, count: int, guidance: str) -> dict[str, Any]:
    return {
        "response_type": REFLECTION,
        "error_type": type(error).__name__,
        "error_details": str(error),
        "retry_count": count,
        "reflection_guidance": guidance,
    }


def _try_again(tool: str, count: int, limit: int, args: dict[str, Any]) -> str:
    what = f"The call of `{tool}`" if tool else "The call of an unknown tool"
    known = f" It had the arguments {', '.join(sorted(args))}." if args else " It had no arguments."
    return (
        f"{what} failed (failure {count} of at most {limit} in a row).{known if tool else ''} Before you call again, say to "
        "yourself why: is it the right tool, are all required arguments there, are their types and values right, does "
        "something have to be done first? Change the call accordingly; do not repeat it as it was. If it "
        "cannot work, go another way."
    )


def _give_up(tool: str, limit: int) -> str:
    what = f"`{tool}`" if tool else "An unknown tool"
    return (
        f"{what} has failed more than {limit} times in a row. Do not call it again for this task. Go another way, or tell the "
        "user what could not be done and why."
    )
