"""Several processes of one cluster, played by several apps in one process: over one database file and one real NATS server."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from polyport import App
from polyport.cluster import Cluster
from polyport.testing import connect
from support.nats import NatsServer, server
from support.talk import Talk

SECRET = "a secret of all processes"
LEASE_S = 2


class Gate:
    """A tool that says when it has begun and ends when it is told to; remembers whether it was cancelled."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go = anyio.Event()
        self.cancelled = anyio.Event()

    async def wait(self) -> str:
        """Wait."""
        self.begun.set()
        try:
            await self.go.wait()
        except BaseException:
            self.cancelled.set()
            raise
        return "waited"


class Replicas:
    """Makes apps of one cluster. `url` is that of their database."""

    def __init__(self, stack: AsyncExitStack, url: str, nats: NatsServer) -> None:
        self._stack = stack
        self.url = url
        self.nats = nats
        self.prefix = nats.new_prefix()

    def cluster(self, **options: Any) -> Cluster:
        return Cluster(self.nats.url, prefix=self.prefix, **{"lease_s": LEASE_S, **options})

    async def add(self, agent: Any, *, cluster: dict[str, Any] | None = None, **options: Any) -> Talk:
        """One more process; it ends with the test."""
        app = App(agent, stores=self.url, secret=SECRET, cluster=self.cluster(**(cluster or {})), **options)
        client = await self._stack.enter_async_context(connect(app))
        return Talk(client, next(iter(app.trees)), app)


@asynccontextmanager
async def replicas(folder: Path, nats: NatsServer | None = None) -> AsyncGenerator[Replicas]:
    """On the server of all tests, or one of its own."""
    async with AsyncExitStack() as stack:
        yield Replicas(stack, f"sqlite:///{folder / 'data.db'}", nats or server())


async def detached(talk: Talk, message: Any = "hi", **more: Any) -> str:
    """Start a run that outlives its connection; its id."""
    response = await talk.client.post("/run", json=talk.body(message, **more), query={"detach": "1"})
    assert response.status == 202, response.text
    return response.json()["invocationId"]


async def frames(talk: Talk, run_id: str, after: str = "") -> list[tuple[str, Any]]:
    """The ids and events of a run as they are shown here, until its end; an error is ("error", {...})."""
    found: list[tuple[str, Any]] = []
    headers = {"last-event-id": after} if after else None
    async with talk.client.stream("GET", f"/runs/{run_id}/events", headers=headers) as response:
        assert response.status == 200, await response.read()
        async for event in response.events():
            found.append((event.id if event.event == "message" else event.event, json.loads(event.data)))
    return found


async def status(talk: Talk, run_id: str) -> dict[str, Any]:
    response = await talk.client.get(f"/runs/{run_id}")
    assert response.status == 200, response.text
    return response.json()


async def until(true: Callable[[], Any]) -> None:
    """Let the apps work until something is true."""
    with anyio.fail_after(30):
        while not true():
            await anyio.lowlevel.checkpoint()
