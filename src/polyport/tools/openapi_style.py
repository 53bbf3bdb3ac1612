"""How OpenAPI writes a value into a path, a query, a header or a cookie: the styles of the Parameter Object.

Pure functions for the request builder. Everything that could end a segment, a field or a line is escaped or refused here,
so that no argument can become another part of the request.
"""

import re
from typing import Any
from urllib.parse import quote

from polyport import codec
from polyport.errors import BadRequest
from polyport.tools.json_schema import is_list, is_map

DEFAULT_STYLE = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
STYLES = {
    "path": frozenset({"simple", "label", "matrix"}),
    "query": frozenset({"form", "spaceDelimited", "pipeDelimited", "deepObject"}),
    "header": frozenset({"simple"}),
    "cookie": frozenset({"form"}),
}
"""Where each style may be used."""

_RESERVED = ":/?@!$'()*,;"
"""What `allowReserved` leaves as it is: all reserved characters but those that would end the value of a query field."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def text_of(value: Any) -> str:
    """A single value as text: numbers and booleans as JSON writes them, lists and objects as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        value = int(value)
    return codec.encode(value).decode()


def escaped(value: Any, safe: str = "") -> str:
    """`value` percent-encoded. BadRequest for text that has no UTF-8 form."""
    try:
        return quote(text_of(value), safe=safe)
    except UnicodeEncodeError as error:
        raise BadRequest(f"a text is not valid Unicode: {error.reason}") from None


def in_path(name: str, value: Any, style: str, explode: bool) -> str:
    """A path parameter as it stands in the path (RFC 6570 simple, label and matrix)."""
    if style == "simple":
        return _joined(value, explode, ",")
    if style == "label":
        return "." + _joined(value, explode, "." if explode else ",")
    key = escaped(name)
    if is_map(value) and explode:
        return "".join(f";{escaped(k)}={escaped(v)}" for k, v in value.items())
    if is_list(value) and explode:
        return "".join(f";{key}={escaped(item)}" for item in value)
    inner = _joined(value, explode, ",")
    return f";{key}={inner}" if inner else f";{key}"


def _joined(value: Any, explode: bool, between: str) -> str:
    if is_map(value):
        mark = "=" if explode else ","
        return between.join(f"{escaped(k)}{mark}{escaped(v)}" for k, v in value.items())
    if is_list(value):
        return between.join(map(escaped, value))
    return escaped(value)


def in_query(name: str, value: Any, style: str, explode: bool, reserved: bool = False) -> list[str]:
    """The fields of a query string that one parameter makes, each `name=value`, percent-encoded. An empty list or object makes
    none."""
    safe = _RESERVED if reserved else ""
    key = escaped(name)
    if style == "deepObject" and is_map(value):
        return [f"{k}={escaped(v, safe)}" for k, v in _deep(key, value)]
    if is_map(value):
        if explode:
            return [f"{escaped(k)}={escaped(v, safe)}" for k, v in value.items()]
        pieces = [escaped(piece, safe) for pair in value.items() for piece in pair]
    elif is_list(value):
        if explode:
            return [f"{key}={escaped(item, safe)}" for item in value]
        pieces = [escaped(item, safe) for item in value]
    else:
        return [f"{key}={escaped(value, safe)}"]
    return [f"{key}={_DELIMITERS.get(style, ',').join(pieces)}"] if pieces else []


def _deep(key: str, value: dict[str, Any]) -> list[tuple[str, Any]]:
    """`a[b][c]` for every leaf; a list repeats its key."""
    found: list[tuple[str, Any]] = []
    for name, item in value.items():
        inner = f"{key}%5B{escaped(name)}%5D"
        if is_map(item):
            found += _deep(inner, item)
        else:
            found += [(inner, one) for one in item] if is_list(item) else [(inner, item)]
    return found


def in_header(name: str, value: Any, explode: bool) -> str:
    """A header's value (simple style). BadRequest for what would end the line or has no UTF-8 form."""
    if is_map(value):
        mark = "=" if explode else ","
        text = ",".join(f"{k}{mark}{text_of(v)}" for k, v in value.items())
    else:
        text = ",".join(map(text_of, value)) if is_list(value) else text_of(value)
    return header_value(name, text)


def header_value(name: str, text: str) -> str:
    """`text`, or BadRequest when it cannot be the value of a header."""
    if _CONTROL.search(text):
        raise BadRequest(f"{name}: a line break or another control character cannot be sent in a header", name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{name}: not valid Unicode", name) from None
    return text


def in_cookie(name: str, value: Any, explode: bool) -> list[str]:
    """The `name=value` pairs of a cookie parameter (form style), percent-encoded where a cookie needs it."""
    return in_query(name, value, "form", explode)
