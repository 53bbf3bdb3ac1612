"""The port to the other processes that run the same agents on the same stores (DESIGN section 7).

Called by the coordinator. Implemented by `runs.alone` for a process that has no others, and by `cluster` on NATS. It never
stores what is true, which is in the session store: it says who runs what, shows what was said to those who watch elsewhere,
and gives the work of a process that died to another one.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from polyport.data.event import Event
from polyport.data.run import RunOutcome, RunRequest
from polyport.ports.runs import Run

TAKEN_OVER = "another process has taken the run over"
"""Why a run stops here when its ticket is ours no more."""


class Ticket(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The right to run on a session. Among all processes there is at most one for each session.

    `owner` is the process that has it, "" while it waits for one. `life` tells the lives of a run that goes on after an answer
    apart, 0 before the ticket is claimed; `base` is Run.base. `revision` changes whenever the ticket does. `taken` counts how
    often it came to another process because its owner was gone. `kept` says that a protocol keeps its own view of the run
    (see Runs.start, sinks), and goes on with the run itself (`on_loss`).
    """

    request: RunRequest
    run_id: str
    base: int = 0
    owner: str = ""
    life: int = 0
    revision: int = 0
    taken: int = 0
    kept: bool = False


Take = Callable[[Ticket], Awaitable[None]]
"""Goes on with the work of a ticket that has just become ours, or begins it; returns when that is begun, or when the run has
ended for there is nothing to do. LimitExceeded and Unavailable leave it for another process."""


class Peers(Protocol):
    """The other processes. All methods may be called concurrently. Unavailable when they cannot be reached."""

    name: str
    """This process, among them; "" for one that is alone."""

    @property
    def handed_out(self) -> int:
        """How many runs that were handed out here are alive."""
        ...

    def hands_out(self, request: RunRequest) -> bool:
        """Whether this process leaves such a run to others."""
        ...

    def serving(self, take: Take, apps: Collection[str]) -> AbstractAsyncContextManager[None]:
        """Be one of them inside the block, and take up what others leave behind of these apps."""
        ...

    async def claim(self, ticket: Ticket) -> tuple[bool, Ticket]:
        """Make a session ours: True and the ticket, with `owner` and `life`; or False and the one of the run that has the
        session now, in another process or here. Conflict when that is the same run, here. TooLarge."""
        ...

    async def renew(self, ticket: Ticket) -> Ticket:
        """Change the run of a ticket that is ours. Superseded when it is ours no more."""
        ...

    async def release(self, ticket: Ticket) -> None:
        """Give the session back. Not stopped by a cancellation; errors are logged, and nothing happens when it is not ours."""
        ...

    async def freed(self, ticket: Ticket, wait_s: float) -> bool:
        """Wait until nobody holds this ticket any more; False when that took longer."""
        ...

    def share(self, run: Run, ticket: Ticket, past: Sequence[Event], stop: Callable[[str], None]) -> None:
        """Show a run that is carried out here to the others from now on. `past` are its events since `ticket.base` that were
        stored before: those that nobody showed are shown first. `stop(reason)` is called when others stop the run, and when the
        ticket is ours no more."""
        ...

    async def ended(self, run: Run, outcome: RunOutcome) -> None:
        """Show how a shared run ended; when this returns, everybody can know. Not stopped by a cancellation; errors are
        logged. Nothing happens for a run that was handed over, or that ended before."""
        ...

    async def hand_over(self, run: Run) -> bool:
        """Let another process go on with a shared run, which is stopped here; whether that is possible. Not stopped by a
        cancellation."""
        ...

    async def hand_out(self, ticket: Ticket, attached: bool) -> Run:
        """Let another process carry out a run; the run, to be followed. An attached one is cancelled when its last watcher
        here leaves. For a ticket that is ours."""
        ...

    async def find(self, run_id: str) -> Run | None:
        """A run of another process that is alive, or ended a while ago."""
        ...

    async def cancel(self, run_id: str, reason: str) -> bool:
        """Stop a run of another process and wait for its clean-up; whether it was alive."""
        ...

    async def held(self, kind: str, ids: Sequence[str]) -> set[str]:
        """Which of these things of a kind other processes hold in memory: those that need nobody to take them up."""
        ...

    def holds(self, kind: str, which: Callable[[Sequence[str]], Sequence[str]]) -> None:
        """Answer `held` of the others: `which(ids)` are those that this process holds."""
        ...

    def on_loss(self, kind: str, recover: Callable[[], Awaitable[None]]) -> None:
        """Call `recover` in one process when another one is gone that may have held things of this kind."""
        ...

    def ring(self, topic: str) -> None:
        """Tell who listens to a topic in other processes that something is new. It may get lost."""
        ...

    def listening(self, topic: str, heard: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Call `heard()` whenever another process rings, and now and then in case a ring was lost. It must not wait."""
        ...

    async def ping(self) -> None:
        """Return if the others can be reached; Unavailable otherwise."""
        ...
