"""Values for a JSON Schema out of a sentence: how the demo model fills in the arguments of tools.

Used by `models/demo.py`. Deterministic; knows no language, only capitals, quotes, prepositions and numbers. A value it
gives fits its schema; where these few rules cannot be sure of that, it gives none (`Unfillable`). Never does I/O.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from msgspec import Struct

from polyport.data.model import Schema

MAX_DEPTH = 8
MAX_ITEMS = 100
SCALARS = frozenset(("string", "integer", "number", "boolean", "null"))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SMALL_WORDS = _words(
    "a an and any are as at be by can could do does for from get give go has have hello help hey hi how i if in into is it"
    " its let like make me my need no not of on one or our please say show some tell than that the their then there these"
    " they this to up us use want was we what when where which who why will with would yes you your"
)
"""Words that say nothing about the subject."""

_QUOTED = re.compile(r"\"([^\"]+)\"|'([^'\s][^']*)'(?!\w)|“([^”]+)”")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\w)")
_TOKEN = re.compile(r"[^\W\d_][\w'-]*|[,;:.!?\n]")
_AFTER = _words("in of for at to about from near named called on by")
_DAY = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])"
_FORMATS = {
    "date": (re.compile(_DAY), "2025-01-01"),
    "date-time": (re.compile(_DAY + r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"), "2025-01-01T12:00:00Z"),
    "email": (re.compile(r"[\w+-]+(?:\.[\w+-]+)*@[A-Za-z0-9]+(?:\.[A-Za-z0-9]+)+", re.ASCII), "user@example.com"),
    "uri": (re.compile(r"https?://[a-z0-9.-]+(?:/[\w./-]*)?", re.ASCII), "https://example.com"),
}
_LOOSE_FORMATS = ("", "int32", "int64", "float", "double", "password")
_PLAIN = _words(
    "type enum const title description default examples deprecated readOnly writeOnly $schema $id $defs definitions $comment"
    " format minLength maxLength pattern minimum maximum exclusiveMinimum exclusiveMaximum multipleOf properties required"
    " additionalProperties items prefixItems minItems maxItems uniqueItems nullable"
)
"""Keywords that these rules follow or that do not matter; a schema with any other one is left alone."""
_NOTES = _words("title description default examples deprecated $defs definitions $comment")
_KINDS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
_NOTHING = object()


class Unfillable(Exception):
    """No value that is sure to fit."""


class Hints(Struct):
    """What a sentence offers. `known` are values by name, from earlier results; they come first."""

    text: str
    names: list[str] = []
    numbers: list[float] = []
    known: dict[str, Any] = {}


def read_hints(text: str, subject: Callable[[str], bool]) -> Hints:
    """Names (quoted, else capitalised, else after a preposition) and numbers in `text`, in order.

    `subject` tells words that name the tool rather than one of its arguments.
    """
    names = [next(g for g in m.groups() if g).strip() for m in _QUOTED.finditer(text)]
    names = names or list(_capitalised(text, subject)) or list(_after_preposition(text, subject))
    numbers = [float(m.group()) for m in _NUMBER.finditer(text)]
    return Hints(text=text.strip(), names=list(dict.fromkeys(n for n in names if n)), numbers=numbers)


def _capitalised(text: str, subject: Callable[[str], bool]) -> list[str]:
    """Runs of capitalised words; a single one at the start of a sentence counts only when there is no other."""
    runs: list[tuple[bool, list[str]]] = []
    start, going = True, False
    for token in _TOKEN.findall(text):
        named = token[0].isupper() and token.lower() not in SMALL_WORDS and not subject(token)
        if named and going:
            runs[-1][1].append(token)
        elif named:
            runs.append((start, [token]))
        going, start = named, token in ".!?\n:"
    sure = [words for at_start, words in runs if not at_start or len(words) > 1]
    return [" ".join(words) for words in sure or [words for _, words in runs]]


def _after_preposition(text: str, subject: Callable[[str], bool]) -> Iterator[str]:
    """Single words after "in", "of" and the like, and those joined to them by "and" or a comma."""
    wanted = named = False
    for token in _TOKEN.findall(text):
        word = token.lower()
        if word in _AFTER or (named and word in ("and", "or", ",")):
            wanted, named = True, False
        elif wanted and word in ("the", "a", "an"):
            continue
        else:
            named = wanted and word[0].isalpha() and word not in SMALL_WORDS and not subject(token)
            wanted = False
            if named:
                yield token


def mentioned(schema: Schema, text: str) -> list[Any]:
    """The enum values of `schema` that stand in `text`, in the order of the text."""
    found: list[tuple[int, Any]] = []
    for value in cast("list[Any]", schema.get("enum") or []):
        words = re.escape(str(value).replace("_", " "))
        at = re.search(rf"(?<!\w){words}(?!\w)", text.replace("_", " "), re.IGNORECASE)
        if at and value is not None and not isinstance(value, bool):
            found.append((at.start(), value))
    return [value for _, value in sorted(found, key=lambda f: f[0])]


class Filler:
    """Fills one root schema. Names and numbers are used up in order. `eager` also fills what is not required, if it can."""

    def __init__(self, root: Schema, hints: Hints, *, eager: bool = False) -> None:
        self._root = root
        self._hints = hints
        self._eager = eager
        self._names = list(hints.names)
        self._numbers = [int(n) if n.is_integer() else n for n in hints.numbers]

    def fill(self, schema: Any, name: str = "", depth: int = 0) -> Any:
        """A value that fits `schema`, or Unfillable."""
        for option in self.options(schema, depth):
            kinds = types_of(option)
            try:
                if SCALARS.issuperset(kinds) or "enum" in option or "const" in option:
                    return self._scalar(option, name)
                return self._object(option, depth) if "object" in kinds else self._array(option, name, depth)
            except Unfillable:
                continue
        raise Unfillable

    def options(self, schema: Any, depth: int = 0) -> Iterator[Schema]:
        """`schema` with its reference followed, or its alternatives one by one, null last. Unfillable where unsure."""
        if schema is True:
            schema = {"type": "string"}
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            raise Unfillable
        schema = cast("Schema", schema)
        strange = schema.keys() - _PLAIN
        if not strange:
            yield schema
            return
        key = strange.pop()
        if strange or schema.keys() - _NOTES - {key}:
            raise Unfillable  # other keywords beside it would have to hold as well
        if key == "$ref":
            yield from self.options(self._resolve(schema[key]), depth + 1)
        elif key == "anyOf" or (key in ("oneOf", "allOf") and _single(key, schema[key])):
            for option in sorted(schema[key], key=lambda o: o == {"type": "null"}):
                yield from self.options(option, depth + 1)
        else:
            raise Unfillable

    def _resolve(self, ref: Any) -> Any:
        at: Any = self._root
        for step in str(ref).removeprefix("#").split("/")[1:]:
            at = cast("Schema", at).get(step.replace("~1", "/").replace("~0", "~")) if isinstance(at, dict) else None
        return at if str(ref).startswith("#") else None

    def _scalar(self, schema: Schema, name: str) -> Any:
        found: Any = next((v for v in self._candidates(schema, name) if fits(schema, v)), _NOTHING)
        if found is _NOTHING:
            raise Unfillable
        for offered in (self._names, self._numbers):
            if found in offered and not isinstance(found, bool):
                cast("list[Any]", offered).remove(found)
        return found

    def _candidates(self, schema: Schema, name: str) -> Iterator[Any]:
        hints = self._hints
        if name in hints.known:
            yield hints.known[name]
        if "const" in schema:
            yield schema["const"]
        yield from mentioned(schema, hints.text)
        yield from schema.get("enum") or []
        kinds = types_of(schema)
        if "string" in kinds:
            yield from self._strings(schema)
        if "integer" in kinds or "number" in kinds:
            yield from self._numbers
            yield from _round_numbers(schema)
        if "boolean" in kinds:
            yield re.search(r"\b(?:no|not|false|off|without)\b", hints.text, re.IGNORECASE) is None
        if "null" in kinds:
            yield None

    def _strings(self, schema: Schema) -> Iterator[str]:
        text = self._hints.text or "text"
        known_format = _FORMATS.get(schema.get("format", ""))
        if known_format is not None:
            yield from (m.group() for m in known_format[0].finditer(text))
            yield known_format[1]
        yield from self._names
        yield from self._hints.names
        yield text
        shortest, longest = int(schema.get("minLength", 0)), int(schema.get("maxLength", 1000))
        yield text.ljust(min(shortest, 10_000), ".")[: max(longest, 0)]

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties = cast("Schema", schema.get("properties") or {})
        required = cast("list[str]", schema.get("required") or [])
        out: dict[str, Any] = {}
        for name in dict.fromkeys([*properties, *required]):
            try:
                inner = properties.get(name, schema.get("additionalProperties", True))
                if name in required or self._offered(inner, name):
                    out[name] = self.fill(inner, name, depth + 1)
            except Unfillable:
                if name in required:
                    raise
        return out

    def _offered(self, schema: Any, name: str) -> bool:
        """Whether there is something to say for an optional member."""
        if self._eager or name in self._hints.known:
            return True
        if not isinstance(schema, dict):
            return False
        plain = cast("Schema", schema)
        return bool(mentioned(plain, self._hints.text)) or any(
            kind in ("integer", "number") and fits(option, number)
            for option in self.options(plain)
            for kind in types_of(option)
            for number in self._numbers
        )

    def _array(self, schema: Schema, name: str, depth: int) -> list[Any]:
        low, high = int(schema.get("minItems", 0)), min(int(schema.get("maxItems", MAX_ITEMS)), MAX_ITEMS)
        out = [self.fill(s, "", depth + 1) for s in cast("list[Any]", schema.get("prefixItems") or [])[:high]]
        items = schema.get("items", True)
        offered = len(
            self._names if isinstance(items, dict) and "string" in types_of(cast("Schema", items)) else self._numbers
        )
        while items is not False and len(out) < min(max(low, offered, 1), high):
            try:
                out.append(self.fill(items, name, depth + 1))
            except Unfillable:
                break
        if schema.get("uniqueItems"):
            out = [v for i, v in enumerate(out) if v not in out[:i]]
        if len(out) < low:
            raise Unfillable
        return out


def types_of(schema: Schema) -> tuple[str, ...]:
    """The types that `schema` allows; guessed from its keywords when it names none."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return (kind.lower(),)
    if isinstance(kind, list) and kind:
        return tuple(str(k).lower() for k in cast("list[Any]", kind))
    if "properties" in schema or "required" in schema:
        return ("object",)
    if "items" in schema or "prefixItems" in schema:
        return ("array",)
    return ("number",) if {"minimum", "maximum", "multipleOf"} & schema.keys() else ("string",)


def fits(schema: Schema, value: Any) -> bool:
    """Whether a scalar fits a schema without references and alternatives; strict, False when in doubt."""
    kind, kinds = _KINDS.get(type(value), ""), types_of(schema)
    fixed = "enum" in schema or "const" in schema
    if ("type" in schema or not fixed) and kind not in kinds and not (kind == "integer" and "number" in kinds):
        return False
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is not None and not any(type(value) is type(v) and value == v for v in allowed):
        return False
    if isinstance(value, str):
        return _fits_text(schema, value)
    return _fits_number(schema, value) if kind in ("integer", "number") else kind != ""


def _fits_text(schema: Schema, value: str) -> bool:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf):
        return False
    try:
        if "pattern" in schema and re.search(schema["pattern"], value) is None:
            return False
    except re.error:
        return False
    wanted = schema.get("format", "")
    return _FORMATS[wanted][0].fullmatch(value) is not None if wanted in _FORMATS else wanted in _LOOSE_FORMATS


def _fits_number(schema: Schema, value: float) -> bool:
    step = schema.get("multipleOf", 1)
    return (
        schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
        and schema.get("exclusiveMinimum", -math.inf) < value < schema.get("exclusiveMaximum", math.inf)
        and ("multipleOf" not in schema or (isinstance(step, int) and isinstance(value, int) and value % step == 0))
    )


def _round_numbers(schema: Schema) -> Iterator[float]:
    """A few numbers that may fit: 1, 0, the bounds, and what lies beside and between them."""
    yield from (1, 0)
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    step = schema.get("multipleOf", 1)
    for bound in (low, high):
        if math.isfinite(bound):
            yield from (math.ceil(bound), math.floor(bound), math.ceil(bound) + 1, math.floor(bound) - 1, bound)
            yield from (math.ceil(bound / step) * step, math.floor(bound / step) * step)
    if math.isfinite(low) and math.isfinite(high):
        yield (low + high) / 2


def _single(key: str, options: list[Any]) -> bool:
    """Whether filling one option is enough: there is no other, or no value can fit two because their types differ."""
    kinds = [str(cast("Schema", o).get("type")) if isinstance(o, dict) else "None" for o in options]
    apart = len(set(kinds)) == len(kinds) and "None" not in kinds and not {"integer", "number"} <= set(kinds)
    return len(options) == 1 or (key == "oneOf" and apart)
