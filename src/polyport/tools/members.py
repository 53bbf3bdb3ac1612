"""Lists the fields of classes that describe objects: Structs, dataclasses, TypedDicts and NamedTuples.

Used by `tools/shapes` only. Resolves string annotations and the type variables of generic classes; looks at no data.
"""

import dataclasses
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from polyport.errors import ConfigError


class Member(NamedTuple):
    """A field of a class, or a parameter of a function, before its type is looked at. `default` is `...` for none."""

    name: str
    key: str
    type: Any
    required: bool
    default: Any = ...
    description: str = ""


def filled(hint: Any, alias: Any) -> Any:
    """`hint` with the type variables of a generic class replaced by the arguments of `alias`."""
    base = typing.get_origin(alias)
    params = getattr(base, "__parameters__", ()) or getattr(base, "__type_params__", ())
    if not params:
        return hint
    values = dict(zip(params, typing.get_args(alias), strict=False))
    if isinstance(hint, typing.TypeVar):
        return values.get(hint, hint)
    inner = getattr(hint, "__parameters__", ())
    return hint[tuple(values.get(p, p) for p in inner)] if inner and not isinstance(hint, type) else hint


def _hints(base: Any, where: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(base, include_extras=True)
    except NameError as error:
        raise ConfigError(f"{where}: an annotation of {base.__name__} cannot be resolved: {error}") from None


def members_of(base: type[Any], where: str) -> Callable[[], list[Member]] | None:
    """How to list the fields of a class of a known kind; None for another."""
    if issubclass(base, msgspec.Struct):
        return lambda: _struct_members(base, where)
    if dataclasses.is_dataclass(base):
        return lambda: _dataclass_members(base, where)
    if hasattr(base, "__required_keys__"):
        return lambda: _typed_dict_members(base, where)
    if hasattr(base, "_fields") and hasattr(base, "_field_defaults"):
        return lambda: _named_tuple_members(base, where)
    return None


def _struct_members(base: Any, where: str) -> list[Member]:
    hints = _hints(base, where)
    found: list[Member] = []
    for f in msgspec.structs.fields(base):
        default = ... if f.default is msgspec.NODEFAULT else f.default
        found.append(Member(f.name, f.encode_name, hints[f.name], f.required, default))
    return found


def _dataclass_members(base: Any, where: str) -> list[Member]:
    hints = _hints(base, where)
    found: list[Member] = []
    for f in dataclasses.fields(base):
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        default = ... if f.default is dataclasses.MISSING else f.default
        if f.init:
            text = f.metadata.get("description", "")
            found.append(
                Member(f.name, f.name, hints[f.name], required, default, text if isinstance(text, str) else "")
            )
    return found


def _typed_dict_members(base: Any, where: str) -> list[Member]:
    found: list[Member] = []
    for name, hint in _hints(base, where).items():
        word = getattr(typing.get_origin(hint), "_name", "")
        required = word == "Required" or (word != "NotRequired" and name in base.__required_keys__)
        found.append(Member(name, name, hint, required))
    return found


def _named_tuple_members(base: Any, where: str) -> list[Member]:
    hints, defaults = _hints(base, where), base._field_defaults
    return [Member(n, n, hints.get(n, Any), n not in defaults, defaults.get(n, ...)) for n in base._fields]
