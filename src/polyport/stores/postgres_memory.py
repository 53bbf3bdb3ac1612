"""Long-term memory in PostgreSQL, found by words (`tsvector`, a GIN index) and ranked by how many of them a memory has.

Called by `ctx.search_memory` and by whoever remembers sessions; made by `open_stores`. Adding a session again writes what is
new in it, and nothing else. Never takes a user's text for a query's syntax.
"""

from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread

from polyport.codec import decode
from polyport.data.session import Session
from polyport.errors import BadRequest, Unavailable
from polyport.ports.stores import MemoryEntry
from polyport.stores import memory_rules as memories
from polyport.stores import session_rules as rules
from polyport.stores.memory_diff import Diff, Row, Seen, diff
from polyport.stores.postgres_database import Connection, PostgresDatabase

MAX_WORD = 400
"""How many characters of a word are compared: PostgreSQL takes 2 kB of UTF-8."""
MAX_WORDS = 500_000
"""How many bytes of words are kept of one memory: PostgreSQL takes 1 MB, with their places."""
MAX_PLACE, MAX_PLACES = 16383, 255

_OWNER = "SELECT oid FROM polyport_memory_owners WHERE app = $1 AND user_id = $2"
_KNOWN = f"SELECT place, digest FROM polyport_memories WHERE oid = ({_OWNER}) AND session = $3"
_MAKE_OWNER = (
    "INSERT INTO polyport_memory_owners (app, user_id) VALUES ($1, $2)"
    " ON CONFLICT (app, user_id) DO UPDATE SET app = excluded.app RETURNING oid"
)
_REMOVE = "DELETE FROM polyport_memories WHERE oid = $1 AND session = $2 AND place = ANY ($3::integer[])"
_WRITE = (
    "INSERT INTO polyport_memories (oid, session, place, digest, at, body, words)"
    " SELECT $1, $2, p, d, a, b, w::tsvector"
    " FROM unnest($3::integer[], $4::bytea[], $5::float8[], $6::text[], $7::text[]) AS r (p, d, a, b, w) ORDER BY p"
    " ON CONFLICT (oid, session, place) DO UPDATE"
    " SET mid = excluded.mid, digest = excluded.digest, at = excluded.at, body = excluded.body, words = excluded.words"
)
_SEARCH = (
    "SELECT body FROM polyport_memories WHERE oid = $1 AND words @@ $2::text::tsquery"
    " ORDER BY ts_rank(words, $3::text::tsquery) DESC, at DESC, mid DESC LIMIT $4"
)


class PostgresMemory:
    """Memory in `database`, which is closed with its sessions. A search gives `max_results` entries at most, best first."""

    def __init__(self, database: PostgresDatabase, *, max_results: int = memories.MAX_RESULTS) -> None:
        self._database = database
        self._max_results = memories.check_limit(max_results)
        self._seen = Seen()

    async def add_session(self, session: Session) -> None:
        """See the port. What of the session is remembered already is left alone; entries of events that it does not have any
        more go."""
        key = session.key
        rules.check_key(*key)
        events = list(session.events)
        start = self._seen.take(key, events)
        known: dict[int, bytes] = {}
        if not start:
            rows = await self._database.read(lambda con: con.fetch(_KNOWN, *key))
            known = {row["place"]: row["digest"] for row in rows}
        changed = await anyio.to_thread.run_sync(diff, events[start:], start, known)
        if changed.fresh or changed.gone:
            columns = await anyio.to_thread.run_sync(_columns, changed.fresh)
            await self._database.write(lambda con: self._write(con, session, changed, columns))
        self._seen.note(key, events)

    async def _write(
        self, con: Connection, session: Session, changed: Diff, columns: tuple[Sequence[Any], ...]
    ) -> None:
        key = session.key
        async with con.transaction():
            oid = await con.fetchval(_MAKE_OWNER, key.app, key.user)
            if changed.gone:
                await con.execute(_REMOVE, oid, key.id, changed.gone)
            if changed.fresh:
                *rest, words = columns
                owned = [f"'o={oid}' {text}" for text in words]
                await con.execute(_WRITE, oid, key.id, *rest, owned)

    async def search(self, app: str, user: str, query: str) -> list[MemoryEntry]:
        """See the port. Equally good matches come newest first."""
        rules.check_key(app, user)
        asked = " | ".join(f"'{word[:MAX_WORD]}'" for word in memories.query_words(query))
        if not asked:
            return []
        return await self._database.read(lambda con: self._search(con, app, user, asked))

    async def _search(self, con: Connection, app: str, user: str, asked: str) -> list[MemoryEntry]:
        oid = await con.fetchval(_OWNER, app, user)
        if oid is None:
            return []
        rows = await con.fetch(_SEARCH, oid, f"'o={oid}' & ({asked})", asked, self._max_results)
        return [_entry(row["body"]) for row in rows]

    async def aclose(self) -> None:
        return None


def _columns(rows: Sequence[Row]) -> tuple[Sequence[Any], ...]:
    return (
        [row.place for row in rows],
        [row.digest for row in rows],
        [row.at for row in rows],
        [row.body for row in rows],
        [_vector(row.words) for row in rows],
    )


def _vector(words: Sequence[str]) -> str:
    """Words as the text of a tsvector, with their places. They are letters, digits and marks (memory_rules), and stand in
    quotes, so that none of them can be syntax."""
    places: dict[str, list[str]] = {}
    size = 0
    for place, word in enumerate(words, 1):
        found = places.setdefault(word[:MAX_WORD], [])
        size += 8 + (0 if found else len(word.encode()))
        if size > MAX_WORDS:
            break
        if len(found) < MAX_PLACES:
            found.append(str(min(place, MAX_PLACE)))
    return " ".join(f"'{word}':{','.join(found)}" for word, found in places.items() if found)


def _entry(body: str) -> MemoryEntry:
    try:
        return decode(body, MemoryEntry, unknown="drop")
    except BadRequest as error:
        raise Unavailable(f"a memory of the database is damaged: {error}") from None
