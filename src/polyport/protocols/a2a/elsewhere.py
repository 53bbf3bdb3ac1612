"""What other replicas do with tasks that this one looks at: followed by their rings, and read from the store that all share.

Used by the intake, when there are other replicas (`ports.peers`). A ring says only that something is new; what it is, the store
says. Never writes to a task.
"""

import logging

import anyio
import anyio.abc

from polyport.errors import NotFound, Unavailable
from polyport.ports.peers import Peers
from polyport.protocols.a2a.tasks import LiveTask, topic

log = logging.getLogger("polyport.a2a")

AGAIN_S = 1.0
"""How long is waited after the store, or the others, could not be reached."""


class Elsewhere:
    """See the module. One for each handler."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._open: set[anyio.CancelScope] = set()

    def watch(self, group: anyio.abc.TaskGroup, live: LiveTask) -> None:
        """Follow what others write to a task, until it has ended or nobody here holds it any more. Idempotent."""
        if live.watch is None and not live.state.terminal:
            live.watch = anyio.CancelScope()
            self._open.add(live.watch)
            group.start_soon(self._follow, live, live.watch)

    def close(self) -> None:
        """Follow nothing any more."""
        for scope in self._open:
            scope.cancel()

    async def _follow(self, live: LiveTask, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                while not live.state.terminal:
                    try:
                        await self._listen(live)
                    except Unavailable as error:
                        log.warning("task %s: what other replicas do with it is not seen: %s", live.id, error)
                        await anyio.sleep(AGAIN_S)
        except NotFound as error:  # it is gone after its time
            live.fail(error)
        except Exception as error:
            log.exception("task %s: what other replicas do with it is not seen", live.id)
            live.fail(error)
        finally:
            live.watch = None
            self._open.discard(scope)

    async def _listen(self, live: LiveTask) -> None:
        bell = anyio.Event()
        async with self._peers.listening(topic(live.id), lambda: bell.set()):
            while not live.state.terminal:
                async with live.lock:  # also at first: something may have come before anybody listened
                    await live.refresh()
                if not live.state.terminal:
                    await bell.wait()
                    bell = anyio.Event()
