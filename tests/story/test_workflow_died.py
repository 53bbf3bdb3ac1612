"""Workflows in runs that died at an unlucky moment, or failed in an unlucky way, and go on (spec core 4.7, DESIGN 7)."""

from typing import Any

import anyio
import pytest

from polyport import App, CompactionConfig, Content, Event, LlmAgent, LoopAgent, SequentialAgent, tool
from polyport.data.content import model_text
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call
from polyport.workflow import START, Join, NodeContext, RetryPolicy, Workflow, node, route
from support.approvals import Till, approve, requests
from support.talk import Serve, Talk, answer, texts

INPUT = "adk_request_input"


class Dying(MemorySessions):
    """Takes `left` more events, then fails until it is back."""

    left: int | None = None

    async def append(self, session: Any, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        if self.left is not None:
            if self.left == 0:
                raise OSError("gone")
            self.left -= 1
        return await super().append(session, event, claim=claim, strict=strict)


class Notes(list[str]):
    """Functions that note that they ran."""

    def fn(self, name: str) -> Any:
        def work(value: Any) -> str:
            self.append(name)
            return f"{value}+{name}"

        return node(work, name=name)


async def died(talk: Talk, store: Dying, message: Any, left: int) -> str:
    """Let the run of a message die after `left` events; its id."""
    store.left = left
    await talk.sse(message)
    store.left = None
    return (await talk.stored())["events"][0]["invocationId"]


async def resumed(talk: Talk, run_id: str) -> list[Any]:
    response = await talk.client.post("/run", json=talk.body(None, invocationId=run_id))
    assert response.status == 200, response.text
    return response.json()


def last(events: list[Any]) -> Any:
    return next(e["output"] for e in reversed(events) if "output" in e)


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps), **fields)


@pytest.mark.parametrize("place", ["first", "later"])
async def test_a_last_word_that_was_stored_is_not_asked_for_again(serve: Serve, place: str):
    """The last agent's answer is in the conversation already, and the note that its node is done is not."""
    ran, store = Notes(), Dying()
    writer = llm("writer", "written")
    edges = (START, writer) if place == "first" else (START, ran.fn("pre"), writer)
    async with serve(Workflow("app", edges=[edges]), stores=Stores(store)) as talk:
        run_id = await died(talk, store, "hi", 3 if place == "first" else 4)  # the message, start, pre, the text
        assert texts((await talk.stored())["events"])[-1] == "written"
        assert await resumed(talk, run_id) == []
        again = await talk.client.post("/run", json=talk.body(None, invocationId=run_id))
        assert again.status == 409


async def test_an_agent_that_was_told_something_since_has_more_to_say(serve: Serve):
    store = Dying()

    @tool(long_running=True)
    def order() -> dict[str, Any]:
        """Order."""
        return {"status": "on its way"}

    clerk = llm("clerk", call("order", {}, "c1"), "It is ordered.", "lost", "It has come.", tools=[order])
    got: list[Any] = []
    agent = Workflow("app", edges=[(START, Notes().fn("pre"), clerk, node(got.append, name="got"))])
    async with serve(agent, stores=Stores(store)) as talk:
        assert texts(await talk.run("hi")) == ["It is ordered."] and got == []
        run_id = await died(talk, store, answer("c1", "order", {"result": "here"}), 1)
        await resumed(talk, run_id)
    assert got == ["It has come."]


@pytest.mark.parametrize("left", range(2, 9))
@pytest.mark.parametrize("place", ["first", "later"])
async def test_a_nested_workflow_that_died_anywhere_is_followed_by_what_comes_after_it(
    serve: Serve, left: int, place: str
):
    ran, store = Notes(), Dying()
    inner = Workflow("inner", edges=[(START, ran.fn("a"), ran.fn("b"))])
    steps = (START, inner, ran.fn("end")) if place == "first" else (START, ran.fn("pre"), inner, ran.fn("end"))
    async with serve(Workflow("app", edges=[steps]), stores=Stores(store)) as talk:
        # the message, start, (pre), the inner start, a, b, the inner end, inner is done, end, the end
        run_id = await died(talk, store, "hi", left)
        await resumed(talk, run_id)
        assert last((await talk.stored())["events"]).endswith("+a+b+end")
    assert all(1 <= ran.count(name) <= 2 for name in ran)
    assert sum(ran.count(name) - 1 for name in set(ran)) <= 1, "one step at most is taken twice"


@pytest.mark.parametrize("left", range(2, 8))
async def test_a_workflow_that_died_anywhere_in_a_sequence_is_followed_by_the_next_agent(serve: Serve, left: int):
    ran, store = Notes(), Dying()
    flow = Workflow("flow", edges=[(START, ran.fn("a"), ran.fn("b"))])
    sequence = SequentialAgent(name="app", sub_agents=[flow, llm("last", "bye", "bye")])
    async with serve(sequence, stores=Stores(store)) as talk:
        run_id = await died(talk, store, "hi", left)  # the message, start, a, b, the end, bye
        if left < 6:
            await resumed(talk, run_id)
        assert texts((await talk.stored())["events"])[-2:] == ["hi+a+b", "bye"]
    assert sum(ran.count(name) - 1 for name in set(ran)) <= 1


async def test_the_next_round_of_a_loop_begins_anew_after_a_death_in_the_first(serve: Serve):
    ran, store = Notes(), Dying()
    talker = llm("talker", "one", "two")
    flow = Workflow("flow", edges=[(START, talker, ran.fn("a"))])
    async with serve(LoopAgent(name="app", max_iterations=2, sub_agents=[flow]), stores=Stores(store)) as talk:
        run_id = await died(talk, store, "hi", 4)  # the message, start, one, talker is done
        assert texts(await resumed(talk, run_id)) == ["one+a", "two", "two+a"]


async def test_an_attempt_that_failed_leaves_nothing_that_a_later_run_trips_over(serve: Serve):
    """The first attempt of a nested workflow went another way than the second one, which waits."""
    tries: list[int] = []

    def choose(ctx: NodeContext) -> Event:
        tries.append(1)
        return route("left" if len(tries) == 1 else "right", output="x")

    def fails() -> None:
        raise ValueError

    async def ask(ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id="q")

    ran = Notes()
    left = ran.fn("left")
    inner = Workflow("inner", edges=[(START, choose), (choose, {"left": left, "right": ask}), (left, fails)])
    async with serve(Workflow("app", edges=[(START, node(inner, retry=RetryPolicy(initial_s=0)))])) as talk:
        assert len(requests(await talk.run("hi"), INPUT)) == 1
        await talk.run(answer("q", INPUT, {"response": "yes"}))
    assert ran == ["left"] and len(tries) == 2


async def test_several_results_are_no_matter_while_something_waits():
    async def ask(ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id="q")

    ran = Notes()
    reply = await App(Workflow("app", edges=[(START, (ran.fn("a"), ran.fn("b"), ask))])).ask("hi")
    assert reply.outcome.status == "paused"


async def test_a_node_that_runs_again_is_called_for_each_answer(serve: Serve):
    seen: list[dict[str, Any]] = []

    async def both(ctx: NodeContext) -> None:
        seen.append(dict(ctx.answers))
        for key in ("a", "b"):
            if key not in ctx.answers:
                await ctx.request_input(f"{key}?", interrupt_id=key)

    async with serve(Workflow("app", edges=[(START, node(both, rerun_on_resume=True))])) as talk:
        await talk.run("hi")
        await talk.run(answer("b", INPUT, {"response": 2}))
        await talk.run(answer("a", INPUT, {"response": 1}))
    assert seen == [{}, {"b": 2}, {"a": 1, "b": 2}]


async def test_an_error_beside_a_wait_in_a_task_group_wins(serve: Serve):
    async def ask(ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id="q")

    async def parent(ctx: NodeContext) -> None:
        async def fails() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                raise ValueError("no")

        async with anyio.create_task_group() as group:
            group.start_soon(ctx.run_node, ask)
            group.start_soon(fails)

    async with serve(Workflow("app", edges=[(START, parent)])) as talk:
        assert (await talk.sse("hi"))[-1][0] == "error"


async def test_an_interim_result_of_a_tool_node_is_no_output(serve: Serve):
    @tool(long_running=True)
    def order() -> dict[str, Any]:
        """Order."""
        return {"status": "on its way"}

    none = node(lambda: None, name="none")
    got: list[Any] = []
    async with serve(Workflow("app", edges=[(START, none, order, node(got.append, name="got"))])) as talk:
        first = await talk.run("go")
        (id,) = next(e["longRunningToolIds"] for e in first if "longRunningToolIds" in e)
        assert got == [] and not any("output" in e for e in first)
        await talk.run(answer(id, "order", {"result": "here"}))
    assert got == ["here"]


async def test_a_graph_below_an_llm_agent_goes_on_where_it_was_with_its_branches(serve: Serve):
    till = Till()
    a = llm("a", call("pay", {"amount": 1}, "c1"), "a paid", tools=till.tools)
    b = llm("b", "b said")
    flow = Workflow("flow", edges=[(START, (a, b), Join("both"))], description="Pays.")
    root = llm("app", call("transfer_to_agent", {"agent_name": "flow"}), sub_agents=[flow])
    async with serve(root) as talk:
        (request,) = requests(await talk.run("go"))
        done = await talk.run(approve(request))
        assert {e.get("branch") for e in done} == {"a@1", None} and till.paid == [1]
        assert last(done) == {"a": "a paid", "b": "b said"}


async def test_FR_130_a_question_outlives_the_compaction_of_the_session(serve: Serve):
    async def summarise(events: Any, previous: Any) -> Content:
        return model_text("a summary")

    async def ask(text: str, ctx: NodeContext) -> str | None:
        if text != "ask":
            return text
        await ctx.request_input("?", interrupt_id="q")
        return None

    agent = Workflow("app", edges=[(START, ask, Notes().fn("end"))])
    config = CompactionConfig(compaction_interval=2, overlap_size=1, summariser=summarise)
    async with serve(agent, compaction=config) as talk:
        await talk.run("ask")
        for n in range(6):
            assert texts(await talk.run(f"t{n}")) == [f"t{n}+end"]
        assert any("compaction" in e["actions"] for e in (await talk.stored())["events"])
        assert texts(await talk.run(answer("q", INPUT, {"response": "late"}))) == ["late+end"]


async def test_a_hostile_isolation_scope_is_only_a_word(serve: Serve):
    """A history from outside may hold anything; an answer to what stands in it begins no endless search."""
    agent = Workflow("app", edges=[(START, Notes().fn("end"))])
    asks = {"functionCall": {"id": "x", "name": "lookup", "args": {}}}
    event = {
        "author": "app",
        "invocationId": "e-1",
        "isolationScope": "#e|app|p" * 20_000,
        "longRunningToolIds": ["x"],
        "content": {"role": "model", "parts": [asks]},
    }
    async with serve(agent) as talk:
        path = "/apps/app/users/u1/sessions/s2"
        made = await talk.client.post(path, json={"events": [event]})
        assert made.status == 200, made.text
        response = await talk.client.post("/run", json=talk.at("s2").body(answer("x", "lookup", {"result": 1})))
        assert response.status < 500, response.text


# ---- an escalation is not forgotten


def leaves(name: str) -> Any:
    def escalate(ctx: NodeContext) -> str:
        ctx.actions.escalate = True
        return "seen enough"

    return node(escalate, name=name)


@pytest.mark.parametrize("dies_at", [3, 4])
async def test_DESIGN_7_a_loop_around_a_workflow_that_escalated_does_not_begin_another_round(
    serve: Serve, dies_at: int
):
    """The run dies before the end of the workflow is stored, or after it."""
    store = Dying()
    flow = Workflow("flow", edges=[(START, leaves("leave"))])
    last = LlmAgent(name="last", model=ScriptedModel("bye", "bye"))
    loop = LoopAgent(name="loop", max_iterations=5, sub_agents=[flow])
    async with serve(SequentialAgent(name="app", sub_agents=[loop, last]), stores=Stores(store)) as talk:
        store.left = dies_at
        await talk.sse("hi")
        store.left = 10**6
        run_id = (await talk.stored())["events"][0]["invocationId"]
        resumed = await talk.client.post("/run", json=talk.body(None, invocationId=run_id))
        assert resumed.status == 200 and texts(resumed.json()) == ["bye"], resumed.text
        outputs = [e["output"] for e in (await talk.stored())["events"] if "output" in e]
        assert outputs == ["seen enough"]


async def test_section_4_7_an_escalation_beside_a_question_counts_when_the_answer_has_come(serve: Serve):
    rounds: list[str] = []

    async def ask(ctx: NodeContext) -> None:
        rounds.append(ctx.path)
        await ctx.request_input("?", interrupt_id="q")

    flow = Workflow("flow", edges=[(START, (leaves("leave"), ask), Join("both"))])
    async with serve(LoopAgent(name="app", max_iterations=5, sub_agents=[flow])) as talk:
        await talk.run("hi")
        done = await talk.run(answer("q", "adk_request_input", {"response": "ok"}))
        assert done[-1]["output"] == {"leave": "seen enough", "ask": "ok"}
    assert rounds == ["flow@1/ask@1"]
