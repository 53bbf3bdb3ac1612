"""The NATS server of a cluster: restarted in the middle of a run, not there, or with a sign-in."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from polyport import App, FunctionAgent, LlmAgent, RunContext
from polyport.cluster import Cluster
from polyport.cluster.nats_url import parse, shown
from polyport.data.content import model_text
from polyport.errors import ConfigError, Unavailable
from polyport.testing import ScriptedModel
from support.clusters import SECRET, Gate, Replicas, detached, frames, replicas, status, until
from support.nats import NatsServer, free_port
from support.talk import texts


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    server = NatsServer()
    yield server
    server.close()


@pytest.fixture
async def cluster(tmp_path: Path, nats: NatsServer) -> AsyncGenerator[Replicas]:
    with anyio.fail_after(60):
        async with replicas(tmp_path, nats) as made:
            yield made


async def test_a_restart_of_the_server_in_the_middle_of_a_run_loses_nothing(cluster: Replicas, nats: NatsServer):
    gates = [Gate(), Gate()]
    said: list[str] = []

    async def count(ctx: RunContext) -> None:
        for n in range(30):
            await ctx.emit(ctx.event(content=model_text(f"n{n}")))
            said.append(f"n{n}")
            if n in (9, 19):
                await gates[n // 10].wait()

    one = await cluster.add(FunctionAgent(name="app", function=count))
    two = await cluster.add(LlmAgent(name="app", model=ScriptedModel()))
    await one.create()
    run_id = await detached(one)
    found: list[Any] = []

    async def follow() -> None:
        found.extend(await frames(two, run_id))

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await gates[0].begun.wait()
        await anyio.to_thread.run_sync(nats.stop)
        assert (await two.client.get("/ready")).status == 503
        gates[0].go.set()
        await gates[1].begun.wait()  # the run goes on without the server
        await anyio.to_thread.run_sync(nats.start)
        gates[1].go.set()
    assert texts([e for _, e in found]) == said and len(said) == 30
    assert [int(id.partition(".")[0]) for id, _ in found] == list(range(1, 31))
    assert (await status(two, run_id))["status"] == "finished"
    assert (await two.client.get("/ready")).status == 200
    await until(lambda: not one.server.runs.active)
    assert texts((await two.stored())["events"]) == ["hi", *said]


async def test_a_session_is_free_again_when_its_run_ended_while_the_server_was_away(
    cluster: Replicas, nats: NatsServer
):
    gate = Gate()

    async def wait(ctx: RunContext) -> None:
        await gate.wait()

    one = await cluster.add(FunctionAgent(name="app", function=wait))
    two = await cluster.add(LlmAgent(name="app", model=ScriptedModel("free")))
    await one.create()
    run_id = await detached(one)
    await gate.begun.wait()
    await anyio.to_thread.run_sync(nats.stop)
    response = await two.client.post("/run", json=two.body())
    assert response.status == 503 and "the cluster at nats://127.0.0.1" in response.json()["error"]
    gate.go.set()
    await until(lambda: not one.server.runs.active)
    await anyio.to_thread.run_sync(nats.start)
    with anyio.fail_after(20):
        while (response := await two.client.post("/run", json=two.body())).status == 503:
            await anyio.lowlevel.checkpoint()
    assert texts(response.json()) == ["free"]
    assert (await status(two, run_id))["status"] == "finished"


async def test_an_app_does_not_start_without_the_server_and_says_so_without_secrets(tmp_path: Path):
    url = f"nats://me:hush@127.0.0.1:{free_port()}"
    app = App(
        LlmAgent(name="app", model=ScriptedModel()),
        stores=f"sqlite:///{tmp_path / 'data.db'}",
        secret=SECRET,
        cluster=url,
    )
    with pytest.raises(Unavailable, match=r"cannot be reached .* start nats-server") as raised:
        async with app:
            pass
    assert "hush" not in str(raised.value) and "me@127.0.0.1" in str(raised.value)


async def test_the_server_may_want_a_password(tmp_path: Path):
    server = NatsServer("--user", "me", "--pass", "h:u@sh")
    try:
        options = {"stores": f"sqlite:///{tmp_path / 'data.db'}", "secret": SECRET}
        agent = LlmAgent(name="app", model=ScriptedModel("hello"))
        url = f"nats://me:h%3Au%40sh@127.0.0.1:{server.port}"
        async with App(agent, cluster=Cluster(url, prefix="p"), **options) as app:
            assert (await app.ask("hi")).text == "hello"
        with pytest.raises(Unavailable, match=r"cannot be reached .*[Aa]uthorization"):
            async with App(agent, cluster=server.url, **options):
                pass
    finally:
        server.close()


def test_urls_are_read_and_shown_without_secrets():
    url = parse("nats://me:hu%40sh@one,two:99")
    assert url.servers == ["nats://one:4222", "nats://two:99"]
    assert url.options == {"user": "me", "password": "hu@sh"} and url.shown == "nats://me@one,two:99"
    assert parse("nats://tok@[::1]").options == {"token": "tok"}
    assert parse("nats://h?creds=/a/b").options == {"user_credentials": "/a/b"}
    assert "tls" in parse("tls://h:1").options
    assert shown("nats://tok@h") == "nats://h" and "hush" not in shown("nats://me:hush@h:x")


@pytest.mark.parametrize(
    "wrong",
    ["", "h:4222", "http://h", "nats://", "nats://h:x", "nats://h/p", "nats://h?x=1", "tls://h?ca=/none", "nats://#h"],
)
def test_what_is_no_url_is_said(wrong: str):
    with pytest.raises(ConfigError, match="cluster"):
        Cluster(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"runs": "there"},
        {"name": "a.b"},
        {"prefix": "a b"},
        {"lease_s": 0.5},
        {"lease_s": 1.5},
        {"replicas": 0},
        {"feed_age_s": 1},
    ],
)
def test_settings_that_make_no_sense_are_said(wrong: dict[str, Any]):
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}"):
        Cluster("nats://h", **wrong)
