"""The door to types and JSON Schemas: `schema_of`, `convert`, `check`, `normalize`, `output_schema`.

Called for function tools, for structured answers and for foreign tools. A type is walked once (`tools/shapes`); data that
needs no coercion then goes straight through msgspec, and the rest through readers that report all bad fields at once.
Does no I/O.
"""

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from polyport.data.model import Schema
from polyport.errors import BadRequest, ConfigError
from polyport.tools.json_schema import check as check
from polyport.tools.json_schema import is_map
from polyport.tools.members import Member
from polyport.tools.normalize import normalize as normalize
from polyport.tools.readers import Read, Reading, fresh
from polyport.tools.shapes import Compiler

MAX_REPORTED = 20
"""Bad fields that one error lists."""

_PATH = re.compile(r"([^\s:]+): ")


class Parser:
    """A type made ready: `schema` is its JSON Schema (do not change it); calling it reads plain data."""

    __slots__ = ("_call", "_fast", "_read", "_shares", "schema")

    def __init__(self, schema: Schema, read: Read, fast: Any, shares: bool, call: bool) -> None:
        self.schema = schema
        self._read = read
        self._fast = fast
        self._shares = shares
        self._call = call

    def __call__(self, value: Any, what: str = "the value does not fit") -> Any:
        """The value that plain JSON data stands for; BadRequest, beginning with `what`, that lists all bad fields."""
        if self._fast is not None:
            try:
                found = msgspec.convert(fresh(value) if self._shares else value, self._fast)
                return {key: getattr(found, key) for key in value} if self._call else found
            except msgspec.ValidationError:
                pass  # the readers coerce, or say what is wrong
        reading = Reading()
        try:
            found = self._read(value, "", reading)
        except RecursionError:
            raise BadRequest(f"{what}: it nests too deep") from None
        if reading.problems:
            raise refusal(what, reading.problems)
        return found


def refusal(what: str, problems: Sequence[str]) -> BadRequest:
    """The error that reports these problems. Its `field` is the path of the first."""
    lines = list(dict.fromkeys(problems))
    more = f"; and {len(lines) - MAX_REPORTED} more" if len(lines) > MAX_REPORTED else ""
    path = _PATH.match(lines[0])
    return BadRequest(f"{what}: {'; '.join(lines[:MAX_REPORTED])}{more}", path[1] if path else "")


def parser_of(kind: Any, where: str = "schema") -> Parser:
    """The parser of a type. ConfigError, beginning with `where`, for a type that has no JSON form."""
    walk = Compiler()
    shape = walk.shape(kind, where)
    return Parser(walk.schema(shape), shape.read, kind if walk.native and _known(kind) else None, walk.shares, False)


def arguments_of(members: Iterable[Member], where: str) -> Parser:
    """The parser of a call's arguments: an object, closed, read as a dict of those given."""
    found = list(members)
    walk = Compiler()
    shape = walk.record(found, dict[str, Any], "an object", where, closed=True)
    fast: Any = None
    if walk.native:
        fields = [(m.name, m.type) if m.required else (m.name, m.type, None) for m in found]
        fast = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return Parser(walk.schema(shape), shape.read, fast if fast and _known(fast) else None, walk.shares, True)


def _known(kind: Any) -> bool:
    """Whether msgspec takes the type; it refuses unions of several classes, for one."""
    try:
        msgspec.json.Decoder(kind)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=512)
def _cached(kind: Any, spelling: str) -> Parser:
    """`spelling` is a part of the key because `int | str` equals `str | int`, and the order matters."""
    return parser_of(kind)


def _parser(kind: Any) -> Parser:
    try:
        return _cached(kind, "" if isinstance(kind, type) else repr(kind))
    except TypeError as error:
        if "unhashable" in str(error):  # an Annotated with a list in it
            return parser_of(kind)
        raise


def schema_of(kind: Any) -> Schema:
    """The JSON Schema of a type: references inlined except recursive ones, no titles, docs kept as descriptions.

    ConfigError for a type that has no JSON form.
    """
    return copy.deepcopy(_parser(kind).schema)


def convert(value: Any, kind: Any) -> Any:
    """Plain JSON data as a value of a type; models are built at every depth.

    Lossless coercions only ("22" -> 22, 3.0 -> 3, 1 -> 1.0, ISO times, JSON text of a wanted list or object).
    BadRequest that lists every bad field with its path. Unknown fields of nested classes are ignored unless the class
    forbids them.
    """
    return _parser(kind)(value)


def output_schema(spec: Any) -> tuple[Schema, Callable[[Any], Any]]:
    """The JSON Schema of a structured answer, and the parser of an answer that came as JSON data.

    `spec` is a type, a pydantic model or a JSON Schema as a dict. The schema is always that of an object: any other is
    wrapped as `{"result": ...}`, which the parser takes off again (an answer without the wrapper is taken as well). The
    parser gives a value of the type, or for a dict the data itself; BadRequest lists all bad fields. ConfigError for a
    spec that is neither, or whose references lead nowhere (FR-103).
    """
    if is_map(spec):
        schema = normalize(spec, strict=True)
        if "properties" in schema and "type" not in schema:
            schema = {"type": "object", **schema}
        parse = _raw_parser(schema)
    else:
        schema, parse = _typed_parser(spec)
    wrapped = as_object(schema)
    if wrapped is schema:
        return schema, parse
    return wrapped, lambda value: parse(value["result"] if is_map(value) and value.keys() == {"result"} else value)


def as_object(schema: Schema) -> Schema:
    """`schema` itself if it is that of an object, else that of `{"result": ...}`."""
    if schema.get("type") == "object":
        return schema
    inner = {k: v for k, v in schema.items() if k != "$defs"}
    wrapped: Schema = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return {**wrapped, "$defs": schema["$defs"]} if "$defs" in schema else wrapped


def _typed_parser(kind: Any) -> tuple[Schema, Callable[[Any], Any]]:
    if kind is None or isinstance(kind, str) or type(kind).__hash__ is None:
        raise ConfigError(f"an output schema is a type or a JSON Schema as a dict, not a {type(kind).__name__}")
    parser = parser_of(kind, "output_schema")

    def parse(value: Any) -> Any:
        return parser(value, "the answer does not fit its schema")

    return parser.schema, parse


def _raw_parser(schema: Schema) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        problems = check(value, schema, trusted=True)
        if problems:
            raise refusal("the answer does not fit its schema", problems)
        return value

    return parse
