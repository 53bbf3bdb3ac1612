"""From an operation and the model's arguments to one HTTP request.

Called by the tool for each call. Pure but for artifacts, which are read where an argument names one. Arguments that do not fit
are refused with a list of all that is wrong, and nothing is sent.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from polyport import codec
from polyport.errors import BadRequest
from polyport.tools import openapi_schema as schemas
from polyport.tools.json_schema import check, is_list, is_map
from polyport.tools.openapi_names import is_form, is_json, is_text, kind_of_media
from polyport.tools.openapi_operations import Body, Operation
from polyport.tools.openapi_spec import mapping
from polyport.tools.openapi_style import escaped, in_cookie, in_header, in_path, in_query, text_of
from polyport.tools.schema import refusal

FILE = "artifact:"
"""How an argument names an artifact whose bytes are to be sent."""
ReadFile = Callable[[str], Awaitable[tuple[bytes, str]]]
"""The bytes and media type of an artifact."""


class FormPart(Struct, frozen=True, kw_only=True):
    """One part of a multipart form. `filename` makes it a file."""

    name: str
    data: bytes
    media: str
    filename: str = ""


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request as it will be sent: `path` and `query` are percent-encoded, `parts` is a multipart body."""

    method: str
    server: str
    path: str
    query: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    cookies: tuple[str, ...] = ()
    body: bytes | None = None
    parts: tuple[FormPart, ...] = ()
    media: str = ""

    @property
    def url(self) -> str:
        return f"{self.server}{self.path}" + (f"?{'&'.join(self.query)}" if self.query else "")


async def make_request(operation: Operation, args: dict[str, Any], read_file: ReadFile) -> HttpRequest:
    """The request for one call. BadRequest lists what is wrong with the arguments."""
    args = without_nulls(operation, args)
    found: dict[str, str] = {}
    query: list[str] = []
    headers: dict[str, str] = {}
    cookies: list[str] = []
    _refuse(operation, check(args, operation.accepts))
    for field in operation.fields:
        if field.place == "body" or field.shown not in args:
            continue
        value = args[field.shown]
        if field.media:
            value = _json(value).decode() if is_json(field.media) else text_of(value)
        if field.place == "path":
            found[field.name] = in_path(field.name, value, field.style, field.explode)
        elif field.place == "query":
            query += in_query(field.name, value, field.style, field.explode, field.reserved)
        elif field.place == "header":
            headers[field.name] = in_header(field.name, value, field.explode)
        else:
            cookies += in_cookie(field.name, value, field.explode)
    body, parts, media = await _body(operation, args, read_file)
    return HttpRequest(
        method=operation.method,
        server=operation.server,
        path=_path(operation, found),
        query=tuple(query),
        headers=headers,
        cookies=tuple(cookies),
        body=body,
        parts=parts,
        media=media,
    )


def without_nulls(operation: Operation, args: dict[str, Any]) -> dict[str, Any]:
    """Null for an optional argument that cannot be null means that it was not given: some models fill in everything."""
    optional = {f.shown for f in operation.fields if not f.required and not schemas.takes_null(f.schema)}
    return {k: v for k, v in args.items() if v is not None or k not in optional}


def _refuse(operation: Operation, problems: list[str]) -> None:
    if problems:
        raise refusal(f"bad arguments for tool {operation.name!r}", problems)


def _path(operation: Operation, found: dict[str, str]) -> str:
    """The path, filled in. BadRequest for a value that would make another path of it."""
    segments: list[str] = []
    for segment in operation.path.split("/")[1:]:
        pieces = re.split(r"{([^{}]*)}", segment)
        literal = [
            quote(piece, safe="@:!$&'()*+,;=~-._%") if at % 2 == 0 else found[piece] for at, piece in enumerate(pieces)
        ]
        text = "".join(literal)
        if len(pieces) > 1 and text in ("", ".", ".."):
            name = pieces[1]
            raise BadRequest(
                f"{name}: the path cannot be made with {'an empty value' if not text else repr(text)}", name
            )
        segments.append(text)
    return "/" + "/".join(segments)


# ---- bodies


async def _body(
    operation: Operation, args: dict[str, Any], read_file: ReadFile
) -> tuple[bytes | None, tuple[FormPart, ...], str]:
    body = operation.body
    if body is None:
        return None, (), ""
    value = _value(operation, body, args)
    if value is None and not body.required and body.whole not in args:
        return None, (), ""
    if is_json(body.media):
        return _json(value), (), body.media
    if kind_of_media(body.media) == "multipart/form-data":
        parts = [p for k, v in mapping(value).items() for p in await _parts(body, k, v, read_file)]
        return None, tuple(parts), body.media
    if is_form(body.media):
        fields = [f for name, item in mapping(value).items() for f in _fields(body, name, item)]
        return "&".join(fields).encode(), (), body.media
    if is_text(body.media):
        return _utf8("body", text_of(value)), (), body.media
    data, _ = await _bytes("body", value, read_file)
    return data, (), body.media


def _value(operation: Operation, body: Body, args: dict[str, Any]) -> Any:
    """The body as data, or None when no argument belongs to it."""
    if body.whole:
        return args.get(body.whole)
    own = [f for f in operation.fields if f.place == "body"]
    value = {f.name: args[f.shown] for f in own if f.shown in args}
    if not value:
        return {} if body.required else None
    _refuse(operation, check(value, body.schema))
    return value


def _fields(body: Body, name: str, value: Any) -> list[str]:
    """Fields of a URL-encoded form: a style if the document names one, else lists repeat the name and objects are JSON."""
    how = mapping(body.encoding.get(name))
    style = how.get("style")
    if style is not None or how.get("explode") is not None or how.get("allowReserved") is not None:
        style = style if isinstance(style, str) else "form"
        explode = how.get("explode", style == "form")
        return [f.replace("%20", "+") for f in in_query(name, value, style, explode is True)]
    items = value if is_list(value) else [value]
    return [f"{escaped(name)}={escaped(item)}".replace("%20", "+") for item in items]


async def _parts(body: Body, name: str, value: Any, read_file: ReadFile) -> list[FormPart]:
    """Parts of a multipart form: a list is one part for each item, an object is JSON."""
    how = mapping(body.encoding.get(name))
    schema = mapping(mapping(mapping(body.schema).get("properties")).get(name))
    if is_list(value):
        schema = mapping(schema.get("items"))
    asked = how.get("contentType")
    media = asked.partition(",")[0].strip() if isinstance(asked, str) and "*" not in asked else ""
    found: list[FormPart] = []
    for item in value if is_list(value) else [value]:
        if is_map(item) or is_list(item):
            found.append(FormPart(name=name, data=_json(item), media=media or "application/json"))
        elif schemas.is_binary(schema):
            data, kind = await _bytes(name, item, read_file)
            filename = item.removeprefix(FILE) if isinstance(item, str) and item.startswith(FILE) else name
            found.append(FormPart(name=name, data=data, media=media or kind, filename=filename))
        else:
            found.append(FormPart(name=name, data=_utf8(name, text_of(item)), media=media or "text/plain"))
    return found


async def _bytes(name: str, value: Any, read_file: ReadFile) -> tuple[bytes, str]:
    """What an argument that stands for bytes gives: those of an artifact, or its own text."""
    text = text_of(value)
    if text.startswith(FILE):
        return await read_file(text.removeprefix(FILE))
    return _utf8(name, text), "text/plain"


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{name}: not valid Unicode", name) from None


def _json(value: Any) -> bytes:
    try:
        return codec.encode(value)
    except UnicodeEncodeError:
        raise BadRequest("a text in the arguments is not valid Unicode") from None
