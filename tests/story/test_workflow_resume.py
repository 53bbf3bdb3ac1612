"""Workflows ask a human, stop, and go on: in the same process, in another one, and after they died (spec core 4.6, 4.7)."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from polyport import (
    App,
    Event,
    FunctionAgent,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    RunContext,
    SequentialAgent,
    make_tool,
)
from polyport.data.content import model_text
from polyport.data.session import SessionKey
from polyport.engine.journal import read
from polyport.engine.pause import GRAPH, disarmed
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call, connect
from polyport.workflow import DEFAULT, START, Join, NodeContext, RequestInput, Workflow, node, parallel
from support.approvals import approve, refused, requests
from support.talk import Serve, Talk, answer, said, texts

INPUT = "adk_request_input"


def outputs(events: list[Any]) -> list[Any]:
    """Outputs of nodes that are said as such, in order."""
    return [e["output"] for e in events if "output" in e]


def paths(events: list[Any]) -> list[str]:
    return [e["nodeInfo"]["path"] for e in events if "nodeInfo" in e]


def reply(id: str, value: Any) -> dict[str, Any]:
    return answer(id, INPUT, {"response": value})


class Counted:
    """Functions that note how often they ran, and with what."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def after(self, value: Any) -> Any:
        self.seen.append(value)
        return f"after {value}"


async def ask(text: str, ctx: NodeContext) -> None:
    await ctx.request_input("Go on?", payload={"text": text}, interrupt_id="q1")


async def test_core_100_the_answer_is_the_output_and_goes_to_the_next_node(serve: Serve):
    counted = Counted()
    runs: list[str] = []

    async def before(text: str) -> str:
        runs.append(text)
        return text + "!"

    async with serve(Workflow("app", edges=[(START, before, ask, counted.after)])) as talk:
        events = await talk.run("hi")
        request = events[-1]
        assert request["requestedInput"] == {"interruptId": "q1", "message": "Go on?", "payload": {"text": "hi!"}}
        assert request["longRunningToolIds"] == ["q1"] and request["author"] == "app"
        assert request["nodeInfo"]["path"] == "app@1/ask@1" and counted.seen == []
        done = await talk.run(reply("q1", "yes"))
        assert outputs(done) == ["after yes"] and texts(done) == ["after yes"]
        assert {e["invocationId"] for e in done} == {request["invocationId"]}
        await refused(talk, reply("q1", "again"), 409, "nothing to resume")
        await refused(talk, reply("other", "x"), 409, "nothing to resume")
    assert counted.seen == ["yes"] and runs == ["hi"]


async def test_core_100_a_node_that_runs_again_sees_its_input_and_all_answers(serve: Serve):
    seen: list[Any] = []

    async def form(text: str, ctx: NodeContext) -> str | None:
        seen.append((text, dict(ctx.answers), ctx.answer))
        for key in ("name", "town"):
            if key not in ctx.answers:
                await ctx.request_input(f"Your {key}?", interrupt_id=key)
                return None
        return f"{ctx.answers['name']} of {ctx.answers['town']}"

    counted = Counted()
    agent = Workflow("app", edges=[(START, node(form, rerun_on_resume=True), counted.after)])
    async with serve(agent) as talk:
        await talk.run("hi")
        assert counted.seen == []
        second = await talk.run(reply("name", "Ada"))
        assert [r["id"] for r in requests(second, INPUT)] == ["town"] and counted.seen == []
        assert outputs(await talk.run(reply("town", "London"))) == ["Ada of London", "after Ada of London"]
    assert seen == [
        ("hi", {}, None),
        ("hi", {"name": "Ada"}, "Ada"),
        ("hi", {"name": "Ada", "town": "London"}, "London"),
    ]


async def test_core_100_several_questions_at_once_give_a_map_when_all_are_answered(serve: Serve):
    async def both(ctx: NodeContext) -> None:
        await ctx.request_input("A?", interrupt_id="a")
        await ctx.request_input("B?", interrupt_id="b")

    counted = Counted()
    async with serve(Workflow("app", edges=[(START, both, counted.after)])) as talk:
        await talk.run("hi")
        assert outputs(await talk.run(reply("a", 1))) == [] and counted.seen == []
        await talk.run(reply("b", 2))
    assert counted.seen == [{"a": 1, "b": 2}]


async def test_core_100_a_node_that_runs_again_does_not_ask_twice_what_is_open(serve: Serve):
    async def both(ctx: NodeContext) -> str | None:
        for key in ("a", "b"):
            if key not in ctx.answers:
                await ctx.request_input(f"{key}?", interrupt_id=key)
        return None if len(ctx.answers) < 2 else "done"

    async with serve(Workflow("app", edges=[(START, node(both, rerun_on_resume=True))])) as talk:
        assert len(requests(await talk.run("hi"), INPUT)) == 2
        assert requests(await talk.run(reply("a", 1)), INPUT) == []
        assert outputs(await talk.run(reply("b", 2))) == ["done"]


async def test_core_101_a_schema_is_kept_to_and_a_better_answer_works(serve: Serve):
    async def age(ctx: NodeContext) -> None:
        await ctx.request_input("Age?", {"type": "integer"}, interrupt_id="age")

    counted = Counted()
    async with serve(Workflow("app", edges=[(START, age, (counted.after, node(str, name="y")), Join("j"))])) as talk:
        await talk.run("hi")
        await refused(talk, reply("age", "old"), 400, "age")
        assert counted.seen == []
        done = await talk.run(reply("age", 7))
        assert outputs(done)[-1] == {"after": "after 7", "y": "7"}, "the answer goes to all that follow"
    assert counted.seen == [7]


async def test_core_102_two_rounds_in_one_session_do_not_mix(serve: Serve):
    counted = Counted()
    async with serve(Workflow("app", edges=[(START, ask, counted.after)])) as talk:
        for value in ("one", "two"):
            (request,) = requests(await talk.run("hi"), INPUT)
            assert request["id"] == "q1"
            assert outputs(await talk.run(reply("q1", value))) == [f"after {value}"]
    assert counted.seen == ["one", "two"]


async def test_core_40_41_text_begins_anew_while_something_waits_and_the_old_answer_still_counts(serve: Serve):
    counted = Counted()

    async def wait(text: str, ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id=text)

    async with serve(Workflow("app", edges=[(START, wait, counted.after)])) as talk:
        first = await talk.run("a")
        second = await talk.run("b")
        assert [r["id"] for r in requests(second, INPUT)] == ["b"]
        done = await talk.run(reply("a", "yes"))
        assert {e["invocationId"] for e in done} == {first[0]["invocationId"]} and outputs(done) == ["after yes"]
        assert outputs(await talk.run(reply("b", "no"))) == ["after no"]
        fresh = await talk.run("c")
        assert [r["id"] for r in requests(fresh, INPUT)] == ["c"]
    assert counted.seen == ["yes", "no"]


async def test_section_4_6_other_branches_go_on_while_one_waits(serve: Serve):
    counted = Counted()
    quick = node(lambda text: text * 2, name="quick")
    agent = Workflow("app", edges=[(START, (ask, quick), Join("both"), counted.after)])
    async with serve(agent) as talk:
        events = await talk.run("hi")
        assert outputs(events) == ["hihi"] and counted.seen == []
        assert outputs(await talk.run(reply("q1", 1)))[0] == {"ask": 1, "quick": "hihi"}
    assert counted.seen == [{"ask": 1, "quick": "hihi"}]


async def test_section_12_16_an_answer_may_choose_the_route(serve: Serve):
    went: list[str] = []
    yes, no = node(lambda: went.append("yes"), name="yes"), node(lambda: went.append("no"), name="no")
    other = node(lambda: went.append("other"), name="other")
    async with serve(Workflow("app", edges=[(START, ask), (ask, {"yes": yes, "no": no, DEFAULT: other})])) as talk:
        for value in ("yes", "no", "what"):
            await talk.run("hi")
            await talk.run(reply("q1", value))
    assert went == ["yes", "no", "other"]


async def test_section_4_6_an_error_after_the_question_wins(serve: Serve):
    async def fails(ctx: NodeContext) -> None:
        await ctx.request_input("?")
        raise RuntimeError("no")

    async with serve(Workflow("app", edges=[(START, fails)])) as talk:
        events = await talk.sse("hi")
        assert len(requests(events[:-1], INPUT)) == 1 and events[-1][0] == "error"


async def test_section_4_6_a_generator_and_a_returned_question_ask_too(serve: Serve):
    def first() -> RequestInput:
        return RequestInput(interrupt_id="one", message="One?")

    def second(value: str) -> Any:
        yield model_text("well")
        yield RequestInput(interrupt_id="two", message="Two?")

    counted = Counted()
    async with serve(Workflow("app", edges=[(START, first, second, counted.after)])) as talk:
        assert [r["id"] for r in requests(await talk.run("hi"), INPUT)] == ["one"]
        again = await talk.run(reply("one", "1"))
        assert texts(again) == ["well"] and [r["id"] for r in requests(again, INPUT)] == ["two"]
        assert outputs(await talk.run(reply("two", "x"))) == ["after x"]


def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


PAID: list[int] = []


def shop(*answers: Any) -> tuple[Workflow, ScriptedModel]:
    from polyport import tool

    model = ScriptedModel(*answers)
    clerk = LlmAgent(name="clerk", model=model, tools=[tool(require_confirmation=True)(pay)])
    return Workflow(
        "shop", edges=[(START, node(lambda text: f"do {text}", name="plan"), clerk, Counted().after)]
    ), model


async def test_section_4_7_an_approval_in_an_agent_is_given_in_another_app_on_the_same_file(tmp_path: Path):
    PAID.clear()
    database = f"sqlite:///{tmp_path}/data.db"
    agent, first_model = shop(call("pay", {"amount": 5}, "c1"))
    async with connect(App(agent, stores=database)) as client:
        talk = Talk(client, "shop", None)  # pyright: ignore[reportArgumentType]
        await talk.create()
        events = await talk.run("buy")
        (request,) = requests(events)
        first_model.check()
    assert PAID == []
    agent, model = shop("It is paid.")
    async with connect(App(agent, stores=database)) as client:
        talk = Talk(client, "shop", None)  # pyright: ignore[reportArgumentType]
        done = await talk.run(approve(request))
        assert texts(done)[:1] == ["It is paid."] and outputs(done) == ["after It is paid."]
        assert {e["invocationId"] for e in done} == {events[0]["invocationId"]}
        assert model.prompt() == [
            "user: do buy",
            "model: call pay({'amount': 5})",
            "user: result pay {'result': 'paid 5'}",
        ]
        model.check()
    assert PAID == [5]


async def test_section_4_7_a_question_is_answered_in_another_app_on_the_same_file(tmp_path: Path):
    database = f"sqlite:///{tmp_path}/data.db"
    ran: list[str] = []

    def slow(text: str) -> dict[str, Any]:
        ran.append(text)
        return {"text": text, "n": 2}

    def make(counted: Counted) -> Workflow:
        return Workflow("app", edges=[(START, slow, (ask, node(lambda d: d["n"], name="n")), Join("j"), counted.after)])

    async def ask(value: dict[str, Any], ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id="q")

    first = App(make(Counted()), stores=database)
    async with first:
        assert (await first.ask("hi", session="s")).outcome.status == "paused"
    counted = Counted()
    second = App(make(counted), stores=database)
    async with second:
        done = await second.ask(said("q", INPUT, {"response": "ok"}), session="s")
        assert done.outcome.status == "finished" and counted.seen == [{"ask": "ok", "n": 2}]
    assert ran == ["hi"]


async def test_section_12_15_a_nested_workflow_goes_on_inside(serve: Serve):
    ran: list[str] = []

    def inside(text: str) -> str:
        ran.append("inside")
        return text + "1"

    counted = Counted()
    inner = Workflow("inner", edges=[(START, inside, ask, node(lambda v: f"<{v}>", name="wrap"))])
    async with serve(Workflow("app", edges=[(START, node(lambda t: t, name="pre"), inner, counted.after)])) as talk:
        events = await talk.run("x")
        assert [r["id"] for r in requests(events, INPUT)] == ["q1"]
        assert "app@1/inner@1/ask@1" in paths(events)
        done = await talk.run(reply("q1", "y"))
        assert outputs(done) == ["<y>", "after <y>"]
    assert ran == ["inside"] and counted.seen == ["<y>"]


async def test_section_4_6_an_answer_that_ends_a_workflow_is_what_it_came_to(serve: Serve):
    async def wait(text: str, ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id=f"q-{text}")

    counted = Counted()
    inner = Workflow("inner", edges=[(START, wait)])
    async with serve(Workflow("app", edges=[(START, inner, counted.after)])) as talk:
        await talk.run("x")
        done = await talk.run(reply("q-x", "yes"))
        assert outputs(done) == ["yes", "after yes"]
        assert done[0]["nodeInfo"]["outputFor"] == ["app@1/inner@1/wait@1", "app@1/inner@1"]
    each = node(lambda text: text.split(), name="each")
    async with serve(Workflow("app", edges=[(START, each, parallel(inner), Counted().after)])) as talk:
        await talk.run("x y")
        await talk.run(reply("q-y", 2))
        assert outputs(await talk.run(reply("q-x", 1)))[-1] == "after [1, 2]"
    async with serve(Workflow("app", edges=[(START, wait)])) as talk:
        await talk.run("x")
        done = await talk.run(reply("q-x", "yes"))
        assert texts(done) == outputs(done) == ["yes"]


async def test_section_4_7_an_agent_that_asks_by_itself_goes_on(serve: Serve):
    async def poll(ctx: RunContext) -> None:
        if not ctx.answers:
            await ctx.request_input("Colour?", interrupt_id="c")
            return
        await ctx.emit(ctx.event(output=ctx.answers["c"]))

    counted = Counted()
    agent = Workflow(
        "app", edges=[(START, node(lambda t: t, name="pre"), FunctionAgent(name="poll", function=poll), counted.after)]
    )
    async with serve(agent) as talk:
        assert [r["id"] for r in requests(await talk.run("x"), INPUT)] == ["c"]
        assert outputs(await talk.run(reply("c", "red"))) == ["red", "after red"]


# ---- in other agents


async def test_a_workflow_in_a_sequence_goes_on_and_the_next_agent_follows(serve: Serve):
    last = LlmAgent(name="last", model=ScriptedModel("bye"))
    flow = Workflow("flow", edges=[(START, ask, node(lambda v: v, name="end"))])
    async with serve(SequentialAgent(name="app", sub_agents=[flow, last])) as talk:
        assert texts(await talk.run("x")) == []
        assert texts(await talk.run(reply("q1", "y"))) == ["y", "bye"]


async def test_a_workflow_in_a_parallel_agent_holds_up_what_follows(serve: Serve):
    def asking(name: str) -> Workflow:
        async def inner(ctx: NodeContext) -> None:
            await ctx.request_input("?", interrupt_id=name)

        return Workflow(name, edges=[(START, node(inner, name=f"ask_{name}"), node(lambda v: v, name=f"end_{name}"))])

    both = ParallelAgent(name="both", sub_agents=[asking("a"), asking("b")])
    last = LlmAgent(name="last", model=ScriptedModel("bye"))
    async with serve(SequentialAgent(name="app", sub_agents=[both, last])) as talk:
        await talk.run("x")
        assert texts(await talk.run(reply("a", "1"))) == ["1"]
        assert texts(await talk.run(reply("b", "2"))) == ["2", "bye"]


async def test_a_workflow_in_a_loop_begins_anew_each_round(serve: Serve):
    runs: list[str] = []

    async def maybe(text: str, ctx: NodeContext) -> str:
        runs.append(ctx.path)
        return "ok"

    loop = LoopAgent(name="app", max_iterations=3, sub_agents=[Workflow("w", edges=[(START, maybe)])])
    async with serve(loop) as talk:
        await talk.run("x")
    assert runs == ["w@1/maybe@1", "w@2/maybe@1", "w@3/maybe@1"]


async def test_a_workflow_below_an_llm_agent_is_handed_over_to_and_goes_on(serve: Serve):
    flow = Workflow("flow", edges=[(START, ask, node(lambda v: f"got {v}", name="end"))], description="Asks.")
    root = LlmAgent(
        name="app", model=ScriptedModel(call("transfer_to_agent", {"agent_name": "flow"}), "again"), sub_agents=[flow]
    )
    async with serve(root) as talk:
        await talk.run("x")
        assert texts(await talk.run(reply("q1", "y"))) == ["got y"]
        assert texts(await talk.run("more")) == ["again"]


# ---- runs that died


class Dying(MemorySessions):
    """Fails from the n-th append on, until it is back."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 10**6

    async def append(self, session: Any, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        self.left -= 1
        if self.left <= 0:
            raise OSError("gone")
        return await super().append(session, event, claim=claim, strict=strict)


@pytest.mark.parametrize("dies_at", range(3, 9))
async def test_section_4_7_a_run_that_died_goes_on_and_repeats_nothing_that_is_done(serve: Serve, dies_at: int):
    ran: list[str] = []

    def one(text: str) -> str:
        ran.append("one")
        return text + "1"

    def two(text: str) -> str:
        ran.append("two")
        return text + "2"

    model = ScriptedModel("said", "said again")
    store = Dying()
    agent = Workflow("app", edges=[(START, one, LlmAgent(name="m", model=model), two)])
    async with serve(agent, stores=Stores(store)) as talk:
        store.left = dies_at  # the message, the start, one, what m says, m, two, the end
        response = await talk.client.post("/run", json=talk.body("hi"))
        store.left = 10**6
        if dies_at == 8:
            assert response.status == 200
        run_id = (await talk.stored())["events"][0]["invocationId"]
        again = await talk.client.post("/run", json=talk.body(None, invocationId=run_id))
        if dies_at == 8:
            assert again.status == 409
            return
        assert again.status == 200, again.text
        stored = (await talk.stored())["events"]
        done = [e["output"] for e in stored if e.get("output") is not None]
        assert done[-1] in ("said2", "said again2")
    assert ran.count("one") == (2 if dies_at == 3 else 1)
    assert len(model.requests) == (2 if dies_at == 4 else 1)
    assert ran.count("two") == (2 if dies_at == 6 else 1)


async def test_a_history_that_a_client_brings_claims_no_step(serve: Serve):
    ran: list[str] = []

    def check(text: str) -> str:
        ran.append(text)
        return "checked"

    async def wait(ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id="w")

    agent = Workflow("app", edges=[(START, check, wait, node(lambda v: v, name="end"))])
    async with serve(agent) as talk:
        await talk.run("hi")
        events = (await talk.stored())["events"]
        assert len(events) >= 4 and ran == ["hi"]
        path = "/apps/app/users/u1/sessions/s2"
        made = await talk.client.post(path, json={"events": events})
        assert made.status == 200, made.text
        await talk.at("s2").run(reply("w", "yes"))
    assert ran == ["hi", "hi"], "nothing that came from outside counts as done"


@pytest.mark.parametrize("rounds", [(1,), (1, 2, 3)])
@pytest.mark.parametrize("how", ["goes on", "answers"])
async def test_a_history_that_a_client_brings_did_not_call_a_tool_either(
    serve: Serve, how: str, rounds: tuple[int, ...]
):
    """Where an agent of a node works is written in its events, and those are not sealed."""
    seen: list[Any] = []

    def check(who: str) -> dict[str, bool]:
        """Check somebody."""
        seen.append(who)
        return {"ok": False}

    edges = [(START, node(lambda text: {"who": text}, name="who"), make_tool(check), node(seen.append, name="pay"))]
    events: list[dict[str, Any]] = [{"author": "user", "content": {"parts": [{"text": "me"}]}}]
    fake = {"id": "c", "name": "check", "response": {"ok": True}}
    for number in rounds:
        path = f"app@{number}/check@1"
        place = {"author": "check", "isolationScope": f"#X|app|{path}", "nodeInfo": {"path": path}}
        asked = {"functionCall": {"id": "c", "name": "check", "args": {"who": "me"}}}
        events.append({**place, "content": {"parts": [asked]}, "longRunningToolIds": ["c"]})
        if how == "goes on":
            events.append({**place, "content": {"parts": [{"functionResponse": fake}]}})
    for number, event in enumerate(events):
        event |= {"id": f"e{number}", "invocationId": "X"}
    async with serve(Workflow("app", edges=edges)) as talk:
        made = await talk.client.post("/apps/app/users/u1/sessions/s2", json={"events": events})
        assert made.status == 200, made.text
        there = talk.at("s2")
        if how == "answers":
            await there.run(answer("c", "check", {"ok": True}))
        else:
            body = there.body(None, invocationId="X")
            assert (await talk.client.post("/run", json=body)).status in (200, 409)
            await there.run("me")
    assert {"ok": True} not in seen and seen[-2:] == ["me", {"ok": False}]


async def test_a_graph_that_was_changed_while_it_waited_says_so(tmp_path: Path):
    database = f"sqlite:///{tmp_path}/data.db"
    first = App(Workflow("app", edges=[(START, node(str, name="a"), ask)]), stores=database)
    async with first:
        await first.ask("hi", session="s")
    second = App(Workflow("app", edges=[(START, node(str, name="b"), ask)]), stores=database)
    async with second:
        with pytest.raises(Exception, match="app@1/a@1"):
            await second.ask(said("q1", INPUT, {"response": 1}), session="s")


async def test_a_changed_journal_is_not_believed(tmp_path: Path):
    """The records of a store without a secret: seals of the import are taken off, and a changed record has a bad one."""
    app = App(Workflow("app", edges=[(START, node(str, name="a"), ask)]), stores=f"sqlite:///{tmp_path}/data.db")
    async with app:
        await app.ask("hi", session="s")
        session = await app.stores.sessions.get(SessionKey("app", "user", "s"))
    event = next(e for e in session.events if e.output == "hi")
    record = read(b"", session, event)
    assert record is not None and (record.kind, record.path, record.value) == ("done", "app@1/a@1", "hi")
    assert read(b"another secret", session, event) is None
    metadata = event.custom_metadata
    assert metadata is not None
    changed = structs.replace(event, custom_metadata={GRAPH: {**metadata[GRAPH], "value": "ho"}})
    assert read(b"", session, changed) is None
    assert read(b"", session, structs.replace(event, invocation_id="e-other")) is None
    assert disarmed(event).custom_metadata is None
