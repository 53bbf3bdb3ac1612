"""Brings a JSON Schema into the one form that is sent to models: draft 2020-12, references inlined, no titles.

Used for schemas made from types, for raw output schemas and for foreign ones (MCP). Models read `$ref` badly, so `$defs`
stay only for recursion. The given schema is never changed, and no remote reference is ever fetched.
"""

import logging
from typing import Any, cast

from polyport.data.model import Schema
from polyport.errors import ConfigError
from polyport.tools.json_schema import KINDS, is_list, is_map, resolve

log = logging.getLogger("polyport.tools")

MAX_NODES = 5_000
"""Above this size further references are kept instead of inlined."""
MAX_NESTING = 200

_SUBTLE = ("if", "then", "else", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems")
_ONE = frozenset(("items", "additionalProperties", "additionalItems", "not", *_SUBTLE))
_MANY = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_MAPS = frozenset(("properties", "patternProperties", "dependentSchemas"))
_DROPPED = frozenset(
    ("$schema", "$id", "$anchor", "$comment", "title", "discriminator", "$defs", "definitions", "nullable")
)
_NOTES = frozenset(("description", "default", "examples", "deprecated", "readOnly", "writeOnly"))


def normalize(schema: Schema, *, strict: bool = False) -> Schema:
    """A new schema that says the same (FR-201, FR-203).

    `definitions` become `$defs`; references are inlined, except recursive ones; titles, `$schema` and other notes for
    machines go; array-form `items`, `nullable` and boolean `exclusiveMinimum` get their present form. A reference that
    leads nowhere is loosened to "anything" with a warning, or with `strict` refused with ConfigError, as is a schema
    that is not made of objects.
    """
    work = _Normal(schema, strict)
    try:
        out = work.root_schema()
    except RecursionError:
        raise ConfigError(f"a JSON Schema nests deeper than {MAX_NESTING} levels") from None
    if work.defs:
        out["$defs"] = {name: cast("Schema", body) for name, body in work.defs.items()}
    return out


def nullable(schema: Schema) -> Schema:
    """`schema` or null: `type: [.., "null"]` for simple kinds, `anyOf` otherwise."""
    kind = schema.get("type")
    if isinstance(kind, str) and kind not in ("object", "array"):
        out = {**schema, "type": kind if kind == "null" else [kind, "null"]}
        if "enum" in schema and None not in schema["enum"]:
            out["enum"] = [*schema["enum"], None]
        if "const" not in schema:
            return out
    if not schema or schema.keys() <= _NOTES or (is_list(kind) and "null" in kind):
        return schema
    if schema.keys() - _NOTES == {"anyOf"}:
        options = cast("list[Any]", schema["anyOf"])
        return schema if {"type": "null"} in options else {**schema, "anyOf": [*options, {"type": "null"}]}
    notes = {k: v for k, v in schema.items() if k in _NOTES}
    return {"anyOf": [{k: v for k, v in schema.items() if k not in _NOTES}, {"type": "null"}], **notes}


def _canonical(ref: str) -> str:
    return ref.replace("#/definitions/", "#/$defs/", 1) if ref.startswith("#/definitions/") else ref


class _Normal:
    """One pass: what is inlined, what is kept under `$defs` and why."""

    def __init__(self, root: Schema, strict: bool) -> None:
        self.root = root
        self.strict = strict
        self.defs: dict[str, Schema | bool] = {}
        self.kept: dict[str, str] = {}
        self.recursive: dict[str, bool] = {}
        self.nodes = 0
        self.depth = 0

    def root_schema(self) -> Schema:
        node = self.root
        seen: set[str] = set()
        while is_map(node) and isinstance(node.get("$ref"), str) and node["$ref"] not in seen:
            # the root itself is always written out: it must be readable as an object schema
            seen.add(node["$ref"])
            target = resolve(self.root, node["$ref"])
            if target is True:
                target = {}
            if not is_map(target):
                break
            node = {**target, **{k: v for k, v in node.items() if k not in ("$ref", "$defs", "definitions")}}
        out = self.any(node)
        return {} if out is True else out if is_map(out) else {"not": {}}

    def any(self, node: Any) -> Any:
        """One schema, normalized."""
        if isinstance(node, bool):
            return node
        if not is_map(node):
            raise ConfigError(f"a JSON Schema is an object or a boolean, not {type(node).__name__}")
        self.nodes += 1
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ConfigError(f"a JSON Schema nests deeper than {MAX_NESTING} levels")
        try:
            return self._ref(node) if isinstance(node.get("$ref"), str) else self._plain(node)
        finally:
            self.depth -= 1

    def _plain(self, node: Schema) -> Schema:
        out: Schema = {}
        for key, value in node.items():
            if key in _DROPPED:
                continue
            if key in _MANY or (key == "items" and is_list(value)):
                if not is_list(value):
                    raise ConfigError(f"{key!r} in a JSON Schema must be a list")
                out["prefixItems" if key == "items" else key] = [self.any(item) for item in value]
            elif key in _ONE:
                out[key] = self.any(value)
            elif key in _MAPS:
                if not is_map(value):
                    raise ConfigError(f"{key!r} in a JSON Schema must be an object")
                out[key] = {name: self.any(item) for name, item in value.items()}
            else:
                out[key] = value
        if "additionalItems" in out:
            out["items"] = out.pop("additionalItems")
        return self._modern(node, out)

    def _modern(self, node: Schema, out: Schema) -> Schema:
        for flag, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(out.get(flag), bool):
                exclusive = out.pop(flag)
                if exclusive and limit in out:
                    out[flag] = out.pop(limit)
        if "type" in out:
            out["type"] = self._kinds(out["type"])
        if "discriminator" in node and "oneOf" in out and "anyOf" not in out:
            out["anyOf"] = out.pop("oneOf")  # its branches exclude each other, so anyOf means the same
        parts = out.get("allOf")
        if is_list(parts) and len(parts) == 1 and is_map(parts[0]):
            out = self._both(parts[0], {k: v for k, v in out.items() if k != "allOf"})
        return nullable(out) if node.get("nullable") is True else out

    def _kinds(self, kind: Any) -> Any:
        """`type` in lower case (Gemini's own schemas shout), a list only if it has several."""
        kinds = [k.lower() if isinstance(k, str) else k for k in (kind if is_list(kind) else [kind])]
        if self.strict and (not kinds or any(k not in KINDS for k in kinds)):
            raise ConfigError(f"a JSON Schema has the type {kind!r}; it must be one of {', '.join(KINDS)}")
        return kinds[0] if len(kinds) == 1 else kinds

    def _ref(self, node: Schema) -> Schema | bool:
        ref = _canonical(node["$ref"])
        beside = self._plain({k: v for k, v in node.items() if k != "$ref"})
        target = resolve(self.root, ref)
        if target is None:
            if self.strict:
                raise ConfigError(f"a JSON Schema refers to {ref!r}, which is not in it")
            log.warning("a JSON Schema refers to %.200r, which is not in it: anything is allowed there", ref)
            return beside
        if self._is_recursive(ref) or self.nodes > MAX_NODES:
            return {"$ref": f"#/$defs/{self._keep(ref, target)}", **beside}
        body = self.any(target)
        return self._both(body, beside) if is_map(body) else body

    def _keep(self, ref: str, target: Any) -> str:
        """The name under `$defs` of what `ref` leads to, which is put there."""
        if ref in self.kept:
            return self.kept[ref]
        base = name = ref.rpartition("/")[2].replace("~1", "_").replace("~0", "_").replace("/", "_") or "root"
        base = name = "root" if base == "#" else base
        count = 1
        while name in self.kept.values():
            count += 1
            name = f"{base}_{count}"
        self.kept[ref] = name
        depth, self.depth = self.depth, 0
        self.defs[name] = self.any(target)
        self.depth = depth
        return name

    def _both(self, body: Schema, beside: Schema) -> Schema:
        """A body with what stood beside its reference; notes beside win."""
        if all(k in _NOTES or k not in body for k in beside):
            return {**body, **beside}
        notes = {k: v for k, v in beside.items() if k in _NOTES}
        return {"allOf": [body, {k: v for k, v in beside.items() if k not in _NOTES}], **notes}

    def _is_recursive(self, ref: str) -> bool:
        """Whether `ref` leads back to itself."""
        if ref not in self.recursive:
            seen: set[str] = set()
            todo = self._refs(resolve(self.root, ref))
            while todo:
                other = todo.pop()
                if other not in seen:
                    seen.add(other)
                    todo |= self._refs(resolve(self.root, other))
            self.recursive[ref] = ref in seen
        return self.recursive[ref]

    def _refs(self, schema: Any) -> set[str]:
        """The references that a schema makes, at any depth, not looking into its `$defs`."""
        found: set[str] = set()
        todo: list[Any] = [schema]
        while todo:
            node = todo.pop()
            if not is_map(node):
                continue
            if isinstance(node.get("$ref"), str):
                found.add(_canonical(node["$ref"]))
            for key, value in node.items():
                if key in _ONE:
                    todo += value if is_list(value) else [value]
                elif key in _MANY and is_list(value):
                    todo += value
                elif key in _MAPS and is_map(value):
                    todo += value.values()
        return found
