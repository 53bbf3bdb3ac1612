"""Commit without a lock and a shield where nothing waits, and with both where something does: a run's events are published in
the order in which they are stored, and what is stored is published."""

from typing import Any

import anyio
import pytest

from polyport import App, FunctionAgent, ParallelAgent, Plugin, Stores
from polyport.data.content import model_text
from polyport.data.event import Event
from polyport.data.session import Session
from polyport.ports.agent import RunContext
from polyport.stores.memory import MemorySessions
from polyport.stores.memory_tasks import MemoryTasks


class Waits(MemorySessions):
    """A user's store on top of the one in memory, that knows nothing of `instant`. The first event takes longest."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 7
        self.begun = anyio.Event()

    async def append(self, session: Session, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        self.left = max(0, self.left - 1)
        for _ in range(self.left * 3):
            await anyio.sleep(0)
        stored = await super().append(session, event, claim=claim, strict=strict)
        if event.author == "slow":
            self.begun.set()
            for _ in range(10):
                await anyio.sleep(0)
        return stored


class WaitsToo(Waits):
    """A subclass of a subclass."""


class Gates(Plugin):
    """Lets events wait in `on_event`, the first longest."""

    name = "gates"

    def __init__(self) -> None:
        self.left = 9

    async def on_event(self, ctx: Any, event: Event) -> None:
        self.left = max(0, self.left - 1)
        for _ in range(self.left * 3):
            await anyio.sleep(0)


def speaker(name: str) -> FunctionAgent:
    async def speaks(ctx: RunContext) -> None:
        for n in range(3):
            await ctx.emit(ctx.event(content=model_text(f"{name}{n}")))

    return FunctionAgent(name=name, function=speaks)


@pytest.mark.parametrize("store", [MemorySessions, Waits, WaitsToo])
@pytest.mark.parametrize("gated", [False, True])
async def test_side_by_side_events_are_published_in_the_order_in_which_they_are_stored(
    store: type[MemorySessions], gated: bool
):
    sessions = store()
    agents = ParallelAgent(name="p", sub_agents=[speaker(n) for n in "abc"])
    async with App(agents, stores=Stores(sessions=sessions), plugins=[Gates()] if gated else []) as app:
        reply = await app.ask("hi", session="s")
        listed = await sessions.list("p")
        stored = await sessions.get(listed.sessions[0].key)
    assert [e.id for e in stored.events if e.author != "user"] == [e.id for e in reply.events]
    assert len(reply.events) == 9


async def test_what_a_store_that_waits_has_stored_is_published_though_the_run_is_cancelled():
    sessions = Waits()

    async def slow(ctx: RunContext) -> None:
        ids.append(ctx.invocation_id)
        await ctx.emit(ctx.event(content=model_text("one")))
        await anyio.sleep(0)
        await ctx.emit(ctx.event(content=model_text("two")))

    ids: list[str] = []
    seen: list[str] = []
    async with App(FunctionAgent(name="slow", function=slow), stores=Stores(sessions=sessions)) as app:
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                async for event in app.stream("hi", session="s"):
                    seen.append(event.text)

            async def watched() -> None:
                with pytest.raises(Exception, match="enough"):
                    await watch()

            group.start_soon(watched)
            await sessions.begun.wait()
            await app.runs.cancel(ids[0], "enough")
        listed = await sessions.list("slow")
        stored = await sessions.get(listed.sessions[0].key)
    assert seen == ["one"] == [e.text for e in stored.events if e.author == "slow"]


def test_only_a_store_that_appends_as_ours_in_memory_does_is_instant():
    class Counts(MemorySessions):
        async def get(self, *args: Any, **more: Any) -> Session:
            return await super().get(*args, **more)

    class Quick(MemorySessions):
        instant = True

        async def append(self, *args: Any, **more: Any) -> Event:
            return await super().append(*args, **more)

    class Slow(MemoryTasks):
        async def create(self, *args: Any, **more: Any) -> Any:
            return await super().create(*args, **more)

    told = [kind.instant for kind in (MemorySessions, Counts, Quick, Waits, WaitsToo, MemoryTasks, Slow)]
    assert told == [True, True, True, False, False, True, False]
