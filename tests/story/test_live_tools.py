"""Tools in live sessions: results told once, beside the conversation; streams, cancellations, approvals, hooks of plugins."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from polyport import LlmAgent, ToolContext, tool
from polyport.data.content import Content, FunctionCall, model_text
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.data.live import LiveResponses
from polyport.data.model import ModelResponse, Transcription
from polyport.ports.agent import CallbackContext, ReadContext, Tool
from polyport.ports.plugin import Plugin
from polyport.testing import ScriptedModel, call
from support.live import lines_of, results_of, staged, text_of


class Gate:
    """A tool that works until the test lets it go."""

    def __init__(self) -> None:
        self.began = anyio.Event()
        self.open = anyio.Event()
        self.cancelled = anyio.Event()
        self.calls = 0

    async def work(self, n: int = 0) -> dict[str, int]:
        """Work for a while."""
        self.calls += 1
        self.began.set()
        try:
            await self.open.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return {"n": n}


def double(n: int) -> int:
    """Twice as much."""
    return 2 * n


async def test_calls_run_beside_each_other_and_each_result_is_told_as_soon_as_it_is_there():
    gate = Gate()
    async with staged(tools=[gate.work, double]) as stage, stage.live() as (client, line):
        await line.say(calls=[call("work", {"n": 1}, "slow"), call("double", {"n": 4}, "fast")])
        assert results_of(await line.heard()) == [("fast", {"result": 8})]
        await line.say(content=model_text("one moment"))  # the model talks on
        gate.open.set()
        assert results_of(await line.heard()) == [("slow", {"n": 1})]
        await line.say(turn_complete=True)
        events = await client.until(lambda e: e.get("turnComplete"))
        assert [e["content"]["parts"] for e in events if lines_of([e])[0].startswith("app: call")] == [
            [
                {"functionCall": {"id": "slow", "name": "work", "args": {"n": 1}}},
                {"functionCall": {"id": "fast", "name": "double", "args": {"n": 4}}},
            ]
        ]
    assert len(line.inputs) == 2


async def test_what_goes_wrong_in_a_tool_is_told_to_the_model():
    def fail() -> None:
        """Fail."""
        raise ValueError("out of order")

    async with staged(tools=[fail, double]) as stage, stage.live() as (_, line):
        await line.say(calls=[call("fail", {}, "a")])
        ((_, failed),) = results_of(await line.heard())
        assert "out of order" in failed["error"]
        await line.say(calls=[call("double", {"n": "many"}, "b"), call("nothing", {}, "c")])
        told = dict([*results_of(await line.heard()), *results_of(await line.heard())])
        assert all("error" in response for response in told.values())
        assert set(told) == {"b", "c"}


async def test_FR_029_a_result_after_the_end_of_the_turn_is_told_once_and_makes_no_second_turn():
    gate = Gate()
    async with staged("from the text model", tools=[gate.work]) as stage:
        async with stage.live() as (client, line):
            await line.say(calls=[call("work", {"n": 1}, "c1")])
            await gate.began.wait()
            await line.say(turn_complete=True)
            gate.open.set()
            assert results_of(await line.heard()) == [("c1", {"n": 1})]
            await line.say(content=model_text("done"))
            await line.say(turn_complete=True)
            await client.until(lambda e: e.get("turnComplete"))
            await client.until(lambda e: e.get("turnComplete"))
            await client.say("thanks")
            assert text_of(await line.heard()) == "thanks"
        assert sum(isinstance(item, LiveResponses) for item in line.inputs) == 1
        async with stage.live() as (_, again):
            assert not again.inputs
            told = [(len(c.calls), len(c.responses), c.text) for c in again.request.contents]
            assert told[:2] == [(1, 0, ""), (0, 1, "")]


async def test_core_44_calls_and_results_in_the_middle_of_an_utterance_come_after_it():
    async with staged(tools=[double]) as stage, stage.live() as (client, line):
        await line.say(input_transcription=Transcription(text="double "))
        await line.say(calls=[call("double", {"n": 2}, "c1")])
        assert results_of(await line.heard()) == [("c1", {"result": 4})]  # the model does not wait for the history
        await line.say(input_transcription=Transcription(text="two"))
        assert lines_of(await stage.stored()) == []
        await line.say(input_transcription=Transcription(finished=True))
        await line.say(output_transcription=Transcription(text="four", finished=True), turn_complete=True)
        events = await client.until(lambda e: e.get("turnComplete"))
        assert lines_of(events) == [
            "~user heard: double ",
            "~user heard: two",
            "user heard: double two",
            "app: call double",
            "app: result double",
            "~app spoke: four",
            "app spoke: four",
            "app: turn complete",
        ]
        assert lines_of(await stage.stored()) == [line for line in lines_of(events) if line[0] != "~"]


async def test_core_43_plugins_see_every_event_and_the_answer_of_before_run_is_the_only_one():
    class Watching(Plugin):
        name = "watching"
        seen: list[Event] = []

        async def on_event(self, ctx: ReadContext, event: Event) -> None:
            self.seen.append(event)

    class Closed(Plugin):
        name = "closed"

        async def before_run(self, ctx: CallbackContext) -> Content:
            return model_text("We are closed.")

    watching = Watching()
    async with staged(plugins=[watching]) as stage, stage.live() as (client, line):
        await line.say(content=model_text("hi"))
        await line.say(turn_complete=True)
        shown = await client.until(lambda e: e.get("turnComplete"))
        assert [e.id for e in watching.seen] == [e["id"] for e in shown]
    async with staged(plugins=[Closed()]) as stage, stage.connected() as client:
        assert lines_of([await client.event()]) == ["app: We are closed."]
        assert await client.closed() == (1000, "")
        assert lines_of(await stage.stored()) == ["app: We are closed."]
        assert not stage.model.lines


async def test_a_call_that_the_model_cancels_is_stopped_and_noted():
    gate = Gate()
    async with staged(tools=[gate.work, double]) as stage, stage.live() as (client, line):
        await line.say(calls=[call("work", {}, "a")])
        await gate.began.wait()
        await line.say(cancelled_calls=["a"], interrupted=True)
        await gate.cancelled.wait()
        await line.say(calls=[call("double", {"n": 1}, "b")])
        assert results_of(await line.heard()) == [("b", {"result": 2})]
        await client.until(lambda e: "double" in str(e) and "functionResponse" in str(e))
        responses = [
            p["functionResponse"]
            for e in await stage.stored()
            for p in (e["content"] or {}).get("parts", [])
            if "functionResponse" in p
        ]
        assert "cancelled" in responses[0]["response"]["status"]


async def test_a_client_that_leaves_stops_the_tools():
    gate = Gate()
    async with staged(tools=[gate.work]) as stage, stage.live() as (client, line):
        await line.say(calls=[call("work", {}, "a")])
        await gate.began.wait()
        client.socket.close(1001)
        await gate.cancelled.wait()
        await line.gone()


# ---- tools that go on


async def test_a_streaming_tool_is_told_of_piece_by_piece_until_it_is_stopped():
    price = anyio.Event()
    stopped = anyio.Event()

    async def watch_price(name: str) -> AsyncIterator[str]:
        """Tell when a price changes."""
        try:
            yield f"{name} is 1"
            await price.wait()
            yield f"{name} is 2"
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with staged(tools=[watch_price]) as stage, stage.live() as (client, line):
        assert [t.name for t in line.request.tools] == ["watch_price", "stop_streaming"]
        await line.say(calls=[call("watch_price", {"name": "tea"}, "w")])
        ((id, status),) = results_of(await line.heard())
        assert (id, list(status)) == ("w", ["status"])
        assert text_of(await line.heard()) == "The tool `watch_price` reports: tea is 1"
        price.set()
        assert text_of(await line.heard()) == "The tool `watch_price` reports: tea is 2"
        await line.say(calls=[call("stop_streaming", {"function_name": "watch_price"}, "s")])
        assert results_of(await line.heard()) == [("s", {"status": "Stopped watch_price."})]
        await stopped.wait()
        await line.say(calls=[call("stop_streaming", {"function_name": "watch_price"}, "t")])
        ((_, again),) = results_of(await line.heard())
        assert "error" in again
        await client.send(close=True)
        await client.closed()
        assert "app: The tool `watch_price` reports: tea is 2" in lines_of(await stage.stored())


async def test_a_streaming_tool_that_ends_or_fails():
    def count(to: int) -> Any:
        """Count."""
        yield from range(1, to + 1)
        if to > 1:
            raise ValueError("lost count")

    async with staged("text", tools=[count]) as stage:
        async with stage.live() as (client, line):
            await line.say(calls=[call("count", {"to": 1}, "a")])
            assert results_of(await line.heard())[0][0] == "a"
            assert text_of(await line.heard()) == "The tool `count` reports: 1"
            ended = await client.until(lambda e: "has ended" in str(e))
            assert lines_of(ended)[-1] == "app: result count"
            await line.say(calls=[call("count", {"to": 2}, "b")])
            assert results_of(await line.heard())[0][0] == "b"
            await line.heard()
            await line.heard()
            assert "lost count" in text_of(await line.heard())
        stage.model.steps[:] = [call("count", {"to": 1}, "c"), "one"]
        await stage.talk.run("count")  # elsewhere the pieces come together
        assert "user: result count {'result': [1]}" in stage.model.prompt()


async def test_a_long_running_call_is_answered_later_by_the_client():
    @tool(long_running=True)
    def order(item: str) -> None:
        """Order something."""

    @tool(long_running=True)
    def ask(item: str) -> dict[str, str]:
        """Ask about something."""
        return {"status": "asked"}

    async with staged(tools=[order, ask]) as stage, stage.live() as (client, line):
        await line.say(calls=[call("order", {"item": "tea"}, "o"), call("ask", {"item": "tea"}, "q")])
        assert results_of(await line.heard()) == [("q", {"status": "asked"})]
        (called,) = [e for e in await client.until(lambda e: "functionResponse" in str(e)) if "order" in str(e)]
        assert called["longRunningToolIds"] == ["o", "q"]
        for id, name in (("o", "order"), ("q", "ask")):
            response = {"id": id, "name": name, "response": {"done": True}}
            await client.send(content={"role": "user", "parts": [{"functionResponse": response}]})
        assert results_of(await line.heard()) == [("o", {"done": True})]
        assert text_of(await line.heard()) == 'A result of `ask` has come in since: {"done":true}'


async def test_a_client_cannot_speak_for_the_tools_of_the_server():
    gate = Gate()
    async with staged(tools=[gate.work]) as stage, stage.live() as (client, line):
        await line.say(calls=[call("work", {"n": 7}, "w")])
        await gate.began.wait()
        for id in ("w", "nobody"):
            response = {"id": id, "name": "work", "response": {"n": 0}}
            await client.send(content={"role": "user", "parts": [{"functionResponse": response}]})
            refused = (await client.until(lambda e: e.get("errorCode")))[-1]
            assert refused["errorCode"] == "CONFLICT" and repr(id) in refused["errorMessage"]
        gate.open.set()
        assert results_of(await line.heard()) == [("w", {"n": 7})]
        assert not any(e["author"] == "user" for e in await stage.stored())


# ---- a human in the loop


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_call_that_needs_approval_waits_for_it_and_is_then_told(confirmed: bool):
    paid: list[int] = []

    @tool(require_confirmation=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    async with staged(tools=[pay, double]) as stage, stage.live() as (client, line):
        await line.say(calls=[call("pay", {"amount": 5}, "p")])
        asked = (await client.until(lambda e: "adk_request_confirmation" in str(e)))[-1]
        request = asked["content"]["parts"][0]["functionCall"]
        await line.say(calls=[call("double", {"n": 1}, "d")])
        assert results_of(await line.heard()) == [("d", {"result": 2})]  # the conversation goes on
        assert not paid
        answer = {"id": request["id"], "name": request["name"], "response": {"confirmed": confirmed}}
        await client.send(content={"role": "user", "parts": [{"functionResponse": answer}]})
        ((id, response),) = results_of(await line.heard())
        assert id == "p"
        assert (response == {"result": "paid"}) is confirmed
        assert paid == ([5] if confirmed else [])
        await client.send(content={"role": "user", "parts": [{"functionResponse": answer}]})
        refused = (await client.until(lambda e: e.get("errorCode")))[-1]
        assert request["id"] in refused["errorMessage"]
        await client.say("and now?")
        assert text_of(await line.heard()) == "and now?"
        assert len(paid) <= 1


async def test_an_approval_that_is_given_in_a_later_session_carries_the_call_out_once():
    paid: list[int] = []

    @tool(require_confirmation=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    async with staged(tools=[pay]) as stage:
        async with stage.live() as (client, line):
            await line.say(calls=[call("pay", {"amount": 5}, "p")])
            asked = (await client.until(lambda e: "adk_request_confirmation" in str(e)))[-1]
        request = asked["content"]["parts"][0]["functionCall"]
        answer = {"id": request["id"], "name": request["name"], "response": {"confirmed": True}}
        async with stage.live() as (client, line):
            await client.send(content={"role": "user", "parts": [{"functionResponse": answer}]})
            assert "paid" in text_of(await line.heard())
    assert paid == [5]


async def test_a_credential_that_the_client_gives_is_used_and_stored_nowhere():
    got: list[Any] = []

    def fetch(ctx: ToolContext) -> str:
        """Fetch."""
        if ctx.credential is None:
            ctx.request_credential({"kind": "password"})
            return "asked"
        got.append(ctx.credential)
        return "fetched"

    async with staged(tools=[fetch]) as stage, stage.live() as (client, line):
        await line.say(calls=[call("fetch", {}, "f")])
        asked = (await client.until(lambda e: "adk_request_credential" in str(e)))[-1]
        request = asked["content"]["parts"][0]["functionCall"]
        answer = {"id": request["id"], "name": request["name"], "response": {"password": "hunter2"}}
        await client.send(content={"role": "user", "parts": [{"functionResponse": answer}]})
        assert results_of(await line.heard()) == [("f", {"result": "fetched"})]
        assert "hunter2" not in str(line.inputs)
        assert "hunter2" not in str(await stage.stored())
    assert got == [{"password": "hunter2"}]


# ---- callbacks and budgets


async def test_callbacks_of_the_model_see_what_goes_to_it_and_what_comes():
    def before(ctx: CallbackContext, request: Any) -> None:
        request.system += " Be brief."

    def after(ctx: CallbackContext, response: ModelResponse) -> ModelResponse | None:
        ctx.state["heard"] = True
        if response.content is None or not response.content.text:
            return None
        return ModelResponse(content=model_text(response.content.text.replace("secret", "***")))

    async with staged(before_model=before, after_model=after) as stage, stage.live() as (client, line):
        assert line.request.system.endswith(" Be brief.")
        await line.say(content=model_text("a secret"))
        await line.say(turn_complete=True)
        assert lines_of(await client.until(lambda e: e.get("turnComplete")))[:2] == ["~app: a ***", "app: a ***"]
        assert (await stage.talk.stored())["state"] == {"heard": True}


async def test_a_callback_may_answer_in_the_models_place():
    async with staged(before_model=lambda ctx, request: ModelResponse(content=model_text("no"))) as stage:
        async with stage.connected() as client:
            assert lines_of([await client.event()]) == ["app: no"]
            assert (await client.closed())[0] == 1000
        assert not stage.model.lines


async def test_tools_go_through_all_hooks_and_state_and_output_come_true():
    seen: list[str] = []

    class Gatekeeper(Plugin):
        name = "gatekeeper"

        async def before_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any]) -> Any:
            seen.append(f"before {tool.name}")

        async def after_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], result: Any) -> Any:
            seen.append(f"after {tool.name}")

    def note(text: str, ctx: ToolContext) -> str:
        """Take a note."""
        ctx.state["note"] = text
        return "noted"

    async with staged(tools=[note], plugins=[Gatekeeper()], output_key="last") as stage:
        async with stage.live() as (client, line):
            await line.say(calls=[call("note", {"text": "milk"}, "n")])
            await line.heard()
            await line.say(output_transcription=Transcription(text="Noted.", finished=True), turn_complete=True)
            await client.until(lambda e: e.get("turnComplete"))
        assert (await stage.talk.stored())["state"] == {"note": "milk", "last": "Noted."}
    assert seen == ["before note", "after note"]


async def test_a_model_that_goes_round_in_circles_is_stopped_and_the_user_may_always_speak():
    async with staged(tools=[double], limits=Limits(max_llm_calls=3)) as stage, stage.live() as (client, line):
        for n in range(5):
            await client.say("again")
            await line.heard()
            await line.say(calls=[call("double", {"n": n}, f"c{n}")])
            await line.heard()
        for n in range(3):
            await line.say(calls=[FunctionCall(id=f"d{n}", name="double", args={"n": n})])
        code, reason = await client.closed()
        assert (code, "budget of 3" in reason) == (1011, True)


async def test_a_tool_may_be_an_agent_and_asks_its_model_in_the_usual_way():
    from polyport.tools.agent_tool import AgentTool

    async with staged("Paris") as plain:
        helper = LlmAgent(name="helper", description="Knows capitals.", model=plain.model)
        async with staged(tools=[AgentTool(helper)]) as stage, stage.live() as (_, line):
            await line.say(calls=[call("helper", {"request": "France?"}, "h")])
            assert results_of(await line.heard()) == [("h", {"result": "Paris"})]
        plain.model.check()


async def test_a_child_is_asked_in_the_usual_way_and_one_that_would_ask_the_user_is_told_as_an_error():
    maths = LlmAgent(name="maths", mode="single_turn", model=ScriptedModel("42"))
    form = LlmAgent(name="form", mode="task", model=ScriptedModel("What is your name?"))
    async with staged(sub_agents=[maths, form]) as stage, stage.live() as (client, line):
        await line.say(calls=[call("maths", {"request": "6 * 7"}, "m")])
        assert results_of(await line.heard()) == [("m", {"result": "42"})]
        await line.say(calls=[call("form", {"request": "fill in"}, "f")])
        ((id, told),) = results_of(await line.heard())
        assert (id, list(told)) == ("f", ["error"])
        await client.say("go on")
        assert text_of(await line.heard()) == "go on"
