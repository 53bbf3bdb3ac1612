"""The vocabulary of the Agent Engine method protocol: what a call holds, how sessions and events are spelled (spec rest 6.3).

Used by `protocols/agent_engine`. Names are snake_case, but for the events inside a session, which are in their stored form.
Unknown members of a call are dropped, for the platform in front adds its own. Pure.
"""

from datetime import datetime
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import NODEFAULT, Struct

from polyport.codec import encode
from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.session import Session

_ALWAYS: dict[str, Any] = {"avg_logprobs": 0, "finish_reason": ""}
"""What every event line has, also when the event says nothing of it."""
_EMPTY_FACTORIES = (list, dict, set)


class Envelope(Struct, frozen=True, kw_only=True):
    """The body of every call."""

    class_method: str = ""
    input: dict[str, Any] = {}


class UserInput(Struct, frozen=True, kw_only=True):
    user_id: str = ""


class SessionInput(Struct, frozen=True, kw_only=True):
    user_id: str = ""
    session_id: str = ""


class CreateInput(Struct, frozen=True, kw_only=True):
    user_id: str = ""
    session_id: str = ""
    state: dict[str, Any] | None = None


class QueryInput(Struct, frozen=True, kw_only=True):
    """`session_events` are the history of a session that is made by this call."""

    user_id: str = ""
    session_id: str = ""
    message: Content | str | None = None
    session_events: list[Event] = []


class RequestJson(Struct, frozen=True, kw_only=True):
    request_json: str = ""


class AgentRunInput(Struct, frozen=True, kw_only=True):
    """What `request_json` holds. `events` are the history of a session that is made by this call."""

    user_id: str = ""
    session_id: str = ""
    message: Content | str | None = None
    events: list[Event] = []


def session_shape(session: Session, app_name: str) -> dict[str, Any]:
    """A session as a caller sees it; `state` and `events` are never null, times are float seconds."""
    return {
        "user_id": session.key.user,
        "last_update_time": session.updated_at,
        "app_name": app_name,
        "id": session.key.id,
        "state": session.state,
        "events": session.events,
    }


def event_shape(event: Event) -> dict[str, Any]:
    """An event as a line of a stream: snake_case names, keys of maps untouched, time in whole seconds."""
    shape = {**_plain(event), **{name: getattr(event, name) or empty for name, empty in _ALWAYS.items()}}
    shape["actions"] = {"state_delta": {}, "artifact_delta": {}, **shape.get("actions", {})}
    return shape


def line(value: Any) -> bytes:
    """One line of a stream."""
    return encode(value) + b"\n"


def error_line(message: str) -> bytes:
    """The line that ends a stream with an error."""
    return line({"error": message})


@lru_cache(maxsize=256)
def _fields(kind: type[Struct]) -> tuple[tuple[str, Any], ...]:
    """The members of a Struct, each with the value that is left out; NODEFAULT for none."""
    omit = kind.__struct_config__.omit_defaults
    found: list[tuple[str, Any]] = []
    for field in msgspec.structs.fields(kind):
        default = field.default
        if field.default_factory in _EMPTY_FACTORIES:
            default = cast("Any", field.default_factory)()
        found.append((field.name, default if omit else NODEFAULT))
    return tuple(found)


def _plain(value: Any) -> Any:
    """Structs as dicts of their own names, whatever they are called in JSON. Nulls are left out."""
    if isinstance(value, Struct):
        out: dict[str, Any] = {}
        for name, default in _fields(type(value)):
            member = getattr(value, name)
            if member is not None and (default is NODEFAULT or member != default):
                out[name] = _plain(member)
        return out
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, Any]", value).items()}
    return int(value.timestamp()) if isinstance(value, datetime) else value
