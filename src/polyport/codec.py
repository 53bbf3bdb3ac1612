"""JSON in and out: camelCase Structs, shared encoders, one tolerant reader.

Every floor encodes and decodes through here. Fast path: msgspec straight into the Struct. Only when that refuses
is the tolerant reader used, which also takes snake_case and any-case keys, both base64 alphabets, numeric times, and null
for "not set" (spec core 1.1, rest 1.4, 2.1), and which either refuses unknown fields or drops them. Never does I/O.
"""

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect as mi

from polyport.errors import BadRequest

T = TypeVar("T")
MAX_DEPTH = 64
"""How deep JSON from outside may nest."""

_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{\]}]', re.DOTALL)  # possessive: linear, whatever the input


class Data(
    msgspec.Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True, frozen=True, kw_only=True, gc=False
):
    """Root of all wire-visible Structs: camelCase names, absent when default, strict. Subclasses repeat frozen and kw_only.

    Not tracked by the garbage collector: data are trees, they never hold a cycle.
    """


def to_plain(value: Any) -> Any:
    """What msgspec cannot encode itself: pydantic models as their JSON form, other iterables as lists."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, range | frozenset):
        return list(cast("range", value))
    raise NotImplementedError(f"a {type(value).__name__} has no JSON form")


_encoder = msgspec.json.Encoder(enc_hook=to_plain)
encode: Callable[[Any], bytes] = _encoder.encode
"""Compact JSON bytes; NaN and infinities become null. TypeError or NotImplementedError for what has no JSON form."""


def json_safe(value: Any, where: str) -> Any:
    """`value` as plain JSON data (what a reader of the stored form would see), or BadRequest naming `where`."""
    if value is None or isinstance(value, str | bool | int):
        if isinstance(value, str) and type(value) is not str:
            return str.__str__(getattr(value, "value", value))
        return value
    try:
        return msgspec.json.decode(encode(value))
    except (TypeError, NotImplementedError, ValueError, RecursionError) as error:
        raise BadRequest(f"{where} cannot be stored as JSON: {error}", where) from None


def own(value: Any) -> Any:
    """A copy of plain JSON data, which the reader may change."""
    if isinstance(value, dict):
        return {key: own(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [own(item) for item in cast("list[Any]", value)]
    return value


def check_depth(body: bytes, limit: int = MAX_DEPTH) -> None:
    """BadRequest when the JSON in `body` nests deeper than `limit`. Cheap when it has few brackets at all."""
    if body.count(b"[") + body.count(b"{") <= limit:
        return
    depth = 0
    for match in _TOKENS.finditer(body):
        token = body[match.start()]
        if token in b"[{":
            depth += 1
            if depth > limit:
                raise BadRequest(f"JSON nests deeper than {limit} levels")
        elif token in b"]}":
            depth -= 1


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode(body: bytes | str, kind: type[T], *, unknown: str = "refuse") -> T:
    """JSON text as a `kind`. `unknown` is "refuse" (BadRequest naming the field) or "drop".

    Raises BadRequest with the path of the first wrong field.
    """
    try:
        return _decoder(kind).decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass  # the tolerant reader decides, and makes the message
    try:
        raw = msgspec.json.decode(body)
    except RecursionError:
        raise BadRequest(f"JSON nests deeper than {MAX_DEPTH} levels") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest("EOF: the body is empty" if not body.strip() else f"malformed JSON: {error}") from None
    return convert(raw, kind, unknown=unknown)


def convert(raw: Any, kind: type[T], *, unknown: str = "refuse") -> T:
    """Plain data (already parsed) as a `kind`, with the same tolerance and errors as `decode`."""
    fixed = _fixer(kind)(raw, "", unknown == "refuse")
    try:
        return msgspec.convert(fixed, kind)
    except msgspec.ValidationError as error:
        message = str(error)
        path = message.rpartition("at `$")[2].rstrip("`").lstrip(".") if "at `$" in message else ""
        raise BadRequest(message.replace("`$.", "`"), path) from None


Fix = Callable[[Any, str, bool], Any]


def _same(value: Any, path: str, strict: bool) -> Any:
    return value


@lru_cache(maxsize=512)
def _fixer(kind: Any) -> Fix:
    """A function that renames keys and repairs spellings in plain data so that msgspec takes it as `kind`."""
    return _build(mi.type_info(kind), {})


def _build(info: mi.Type, seen: dict[Any, Fix]) -> Fix:
    if isinstance(info, mi.StructType):
        return _struct_fix(info, seen)
    if isinstance(info, mi.ListType | mi.VarTupleType):
        item = _build(info.item_type, seen)
        if item is _same:
            return _same
        return lambda v, p, s: (
            [item(x, f"{p}[{i}]", s) for i, x in enumerate(cast("list[Any]", v))] if isinstance(v, list) else v
        )
    if isinstance(info, mi.DictType):
        item = _build(info.value_type, seen)
        if item is _same:
            return _same
        return lambda v, p, s: (
            {k: item(x, f"{p}.{k}", s) for k, x in cast("dict[str, Any]", v).items()} if isinstance(v, dict) else v
        )
    if isinstance(info, mi.BytesType):
        return _fix_bytes
    if isinstance(info, mi.DateTimeType):
        return _fix_time
    if isinstance(info, mi.UnionType):
        fixes = [f for f in (_build(t, seen) for t in info.types) if f is not _same]
        return fixes[0] if len(fixes) == 1 else _same
    return _same


def _struct_fix(info: mi.StructType, seen: dict[Any, Fix]) -> Fix:
    if info.cls in seen:
        return lambda v, p, s: seen[info.cls](v, p, s)
    names: dict[str, str] = {}
    fixes: dict[str, Fix] = {}
    absent_when_null: set[str] = set()

    def fix(value: Any, path: str, strict: bool) -> Any:
        if not isinstance(value, dict):
            return value
        out: dict[str, Any] = {}
        for key, item in cast("dict[str, Any]", value).items():
            name = key if key in fixes else names.get(key.replace("_", "").lower(), "")
            where = f"{path}.{key}" if path else key
            if not name:
                if strict:
                    raise BadRequest(f'unknown field "{key}"' + (f" at {where}" if path else ""), where)
                continue
            if name in out and key != name:
                continue  # the exact spelling wins over another one
            if item is None and name in absent_when_null:
                continue
            out[name] = fixes[name](item, where, strict)
        return out

    seen[info.cls] = fix
    for f in info.fields:
        names[f.encode_name.lower()] = f.encode_name
        fixes[f.encode_name] = _build(f.type, seen)
        if not f.required and not _takes_null(f.type):
            absent_when_null.add(f.encode_name)
    return fix


def _takes_null(info: mi.Type) -> bool:
    if isinstance(info, mi.UnionType):
        return any(map(_takes_null, info.types))
    return isinstance(info, mi.NoneType | mi.AnyType | mi.CustomType | mi.RawType)


def _fix_bytes(value: Any, path: str, strict: bool) -> Any:
    """Both base64 alphabets, padded or not -> bytes."""
    if not isinstance(value, str):
        return value
    text = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:  # also what is not ASCII
        raise BadRequest(f"{path} is not base64", path) from None


def _fix_time(value: Any, path: str, strict: bool) -> Any:
    """Epoch seconds (years 1 to 9999) or RFC 3339 text -> aware datetime rounded to microseconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(round(value, 6), UTC)
        except (ValueError, OverflowError, OSError):
            raise BadRequest(f"{path} is not a time in seconds within the years 1 to 9999", path) from None
    return value
