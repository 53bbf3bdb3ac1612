"""Tools from Python functions: `make_tool` and the decorator `tool`.

The signature and docstring become the declaration; arguments are checked and converted before the function is called;
the result gets its JSON form. Sync functions run in a worker thread. Called by the App (plain functions in `tools=`) and
by users; an ordinary exception of the function goes out as it is, for the engine to tell the model.
"""

import asyncio
import functools
import inspect
import math
import re
import typing
from collections import abc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, closing
from typing import Any, cast, overload

import anyio
from anyio import from_thread, to_thread

from polyport import codec
from polyport.data.model import Schema, ToolDeclaration
from polyport.errors import AgentError, BadRequest, ConfigError
from polyport.ports.agent import Tool, ToolContext
from polyport.ports.live import Listener
from polyport.tools.confirm import Predicate, When
from polyport.tools.json_schema import check, is_map
from polyport.tools.normalize import normalize
from polyport.tools.schema import arguments_of, as_object, output_schema, parser_of, refusal
from polyport.tools.signature import base_name, calls_to, read_signature

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}\Z")
_PENDING = "This is a long-running operation: while it is pending, do not call it again."
_STREAMS = (abc.AsyncIterator, abc.AsyncGenerator, abc.AsyncIterable, abc.Iterator, abc.Generator)
_LEAVES = 10


class _Pieces(list[Any]):
    """What a generator gave, in order."""


class FunctionTool(Tool):
    """A Python function that the model may call. Made by `make_tool` or `@tool`; calling it calls the function."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        long_running: bool = False,
        idempotent: bool = False,
        parameters: Schema | None = None,
        response: Any = None,
    ) -> None:
        self.fn = fn
        self.name = self.__name__ = _checked_name(name if name is not None else base_name(fn))
        self._given = _object_schema(parameters, self.name) if parameters is not None else None
        self._signature = read_signature(fn, self.name, self._given)
        self._parse = arguments_of(self._signature.members, f"function {self.name}, parameter ")
        self.description = description if description is not None else self._signature.doc.summary
        self.long_running = long_running
        self.idempotent = idempotent
        self._predicate: Predicate | None = None
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn
        self._refused = f"bad arguments for tool {self.name!r}"
        self._declaration = ToolDeclaration(
            name=self.name,
            description=f"{self.description} {_PENDING}".strip() if long_running else self.description,
            parameters=self._given if self._given is not None else self._parse.schema,
            response=output_schema(response)[0] if response is not None else _response(self._signature.returns),
        )
        target = calls_to(fn)
        self._on_loop = inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target)
        self.streaming = inspect.isasyncgenfunction(target) or inspect.isgeneratorfunction(target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it had not been made a tool."""
        return self.fn(*args, **kwargs)

    def declaration(self) -> ToolDeclaration:
        """The same object every time: copy it before changing anything in it."""
        return self._declaration

    def confirm_when(self, when: When) -> None:
        """Have calls approved by a human: all of them, or those for which a predicate with parameters of the same names is
        true. ConfigError for a predicate that does not fit the function."""
        if callable(when):
            self._predicate = Predicate(when, self._signature, self.name)
        self.require_confirmation = bool(when)

    async def needs_confirmation(self, ctx: ToolContext, args: dict[str, Any]) -> bool:
        """Arguments that do not fit are refused first (BadRequest): nobody is asked about a call that cannot be carried out."""
        if not self.require_confirmation:
            return False
        named = self.arguments(args)
        return True if self._predicate is None else await self._predicate(ctx, named)

    def arguments(self, args: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call as the function wants them. BadRequest that lists all bad, missing and unknown ones."""
        if self._given is not None:
            problems = check(args, self._given, trusted=True)
            if problems:
                raise refusal(self._refused, problems)
        return self._parse(args, self._refused)

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        """Carry out one call: a JSON object, or None from a long-running tool that has nothing yet.

        BadRequest for arguments that do not fit; ordinary exceptions of the function as they are; AgentError for an exit,
        for a cancellation that the function made up, for a group of exceptions, and for a result without a JSON form.
        """
        named = self.arguments(args)
        for name in self._signature.contexts:
            named[name] = ctx
        placed = self._placed(named) if self._signature.positional else []
        live = ctx.scope.live if self.streaming else None
        listener = live.listeners.get(ctx.function_call_id) if live is not None else None
        task = asyncio.current_task()
        try:
            value = await self._run(placed, named, listener)
        except BaseException as error:
            other = _ordinary(error, self.name, task)
            if other is error:
                raise
            raise other from error
        return self._result(value)

    def _placed(self, named: dict[str, Any]) -> list[Any]:
        """Take the positional-only arguments out of `named`, up to the last that was given."""
        slots = self._signature.positional
        last = max((i for i, (name, _) in enumerate(slots) if name in named), default=-1)
        return [named.pop(name, default) for name, default in slots[: last + 1]]

    async def _run(self, placed: list[Any], named: dict[str, Any], listener: Listener | None) -> Any:
        if self._on_loop:
            value = self.fn(*placed, **named)
        else:
            work = functools.partial(_in_thread, self.name, functools.partial(self.fn, *placed, **named), listener)
            value = await to_thread.run_sync(work, abandon_on_cancel=True)
        if inspect.isawaitable(value):
            value = await value
        return (
            await _collect(cast("AsyncIterator[Any]", value), listener) if isinstance(value, AsyncIterator) else value
        )

    def _result(self, value: Any) -> dict[str, Any] | None:
        """JSON objects as they are, everything else under `result` (spec core 6.2, statement 113)."""
        if value is None and self.long_running:
            return None
        if isinstance(value, _Pieces) and all(isinstance(piece, str) for piece in value):
            value = "".join(value)
        try:
            plain = codec.json_safe({"result": value}, "it")
        except BadRequest as error:
            raise AgentError(f"tool {self.name!r} returned a {type(value).__name__}: {error}") from error
        return plain["result"] if is_map(plain["result"]) else plain


async def _collect(pieces: AsyncIterator[Any], listener: Listener | None) -> _Pieces | None:
    """The pieces; None when they have gone to a listener one by one."""
    if isinstance(pieces, abc.AsyncGenerator):
        async with aclosing(cast("abc.AsyncGenerator[Any, None]", pieces)) as open_pieces:
            return await _gathered(open_pieces, listener)
    return await _gathered(pieces, listener)


async def _gathered(pieces: AsyncIterator[Any], listener: Listener | None) -> _Pieces | None:
    if listener is None:
        return _Pieces([piece async for piece in pieces])
    async for piece in pieces:
        await listener(piece)
    return None


def _in_thread(name: str, work: Callable[[], Any], listener: Listener | None) -> Any:
    """Run a sync function in a worker thread; what it yields is collected here, until the run is cancelled. None when it has
    gone to a listener."""
    try:
        value = work()
        if not inspect.isgenerator(value):
            return value
        pieces = _Pieces()
        with closing(value):
            for piece in value:
                if listener is None:
                    pieces.append(piece)
                else:
                    from_thread.run(listener, piece)
                from_thread.check_cancelled()
        return pieces if listener is None else None
    except (Exception, BaseExceptionGroup):
        raise
    except BaseException as error:  # an exit must not reach the thread pool, nor look like a cancellation of the run
        raise _exit_error(name, error) from error


def _ordinary(error: BaseException, name: str, task: "asyncio.Task[Any] | None") -> BaseException:
    """The exception to raise for one that came out of a tool: `error` itself, or an AgentError (FR-097)."""
    if isinstance(error, asyncio.CancelledError):
        if _cancelled(task):
            return error
        return AgentError(f"tool {name!r} raised CancelledError, though the run was not cancelled")
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        if _cancelled(task) and group.subgroup(asyncio.CancelledError) is not None:
            return group
        leaves = list(_leaves(group))
        more = f"; and {len(leaves) - _LEAVES} more" if len(leaves) > _LEAVES else ""
        return AgentError(f"tool {name!r} failed: {'; '.join(leaves[:_LEAVES])}{more}")
    if isinstance(error, Exception):
        return error
    if isinstance(error, GeneratorExit) and not _inside(task):
        return error  # this coroutine is being closed from outside
    return _exit_error(name, error)


def _exit_error(name: str, error: BaseException) -> AgentError:
    return AgentError(f"tool {name!r} raised {type(error).__name__}, which ends the call only")


def _cancelled(task: "asyncio.Task[Any] | None") -> bool:
    """Whether somebody cancelled the task, or the scope it is in."""
    return (task is not None and task.cancelling() > 0) or anyio.current_effective_deadline() == -math.inf


def _inside(task: "asyncio.Task[Any] | None") -> bool:
    """Whether this code is run by the task's own step."""
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:  # no running loop: the coroutine is being thrown away
        return False


def _leaves(group: BaseExceptionGroup[BaseException]) -> abc.Iterator[str]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def make_tool(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    long_running: bool = False,
    idempotent: bool = False,
    parameters: Schema | None = None,
    response: Any = None,
    require_confirmation: When = False,
) -> FunctionTool:
    """A Tool that calls `fn`, a function, bound method, partial or callable object, sync or async, generator or not.

    Name and description come from the function and the first paragraph of its docstring unless given. The schema comes
    from the type hints, defaults and the docstring's parameters; a parameter annotated ToolContext (or named
    `tool_context` or `ctx` without annotation) gets the context. `parameters` is a JSON Schema that replaces the inferred
    one; `response` is a type or JSON Schema for the declaration. With `require_confirmation` a human must approve every call,
    or those for which it is true as a predicate of the arguments, by name. ConfigError names the function and parameter that a
    model could not fill in.
    """
    made = FunctionTool(
        fn,
        name=name,
        description=description,
        long_running=long_running,
        idempotent=idempotent,
        parameters=parameters,
        response=response,
    )
    made.confirm_when(require_confirmation)
    return made


@overload
def tool(fn: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    long_running: bool = False,
    idempotent: bool = False,
    parameters: Schema | None = None,
    response: Any = None,
    require_confirmation: When = False,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorator: `@tool`, or `@tool(name=..., long_running=True)` with the options of `make_tool`.

    Gives a FunctionTool, which can still be called like the function.
    """
    if fn is not None:
        return make_tool(fn, **options)
    return functools.partial(make_tool, **options)


def _checked_name(name: str) -> str:
    if not _NAME.match(name):
        raise ConfigError(f"{name!r} is no name for a tool: use letters, digits and _ . : - only; give name=")
    return name


def _object_schema(parameters: Schema, name: str) -> Schema:
    """A given schema of parameters, normalized. ConfigError unless it is that of an object (spec core 6.2)."""
    schema = normalize(parameters, strict=True)
    if schema.get("type", "object") != "object":
        raise ConfigError(f"function {name}: the parameters of a tool are an object, not {schema['type']!r}")
    return {"properties": {}, **schema, "type": "object"}


def _response(kind: Any) -> Schema | None:
    """The schema of what a return annotation promises; None if it says no more than a plain kind, or nothing usable."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (abc.Awaitable, abc.Coroutine):
        return _response(args[-1])
    if origin in _STREAMS:
        kind = str if args and args[0] is str else list[args[0] if args else Any]
    try:
        schema = parser_of(kind).schema
    except ConfigError:
        return None
    if schema.keys() <= {"type"}:
        return None
    mixed = any("properties" in option or "$ref" in option for option in schema.get("anyOf", ()))
    return None if mixed else as_object(schema)
