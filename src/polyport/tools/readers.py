"""Functions that turn plain JSON data into values of a type, losslessly, and collect every bad field.

Made by `tools/shapes` and put together there. A reader never raises for bad data: it notes a line in the Reading and
returns None.
"""

import base64
import binascii
import math
from collections.abc import Callable, Hashable, Sequence
from datetime import date, datetime, time
from enum import Enum
from typing import Any, NamedTuple, cast

import msgspec

from polyport.data.model import Schema
from polyport.tools.json_schema import check, is_list, is_map, join, kind_of, problem

EXACT, SAME, COERCE, LAX = 0, 1, 2, 3
"""How a reader reads. EXACT and SAME: no conversion of kinds (SAME takes 1 as a float); COERCE: lossless conversions;
LAX: the same, and unknown fields of nested objects are ignored. A union tries its members in these modes in turn, so
that the fit that loses least wins."""

MAX_TRIES = 20_000
"""How often members of unions may fail in one reading."""


class Reading:
    """One conversion: its mode, the lines found, and the tries left (shared with trials inside it)."""

    __slots__ = ("left", "mode", "problems")

    def __init__(self, mode: int = LAX, left: list[int] | None = None) -> None:
        self.mode = mode
        self.problems: list[str] = []
        self.left = left if left is not None else [MAX_TRIES]

    def bad(self, path: str, text: str) -> None:
        self.problems.append(problem(path, text))

    def trial(self, mode: int) -> "Reading":
        """A reading inside this one whose problems may be forgotten."""
        return Reading(mode, self.left)


Read = Callable[[Any, str, Reading], Any]


class Shape(NamedTuple):
    """A type: its JSON Schema, how it is read, and what it is called in messages, with an article."""

    schema: Schema
    read: Read
    label: str


class Field(NamedTuple):
    """A field of an object: its name in Python, its key in JSON, and its shape."""

    name: str
    key: str
    shape: Shape
    required: bool


def fresh(value: Any) -> Any:
    """A copy of the containers in plain data, so that whoever gets it may change it."""
    if isinstance(value, dict):
        return {k: fresh(v) for k, v in cast("dict[str, Any]", value).items()}
    return [fresh(v) for v in cast("list[Any]", value)] if isinstance(value, list) else value


def read_anything(value: Any, path: str, reading: Reading) -> Any:
    return fresh(value)


def scalar(kind: Any, label: str) -> Read:
    """A reader for a type that msgspec knows: text, numbers, times, ids, bytes."""
    direct = kind in (bool, int, float, str)

    def read(value: Any, path: str, reading: Reading) -> Any:
        if direct and type(value) is kind:
            return value
        if not direct or reading.mode != EXACT:
            try:
                found = msgspec.convert(value, kind, strict=reading.mode < COERCE)
                if not isinstance(found, float) or math.isfinite(found):
                    return found
            except msgspec.ValidationError:
                if reading.mode >= COERCE:
                    found = _spelled(value, kind)
                    if found is not None:
                        return found
        reading.bad(path, f"must be {label}, not {kind_of(value)}")
        return None

    return read


def _spelled(value: Any, kind: Any) -> Any:
    """Spellings that msgspec does not know: other ISO 8601 forms, the other base64 alphabet; None if it is neither."""
    if not isinstance(value, str):
        return None
    try:
        if kind in (datetime, date, time):
            return kind.fromisoformat(value)
        if kind is bytes:
            text = value.replace("-", "+").replace("_", "/").rstrip("=")
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error):
        pass  # not that spelling either: the caller reports it
    return None


def choice(values: Sequence[Any], results: Sequence[Any], make: Callable[[Any], Any] | None = None) -> Read:
    """A reader of one of some JSON values, giving the result beside it. `make` is asked last (an Enum's `_missing_`)."""
    known: dict[tuple[Any, Any], Any] = {(type(v), v): r for v, r in zip(values, results, strict=True)}
    words = {str(v): r for v, r in zip(values, results, strict=True) if _is_number(v)}
    label = ", ".join("null" if v is None else repr(v) for v in values)

    def read(value: Any, path: str, reading: Reading) -> Any:
        plain = isinstance(value, Hashable)
        if plain and (type(value), value) in known:
            return known[type(value), value]
        if plain and reading.mode >= COERCE:
            if isinstance(value, float) and value.is_integer() and (int, int(value)) in known:
                return known[int, int(value)]
            if isinstance(value, str) and value in words:
                return words[value]
            if make is not None:
                try:
                    return make(value)
                except (ValueError, TypeError, KeyError):
                    pass  # not a member: reported below
        reading.bad(path, f"must be one of {label}")
        return None

    return read


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def limited(shape: Shape, limits: Schema) -> Read:
    """A reader that also checks constraints, given as JSON Schema keywords, on what was read."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        before = len(reading.problems)
        found = shape.read(value, path, reading)
        if len(reading.problems) == before:
            for line in check(found if type(found) in (int, float, str, list, dict) else value, limits, trusted=True):
                reading.bad(path, line)
        return found

    return read


def parsed(value: Any, reading: Reading, wanted: Callable[[Any], bool]) -> Any:
    """`value`, or what it holds if it is text with the JSON of a wanted container, as some models write it."""
    if isinstance(value, str) and reading.mode >= COERCE and value[:1] in ("[", "{"):
        try:
            inner = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value
        return inner if wanted(inner) else value
    return value


def array(item: Shape, make: Callable[[list[Any]], Any], label: str) -> Read:
    """A reader of a list of items."""
    inner = item.read

    def read(value: Any, path: str, reading: Reading) -> Any:
        value = parsed(value, reading, is_list)
        if not is_list(value):
            reading.bad(path, f"must be {label}, not {kind_of(value)}")
            return None
        before = len(reading.problems)
        items = [inner(x, f"{path}[{i}]", reading) for i, x in enumerate(value)]
        if len(reading.problems) > before:
            return None
        try:
            return make(items)
        except TypeError as error:
            reading.bad(path, str(error))
            return None

    return read


def fixed(items: Sequence[Shape], label: str) -> Read:
    """A reader of a tuple with a shape for each place."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        value = parsed(value, reading, is_list)
        if not is_list(value) or len(value) != len(items):
            found = f"an array of {len(value)}" if is_list(value) else kind_of(value)
            reading.bad(path, f"must be {label}, not {found}")
            return None
        pairs = zip(items, value, strict=True)
        return tuple([shape.read(x, f"{path}[{i}]", reading) for i, (shape, x) in enumerate(pairs)])

    return read


def mapping(key: Shape | None, item: Shape, make: Callable[[dict[Any, Any]], Any]) -> Read:
    """A reader of an object whose keys are not known beforehand. `key` is None for text keys."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        value = parsed(value, reading, is_map)
        if not is_map(value):
            reading.bad(path, f"must be an object, not {kind_of(value)}")
            return None
        out: dict[Any, Any] = {}
        outer, reading.mode = reading.mode, max(COERCE, reading.mode) if key is not None else reading.mode
        keys = [key.read(k, join(path, k), reading) if key is not None else k for k in value]
        reading.mode = outer
        for name, (text, inner) in zip(keys, value.items(), strict=True):
            got = item.read(inner, join(path, text), reading)
            if isinstance(name, Hashable):
                out[name] = got
        return make(out)

    return read


def record(
    fields: Sequence[Field], make: Callable[..., Any], label: str, *, closed: bool, tag: tuple[str, Any]
) -> Read:
    """A reader of an object with known fields. `closed` refuses others; `tag` is a key and the value it must have."""
    keys = {f.key for f in fields}
    if tag[0]:
        keys.add(tag[0])

    def read(value: Any, path: str, reading: Reading) -> Any:
        value = parsed(value, reading, is_map)
        if not is_map(value):
            reading.bad(path, f"must be {label}, not {kind_of(value)}")
            return None
        before = len(reading.problems)
        found: dict[str, Any] = {}
        for name, key, shape, required in fields:
            if key in value:
                found[name] = shape.read(value[key], join(path, key), reading)
            elif required:
                reading.bad(join(path, key), "is missing")
        if tag[0] and value.get(tag[0], tag[1]) != tag[1]:
            reading.bad(join(path, tag[0]), f"must be {tag[1]!r}")
        if closed or reading.mode < LAX:
            for key in value:
                if key not in keys:
                    reading.bad(join(path, key), "is not known; known are " + (", ".join(sorted(keys)) or "none"))
        if len(reading.problems) > before:
            return None
        try:
            return make(**found)
        except (ValueError, TypeError) as error:  # from the user's own __post_init__
            reading.bad(path, str(error))
            return None

    return read


def union(members: Sequence[Shape], optional: bool) -> Read:
    """A reader that tries members in order, exact fits first. The report is that of the member that came closest."""
    if len(members) == 1:
        only = members[0].read
        return lambda value, path, reading: None if value is None else only(value, path, reading)
    label = " or ".join([*(m.label for m in members), *(["null"] if optional else [])])

    def read(value: Any, path: str, reading: Reading) -> Any:
        if value is None and optional:
            return None
        trials: list[Reading] = []
        for mode in range(reading.mode + 1):
            trials = []
            for member in members:
                if reading.left[0] < 0:
                    reading.bad(path, "is too complex to read")
                    return None
                trial = reading.trial(mode)
                found = member.read(value, path, trial)
                if not trial.problems:
                    return found
                reading.left[0] -= 1
                trials.append(trial)
        here = problem(path, "must be ")
        inside = [t.problems for t in trials if not any(line.startswith(here) for line in t.problems)]
        if inside:
            reading.problems += min(inside, key=len)
        else:
            reading.bad(path, f"must be {label}, not {kind_of(value)}")
        return None

    return read


def adapted(adapter: Any, kind: Any, label: str, keys: frozenset[str] | None) -> Read:
    """A reader for a type that pydantic knows, with pydantic's own rules for JSON data. `keys`: the fields it has."""

    def read(value: Any, path: str, reading: Reading) -> Any:
        if isinstance(kind, type) and isinstance(value, kind):
            return value
        if keys is not None:
            value = parsed(value, reading, is_map)
            if not is_map(value):
                reading.bad(path, f"must be {label}, not {kind_of(value)}")
                return None
            if reading.mode < LAX and not value.keys() <= keys:
                reading.bad(path, "has unknown fields")
                return None
        try:
            return adapter.validate_json(msgspec.json.encode(value))
        except (ValueError, TypeError) as error:
            list_errors = getattr(error, "errors", None)
            if list_errors is None:
                reading.bad(path, str(error))
                return None
            for one in list_errors(include_url=False, include_context=False, include_input=False):
                where = path
                for step in one["loc"]:
                    where = f"{where}[{step}]" if isinstance(step, int) else join(where, str(step))
                reading.bad(where, str(one["msg"]))
            return None

    return read


def enum_values(kind: type[Enum]) -> list[Any]:
    """What stands for the members in JSON: their values, or their names if a value has no JSON form."""
    members = list(kind)
    values = [m.value for m in members]
    return values if all(v is None or isinstance(v, str | int | float) for v in values) else [m.name for m in members]
