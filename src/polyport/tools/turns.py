"""Turns: one at a time for each key, for what must not be done twice at once.

Used where tools get tokens and fetch documents. Locks belong to an event loop, so each loop has its own turns.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio


class Turns:
    """`async with turns(key):` waits until nobody else on this event loop is inside with the same key."""

    def __init__(self) -> None:
        self._locks: dict[tuple[int, str], tuple[anyio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def __call__(self, key: str = "") -> AsyncGenerator[None]:
        place = (id(asyncio.get_running_loop()), key)
        lock, users = self._locks.setdefault(place, (anyio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._locks[place]
