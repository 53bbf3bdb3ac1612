"""From nodes to Structs: checks a value of an agent file against a declared type, and notes every mistake with its place.

Called by the builders of agents, with the Structs of `config/schema`. A key that is not known is a mistake, with the nearest
right one. A text field takes every word as it was written; truth values are `true` and `false` only. Raises nothing: what could
not be read is left at its default, so that the rest of the file is checked, too.
"""

import difflib
import math
from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct, field, inspect

from polyport.config.yaml_text import NOWHERE, Node, Problems, scalar
from polyport.errors import ConfigError

BROKEN: Any = object()
"""Stands for a value that could not be read."""

_MAYBE_BOOLS = frozenset({"yes", "no", "on", "off", "y", "n"})


class Section(Struct, kw_only=True):
    """A mapping of an agent file; `node` is where it stands. `what` is its name in messages. With `folded` its keys may be in
    camelCase, or in lower case as one word."""

    what: ClassVar[str] = "a mapping"
    folded: ClassVar[bool] = False
    node: Node = field(default_factory=lambda: NOWHERE)


def read(node: Node, wanted: Any, problems: Problems, what: str = "") -> Any:
    """`node` as a value of the type `wanted`, or BROKEN."""
    return _Reader(problems).read(node, inspect.type_info(wanted), what)


def unknown_key(name: str, known: Sequence[str], what: str) -> str:
    """What to say of a key that is not known."""
    meant = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    guess = f"; did you mean {meant[0]!r}?" if meant else f". It takes: {', '.join(known) or 'no keys'}"
    return f"there is no key {name!r} in {what}{guess}"


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean ...?` or nothing."""
    meant = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {meant[0]!r}?" if meant else ""


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def read(self, node: Node, wanted: inspect.Type, what: str) -> Any:
        options = _options(wanted)
        if any(isinstance(one, inspect.StructType) and one.cls is Node for one in options):
            return node
        if any(isinstance(one, inspect.AnyType) for one in options):
            return node.value()
        if node.is_null and any(isinstance(one, inspect.NoneType) for one in options):
            return None
        if node.kind == "map":
            return self._map(node, options, what)
        if node.kind == "list":
            for one in options:
                if isinstance(one, inspect.ListType):
                    items = [self.read(item, one.item_type, f"an item of {what}") for item in node.items]
                    return [item for item in items if item is not BROKEN]
        else:
            for one in sorted(options, key=_is_text):  # a text takes every word
                value = _as_word(node, one)
                if value is not BROKEN:
                    return value
        return self._misfit(node, options, what)

    def _misfit(self, node: Node, options: list[inspect.Type], what: str) -> Any:
        message = f"{what} takes {_wanted(options)}, not {node.shown()}"
        if node.kind == "text" and not node.secret:
            if node.text.lower() in _MAYBE_BOOLS and any(isinstance(o, inspect.BoolType) for o in options):
                message += "; write true or false"
            words = [str(v) for o in options if isinstance(o, inspect.LiteralType) for v in o.values]
            message += nearest(node.text, words)
        self._problems.add(node, message)
        return BROKEN

    def _map(self, node: Node, options: list[inspect.Type], what: str) -> Any:
        for one in options:
            if isinstance(one, inspect.StructType):
                return self._struct(node, one)
            if isinstance(one, inspect.DictType):
                read = {
                    key: self.read(value, one.value_type, f"{key!r} of {what}")
                    for key, (_, value) in node.members.items()
                }
                return {key: value for key, value in read.items() if value is not BROKEN}
        return self._misfit(node, options, what)

    def _struct(self, node: Node, wanted: inspect.StructType) -> Any:
        cls: Any = wanted.cls
        what: str = getattr(cls, "what", cls.__name__)
        fields = {f.name: f for f in wanted.fields if f.name != "node"}
        by_key = {_fold(name): name for name in fields} if getattr(cls, "folded", False) else {n: n for n in fields}
        values: dict[str, Any] = {}
        for key, (key_node, value) in node.members.items():
            name = by_key.get(_fold(key) if getattr(cls, "folded", False) else key)
            if name is None:
                self._problems.add(key_node, unknown_key(key, list(fields), what))
            elif name in values:
                self._problems.add(key_node, f"{name!r} is given twice, in two spellings")
            elif not (
                value.is_null and not _takes_nothing(fields[name].type)
            ):  # a key without a value is as good as none
                found = self.read(value, fields[name].type, repr(key))
                if found is not BROKEN:
                    values[name] = found
        for name in [f.name for f in wanted.fields if f.required and f.name not in values]:
            if name not in node.members or node.members[name][1].is_null:
                self._problems.add(node, f"{what} needs the key {name!r}")
            if not any(_is_text(one) for one in _options(fields[name].type)):
                return BROKEN
            values[name] = ""
        if issubclass(cls, Section):
            values["node"] = node
        try:
            return cls(**values)
        except ConfigError as error:
            self._problems.add(node, str(error))
            return BROKEN


def _fold(key: str) -> str:
    return key.replace("_", "").lower()


def _takes_nothing(wanted: inspect.Type) -> bool:
    return any(isinstance(one, inspect.AnyType) for one in _options(wanted))


def _options(wanted: inspect.Type) -> list[inspect.Type]:
    if isinstance(wanted, inspect.Metadata):
        return _options(wanted.type)
    if isinstance(wanted, inspect.UnionType):
        return [option for one in wanted.types for option in _options(one)]
    return [wanted]


def _is_text(wanted: inspect.Type) -> bool:
    return isinstance(wanted, inspect.StrType)


def _as_word(node: Node, wanted: inspect.Type) -> Any:
    """A text as a value of a simple type, else BROKEN."""
    if isinstance(wanted, inspect.LiteralType):
        return node.text if node.text in wanted.values else BROKEN
    if isinstance(wanted, inspect.StrType):
        return BROKEN if node.is_null else node.text
    value = scalar(node.text) if node.plain else node.text
    if isinstance(wanted, inspect.BoolType):
        return value if isinstance(value, bool) else BROKEN
    if isinstance(value, bool):
        return BROKEN
    if isinstance(wanted, inspect.IntType):
        return value if isinstance(value, int) else BROKEN
    if isinstance(wanted, inspect.FloatType):
        return _finite(value) if isinstance(value, int | float) else BROKEN
    return BROKEN


def _finite(number: float) -> Any:
    try:
        return float(number) if math.isfinite(number) else BROKEN
    except OverflowError:
        return BROKEN


def _wanted(options: list[inspect.Type]) -> str:
    names: list[str] = []
    for one in options:
        if isinstance(one, inspect.LiteralType):
            names.append(" or ".join(map(repr, one.values)))
        elif isinstance(one, inspect.StructType):
            names.append(getattr(one.cls, "what", "a mapping"))
        else:
            names.append(_KINDS.get(type(one), ""))
    return " or ".join(name for name in names if name)


_KINDS: dict[type[inspect.Type], str] = {
    inspect.StrType: "a text",
    inspect.BoolType: "true or false",
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.ListType: "a list",
    inspect.DictType: "a mapping",
}
