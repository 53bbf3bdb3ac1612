"""Values between nodes: their JSON form, and how they become what a node wants (spec core 4.3, 4.4).

A value goes from node to node as plain JSON data, so that a graph that goes on in another process sees what it would have seen
in this one. Types are those that msgspec reads (also dataclasses, TypedDict, `Annotated[..., msgspec.Meta(...)]`) and pydantic
models. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_origin

import msgspec

from polyport import codec
from polyport.data.content import Content, Part, user_text
from polyport.engine.pairing import json_text
from polyport.errors import AgentError, BadRequest, ConfigError

ZERO: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False}


def plain(value: Any, where: str) -> Any:
    """`value` as JSON data. AgentError for what has no JSON form: whoever called the workflow has done nothing wrong."""
    try:
        return codec.json_safe(value, where)
    except BadRequest as error:
        raise AgentError(str(error)) from None


def convert(value: Any, kind: Any, where: str) -> Any:
    """`value` as a `kind`; a missing one (None) is the zero of a kind that does not take None. AgentError that says what does
    not fit."""
    if kind is Any or kind is None:
        return value
    if value is None:
        value = _zero(kind)
    try:
        return msgspec.convert(value, kind, strict=False, dec_hook=_read)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        if kind is str and isinstance(value, int | float):
            return json_text(value)  # an answer that was typed: 7, or true
        raise AgentError(f"{where} does not fit: {error}") from None


def _zero(kind: Any) -> Any:
    try:
        msgspec.convert(None, kind)
        return None
    except (msgspec.ValidationError, TypeError):
        origin: Any = get_origin(kind) or kind
        if origin in (list, tuple, set, frozenset) or origin is Sequence:
            return []
        if origin in (dict, Mapping):
            return {}
        return ZERO.get(origin)


def from_text(text: str, kind: Any, where: str) -> Any:
    """What an agent said as a `kind`: the text as it is where that fits, else as JSON (statement 110). AgentError with the
    first reason."""
    try:
        return convert(text, kind, where) if not _is_json(text) or kind is str else _json(text, kind, where)
    except AgentError as first:
        try:
            return _json(text, kind, where) if not _is_json(text) else convert(text, kind, where)
        except AgentError:
            raise first from None


def _is_json(text: str) -> bool:
    return text.strip()[:1] in ("{", "[")


def _json(text: str, kind: Any, where: str) -> Any:
    try:
        return convert(msgspec.json.decode(text), kind, where)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise AgentError(f"{where} does not fit: it is no JSON ({error})") from None


def _read(kind: type, value: Any) -> Any:
    """Kinds that msgspec does not know."""
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    if isinstance(value, kind):
        return value
    raise TypeError(f"a {kind.__name__} cannot be read from JSON")


def schema_of(kind: Any, where: str) -> dict[str, Any]:
    """The JSON Schema of a kind, whole. ConfigError for one that has none."""
    try:
        found = msgspec.json.schema(kind, schema_hook=_schema)
    except (TypeError, NotImplementedError, RuntimeError) as error:
        raise ConfigError(f"{where} cannot be used as a schema: {error}; give a type") from None
    ref: Any = found.get("$ref")
    if isinstance(ref, str) and list(found) == ["$ref", "$defs"] and "$ref" not in str(found["$defs"]):
        return cast("dict[str, Any]", next(iter(found["$defs"].values())))
    return found


def _schema(kind: type) -> dict[str, Any]:
    made = getattr(kind, "model_json_schema", None)
    if made is None:
        raise NotImplementedError(f"{kind.__name__} is no type for JSON data")
    return made()


def as_content(value: Any, otherwise: Content | None) -> Content:
    """A node's input as what an agent is asked: text as it is, other values as JSON; without one the user's message."""
    if value is None:
        return otherwise or user_text("")
    return user_text(value if isinstance(value, str) else json_text(value))


def said_text(content: Content | None) -> str:
    """The text parts of a message, one after another."""
    parts: Sequence[Part] = content.parts if content is not None else ()
    return "".join(p.text for p in parts if p.text and not p.thought)


def route_text(value: Any) -> str:
    """A route as text: true and false as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip()
