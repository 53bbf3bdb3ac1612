"""Tasks and their streams: what readers see, that nothing is lost, what a restart and time do to them (spec a2a 1.8, 5.4)."""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs

from polyport import LlmAgent, SequentialAgent, make_tool
from polyport.data.content import model_text
from polyport.data.limits import Limits
from polyport.data.model import ModelResponse
from polyport.errors import BadRequest, LimitExceeded, Unavailable
from polyport.ports.stores import Stores
from polyport.ports.tasks import TaskHead, TaskScope, TaskStore, TaskUpdate
from polyport.protocols.a2a.fold import TaskView, Update
from polyport.protocols.a2a.settings import A2aSettings, ExecutorConfig
from polyport.stores.memory import MemorySessions
from polyport.stores.memory_tasks import MemoryTasks
from polyport.stores.sqlite import SqliteSessions
from polyport.stores.sqlite_tasks import SqliteTasks
from polyport.testing import ScriptedModel, call, chunks
from polyport.testing.samples import Clock
from polyport.wire.a2a import (
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    Part,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from polyport.wire.a2a_errors import TaskNotFound, UnsupportedOperation
from support.a2a_talk import Caller, Gate, asked, line, lines, said, short, talking, texts, until

Scripted = Callable[..., tuple[LlmAgent, ScriptedModel]]


def ticket() -> None:
    """Ask a human."""


TICKET = make_tool(ticket, long_running=True)


def reply_to(id: str, name: str = "ticket") -> list[Part]:
    return [Part(data={"id": id, "name": name, "response": {"ok": 1}}, metadata={"adk_type": "function_response"})]


def told(updates: Sequence[Update]) -> Task:
    """The task as a client sees it who adds up a stream."""
    first = updates[0].frame.task
    assert first is not None
    view = TaskView(first)
    for update in updates[1:]:
        view.apply(update.frame)
    return view.snapshot()


class Ear:
    """A subscriber that reads on its own; `frames` is what it got."""

    def __init__(self) -> None:
        self.frames: list[Update] = []
        self.open = anyio.Event()
        self.ended = False

    async def listen(self, caller: Caller, task_id: str) -> None:
        async with caller.handler.subscribe(caller.call, SubscribeToTaskRequest(id=task_id)) as stream:
            async for batch in stream:
                self.frames.extend(batch)
                self.open.set()
        self.ended = True


@asynccontextmanager
async def ears(caller: Caller, task_id: str, count: int = 1) -> AsyncGenerator[list[Ear]]:
    """So many subscribers; the block ends when their streams have."""
    found = [Ear() for _ in range(count)]
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for ear in found:
                group.start_soon(ear.listen, caller, task_id)
                await ear.open.wait()
            yield found


# ---- streams


async def test_T031_a_stream_begins_with_the_task_and_ends_with_its_end(scripted: Scripted):
    agent, _ = scripted("hello")
    async with talking(agent) as caller:
        updates = await caller.stream()
        assert lines(updates) == ["task submitted", "status working", "artifact hello .", "status completed"]
        assert [u.version for u in updates] == [1, 2, 3, 4]


async def test_T031_FR_158_an_agent_that_ends_at_once(scripted: Scripted):
    agent, _ = scripted(*["quick"] * 20)
    async with talking(agent) as caller:
        for number in range(20):
            updates = await caller.stream(f"q{number}")
            assert lines(updates) == ["task submitted", "status working", "artifact quick .", "status completed"]


async def test_the_json_of_a_frame_is_that_of_the_store(scripted: Scripted):
    agent, _ = scripted("hello")
    store = MemoryTasks()
    async with talking(agent, tasks=store) as caller:
        updates = await caller.stream()
        task = updates[0].frame.task
        assert task is not None
        stored = await store.get(TaskScope("app"), task.id)
        assert [u.json for u in updates] == [c.body for c in stored.changes]


async def test_T034_all_readers_see_the_same(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), chunks("a", "b", "c"), tools=[gate.wait])
    async with talking(agent) as caller, anyio.create_task_group() as group:
        sender: list[Update] = []

        async def send() -> None:
            sender.extend(await caller.stream())

        group.start_soon(send)
        await gate.begun.wait()
        task = (await caller.handler.list(caller.call, _all())).tasks[0]
        async with ears(caller, task.id, 3) as found:
            gate.go.set()
    for ear in found:
        assert line(ear.frames[0]) == "task working"
        assert lines(ear.frames[1:]) == lines(sender)[-len(ear.frames) + 1 :]
        assert lines(ear.frames)[2:] == [
            "artifact a",
            "artifact + b",
            "artifact + c",
            "artifact abc .",
            "status completed",
        ]


async def test_T035_FR_139_a_sender_that_hangs_up_changes_nothing(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), chunks("a", "b"), tools=[gate.wait])
    async with talking(agent) as caller:
        async with caller.handler.send_stream(caller.call, caller.request()) as stream:
            async for batch in stream:
                assert batch[0].frame.task is not None
                task_id = batch[0].frame.task.id
                break
        await gate.begun.wait()
        assert not gate.cancelled.is_set()
        async with ears(caller, task_id) as found:
            gate.go.set()
        assert line(found[0].frames[-1]) == "status completed"
        assert said(await caller.get(task_id)).endswith("ab")


@pytest.mark.parametrize("steps", range(14))
async def test_T036_FR_141_a_snapshot_and_what_follows_have_no_gap_and_no_double(scripted: Scripted, steps: int):
    """Subscribed after so many steps of the event loop, a reader that adds up frames has what the task is."""
    gate = Gate()
    agent, _ = scripted(call("wait"), chunks("a", "b", "c"), tools=[gate.wait])
    async with talking(agent) as caller, anyio.create_task_group() as group:
        sender: list[Update] = []

        async def send() -> None:
            sender.extend(await caller.stream())

        group.start_soon(send)
        await gate.begun.wait()
        task = (await caller.handler.list(caller.call, _all())).tasks[0]
        gate.go.set()
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        try:
            reader = await caller.subscribed(task.id)
        except UnsupportedOperation:
            reader = []
    final = await caller.get(task.id)
    assert said(final).endswith("abc") and "a" not in said(final)[:-3].replace("waited", "").replace("wait", "")
    assert lines(reader[1:]) == (lines(sender)[-len(reader) + 1 :] if len(reader) > 1 else [])
    if reader:
        assert _without_previews(told(reader)) == final
    assert _without_previews(told(sender)) == final


def _without_previews(task: Task) -> Task:
    """A client of ADK drops the artifacts that were only streamed."""
    kept = [a for a in task.artifacts or () if not (a.metadata or {}).get("adk_partial")]
    return structs.replace(task, artifacts=kept)


def _all() -> ListTasksRequest:
    return ListTasksRequest()


async def test_T036_a_reader_in_the_middle_of_tokens_gets_those_before_it(scripted: Scripted):
    """One artifact per event is streamed into: the snapshot has the beginning of the sentence."""
    half, go = anyio.Event(), anyio.Event()

    async def slow(request: Any, on_partial: Any) -> Any:
        await on_partial(_piece("one "))
        await on_partial(_piece("two "))
        half.set()
        await go.wait()
        await on_partial(_piece("three"))
        return "one two three"

    agent, _ = scripted(slow)
    config = ExecutorConfig(output="artifact-per-event")
    async with talking(agent, executor=config) as caller:
        task = await caller.begin()
        await half.wait()
        await until_said(caller, task.id, "one two ")
        async with ears(caller, task.id) as found:
            go.set()
        frames = found[0].frames
        assert said(frames[0].frame.task) == "one two "
        assert lines(frames[1:]) == ["artifact + three", "artifact one two three .", "status completed"]
        assert said(await caller.get(task.id)) == "one two three" == said(told(frames))


def _piece(text: str) -> ModelResponse:
    return ModelResponse(content=model_text(text), partial=True)


async def until_said(caller: Caller, task_id: str, text: str) -> None:
    with anyio.fail_after(20):
        while said(await caller.get(task_id)) != text:
            await anyio.lowlevel.checkpoint()


async def test_T037_subscribe_to_what_has_ended_or_is_not_there(scripted: Scripted):
    agent, _ = scripted("done")
    async with talking(agent) as caller:
        task = await caller.send()
        with pytest.raises(UnsupportedOperation, match="COMPLETED"):
            await caller.subscribed(task.id)
        with pytest.raises(TaskNotFound):
            await caller.subscribed("none")


async def test_T038_FR_159_a_subscription_stays_open_while_the_task_asks(scripted: Scripted):
    agent, _ = scripted(call("ticket", id="c1"), call("ticket", id="c2"), "done", tools=[TICKET])
    async with talking(agent) as caller:
        sent = await caller.stream()
        assert lines(sent)[-1] == "status input_required", "the sender's stream ends where the agent asks"
        assert sent[0].frame.task is not None
        task_id = sent[0].frame.task.id
        async with ears(caller, task_id) as found:
            assert line(found[0].frames[0]) == "task input_required"
            follow = await caller.stream(reply_to("c1"), task=task_id)
            assert lines(follow) == ["task working", "status input_required"]
            assert not found[0].ended
            await caller.send(reply_to("c2"), task=task_id)
        assert lines(found[0].frames) == [
            "task input_required",
            "status working",
            "status input_required",
            "status working",
            "artifact done .",
            "status completed",
        ]
        assert told(found[0].frames).status == (await caller.get(task_id)).status


async def test_T038_a_canceled_task_ends_its_subscriptions(scripted: Scripted):
    agent, _ = scripted(call("ticket", id="c1"), tools=[TICKET])
    async with talking(agent) as caller:
        task = await caller.send()
        async with ears(caller, task.id, 2) as found:
            await caller.cancel(task.id)
        assert [lines(e.frames)[-1] for e in found] == ["status canceled"] * 2


async def test_T039_a_reader_that_does_not_read_is_told_and_holds_up_nobody(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), chunks(*["x"] * 300), tools=[gate.wait])
    async with talking(agent, settings=A2aSettings(feed_items=100)) as caller:
        task = await caller.begin()
        await gate.begun.wait()
        async with caller.handler.subscribe(caller.call, SubscribeToTaskRequest(id=task.id)) as stream:
            await anext(stream)
            gate.go.set()
            assert short(await caller.until(task.id, "completed")) == "completed"
            with pytest.raises(LimitExceeded, match="subscribe to it again"):
                await anext(stream)


async def test_T039_what_all_readers_have_read_is_not_kept(scripted: Scripted):
    async def talk(request: Any, on_partial: Any) -> str:
        for _ in range(1000):
            await on_partial(_piece("x"))
            await anyio.lowlevel.checkpoint()
        return "y"

    agent, _ = scripted(talk)
    async with talking(agent, settings=A2aSettings(feed_items=80)) as caller:
        updates = await caller.stream()
        assert lines(updates).count("artifact + x") == 999 and line(updates[-1]) == "status completed"


async def test_T040_chunks_joined_are_the_artifact(scripted: Scripted):
    agent, _ = scripted(chunks("a", "b", "c"))
    async with talking(agent) as caller:
        updates = await caller.stream()
        shown = [u.frame.artifact_update for u in updates if u.frame.artifact_update is not None]
        assert [(u.append, u.last_chunk) for u in shown] == [
            (False, False),
            (True, False),
            (True, False),
            (False, True),
        ]
        joined = "".join(texts(p for u in shown[:3] for p in u.artifact.parts))
        assert len({u.artifact.artifact_id for u in shown}) == 1
        assert joined == said(await caller.get(updates[0].frame.task.id)) == "abc"


# ---- a slow or broken store


class SlowTasks(MemoryTasks):
    """Takes a few steps of the event loop for everything; fails when told to."""

    instant = False
    broken = False

    async def append(self, scope: TaskScope, task_id: str, version: int, update: TaskUpdate) -> TaskHead:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        if self.broken:
            raise Unavailable("the disk is full")
        return await super().append(scope, task_id, version, update)


@pytest.mark.parametrize("steps", range(0, 40, 3))
async def test_FR_140_hanging_up_at_any_moment_leaves_no_task_half_done(scripted: Scripted, steps: int):
    agent, _ = scripted("answer")
    async with talking(agent, tasks=SlowTasks()) as caller:
        async with anyio.create_task_group() as group:
            group.start_soon(caller.send)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        for task in (await caller.handler.list(caller.call, _all())).tasks:
            assert said(await caller.until(task.id, "completed")) == "answer"


async def test_T036_readers_with_a_slow_store(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), chunks("a", "b"), tools=[gate.wait])
    async with talking(agent, tasks=SlowTasks()) as caller:
        task = await caller.begin()
        await gate.begun.wait()
        async with ears(caller, task.id, 4) as found:
            gate.go.set()
        final = await caller.get(task.id)
        for ear in found:
            assert _without_previews(told(ear.frames)) == final


async def test_a_store_that_breaks_is_told_to_those_who_wait(scripted: Scripted, caplog: pytest.LogCaptureFixture):
    gate = Gate()
    agent, _ = scripted(call("wait"), "x", tools=[gate.wait])
    store = SlowTasks()
    async with talking(agent, tasks=store) as caller, anyio.create_task_group() as group:
        problems: list[Exception] = []

        async def waiting(how: Callable[..., Any], *args: Any, **more: Any) -> None:
            try:
                await how(*args, **more)
            except Unavailable as error:
                problems.append(error)

        group.start_soon(lambda: waiting(caller.send, id="m"))
        await gate.begun.wait()
        task = (await caller.handler.list(caller.call, _all())).tasks[0]
        group.start_soon(lambda: waiting(caller.subscribed, task.id))
        group.start_soon(lambda: waiting(caller.stream, id="m"))
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        store.broken = True
        gate.go.set()
        await until(lambda: len(problems) == 3)
        assert {str(p) for p in problems} == {"the disk is full"}
        store.broken = False
        assert short(await caller.get(task.id)) == "working", "what is stored is what counts"


# ---- other processes


async def test_T054_two_processes_on_one_store_have_one_end(scripted: Scripted):
    """The second handler stands for another process: it shares the store and nothing else."""
    gate = Gate()
    agent, _ = scripted(call("wait"), "late", tools=[gate.wait])
    other, _ = scripted(name="app")
    store = MemoryTasks()
    async with (
        talking(agent, tasks=store) as here,
        talking(other, tasks=store) as there,
        anyio.create_task_group() as g,
    ):
        frames: list[str] = []

        async def listen() -> None:
            frames.extend(lines(await here.stream()))

        g.start_soon(listen)
        await gate.begun.wait()
        task = (await there.handler.list(there.call, _all())).tasks[0]
        assert short(await there.cancel(task.id)) == "canceled"
        gate.go.set()
        await until(lambda: frames and frames[-1] == "status canceled")
        assert short(await here.get(task.id)) == "canceled" and said(await here.get(task.id)) == ""
        assert short(await there.get(task.id)) == "canceled"


async def test_a_task_that_waits_is_taken_up_by_another_process(scripted: Scripted, tmp_path: Path):
    agent, _ = scripted(call("ticket", id="c1"), tools=[TICKET])
    other, model = scripted("done", tools=[TICKET])
    sessions = MemorySessions()
    store = MemoryTasks()
    async with talking(agent, tasks=store, stores=Stores(sessions)) as here:
        task = await here.send("please")
        async with talking(other, tasks=store, stores=Stores(sessions)) as there:
            done = await there.send(reply_to("c1"), task=task.id)
            assert (short(done), said(done)) == ("completed", "done")
        with pytest.raises(UnsupportedOperation):
            await here.send(reply_to("c1"), task=task.id)
    assert model.prompt()[0] == "user: please"


# ---- restart


class Crash:
    """Two lives of one server on one database; the first one ends in the middle of something."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @asynccontextmanager
    async def life(self, agent: Any, **options: Any) -> AsyncGenerator[Caller]:
        sessions = SqliteSessions(self.path)
        tasks: TaskStore = SqliteTasks(self.path, writer=sessions.writer)
        async with talking(agent, tasks=tasks, stores=Stores(sessions), **options) as caller:
            yield caller
        await tasks.aclose()
        await sessions.aclose()


@pytest.fixture
def crash(tmp_path: Path) -> Crash:
    return Crash(tmp_path / "all.db")


def hurried() -> Limits:
    """The server goes down without waiting for what it does."""
    return Limits(shutdown_s=0)


async def test_T109_a_task_goes_on_after_a_restart(scripted: Scripted, crash: Crash):
    gate = Gate()
    agent, _ = scripted([call("note", id="c0")], call("wait", id="c1"), tools=[gate.wait, note])
    async with crash.life(agent, limits=hurried()) as caller:
        task = await caller.begin("go")
        await gate.begun.wait()
    agent, model = scripted("finished", tools=[gate.wait, note])
    async with crash.life(agent, recover=True) as caller:
        after = await caller.until(task.id, "completed")
        assert texts(after.artifacts[-1].parts)[-1] == "finished"
        calls = [p.data["name"] for a in after.artifacts for p in a.parts if p.data and "args" in p.data]
        assert calls == ["note", "wait"], "what was there is there once"
        assert [m.text for m in after.history] == ["go"]
    model.check()


def note() -> str:
    """Note."""
    return "noted"


async def test_T109_T111_readers_and_senders_are_let_go_at_the_end(scripted: Scripted, crash: Crash):
    gate = Gate()
    agent, _ = scripted(call("wait", id="c1"), tools=[gate.wait])
    problems: list[Exception] = []
    ear = Ear()

    async def waiting(how: Callable[..., Any], *args: Any) -> None:
        try:
            await how(*args)
        except Unavailable as error:
            problems.append(error)

    async with anyio.create_task_group() as group, crash.life(agent, limits=hurried()) as caller:
        group.start_soon(waiting, caller.send)
        await gate.begun.wait()
        task = (await caller.handler.list(caller.call, _all())).tasks[0]
        group.start_soon(waiting, ear.listen, caller, task.id)
        await ear.open.wait()
    assert [str(p) for p in problems] == ["the server is shutting down"] * 2


async def test_T111_a_task_that_ends_in_the_grace_time_has_ended(scripted: Scripted, crash: Crash):
    gate = Gate()
    agent, _ = scripted(call("wait", id="c1"), "done", tools=[gate.wait])
    async with crash.life(agent) as caller:
        task = await caller.begin("go")
        await gate.begun.wait()
        gate.go.set()
    agent, _ = scripted()
    async with crash.life(agent) as caller:
        after = await caller.get(task.id)
        assert short(after) == "completed" and said(after).endswith("done")


async def test_T109_steps_that_only_the_session_has_are_made_up_for(scripted: Scripted):
    """The process died after the session had the answer, and before the task had it."""
    agent, model = scripted("the answer")
    sessions, store = MemorySessions(), DeadTasks(after=2)
    async with talking(agent, tasks=store, stores=Stores(sessions)) as caller, anyio.create_task_group() as group:
        group.start_soon(_quietly, caller.send)
        await until(lambda: store.dead)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    agent, _ = scripted()
    async with talking(agent, tasks=store.revived(), stores=Stores(sessions), recover=True) as caller:
        task = (await caller.handler.list(caller.call, _all())).tasks[0]
        after = await caller.until(task.id, "completed")
        assert said(after) == "the answer", "the model was not asked again"
    model.check()


async def test_T109_a_team_that_died_between_two_agents_goes_on_with_the_next(scripted: Scripted):
    """The first agent's answer is the last thing that the session has, and it is not the end."""

    def team(*answers: Any) -> tuple[SequentialAgent, ScriptedModel]:
        model = ScriptedModel(*answers)
        return SequentialAgent(name="app", sub_agents=[LlmAgent(name=n, model=model) for n in ("one", "two")]), model

    sessions, store = MemorySessions(), DeadTasks(after=2)
    agent, model = team("first")
    async with talking(agent, tasks=store, stores=Stores(sessions)) as caller, anyio.create_task_group() as group:
        group.start_soon(_quietly, caller.send)
        await until(lambda: store.dead)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    model.check()
    agent, model = team("second")
    async with talking(agent, tasks=store.revived(), stores=Stores(sessions), recover=True) as caller:
        task = (await caller.handler.list(caller.call, _all())).tasks[0]
        after = await caller.until(task.id, "completed", "failed")
        assert (short(after), said(after)) == ("completed", "firstsecond")
    model.check()


async def _quietly(how: Callable[..., Any]) -> None:
    with suppress(Unavailable):
        await how()


class DeadTasks(MemoryTasks):
    """A store that stands still after so many writes, as if the process were gone."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    @property
    def dead(self) -> bool:
        return self.left <= 0

    def revived(self) -> "DeadTasks":
        self.left = 1000
        return self

    async def create(self, *args: Any, **more: Any) -> TaskHead:
        self.left -= 1
        return await super().create(*args, **more)

    async def append(self, scope: TaskScope, task_id: str, version: int, update: TaskUpdate) -> TaskHead:
        if self.dead:
            raise Unavailable("dead")
        self.left -= 1
        return await super().append(scope, task_id, version, update)


async def test_T109_a_task_that_had_not_begun_is_begun(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), tools=[gate.wait])
    sessions, store = MemorySessions(), MemoryTasks()
    async with talking(agent, tasks=store, stores=Stores(sessions), limits=hurried()) as caller:
        one = await caller.begin("one", context="c")
        await gate.begun.wait()
        two = await caller.begin("two", context="c")
    agent, model = scripted("first", "second", tools=[gate.wait])
    async with talking(agent, tasks=store, stores=Stores(sessions), recover=True) as caller:
        for id, text in ((one.id, "first"), (two.id, "second")):
            after = await caller.until(id, "completed", "failed")
            assert short(after) == "completed" and said(after).endswith(text)
    assert model.prompt()[-1] == "user: two"


async def test_T109_messages_that_waited_for_a_task_are_not_forgotten(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait", id="c1"), tools=[gate.wait])
    sessions, store = MemorySessions(), MemoryTasks()
    async with talking(agent, tasks=store, stores=Stores(sessions), limits=hurried()) as caller:
        task = await caller.begin("one")
        await gate.begun.wait()
        await caller.begin("two", task=task.id)
    agent, model = scripted("first", "second", tools=[gate.wait])
    async with talking(agent, tasks=store, stores=Stores(sessions), recover=True) as caller:
        after = await caller.until(task.id, "completed", "failed")
        assert short(after) == "completed" and said(after).endswith("firstsecond")
    assert model.prompt()[-1] == "user: two"


async def test_T109_a_task_whose_session_is_gone_fails(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), tools=[gate.wait])
    store = MemoryTasks()
    async with talking(agent, tasks=store, limits=hurried()) as caller:
        task = await caller.begin()
        await gate.begun.wait()
    agent, _ = scripted()
    async with talking(agent, tasks=store, recover=True) as caller:
        after = await caller.get(task.id)
        assert short(after) == "failed" and "session is gone" in texts(asked(after))[0]


async def test_T109_tasks_can_be_failed_instead(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), call("ticket", id="c1"), tools=[gate.wait, TICKET])
    sessions, store = MemorySessions(), MemoryTasks()
    async with talking(agent, tasks=store, stores=Stores(sessions), limits=hurried()) as caller:
        task = await caller.begin()
        await gate.begun.wait()
        waiting = await caller.as_("bob").send()
        assert short(waiting) == "input_required"
    agent, _ = scripted()
    settings = A2aSettings(resume=False)
    async with talking(agent, tasks=store, stores=Stores(sessions), settings=settings, recover=True) as caller:
        after = await caller.get(task.id)
        assert short(after) == "failed" and "server stopped" in texts(asked(after))[0]
        assert short(await caller.as_("bob").get(waiting.id)) == "input_required"


async def test_T109_an_answer_that_was_being_worked_on_goes_on(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("ticket", id="c1"), call("wait", id="c2"), tools=[gate.wait, TICKET])
    sessions, store = MemorySessions(), MemoryTasks()
    async with talking(agent, tasks=store, stores=Stores(sessions), limits=hurried()) as caller:
        task = await caller.send()
        await caller.begin(reply_to("c1"), task=task.id)
        await gate.begun.wait()
    agent, model = scripted("all done", tools=[gate.wait, TICKET])
    async with talking(agent, tasks=store, stores=Stores(sessions), recover=True) as caller:
        after = await caller.until(task.id, "completed", "failed", "input_required")
        assert short(after) == "completed" and said(after) == "all done"
    model.check()


# ---- retention


async def test_T065_old_tasks_go_away_with_their_push_configs(scripted: Scripted):
    agent, _ = scripted("a", "b", call("ticket", id="c1"), "d", tools=[TICKET])
    clock = Clock()
    push = FakePush()
    settings = A2aSettings(retention_s=100, abandoned_s=1000, sweep_every_s=10)
    async with talking(agent, seams=clock.seams(), settings=settings, push=push) as caller:
        old = await caller.send()
        clock.now += 90
        young, waiting = await caller.send(), await caller.send()
        clock.now += 20
        last = await caller.send()
        await until(lambda: push.forgotten)
        left = await caller.handler.list(caller.call, _all())
        assert [t.id for t in left.tasks] == [last.id, waiting.id, young.id]
        with pytest.raises(TaskNotFound):
            await caller.get(old.id)
        assert push.forgotten == [old.id]
        clock.now += 2000
        assert await caller.handler.sweep() == 3
        assert await caller.handler.sweep() == 0
        assert sorted(push.forgotten) == sorted(t.id for t in (old, young, waiting, last))


# ---- push


class FakePush:
    """Keeps configs and notes what it is told, as a real one does; it delivers nothing."""

    def __init__(self) -> None:
        self.configs: dict[tuple[str, str], TaskPushNotificationConfig] = {}
        self.noted: list[tuple[str, str]] = []
        self.forgotten: list[str] = []
        self.broken = False
        self.refuses = False

    async def create(
        self, scope: TaskScope, config: TaskPushNotificationConfig, after: int = 0
    ) -> TaskPushNotificationConfig:
        if self.refuses:
            raise BadRequest("the URL is not allowed", "url")
        config = structs.replace(config, id=config.id or f"p{len(self.configs) + 1}")
        self.configs[config.task_id, config.id] = config
        return config

    async def get(self, scope: TaskScope, task_id: str, config_id: str) -> TaskPushNotificationConfig:
        return self.configs[task_id, config_id]

    async def list(
        self, scope: TaskScope, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse:
        return ListTaskPushNotificationConfigsResponse(
            configs=[c for (task, _), c in self.configs.items() if task == request.task_id]
        )

    async def delete(self, scope: TaskScope, task_id: str, config_id: str) -> None:
        self.configs.pop((task_id, config_id), None)

    async def changed(self, scope: TaskScope, task_id: str, updates: Sequence[Update]) -> None:
        if self.broken:
            raise OSError("no room")
        self.noted += [(task_id, line(u)) for u in updates]

    async def forget(self, tasks: Sequence[TaskHead]) -> None:
        self.forgotten += [t.id for t in tasks]


CONFIG = TaskPushNotificationConfig(url="https://example.com/hook")


async def test_T057_every_stored_step_is_noted_in_order(scripted: Scripted):
    agent, _ = scripted(chunks("a", "b"), "x")
    push = FakePush()
    async with talking(agent, push=push) as caller:
        task = await caller.send(task_push_notification_config=CONFIG)
        assert list(push.configs) == [(task.id, "p1")]
        shown = ["task submitted", "status working", "artifact ab .", "status completed"]
        assert push.noted == [(task.id, text) for text in shown]


async def test_T060_push_operations_are_those_of_the_tasks_owner(scripted: Scripted):
    agent, _ = scripted("a")
    async with talking(agent, push=FakePush()) as caller:
        task = await caller.send()
        config = TaskPushNotificationConfig(task_id=task.id, url="https://example.com/hook")
        made = await caller.handler.create_push_config(caller.call, config)
        get = GetTaskPushNotificationConfigRequest(task_id=task.id, id=made.id)
        assert await caller.handler.get_push_config(caller.call, get) == made
        asked_for = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        assert (await caller.handler.list_push_configs(caller.call, asked_for)).configs == [made]
        bob = caller.as_("bob")
        delete = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=made.id)
        for step in (
            lambda: bob.handler.create_push_config(bob.call, config),
            lambda: bob.handler.get_push_config(bob.call, get),
            lambda: bob.handler.list_push_configs(bob.call, asked_for),
            lambda: bob.handler.delete_push_config(bob.call, delete),
        ):
            with pytest.raises(TaskNotFound):
                await step()
        for _ in range(2):
            await caller.handler.delete_push_config(caller.call, delete)
        assert (await caller.handler.list_push_configs(caller.call, asked_for)).configs == []


async def test_T061_T062_a_task_does_not_depend_on_push(scripted: Scripted, caplog: pytest.LogCaptureFixture):
    agent, _ = scripted("fine")
    push = FakePush()
    push.broken = True
    async with talking(agent, push=push) as caller:
        with caplog.at_level(logging.CRITICAL, logger="polyport.a2a"):
            assert short(await caller.send()) == "completed"


async def test_T063_a_push_config_that_is_refused_leaves_no_task(scripted: Scripted):
    agent, _ = scripted("fine")
    push = FakePush()
    push.refuses = True
    async with talking(agent, push=push) as caller:
        with pytest.raises(BadRequest, match="URL"):
            await caller.send(task_push_notification_config=CONFIG)
        assert (await caller.handler.list(caller.call, _all())).total_size == 0
        push.refuses = False
        first = await caller.send(id="same", task_push_notification_config=CONFIG)
        again = await caller.send(id="same", task_push_notification_config=CONFIG)
        assert first.id == again.id and list(push.configs) == [(first.id, "p1")], "one config for one message"
