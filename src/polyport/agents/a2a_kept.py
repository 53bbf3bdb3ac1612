"""Connections that live as long as the event loop they were made on: sessions of HTTP, channels of gRPC.

Used by the transports of A2A clients. What nobody closed is closed by its event loop: when that ends, or when the owner is
garbage. Knows nothing of what it keeps.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Hashable
from typing import Any

_Open = dict[tuple[asyncio.AbstractEventLoop, Hashable], tuple[AsyncGenerator[Any], Any]]


class Kept:
    """What one client keeps open. The generators that hold it must not be garbage together with the client, or else their loop
    could not close them, so they are held from outside."""

    def __init__(self) -> None:
        self._open: _Open = {}
        weakref.finalize(self, self._open.clear).atexit = False

    async def get(
        self, key: Hashable, opened: Callable[[], AsyncGenerator[Any]], closed: Callable[[Any], bool] | None = None
    ) -> Any:
        """What is kept by this key on the running loop. `opened` yields it once and closes it afterwards; it is asked again
        when `closed` says that what there is cannot be used any more."""
        full = asyncio.get_running_loop(), key
        known = self._open.get(full)
        if known is not None and not (closed is not None and closed(known[1])):
            return known[1]
        for other in [one for one in self._open if one[0].is_closed()]:
            del self._open[other]
        holder = opened()
        found = await anext(holder)
        self._open[full] = holder, found
        return found

    async def aclose(self) -> None:
        """Close what is kept for the running event loop. What is kept for others is closed when they end."""
        loop = asyncio.get_running_loop()
        for key in [key for key in self._open if key[0] is loop]:
            await self._open.pop(key)[0].aclose()
