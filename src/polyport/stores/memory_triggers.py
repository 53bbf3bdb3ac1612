"""Deliveries to triggers in the memory of this process: the default of an app without a database, and the measure for the other
stores. All is gone when the process ends. Made by `protocols/triggers`; holds at most so many deliveries, the oldest that are
done go first.
"""

import threading
from collections.abc import Sequence

from msgspec import structs

from polyport.errors import NotFound
from polyport.ports.triggers import SHOWN, Delivery, DeliveryKey, taken_over

KEEP = 100_000
"""How many deliveries are kept at most."""


class MemoryTriggers:
    """Deliveries in memory. May be used from several event loops and threads at once."""

    def __init__(self, keep: int = KEEP) -> None:
        self._lock = threading.Lock()  # held for moments only: nothing awaits or does I/O inside
        self._rows: dict[DeliveryKey, Delivery] = {}
        self._keys: dict[tuple[str, str], DeliveryKey] = {}
        self._keep = keep

    async def claim(self, delivery: Delivery, *, again: bool) -> tuple[bool, Delivery]:
        with self._lock:
            found = self._rows.get(delivery.key)
            if found is None:
                self._make_room()
                self._keys[delivery.key.app, delivery.session_id] = delivery.key
                self._rows[delivery.key] = delivery
                return True, delivery
            mine = taken_over(found, delivery, again=again)
            if mine is None:
                return False, found
            self._rows[delivery.key] = mine
            return True, mine

    def _make_room(self) -> None:
        if len(self._rows) >= self._keep:
            states = ("done", "dead")  # a dead letter is the last to be lost
            oldest = next((d for state in states for d in self._rows.values() if d.state == state), None)
            if oldest is not None:
                self._drop(oldest)

    async def update(self, delivery: Delivery) -> None:
        with self._lock:
            found = self._rows.get(delivery.key)
            if found is not None and found.state != "done":
                self._rows[delivery.key] = structs.replace(
                    found,
                    state=delivery.state,
                    attempts=delivery.attempts,
                    error=delivery.error,
                    at_ms=delivery.at_ms,
                    lease_ms=delivery.lease_ms,
                    text="" if delivery.state == "done" else found.text,
                )

    async def get(self, app: str, session_id: str) -> Delivery:
        with self._lock:
            key = self._keys.get((app, session_id))
            if key is None:
                raise NotFound(f"there is no delivery {session_id[:100]!r} of app {app!r}")
            return self._rows[key]

    async def dead(self, app: str, limit: int) -> Sequence[Delivery]:
        with self._lock:
            found = [d for d in self._rows.values() if d.key.app == app and d.state == "dead"]
        newest = sorted(found, key=lambda d: (d.at_ms, d.session_id), reverse=True)[:limit]
        return [structs.replace(d, text=d.text[:SHOWN]) for d in newest]

    async def stranded(self, now_ms: int, limit: int) -> Sequence[Delivery]:
        with self._lock:
            found = [d for d in self._rows.values() if d.state == "running" and d.lease_ms <= now_ms]
        oldest = sorted(found, key=lambda d: (d.at_ms, d.session_id))[:limit]
        return [structs.replace(d, text="") for d in oldest]

    async def remove(self, app: str, session_id: str) -> None:
        with self._lock:
            key = self._keys.get((app, session_id))
            if key is not None:
                self._drop(self._rows[key])

    async def forget(self, done_before_ms: int, dead_before_ms: int) -> int:
        before = {"done": done_before_ms, "dead": dead_before_ms, "running": 0}
        with self._lock:
            old = [d for d in self._rows.values() if d.at_ms < before[d.state]]
            for delivery in old:
                self._drop(delivery)
        return len(old)

    def _drop(self, delivery: Delivery) -> None:
        del self._rows[delivery.key]
        del self._keys[delivery.key.app, delivery.session_id]

    async def aclose(self) -> None:
        return None
