"""The store ports: sessions, artifacts, memory. Implemented in `stores/`, required to pass `polyport.testing.suites`."""

from typing import Any, Protocol

from msgspec import Struct

from polyport.data.content import Content, Part
from polyport.data.event import Event
from polyport.data.session import Session, SessionKey
from polyport.errors import Unavailable

STORE_TIMEOUT_S = 30.0
"""How long a store may take over one event before the run fails."""


class SessionPage(Struct, kw_only=True):
    """Sessions without events, newest first (by `updated_at`, then id). `next_token` is "" on the last page."""

    sessions: list[Session]
    next_token: str = ""


class SessionStore(Protocol):
    """Keeps sessions. All methods may be called concurrently. State scopes follow spec core 5.2 in every store.

    `instant` says that `append` never waits, as in memory, so that commit need not shield it. `finishes` says the same of one
    that may wait: once begun, it is finished and answered within STORE_TIMEOUT_S though its caller is cancelled.

    Errors: BadRequest for an empty app, user or id where one is needed; NotFound; Conflict; Unavailable when the storage
    cannot be reached.
    """

    instant: bool
    finishes: bool

    async def create(
        self,
        app: str,
        user: str,
        session_id: str = "",
        *,
        state: dict[str, Any] | None = None,
        events: list[Event] | None = None,
    ) -> Session:
        """Make a session, all or nothing. A blank id is generated. Conflict if the id exists.

        `events` are appended in order with their state deltas, ids and times kept; an event without id or time gets one.
        `temp:` keys are dropped.
        """
        ...

    async def get(self, key: SessionKey, *, recent: int | None = None, after: float | None = None) -> Session:
        """The session with events in order of storage: those at or after epoch time `after`, of those the newest
        `recent` (0 gives none). The Session belongs to the caller; its events are shared and must not be changed.
        NotFound if there is none."""
        ...

    async def list(self, app: str, user: str = "", *, page_size: int = 0, page_token: str = "") -> SessionPage:
        """Sessions of a user (of all users when blank), merged state, no events. `page_size` 0 is all in one page.
        BadRequest for a token that this method did not give."""
        ...

    async def delete(self, key: SessionKey) -> None:
        """Remove the session and its events. Silent if there is none. `app:` and `user:` state stay."""
        ...

    async def append(self, session: Session, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        """Store one event durably and apply its state delta; all or nothing.

        On return `session` has the event (without `temp:` keys), the new merged state (with the `temp:` values of the
        delta), revision and times; on failure it is unchanged. Returns the event as stored. A partial event is ignored
        and returned. `claim` raises the fence: this writer owns the session from now on. Without it, Superseded if the
        stored fence is not `session.fence`. With `strict`, Conflict if anybody wrote since the session was loaded.
        NotFound if the session is gone.
        """
        ...

    async def claim(self, key: SessionKey) -> None:
        """Raise the fence: no run that has the session now can write any more, each is Superseded. NotFound."""
        ...

    async def find_run(self, invocation_id: str) -> SessionKey | None:
        """The session that holds events of this run, or None."""
        ...

    async def ping(self) -> None:
        """Return if the storage can be reached; Unavailable otherwise."""
        ...

    async def aclose(self) -> None: ...


class ArtifactVersion(Struct, kw_only=True, rename="camel", omit_defaults=True):
    version: int
    mime_type: str = ""
    canonical_uri: str = ""
    create_time: float = 0.0
    custom_metadata: dict[str, Any] = {}


class ArtifactStore(Protocol):
    """Keeps named, versioned files of a session. A name that starts with `user:` is shared by the user's sessions.

    Names: 1 to 255 characters, no `/`, `\\`, control characters, `.` or `..` (BadRequest). Versions start at 1, grow by
    1 and are never used twice (spec core 8.2).
    """

    async def save(self, key: SessionKey, name: str, part: Part, custom_metadata: dict[str, Any] | None = None) -> int:
        """Store a part that has text or inline data; the new version."""
        ...

    async def load(self, key: SessionKey, name: str, version: int = 0) -> Part:
        """Version 0 is the latest. NotFound if there is none."""
        ...

    async def delete(self, key: SessionKey, name: str, version: int = 0) -> None:
        """Version 0 removes all. Silent if there is none."""
        ...

    async def names(self, key: SessionKey) -> list[str]:
        """Sorted names of the session's and the user's artifacts."""
        ...

    async def versions(self, key: SessionKey, name: str) -> list[ArtifactVersion]:
        """Oldest first; empty if there is none."""
        ...

    async def aclose(self) -> None: ...


class MemoryEntry(Struct, kw_only=True, rename="camel", omit_defaults=True):
    id: str
    content: Content
    author: str = ""
    timestamp: str = ""
    custom_metadata: dict[str, Any] = {}


class MemoryStore(Protocol):
    """Long-term memory of a user in an app, across sessions (spec core 8.1)."""

    async def add_session(self, session: Session) -> None:
        """Remember the session's texts; adding the same session again replaces what it added before."""
        ...

    async def search(self, app: str, user: str, query: str) -> list[MemoryEntry]:
        """Best match first; empty for an empty query."""
        ...

    async def aclose(self) -> None: ...


class Stores(Struct, frozen=True):
    """The stores of an app. `artifacts` and `memory` may be missing."""

    sessions: SessionStore
    artifacts: ArtifactStore | None = None
    memory: MemoryStore | None = None

    def need_artifacts(self) -> ArtifactStore:
        """The artifact store; Unavailable without one."""
        if self.artifacts is None:
            raise Unavailable("no artifact store is configured: App(stores=...) needs one")
        return self.artifacts

    def need_memory(self) -> MemoryStore:
        """The memory store; Unavailable without one."""
        if self.memory is None:
            raise Unavailable("no memory store is configured: App(stores=...) needs one")
        return self.memory
