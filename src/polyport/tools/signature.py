"""Reads the signature of a function that is to become a tool: what the model fills in, and what is filled in for it.

Used by `tools/function` when the tool is made. Resolves string annotations; calls nothing. Everything that cannot be
carried out later is a ConfigError here, naming function and parameter (FR-090).
"""

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from polyport.data.model import Schema
from polyport.errors import ConfigError
from polyport.ports.agent import ReadContext, ToolContext
from polyport.tools.docstring import Doc, read_docstring
from polyport.tools.members import Member

_CONTEXT_NAMES = ("tool_context", "ctx")
_CONTEXT_TEXT = re.compile(r"(?:^|[.\[ |])ToolContext\b")


class Signature(NamedTuple):
    """`members`: the parameters that the model fills in. `contexts`: the names that get the ToolContext. `positional`:
    names of positional-only parameters in order, with their defaults. `returns` is Any when nothing is known."""

    members: list[Member]
    contexts: tuple[str, ...]
    positional: tuple[tuple[str, Any], ...]
    returns: Any
    doc: Doc


def base_name(fn: Callable[..., Any]) -> str:
    """The name of a function, of what a partial holds, or of a callable object's class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__


def calls_to(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs when `fn` is called: through partials, and the `__call__` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return fn
    return type(fn).__call__


def read_signature(fn: Callable[..., Any], name: str, parameters: Schema | None) -> Signature:
    """The signature of `fn` as a tool called `name`. `parameters` is the schema that replaces the inferred one; untyped
    parameters and `**kwargs` are then allowed."""
    target = inspect.unwrap(calls_to(fn))
    try:
        found = inspect.signature(fn)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"function {name}: Python knows no signature of it; wrap it in a function: {error}") from None
    doc = read_docstring(_docstring(fn))
    scope = _scope(target)
    fixed = _fixed(fn)
    members: list[Member] = []
    contexts: list[str] = []
    positional: list[tuple[str, Any]] = []
    open_ended = False
    for parameter in found.parameters.values():
        if parameter.name in fixed:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            open_ended = _open_ended(parameter, name, parameters)
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append((parameter.name, parameter.default))
        kind = _annotation(parameter, name, scope)
        if _is_context(kind, parameter, name):
            contexts.append(parameter.name)
        else:
            kind = _type(kind, parameter, name, parameters)
            members.append(_member(parameter, kind, doc))
    if parameters is not None:
        members = _chosen(members, parameters, name, open_ended)
    returns = _returns(found.return_annotation, scope)
    return Signature(members, tuple(contexts), tuple(positional), returns, doc)


def context_parameters(fn: Callable[..., Any], name: str) -> set[str]:
    """The names of the parameters of a function that get the ToolContext. `name` is what errors call the function."""
    scope = _scope(inspect.unwrap(calls_to(fn)))
    found = inspect.signature(fn).parameters.values()
    return {p.name for p in found if _is_context(_annotation(p, name, scope), p, name)}


def _docstring(fn: Callable[..., Any]) -> str | None:
    target = fn
    while isinstance(target, functools.partial):
        target = target.func
    if inspect.isroutine(target) or inspect.isclass(target):
        return target.__doc__
    return type(target).__call__.__doc__ or type(target).__doc__


def _fixed(fn: Callable[..., Any]) -> set[str]:
    """The keywords that partials hold already: they are no business of the model."""
    names: set[str] = set()
    while isinstance(fn, functools.partial):
        names |= fn.keywords.keys()
        fn = fn.func
    return names


def _scope(target: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The names that the annotations of a function may use: its module's, and those of functions around it."""
    code, cells = getattr(target, "__code__", None), getattr(target, "__closure__", None) or ()
    around: dict[str, Any] = {p.__name__: p for p in getattr(target, "__type_params__", ())}
    for name, cell in zip(code.co_freevars if code is not None else (), cells, strict=False):
        try:
            around[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    return getattr(target, "__globals__", {}), around


def _resolve(annotation: Any, scope: tuple[dict[str, Any], dict[str, Any]]) -> Any:
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(holder, scope[0], scope[1], include_extras=True)["it"]


def _annotation(parameter: inspect.Parameter, name: str, scope: tuple[dict[str, Any], dict[str, Any]]) -> Any:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return annotation
    try:
        return _resolve(annotation, scope)
    except (NameError, SyntaxError, TypeError, AttributeError) as error:
        if isinstance(annotation, str) and _CONTEXT_TEXT.search(annotation):
            return ToolContext  # imported for type checkers only
        raise ConfigError(
            f"function {name}, parameter {parameter.name}: the annotation {annotation!r} cannot be resolved ({error});"
            " its names must be importable from the function's module at run time"
        ) from None


def _is_context(kind: Any, parameter: inspect.Parameter, name: str) -> bool:
    """Whether a parameter gets the ToolContext: by its annotation, or by its name when it has none."""
    if kind is parameter.empty:
        return parameter.name in _CONTEXT_NAMES
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    for option in options:
        if inspect.isclass(option) and issubclass(option, ReadContext):
            if not issubclass(ToolContext, option):
                raise ConfigError(
                    f"function {name}, parameter {parameter.name}: a tool gets a ToolContext, not a {option.__name__}"
                )
            return True
    return False


def _open_ended(parameter: inspect.Parameter, name: str, parameters: Schema | None) -> bool:
    stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
    if stars == "**" and parameters is not None:
        return True
    way = " or give the schema as parameters=" if stars == "**" else ""
    raise ConfigError(
        f"function {name}, parameter {stars}{parameter.name}: a model cannot fill it in; name the parameters{way}"
    )


def _type(kind: Any, parameter: inspect.Parameter, name: str, parameters: Schema | None) -> Any:
    """The type of a parameter: as annotated, else that of its default."""
    default = parameter.default
    if kind is not parameter.empty:
        return typing.Optional[kind] if default is None else kind  # noqa: UP045  `kind` may be any form
    if default is parameter.empty:
        if parameters is not None:
            return Any
        hint = "; pass a bound method" if parameter.name in ("self", "cls") else "; annotate it or give it a default"
        raise ConfigError(f"function {name}, parameter {parameter.name}: it has no type{hint}")
    if default is None or parameters is not None:
        return Any
    return cast("Any", type(default))


def _member(parameter: inspect.Parameter, kind: Any, doc: Doc) -> Member:
    required = parameter.default is parameter.empty
    default = ... if required else parameter.default
    return Member(parameter.name, parameter.name, kind, required, default, doc.params.get(parameter.name, ""))


def _chosen(members: list[Member], parameters: Schema, name: str, open_ended: bool) -> list[Member]:
    """The members that a given schema speaks of."""
    properties: Mapping[str, Any] = parameters.get("properties", {})
    known = {m.name for m in members}
    for member in members:
        if member.required and member.name not in properties:
            raise ConfigError(f"function {name}, parameter {member.name}: the given schema does not have it")
    for extra in properties.keys() - known:
        if not open_ended:
            raise ConfigError(f"function {name} has no parameter {extra}, which the given schema has")
    chosen = [m for m in members if m.name in properties]
    return [*chosen, *(Member(p, p, Any, False) for p in properties if p not in known)]


def _returns(annotation: Any, scope: tuple[dict[str, Any], dict[str, Any]]) -> Any:
    """What a function gives, as far as its annotation can be resolved."""
    if annotation is inspect.Signature.empty:
        return Any
    try:
        return _resolve(annotation, scope)
    except (NameError, SyntaxError, TypeError, AttributeError):
        return Any
