"""Nodes inside nodes: children that a function runs, workers over a list, and workflows in workflows (spec core 4.3, 4.8)."""

from typing import Any

import anyio
import pytest

from polyport import App, LlmAgent, tool
from polyport.data.event import Event
from polyport.data.run import RunRequest
from polyport.data.session import SessionKey
from polyport.errors import AgentError, ConfigError, TimedOut
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call
from polyport.workflow import (
    START,
    NodeContext,
    NodeWaits,
    ParallelWorker,
    RetryPolicy,
    Workflow,
    node,
    parallel,
)
from support.approvals import approve, requests
from support.talk import Serve, answer, texts

INPUT = "adk_request_input"


def flow(*edges: Any, **more: Any) -> Workflow:
    return Workflow("app", edges=edges, **more)


def paths(events: list[Any]) -> list[str]:
    return [e["nodeInfo"]["path"] for e in events if "output" in e]


def last(events: list[Any]) -> Any:
    return next(e["output"] for e in reversed(events) if "output" in e)


def double(x: int) -> int:
    return x * 2


async def failure(agent: Workflow) -> str:
    with pytest.raises(AgentError) as found:
        await App(agent).ask("hi")
    return str(found.value)


# ---- children


async def test_core_105_children_have_numbers_of_their_own_and_custom_ids(serve: Serve):
    async def parent(ctx: NodeContext) -> list[Any]:
        one = await ctx.run_node(double, 1)
        two = await ctx.run_node(double, 2)
        named = await ctx.run_node(double, 3, run_id="last")
        other = await ctx.run_node(node(lambda x: -x, name="minus"), 4)
        again = await ctx.run_node(double, 99, run_id="last")
        return [one, two, named, other, again]

    async with serve(flow((START, parent))) as talk:
        events = await talk.run("hi")
        assert last(events) == [2, 4, 6, -4, 6], "the same run_id gives what it came to, and runs nothing"
        assert [p.removeprefix("app@1/parent@1/") for p in paths(events)[:-1]] == [
            "double@1",
            "double@2",
            "double@last",
            "minus@1",
        ]


@pytest.mark.parametrize("run_id", ["7", "a/b", "a@b", "a#b", "a|b"])
async def test_core_105_bad_run_ids(run_id: str):
    async def parent(ctx: NodeContext) -> None:
        await ctx.run_node(double, 1, run_id=run_id)

    assert "run_id" in await failure(flow((START, parent)))


async def test_core_105_numbers_are_right_side_by_side(serve: Serve):
    async def parent(ctx: NodeContext) -> list[Any]:
        found: list[Any] = []

        async def one(x: int) -> None:
            found.append(await ctx.run_node(double, x))

        async with anyio.create_task_group() as group:
            for x in range(20):
                group.start_soon(one, x)
        return sorted(found)

    async with serve(flow((START, parent))) as talk:
        events = await talk.run("hi")
        assert last(events) == [2 * x for x in range(20)]
        assert sorted(paths(events)[:-1]) == sorted(f"app@1/parent@1/double@{n}" for n in range(1, 21))


async def test_core_105_the_output_of_a_child_may_be_that_of_its_parents(serve: Serve):
    async def middle(x: int, ctx: NodeContext) -> None:
        await ctx.run_node(double, x, use_as_output=True)

    async def top(ctx: NodeContext) -> None:
        assert await ctx.run_node(middle, 4, use_as_output=True) == 8

    got: list[Any] = []
    async with serve(flow((START, top, got.append))) as talk:
        events = await talk.run("hi")
        (said,) = [e for e in events if "output" in e]
        assert said["nodeInfo"] == {
            "path": "app@1/top@1/middle@1/double@1",
            "outputFor": ["app@1/top@1/middle@1/double@1", "app@1/top@1/middle@1", "app@1/top@1"],
        }
    assert got == [8]


async def test_core_105_only_one_child_may_be_the_output():
    async def twice(ctx: NodeContext) -> None:
        await ctx.run_node(double, 1, use_as_output=True)
        await ctx.run_node(double, 2, use_as_output=True)

    async def beside(ctx: NodeContext) -> str:
        await ctx.run_node(double, 1, use_as_output=True)
        return "mine"

    assert "two children" in await failure(flow((START, twice)))
    assert "use_as_output" in await failure(flow((START, beside)))


async def test_section_4_8_a_failing_child_is_named():
    def bad() -> None:
        raise ValueError("a secret")

    async def parent(ctx: NodeContext) -> None:
        await ctx.run_node(bad)

    said = await failure(flow((START, parent)))
    assert "'bad'" in said and "app@1/parent@1/bad@1" in said and "ValueError" in said and "secret" not in said

    async def careful(ctx: NodeContext) -> str:
        try:
            await ctx.run_node(bad)
        except AgentError:
            return "went wrong"
        return "?"

    assert (await App(flow((START, careful))).ask("hi")).text == "went wrong"


async def test_section_4_8_branches_of_children(serve: Serve):
    async def parent(ctx: NodeContext) -> None:
        await ctx.run_node(double, 1)
        await ctx.run_node(double, 1, sub_branch=True)
        await ctx.run_node(double, 1, branch="own")
        await ctx.run_node(double, 1, branch="own", sub_branch=True)
        await ctx.run_node(double, 1, branch="", sub_branch=True, run_id="x.y")

    side = node(lambda: None, name="side")
    async with serve(flow((START, (parent, side)))) as talk:
        events = await talk.run("hi")
        assert [e.get("branch", "") for e in events] == [
            "parent@1",
            "parent@1.double@2",
            "own",
            "own.double@4",
            "double@x_y",
        ]


async def test_a_child_agent_must_be_named_before_it_is_run(serve: Serve):
    model = ScriptedModel("hello", "bye")
    one, other = LlmAgent(name="one", model=model), LlmAgent(name="other", model=model)

    async def parent(text: str, ctx: NodeContext) -> str:
        return str(await ctx.run_node(one, text)) + str(await ctx.run_node(one, "again"))

    async with serve(flow((START, node(parent, uses=[one])))) as talk:
        assert last(await talk.run("hi")) == "hellobye"
        assert model.prompt(0) == ["user: hi"] and model.prompt(1) == ["user: again"]
    assert "uses=[other]" in await failure(
        flow((START, node(lambda ctx: None, name="x"), node(_runs(other), name="parent")))
    )


def _runs(target: Any, **options: Any) -> Any:
    async def parent(ctx: NodeContext) -> Any:
        return await ctx.run_node(target, **options)

    return parent


# ---- children that wait


async def test_core_106_done_children_are_not_run_again_and_those_of_another_run_do_not_count(serve: Serve):
    ran: list[str] = []

    def work(name: str) -> str:
        ran.append(name)
        return name.upper()

    async def ask(ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id="q")

    async def parent(text: str, ctx: NodeContext) -> str:
        first = await ctx.run_node(work, f"{text}1")
        said = await ctx.run_node(ask)
        second = await ctx.run_node(work, f"{text}2")
        return f"{first} {said} {second}"

    async with serve(flow((START, parent))) as talk:
        for text in ("a", "b"):
            assert [r["id"] for r in requests(await talk.run(text), INPUT)] == ["q"]
            done = await talk.run(answer("q", INPUT, {"response": "mid"}))
            assert last(done) == f"{text.upper()}1 mid {text.upper()}2"
    assert ran == ["a1", "a2", "b1", "b2"]


async def test_section_4_8_a_swallowed_wait_still_waits(serve: Serve):
    async def ask(ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id="q")

    async def parent(ctx: NodeContext) -> str:
        try:
            return str(await ctx.run_node(ask))
        except NodeWaits:
            return "never mind"

    async with serve(flow((START, parent))) as talk:
        assert paths(await talk.run("hi")) == []
        assert last(await talk.run(answer("q", INPUT, {"response": "yes"}))) == "yes"


async def test_section_4_8_a_wait_in_a_task_group_parks_the_node(serve: Serve):
    async def ask(ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id="q")

    async def parent(ctx: NodeContext) -> Any:
        found: list[Any] = []

        async def one() -> None:
            found.append(await ctx.run_node(ask))

        async with anyio.create_task_group() as group:
            group.start_soon(one)
        return found

    async with serve(flow((START, parent))) as talk:
        assert len(requests(await talk.run("hi"), INPUT)) == 1
        assert last(await talk.run(answer("q", INPUT, {"response": "yes"}))) == ["yes"]


async def test_run_all_ends_the_others_before_it_waits(serve: Serve):
    ran: list[Any] = []

    async def ask(key: str, ctx: NodeContext) -> None:
        await ctx.request_input("?", interrupt_id=key)

    async def slow(x: int) -> int:
        await anyio.lowlevel.checkpoint()
        ran.append(x)
        return x

    async def parent(ctx: NodeContext) -> Any:
        return await ctx.run_all([(ask, "a"), (slow, 1), (ask, "b"), (slow, 2)])

    async with serve(flow((START, parent))) as talk:
        assert len(requests(await talk.run("hi"), INPUT)) == 2
        await talk.run(answer("b", INPUT, {"response": "B"}))
        assert last(await talk.run(answer("a", INPUT, {"response": "A"}))) == ["A", 1, "B", 2]
    assert ran == [1, 2]


async def test_section_4_8_a_child_that_must_say_something_parks_its_parent():
    silent = node(lambda: None, name="silent", wait_for_output=True)
    reply = await App(flow((START, _runs(silent)))).ask("hi")
    assert reply.outcome.status == "paused"


class Clerk:
    """An agent with a long-running tool."""

    def __init__(self) -> None:
        self.model = ScriptedModel(call("order", {}, "c1"), "It is ordered.", "It has come.")
        self.agent = LlmAgent(name="clerk", model=self.model, tools=[tool(long_running=True)(self.order)])

    def order(self) -> dict[str, Any]:
        """Order."""
        return {"status": "on its way"}


async def test_core_107_raise_on_wait_turns_an_open_call_into_a_pause(serve: Serve):
    clerk = Clerk()
    async with serve(flow((START, node(_runs(clerk.agent, raise_on_wait=True), name="p", uses=[clerk.agent])))) as talk:
        assert "p@1" not in "".join(p.rsplit("/", 1)[-1] for p in paths(await talk.run("hi")))
        done = await talk.run(answer("c1", "order", {"result": "here"}))
        assert texts(done) == ["It has come.", "It has come."] and last(done) == "It has come."
    clerk = Clerk()
    async with serve(flow((START, node(_runs(clerk.agent), name="p", uses=[clerk.agent])))) as talk:
        assert last(await talk.run("hi")) == "It is ordered."


async def test_core_107_an_agent_in_a_graph_waits_for_its_long_running_call(serve: Serve):
    clerk, got = Clerk(), list[Any]()
    async with serve(flow((START, clerk.agent, got.append))) as talk:
        await talk.run("hi")
        assert got == []
        await talk.run(answer("c1", "order", {"result": "here"}))
    assert got == ["It has come."]


# ---- workers


async def test_core_108_a_worker_keeps_the_order(serve: Serve):
    async def slow(x: int) -> int:
        for _ in range(10 - x):
            await anyio.lowlevel.checkpoint()
        return x * 2

    agent = flow((START, node(lambda: list(range(10)), name="make"), parallel(slow)))
    async with serve(agent) as talk:
        events = await talk.run("hi")
        assert last(events) == [2 * x for x in range(10)]
        branches = {e["branch"] for e in events if "/slow@" in e["nodeInfo"]["path"]}
        assert branches == {f"slow@{n}" for n in range(1, 11)}


async def test_core_108_empty_lists_and_other_things():
    assert (await App(flow((START, node(lambda: [], name="e"), parallel(double)))).ask("hi")).text == "[]"
    assert "needs a list, not a str" in await failure(flow((START, parallel(double))))
    with pytest.raises(ConfigError, match="retry"):
        parallel(node(double, retry=RetryPolicy()))
    with pytest.raises(ConfigError, match="limit"):
        ParallelWorker(inner=node(double), limit=-1)


async def test_core_108_items_are_tried_again_one_by_one_and_the_first_failure_stops_the_rest():
    tried: list[tuple[int, int]] = []

    async def flaky(x: int, ctx: NodeContext) -> int:
        tried.append((x, ctx.attempt))
        if x == 2 and ctx.attempt < 3:
            raise ValueError
        return x

    policy = RetryPolicy(max_attempts=3, initial_s=0)
    make = node(lambda: [1, 2, 3], name="make")
    assert (await App(flow((START, make, parallel(flaky, retry=policy)))).ask("hi")).text == "[1,2,3]"
    assert sorted(tried) == [(1, 1), (2, 1), (2, 2), (2, 3), (3, 1)]

    stopped: list[int] = []

    async def one_fails(x: int) -> None:
        if x == 2:
            raise KeyError(x)
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(x)

    with pytest.raises(KeyError):
        await App(flow((START, make, parallel(one_fails)))).ask("hi")
    assert sorted(stopped) == [1, 3]


async def test_core_108_several_outputs_of_one_item_are_a_list(serve: Serve):
    async def spread(x: int) -> Any:
        for n in range(x):
            yield n

    async with serve(flow((START, node(lambda: [0, 1, 3], name="make"), parallel(spread)))) as talk:
        assert last(await talk.run("hi")) == [None, 0, [0, 1, 2]]


@pytest.mark.parametrize("limit", [1, 3])
async def test_core_108_no_more_items_at_once_than_allowed(limit: int):
    now, most = 0, 0

    async def work(x: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.lowlevel.checkpoint()
        now -= 1
        return x

    await App(flow((START, node(lambda: list(range(9)), name="make"), parallel(work, limit=limit)))).ask("hi")
    assert most == limit


async def test_section_12_18_an_approval_inside_a_worker_and_what_it_writes_are_not_lost(serve: Serve):
    paid: list[int] = []

    @tool(require_confirmation=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    def script(request: Any, _: Any) -> Any:
        last = request.contents[-1]
        if last.responses:
            return f"done {last.responses[0].response}"
        return call("pay", {"amount": int(last.text)}, f"c{last.text}")

    clerk = LlmAgent(name="clerk", model=ScriptedModel(*[script] * 6), tools=[pay])
    agent = flow((START, node(lambda: [1, 2, 3], name="make"), parallel(clerk), node(len, name="count")))
    async with serve(agent) as talk:
        asked = requests(await talk.run("go"))
        assert len(asked) == 3 and paid == []
        for request in asked[:2]:
            assert texts(await talk.run(approve(request))) == ["done {'result': 'paid'}"]
        assert last(await talk.run(approve(asked[2]))) == 3
    assert sorted(paid) == [1, 2, 3]


async def test_FR_065_agents_side_by_side_see_only_their_own_work(serve: Serve):
    """Eight agents with tools, three rounds each; every request holds its own input, calls and responses, and nothing else."""

    @tool
    async def look(who: str, n: int) -> str:
        """Look."""
        for _ in range((len(who) * 7 + n * 3) % 5):
            await anyio.lowlevel.checkpoint()
        return f"{who}{n}"

    def worker(name: str) -> LlmAgent:
        def step(request: Any, _: Any) -> Any:
            told = [c for c in request.contents if c.responses]
            n = len(told)
            assert request.contents[0].text == f"job of {name}"
            assert [c.responses[0].response["result"] for c in told] == [f"{name}{i}" for i in range(n)]
            assert len(request.contents) == 1 + 2 * n
            return call("look", {"who": name, "n": n}, "same id") if n < 3 else f"{name} is done"

        return LlmAgent(name=name, model=ScriptedModel(*[step] * 4), tools=[look])

    workers = [worker(f"w{'x' * i}") for i in range(8)]

    async def all_of_them(ctx: NodeContext) -> Any:
        return await ctx.run_all([(w, f"job of {w.name}") for w in workers])

    agent = flow((START, node(all_of_them, uses=workers)))
    async with serve(agent) as talk:
        assert last(await talk.run("go")) == [f"{w.name} is done" for w in workers]


# ---- workflows in workflows


async def test_section_4_3_a_nested_workflow_takes_its_input_and_gives_its_one_output(serve: Serve):
    inner = Workflow("inner", edges=[(START, node(lambda d: d["n"] + 1, name="plus"))])
    silent = Workflow("silent", edges=[(START, node(lambda: None, name="nothing"))])
    got: list[Any] = []
    agent = flow(
        (START, node(lambda: {"n": 1}, name="make"), inner, (node(got.append, name="x"), silent)),
        (silent, node(got.append, name="y")),
    )
    async with serve(agent) as talk:
        await talk.run("hi")
    assert sorted(got, key=str) == [2, None]
    many = Workflow("many", edges=[(START, (node(double, name="a"), node(double, name="b")))])
    assert "'a', 'b'" in await failure(flow((START, node(lambda: 1, name="make"), many)))


async def test_a_run_that_died_inside_a_worker_goes_on_with_what_is_left():
    class Dying(MemorySessions):
        left = 10**6

        async def append(self, session: Any, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
            self.left -= 1
            if self.left <= 0:
                raise OSError("gone")
            return await super().append(session, event, claim=claim, strict=strict)

    ran: list[int] = []

    def work(x: int) -> int:
        ran.append(x)
        return x

    store = Dying()
    app = App(flow((START, node(lambda: [1, 2, 3, 4], name="make"), parallel(work, limit=1))), stores=Stores(store))
    async with app:
        store.left = 6  # the message, the start, make, 1, 2
        with pytest.raises(OSError, match="gone"):
            await app.ask("hi", session="s")
        store.left = 10**6
        key = SessionKey("app", "user", "s")
        run_id = (await app.stores.sessions.get(key)).events[0].invocation_id
        run = await app.runs.start(RunRequest(key=key, invocation_id=run_id))
        assert (await run.wait()).status == "finished"
    assert ran == [1, 2, 3, 3, 4]


async def test_a_nested_workflow_that_failed_is_tried_again_from_its_start_and_then_goes_on(serve: Serve):
    ran: list[str] = []

    def first(text: str) -> str:
        ran.append("first")
        return text

    async def second(text: str, ctx: NodeContext) -> None:
        ran.append("second")
        if ran.count("second") == 1:
            raise ValueError("once")
        await ctx.request_input("?", interrupt_id="q")

    inner = Workflow("inner", edges=[(START, first, second, node(lambda v: f"<{v}>", name="wrap"))])
    async with serve(flow((START, node(inner, retry=RetryPolicy(initial_s=0))))) as talk:
        assert len(requests(await talk.run("hi"), INPUT)) == 1
        assert last(await talk.run(answer("q", INPUT, {"response": "yes"}))) == "<yes>"
    assert ran == ["first", "second", "first", "second"]


async def test_many_nested_workflows_cost_little(serve: Serve):
    inner = Workflow("inner", edges=[(START, node(lambda x: x, name="one"), node(lambda x: x, name="two"))])
    agent = flow((START, node(lambda: list(range(200)), name="make"), parallel(inner)))
    async with serve(agent) as talk:
        assert last(await talk.run("go")) == list(range(200))


async def test_an_agent_node_has_a_time_limit():
    async def hangs(request: Any, _: Any) -> str:
        await anyio.sleep_forever()
        return ""

    agent = LlmAgent(name="slow", model=ScriptedModel(hangs))
    with pytest.raises(TimedOut, match="'slow' took longer"):
        await App(flow((START, node(agent, timeout_s=0.01)))).ask("hi")


async def test_workflows_tools_and_workers_are_children_too(serve: Serve):
    paid: list[int] = []

    @tool(require_confirmation=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    inner = Workflow("inner", edges=[(START, node(lambda x: x + 1, name="plus"))])

    async def parent(ctx: NodeContext) -> Any:
        one = await ctx.run_node(inner, 1)
        many = await ctx.run_node(parallel(inner), [one, 5])
        return [many, await ctx.run_node(pay, {"amount": 7})]

    async with serve(flow((START, node(parent, uses=[inner, pay])))) as talk:
        (request,) = requests(await talk.run("go"))
        done = await talk.run(approve(request))
        assert last(done) == [[3, 6], "paid 7"] and paid == [7]
