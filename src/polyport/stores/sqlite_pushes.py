"""Push configurations in the SQLite file that the tasks are in. Several processes may share it: one at a time holds a
configuration and tells its receiver.

Called by the push outbox; made by the A2A mount. The secrets of callers are in this file, which only its owner can read. Never
touches the file on the event loop, but once when it is made.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from polyport.ports.tasks import PushKey, PushTarget, TaskHead, TaskScope
from polyport.seams import REAL, Seams
from polyport.stores.memory_pushes import too_many
from polyport.stores.sqlite_file import Connection, SqliteFile, retry_busy
from polyport.stores.sqlite_reader import Reader
from polyport.stores.sqlite_writer import GroupWriter

ORPHAN_MS = 3_600_000
"""How old a configuration must be to be removed if there is no task for it: it is made before its task is."""
_KEY = "task_id = ? AND id = ? AND app = ? AND tenant = ? AND owner = ?"
_COLUMNS = "number, app, tenant, owner, task_id, id, body, sent"


class SqlitePushes:
    """Push configurations in the SQLite file `path`. Give the tasks' `writer` to share its transactions. ConfigError for a file
    that is not ours."""

    durable = True

    def __init__(
        self, path: str | Path, *, seams: Seams = REAL, writer: GroupWriter | None = None, busy_s: float = 10.0
    ) -> None:
        self._seams = seams
        self._file = SqliteFile(path, busy_s=busy_s, seams=seams)
        self._file.prepare()
        self._own_writer = writer is None
        self._writer = GroupWriter(self._file) if writer is None else writer
        self._reader = Reader(self._file, threads=1, cache_bytes=0)
        self._clean()

    def _clean(self) -> None:
        """Remove what a process left that died before it had made the task."""
        con = self._file.connect()
        try:
            old = self._now() - ORPHAN_MS
            sql = "DELETE FROM push_configs WHERE created_ms < ? AND task_id NOT IN (SELECT id FROM tasks)"
            retry_busy(lambda: con.execute(sql, (old,)).fetchall())
        finally:
            con.close()

    def _now(self) -> int:
        return int(self._seams.clock() * 1000)

    async def put(self, key: PushKey, body: bytes, after: int, limit: int) -> None:
        now = self._now()
        await self._writer.do(lambda con: _put(con, key, body, after, limit, now))

    async def list(self, scope: TaskScope, task_id: str) -> Sequence[PushTarget]:
        sql = (
            f"SELECT {_COLUMNS} FROM push_configs WHERE task_id = ? AND app = ? AND tenant = ? AND owner = ?"
            " ORDER BY number"
        )
        return await self._reader.do(lambda con: [_target(row) for row in con.execute(sql, (task_id, *scope))])

    async def delete(self, key: PushKey) -> None:
        sql = f"DELETE FROM push_configs WHERE {_KEY}"
        await self._writer.do(lambda con: con.execute(sql, _bound(key)).fetchall())

    async def forget(self, tasks: Sequence[TaskHead]) -> None:
        sql = "DELETE FROM push_configs WHERE task_id = ? AND app = ? AND tenant = ? AND owner = ?"
        gone = [(head.id, *head.scope) for head in tasks]
        await self._writer.do(lambda con: con.executemany(sql, gone).fetchall())

    async def hold(self, key: PushKey, holder: str, now_ms: int, until_ms: int, sent: int = 0) -> PushTarget | None:
        sql = (
            f"UPDATE push_configs SET holder = ?, held_until_ms = ?, sent = max(sent, ?) WHERE {_KEY}"
            f" AND (holder = ? OR held_until_ms <= ?) RETURNING {_COLUMNS}"
        )
        values = (holder, until_ms, sent, *_bound(key), holder, now_ms)

        def update(con: Connection) -> PushTarget | None:
            row = con.execute(sql, values).get
            return None if row is None else _target(row)

        return await self._writer.do(update)

    async def release(self, key: PushKey, holder: str, *, done: bool) -> None:
        sql = f"UPDATE push_configs SET holder = '', held_until_ms = 0, done = max(done, ?) WHERE {_KEY} AND holder = ?"
        await self._writer.do(lambda con: con.execute(sql, (int(done), *_bound(key), holder)).fetchall())

    async def due(self, apps: Collection[str], now_ms: int, limit: int) -> Sequence[PushKey]:
        marks = ", ".join("?" * len(apps))
        sql = (
            "SELECT p.app, p.tenant, p.owner, p.task_id, p.id FROM push_configs AS p INDEXED BY push_configs_open"
            " JOIN tasks ON tasks.id = p.task_id"
            f" WHERE p.done = 0 AND p.app IN ({marks}) AND p.held_until_ms <= ? AND tasks.version > p.sent LIMIT ?"
        )

        def query(con: Connection) -> list[PushKey]:
            rows = con.execute(sql, (*apps, now_ms, limit))
            return [PushKey(TaskScope(app, tenant, owner), task_id, id) for app, tenant, owner, task_id, id in rows]

        return await self._reader.do(query)

    async def aclose(self) -> None:
        """Carry out what is waiting, then let go of the file. Idempotent."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        if self._own_writer:
            self._writer.close()
        self._reader.close()


def _bound(key: PushKey) -> tuple[str, ...]:
    return (key.task_id, key.id, *key.scope)


def _target(row: Sequence[object]) -> PushTarget:
    number, app, tenant, owner, task_id, id, body, sent = row
    key = PushKey(TaskScope(str(app), str(tenant), str(owner)), str(task_id), str(id))
    assert isinstance(body, bytes)
    return PushTarget(key=key, number=int(str(number)), body=body, sent=int(str(sent)))


def _put(con: Connection, key: PushKey, body: bytes, after: int, limit: int, now_ms: int) -> None:
    if con.execute(f"UPDATE push_configs SET body = ? WHERE {_KEY} RETURNING 1", (body, *_bound(key))).get is not None:
        return
    sql = "SELECT count(*) FROM push_configs WHERE task_id = ? AND app = ? AND tenant = ? AND owner = ?"
    if int(con.execute(sql, (key.task_id, *key.scope)).get) >= limit:
        raise too_many(limit)
    con.execute(
        "INSERT INTO push_configs (app, tenant, owner, task_id, id, body, sent, done, holder, held_until_ms, created_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 0, '', 0, ?)",
        (*key.scope, key.task_id, key.id, body, after, now_ms),
    ).fetchall()
