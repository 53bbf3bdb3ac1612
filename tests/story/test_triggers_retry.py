"""Triggers: runs that fail and go on, dead letters, limits (spec rest 7.5)."""

from typing import Any

import anyio
import pytest

from polyport import App, LlmAgent, tool
from polyport.data.limits import Limits
from polyport.errors import ModelError, Unavailable
from polyport.ports.triggers import Delivery, DeliveryKey
from polyport.protocols.triggers import Triggers, deliveries
from polyport.stores.memory_triggers import MemoryTriggers
from polyport.testing import ScriptedModel, call, connect
from polyport.testing.samples import Clock
from support.triggers import push, success, triggers

BUSY = ModelError("429 slow down", http_status=429)
BROKEN = ModelError("bad request", http_status=400)


class TestRetries:
    async def test_rest_122_a_passing_failure_goes_on_in_the_same_session(self) -> None:
        async with triggers(BUSY, ModelError("oops", http_status=503), "ok") as to:
            assert success(await to.pubsub())
            assert len(to.model.requests) == 3
            (session,) = await to.sessions("s")
            stored = (await to.client.get(f"/apps/a/users/s/sessions/{session['id']}")).json()
            assert [(e["author"], e["content"]["parts"][0]["text"]) for e in stored["events"]] == [
                ("user", '{"data":"hi"}'),
                ("a", "ok"),
            ]  # the message is there once
            assert len({e["invocationId"] for e in stored["events"]}) == 1

    async def test_rest_122_another_failure_is_final(self) -> None:
        async with triggers(BROKEN) as to:
            response = await to.pubsub()
            assert response.status == 500
            assert response.json()["status"] == "failed to run agent: bad request"

    @pytest.mark.parametrize("text", ["429", "ResourceExhausted"])
    async def test_what_a_failure_says_decides_nothing(self, text: str) -> None:
        async with triggers(ModelError(text, http_status=400)) as to:
            assert (await to.pubsub()).status == 500

    async def test_a_failure_that_does_not_pass_is_given_back_to_the_sender(self) -> None:
        async with triggers(BUSY, BUSY, BUSY, settings=Triggers(max_retries=2, base_delay_s=0, max_delay_s=7)) as to:
            response = await to.pubsub(push(id="m1"))
            assert response.status == 503 and response.headers["retry-after"] == "7"
            to.model.steps.append("ok")
            assert success(await to.pubsub(push(id="m1")))
            assert to.model.prompt() == ['user: {"data":"hi"}']
            assert len(await to.sessions("s")) == 1 and await to.letters() == []

    async def test_a_provider_that_asks_for_a_long_wait_is_not_asked_again(self) -> None:
        async with triggers(ModelError("busy", http_status=429, retry_after_s=60)) as to:
            assert (await to.pubsub()).status == 503

    async def test_nobody_takes_a_delivery_over_while_it_waits_for_its_next_attempt(self) -> None:
        clock, store = Clock(), MemoryTriggers()
        settings = Triggers(base_delay_s=3600, max_delay_s=3600, store=store)
        async with (
            triggers(BUSY, settings=settings, seams=clock.seams(), limits=Limits(run_timeout_s=10, shutdown_s=0)) as to,
            anyio.create_task_group() as group,
        ):
            group.start_soon(to.pubsub, push(id="m1"))
            while not to.model.requests:
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            waits = 3600 * (1 + 0.5 / 2)  # by the chance of this clock
            assert await store.stranded(int((clock.now + waits + 10) * 1000), 10) == []
            group.cancel_scope.cancel()

    async def test_what_was_done_before_the_failure_is_not_done_again(self) -> None:
        done: list[str] = []

        def work(what: str) -> str:
            """Do it."""
            done.append(what)
            return "done"

        model = ScriptedModel(call("work", {"what": "x"}), BUSY, "ok")
        app = App(LlmAgent(name="a", model=model, tools=[work]), protocols=[Triggers(base_delay_s=0)])
        async with connect(app) as client:
            assert success(await client.post("/apps/a/trigger/pubsub", json=push()))
        assert done == ["x"]
        model.check()

    async def test_an_error_that_is_not_ours_says_nothing_of_the_inside(self) -> None:
        async with triggers(ValueError("postgres://secret")) as to:
            response = await to.pubsub()
            assert response.status == 500 and "secret" not in response.text
            (letter,) = await to.letters()
            assert "secret" not in letter["error"]

    async def test_a_run_that_waits_for_a_human_was_delivered(self) -> None:
        @tool(require_confirmation=True)
        def pay() -> str:
            """Pay."""
            return "paid"

        model = ScriptedModel(call("pay"))
        app = App(LlmAgent(name="a", model=model, tools=[pay]), protocols=[Triggers(base_delay_s=0)])
        async with connect(app) as client:
            for _ in range(2):
                assert success(await client.post("/apps/a/trigger/pubsub", json=push(id="m1")))


class _Forgetful(MemoryTriggers):
    """Fails once to note that something was done."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = 1

    async def update(self, delivery: Delivery) -> None:
        if delivery.state == "done" and self.fails:
            self.fails -= 1
            raise Unavailable("the disk is full")
        await super().update(delivery)


class TestInterrupted:
    async def test_a_run_that_ended_but_was_not_noted_is_not_run_again(self) -> None:
        clock = Clock()
        settings = Triggers(store=_Forgetful())
        async with triggers("ok", settings=settings, seams=clock.seams()) as to:
            assert (await to.pubsub(push(id="m1"))).status == 503
            busy = await to.pubsub(push(id="m1"))
            assert busy.status == 429 and busy.headers["retry-after"] == "10"
            clock.now += 3600
            assert success(await to.pubsub(push(id="m1")))
            assert len(to.model.requests) == 1

    async def test_a_message_that_kills_its_server_again_and_again_is_given_up(self) -> None:
        store = MemoryTriggers()
        key = DeliveryKey("a", "pubsub", "s", "m1")
        await store.claim(Delivery(key=key, user="s", text="x", session_id="s1", attempts=8), again=True)
        async with triggers(settings=Triggers(store=store)) as to:
            with anyio.fail_after(20):
                while not (letters := await to.letters()):
                    await anyio.lowlevel.checkpoint()
            assert "given up after 8 attempts" in letters[0]["error"]
            to.model.steps.append("ok")
            assert success(await to.pubsub(push(id="m1")))


class TestDeadLetters:
    async def test_they_are_listed_and_can_be_carried_out(self) -> None:
        async with triggers(BROKEN) as to:
            assert (await to.pubsub(push("first", id="m1"))).status == 500
            (letter,) = await to.letters()
            assert (letter["source"], letter["origin"], letter["messageId"]) == ("pubsub", "s", "m1")
            assert (letter["error"], letter["attempts"], letter["text"]) == ("bad request", 1, '{"data":"first"}')
            (session,) = await to.sessions("s")
            assert letter["sessionId"] == session["id"]
            path = f"/apps/a/trigger/dead-letters/{letter['id']}"
            assert (await to.client.get(path)).json() == letter
            to.model.steps.append(BROKEN)
            assert (await to.client.post(path + ":retry")).status == 500
            to.model.steps.append("ok")
            assert success(await to.client.post(path + ":retry"))
            assert to.model.prompt() == ['user: {"data":"first"}']
            assert await to.letters() == []
            again = await to.client.post(path + ":retry")
            assert again.status == 409 and "it is done" in again.json()["status"]
            assert success(await to.pubsub(push("first", id="m1")))

    async def test_one_that_somebody_went_on_with_is_joined(self) -> None:
        go = anyio.Event()

        async def slow(request: Any, on_partial: Any) -> str:
            await go.wait()
            return "ok"

        async with triggers(BROKEN, slow) as to:
            assert (await to.pubsub(push(id="m1"))).status == 500
            (session,) = await to.sessions("s")
            stored = (await to.client.get(f"/apps/a/users/s/sessions/{session['id']}")).json()
            run = {"appName": "a", "userId": "s", "sessionId": session["id"]}
            run["invocationId"] = stored["events"][0]["invocationId"]
            assert (await to.client.post("/run", json=run, query={"detach": "true"})).status == 202
            await anyio.wait_all_tasks_blocked()
            answers: list[bool] = []

            async def again() -> None:
                path = f"/apps/a/trigger/dead-letters/{session['id']}:retry"
                answers.append(success(await to.client.post(path)))

            async with anyio.create_task_group() as group:
                group.start_soon(again)
                await anyio.wait_all_tasks_blocked()
                assert answers == []
                go.set()
            assert answers == [True]

    async def test_they_can_be_forgotten(self) -> None:
        async with triggers(BROKEN, "ok") as to:
            assert (await to.pubsub(push(id="m1"))).status == 500
            (letter,) = await to.letters()
            path = f"/apps/a/trigger/dead-letters/{letter['id']}"
            assert success(await to.client.delete(path))
            assert (await to.client.delete(path)).status == (await to.client.get(path)).status == 404
            assert (await to.client.post(path + ":retry")).status == 404
            assert await to.letters() == []
            assert success(await to.pubsub(push(id="m1")))

    async def test_pages_and_other_apps(self) -> None:
        async with triggers(BROKEN, BROKEN) as to:
            for id in ("m1", "m2"):
                assert (await to.pubsub(push(id=id))).status == 500
            found = await to.client.get("/apps/a/trigger/dead-letters", query={"page_size": 1})
            assert len(found.json()["deadLetters"]) == 1
            assert (await to.client.get("/apps/a/trigger/dead-letters", query={"page_size": 0})).status == 400
            assert (await to.client.get("/apps/b/trigger/dead-letters")).status == 404

    async def test_a_run_that_somebody_stopped_is_not_sent_again(self) -> None:
        begun = anyio.Event()

        async def slow(request: Any, on_partial: Any) -> str:
            begun.set()
            await anyio.sleep_forever()
            return ""

        async with triggers(slow) as to:
            answers: list[Any] = []

            async def send() -> None:
                answers.append(await to.pubsub(push(id="m1")))

            async with anyio.create_task_group() as group:
                group.start_soon(send)
                await begun.wait()
                (session,) = await to.sessions("s")
                stored = (await to.client.get(f"/apps/a/users/s/sessions/{session['id']}")).json()
                run = stored["events"][0]["invocationId"]
                assert (await to.client.post(f"/runs/{run}:cancel", json={"reason": "enough"})).status == 200
            assert answers[0].status == 200 and answers[0].json() == {"status": "cancelled: enough"}
            assert [one["error"] for one in await to.letters()] == ["cancelled: enough"]


class TestLimits:
    async def test_rest_123_one_at_a_time(self) -> None:
        at_once = most = 0

        async def work(request: Any, on_partial: Any) -> str:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            at_once -= 1
            return "ok"

        settings = Triggers(max_concurrent_runs=1, base_delay_s=0)
        async with triggers(*[work] * 6, settings=settings) as to:
            answers: list[bool] = []

            async def send() -> None:
                answers.append(success(await to.pubsub()))

            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(send)
            assert answers == [True] * 6 and most == 1

    async def test_a_full_queue_is_429(self) -> None:
        go = anyio.Event()

        async def slow(request: Any, on_partial: Any) -> str:
            await go.wait()
            return "ok"

        settings = Triggers(max_concurrent_runs=1, max_queued=1, base_delay_s=0)
        async with triggers(slow, slow, settings=settings) as to:
            answers: list[bool] = []

            async def send() -> None:
                answers.append(success(await to.pubsub()))

            async with anyio.create_task_group() as group:
                group.start_soon(send)
                group.start_soon(send)
                await anyio.wait_all_tasks_blocked()
                response = await to.pubsub()
                assert response.status == 429 and int(response.headers["retry-after"]) >= 1
                assert response.json()["status"] == response.json()["detail"]
                go.set()
            assert answers == [True, True]

    async def test_large_messages_that_wait_are_bounded_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(deliveries, "MAX_HELD", 100)
        go = anyio.Event()

        async def slow(request: Any, on_partial: Any) -> str:
            await go.wait()
            return "ok"

        async with triggers(slow, slow, "ok") as to:
            async with anyio.create_task_group() as group:
                group.start_soon(to.pubsub, push("x" * 200))  # one that is alone may be as large as a body
                await anyio.wait_all_tasks_blocked()
                assert (await to.pubsub()).status == 429
                go.set()
            go = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(to.pubsub)
                await anyio.wait_all_tasks_blocked()
                assert success(await to.pubsub())
                go.set()

    async def test_an_app_that_is_full_is_asked_again(self) -> None:
        begun, go = anyio.Event(), anyio.Event()

        async def slow(request: Any, on_partial: Any) -> str:
            begun.set()
            await go.wait()
            return "ok"

        settings = Triggers(max_retries=1, base_delay_s=0)
        async with triggers(slow, settings=settings, limits=Limits(max_runs=1)) as to:
            async with anyio.create_task_group() as group:
                group.start_soon(to.pubsub)
                await begun.wait()
                response = await to.pubsub(push(id="m2"))
                assert response.status == 503 and "max_runs" in response.json()["status"]
                go.set()
            to.model.steps.append("ok")
            assert success(await to.pubsub(push(id="m2")))
