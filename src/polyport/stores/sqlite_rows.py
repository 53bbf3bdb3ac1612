"""The SQL of the session store: what is done inside one transaction, on one connection.

Called by `sqlite.py` through the writer's thread and by `sqlite_reader.py`. Nothing here begins or ends a transaction. A write
touches only its own rows: it reads no history, and no state that its delta does not name.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from polyport.codec import decode, encode
from polyport.data.event import Event
from polyport.data.session import SessionKey, StateDelta, merge_state
from polyport.errors import BadRequest, Conflict, NotFound, Superseded
from polyport.stores.session_rules import Place, event_time
from polyport.stores.sqlite_file import Connection

SESSION, APP, USER = 0, 1, 2  # what a row of state belongs to
State = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


class Head(NamedTuple):
    """A row of `sessions`."""

    sid: int
    user: str
    id: str
    revision: int
    fence: int
    created_at: float
    updated_at: float


class EventRow(NamedTuple):
    """An event as it is written: its time in epoch seconds, its run, and all of it as JSON."""

    at: float
    invocation_id: str
    body: str


class Write(NamedTuple):
    """What one append asks for; `fence` and `revision` are those that the writer knows, None when they do not matter."""

    key: SessionKey
    event: EventRow
    state: "StateRows"
    now: float
    fence: int | None
    revision: int | None


class StateRows(NamedTuple):
    """State to be written: (key, value as JSON) by scope."""

    session: list[tuple[str, str]]
    app: list[tuple[str, str]]
    user: list[tuple[str, str]]


class Appended(NamedTuple):
    sid: int
    fence: int
    updated_at: float


def event_row(event: Event) -> EventRow:
    """BadRequest if the event has no JSON form, or one that could not be read again: it would spoil the session."""
    what = f"event {event.id!r}"
    body = _json(event, what)
    try:
        decode(body, Event)
    except BadRequest as error:
        raise BadRequest(f"{what} cannot be stored: {error}", error.field) from None
    return EventRow(event_time(event), event.invocation_id, body)


def state_rows(delta: StateDelta) -> StateRows:
    """`temp` is left out: it never reaches a store. BadRequest for a value that has no JSON form."""
    return StateRows(_pairs(delta.session), _pairs(delta.app), _pairs(delta.user))


NO_STATE = StateRows([], [], [])


def _pairs(state: dict[str, Any]) -> list[tuple[str, str]]:
    return [(key, _json(value, f"state key {key!r}")) for key, value in state.items()]


def _json(value: Any, what: str) -> str:
    try:
        return encode(value).decode()
    except (TypeError, NotImplementedError, ValueError, OverflowError, RecursionError) as error:
        raise BadRequest(f"{what} cannot be stored as JSON: {error}", what) from None


_HEAD = "SELECT sid, user, id, revision, fence, created_at, updated_at FROM sessions"


def find(con: Connection, key: SessionKey) -> Head | None:
    row = con.execute(f"{_HEAD} WHERE app = ? AND user = ? AND id = ?", key).get
    return Head(*row) if row is not None else None


def insert_session(con: Connection, key: SessionKey, now: float, events: list[EventRow], state: StateRows) -> State:
    """Make a session with its first events and state; all the state that it sees then. Conflict if it exists."""
    if find(con, key) is not None:
        raise Conflict(f"Session already exists: {key.id}")
    sid = con.execute(
        "INSERT INTO sessions (app, user, id, revision, fence, created_at, updated_at) VALUES (?, ?, ?, 1, 0, ?, ?)"
        " RETURNING sid",
        (*key, now, now),
    ).get
    for event in events:
        _insert_event(con, sid, event)
    _write_state(con, sid, key, state)
    return read_state(con, sid, key)


def append(con: Connection, write: Write) -> Appended:
    """Add one event with its state. NotFound, Superseded, Conflict (see the port)."""
    claim = write.fence is None
    row = con.execute(
        "UPDATE sessions SET revision = revision + 1, fence = fence + ?, updated_at = max(updated_at, ?)"
        " WHERE app = ? AND user = ? AND id = ? AND fence = ifnull(?, fence) AND revision = ifnull(?, revision)"
        " RETURNING sid, fence, updated_at",
        (1 if claim else 0, write.now, *write.key, write.fence, write.revision),
    ).get
    if row is None:
        raise _refusal(con, write)
    appended = Appended(*row)
    _insert_event(con, appended.sid, write.event)
    if write.state is not NO_STATE:
        _write_state(con, appended.sid, write.key, write.state)
    return appended


def claim(con: Connection, key: SessionKey) -> None:
    """Raise the fence of a session. NotFound."""
    sql = "UPDATE sessions SET fence = fence + 1 WHERE app = ? AND user = ? AND id = ? RETURNING sid"
    if con.execute(sql, tuple(key)).get is None:
        raise NotFound(f"there is no {key}")


def _refusal(con: Connection, write: Write) -> Exception:
    head = find(con, write.key)
    if head is None:
        return NotFound(f"there is no {write.key}")
    if write.fence is not None and head.fence != write.fence:
        return Superseded(f"a newer run has taken over {write.key}")
    return Conflict(f"{write.key} was changed by somebody else since it was read")


def _insert_event(con: Connection, sid: int, event: EventRow) -> None:
    con.execute("INSERT INTO events (sid, at, invocation_id, body) VALUES (?, ?, ?, ?)", (sid, *event))


def _write_state(con: Connection, sid: int, key: SessionKey, state: StateRows) -> None:
    newer = "DO UPDATE SET value = excluded.value"
    for pair in state.session:
        con.execute(f"INSERT INTO session_state VALUES (?, ?, ?) ON CONFLICT (sid, key) {newer}", (sid, *pair))
    for pair in state.app:
        con.execute(f"INSERT INTO app_state VALUES (?, ?, ?) ON CONFLICT (app, key) {newer}", (key.app, *pair))
    for pair in state.user:
        con.execute(
            f"INSERT INTO user_state VALUES (?, ?, ?, ?) ON CONFLICT (app, user, key) {newer}",
            (key.app, key.user, *pair),
        )


def delete(con: Connection, key: SessionKey) -> None:
    con.execute("DELETE FROM sessions WHERE app = ? AND user = ? AND id = ?", key)


def find_run(con: Connection, invocation_id: str) -> SessionKey | None:
    row = con.execute(
        "SELECT app, user, id FROM sessions WHERE sid = (SELECT sid FROM events WHERE invocation_id = ?"
        " AND invocation_id <> '' ORDER BY seq LIMIT 1)",  # the second condition lets the partial index be used
        (invocation_id,),
    ).get
    return SessionKey(*row) if row is not None else None


def read_state(con: Connection, sid: int, key: SessionKey) -> State:
    """The state that a session sees, by scope: session, app, user."""
    rows = con.execute(
        "SELECT 0, key, value FROM session_state WHERE sid = ?"
        " UNION ALL SELECT 1, key, value FROM app_state WHERE app = ?"
        " UNION ALL SELECT 2, key, value FROM user_state WHERE app = ? AND user = ?",
        (sid, key.app, key.app, key.user),
    )
    return _by_scope(rows)


def _by_scope(rows: Iterable[tuple[int, str, str]]) -> State:
    state: State = ({}, {}, {})
    for scope, name, value in rows:
        state[scope][name] = msgspec.json.decode(value)
    return state


def read_newer(con: Connection, sid: int, above: int) -> list[tuple[int, str]]:
    """(seq, body) of the events behind the one with `seq` `above`, in order."""
    return list(con.execute("SELECT seq, body FROM events WHERE sid = ? AND seq > ? ORDER BY seq", (sid, above)))


def read_newest(
    con: Connection, sid: int, *, limit: int | None, below: int | None = None, at: float | None = None
) -> list[tuple[int, str]]:
    """(seq, body) of the newest `limit` events before `seq` `below` (and at or after a time), in order."""
    rows = con.execute(
        "SELECT seq, body FROM events WHERE sid = ?1 AND (?2 IS NULL OR seq < ?2) AND (?3 IS NULL OR at >= ?3)"
        " ORDER BY seq DESC LIMIT ?4",
        (sid, below, at, -1 if limit is None else limit),
    )
    return list(rows)[::-1]


def read_page(con: Connection, app: str, user: str, start: Place | None, limit: int) -> list[Head]:
    """The heads that come after `start`, newest first; all when `limit` is negative."""
    where, values = "app = ?", [app]
    if user:
        where, values = "app = ? AND user = ?", [app, user]
    after, place = ("AND (-updated_at, id, user) > (?, ?, ?)", start) if start is not None else ("", ())
    rows = con.execute(
        f"{_HEAD} WHERE {where} {after} ORDER BY updated_at DESC, id, user LIMIT ?",
        (*values, *place, limit),
    )
    return [Head(*row) for row in rows]


def read_states(con: Connection, app: str, heads: list[Head]) -> list[dict[str, Any]]:
    """The merged states of sessions of one app, in their order."""
    own: dict[int, dict[str, Any]] = {head.sid: {} for head in heads}
    users: dict[str, dict[str, str]] = {head.user: {} for head in heads}
    for sid, name, value in con.execute(
        "SELECT sid, session_state.key, session_state.value FROM json_each(?) CROSS JOIN session_state"
        " ON sid = json_each.value",
        (encode(list(own)).decode(),),
    ):
        own[sid][name] = msgspec.json.decode(value)
    for user, name, value in con.execute(
        "SELECT user, user_state.key, user_state.value FROM json_each(?2) CROSS JOIN user_state"
        " ON app = ?1 AND user = json_each.value",
        (app, encode(list(users)).decode()),
    ):
        users[user][name] = value
    shared = dict(con.execute("SELECT key, value FROM app_state WHERE app = ?", (app,)))
    return [_merged(own[head.sid], shared, users[head.user]) for head in heads]


def _merged(own: dict[str, Any], app: dict[str, str], user: dict[str, str]) -> dict[str, Any]:
    return merge_state(own, _decoded(app), _decoded(user)) if app or user else own


def _decoded(state: dict[str, str]) -> dict[str, Any]:
    """Values of its own for each reader."""
    return {key: msgspec.json.decode(value) for key, value in state.items()}
