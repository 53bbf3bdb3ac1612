"""For stories of A2A on several replicas: apps in one process that share a database and a cluster, each with its caller."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from polyport import App
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.mount import A2a, A2aServer
from polyport.protocols.parts import Parts
from polyport.runs.cluster import Cluster
from support.a2a_talk import Caller
from support.clusters import SECRET
from support.nats import nats

LEASE_S = 3


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

    def __init__(self, database: str) -> None:
        self.database = database
        self._url, self._prefix = nats()

    @asynccontextmanager
    async def replica(self, agent: Any, *, a2a: A2a | None = None, **options: Any) -> AsyncGenerator[Caller]:
        """One replica; the options are those of App."""
        served = Served(a2a or A2a())
        cluster = Cluster(self._url, prefix=self._prefix, lease_s=LEASE_S)
        app = App(agent, stores=self.database, cluster=cluster, protocols=[served], secret=SECRET, **options)
        async with app:
            yield Caller(next(iter(served.server.edges.values())).handler, app, CallContext(), served.parts)
