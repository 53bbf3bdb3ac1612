"""How a run becomes a task: artifacts, metadata, questions and answers, failures, hooks (spec a2a 3, statements T087-T100)."""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import anyio
import pytest
from msgspec import structs

from polyport import FunctionAgent, LlmAgent, SequentialAgent, ToolContext, make_tool
from polyport.data.content import Blob, Content, FileData, FunctionCall, Part, model_text
from polyport.data.event import Event, EventActions, RequestInput
from polyport.data.model import ModelResponse, Usage
from polyport.data.session import Session, SessionKey
from polyport.errors import BadRequest, ConfigError, ModelError
from polyport.ports.agent import RunContext
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.settings import A2aSettings, Execution, ExecutorConfig, TaskRejected
from polyport.protocols.a2a.tasks import NewStatus
from polyport.testing import ScriptedModel, call, chunks
from polyport.tools.agent_tool import AgentTool
from polyport.wire import a2a
from polyport.wire.a2a_translate import EXTENSION
from support.a2a_talk import Gate, asked, lines, said, short, talking, texts

Scripted = Callable[..., tuple[LlmAgent, ScriptedModel]]
PER_EVENT = ExecutorConfig()
PER_RUN = ExecutorConfig(output="artifact-per-run")


def ticket() -> None:
    """Ask a human."""


TICKET = make_tool(ticket, long_running=True)


def reply_to(id: str, name: str = "ticket", **response: Any) -> a2a.Part:
    return a2a.Part(data={"id": id, "name": name, "response": response}, metadata={"adk_type": "function_response"})


def says(*events: Event | None) -> FunctionAgent:
    """An agent that emits these events in every run."""

    async def run(ctx: RunContext) -> AsyncGenerator[Event | None]:
        for event in events:
            yield event

    return FunctionAgent(name="app", function=run)


def ask(id: str, name: str = "adk_request_confirmation") -> Event:
    part = Part(function_call=FunctionCall(id=id, name=name, args={"toolConfirmation": {"hint": "sure?"}}))
    return Event(content=Content(role="model", parts=[part]), long_running_tool_ids=[id])


def approver(*ids: str, name: str = "adk_request_confirmation") -> tuple[FunctionAgent, list[Any]]:
    """An agent that asks for approval, and then tells what it was answered."""
    heard: list[Any] = []

    async def run(ctx: RunContext) -> AsyncGenerator[Event | None]:
        content = ctx.user_content
        assert content is not None
        if content.responses:
            heard.extend((r.id, r.name, r.response) for r in content.responses)
            heard.extend(p.text for p in content.parts if p.text is not None)
            yield Event(content=model_text("thanks"))
            return
        for id in ids:
            yield ask(id, name)

    return FunctionAgent(name="app", function=run), heard


def updates_of(updates: Sequence[Any]) -> list[a2a.TaskArtifactUpdateEvent]:
    return [u.frame.artifact_update for u in updates if u.frame.artifact_update is not None]


# ---- the sequence, and metadata


async def test_T087_the_steps_of_a_first_run_and_their_metadata(scripted: Scripted):
    usage = Usage(prompt_token_count=3, total_token_count=5)
    agent, _ = scripted(ModelResponse(content=model_text("hello"), usage_metadata=usage, finish_reason="STOP"))
    async with talking(agent, executor=PER_RUN) as caller:
        updates = await caller.stream()
        task = await caller.get(updates[0].frame.task.id)
        assert lines(updates) == ["task submitted", "status working", "artifact hello", "status completed"]
        base = {"adk_app_name": "app", "adk_user_id": f"A2A_USER_{task.context_id}", "adk_session_id": task.context_id}
        assert updates[0].frame.task.metadata == {EXTENSION: True, **base} == task.metadata
        assert updates[1].frame.status_update.metadata == {EXTENSION: True, **base}
        assert updates[3].frame.status_update.metadata == {EXTENSION: True, **base}
        artifact = updates[2].frame.artifact_update
        run_id = (await caller.app.runs.stores.sessions.list("app")).sessions
        assert len(run_id) == 1
        metadata = dict(artifact.metadata)
        assert metadata.pop("adk_invocation_id").startswith("e-")
        assert metadata == {
            **base,
            "adk_author": "app",
            "adk_usage_metadata": {"promptTokenCount": 3, "totalTokenCount": 5},
            "adk_partial": False,
        }
        assert artifact.artifact.metadata is None, "one artifact for the run: the update carries the metadata"


async def test_T088_sessions_belong_to_the_caller_or_to_the_context(scripted: Scripted):
    agent, model = scripted("a", "b", "c", "d")
    async with talking(agent) as caller:
        sessions = caller.app.runs.stores.sessions
        await caller.send(context="c1")
        await caller.as_("ann").send(context="c1")
        await caller.as_("ann", "t1").send("x", context="c1")
        for user, session in (("A2A_USER_c1", "c1"), ("ann", "c1"), ("ann", "t1/c1")):
            events = (await sessions.get(SessionKey("app", user, session))).events
            assert len(events) == 2
        await caller.as_("ann").send("again", context="c1", id="m9")
        assert len((await sessions.get(SessionKey("app", "ann", "c1"))).events) == 4
    assert model.prompt() == ["user: hi", "model: b", "user: again"]


async def test_T088_the_user_can_be_named_by_a_hook(scripted: Scripted):
    agent, _ = scripted("a")
    config = ExecutorConfig(user_id=lambda call, context: "u-" + call.headers["x-user"])
    async with talking(agent, executor=config) as caller:
        caller.call = CallContext(headers={"x-user": "eve"})
        task = await caller.send(context="c1")
        assert task.metadata is not None and task.metadata["adk_user_id"] == "u-eve"
        assert (await caller.app.runs.stores.sessions.get(SessionKey("app", "u-eve", "c1"))).events


# ---- artifacts


async def test_T089_T100_one_artifact_for_a_run_with_a_preview_beside_it(scripted: Scripted):
    agent, _ = scripted(call("ping", id="c1"), chunks("Hel", "lo"), tools=[ping])
    async with talking(agent, executor=PER_RUN) as caller:
        updates = await caller.stream()
        assert lines(updates) == [
            "task submitted",
            "status working",
            "artifact {data}",
            "artifact + {data}",
            "preview Hel",
            "preview lo",
            "artifact + Hello",
            "reset",
            "status completed",
        ]
        main, preview = updates_of(updates)[0], updates_of(updates)[2]
        assert main.artifact.artifact_id != preview.artifact.artifact_id
        for update in updates_of(updates)[2:4]:
            assert update.metadata["adk_partial"] is update.artifact.metadata["adk_partial"] is True
            assert all(p.metadata == {"adk_partial": True} for p in update.artifact.parts)
            assert not update.append
        reset = updates_of(updates)[-1]
        assert reset.artifact.parts == [a2a.Part(data={}, metadata={"adk_partial": True})] and reset.last_chunk
        assert not any(u.last_chunk for u in updates_of(updates)[:-1])
        task = await caller.get(updates[0].frame.task.id)
        assert [a.artifact_id for a in task.artifacts] == [main.artifact.artifact_id]
        assert said(task) == "Hello"


def ping() -> str:
    """Ping."""
    return "pong"


async def test_T090_an_artifact_for_each_event_is_streamed_into(scripted: Scripted):
    agent, _ = scripted(chunks("a", "b"), name="one")
    other, _ = scripted(chunks("c", "d"), name="two")
    async with talking(SequentialAgent(name="app", sub_agents=[agent, other]), executor=PER_EVENT) as caller:
        updates = await caller.stream()
        assert lines(updates)[2:] == [
            "artifact a",
            "artifact + b",
            "artifact ab .",
            "artifact c",
            "artifact + d",
            "artifact cd .",
            "status completed",
        ]
        ids = [u.artifact.artifact_id for u in updates_of(updates)]
        assert len(set(ids[:3])) == len(set(ids[3:])) == 1 and ids[0] != ids[3]
        assert all(u.metadata is None for u in updates_of(updates))
        assert [u.artifact.metadata["adk_author"] for u in updates_of(updates)] == ["one"] * 3 + ["two"] * 3
        task = await caller.get(updates[0].frame.task.id)
        assert [texts(a.parts) for a in task.artifacts] == [["ab"], ["cd"]]


async def test_T090_two_events_of_one_author_are_two_artifacts():
    agent = says(Event(content=model_text("one")), Event(content=model_text("two")))
    async with talking(agent, executor=PER_EVENT) as caller:
        task = await caller.send()
        assert [texts(a.parts) for a in task.artifacts or ()] == [["one"], ["two"]]


async def test_T100_a_piece_without_an_end_leaves_nothing(scripted: Scripted):
    async def half(request: Any, on_partial: Any) -> Any:
        await on_partial(ModelResponse(content=model_text("half a"), partial=True))
        raise ModelError("gone", code="LOST")

    for config in (PER_RUN, PER_EVENT):
        agent, _ = scripted(half)
        async with talking(agent, executor=config) as caller:
            updates = await caller.stream()
            assert any("half a" in text for text in lines(updates))
            task = await caller.get(updates[0].frame.task.id)
            assert short(task) == "failed" and task.artifacts is None


async def test_token_streaming_is_where_somebody_may_look_and_can_be_off(scripted: Scripted):
    agent, _ = scripted(chunks("a", "b"), chunks("c", "d"))
    async with talking(agent, executor=ExecutorConfig(streaming=False)) as caller:
        assert lines(await caller.stream())[2:] == ["artifact ab .", "status completed"]


async def test_calls_are_shown_once_they_are_whole():
    whole = Part(function_call=FunctionCall(id="c", name="f", args={"x": 1}))
    piece = Event(content=Content(role="model", parts=[whole]), partial=True)
    agent = says(piece, Event(content=Content(role="model", parts=[whole])))
    async with talking(agent) as caller:
        updates = await caller.stream()
        assert lines(updates)[2:] == ["artifact {data} .", "status completed"]
        part = updates_of(updates)[0].artifact.parts[0]
        assert part.metadata == {"adk_type": "function_call", "adk_is_long_running": False}


async def test_events_without_parts_make_no_artifact():
    actions = EventActions(state_delta={"k": 1}, artifact_delta={})
    agent = says(Event(actions=actions), Event(content=Content(role="model")), Event(content=model_text("x")))
    async with talking(agent) as caller:
        assert lines(await caller.stream())[2:] == ["artifact x .", "status completed"]


async def test_escalate_and_transfer_are_told_at_the_end():
    events = [
        Event(actions=EventActions(escalate=True), content=model_text("up")),
        Event(actions=EventActions(transfer_to_agent="b"), content=model_text("over")),
        Event(actions=EventActions(transfer_to_agent="c")),
    ]
    async with talking(says(*events)) as caller:
        updates = await caller.stream()
        metadata = updates[-1].frame.status_update.metadata
        assert (metadata["adk_escalate"], metadata["adk_transfer_to_agent"]) == (True, "c")
        assert "adk_escalate" not in updates[1].frame.status_update.metadata


async def test_T097_all_kinds_of_parts_make_the_trip(scripted: Scripted):
    agent, model = scripted(
        Content(
            role="model",
            parts=[
                Part(text="thinking", thought=True),
                Part(text="answer 😀 \x01"),
                Part(inline_data=Blob(mime_type="image/png", data=bytes(range(256)), display_name="dot.png")),
                Part(file_data=FileData(file_uri="gs://x/y", mime_type="text/plain")),
            ],
        )
    )
    sent = [
        a2a.Part(text="words"),
        a2a.Part(raw=b"\x00\xff", media_type="application/x-bin", filename="b"),
        a2a.Part(url="https://example.com/x", media_type="text/html"),
        a2a.Part(data={"deep": [1, None, "x"]}),
    ]
    async with talking(agent) as caller:
        task = await caller.send(sent)
        assert task.history[0].parts == sent
        got = model.requests[0].contents[0].parts
        assert got[0].text == "words" and got[1].inline_data.data == b"\x00\xff"
        assert got[2].file_data.file_uri == "https://example.com/x"
        assert b'{"deep":[1,null,"x"]}' in got[3].inline_data.data
        parts = task.artifacts[0].parts
        assert parts[0].metadata == {"adk_thought": True} and parts[1].text == "answer 😀 \x01"
        assert parts[2].raw == bytes(range(256)) and parts[3].url == "gs://x/y"


async def test_part_converters_can_change_and_drop(scripted: Scripted):
    agent, model = scripted(Content(role="model", parts=[Part(text="secret"), Part(text="public")]), "x")

    def out(event: Event, part: Part, pending: bool) -> a2a.Part | None:
        return None if part.text == "secret" else a2a.Part(text=(part.text or "").upper())

    def into(message: a2a.Message, part: a2a.Part) -> Part | None:
        return Part(text=f"<{part.text}>") if part.text else None

    async with talking(agent, executor=ExecutorConfig(to_a2a_part=out, from_a2a_part=into)) as caller:
        task = await caller.send([a2a.Part(text="hi"), a2a.Part(data=1)])
        assert said(task) == "PUBLIC"
    assert model.prompt() == ["user: <hi>"]


async def test_a_message_that_makes_no_sense_to_the_agent_is_an_error(scripted: Scripted):
    agent, _ = scripted()
    part = a2a.Part(data="no object", metadata={"adk_type": "function_response"})
    async with talking(agent) as caller:
        with pytest.raises(BadRequest, match="function_response") as error:
            await caller.send([part])
        assert error.value.field == "message.parts[0].data"


async def test_FR_167_metadata_reaches_the_agent_and_steers_nothing(scripted: Scripted):
    seen: list[Any] = []

    def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append(ctx.config.metadata)
        return "ok"

    agent, _ = scripted(call("look"), "done", tools=[look])
    metadata = {"tenant": "t1", "n": 1, "deep": {"a": [1]}, "adk_transfer_to_agent": "x"}
    async with talking(agent) as caller:
        request = caller.request("hi", metadata=metadata)
        request = structs.replace(request, message=structs.replace(request.message, metadata={"own": True}))
        found = await caller.handler.send(caller.call, request)
        assert found.task is not None and short(found.task) == "completed"
        assert seen[0]["a2a_metadata"] == metadata and type(seen[0]["a2a_metadata"]["n"]) is int
        assert seen[0]["a2a_message_metadata"] == {"own": True}
        assert (seen[0]["a2a_task_id"], seen[0]["a2a_context_id"]) == (found.task.id, found.task.context_id)
        assert found.task.history[0].metadata == {"own": True}
        key = SessionKey("app", f"A2A_USER_{found.task.context_id}", found.task.context_id)
        assert (await caller.app.runs.stores.sessions.get(key)).state == {}


async def test_T098_a_caller_cannot_transfer(scripted: Scripted):
    other, unused = scripted(name="other")
    agent, _ = scripted("mine", name="app", sub_agents=[other])
    async with talking(agent) as caller:
        request = caller.request("hi", metadata={"adk_transfer_to_agent": "other", "transfer_to_agent": "other"})
        found = await caller.handler.send(caller.call, request)
        assert found.task is not None and said(found.task) == "mine"
    assert not unused.requests


# ---- questions and answers


async def test_T091_a_pending_call_is_in_the_question_only_and_once(scripted: Scripted):
    agent, _ = scripted(Content(role="model", parts=[Part(text="let me ask"), _call("c1")]), tools=[TICKET])
    async with talking(agent) as caller:
        updates = await caller.stream()
        task = await caller.get(updates[0].frame.task.id)
        assert short(task) == "input_required"
        assert [p.data for p in asked(task)] == [{"id": "c1", "name": "ticket", "args": {}}]
        assert asked(task)[0].metadata == {"adk_type": "function_call", "adk_is_long_running": True}
        assert [p for a in task.artifacts or () for p in a.parts if p.data is not a2a.UNSET] == []
        assert said(task) == "let me ask"
        assert task.status.message.role is a2a.Role.AGENT


def _call(id: str, name: str = "ticket") -> Part:
    return Part(function_call=FunctionCall(id=id, name=name))


async def test_T091_an_interim_answer_of_the_tool_is_in_the_question(scripted: Scripted):
    def start() -> dict[str, str]:
        """Start."""
        return {"status": "pending"}

    agent, _ = scripted(call("start", id="c1"), "I have asked.", tools=[make_tool(start, long_running=True)])
    async with talking(agent) as caller:
        task = await caller.send()
        assert short(task) == "input_required"
        kinds = [(p.metadata or {})["adk_type"] for p in asked(task)]
        assert kinds == ["function_call", "function_response"]
        assert said(task) in ("", "I have asked.")


async def test_a_long_running_call_that_fails_is_no_question(scripted: Scripted):
    def start() -> None:
        """Start."""
        raise ValueError("no printer")

    agent, _ = scripted(call("start", id="c1"), "It did not work.", tools=[make_tool(start, long_running=True)])
    async with talking(agent) as caller:
        task = await caller.send()
        assert (short(task), said(task)) == ("completed", "It did not work.")
        kinds = [(p.metadata or {}).get("adk_type") for a in task.artifacts for p in a.parts]
        assert kinds == ["function_call", "function_response", None]


async def test_T092_a_response_goes_on_and_anything_else_asks_again(scripted: Scripted):
    agent, model = scripted(call("ticket", id="c1"), "done", tools=[TICKET])
    async with talking(agent) as caller:
        task = await caller.send()
        for number, wrong in enumerate(("never mind", [reply_to("other", ok=1)])):
            again = await caller.send(wrong, task=task.id)
            assert short(again) == "input_required"
            assert [p.metadata for p in asked(again)][1:] == [{"validation_error": True}], f"once, also try {number}"
            assert "'c1'" in asked(again)[1].text and asked(again)[0].data["id"] == "c1"
        assert len(model.requests) == 1, "the agent was not asked"
        done = await caller.send([reply_to("c1", ok=1), a2a.Part(text="and hurry")], task=task.id)
        assert (short(done), said(done)) == ("completed", "done")
    assert model.prompt() == ["user: hi", "model: call ticket({})", "user: result ticket {'ok': 1}", "user: and hurry"]


async def test_T093_one_answer_of_two_is_not_enough(scripted: Scripted):
    agent, model = scripted([call("ticket", id="c1"), call("ticket", id="c2")], "done", tools=[TICKET])
    async with talking(agent) as caller:
        task = await caller.send()
        assert [p.data["id"] for p in asked(task)] == ["c1", "c2"]
        still = await caller.send([reply_to("c1", ok=1)], task=task.id)
        assert short(still) == "input_required" and "'c2'" in asked(still)[-1].text
        assert [p.data["id"] for p in asked(still)[:2]] == ["c1", "c2"]
        done = await caller.send([reply_to("c1", ok=1), reply_to("c2", ok=2)], task=task.id)
        assert short(done) == "completed"
    model.check()


@pytest.mark.parametrize(
    ("text", "confirmed"), [("yes", True), (" Yes! ", True), ("OK.", True), ("no", False), ("Denied", False)]
)
async def test_T096_plain_words_answer_the_only_question(text: str, confirmed: bool):
    agent, heard = approver("q1")
    async with talking(agent) as caller:
        task = await caller.send("do it")
        assert short(task) == "input_required"
        done = await caller.send(text, task=task.id)
        assert (short(done), said(done)) == ("completed", "thanks")
        assert heard == [("q1", "adk_request_confirmation", {"confirmed": confirmed})]
        assert [m.text for m in done.history if m.role is a2a.Role.USER] == ["do it", text]


@pytest.mark.parametrize("text", ["maybe", "yes but later", "no one knows", ""])
async def test_T096_words_that_are_no_plain_answer_ask_again(text: str):
    agent, heard = approver("q1")
    async with talking(agent) as caller:
        task = await caller.send("do it")
        again = await caller.send(text, task=task.id)
        assert short(again) == "input_required" and not heard


async def test_T096_plain_words_do_not_answer_two_questions_or_other_ones():
    for agent, heard in (approver("q1", "q2"), approver("q1", name="adk_request_input")):
        async with talking(agent) as caller:
            task = await caller.send("do it")
            again = await caller.send("yes", task=task.id)
            assert short(again) == "input_required" and not heard


async def test_T096_a_proper_confirmation_with_a_reason():
    agent, heard = approver("q1")
    answer = {"confirmed": False, "payload": {"reason": "over budget"}}
    async with talking(agent) as caller:
        task = await caller.send("do it")
        part = reply_to("q1", "adk_request_confirmation", **answer)
        assert short(await caller.send([part], task=task.id)) == "completed"
        assert heard == [("q1", "adk_request_confirmation", answer)]


async def test_credentials_that_are_missing_are_auth_required_and_keep_the_streams_open():
    agent, heard = approver("q1", name="adk_request_credential")
    async with talking(agent) as caller, anyio.create_task_group() as group:
        frames: list[str] = []

        async def listen() -> None:
            frames.extend(lines(await caller.stream("do it")))

        group.start_soon(listen)
        task = await caller.send("do it too")
        assert short(task) == "auth_required", "a blocking send returns"
        other = next(
            t
            for t in (await caller.handler.list(caller.call, a2a.ListTasksRequest())).tasks
            if t.history[0].text == "do it"
        )
        await caller.until(other.id, "auth_required")
        assert not frames
        part = reply_to("q1", "adk_request_credential", token="t")
        assert short(await caller.send([part], task=other.id)) == "completed"
        with anyio.fail_after(20):
            while not frames:
                await anyio.lowlevel.checkpoint()
        assert frames[1:] == [
            "status working",
            "status auth_required",
            "status working",
            "artifact thanks .",
            "status completed",
        ]
        assert len(heard) == 1
        await caller.cancel(task.id)


async def test_a_question_without_a_call_is_answered_by_any_message():
    asked_once: list[str] = []

    async def run(ctx: RunContext) -> Any:
        if not asked_once:
            asked_once.append("x")
            await ctx.emit(Event(requested_input=RequestInput(interrupt_id="i", message="Which city?")))
            return "paused"
        await ctx.emit(Event(content=model_text(f"So {ctx.user_content.text}")))
        return None

    async with talking(FunctionAgent(name="app", function=run)) as caller:
        task = await caller.send()
        assert short(task) == "input_required" and texts(asked(task)) == ["Which city?"]
        done = await caller.send("Rome", task=task.id)
        assert (short(done), said(done)) == ("completed", "So Rome")


# ---- failures


async def test_T094_an_error_of_the_model_comes_after_the_artifacts():
    events = [
        Event(content=model_text("part one")),
        Event(error_code="SAFETY", error_message="blocked", content=model_text("half")),
        Event(error_code="LATER", error_message="second"),
        Event(content=model_text("part two")),
    ]
    async with talking(says(*events), executor=PER_RUN) as caller:
        updates = await caller.stream()
        assert lines(updates)[2:] == ["artifact part one", "artifact + half", "artifact + part two", "status failed"]
        task = await caller.get(updates[0].frame.task.id)
        assert texts(asked(task)) == ['llm error response (code SAFETY): "blocked"', "half"]
        assert asked(task)[0].metadata == {"adk_is_error_message": True}
        assert updates_of(updates)[1].metadata["adk_error_code"] == "SAFETY"


async def test_T094_an_error_without_a_code():
    async with talking(says(Event(error_message="hm"))) as caller:
        assert texts(asked(await caller.send())) == ['llm error response: "hm"']


async def test_T094_a_model_that_cannot_be_reached(scripted: Scripted):
    agent, _ = scripted(call("ping"), ModelError("quota used up", code="RESOURCE_EXHAUSTED"), tools=[ping])
    async with talking(agent) as caller:
        task = await caller.send()
        assert short(task) == "failed"
        assert texts(asked(task)) == ['llm error response (code RESOURCE_EXHAUSTED): "quota used up"']
        assert len(task.artifacts) == 2, "what there was before is there"


async def test_T095_T076_a_run_that_fails_leaves_a_usable_context(scripted: Scripted):
    agent, model = scripted(ValueError("password is hunter2"), "fine")
    async with talking(agent) as caller:
        task = await caller.send("one", context="c")
        assert short(task) == "failed"
        assert texts(asked(task))[0].startswith("agent run failed: internal error (ValueError)")
        assert "hunter2" not in str(task)
        assert short(await caller.send("two", context="c")) == "completed"
    assert model.prompt()[-1] == "user: two"


async def test_failed_beats_a_question():
    async with talking(says(ask("q1"), Event(error_code="E", error_message="x"))) as caller:
        assert short(await caller.send()) == "failed"


# ---- cancel


class Pretender(FunctionAgent):
    """Stands for an agent that has a task elsewhere."""

    canceled: list[Any] = []

    async def cancel_remote(self, session: Session, call_ids: Sequence[str]) -> None:
        self.canceled.append((session.id, list(call_ids)))


async def test_T099_cancelling_a_waiting_task_cancels_what_waits_elsewhere(caplog: pytest.LogCaptureFixture):
    asker, _ = approver("q1")
    below = Pretender(name="below", function=asker.function)
    agent = SequentialAgent(name="app", sub_agents=[below])
    cleaned: list[Any] = []

    async def cleanup(call: CallContext, task: a2a.Task, session: Session) -> None:
        cleaned.append((call.caller, task.id, session.id))
        raise ValueError("logged")

    below.canceled.clear()
    async with talking(agent, executor=ExecutorConfig(cleanup=cleanup)) as caller:
        ann = caller.as_("ann")
        task = await ann.send("do it")
        with caplog.at_level(logging.CRITICAL, logger="polyport.a2a"):
            assert short(await ann.cancel(task.id)) == "canceled"
        assert below.canceled == [(task.context_id, ["q1"])]
        assert cleaned == [("ann", task.id, task.context_id)]
        await ann.cancel(task.id)
        assert len(cleaned) == 1


async def test_a_run_that_others_cancel_is_a_canceled_task(scripted: Scripted):
    gate = Gate()
    agent, _ = scripted(call("wait"), tools=[gate.wait])
    async with talking(agent) as caller:
        task = await caller.begin()
        await gate.begun.wait()
        runs = caller.app.runs
        run_id = next(iter(runs._live))
        await runs.cancel(run_id, "pressed stop")
        after = await caller.until(task.id, "canceled")
        assert texts(asked(after)) == ["pressed stop"]


# ---- hooks


async def test_before_execute_may_change_the_run_or_refuse_it(scripted: Scripted):
    agent, model = scripted("ok")
    seen: list[Any] = []

    async def before(execution: Execution) -> None:
        seen.append((execution.task_id, execution.context_id, execution.call.caller, execution.message.text))
        if execution.message.text == "bad":
            raise TaskRejected("not for me")
        if execution.message.text == "worse":
            raise ValueError("secret")
        execution.run = structs.replace(execution.run, message=Content(role="user", parts=[Part(text="changed")]))

    async with talking(agent, executor=ExecutorConfig(before_execute=before)) as caller:
        good = await caller.send("good")
        assert (short(good), said(good)) == ("completed", "ok")
        assert seen == [(good.id, good.context_id, "", "good")]
        refused = await caller.send("bad")
        assert short(refused) == "rejected" and texts(asked(refused)) == ["not for me"]
        failed = await caller.send("worse")
        assert short(failed) == "failed" and "secret" not in str(failed) and failed.artifacts is None
    assert model.prompt() == ["user: changed"]


async def test_after_event_may_change_what_is_seen_also_of_what_is_streamed(scripted: Scripted):
    agent, _ = scripted(chunks("card 12", "34"))

    def redact(execution: Execution, event: Event, update: a2a.TaskArtifactUpdateEvent) -> a2a.TaskArtifactUpdateEvent:
        parts = [structs.replace(p, text="***") for p in update.artifact.parts]
        return structs.replace(update, artifact=structs.replace(update.artifact, parts=parts))

    async with talking(agent, executor=ExecutorConfig(after_event=redact)) as caller:
        updates = await caller.stream()
        assert lines(updates)[2:] == ["artifact ***", "artifact + ***", "artifact *** .", "status completed"]
        assert "card" not in str(await caller.get(updates[0].frame.task.id))


async def test_after_event_that_fails_fails_the_task(scripted: Scripted):
    agent, _ = scripted(chunks("a", "b"))

    def broken(*args: Any) -> None:
        raise ValueError("secret")

    async with talking(agent, executor=ExecutorConfig(after_event=broken)) as caller:
        updates = await caller.stream()
        assert lines(updates)[2:] == ["status failed"]
        text = texts(asked(await caller.get(updates[0].frame.task.id)))[0]
        assert text.startswith("processor failed: ") and "secret" not in text


async def test_after_execute_may_change_the_end(scripted: Scripted):
    agent, _ = scripted("a", ValueError("x"), "c")
    seen: list[Any] = []

    def after(execution: Execution, status: NewStatus, error: Exception | None) -> NewStatus | None:
        seen.append((short(status.state), type(error).__name__))
        if execution.message.text == "ask":
            return NewStatus(state=a2a.TaskState.INPUT_REQUIRED, message=status.message)
        return None

    async with talking(agent, executor=ExecutorConfig(after_execute=after)) as caller:
        task = await caller.send("ask")
        assert short(task) == "input_required"
        assert short(await caller.send("go", task=task.id)) == "failed"
        assert short(await caller.send("new")) == "completed"
        assert seen == [("completed", "NoneType"), ("failed", "ValueError"), ("completed", "NoneType")]


async def test_after_execute_that_fails_fails_the_task(scripted: Scripted):
    agent, _ = scripted("a")

    def after(*args: Any) -> None:
        raise ValueError("secret")

    async with talking(agent, executor=ExecutorConfig(after_execute=after)) as caller:
        task = await caller.send()
        assert short(task) == "failed" and said(task) == "a"
        assert texts(asked(task))[0].startswith("after execute: internal error") and "secret" not in str(task)


async def test_a_canceled_task_stops_a_hook_that_hangs(scripted: Scripted):
    agent, model = scripted()
    begun = anyio.Event()

    async def before(execution: Execution) -> None:
        begun.set()
        await anyio.sleep_forever()

    async with talking(agent, executor=ExecutorConfig(before_execute=before)) as caller:
        task = await caller.begin()
        await begun.wait()
        assert short(await caller.cancel(task.id)) == "canceled"
    assert not model.requests


async def test_what_an_agent_does_inside_a_tool_is_not_shown(scripted: Scripted):
    inner, _ = scripted("inner words", name="inner")
    agent, _ = scripted(call("inner", {"request": "x"}), "outer words", tools=[AgentTool(inner)])
    async with talking(agent) as caller:
        task = await caller.send()
        assert said(task) == "outer words"
        parts = [p for artifact in task.artifacts for p in artifact.parts]
        assert [p.data.get("name") for p in parts if p.data is not a2a.UNSET] == ["inner", "inner"]


async def test_settings_that_make_no_sense_are_refused():
    for wrong in ({"feed_items": 0}, {"retention_s": -1}, {"queued_messages": -1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            A2aSettings(**wrong)
    assert A2aSettings(queued_messages=0, dedup_window_s=0)
