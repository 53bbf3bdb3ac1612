"""The port through which protocols start and follow runs. Implemented in `runs/`."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from polyport.data.event import Event
from polyport.data.live import LiveRequest
from polyport.data.run import RunOutcome, RunRequest
from polyport.data.session import Session, SessionKey
from polyport.ports.agent import Agent
from polyport.ports.stores import Stores


class Sink(NamedTuple):
    """Keeps a protocol's own view of a run inside commit; an exception of `take` ends the run. `instant` says that it never
    waits, so that commit need not shield it."""

    take: Callable[[Event], Awaitable[None]]
    instant: bool = False


class FeedItem(Struct, gc=False):
    """One published event. `offset` counts from 1 within its run, `stored` counts the run's stored events up to this one.
    `encoded` keeps the bytes of each wire shape once made."""

    offset: int
    stored: int
    event: Event
    encoded: dict[str, bytes] | None = None

    def bytes(self, shape: str, make: Any) -> bytes:
        """The bytes of this event in a wire shape, made by `make(event)` the first time."""
        if self.encoded is None:
            self.encoded = {}
        found = self.encoded.get(shape)
        if found is None:
            found = self.encoded[shape] = make(self.event)
        return found


class Run(Protocol):
    """A run that was started here and is alive, or ended a short while ago."""

    @property
    def id(self) -> str:
        """The invocation id."""
        ...

    @property
    def key(self) -> SessionKey: ...

    @property
    def outcome(self) -> RunOutcome | None:
        """None while the run is alive."""
        ...

    @property
    def offset(self) -> int:
        """The offset of the newest item; 0 before the first."""
        ...

    @property
    def base(self) -> int:
        """How many events of the run were stored before it went on here; 0 for a run that only began. Its feed does not have
        them."""
        ...

    def follow(self, after: int = 0) -> AsyncGenerator[Sequence[FeedItem]]:
        """Batches of items with an offset above `after`, from the past and then as they come; ends with the run.

        LimitExceeded if the follower fell so far behind that items are gone. Safe to leave at any time.
        """
        ...

    def watching(self) -> AbstractAsyncContextManager[None]:
        """Count as a watcher. When the last one of an attached run leaves, the run is cancelled and cleaned up first."""
        ...

    async def changed(self, after: int) -> bool:
        """Wait until there is an item after this offset or the run has ended; whether there may be more later. Safe to
        cancel, so a protocol can put a time limit around it."""
        ...

    async def stirred(self) -> None:
        """Wait until something happens: an item may be there, the run may have ended, or somebody has called `stir`. Safe to
        cancel."""
        ...

    def stir(self) -> None:
        """Have all who wait in `stirred` look."""
        ...

    def read(self, after: int) -> Sequence[FeedItem]:
        """The items after this offset that are there now."""
        ...

    async def wait(self) -> RunOutcome:
        """Return when the run has ended and cleaned up."""
        ...

    async def tell(self, said: LiveRequest) -> None:
        """Say something to a live run. Waits while too much waits for the model already (that is the back-pressure); what is
        said to a run that has ended, or was hung up, is lost.

        Conflict and BadRequest for answers that must not be acted on; Conflict for a run that is not live."""
        ...

    def hang_up(self) -> None:
        """Say that a live run will be told nothing more. It ends by itself. Idempotent."""
        ...

    def forget(self, upto: int) -> None:
        """Keep the items up to this offset no longer, unless somebody else watches, too; for runs of many large events. Who
        follows later begins behind them."""
        ...

    async def ends_within(self, seconds: float) -> bool:
        """Wait for the end of the run, but not longer than so many seconds; whether it has ended."""
        ...


class Runs(Protocol):
    """Owns every run of an app."""

    @property
    def stores(self) -> Stores: ...

    @property
    def agents(self) -> dict[str, Agent]:
        """App name -> its root agent, sorted by name."""
        ...

    async def start(self, request: RunRequest, *, attached: bool = False, sinks: Sequence[Sink] = ()) -> Run:
        """Start a run, by the policy for busy sessions. Returns when the user's message is about to be committed.

        An attached run is cancelled when its last watcher leaves; a detached one goes on.

        NotFound (session, then app), Conflict (busy, or nothing to resume), LimitExceeded (too many runs),
        Unavailable (shutting down).
        """
        ...

    @property
    def active(self) -> int:
        """How many runs are alive."""
        ...

    def on_end(self, tell: Callable[[Run], None]) -> None:
        """Call `tell` with every run that has ended here, from now on. It must not wait and not raise."""
        ...

    async def get(self, run_id: str) -> Run | None:
        """A run that is alive, here or in another process, or whose feed is still kept."""
        ...

    def busy(self, key: SessionKey) -> bool:
        """Whether a run on this session may have to wait for another one, so that `start` may take long."""
        ...

    async def ping(self) -> None:
        """Return if runs can be carried out: the session store, and the cluster, can be reached. Unavailable otherwise."""
        ...

    def can_go_on(self, session: Session, run_id: str) -> bool:
        """Whether this run of a session stopped in the middle and may be resumed: its server died, or it was cancelled."""
        ...

    async def cancel(self, run_id: str, reason: str) -> bool:
        """Stop a run and wait for its clean-up; whether it was alive."""
        ...
