"""RemoteAgent: an agent elsewhere as a member of a local tree (spec a2a 4, core 8.4; T101-T105, FR-173, FR-175, FR-177)."""

from typing import Any

import anyio
import pytest

from polyport import AgentTool, App, Event, LlmAgent, LoopAgent, RunConfig, SequentialAgent
from polyport.agents.a2a_client import A2AOptions
from polyport.agents.a2a_door import A2ALimits
from polyport.agents.remote import RemoteAgent
from polyport.agents.remote_tool import RemoteAgentTool
from polyport.data.content import Content, FunctionCall, Part, model_text, user_text
from polyport.data.limits import Limits
from polyport.data.run import RunRequest
from polyport.data.session import SessionKey
from polyport.errors import ConfigError
from polyport.testing import ScriptedModel, call
from polyport.wire import a2a
from support.a2a_fake import Answer, Fake, chunk, fake_agent, frames, message, status, task
from support.talk import Serve, answer, said, texts

STREAMING = RunConfig(streaming=True)
FAST = A2AOptions(limits=A2ALimits(poll_s=0.0, poll_max_s=0.0, resubscribes=1))


def remote(fake: Fake, **fields: Any) -> RemoteAgent:
    return RemoteAgent(name="far", description="Knows far things.", url=fake.url, **{"options": FAST, **fields})


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps), **fields)


def shown(events: list[Event]) -> list[str]:
    """Texts of events, `~` before partial ones, `(...)` around thoughts."""
    out: list[str] = []
    for event in events:
        parts = event.content.parts if event.content is not None else []
        text = "".join(f"({p.text})" if p.thought else p.text or "?" for p in parts)
        out.append(("~" if event.partial else "") + text)
    return out


async def streamed(app: App, text: Any = "hi", session: str = "s") -> list[Event]:
    return [event async for event in app.stream(text, session=session, config=STREAMING)]


# ---- answers


async def test_FR_173_T101_chunks_are_partial_events_and_one_whole_event():
    async with fake_agent() as fake, App(remote(fake)) as app:
        pieces = [chunk("Hello, "), chunk("big ", append=True), chunk("world!", append=True, last=True)]
        fake.streams({"task": task()}, status("WORKING", "thinking"), *pieces, status("COMPLETED"))
        fake.streams({"task": task()}, status("WORKING", "thinking"), *pieces, status("COMPLETED"))
        assert shown(await streamed(app)) == ["~(thinking)", "~Hello, ", "~big ", "~world!", "Hello, big world!"]
        reply = await app.ask("again", session="s2")
        assert shown(reply.events) == ["Hello, big world!"] and reply.outcome.status == "finished"
        stored = reply.events[0]
        assert stored.custom_metadata == {
            "a2a:context_id": "c1", "a2a:task_id": "t1", "a2a:told": {"a": [1, len("Hello, big world!")]}
        }  # fmt: skip
        assert (stored.author, stored.content) == ("far", model_text("Hello, big world!"))


async def test_core_121_artifacts_that_are_not_closed_become_whole_before_the_end():
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.streams(
            {"task": task()},
            chunk("a1", artifact="a"),
            chunk("whole", artifact="b", last=True),
            chunk("c", artifact="c"),
            chunk("a2", artifact="a", append=True),
            status("COMPLETED", "bye"),
        )
        assert shown(await streamed(app)) == ["~a1", "whole", "~c", "~a2", "a1a2cbye"]


async def test_core_121_an_artifact_that_is_replaced_counts_once():
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.streams({"task": task()}, chunk("draft"), chunk("final"), status("COMPLETED"))
        assert shown(await streamed(app)) == ["~draft", "~final", "final"]


async def test_core_121_a_whole_task_is_one_event_and_its_snapshot_at_the_end_adds_nothing():
    async with fake_agent() as fake, App(remote(fake)) as app:
        done = task("COMPLETED", "bye", artifacts={"a": ["one "], "b": ["two "]})
        fake.streams({"task": done})
        fake.streams({"task": task()}, chunk("one ", last=True), chunk("two ", artifact="b", last=True), {"task": done})
        assert shown((await app.ask("x")).events) == ["one two bye"]
        assert shown((await app.ask("x")).events) == ["one ", "two ", "bye"]


async def test_core_121_a_last_message_that_repeats_the_artifact_is_not_told_twice():
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.streams({"task": task()}, chunk("42", last=True), status("COMPLETED", "42"))
        fake.streams({"task": task("COMPLETED", "42", artifacts={"a": ["42"]})})
        assert shown((await app.ask("x")).events) == ["42"]
        assert shown((await app.ask("x")).events) == ["42"]


async def test_previews_of_an_adk_agent_are_shown_and_not_kept():
    preview = {"metadata": {"adk_partial": True}}
    whole = {"metadata": {"adk_partial": False, "adk_usage_metadata": {"totalTokenCount": 7}}}
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.streams(
            {"task": task()},
            chunk("Hel", artifact="p", **preview),
            chunk("lo", artifact="p", **preview),
            chunk("Hello", **whole),
            chunk(" you", append=True, **whole),
            chunk({"data": {}}, artifact="p", last=True, **preview),
            status("COMPLETED"),
        )
        events = await streamed(app)
        assert shown(events) == ["~Hel", "~lo", "Hello", " you"]
        usage = events[-1].usage_metadata
        assert usage is not None and usage.total_token_count == 7


async def test_FR_180_a_message_with_metadata_only_is_not_lost():
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.streams(message(metadata={"score": 3, "adk_custom_metadata": {"x": 1, "polyport:unpublished": True}}))
        event = (await app.ask("x")).events[-1]
        assert event.custom_metadata == {"x": 1, "a2a:metadata": {"score": 3}, "a2a:context_id": ""}


async def test_FR_180_thoughts_are_not_the_answer():
    async with fake_agent() as fake, App(remote(fake)) as app:
        thought = {"text": "hm", "metadata": {"adk_thought": True}}
        fake.streams(message(thought, "yes"))
        reply = await app.ask("x")
        assert reply.text == "yes" and shown(reply.events) == ["(hm)yes"]


async def test_a_remote_agent_does_not_steer_the_local_tree_unless_it_may():
    steering = {"metadata": {"adk_escalate": True, "adk_transfer_to_agent": "boss"}}
    async with fake_agent() as fake:
        for escalate, rounds in ((False, 2), (True, 1)):
            for _ in range(rounds):
                fake.streams({"task": task()}, chunk("x", last=True), status("COMPLETED", **steering))
            asker = llm("asker", *["go on"] * rounds)
            loop = LoopAgent(name="loop", sub_agents=[asker, remote(fake, escalate=escalate)], max_iterations=2)
            async with App(loop) as app:
                events = (await app.ask("x")).events
            assert [e.author for e in events if e.text] == ["asker", "far"] * rounds
            assert not any(e.actions.transfer_to_agent for e in events)


# ---- what is sent


async def test_T104_FR_175_only_what_is_new_is_sent_and_others_are_quoted():
    writer = LlmAgent(
        name="writer",
        model=ScriptedModel(
            Content(role="model", parts=[Part(text="secret plan", thought=True), Part(text="draft one")]),
            [call("look", {}, "c1")],
            "draft two",
        ),
        tools=[look],
    )
    async with fake_agent() as fake, App(SequentialAgent(name="team", sub_agents=[writer, remote(fake)])) as app:
        fake.streams(message("good", contextId="c9"))
        fake.streams(message("better", contextId="c9"))
        await app.ask("write", session="s")
        await app.ask("again", session="s")
        first, second = fake.calls
        assert first.texts == ["write", LEAD, "[writer] said: draft one"]
        assert second.texts == ["again", LEAD, "[writer] said: draft two"]
        assert "contextId" not in first.params["message"] and second.params["message"]["contextId"] == "c9"
        assert "taskId" not in second.params["message"]


async def test_T104_a_history_window_keeps_the_question_and_the_newest_steps():
    def step(n: int) -> Content:
        made = FunctionCall(id=f"c{n}", name="look", args={})
        return Content(role="model", parts=[Part(text=f"step {n}"), Part(function_call=made)])

    writer = LlmAgent(name="writer", model=ScriptedModel(*map(step, range(4)), "draft one"), tools=[look])
    async with fake_agent() as fake:
        agents = [writer, remote(fake)]
        async with App(SequentialAgent(name="team", sub_agents=agents), limits=Limits(history_window=3)) as app:
            fake.streams(message("good", contextId="c9"))
            await app.ask("write", session="s")
    said_to_it = [text for text in fake.calls[0].texts if "said" in text or text == "write"]
    assert said_to_it == ["write", "[writer] said: step 3", "[writer] said: draft one"]


LEAD = "For your information, this is what another agent did:"


def look() -> str:
    """Look."""
    return "inside"


async def test_FR_175_T105_five_turns_send_five_short_messages_and_ask_for_the_card_once():
    async with fake_agent() as fake, App(remote(fake)) as app:
        for n in range(5):
            fake.streams({"task": task(id=f"t{n}")}, status("COMPLETED", f"answer {n}", id=f"t{n}"))
            await app.ask(f"question {n}", session="s")
        assert [c.texts for c in fake.calls] == [[f"question {n}"] for n in range(5)]
        assert len(fake.gets) == 1
        assert [c.params["message"].get("contextId") for c in fake.calls] == [None, "c1", "c1", "c1", "c1"]


async def test_core_121_with_nothing_to_say_nobody_is_called():
    async with fake_agent() as fake, App(LoopAgent(name="loop", sub_agents=[remote(fake)], max_iterations=2)) as app:
        fake.streams(message("once"))
        reply = await app.ask("x")
        assert [e.text for e in reply.events] == ["once", ""] and len(fake.calls) == 1


async def test_what_did_not_arrive_is_sent_again_and_what_was_refused_is_not():
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.on("SendStreamingMessage", Answer(status=503, body=b""))
        fake.streams(message("got it"))
        fake.on("SendStreamingMessage", Answer(error={"code": -32005, "message": "no such type"}))
        fake.streams(message("fine"))
        failed = (await app.ask("one", session="s")).events[-1]
        assert failed.error_code == "UNAVAILABLE" and failed.turn_complete
        assert failed.custom_metadata == {"a2a:error": failed.error_message}
        await app.ask("two", session="s")
        assert fake.calls[1].texts == ["one", "two"]
        refused = (await app.ask("three", session="s")).events[-1]
        assert (refused.error_code, refused.error_message) == ("CONTENT_TYPE_NOT_SUPPORTED", "no such type")
        await app.ask("four", session="s")
        assert fake.calls[3].texts == ["four"]
        ids = [c.params["message"]["messageId"] for c in fake.calls]
        assert len(set(ids)) == 4


async def test_hooks_see_and_change_what_goes_and_comes():
    seen: list[Any] = []

    def before(ctx: Any, request: a2a.SendMessageRequest) -> Any:
        seen.append(request.message.text)
        return ctx.event(content=model_text("from the cache")) if request.message.text == "known" else None

    async def after(ctx: Any, event: Event) -> Event:
        return Event(content=model_text(event.text.upper()), custom_metadata=event.custom_metadata)

    async with fake_agent() as fake:
        agent = remote(
            fake,
            before_request=before,
            after_event=after,
            metadata=lambda ctx: {"user": ctx.user_id},
            configuration=a2a.SendMessageConfiguration(accepted_output_modes=["text/plain"]),
            build_message=lambda ctx: [a2a.Part(text=ctx.user_content.text)],
        )
        async with App(agent) as app:
            fake.streams(message("fresh"))
            assert (await app.ask("known", user="ann")).text == "FROM THE CACHE"
            assert (await app.ask("new", user="ann")).text == "FRESH"
        assert seen == ["known", "new"]
        assert fake.calls[0].params["metadata"] == {"user": "ann"}
        assert fake.calls[0].params["configuration"] == {"acceptedOutputModes": ["text/plain"]}


async def test_FR_177_each_user_calls_with_its_own_token_which_is_refreshed_once():
    tokens = {"ann": "a1", "bob": "b1"}
    challenges: list[tuple[str, str]] = []

    def headers(ctx: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {tokens[ctx.user_id]}"}

    async def refresh(ctx: Any, challenge: str) -> None:
        challenges.append((ctx.user_id, challenge))
        tokens[ctx.user_id] += "x"

    async with fake_agent() as fake, App(remote(fake, header_provider=headers, refresh=refresh)) as app:
        fake.streams(message("hi bob"))
        await app.ask("x", user="bob")
        fake.on("SendStreamingMessage", Answer(status=401, headers={"www-authenticate": "Bearer"}, body=b""))
        fake.streams(message("hi ann"))
        assert (await app.ask("x", user="ann")).text == "hi ann"
        assert [c.headers["authorization"] for c in fake.calls] == ["Bearer b1", "Bearer a1", "Bearer a1x"]
        assert challenges == [("ann", "Bearer")]


# ---- questions


async def test_T102_a_question_with_calls_pauses_here_and_its_answer_reaches_the_task(serve: Serve):
    ask = {
        "data": {"id": "f1", "name": "approve", "args": {"sum": 3}},
        "metadata": {"adk_type": "function_call", "adk_is_long_running": True},
    }
    async with fake_agent() as fake, serve(remote(fake)) as talk:
        fake.streams({"task": task()}, status("INPUT_REQUIRED", "May I?", ask))
        fake.streams({"task": task("WORKING")}, chunk("paid", last=True), status("COMPLETED"))
        events = await talk.run("pay")
        assert events[-1]["longRunningToolIds"] == ["f1"] and texts(events) == ["May I?"]
        done = await talk.run(answer("f1", "approve", {"ok": True}))
        assert texts(done) == ["paid"]
        sent = fake.calls[1].params["message"]
        assert (sent["taskId"], sent["contextId"]) == ("t1", "c1")
        assert [p["data"] for p in sent["parts"]] == [{"id": "f1", "name": "approve", "response": {"ok": True}}]


@pytest.mark.parametrize("how", ["response", "text"])
async def test_T102_a_question_in_plain_text_is_answered_in_plain_text(how: str):
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.streams({"task": task()}, status("INPUT_REQUIRED", "Which city?"))
        fake.streams({"task": task("WORKING")}, status("INPUT_REQUIRED", "Which street?"))
        fake.streams({"task": task("COMPLETED", "Thanks")})
        fake.streams(message("new talk"))
        for text in ("Paris", "Rue X"):
            asked = await app.ask("go", session="s") if text == "Paris" else asked  # noqa: F821
            question = asked.events[-1]
            assert asked.outcome.status == "paused"
            assert question.calls[0].name == "adk_request_input"
            assert question.calls[0].args["message"] == question.text
            id = question.long_running_tool_ids[0]
            given = said(id, "adk_request_input", {"result": text}) if how == "response" else text
            asked = await app.ask(given, session="s")
        assert asked.text == "Thanks" and asked.outcome.status == "finished"
        await app.ask("more", session="s")
        assert [c.texts for c in fake.calls] == [["go"], ["Paris"], ["Rue X"], ["more"]]
        assert [c.params["message"].get("taskId") for c in fake.calls] == [None, "t1", "t1", None]


@pytest.mark.parametrize("how", ["stream", "whole"])
async def test_T102_a_task_that_goes_on_after_a_question_tells_only_what_is_new(how: str):
    before = {"a": ["one ", "two "], "b": ["x"]}
    after = {"a": ["one two three ", {"data": 4}], "b": ["x"], "c": ["five"]}
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.streams(
            {"task": task()}, chunk("one "), chunk("two ", append=True), chunk("x", artifact="b", last=True),
            status("INPUT_REQUIRED", "Which?"),
        )  # fmt: skip
        if how == "whole":
            fake.streams({"task": task("COMPLETED", artifacts=after)})
        else:
            fake.streams(
                {"task": task("WORKING", artifacts=before)}, chunk("three ", {"data": 4}, append=True),
                chunk("five", artifact="c"), status("COMPLETED"),
            )  # fmt: skip
        asked = await app.ask("go", session="s")
        assert shown(asked.events) == ["x", "one two Which??"]
        reply = await app.ask("this", session="s")
        assert shown(reply.events) == ["three ?five"]


async def test_a_question_stops_the_sequence_and_its_answer_goes_on_with_it():
    last = llm("last", "all done")
    async with fake_agent() as fake, App(SequentialAgent(name="team", sub_agents=[remote(fake), last])) as app:
        fake.streams({"task": task()}, status("INPUT_REQUIRED", "Which?"))
        fake.streams({"task": task("COMPLETED", "Thanks")})
        asked = await app.ask("go", session="s")
        assert [e.author for e in asked.events] == ["far"]
        id = asked.events[-1].long_running_tool_ids[0]
        reply = await app.ask(said(id, "adk_request_input", {"payload": "x"}), session="s")
        assert [e.text for e in reply.events] == ["Thanks", "all done"]


async def test_credentials_that_are_needed_over_there_are_asked_for_when_the_stream_has_ended():
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.streams({"task": task()}, status("AUTH_REQUIRED", "Sign in at x"))
        fake.streams({"task": task()}, status("AUTH_REQUIRED", "Sign in at x"), status("COMPLETED", "Hi ann"))
        asked = await app.ask("go")
        assert [e.text for e in asked.events] == ["Sign in at x", ""] and asked.outcome.status == "paused"
        assert asked.events[-1].calls[0].args["message"] == "Sign in at x"
        assert [e.text for e in (await app.ask("go")).events] == ["Sign in at x", "Hi ann"]


async def test_T099_open_questions_over_there_can_be_cancelled():
    async with fake_agent() as fake:
        agent = remote(fake)
        async with App(agent) as app:
            fake.streams({"task": task()}, status("INPUT_REQUIRED", "Which?"))
            asked = await app.ask("go")
            fake.on("CancelTask", task("CANCELED"))
            assert await agent.cancel_waiting(asked.events) == ["t1"]
            fake.streams({"task": task("COMPLETED", "no question")})
            assert await agent.cancel_waiting((await app.ask("go")).events) == []


# ---- failures


@pytest.mark.parametrize(
    ("state", "code"),
    [("FAILED", "REMOTE_TASK_FAILED"), ("REJECTED", "REMOTE_TASK_REJECTED"), ("CANCELED", "REMOTE_TASK_CANCELED")],
)
async def test_core_121_a_task_that_failed_is_an_error_event_with_what_it_had_said(state: str, code: str):
    async with fake_agent() as fake, App(remote(fake)) as app:
        marked = {"text": "no tea", "metadata": {"adk_is_error_message": True}}
        fake.streams({"task": task()}, chunk("so far"), status(state, "and", marked))
        fake.streams({"task": task(state)})
        event = (await app.ask("x")).events[-1]
        assert (event.error_code, event.error_message, event.text) == (code, "no tea", "so farand")
        assert event.custom_metadata is not None and event.custom_metadata["a2a:error"] == "no tea"
        assert "task" in (await app.ask("x")).events[-1].error_message


async def test_T103_a_remote_agent_that_dies_in_the_middle_loses_no_text():
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.streams({"task": task()}, chunk("Hello, "), end="cut")
        fake.on(
            "SubscribeToTask", frames({"task": task("WORKING", artifacts={"a": ["Hello, you"]})}, status("COMPLETED"))
        )
        assert shown(await streamed(app)) == ["~Hello, ", "~you", "Hello, you"]


async def test_T103_when_it_stays_dead_there_is_an_error_with_the_text_so_far():
    options = A2AOptions(limits=A2ALimits(poll_s=0.0, poll_max_s=0.0, resubscribes=0, poll_failures=1))
    async with fake_agent() as fake, App(remote(fake, options=options)) as app:
        fake.streams({"task": task()}, chunk("Hello, "), end="cut")
        for _ in range(2):
            fake.on("GetTask", Answer(status=502, body=b""))
        fake.on("CancelTask", Answer(status=502, body=b""))
        event = (await app.ask("x", session="s")).events[-1]
        assert event.error_code == "UNAVAILABLE" and event.text == "Hello, "
        fake.streams(message("hi again"))
        await app.ask("y", session="s")
        assert fake.calls[-1].texts == ["y"]  # it had been heard


async def test_FR_181_an_answer_to_another_call_is_an_error_and_nothing_of_it_is_stored():
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.on("SendStreamingMessage", frames(message("poison"), ids=["other"]))
        reply = await app.ask("x")
        assert [e.error_code for e in reply.events] == ["INVALID_AGENT_RESPONSE"]
        assert "poison" not in str(reply.events)


async def test_core_121_a_card_that_cannot_be_had_is_an_error_event():
    async with fake_agent() as fake, App(remote(fake)) as app:
        fake.cards.clear()
        event = (await app.ask("x")).events[-1]
        assert event.error_code == "NOT_FOUND" and "no agent card" in event.error_message


async def test_a_remote_agent_that_is_too_slow_is_given_up_and_cancelled():
    options = A2AOptions(limits=A2ALimits(timeout_s=0.2))
    async with fake_agent() as fake, App(remote(fake, options=options)) as app:
        fake.streams({"task": task()}, chunk("so far"), end="hang")
        fake.on("CancelTask", task("CANCELED"))
        event = (await app.ask("x")).events[-1]
        assert event.error_code == "TIMEOUT" and event.text == "so far"


@pytest.mark.parametrize("when", ["before the first frame", "in the middle"])
async def test_cancelling_the_local_run_cancels_the_remote_task(when: str):
    async with fake_agent() as fake, App(remote(fake)) as app:
        begun = anyio.Event()
        go_on = anyio.Event()

        async def stop() -> None:
            begun.set()
            await go_on.wait()

        if when == "in the middle":
            fake.streams({"task": task()}, chunk("x"), stop, end="hang")
        else:
            fake.streams(stop, {"task": task()}, end="hang")
        fake.on("CancelTask", task("CANCELED"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: app.ask("x"))
            await begun.wait()
            tasks.cancel_scope.cancel()
            go_on.set()
        assert fake.methods == ["SendStreamingMessage", "CancelTask"]
        assert fake.calls[1].params["id"] == "t1"


async def test_a_run_that_died_goes_on_with_the_remote_task_and_tells_only_what_is_missing():
    async with fake_agent() as fake, App(remote(fake)) as app:
        session = await app.stores.sessions.create("far", "user", "s")
        asked = Event(id="1", invocation_id="e-1", author="user", content=user_text("count"))
        ids = {"a2a:task_id": "t1", "a2a:context_id": "c1", "a2a:told": {"a": [1, 0]}}
        look_up = Content(role="model", parts=[Part(function_call=call("look", {"at": "x"}, "f1"))])
        begun = Event(id="2", invocation_id="e-1", author="far", content=look_up, custom_metadata=ids)
        for event in (asked, begun):
            await app.stores.sessions.append(session, event, claim=True)
        looks = {
            "data": {"id": "f1", "name": "look", "args": {"at": "x"}},
            "metadata": {"adk_type": "function_call", "adk_is_long_running": False},
        }
        so_far = task("WORKING", artifacts={"a": [looks, "one "]})
        fake.on("SubscribeToTask", frames({"task": so_far}, chunk("two", append=True), status("COMPLETED")))
        run = await app.runs.start(RunRequest(key=SessionKey("far", "user", "s"), invocation_id="e-1"))
        outcome = await run.wait()
        assert outcome.status == "finished", outcome
        stored = await app.stores.sessions.get(session.key)
        assert shown(stored.events) == ["count", "?", "one two"]


async def test_without_streaming_it_is_polled_and_cancelled_all_the_same():
    async with fake_agent(streaming=False) as fake, App(remote(fake)) as app:
        fake.on("SendMessage", {"task": task("WORKING", artifacts={"a": ["Hel"]})})
        fake.on("GetTask", task("WORKING", artifacts={"a": ["Hello"]}))
        fake.on("GetTask", task("COMPLETED", artifacts={"a": ["Hello"]}))
        assert shown(await streamed(app)) == ["~Hel", "~lo", "Hello"]
        fake.on("SendMessage", {"task": task("WORKING")})
        fake.on("GetTask", frames(end="hang"))
        fake.on("CancelTask", task("CANCELED"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: app.ask("x"))
            while len(fake.calls) < 5:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert fake.methods[-1] == "CancelTask"


# ---- in a tree


async def test_an_llm_agent_hands_over_to_a_remote_one():
    async with fake_agent() as fake:
        boss = llm("boss", call("transfer_to_agent", {"agent_name": "far"}, "c1"), sub_agents=[remote(fake)])
        async with App(boss) as app:
            fake.streams(message("from far away"))
            reply = await app.ask("who knows?")
            assert reply.text == "from far away"
            assert fake.calls[0].texts == ["who knows?"]


@pytest.mark.parametrize("kind", ["RemoteAgentTool", "AgentTool"])
async def test_a_remote_agent_as_a_tool(kind: str):
    async with fake_agent() as fake:
        if kind == "AgentTool":
            tool: Any = AgentTool(remote(fake))
        else:
            tool = RemoteAgentTool("far", fake.url, "Knows far things.", options=FAST)
        ask = call("far", {"request": "2+2?"}, "c1")
        model = ScriptedModel(ask, "It is 4.", call("far", {"request": "fail"}, "c2"), "It failed.")
        async with App(LlmAgent(name="boss", model=model, tools=[tool])) as app:
            fake.streams({"task": task()}, chunk("4", last=True), status("COMPLETED"))
            fake.streams({"task": task("FAILED", "no tea")})
            first = await app.ask("sum", session="s")
            second = await app.ask("fail", session="s")
        results = [r.response for e in (*first.events, *second.events) for r in e.responses]
        assert results[0] == {"result": "4"}
        assert "no tea" in str(results[1]) and "error" in results[1]
        assert [c.texts for c in fake.calls] == [["2+2?"], ["fail"]]
        declared = model.requests[0].tools[0]
        assert (declared.name, declared.description) == ("far", "Knows far things.")


async def test_a_question_of_a_remote_tool_reaches_the_user_and_the_answer_the_remote_agent():
    async with fake_agent() as fake:
        tool = RemoteAgentTool("far", fake.url, "Knows far things.", options=FAST)
        model = ScriptedModel(call("far", {"request": "book"}, "c1"), "Booked.")
        async with App(LlmAgent(name="boss", model=model, tools=[tool])) as app:
            fake.streams({"task": task()}, status("INPUT_REQUIRED", "Which day?"))
            fake.streams({"task": task("COMPLETED", "Monday it is")})
            asked = await app.ask("book it", session="s")
            assert asked.outcome.status == "paused" and asked.events[-1].text == "Which day?"
            id = asked.events[-1].long_running_tool_ids[0]
            reply = await app.ask(said(id, "adk_request_input", {"payload": "Monday"}), session="s")
            assert reply.text == "Booked."
            assert [c.texts for c in fake.calls] == [["book"], ["Monday"]]
            assert fake.calls[1].params["message"]["taskId"] == "t1"


@pytest.mark.parametrize("fields", [{}, {"url": "http://a", "card_url": "http://b"}])
def test_one_place_must_be_named(fields: Any):
    with pytest.raises(ConfigError, match="exactly one of url, card_url and card"):
        RemoteAgent(name="far", **fields)
