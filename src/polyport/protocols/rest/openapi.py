"""An OpenAPI 3.1 document made from the route table and the Structs, and a page of it for people.

Used by `about` only. The page is plain HTML without scripts, so that it works offline and nothing in it can run.
"""

import html
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from polyport.protocols.routes import Route
from polyport.version import VERSION

_PARAM = re.compile(r"\{([a-z_]+)\*?\}")
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "detail": {"type": "string"}},
    "required": ["error", "detail"],
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    bodies = [r.body for r in routes if r.body is not None]
    answers = [r.returns for r in routes if r.returns is not None]
    shapes, components = msgspec.json.schema_components([*bodies, *answers], ref_template="#/components/schemas/{name}")
    schema_of = {id(kind): shape for kind, shape in zip([*bodies, *answers], shapes, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.method != "WEBSOCKET":
            paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Polyport", "version": VERSION, "description": "Agents over REST and server-sent events."},
        "paths": paths,
        "components": {"schemas": {**components, "Error": _ERROR}},
    }


def _operation(route: Route, schema_of: dict[int, dict[str, Any]]) -> dict[str, Any]:
    failed = {"description": "what was wrong", "content": _json({"$ref": "#/components/schemas/Error"})}
    done: dict[str, Any] = {"description": "done"}
    if route.returns is not None:
        done["content"] = _json(schema_of[id(route.returns)])
    elif route.streams:
        done["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "responses": {"200": done, "4XX": failed, "5XX": failed},
    }
    parameters = [
        {"name": n, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for n in _PARAM.findall(route.pattern)
    ]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in route.query]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"content": _json(schema_of[id(route.body)])}
    return operation


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _operation_id(route: Route) -> str:
    words = re.findall(r"[a-z_]+", route.pattern.lower())
    return "_".join([route.method.lower(), *words])


def page(found: dict[str, Any], prefix: str) -> bytes:
    """The document as one HTML page."""
    rows: list[str] = []
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            names = [p["name"] + ("" if p["in"] == "path" else "?") for p in operation.get("parameters", ())]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            kind = body.get("$ref", "").rpartition("/")[2]
            cells = [
                f"<b>{method.upper()}</b>",
                f"<code>{html.escape(prefix + path)}</code>",
                html.escape(operation["summary"]),
            ]
            cells.append(html.escape(", ".join(names)))
            cells.append(f'<a href="#{kind}">{kind}</a>' if kind else "")
            rows.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    shapes = "".join(_shape(name, schema) for name, schema in sorted(found["components"]["schemas"].items()))
    info = found["info"]
    return _PAGE.format(
        title=html.escape(f"{info['title']} {info['version']}"),
        rows="".join(rows),
        shapes=shapes,
        prefix=html.escape(prefix),
    ).encode()


def _shape(name: str, schema: dict[str, Any]) -> str:
    text = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
    return f'<details id="{html.escape(name)}"><summary>{html.escape(name)}</summary><pre>{html.escape(text)}</pre></details>'


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222;background:#fff}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #ddd}}
code,pre{{font:13px ui-monospace,monospace}}pre{{background:#f6f6f6;padding:1rem;overflow:auto}}summary{{cursor:pointer}}
@media(prefers-color-scheme:dark){{body{{background:#161616;color:#ddd}}pre{{background:#222}}td,th{{border-color:#333}}a{{color:#8bf}}}}
</style></head><body><h1>{title}</h1>
<p>The machine-readable form is <a href="{prefix}/openapi.json">openapi.json</a>. Errors are
<code>{{"error", "detail"}}</code> with a 4xx or 5xx status.</p>
<table><thead>
<tr><th>method</th><th>path</th><th>what it does</th><th>parameters</th><th>body</th></tr></thead>
<tbody>{rows}</tbody></table>
<h2>Shapes</h2>{shapes}</body></html>
"""
