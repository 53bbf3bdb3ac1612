"""JSON Schemas as the `parameters` of a function, in the part of OpenAPI that Gemini's older live models read.

Used by `wire/gemini_live_request.py` only: models before Gemini 3 call tools without arguments when these come as
`parametersJsonSchema`, and close the connection at a member of `parameters` that they do not know. What cannot be said
there is loosened, or told in the description: the arguments are checked against the real schema in any case. No I/O.
"""

from typing import Any, cast

from polyport.data.model import Schema

MAX_NESTING = 12
"""Below this a schema is told as an object, or a text, of any form."""
MAX_NODES = 2_000
"""After so many parts all others are told as texts: references to references could name more than there is room for."""

Refs = tuple[str, ...]
_NULL = {"type": "null"}
_KEPT = ("description", "minimum", "maximum", "minItems", "maxItems")
_FORMATS = {"STRING": {"date-time", "enum"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"}}


def parameters(schema: Schema) -> dict[str, Any] | None:
    """The `parameters` that tell an object schema; None for a function without any. The given schema is left as it is."""
    if not schema.get("properties"):
        return None
    return _Reader(schema).read(schema, 0, ())


class _Reader:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = MAX_NODES

    def read(self, given: Any, depth: int, seen: Refs) -> dict[str, Any]:
        """`seen` are the references that led here: a second time each of them leads nowhere."""
        self._left -= 1
        schema, seen = self._whole(given, seen)
        kinds = [k for k in _listed(schema.get("type")) if k != "null"]
        branches = [b for b in _branches(schema) if b != _NULL]
        out = {key: schema[key] for key in _KEPT if key in schema}
        if _says_null(schema):
            out["nullable"] = True
        if depth >= MAX_NESTING or self._left < 0:
            return {"type": "OBJECT" if "object" in kinds else "STRING"}
        if len(branches) == 1:
            return {**self.read(branches[0], depth + 1, seen), **out}
        if len(kinds) > 1 and not branches:
            branches = [{**schema, "type": kind} for kind in kinds]
        if branches:
            return {**out, "anyOf": [self.read(branch, depth + 1, seen) for branch in branches]}
        kind = str(kinds[0] if kinds else _guess(schema)).upper()
        out["type"] = kind
        if schema.get("format") in _FORMATS.get(kind, ()):
            out["format"] = schema["format"]
        _tell_values(schema, out)
        if kind == "ARRAY":
            out["items"] = self.read(schema.get("items", {}), depth + 1, seen)
        elif kind == "OBJECT" and (members := schema.get("properties")):
            out["properties"] = {name: self.read(member, depth + 1, seen) for name, member in members.items()}
            if needed := dict.fromkeys(name for name in schema.get("required", []) if name in members):
                out["required"] = list(needed)
        return out

    def _whole(self, given: Any, seen: Refs) -> tuple[Schema, Refs]:
        """A schema with its references and `allOf` put in, and the references that were followed."""
        if not isinstance(given, dict):
            return {}, seen  # true: anything
        schema = cast("Schema", given)
        if "$ref" in schema:
            ref = str(schema["$ref"])
            notes = {k: v for k, v in schema.items() if k != "$ref"}
            if ref in seen:
                kind = cast("Schema", self._target(ref) or {}).get("type", "string")
                return {"type": kind, **notes}, seen
            found, seen = self._whole(self._target(ref), (*seen, ref))
            return {**found, **notes}, seen
        if "allOf" not in schema:
            return schema, seen
        merged: Schema = {k: v for k, v in schema.items() if k != "allOf"}
        for part in schema["allOf"]:
            other, seen = self._whole(part, seen)
            merged = {
                **other,
                **merged,
                "properties": {**other.get("properties", {}), **merged.get("properties", {})},
                "required": [*merged.get("required", []), *other.get("required", [])],
            }
        return {k: v for k, v in merged.items() if v or k not in ("properties", "required")}, seen

    def _target(self, ref: str) -> Any:
        found: Any = self._root
        for step in ref.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = cast("Schema", found).get(name) if isinstance(found, dict) else None
        return found


def _tell_values(schema: Schema, out: dict[str, Any]) -> None:
    """Fixed values: the API lists words only, so others are told in the description."""
    values = [v for v in schema.get("enum") or ([schema["const"]] if "const" in schema else []) if v is not None]
    if values and all(isinstance(v, str) and v for v in values):
        out["enum"] = values
    elif values:
        told = "One of: " + ", ".join(str(v) for v in values)
        out["description"] = f"{out['description']} {told}" if "description" in out else told


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _branches(schema: Schema) -> list[Any]:
    return schema.get("anyOf") or schema.get("oneOf") or []


def _says_null(schema: Schema) -> bool:
    if "null" in _listed(schema.get("type")) or None in schema.get("enum", []):
        return True
    return _NULL in _branches(schema)


def _guess(schema: Schema) -> str:
    """The type of a schema that names none: text can say anything."""
    if "properties" in schema:
        return "object"
    if "items" in schema:
        return "array"
    values = schema.get("enum") or [schema.get("const")]
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return "integer"
    return "string"
