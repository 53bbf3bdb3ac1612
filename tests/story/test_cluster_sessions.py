"""One session, several processes: never two runs at once, whatever comes in where; and runs that are left to workers."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from polyport import FunctionAgent, LlmAgent, RunContext
from polyport.data.content import model_text
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.testing import ScriptedModel, call, chunks
from support.approvals import Till, approve, requests
from support.clusters import Gate, Replicas, detached, frames, replicas, status, until
from support.talk import Talk, texts


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[Replicas]:
    with anyio.fail_after(60):
        async with replicas(tmp_path) as made:
            yield made


def says(*steps: Any, tools: Any = ()) -> LlmAgent:
    return LlmAgent(name="app", model=ScriptedModel(*steps), tools=list(tools))


async def busy(cluster: Replicas, on_busy: Any, *steps: Any) -> tuple[Talk, Talk, Gate, str]:
    """Two processes, and a run in the first one that is at work."""
    gate, limits = Gate(), Limits(on_busy=on_busy)
    one = await cluster.add(says(call("wait", id="c1"), "first", tools=[gate.wait]), limits=limits)
    two = await cluster.add(says(*steps), limits=limits)
    await one.create()
    run_id = await detached(one)
    await gate.begun.wait()
    return one, two, gate, run_id


async def test_a_second_message_waits_for_the_run_in_another_process(cluster: Replicas):
    one, two, gate, _ = await busy(cluster, "queue", "second")
    answers: list[list[str]] = []

    async def ask() -> None:
        answers.append(texts(await two.run("and?")))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await until(lambda: two.server.runs._turns.holder(next(iter(two.server.runs._turns._lines), None)) is not None)
        assert not answers
        gate.go.set()
    assert answers == [["second"]]
    assert texts((await one.stored())["events"]) == ["hi", "first", "and?", "second"]


async def test_a_second_message_is_refused_while_a_run_is_in_another_process(cluster: Replicas):
    one, two, gate, run_id = await busy(cluster, "reject", "second")
    response = await two.client.post("/run", json=two.body("and?"))
    assert response.status == 409 and "has an active run" in response.json()["error"]
    gate.go.set()
    assert texts([e for _, e in await frames(two, run_id)]) == ["first"]
    assert texts(await two.run("now?")) == ["second"]
    assert texts((await one.stored())["events"]) == ["hi", "first", "now?", "second"]


async def test_a_second_message_takes_the_place_of_a_run_in_another_process(cluster: Replicas):
    one, two, gate, run_id = await busy(cluster, "interrupt", "second")
    assert texts(await two.run("no, rather")) == ["second"]
    assert gate.cancelled.is_set()
    assert (await status(two, run_id))["reason"] == "interrupted by a newer message"
    events = (await one.stored())["events"]
    assert texts(events) == ["hi", "no, rather", "second"]
    assert [e["errorCode"] for e in events if e.get("errorCode")] == ["INTERRUPTED"], (
        "the history says why the turn stops"
    )


async def test_a_paused_run_goes_on_where_it_is_answered(cluster: Replicas):
    till = Till()
    one = await cluster.add(says(call("pay", {"amount": 5}, id="c1"), tools=till.tools))
    two = await cluster.add(says("paid", tools=till.tools))
    await one.create()
    run_id = await detached(one)
    before = await frames(two, run_id)
    assert (await status(two, run_id))["status"] == "paused" and till.paid == []
    [asked] = requests([e for _, e in before])
    assert texts(await two.run(approve(asked))) == ["paid"] and till.paid == [5]
    assert await status(one, run_id) == {"invocationId": run_id, "status": "finished"}
    rest = await frames(one, run_id, after=before[-1][0])
    assert texts([e for _, e in rest]) == ["paid"], "who followed the first life goes on with the second one"
    assert [id for id, _ in rest] == ["1.4.3", "2.5.3"]
    again = await one.client.post("/run", json=one.body(approve(asked)))
    assert again.status >= 400 and till.paid == [5], "an answer counts once, wherever it comes"


async def test_fifty_messages_at_three_processes_are_carried_out_one_after_the_other(cluster: Replicas):
    active: set[str] = set()

    async def echo(ctx: RunContext) -> None:
        assert not active, "two runs of one session at once"
        active.add(ctx.invocation_id)
        await anyio.lowlevel.checkpoint()
        text = ctx.user_content.text if ctx.user_content else ""
        await ctx.emit(ctx.event(content=model_text(f"re {text}")))
        active.discard(ctx.invocation_id)

    agent, limits = FunctionAgent(name="app", function=echo), Limits(queue_length=50)
    all_three = [await cluster.add(agent, limits=limits) for _ in range(3)]
    await all_three[0].create()
    async with anyio.create_task_group() as group:
        for n in range(50):
            group.start_soon(all_three[n % 3].run, f"m{n}")
    said = texts((await all_three[0].stored())["events"])
    assert len(said) == 100 and {*said[::2]} == {f"m{n}" for n in range(50)}, "none is lost"
    assert said[1::2] == [f"re {text}" for text in said[::2]]


# ---- workers


async def test_a_run_is_left_to_a_worker_and_followed_where_it_was_asked_for(cluster: Replicas):
    web = await cluster.add(says(), cluster={"runs": "workers"})
    worker = await cluster.add(says(chunks("do", "ne"), "again"), cluster={"worker": True, "runs": "workers"})
    await web.create()
    assert texts(await web.sse("hi", streaming=True)) == ["do", "ne", "done"]
    assert texts(await web.run("more")) == ["again"]
    assert texts((await worker.stored())["events"]) == ["hi", "done", "more", "again"]
    assert web.server.runs.peers.handed_out == 0


async def test_a_run_that_is_left_to_a_worker_is_cancelled_when_its_client_hangs_up(cluster: Replicas):
    gate = Gate()
    web = await cluster.add(says(), cluster={"runs": "workers"})
    worker = await cluster.add(says(call("wait", id="c1"), tools=[gate.wait]))
    await web.create()
    async with web.client.stream("POST", "/run_sse", json=web.body()) as response:
        run_id = response.headers["x-run-id"]
        await gate.begun.wait()
    await gate.cancelled.wait()
    await until(lambda: not worker.server.runs.active)
    assert (await status(worker, run_id))["reason"] == "the client went away"


async def test_a_run_waits_for_a_worker_and_may_be_cancelled_meanwhile(cluster: Replicas):
    web = await cluster.add(says(), cluster={"runs": "workers"}, limits=Limits(queue_wait_s=30))
    await web.create()
    given_up = await detached(web, "never mind")
    other = web.at("s2")
    await other.create()
    kept = await detached(other, "please")
    assert (await status(web, given_up))["status"] == "running"
    assert (await web.client.post(f"/runs/{given_up}:cancel", json={})).json()["status"] == "cancelled"
    worker = await cluster.add(says("done"))
    assert texts([e for _, e in await frames(worker, kept)]) == ["done"]
    assert (await worker.stored())["events"] == [], "what was cancelled was never begun"


async def test_a_worker_with_no_room_leaves_runs_to_others(cluster: Replicas):
    gate = Gate()
    full = await cluster.add(says(call("wait", id="c1"), "slow", tools=[gate.wait]), limits=Limits(max_runs=1))
    await full.at("s0").create()
    await detached(full.at("s0"))
    await gate.begun.wait()
    web = await cluster.add(says(), cluster={"runs": "workers"})
    await web.create()
    run_id = await detached(web)
    await cluster.add(says("quick"))
    assert texts([e for _, e in await frames(web, run_id)]) == ["quick"]
    gate.go.set()


# ---- what is large, and what is lost


async def test_an_event_larger_than_a_message_of_the_server_arrives_whole(cluster: Replicas):
    large = "x" * 3_000_000
    gate = Gate()

    async def talk(ctx: RunContext) -> None:
        await ctx.emit(ctx.event(content=model_text(large)))
        await gate.wait()
        await ctx.emit(ctx.event(content=model_text("small")))

    one = await cluster.add(FunctionAgent(name="app", function=talk))
    two = await cluster.add(says())
    await one.create()
    run_id = await detached(one)
    async with two.client.stream("GET", f"/runs/{run_id}/events") as response:
        got: list[Event] = []
        async for event in response.events():
            got.append(json.loads(event.data))
            gate.go.set()
    assert texts(got) == [large, "small"]


async def test_a_message_that_is_too_large_for_the_cluster_is_refused_with_what_to_do(cluster: Replicas):
    one = await cluster.add(says("never"))
    await one.create()
    response = await one.client.post("/run", json=one.body("x" * 2_000_000))
    assert response.status == 413 and "max_payload" in response.json()["error"]
    assert (await one.stored())["events"] == []
