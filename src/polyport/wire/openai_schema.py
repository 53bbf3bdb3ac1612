"""JSON Schemas as the structured output of OpenAI's API wants them (FR-079).

Used by `wire/openai` only. Strict mode knows a part of JSON Schema: all properties required, no others allowed. A schema is
rewritten only where every answer to the new one is also valid for the old one; otherwise it is sent without strictness.
"""

from typing import Any, cast

from polyport.data.model import Schema

_ANNOTATIONS = {"title", "description", "default", "examples", "deprecated", "$comment", "readOnly", "writeOnly"}
_LOOSE = {
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "oneOf",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
} | {
    *("propertyNames", "unevaluatedProperties", "prefixItems", "contains", "uniqueItems", "minProperties"),
    *("maxProperties", "minLength", "maxLength"),
}
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
_BRANCHES = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions")


class _NotStrict(Exception):
    """The schema says something that strict mode cannot."""


def structured(schema: Schema, *, strict: bool = True) -> tuple[Schema, bool]:
    """The schema to send, and whether it may be sent as strict. The given one is left as it is."""
    if strict and schema.get("type") == "object":
        try:
            return _strict(schema), True
        except _NotStrict:
            pass  # a schema outside the strict part is sent as it is, which every server may still honour
    return _closed(schema), False


def _strict(schema: Schema) -> Schema:
    if "discriminator" in schema and "oneOf" in schema:  # branches that exclude each other: anyOf means the same
        schema = {("anyOf" if k == "oneOf" else k): v for k, v in schema.items() if k != "discriminator"}
    if _LOOSE & schema.keys() or schema.get("format", "uuid") not in _FORMATS:
        raise _NotStrict
    if "$ref" in schema and len(schema) > 1:
        return _strict_ref(schema)
    out = {k: v for k, v in schema.items() if k not in ("default", "examples", "$comment")}
    for key in _NAMED:
        if key in out:
            out[key] = {name: _strict_item(item) for name, item in out[key].items()}
    if "items" in out:
        out["items"] = _strict_item(out["items"])
    if "anyOf" in out:
        out["anyOf"] = [_strict_item(item) for item in out["anyOf"]]
    if out.get("type") == "object" or "properties" in out:
        _strict_object(schema, out)
    elif not out.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        raise _NotStrict  # an "any value" schema
    return out


def _strict_item(item: Any) -> Any:
    if not isinstance(item, dict):
        raise _NotStrict  # true or false in the place of a schema
    return _strict(cast("Schema", item))


def _strict_ref(schema: Schema) -> Schema:
    """A reference may have no neighbours; a description is kept by wrapping it."""
    if schema.keys() - {"$ref"} - _ANNOTATIONS:
        raise _NotStrict
    notes = {k: v for k, v in schema.items() if k in ("title", "description")}
    return {"anyOf": [{"$ref": schema["$ref"]}], **notes} if notes else {"$ref": schema["$ref"]}


def _strict_object(schema: Schema, out: Schema) -> None:
    """Close an object and require all of it. A property may become required only if that forbids nothing that is needed:
    it takes null already, or has a default, which the model then spells out."""
    properties: dict[str, Schema] = schema.get("properties", {})
    if schema.get("additionalProperties", not properties) is not False:
        raise _NotStrict  # an open object: its keys are not known
    required = set(schema.get("required", ()))
    for name, item in properties.items():
        if name not in required and "default" not in item and not _nullable(item):
            raise _NotStrict
    out["properties"] = out.get("properties", {})
    out["required"] = list(properties)
    out["additionalProperties"] = False


def _nullable(schema: Schema) -> bool:
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return True
    return any(isinstance(item, dict) and _nullable(cast("Schema", item)) for item in schema.get("anyOf", ()))


def _closed(value: Any) -> Any:
    """The same schema, its objects of known properties closed unless they say otherwise."""
    if not isinstance(value, dict):
        return value
    out = dict(cast("Schema", value))
    for key in _NAMED:
        if isinstance(out.get(key), dict):
            out[key] = {name: _closed(item) for name, item in out[key].items()}
    for key in _BRANCHES:
        if key in out:
            out[key] = [_closed(item) for item in out[key]] if key != "allOf" else out[key]
    if "items" in out:
        out["items"] = _closed(out["items"])
    if out.get("properties") and "additionalProperties" not in out and "allOf" not in out:
        out["additionalProperties"] = False
    return out
