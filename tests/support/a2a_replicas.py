"""For stories of A2A on several replicas: apps in one process that share a database and a cluster, each with its caller."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from polyport import App
from polyport.cluster import Cluster
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.mount import A2a, A2aServer
from polyport.protocols.parts import Parts
from polyport.wire.a2a import SubscribeToTaskRequest
from support.a2a_talk import Caller
from support.clusters import SECRET
from support.nats import NatsServer, server

LEASE_S = 3


class Ear:
    """Somebody who subscribes, and remembers what comes."""

    def __init__(self) -> None:
        self.open = anyio.Event()
        self.frames: list[Any] = []

    async def listen(self, caller: Caller, task_id: str) -> None:
        async with caller.handler.subscribe(caller.call, SubscribeToTaskRequest(id=task_id)) as stream:
            self.open.set()
            async for batch in stream:
                self.frames += batch


class Served:
    """A2A as a protocol of an app, whose handler can be had."""

    def __init__(self, options: A2a) -> None:
        self._options = options
        self.server: A2aServer
        self.parts: Parts

    def mount(self, parts: Parts) -> A2aServer:
        self.parts = parts
        self.server = self._options.mount(parts)
        return self.server


class Together:
    """`async with together.replica(agent) as caller`: replicas on one database, in one cluster."""

    def __init__(self, database: str, nats: NatsServer | None = None, lease_s: int = LEASE_S) -> None:
        self.database = database
        self.nats = nats or server()
        self._prefix = self.nats.new_prefix()
        self._lease_s = lease_s

    @asynccontextmanager
    async def replica(self, agent: Any, *, a2a: A2a | None = None, **options: Any) -> AsyncGenerator[Caller]:
        """One replica; the options are those of App."""
        served = Served(a2a or A2a())
        cluster = Cluster(self.nats.url, prefix=self._prefix, lease_s=self._lease_s)
        app = App(agent, stores=self.database, cluster=cluster, protocols=[served], secret=SECRET, **options)
        async with app:
            yield Caller(next(iter(served.server.edges.values())).handler, app, CallContext(), served.parts)
