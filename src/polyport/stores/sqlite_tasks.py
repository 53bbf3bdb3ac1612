"""A2A tasks in an SQLite file, usually the one that the sessions are in. Several processes may share the file.

Called by the A2A handler; made by `open_stores`. A change is one row that is never written again, so that its cost does not
depend on how long the task is. Never touches the file on the event loop.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread

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
from polyport.seams import REAL, Seams
from polyport.stores import task_rules as rules
from polyport.stores.sqlite_file import Connection, SqliteFile
from polyport.stores.sqlite_reader import Reader
from polyport.stores.sqlite_writer import GroupWriter
from polyport.stores.task_rules import Place

Numbered = list[tuple[int, TaskChange]]  # `list` means the method inside the store


class SqliteTasks:
    """Tasks in the SQLite file `path`, made if there is none; SqliteSessions may use the same one.

    Give the sessions' `writer` to share its transactions: a run writes to both. `busy_s` is how long to wait, a few times, for
    another process that holds the file. ConfigError for a file that is not ours.
    """

    instant = False

    def __init__(
        self,
        path: str | Path,
        *,
        seams: Seams = REAL,
        writer: GroupWriter | None = None,
        busy_s: float = 10.0,
    ) -> None:
        self._file = SqliteFile(path, busy_s=busy_s, seams=seams)
        self._file.prepare()
        self._own_writer = writer is None
        self._writer = GroupWriter(self._file) if writer is None else writer
        self._reader = Reader(self._file, threads=1, cache_bytes=0)

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def writer(self) -> GroupWriter:
        """For a store beside this one in the same file, so that both share transactions. Closed with this store."""
        return self._writer

    async def create(
        self, head: TaskHead, changes: Sequence[TaskChange], message: MessageKey | None = None, since_ms: int = 0
    ) -> TaskHead:
        first = rules.updated(head, head.version, TaskUpdate(changes=changes))
        return await self._writer.do(lambda con: _create(con, first, changes, message, since_ms))

    async def get(self, scope: TaskScope, task_id: str, *, artifacts: bool = True) -> StoredTask:
        def query(con: Connection) -> StoredTask:
            row = _find(con, scope, task_id)
            return StoredTask(head=row.head, changes=[change for _, change in _changes(con, row.seq, 0, artifacts)])

        return await self._reader.do(query)

    async def changes(self, scope: TaskScope, task_id: str, after: int) -> Numbered:
        return await self._reader.do(lambda con: _changes(con, _find(con, scope, task_id).seq, after, True))

    async def append(self, scope: TaskScope, task_id: str, version: int, update: TaskUpdate) -> TaskHead:
        return await self._writer.do(lambda con: _append(con, scope, task_id, version, update))

    async def list(
        self, scope: TaskScope, filter: TaskFilter, *, page_size: int, page_token: str = "", artifacts: bool = False
    ) -> TaskPage:
        start = rules.page_start(scope, filter, page_size, page_token)
        return await self._reader.do(lambda con: _page(con, scope, filter, start, page_size, artifacts))

    async def find_message(self, scope: TaskScope, message: MessageKey, since_ms: int) -> str | None:
        return await self._reader.do(lambda con: _find_message(con, scope, message, since_ms))

    async def in_state(self, app: str, states: Collection[str]) -> Sequence[TaskHead]:
        marks = ", ".join("?" * len(states))
        sql = f"{_HEAD} WHERE app = ? AND state IN ({marks}) ORDER BY seq"
        return await self._reader.do(lambda con: [_row(found).head for found in con.execute(sql, (app, *states))])

    async def forget(self, app: str, before_ms: int, states: Collection[str], limit: int = 1000) -> Sequence[TaskHead]:
        marks = ", ".join("?" * len(states))
        sql = f"{_HEAD} WHERE app = ? AND state IN ({marks}) AND status_ms < ? ORDER BY status_ms LIMIT ?"

        def remove(con: Connection) -> Sequence[TaskHead]:
            rows = [_row(found) for found in con.execute(sql, (app, *states, before_ms, limit))]
            con.executemany("DELETE FROM tasks WHERE seq = ?", [(row.seq,) for row in rows])
            return [row.head for row in rows]

        return await self._writer.do(remove)

    async def ping(self) -> None:
        await self._reader.do(lambda con: con.execute("SELECT version FROM polyport_schema LIMIT 1").get)

    async def aclose(self) -> None:
        """Carry out what is waiting, then let go of the file. Idempotent."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        if self._own_writer:
            self._writer.close()
        self._reader.close()


# ---- what is done inside one transaction, on one connection

_HEAD = "SELECT seq, id, app, tenant, owner, context_id, state, status_ms, created_ms, version, run_id FROM tasks"
_SCOPE = "app = ? AND tenant = ? AND owner = ?"


class _Row(NamedTuple):
    seq: int
    head: TaskHead


def _row(found: Sequence[object]) -> _Row:
    seq, id, app, tenant, owner, context_id, state, status_ms, created_ms, version, run_id = found
    head = TaskHead(
        id=str(id),
        scope=TaskScope(str(app), str(tenant), str(owner)),
        context_id=str(context_id),
        state=str(state),
        status_ms=int(str(status_ms)),
        created_ms=int(str(created_ms)),
        version=int(str(version)),
        run_id=str(run_id),
    )
    return _Row(int(str(seq)), head)


def _find(con: Connection, scope: TaskScope, task_id: str) -> _Row:
    found = con.execute(f"{_HEAD} WHERE id = ? AND {_SCOPE}", (task_id, *scope)).get
    if found is None:
        raise rules.unknown(task_id)
    return _row(found)


def _create(
    con: Connection, head: TaskHead, changes: Sequence[TaskChange], message: MessageKey | None, since_ms: int
) -> TaskHead:
    known = _find_message(con, head.scope, message, since_ms) if message is not None else None
    if known is not None:
        return _find(con, head.scope, known).head
    if con.execute("SELECT 1 FROM tasks WHERE id = ?", (head.id,)).get is not None:
        raise Conflict(f"there is a task {head.id!r} already")
    seq = con.execute(
        "INSERT INTO tasks (id, app, tenant, owner, context_id, state, status_ms, created_ms, version, run_id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING seq",
        (
            head.id,
            *head.scope,
            head.context_id,
            head.state,
            head.status_ms,
            head.created_ms,
            head.version,
            head.run_id,
        ),
    ).get
    _insert(con, seq, head.version, changes)
    if message is not None:
        _note(con, seq, head.scope, message, head.created_ms)
    return head


def _append(con: Connection, scope: TaskScope, task_id: str, version: int, update: TaskUpdate) -> TaskHead:
    row = _find(con, scope, task_id)
    head = rules.updated(row.head, version, update)
    con.execute(
        "UPDATE tasks SET version = ?, state = ?, status_ms = ?, run_id = ? WHERE seq = ?",
        (head.version, head.state, head.status_ms, head.run_id, row.seq),
    )
    _insert(con, row.seq, head.version, update.changes)
    if update.message is not None:
        _note(con, row.seq, scope, update.message, head.status_ms)
    return head


def _insert(con: Connection, seq: int, version: int, changes: Sequence[TaskChange]) -> None:
    """Add changes of which the last makes `version`."""
    first = version - len(changes) + 1
    con.executemany(
        "INSERT INTO task_changes (seq, version, kind, event_id, body) VALUES (?, ?, ?, ?, ?)",
        [(seq, number, c.kind, c.event_id, c.body) for number, c in enumerate(changes, first)],
    )


def _changes(con: Connection, seq: int, after: int, artifacts: bool) -> Numbered:
    kinds = "" if artifacts else " AND kind <> 'artifact'"
    rows = con.execute(
        f"SELECT version, kind, event_id, body FROM task_changes WHERE seq = ? AND version > ?{kinds} ORDER BY version",
        (seq, after),
    )
    return [(version, TaskChange(kind=kind, body=body, event_id=event)) for version, kind, event, body in rows]


def _note(con: Connection, seq: int, scope: TaskScope, message: MessageKey, at_ms: int) -> None:
    con.execute("INSERT OR REPLACE INTO task_messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*scope, *message, seq, at_ms))


def _find_message(con: Connection, scope: TaskScope, message: MessageKey, since_ms: int) -> str | None:
    return con.execute(
        "SELECT tasks.id FROM task_messages JOIN tasks USING (seq) WHERE task_messages.app = ?"
        " AND task_messages.tenant = ? AND task_messages.owner = ? AND context = ? AND message_id = ? AND digest = ?"
        " AND at_ms >= ?",
        (*scope, *message, since_ms),
    ).get


def _page(
    con: Connection, scope: TaskScope, filter: TaskFilter, start: Place | None, page_size: int, artifacts: bool
) -> TaskPage:
    where, values = _SCOPE, [*scope]
    for column, value in (("context_id = ?", filter.context_id), ("state = ?", filter.state)):
        if value:
            where, values = f"{where} AND {column}", [*values, value]
    numbers = [] if filter.since_ms is None else [filter.since_ms]
    where = where if filter.since_ms is None else f"{where} AND status_ms >= ?"
    total = int(con.execute(f"SELECT count(*) FROM tasks WHERE {where}", (*values, *numbers)).get)
    below = "" if start is None else " AND (status_ms, seq) < (?, ?)"
    rows = [
        _row(found)
        for found in con.execute(
            f"{_HEAD} WHERE {where}{below} ORDER BY status_ms DESC, seq DESC LIMIT ?",
            (*values, *numbers, *(start or ()), page_size + 1),
        )
    ]
    page = rows[:page_size]
    tasks = [StoredTask(head=r.head, changes=[c for _, c in _changes(con, r.seq, 0, artifacts)]) for r in page]
    last = Place(page[-1].head.status_ms, page[-1].seq) if page else None
    more = len(rows) > page_size and last is not None
    return TaskPage(tasks=tasks, next_token=rules.page_token(scope, filter, last) if more and last else "", total=total)
