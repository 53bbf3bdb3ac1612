"""Threads that read from the database beside the writer, and the decoded events they keep.

Called by `sqlite.py`. A read costs what is new: events that were decoded before come from a bounded cache, which one query
checks against the session's revision, for other processes write too. Never writes.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import apsw

from polyport.codec import decode
from polyport.data.event import Event
from polyport.data.session import Session, SessionKey, merge_state
from polyport.errors import BadRequest, NotFound, Unavailable
from polyport.stores import sqlite_rows as rows
from polyport.stores.event_cache import EventCache, Kept, cost
from polyport.stores.session_rules import window
from polyport.stores.sqlite_file import Connection, SqliteFile, retry_busy, unavailable
from polyport.stores.sqlite_writer import on_loop

T = TypeVar("T")


class _Query(NamedTuple):
    """Something to read, and who waits for it."""

    query: Callable[[Connection], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Reader:
    """Runs queries in its threads, each with a connection of its own. The threads start with the first query."""

    def __init__(self, file: SqliteFile, *, threads: int, cache_bytes: int) -> None:
        self._file = file
        self._count = threads
        self._queue: queue.SimpleQueue[_Query | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._cache = EventCache(cache_bytes)
        self._lock = threading.Lock()  # guards the threads, the end mark, and the count
        self._closed = False
        self.decoded = 0
        """How many events were decoded so far."""

    async def do(self, query: Callable[[Connection], T]) -> T:
        """The result of `query(connection)`, which sees one state of the database throughout. Unavailable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closed:
                raise Unavailable("the session store is closed")
            if not self._threads:
                self._start()
            if not self._threads[0].is_alive():
                raise Unavailable("a process that forks must make its session store afterwards")
            self._queue.put(_Query(query, loop, future))
        return await future

    def _start(self) -> None:
        for number in range(self._count):
            name = f"polyport-sqlite-reader-{number}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()

    def close(self) -> None:
        """Finish what is being read, then stop. Blocks; idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._queue.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _run(self) -> None:
        con: Connection | None = None
        while (item := self._queue.get()) is not None:
            result, error = None, None
            try:
                con = con or retry_busy(lambda: self._file.connect(read_only=True))
                result = _in_transaction(con, item.query)
            except apsw.Error as failure:
                error = unavailable(failure, "read")
            except Exception as failure:  # noqa: BLE001 - it is raised in the caller, and the thread must live on
                error = failure
            on_loop(item.loop, _settle, (item.future, result, error))
        if con is not None:
            con.close()

    def forget(self, key: SessionKey) -> None:
        self._cache.drop(key)

    def load(self, con: Connection, key: SessionKey, recent: int | None, after: float | None) -> Session:
        """The session as `SessionStore.get` gives it. For `do`."""
        head = rows.find(con, key)
        if head is None:
            self._cache.drop(key)
            raise NotFound(f"there is no {key}")
        if recent == 0:
            events: list[Event] = []
        elif after is not None:
            events = self._decode(rows.read_newest(con, head.sid, limit=recent, at=after))
        else:
            events = self._newest(con, key, head, recent)
        return session_of(key, head, merge_state(*rows.read_state(con, head.sid, key)), events)

    def _newest(self, con: Connection, key: SessionKey, head: rows.Head, recent: int | None) -> list[Event]:
        kept = self._cache.get(key)
        if kept.sid != head.sid:
            kept = Kept(head.sid)
        if kept.revision > head.revision:  # a reader who began later was faster; its events are none of ours
            return self._decode(rows.read_newest(con, head.sid, limit=recent))
        found = kept
        if kept.first is not None and kept.revision < head.revision:
            found = self._with_newer(found, rows.read_newer(con, head.sid, found.last))
        missing = None if recent is None else recent - len(found.events)
        if not (found.complete and kept.first is not None) and (missing is None or missing > 0):
            older = rows.read_newest(con, head.sid, limit=missing, below=found.first)
            found = self._with_older(found, older, complete=missing is None or len(older) < missing)
        found = found._replace(revision=head.revision)
        if found.revision != kept.revision or found.complete != kept.complete or found.events is not kept.events:
            self._cache.put(key, found)
        return window(found.events, recent, None)

    def _with_newer(self, kept: Kept, found: list[tuple[int, str]]) -> Kept:
        if not found:
            return kept
        events = kept.events + self._decode(found)
        return kept._replace(last=found[-1][0], events=events, size=kept.size + cost(body for _, body in found))

    def _with_older(self, kept: Kept, found: list[tuple[int, str]], *, complete: bool) -> Kept:
        if not found:
            return kept._replace(complete=complete)
        return kept._replace(
            first=found[0][0],
            last=kept.last or found[-1][0],
            complete=complete,
            events=self._decode(found) + kept.events,
            size=kept.size + cost(body for _, body in found),
        )

    def _decode(self, found: list[tuple[int, str]]) -> list[Event]:
        with self._lock:
            self.decoded += len(found)
        return [_event(seq, body) for seq, body in found]


def _in_transaction(con: Connection, query: Callable[[Connection], T]) -> T:
    retry_busy(lambda: con.execute("BEGIN"))
    try:
        return retry_busy(lambda: query(con))
    finally:
        if con.in_transaction:
            con.execute("COMMIT")


def _settle(outcome: tuple[asyncio.Future[Any], Any, Exception | None]) -> None:
    """On the loop: hand the outcome to who waits, if somebody still does."""
    future, result, error = outcome
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def session_of(key: SessionKey, head: rows.Head, state: dict[str, Any], events: list[Event]) -> Session:
    return Session(
        key=key,
        state=state,
        events=events,
        updated_at=head.updated_at,
        created_at=head.created_at,
        revision=head.revision,
        fence=head.fence,
    )


def _event(seq: int, body: str) -> Event:
    try:
        return decode(body, Event, unknown="drop")  # a newer Polyport may have written more
    except BadRequest as error:
        raise Unavailable(f"event number {seq} of the session database is damaged: {error}") from None
