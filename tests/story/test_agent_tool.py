"""Agents as tools: the child works inside the caller's run, and nothing is lost at the boundary (spec core 6.3, 12.21)."""

import dataclasses
from typing import Any

import anyio
import pytest

from polyport import (
    Agent,
    AgentTool,
    App,
    Content,
    FunctionAgent,
    LlmAgent,
    LoopAgent,
    ModelResponse,
    ParallelAgent,
    Part,
    Plugin,
    RunConfig,
    RunContext,
    SequentialAgent,
    SessionKey,
    ToolContext,
    make_tool,
)
from polyport.data.content import model_text, user_text
from polyport.data.event import Event
from polyport.data.model import Usage
from polyport.data.run import RunRequest
from polyport.errors import AgentError, ConfigError, ModelError, RunCancelled
from polyport.plugins import UsagePlugin
from polyport.ports.runs import Sink
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call
from polyport.testing.scripted import chunks
from support.talk import Serve, answer, said, texts


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps, name=f"model of {name}"), **fields)


def model(agent: Agent) -> ScriptedModel:
    assert isinstance(agent, LlmAgent) and isinstance(agent.model, ScriptedModel)
    return agent.model


def ask(name: str, request: str = "do it", id: str = "") -> Any:
    return call(name, {"request": request}, id)


def responses(events: list[Event]) -> list[dict[str, Any] | None]:
    return [r.response for e in events for r in e.responses]


def calling(*tools: Any, calls: Any, then: str = "done", **fields: Any) -> LlmAgent:
    return llm("boss", calls, then, tools=list(tools), **fields)


def later() -> None:
    """Answer later."""


LATER = make_tool(later, long_running=True)


# ---- question and answer


async def test_section_6_3_the_child_answers_and_the_caller_sees_its_text():
    child = llm("child", "It is 18 degrees.", instruction="Know the weather.", description="Knows the weather.")
    boss = calling(AgentTool(child), calls=ask("child", "Weather in Paris?", "c1"))
    got = await App(boss).ask("hi", session="s1")
    assert got.text == "done"
    assert [e.author for e in got.events] == ["boss", "boss", "boss"], "what the child does is not shown"
    assert responses(got.events) == [{"result": "It is 18 degrees."}]
    (declared,) = model(boss).requests[0].tools
    assert (declared.name, declared.description) == ("child", "Knows the weather.")
    assert declared.parameters["required"] == ["request"]
    assert model(child).prompt() == ["user: Weather in Paris?"]
    assert "Know the weather." in model(child).requests[0].system and 'named "child"' in model(child).requests[0].system
    assert model(boss).prompt() == [
        "user: hi",
        "model: call child({'request': 'Weather in Paris?'})",
        "user: result child {'result': 'It is 18 degrees.'}",
    ]


async def test_section_6_3_its_events_are_stored_with_scope_and_branch_and_do_not_reach_later_prompts(serve: Serve):
    child = llm("child", "secret step", "again")
    boss = llm("boss", ask("child", id="c1"), "one", "two", tools=[AgentTool(child)])
    async with serve(boss) as talk:
        await talk.run("hi")
        await talk.run("more")
        events = (await talk.stored())["events"]
    (inner,) = [e for e in events if e["author"] == "child"]
    assert (inner["isolationScope"], inner["branch"]) == ("c1", "child@c1")
    assert len({e["invocationId"] for e in events[:5]}) == 1, "one run"
    assert model(boss).prompt().count("model: secret step") == 0
    assert "secret step" not in str([c for c in model(boss).requests[-1].contents if not c.responses])


async def test_section_12_21_thoughts_are_left_out_and_the_last_answer_counts():
    thinking = Content(role="model", parts=[Part(text="hm", thought=True), Part(text="42")])
    child = llm("child", Content(role="model", parts=[Part(text="hm", thought=True)]), thinking)
    got = await App(calling(AgentTool(child), calls=ask("child"))).ask("hi")
    assert responses(got.events) == [{"result": "42"}]


async def test_core_114_an_empty_answer_is_an_empty_object():
    got = await App(calling(AgentTool(llm("child", "")), calls=ask("child"))).ask("hi")
    assert responses(got.events) == [{}]


@pytest.mark.parametrize(
    ("given", "told"), [(7, "7"), ({"city": "Paris"}, '{"city":"Paris"}'), (["a"], '["a"]'), (False, "false")]
)
async def test_section_6_3_a_request_that_is_no_text_becomes_text(given: Any, told: str):
    child = llm("child", "ok")
    await App(calling(AgentTool(child), calls=call("child", {"request": given}))).ask("hi")
    assert model(child).prompt() == [f"user: {told}"]


@pytest.mark.parametrize(
    ("args", "named"), [({}, "'request'"), ({"request": "x", "extra": 1}, "'extra'"), ({"request": None}, "'request'")]
)
async def test_core_114_missing_and_extra_arguments_are_errors_that_the_caller_sees(args: dict[str, Any], named: str):
    child = llm("child")
    got = await App(calling(AgentTool(child), calls=call("child", args))).ask("hi")
    (response,) = responses(got.events)
    assert response is not None and named in response["error"]
    assert model(child).requests == []


@dataclasses.dataclass
class Trip:
    city: str
    days: int


@pytest.mark.parametrize(
    ("args", "wrong"),
    [({"city": "Rome"}, "days"), ({"city": "Rome", "days": "x"}, "days"), ({"city": "Rome", "days": 2, "n": 1}, "'n'")],
)
@pytest.mark.parametrize("where", ["agent", "tool"])
async def test_core_114_an_input_schema_is_checked(args: dict[str, Any], wrong: str, where: str):
    child = llm("child", input_schema=Trip if where == "agent" else None)
    tool = AgentTool(child, input_schema=Trip if where == "tool" else None)
    got = await App(calling(tool, calls=call("child", args))).ask("hi")
    (response,) = responses(got.events)
    assert response is not None and wrong in response["error"]


async def test_section_6_3_arguments_that_fit_an_input_schema_reach_the_child_as_json():
    child = llm("child", "ok", input_schema=Trip)
    boss = calling(AgentTool(child, description="Plans."), calls=call("child", {"city": "Rome", "days": 2}))
    await App(boss).ask("hi")
    assert model(child).prompt() == ['user: {"city":"Rome","days":2}']
    (declared,) = model(boss).requests[0].tools
    assert (declared.description, sorted(declared.parameters["properties"])) == ("Plans.", ["city", "days"])


async def test_section_6_3_an_output_schema_gives_the_parsed_object_and_output_key_the_state():
    child = llm("child", '{"city": "Rome", "days": 2}', output_schema=Trip, output_key="trip")
    got = await App(calling(AgentTool(child), calls=ask("child"), instruction="{trip?}")).ask("hi")
    assert responses(got.events) == [{"city": "Rome", "days": 2}]


async def test_core_114_an_answer_that_never_fits_is_an_error():
    child = llm("child", "no", "no json", "never", output_schema=Trip)
    got = await App(calling(AgentTool(child), calls=ask("child"))).ask("hi")
    (response,) = responses(got.events)
    assert response is not None and "does not fit its output_schema" in response["error"]
    assert got.text == "done", "the caller goes on"


async def test_section_6_3_a_failing_child_is_an_error_of_the_call():
    blocked = ModelResponse(error_code="SAFETY", error_message="no")
    for step in (blocked, ModelError("the model is down")):
        got = await App(calling(AgentTool(llm("child", step)), calls=ask("child"))).ask("hi")
        (response,) = responses(got.events)
        assert response is not None and ("SAFETY: no" in response["error"] or "is down" in response["error"])
        assert got.text == "done"


async def test_core_114_skip_summarization_ends_the_callers_turn():
    boss = llm("boss", ask("child"), tools=[AgentTool(llm("child", "final"), skip_summarization=True)])
    got = await App(boss).ask("hi")
    assert responses(got.events) == [{"result": "final"}]
    assert got.events[-1].actions.skip_summarization
    top = calling(
        AgentTool(llm("boss2", ask("child"), tools=[AgentTool(llm("child", "deep"), skip_summarization=True)])),
        calls=ask("boss2"),
    )
    assert responses((await App(top).ask("hi")).events) == [{"result": "deep"}], "what ends the turn is its answer"


async def test_core_114_skip_summarization_does_not_hide_an_error():
    tool = AgentTool(llm("child"), skip_summarization=True)
    got = await App(calling(tool, calls=call("child", {}))).ask("hi")
    assert got.text == "done"


# ---- any kind of agent, at any depth


async def test_section_12_21_flows_and_functions_can_be_tools():
    async def echo(ctx: RunContext) -> None:
        assert ctx.user_content is not None
        await ctx.emit(Event(content=model_text(f"heard {ctx.user_content.text}")))

    for agent, wanted in (
        (SequentialAgent(name="child", sub_agents=[llm("a", "one"), llm("b", "two")]), "two"),
        (LoopAgent(name="child", sub_agents=[llm("a", "x", "y")], max_iterations=2), "y"),
        (FunctionAgent(name="child", function=echo), "heard do it"),
    ):
        got = await App(calling(AgentTool(agent), calls=ask("child"))).ask("hi")
        assert responses(got.events) == [{"result": wanted}]


async def test_section_6_3_agents_in_a_sequence_inside_a_tool_see_each_other_and_the_question_only():
    a, b = llm("a", "one"), llm("b", "two")
    boss = calling(AgentTool(SequentialAgent(name="child", sub_agents=[a, b])), calls=ask("child", "the question"))
    await App(boss).ask("secret of the user")
    assert model(a).prompt() == ["user: the question"]
    assert model(b).prompt()[0] == "user: the question" and "[a] said: one" in model(b).prompt()[1]
    assert "secret" not in str(model(b).requests)


async def test_section_12_19_agent_tools_nest():
    deep = llm("deep", "bottom")
    middle = llm("middle", ask("deep"), "middle", tools=[AgentTool(deep)])
    got = await App(calling(AgentTool(middle), calls=ask("middle"))).ask("hi")
    assert responses(got.events) == [{"result": "middle"}]
    assert model(middle).prompt()[-1] == "user: result deep {'result': 'bottom'}"


async def test_section_12_19_below_sequential_loop_and_parallel_roots():
    def boss(n: int) -> LlmAgent:
        return llm(f"boss{n}", ask("child"), f"done {n}", tools=[AgentTool(llm("child", f"from {n}"))])

    for root in (
        SequentialAgent(name="app", sub_agents=[boss(1), boss(2)]),
        ParallelAgent(name="app", sub_agents=[boss(1), boss(2)]),
        LoopAgent(name="app", sub_agents=[boss(1), boss(2)], max_iterations=1),
    ):
        got = await App(root).ask("hi")
        assert sorted(str(r) for r in responses(got.events)) == ["{'result': 'from 1'}", "{'result': 'from 2'}"]


async def test_section_6_3_the_child_hands_over_among_its_own_sub_agents_only():
    helper = llm("helper", "helped")
    child = llm("child", call("transfer_to_agent", {"agent_name": "helper"}), sub_agents=[helper])
    boss = calling(AgentTool(child), calls=ask("child"), sub_agents=[llm("peer")])
    got = await App(boss).ask("hi")
    assert responses(got.events) == [{"result": "helped"}]
    (transfer,) = model(child).requests[0].tools
    assert transfer.parameters["properties"]["agent_name"]["enum"] == ["helper"]
    (transfer,) = model(helper).requests[0].tools
    assert transfer.parameters["properties"]["agent_name"]["enum"] == ["child"]


async def test_section_2_2_who_answers_next_is_not_the_child():
    child = llm("child", "one")
    boss = llm("boss", ask("child"), "first", "second", tools=[AgentTool(child)], sub_agents=[llm("peer")])
    app = App(boss)
    await app.ask("hi", session="s1")
    assert (await app.ask("more", session="s1")).text == "second"


async def test_section_3_1_a_child_without_a_model_has_that_of_its_caller_and_an_own_tree():
    shared = ScriptedModel(ask("child"), "from the child", "done")
    child = LlmAgent(name="child", global_instruction="child rules")
    boss = LlmAgent(name="boss", model=shared, tools=[AgentTool(child)], global_instruction="boss rules")
    assert (await App(boss).ask("hi")).text == "done"
    assert "child rules" in shared.requests[1].system and "boss rules" not in shared.requests[1].system


async def test_section_12_19_one_agent_may_be_the_tool_of_several_and_of_itself():
    child = llm("child", "one", "two")
    a = llm("a", ask("child"), "a done", tools=[AgentTool(child)])
    b = llm("b", ask("child"), "b done", tools=[AgentTool(child)])
    got = await App(SequentialAgent(name="app", sub_agents=[a, b])).ask("hi")
    assert responses(got.events) == [{"result": "one"}, {"result": "two"}]
    tools: list[Any] = []
    own = llm("own", ask("own", "deeper"), "bottom", "top", tools=tools)
    tools.append(AgentTool(own))
    got = await App(own).ask("hi")
    assert (got.text, responses(got.events)) == ("top", [{"result": "bottom"}])


async def test_section_6_3_a_toolset_may_hold_agent_tools():
    class Team:
        name = "team"

        async def tools(self, ctx: Any) -> Any:
            return [AgentTool(LlmAgent(name="child", model=ScriptedModel("found")))]

        async def aclose(self) -> None: ...

    got = await App(calling(Team(), calls=ask("child"))).ask("hi")
    assert responses(got.events) == [{"result": "found"}]


def test_section_2_1_wrong_use_is_refused_when_the_app_is_made():
    with pytest.raises(ConfigError, match="AgentTool needs an agent, not a str"):
        AgentTool("child")  # type: ignore[arg-type]  # what a user may do
    with pytest.raises(ConfigError, match="'child' is in task mode"):
        AgentTool(llm("child", mode="task"))
    with pytest.raises(ConfigError, match="two tools of agent 'boss' are named 'child'"):
        App(llm("boss", tools=[AgentTool(llm("child")), AgentTool(llm("child"))]))
    with pytest.raises(ConfigError, match="two agents of the tree of 'child' are named 'x'"):
        App(llm("boss", tools=[AgentTool(llm("child", sub_agents=[llm("x"), llm("x")]))]))


# ---- what crosses the boundary


async def test_FR_036_state_crosses_but_for_temp_keys(serve: Serve):
    seen: list[dict[str, Any]] = []

    def write(ctx: ToolContext) -> str:
        """Write."""
        seen.append(dict(ctx.state))
        ctx.state["temp:x"] = ctx.state["x"] = ctx.state["user:y"] = ctx.state["app:z"] = 1
        return "ok"

    def read(ctx: ToolContext) -> str:
        """Read."""
        seen.append(dict(ctx.state))
        return "ok"

    child = llm("child", call("write"), call("read"), "wrote", tools=[write, read], instruction="{temp:x?} {temp:own}")
    boss = llm(
        "boss",
        call("mine"),
        ask("child"),
        call("read"),
        "done",
        tools=[AgentTool(child), read, make_tool(_mine, name="mine")],
    )
    async with serve(boss) as talk:
        await talk.run("hi")
        stored = await talk.stored()
    before, inside, after = seen
    assert before == {"temp:own": "boss"}, "the child reads what its caller wrote"
    assert inside == {"temp:own": "boss", "temp:x": 1, "x": 1, "user:y": 1, "app:z": 1}
    assert after == {"temp:own": "boss", "x": 1, "user:y": 1, "app:z": 1}
    assert stored["state"] == {"x": 1, "user:y": 1, "app:z": 1}
    assert "1 boss" in model(child).requests[-1].system
    assert "temp:x" not in str(stored)


def _mine(ctx: ToolContext) -> str:
    """Mine."""
    ctx.state["temp:own"] = "boss"
    return "ok"


async def test_FR_036_two_children_side_by_side_have_temp_keys_of_their_own():
    met = [anyio.Event(), anyio.Event()]
    seen: dict[int, Any] = {}

    async def work(n: int, ctx: ToolContext) -> str:
        """Work."""
        ctx.state["temp:n"] = n
        return "ok"

    async def look(n: int, ctx: ToolContext) -> str:
        """Look."""
        met[n].set()
        await met[1 - n].wait()
        seen[n] = ctx.state["temp:n"]
        return "ok"

    children = [
        llm(f"c{n}", call("work", {"n": n}), call("look", {"n": n}), "ok", tools=[work, look]) for n in range(2)
    ]
    await App(calling(*map(AgentTool, children), calls=[ask("c0"), ask("c1")])).ask("hi")
    assert seen == {0: 0, 1: 1}


async def test_section_12_21_artifacts_cross_and_the_response_names_them(serve: Serve):
    async def save(ctx: ToolContext) -> str:
        """Save."""
        await ctx.save_artifact("a.txt", Part(text="hello"))
        return "saved"

    child = llm("child", call("save"), call("save"), "saved", tools=[save])
    middle = llm("middle", ask("child"), "ok", tools=[AgentTool(child)])
    async with serve(calling(AgentTool(middle), calls=ask("middle"))) as talk:
        events = await talk.run("hi")
        assert events[1]["actions"]["artifactDelta"] == {"a.txt": 2}
        got = await talk.client.get(f"{talk.path}/artifacts/a.txt")
        assert got.json()["text"] == "hello"


async def test_section_12_21_plugins_and_callbacks_see_the_child():
    seen: list[str] = []

    class Watch(Plugin):
        async def before_agent(self, ctx: Any) -> None:
            seen.append(f"agent {ctx.agent_name}")

        async def before_model(self, ctx: Any, request: Any) -> None:
            seen.append(f"model {ctx.agent_name}")

        async def before_tool(self, ctx: Any, tool: Any, args: Any) -> None:
            seen.append(f"tool {tool.name}")

        async def on_event(self, ctx: Any, event: Event) -> None:
            seen.append(f"event {event.author}")

    child = llm("child", "ok", after_agent=lambda ctx: seen.append("after child"))
    await App(calling(AgentTool(child), calls=ask("child")), plugins=[Watch()]).ask("hi")
    inner = ["tool child", "agent child", "model child", "event child", "after child", "event boss"]
    assert seen == ["agent boss", "model boss", "event boss", *inner, "model boss", "event boss"]


async def test_section_12_21_usage_of_the_child_counts_for_the_run():
    totals: list[Any] = []

    def used(text: Any, tokens: int) -> ModelResponse:
        content = text if isinstance(text, Content) else model_text(text)
        return ModelResponse(content=content, usage_metadata=Usage(prompt_token_count=tokens, total_token_count=tokens))

    question = Content(role="model", parts=[Part(function_call=ask("child", id="c"))])
    boss = llm("boss", used(question, 1), used("done", 10), tools=[AgentTool(llm("child", used("ok", 100)))])
    await App(boss, plugins=[UsagePlugin(on_total=lambda ctx, usage: totals.append(usage))]).ask("hi")
    assert [(t.calls, t.input_tokens) for t in totals] == [(3, 111)]


async def test_section_12_1_the_budget_of_model_calls_is_shared():
    child = llm("child", *[call("work")] * 20, tools=[_work])
    boss = llm("boss", ask("child"), tools=[AgentTool(child)])
    with pytest.raises(AgentError, match="5 model calls"):
        await App(boss).ask("hi", config=RunConfig(max_llm_calls=5))
    assert len(model(child).requests) == 4


def _work() -> str:
    """Work."""
    return "worked"


async def test_section_12_21_cancelling_the_run_cancels_the_child():
    started, ended = anyio.Event(), []

    async def hang() -> str:
        """Hang."""
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("child")
        return ""

    app = App(calling(AgentTool(llm("child", call("hang"), tools=[hang])), calls=ask("child")))
    async with app, anyio.create_task_group() as group:

        async def asking() -> None:
            with pytest.raises(RunCancelled, match="enough"):
                await app.ask("hi")

        group.start_soon(asking)
        await started.wait()
        (run_id,) = app.runs._live  # pyright: ignore[reportPrivateUsage]
        assert await app.runs.cancel(run_id, "enough")
    assert ended == ["child"]


async def test_section_12_13_a_child_may_end_the_whole_run():
    def stop(ctx: ToolContext) -> str:
        """Stop."""
        ctx.end("enough")
        return "stopped"

    boss = llm("boss", ask("child"), tools=[AgentTool(llm("child", call("stop"), tools=[stop]))])
    got = await App(boss).ask("hi")
    assert got.outcome.reason == "enough"
    assert len(model(boss).requests) == 1


async def test_section_4_1_escalation_inside_does_not_leave_the_loop_outside():
    def leave(ctx: ToolContext) -> str:
        """Leave."""
        ctx.actions.escalate = True
        return "left"

    child = llm("child", call("leave"), "bye", call("leave"), "bye", tools=[leave])
    boss = llm("boss", ask("child"), "one", ask("child"), "two", tools=[AgentTool(child)])
    got = await App(LoopAgent(name="app", sub_agents=[boss], max_iterations=2)).ask("hi")
    assert [e.text for e in got.events if e.text] == ["one", "two"]


# ---- progress


async def test_progress_of_a_child_is_shown_when_it_is_asked_for(serve: Serve):
    child = llm("child", call("work"), chunks("It ", "works"), tools=[_work])
    boss = calling(AgentTool(child, show_events=True), calls=ask("child", id="c1"))
    async with serve(boss) as talk:
        events = await talk.sse("hi", streaming=True)
    inner = [e for e in events if e["author"] == "child"]
    assert texts(inner) == ["It ", "works", "It works"]
    assert [bool(e.get("partial")) for e in inner] == [False, False, True, True, False]
    assert {e["isolationScope"] for e in inner} == {"c1"}
    assert "It works" not in model(boss).prompt()[1]


async def test_progress_of_a_child_is_not_shown_otherwise_not_even_its_pieces(serve: Serve):
    child = llm("child", call("work"), chunks("It ", "works"), tools=[_work])
    async with serve(calling(AgentTool(child), calls=ask("child"))) as talk:
        events = await talk.sse("hi", streaming=True)
        assert {e["author"] for e in events} == {"boss"}
        stored = (await talk.stored())["events"]
        assert [e["author"] for e in stored].count("child") == 3
        run_id = stored[0]["invocationId"]
        talk.server.runs._ended.clear()  # pyright: ignore[reportPrivateUsage]  as after a restart
        async with talk.client.stream("GET", f"/runs/{run_id}/events") as response:
            replayed = [e async for e in response.events()]
    assert len(replayed) == len([e for e in events if not e.get("partial")]), "a replay shows what was shown"


async def test_progress_the_view_of_a_protocol_is_what_its_clients_see():
    seen: list[str] = []

    async def sink(event: Event) -> None:
        seen.append(event.author)

    child = llm("child", call("later", id="x"), "ok", tools=[LATER])
    app = App(calling(AgentTool(child), AgentTool(llm("quiet", "hush")), calls=[ask("child"), ask("quiet")]))
    await app.stores.sessions.create("boss", "u", "s")
    async with app:
        request = RunRequest(key=SessionKey("boss", "u", "s"), message=user_text("hi"))
        await (await app.runs.start(request, sinks=[Sink(sink)])).wait()
    assert seen == ["user", "boss", "child", "boss"], "the child's question is shown, the rest is not"


async def test_progress_what_is_inside_a_hidden_child_stays_hidden():
    deep = llm("deep", "bottom")
    middle = llm("middle", ask("deep"), "middle", tools=[AgentTool(deep, show_events=True)])
    got = await App(calling(AgentTool(middle), calls=ask("middle"))).ask("hi")
    assert {e.author for e in got.events} == {"boss"}
    middle = llm("middle", ask("deep"), "middle", tools=[AgentTool(llm("deep", "bottom"))])
    got = await App(calling(AgentTool(middle, show_events=True), calls=ask("middle"))).ask("hi")
    assert {e.author for e in got.events} == {"boss", "middle"}


# ---- side by side


async def test_FR_065_parallel_agent_tools_keep_their_prompts_apart():
    count = 8
    ready: list[int] = []
    all_ready = anyio.Event()

    async def meet(n: int) -> str:
        """Meet."""
        ready.append(n)
        if len(ready) == count:
            all_ready.set()
        await all_ready.wait()
        return f"met {n}"

    children = [
        llm(f"w{n}", call("meet", {"n": n}), call("meet", {"n": n}), f"done {n}", tools=[meet]) for n in range(count)
    ]
    boss = calling(*map(AgentTool, children), calls=[ask(f"w{n}", f"task {n}") for n in range(count)])
    got = await App(boss).ask("hi")
    assert responses(got.events) == [{"result": f"done {n}"} for n in range(count)], "in the order of the calls"
    for n, child in enumerate(children):
        pair = [f"model: call meet({{'n': {n}}})", f"user: result meet {{'result': 'met {n}'}}"]
        assert model(child).prompt() == [f"user: task {n}", *pair, *pair]


async def test_FR_065_the_same_child_twice_at_once():
    def reply(request: Any, on_partial: Any) -> str:
        return "re: " + request.contents[-1].text

    child = LlmAgent(name="child", model=ScriptedModel(reply, reply))
    got = await App(calling(AgentTool(child), calls=[ask("child", "a"), ask("child", "b")])).ask("hi")
    assert responses(got.events) == [{"result": "re: a"}, {"result": "re: b"}]


async def test_calls_whose_ids_are_used_again_do_not_share_a_scope():
    child = llm("child", "one", "two", "three", "four")
    same = [ask("child", "c", "x"), ask("child", "d", "x")]
    boss = llm("boss", ask("child", "a", "x"), "1", ask("child", "b", "x"), "2", same, "3", tools=[AgentTool(child)])
    app = App(boss)
    for _ in range(3):
        await app.ask("hi", session="s1")
    assert [model(child).prompt(n) for n in range(4)] == [["user: a"], ["user: b"], ["user: c"], ["user: d"]]


# ---- waiting for a human


async def test_section_12_21_a_child_that_waits_pauses_the_run_and_the_answer_finds_its_way(serve: Serve):
    child = llm("child", call("later", id="x"), "child knows", tools=[LATER])
    boss = calling(AgentTool(child), calls=ask("child", "find out", "c1"))
    async with serve(boss) as talk:
        first = await talk.run("hi")
        assert [e["author"] for e in first] == ["boss", "child"], "the question to the user is shown"
        assert first[-1]["longRunningToolIds"] == ["x"] and "longRunningToolIds" not in first[0]
        second = await talk.run(answer("x", "later", {"v": 7}))
        stored = (await talk.stored())["events"]
    assert [e["author"] for e in second] == ["boss", "boss"]
    assert second[0]["content"]["parts"][0]["functionResponse"]["response"] == {"result": "child knows"}
    assert texts(second) == ["done"]
    assert model(child).prompt() == ["user: find out", "model: call later({})", "user: result later {'v': 7}"]
    assert model(boss).prompt() == [
        "user: hi",
        "model: call child({'request': 'find out'})",
        "user: result child {'result': 'child knows'}",
    ]
    assert len({e["invocationId"] for e in stored}) == 1
    assert [e.get("isolationScope") for e in stored] == [None, None, "c1", "c1", "c1", None, None]


async def test_section_12_21_waiting_three_levels_down_in_flows_of_a_flow():
    deep = llm("deep", call("later", id="x"), "bottom", tools=[LATER])
    steps = SequentialAgent(name="steps", sub_agents=[llm("one", "1"), deep, llm("two", "2")])
    middle = llm("middle", ask("steps", id="m"), "middle", tools=[AgentTool(steps)])
    boss = llm("boss", ask("middle", id="b"), "done", tools=[AgentTool(middle)])
    root = SequentialAgent(name="app", sub_agents=[llm("before", "before"), boss, llm("after", "after")])
    app = App(root)
    got = await app.ask("hi", session="s1")
    assert (got.outcome.status, [e.author for e in got.events]) == ("paused", ["before", "boss", "deep"])
    got = await app.ask(said("x", "later", {"v": 1}), session="s1")
    assert got.outcome.status == "finished"
    assert [e.author for e in got.events] == ["boss", "boss", "after"]
    assert responses(got.events) == [{"result": "middle"}]
    assert model(middle).prompt()[-1] == "user: result steps {'result': '2'}"


async def test_section_12_21_one_of_two_waits_and_the_callers_model_is_not_asked_before():
    child = llm("child", call("later", id="x"), "child", tools=[LATER])
    quick = llm("quick", "quick")
    boss = calling(AgentTool(child), AgentTool(quick), _work, calls=[ask("child"), ask("quick"), call("_work")])
    app = App(boss)
    got = await app.ask("hi", session="s1")
    assert got.outcome.status == "paused"
    assert responses(got.events) == [{"result": "quick"}, {"result": "worked"}]
    assert len(model(boss).requests) == 1
    got = await app.ask(said("x", "later", {}), session="s1")
    assert (responses(got.events), got.text) == ([{"result": "child"}], "done")
    names = [r.name for c in model(boss).requests[-1].contents for r in c.responses]
    assert names == ["child", "quick", "_work"]


@pytest.mark.parametrize("together", [True, False])
async def test_section_12_21_two_wait_and_are_answered_together_or_one_after_the_other(together: bool):
    children = [llm(f"c{n}", call("later", id=f"x{n}"), f"got {n}", tools=[LATER]) for n in range(2)]
    boss = calling(*map(AgentTool, children), calls=[ask("c0"), ask("c1")])
    app = App(boss)
    await app.ask("hi", session="s1")
    replies = [said(f"x{n}", "later", {"n": n}) for n in (1, 0)]
    if together:
        got = await app.ask(Content(role="user", parts=[p for r in replies for p in r.parts]), session="s1")
        assert responses(got.events) == [{"result": "got 0"}, {"result": "got 1"}]
    else:
        got = await app.ask(replies[0], session="s1")
        assert (got.outcome.status, responses(got.events)) == ("paused", [{"result": "got 1"}])
        got = await app.ask(replies[1], session="s1")
        assert responses(got.events) == [{"result": "got 0"}]
    assert (got.outcome.status, got.text) == ("finished", "done")
    for n, child in enumerate(children):
        assert model(child).prompt() == ["user: do it", "model: call later({})", f"user: result later {{'n': {n}}}"]


async def test_section_12_21_the_answer_may_come_after_a_restart(tmp_path: Any):
    def make(*steps: Any, boss: Any) -> App:
        child = llm("child", *steps, tools=[LATER])
        return App(llm("boss", *boss, tools=[AgentTool(child)]), stores=f"sqlite:///{tmp_path}/data.db")

    async with make(call("later", id="x"), boss=[ask("child")]) as app:
        assert (await app.ask("hi", session="s1")).outcome.status == "paused"
    async with make("known", boss=["done"]) as app:
        got = await app.ask(said("x", "later", {}), session="s1")
    assert (responses(got.events), got.text) == ([{"result": "known"}], "done")


async def test_section_12_21_a_child_may_wait_twice():
    child = llm("child", call("later", id="x"), call("later", id="y"), "both", tools=[LATER])
    app = App(calling(AgentTool(child), calls=ask("child")))
    await app.ask("hi", session="s1")
    got = await app.ask(said("x", "later", {"n": 1}), session="s1")
    assert (got.outcome.status, got.events[-1].long_running_tool_ids) == ("paused", ["y"])
    got = await app.ask(said("y", "later", {"n": 2}), session="s1")
    assert (got.outcome.status, got.text) == ("finished", "done")


async def test_section_12_21_one_handed_over_to_waits_in_a_child_of_one_handed_over_to():
    helper = llm("helper", call("later", id="x"), "helped", tools=[LATER])
    child = llm("child", call("transfer_to_agent", {"agent_name": "helper"}), sub_agents=[helper])
    boss = calling(AgentTool(child), calls=ask("child"))
    root = llm("root", call("transfer_to_agent", {"agent_name": "boss"}), sub_agents=[boss])
    app = App(root)
    await app.ask("hi", session="s1")
    got = await app.ask(said("x", "later", {}), session="s1")
    assert [e.author for e in got.events] == ["boss", "boss"]
    assert responses(got.events) == [{"result": "helped"}]


async def test_section_12_21_a_parallel_flow_waits_for_what_waits_inside_a_tool():
    def boss(n: int) -> LlmAgent:
        child = llm("child", call("later", id=f"x{n}"), f"got {n}", tools=[LATER])
        return llm(f"boss{n}", ask("child", id=f"c{n}"), f"done {n}", tools=[AgentTool(child)])

    both = ParallelAgent(name="both", sub_agents=[boss(0), boss(1)])
    app = App(SequentialAgent(name="app", sub_agents=[both, llm("last", "last")]))
    await app.ask("hi", session="s1")
    got = await app.ask(said("x1", "later", {}), session="s1")
    assert (got.outcome.status, [e.text for e in got.events if e.text]) == ("paused", ["done 1"])
    assert {e.branch for e in got.events} == {"both.boss1"}
    got = await app.ask(said("x0", "later", {}), session="s1")
    assert (got.outcome.status, [e.text for e in got.events if e.text]) == ("finished", ["done 0", "last"])


async def test_core_35_plain_text_while_a_child_waits_is_a_new_turn_and_the_answer_may_still_come():
    child = llm("child", call("later", id="x"), "late news", tools=[LATER])
    boss = llm("boss", ask("child"), "I do not know yet", "now I know", tools=[AgentTool(child)])
    app = App(boss)
    await app.ask("hi", session="s1")
    assert (await app.ask("well?", session="s1")).text == "I do not know yet"
    got = await app.ask(said("x", "later", {}), session="s1")
    assert (got.text, responses(got.events)) == ("now I know", [{"result": "late news"}])


async def test_an_answer_that_comes_twice_does_not_run_the_child_again():
    child = llm("child", call("later", id="x"), "once", tools=[LATER])
    boss = llm("boss", ask("child"), "first", "second", tools=[AgentTool(child)])
    app = App(boss)
    await app.ask("hi", session="s1")
    await app.ask(said("x", "later", {}), session="s1")
    got = await app.ask(said("x", "later", {}), session="s1")
    assert (got.text, len(model(child).requests)) == ("second", 2)


async def test_after_tool_is_asked_once_when_the_call_has_come_to_its_end():
    seen: list[Any] = []
    child = llm("child", call("later", id="x"), "known", tools=[LATER])
    boss = calling(
        AgentTool(child, skip_summarization=True),
        calls=ask("child"),
        after_tool=lambda ctx, tool, args, result: seen.append(result),
    )
    app = App(boss)
    got = await app.ask("hi", session="s1")
    assert not any(e.actions.skip_summarization for e in got.events)
    await app.ask(said("x", "later", {}), session="s1")
    assert seen == [{"result": "known"}]
    assert len(model(boss).requests) == 1


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


SCRIPTS: dict[str, list[Any]] = {
    "deep": [call("work", {}, "w"), "from deep"],
    "middle": [ask("deep", id="d"), "from middle"],
    "boss": [ask("middle", id="m"), "done"],
}


@pytest.mark.parametrize("at", range(2, 11))
async def test_DESIGN_7_a_run_that_died_inside_a_child_goes_on_there(serve: Serve, at: int):
    """Events: user, boss calls, middle calls, deep calls, deep's result, deep says, middle's result, middle says, boss's
    result, boss says. No model is asked again for what is stored."""
    deep = llm("deep", *SCRIPTS["deep"], tools=[make_tool(_work, name="work", idempotent=True)])
    middle = llm("middle", *SCRIPTS["middle"], tools=[AgentTool(deep)])
    boss = llm("boss", *SCRIPTS["boss"], tools=[AgentTool(middle)])
    store = Dying(at)
    async with serve(SequentialAgent(name="app", sub_agents=[boss]), stores=Stores(store)) as talk:
        await talk.sse()
        first = (await talk.stored())["events"]
        assert len(first) == at - 1
        store.left = 1000
        for agent in (deep, middle, boss):
            answered = [e for e in first if e["author"] == agent.name and "functionResponse" not in str(e)]
            model(agent).steps[:] = SCRIPTS[agent.name][len(answered) :]
        got = await talk.run(None, invocationId=first[0]["invocationId"])
        assert texts(got)[-1:] == ["done"]
        events = (await talk.stored())["events"]
    authors = ["user", "boss", "middle", "deep", "deep", "deep", "middle", "middle", "boss", "boss"]
    assert [e["author"] for e in events] == authors
    assert len({e["id"] for e in events}) == 10 and len({e["invocationId"] for e in events}) == 1
    for agent in (deep, middle, boss):
        model(agent).check()


async def test_DESIGN_7_two_children_that_died_side_by_side_both_go_on(serve: Serve):
    store = Dying(5)
    children = [llm(f"c{n}", call("work", {}, f"w{n}"), tools=[make_tool(_work, name="work")]) for n in range(2)]
    boss = llm("boss", [ask("c0", id="d0"), ask("c1", id="d1")], tools=[*map(AgentTool, children)])
    async with serve(boss, stores=Stores(store)) as talk:
        await talk.sse()
        first = (await talk.stored())["events"]
        assert len(first) == 4, "both have called their tool, and nothing came of it"
        store.left = 1000
        for n, child in enumerate(children):
            model(child).steps[:] = [f"from {n}"]
        model(boss).steps[:] = ["done"]
        got = await talk.run(None, invocationId=first[0]["invocationId"])
    assert got[0]["content"]["parts"][0]["functionResponse"]["response"] == {"result": "from 0"}
    assert got[0]["content"]["parts"][1]["functionResponse"]["response"] == {"result": "from 1"}
    assert texts(got) == ["done"]
    assert "was interrupted" in model(children[0]).prompt()[-1]


async def test_DESIGN_7_a_run_that_died_after_a_child_had_ended_does_not_go_back_to_it(serve: Serve):
    store = Dying(8)
    child = llm("child", call("work", {}, "w"), "from child", tools=[make_tool(_work, name="work")])
    boss = llm(
        "boss", ask("child", id="c"), call("work", {}, "w2"), tools=[AgentTool(child), make_tool(_work, name="work")]
    )
    async with serve(boss, stores=Stores(store)) as talk:
        await talk.sse()
        first = (await talk.stored())["events"]
        assert [e["author"] for e in first] == ["user", "boss", "child", "child", "child", "boss", "boss"]
        store.left = 1000
        model(boss).steps[:] = ["done"]
        got = await talk.run(None, invocationId=first[0]["invocationId"])
    assert "interrupted" in str(got[0]) and texts(got) == ["done"]
    model(child).check()
