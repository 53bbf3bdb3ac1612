"""Workflows: graphs of functions and agents, what follows what, and what is said on the wire (spec core 4.2 to 4.4)."""

import threading
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import BaseModel

from polyport import Content, Event, LlmAgent, Part, Tool, tool
from polyport.data.content import FunctionResponse, model_text
from polyport.errors import ConfigError
from polyport.testing import ScriptedModel, call
from polyport.workflow import DEFAULT, START, Join, NodeContext, Workflow, node, parallel, route
from support.talk import Serve, texts


def fn(name: str, value: Any = None, **settings: Any) -> Any:
    """A node that gives a value, or its input."""
    return node(lambda given: given if value is None else value, name=name, **settings)


def give(name: str, *routes: Any, output: Any = None) -> Any:
    return node(lambda: route(*routes, output=output), name=name)


def ran(events: list[Any]) -> list[str]:
    """Names of the nodes, in the order in which they were done."""
    return [e["nodeInfo"]["path"].split("/")[-1].split("@")[0] for e in events if "output" in e or "routes" in e]


def last(events: list[Any]) -> Any:
    return next(e["output"] for e in reversed(events) if "output" in e)


# ---- construction


def bad(*edges: Any, **more: Any) -> str:
    with pytest.raises(ConfigError) as failure:
        Workflow("w", edges=edges, **more)
    return str(failure.value)


a, b, c = fn("a"), fn("b"), fn("c")


def test_core_90_construction_checks_name_the_nodes():
    assert "two edges from 'a' to 'b'" in bad((START, a), (a, {"x": b}), (a, {"y": b}))
    assert "two edges from 'a' to 'b'" in bad((START, a, b), (a, {"y": b}))
    assert "Join" in bad((START, (a, b), c))
    Workflow("w", edges=[(START, (a, b), Join("j"), c)])


def test_core_90_cycles_need_a_route():
    j = Join("j")
    assert "never ends" in bad((START, j), (j, b), (b, j)) and "circle" in bad((START, j), (j, b), (b, j))
    Workflow("w", edges=[(START, a), (a, {"again": b, DEFAULT: c}), (b, {DEFAULT: a})])


def test_section_4_2_what_cannot_be_a_graph_is_refused_at_once():
    assert "two nodes named 'a'" in bad((START, a, fn("a")))
    assert "START" in bad((a, b))
    assert "into START" in bad((START, a), (a, START))
    assert "more than one DEFAULT" in bad((START, a), (a, {DEFAULT: (b, c)}))
    assert "'c'" in bad((START, a), (b, c)) and "no way" in bad((START, a), (b, c))
    assert "name of its workflow" in bad((START, fn("w")))
    assert "tuple" in bad(a) and "tuple" in bad((START,))
    assert "NoneType cannot be a node" in bad((START, None))
    assert "name" in bad((START, lambda x: x))
    assert "identifier" in bad((START, fn("not good")))
    assert "needs an edge from START" in bad()
    with pytest.raises(ConfigError, match="output_schema of 'x' is not the input_schema"):
        Workflow("w", edges=[(START, fn("x", output_schema=int), fn("y", input_schema=str))])
    Workflow("w", edges=[(START, fn("x", output_schema=int), fn("y", input_schema=int))])


def test_section_4_2_state_schema_and_modes_are_checked():
    class State(msgspec.Struct):
        city: str

    def uses(node_input: str, city: str, country: str = "") -> None: ...

    assert "'country'" in bad((START, uses), state_schema=State)
    Workflow("w", edges=[(START, uses)], state_schema=["city", "country"])
    task = LlmAgent(name="t", model="demo", mode="task")
    assert "task mode" in bad((START, task))


def test_a_graph_is_plain_data_for_drawing():
    inner = Workflow("inner", edges=[(START, fn("z"))])
    flow = Workflow(
        "w",
        edges=[
            (START, a),
            (a, {"x": inner, ("y", 1): LlmAgent(name="m", model="demo"), DEFAULT: parallel(b)}),
            (inner, Join("j")),
        ],
    )
    assert msgspec.to_builtins(flow.graph) == {
        "name": "w",
        "nodes": [
            {"name": "a", "kind": "function"},
            {"name": "inner", "kind": "workflow"},
            {"name": "m", "kind": "agent"},
            {"name": "each_b", "kind": "parallel_worker"},
            {"name": "j", "kind": "join"},
        ],
        "edges": [
            {"source": "START", "target": "a"},
            {"source": "a", "target": "inner", "routes": ["x"]},
            {"source": "a", "target": "m", "routes": ["y", "1"]},
            {"source": "a", "target": "each_b", "default": True},
            {"source": "inner", "target": "j"},
        ],
    }


# ---- routing


@pytest.mark.parametrize(
    ("routes", "goes"),
    [
        (["x"], ["r", "x", "always"]),
        (["nothing"], ["r", "always", "default"]),
        ([], ["r", "always", "default"]),
        (["x", "y"], ["r", "x", "y", "always"]),
        ([2], ["r", "two", "always"]),
        ([True], ["r", "yes", "always"]),
    ],
)
async def test_core_89_routes(serve: Serve, routes: list[Any], goes: list[str]):
    r = give("r", *routes)
    edges = [
        (START, r),
        (r, fn("always", 1)),
        (r, {"x": fn("x", 1), "y": fn("y", 1), 2: fn("two", 1), True: fn("yes", 1), DEFAULT: fn("default", 1)}),
    ]
    async with serve(Workflow("app", edges=edges)) as talk:
        events = await talk.sse("hi")
        found = ran([e for e in events if isinstance(e, dict)])
        assert sorted(found) == sorted(goes if routes else goes[1:])


async def test_an_output_routes_where_no_routes_are_given(serve: Serve):
    def judge(text: str) -> bool:
        return text == "good"

    agent = Workflow("app", edges=[(START, judge), (judge, {True: fn("keep", "kept"), False: fn("drop", "dropped")})])
    async with serve(agent) as talk:
        assert texts(await talk.run("good")) == ["kept"] and texts(await talk.run("bad")) == ["dropped"]


async def test_a_loop_numbers_its_rounds(serve: Serve):
    def count(ctx: NodeContext) -> Event:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return route("more" if ctx.state["n"] < 3 else "enough", output=ctx.state["n"])

    agent = Workflow("app", edges=[(START, count), (count, {"more": b, "enough": c}), (b, {DEFAULT: count})])
    async with serve(agent) as talk:
        events = await talk.run("hi")
        assert [e["nodeInfo"]["path"] for e in events] == [
            "app@1/count@1",
            "app@1/b@1",
            "app@1/count@2",
            "app@1/b@2",
            "app@1/count@3",
            "app@1/c@1",
        ]
        assert (await talk.stored())["state"]["n"] == 3


# ---- outputs


async def test_core_91_two_outputs_fail_and_progress_does_not(serve: Serve):
    async def chatty(ctx: NodeContext) -> str:
        await ctx.emit(model_text("working"))
        await ctx.emit(ctx.event(content=model_text("still")))
        return "done"

    async def greedy(ctx: NodeContext) -> str:
        await ctx.emit(ctx.event(output=1))
        return "two"

    async def two_routes(ctx: NodeContext) -> Event:
        await ctx.emit(route("x"))
        return route("y")

    async with serve(Workflow("app", edges=[(START, chatty)])) as talk:
        assert texts(await talk.run("hi")) == ["working", "still", "done"]
    for function, why in ((greedy, "more than one output"), (two_routes, "routes twice")):
        async with serve(Workflow("app", edges=[(START, function)])) as talk:
            events = await talk.sse("hi")
            assert events[-1][0] == "error" and why in events[-1][1]["error"]


async def test_core_92_several_terminal_outputs_are_an_error(serve: Serve):
    async with serve(Workflow("app", edges=[(START, (a, b))])) as talk:
        events = await talk.sse("hi")
        assert events[-1][0] == "error" and "'a', 'b'" in events[-1][1]["error"]
    silent = node(lambda: None, name="silent")
    async with serve(Workflow("app", edges=[(START, (a, silent))])) as talk:
        assert texts(await talk.run("hi")) == ["hi"]
    async with serve(Workflow("app", edges=[(START, a), (a, {"x": b, "y": c})])) as talk:
        assert texts(await talk.run("x")) == ["x"]


async def test_core_93_a_join_waits_for_all_and_takes_none_for_the_silent(serve: Serve):
    calls: list[Any] = []
    silent = node(lambda: None, name="silent")
    slow = fn("slow")
    take = node(lambda found: calls.append(found), name="take")
    agent = Workflow("app", edges=[(START, (silent, (a))), (a, slow), ((silent, slow), Join("j"), take)])
    async with serve(agent) as talk:
        await talk.run("hi")
    assert calls == [{"silent": None, "slow": "hi"}]


async def test_core_93_a_join_in_a_loop_does_not_mix_rounds(serve: Serve):
    found: list[Any] = []

    def turn(ctx: NodeContext) -> int:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return ctx.state["n"]

    def check(both: dict[str, Any]) -> Event:
        found.append(both)
        return route("more" if len(found) < 3 else "end")

    agent = Workflow("app", edges=[(START, turn, (a, b), Join("j"), check), (check, {"more": turn})])
    async with serve(agent) as talk:
        await talk.run("hi")
    assert found == [{"a": n, "b": n} for n in (1, 2, 3)]


@pytest.mark.parametrize("schema", ["input_schema", "output_schema"])
async def test_core_93_the_schema_of_a_join_holds_for_each_predecessor(serve: Serve, schema: str):
    def join(*values: Any) -> Workflow:
        nodes = tuple(fn(f"n{i}", value) for i, value in enumerate(values))
        return Workflow("app", edges=[(START, nodes, Join("j", **{schema: int}))])

    async with serve(join("3", 4)) as talk:
        assert last(await talk.run("hi")) == {"n0": 3, "n1": 4}
    async with serve(join(1, "x")) as talk:
        assert "'n1'" in (await talk.sse("hi"))[-1][1]["error"]


async def test_core_98_branches(serve: Serve):
    deep = fn("deep")
    end = fn("end")
    agent = Workflow("app", edges=[(START, a, (b, c)), (b, deep), ((deep, c), Join("j"), end)])
    async with serve(agent) as talk:
        events = await talk.run("hi")
        branches = {e["nodeInfo"]["path"].split("/")[1]: e.get("branch", "") for e in events}
        assert branches == {"a@1": "", "b@1": "b@1", "c@1": "c@1", "deep@1": "b@1", "j@1": "", "end@1": ""}


async def test_core_98_branches_of_nested_fan_outs(serve: Serve):
    x, y = fn("x"), fn("y")
    inner, outer = Join("inner"), Join("outer")
    agent = Workflow("app", edges=[(START, (a, b)), (a, (x, y), inner), ((inner, b), outer)])
    async with serve(agent) as talk:
        events = await talk.run("hi")
        branches = {e["nodeInfo"]["path"].split("/")[1]: e.get("branch", "") for e in events}
        assert branches == {
            "a@1": "a@1",
            "b@1": "b@1",
            "x@1": "a@1.x@1",
            "y@1": "a@1.y@1",
            "inner@1": "a@1",
            "outer@1": "",
        }


async def test_core_99_content_gets_a_role(serve: Serve):
    async def say(ctx: NodeContext) -> None:
        response = Part(function_response=FunctionResponse(id="c", name="f", response={}))
        await ctx.emit(Content(role="", parts=[Part(text="a")]))
        await ctx.emit(Content(role="", parts=[response]))
        await ctx.emit(Content(role="system", parts=[Part(text="b")]))

    async with serve(Workflow("app", edges=[(START, say)])) as talk:
        events = await talk.run("hi")
        assert [e["content"]["role"] for e in events] == ["model", "user", "system"]
        assert {e["author"] for e in events} == {"app"}


async def test_core_104_paths_and_owners(serve: Serve):
    inner = Workflow("inner", edges=[(START, fn("first"), fn("leaf"))])
    async with serve(Workflow("app", edges=[(START, a, inner)])) as talk:
        events = await talk.run("hi")
        info = {e["nodeInfo"]["path"]: e["nodeInfo"].get("outputFor") for e in events}
        assert info == {
            "app@1/a@1": ["app@1/a@1"],
            "app@1/inner@1/first@1": ["app@1/inner@1/first@1"],
            "app@1/inner@1/leaf@1": ["app@1/inner@1/leaf@1", "app@1/inner@1", "app@1"],
        }


async def test_core_39_three_turns_each_have_their_output_and_an_error_comes_out(serve: Serve):
    def shout(text: str) -> str:
        if text == "bad":
            raise msgspec.ValidationError("no")
        return text.upper()

    async with serve(Workflow("app", edges=[(START, shout)])) as talk:
        for word in ("one", "two", "three"):
            assert texts(await talk.run(word)) == [word.upper()]
        stored = (await talk.stored())["events"]
        assert [e["output"] for e in stored if e.get("output")] == ["ONE", "TWO", "THREE"]
        assert (await talk.sse("bad"))[-1][0] == "error"
        assert texts(await talk.run("four")) == ["FOUR"]


# ---- functions


@dataclass
class Trip:
    city: str
    days: int = 1


class Hotel(BaseModel):
    city: str
    stars: int


async def test_section_4_3_inputs_are_read_as_their_types(serve: Serve):
    seen: list[Any] = []

    def make(text: str) -> Trip:
        return Trip(text, 3)

    def book(trip: Trip) -> Hotel:
        seen.append(trip)
        return Hotel(city=trip.city, stars=4)

    def show(hotel: Hotel, days: int = 7) -> str:
        seen.append(hotel)
        return f"{hotel.city} {days}"

    async with serve(Workflow("app", edges=[(START, make, book, show)])) as talk:
        events = await talk.run("Rome")
        assert [e["output"] for e in events] == [{"city": "Rome", "days": 3}, {"city": "Rome", "stars": 4}, "Rome 7"]
    assert seen == [Trip("Rome", 3), Hotel(city="Rome", stars=4)]


async def test_section_4_3_nothing_is_the_zero_of_a_type(serve: Serve):
    seen: list[Any] = []
    nothing = node(lambda: None, name="nothing")

    def take(n: int) -> None:
        seen.append(n)

    def maybe(n: int | None) -> None:
        seen.append(n)

    def text(t: str) -> None:
        seen.append(t)

    def items(t: list[int]) -> None:
        seen.append(t)

    async with serve(Workflow("app", edges=[(START, nothing, take, maybe, text, items)])) as talk:
        await talk.run("hi")
    assert seen == [0, None, "", []]


async def test_section_4_3_parameters_come_from_the_state(serve: Serve):
    def greet(node_input: str, city: str, units: str = "C") -> str:
        return f"{node_input} {city} {units}"

    def only(city: str) -> str:
        return city

    agent = Workflow("app", edges=[(START, greet, node(only, from_state=True))])
    async with serve(agent) as talk:
        events = await talk.run("hi", stateDelta={"city": "Rome"})
        assert [e["output"] for e in events] == ["hi Rome C", "Rome"]
    async with serve(agent) as talk:
        failed = await talk.sse("hi")
        assert "'city'" in failed[-1][1]["error"]


async def test_section_4_3_sync_functions_run_beside_the_event_loop(serve: Serve):
    threads: list[str] = []

    def sync() -> None:
        threads.append(threading.current_thread().name)

    async def on_loop() -> None:
        threads.append(threading.current_thread().name)

    async with serve(Workflow("app", edges=[(START, sync, on_loop)])) as talk:
        await talk.run("hi")
    assert threads[0] != threads[1] == threading.current_thread().name


async def test_section_4_3_generators_say_things_before_their_output(serve: Serve):
    async def stream(text: str) -> Any:
        yield Event(content=model_text("a"), partial=True)
        yield model_text("ab")
        yield text + "!"

    def steps(text: str) -> Any:
        yield model_text("one")
        yield None
        yield {"n": 1}

    async with serve(Workflow("app", edges=[(START, stream, steps)])) as talk:
        events = await talk.sse("hi", streaming=True)
        assert texts(events) == ["a", "ab", "hi!", "one", '{"n":1}']
        assert [e["output"] for e in events if "output" in e] == ["hi!", {"n": 1}]


async def test_section_4_3_content_and_events_are_results_too(serve: Serve):
    def first() -> Content:
        return model_text("spoken")

    def second(text: str) -> Event:
        return Event(output=text + "!", content=model_text("both"))

    async with serve(Workflow("app", edges=[(START, first, second, fn("end"))])) as talk:
        events = await talk.run("hi")
        assert texts(events) == ["spoken", "both", "spoken!"]
        assert "output" not in events[0] and events[0]["nodeInfo"]["messageAsOutput"] is True


async def test_what_has_no_json_form_is_an_error_of_the_node_and_not_of_the_caller(serve: Serve):
    async def child(ctx: NodeContext) -> Any:
        return await ctx.run_node(str, object())

    for name, made in (("gives", node(lambda: object(), name="gives")), ("str", child)):
        async with serve(Workflow("app", edges=[(START, made)])) as talk:
            failed = await talk.client.post("/run", json=talk.body("hi"))
            assert failed.status == 500 and f"node '{name}' cannot be stored as JSON" in failed.json()["error"]


async def test_state_and_artifacts_of_a_node_come_true_with_its_result(serve: Serve):
    async def write(ctx: NodeContext) -> None:
        ctx.state["x"] = 1
        await ctx.save_artifact("f.txt", Part(text="hi"))

    async with serve(Workflow("app", edges=[(START, write, node(lambda ctx: ctx.state["x"], name="read"))])) as talk:
        events = await talk.run("hi")
        assert events[0]["actions"]["stateDelta"] == {"x": 1} and events[0]["actions"]["artifactDelta"] == {"f.txt": 1}
        assert last(events) == 1


async def test_core_110_what_an_agent_says_is_read_by_the_schema(serve: Serve):
    async def run(text: str | Content, schema: Any) -> Any:
        agent = LlmAgent(name="m", model=ScriptedModel(text))
        async with serve(Workflow("app", edges=[(START, node(agent, output_schema=schema), fn("end"))])) as talk:
            events = await talk.sse("hi")
            return events[-1][1]["error"] if isinstance(events[-1], tuple) else last(events)

    thoughts = Content(role="model", parts=[Part(text="hm", thought=True), Part(text='{"city": "Rome", "days": "3"}')])
    assert await run("plain", str) == "plain"
    assert await run('{"a": 1}', str) == '{"a": 1}', "a text stays a text"
    assert await run('{"city": "Rome", "days": 2}', Trip) == {"city": "Rome", "days": 2}
    assert await run(thoughts, Trip) == {"city": "Rome", "days": 3}
    assert await run("[1, 2]", list[int]) == [1, 2]
    assert "length <= 3" in await run("too long", Annotated[str, msgspec.Meta(max_length=3)])
    assert "city" in await run('{"town": 1}', Trip)
    assert "does not fit" in await run("no JSON", Trip)


# ---- tools


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_section_4_3_a_tool_is_called_with_its_input(serve: Serve):
    assert isinstance(add, Tool)
    for given in ({"a": 1, "b": 2}, '{"a": 1, "b": 2}'):
        async with serve(Workflow("app", edges=[(START, fn("args", given), add, fn("end"))])) as talk:
            events = await talk.run("hi")
            assert last(events) == 3
            (asked,) = [
                p["functionCall"]
                for e in events
                for p in (e.get("content") or {}).get("parts", [])
                if "functionCall" in p
            ]
            assert asked["name"] == "add" and asked["args"] == {"a": 1, "b": 2} and asked["id"]
    async with serve(Workflow("app", edges=[(START, add)])) as talk:
        failed = await talk.sse("text")
        assert "arguments" in failed[-1][1]["error"]
    async with serve(Workflow("app", edges=[(START, fn("args", {"a": "x"}), add)])) as talk:
        failed = await talk.sse("hi")
        assert "add" in failed[-1][1]["error"] and "b" in failed[-1][1]["error"]


async def test_a_model_and_functions_side_by_side(serve: Serve):
    writer = LlmAgent(name="writer", model=ScriptedModel("draft"))
    critic = LlmAgent(name="critic", model=ScriptedModel(call("add", {"a": 1, "b": 2}), "fine"), tools=[add])
    agent = Workflow(
        "app", edges=[(START, writer, (critic, fn("keep")), Join("both"), node(lambda both: both, name="end"))]
    )
    async with serve(agent) as talk:
        assert last(await talk.run("hi")) == {"critic": "fine", "keep": "draft"}


async def test_a_function_may_be_decorated_and_still_be_called(serve: Serve):
    @node(output_schema=int)
    def length(text: str) -> int:
        return len(text)

    assert length("abc") == 3
    async with serve(Workflow("app", edges=[(START, length)])) as talk:
        assert last(await talk.run("four")) == 4
