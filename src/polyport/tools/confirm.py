"""When a human must approve a call: predicates of function tools, and `confirm` for whole toolsets (spec core 3.11.6).

Used by `tools/function` and by people. Says when to ask only; asking, waiting and carrying out are the engine's.
"""

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, overload

from polyport.engine.hooks import ask
from polyport.errors import ConfigError
from polyport.ports.agent import ReadContext, Tool, ToolContext, Toolset
from polyport.tools.signature import Signature, context_parameters

When = bool | Callable[..., Any]
"""Always, never, or a predicate, sync (in a worker thread) or async."""


class Predicate:
    """A predicate of a function tool: its parameters have the names of the function's, and get the arguments as the function
    would, converted and with its defaults. ConfigError for a parameter that the function does not have."""

    def __init__(self, fn: Callable[..., Any], signature: Signature, tool: str) -> None:
        self._fn = fn
        defaults = {m.name: m.default for m in signature.members}
        self._contexts = context_parameters(fn, f"the require_confirmation of tool {tool}")
        self._wanted: dict[str, Any] = {}
        self._all = False
        for name, parameter in inspect.signature(fn).parameters.items():
            if name in self._contexts or parameter.kind is parameter.VAR_POSITIONAL:
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                self._all = True
            elif parameter.kind is parameter.POSITIONAL_ONLY:
                raise ConfigError(f"the require_confirmation of tool {tool} has a positional-only parameter {name!r}")
            elif name in defaults:
                self._wanted[name] = defaults[name] if defaults[name] is not ... else parameter.default
            elif parameter.default is parameter.empty:
                known = ", ".join(defaults) or "none"
                raise ConfigError(
                    f"the require_confirmation of tool {tool} has a parameter {name!r}, which the function does not have; its "
                    f"parameters are: {known}"
                )

    async def __call__(self, ctx: ToolContext, named: dict[str, Any]) -> bool:
        """Whether a call with these arguments, as the function gets them, must be approved."""
        given = dict(named) if self._all else {}
        for name, default in self._wanted.items():
            if name in named or default is not inspect.Parameter.empty:
                given[name] = named.get(name, default)
        given.update(dict.fromkeys(self._contexts, ctx))
        return bool(await ask(_call, self._fn, given))


def _call(fn: Callable[..., Any], given: dict[str, Any]) -> Any:
    return fn(**given)


@overload
def confirm(what: Tool, when: When = True) -> Tool: ...


@overload
def confirm(what: Toolset, when: When = True) -> Toolset: ...


def confirm(what: Tool | Toolset, when: When = True) -> Tool | Toolset:
    """A copy of a tool, or a view of a toolset, whose calls a human must approve: all, or those for which `when(name, args)`
    is true; sync or async. A tool that asks by itself still does. ConfigError for anything else."""
    if isinstance(what, Tool):
        return _confirmed(what, when)
    if isinstance(what, Toolset):  # pyright: ignore[reportUnnecessaryIsInstance]  user code is not checked
        return ConfirmedToolset(what, when)
    raise ConfigError(
        f"confirm needs a tool or a toolset, not a {type(what).__name__}; for a function: tool(require_confirmation=True)"
    )


def _confirmed(tool: Tool, when: When) -> Tool:
    """A shallow copy, so that it is still the kind of tool that it was, and edits requests as it did."""

    async def needs_confirmation(ctx: ToolContext, args: dict[str, Any]) -> bool:
        if await tool.needs_confirmation(ctx, args):
            return True
        return bool(await ask(when, tool.name, args) if callable(when) else when)

    made = copy(tool)
    made.needs_confirmation = needs_confirmation
    return made


class ConfirmedToolset:
    """A toolset all of whose tools ask for approval."""

    def __init__(self, toolset: Toolset, when: When) -> None:
        self._toolset = toolset
        self._when = when

    @property
    def name(self) -> str:
        return self._toolset.name

    async def tools(self, ctx: ReadContext) -> Sequence[Tool]:
        return [_confirmed(tool, self._when) for tool in await self._toolset.tools(ctx)]

    async def aclose(self) -> None:
        await self._toolset.aclose()
