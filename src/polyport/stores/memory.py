"""Stores in the memory of this process: sessions, artifacts, and a keyword search over past sessions.

The default of an App that was given no store, and the measure for the other stores. Fast: an append costs the same for any
length of history, a read copies no event. All is gone when the process ends.
"""

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from polyport.data.content import Part
from polyport.data.event import Event
from polyport.data.session import Session, SessionKey, StateDelta, merge_state, split_delta
from polyport.errors import Conflict, NotFound, Superseded
from polyport.ports.stores import ArtifactVersion, MemoryEntry, SessionPage
from polyport.seams import REAL, Seams
from polyport.stores import artifact_rules as artifacts
from polyport.stores import memory_rules as memories
from polyport.stores import session_rules as rules

Events = list[Event]  # `list` means the method inside the store


class _Row:
    """A session as kept. Its state has no prefixes and holds the session's own keys only."""

    __slots__ = ("created_at", "events", "fence", "key", "revision", "runs", "state", "updated_at")

    def __init__(self, key: SessionKey, state: dict[str, Any], events: list[Event], now: float) -> None:
        self.key = key
        self.state = state
        self.events = events
        self.runs = {event.invocation_id for event in events}
        self.created_at = self.updated_at = now
        self.revision = 1
        self.fence = 0


def _place(row: _Row) -> tuple[float, str, str]:
    return (-row.updated_at, row.key.id, row.key.user)  # compares like a rules.Place, and is made faster


class _User:
    """What belongs to one user of one app."""

    __slots__ = ("sessions", "state")

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.sessions: dict[str, _Row] = {}


class MemorySessions:
    """Sessions in memory. May be used from several event loops and threads at once. A subclass with an `append` of its own may
    wait there; if it never does it can say `instant = True`."""

    instant = True
    finishes = False  # nor need it, as it never waits

    def __init_subclass__(cls) -> None:
        if "append" in vars(cls) and "instant" not in vars(cls):
            cls.instant = False

    def __init__(self, seams: Seams = REAL) -> None:
        self._seams = seams
        self._lock = threading.Lock()  # held for moments only: nothing awaits or does I/O inside
        self._rows: dict[SessionKey, _Row] = {}
        self._users: dict[tuple[str, str], _User] = {}
        self._app_state: dict[str, dict[str, Any]] = {}

    async def create(
        self,
        app: str,
        user: str,
        session_id: str = "",
        *,
        state: dict[str, Any] | None = None,
        events: list[Event] | None = None,
    ) -> Session:
        key, delta, stored = rules.new_session(self._seams, app, user, session_id, state, events)
        with self._lock:
            if key in self._rows:
                raise Conflict(f"Session already exists: {key.id}")
            row = _Row(key, delta.session, stored, self._seams.clock())
            self._rows[key] = row
            self._users.setdefault((app, user), _User()).sessions[key.id] = row
            self._share(key, delta)
            return self._session(row, stored.copy())

    async def get(self, key: SessionKey, *, recent: int | None = None, after: float | None = None) -> Session:
        rules.check_key(*key)
        rules.check_window(recent)
        with self._lock:
            row = self._row(key)
            return self._session(row, rules.window(row.events, recent, after))

    async def list(self, app: str, user: str = "", *, page_size: int = 0, page_token: str = "") -> SessionPage:
        start = rules.page_start(app, user, page_size, page_token)
        with self._lock:
            rows = [row for owner in self._owners(app, user) for row in owner.sessions.values()]
            rows.sort(key=_place)
            if start is not None:
                rows = [row for row in rows if _place(row) > start]
            page = [self._session(row, []) for row in (rows[:page_size] if page_size else rows)]
        more = len(page) < len(rows)
        return SessionPage(sessions=page, next_token=rules.page_token(app, user, page[-1]) if more else "")

    async def delete(self, key: SessionKey) -> None:
        rules.check_key(*key)
        with self._lock:
            if self._rows.pop(key, None) is not None:
                del self._users[key.app, key.user].sessions[key.id]

    async def append(self, session: Session, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        if event.partial:
            return event
        stored = rules.as_stored(event, self._seams)
        with self._lock:
            row = self._row(session.key)
            if claim:
                row_fence = row.fence + 1
            elif row.fence != session.fence:
                raise Superseded(f"a newer run has taken over {session.key}")
            else:
                row_fence = row.fence
            if strict and row.revision != session.revision:
                raise Conflict(f"{session.key} was changed by somebody else since it was read")
            row.fence = row_fence
            row.revision += 1
            row.events.append(stored)
            row.runs.add(stored.invocation_id)
            row.updated_at = max(row.updated_at, self._seams.clock())
            if stored.actions.state_delta:
                delta = split_delta(rules.owned(stored.actions.state_delta))
                row.state.update(delta.session)
                self._share(row.key, delta)
            rules.took_in(session, event, stored, at=row.updated_at, fence=row_fence)
        return stored

    async def claim(self, key: SessionKey) -> None:
        with self._lock:
            self._row(key).fence += 1

    async def find_run(self, invocation_id: str) -> SessionKey | None:
        if not invocation_id:
            return None
        with self._lock:
            return next((row.key for row in self._rows.values() if invocation_id in row.runs), None)

    async def ping(self) -> None: ...

    async def aclose(self) -> None: ...

    def _row(self, key: SessionKey) -> _Row:
        row = self._rows.get(key)
        if row is None:
            raise NotFound(f"there is no {key}")
        return row

    def _share(self, key: SessionKey, delta: StateDelta) -> None:
        if delta.app:
            self._app_state.setdefault(key.app, {}).update(delta.app)
        if delta.user:
            self._users[key.app, key.user].state.update(delta.user)

    def _owners(self, app: str, user: str) -> Iterable[_User]:
        if not user:
            return [owner for (name, _), owner in self._users.items() if name == app]
        owner = self._users.get((app, user))
        return () if owner is None else (owner,)

    def _session(self, row: _Row, events: Events) -> Session:
        """`row` as an object of the caller's own, with this list of events."""
        key = row.key
        app, user = self._app_state.get(key.app), self._users[key.app, key.user].state
        state = merge_state(row.state, app or {}, user) if app or user else row.state
        return Session(
            key=key,
            state=rules.owned(state),
            events=events,
            updated_at=row.updated_at,
            created_at=row.created_at,
            revision=row.revision,
            fence=row.fence,
        )


class _Versions:
    """All versions of one artifact. `last` is the highest number ever given."""

    __slots__ = ("kept", "last")

    def __init__(self) -> None:
        self.last = 0
        self.kept: dict[int, tuple[Part, ArtifactVersion]] = {}


class MemoryArtifacts:
    """Artifacts in memory. May be used from several event loops and threads at once."""

    def __init__(self, seams: Seams = REAL) -> None:
        self._seams = seams
        self._lock = threading.Lock()
        self._shelves: dict[artifacts.Shelf, dict[str, _Versions]] = {}

    async def save(self, key: SessionKey, name: str, part: Part, custom_metadata: dict[str, Any] | None = None) -> int:
        shelf, kept, metadata = artifacts.to_save(key, name, part, custom_metadata)
        with self._lock:
            found = self._shelves.setdefault(shelf, {}).setdefault(name, _Versions())
            found.last += 1
            about = artifacts.describe(shelf, name, found.last, kept, self._seams.clock(), metadata)
            found.kept[found.last] = (kept, about)
            return found.last

    async def load(self, key: SessionKey, name: str, version: int = 0) -> Part:
        with self._lock:
            kept = self._kept(artifacts.shelf_of(key, name, version), name)
            number = version or max(kept, default=0)
            if number not in kept:
                raise artifacts.no_artifact(name, version)
            return kept[number][0]

    async def delete(self, key: SessionKey, name: str, version: int = 0) -> None:
        with self._lock:
            kept = self._kept(artifacts.shelf_of(key, name, version), name)
            if version:
                kept.pop(version, None)
            else:
                kept.clear()

    async def names(self, key: SessionKey) -> list[str]:
        mine, shared = artifacts.shelves(key)
        with self._lock:
            both = [*self._shelves.get(mine, {}).items(), *self._shelves.get(shared, {}).items()]
            return sorted(name for name, found in both if found.kept)

    async def versions(self, key: SessionKey, name: str) -> list[ArtifactVersion]:
        with self._lock:
            kept = self._kept(artifacts.shelf_of(key, name), name)
            return [_copy(about) for _, about in kept.values()]

    async def aclose(self) -> None: ...

    def _kept(self, shelf: artifacts.Shelf, name: str) -> dict[int, tuple[Part, ArtifactVersion]]:
        found = self._shelves.get(shelf, {}).get(name)
        return found.kept if found is not None else {}


def _copy(about: ArtifactVersion) -> ArtifactVersion:
    return ArtifactVersion(
        version=about.version,
        mime_type=about.mime_type,
        canonical_uri=about.canonical_uri,
        create_time=about.create_time,
        custom_metadata=rules.owned(about.custom_metadata),
    )


class KeywordMemory:
    """Memory of this process that finds what shares words with the question: most words first, then newest first.

    A search gives `max_results` entries at most. May be used from several event loops and threads at once.
    """

    def __init__(self, *, max_results: int = memories.MAX_RESULTS) -> None:
        self._max_results = memories.check_limit(max_results)
        self._lock = threading.Lock()
        self._users: dict[tuple[str, str], dict[str, list[_Memory]]] = {}

    async def add_session(self, session: Session) -> None:
        key = session.key
        rules.check_key(*key)
        events = list(session.events)
        with self._lock:
            known = self._users.setdefault((key.app, key.user), {}).get(key.id, [])
        kept = {id(memory.event): memory for memory in known}  # events never change: the same one says the same
        new = [kept.get(id(event)) or _memory(event) for event in events]
        with self._lock:
            self._users[key.app, key.user][key.id] = [memory for memory in new if memory is not None]

    async def search(self, app: str, user: str, query: str) -> list[MemoryEntry]:
        rules.check_key(app, user)
        asked = frozenset(memories.query_words(query))
        with self._lock:
            known = [memory for session in self._users.get((app, user), {}).values() for memory in session]
        hits = [(len(asked & memory.words), rules.event_time(memory.event), memory.entry) for memory in known]
        hits = [hit for hit in hits if hit[0]]
        hits.sort(key=lambda hit: hit[:2], reverse=True)
        return [entry for _, _, entry in hits[: self._max_results]]

    async def aclose(self) -> None: ...


class _Memory(NamedTuple):
    event: Event
    words: frozenset[str]
    entry: MemoryEntry


def _memory(event: Event) -> _Memory | None:
    entry = memories.remembered(event)
    return None if entry is None else _Memory(event, frozenset(memories.words(entry.content.text)), entry)
