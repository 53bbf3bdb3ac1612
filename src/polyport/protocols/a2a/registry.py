"""All tasks that are alive in this process: who asks for a task gets the same LiveTask as everybody else.

Used by the handler. A task is loaded when the first one asks for it, and let go when the last one has released it.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager

from polyport.errors import NotFound
from polyport.ports.tasks import MessageKey, TaskChange, TaskHead, TaskScope
from polyport.protocols.a2a.fold import TaskView, update_of, view_of
from polyport.protocols.a2a.tasks import Backing, LiveTask
from polyport.wire.a2a import Task
from polyport.wire.a2a_errors import TaskNotFound


class _Entry:
    """A live task while somebody holds it, or one that is being loaded."""

    __slots__ = ("holders", "live", "lock", "soon")

    def __init__(self) -> None:
        self.live: LiveTask | None = None
        self.soon = 0
        """How many are making or claiming it, to work on it here."""
        self.lock = asyncio.Lock()
        self.holders = 0


class Tasks:
    """The live tasks of one handler. Whoever got one releases it."""

    def __init__(self, backing: Backing) -> None:
        self.backing = backing
        self._entries: dict[tuple[TaskScope, str], _Entry] = {}

    async def get(self, scope: TaskScope, task_id: str) -> LiveTask:
        """The task, held. TaskNotFound also for one of another scope."""
        entry = self._enter(scope, task_id)
        try:
            async with entry.lock:
                if entry.live is None:
                    head, view = await self.read(scope, task_id)
                    entry.live = LiveTask(self.backing, head, view)
                elif (self.backing.shared or not entry.live.working) and not entry.live.state.terminal:
                    async with entry.live.lock:  # another process may have gone on with it
                        await entry.live.refresh()
                return entry.live
        except BaseException:
            self._leave(scope, task_id)
            raise

    @asynccontextmanager
    async def holding(self, scope: TaskScope, task_id: str) -> AsyncGenerator[LiveTask]:
        """As `get`, for a block."""
        live = await self.get(scope, task_id)
        try:
            yield live
        finally:
            self.release(live)

    async def create(self, head: TaskHead, task: Task, key: MessageKey, since_ms: int) -> LiveTask:
        """A new task, held; or the one that took this message in before (its id is another)."""
        scope = head.scope
        first = update_of(task, 1)
        entry = self._enter(scope, task.id)
        entry.soon += 1
        try:
            made = await self.backing.store.create(head, [TaskChange(kind="task", body=first.json)], key, since_ms)
            if made.id == task.id:
                entry.live = LiveTask(self.backing, made, TaskView(task))
                return entry.live
        finally:
            entry.soon -= 1
            if entry.live is None:
                self._leave(scope, task.id)
        return await self.get(scope, made.id)

    def keep(self, live: LiveTask) -> None:
        """Hold a task once more that is held already."""
        self._entries[live.scope, live.id].holders += 1

    def release(self, live: LiveTask) -> None:
        self._leave(live.scope, live.id)

    def at_work(self, scope: TaskScope, task_id: str) -> LiveTask | None:
        """The live task if this process works on it now: then it knows more than the store."""
        entry = self._entries.get((scope, task_id))
        return entry.live if entry is not None and entry.live is not None and entry.live.working else None

    @contextmanager
    def claiming(self, live: LiveTask) -> Generator[None]:
        """Be about to work on a task that is held, inside the block."""
        entry = self._entries[live.scope, live.id]
        entry.soon += 1
        try:
            yield
        finally:
            entry.soon -= 1

    def busy(self, ids: Sequence[str]) -> list[str]:
        """Those of these tasks that this process works on, or is about to."""
        found = {
            task_id
            for (_, task_id), entry in self._entries.items()
            if entry.soon or (entry.live is not None and entry.live.working)
        }
        return [task_id for task_id in ids if task_id in found]

    async def newest(self, scope: TaskScope, task_id: str) -> TaskView:
        """The task as of now, with what is being streamed if this process works on it. TaskNotFound."""
        live = self.at_work(scope, task_id)
        if live is None:
            return (await self.read(scope, task_id))[1]
        if self.backing.shared:
            async with live.lock:  # another replica may have canceled it, or said something
                await live.refresh()
        return live.view

    async def read(self, scope: TaskScope, task_id: str) -> tuple[TaskHead, TaskView]:
        """What the store has. TaskNotFound."""
        try:
            stored = await self.backing.store.get(scope, task_id)
        except NotFound:
            raise task_not_found(task_id) from None
        return stored.head, view_of(stored)

    def _enter(self, scope: TaskScope, task_id: str) -> _Entry:
        entry = self._entries.get((scope, task_id))
        if entry is None:
            entry = self._entries[scope, task_id] = _Entry()
        entry.holders += 1
        return entry

    def _leave(self, scope: TaskScope, task_id: str) -> None:
        entry = self._entries[scope, task_id]
        entry.holders -= 1
        if not entry.holders:
            del self._entries[scope, task_id]
            if entry.live is not None and entry.live.watch is not None:
                entry.live.watch.cancel()


def task_not_found(task_id: str) -> TaskNotFound:
    """One text for what does not exist and for what is somebody else's (T045)."""
    return TaskNotFound(f"there is no task {task_id[:200]!r}", {"taskId": task_id[:200]})
