"""Connections to live models: what happens when one is lost, and how the conversation moves from agent to agent."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from polyport import LlmAgent, LoopAgent, SequentialAgent, ToolContext
from polyport.data.content import Content, model_text
from polyport.data.event import Event
from polyport.data.live import LiveBlob, LiveResponses
from polyport.data.model import ModelResponse, Transcription
from polyport.engine import live_loop
from polyport.errors import BadRequest, ModelError
from polyport.ports.agent import CallbackContext, ReadContext
from polyport.ports.live import CONNECTION_LOST
from polyport.ports.plugin import Plugin
from polyport.testing import ScriptedModel, call
from polyport.testing.live import LiveDouble, LiveLine
from support.live import lines_of, results_of, staged, text_of

LOST = ModelError("closed with 1006", code=CONNECTION_LOST)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr(live_loop, "RETRY_S", (0.0,) * len(live_loop.RETRY_S))


def double(n: int) -> int:
    """Twice as much."""
    return 2 * n


def told(line: LiveLine) -> list[str]:
    return [f"{c.role}: {c.text}" for c in line.request.contents]


# ---- lost connections


async def test_FR_028_after_a_go_away_the_conversation_goes_on_with_the_handle():
    async with staged() as stage, stage.live() as (client, line):
        await client.say("hi")
        await line.heard()
        await line.say(resumption_handle="h1")
        await line.say(content=model_text("hel"), go_away_s=10.0)
        await line.say(content=model_text("lo"), resumption_handle="h2")
        assert not line.closed, "the model may finish what it says"
        await line.say(turn_complete=True)
        again = await stage.model.connection()
        assert line.closed
        assert again.config.resumption_handle == "h2"
        assert again.request.contents == []
        assert [t.name for t in again.request.tools] == [t.name for t in line.request.tools]
        await client.say("more")
        assert text_of(await again.heard()) == "more"
        await again.say(content=model_text("yes"), turn_complete=True)
        shown = [
            *await client.until(lambda e: e.get("turnComplete")),
            *await client.until(lambda e: e.get("turnComplete")),
        ]
        assert lines_of(shown) == [
            "~app: hel",
            "~app: lo",
            "app: hello",
            "app: turn complete",
            "~app: yes",
            "app: yes",
            "app: turn complete",
        ]


@pytest.mark.parametrize("went_away", [True, False])
async def test_FR_028_a_dropped_connection_goes_on_with_the_handle(went_away: bool):
    async with staged() as stage, stage.live() as (client, line):
        await line.say(resumption_handle="h1", content=model_text("I think"))
        if went_away:
            await line.say(go_away_s=1.0)
        line.drop(LOST)
        again = await stage.model.connection()
        assert again.config.resumption_handle == "h1"
        await again.say(content=model_text(" so"), turn_complete=True)
        assert lines_of(await client.until(lambda e: e.get("turnComplete")))[-2:] == [
            "app: I think so",
            "app: turn complete",
        ]


async def test_without_a_handle_the_new_connection_is_told_the_history():
    async with staged() as stage, stage.live() as (client, line):
        await client.say("my code is 42")
        await line.heard()
        await line.say(output_transcription=Transcription(text="ok", finished=True), turn_complete=True)
        line.drop(LOST)
        again = await stage.model.connection()
        assert (again.config.resumption_handle, told(again)) == ("", ["user: my code is 42", "model: ok"])
        assert not again.inputs


async def test_FR_028_attempts_are_bounded_and_an_answer_of_the_model_makes_them_fresh(at_once: None):
    async with staged() as stage, stage.live() as (client, line):
        await line.say(resumption_handle="h1")
        for _ in range(3):
            line.drop(LOST)
            line = await stage.model.connection()
        await line.say(content=model_text("here"), turn_complete=True)
        stage.model.refusals.extend([LOST] * 20)
        line.drop(LOST)
        code, reason = await client.closed()
        assert (code, reason) == (1011, "closed with 1006")
        assert len(stage.model.refusals) == 20 - len(live_loop.RETRY_S)
        assert lines_of(await stage.stored()) == ["app: here", "app: turn complete"]


async def test_a_handle_that_is_refused_is_given_up_for_the_history():
    async with staged() as stage, stage.live() as (client, line):
        await client.say("remember me")
        await line.heard()
        await line.say(resumption_handle="old")
        stage.model.refusals.append(ModelError("unknown handle", http_status=400))
        line.drop(LOST)
        again = await stage.model.connection()
        assert (again.config.resumption_handle, told(again)) == ("", ["user: remember me"])


async def test_what_another_attempt_would_meet_again_is_not_tried_again():
    model = LiveDouble()
    model.refusals.append(ModelError("no such model", http_status=404))
    async with staged(model=model) as stage, stage.connected() as client:
        assert await client.closed() == (1011, "no such model")
        assert not model.lines


async def test_a_callback_has_the_last_word_when_the_model_cannot_be_reached():
    model = LiveDouble()
    model.refusals.append(ModelError("down", http_status=500))

    def sorry(ctx: Any, request: Any, error: Exception) -> ModelResponse:
        return ModelResponse(content=model_text(f"Sorry: {error}"))

    async with staged(model=model, on_model_error=sorry) as stage, stage.connected() as client:
        assert lines_of([await client.event()]) == ["app: Sorry: down"]
        assert await client.closed() == (1000, "")


@pytest.mark.parametrize("handle", ["h1", ""])
async def test_a_result_that_comes_after_the_connection_was_lost_is_told_once_on_the_new_one(handle: str):
    release = anyio.Event()

    async def work() -> str:
        """Work."""
        await release.wait()
        return "done"

    async with staged(tools=[work]) as stage, stage.live() as (client, line):
        await line.say(resumption_handle=handle, calls=[call("work", {}, "w")])
        await client.until(lambda e: "functionCall" in str(e))
        line.drop(LOST)
        again = await stage.model.connection()
        release.set()
        heard = await again.heard()
        if handle:
            assert results_of(heard) == [("w", {"result": "done"})]
        else:  # a new conversation does not know the call
            assert text_of(heard) == 'A result of `work` has come in since: {"result":"done"}'
        await client.say("next")
        assert text_of(await again.heard()) == "next"
        assert not any(isinstance(item, LiveResponses) for item in line.inputs)


async def test_what_the_client_says_while_there_is_no_connection_is_not_lost():
    entered, let_in = anyio.Event(), anyio.Event()

    class Slow(LiveDouble):
        async def before(self) -> None:
            if self.lines:
                entered.set()
                await let_in.wait()

    async with staged(model=Slow()) as stage, stage.live() as (client, line):
        await line.say(resumption_handle="h")
        line.drop(LOST)
        await entered.wait()
        for n in range(5):
            await client.say(str(n))
        let_in.set()
        again = await stage.model.connection()
        assert [text_of(await again.heard()) for _ in range(5)] == list("01234")


async def test_a_result_that_comes_while_there_is_no_connection_is_told_on_the_next():
    entered, let_in, release = anyio.Event(), anyio.Event(), anyio.Event()

    class Slow(LiveDouble):
        async def before(self) -> None:
            if self.lines:
                entered.set()
                await let_in.wait()

    async def work() -> str:
        """Work."""
        await release.wait()
        return "done"

    async with staged(model=Slow(), tools=[work]) as stage, stage.live() as (client, line):
        await line.say(resumption_handle="h", calls=[call("work", {}, "w")])
        line.drop(LOST)
        await entered.wait()
        release.set()
        await client.until(lambda e: "functionResponse" in str(e))
        let_in.set()
        again = await stage.model.connection()
        assert results_of(await again.heard()) == [("w", {"result": "done"})]
        await client.say("next")
        assert text_of(await again.heard()) == "next"


async def test_a_piece_of_a_streaming_tool_that_comes_while_the_history_is_made_is_told_once():
    storing, stored, more = anyio.Event(), anyio.Event(), anyio.Event()

    class Store(Plugin):
        """Takes its time with what was said before the connection was lost."""

        name = "slow"

        async def on_event(self, ctx: ReadContext, event: Event) -> Event | None:
            if event.content is not None and event.content.text == "hello" and not event.partial:
                storing.set()
                await stored.wait()
            return None

    async def watch() -> AsyncIterator[str]:
        """Watch."""
        await more.wait()
        yield "news"
        await anyio.sleep_forever()

    async with staged(tools=[watch], plugins=[Store()]) as stage, stage.live() as (client, line):
        await line.say(calls=[call("watch", {}, "w")])
        await line.heard()
        await line.say(content=model_text("hello"))
        line.drop(LOST)
        await storing.wait()
        more.set()
        await anyio.wait_all_tasks_blocked()
        stored.set()
        again = await stage.model.connection()
        assert told(again)[-1] == "user: The tool `watch` reports: news"
        await client.say("next")
        assert text_of(await again.heard()) == "next"


async def test_a_tool_that_ends_the_run_while_there_is_no_connection_ends_it_whatever_becomes_of_that():
    entered, let_in, release = anyio.Event(), anyio.Event(), anyio.Event()

    class Refused(LiveDouble):
        async def before(self) -> None:
            if self.lines:
                entered.set()
                await let_in.wait()
                raise ModelError("no such model", http_status=404)

    async def work(ctx: ToolContext) -> str:
        """Work."""
        await release.wait()
        ctx.end("all is done")
        return "done"

    async with staged(model=Refused(), tools=[work]) as stage, stage.live() as (client, line):
        await line.say(calls=[call("work", {}, "w")])
        line.drop(LOST)
        await entered.wait()
        release.set()
        await client.until(lambda e: "functionResponse" in str(e))
        let_in.set()
        assert await client.closed() == (1000, "")


async def test_a_result_that_could_not_be_sent_is_told_on_the_next_connection():
    class Broken(LiveLine):
        async def send(self, message: Any) -> None:
            if isinstance(message, LiveResponses) and not self.config.resumption_handle:
                raise LOST
            await super().send(message)

    async with staged(model=LiveDouble(line=Broken), tools=[double]) as stage, stage.live() as (_, line):
        await line.say(resumption_handle="h", calls=[call("double", {"n": 2}, "d")])
        again = await stage.model.connection()
        assert line.closed
        assert results_of(await again.heard()) == [("d", {"result": 4})]


async def test_a_client_that_leaves_while_there_is_no_connection_leaves_nothing_behind():
    entered = anyio.Event()

    class Never(LiveDouble):
        async def before(self) -> None:
            if self.lines:
                entered.set()
                await anyio.sleep_forever()

    async with staged(model=Never()) as stage:
        async with stage.live() as (client, line):
            line.drop(LOST)
            await entered.wait()
            client.socket.close()
        assert stage.talk.server.runs.active == 0


# ---- from agent to agent


def team(model: LiveDouble, other: LiveDouble, make: Callable[..., Any] | None = None) -> Any:
    first = LlmAgent(name="greeter", model=model, instruction="Greet.")
    second = LlmAgent(name="expert", model=other, description="Knows.", instruction="Explain.", tools=[double])
    if make is not None:
        return make(name="app", sub_agents=[first, second])
    return LlmAgent(name="app", model=model, sub_agents=[second])


async def test_a_hand_over_opens_the_model_of_the_other_agent_with_what_was_said():
    model, other = LiveDouble(), LiveDouble()
    async with staged(agent=team(model, other), model=model) as stage, stage.live() as (client, line):
        await client.say("explain 21")
        await line.heard()
        await line.say(calls=[call("transfer_to_agent", {"agent_name": "expert"}, "t")])
        await line.gone()
        expert = await other.connection()
        assert "Explain." in expert.request.system
        assert told(expert)[0] == "user: explain 21"
        assert expert.request.contents[-1].role == "user", "so that it answers at once"
        assert not any(isinstance(item, LiveResponses) for item in line.inputs)
        await expert.say(calls=[call("double", {"n": 21}, "d")])
        assert results_of(await expert.heard()) == [("d", {"result": 42})]
        await expert.say(content=model_text("42"), turn_complete=True)
        assert lines_of(await client.until(lambda e: e.get("turnComplete")))[-2:] == [
            "expert: 42",
            "expert: turn complete",
        ]
        await client.say("thanks")
        assert text_of(await expert.heard()) == "thanks"
        await expert.say(calls=[call("transfer_to_agent", {"agent_name": "app"}, "t2")])
        back = await model.connection()
        assert expert.closed
        assert any("expert" in line and "42" in line for line in told(back))
    assert other.open == 0


async def test_other_calls_of_the_answer_are_carried_out_before_a_hand_over():
    release = anyio.Event()

    async def work() -> str:
        """Work."""
        await release.wait()
        return "done"

    model, other = LiveDouble(), LiveDouble()
    expert = LlmAgent(name="expert", model=other)
    root = LlmAgent(name="app", model=model, tools=[work], sub_agents=[expert])
    async with staged(agent=root, model=model) as stage, stage.live() as (client, line):
        await line.say(calls=[call("transfer_to_agent", {"agent_name": "expert"}, "t"), call("work", {}, "w")])
        await client.until(lambda e: "functionResponse" in str(e))
        await anyio.wait_all_tasks_blocked()
        assert not line.closed
        release.set()
        line = await other.connection()
        assert "done" in " ".join(told(line))


async def test_an_agent_that_cannot_talk_live_is_not_offered():
    model = LiveDouble()
    root = LlmAgent(name="app", model=model, sub_agents=[LlmAgent(name="mute", model=ScriptedModel())])
    async with staged(agent=root, model=model) as stage, stage.live() as (_, line):
        assert not line.request.tools
        assert "mute" not in line.request.system


async def test_a_later_session_begins_with_the_agent_that_spoke_last():
    model, other = LiveDouble(), LiveDouble()
    async with staged(agent=team(model, other), model=model) as stage:
        async with stage.live() as (client, line):
            await line.say(calls=[call("transfer_to_agent", {"agent_name": "expert"}, "t")])
            await (await other.connection()).say(content=model_text("I am the expert."), turn_complete=True)
            await client.until(lambda e: e.get("turnComplete"))
        async with stage.connected():
            await other.connection()


async def test_agents_of_a_sequence_talk_one_after_the_other():
    model, other = LiveDouble(), LiveDouble()
    agent = team(model, other, SequentialAgent)
    async with staged(agent=agent, model=model) as stage, stage.live() as (client, line):
        assert [t.name for t in line.request.tools] == ["task_completed"]
        assert "task_completed" in line.request.system
        await line.say(content=model_text("Hello."))
        await line.say(calls=[call("task_completed", {}, "t")])
        second = await other.connection()
        assert line.closed
        assert {t.name for t in second.request.tools} == {"double", "task_completed"}
        await client.say("for you")
        assert text_of(await second.heard()) == "for you"
        await second.say(calls=[call("task_completed", {}, "t2")])
        assert await client.closed() == (1000, "")


@pytest.mark.parametrize("make", [SequentialAgent, LoopAgent])
async def test_a_client_that_closes_ends_the_whole_flow(make: Callable[..., Any]):
    model, other = LiveDouble(), LiveDouble()
    async with staged(agent=team(model, other, make), model=model) as stage, stage.live() as (client, _):
        await client.send(close=True)
        assert await client.closed() == (1000, "")
        assert not other.lines


async def test_a_message_that_a_plugin_looks_at_during_a_hand_over_reaches_the_other_agent_once():
    looking, looked = anyio.Event(), anyio.Event()

    class Looking(Plugin):
        name = "looking"

        async def on_user_message(self, ctx: CallbackContext, message: Content) -> None:
            if not looking.is_set():
                looking.set()
                await looked.wait()

    model, other = LiveDouble(), LiveDouble()
    agent = team(model, other)
    async with staged(agent=agent, model=model, plugins=[Looking()]) as stage, stage.live() as (client, line):
        await client.say("who hears me?")
        await looking.wait()
        await line.say(calls=[call("transfer_to_agent", {"agent_name": "expert"}, "t")])
        expert = await other.connection()
        assert text_of(await expert.heard()) == "who hears me?"
        assert lines_of(await stage.stored()).count("user: who hears me?") == 1


async def test_a_message_that_comes_in_the_moment_of_a_hand_over_reaches_the_other_agent():
    model, other = LiveDouble(), LiveDouble()
    async with staged(agent=team(model, other), model=model) as stage, stage.live() as (client, line):
        line.stall()
        for word in ("one", "two", "three"):
            await client.say(word)
        await line.say(calls=[call("transfer_to_agent", {"agent_name": "expert"}, "t")])
        expert = await other.connection()
        said = [t.removeprefix("user: ") for t in told(expert) if t.startswith("user: ")]
        while not {"one", "two", "three"} <= set(said):
            said.append(text_of(await expert.heard()))
        assert sum(word == "three" for word in said) == 1


async def test_an_answer_that_was_cut_off_without_a_handle_goes_on_as_a_new_one():
    async with staged() as stage, stage.live() as (client, line):
        await client.say("tell me a story")
        await line.heard()
        await line.say(content=model_text("Once upon"))
        line.drop(LOST)
        again = await stage.model.connection()
        assert told(again)[:2] == ["user: tell me a story", "model: Once upon"]
        assert again.request.contents[-1].role == "user", "it is urged to go on"
        await again.say(content=model_text("a time"), turn_complete=True)
        await client.until(lambda e: e.get("turnComplete"))
        assert lines_of(await stage.stored())[1:3] == ["app: Once upon", "app: a time"]


async def test_what_the_model_does_not_take_is_told_to_the_client_and_sent_once_only():
    class Deaf(LiveLine):
        async def send(self, message: Any) -> None:
            if isinstance(message, LiveBlob):
                raise BadRequest("this model has no ears")
            await super().send(message)

    async with staged(model=LiveDouble(line=Deaf)) as stage, stage.live() as (client, line):
        await client.socket.send_bytes(b"\0\1")
        event = await client.event()
        assert (event["errorCode"], event["errorMessage"]) == ("INVALID_ARGUMENT", "this model has no ears")
        await client.say("in words, then")
        assert text_of(await line.heard()) == "in words, then"
        await line.say(resumption_handle="h")
        line.drop(LOST)
        again = await stage.model.connection()
        await client.say("more")
        assert text_of(await again.heard()) == "more"
