"""Peers of a process that is alone: every session is free, and nobody looks.

Used by the coordinator of an app without a cluster, and by evaluations. Does nothing, and never waits.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager

from polyport.data.event import Event
from polyport.data.run import RunOutcome, RunRequest
from polyport.errors import Unavailable
from polyport.ports.peers import Take, Ticket
from polyport.ports.runs import Run


class Alone:
    """See ports.peers.Peers."""

    name = ""
    handed_out = 0

    def hands_out(self, request: RunRequest) -> bool:
        return False

    @asynccontextmanager
    async def serving(self, take: Take, apps: Collection[str]) -> AsyncGenerator[None]:
        yield

    async def claim(self, ticket: Ticket) -> tuple[bool, Ticket]:
        return True, ticket

    async def renew(self, ticket: Ticket) -> Ticket:
        return ticket

    async def release(self, ticket: Ticket) -> None: ...

    async def freed(self, ticket: Ticket, wait_s: float) -> bool:
        return True

    def share(self, run: Run, ticket: Ticket, past: Sequence[Event], stop: Callable[[str], None]) -> None: ...

    async def ended(self, run: Run, outcome: RunOutcome) -> None: ...

    async def hand_over(self, run: Run) -> bool:
        return False

    async def hand_out(self, ticket: Ticket, attached: bool) -> Run:
        raise Unavailable("there is no other process that could carry out this run")

    async def find(self, run_id: str) -> Run | None:
        return None

    async def cancel(self, run_id: str, reason: str) -> bool:
        return False

    async def held(self, kind: str, ids: Sequence[str]) -> set[str]:
        return set()

    def holds(self, kind: str, which: Callable[[Sequence[str]], Sequence[str]]) -> None: ...

    def on_loss(self, kind: str, recover: Callable[[], Awaitable[None]]) -> None: ...

    def ring(self, topic: str) -> None: ...

    @asynccontextmanager
    async def listening(self, topic: str, heard: Callable[[], None]) -> AsyncGenerator[None]:
        yield

    async def ping(self) -> None: ...
