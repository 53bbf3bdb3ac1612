"""Sessions in one SQLite file: the default of an App that is to remember. Several processes may share the file.

One thread writes, many appends in one durable transaction; threads beside it read. The event loop never waits for the disk. An
append costs the same for any length of history; a read costs what is new since the last one.
"""

from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from polyport.data.event import Event
from polyport.data.session import Session, SessionKey, merge_state, split_delta
from polyport.ports.stores import SessionPage
from polyport.seams import REAL, Seams
from polyport.stores import session_rules as rules
from polyport.stores import sqlite_rows as rows
from polyport.stores.event_cache import CACHE_BYTES
from polyport.stores.sqlite_file import Connection, SqliteFile
from polyport.stores.sqlite_reader import Reader, session_of
from polyport.stores.sqlite_writer import GroupWriter

Events = list[Event]  # `list` means the method inside the store


class SqliteSessions:
    """Sessions in the SQLite file `path`, made if there is none. Fork before the first use.

    `readers` threads read; `cache_bytes` bounds the decoded events that are kept; `busy_s` is how long to wait, a few times,
    for another process that holds the file. ConfigError for a file that is not ours, or of a newer Polyport.
    """

    instant = False
    finishes = True

    def __init_subclass__(cls) -> None:
        if "append" in vars(cls) and "finishes" not in vars(cls):  # it may go on waiting when ours has been answered
            cls.finishes = False

    def __init__(
        self,
        path: str | Path,
        *,
        seams: Seams = REAL,
        readers: int = 2,
        cache_bytes: int = CACHE_BYTES,
        busy_s: float = 10.0,
    ) -> None:
        self._seams = seams
        self._file = SqliteFile(path, busy_s=busy_s, seams=seams)
        self._file.prepare()
        self._writer = GroupWriter(self._file)
        self._reader = Reader(self._file, threads=readers, cache_bytes=cache_bytes)

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def writer(self) -> GroupWriter:
        """For a store beside this one in the same file, so that both share transactions. Closed with this store."""
        return self._writer

    @property
    def decoded(self) -> int:
        """How many events were decoded so far."""
        return self._reader.decoded

    @property
    def transactions(self) -> int:
        """How many transactions were committed so far."""
        return self._writer.transactions

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
        event_rows = [rows.event_row(event) for event in stored]
        state_rows = rows.state_rows(delta)
        now = self._seams.clock()
        seen = await self._writer.do(lambda con: rows.insert_session(con, key, now, event_rows, state_rows))
        return Session(
            key=key, state=merge_state(*seen), events=stored, updated_at=now, created_at=now, revision=1, fence=0
        )

    async def get(self, key: SessionKey, *, recent: int | None = None, after: float | None = None) -> Session:
        rules.check_key(*key)
        rules.check_window(recent)
        return await self._reader.do(lambda con: self._reader.load(con, key, recent, after))

    async def list(self, app: str, user: str = "", *, page_size: int = 0, page_token: str = "") -> SessionPage:
        start = rules.page_start(app, user, page_size, page_token)

        def query(con: Connection) -> SessionPage:
            heads = rows.read_page(con, app, user, start, page_size + 1 if page_size else -1)
            more = bool(page_size) and len(heads) > page_size
            heads = heads[:page_size] if more else heads
            states = rows.read_states(con, app, heads)
            sessions = [
                session_of(SessionKey(app, head.user, head.id), head, state, [])
                for head, state in zip(heads, states, strict=True)
            ]
            return SessionPage(sessions=sessions, next_token=rules.page_token(app, user, sessions[-1]) if more else "")

        return await self._reader.do(query)

    async def delete(self, key: SessionKey) -> None:
        rules.check_key(*key)
        await self._writer.do(lambda con: rows.delete(con, key))
        self._reader.forget(key)

    async def append(self, session: Session, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        if event.partial:
            return event
        stored = rules.as_stored(event, self._seams)
        delta = stored.actions.state_delta
        write = rows.Write(
            key=session.key,
            event=rows.event_row(stored),
            state=rows.state_rows(split_delta(delta)) if delta else rows.NO_STATE,
            now=self._seams.clock(),
            fence=None if claim else session.fence,
            revision=session.revision if strict else None,
        )

        def took_in(done: rows.Appended) -> None:
            rules.took_in(session, event, stored, at=done.updated_at, fence=done.fence)

        await self._writer.finish(lambda con: rows.append(con, write), took_in)
        return stored

    async def claim(self, key: SessionKey) -> None:
        await self._writer.do(lambda con: rows.claim(con, key))

    async def find_run(self, invocation_id: str) -> SessionKey | None:
        return await self._reader.do(lambda con: rows.find_run(con, invocation_id))

    async def ping(self) -> None:
        await self._reader.do(lambda con: con.execute("SELECT version FROM polyport_schema LIMIT 1").get)

    async def aclose(self) -> None:
        """Carry out what is waiting, then let go of the file. Idempotent."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        self._writer.close()
        self._reader.close()
