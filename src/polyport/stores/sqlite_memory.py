"""Long-term memory in an SQLite file, found by words and ranked by BM25 (FTS5). Usually the file that the sessions are in.

Called by `ctx.search_memory` and by whoever remembers sessions; made by `open_stores`. Adding a session again writes what is
new in it, and nothing else. Never touches the file on the event loop, and never takes a user's text for a query's syntax.
"""

from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from polyport.codec import decode
from polyport.data.session import Session, SessionKey
from polyport.errors import BadRequest, Unavailable
from polyport.ports.stores import MemoryEntry
from polyport.seams import REAL, Seams
from polyport.stores import memory_rules as memories
from polyport.stores import session_rules as rules
from polyport.stores.memory_diff import Row, Seen, diff
from polyport.stores.sqlite_file import Connection, SqliteFile
from polyport.stores.sqlite_reader import Reader
from polyport.stores.sqlite_writer import GroupWriter

BATCH = 500
"""How many entries go into one transaction, so that a long session holds up nobody else who writes."""


class SqliteMemory:
    """Memory in the SQLite file `path`, made if there is none; SqliteSessions may use the same one.

    A search gives `max_results` entries at most, best first; how rare a word is is reckoned over all users of the file.
    `busy_s` is how long to wait, a few times, for another process that holds the file. ConfigError for a file that is not ours.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        seams: Seams = REAL,
        max_results: int = memories.MAX_RESULTS,
        busy_s: float = 10.0,
    ) -> None:
        self._max_results = memories.check_limit(max_results)
        self._file = SqliteFile(path, busy_s=busy_s, seams=seams)
        self._file.prepare()
        self._writer = GroupWriter(self._file)
        self._reader = Reader(self._file, threads=1, cache_bytes=0)
        self._seen = Seen()
        self.written = 0
        """How many entries were written so far."""

    @property
    def path(self) -> Path:
        return self._file.path

    async def add_session(self, session: Session) -> None:
        """See the port. What of the session is remembered already is left alone; entries of events that it does not have any
        more go."""
        key = session.key
        rules.check_key(*key)
        events = list(session.events)
        start = self._seen.take(key, events)
        known = {} if start else await self._reader.do(lambda con: _known(con, key))
        changed = await anyio.to_thread.run_sync(diff, events[start:], start, known)
        if changed.gone:
            await self._writer.do(lambda con: _remove(con, key, changed.gone))
        for at in range(0, len(changed.fresh), BATCH):
            batch = changed.fresh[at : at + BATCH]
            await self._writer.do(lambda con, batch=batch: _write(con, key, batch))
            self.written += len(batch)
        self._seen.note(key, events)

    async def search(self, app: str, user: str, query: str) -> list[MemoryEntry]:
        """See the port. Equally good matches come newest first."""
        rules.check_key(app, user)
        asked = memories.query_words(query)
        if not asked:
            return []
        return await self._reader.do(lambda con: _search(con, app, user, asked, self._max_results))

    async def aclose(self) -> None:
        """Carry out what is waiting, then let go of the file. Idempotent."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        self._writer.close()
        self._reader.close()


# ---- what is done inside one transaction, on one connection

_OWNER = "SELECT oid FROM memory_owners WHERE app = ? AND user = ?"


def _known(con: Connection, key: SessionKey) -> dict[int, bytes]:
    """Place -> digest of what is remembered of a session."""
    rows = con.execute(
        f"SELECT place, digest FROM memories WHERE oid = ({_OWNER}) AND session = ?", (key.app, key.user, key.id)
    )
    return dict(rows)


def _remove(con: Connection, key: SessionKey, places: Sequence[int]) -> None:
    for place in places:
        mid = con.execute(
            f"DELETE FROM memories WHERE oid = ({_OWNER}) AND session = ? AND place = ? RETURNING mid",
            (key.app, key.user, key.id, place),
        ).get
        if mid is not None:
            con.execute("DELETE FROM memory_words WHERE rowid = ?", (mid,))


def _write(con: Connection, key: SessionKey, rows: Sequence[Row]) -> None:
    """Add memories, and replace those that say something else now."""
    con.execute("INSERT INTO memory_owners (app, user) VALUES (?, ?) ON CONFLICT DO NOTHING", (key.app, key.user))
    oid = con.execute(_OWNER, (key.app, key.user)).get
    _remove(con, key, [row.place for row in rows])
    for row in rows:
        mid = con.execute(
            "INSERT INTO memories (oid, session, place, digest, at, body) VALUES (?, ?, ?, ?, ?, ?) RETURNING mid",
            (oid, key.id, row.place, row.digest, row.at, row.body),
        ).get
        con.execute(
            "INSERT INTO memory_words (rowid, owner, words) VALUES (?, ?, ?)", (mid, f"o{oid}", " ".join(row.words))
        )


def _search(con: Connection, app: str, user: str, asked: Sequence[str], limit: int) -> list[MemoryEntry]:
    oid = con.execute(_OWNER, (app, user)).get
    if oid is None:
        return []
    rows = con.execute(
        "SELECT memories.mid, memories.body FROM memory_words JOIN memories ON memories.mid = memory_words.rowid"
        " WHERE memory_words MATCH ? AND memories.oid = ?"
        " ORDER BY bm25(memory_words, 0.0, 1.0), memories.at DESC, memories.mid DESC LIMIT ?",
        (_match(oid, asked), oid, limit),
    )
    return [_entry(mid, body) for mid, body in rows]


def _match(oid: int, asked: Sequence[str]) -> str:
    """The FTS5 query for any of the words in what the owner has. Words are letters, digits and marks (memory_rules), and stand
    in quotes, so that none of them can be an operator."""
    any_word = " OR ".join(f'"{word}"' for word in asked)
    return f'owner : "o{oid}" AND words : ({any_word})'


def _entry(mid: int, body: str) -> MemoryEntry:
    try:
        return decode(body, MemoryEntry, unknown="drop")
    except BadRequest as error:
        raise Unavailable(f"memory number {mid} of the database is damaged: {error}") from None
