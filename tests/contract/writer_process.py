"""Run by the tests as a process of its own: `writer_process.py <db> <name> <sessions> <events>`."""

import asyncio
import contextlib
import os
import sys

from polyport.data.session import SessionKey
from polyport.errors import Conflict, Unavailable
from polyport.stores.sqlite import SqliteSessions
from polyport.testing.samples import note


async def write(store: SqliteSessions, session_id: str, events: int) -> None:
    session = await store.create("app", "ann", session_id)
    for number in range(events):
        await store.append(session, note(str(number), n=number, app__n=number))
        os.write(1, f"{session_id} {number}\n".encode())


async def share(store: SqliteSessions, name: str, events: int) -> None:
    """Write into a session into which another process writes too."""
    with contextlib.suppress(Conflict):  # when the other process is faster
        await store.create("app", "ann", "shared")
    session = await store.get(SessionKey("app", "ann", "shared"))
    for number in range(events):
        await store.append(session, note(f"{name} {number}", user__n=number))


async def main(path: str, name: str, sessions: int, events: int) -> None:
    store = SqliteSessions(path)
    writers = [write(store, f"{name}-{number}", events) for number in range(sessions)]
    if name != "w":
        writers.append(share(store, name, events))
    await asyncio.gather(*writers)
    await store.aclose()


async def use_after_fork(store: SqliteSessions) -> None:
    for call in (store.create("app", "ann"), store.ping()):
        try:
            await call
        except Unavailable as error:
            print(type(error).__name__, flush=True)


def fork(path: str) -> None:
    """Use a store, fork, and use it again in the child, which prints what it is told."""
    store = SqliteSessions(path)

    async def use() -> None:
        await store.create("app", "ann")
        await store.ping()

    asyncio.run(use())
    child = os.fork()
    if not child:
        asyncio.run(use_after_fork(store))
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    if sys.argv[2] == "fork":
        fork(sys.argv[1])
    else:
        asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
