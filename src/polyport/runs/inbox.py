"""The inbox of a live run: what its client says, in order, until the agent takes it.

Filled by a protocol, emptied by the engine (`ports.live.LiveSource`). Bounded in bytes: `put` waits while it is full, so a
fast client cannot fill the memory, and a slow model slows its client down. No task group, no scope.
"""

import asyncio
from collections import deque

from polyport.data.live import LiveConfig, LiveRequest

ITEM_BYTES = 1024
"""What an item counts for beside its content, so that many empty ones are bounded, too."""


class Inbox:
    """One filler, one taker. `config` is how the session is to be."""

    __slots__ = ("_bell", "_bytes", "_items", "closed", "config", "limit")

    def __init__(self, config: LiveConfig, limit_bytes: int) -> None:
        self.config = config
        self.limit = limit_bytes
        self.closed = False
        self._items: deque[LiveRequest] = deque()
        self._bytes = 0
        self._bell: asyncio.Event | None = None

    async def put(self, said: LiveRequest) -> None:
        """Add a message, once there is room: one that is larger than the whole limit when it is alone. A closed inbox drops
        it."""
        size = said.size + ITEM_BYTES
        while self._items and self._bytes + size > self.limit and not self.closed:
            await self._changed()
        if not self.closed:
            self._items.append(said)
            self._bytes += size
            self._ring()

    def close(self) -> None:
        """No more messages; those that are there are still given out. Idempotent."""
        self.closed = True
        self._ring()

    async def take(self) -> LiveRequest | None:
        """See ports.live.LiveSource."""
        while not self._items:
            if self.closed:
                return None
            await self._changed()
        said = self._items.popleft()
        self._bytes -= said.size + ITEM_BYTES
        self._ring()
        return said

    def put_back(self, request: LiveRequest) -> None:
        """See ports.live.LiveSource."""
        self._items.appendleft(request)
        self._bytes += request.size + ITEM_BYTES
        self._ring()

    async def _changed(self) -> None:
        if self._bell is None:
            self._bell = asyncio.Event()
        await self._bell.wait()

    def _ring(self) -> None:
        if self._bell is not None:
            bell, self._bell = self._bell, None
            bell.set()
