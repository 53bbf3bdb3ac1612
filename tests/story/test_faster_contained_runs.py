"""A run ends, the server does not (FR-097): what an agent leaves open, or does to its own task, is no other run's matter."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from polyport import App, CompactionConfig, FunctionAgent, SequentialAgent
from polyport.data.content import model_text
from polyport.errors import AgentError, PolyportError, RunCancelled
from polyport.ports.agent import RunContext
from polyport.protocols.a2a.settings import ExecutorConfig
from polyport.testing import call
from support.a2a_talk import short, talking

Work = Callable[[RunContext], Awaitable[None]]
KEPT: list[object] = []
"""Scopes that nobody leaves, kept as a user's own attribute would keep them."""


def open_scope(deadline: float = math.inf) -> anyio.CancelScope:
    scope = anyio.CancelScope(deadline=deadline)
    scope.__enter__()
    KEPT.append(scope)
    return scope


def app_of(first: Work) -> App:
    """An app whose first run does `first`, and whose others wait a little, and end."""
    runs = 0

    async def work(ctx: RunContext) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            return await first(ctx)
        for _ in range(5):
            await anyio.sleep(0)

    return App(FunctionAgent(name="f", function=work))


async def goes_on(app: App) -> None:
    for _ in range(3):
        assert (await app.ask("hi")).outcome.status == "finished"


async def test_FR_097_a_scope_that_a_run_leaves_open_is_closed_with_it():
    async def leaves(ctx: RunContext) -> None:
        open_scope()
        open_scope()

    async with app_of(leaves) as app:
        await goes_on(app)


async def test_FR_097_a_scope_that_was_left_open_cancels_no_later_run():
    scopes: list[anyio.CancelScope] = []

    async def leaves(ctx: RunContext) -> None:
        scopes.append(open_scope(anyio.current_time() + 3600))

    async with app_of(leaves) as app:
        await app.ask("hi")
        scopes[0].cancel()
        await goes_on(app)


async def test_FR_097_a_run_that_its_own_open_scope_cancels_fails_alone():
    async def leaves(ctx: RunContext) -> None:
        asyncio.get_running_loop().call_soon(open_scope().cancel)
        await anyio.sleep_forever()

    async with app_of(leaves) as app:
        with pytest.raises(AgentError, match="cancelled from within"):
            await app.ask("hi")
        await goes_on(app)


async def test_FR_097_a_run_that_cancels_its_own_task_fails_alone():
    async def cancels(ctx: RunContext) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.sleep_forever()

    async with app_of(cancels) as app:
        with pytest.raises(AgentError, match="cancelled from within"):
            await app.ask("hi")
        await goes_on(app)


async def test_FR_097_the_tasks_of_a_group_that_was_left_open_end():
    ended: list[str] = []

    async def child() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("child")

    async def leaves(ctx: RunContext) -> None:
        group = anyio.create_task_group()
        await group.__aenter__()
        KEPT.append(group)
        group.start_soon(child)
        await anyio.sleep(0)

    async with app_of(leaves) as app:
        await goes_on(app)
        assert ended == ["child"]


async def test_FR_097_a_run_with_an_open_scope_can_still_be_cancelled():
    begun = anyio.Event()
    ids: list[str] = []

    async def leaves(ctx: RunContext) -> None:
        open_scope()
        ids.append(ctx.invocation_id)
        begun.set()
        await anyio.sleep_forever()

    async with app_of(leaves) as app, anyio.create_task_group() as group:

        async def ask() -> None:
            with pytest.raises(RunCancelled, match="enough"):
                await app.ask("hi", session="s")

        group.start_soon(ask)
        await begun.wait()
        await app.runs.cancel(ids[0], "enough")
        await goes_on(app)


async def test_FR_097_timeouts_of_asyncio_inside_an_agent_are_its_own():
    said: list[str] = []

    async def slow(ctx: RunContext) -> None:
        await anyio.sleep_forever()

    async def times_out(ctx: RunContext) -> None:
        inner = FunctionAgent(name="inner", function=slow)
        try:
            async with asyncio.timeout(0):
                await inner.run(ctx)
        except TimeoutError:
            said.append("timeout")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(0))

    async with App(SequentialAgent(name="s", sub_agents=[FunctionAgent(name="f", function=times_out)])) as app:
        for _ in range(3):
            assert (await app.ask("hi")).outcome.status == "finished"
    assert said == ["timeout"] * 3


async def leaves_open(*_: Any) -> None:
    open_scope()


async def cancels_itself(*_: Any) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await anyio.sleep_forever()


async def exits(*_: Any) -> None:
    raise SystemExit(3)


async def makes_up_a_cancellation(*_: Any) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("hook", "state"),
    [
        (leaves_open, "completed, or failed in the middle of something"),
        (cancels_itself, "failed"),
        (exits, "failed"),
        (makes_up_a_cancellation, "failed"),
    ],
)
@pytest.mark.parametrize("name", ["before_execute", "after_event", "after_execute"])
async def test_FR_097_a_hook_of_a2a_ends_its_task_and_no_other(name: str, hook: Any, state: str):
    calls = 0

    async def once(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await hook(*args)

    async def speaks(ctx: RunContext) -> None:
        await ctx.emit(ctx.event(content=model_text("hello")))

    made: Any = {name: once}
    async with talking(FunctionAgent(name="app", function=speaks), executor=ExecutorConfig(**made)) as caller:
        assert short(await caller.send()) in state
        for _ in range(2):
            assert short(await caller.send()) == "completed"


@pytest.mark.parametrize("does", [leaves_open, cancels_itself, exits, makes_up_a_cancellation])
async def test_FR_097_a_summariser_ends_its_summary_and_nothing_else(does: Any):
    asked: list[int] = []

    async def summariser(events: Any, previous: Any) -> None:
        asked.append(len(events))
        await does()

    async def speaks(ctx: RunContext) -> None:
        await ctx.emit(ctx.event(content=model_text("hello")))

    compaction = CompactionConfig(compaction_interval=1, overlap_size=0, summariser=summariser)
    async with App(FunctionAgent(name="f", function=speaks), compaction=compaction) as app:
        for _ in range(3):
            assert (await app.ask("hi", session="s")).outcome.status == "finished"
    assert len(asked) >= 2


@pytest.mark.parametrize("does", [leaves_open, cancels_itself, exits, makes_up_a_cancellation])
@pytest.mark.parametrize("count", [1, 2])
async def test_FR_097_a_tool_ends_its_run_at_most(scripted: Any, does: Any, count: int):
    async def work() -> str:
        """Work."""
        await does()
        return "done"

    agent, _ = scripted([call("work", id=f"c{n}") for n in range(count)], "ok", "ok", "ok", tools=[work])
    async with App(agent) as app:
        with suppress(PolyportError, ExceptionGroup, RuntimeError):
            await app.ask("hi")
        assert (await app.ask("hi")).outcome.status == "finished"
        assert not [task for task in asyncio.all_tasks() if task.cancelling()]
