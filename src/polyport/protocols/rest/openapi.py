"""An OpenAPI 3.1 document made from the route table and the Structs, and a page of it for people.

`document` and `page` are used by `about`, `needs` by the route tables. What a route says of itself: `body` (a type; `X | None`
when it may be left out), `returns` (a type, a media type as text, or a mapping of statuses to these), `query`, `streams`. The
page is plain HTML without scripts, so that it works offline and nothing in it can run.
"""

import html
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import NODEFAULT, UNSET, Meta
from msgspec import inspect as mi

from polyport.ports.auth import Authenticator, KeyHeaders
from polyport.protocols.routes import Route
from polyport.version import VERSION

Json = dict[str, Any]
Query = tuple[str, Mapping[str, Any]]

_PARAM = re.compile(r"\{([a-z_]+)\*?\}")
_SOURCE = re.compile(r"\s*\(spec [^)]*\)|See spec [a-z]+ [\d.]+[:.]\s*")
_QUOTED = re.compile(r'"[^"]*"')
_NO_KEY = re.compile(r"[^A-Za-z0-9._-]")
"""What no name of a component may have in it."""
_REF = "#/components/schemas/"
_STREAM = "text/event-stream"
_FRAMES = "Server-sent events. The data of each is an EventShape; a last one named `error` says why the run failed"
_SAID_TWICE = "the same text under the name that Go clients read and the one that Python clients read"
_ERROR: Json = {
    "title": "Error",
    "description": f"What was wrong, where, and what to do. `error` and `detail` are {_SAID_TWICE}.",
    "type": "object",
    "properties": {"error": {"type": "string"}, "detail": {"type": "string"}, "requestId": {"type": "string"}},
    "required": ["error", "detail"],
}
_SEGMENT: Json = {
    "type": "string",
    "minLength": 1,
    "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]+$",
    "not": {"enum": [".", ".."]},
}
"""What one step of a path may be: no control character, nothing that a proxy would resolve."""
_SECONDS: Json = {"anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}, {"type": "null"}]}
_WIDER: dict[str, dict[str, Json]] = {"Event": {"timestamp": _SECONDS}}
"""Members that are read in more spellings than their type says: Struct -> member -> schema."""


def needs(kind: type, *names: str) -> Any:
    """`kind` as the body of a route that refuses it without the members `names`."""
    return Annotated[kind, Meta(extra_json_schema={"required": list(names)})]


def document(routes: Sequence[Route], authenticator: Authenticator | None = None) -> Json:
    """The OpenAPI document of these routes; with an authenticator it says how callers of those that are not public sign in."""
    shown = [route for route in routes if route.method != "WEBSOCKET"]
    inputs = [route.body for route in shown if route.body is not None]
    outputs = [kind for route in shown for kind in _answers(route).values() if not isinstance(kind, str | None)]
    schemas, components = msgspec.json.schema_components([*inputs, *outputs], ref_template=_REF + "{name}")
    schema_of = {id(kind): schema for kind, schema in zip([*inputs, *outputs], schemas, strict=True)}
    _say_what_is_always_there(components, inputs, outputs)
    for name, members in _WIDER.items():
        if name in components:
            components[name]["properties"].update(members)
    for schema in components.values():
        if "description" in schema:
            schema["description"] = _SOURCE.sub("", schema["description"])
    paths: dict[str, Json] = {}
    ways = {} if authenticator is None else _security(authenticator)
    for route in shown:
        pattern = route.pattern.replace("*}", "}")
        operation = paths.setdefault(pattern, {})[route.method.lower()] = _operation(route, schema_of)
        if ways and not route.public:
            operation["security"] = [{name: []} for name in ways]  # any of them will do
    return {
        "openapi": "3.1.0",
        "info": {"title": "Polyport", "version": VERSION, "description": "Agents over REST and server-sent events."},
        "paths": paths,
        "components": {"schemas": {**components, "Error": _ERROR}, **({"securitySchemes": ways} if ways else {})},
    }


def _security(authenticator: Authenticator) -> dict[str, Json]:
    """How callers say who they are: the schemes that a 401 asks for, and headers for keys. None of what a proxy sends."""
    asked = [part.split()[0].lower() for part in _QUOTED.sub("", authenticator.challenge).split(",") if part.strip()]
    found: dict[str, Json] = {name: {"type": "http", "scheme": name} for name in asked if "=" not in name}
    for header in authenticator.key_headers if isinstance(authenticator, KeyHeaders) else ():
        found[_NO_KEY.sub("_", header)] = {"type": "apiKey", "in": "header", "name": header}
    return found


def _answers(route: Route) -> dict[int, Any]:
    """What a route answers when all is well: status -> type, media type as text, or None for no body."""
    returns: Any = route.returns
    if isinstance(returns, dict):
        return cast("dict[int, Any]", returns)
    return {200: _STREAM if route.streams and returns is None else returns}


def _operation(route: Route, schema_of: Mapping[int, Json]) -> Json:
    failed = {"description": "What was wrong", "content": _json({"$ref": _REF + "Error"})}
    responses: Json = {}
    for status, kind in _answers(route).items():
        responses[str(status)] = done = cast("Json", {"description": "Accepted" if status == 202 else "Done"})
        if kind == _STREAM:  # a stream of what? OpenAPI can say so from 3.2 on
            done |= {"description": _FRAMES, "content": {kind: {}}}
        elif isinstance(kind, str):
            done["content"] = {kind: {"schema": {"type": "string"}}}
        elif kind is not None:
            done["content"] = _json(schema_of[id(kind)])
    operation: Json = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "responses": {**responses, "4XX": failed, "5XX": failed},
    }
    if said := inspect.getdoc(route.handler):
        operation["description"] = _SOURCE.sub("", said)
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.body is not None:
        schema = schema_of[id(route.body)]
        operation["requestBody"] = {
            "content": _json(schema),
            "required": {"type": "null"} not in schema.get("anyOf", ()),
        }
    return operation


def _parameters(route: Route) -> list[Json]:
    found: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": _SEGMENT} for name in _PARAM.findall(route.pattern)
    ]
    for name, given in route.query:
        schema = dict(given)
        said = {"description": schema.pop("description")} if "description" in schema else {}
        found.append({"name": name, "in": "query", **said, "schema": schema})
    return found


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _operation_id(route: Route) -> str:
    words = re.findall(r"[a-z_]+", route.pattern.lower())
    return "_".join([route.method.lower(), *words])


def _say_what_is_always_there(components: Mapping[str, Any], inputs: Iterable[Any], outputs: Iterable[Any]) -> None:
    """Mark as required what an encoder always writes, in Structs that are only ever answers. Those that are also read keep
    what a reader requires."""
    read = _structs(inputs)
    for name, info in _structs(outputs).items():
        if name in components and name not in read:
            components[name]["required"] = [f.encode_name for f in info.fields if _always_written(info, f)]


def _always_written(info: mi.StructType, member: mi.Field) -> bool:
    if member.default is UNSET:
        return False
    if member.required or not info.cls.__struct_config__.omit_defaults:
        return True
    return member.default_factory not in (NODEFAULT, list, dict, set)


def _structs(kinds: Iterable[Any]) -> dict[str, mi.StructType]:
    """All Structs inside these types, by name."""
    found: dict[str, mi.StructType] = {}

    def walk(value: Any) -> None:
        if isinstance(value, mi.StructType):
            if value.cls.__name__ in found:
                return
            found[value.cls.__name__] = value
            for member in value.fields:
                walk(member.type)
        elif isinstance(value, mi.Type):
            for name in value.__struct_fields__:
                walk(getattr(value, name))
        elif isinstance(value, tuple):
            for item in cast("tuple[Any, ...]", value):
                walk(item)

    for info in mi.multi_type_info(list(kinds)):
        walk(info)
    return found


def page(found: Json, prefix: str) -> bytes:
    """The document as one HTML page; all text in it is escaped."""
    rows = [
        _row(method, prefix + path, operation)
        for path, operations in found["paths"].items()
        for method, operation in operations.items()
    ]
    shapes = [_shape(name, schema) for name, schema in sorted(found["components"]["schemas"].items())]
    info = found["info"]
    return _PAGE.format(
        title=html.escape(f"{info['title']} {info['version']}"),
        rows="".join(rows),
        shapes="".join(shapes),
        prefix=html.escape(prefix),
    ).encode()


def _row(method: str, path: str, operation: Json) -> str:
    names = [p["name"] + ("" if p["in"] == "path" else "?") for p in operation.get("parameters", ())]
    answers = [(status, a.get("content", {})) for status, a in operation["responses"].items() if status.isdigit()]
    cells = [
        f"<b>{html.escape(method.upper())}</b>",
        f"<code>{html.escape(path)}</code>",
        html.escape(operation["summary"]),
        html.escape(", ".join(names)),
        _kinds(operation.get("requestBody", {}).get("content", {})),
        "; ".join(f"{status} {_kinds(content)}" for status, content in answers),
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _kinds(content: Json) -> str:
    """What a body is made of: a media type, or links to the shapes of its JSON."""
    said: list[str] = []
    for media, body in content.items():
        names = re.findall(re.escape(_REF) + r"(\w+)", msgspec.json.encode(body.get("schema")).decode())
        said += [f'<a href="#{name}">{name}</a>' for name in names] or [html.escape(media)]
    return ", ".join(said)


def _shape(name: str, schema: Json) -> str:
    name = html.escape(name)
    text = html.escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())
    return f'<details id="{name}"><summary>{name}</summary><pre>{text}</pre></details>'


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:80rem;padding:0 1rem;color:#222;background:#fff}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #ddd}}
code,pre{{font:13px ui-monospace,monospace}}pre{{background:#f6f6f6;padding:1rem;overflow:auto}}summary{{cursor:pointer}}
@media(prefers-color-scheme:dark){{body{{background:#161616;color:#ddd}}pre{{background:#222}}td,th{{border-color:#333}}a{{color:#8bf}}}}
</style></head><body><h1>{title}</h1>
<p>The machine-readable form is <a href="{prefix}/openapi.json">openapi.json</a>. Errors are
<code>{{"error", "detail"}}</code> with a 4xx or 5xx status.</p>
<table><thead><tr>
<th>method</th><th>path</th><th>what it does</th><th>parameters</th><th>body</th><th>answer</th></tr></thead>
<tbody>{rows}</tbody></table>
<h2>Shapes</h2>{shapes}</body></html>
"""
