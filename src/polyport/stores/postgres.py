"""Sessions in PostgreSQL: for several servers, or several machines, on one database.

Made by `open_stores`. An append is one round trip, which those who write at the same time share (group commit), and costs the
same for any length of history; a read is one, too, and costs what is new since the last one. A write locks the rows of its own
session and of the state keys that its delta names, and no others.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import msgspec

from polyport.codec import decode, encode
from polyport.data.event import Event
from polyport.data.session import Session, SessionKey, merge_state, split_delta
from polyport.errors import BadRequest, Conflict, NotFound, Superseded, Unavailable
from polyport.ports.stores import SessionPage
from polyport.seams import REAL, Seams
from polyport.stores import session_rules as rules
from polyport.stores.batches import Batches
from polyport.stores.event_cache import CACHE_BYTES, EventCache, Kept, cost
from polyport.stores.postgres_database import PostgresDatabase
from polyport.stores.sqlite_rows import NO_STATE, EventRow, StateRows, event_row, state_rows

Events = list[Event]  # `list` means the method inside the store
MANY = 100
"""From how many events on they are decoded in a thread, so that the event loop goes on meanwhile."""
DONE, MISSING, TAKEN_OVER = 0, 1, 2
"""What polyport_append says of an append; else it was strict, and somebody else had written."""

_OWN = "(SELECT string_agg(key || ':' || value, ',') FROM polyport_session_state AS t WHERE t.sid = s.sid)"
_APP = "(SELECT string_agg(key || ':' || value, ',') FROM polyport_app_state AS t WHERE t.app = $1)"
_USER = (
    "(SELECT string_agg(key || ':' || value, ',') FROM polyport_user_state AS t WHERE t.app = $1 AND t.user_id = {})"
)
_HEAD = f"s.id, s.user_id, s.revision, s.fence, s.created_at, s.updated_at, {_OWN} AS own, {_APP} AS app_state"
_GET = (
    f"SELECT {_HEAD}, {_USER.format('$2')} AS user_state,"
    " ARRAY(SELECT body FROM polyport_events AS e WHERE e.sid = s.sid AND ($4::float8 IS NULL OR e.at >= $4)"
    " AND e.seq > $6 ORDER BY e.seq DESC LIMIT $5) AS bodies,"
    " s.sid, (SELECT max(seq) FROM polyport_events AS e WHERE e.sid = s.sid) AS last"
    " FROM polyport_sessions AS s WHERE s.app = $1 AND s.user_id = $2 AND s.id = $3"
)
_LIST = (
    f"SELECT {_HEAD}, {_USER.format('s.user_id')} AS user_state FROM (SELECT * FROM polyport_sessions AS s"
    " WHERE s.app = $1 AND $2 = ''"
    ' AND ($3::float8 IS NULL OR (-s.updated_at, s.id, s.user_id) > ($3, $4 COLLATE "C", $5 COLLATE "C"))'
    " ORDER BY s.updated_at DESC, s.id, s.user_id LIMIT $6) AS s"  # state is read for the sessions of the page only
    " ORDER BY s.updated_at DESC, s.id, s.user_id"
)
_LIST_OF_USER = _LIST.replace("$2 = ''", "s.user_id = $2")
_CREATE = f"""
WITH made AS (
    INSERT INTO polyport_sessions (app, user_id, id, revision, fence, created_at, updated_at)
        VALUES ($1, $2, $3, 1, 0, $4, $4) ON CONFLICT DO NOTHING RETURNING sid
), events AS (
    INSERT INTO polyport_events (sid, at, invocation_id, body)
        SELECT made.sid, e.at, e.run, e.body FROM made, unnest($5::float8[], $6::text[], $7::text[]) WITH ORDINALITY
        AS e (at, run, body, n) ORDER BY e.n
), own AS (
    INSERT INTO polyport_session_state (sid, key, value)
        SELECT made.sid, p.k, p.v FROM made, unnest($9::text[], $10::text[], $8::integer[]) AS p (k, v, scope)
        WHERE p.scope = 0
), shared AS (
    INSERT INTO polyport_user_state (app, user_id, key, value)
        SELECT $1, $2, p.k, p.v FROM made, unnest($9::text[], $10::text[], $8::integer[]) AS p (k, v, scope)
        WHERE p.scope = 2 ORDER BY p.k COLLATE "C"
        ON CONFLICT (app, user_id, key) DO UPDATE SET value = excluded.value
), everywhere AS (
    INSERT INTO polyport_app_state (app, key, value)
        SELECT $1, p.k, p.v FROM made, unnest($9::text[], $10::text[], $8::integer[]) AS p (k, v, scope)
        WHERE p.scope = 1 ORDER BY p.k COLLATE "C"
        ON CONFLICT (app, key) DO UPDATE SET value = excluded.value
)
SELECT {_APP} AS app_state, {_USER.format("$2")} AS user_state FROM made
"""
_APPEND = (
    "SELECT number, status, fence, updated_at"
    " FROM polyport_append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
)


class _Write(NamedTuple):
    """One append; `fence` and `revision` are those that the writer knows, None when they do not matter."""

    key: SessionKey
    claim: bool
    fence: int | None
    revision: int | None
    now: float
    event: EventRow
    state: StateRows


class _Appended(NamedTuple):
    fence: int
    updated_at: float


Outcomes = list[_Appended | Exception]


class PostgresSessions:
    """Sessions in `database`, which is closed with them. `cache_bytes` bounds the decoded events that are kept; `decoded`
    counts those that were decoded so far."""

    instant = False
    finishes = False

    def __init__(self, database: PostgresDatabase, *, seams: Seams = REAL, cache_bytes: int = CACHE_BYTES) -> None:
        self.database = database
        self.decoded = 0
        self._seams = seams
        self._cache = EventCache(cache_bytes)
        self._appends: dict[asyncio.AbstractEventLoop, Batches[_Write, _Appended]] = {}

    async def create(
        self,
        app: str,
        user: str,
        session_id: str = "",
        *,
        state: dict[str, Any] | None = None,
        events: list[Event] | None = None,
    ) -> Session:
        key, delta, stored = rules.new_session(self._seams, app, user, session_id, state, events)
        rows = [event_row(event) for event in stored]
        scopes, names, values = _columns(state_rows(delta))
        now = self._seams.clock()
        ats, runs, bodies = (
            [row.at for row in rows],
            [_run(row.invocation_id) for row in rows],
            [row.body for row in rows],
        )
        arguments = (*key, now, ats, runs, bodies, scopes, names, values)
        row = await self.database.write(lambda con: con.fetchrow(_CREATE, *arguments))
        if row is None:
            raise Conflict(f"Session already exists: {key.id}")
        app_state, user_state = _state(row["app_state"]) | delta.app, _state(row["user_state"]) | delta.user
        merged = rules.owned(merge_state(delta.session, app_state, user_state))
        return Session(key=key, state=merged, events=stored, updated_at=now, created_at=now, revision=1, fence=0)

    async def get(self, key: SessionKey, *, recent: int | None = None, after: float | None = None) -> Session:
        rules.check_key(*key)
        rules.check_window(recent)
        kept = self._cache.get(key) if after is None and recent != 0 else Kept()
        if not (kept.complete or (recent and len(kept.events) >= recent)):
            kept = Kept()
        row = await self._row(key, None if kept.sid else recent, after, kept.last)
        if kept.sid not in (0, row["sid"]):  # it was made anew
            kept = Kept()
            row = await self._row(key, recent, after, 0)
        bodies: list[str] = row["bodies"][::-1]
        new = _decoded(bodies) if len(bodies) < MANY else await anyio.to_thread.run_sync(_decoded, bodies)
        self.decoded += len(new)
        if after is not None or recent == 0:
            return _session(key.app, row, new)
        if not kept.sid:  # this is all that was asked for
            kept = Kept(row["sid"], complete=recent is None or len(new) < recent)
        kept = kept._replace(
            revision=row["revision"],
            last=row["last"] or 0,
            events=kept.events + new if new else kept.events,
            size=kept.size + cost(bodies),
        )
        self._cache.put(key, kept)
        return _session(key.app, row, rules.window(kept.events, recent, None))

    async def _row(self, key: SessionKey, limit: int | None, after: float | None, above: int) -> Any:
        """The session, with the JSON of its newest `limit` events at or after a time and behind `above`, newest first."""
        row = await self.database.read(lambda con: con.fetchrow(_GET, *key, after, _limit(limit), above))
        if row is None:
            self._cache.drop(key)
            raise NotFound(f"there is no {key}")
        return row

    async def list(self, app: str, user: str = "", *, page_size: int = 0, page_token: str = "") -> SessionPage:
        start = rules.page_start(app, user, page_size, page_token) or (None, "", "")
        limit = _limit(page_size + 1 if page_size else None)
        sql = _LIST_OF_USER if user else _LIST
        rows = await self.database.read(lambda con: con.fetch(sql, app, user, *start, limit))
        more = bool(page_size) and len(rows) > page_size
        sessions = [_session(app, row, []) for row in (rows[:page_size] if more else rows)]
        return SessionPage(sessions=sessions, next_token=rules.page_token(app, user, sessions[-1]) if more else "")

    async def delete(self, key: SessionKey) -> None:
        rules.check_key(*key)
        sql = "DELETE FROM polyport_sessions WHERE app = $1 AND user_id = $2 AND id = $3"
        await self.database.write(lambda con: con.execute(sql, *key))
        self._cache.drop(key)

    async def append(self, session: Session, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        if event.partial:
            return event
        stored = rules.as_stored(event, self._seams)
        delta = stored.actions.state_delta
        write = _Write(
            key=session.key,
            claim=claim,
            fence=None if claim else session.fence,
            revision=session.revision if strict else None,
            now=self._seams.clock(),
            event=event_row(stored),
            state=state_rows(split_delta(delta)) if delta else NO_STATE,
        )

        def took_in(done: _Appended) -> None:
            rules.took_in(session, event, stored, at=done.updated_at, fence=done.fence)

        # a run that is cancelled while it claims must know its fence, or else it could not write its last event
        with anyio.CancelScope(shield=claim):
            await self._batches().do(write, took_in)
        return stored

    async def claim(self, key: SessionKey) -> None:
        sql = "UPDATE polyport_sessions SET fence = fence + 1 WHERE app = $1 AND user_id = $2 AND id = $3"
        if await self.database.write(lambda con: con.execute(sql, *key)) == "UPDATE 0":
            raise NotFound(f"there is no {key}")

    async def find_run(self, invocation_id: str) -> SessionKey | None:
        sql = (
            "SELECT s.app, s.user_id, s.id FROM polyport_events AS e JOIN polyport_sessions AS s USING (sid)"
            " WHERE e.invocation_id = $1 AND e.invocation_id <> '' ORDER BY e.seq LIMIT 1"
        )
        row = await self.database.read(lambda con: con.fetchrow(sql, _run(invocation_id)))
        return None if row is None else SessionKey(*row)

    async def ping(self) -> None:
        await self.database.ping()

    async def aclose(self) -> None:
        """Let go of the database. Idempotent."""
        await self.database.aclose()

    def _batches(self) -> Batches[_Write, _Appended]:
        """Those of this event loop."""
        loop = asyncio.get_running_loop()
        found = self._appends.get(loop)
        if found is None:
            for other in [other for other in list(self._appends) if other.is_closed()]:
                self._appends.pop(other, None)
            found = self._appends[loop] = Batches(self._append_all)
        return found

    async def _append_all(self, writes: Sequence[_Write]) -> Sequence[_Appended | Exception]:
        """Many appends in one transaction. One that PostgreSQL cannot keep must not take the others with it."""
        order = sorted(range(len(writes)), key=lambda number: writes[number].key)
        arguments = _arguments([writes[number] for number in order])
        try:
            rows = await self.database.write(lambda con: con.fetch(_APPEND, *arguments))
        except BadRequest as error:
            if len(writes) == 1:
                return [error]
            return [result for write in writes for result in await self._append_all([write])]
        results: Outcomes = [Unavailable("the append was not carried out")] * len(writes)
        for row in rows:
            place = order[int(row["number"]) - 1]
            results[place] = _outcome(writes[place].key, row)
        return results


def _arguments(writes: Sequence[_Write]) -> tuple[Sequence[Any], ...]:
    """The arrays that polyport_append takes."""
    numbers: list[int] = []
    pairs = StateColumns([], [], [])
    for number, write in enumerate(writes, 1):
        if write.state is not NO_STATE:
            scopes, names, values = _columns(write.state)
            pairs.scopes.extend(scopes)
            pairs.names.extend(names)
            pairs.values.extend(values)
            numbers += [number] * len(scopes)
    return (
        *([write.key[part] for write in writes] for part in range(3)),
        [int(write.claim) for write in writes],
        [write.fence for write in writes],
        [write.revision for write in writes],
        [write.now for write in writes],
        [write.event.at for write in writes],
        [_run(write.event.invocation_id) for write in writes],
        [write.event.body for write in writes],
        numbers,
        *pairs,
    )


class StateColumns(NamedTuple):
    """State as three columns: scope (0 session, 1 app, 2 user), key as a JSON string, value as JSON."""

    scopes: list[int]
    names: list[str]
    values: list[str]


def _columns(state: StateRows) -> StateColumns:
    columns = StateColumns([], [], [])
    for scope, pairs in enumerate(state):
        for name, value in pairs:
            columns.scopes.append(scope)
            columns.names.append(encode(name).decode())  # a key may hold NUL, which PostgreSQL's text must not
            columns.values.append(value)
    return columns


def _outcome(key: SessionKey, row: Any) -> _Appended | Exception:
    status = row["status"]
    if status == DONE:
        return _Appended(row["fence"], row["updated_at"])
    if status == MISSING:
        return NotFound(f"there is no {key}")
    if status == TAKEN_OVER:
        return Superseded(f"a newer run has taken over {key}")
    return Conflict(f"{key} was changed by somebody else since it was read")


def _limit(wanted: int | None) -> int | None:
    """A number that PostgreSQL takes."""
    return None if wanted is None else min(wanted, 1 << 62)


def _run(invocation_id: str) -> str:
    """A run's id as it is looked for: what PostgreSQL's text cannot hold is replaced. Events have the real one."""
    return invocation_id.encode("utf-8", "replace").decode().replace("\0", "?")


def _state(text: str | None) -> dict[str, Any]:
    return msgspec.json.decode(f"{{{text}}}") if text else {}


def _session(app: str, row: Any, events: Events) -> Session:
    return Session(
        key=SessionKey(app, row["user_id"], row["id"]),
        state=merge_state(_state(row["own"]), _state(row["app_state"]), _state(row["user_state"])),
        events=events,
        updated_at=row["updated_at"],
        created_at=row["created_at"],
        revision=row["revision"],
        fence=row["fence"],
    )


def _decoded(bodies: list[str]) -> Events:
    try:
        return [decode(body, Event, unknown="drop") for body in bodies]  # a newer Polyport may have written more
    except BadRequest as error:
        raise Unavailable(f"an event of the session database is damaged: {error}") from None
