"""A2A on several replicas that share a database and a cluster: what one works on, the others see, stop, and add to."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from polyport import FunctionAgent, LlmAgent, make_tool
from polyport.data.content import model_text
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.ports.agent import RunContext
from polyport.protocols.a2a.mount import A2a
from polyport.protocols.a2a.settings import A2aSettings
from polyport.testing import ScriptedModel, call
from polyport.wire.a2a import ListTasksRequest, Part
from polyport.wire.a2a_errors import UnsupportedOperation
from support.a2a_replicas import Ear, Together
from support.a2a_talk import Caller, Gate, asked, lines, said, short, until
from support.postgres import server


def ticket() -> None:
    """Ask a human."""


TICKET = make_tool(ticket, long_running=True)
Scripted = Callable[..., tuple[LlmAgent, ScriptedModel]]


@pytest.fixture(params=["sqlite", "postgres"])
def together(request: pytest.FixtureRequest, tmp_path: Path) -> Together:
    if request.param == "sqlite":
        return Together(f"sqlite:///{tmp_path}/all.db")
    return Together(server().url(server().new_database()))


async def said_times(caller: Caller, task_id: str, count: int) -> None:
    """Wait until so many messages are in a task's history."""
    with anyio.fail_after(20):
        while len((await caller.get(task_id)).history) < count:
            await anyio.lowlevel.checkpoint()


def reply_to(id: str, name: str = "ticket") -> list[Part]:
    return [Part(data={"id": id, "name": name, "response": {"ok": 1}}, metadata={"adk_type": "function_response"})]


async def test_a_subscriber_at_another_replica_sees_everything_once(scripted: Scripted, together: Together):
    gate = Gate()
    agent, _ = scripted(call("wait", id="c1"), "done", tools=[gate.wait])
    other, _ = scripted(tools=[gate.wait])
    ear = Ear()
    async with together.replica(agent) as here, together.replica(other) as there, anyio.create_task_group() as group:
        task = await here.begin("go")
        await gate.begun.wait()
        group.start_soon(ear.listen, there, task.id)
        await ear.open.wait()
        assert short(await there.get(task.id)) == "working"
        gate.go.set()
        await until(lambda: ear.frames and lines(ear.frames)[-1] == "status completed")
        assert lines(ear.frames) == ["task working", "artifact {data} .", "artifact done .", "status completed"]
        versions = [u.version for u in ear.frames]
        assert versions == list(range(versions[0], versions[0] + 4)), "no gap, and nothing twice"
        assert said(await there.get(task.id)) == "done"


async def test_cancel_at_another_replica_stops_the_work(scripted: Scripted, together: Together):
    gate = Gate()
    agent, _ = scripted(call("wait", id="c1"), tools=[gate.wait])
    other, _ = scripted(tools=[gate.wait])
    async with together.replica(agent) as here, together.replica(other) as there, anyio.create_task_group() as group:
        results: list[Any] = []

        async def send() -> None:
            results.append(await here.send("go", context="c"))

        group.start_soon(send)
        await gate.begun.wait()
        task_id = (await there.handler.list(there.call, ListTasksRequest())).tasks[0].id
        assert short(await there.cancel(task_id)) == "canceled"
        assert gate.cancelled.is_set()
        assert short(await here.get(task_id)) == "canceled"
        await until(lambda: results)
        assert short(results[0]) == "canceled"


async def test_a_message_for_a_task_that_another_replica_works_on_is_answered_once(
    scripted: Scripted, together: Together
):
    gate = Gate()
    agent, model = scripted(call("wait", id="c1"), "first", "second", tools=[gate.wait])
    other, _ = scripted(tools=[gate.wait])
    async with together.replica(agent) as here, together.replica(other) as there, anyio.create_task_group() as group:
        task = await here.begin("go")
        await gate.begun.wait()
        results: list[Any] = []

        async def send(again: Caller) -> None:
            results.append(await again.send("and this", task=task.id, id="late"))

        group.start_soon(send, there)
        group.start_soon(send, there)
        await said_times(here, task.id, 2)
        assert not results
        gate.go.set()
        await until(lambda: len(results) == 2)
        for found in results:
            assert short(found) == "completed" and said(found) == "firstsecond"
            assert [m.text for m in found.history] == ["go", "and this"]
    assert model.prompt()[-1] == "user: and this"
    model.check()


async def test_a_stream_at_another_replica_ends_with_the_answer_to_its_message(scripted: Scripted, together: Together):
    gate = Gate()
    agent, _ = scripted(call("wait", id="c1"), "first", call("ticket", id="c2"), tools=[gate.wait, TICKET])
    other, _ = scripted(tools=[gate.wait, TICKET])
    async with together.replica(agent) as here, together.replica(other) as there, anyio.create_task_group() as group:
        task = await here.begin("go")
        await gate.begun.wait()
        found: list[Any] = []

        async def stream() -> None:
            found.extend(await there.stream("and this", task=task.id))

        group.start_soon(stream)
        await said_times(here, task.id, 2)
        gate.go.set()
        await until(lambda: found)
        assert lines(found)[0] == "task working" and lines(found)[-1] == "status input_required"
        assert "artifact first ." in lines(found)
        await there.cancel(task.id)
        assert short(await here.get(task.id)) == "canceled"


async def test_T024_a_message_from_another_replica_does_not_answer_a_question_that_came_later(
    scripted: Scripted, together: Together
):
    gate = Gate()
    agent, _ = scripted(call("wait"), call("ticket", id="c1"), tools=[gate.wait, TICKET])
    other, _ = scripted(tools=[gate.wait, TICKET])
    ear = Ear()
    async with together.replica(agent) as here, together.replica(other) as there, anyio.create_task_group() as group:
        task = await here.begin("one")
        await gate.begun.wait()
        group.start_soon(ear.listen, here, task.id)
        await ear.open.wait()
        found: list[Any] = []

        async def more() -> None:
            found.append(await there.send("yes", task=task.id))

        group.start_soon(more)
        await said_times(here, task.id, 2)
        gate.go.set()
        await until(lambda: found)
        assert short(found[0]) == "input_required"
        assert asked(found[0])[-1].metadata == {"validation_error": True}
        states = [line for line in lines(ear.frames) if line.startswith("status")]
        assert states == ["status input_required", "status working", "status input_required"], "it never rests between"
        await here.cancel(task.id)


async def test_a_task_that_asks_is_answered_at_another_replica(scripted: Scripted, together: Together):
    agent, _ = scripted(call("ticket", id="c1"), tools=[TICKET])
    other, model = scripted("done", tools=[TICKET])
    ear = Ear()
    async with together.replica(agent) as here, together.replica(other) as there, anyio.create_task_group() as group:
        task = await here.send("please")
        assert short(task) == "input_required"
        group.start_soon(ear.listen, here, task.id)
        await ear.open.wait()
        done = await there.send(reply_to("c1"), task=task.id)
        assert (short(done), said(done)) == ("completed", "done")
        await until(lambda: ear.frames and lines(ear.frames)[-1] == "status completed")
        assert lines(ear.frames) == ["task input_required", "status working", "artifact done .", "status completed"]
        with pytest.raises(UnsupportedOperation):
            await here.send("more", task=task.id)
    model.check()


async def test_T108_the_same_message_to_two_replicas_is_one_task_and_one_run(scripted: Scripted, together: Together):
    gate = Gate()
    agents = [scripted(call("wait", id="c1"), "said", tools=[gate.wait]) for _ in range(2)]
    found: list[Any] = []
    async with (
        together.replica(agents[0][0]) as one,
        together.replica(agents[1][0]) as two,
        anyio.create_task_group() as group,
    ):

        async def send(caller: Caller) -> None:
            found.append(await caller.send("go", id="same"))

        for caller in (one, two, one, two):
            group.start_soon(send, caller)
        await gate.begun.wait()
        gate.go.set()
        await until(lambda: len(found) == 4)
        assert len({task.id for task in found}) == 1
        assert {(short(task), said(task)) for task in found} == {("completed", "said")}, "all wait for the one run"
    assert sum(len(model.requests) for _, model in agents) == 2


async def test_T108_the_same_follow_up_to_two_replicas_is_one_message(scripted: Scripted, together: Together):
    agents = [scripted(call("ticket", id="c1"), "done", tools=[TICKET]), scripted("done", tools=[TICKET])]
    found: list[Any] = []
    async with (
        together.replica(agents[0][0]) as one,
        together.replica(agents[1][0]) as two,
        anyio.create_task_group() as group,
    ):
        task = await one.send("please")

        async def send(caller: Caller) -> None:
            found.append(await caller.send(reply_to("c1"), task=task.id, id="same"))

        for caller in (two, one, two, one):
            group.start_soon(send, caller)
        await until(lambda: len(found) == 4)
        assert {(short(task), said(task), len(task.history)) for task in found} == {("completed", "done", 3)}
    assert sum(len(model.requests) for _, model in agents) == 2


async def test_T109_what_another_replica_works_on_is_not_taken_up(scripted: Scripted, together: Together):
    gate = Gate()
    agent, model = scripted(call("wait", id="c1"), "done", tools=[gate.wait])
    other, idle = scripted(tools=[gate.wait])
    async with together.replica(agent) as here:
        task = await here.begin("go", context="c")
        await gate.begun.wait()
        waiting = await here.begin("go", context="c", id="m2")
        async with together.replica(other) as there:
            assert await there.handler.recover() == 0
            await there.cancel(waiting.id)
            gate.go.set()
            await here.until(task.id, "completed")
    model.check()
    assert not idle.requests


async def test_T109_a_task_that_was_left_is_taken_up_by_one_replica(scripted: Scripted, together: Together):
    gate = Gate()
    agent, _ = scripted(call("wait", id="c1"), tools=[gate.wait])
    others = [scripted("done", "second", tools=[gate.wait]) for _ in range(2)]
    ear = Ear()
    async with (
        together.replica(others[0][0]) as two,
        together.replica(others[1][0]) as three,
        anyio.create_task_group() as group,
    ):
        async with together.replica(agent, limits=Limits(shutdown_s=0)) as one:
            task = await one.begin("go")
            await gate.begun.wait()
            await one.begin("go on", task=task.id)
            group.start_soon(ear.listen, three, task.id)
            await ear.open.wait()
        async with anyio.create_task_group() as both:
            both.start_soon(two.handler.recover)
            both.start_soon(three.handler.recover)
        await until(lambda: ear.frames and lines(ear.frames)[-1] == "status completed")
        after = await two.get(task.id)
        assert said(after).endswith("donesecond") and lines(ear.frames)[-2:] == [
            "artifact second .",
            "status completed",
        ]
    assert sorted(len(model.requests) for _, model in others) == [0, 2]


async def test_T024_messages_to_all_replicas_at_once_are_each_answered_once(scripted: Scripted, together: Together):
    """Whichever replica works on the task just then: it ends with the last message that came before its end."""
    heard: list[str] = []

    async def echo(ctx: RunContext) -> AsyncGenerator[Event]:
        text = ctx.user_content.text if ctx.user_content is not None else ""
        heard.append(text)
        yield Event(content=model_text(f"<{text}>"))

    taken: list[str] = []
    agent, a2a = FunctionAgent(name="app", function=echo), A2a(settings=A2aSettings(queued_messages=100))
    async with (
        together.replica(agent, a2a=a2a) as one,
        together.replica(agent, a2a=a2a) as two,
        together.replica(agent, a2a=a2a) as three,
    ):
        task = await one.begin("0")

        async def send(caller: Caller, text: str) -> None:
            try:
                found = await caller.send(text, task=task.id, id=text)
            except UnsupportedOperation:  # it had ended
                return
            taken.append(text)
            assert short(found) == "completed" and f"<{text}>" in said(found)

        async with anyio.create_task_group() as group:
            for number in range(1, 25):
                group.start_soon(send, (one, two, three)[number % 3], str(number))
        after = await two.until(task.id, "completed")
        assert sorted(m.text for m in after.history) == sorted(["0", *taken]) == sorted(heard)
        assert said(after) == "".join(f"<{m.text}>" for m in after.history)
    assert len(taken) > 3
