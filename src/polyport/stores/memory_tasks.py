"""A2A tasks in the memory of this process: the default of an app without a database, and the measure for the other stores.

An append costs the same for any length of a task, a page of a list costs the page (and a look at each task of the scope when
it is filtered). All is gone when the process ends.
"""

import threading
from bisect import bisect_left, insort
from collections.abc import Collection, Sequence

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
from polyport.stores.task_rules import Place

Heads = list[TaskHead]  # `list` means the method inside the store
Numbered = list[tuple[int, TaskChange]]


class _Row:
    """A task as kept."""

    __slots__ = ("changes", "head", "keys", "seq")

    def __init__(self, seq: int, head: TaskHead, changes: list[TaskChange]) -> None:
        self.seq = seq
        self.head = head
        self.changes = changes
        self.keys: list[MessageKey] = []

    @property
    def place(self) -> Place:
        return Place(self.head.status_ms, self.seq)


class _Scope:
    """The tasks of one scope: `order` is sorted, `rows` finds a task by its number."""

    __slots__ = ("messages", "order", "rows")

    def __init__(self) -> None:
        self.order: list[Place] = []
        self.rows: dict[int, _Row] = {}
        self.messages: dict[MessageKey, tuple[str, int]] = {}

    def known(self, message: MessageKey, since_ms: int) -> str | None:
        task_id, at = self.messages.get(message, ("", 0))
        return task_id if task_id and at >= since_ms else None

    def note(self, row: _Row, message: MessageKey, at_ms: int) -> None:
        self.messages[message] = (row.head.id, at_ms)
        row.keys.append(message)


class MemoryTasks:
    """Tasks in memory. May be used from several event loops and threads at once. A subclass with a `create` or
    an `append` of its own may wait there; if it never does it can say `instant = True`."""

    instant = True

    def __init_subclass__(cls) -> None:
        if not {"create", "append"}.isdisjoint(vars(cls)) and "instant" not in vars(cls):
            cls.instant = False

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for moments only: nothing awaits or does I/O inside
        self._rows: dict[str, _Row] = {}
        self._scopes: dict[TaskScope, _Scope] = {}
        self._last = 0

    async def create(
        self, head: TaskHead, changes: Sequence[TaskChange], message: MessageKey | None = None, since_ms: int = 0
    ) -> TaskHead:
        with self._lock:
            scope = self._scopes.setdefault(head.scope, _Scope())
            known = scope.known(message, since_ms) if message is not None else None
            if known is not None:
                return self._rows[known].head
            if head.id in self._rows:
                raise Conflict(f"there is a task {head.id!r} already")
            self._last += 1
            update = TaskUpdate(changes=changes)
            row = _Row(self._last, rules.updated(head, head.version, update), list(changes))
            self._rows[head.id] = scope.rows[row.seq] = row
            insort(scope.order, row.place)
            if message is not None:
                scope.note(row, message, head.created_ms)
            return row.head

    async def get(self, scope: TaskScope, task_id: str, *, artifacts: bool = True) -> StoredTask:
        with self._lock:
            return _stored(self._row(scope, task_id), artifacts)

    async def changes(self, scope: TaskScope, task_id: str, after: int) -> Numbered:
        with self._lock:
            row = self._row(scope, task_id)
            return list(enumerate(row.changes[after:], after + 1))

    async def append(self, scope: TaskScope, task_id: str, version: int, update: TaskUpdate) -> TaskHead:
        with self._lock:
            row = self._row(scope, task_id)
            kept = self._scopes[scope]
            before, row.head = row.head, rules.updated(row.head, version, update)
            row.changes.extend(update.changes)
            if row.head.status_ms != before.status_ms:
                del kept.order[bisect_left(kept.order, Place(before.status_ms, row.seq))]
                insort(kept.order, row.place)
            if update.message is not None:
                kept.note(row, update.message, row.head.status_ms)
            return row.head

    async def list(
        self, scope: TaskScope, filter: TaskFilter, *, page_size: int, page_token: str = "", artifacts: bool = False
    ) -> TaskPage:
        start = rules.page_start(scope, filter, page_size, page_token)
        with self._lock:
            kept = self._scopes.get(scope) or _Scope()
            if filter == TaskFilter():
                found = kept.order
            else:
                found = [place for place in kept.order if rules.matches(kept.rows[place.seq].head, filter)]
            end = len(found) if start is None else bisect_left(found, start)
            page = found[max(0, end - page_size) : end][::-1]
            tasks = [_stored(kept.rows[place.seq], artifacts) for place in page]
        more = end > page_size
        return TaskPage(
            tasks=tasks, next_token=rules.page_token(scope, filter, page[-1]) if more else "", total=len(found)
        )

    async def find_message(self, scope: TaskScope, message: MessageKey, since_ms: int) -> str | None:
        with self._lock:
            kept = self._scopes.get(scope)
            return kept.known(message, since_ms) if kept is not None else None

    async def in_state(self, app: str, states: Collection[str]) -> Sequence[TaskHead]:
        with self._lock:
            return [r.head for r in self._rows.values() if r.head.scope.app == app and r.head.state in states]

    async def forget(self, app: str, before_ms: int, states: Collection[str], limit: int = 1000) -> Sequence[TaskHead]:
        gone: Heads = []
        with self._lock:
            for key, scope in list(self._scopes.items()):
                if key.app != app:
                    continue
                old = scope.order[: bisect_left(scope.order, Place(before_ms, 0))]
                for place in old:
                    row = scope.rows[place.seq]
                    if row.head.state in states and len(gone) < limit:
                        gone.append(row.head)
                        self._remove(scope, row)
                if not scope.order:
                    del self._scopes[key]
        return gone

    async def ping(self) -> None: ...

    async def aclose(self) -> None: ...

    def _remove(self, scope: _Scope, row: _Row) -> None:
        del self._rows[row.head.id], scope.rows[row.seq]
        del scope.order[bisect_left(scope.order, row.place)]
        for message in row.keys:
            if scope.messages.get(message, ("", 0))[0] == row.head.id:
                del scope.messages[message]

    def _row(self, scope: TaskScope, task_id: str) -> _Row:
        row = self._rows.get(task_id)
        if row is None or row.head.scope != scope:
            raise rules.unknown(task_id)
        return row


def _stored(row: _Row, artifacts: bool) -> StoredTask:
    changes = list(row.changes) if artifacts else [c for c in row.changes if c.kind != "artifact"]
    return StoredTask(head=row.head, changes=changes)
