"""Push configurations in PostgreSQL, beside the tasks: one process at a time holds a configuration and tells its receiver.

Called by the push outbox; made by the A2A mount. The secrets of callers are in this table: who may read it is up to the
database's rights.
"""

from collections.abc import Collection, Sequence
from typing import Any

from polyport.ports.tasks import PushKey, PushTarget, TaskHead, TaskScope
from polyport.seams import REAL, Seams
from polyport.stores.memory_pushes import too_many
from polyport.stores.postgres_database import Connection, PostgresDatabase

ORPHAN_MS = 3_600_000
"""How old a configuration must be to be removed if there is no task for it: it is made before its task is."""

_COLUMNS = "number, app, tenant, owner, task_id, id, body, sent"
_TASK = "app = $1 AND tenant = $2 AND owner = $3 AND task_id = $4"
_KEY = f"{_TASK} AND id = $5"
_LIST = f"SELECT {_COLUMNS} FROM polyport_push_configs WHERE {_TASK} ORDER BY number"
_INSERT = (
    "INSERT INTO polyport_push_configs"
    " (app, tenant, owner, task_id, id, body, sent, done, holder, held_until_ms, created_ms)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, false, '', 0, $8)"
)
_FORGET = (
    "DELETE FROM polyport_push_configs AS p USING unnest($1::text[], $2::text[], $3::text[], $4::text[])"
    " AS t (app, tenant, owner, id) WHERE (p.app, p.tenant, p.owner, p.task_id) = (t.app, t.tenant, t.owner, t.id)"
)
_ORPHANS = (
    "DELETE FROM polyport_push_configs AS p WHERE created_ms < $1"
    " AND NOT EXISTS (SELECT FROM polyport_tasks AS t WHERE t.id = p.task_id)"
)
_HOLD = (
    f"UPDATE polyport_push_configs SET holder = $6, held_until_ms = $7, sent = greatest(sent, $8) WHERE {_KEY}"
    f" AND (holder = $6 OR held_until_ms <= $9) RETURNING {_COLUMNS}"
)
_RELEASE = (
    f"UPDATE polyport_push_configs SET holder = '', held_until_ms = 0, done = done OR $7 WHERE {_KEY} AND holder = $6"
)
_DUE = (
    "SELECT p.app, p.tenant, p.owner, p.task_id, p.id FROM polyport_push_configs AS p"
    " JOIN polyport_tasks AS t ON t.id = p.task_id"
    " WHERE NOT p.done AND p.app = ANY ($1::text[]) AND p.held_until_ms <= $2 AND t.version > p.sent LIMIT $3"
)


class PostgresPushes:
    """Push configurations in `database`, which is closed with its sessions; the first one that is put lets go of those that a
    process left which died before it made their task."""

    durable = True

    def __init__(self, database: PostgresDatabase, *, seams: Seams = REAL) -> None:
        self._database = database
        self._seams = seams
        self._swept = False

    async def put(self, key: PushKey, body: bytes, after: int, limit: int) -> None:
        now = int(self._seams.clock() * 1000)

        async def store(con: Connection) -> None:
            async with con.transaction():
                # of those who bring configurations for one task, one after the other: they are counted
                await con.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"push {key.task_id}")
                known = f"UPDATE polyport_push_configs SET body = $6 WHERE {_KEY} RETURNING 1"
                if await con.fetchval(known, *_bound(key), body) is not None:
                    return
                count = f"SELECT count(*) FROM polyport_push_configs WHERE {_TASK}"
                if await con.fetchval(count, *key.scope, key.task_id) >= limit:
                    raise too_many(limit)
                await con.execute(_INSERT, *_bound(key), body, after, now)

        if not self._swept:
            await self._database.write(lambda con: con.execute(_ORPHANS, now - ORPHAN_MS))
            self._swept = True
        await self._database.write(store)

    async def list(self, scope: TaskScope, task_id: str) -> Sequence[PushTarget]:
        rows = await self._database.read(lambda con: con.fetch(_LIST, *scope, task_id))
        return [_target(row) for row in rows]

    async def delete(self, key: PushKey) -> None:
        await self._database.write(
            lambda con: con.execute(f"DELETE FROM polyport_push_configs WHERE {_KEY}", *_bound(key))
        )

    async def forget(self, tasks: Sequence[TaskHead]) -> None:
        columns = [[head.scope[part] for head in tasks] for part in range(3)]
        await self._database.write(lambda con: con.execute(_FORGET, *columns, [head.id for head in tasks]))

    async def hold(self, key: PushKey, holder: str, now_ms: int, until_ms: int, sent: int = 0) -> PushTarget | None:
        values = (*_bound(key), holder, until_ms, sent, now_ms)
        row = await self._database.write(lambda con: con.fetchrow(_HOLD, *values))
        return None if row is None else _target(row)

    async def release(self, key: PushKey, holder: str, *, done: bool) -> None:
        await self._database.write(lambda con: con.execute(_RELEASE, *_bound(key), holder, done))

    async def due(self, apps: Collection[str], now_ms: int, limit: int) -> Sequence[PushKey]:
        rows = await self._database.read(lambda con: con.fetch(_DUE, [*apps], now_ms, limit))
        return [PushKey(TaskScope(row["app"], row["tenant"], row["owner"]), row["task_id"], row["id"]) for row in rows]

    async def aclose(self) -> None:
        return None


def _bound(key: PushKey) -> tuple[str, ...]:
    return (*key.scope, key.task_id, key.id)


def _target(row: Any) -> PushTarget:
    key = PushKey(TaskScope(row["app"], row["tenant"], row["owner"]), row["task_id"], row["id"])
    return PushTarget(key=key, number=row["number"], body=row["body"], sent=row["sent"])
