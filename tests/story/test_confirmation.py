"""A human approves or declines calls: what is asked, what is carried out, what the model learns (spec core 3.11)."""

import enum
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs

from polyport import App, Content, FunctionAgent, LlmAgent, Part, Plugin, Tool, ToolContext, make_tool, tool
from polyport.data.content import FunctionCall
from polyport.data.event import Event
from polyport.data.model import ModelRequest, ToolDeclaration
from polyport.errors import ConfigError, Conflict
from polyport.ports.agent import CallbackContext, ReadContext
from polyport.testing import ScriptedModel, call
from polyport.tools.confirm import confirm
from support.approvals import ASK, Till, approve, requests, together
from support.talk import Serve, answer, said, texts


def results(events: list[Any]) -> list[Any]:
    parts = [p for e in events for p in (e.get("content") or {}).get("parts", [])]
    return [p["functionResponse"].get("response") for p in parts if "functionResponse" in p]


# ---- one call


async def test_section_3_11_core_80_85_the_call_its_pending_response_then_the_request(serve: Serve, scripted: Any):
    till = Till()
    agent, model = scripted(call("pay", {"amount": 5}, "c1"), "paid", tools=[till.tool()])
    async with serve(agent) as talk:
        asked, pending, request = await talk.run("pay 5")
        assert asked["content"]["parts"][0]["functionCall"]["id"] == "c1" and "longRunningToolIds" not in asked
        assert pending["content"]["role"] == "user" and pending["author"] == "app"
        assert "approval" in pending["content"]["parts"][0]["functionResponse"]["response"]["error"]
        assert pending["actions"]["skipSummarization"] is True
        wanted = {"hint": "Approve or reject the call of the tool 'pay'.", "confirmed": False, "payload": None}
        assert pending["actions"]["requestedToolConfirmations"] == {"c1": wanted}
        assert (request["author"], request["content"]["role"]) == ("app", "model")
        made = request["content"]["parts"][0]["functionCall"]
        assert made["id"].startswith("adk-") and request["longRunningToolIds"] == [made["id"]]
        assert made["name"] == ASK
        assert made["args"] == {
            "originalFunctionCall": {"id": "c1", "name": "pay", "args": {"amount": 5}},
            "toolConfirmation": wanted,
        }
        assert len({e["invocationId"] for e in (asked, pending, request)}) == 1
        assert till.paid == [] and len(model.requests) == 1, "nothing happens before the approval (FR-121)"


@pytest.mark.parametrize("wrapped", [False, True])
async def test_FR_121_core_78_an_approved_call_is_carried_out_once_and_the_model_goes_on(
    serve: Serve, scripted: Any, wrapped: bool
):
    till = Till()
    agent, model = scripted(call("pay", {"amount": 5}, "c1"), "It is paid.", tools=[till.tool()])
    async with serve(agent) as talk:
        first = await talk.run("pay 5")
        (request,) = requests(first)
        said_yes = {"response": '{"confirmed": true}'} if wrapped else {"confirmed": True}
        done = await talk.run(answer(request["id"], ASK, said_yes))
        assert [len(done), results(done), texts(done)] == [2, [{"paid": 5}], ["It is paid."]]
        assert {e["invocationId"] for e in done} == {first[0]["invocationId"]}
    assert till.paid == [5]
    assert model.prompt() == ["user: pay 5", "model: call pay({'amount': 5})", "user: result pay {'paid': 5}"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"confirmed": False}, None),
        ({"confirmed": False, "payload": {"reason": "over budget"}}, "over budget"),
        ({"confirmed": False, "payload": "not today"}, "not today"),
        ({"confirmed": False, "payload": {"code": 7}}, {"code": 7}),
        ({"response": '{"confirmed": false, "payload": {"reason": "no"}}'}, "no"),
    ],
)
async def test_FR_138_a_declined_call_is_not_carried_out_and_the_model_learns_why(
    serve: Serve, scripted: Any, reply: dict[str, Any], reason: Any
):
    till = Till()
    agent, model = scripted(call("pay", {"amount": 5}, "c1"), "I see.", tools=[till.tool()])
    async with serve(agent) as talk:
        (request,) = requests(await talk.run("pay 5"))
        done = await talk.run(answer(request["id"], ASK, reply))
        assert texts(done) == ["I see."]
    told = model.requests[1].contents[-1].responses[0].response
    assert "rejected" in told["error"]
    assert told.get("reason") == reason
    assert till.paid == []


async def test_core_84_a_predicate_gets_the_typed_arguments_and_decides_alone(serve: Serve, scripted: Any):
    seen: list[Any] = []
    spent: list[Any] = []

    @tool(require_confirmation=lambda amount, currency: seen.append((amount, currency)) or amount > 1000)
    def spend(amount: Decimal, ctx: ToolContext, currency: str = "EUR") -> str:
        """Spend."""
        spent.append(amount)
        return "spent"

    agent, _ = scripted(
        call("spend", {"amount": "10.5"}), "done", call("spend", {"amount": 2000}), "over", tools=[spend]
    )
    async with serve(agent) as talk:
        assert texts(await talk.run("a little")) == ["done"]
        (request,) = requests(await talk.run("a lot"))
        assert seen == [(Decimal("10.5"), "EUR"), (Decimal(2000), "EUR")]
        assert spent == [Decimal("10.5")]
        assert texts(await talk.run(approve(request))) == ["over"]
        assert len(seen) == 2, "the predicate is not asked about a call that a human has decided on"
    assert spent == [Decimal("10.5"), Decimal(2000)]


async def test_an_async_predicate_with_a_context(scripted: Any):
    till = Till()

    async def large(ctx: ToolContext, **args: Any) -> bool:
        return args["amount"] > ctx.state["limit"]

    agent, _ = scripted(call("pay", {"amount": 5}), "x", tools=[till.tool(require_confirmation=large)])
    got = await App(agent).ask("hi", state={"limit": 4})
    assert got.outcome.status == "paused" and till.paid == []


def test_core_84_a_predicate_that_does_not_fit_the_function_is_a_configuration_error():
    with pytest.raises(ConfigError, match="'sum', which the function does not have; its parameters are: amount"):
        make_tool(Till().pay, require_confirmation=lambda sum: sum > 1)
    with pytest.raises(ConfigError, match="positional-only"):
        make_tool(Till().pay, require_confirmation=lambda amount, /: True)
    make_tool(Till().pay, require_confirmation=lambda amount, more=1: True)


async def test_a_predicate_that_fails_stops_the_call(scripted: Any):
    till = Till()
    agent, model = scripted(
        call("pay", {"amount": 5}), "sorry", tools=[till.tool(require_confirmation=lambda amount: amount / 0)]
    )
    got = await App(agent).ask("hi")
    assert (got.text, till.paid) == ("sorry", [])
    assert "ZeroDivisionError" in model.requests[1].contents[-1].responses[0].response["error"]


async def test_section_6_2_bad_arguments_are_refused_before_anybody_is_asked(scripted: Any):
    till = Till()
    agent, model = scripted(call("pay", {"amount": "much"}), "sorry", tools=[till.tool()])
    got = await App(agent).ask("hi")
    assert (got.outcome.status, got.text) == ("finished", "sorry")
    assert "amount" in model.requests[1].contents[-1].responses[0].response["error"]


class Mood(enum.Enum):
    GOOD = "good"


async def test_FR_121_FR_134_a_tool_asks_by_itself_with_a_hint_and_a_payload(scripted: Any):
    heard: list[Any] = []

    def book(days: int, ctx: ToolContext) -> dict[str, Any]:
        """Book days off."""
        if ctx.confirmation is None:
            at = datetime(2026, 1, 2, tzinfo=UTC)
            ctx.request_confirmation("How many?", {"at": at, "cost": Decimal("1.50"), "mood": Mood.GOOD, "days": days})
            return {"status": "waiting"}
        heard.append(ctx.confirmation)
        return {"booked": ctx.confirmation.payload["days"]}

    agent, model = scripted(call("book", {"days": 9}, "c1"), "booked", tools=[book])
    app = App(agent)
    first = await app.ask("hi", session="s1")
    assert first.events[1].responses[0].response == {"status": "waiting"}
    args = first.events[2].calls[0].args
    assert args["toolConfirmation"] == {
        "hint": "How many?",
        "confirmed": False,
        "payload": {"at": "2026-01-02T00:00:00Z", "cost": "1.50", "mood": "good", "days": 9},
    }
    reply = said(first.events[2].calls[0].id, ASK, {"confirmed": True, "payload": {"days": 3}})
    got = await app.ask(reply, session="s1")
    assert got.events[0].responses[0].response == {"booked": 3}
    assert (heard[0].hint, heard[0].confirmed, heard[0].payload) == ("How many?", True, {"days": 3})
    assert model.prompt()[-1] == "user: result book {'booked': 3}"


async def test_a_payload_without_a_json_form_is_a_tool_error(scripted: Any):
    def book(ctx: ToolContext) -> None:
        """Book."""
        ctx.request_confirmation("?", {"at": object()})

    agent, model = scripted(call("book"), "sorry", tools=[book])
    got = await App(agent).ask("hi")
    assert (got.outcome.status, got.text) == ("finished", "sorry")
    assert "payload of a confirmation" in model.requests[1].contents[-1].responses[0].response["error"]


async def test_section_12_14_a_tool_may_ask_again_while_it_goes_on(serve: Serve, scripted: Any):
    rounds: list[Any] = []

    def launch(ctx: ToolContext) -> dict[str, Any]:
        """Launch, with the approval of two."""
        said = ctx.confirmation
        rounds.append(said and said.payload)
        if said is None:
            ctx.request_confirmation("first key")
        elif said.hint == "first key":
            ctx.request_confirmation("second key")
        else:
            return {"launched": True}
        return {"status": "waiting"}

    agent, model = scripted(call("launch", id="c1"), "up", tools=[launch])
    async with serve(agent) as talk:
        (one,) = requests(await talk.run("go"))
        again = await talk.run(approve(one, payload=1))
        assert results(again) == [{"status": "waiting"}] and len(model.requests) == 1
        (two,) = requests(again)
        assert two["id"] != one["id"] and two["args"]["originalFunctionCall"]["id"] == "c1"
        assert two["args"]["toolConfirmation"]["hint"] == "second key"
        done = await talk.run(approve(two, payload=2))
        assert [results(done), texts(done)] == [[{"launched": True}], ["up"]]
    assert rounds == [None, 1, 2]
    assert model.prompt() == ["user: go", "model: call launch({})", "user: result launch {'launched': True}"]


async def test_a_declined_call_does_not_reach_a_tool_that_asked_by_itself(scripted: Any):
    runs: list[Any] = []

    def launch(ctx: ToolContext) -> dict[str, Any]:
        """Launch."""
        runs.append(ctx.confirmation)
        ctx.request_confirmation("really?")
        return {"status": "waiting"}

    agent, model = scripted(call("launch"), "fine", tools=[launch])
    app = App(agent)
    first = await app.ask("go", session="s1")
    reply = said(first.events[-1].calls[0].id, ASK, {"confirmed": False, "payload": "no fuel"})
    assert (await app.ask(reply, session="s1")).text == "fine"
    assert runs == [None]
    assert model.requests[1].contents[-1].responses[0].response["reason"] == "no fuel"


# ---- several calls


def mixed(till: Till) -> list[Any]:
    def look() -> dict[str, str]:
        """Look."""
        return {"sky": "blue"}

    def refund(amount: int) -> dict[str, int]:
        """Refund."""
        till.paid.append(-amount)
        return {"refunded": amount}

    return [look, till.tool(), make_tool(refund, require_confirmation=lambda amount: amount > 1)]


THREE = [call("pay", {"amount": 5}, "a"), call("look", {}, "b"), call("refund", {"amount": 7}, "c")]


async def test_core_78_FR_132_all_requests_of_a_step_come_together_and_in_order(serve: Serve, scripted: Any):
    till = Till()
    agent, model = scripted(THREE, "all done", tools=mixed(till))
    async with serve(agent) as talk:
        events = await talk.run("go")
        assert len(events) == 3, "the calls, their responses, the requests"
        pending, looked, waiting = results(events)
        assert "error" in pending and "error" in waiting and looked == {"sky": "blue"}
        asked = requests(events)
        assert [r["args"]["originalFunctionCall"]["id"] for r in asked] == ["a", "c"]
        assert events[2]["longRunningToolIds"] == [r["id"] for r in asked]
        done = await talk.run(together(approve(asked[1]), approve(asked[0])))
        assert len(done) == 2 and results(done) == [{"paid": 5}, {"refunded": 7}], "in the order of the calls"
    assert till.paid in ([5, -7], [-7, 5])
    assert len(model.requests) == 2
    assert model.prompt()[-1] == "user: " + " | ".join(
        ["result pay {'paid': 5}", "result look {'sky': 'blue'}", "result refund {'refunded': 7}"]
    )


async def test_core_79_FR_132_one_approved_and_one_declined(serve: Serve, scripted: Any):
    till = Till()
    agent, model = scripted(THREE, "half done", tools=mixed(till))
    async with serve(agent) as talk:
        one, two = requests(await talk.run("go"))
        done = await talk.run(together(approve(one, False, payload="no"), approve(two)))
        declined, refunded = results(done)
        assert declined["reason"] == "no" and refunded == {"refunded": 7} and texts(done) == ["half done"]
    assert till.paid == [-7]
    model.check()


@pytest.mark.parametrize("first", [0, 1])
async def test_FR_132_answered_apart_the_model_is_asked_when_both_are_settled(serve: Serve, scripted: Any, first: int):
    till = Till()
    agent, model = scripted(THREE, "all done", tools=mixed(till))
    async with serve(agent) as talk:
        asked = requests(await talk.run("go"))
        half = await talk.run(approve(asked[first]))
        assert results(half) == [{"paid": 5}, {"refunded": 7}][first : first + 1] and texts(half) == []
        assert len(half) == 1 and half[0]["actions"]["skipSummarization"] is True
        assert len(model.requests) == 1 and len(till.paid) == 1
        rest = await talk.run(approve(asked[1 - first]))
        assert texts(rest) == ["all done"]
    assert sorted(till.paid) == [-7, 5]
    assert "approval" not in str(model.requests[1].contents)


async def test_text_in_between_is_a_turn_like_any_other_and_the_request_stays_open(serve: Serve, scripted: Any):
    till = Till()
    agent, model = scripted(
        call("pay", {"amount": 5}, "c1"), "It waits.", "Still.", "Paid at last.", tools=[till.tool()]
    )
    async with serve(agent) as talk:
        first = await talk.run("pay 5")
        (request,) = requests(first)
        assert texts(await talk.run("well?")) == ["It waits."]
        assert "approval of a human" in model.prompt()[2], "the model knows that the call waits"
        assert texts(await talk.run("and now?")) == ["Still."]
        done = await talk.run(approve(request))
        assert texts(done) == ["Paid at last."] and {e["invocationId"] for e in done} == {first[0]["invocationId"]}
    assert till.paid == [5]
    assert model.prompt()[2] == "user: result pay {'paid': 5}"


async def test_text_beside_an_approval_is_heard_and_does_not_undo_it(serve: Serve, scripted: Any):
    till = Till()
    agent, model = scripted(call("pay", {"amount": 5}, "c1"), "Paid, quickly.", tools=[till.tool()])
    async with serve(agent) as talk:
        (request,) = requests(await talk.run("pay 5"))
        done = await talk.run(together(approve(request), {"parts": [{"text": "and be quick"}]}))
        assert results(done) == [{"paid": 5}]
    assert till.paid == [5]
    assert any("and be quick" in line for line in model.prompt())


async def test_two_steps_wait_and_each_answer_belongs_to_its_own(serve: Serve, scripted: Any):
    """The model uses the same call id twice, as some servers' models do."""
    till = Till()
    agent, _ = scripted(
        call("pay", {"amount": 1}, "call_0"), call("pay", {"amount": 2}, "call_0"), "two", "one", tools=[till.tool()]
    )
    async with serve(agent) as talk:
        (one,) = requests(await talk.run("pay 1"))
        (two,) = requests(await talk.run("pay 2"))
        assert texts(await talk.run(approve(two))) == ["two"] and till.paid == [2]
        assert texts(await talk.run(approve(one))) == ["one"] and till.paid == [2, 1]


async def test_answers_to_two_steps_in_one_message(serve: Serve, scripted: Any):
    till = Till()
    agent, model = scripted(
        call("pay", {"amount": 1}, "a"), call("pay", {"amount": 2}, "b"), "both", tools=[till.tool()]
    )
    async with serve(agent) as talk:
        (one,) = requests(await talk.run("pay 1"))
        (two,) = requests(await talk.run("pay 2"))
        done = await talk.run(together(approve(two), approve(one)))
        assert results(done) == [{"paid": 1}, {"paid": 2}] and texts(done) == ["both"]
    model.check()


async def test_core_82_a_call_id_that_comes_twice_in_one_answer_is_carried_out_once(serve: Serve, scripted: Any):
    till = Till()
    agent, _ = scripted([call("pay", {"amount": 1}, "x"), call("pay", {"amount": 1}, "x")], "ok", tools=[till.tool()])
    async with serve(agent) as talk:
        (request,) = requests(await talk.run("go"))
        done = await talk.run(approve(request))
        assert texts(done) == ["ok"] and results(done) == [{"paid": 1}]
    assert till.paid == [1]


async def test_core_81_requests_carry_the_thought_signatures_of_their_calls(scripted: Any):
    till = Till()
    parts = [
        Part(function_call=FunctionCall(id=f"c{n}", name="pay", args={"amount": n}), thought_signature=signature)
        for n, signature in enumerate([b"one", None, b"three"])
    ]
    agent, _ = scripted(Content(role="model", parts=parts), tools=[till.tool()])
    got = await App(agent).ask("go")
    content = got.events[2].content
    assert content is not None and [p.thought_signature for p in content.parts] == [b"one", None, b"three"]


# ---- what else happens in the same step


async def test_a_hand_over_beside_a_request_waits_for_the_answer(serve: Serve):
    till = Till()
    helper = LlmAgent(name="helper", model=ScriptedModel("I am the helper."))
    both = [call("pay", {"amount": 5}, "c1"), call("transfer_to_agent", {"agent_name": "helper"}, "c2")]
    root = LlmAgent(name="app", model=ScriptedModel(both), tools=[till.tool()], sub_agents=[helper])
    async with serve(root) as talk:
        events = await talk.run("go")
        (request,) = requests(events)
        assert {e["author"] for e in events} == {"app"}
        done = await talk.run(approve(request))
        assert [(e["author"], texts([e])) for e in done] == [("app", []), ("helper", ["I am the helper."])]
    assert till.paid == [5]


async def test_a_long_running_tool_may_be_approved_and_then_take_its_time(serve: Serve, scripted: Any):
    begun: list[int] = []

    @tool(long_running=True, require_confirmation=True)
    def build(n: int) -> None:
        """Build."""
        begun.append(n)

    agent, model = scripted(call("build", {"n": 1}, "c1"), "built", tools=[build])
    async with serve(agent) as talk:
        (request,) = requests(await talk.run("build"))
        assert begun == []
        refused = await talk.client.post("/run", json=talk.body(answer("c1", "build", {"ok": True})))
        assert refused.status == 409, "its result is not the answer that is waited for"
        started = await talk.run(approve(request))
        assert begun == [1] and texts(started) == [] and len(model.requests) == 1
        assert texts(await talk.run(answer("c1", "build", {"ok": True}))) == ["built"]
    assert model.prompt()[-1] == "user: result build {'ok': True}"


async def test_a_long_running_call_beside_an_approval_still_waits_after_it(scripted: Any):
    @tool(long_running=True)
    def build() -> None:
        """Build."""

    till = Till()
    both = [call("pay", {"amount": 5}, "c1"), call("build", {}, "c2")]
    agent, model = scripted(both, "paid, and it is being built", "built", tools=[till.tool(), build])
    app = App(agent)
    first = await app.ask("go", session="s1")
    got = await app.ask(said(first.events[-1].calls[0].id, ASK, {"confirmed": True}), session="s1")
    assert (got.text, got.outcome.status) == ("paid, and it is being built", "paused")
    got = await app.ask(said("c2", "build", {"ok": True}), session="s1")
    assert (got.text, got.outcome.status) == ("built", "finished")
    model.check()


async def test_an_id_that_waits_for_an_approval_may_be_used_again_by_a_long_running_call(scripted: Any):
    @tool(long_running=True)
    def build() -> None:
        """Build."""

    agent, _ = scripted(
        call("pay", {"amount": 5}, "call_0"), call("build", {}, "call_0"), "built", tools=[Till().tool(), build]
    )
    app = App(agent)
    await app.ask("pay", session="s1")
    await app.ask("build", session="s1")
    assert (await app.ask(said("call_0", "build", {"ok": True}), session="s1")).text == "built"


async def test_before_tool_may_ask_for_an_approval_in_the_tools_place(serve: Serve, scripted: Any):
    till = Till()

    def policy(ctx: ToolContext, tool: Tool, args: dict[str, Any]) -> Any:
        if ctx.confirmation is None and args["amount"] > 3:
            ctx.request_confirmation("policy")
            return {"status": "the policy wants an approval"}
        return None

    agent, _ = scripted(
        call("pay", {"amount": 5}), "ok", call("pay", {"amount": 6}), "no", tools=[till.pay], before_tool=policy
    )
    async with serve(agent) as talk:
        (request,) = requests(await talk.run("go"))
        assert texts(await talk.run(approve(request))) == ["ok"] and till.paid == [5]
        (request,) = requests(await talk.run("go"))
        assert texts(await talk.run(approve(request, False))) == ["no"] and till.paid == [5]


async def test_plugins_see_both_rounds_and_an_approval_is_no_error_of_the_tool(scripted: Any):
    seen: list[Any] = []

    class Watch(Plugin):
        name = "watch"

        async def on_tool_error(self, ctx: Any, tool: Any, args: Any, error: Exception) -> Any:
            seen.append(("error", error))

        async def after_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], result: Any) -> Any:
            seen.append((ctx.confirmation is not None, "error" in result))

        async def around_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], call_next: Any) -> Any:
            seen.append("around")
            return await call_next(args)

    till = Till()
    agent, _ = scripted(call("pay", {"amount": 5}), "ok", tools=[till.tool()])
    app = App(agent, plugins=[Watch()])
    first = await app.ask("go", session="s1")
    await app.ask(said(first.events[-1].calls[0].id, ASK, {"confirmed": True}), session="s1")
    assert seen == ["around", (False, True), "around", (True, False)]
    assert till.paid == [5]


async def test_a_plugin_may_rewrite_the_request_but_not_what_it_is_about(scripted: Any):
    class Rewrite(Plugin):
        name = "rewrite"

        def __init__(self, args: dict[str, Any] | None = None) -> None:
            self.args = args

        async def on_event(self, ctx: ReadContext, event: Event) -> Event | None:
            if event.content is None or not event.long_running_tool_ids:
                return None
            made = event.calls[0]
            shown = {**made.args["originalFunctionCall"], **({"args": self.args} if self.args else {})}
            hint = {**made.args["toolConfirmation"], "hint": "Please!"}
            made = structs.replace(made, args={"originalFunctionCall": shown, "toolConfirmation": hint})
            content = structs.replace(event.content, parts=[Part(function_call=made)])
            return structs.replace(event, content=content, custom_metadata={"seen": True})

    till = Till()
    for plugin in (Rewrite(), Rewrite({"amount": 1})):
        agent, _ = scripted(call("pay", {"amount": 5}, "c1"), "ok", tools=[till.tool()])
        app = App(agent, plugins=[plugin])
        first = await app.ask("go", session="s1")
        assert (first.events[-1].custom_metadata or {})["seen"] is True
        reply = said(first.events[-1].calls[0].id, ASK, {"confirmed": True})
        if plugin.args is None:
            assert (await app.ask(reply, session="s1")).text == "ok"
        else:
            with pytest.raises(Conflict, match="cannot be verified"):
                await app.ask(reply, session="s1")
    assert till.paid == [5]


# ---- toolsets


class Bank:
    """A toolset whose second tool edits requests."""

    name = "bank"

    def __init__(self, till: Till) -> None:
        self._till = till
        self.closed = False

    async def tools(self, ctx: ReadContext) -> list[Tool]:
        return [make_tool(self._till.pay), Noting()]

    async def aclose(self) -> None:
        self.closed = True


class Noting(Tool):
    name = "note"

    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(name="note", description="Note something")

    async def prepare(self, ctx: CallbackContext, request: ModelRequest) -> None:
        request.system += "\nThere are notes."

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        return {"noted": args}


async def test_section_6_1_a_whole_toolset_behind_approvals_keeps_its_request_hooks(serve: Serve, scripted: Any):
    till = Till()
    bank = Bank(till)
    agent, model = scripted([call("pay", {"amount": 1}, "a"), call("note", {"x": 1}, "b")], "ok", tools=[confirm(bank)])
    async with serve(agent) as talk:
        asked = requests(await talk.run("go"))
        assert [r["args"]["originalFunctionCall"]["name"] for r in asked] == ["pay", "note"]
        done = await talk.run(together(*map(approve, asked)))
        assert results(done) == [{"paid": 1}, {"noted": {"x": 1}}]
    assert "There are notes." in model.requests[0].system
    assert bank.closed


async def test_core_84_a_predicate_for_a_toolset_gets_name_and_arguments(serve: Serve, scripted: Any):
    till = Till()
    risky = confirm(Bank(till), lambda name, args: name == "pay" and args["amount"] > 3)
    agent, _ = scripted(
        [call("pay", {"amount": 1}, "a"), call("note", {}, "b"), call("pay", {"amount": 9}, "c")], tools=[risky]
    )
    async with serve(agent) as talk:
        events = await talk.run("go")
        assert [r["args"]["originalFunctionCall"]["id"] for r in requests(events)] == ["c"]
    assert till.paid == [1]


async def test_confirm_for_one_tool_leaves_the_tool_itself_alone(scripted: Any):
    till = Till()
    plain = make_tool(till.pay)
    gated, _ = scripted(call("pay", {"amount": 1}), tools=[confirm(plain)])
    free, _ = scripted(call("pay", {"amount": 2}), "ok", tools=[plain])
    assert (await App(gated).ask("go")).outcome.status == "paused"
    assert (await App(free).ask("go")).outcome.status == "finished"
    assert till.paid == [2]
    own, _ = scripted(call("pay", {"amount": 3}), tools=[confirm(till.tool(), False)])
    assert (await App(own).ask("go")).outcome.status == "paused", "a tool that asks by itself still does"
    with pytest.raises(ConfigError, match="require_confirmation"):
        confirm(till.pay)  # type: ignore[call-overload]  # what a user may write


async def test_a_class_may_say_that_its_calls_need_an_approval(scripted: Any):
    class Wipe(Tool):
        name = "wipe"
        require_confirmation = True

        def declaration(self) -> ToolDeclaration:
            return ToolDeclaration(name="wipe", description="Wipe")

        async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
            return {"wiped": True}

    agent, _ = scripted(call("wipe"), "clean", tools=[Wipe()])
    app = App(agent)
    first = await app.ask("go", session="s1")
    assert first.outcome.status == "paused"
    got = await app.ask(said(first.events[-1].calls[0].id, ASK, {"confirmed": True}), session="s1")
    assert (got.text, got.events[0].responses[0].response) == ("clean", {"wiped": True})


async def test_requests_of_other_agents_that_look_the_same_are_left_to_them(scripted: Any):
    """A remote agent's request passes through: its answer belongs to that agent, which sees it in the history."""

    async def remote(ctx: Any) -> None:
        replies = [r for e in ctx.session.events if e.author == "user" for r in e.responses]
        if replies:
            await ctx.emit(Event(content=Content(role="model", parts=[Part(text=str(replies[0].response))])))
            return
        made = FunctionCall(id="r1", name=ASK, args={"originalFunctionCall": {"id": "x", "name": "far", "args": {}}})
        content = Content(role="model", parts=[Part(function_call=made)])
        await ctx.emit(structs.replace(ctx.event(content=content), long_running_tool_ids=["r1"]))

    app = App(FunctionAgent(name="app", function=remote))
    await app.ask("go", session="s1")
    got = await app.ask(said("r1", ASK, {"confirmed": True}), session="s1")
    assert got.text == "{'confirmed': True}"
