"""The tasks of runs: used again, but nobody notices; cancelled ones are not."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar

import anyio
import pytest

from polyport import App, FunctionAgent
from polyport.ports.agent import RunContext
from polyport.runs.workers import IDLE, Work, Workers

WORD: ContextVar[str] = ContextVar("word", default="none")
HELD: ContextVar[object] = ContextVar("held")


class Big:
    """What a request may have in its variables."""


@asynccontextmanager
async def group_of_workers() -> AsyncGenerator[Workers]:
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            workers = Workers(group)
            yield workers
            workers.close()


async def forever() -> None:
    await anyio.sleep_forever()


async def test_one_task_carries_out_one_body_after_the_other() -> None:
    tasks: list[asyncio.Task[None] | None] = []

    async def body() -> None:
        tasks.append(asyncio.current_task())

    async with group_of_workers() as workers:
        for _ in range(3):
            await workers.start(body()).wait()
        assert len(set(tasks)) == 1
        both = [workers.start(body()), workers.start(body())]
        for work in both:
            await work.wait()
        assert len(set(tasks)) == 2


async def test_a_body_has_the_variables_of_who_started_it_and_leaves_none_behind() -> None:
    seen: list[str] = []

    async def body() -> None:
        for word in ("mine", "still mine"):
            seen.append(WORD.get())
            WORD.set(word)
            await anyio.sleep(0)
        seen.append(await anyio.to_thread.run_sync(WORD.get))

    async with group_of_workers() as workers:
        for word in ("a", "b"):
            WORD.set(word)
            await workers.start(body()).wait()
        assert seen == ["a", "mine", "still mine", "b", "mine", "still mine"]
        assert WORD.get() == "b"


async def test_a_worker_that_waits_keeps_nothing_of_who_started_it() -> None:
    async with group_of_workers() as workers:
        big = Big()
        kept = weakref.ref(big)
        token = HELD.set(big)
        await workers.start(anyio.sleep(0)).wait()
        HELD.reset(token)
        del big, token
        gc.collect()
        assert kept() is None


async def test_runs_of_an_app_do_not_see_each_others_variables() -> None:
    seen: list[str] = []

    async def work(ctx: RunContext) -> None:
        seen.append(WORD.get())
        WORD.set("left behind")

    async with App(FunctionAgent(name="f", function=work)) as app:
        await app.ask("hi")
        await app.ask("hi")
        WORD.set("outer")
        await app.ask("hi")
    assert seen == ["none", "none", "outer"]


async def test_a_cancelled_body_is_cancelled_until_it_ends_and_nobody_else_is() -> None:
    steps: list[str] = []

    async def stubborn() -> None:
        for _ in range(2):
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                steps.append("cancelled")
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0)
            steps.append("cleaned up")

    async def body() -> None:
        await anyio.sleep(0)
        steps.append("next")

    async with group_of_workers() as workers:
        first = workers.start(stubborn())
        await anyio.sleep(0)
        first.cancel()
        await first.wait()
        second = workers.start(body())
        first.cancel()
        await second.wait()
        assert steps == ["cancelled", "cancelled", "cleaned up", "next"]


async def test_a_body_that_is_cancelled_before_it_begins_ends_where_it_waits() -> None:
    async with group_of_workers() as workers:
        for _ in range(2):
            work = workers.start(forever())
            work.cancel()
            await work.wait()
        await workers.start(anyio.sleep(0)).wait()
        again = workers.start(forever())
        again.cancel()
        await again.wait()


async def test_a_task_that_was_told_to_cancel_itself_is_not_used_again() -> None:
    tasks: list[asyncio.Task[None] | None] = []

    async def body() -> None:
        task = asyncio.current_task()
        tasks.append(task)
        if task is not None and len(tasks) == 1:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await anyio.sleep_forever()

    async with group_of_workers() as workers:
        await workers.start(body()).wait()
        await workers.start(body()).wait()
        assert tasks[0] is not tasks[1]


async def test_only_so_many_workers_wait_and_all_leave_in_the_end() -> None:
    async def body() -> None:
        await anyio.sleep(0)

    before = len(asyncio.all_tasks())
    async with group_of_workers() as workers:
        started: list[Work] = [workers.start(body()) for _ in range(IDLE + 10)]
        for work in started:
            await work.wait()
        await anyio.wait_all_tasks_blocked()
        assert len(asyncio.all_tasks()) == before + IDLE
        late = workers.start(anyio.sleep(0))
        workers.close()
        await late.wait()
    assert len(asyncio.all_tasks()) == before


async def test_workers_that_wait_end_with_their_group() -> None:
    async with anyio.create_task_group() as group:
        workers = Workers(group)
        await workers.start(anyio.sleep(0)).wait()
        group.cancel_scope.cancel()


async def test_work_that_comes_while_the_group_is_being_cancelled_ends_and_workers_are_let_go():
    ended: list[bool] = []
    async with anyio.create_task_group() as group:
        workers = Workers(group)
        await workers.start(anyio.sleep(0)).wait()
        group.cancel_scope.cancel()
        work = workers.start(forever())
        workers.close()
        with anyio.CancelScope(shield=True):
            await work.wait()
        ended.append(work.over)
    assert ended == [True]


async def test_workers_are_let_go_after_their_group_was_cancelled():
    async with anyio.create_task_group() as group:
        workers = Workers(group)
        await workers.start(anyio.sleep(0)).wait()
        group.cancel_scope.cancel()
        workers.close()


async def test_a_body_that_fails_ends_its_work() -> None:
    async def body() -> None:
        raise ValueError("broken")

    ended: list[bool] = []
    with pytest.raises(ExceptionGroup):
        async with anyio.create_task_group() as group:
            work = Workers(group).start(body())
            try:
                await work.wait()
            finally:
                ended.append(work.over)
    assert ended == [True]
