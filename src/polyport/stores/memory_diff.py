"""What there is to write when a session is remembered again: what is new in it, and what of it is gone.

Called by the memory stores that keep what they know in a database. Pure functions, and a small cache of what was added last.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from polyport.codec import encode
from polyport.data.event import Event
from polyport.data.session import SessionKey
from polyport.stores import memory_rules as memories
from polyport.stores import session_rules as rules

SEEN_SESSIONS = 1024
"""Of how many sessions it is known, without asking the database, which events were added."""


class Row(NamedTuple):
    """A memory as it is written. `place` is the number of its event in the session."""

    place: int
    digest: bytes
    at: float
    body: str
    words: list[str]


class Diff(NamedTuple):
    """What there is to write, and the places whose memories go."""

    fresh: list[Row]
    gone: list[int]


class _Seen(NamedTuple):
    """The first and the last event, and the number of all, that were added of a session."""

    first: Event
    last: Event
    total: int


class Seen:
    """Which events of sessions were added last by this process."""

    def __init__(self) -> None:
        self._seen: OrderedDict[SessionKey, _Seen] = OrderedDict()

    def take(self, key: SessionKey, events: Sequence[Event]) -> int:
        """How many of `events` are in the store for sure; it is forgotten until `note`. Events never change, and are added at
        the end."""
        seen = self._seen.pop(key, None)
        if seen is None or len(events) < seen.total:
            return 0
        return seen.total if events[0] is seen.first and events[seen.total - 1] is seen.last else 0

    def note(self, key: SessionKey, events: Sequence[Event]) -> None:
        """All of `events` were added."""
        if events:
            self._seen[key] = _Seen(events[0], events[-1], len(events))
            if len(self._seen) > SEEN_SESSIONS:
                self._seen.popitem(last=False)


def diff(events: Sequence[Event], start: int, known: Mapping[int, bytes]) -> Diff:
    """Compare `events`, the first of which is number `start` of its session, with the digests of what is stored of them."""
    fresh: list[Row] = []
    gone = dict.fromkeys(known)
    for place, event in enumerate(events, start):
        entry = memories.remembered(event)
        if entry is None:
            continue
        gone.pop(place, None)
        body = encode(entry)
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if known.get(place) != digest:
            words = memories.words(entry.content.text)
            fresh.append(Row(place, digest, rules.event_time(event), body.decode(), words))
    return Diff(fresh, list(gone))
