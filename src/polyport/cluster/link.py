"""What the parts of a cluster share: the connection, the names, the tickets, who we are, and the tasks that run beside.

Made by the cluster. Decides nothing.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

from polyport.cluster.jetstream import JetStream
from polyport.cluster.nats_url import NatsUrl
from polyport.cluster.replicas import Replicas
from polyport.cluster.subjects import Subjects
from polyport.cluster.tickets import Tickets
from polyport.data.session import SessionKey
from polyport.errors import PolyportError, Unavailable
from polyport.ports.peers import Ticket

log = logging.getLogger("polyport.cluster")
AGAIN_S = 1.0


class Link:
    """`mine` are the tickets of this process: those that it has, and those that it asks for."""

    def __init__(self, url: NatsUrl, prefix: str, lease_s: int) -> None:
        self.lease_s = lease_s
        self.subjects = Subjects(prefix)
        self.jetstream = JetStream(url, f"{prefix} (Polyport)")
        self.tickets = Tickets(self.jetstream, self.subjects)
        self.replicas = Replicas(self.jetstream, self.subjects, lease_s)
        self.name = ""
        self.mine: dict[SessionKey, Ticket] = {}
        self._group: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def connected(self, back: Callable[[], None]) -> AsyncGenerator[None]:
        """Connected, with tasks, inside the block; they are cancelled on leaving."""
        raised: BaseException | None = None
        self.mine.clear()
        async with self.jetstream.connected(back):
            try:
                async with anyio.create_task_group() as self._group:
                    try:
                        yield
                    except anyio.get_cancelled_exc_class():
                        raise
                    except BaseException as error:  # noqa: BLE001  raised below, for it should leave as it is, not in a group
                        raised = error
                    finally:
                        self._group.cancel_scope.cancel()
            finally:
                self._group = None
        if raised is not None:
            raise raised

    def start(self, work: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Do something beside. What goes wrong is logged. Unavailable when the app does not run."""
        if self._group is None:
            raise Unavailable("the app does not run, so that it is no part of its cluster")
        self._group.start_soon(self._guarded, work, args)

    async def _guarded(self, work: Callable[..., Awaitable[Any]], args: Sequence[Any]) -> None:
        try:
            await work(*args)
        except PolyportError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("a task of the cluster failed")

    async def ours(self, ticket: Ticket) -> bool:
        """Whether a ticket that was ours still is."""
        held = await self.tickets.read(ticket.request.key)
        return held is not None and held.life == ticket.life and held.owner == self.name

    async def let_go(self, ticket: Ticket) -> None:
        """Give a ticket back, if it is ours, whatever it takes."""
        while True:
            try:
                if await self.tickets.drop(ticket):
                    return
                held = await self.tickets.read(ticket.request.key)
                if held is None or held.life != ticket.life or held.owner != self.name:
                    return
                ticket = held  # it was changed, but the answer was lost
            except Unavailable as error:
                log.debug("%s: %s", ticket.request.key, error)
                await anyio.sleep(AGAIN_S)
