"""Events of sessions that were decoded before, so that a read costs what is new since the last one.

Kept by the stores that have their events in a database. They check what is kept against the session as it is now, for other
processes write too. Bounded; may be used from several threads.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from polyport.data.event import Event
from polyport.data.session import SessionKey

CACHE_BYTES = 64 << 20
"""How much JSON may be kept decoded, in bytes."""
EVENT_OVERHEAD = 1500
"""Bytes that a kept event is taken to cost besides its JSON (a small one was measured at 1.2 kB)."""


class Kept(NamedTuple):
    """The newest events of a session, decoded; `events` is never changed. `sid` is the session's number, never used twice;
    `first` and `last` are those of the events, `first` None when there is none yet. `complete` when it has all of them."""

    sid: int = 0
    revision: int = -1
    first: int | None = None
    last: int = 0
    complete: bool = False
    events: list[Event] = []
    size: int = 0


class EventCache:
    """Decoded events by session, the least recently used going first when there are more bytes than `limit`."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[SessionKey, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: SessionKey) -> Kept:
        with self._lock:
            if key not in self._kept:
                return Kept()
            self._kept.move_to_end(key)
            return self._kept[key]

    def put(self, key: SessionKey, new: Kept) -> None:
        with self._lock:
            old = self._kept.get(key, Kept())
            if old.sid > new.sid or (old.sid == new.sid and old.revision > new.revision):
                return  # a reader who began later was faster
            self._size -= self._kept.pop(key, Kept()).size
            if new.size > self._limit:
                return  # rather one session that is read anew than all others
            self._size += new.size
            self._kept[key] = new
            while self._size > self._limit:
                _, gone = self._kept.popitem(last=False)
                self._size -= gone.size

    def drop(self, key: SessionKey) -> None:
        with self._lock:
            self._size -= self._kept.pop(key, Kept()).size


def cost(bodies: Iterable[str]) -> int:
    """What events with this JSON are taken to cost, in bytes."""
    return sum(len(body) + EVENT_OVERHEAD for body in bodies)
