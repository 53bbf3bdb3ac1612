"""Checks plain JSON data against a JSON Schema.

Used for schemas that come as dicts (a user's output schema, parameters of a tool) and for the constraints of types. Knows
no Python types, changes no value, never fetches a remote reference, and is bounded in time.
"""

import logging
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeGuard, cast

from polyport.data.model import Schema

log = logging.getLogger("polyport.tools")

MAX_STEPS = 100_000
"""How many (value, schema) pairs one check may look at."""
MAX_PATTERN = 1000
"""Characters of a `pattern`."""
MATCH_STEPS = 10_000_000
"""About how many steps one `pattern` may take on one text; it decides how long the text may be."""
SHORT_TEXT = 20
"""Characters on which any pattern is tried, also one that repeats something that repeats or branches."""


def is_map(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list | tuple)


def kind_of(value: Any) -> str:
    """What a value is, in the words of JSON with an article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    for kind, name in ((float, "a number"), (str, "a string"), (dict, "an object")):
        if isinstance(value, kind):
            return name
    return "an array" if is_list(value) else f"a {type(value).__name__}"


def join(path: str, key: str) -> str:
    """`path` and then a field."""
    return f"{path}.{key}" if path else key


def problem(path: str, text: str) -> str:
    """One line of a report."""
    return f"{path}: {text}" if path else text


KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "null": ("null", lambda v: v is None),
    "boolean": ("a boolean", lambda v: isinstance(v, bool)),
    "integer": ("an integer", lambda v: _number(v) and (isinstance(v, int) or (math.isfinite(v) and v == int(v)))),
    "number": ("a number", lambda v: _number(v)),
    "string": ("a string", lambda v: isinstance(v, str)),
    "array": ("an array", is_list),
    "object": ("an object", is_map),
}
"""`type` -> its name with an article, and the test."""


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(a: Any, b: Any) -> bool:
    """Equality of JSON values: `1` is `1.0` but not `true`."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if is_map(a) and is_map(b):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if is_list(a) and is_list(b):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@lru_cache(maxsize=512)
def pattern(text: str) -> tuple[re.Pattern[str], int] | None:
    """A compiled `pattern` and the longest text that it is sure to get through in time; None if it cannot be used."""
    try:
        if len(text) > MAX_PATTERN:
            raise re.error("it is too long")
        return re.compile(text), _longest(text)
    except re.error as error:
        log.warning("the pattern %.80r of a schema is not checked: %s", text, error)
        return None


def _longest(text: str) -> int:
    """The longest text for a pattern. Nested repeats backtrack exponentially, each other repeat adds a power."""
    repeats = 0 if text.startswith("^") else 1  # a search tries every place
    groups = [False]
    plain = re.sub(r"\\[1-9]", "()+()+", text)  # a back reference is as bad as two repeats
    plain = re.sub(r"\\.|\[\]?(?:[^\]\\]|\\.)*\]", "x", plain).replace("(?", "(")
    for index, char in enumerate(plain):
        repeated = plain[index + 1 : index + 2] in ("*", "+", "{")
        if char == "(":
            groups.append(False)
        elif char == ")" and len(groups) > 1:
            inner = groups.pop()
            if inner and repeated:
                return SHORT_TEXT
            groups[-1] |= inner
        elif char in "*+{?|":
            groups[-1] = True
            repeats += char in "*+{"
    return max(SHORT_TEXT, int(MATCH_STEPS ** (1 / max(repeats, 1))))


def check(value: Any, schema: Schema | bool, *, trusted: bool = False) -> list[str]:
    """What in `value` (plain JSON data) does not fit `schema`, one line for each bad field; empty when it fits.

    Takes the usual keywords of draft 2020-12, and `definitions` and array-form `items` of draft 07. `format` is not
    checked. A text is refused when it is too long for a `pattern` that might backtrack without end; with `trusted`, for
    schemas that the developer wrote, patterns are taken to be sound.
    """
    checker = _Check(schema, trusted)
    try:
        checker.any(value, schema, "")
    except RecursionError:
        checker.problems.append("the value or its schema nests too deep")
    return checker.problems


class _Check:
    """One check: the root schema for references, the lines found, and the steps left."""

    def __init__(self, root: Schema | bool, trusted: bool, steps: int = MAX_STEPS) -> None:
        self.root = root
        self.trusted = trusted
        self.problems: list[str] = []
        self.steps = steps

    def bad(self, path: str, text: str) -> None:
        self.problems.append(problem(path, text))

    def any(self, value: Any, schema: Any, path: str) -> None:
        """Check one value against one schema, which may be true or false."""
        self.steps -= 1
        if self.steps < 0:
            if self.steps == -1:
                self.bad(path, "is too complex to check")
            return
        if schema is False:
            self.bad(path, "is not allowed")
        if not is_map(schema):
            return
        if "$ref" in schema:
            target = resolve(self.root, schema["$ref"])
            if target is not None:
                self.any(value, target, path)
        if self._type(value, schema, path):
            self._values(value, schema, path)
            if isinstance(value, str):
                self._string(value, schema, path)
            elif _number(value):
                self._numeric(value, schema, path)
            elif is_map(value):
                self._object(value, schema, path)
            elif is_list(value):
                self._array(value, schema, path)
        self._combined(value, schema, path)

    def _type(self, value: Any, schema: Schema, path: str) -> bool:
        wanted = schema.get("type")
        if wanted is None:
            return True
        kinds = [KINDS[k] for k in (wanted if is_list(wanted) else [wanted]) if k in KINDS]
        if not kinds or any(test(value) for _, test in kinds) or (value is None and schema.get("nullable") is True):
            return True
        self.bad(path, f"must be {' or '.join(name for name, _ in kinds)}, not {kind_of(value)}")
        return False

    def _values(self, value: Any, schema: Schema, path: str) -> None:
        if "const" in schema and not equal(value, schema["const"]):
            self.bad(path, f"must be {schema['const']!r}")
        if "enum" in schema and not any(equal(value, item) for item in schema["enum"]):
            self.bad(path, "must be one of " + ", ".join(repr(item) for item in schema["enum"]))

    def _string(self, value: str, schema: Schema, path: str) -> None:
        self._size(len(value), schema, path, "Length", "characters")
        if "pattern" in schema and (found := pattern(schema["pattern"])):
            if len(value) > found[1] and not self.trusted:
                self.bad(path, f"is too long to be matched with {schema['pattern']}: at most {found[1]} characters")
            elif not found[0].search(value):
                self.bad(path, f"must match {schema['pattern']}")

    def _size(self, size: int, schema: Schema, path: str, what: str, unit: str) -> None:
        least, most = schema.get("min" + what), schema.get("max" + what)
        if least is not None and size < least:
            self.bad(path, f"must have at least {least} {unit}, not {size}")
        if most is not None and size > most:
            self.bad(path, f"must have at most {most} {unit}, not {size}")

    def _numeric(self, value: Any, schema: Schema, path: str) -> None:
        low, high = schema.get("minimum"), schema.get("maximum")
        above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        if above is True:  # draft 4
            above, low = low, None
        if below is True:
            below, high = high, None
        if low is not None and not value >= low:
            self.bad(path, f"must be at least {low}")
        if high is not None and not value <= high:
            self.bad(path, f"must be at most {high}")
        if _number(above) and not value > above:
            self.bad(path, f"must be greater than {above}")
        if _number(below) and not value < below:
            self.bad(path, f"must be less than {below}")
        step = schema.get("multipleOf")
        if step and abs(value / step - round(value / step)) > 1e-9:
            self.bad(path, f"must be a multiple of {step}")

    def _array(self, value: list[Any], schema: Schema, path: str) -> None:
        self._size(len(value), schema, path, "Items", "items")
        items, first = schema.get("items", True), cast("list[Any]", schema.get("prefixItems", []))
        if is_list(items):  # draft 07
            first, items = items, schema.get("additionalItems", True)
        for index, item in enumerate(value):
            self.any(item, first[index] if index < len(first) else items, f"{path}[{index}]")
        if schema.get("uniqueItems") and any(equal(a, b) for i, a in enumerate(value) for b in value[:i]):
            self.bad(path, "must not have the same item twice")
        if "contains" in schema:
            count = sum(self._fits(item, schema["contains"]) for item in value)
            self._size(count, {"minContains": 1, **schema}, path, "Contains", "matching items")

    def _object(self, value: dict[str, Any], schema: Schema, path: str) -> None:
        self._size(len(value), schema, path, "Properties", "fields")
        known: dict[str, Any] = schema.get("properties", {})
        patterns: dict[str, Any] = schema.get("patternProperties", {})
        for key in schema.get("required", ()):
            if key not in value:
                self.bad(join(path, key), "is missing")
        for key, names in schema.get("dependentRequired", {}).items():
            for name in names if key in value else ():
                if name not in value:
                    self.bad(join(path, name), f"is missing beside {key}")
        extra = schema.get("additionalProperties", True)
        for key, item in value.items():
            where = join(path, key)
            if "propertyNames" in schema:
                self.any(key, schema["propertyNames"], where)
            matched = key in known
            if matched:
                self.any(item, known[key], where)
            for text, inner in patterns.items():
                found = pattern(text)
                if found and len(key) > found[1] and not self.trusted:
                    self.bad(where, f"has a name too long to be matched with {text}")
                elif found and found[0].search(key):
                    matched = True
                    self.any(item, inner, where)
            if not matched:
                if extra is False:
                    self.bad(where, "is not known")
                else:
                    self.any(item, extra, where)

    def _fits(self, value: Any, schema: Any) -> bool:
        return not self._trial(value, schema, "")

    def _trial(self, value: Any, schema: Any, path: str) -> list[str]:
        trial = _Check(self.root, self.trusted, self.steps)
        trial.any(value, schema, path)
        self.steps = trial.steps
        return trial.problems

    def _combined(self, value: Any, schema: Schema, path: str) -> None:
        for inner in schema.get("allOf", ()):
            self.any(value, inner, path)
        if "anyOf" in schema:
            self._best([self._trial(value, inner, path) for inner in schema["anyOf"]], path)
        if "oneOf" in schema:
            trials = [self._trial(value, inner, path) for inner in schema["oneOf"]]
            self._best(trials, path)
            if sum(not t for t in trials) > 1:
                self.bad(path, "fits more than one of the alternatives")
        if "not" in schema and self._fits(value, schema["not"]):
            self.bad(path, "is of a form that is not allowed")
        if "if" in schema:
            branch = "then" if self._fits(value, schema["if"]) else "else"
            self.any(value, schema.get(branch, True), path)

    def _best(self, trials: list[list[str]], path: str) -> None:
        """Report alternatives of which none fits: the one that came closest, which is the one that got deepest."""
        if not trials or not all(trials):
            return
        here = problem(path, "must be ")
        inside = [t for t in trials if not any(line.startswith(here) for line in t)]
        if inside:
            self.problems += min(inside, key=len)
            return
        lines = dict.fromkeys(line.removeprefix(f"{path}: ") for trial in trials for line in trial)
        self.bad(path, "fits none of the alternatives: " + "; ".join(lines))


def resolve(root: Any, ref: Any) -> Any:
    """What a local reference (`#`, `#/$defs/X`, any JSON pointer) points at; None if nothing. `definitions` and `$defs`
    stand for each other."""
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    node = root
    for raw in ref[1:].lstrip("/").split("/") if len(ref) > 1 else ():
        key = raw.replace("~1", "/").replace("~0", "~")
        if is_map(node):
            other = {"$defs": "definitions", "definitions": "$defs"}.get(key, key)
            node = node.get(key, node.get(other))
        elif is_list(node) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node if is_map(node) or isinstance(node, bool) else None
