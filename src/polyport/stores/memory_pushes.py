"""Push configurations in the memory of this process, beside MemoryTasks. All is gone when the process ends."""

import threading
from collections.abc import Collection, Sequence

from msgspec import structs

from polyport.errors import LimitExceeded
from polyport.ports.tasks import PushKey, PushTarget, TaskHead, TaskScope

Targets = list[PushTarget]  # `list` means the method inside the store


class MemoryPushes:
    """Push configurations in memory. May be used from several threads at once."""

    durable = False

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for moments only
        self._tasks: dict[tuple[TaskScope, str], dict[str, PushTarget]] = {}
        self._held: dict[PushKey, tuple[str, int]] = {}
        self._last = 0

    async def put(self, key: PushKey, body: bytes, after: int, limit: int) -> None:
        with self._lock:
            kept = self._tasks.get((key.scope, key.task_id), {})
            known = kept.get(key.id)
            if known is not None:
                kept[key.id] = structs.replace(known, body=body)
                return
            if len(kept) >= limit:
                raise too_many(limit)
            self._last += 1
            self._tasks[key.scope, key.task_id] = kept
            kept[key.id] = PushTarget(key=key, number=self._last, body=body, sent=after)

    async def list(self, scope: TaskScope, task_id: str) -> Sequence[PushTarget]:
        with self._lock:
            return list(self._tasks.get((scope, task_id), {}).values())

    async def delete(self, key: PushKey) -> None:
        with self._lock:
            kept = self._tasks.get((key.scope, key.task_id), {})
            kept.pop(key.id, None)
            self._held.pop(key, None)
            if not kept:
                self._tasks.pop((key.scope, key.task_id), None)

    async def forget(self, tasks: Sequence[TaskHead]) -> None:
        with self._lock:
            for head in tasks:
                for target in self._tasks.pop((head.scope, head.id), {}).values():
                    self._held.pop(target.key, None)

    async def hold(self, key: PushKey, holder: str, now_ms: int, until_ms: int, sent: int = 0) -> PushTarget | None:
        with self._lock:
            kept = self._tasks.get((key.scope, key.task_id), {})
            found = kept.get(key.id)
            other, until = self._held.get(key, (holder, 0))
            if found is None or (other != holder and until > now_ms):
                return None
            self._held[key] = holder, until_ms
            if sent > found.sent:
                found = kept[key.id] = structs.replace(found, sent=sent)
            return found

    async def release(self, key: PushKey, holder: str, *, done: bool) -> None:
        with self._lock:
            if self._held.get(key, ("", 0))[0] == holder:
                del self._held[key]

    async def due(self, apps: Collection[str], now_ms: int, limit: int) -> Sequence[PushKey]:
        return ()

    async def aclose(self) -> None: ...


def too_many(limit: int) -> LimitExceeded:
    return LimitExceeded(f"a task has at most {limit} push configurations (configs_per_task)")
