"""Three NATS servers that keep everything three times: any of them may be killed in the middle of runs."""

import json
import random
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import pytest

from polyport import FunctionAgent, RunContext
from polyport.data.content import model_text
from support.clusters import Replicas, detached, replicas, status
from support.nats import NatsServer, free_port
from support.talk import texts

pytestmark = pytest.mark.long


class Servers:
    """Three servers of one cluster; looks like one for those who only want its URL."""

    def __init__(self) -> None:
        routes, self.monitors = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
        known = ",".join(f"nats://127.0.0.1:{port}" for port in routes)
        self.each: list[NatsServer] = []
        for n, (port, monitor) in enumerate(zip(routes, self.monitors, strict=True)):
            place = ["--cluster_name", "c", "--cluster", f"nats://127.0.0.1:{port}", "--routes", known]
            self.each.append(NatsServer("--name", f"n{n}", "-m", str(monitor), *place))
        self.url = "nats://" + ",".join(f"127.0.0.1:{server.port}" for server in self.each)

    def new_prefix(self) -> str:
        return self.each[0].new_prefix()


@pytest.fixture
def servers() -> Iterator[Servers]:
    found = Servers()
    yield found
    for server in found.each:
        server.close()


@pytest.fixture
async def cluster(tmp_path: Path, servers: Servers) -> AsyncGenerator[Replicas]:
    async with replicas(tmp_path, servers) as made:  # pyright: ignore[reportArgumentType]
        yield made


async def test_T106_runs_are_shown_whole_while_each_server_is_killed_in_turn(
    cluster: Replicas, servers: Servers
) -> None:
    await healthy(servers)
    over = anyio.Event()

    async def count(ctx: RunContext) -> None:
        n = 0
        while not over.is_set() or n < 50:
            await ctx.emit(ctx.event(content=model_text(f"n{n}")))
            await anyio.sleep(0.01)
            n += 1

    agent = FunctionAgent(name="app", function=count)
    one, two = [await cluster.add(agent, cluster={"replicas": 3, "lease_s": 6}) for _ in range(2)]
    sessions = [one.at(f"s{n}") for n in range(8)]
    runs: list[str] = []
    for talk in sessions:
        await talk.create()
        runs.append(await detached(talk))
    shown: dict[str, list[tuple[str, Any]]] = {}

    async def follow(run_id: str) -> None:
        async with two.client.stream("GET", f"/runs/{run_id}/events") as response:
            async for event in response.events():
                assert event.event == "message", event.data
                shown.setdefault(run_id, []).append((event.id, json.loads(event.data)))

    with anyio.fail_after(150):
        async with anyio.create_task_group() as group:
            for run_id in runs:
                group.start_soon(follow, run_id)
            while len(shown) < len(runs):
                await anyio.lowlevel.checkpoint()
            for server in random.Random(3).sample(servers.each, 3):
                await anyio.to_thread.run_sync(server.stop)
                await ready(two)
                await anyio.to_thread.run_sync(server.start)
                await healthy(servers)
            over.set()
        for talk, run_id in zip(sessions, runs, strict=True):
            stored = texts((await talk.stored())["events"])[1:]
            assert texts([e for _, e in shown[run_id]]) == stored and len(stored) >= 50
            assert [int(id.partition(".")[0]) for id, _ in shown[run_id]] == list(range(1, len(stored) + 1))
            assert (await status(two, run_id))["status"] == "finished"


async def ready(talk: Any) -> None:
    """Until the two servers that are left do their work."""
    while (await talk.client.get("/ready")).status != 200:
        await anyio.lowlevel.checkpoint()


async def healthy(servers: Servers) -> None:
    """Until a server that came back has all that the others have."""
    async with aiohttp.ClientSession() as http:
        for port in servers.monitors:
            ok = False
            while not ok:
                try:
                    async with http.get(f"http://127.0.0.1:{port}/healthz") as response:
                        ok = response.status == 200
                except aiohttp.ClientError:
                    await anyio.lowlevel.checkpoint()
