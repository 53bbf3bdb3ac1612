"""Session, its key, and the state overlay through which agents write (spec core 1.6, 5.2).

Stores make and keep sessions; a run owns the Session object it loaded. State writes go to a delta and become true only
through a committed event.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from msgspec import Struct

from polyport.codec import json_safe, own
from polyport.data.event import Event

APP, USER, TEMP = "app:", "user:", "temp:"
"""Prefixes of state keys: shared by the app, shared by the user's sessions, alive in one run only."""


class SessionKey(NamedTuple):
    """Where a session lives; all three parts are needed to find it."""

    app: str
    user: str
    id: str

    def __str__(self) -> str:
        return f"session {self.id!r} of user {self.user!r} in app {self.app!r}"


class Session(Struct, kw_only=True):
    """A session as loaded. `state` is merged from all scopes with prefixes; `events` are in order of storage.

    `updated_at` is epoch seconds. `revision` counts all writes, `fence` counts runs: a run whose fence is no longer the
    stored one has been superseded.
    """

    key: SessionKey
    state: dict[str, Any] = {}
    events: list[Event] = []
    updated_at: float = 0.0
    created_at: float = 0.0
    revision: int = 0
    fence: int = 0

    @property
    def id(self) -> str:
        return self.key.id


class StateDelta(NamedTuple):
    """A delta split by scope, prefixes stripped; `temp` never reaches a store."""

    session: dict[str, Any]
    app: dict[str, Any]
    user: dict[str, Any]
    temp: dict[str, Any]


def split_delta(delta: dict[str, Any]) -> StateDelta:
    """Split a delta by the prefix of its keys. The one place where scopes are told apart; all stores use it."""
    out = StateDelta({}, {}, {}, {})
    for key, value in delta.items():
        if ":" not in key:
            out.session[key] = value
        elif key.startswith(APP):
            out.app[key[len(APP) :]] = value
        elif key.startswith(USER):
            out.user[key[len(USER) :]] = value
        elif key.startswith(TEMP):
            out.temp[key[len(TEMP) :]] = value
        else:
            out.session[key] = value
    return out


def merge_state(session: dict[str, Any], app: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """The state a reader sees: all scopes in one dict, prefixes restored."""
    merged = dict(session)
    merged.update((APP + k, v) for k, v in app.items())
    merged.update((USER + k, v) for k, v in user.items())
    return merged


def temp_of(delta: dict[str, Any] | None) -> dict[str, Any]:
    return {k: v for k, v in delta.items() if k.startswith(TEMP)} if delta else {}


def without_temp(delta: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in delta.items() if not k.startswith(TEMP)}


class State(MutableMapping[str, Any]):
    """A view of session state: reads fall through to the committed state, writes go to `delta`.

    A list or dict is read as a copy: change it and set the key again.

    A value must have a JSON form; otherwise the write raises BadRequest naming the key. There is no deletion in the state
    protocol: `del` stores null.
    """

    __slots__ = ("_base", "delta")

    def __init__(self, base: Mapping[str, Any], delta: dict[str, Any]) -> None:
        self._base = base
        self.delta = delta

    def __getitem__(self, key: str) -> Any:
        return own(self.delta[key] if key in self.delta else self._base[key])

    def __setitem__(self, key: str, value: Any) -> None:
        self.delta[key] = json_safe(value, f"state key {key!r}")

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self.delta[key] = None

    def __iter__(self) -> Iterator[str]:
        yield from self._base
        yield from (k for k in self.delta if k not in self._base)

    def __len__(self) -> int:
        return len(self._base.keys() | self.delta.keys())

    def __contains__(self, key: object) -> bool:
        return key in self.delta or key in self._base

    def __repr__(self) -> str:
        return f"State({dict(self)!r})"
