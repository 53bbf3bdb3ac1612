"""From Python types to shapes: a JSON Schema and a reader for each, made in one walk over the type.

Used by `tools/schema`, which is the door. Knows scalars, enums, literals, unions (also untagged ones of several classes),
containers, Structs, dataclasses, TypedDicts, NamedTuples and whatever pydantic knows; ConfigError for the rest. Never
imports pydantic: who hands over a pydantic type has done so.
"""

import collections
import collections.abc as abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import msgspec

from polyport import codec
from polyport.data.model import Schema
from polyport.errors import BadRequest, ConfigError
from polyport.tools import readers
from polyport.tools.docstring import read_docstring
from polyport.tools.json_schema import is_list, is_map
from polyport.tools.members import Member, filled, members_of
from polyport.tools.normalize import normalize, nullable
from polyport.tools.readers import Field, Shape

_SCALARS: dict[Any, tuple[str, str, str]] = {
    bool: ("boolean", "", "a boolean"),
    int: ("integer", "", "an integer"),
    float: ("number", "", "a number"),
    str: ("string", "", "a string"),
    datetime: ("string", "date-time", "a date and time (ISO 8601)"),
    date: ("string", "date", "a date (YYYY-MM-DD)"),
    time: ("string", "time", "a time (HH:MM:SS)"),
    timedelta: ("string", "duration", "a duration (ISO 8601)"),
    UUID: ("string", "uuid", "a UUID"),
    Decimal: ("string", "decimal", "a decimal number"),
    bytes: ("string", "", "base64 text"),
}
_LISTS: dict[Any, Callable[[list[Any]], Any]] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), list),
    **dict.fromkeys((set, abc.Set, abc.MutableSet), set),
    frozenset: frozenset,
    tuple: tuple,
    collections.deque: collections.deque,
}
_DICTS = (dict, abc.Mapping, abc.MutableMapping, collections.OrderedDict)
_WRAPPERS = frozenset(("Required", "NotRequired", "ReadOnly", "Final", "ClassVar"))
_LIMITS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_LENGTHS = {"array": "Items", "object": "Properties"}


class Compiler:
    """One walk. `native`: msgspec converts the whole type as we do when nothing needs coercion. `shares`: some part
    of the input is handed on as it is."""

    def __init__(self) -> None:
        self.defs: dict[str, Schema] = {}
        self.seen: dict[Any, Shape] = {}
        self.native = True
        self.shares = False

    def schema(self, shape: Shape) -> Schema:
        """The finished JSON Schema of a shape made here."""
        return normalize({**shape.schema, "$defs": self.defs} if self.defs else shape.schema)

    def shape(self, kind: Any, where: str) -> Shape:
        """The shape of a type. ConfigError, which begins with `where`, for a type that has no JSON form."""
        if kind is Any or kind is object:
            self.shares = True
            return Shape({}, readers.read_anything, "anything")
        if kind is None or kind is type(None):
            return Shape({"type": "null"}, readers.choice([None], [None]), "null")
        if isinstance(kind, typing.TypeVar):
            bound = kind.__bound__ or (typing.Union[kind.__constraints__] if kind.__constraints__ else Any)  # noqa: UP007  built from a tuple
            return self.shape(bound, where)
        if isinstance(kind, str | typing.ForwardRef):
            raise ConfigError(f"{where}: the annotation {kind!r} cannot be resolved; import the name at module level")
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return self._annotated(kind, args[0], args[1:], where)
        if origin is typing.Literal:
            values = [v.value if isinstance(v, Enum) else v for v in args]
            return self._choice(values, args)
        if origin is typing.Union or origin is types.UnionType:
            return self._union(args, where)
        if getattr(origin or kind, "_name", None) in _WRAPPERS and (args or origin is None):
            return self.shape(args[0] if args else Any, where)
        if hasattr(kind, "__supertype__"):
            return self.shape(kind.__supertype__, where)
        if type(origin or kind).__name__ == "TypeAliasType":
            return self._named(kind, lambda: self.shape(filled((origin or kind).__value__, kind), where))
        return self._class(kind, origin or kind, args, where)

    def _class(self, kind: Any, base: Any, args: tuple[Any, ...], where: str) -> Shape:
        if type(base).__hash__ is None:
            raise ConfigError(f"{where}: {base!r} is not a type")
        if base in _SCALARS:
            return self._scalar(base)
        if base in _LISTS:
            return self._list(base, args, where)
        if base in _DICTS:
            return self._dict(base, args, where)
        if inspect.isclass(base):
            if base is Path:
                self.native = False
                text = self._scalar(str)
                return Shape({"type": "string"}, _then(text, Path), "a path")
            if issubclass(base, Enum):
                values = readers.enum_values(base)
                return self._choice(values, list(base), base)
            if hasattr(base, "__get_pydantic_core_schema__") or hasattr(base, "__pydantic_validator__"):
                return self._pydantic(kind, base.__name__, where)
            if members := members_of(base, where):
                return self._named(kind, lambda: self._record(kind, base, members(), where))
        name = getattr(kind, "__name__", None) or repr(kind)
        raise ConfigError(
            f"{where}: the type {name} has no JSON form; use a dataclass, a Struct, a pydantic model, a container or a"
            " plain type"
        )

    def _scalar(self, kind: Any) -> Shape:
        name, form, label = _SCALARS[kind]
        schema: Schema = {"type": name, "format": form} if form else {"type": name}
        if kind is bytes:
            schema["contentEncoding"] = "base64"
        return Shape(schema, readers.scalar(kind, label), label)

    def _choice(self, values: list[Any], results: Any, make: Callable[[Any], Any] | None = None) -> Shape:
        kinds = list(dict.fromkeys(_json_type(v) for v in values))
        schema: Schema = {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values} if values else {"not": {}}
        label = "one of " + ", ".join("null" if v is None else repr(v) for v in values)
        return Shape(schema, readers.choice(values, results, make), label)

    def _list(self, base: Any, args: tuple[Any, ...], where: str) -> Shape:
        make = _LISTS[base]
        self.native &= base is not collections.deque
        if base is tuple and args and args[-1] is not ...:
            shapes = [self.shape(a, where) for a in args if a != ()]
            schemas = [s.schema for s in shapes]
            size: Schema = {"minItems": len(shapes), "maxItems": len(shapes)}
            same = all(s == schemas[0] for s in schemas) if schemas else False
            items: Schema = {"items": schemas[0]} if same else {"prefixItems": schemas, "items": False}
            label = f"an array of {len(shapes)}"
            return Shape({"type": "array", **items, **size}, readers.fixed(shapes, label), label)
        item = self.shape(args[0] if args else Any, where)
        schema: Schema = {"type": "array", "items": item.schema} if item.schema else {"type": "array"}
        return Shape(schema, readers.array(item, make, "an array"), "an array")

    def _dict(self, base: Any, args: tuple[Any, ...], where: str) -> Shape:
        keys, item = args if len(args) == 2 else (str, Any)
        make = collections.OrderedDict[Any, Any] if base is collections.OrderedDict else dict[Any, Any]
        self.native &= base is not collections.OrderedDict
        inner = self.shape(item, where)
        schema: Schema = {"type": "object"}
        if inner.schema:
            schema["additionalProperties"] = inner.schema
        if keys is str or keys is Any:
            return Shape(schema, readers.mapping(None, inner, make), "an object")
        key = self.shape(keys, where)
        if key.schema.get("type") == "string":
            schema["propertyNames"] = key.schema
        elif key.schema == {"type": "integer"}:
            schema["propertyNames"] = {"pattern": "^-?[0-9]+$"}
        return Shape(schema, readers.mapping(key, inner, make), "an object")

    def _union(self, args: tuple[Any, ...], where: str) -> Shape:
        optional = type(None) in args
        shapes = [self.shape(a, where) for a in args if a is not type(None)]
        schemas: list[Schema] = []
        for shape in shapes:
            if shape.schema not in schemas:
                schemas.append(shape.schema)
        if {"type": "number"} in schemas:
            schemas = [s for s in schemas if s != {"type": "integer"}]
        schema: Schema = {} if {} in schemas else schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        label = " or ".join(s.label for s in shapes)
        if optional:
            schema, label = nullable(schema), f"{label} or null"
        return Shape(schema, readers.union(shapes, optional), label)

    def _annotated(self, kind: Any, base: Any, notes: tuple[Any, ...], where: str) -> Shape:
        if any(hasattr(note, "__get_pydantic_core_schema__") for note in notes):
            return self._pydantic(kind, getattr(base, "__name__", str(base)), where)
        shape = self.shape(base, where)
        schema, limits = dict(shape.schema), cast("Schema", {})
        sizes = next((w for t, w in _LENGTHS.items() if shape.schema.get("type") in (t, [t, "null"])), "Length")
        for note in _flat(notes):
            text = note if isinstance(note, str) else getattr(note, "description", getattr(note, "documentation", None))
            if isinstance(text, str) and text:
                schema["description"] = text
            for name in ("extra_json_schema", "json_schema_extra"):
                if is_map(extra := getattr(note, name, None)):
                    schema.update(extra)
            if is_list(examples := getattr(note, "examples", None)):
                schema["examples"] = examples
            if getattr(note, "tz", None) is not None and base in (datetime, time):
                shape = shape._replace(read=readers.scalar(typing.Annotated[base, note], shape.label))
            found = dict(_limits(note, sizes, where))
            limits.update(found)
            self.native &= isinstance(note, msgspec.Meta) or not found
        if not limits:
            return shape._replace(schema=schema)
        return Shape({**schema, **limits}, readers.limited(shape, limits), shape.label)

    def _named(self, kind: Any, build: Callable[[], Shape]) -> Shape:
        """A shape that may contain itself: a reference now, the body under `defs`."""
        if kind in self.seen:
            return self.seen[kind]
        base = name = getattr(kind, "__name__", None) or str(kind)
        count = 1
        while name in self.defs:
            count += 1
            name = f"{base}_{count}"
        self.defs[name] = {}
        body: list[Shape] = []
        forward: readers.Read = lambda value, path, reading: body[0].read(value, path, reading)  # noqa: E731  typed
        self.seen[kind] = Shape({"$ref": f"#/$defs/{name}"}, forward, f"a {base} object")
        body.append(build())
        self.defs[name] = body[0].schema
        self.seen[kind] = Shape(self.seen[kind].schema, body[0].read, body[0].label)
        return self.seen[kind]

    def _record(self, kind: Any, base: Any, members: list[Member], where: str) -> Shape:
        made = getattr(base, "__dataclass_params__", None)
        self.native &= made is None or made.init
        name = base.__name__
        label = f"{'an' if name[:1] in 'AEIOU' else 'a'} {name} object"
        config = getattr(base, "__struct_config__", None)
        tag = (config.tag_field, config.tag) if config is not None and config.tag is not None else ("", None)
        members = [m._replace(type=filled(m.type, kind)) for m in members]
        closed = config is not None and config.forbid_unknown_fields
        shape = self.record(members, base, label, f"{where}: {name}, field ", closed=closed, tag=tag)
        text = base.__dict__.get("__doc__")
        if isinstance(text, str) and not text.startswith(f"{name}("):  # that of a dataclass is made by Python
            doc = read_docstring(text)
            for key, inner in shape.schema["properties"].items():
                if key in doc.params and "description" not in inner:
                    shape.schema["properties"][key] = {**inner, "description": doc.params[key]}
            if doc.summary:
                shape = shape._replace(schema={"description": doc.summary, **shape.schema})
        if config is not None and config.array_like:
            raise ConfigError(f"{where}: {name} is an array_like Struct, which a model cannot fill in")
        return shape._replace(read=_by_place(shape, [m.key for m in members])) if issubclass(base, tuple) else shape

    def record(
        self,
        members: list[Member],
        make: Callable[..., Any],
        label: str,
        where: str,
        *,
        closed: bool = False,
        tag: tuple[str, Any] = ("", None),
    ) -> Shape:
        """An object with known fields, as `make(**fields)`. `where` is what stands before a field's name in messages."""
        properties: dict[str, Schema] = {}
        fields: list[Field] = []
        required: list[str] = []
        if tag[0]:
            properties[tag[0]] = {"type": _json_type(tag[1]), "enum": [tag[1]]}
            required.append(tag[0])
        for member in members:
            shape = self.shape(member.type, where + member.name)
            schema = dict(shape.schema)
            if member.description and "description" not in schema:
                schema["description"] = member.description
            if not member.required and member.default is not ...:
                schema.update(_default(member.default))
            properties[member.key] = schema
            fields.append(Field(member.name, member.key, shape, member.required))
            if member.required:
                required.append(member.key)
        out: Schema = {"type": "object", "properties": properties}
        if required:
            out["required"] = required
        if closed:
            out["additionalProperties"] = False
        return Shape(out, readers.record(fields, make, label, closed=closed, tag=tag), label)

    def _pydantic(self, kind: Any, name: str, where: str) -> Shape:
        self.native = False
        pydantic: Any = sys.modules.get("pydantic")
        if pydantic is None:
            raise ConfigError(f"{where}: {name} asks for pydantic, which is not imported")
        try:
            adapter = pydantic.TypeAdapter(kind)
            schema = normalize(adapter.json_schema())
        except (RuntimeError, NameError, TypeError, ValueError) as error:  # what pydantic's own errors derive from
            first = str(error).partition("\n")[0]
            raise ConfigError(f"{where}: pydantic cannot make a schema of {name}: {first}") from error
        keys = frozenset(schema["properties"]) if "properties" in schema else None
        label = f"a {name} object" if keys is not None else f"a {name}"
        return Shape(self._adopt(schema), readers.adapted(adapter, kind, label, keys), label)

    def _adopt(self, schema: Schema) -> Schema:
        """A foreign schema whose `$defs` have moved here, under names of their own."""
        inner = schema.pop("$defs", {})
        names: dict[str, str] = {}
        for name in inner:
            fresh, count = name, 1
            while fresh in self.defs or fresh in names.values():
                count += 1
                fresh = f"{name}_{count}"
            names[name] = fresh
        for name, body in inner.items():
            self.defs[names[name]] = _renamed(body, names)
        return _renamed(schema, names)


def _renamed(node: Any, names: dict[str, str]) -> Any:
    if is_map(node):
        out = {k: _renamed(v, names) for k, v in node.items()}
        if isinstance(ref := out.get("$ref"), str):
            out["$ref"] = "#/$defs/" + names.get(ref.removeprefix("#/$defs/"), "")
        return out
    return [_renamed(v, names) for v in node] if is_list(node) else node


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number")):
        if isinstance(value, kind):
            return name
    return "string"


def _default(value: Any) -> Schema:
    """`{"default": value}`, or nothing if the value has no JSON form."""
    try:
        return {"default": codec.json_safe([value], "default")[0]}
    except BadRequest:
        return {}


def _then(shape: Shape, make: Callable[[Any], Any]) -> readers.Read:
    def read(value: Any, path: str, reading: readers.Reading) -> Any:
        found = shape.read(value, path, reading)
        return found if found is None else make(found)

    return read


def _by_place(shape: Shape, keys: list[str]) -> readers.Read:
    """A reader of a NamedTuple: an object, or an array with the fields in order."""

    def read(value: Any, path: str, reading: readers.Reading) -> Any:
        if is_list(value) and len(value) <= len(keys):
            value = dict(zip(keys, value, strict=False))
        return shape.read(value, path, reading)

    return read


def _flat(notes: tuple[Any, ...]) -> Iterator[Any]:
    for note in notes:
        yield note
        if is_list(inner := getattr(note, "metadata", None)):
            yield from inner


def _limits(note: Any, sizes: str, where: str) -> Iterator[tuple[str, Any]]:
    """The constraints of one note of an Annotated (msgspec's Meta, annotated_types, pydantic's Field) as keywords."""
    for name, keyword in (*_LIMITS.items(), ("min_length", "min" + sizes), ("max_length", "max" + sizes)):
        limit = getattr(note, name, None)
        if limit is None or callable(limit) or isinstance(note, str):
            continue
        if isinstance(limit, Decimal):
            limit = float(limit)
        if not isinstance(limit, int | float | str):
            raise ConfigError(f"{where}: the constraint {name}={limit!r} is not supported for this type")
        yield keyword, limit
