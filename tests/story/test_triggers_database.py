"""Triggers on a database: what a server that stops leaves to the next one, and several processes (spec rest 7.5)."""

import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from polyport import App, LlmAgent
from polyport.data.limits import Limits
from polyport.errors import ModelError, Unavailable
from polyport.ports.triggers import Delivery
from polyport.protocols.triggers import Schedule, Triggers
from polyport.protocols.triggers.deliveries import Deliveries
from polyport.protocols.triggers.settings import Retry
from polyport.seams import REAL
from polyport.stores.memory_triggers import MemoryTriggers
from polyport.testing import ScriptedModel, connect
from polyport.testing.connect import Client
from polyport.testing.samples import Clock
from polyport.wire.triggers import pubsub
from support.triggers import push, success

BUSY = ModelError("429 slow down", http_status=429)
BROKEN = ModelError("bad request", http_status=400)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


class TestStopping:
    def app(self, model: ScriptedModel, path: Path, **settings: Any) -> App:
        return App(
            LlmAgent(name="a", model=model),
            protocols=["rest", Triggers(**settings)],
            stores=f"sqlite:///{path}",
            limits=Limits(shutdown_s=0),
        )

    async def send(self, client: Client, answers: list[int]) -> None:
        answers.append((await client.post("/apps/a/trigger/pubsub", json=push(id="m1"))).status)

    async def test_a_wait_between_attempts_ends_when_the_server_stops(self, tmp_path: Path) -> None:
        model = ScriptedModel(BUSY)
        answers: list[int] = []
        app = self.app(model, tmp_path / "s.db", base_delay_s=3600, max_delay_s=3600)
        async with anyio.create_task_group() as group, connect(app) as client:
            group.start_soon(self.send, client, answers)
            while not model.requests:
                await anyio.lowlevel.checkpoint()
        assert answers == [503]
        await self._goes_on(tmp_path)

    async def test_a_delivery_that_is_broken_off_is_no_success(self) -> None:
        class Stuck(MemoryTriggers):
            """A store that no longer answers."""

            async def claim(self, delivery: Delivery, *, again: bool) -> tuple[bool, Delivery]:
                begun.set()
                await anyio.sleep_forever()
                return False, delivery

        begun = anyio.Event()
        runs = App(LlmAgent(name="a", model=ScriptedModel())).runs
        deliveries = Deliveries(runs, Stuck(), Limits(), REAL, Retry())
        with anyio.CancelScope() as server:
            async with deliveries.working():
                job = deliveries.take(deliveries.new("a", pubsub(json.dumps(push(id="m1")).encode())))
                await begun.wait()
                server.cancel()
                await anyio.lowlevel.checkpoint()
        assert job.done.is_set() and isinstance(job.error, Unavailable)

    async def test_a_run_that_the_end_of_the_server_cut_off_goes_on_in_the_next_one(self, tmp_path: Path) -> None:
        begun = anyio.Event()

        async def slow(request: Any, on_partial: Any) -> str:
            begun.set()
            await anyio.sleep_forever()
            return ""

        answers: list[int] = []
        app = self.app(ScriptedModel(slow), tmp_path / "s.db")
        async with anyio.create_task_group() as group, connect(app) as client:
            group.start_soon(self.send, client, answers)
            await begun.wait()
        assert answers == [503]
        await self._goes_on(tmp_path)

    async def _goes_on(self, tmp_path: Path) -> None:
        """The next server carries the message out by itself, and the sender is told when it asks again."""
        asked = anyio.Event()

        async def answer(request: Any, on_partial: Any) -> str:
            asked.set()
            return "ok"

        model = ScriptedModel(answer)
        async with connect(self.app(model, tmp_path / "s.db")) as client:
            with anyio.fail_after(20):
                await asked.wait()
            assert success(await client.post("/apps/a/trigger/pubsub", json=push(id="m1")))
            (session,) = (await client.get("/apps/a/users/s/sessions")).json()
            stored = (await client.get(f"/apps/a/users/s/sessions/{session['id']}")).json()
            assert [e["author"] for e in stored["events"]] == ["user", "a"]
        model.check()

    async def test_what_was_done_is_known_after_a_restart(self, tmp_path: Path) -> None:
        for model in (ScriptedModel("ok"), ScriptedModel()):
            async with connect(self.app(model, tmp_path / "s.db")) as client:
                assert success(await client.post("/apps/a/trigger/pubsub", json=push(id="m1")))
            model.check()

    async def test_dead_letters_are_there_after_a_restart(self, tmp_path: Path) -> None:
        async with connect(self.app(ScriptedModel(BROKEN), tmp_path / "s.db")) as client:
            assert (await client.post("/apps/a/trigger/pubsub", json=push(id="m1"))).status == 500
        async with connect(self.app(ScriptedModel("ok"), tmp_path / "s.db")) as client:
            (letter,) = (await client.get("/apps/a/trigger/dead-letters")).json()["deadLetters"]
            assert success(await client.post(f"/apps/a/trigger/dead-letters/{letter['id']}:retry"))


class TestSeveralProcesses:
    async def test_several_processes_ask_once(self, tmp_path: Path) -> None:
        """Each also has a schedule of its own for the same time, after the one that they share."""
        clock = Clock(NOON - 0.02)
        shared = Schedule(name="daily", cron="0 12 * * *", message="good morning")
        prompts: list[str] = []
        all_asked = anyio.Event()

        def answer(request: Any, on_partial: Any) -> str:
            prompts.append(request.contents[0].text)
            if sum(text.startswith("own") for text in prompts) == 3:
                all_asked.set()
            return "ok"

        async with AsyncExitStack() as stack:
            for name in ("own-1", "own-2", "own-3"):
                own = Schedule(name=name, cron="0 12 * * *", message=name)
                model = ScriptedModel(answer, answer)
                app = App(
                    LlmAgent(name="a", model=model),
                    protocols=[Triggers(schedules=[shared, own])],
                    stores=f"sqlite:///{tmp_path / 's.db'}",
                    seams=clock.seams(),
                )
                await stack.enter_async_context(connect(app))
            clock.now = NOON + 0.01
            with anyio.fail_after(20):
                await all_asked.wait()
        assert sorted(prompts) == ["good morning", "own-1", "own-2", "own-3"]

    async def test_a_time_that_failed_in_one_process_is_not_tried_by_another(self, tmp_path: Path) -> None:
        shared = Schedule(name="daily", cron="0 12 * * *", message="good morning")
        own = Schedule(name="own", cron="0 12 * * *", message="own")
        stores = f"sqlite:///{tmp_path / 's.db'}"
        early, late = Clock(NOON - 0.02), Clock(NOON - 0.02)
        prompts: list[str] = []
        asked = anyio.Event()

        def answer(request: Any, on_partial: Any) -> str:
            prompts.append(request.contents[0].text)
            asked.set()
            return "ok"

        first = App(
            LlmAgent(name="a", model=ScriptedModel(BROKEN)),
            protocols=[Triggers(schedules=[shared])],
            stores=stores,
            seams=early.seams(),
        )
        second = App(
            LlmAgent(name="a", model=ScriptedModel(answer, answer)),
            protocols=[Triggers(schedules=[shared, own])],
            stores=stores,
            seams=late.seams(),
        )
        with anyio.fail_after(20):
            async with connect(first) as client, connect(second):
                early.now = NOON
                while not (await client.get("/apps/a/trigger/dead-letters")).json()["deadLetters"]:
                    await anyio.lowlevel.checkpoint()
                late.now = NOON + 0.5
                await asked.wait()
        assert prompts == ["own"]
