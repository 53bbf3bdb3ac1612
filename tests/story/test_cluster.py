"""Several processes, one system: runs are followed, cancelled, answered and queued wherever they are asked for."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from polyport import App, LlmAgent
from polyport.errors import ConfigError
from polyport.testing import ScriptedModel, call, chunks
from support.clusters import Gate, Replicas, detached, frames, replicas, status, until
from support.talk import texts


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[Replicas]:
    with anyio.fail_after(60):
        async with replicas(tmp_path) as made:
            yield made


def says(*steps: Any, tools: Any = ()) -> LlmAgent:
    return LlmAgent(name="app", model=ScriptedModel(*steps), tools=list(tools))


async def test_a_run_is_followed_in_another_process_with_all_that_was_said_before(cluster: Replicas):
    gate = Gate()
    one = await cluster.add(says(call("wait", id="c1"), chunks("all ", "done"), tools=[gate.wait]))
    two = await cluster.add(says())
    await one.create()
    run_id = await detached(one, streaming=True)
    assert (await status(two, run_id))["status"] == "running", "it is known everywhere as soon as it is known here"
    await gate.begun.wait()
    gate.go.set()
    there = await frames(two, run_id)
    assert [id for id, _ in there] == ["1.1", "2.2", "3.2", "4.2", "5.3"]
    assert texts([e for _, e in there]) == ["all ", "done", "all done"]
    assert there == await frames(one, run_id), "and the same is shown where it was carried out"
    assert await frames(two, run_id, after="3.2") == there[3:]
    assert await status(two, run_id) == {"invocationId": run_id, "status": "finished"}


async def test_a_run_is_cancelled_from_another_process(cluster: Replicas):
    gate = Gate()
    one = await cluster.add(says(call("wait", id="c1"), tools=[gate.wait]))
    two = await cluster.add(says())
    await one.create()
    run_id = await detached(one)
    await gate.begun.wait()
    response = await two.client.post(f"/runs/{run_id}:cancel", json={"reason": "no more"})
    assert response.json() == {"invocationId": run_id, "status": "cancelled", "reason": "no more"}
    assert gate.cancelled.is_set(), "when the answer comes, the clean-up is done"
    assert (await two.client.post(f"/runs/{run_id}:cancel")).status == 409
    assert (await status(one, run_id))["reason"] == "no more"


async def test_how_a_run_failed_is_said_in_the_same_words_elsewhere(cluster: Replicas):
    gate = Gate()
    one = await cluster.add(says(call("wait", id="c1"), ValueError("a secret"), tools=[gate.wait]))
    two = await cluster.add(says())
    await one.create()
    run_id = await detached(one)
    gate.go.set()
    there, here = await frames(two, run_id), await frames(one, run_id)
    assert there == here and there[-1][0] == "error" and "a secret" not in str(there)
    await until(lambda: not one.server.runs.active)


async def test_what_nobody_has_begun_is_not_found(cluster: Replicas):
    one = await cluster.add(says("x"))
    await cluster.add(says())
    assert (await one.client.get("/runs/e-none")).status == 404


@pytest.mark.parametrize("wrong", [{"stores": None}, {"secret": ""}])
def test_processes_that_could_not_see_the_same_are_no_cluster(tmp_path: Path, wrong: dict[str, Any]):
    good = {"stores": f"sqlite:///{tmp_path / 'data.db'}", "secret": "a secret of all processes"}
    with pytest.raises(ConfigError, match=r"need the same sessions|needs a secret"):
        App(says("x"), cluster="nats://127.0.0.1:1", **{**good, **wrong})
