"""A2A tasks in PostgreSQL, beside the sessions. Any number of processes may share the database.

Called by the A2A handler; made by the A2A mount. A change is one row that is never written again, and an append one round trip,
whose cost does not depend on how long the task is.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from polyport.codec import encode
from polyport.errors import Conflict
from polyport.ports.tasks import (
    MessageKey,
    StoredTask,
    TaskChange,
    TaskFilter,
    TaskHead,
    TaskPage,
    TaskScope,
    TaskUpdate,
)
from polyport.stores import task_rules as rules
from polyport.stores.postgres_database import Connection, PostgresDatabase
from polyport.stores.task_rules import Place

Numbered = list[tuple[int, TaskChange]]  # `list` means the method inside the store

_COLUMNS = "seq, id, app, tenant, owner, context_id, state, status_ms, created_ms, version, run_id"
_HEAD = f"SELECT {_COLUMNS} FROM polyport_tasks"
_SCOPE = "app = $1 AND tenant = $2 AND owner = $3"
_FIND = f"{_HEAD} WHERE {_SCOPE} AND id = $4"
_CHANGES = (
    "SELECT seq, version, kind, event_id, body FROM polyport_task_changes WHERE seq = ANY ($1::bigint[]) AND version > $2"
    " AND ($3 OR kind <> 'artifact') ORDER BY seq, version"
)
_ADD = """
INSERT INTO polyport_task_changes (seq, version, kind, event_id, body)
    SELECT head.seq, head.version - cardinality($5::text[]) + c.n, c.kind, c.event, c.body
    FROM head, unnest($5::text[], $6::text[], $7::bytea[]) WITH ORDINALITY AS c (kind, event, body, n)
"""
_NOTE = """
INSERT INTO polyport_task_messages (digest, seq, at_ms) SELECT $8, head.seq, {} FROM head WHERE $8::bytea IS NOT NULL
    ON CONFLICT (digest) DO UPDATE SET seq = excluded.seq, at_ms = excluded.at_ms
"""
_CREATE = f"""
WITH head AS (
    INSERT INTO polyport_tasks (app, tenant, owner, id, context_id, state, status_ms, created_ms, version, run_id)
        VALUES ($1, $2, $3, $4, $9, $10, $11, $12, $13, $14) ON CONFLICT (id) DO NOTHING RETURNING {_COLUMNS}
), added AS ({_ADD}), noted AS ({_NOTE.format("head.created_ms")})
SELECT {_COLUMNS} FROM head
"""
_APPEND = f"""
WITH head AS (
    UPDATE polyport_tasks SET version = version + cardinality($5::text[]), state = coalesce($9, state),
        status_ms = coalesce($10, status_ms), run_id = coalesce($11, run_id)
        WHERE {_SCOPE} AND id = $4 AND version = $12 RETURNING {_COLUMNS}
), added AS ({_ADD}), noted AS ({_NOTE.format("head.status_ms")})
SELECT {_COLUMNS} FROM head
"""
_FIND_MESSAGE = (
    "SELECT t.id FROM polyport_task_messages AS m JOIN polyport_tasks AS t USING (seq)"
    " WHERE m.digest = $1 AND m.at_ms >= $2"
)
_FORGET = f"""
DELETE FROM polyport_tasks WHERE seq IN (
    SELECT seq FROM polyport_tasks WHERE app = $1 AND state = ANY ($2::text[]) AND status_ms < $3 ORDER BY status_ms LIMIT $4
    FOR UPDATE SKIP LOCKED
) RETURNING {_COLUMNS}
"""
_ORDER = "ORDER BY status_ms DESC, seq DESC LIMIT"
# one statement, so that it sees one state of the database
_GET = f"""
SELECT {_COLUMNS}, c.* FROM polyport_tasks AS t CROSS JOIN LATERAL (
    SELECT array_agg(kind ORDER BY version) AS kinds, array_agg(event_id ORDER BY version) AS events,
        array_agg(body ORDER BY version) AS bodies
    FROM polyport_task_changes AS c WHERE c.seq = t.seq AND ($5 OR c.kind <> 'artifact')
) AS c WHERE {_SCOPE} AND id = $4
"""


class _Row(NamedTuple):
    seq: int
    head: TaskHead


class PostgresTasks:
    """Tasks in `database`, which is closed with its sessions."""

    instant = False

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database

    async def create(
        self, head: TaskHead, changes: Sequence[TaskChange], message: MessageKey | None = None, since_ms: int = 0
    ) -> TaskHead:
        first = rules.updated(head, head.version, TaskUpdate(changes=changes))
        digest = None if message is None else _digest(head.scope, message)
        values = (*head.scope, head.id, *_columns(changes), digest, head.context_id, head.state, head.status_ms)
        values = (*values, head.created_ms, first.version, head.run_id)

        async def insert(con: Connection) -> TaskHead:
            async with con.transaction():
                if digest is not None:  # one of those who bring the same message at the same time makes its task
                    await con.execute("SELECT pg_advisory_xact_lock($1)", int.from_bytes(digest[:8], signed=True))
                    known = await con.fetchval(_FIND_MESSAGE, digest, since_ms)
                    if known is not None:
                        return (await _find(con, head.scope, known)).head
                row = await con.fetchrow(_CREATE, *values)
                if row is None:
                    raise Conflict(f"there is a task {head.id!r} already")
                return _row(row).head

        return await self.database.write(insert)

    async def get(self, scope: TaskScope, task_id: str, *, artifacts: bool = True) -> StoredTask:
        row = await self.database.read(lambda con: con.fetchrow(_GET, *scope, task_id, artifacts))
        if row is None:
            raise rules.unknown(task_id)
        columns = zip(row["kinds"] or (), row["events"] or (), row["bodies"] or (), strict=True)
        changes = [TaskChange(kind=kind, body=body, event_id=event) for kind, event, body in columns]
        return StoredTask(head=_row(row).head, changes=changes)

    async def changes(self, scope: TaskScope, task_id: str, after: int) -> Numbered:
        async def query(con: Connection) -> Numbered:
            row = await _find(con, scope, task_id)
            return (await _changes(con, [row.seq], after, True))[row.seq]

        return await self.database.read(query)

    async def append(self, scope: TaskScope, task_id: str, version: int, update: TaskUpdate) -> TaskHead:
        digest = None if update.message is None else _digest(scope, update.message)
        values = (*scope, task_id, *_columns(update.changes), digest)
        values = (*values, update.state, update.status_ms, update.run_id, version)

        async def add(con: Connection) -> TaskHead:
            row = await con.fetchrow(_APPEND, *values)
            if row is not None:
                return _row(row).head
            found = await _find(con, scope, task_id)
            raise rules.stale(task_id, version, found.head.version)

        return await self.database.write(add)

    async def list(
        self, scope: TaskScope, filter: TaskFilter, *, page_size: int, page_token: str = "", artifacts: bool = False
    ) -> TaskPage:
        start = rules.page_start(scope, filter, page_size, page_token)
        where, values = _matching(scope, filter)
        below = "" if start is None else f" AND (status_ms, seq) < (${len(values) + 1}, ${len(values) + 2})"
        asked = (*values, *(start or ()), page_size + 1)
        page_sql = f"{_HEAD} WHERE {where}{below} {_ORDER} ${len(asked)}"

        async def query(con: Connection) -> TaskPage:
            async with con.transaction(isolation="repeatable_read", readonly=True):
                total = await con.fetchval(f"SELECT count(*) FROM polyport_tasks WHERE {where}", *values)
                rows = [_row(found) for found in await con.fetch(page_sql, *asked)]
                page = rows[:page_size]
                changes = await _changes(con, [row.seq for row in page], 0, artifacts)
            tasks = [StoredTask(head=row.head, changes=[c for _, c in changes[row.seq]]) for row in page]
            more = len(rows) > page_size
            token = rules.page_token(scope, filter, Place(page[-1].head.status_ms, page[-1].seq)) if more else ""
            return TaskPage(tasks=tasks, next_token=token, total=total)

        return await self.database.read(query)

    async def find_message(self, scope: TaskScope, message: MessageKey, since_ms: int) -> str | None:
        digest = _digest(scope, message)
        return await self.database.read(lambda con: con.fetchval(_FIND_MESSAGE, digest, since_ms))

    async def in_state(self, app: str, states: Collection[str]) -> Sequence[TaskHead]:
        sql = f"{_HEAD} WHERE app = $1 AND state = ANY ($2::text[]) ORDER BY seq"
        rows = await self.database.read(lambda con: con.fetch(sql, app, [*states]))
        return [_row(row).head for row in rows]

    async def forget(self, app: str, before_ms: int, states: Collection[str], limit: int = 1000) -> Sequence[TaskHead]:
        rows = await self.database.write(lambda con: con.fetch(_FORGET, app, [*states], before_ms, limit))
        return [_row(row).head for row in rows]

    async def ping(self) -> None:
        await self.database.ping()

    async def aclose(self) -> None:
        return None


def _matching(scope: TaskScope, filter: TaskFilter) -> tuple[str, Sequence[Any]]:
    """The condition of a list, and its values: only what is asked for, so that the right index is taken."""
    where = _SCOPE
    values: list[Any] = [*scope]
    asked = (("context_id = ", filter.context_id), ("state = ", filter.state), ("status_ms >= ", filter.since_ms))
    for condition, value in asked:
        if value or value == 0:
            values.append(value)
            where += f" AND {condition}${len(values)}"
    return where, values


def _digest(scope: TaskScope, message: MessageKey) -> bytes:
    return hashlib.blake2b(encode([scope, message]), digest_size=16).digest()


def _columns(changes: Sequence[TaskChange]) -> tuple[Sequence[Any], ...]:
    return [c.kind for c in changes], [c.event_id for c in changes], [bytes(c.body) for c in changes]


def _row(found: Any) -> _Row:
    head = TaskHead(
        id=found["id"],
        scope=TaskScope(found["app"], found["tenant"], found["owner"]),
        context_id=found["context_id"],
        state=found["state"],
        status_ms=found["status_ms"],
        created_ms=found["created_ms"],
        version=found["version"],
        run_id=found["run_id"],
    )
    return _Row(found["seq"], head)


async def _find(con: Connection, scope: TaskScope, task_id: str) -> _Row:
    found = await con.fetchrow(_FIND, *scope, task_id)
    if found is None:
        raise rules.unknown(task_id)
    return _row(found)


async def _changes(con: Connection, seqs: Sequence[int], after: int, artifacts: bool) -> dict[int, Numbered]:
    """The changes of tasks, by `seq`."""
    found: dict[int, Numbered] = {seq: [] for seq in seqs}
    for row in await con.fetch(_CHANGES, seqs, after, artifacts):
        change = TaskChange(kind=row["kind"], body=row["body"], event_id=row["event_id"])
        found[row["seq"]].append((row["version"], change))
    return found
