"""Tools and agents ask a human for an input or a credential, and go on with the answer (spec core 2.3, 3.11, 4.6)."""

import json
from pathlib import Path
from typing import Any

import pytest

from polyport import App, FunctionAgent, LlmAgent, Plugin, RunContext, SequentialAgent, ToolContext, make_tool, tool
from polyport.data.content import model_text
from polyport.data.event import Event
from polyport.testing import ScriptedModel, call, connect
from support.approvals import ASK, approve, refused, requests, together
from support.talk import Serve, Talk, answer, texts

INPUT = "adk_request_input"
CREDENTIAL = "adk_request_credential"


def reply(request: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    return answer(request["id"], request["name"], response)


class Desk:
    """Books after having asked for a day."""

    def __init__(self, schema: dict[str, Any] | None = None) -> None:
        self.schema = schema
        self.heard: list[Any] = []

    def book(self, city: str, ctx: ToolContext) -> dict[str, Any]:
        """Book a trip."""
        self.heard.append(ctx.inputs)
        if not ctx.inputs:
            ctx.request_input("Which day?", self.schema, {"city": city})
            return {"status": "waiting for the day"}
        return {"booked": city, "day": ctx.input}


async def test_section_4_6_a_tool_asks_and_is_carried_out_again_with_the_answer(serve: Serve, scripted: Any):
    desk = Desk({"type": "string"})
    agent, model = scripted(call("book", {"city": "Rome"}, "c1"), "Booked.", tools=[desk.book])
    async with serve(agent) as talk:
        asked, pending, request = await talk.run("to Rome")
        assert "longRunningToolIds" not in asked
        assert pending["content"]["parts"][0]["functionResponse"]["response"] == {"status": "waiting for the day"}
        (made,) = requests([request], INPUT)
        wanted = {"interruptId": made["id"], "message": "Which day?", "payload": {"city": "Rome"}}
        assert made["args"] == {**wanted, "responseSchema": {"type": "string"}}
        assert request["requestedInput"] == made["args"]
        assert (request["author"], request["longRunningToolIds"]) == ("app", [made["id"]])
        assert len(model.requests) == 1
        done = await talk.run(reply(made, {"response": "Monday"}))
        assert texts(done) == ["Booked."] and {e["invocationId"] for e in done} == {request["invocationId"]}
    assert desk.heard == [(), ("Monday",)]
    assert model.prompt() == [
        "user: to Rome",
        "model: call book({'city': 'Rome'})",
        "user: result book {'booked': 'Rome', 'day': 'Monday'}",
    ]


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ({"response": "Monday"}, "Monday"),
        ({"response": '{"day": 1}'}, {"day": 1}),
        ({"response": "7"}, 7),
        ({"response": "{oops"}, "{oops"),
        ({"response": [1, 2], "payload": 3}, [1, 2]),
        ({"payload": {"day": 2}, "more": 1}, {"day": 2}),
        ({"payload": None}, None),
        ({"day": 3}, {"day": 3}),
        ({}, {}),
    ],
)
async def test_core_103_how_an_answer_is_read(serve: Serve, scripted: Any, response: dict[str, Any], value: Any):
    desk = Desk()
    agent, _ = scripted(call("book", {"city": "Rome"}), "ok", tools=[desk.book])
    async with serve(agent) as talk:
        (made,) = requests(await talk.run("go"), INPUT)
        assert "responseSchema" not in made["args"]
        assert texts(await talk.run(reply(made, response))) == ["ok"]
    assert desk.heard == [(), (value,)]


async def test_core_101_an_answer_that_does_not_fit_is_refused_and_a_better_one_works(serve: Serve, scripted: Any):
    desk = Desk({"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]})
    agent, _ = scripted(call("book", {"city": "Rome"}, "c1"), "ok", tools=[desk.book])
    async with serve(agent) as talk:
        (made,) = requests(await talk.run("go"), INPUT)
        await refused(talk, reply(made, {"day": "one"}), 400, made["id"], "schema", "day")
        await refused(talk, reply(made, {"response": "one"}), 400, made["id"])
        await refused(talk, answer("c1", "book", {"booked": "Rome"}), 409, "c1", made["id"])
        assert texts(await talk.run(reply(made, {"response": '{"day": 1}'}))) == ["ok"]
        await refused(talk, reply(made, {"day": 2}), 409, "nothing to resume", made["id"])
    assert desk.heard == [(), ({"day": 1},)]


async def test_several_questions_of_one_call_are_answered_before_it_goes_on(serve: Serve, scripted: Any):
    heard: list[Any] = []

    def book(ctx: ToolContext) -> dict[str, Any]:
        """Book."""
        heard.append(ctx.inputs)
        if not ctx.inputs:
            ctx.request_input("From?")
            ctx.request_input("To?")
        elif len(ctx.inputs) == 2:
            ctx.request_input("When?")
        else:
            return {"trip": list(ctx.inputs)}
        return {"status": "waiting"}

    agent, model = scripted(call("book"), "ok", tools=[book])
    async with serve(agent) as talk:
        events = await talk.run("go")
        one, two = requests(events, INPUT)
        assert [e["requestedInput"]["message"] for e in events if "requestedInput" in e] == ["From?", "To?"]
        assert await talk.run(reply(two, {"response": "Rome"})) == [], "half an answer carries out nothing"
        (three,) = requests(await talk.run(reply(one, {"response": "Oslo"})), INPUT)
        assert len(model.requests) == 1
        assert texts(await talk.run(reply(three, {"response": "May"}))) == ["ok"]
    assert heard == [(), ("Oslo", "Rome"), ("Oslo", "Rome", "May")]
    assert model.prompt()[-1] == "user: result book {'trip': ['Oslo', 'Rome', 'May']}"


async def test_an_approval_first_and_then_a_question(serve: Serve, scripted: Any):
    desk = Desk()
    agent, _ = scripted(call("book", {"city": "Rome"}), "ok", tools=[make_tool(desk.book, require_confirmation=True)])
    async with serve(agent) as talk:
        (approval,) = requests(await talk.run("go"))
        assert desk.heard == []
        (made,) = requests(events := await talk.run(approve(approval)), INPUT)
        assert requests(events, ASK) == []
        done = await talk.run(reply(made, {"response": "Monday"}))
        assert texts(done) == ["ok"] and requests(done, ASK) == [], "the approval holds for the whole call"
    assert desk.heard == [(), ("Monday",)]


async def test_calls_that_ask_for_different_things_are_answered_in_one_message(serve: Serve, scripted: Any):
    desk = Desk()

    @tool(require_confirmation=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    both = [call("pay", {}, "a"), call("book", {"city": "Rome"}, "b")]
    agent, model = scripted(both, "ok", tools=[desk.book, pay])
    async with serve(agent) as talk:
        events = await talk.run("go")
        (approval,), (question,) = requests(events), requests(events, INPUT)
        assert texts(await talk.run(together(reply(question, {"response": "Monday"}), approve(approval)))) == ["ok"]
    assert model.prompt()[-1] == "user: result pay {'result': 'paid'} | result book {'booked': 'Rome', 'day': 'Monday'}"


async def test_a_question_survives_a_restart(tmp_path: Path):
    desk, database = Desk({"type": "string"}), f"sqlite:///{tmp_path}/x.db"
    asks = LlmAgent(name="app", model=ScriptedModel(call("book", {"city": "Rome"})), tools=[desk.book])
    first = App(asks, stores=database)
    async with connect(first) as client:
        talk = Talk(client, "app", first)
        await talk.create()
        (made,) = requests(await talk.run("go"), INPUT)
    second = App(LlmAgent(name="app", model=ScriptedModel("ok"), tools=[desk.book]), stores=database)
    async with connect(second) as client:
        talk = Talk(client, "app", second)
        await refused(talk, reply(made, {"response": 5}), 400, made["id"])
        assert texts(await talk.run(reply(made, {"response": "Monday"}))) == ["ok"]
    assert desk.heard == [(), ("Monday",)]


async def test_a_question_without_a_json_form_is_an_error_of_the_tool(scripted: Any):
    def book(ctx: ToolContext) -> None:
        """Book."""
        ctx.request_input("?", payload=object())

    def sign(ctx: ToolContext) -> None:
        """Sign in."""
        ctx.request_credential({"x": object()})

    agent, model = scripted([call("book"), call("sign")], "sorry", tools=[book, sign])
    got = await App(agent).ask("go")
    assert (got.outcome.status, got.text) == ("finished", "sorry")
    told = [r.response["error"] for r in model.requests[1].contents[-1].responses]
    assert "payload" in told[0] and "auth_config" in told[1]


# ---- agents that are functions


async def clerk(ctx: RunContext) -> None:
    """Asks for a name, then for a number, then says both."""
    if "name" not in ctx.answers:
        return await ctx.request_input("Your name?", interrupt_id="name")
    if "number" not in ctx.answers:
        return await ctx.request_input("Your number?", {"type": "integer"}, interrupt_id="number")
    await ctx.emit(Event(content=model_text(f"{ctx.answers['name']}: {ctx.answers['number']}")))
    return None


async def test_section_4_6_a_function_agent_asks_and_runs_again_with_all_answers(serve: Serve):
    async with serve(FunctionAgent(name="app", function=clerk)) as talk:
        first = await talk.run("hi")
        (one,) = requests(first, INPUT)
        assert one == {
            "id": "name",
            "name": INPUT,
            "args": {"interruptId": "name", "message": "Your name?", "payload": None},
        }
        (two,) = requests(await talk.run(reply(one, {"response": "Ann"})), INPUT)
        await refused(talk, reply(two, {"response": "many"}), 400, "number")
        done = await talk.run(reply(two, {"response": 7}))
        assert texts(done) == ["Ann: 7"] and done[0]["invocationId"] == first[0]["invocationId"]


async def test_core_102_two_full_cycles_in_one_session_do_not_interfere_though_the_ids_are_the_same(serve: Serve):
    async with serve(FunctionAgent(name="app", function=clerk)) as talk:
        for name, number in (("Ann", 7), ("Bob", 8)):
            (one,) = requests(await talk.run("hi"), INPUT)
            (two,) = requests(await talk.run(reply(one, {"response": name})), INPUT)
            assert texts(await talk.run(reply(two, {"response": number}))) == [f"{name}: {number}"]
            await refused(talk, reply(two, {"response": 9}), 409, "nothing to resume")


async def test_a_generator_that_asks_pauses_too_and_the_sequence_goes_on_after_it(serve: Serve):
    async def greeter(ctx: RunContext) -> Any:
        if not ctx.answers:
            yield Event(content=model_text("One question."))
            await ctx.request_input("Your name?")
            return
        yield Event(content=model_text(f"Hello {next(iter(ctx.answers.values()))}"))

    last = LlmAgent(name="last", model=ScriptedModel("bye"))
    async with serve(
        SequentialAgent(name="app", sub_agents=[FunctionAgent(name="greeter", function=greeter), last])
    ) as talk:
        events = await talk.run("hi")
        (made,) = requests(events, INPUT)
        assert made["id"].startswith("adk-") and texts(events) == ["One question."]
        assert texts(await talk.run(reply(made, {"payload": "Ann"}))) == ["Hello Ann", "bye"]


async def test_the_outcome_of_a_run_that_asks_is_paused():
    got = await App(FunctionAgent(name="app", function=clerk)).ask("hi")
    assert got.outcome.status == "paused"


# ---- credentials

SECRET = "s3cret-token-of-the-user"


class Door:
    def __init__(self) -> None:
        self.got: list[Any] = []

    def open(self, ctx: ToolContext) -> dict[str, Any]:
        """Open the door."""
        self.got.append(ctx.credential)
        if ctx.credential is None:
            ctx.request_credential({"scheme": "oauth2", "authUri": "https://example.com/auth"})
            return {"status": "waiting for a sign-in"}
        return {"opened": True}


async def test_a_tool_asks_for_a_credential_which_is_stored_nowhere(serve: Serve, scripted: Any, tmp_path: Path):
    door, seen = Door(), list[Any]()

    class Watch(Plugin):
        name = "watch"

        async def on_user_message(self, ctx: Any, message: Any) -> Any:
            seen.append(message)

    agent, model = scripted(call("open", {}, "c1"), "It is open.", tools=[door.open])
    database = tmp_path / "x.db"
    async with serve(agent, stores=f"sqlite:///{database}", plugins=[Watch()]) as talk:
        events = await talk.run("open it")
        (made,) = requests(events, CREDENTIAL)
        auth = {"scheme": "oauth2", "authUri": "https://example.com/auth"}
        assert made["args"] == {"functionCallId": "c1", "authConfig": auth}
        assert events[-1]["longRunningToolIds"] == [made["id"]]
        given = {"exchangedAuthCredential": {"oauth2": {"accessToken": SECRET}}}
        done = await talk.run(reply(made, given))
        assert texts(done) == ["It is open."] and results_of(done) == [{"opened": True}]
        stored = await talk.stored()
        await refused(talk, reply(made, given), 409, made["id"])
    assert door.got == [None, given]
    assert SECRET not in json.dumps(stored) and SECRET not in str(model.requests) and SECRET not in str(seen)
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    message = stored["events"][-3]["content"]["parts"][0]["functionResponse"]
    assert (message["id"], message["name"]) == (made["id"], CREDENTIAL) and "not stored" in message["response"][
        "status"
    ]


def results_of(events: list[Any]) -> list[Any]:
    parts = [p for e in events for p in (e.get("content") or {}).get("parts", [])]
    return [p["functionResponse"]["response"] for p in parts if "functionResponse" in p]


async def test_an_answer_without_a_name_is_kept_out_of_the_store_as_well(serve: Serve, scripted: Any):
    door = Door()
    agent, _ = scripted(call("open"), "ok", tools=[door.open])
    async with serve(agent) as talk:
        (made,) = requests(await talk.run("open it"), CREDENTIAL)
        unnamed = {"parts": [{"functionResponse": {"id": made["id"], "response": {"key": SECRET}}}]}
        assert texts(await talk.run(unnamed)) == ["ok"]
        assert SECRET not in json.dumps(await talk.stored())
    assert door.got == [None, {"key": SECRET}]


async def test_a_refused_credential_is_in_no_error(serve: Serve, scripted: Any, caplog: Any):
    agent, _ = scripted("x", tools=[Door().open])
    async with serve(agent) as talk:
        response = await talk.client.post("/run", json=talk.body(answer("nope", CREDENTIAL, {"key": SECRET})))
        assert response.status == 409 and "nope" in response.text and SECRET not in response.text
    assert SECRET not in caplog.text
