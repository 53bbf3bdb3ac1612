"""The operations of an OpenAPI document, each ready to become a tool: its name, what the model is shown, where arguments go.

Called by the toolset when a document was read. Pure. An operation that cannot be called is left out with its reason; the
others are not affected.
"""

import logging
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs

from polyport.data.model import Schema
from polyport.errors import ConfigError
from polyport.tools import openapi_schema as schemas
from polyport.tools.json_schema import is_list, is_map
from polyport.tools.openapi_names import MAX_NAME, fit, is_form, is_json, is_plain, is_text, preference, snake, unique
from polyport.tools.openapi_spec import Document, mapping
from polyport.tools.openapi_style import DEFAULT_STYLE, STYLES

log = logging.getLogger("polyport.tools")

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
PLACES = ("path", "query", "header", "cookie")
MAX_DESCRIPTION = 1_024
"""Characters of a tool's description; the rest is cut off visibly."""
FILE_HINT = "Text to send, or artifact:NAME to send the bytes of that artifact."

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_IGNORED = frozenset({"accept", "content-type", "authorization"})
"""Header parameters that OpenAPI says are to be ignored."""
_FRAMING = frozenset(
    (
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "cookie",
    )
)
"""Headers that would change what the request is."""


class Field(Struct, frozen=True, kw_only=True):
    """One argument: `shown` to the model, sent as `name` in `place` (path, query, header, cookie, body)."""

    shown: str
    name: str
    place: str
    schema: Any
    required: bool = False
    style: str = ""
    explode: bool = False
    reserved: bool = False
    media: str = ""
    """The media type of a parameter that is sent as a document of its own, such as application/json."""


class Body(Struct, frozen=True, kw_only=True):
    """The request body. `whole` is the argument that is the body; empty when its properties are arguments of their own."""

    media: str
    schema: Any
    required: bool = False
    whole: str = ""
    encoding: dict[str, Any] = {}


class Operation(Struct, frozen=True, kw_only=True):
    """`parameters` is what the model sees, `accepts` what its arguments are checked with. `security` is None when the document
    says nothing."""

    id: str
    name: str
    method: str
    path: str
    description: str
    server: str
    fields: tuple[Field, ...]
    body: Body | None
    parameters: Schema
    accepts: Schema
    security: list[dict[str, Any]] | None

    @property
    def where(self) -> str:
        return f"{self.method} {self.path}"


class Reading(Struct, frozen=True, kw_only=True):
    """How to read: the base URL instead of the document's servers, the start of all tool names, whether names are shown as they
    are, and parameters `(place, name in lower case)` that the toolset fills in itself."""

    base_url: str = ""
    prefix: str = ""
    original_names: bool = False
    hidden: frozenset[tuple[str, str]] = frozenset()


def read_operations(document: Document, how: Reading) -> tuple[list[Operation], dict[str, str]]:
    """All operations in the document's order, and those that cannot be called: `METHOD /path` -> why."""
    found: list[Operation] = []
    left_out: dict[str, str] = {}
    taken: set[str] = set()
    for path, method, item, node in _nodes(document, left_out):
        where = f"{method.upper()} {path}"
        try:
            operation = _Reader(document, how, path, method, item, node).operation(taken)
        except ConfigError as error:
            left_out[where] = str(error)
            continue
        taken.add(operation.name)
        found.append(operation)
    for where, reason in left_out.items():
        log.warning("the operation %.200s of an OpenAPI document is left out: %s", where, reason)
    return found, left_out


def _nodes(document: Document, left_out: dict[str, str]) -> Iterator[tuple[str, str, Any, Any]]:
    for path, raw in document.paths.items():
        if not path.startswith("/"):
            continue
        try:
            item = document.follow(raw)
        except ConfigError as error:
            left_out[path] = str(error)
            continue
        for method in METHODS:
            if method in item:
                yield path, method, item, item[method]


class _Reader:
    """Reads one operation."""

    def __init__(self, document: Document, how: Reading, path: str, method: str, item: Any, node: Any) -> None:
        self.document = document
        self.how = how
        self.path = path
        self.method = method
        self.item = item
        if not is_map(node):
            raise ConfigError("an operation must be an object")
        self.node = node

    def operation(self, taken: set[str]) -> Operation:
        node = self.node
        raw = self._parameters()
        media, content, body = self._content()
        wanted = {f"{p['in']} {p['name']}": self._schema(p)[0] for p in raw}
        read, defs = schemas.read_schemas(self.document, {**wanted, "body": content.get("schema", {})})
        fields = [self._field(p, read[f"{p['in']} {p['name']}"]) for p in raw]
        made, parts = self._body(media, content, body, read["body"], defs) if body is not None else (None, [])
        fields = self._named([*fields, *parts])
        if made is not None and fields and fields[-1].name == "":
            made = structs.replace(made, whole=fields[-1].shown)
        own = str(node.get("operationId") or "")
        name = snake(own) or snake(f"{self.method} {self.path}") or "operation"
        name = self.how.prefix + name if self.how.prefix or not name[0].isdigit() else f"op_{name}"
        return Operation(
            id=own,
            name=unique(name, taken),
            method=self.method.upper(),
            path=self.path,
            description=self._description(),
            server=self.how.base_url or self.document.server(node, self.item),
            fields=tuple(fields),
            body=made,
            parameters=_object(fields, defs, schemas.sent),
            accepts=_object(fields, defs, schemas.checked),
            security=_security(node.get("security", self.document.root.get("security"))),
        )

    def _description(self) -> str:
        summary, text = (str(self.node.get(key) or "").strip() for key in ("summary", "description"))
        summary = summary or str(self.item.get("summary") or "").strip()
        parts = [summary, text] if not text.startswith(summary) else [text]
        if self.node.get("deprecated") is True:
            parts.insert(0, "Deprecated.")
        whole = "\n\n".join(filter(None, parts)) or f"{self.method.upper()} {self.path}"
        return whole if len(whole) <= MAX_DESCRIPTION else whole[: MAX_DESCRIPTION - 4].rstrip() + " ..."

    # ---- parameters

    def _parameters(self) -> list[dict[str, Any]]:
        """The parameters of the path and of the operation, which win; by place, and without those that are not ours to send."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for raw in (*_list(self.item.get("parameters")), *_list(self.node.get("parameters"))):
            parameter = self.document.follow(raw)
            place, name = parameter.get("in"), parameter.get("name")
            if place not in PLACES or not isinstance(name, str) or not name:
                raise ConfigError(f"a parameter has in: {place!r:.40} and name: {name!r:.80}")
            found[place, name] = parameter
        in_path = re.findall(r"{([^{}]*)}", self.path)
        for name in in_path:
            found.setdefault(("path", name), {"in": "path", "name": name, "schema": {"type": "string"}})
        kept = {key: p for key, p in found.items() if self._is_sent(*key, in_path)}
        return sorted(kept.values(), key=lambda p: PLACES.index(p["in"]))

    def _is_sent(self, place: str, name: str, in_path: list[str]) -> bool:
        lower = name.lower()
        if place == "path":
            if name not in in_path:
                log.warning("the path of %s %s has no {%s}", self.method.upper(), self.path, name)
            return name in in_path
        if (place, name if place != "header" else lower) in self.how.hidden:
            return False
        if place == "header" and (lower in _IGNORED or lower in _FRAMING):
            if lower in _FRAMING:
                log.warning("the header parameter %s of %s %s is not sent", name, self.method.upper(), self.path)
            return False
        if place in ("header", "cookie") and not _TOKEN.match(name):
            raise ConfigError(f"{name!r:.80} is no name for a {place}")
        return True

    def _schema(self, parameter: dict[str, Any]) -> tuple[Any, str]:
        """The schema of a parameter, and the media type if it is sent as a document."""
        content = mapping(parameter.get("content"))
        for media, inner in content.items():
            return mapping(inner).get("schema", {}), media
        return parameter.get("schema", {}), ""

    def _field(self, parameter: dict[str, Any], schema: Any) -> Field:
        place, name = parameter["in"], parameter["name"]
        style = parameter.get("style", DEFAULT_STYLE[place])
        if style not in STYLES[place]:
            raise ConfigError(f"the {place} parameter {name!r} has the style {style!r:.40}")
        schema = schema if is_map(schema) else {}
        note = parameter.get("description")
        if isinstance(note, str) and note.strip():
            schema = {**schema, "description": note.strip()}
        if place == "path" and schema.get("type") == "string":
            schema = {"minLength": 1, **schema}
        explode = parameter.get("explode", style == "form")
        return Field(
            shown=name,
            name=name,
            place=place,
            schema=schema,
            required=place == "path" or parameter.get("required") is True,
            style=style,
            explode=explode is True,
            reserved=parameter.get("allowReserved") is True,
            media=self._schema(parameter)[1],
        )

    # ---- the body

    def _content(self) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
        """The media type to send, its object, and the request body; None without one."""
        raw = self.node.get("requestBody")
        if raw is None:
            return "", {}, None
        body = self.document.follow(raw)
        content = mapping(body.get("content"))
        if not content:
            return "", {}, None
        media = min(content, key=preference)
        return ("application/json" if media in ("*/*", "application/*") else media), mapping(content[media]), body

    def _body(
        self, media: str, content: dict[str, Any], body: dict[str, Any], schema: Any, defs: dict[str, Any]
    ) -> tuple[Body, list[Field]]:
        required = body.get("required") is True
        made = Body(
            media=media,
            schema={**schemas.checked(schema), "$defs": {k: schemas.checked(v) for k, v in defs.items()}}
            if is_map(schema)
            else schema,
            required=required,
            encoding=mapping(content.get("encoding")),
        )
        if (is_json(media) or is_form(media)) and schemas.is_record(schema):
            needed = schema.get("required", ()) if required else ()
            fields = [
                Field(shown=name, name=name, place="body", schema=_file(inner), required=name in needed)
                for name, inner in schema["properties"].items()
                if not (is_map(inner) and inner.get("readOnly") is True)
            ]
            if fields:
                return made, fields
        if is_form(media) and not (is_map(schema) and schema.get("type", "object") == "object"):
            raise ConfigError(f"a body of type {media} needs an object schema")
        schema = schema if is_map(schema) else {}
        if not is_json(media) and not is_form(media):
            schema = _file({**schema, "type": "string", **({} if is_text(media) else {"format": "binary"})})
        note = body.get("description") or f"The request body ({media})."
        schema = {"description": str(note), **schema}
        return made, [Field(shown="body", name="", place="body", schema=schema, required=required)]

    # ---- names

    def _named(self, fields: list[Field]) -> list[Field]:
        """The fields with the names that the model is shown: as in the document, but distinct, and of characters that all
        providers take unless `original_names`."""
        plain = [f.shown if self.how.original_names or is_plain(f.shown) else fit(f.shown) for f in fields]
        taken: set[str] = set()
        out: list[Field] = []
        for field, name in zip(fields, plain, strict=True):
            shown = name
            if shown in taken:
                shown = unique(f"{name[: MAX_NAME - 7]}_{field.place}", taken | set(plain))
            taken.add(shown)
            schema = field.schema
            if shown != field.name and field.name and is_map(schema):
                sent = f"Sent as {field.place} {'property' if field.place == 'body' else 'parameter'} {field.name!r}."
                schema = {**schema, "description": f"{schema.get('description', '')} {sent}".strip()}
            out.append(structs.replace(field, shown=shown, schema=schema))
        return out


def _object(fields: list[Field], defs: dict[str, Any], form: Any) -> Schema:
    """The schema of all arguments: closed, so that a name that does not exist is told to the model."""
    properties = {f.shown: form(f.schema) if f.place == "body" else f.schema for f in fields}
    out: Schema = {"type": "object", "properties": properties}
    required = [f.shown for f in fields if f.required]
    if required:
        out["required"] = required
    out["additionalProperties"] = False
    if defs:
        out["$defs"] = {name: form(body) for name, body in defs.items()}
    return out


def _file(schema: Any) -> Any:
    """A property that stands for bytes, with a word on how to give them."""
    inner = schema.get("items") if is_map(schema) else None
    if schemas.is_binary(inner):
        return {**schema, "items": _file(inner)}
    if not schemas.is_binary(schema):
        return schema
    return {**schema, "type": "string", "description": f"{schema.get('description', '')} {FILE_HINT}".strip()}


def _security(value: Any) -> list[dict[str, Any]] | None:
    return [option for option in value if is_map(option)] if is_list(value) else None


def _list(value: Any) -> list[Any]:
    return list(value) if is_list(value) else []
