"""Push notifications that last: what a receiver was not told is told by the next process, or by another one, in order."""

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from polyport import LlmAgent, make_tool
from polyport.data.limits import Limits
from polyport.ports.tasks import PushKey, TaskScope
from polyport.protocols.a2a.push import PushOutbox
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.stores.sqlite_pushes import SqlitePushes
from polyport.testing import ScriptedModel, call
from support.a2a_hook import Hook, hooked
from support.a2a_talk import Gate
from support.a2a_wires import Wire, echoing, kinds, message, state, wired

WHOLE = ["task submitted", "status working", "artifact you said: hi", "status completed"]


def local(**more: Any) -> PushSettings:
    return PushSettings(allow_private=True, allow_http=True, backoff_s=0.001, look_s=0.005, drain_s=0.0, **more)


def at(path: Path) -> str:
    return f"sqlite:///{path / 'data.db'}"


async def ordered(wire: Wire, hook: Hook, **config: Any) -> dict[str, Any]:
    inline = {"taskPushNotificationConfig": {"url": hook.url, **config}}
    return (await wire.send(configuration=inline))["task"]


async def quiet(wire: Wire) -> None:
    """Return when nothing waits to be told any more."""
    outbox = wire.server.push
    assert isinstance(outbox, PushOutbox)
    with anyio.fail_after(20):
        while outbox._at_work:
            await anyio.lowlevel.checkpoint()


async def test_FR_189_T057_what_was_not_told_is_told_after_a_restart(tmp_path: Path):
    async with hooked() as hook:
        hook.answers = [200, *[503] * 1000]
        secret = {"authentication": {"scheme": "Bearer", "credentials": "tok-1"}, "token": "tok-2"}
        async with wired("rest", echoing(), push=local(attempts=1000), stores=at(tmp_path)) as wire:
            task = await ordered(wire, hook, id="p", **secret)
            assert state(task) == "completed"
            await hook.until(2)
        hook.answers.clear()
        heard = len(hook.got)
        async with wired("rest", echoing(), push=local(), stores=at(tmp_path)) as wire:
            with anyio.fail_after(20):
                while kinds(hook.bodies)[-1] != WHOLE[-1]:
                    await anyio.lowlevel.checkpoint()
            await quiet(wire)
            assert not wire.server.push.dead_letters
    assert kinds(hook.bodies[:1]) == WHOLE[:1]
    assert kinds(hook.bodies[heard:]) == WHOLE[1:], "the first one had come, the others come once and in order"
    assert {headers["authorization"] for _, headers, _ in hook.got} == {"Bearer tok-1"}
    assert {headers["a2a-notification-token"] for _, headers, _ in hook.got} == {"tok-2"}


async def test_T109_a_receiver_of_a_process_that_died_is_told_when_its_time_is_over(tmp_path: Path):
    async with hooked() as hook:
        hook.answers = [503] * 1000
        async with wired("rest", echoing(), push=local(attempts=1000), stores=at(tmp_path)) as wire:
            task = await ordered(wire, hook, id="p")
        hook.answers.clear()
        heard = len(hook.got)
        dead = SqlitePushes(tmp_path / "data.db")
        key = PushKey(TaskScope("app"), task["id"], "p")
        far = 10**15
        assert await dead.hold(key, "dead", 0, far)
        async with wired("rest", echoing(), push=local(), stores=at(tmp_path)) as wire:
            for _ in range(3):
                await wire.send()
            await quiet(wire)
            assert len(hook.got) == heard, "somebody else tells it"
            assert await dead.hold(key, "dead", 0, 1)  # its time is over
            await hook.until(heard + 4)
            await quiet(wire)
        await dead.aclose()
    assert kinds(hook.bodies[heard:]) == WHOLE


async def test_T057_T058_two_processes_tell_each_receiver_once_and_in_order(tmp_path: Path):
    gate = Gate()
    agent = LlmAgent(name="app", model=ScriptedModel(call("wait"), *["done"]), tools=[gate.wait])
    async with (
        hooked() as one,
        hooked() as two,
        wired("rest", agent, push=local(), stores=at(tmp_path), recover=False) as works,
        wired("rest", echoing(), push=local(), stores=at(tmp_path), recover=False) as other,
    ):
        config = {"taskPushNotificationConfig": {"url": one.url, "id": "here"}, "returnImmediately": True}
        task = (await works.send(configuration=config))["task"]
        await gate.begun.wait()
        await other.call("CreateTaskPushNotificationConfig", {"taskId": task["id"], "url": two.url, "id": "there"})
        named = {"taskId": task["id"]}
        seen = [(await w.call("ListTaskPushNotificationConfigs", named))["configs"] for w in (works, other)]
        assert seen[0] == seen[1] and [c["id"] for c in seen[0]] == ["here", "there"]
        gate.go.set()
        await two.until(3)
        await one.until(6)
        for wire in (works, other):
            await quiet(wire)
    assert kinds(one.bodies) == [
        "task submitted",
        "status working",
        *["artifact "] * 2,
        "artifact done",
        "status completed",
    ]
    assert kinds(two.bodies) == ["artifact ", "artifact done", "status completed"]


async def test_T060_a_deleted_configuration_is_told_nothing_by_anybody(tmp_path: Path):
    async with (
        hooked() as hook,
        wired("rest", echoing(), push=local(attempts=1000), stores=at(tmp_path), recover=False) as one,
        wired("rest", echoing(), push=local(attempts=1000), stores=at(tmp_path), recover=False) as two,
    ):
        hook.answers = [503] * 10_000
        task = await ordered(one, hook, id="p")
        await hook.until(1)
        await two.call("DeleteTaskPushNotificationConfig", {"taskId": task["id"], "id": "p"})
        for wire in (one, two):
            await quiet(wire)
        heard = len(hook.got)
        hook.answers.clear()
        for wire in (one, two):
            await wire.send()
            await quiet(wire)
            assert not wire.server.push.dead_letters
    assert len(hook.got) == heard


@pytest.mark.parametrize("lasting", [True, False])
async def test_a2a_push_a_configuration_with_an_answer_is_told_what_follows(tmp_path: Path, lasting: bool):
    def ticket() -> None:
        """Ask a human."""

    agent = LlmAgent(
        name="app",
        model=ScriptedModel(call("ticket", {}, "c1"), "thanks"),
        tools=[make_tool(ticket, long_running=True)],
    )
    stores = at(tmp_path) if lasting else None
    async with hooked() as hook, wired("rest", agent, push=local(), stores=stores) as wire:
        task = (await wire.send())["task"]
        answer = {"id": "c1", "name": "ticket", "response": {"ok": True}}
        parts = [{"data": answer, "metadata": {"adk_type": "function_response"}}]
        said = message(messageId="m2", taskId=task["id"], parts=parts)
        for _ in range(2):  # sent twice, it is told once
            inline = {"taskPushNotificationConfig": {"url": hook.url}}
            done = await wire.call("SendMessage", {"message": said, "configuration": inline})
            assert state(done["task"]) == "completed"
        listed = await wire.call("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
        assert len(listed["configs"]) == 1
        await hook.until(3)
        await quiet(wire)
    assert kinds(hook.bodies) == ["status working", "artifact thanks", "status completed"]


async def test_a2a_push_a_server_that_goes_down_lets_go_of_its_receivers(tmp_path: Path):
    async with hooked() as hook:
        hook.open = anyio.Event()
        async with wired("rest", echoing(), push=local(), stores=at(tmp_path), limits=Limits(shutdown_s=1.0)) as wire:
            await ordered(wire, hook, id="p")
            await hook.until(1)
            outbox = wire.server.push
        hook.open.set()
        assert not outbox.dead_letters, "nothing is given up: the next process tells it"
        store = SqlitePushes(tmp_path / "data.db")
        assert len(await store.due(["app"], 0, 5)) == 1
        await store.aclose()


async def test_T060_a_receiver_that_waits_for_room_is_looked_at_again(tmp_path: Path):
    """What was deleted, or taken over by another process, while all room was taken is not told from here."""
    async with hooked() as slow, hooked() as hook:
        slow.open = anyio.Event()
        async with wired("rest", echoing(), push=local(at_once=1), stores=at(tmp_path)) as wire:
            await ordered(wire, slow, id="slow")
            await slow.until(1)
            task = (
                await wire.send(
                    messageId="m2", configuration={"taskPushNotificationConfig": {"url": hook.url, "id": "p"}}
                )
            )["task"]
            await wire.call("DeleteTaskPushNotificationConfig", {"taskId": task["id"], "id": "p"})
            slow.open.set()
            await slow.until(4)
            await quiet(wire)
        assert not hook.got
