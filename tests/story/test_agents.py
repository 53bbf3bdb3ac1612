"""Sequential, loop, parallel and custom agents, and agent names (spec core 2.1, 4.1; statements 86-88)."""

import dataclasses
from typing import Any

import anyio
import pytest

from polyport import (
    Agent,
    App,
    Event,
    FunctionAgent,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    RunConfig,
    RunContext,
    SequentialAgent,
    ToolContext,
    make_tool,
)
from polyport.data.content import model_text
from polyport.errors import BadRequest, ConfigError, ModelError, RunCancelled
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call
from support.talk import Serve, said, texts


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps, name=f"model of {name}"), **fields)


def model(agent: LlmAgent) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


def saying(name: str, *lines: str, escalate: bool = False) -> FunctionAgent:
    async def body(ctx: RunContext) -> None:
        for line in lines:
            await ctx.emit(Event(content=model_text(line)))
        if escalate:
            event = Event(content=model_text("out"))
            event.actions.escalate = True
            await ctx.emit(event)

    return FunctionAgent(name=name, function=body)


def leave(ctx: ToolContext) -> str:
    """Leave."""
    ctx.actions.escalate = True
    ctx.actions.skip_summarization = True
    return "left"


async def spoken(agent: Agent) -> list[str]:
    return [e.text for e in (await App(agent).ask("hi")).events if e.text]


# ---- sequential


async def test_section_4_1_children_run_once_in_order_on_the_same_branch():
    first, second = llm("first", "1"), llm("second", "2")
    got = await App(SequentialAgent(name="app", sub_agents=[first, second])).ask("hi")
    assert [(e.author, e.text, e.branch) for e in got.events] == [("first", "1", ""), ("second", "2", "")]
    assert "[first] said: 1" in model(second).prompt()[-1]


async def test_section_4_1_a_sequence_ignores_escalation_but_the_loop_around_it_does_not():
    steps = SequentialAgent(name="steps", sub_agents=[saying("a", "1", escalate=True), saying("b", "2")])
    assert await spoken(steps) == ["1", "out", "2"]
    assert await spoken(LoopAgent(name="app", sub_agents=[steps, saying("c", "3")])) == ["1", "out", "2"]


@pytest.mark.parametrize("kind", [SequentialAgent, LoopAgent, ParallelAgent])
async def test_section_4_1_no_children_is_no_events(kind: Any):
    assert await spoken(kind(name="app")) == []


# ---- loop


async def test_core_86_max_iterations_counts_full_passes():
    loop = LoopAgent(name="app", sub_agents=[saying("a", "a"), saying("b", "b")], max_iterations=3)
    assert await spoken(loop) == ["a", "b"] * 3


async def test_core_86_without_a_limit_it_ends_by_escalation_after_the_child_has_finished():
    rounds: list[int] = []

    async def body(ctx: RunContext) -> None:
        rounds.append(1)
        event = Event(content=model_text("round"))
        event.actions.escalate = len(rounds) == 4
        await ctx.emit(event)
        await ctx.emit(Event(content=model_text("summary")))

    loop = LoopAgent(name="app", sub_agents=[FunctionAgent(name="a", function=body), saying("b", "b")])
    assert await spoken(loop) == ["round", "summary", "b"] * 3 + ["round", "summary"]


async def test_core_86_an_inner_loop_ends_alone():
    inner = LoopAgent(name="inner", sub_agents=[saying("a", "a", escalate=True)])
    outer = LoopAgent(name="outer", sub_agents=[inner, saying("b", "b")], max_iterations=2)
    assert await spoken(outer) == ["a", "out", "b"] * 2


async def test_core_86_exit_by_a_tool_of_an_llm_agent(scripted: Any):
    first = llm("first", "draft 1", call("leave"), tools=[leave])
    second = llm("second", "notes 1")
    got = await spoken(LoopAgent(name="app", sub_agents=[first, second]))
    assert got == ["draft 1", "notes 1"]


def test_core_86_a_negative_limit_is_refused():
    with pytest.raises(ConfigError, match="max_iterations of loop 'app'"):
        LoopAgent(name="app", max_iterations=-1)


async def test_an_endless_loop_of_agents_that_never_wait_can_be_cancelled():
    started = anyio.Event()

    async def body(ctx: RunContext) -> None:
        started.set()

    app = App(LoopAgent(name="app", sub_agents=[FunctionAgent(name="a", function=body)]))
    async with app, anyio.create_task_group() as group:

        async def asking() -> None:
            with pytest.raises(RunCancelled, match="enough"):
                await app.ask("hi")

        group.start_soon(asking)
        await started.wait()
        (run_id,) = app.runs._live  # pyright: ignore[reportPrivateUsage]
        assert await app.runs.cancel(run_id, "enough")


# ---- parallel


async def test_section_4_1_children_work_side_by_side_on_branches_of_their_own():
    ready = [anyio.Event(), anyio.Event()]

    async def meet(n: int) -> str:
        """Meet."""
        ready[n].set()
        await ready[1 - n].wait()
        return f"met {n}"

    agents = [llm(f"c{n}", call("meet", {"n": n}), f"done {n}", tools=[meet]) for n in range(2)]
    got = await App(ParallelAgent(name="app", sub_agents=agents)).ask("hi")
    for n, agent in enumerate(agents):
        mine = [e for e in got.events if e.author == f"c{n}"]
        assert {e.branch for e in mine} == {f"app.c{n}"}
        assert [(len(e.calls), len(e.responses), e.text) for e in mine] == [(1, 0, ""), (0, 1, ""), (0, 0, f"done {n}")]
        assert f"met {1 - n}" not in str(model(agent).requests), "siblings do not see each other"


async def test_section_4_1_branches_nest_and_the_next_agent_sees_all():
    inner = ParallelAgent(name="inner", sub_agents=[saying("a", "from a"), saying("b", "from b")])
    outer = ParallelAgent(name="outer", sub_agents=[inner, saying("c", "from c")])
    last = llm("last", "done")
    got = await App(SequentialAgent(name="app", sub_agents=[outer, last])).ask("hi")
    branches = {e.text: e.branch for e in got.events}
    assert branches == {
        "from a": "outer.inner.inner.a",
        "from b": "outer.inner.inner.b",
        "from c": "outer.c",
        "done": "",
    }
    prompt = str(model(last).requests[0].contents)
    assert all(f"from {n}" in prompt for n in "abc")


async def test_core_88_an_error_of_one_child_ends_the_run_and_the_others_are_taken_down():
    ended: list[str] = []
    running = anyio.Event()
    count = 0

    async def endless(ctx: RunContext) -> None:
        nonlocal count
        count += 1
        if count == 99:
            running.set()
        try:
            while True:
                await ctx.emit(Event(content=model_text("x"), partial=True))
                await anyio.lowlevel.checkpoint()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            ended.append(ctx.agent_name)

    async def fail(ctx: RunContext) -> None:
        await running.wait()
        raise ModelError("the one that failed", http_status=503)

    children = [FunctionAgent(name=f"c{n}", function=endless) for n in range(99)]
    app = ParallelAgent(name="app", sub_agents=[*children, FunctionAgent(name="bad", function=fail)])
    with pytest.raises(ModelError, match="the one that failed") as caught:
        await App(app).ask("hi")
    assert caught.value.http_status == 503, "the kind of the error is kept"
    assert "bad" in " ".join(getattr(caught.value, "__notes__", []))
    assert len(ended) == 99, "teardown is waited for"


async def test_core_88_cancel_surfaces_and_waits_for_the_children(serve: Serve):
    started, ended = anyio.Event(), []

    async def hang(ctx: RunContext) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(ctx.agent_name)

    children = [FunctionAgent(name=f"c{n}", function=hang) for n in range(3)]
    async with serve(ParallelAgent(name="app", sub_agents=children)) as talk, anyio.create_task_group() as group:
        got: list[Any] = []

        async def ask() -> None:
            got.extend(await talk.sse())

        group.start_soon(ask)
        await started.wait()
        (run_id,) = talk.server.runs._live  # pyright: ignore[reportPrivateUsage]
        assert (await talk.client.post(f"/runs/{run_id}:cancel", json={"reason": "enough"})).status == 200
        assert sorted(ended) == ["c0", "c1", "c2"]
    assert [e[0] for e in got] == ["error"] and "enough" in got[0][1]["error"]


async def test_core_88_an_exit_or_a_made_up_cancellation_of_a_child_is_an_error(serve: Serve):
    import asyncio

    for failure in (SystemExit(1), asyncio.CancelledError()):

        async def fail(ctx: RunContext, failure: BaseException = failure) -> None:
            raise failure

        bad = FunctionAgent(name="bad", function=fail)
        for agent in (
            ParallelAgent(name="app", sub_agents=[bad, saying("ok", "fine")]),
            SequentialAgent(name="app", sub_agents=[bad]),
        ):
            async with serve(agent) as talk:
                kind, error = (await talk.sse())[-1]
                assert kind == "error" and "'bad'" in error["error"] and type(failure).__name__ in error["error"]
                assert (await talk.client.get("/health")).status == 200


async def test_FR_114_the_exit_of_an_inner_loop_does_not_stop_the_other_branch():
    left = anyio.Event()

    def go(ctx: ToolContext) -> str:
        """Go."""
        left.set()
        return leave(ctx)

    async def slow(ctx: RunContext) -> None:
        await left.wait()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        await ctx.emit(Event(content=model_text("slow is done")))

    inner = LoopAgent(name="inner", sub_agents=[llm("exits", call("go"), tools=[go])])
    both = ParallelAgent(name="both", sub_agents=[inner, FunctionAgent(name="slow", function=slow)])
    outer = LoopAgent(name="app", sub_agents=[both, saying("after", "next child")], max_iterations=1)
    assert await spoken(outer) == ["slow is done", "next child"]


async def test_section_4_1_after_agent_of_a_child_sees_its_just_stored_state():
    seen: dict[str, Any] = {}

    def note(ctx: Any) -> None:
        seen[ctx.agent_name] = ctx.state[f"out_{ctx.agent_name}"]

    children = [llm(f"c{n}", f"text {n}", output_key=f"out_c{n}", after_agent=note) for n in range(3)]
    await App(ParallelAgent(name="app", sub_agents=children)).ask("hi")
    assert seen == {f"c{n}": f"text {n}" for n in range(3)}


# ---- waiting inside workflows


def later() -> None:
    """Answer later."""


LATER = make_tool(later, long_running=True)


async def test_section_3_10_a_child_that_waits_stops_the_sequence_and_its_answer_goes_on_from_there():
    """The reference begins the sequence again; we go on with the child that asked (FR-118)."""
    first = llm("first", "one")
    second = llm("second", call("later", id="c1"), "two", tools=[LATER])
    third = llm("third", "three")
    app = App(SequentialAgent(name="app", sub_agents=[first, second, third]))
    got = await app.ask("hi", session="s1")
    assert (got.outcome.status, [e.text for e in got.events if e.text]) == ("paused", ["one"])
    assert model(third).requests == []
    got = await app.ask(said("c1", "later", {"x": 1}), session="s1")
    assert [(e.author, e.text) for e in got.events] == [("second", "two"), ("third", "three")]
    assert got.outcome.status == "finished"


async def test_section_3_10_only_the_branch_that_waits_goes_on():
    asks = llm("asks", call("later", id="c1"), "asked", tools=[LATER])
    done = llm("done", "done")
    last = llm("last", "last")
    both = ParallelAgent(name="both", sub_agents=[asks, done])
    app = App(SequentialAgent(name="app", sub_agents=[both, last]))
    got = await app.ask("hi", session="s1")
    assert got.outcome.status == "paused" and model(last).requests == []
    got = await app.ask(said("c1", "later", {"x": 1}), session="s1")
    assert [(e.author, e.text, e.branch) for e in got.events] == [("asks", "asked", "both.asks"), ("last", "last", "")]


async def test_section_3_10_two_branches_wait_and_both_answers_come_together():
    from polyport import Content

    agents = [llm(f"a{n}", call("later", id=f"c{n}"), f"got {n}", tools=[LATER]) for n in range(2)]
    app = App(ParallelAgent(name="app", sub_agents=agents))
    await app.ask("hi", session="s1")
    both = Content(role="user", parts=[p for n in range(2) for p in said(f"c{n}", "later", {"n": n}).parts])
    got = await app.ask(both, session="s1")
    assert sorted(e.text for e in got.events) == ["got 0", "got 1"]


async def test_section_3_10_two_branches_wait_and_are_answered_one_after_the_other():
    agents = [llm(f"a{n}", call("later", id=f"c{n}"), f"got {n}", tools=[LATER]) for n in range(2)]
    last = llm("last", "last")
    both = ParallelAgent(name="both", sub_agents=agents)
    app = App(SequentialAgent(name="app", sub_agents=[both, last]))
    await app.ask("hi", session="s1")
    got = await app.ask(said("c1", "later", {"n": 1}), session="s1")
    assert (got.outcome.status, [e.text for e in got.events]) == ("paused", ["got 1"])
    got = await app.ask(said("c0", "later", {"n": 0}), session="s1")
    assert (got.outcome.status, [e.text for e in got.events]) == ("finished", ["got 0", "last"])


async def test_section_3_10_an_agent_that_was_handed_over_to_goes_on_and_the_sequence_after_it():
    after: list[str] = []
    helper = llm("helper", call("later", id="c1"), "helped", tools=[LATER])
    to_helper = call("transfer_to_agent", {"agent_name": "helper"})
    first = llm("first", to_helper, sub_agents=[helper], after_agent=lambda c: after.append(c.agent_name))
    second = llm("second", "then")
    app = App(SequentialAgent(name="app", sub_agents=[first, second]))
    await app.ask("hi", session="s1")
    got = await app.ask(said("c1", "later", {"x": 1}), session="s1")
    assert [(e.author, e.text) for e in got.events] == [("helper", "helped"), ("second", "then")]
    assert after == ["first"]


async def test_section_3_10_below_an_llm_root_the_flow_of_the_asker_is_finished_too():
    steps = SequentialAgent(
        name="steps", sub_agents=[llm("one", call("later", id="c1"), "1", tools=[LATER]), llm("two", "2")]
    )
    root = llm("root", call("transfer_to_agent", {"agent_name": "steps"}), sub_agents=[steps])
    app = App(root)
    await app.ask("hi", session="s1")
    got = await app.ask(said("c1", "later", {"x": 1}), session="s1")
    assert [(e.author, e.text) for e in got.events] == [("one", "1"), ("two", "2")]


async def test_section_3_10_a_loop_goes_on_with_the_child_that_asked():
    first = llm("first", "one", "one again")
    second = llm("second", call("later", id="c1"), "two", "two again", tools=[LATER])
    app = App(LoopAgent(name="app", sub_agents=[first, second], max_iterations=2))
    await app.ask("hi", session="s1")
    got = await app.ask(said("c1", "later", {"x": 1}), session="s1")
    assert [e.text for e in got.events] == ["two", "one again", "two again"]


async def test_core_35_other_text_begins_the_sequence_anew():
    first = llm("first", "one", "one again")
    second = llm("second", call("later", id="c1"), "two", tools=[LATER])
    app = App(SequentialAgent(name="app", sub_agents=[first, second]))
    await app.ask("hi", session="s1")
    got = await app.ask("never mind", session="s1")
    assert [e.text for e in got.events] == ["one again", "two"]


# ---- a run that died


class Dying(MemorySessions):
    """Fails from the n-th append on, as a machine that went away would, until it is back."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    async def append(self, session: Any, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        self.left -= 1
        if self.left <= 0:
            raise OSError("gone")
        return await super().append(session, event, claim=claim, strict=strict)


def work(n: int) -> str:
    """Work."""
    return f"worked {n}"


def pipeline() -> Agent:
    """Nine events after the user's: a calls and says, two in parallel say, b hands over to c, which says."""
    c = llm("c", "from c")
    b = llm("b", call("transfer_to_agent", {"agent_name": "c"}, "t"), sub_agents=[c])
    both = ParallelAgent(name="both", sub_agents=[llm("p", "from p"), llm("q", "from q")])
    a = llm("a", call("work", {"n": 1}, "w"), "from a", tools=[make_tool(work, idempotent=True)])
    return SequentialAgent(name="app", sub_agents=[a, both, b])


@pytest.mark.parametrize("at", range(2, 10))
async def test_DESIGN_7_a_run_that_died_is_resumed_and_no_stored_answer_is_asked_for_again(serve: Serve, at: int):
    agent, store = pipeline(), Dying(at)
    async with serve(agent, stores=Stores(store)) as talk:
        await talk.sse()
        first = (await talk.stored())["events"]
        assert len(first) == at - 1
        store.left = 1000
        body = {"appName": "app", "userId": "u1", "sessionId": "s1", "invocationId": first[0]["invocationId"]}
        for one in (a for tree in talk.server.trees.values() for a in tree.agents() if isinstance(a, LlmAgent)):
            said_already = [e for e in first if e["author"] == one.name and "functionResponse" not in str(e)]
            model(one).steps[:] = {
                "a": [call("work", {"n": 1}, "w"), "from a"],
                "p": ["from p"],
                "q": ["from q"],
                "b": [call("transfer_to_agent", {"agent_name": "c"}, "t")],
                "c": ["from c"],
            }[one.name][len(said_already) :]
        response = await talk.client.post("/run", json=body)
        assert response.status == 200, response.text
        events = (await talk.stored())["events"]
    assert [e["author"] for e in events[:4]] == ["user", "a", "a", "a"]
    assert sorted(e["author"] for e in events[4:6]) == ["p", "q"]
    assert [e["author"] for e in events[6:]] == ["b", "b", "c"]
    assert len({e["invocationId"] for e in events}) == 1


# ---- custom agents


async def test_a_subclass_of_agent_is_an_agent_like_any_other(serve: Serve):
    @dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
    class Echo(Agent):
        prefix: str = ""

        async def run(self, ctx: RunContext) -> None:
            text = ctx.user_content.text if ctx.user_content is not None else ""
            await ctx.emit(ctx.event(content=model_text(self.prefix + text)))
            for child in self.sub_agents:
                await ctx.run_agent(child)

    async with serve(Echo(name="app", prefix="> ", sub_agents=[llm("child", "child speaks")])) as talk:
        events = await talk.run("hello")
    assert [(e["author"], t) for e, t in zip(events, texts(events), strict=True)] == [
        ("app", "> hello"),
        ("child", "child speaks"),
    ]


async def test_a_custom_agent_may_stream_pieces(serve: Serve):
    async def body(ctx: RunContext) -> None:
        for piece in "ab":
            await ctx.emit(Event(content=model_text(piece), partial=True))
        await ctx.emit(Event(content=model_text("ab")))

    async with serve(FunctionAgent(name="app", function=body)) as talk:
        events = await talk.sse(streaming=True)
        assert texts(events) == ["a", "b", "ab"]
        assert len((await talk.stored())["events"]) == 2


async def test_an_agent_closes_its_generator_when_a_commit_fails():
    closed: list[bool] = []

    async def body(ctx: RunContext) -> Any:
        try:
            yield Event(content=model_text("a"), output=object())
        finally:
            closed.append(True)

    with pytest.raises(BadRequest):
        await App(FunctionAgent(name="app", function=body)).ask("hi")
    assert closed == [True]


async def test_an_agent_that_is_not_in_the_tree_can_be_run():
    helper = llm("helper", "from outside")

    async def body(ctx: RunContext) -> None:
        assert await ctx.run_agent(helper) == "done"

    got = await App(FunctionAgent(name="app", function=body)).ask("hi")
    assert [(e.author, e.text) for e in got.events] == [("helper", "from outside")]


# ---- names


@pytest.mark.parametrize("name", ["", "user", "two words", "1st", "a/b", "a.b", "{x}", "-x", "a\n", None, 7])
@pytest.mark.parametrize("place", ["root", "child"])
def test_section_12_31_bad_agent_names_are_refused_when_the_app_is_made(name: Any, place: str):
    bad = saying(name)
    agent = bad if place == "root" else SequentialAgent(name="app", sub_agents=[bad])
    with pytest.raises(ConfigError, match="agent"):
        App({"app": agent})


@pytest.mark.parametrize("name", ["a", "weather_agent", "Größe", "agent-2", "_x"])
def test_section_12_31_good_agent_names_are_taken(name: str):
    assert App(saying(name)).trees[name].root.name == name


def test_core_87_repeated_agents_and_names_are_refused_when_the_app_is_made():
    one = saying("one")
    with pytest.raises(ConfigError, match="'one' stands twice in the tree"):
        App(SequentialAgent(name="app", sub_agents=[one, one]))
    with pytest.raises(ConfigError, match="'one' stands twice in the tree, below 'a' and below 'b'"):
        App(
            SequentialAgent(
                name="app",
                sub_agents=[SequentialAgent(name="a", sub_agents=[one]), LoopAgent(name="b", sub_agents=[one])],
            )
        )
    with pytest.raises(ConfigError, match="two agents of the tree of 'app' are named 'one'"):
        App(SequentialAgent(name="app", sub_agents=[one, ParallelAgent(name="p", sub_agents=[saying("one")])]))
    with pytest.raises(ConfigError, match="two agents of the tree of 'app' are named 'app'"):
        App(SequentialAgent(name="app", sub_agents=[saying("app")]))


def test_section_2_1_a_tree_that_holds_its_root_again_is_refused():
    children: list[Agent] = []
    root = SequentialAgent(name="app", sub_agents=children)
    children.append(root)
    with pytest.raises(ConfigError, match="'app' stands twice"):
        App(root)


def test_section_2_1_what_is_no_agent_is_refused():
    with pytest.raises(ConfigError, match="below 'app', not a str"):
        App(SequentialAgent(name="app", sub_agents=["helper"]))  # type: ignore[list-item]  # what a user may do


async def test_one_agent_object_may_serve_several_apps():
    agent = saying("one", "hi")
    app = App({"a": agent, "b": agent})
    assert (await app.ask("x", app="a")).text == (await app.ask("x", app="b")).text == "hi"


async def test_the_budget_of_an_app_holds_for_loops():
    looping = LoopAgent(name="app", sub_agents=[llm("a", *["again"] * 20)])
    from polyport.errors import AgentError

    with pytest.raises(AgentError, match="6 model calls"):
        await App(looping).ask("hi", config=RunConfig(max_llm_calls=6))
