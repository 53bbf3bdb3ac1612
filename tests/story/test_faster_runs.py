"""Runs that take turns in tasks: a cancellation reaches the run that it is meant for, and no other, whatever they do inside."""

import asyncio
import random
from contextvars import ContextVar

import anyio
import pytest

from polyport import App, FunctionAgent
from polyport.data.content import model_text, user_text
from polyport.data.limits import Limits
from polyport.data.run import RunConfig, RunOutcome, RunRequest
from polyport.data.session import SessionKey
from polyport.ports.agent import RunContext
from polyport.ports.runs import Run

WHO: ContextVar[str] = ContextVar("who")


async def turns(chance: random.Random) -> None:
    for _ in range(chance.randrange(6)):
        await anyio.sleep(0)


async def busy(ctx: RunContext) -> None:
    """Waits in all the ways that agents know, each for a few turns of the loop, and looks that it is alone in its task."""
    chance = random.Random(ctx.session.key.id)
    me = ctx.session.key.id
    WHO.set(me)
    for _ in range(4):
        match chance.randrange(7):
            case 0:
                with anyio.fail_after(60):
                    await turns(chance)
            case 1:
                async with asyncio.timeout(60):
                    await turns(chance)
            case 2:
                async with anyio.create_task_group() as group:
                    group.start_soon(turns, chance)
                    group.start_soon(turns, chance)
            case 3:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(turns(chance))
                    tasks.create_task(turns(chance))
            case 4:
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await anyio.sleep_forever()
            case 5:
                try:
                    await turns(chance)
                finally:
                    with anyio.CancelScope(shield=True):
                        await turns(chance)
            case _:
                await ctx.emit(ctx.event(content=model_text(me)))
                await turns(chance)
        assert WHO.get() == me
        assert anyio.get_current_task().id == id(asyncio.current_task())
        await anyio.sleep(0)


@pytest.mark.parametrize("seed", range(6))
async def test_of_many_runs_those_are_cancelled_that_were_told_to(seed: int):
    chance = random.Random(seed)
    told: set[str] = set()
    ended: dict[str, RunOutcome] = {}

    async with App(FunctionAgent(name="f", function=busy), limits=Limits(max_runs=1000)) as app:

        async def one(name: str) -> None:
            request = RunRequest(
                key=SessionKey("f", "u", name), message=user_text("hi"), config=RunConfig(), create_session=True
            )
            run: Run = await app.runs.start(request)
            if chance.random() < 0.4:
                await turns(chance)
                if await app.runs.cancel(run.id, f"enough of {name}"):
                    told.add(name)
            ended[name] = await run.wait()

        for wave in range(5):
            async with anyio.create_task_group() as group:
                for n in range(20):
                    group.start_soon(one, f"{seed}-{wave}-{n}")
                    await turns(chance)
    assert len(ended) == 100
    assert len(told) > 5
    for name, outcome in ended.items():
        expected = {("finished", ""), ("cancelled", f"enough of {name}")} if name in told else {("finished", "")}
        assert (outcome.status, outcome.reason) in expected, (name, outcome)
    assert any(outcome.status == "cancelled" for outcome in ended.values())


def test_an_app_may_be_run_in_one_loop_after_the_other():
    app = App(FunctionAgent(name="f", function=busy))
    for n in range(3):
        assert app.run_sync("hi", session=f"s{n}").outcome.status == "finished"


async def test_an_app_may_be_entered_again_in_the_same_loop():
    app = App(FunctionAgent(name="f", function=busy))
    for n in range(3):
        async with app:
            for _ in range(2):
                assert (await app.ask("hi", session=f"s{n}")).outcome.status == "finished"
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in names if "_carry_out" in name]


async def test_a_server_that_is_cancelled_with_idle_and_busy_runs_leaves():
    begun = anyio.Event()
    runs: list[Run] = []

    async def waits(ctx: RunContext) -> None:
        if ctx.session.key.id == "long":
            begun.set()
            await anyio.sleep_forever()

    with anyio.fail_after(20), anyio.CancelScope() as scope:
        app = App(FunctionAgent(name="f", function=waits), limits=Limits())
        async with app:
            for n in range(3):
                await app.ask("hi", session=f"s{n}")
            key = SessionKey("f", "u", "long")
            runs.append(await app.runs.start(RunRequest(key=key, message=user_text("hi"), create_session=True)))
            await begun.wait()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    outcome = runs[0].outcome
    assert outcome is not None
    assert outcome.status == "cancelled"
