"""The operations of A2A without a transport: sending, follow-ups, lists, cancel, and who may see what (spec a2a 1.7-1.9)."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from polyport import LlmAgent, make_tool
from polyport.data.limits import Limits
from polyport.errors import LimitExceeded, NotFound, Unavailable
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.handler import A2aHandler
from polyport.protocols.a2a.settings import A2aSettings, ExecutorConfig
from polyport.stores.memory_tasks import MemoryTasks
from polyport.testing import ScriptedModel, call, chunks
from polyport.testing.samples import Clock
from polyport.wire.a2a import (
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from polyport.wire.a2a_errors import (
    ContentTypeNotSupported,
    ExtensionSupportRequired,
    InvalidParams,
    PushNotificationNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)
from support.a2a_talk import Caller, Gate, asked, lines, said, short, talking, texts, until

Scripted = Callable[..., tuple[LlmAgent, ScriptedModel]]


def ticket() -> None:
    """Ask a human."""


def asking(scripted: Scripted, *steps: Any) -> tuple[LlmAgent, ScriptedModel]:
    """An agent whose tool `ticket` is answered later, by the caller."""
    return scripted(*steps, tools=[make_tool(ticket, long_running=True)])


def reply_to(id: str, name: str = "ticket", **response: Any) -> list[Part]:
    return [Part(data={"id": id, "name": name, "response": response}, metadata={"adk_type": "function_response"})]


async def listed(caller: Caller, **filters: Any) -> ListTasksResponse:
    return await caller.handler.list(caller.call, ListTasksRequest(**filters))


async def send_to(task_id: str, by: Caller) -> None:
    await by.send("x", task=task_id)


# ---- sending


async def test_T011_a_first_message_gives_a_finished_task_with_artifacts(scripted: Scripted):
    agent, _ = scripted("It is sunny.")
    async with talking(agent) as caller:
        task = await caller.send("weather?")
        assert task.id and task.context_id and task.id != task.context_id
        assert (short(task), said(task)) == ("completed", "It is sunny.")
        assert await caller.get(task.id) == task


async def test_T012_FR_156_return_immediately_does_not_wait(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), "done", tools=[gate.wait])
    async with talking(agent) as caller:
        task = await caller.begin()
        assert short(task) == "submitted" and not gate.begun.is_set()
        await gate.begun.wait()
        assert short(await caller.get(task.id)) == "working"
        gate.go.set()
        assert said(await caller.until(task.id, "completed")).endswith("done")


async def test_T013_FR_155_a_blocking_send_returns_when_the_agent_asks(scripted: Scripted):
    agent, _ = asking(scripted, call("ticket", id="c1"))
    async with talking(agent) as caller:
        task = await caller.send()
        assert short(task) == "input_required"
        assert [p.data["id"] for p in asked(task)] == ["c1"]


async def test_T014_T032_a_direct_reply_makes_no_task(scripted: Scripted):
    agent, _ = scripted("a task")

    def answer(call: CallContext, request: SendMessageRequest) -> Message | None:
        return Message(parts=[Part(text="pong")]) if request.message.text == "ping" else None

    async with talking(agent, executor=ExecutorConfig(message_reply=answer)) as caller:
        found = await caller.handler.send(caller.call, caller.request("ping", context="c9"))
        assert found.task is None and found.message is not None
        assert (found.message.text, found.message.context_id, found.message.role) == ("pong", "c9", Role.AGENT)
        assert found.message.message_id
        assert lines(await caller.stream("ping")) == ["message pong"]
        assert (await listed(caller)).total_size == 0
        assert short(await caller.send("work")) == "completed"


async def test_T015_a_context_is_taken_as_it_is(scripted: Scripted):
    agent, model = scripted("one", "two")
    async with talking(agent) as caller:
        first = await caller.send("a", context="my context")
        second = await caller.send("b", context="my context")
        assert first.context_id == second.context_id == "my context"
        assert first.id != second.id
        assert model.prompt() == ["user: a", "model: one", "user: b"], "a context is a conversation"


async def test_T016_FR_148_the_context_is_that_of_the_task(scripted: Scripted):
    agent, model = asking(scripted, call("ticket", id="c1"), call("ticket", id="c2"), "all done")
    async with talking(agent) as caller:
        task = await caller.send()
        for id in ("c1", "c2"):
            updates = await caller.stream(reply_to(id, done=True), task=task.id)
            for update in updates:
                payload = update.frame.payload
                assert getattr(payload, "context_id", "") == task.context_id
                assert getattr(payload, "task_id", None) or getattr(payload, "id", None) == task.id
        task = await caller.get(task.id)
        assert (short(task), said(task)[-8:]) == ("completed", "all done")
        session = (await caller.app.runs.stores.sessions.list("app")).sessions
        assert [s.id for s in session] == [task.context_id]
    model.check()


async def test_T017_FR_145_another_context_than_that_of_the_task_is_refused(scripted: Scripted):
    agent, _ = asking(scripted, call("ticket", id="c1"))
    async with talking(agent) as caller:
        task = await caller.send()
        with pytest.raises(InvalidParams, match="contextId"):
            await caller.send("x", task=task.id, context="other")
        with pytest.raises(InvalidParams):
            await caller.stream("x", task=task.id, context="other")
        assert await caller.get(task.id) == task


async def test_T018_clients_do_not_make_task_ids(scripted: Scripted):
    agent, _ = scripted()
    async with talking(agent) as caller:
        with pytest.raises(TaskNotFound):
            await caller.send("x", task="mine")
        with pytest.raises(TaskNotFound):
            await caller.stream("x", task="mine")


async def test_T019_T055_a_task_that_has_ended_takes_no_message(scripted: Scripted):
    gate = Gate()

    def refuse(execution: Any) -> None:
        raise ValueError("secret")

    agent, _ = scripted("fine", ValueError("broken"), call("wait"), tools=[gate.wait])
    async with talking(agent) as caller:
        ended = [await caller.send(), await caller.send()]
        task = await caller.begin()
        await gate.begun.wait()
        ended.append(await caller.cancel(task.id))
        assert [short(t) for t in ended] == ["completed", "failed", "canceled"]
        for task in ended:
            with pytest.raises(UnsupportedOperation, match="has ended"):
                await caller.send("more", task=task.id)
            assert await caller.get(task.id) == task


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Message(role=Role.USER, parts=[Part(text="x")]), "message.messageId"),
        (Message(message_id="m", parts=[Part(text="x")]), "message.role"),
        (Message(message_id="m", role=Role.AGENT, parts=[Part(text="x")]), "message.role"),
        (Message(message_id="m", role=Role.USER), "message.parts"),
        (Message(message_id="m", role=Role.USER, parts=[Part()]), "message.parts[0]"),
        (Message(message_id="m", role=Role.USER, parts=[Part(text="x")], context_id="a\x00b"), "message.contextId"),
        (Message(message_id="m" * 513, role=Role.USER, parts=[Part(text="x")]), "message.messageId"),
    ],
)
async def test_T020_T021_a_bad_message_is_refused_and_makes_no_task(scripted: Scripted, message: Message, field: str):
    agent, _ = scripted()
    async with talking(agent) as caller:
        with pytest.raises(InvalidParams) as error:
            await caller.handler.send(caller.call, SendMessageRequest(message=message))
        assert [v.field for v in error.value.violations] == [field]
        assert (await listed(caller)).total_size == 0


async def test_T022_FR_164_media_types_are_checked_when_there_are_input_modes(scripted: Scripted):
    agent, _ = scripted("ok")
    async with talking(agent, settings=A2aSettings(input_modes=("text/plain",))) as caller:
        with pytest.raises(ContentTypeNotSupported, match="application/x-foo"):
            await caller.send([Part(raw=b"AAAA", media_type="application/x-foo")])
        assert short(await caller.send("text")) == "completed"


# ---- the same message again


async def test_T023_the_same_message_again_is_the_same_task(scripted: Scripted):
    agent, model = scripted("once")
    async with talking(agent) as caller:
        first = await caller.send("hi", id="same")
        assert await caller.send("hi", id="same") == first
        assert lines(await caller.stream("hi", id="same")) == ["task completed"]
        assert (await listed(caller)).total_size == 1
    assert len(model.requests) == 1


async def test_T023_the_same_message_while_it_is_worked_on(scripted: Scripted):
    gate = Gate()
    agent, model = scripted(call("wait"), "done", tools=[gate.wait])
    async with talking(agent) as caller, anyio.create_task_group() as group:
        found: list[Any] = []

        async def again(how: Callable[..., Any]) -> None:
            found.append(await how("hi", id="same"))

        group.start_soon(again, caller.send)
        await gate.begun.wait()
        group.start_soon(again, caller.send)
        group.start_soon(again, caller.stream)
        at_once = await caller.begin("hi", id="same")
        assert short(at_once) == "working"
        gate.go.set()
    ids = {getattr(f, "id", None) or f[0].frame.task.id for f in found}
    assert ids == {at_once.id}
    assert all(short(f) == "completed" for f in found if not isinstance(f, list))
    streamed = next(f for f in found if isinstance(f, list))
    assert lines(streamed)[-1] == "status completed"
    assert len(model.requests) == 2


async def test_T023_an_id_alone_does_not_make_two_messages_one(scripted: Scripted):
    agent, model = scripted("a", "b", "c", "d")
    clock = Clock()
    async with talking(agent, seams=clock.seams(), settings=A2aSettings(dedup_window_s=60)) as caller:
        tasks = [await caller.send("hi", id="1"), await caller.send("other words", id="1")]
        tasks.append(await caller.as_("bob").send("hi", id="1"))
        clock.now += 61
        tasks.append(await caller.send("hi", id="1"))
        assert len({t.id for t in tasks}) == 4
    model.check()


async def test_T023_a_follow_up_that_comes_again(scripted: Scripted):
    agent, model = asking(scripted, call("ticket", id="c1"), call("ticket", id="c2"), "done")
    async with talking(agent) as caller:
        task = await caller.send()
        answer = reply_to("c1", ok=1)
        second = await caller.send(answer, task=task.id, id="again")
        assert short(second) == "input_required" and asked(second)[0].data["id"] == "c2"
        third = await caller.send(answer, task=task.id, id="again")
        assert third == second, "the newest state, and nothing was run"
    assert len(model.requests) == 2


# ---- a task that is being worked on


async def test_T024_a_message_for_a_running_task_waits_for_its_turn(scripted: Scripted):
    gate = Gate()
    agent, model = scripted(call("wait"), "first", "second", tools=[gate.wait])
    async with talking(agent) as caller, anyio.create_task_group() as group:
        task = await caller.begin("one")
        await gate.begun.wait()
        found: list[Any] = []

        async def more() -> None:
            found.append(await caller.send("two", task=task.id))

        async def streamed() -> None:
            found.append(lines(await caller.stream("two", id="m2", task=task.id)))

        group.start_soon(more)
        await until(lambda: len(model.requests) == 1)
        while len((await caller.get(task.id)).history) < 2:
            await anyio.lowlevel.checkpoint()
        assert not found
        gate.go.set()
    assert short(found[0]) == "completed" and said(found[0]).endswith("firstsecond")
    assert model.prompt()[-1] == "user: two"
    assert [m.text for m in found[0].history] == ["one", "two"]


async def test_T024_messages_behind_one_that_fails_are_told_so(scripted: Scripted):
    gate = Gate()
    agent, model = scripted(call("wait"), ValueError("no"), tools=[gate.wait])
    async with talking(agent) as caller, anyio.create_task_group() as group:
        task = await caller.begin("one")
        await gate.begun.wait()
        found: list[Any] = []

        async def more() -> None:
            found.append(await caller.send("two", task=task.id))

        group.start_soon(more)
        while len((await caller.get(task.id)).history) < 2:
            await anyio.lowlevel.checkpoint()
        gate.go.set()
    assert short(found[0]) == "failed"
    assert len(model.requests) == 2


async def test_T024_a_waiting_message_does_not_answer_a_question_that_came_later(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(
        call("wait"), call("adk_ask", id="c1"), tools=[gate.wait, make_tool(ticket, name="adk_ask", long_running=True)]
    )
    async with talking(agent) as caller, anyio.create_task_group() as group:
        task = await caller.begin("one")
        await gate.begun.wait()
        found: list[Any] = []

        async def more() -> None:
            found.append(await caller.send("yes", task=task.id))

        group.start_soon(more)
        while len((await caller.get(task.id)).history) < 2:
            await anyio.lowlevel.checkpoint()
        gate.go.set()
    assert short(found[0]) == "input_required"
    assert asked(found[0])[-1].metadata == {"validation_error": True}


async def test_a_line_of_messages_is_bounded(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), "a", "b", tools=[gate.wait])
    async with talking(agent, settings=A2aSettings(queued_messages=1)) as caller:
        task = await caller.begin("one")
        await gate.begun.wait()
        await caller.begin("two", task=task.id)
        with pytest.raises(LimitExceeded, match="1 messages wait"):
            await caller.begin("three", task=task.id)
        gate.go.set()
        assert said(await caller.until(task.id, "completed")).endswith("ab")


async def test_two_tasks_of_one_context_run_one_after_the_other(scripted: Scripted):
    gate = Gate()
    agent, model = scripted(call("wait"), "first", "second", tools=[gate.wait])
    async with talking(agent) as caller:
        one = await caller.begin("one", context="c")
        await gate.begun.wait()
        two = await caller.begin("two", context="c")
        assert short(two) == "submitted", "accepted, though the session is busy"
        gate.go.set()
        assert said(await caller.until(two.id, "completed")) == "second"
        assert short(await caller.get(one.id)) == "completed"
    assert model.prompt()[-1] == "user: two"


async def test_a_context_that_is_busy_where_that_is_refused_rejects_the_task(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), "first", tools=[gate.wait])
    async with talking(agent, limits=Limits(on_busy="reject")) as caller:
        one = await caller.begin("one", context="c")
        await gate.begun.wait()
        two = await caller.send("two", context="c")
        assert short(two) == "rejected" and "active run" in texts(asked(two))[0]
        gate.go.set()
        assert short(await caller.until(one.id, "completed")) == "completed"


# ---- history


async def test_T025_FR_154_history_length(scripted: Scripted):
    agent, _ = asking(scripted, call("ticket", id="c1"), "done", "x", "y")
    async with talking(agent) as caller:
        task = await caller.send("one")
        task = await caller.send([Part(text="two"), *reply_to("c1", ok=1)], task=task.id)
        assert [m.role.name for m in task.history] == ["USER", "AGENT", "USER"]
        for length, count in ((0, 0), (1, 1), (2, 2), (99, 3), (None, 3)):
            assert len((await caller.get(task.id, length)).history) == count
            page = await listed(caller, history_length=length)
            assert len(page.tasks[0].history) == count
        assert (await caller.get(task.id, 1)).history[0].text == "two"
        assert (await caller.send("x", history_length=0)).history == []
        stream = await caller.stream("y", history_length=0)
        assert stream[0].frame.task is not None and stream[0].frame.task.history == []
        for ask in (
            lambda: caller.get(task.id, -1),
            lambda: listed(caller, history_length=-1),
            lambda: caller.send("z", history_length=-1),
        ):
            with pytest.raises(InvalidParams):
                await ask()


async def test_T026_history_has_each_message_once_in_order(scripted: Scripted):
    agent, _ = asking(scripted, call("ticket", id="c1"), call("ticket", id="c2"), "done")
    async with talking(agent) as caller:
        task = await caller.send("one")
        task = await caller.send("two", task=task.id)
        assert asked(task)[-1].metadata == {"validation_error": True}
        task = await caller.send([Part(text="three"), *reply_to("c1", ok=1)], task=task.id)
        task = await caller.send([Part(text="four"), *reply_to("c2", ok=1)], task=task.id)
        assert short(task) == "completed"
        assert [m.text for m in task.history if m.role is Role.USER] == ["one", "two", "three", "four"]
        assert [m.role.name for m in task.history] == ["USER", "AGENT"] * 3 + ["USER"]
        assert len({m.message_id for m in task.history}) == 7
        assert {(m.task_id, m.context_id) for m in task.history} == {(task.id, task.context_id)}


async def test_T056_times_rise_within_a_task(scripted: Scripted):
    agent, _ = asking(scripted, call("ticket", id="c1"), "done")
    clock = Clock()
    async with talking(agent, seams=clock.seams()) as caller:
        updates = await caller.stream()
        assert updates[0].frame.task is not None
        updates += await caller.stream(reply_to("c1", ok=1), task=updates[0].frame.task.id)
        times = [u.status.timestamp for u in updates if u.status is not None]
        assert lines(updates)[-3:] == ["task working", "artifact done .", "status completed"]
        assert len(times) == 5 and times == sorted(set(times))
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", t) for t in times)


# ---- get and list


async def test_T045_T051_other_callers_and_tenants_see_nothing(scripted: Scripted):
    agent, _ = asking(scripted, call("ticket", id="c1"))
    async with talking(agent) as caller:
        ann = caller.as_("ann", "t1")
        task = await ann.send()
        others = [caller, caller.as_("bob", "t1"), caller.as_("ann", "t2"), caller.as_("ann")]
        for other in others:
            told: set[str] = set()
            for id in (task.id, "no such task"):
                for step, more in (
                    (other.get, {}),
                    (other.cancel, {}),
                    (other.subscribed, {}),
                    (send_to, {"by": other}),
                ):
                    with pytest.raises(TaskNotFound) as error:
                        await step(id, **more)
                    told.add(str(error.value).replace(id, "ID"))
            assert len(told) == 1
            assert (await listed(other)).total_size == 0
        assert await ann.get(task.id) == task
        assert (await listed(ann)).total_size == 1


async def test_T069_the_tenant_of_the_request_counts_like_that_of_the_path(scripted: Scripted):
    agent, _ = scripted("x")
    async with talking(agent, settings=A2aSettings(tenants=("t1",))) as caller:
        task = await caller.as_("ann", "t1").send()
        nobody = CallContext(caller="ann")
        found = await caller.handler.get(nobody, GetTaskRequest(id=task.id, tenant="t1"))
        assert found == task
        with pytest.raises(NotFound, match="tenant"):
            await caller.handler.get(nobody, GetTaskRequest(id=task.id, tenant="t2"))
        path_wins = CallContext(caller="ann", tenant="t1")
        assert await caller.handler.get(path_wins, GetTaskRequest(id=task.id, tenant="t2")) == task


async def test_T046_T050_FR_153_lists(scripted: Scripted):
    agent, _ = scripted(*[f"answer {n}" for n in range(52)])
    async with talking(agent) as caller:
        empty = await listed(caller)
        assert (empty.tasks, empty.next_page_token, empty.page_size, empty.total_size) == ([], "", 50, 0)
        made = [(await caller.send(f"q{n}", context=f"c{n % 2}")).id for n in range(52)]
        page = await listed(caller)
        assert (len(page.tasks), page.page_size, page.total_size) == (50, 50, 52)
        assert [t.id for t in page.tasks] == made[:1:-1]
        rest = await listed(caller, page_token=page.next_page_token)
        assert [t.id for t in rest.tasks] == [made[1], made[0]] and rest.next_page_token == ""
        assert all(t.artifacts is None for t in page.tasks)
        shown = await listed(caller, include_artifacts=True, page_size=1)
        assert said(shown.tasks[0]) == "answer 51"
        assert (await listed(caller, context_id="c1", page_size=3)).total_size == 26


async def test_T050_a_task_without_artifacts_shows_an_empty_list_when_asked(scripted: Scripted):
    agent, _ = asking(scripted, call("ticket", id="c1"))
    async with talking(agent) as caller:
        await caller.send()
        assert (await listed(caller, include_artifacts=True)).tasks[0].artifacts == []


async def test_T047_bad_pages(scripted: Scripted):
    agent, _ = scripted()
    async with talking(agent) as caller:
        for wrong in (
            {"page_size": 0},
            {"page_size": 101},
            {"page_size": -1},
            {"page_token": "garbage"},
            {"status_timestamp_after": "yesterday"},
        ):
            with pytest.raises(InvalidParams):
                await listed(caller, **wrong)


async def test_T049_filters(scripted: Scripted):
    clock = Clock()
    agent, _ = asking(scripted, "one", call("ticket", id="c1"), "three")
    async with talking(agent, seams=clock.seams()) as caller:
        tasks = []
        for context in ("c1", "c1", "c2"):
            tasks.append(await caller.send(context=context))
            clock.now += 10
        assert [t.id for t in (await listed(caller, status=TaskState.COMPLETED)).tasks] == [tasks[2].id, tasks[0].id]
        assert [t.id for t in (await listed(caller, context_id="c1")).tasks] == [tasks[1].id, tasks[0].id]
        after = tasks[1].status.timestamp
        assert [t.id for t in (await listed(caller, status_timestamp_after=after)).tasks] == [tasks[2].id, tasks[1].id]
        later = after.replace("Z", "001Z")
        assert [t.id for t in (await listed(caller, status_timestamp_after=later)).tasks] == [tasks[2].id]
        found = await listed(caller, status=TaskState.INPUT_REQUIRED, context_id="c1", status_timestamp_after=after)
        assert [t.id for t in found.tasks] == [tasks[1].id]
        assert (await listed(caller, status=TaskState.UNSPECIFIED)).total_size == 3


# ---- cancel


async def test_T052_cancel_stops_the_tool_that_runs(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), tools=[gate.wait])
    async with talking(agent) as caller, anyio.create_task_group() as group:
        found: list[Any] = []

        async def streaming() -> None:
            found.append(lines(await caller.stream(id="s")))

        group.start_soon(streaming)
        await gate.begun.wait()
        task = (await listed(caller)).tasks[0]
        canceled = await caller.cancel(task.id)
        assert short(canceled) == "canceled"
        assert gate.cancelled.is_set(), "the work has stopped when the answer is there"
    assert found[0][-1] == "status canceled"
    assert found[0].count("status canceled") == 1


async def test_T052_cancel_stops_the_model(scripted: Scripted):
    begun, stopped = anyio.Event(), anyio.Event()

    async def think(request: Any, on_partial: Any) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        return ""

    agent, _ = scripted(think)
    async with talking(agent) as caller:
        task = await caller.begin()
        await begun.wait()
        assert short(await caller.cancel(task.id)) == "canceled" and stopped.is_set()


async def test_T052_cancel_of_a_task_whose_turn_has_not_come(scripted: Scripted):
    gate = Gate()
    agent, model = scripted(call("wait"), "first", tools=[gate.wait])
    async with talking(agent) as caller:
        one = await caller.begin("one", context="c")
        await gate.begun.wait()
        two = await caller.begin("two", context="c")
        assert short(await caller.cancel(two.id)) == "canceled"
        gate.go.set()
        assert short(await caller.until(one.id, "completed")) == "completed"
        assert short(await caller.get(two.id)) == "canceled"
    assert len(model.requests) == 2


@pytest.mark.parametrize("steps", range(6))
async def test_T052_cancel_right_after_the_beginning(scripted: Scripted, steps: int):
    agent, _ = scripted("one", "two", "three")
    async with talking(agent) as caller:
        task = await caller.begin("a", context="c")
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        with suppress(TaskNotCancelable):
            await caller.cancel(task.id)
        ended = await caller.get(task.id)
        assert short(ended) in ("canceled", "completed")
        assert short(await caller.send("b", context="c")) == "completed"
        assert await caller.get(task.id) == ended


async def test_T053_cancel_of_a_task_that_has_ended(scripted: Scripted):
    agent, _ = asking(scripted, "done", call("ticket", id="c1"))
    async with talking(agent) as caller:
        done = await caller.send()
        with pytest.raises(TaskNotCancelable, match="COMPLETED"):
            await caller.cancel(done.id)
        waiting = await caller.send()
        first = await caller.cancel(waiting.id)
        assert short(first) == "canceled" and first.history[-1].role is Role.AGENT
        assert await caller.cancel(waiting.id) == first
        assert await caller.get(done.id) == done


async def test_T053_cancelling_twice_can_be_an_error(scripted: Scripted):
    agent, _ = asking(scripted, call("ticket", id="c1"))
    async with talking(agent, settings=A2aSettings(cancel_twice=False)) as caller:
        task = await caller.send()
        await caller.cancel(task.id)
        with pytest.raises(TaskNotCancelable):
            await caller.cancel(task.id)


@pytest.mark.parametrize("steps", range(12))
async def test_T054_FR_143_cancel_and_completion_race(scripted: Scripted, steps: int):
    """Cancel comes after so many steps of the event loop: before, while and after the run ends."""
    gate = Gate()
    agent, _ = scripted(call("wait"), chunks("a", "b"), tools=[gate.wait])
    async with talking(agent) as caller:
        task = await caller.begin()
        await gate.begun.wait()
        gate.go.set()
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        try:
            found = await caller.cancel(task.id)
            assert short(found) == "canceled"
        except TaskNotCancelable:
            found = await caller.get(task.id)
            assert short(found) == "completed"
        for _ in range(30):
            await anyio.lowlevel.checkpoint()
        assert await caller.get(task.id) == found, "an end is an end"


# ---- what is admitted


@pytest.mark.parametrize("version", ["1.0", "1.0.7", "0.3", ""])
async def test_T066_versions_that_are_served(scripted: Scripted, version: str):
    agent, _ = scripted("x")
    async with talking(agent) as caller:
        caller.call = CallContext(version=version)
        assert short(await caller.send()) == "completed"


@pytest.mark.parametrize("version", ["1.5", "2.0", "abc", "99.0"])
async def test_T066_FR_149_versions_that_are_not(scripted: Scripted, version: str):
    agent, _ = scripted()
    async with talking(agent) as caller:
        caller.call = CallContext(version=version)
        for step in (
            caller.send,
            caller.stream,
            lambda: caller.get("x"),
            lambda: listed(caller),
            lambda: caller.cancel("x"),
        ):
            with pytest.raises(VersionNotSupported):
                await step()


async def test_T067_no_version_is_0_3_where_that_is_taken_strictly(scripted: Scripted):
    agent, _ = scripted()
    async with talking(agent, settings=A2aSettings(strict_version=True, versions=("1.0",))) as caller:
        caller.call = CallContext(version="")
        with pytest.raises(VersionNotSupported, match=r"0\.3"):
            await caller.send()


async def test_T068_a_required_extension(scripted: Scripted):
    agent, _ = scripted("x")
    settings = A2aSettings(required_extensions=("urn:must",), extensions=("urn:may",))
    async with talking(agent, settings=settings) as caller:
        for step in (caller.send, caller.stream, lambda: caller.get("x"), lambda: listed(caller)):
            with pytest.raises(ExtensionSupportRequired, match="urn:must"):
                await step()
        caller.call = CallContext(extensions=("urn:other", "urn:must", "urn:may"))
        assert caller.handler.admit(caller.call) == ("urn:must", "urn:may")
        assert short(await caller.send()) == "completed"


async def test_T037_streams_can_be_off(scripted: Scripted):
    agent, _ = scripted("x")
    async with talking(agent, settings=A2aSettings(streaming=False)) as caller:
        task = await caller.send()
        for step in (caller.stream, lambda: caller.subscribed(task.id)):
            with pytest.raises(UnsupportedOperation, match="stream"):
                await step()


async def test_T064_FR_187_push_can_be_off(scripted: Scripted):
    agent, _ = scripted()
    config = TaskPushNotificationConfig(task_id="t", url="https://example.com")
    async with talking(agent) as caller:
        request = caller.request()
        configured = SendMessageConfiguration(task_push_notification_config=config)
        request = SendMessageRequest(message=request.message, configuration=configured)
        for step in (
            lambda: caller.handler.create_push_config(caller.call, config),
            lambda: caller.handler.send(caller.call, request),
        ):
            with pytest.raises(PushNotificationNotSupported):
                await step()
        assert (await listed(caller)).total_size == 0


async def test_FR_169_a_handler_that_does_not_serve_says_so(scripted: Scripted):
    agent, _ = scripted()
    async with talking(agent) as caller:
        other = A2aHandler("app", caller.parts, MemoryTasks())
        with pytest.raises(Unavailable, match="lifespan"):
            await other.send(caller.call, caller.request())
