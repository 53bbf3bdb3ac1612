"""Functions as nodes: which parameter gets what, and how they are called (spec core 4.3).

Read once, when the node is made; a function that cannot be called as a node is a ConfigError. Sync functions and generators
run in a worker thread.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin, get_type_hints

import anyio.to_thread
from msgspec import UNSET

from polyport.engine.contained import Contained
from polyport.errors import AgentError, ConfigError
from polyport.ports.agent import ReadContext
from polyport.workflow.context import NodeContext, NodeWaits
from polyport.workflow.values import convert

INPUT = "node_input"
"""The parameter of that name is the node's input, wherever it stands."""


class Parameter(NamedTuple):
    name: str
    kind: Any
    default: Any
    positional: bool


class Signature:
    """The parameters of a node's function: contexts, the input, and keys of the state."""

    def __init__(self, fn: Callable[..., Any], name: str, from_state: bool) -> None:
        self.fn = fn
        self.name = name
        target: Any = cast("Any", fn).func if isinstance(fn, functools.partial) else fn
        if not inspect.isroutine(target):
            target = target.__init__ if isinstance(target, type) else target.__call__
        try:
            parameters = list(inspect.signature(cast("Any", fn)).parameters.values())
        except ValueError:  # some of Python's own functions, such as str, do not tell
            parameters = [inspect.Parameter("value", inspect.Parameter.POSITIONAL_ONLY)]
        try:
            hints = get_type_hints(target, include_extras=True) if hasattr(target, "__annotations__") else {}
        except (NameError, TypeError) as error:
            raise ConfigError(f"node {name!r}: the types of its parameters cannot be read: {error}") from None
        self.on_loop = inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target)
        self.contexts: list[Parameter] = []
        self.input: Parameter | None = None
        self.state: list[Parameter] = []
        rest: list[Parameter] = []
        for p in parameters:
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                continue
            kind = hints.get(p.name, Any)
            one = Parameter(p.name, kind, UNSET if p.default is p.empty else p.default, p.kind is p.POSITIONAL_ONLY)
            if _is_context(kind) or (p.name == "ctx" and p.name not in hints):
                self.contexts.append(one)
            else:
                rest.append(one)
        self._order = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
        named = next((p for p in rest if p.name == INPUT), None)
        if named is None and rest and not from_state:
            named = rest[0]
        self.input = named
        self.state = [p for p in rest if p is not named]

    def arguments(self, ctx: NodeContext, value: Any) -> dict[str, Any]:
        """The arguments of a call. AgentError for an input or a piece of state that does not fit, or is missing."""
        found: dict[str, Any] = {p.name: ctx for p in self.contexts}
        if self.input is not None and not (value is None and self.input.default is not UNSET):
            found[self.input.name] = convert(value, self.input.kind, f"the input of node {self.name!r}")
        for p in self.state:
            if p.name in ctx.state:
                found[p.name] = convert(ctx.state[p.name], p.kind, f"node {self.name!r}: the state key {p.name!r}")
            elif p.default is UNSET:
                raise AgentError(f"node {self.name!r} needs the state key {p.name!r}, which is not set")
        return found

    async def call(self, arguments: Mapping[str, Any], take: "Take") -> Any:
        """Call the function. What a generator yields goes to `take`, one after another; else what it returned."""
        named = dict(arguments)
        placed: list[Any] = []
        for name in self._order:
            if name not in named:
                break
            placed.append(named.pop(name))
        with Contained(f"node {self.name!r}"):
            try:
                return await self._run(functools.partial(self.fn, *placed, **named), take)
            except NodeWaits:
                pass
            except BaseExceptionGroup as group:
                if group.split(NodeWaits)[1] is not None:  # an error beside the wait wins
                    raise
        raise NodeWaits

    async def _run(self, call: Callable[[], Any], take: "Take") -> Any:
        value = call() if self.on_loop else await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        if inspect.isawaitable(value):
            value = await value
        if inspect.isasyncgen(value):
            async with aclosing(cast("AsyncGenerator[Any]", value)) as items:
                async for item in items:
                    await take(item)
            return None
        if inspect.isgenerator(value):
            return await _drain(cast("Generator[Any, None, Any]", value), take)
        return value


Take = Callable[[Any], Any]
"""Async: what a generator yielded."""


async def _drain(items: Generator[Any, None, Any], take: Take) -> Any:
    try:
        while True:
            more, item = await anyio.to_thread.run_sync(_next, items, abandon_on_cancel=True)
            if not more:
                return item
            await take(item)
    finally:
        if inspect.getgeneratorstate(items) != inspect.GEN_RUNNING:  # a thread may still be in it
            items.close()


def _next(items: Generator[Any, None, Any]) -> tuple[bool, Any]:
    try:
        return True, next(items)
    except StopIteration as end:
        return False, end.value


def _is_context(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return isinstance(kind, type) and issubclass(kind, ReadContext)
