"""Schemas of OpenAPI in the form that models and `check` take.

Called while an operation is read. Works on schemas that `normalize` has been over; never looks at values.
"""

from collections.abc import Callable
from typing import Any

from polyport.data.model import Schema
from polyport.tools.json_schema import is_list, is_map
from polyport.tools.normalize import normalize
from polyport.tools.openapi_spec import Document

_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs")
_NOISE = frozenset(("xml", "externalDocs", "example"))
_MERGES = frozenset(("type", "properties", "required", "description", "examples", "default", "deprecated"))
_MIXED = ("anyOf", "oneOf", "allOf", "not", "if", "$ref")


def read_schemas(document: Document, schemas: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Several schemas of one document, normalized, by the same keys; and the `$defs` that they share."""
    root: Schema = {"properties": schemas, "components": document.components, "paths": document.paths}
    out = normalize(root)
    defs = {name: tidied(schema) for name, schema in out.get("$defs", {}).items()}
    return {key: _opened(tidied(schema), defs) for key, schema in out["properties"].items()}, defs


def _opened(schema: Any, defs: dict[str, Any]) -> Any:
    """A schema that only refers to a recursive one, written out one level deep: it has to be readable as an object."""
    if not is_map(schema) or "$ref" not in schema:
        return schema
    target = defs.get(str(schema["$ref"]).removeprefix("#/$defs/"))
    return {**target, **{k: v for k, v in schema.items() if k != "$ref"}} if is_map(target) else schema


def mapped(schema: Any, change: Callable[[Schema], Any]) -> Any:
    """A copy of a schema with `change` applied to each schema in it, the inner ones first."""
    if not is_map(schema):
        return schema
    out = dict(schema)
    for key in _ONE:
        if is_map(out.get(key)):
            out[key] = mapped(out[key], change)
    for key in _MANY:
        if is_list(out.get(key)):
            out[key] = [mapped(item, change) for item in out[key]]
    for key in _MAPS:
        if is_map(out.get(key)):
            out[key] = {name: mapped(item, change) for name, item in out[key].items()}
    return change(out)


def tidied(schema: Any) -> Any:
    """Without what only people read (`xml`, `example`, `x-...`), and with object schemas under `allOf` made one."""
    return mapped(schema, lambda s: _merged({k: v for k, v in s.items() if k not in _NOISE and k[:2] != "x-"}))


def _merged(schema: Schema) -> Schema:
    parts = schema.get("allOf")
    if not is_list(parts) or not parts:
        return schema
    own = {k: v for k, v in schema.items() if k != "allOf"}
    everything = [own, *parts]
    for part in everything:
        if not is_map(part) or part.keys() - _MERGES or part.get("type", "object") != "object":
            return schema
    out: Schema = {"type": "object"}
    properties: dict[str, Any] = {}
    required: dict[str, None] = {}
    for part in [*parts, own]:
        for name, inner in part.get("properties", {}).items():
            known = properties.get(name, inner)
            properties[name] = inner if known == inner else {"allOf": [known, inner]}
        required |= dict.fromkeys(part.get("required", ()))
        out |= {k: v for k, v in part.items() if k not in ("type", "properties", "required")}
    out["properties"] = properties
    if required:
        out["required"] = list(required)
    return out


def sent(schema: Any) -> Any:
    """A body's schema as the model sees it: read-only properties left out (OpenAPI: they are not sent)."""
    return mapped(schema, lambda s: _without(s, {}))


def checked(schema: Any) -> Any:
    """A body's schema for `check`: read-only properties are not allowed, so that the model is told of them."""
    return mapped(schema, lambda s: _without(s, dict.fromkeys(_read_only(s), False)))


def _read_only(schema: Schema) -> list[str]:
    properties = schema.get("properties")
    if not is_map(properties):
        return []
    return [name for name, inner in properties.items() if is_map(inner) and inner.get("readOnly") is True]


def _without(schema: Schema, instead: dict[str, Any]) -> Schema:
    names = _read_only(schema)
    if not names:
        return schema
    out = {**schema, "properties": {k: v for k, v in schema["properties"].items() if k not in names} | instead}
    required = [name for name in schema.get("required", ()) if name not in names]
    if required:
        out["required"] = required
    else:
        out.pop("required", None)
    return out


def is_record(schema: Any) -> bool:
    """Whether a schema is that of an object with these properties and no others that matter."""
    if not is_map(schema) or schema.get("type", "object") != "object" or any(key in schema for key in _MIXED):
        return False
    return (
        bool(schema.get("properties")) and not schema.get("additionalProperties") and "patternProperties" not in schema
    )


def takes_null(schema: Any) -> bool:
    """Whether null fits a schema."""
    if not is_map(schema):
        return schema is not False
    kind = schema.get("type")
    if kind is not None:
        return kind == "null" or (is_list(kind) and "null" in kind)
    if "enum" in schema:
        return None in schema["enum"]
    options = schema.get("anyOf") or schema.get("oneOf")
    return any(map(takes_null, options)) if is_list(options) else "$ref" not in schema


def is_binary(schema: Any) -> bool:
    """Whether a schema stands for bytes: `format: binary`, or the `contentMediaType` of OpenAPI 3.1."""
    if not is_map(schema):
        return False
    return schema.get("format") == "binary" or ("contentMediaType" in schema and "contentEncoding" not in schema)
