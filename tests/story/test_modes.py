"""Sub-agents that are called: the modes single_turn and task (spec core 3.1, 3.15)."""

import dataclasses
from typing import Any

import pytest

from polyport import (
    Agent,
    AgentTool,
    App,
    FunctionAgent,
    LlmAgent,
    LoopAgent,
    ModelResponse,
    ParallelAgent,
    RunContext,
    SequentialAgent,
    ToolContext,
    make_tool,
)
from polyport.data.event import Event
from polyport.engine.contents import ALONE
from polyport.engine.transfer import targets
from polyport.engine.tree import AgentTree
from polyport.errors import ConfigError
from polyport.ports.agent import Bound
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call
from support.talk import Serve, said, texts


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps, name=f"model of {name}"), **fields)


def model(agent: Agent) -> ScriptedModel:
    assert isinstance(agent, LlmAgent) and isinstance(agent.model, ScriptedModel)
    return agent.model


def ask(name: str, request: str = "do it", id: str = "") -> Any:
    return call(name, {"request": request}, id)


def finish(result: Any = "booked", id: str = "") -> Any:
    return call("finish_task", {"result": result}, id)


def responses(events: list[Event], name: str = "") -> list[dict[str, Any] | None]:
    return [r.response for e in events for r in e.responses if name in ("", r.name)]


def later() -> None:
    """Answer later."""


LATER = make_tool(later, long_running=True)


@dataclasses.dataclass
class Trip:
    city: str
    days: int


# ---- single_turn


async def test_core_68_70_a_single_turn_child_sees_its_arguments_and_that_it_is_alone():
    child = llm("child", "It is 18.", mode="single_turn", description="Knows the weather.", instruction="Be brief.")
    boss = llm("boss", ask("child", "Paris?", "c1"), "done", sub_agents=[child])
    got = await App(boss).ask("hi")
    assert responses(got.events) == [{"result": "It is 18."}]
    (declared,) = model(boss).requests[0].tools
    assert (declared.name, declared.description) == ("child", "Knows the weather.")
    assert declared.parameters["required"] == ["request"]
    assert model(child).prompt() == ['user: {"request":"Paris?"} | ' + str(ALONE.text)]
    assert model(child).requests[0].system == "Be brief.", "no identity"
    (inner,) = [e for e in got.events if e.author == "child"]
    assert (inner.isolation_scope, inner.branch) == ("c1", "child@c1"), "its events are shown"


async def test_core_112_two_single_turn_children_called_in_parallel_both_return():
    children = [llm(f"c{n}", f"from {n}", mode="single_turn") for n in range(2)]
    boss = llm("boss", [ask("c0", "a"), ask("c1", "b")], "done", sub_agents=children)
    got = await App(boss).ask("hi")
    assert responses(got.events) == [{"result": "from 0"}, {"result": "from 1"}]
    assert model(children[0]).prompt()[0].startswith('user: {"request":"a"}')
    assert len(model(children[0]).requests[0].contents) == 1
    assert got.text == "done"


async def test_core_112_transfer_among_siblings_works_beside_them():
    other = llm("other", "I am the other")
    first = llm("first", call("transfer_to_agent", {"agent_name": "other"}))
    child = llm("child", "from child", mode="single_turn")
    to_first = call("transfer_to_agent", {"agent_name": "first"})
    boss = llm("boss", ask("child"), to_first, sub_agents=[child, first, other])
    got = await App(boss).ask("hi")
    assert got.text == "I am the other"
    assert [e.author for e in got.events] == ["boss", "child", "boss", "boss", "boss", "first", "first", "other"]


async def test_section_3_15_the_output_of_a_single_turn_child_is_typed():
    child = llm(
        "child",
        '{"city": "Rome", "days": 2}',
        mode="single_turn",
        output_schema=Trip,
        input_schema=Trip,
        output_key="t",
    )
    boss = llm("boss", call("child", {"city": "x", "days": 1}), "done", sub_agents=[child], instruction="{t?}")
    got = await App(boss).ask("hi")
    assert responses(got.events) == [{"result": {"city": "Rome", "days": 2}}]
    assert model(boss).requests[1].system.startswith('{"city":"Rome","days":2}')
    assert model(child).requests[0].response_schema is not None


async def test_core_114_arguments_of_a_child_are_checked():
    child = llm("child", mode="single_turn", input_schema=Trip)
    boss = llm(
        "boss", call("child", {"city": "x"}), call("child", {"city": "x", "days": 1, "n": 2}), "ok", sub_agents=[child]
    )
    got = await App(boss).ask("hi")
    first, second = responses(got.events)
    assert first is not None and "days" in first["error"]
    assert second is not None and "'n'" in second["error"]


async def test_FR_036_temp_state_of_a_child_stays_with_it():
    def put(ctx: ToolContext) -> str:
        """Put."""
        ctx.state["temp:x"] = ctx.state["x"] = 1
        return "ok"

    child = llm("child", call("put"), "ok", mode="single_turn", tools=[put], instruction="{temp:x?}")
    boss = llm("boss", ask("child"), "done", sub_agents=[child], instruction="<{temp:x?}|{x?}>")
    await App(boss).ask("hi")
    assert model(child).requests[1].system.startswith("1")
    assert model(boss).requests[1].system.startswith("<|1>")


async def test_section_12_21_a_single_turn_child_may_wait_for_a_human():
    child = llm("child", call("later", id="x"), "known", mode="single_turn", tools=[LATER])
    boss = llm("boss", ask("child"), "done", sub_agents=[child])
    app = App(boss)
    assert (await app.ask("hi", session="s1")).outcome.status == "paused"
    got = await app.ask(said("x", "later", {"v": 1}), session="s1")
    assert (responses(got.events), got.text) == ([{"result": "known"}], "done")
    assert model(child).prompt()[-1] == "user: result later {'v': 1}"


async def test_section_12_19_modes_work_below_flows_and_inside_children():
    def boss(n: int) -> LlmAgent:
        deep = llm(f"deep{n}", f"deep {n}", mode="single_turn")
        child = llm(f"child{n}", ask(f"deep{n}"), f"child {n}", mode="single_turn", sub_agents=[deep])
        return llm(f"boss{n}", ask(f"child{n}"), f"boss {n}", sub_agents=[child])

    for root in (
        SequentialAgent(name="app", sub_agents=[boss(1), boss(2)]),
        ParallelAgent(name="app", sub_agents=[boss(1), boss(2)]),
        LoopAgent(name="app", sub_agents=[boss(1), boss(2)], max_iterations=1),
        llm("app", [ask("boss1"), ask("boss2")], "x", tools=[AgentTool(boss(1)), AgentTool(boss(2))]),
    ):
        got = await App(root).ask("hi", session="s1")
        assert got.outcome.status == "finished"
        if not isinstance(root, LlmAgent):
            assert sorted(e.text for e in got.events if e.author.startswith("boss") and e.text) == ["boss 1", "boss 2"]
        else:
            assert responses(got.events) == [{"result": "boss 1"}, {"result": "boss 2"}]


async def test_core_73_modes_are_no_targets_and_children_have_their_own_only():
    chat = llm("chat")
    single = llm("single", mode="single_turn", sub_agents=[llm("own")])
    task = llm("task", mode="task")
    tree = AgentTree(llm("root", sub_agents=[chat, single, task]), lambda agent, above: Bound(ScriptedModel()))

    def of(name: str) -> list[str]:
        agent = tree.find(name)
        assert isinstance(agent, LlmAgent)
        return [a.name for a in targets(tree, agent)]

    assert (of("root"), of("chat"), of("single"), of("task")) == (["chat"], ["root"], ["own"], [])
    assert of("own") == ["single"]


async def test_section_3_7_a_called_agent_gets_the_transfer_tool_without_the_text():
    own = llm("own", "own answer")
    child = llm("child", call("transfer_to_agent", {"agent_name": "own"}), mode="single_turn", sub_agents=[own])
    got = await App(llm("boss", ask("child"), "done", sub_agents=[child])).ask("hi")
    assert [t.name for t in model(child).requests[0].tools] == ["transfer_to_agent"]
    assert model(child).requests[0].system == ""
    assert responses(got.events, "child") == [{"result": "own answer"}]


# ---- task


def coordinator(*steps: Any, children: list[Agent], **fields: Any) -> LlmAgent:
    return llm("boss", *steps, sub_agents=children, **fields)


async def test_core_111_a_task_talks_with_the_user_until_it_is_finished(serve: Serve):
    task = llm("task", "Which city?", "How many days?", finish(id="f"), mode="task", description="Books.")
    boss = coordinator(ask("task", "book a trip", "c1"), "Booked!", "You are welcome", children=[task])
    async with serve(boss) as talk:
        first = await talk.run("a trip please")
        second = await talk.run("Paris")
        third = await talk.run("two")
        fourth = await talk.run("thanks")
        stored = (await talk.stored())["events"]
    assert (texts(first), texts(second), texts(third), texts(fourth)) == (
        ["Which city?"], ["How many days?"], ["Booked!"], ["You are welcome"],
    )  # fmt: skip
    assert [e["author"] for e in third] == ["task", "task", "boss", "boss"]
    assert third[1]["content"]["parts"][0]["functionResponse"]["response"] == {"result": "Task completed."}
    assert third[2]["content"]["parts"][0]["functionResponse"]["response"] == {"result": "booked"}
    assert {e.get("isolationScope") for e in stored if e["author"] == "task"} == {"c1"}
    users = [e.get("isolationScope") for e in stored if e["author"] == "user"]
    assert users == [None, "c1", "c1", None], "messages to the task are stamped"
    assert model(task).prompt() == [
        'user: {"request":"book a trip"}',
        "model: Which city?",
        "user: Paris",
        "model: How many days?",
        "user: two",
    ]
    assert model(boss).prompt(1) == [
        "user: a trip please",
        "model: call task({'request': 'book a trip'})",
        "user: result task {'result': 'booked'}",
    ], "the talk of the task is not the coordinator's"
    assert len(model(boss).requests) == 3


async def test_core_111_the_run_of_an_open_task_is_paused_and_its_tools_are_declared():
    task = llm("task", "Which city?", mode="task", description="Books.")
    boss = coordinator(ask("task"), children=[task])
    got = await App(boss).ask("hi")
    assert got.outcome.status == "paused"
    (declared,) = model(boss).requests[0].tools
    assert declared.description.startswith("Books. ") and "parallel" in declared.description
    (declared,) = model(task).requests[0].tools
    assert (declared.name, declared.parameters["required"]) == ("finish_task", ["result"])
    system = model(task).requests[0].system
    assert "finish_task" in system and 'named "task"' in system


async def test_core_111_two_tasks_one_after_the_other():
    one = llm("one", finish("first result"), mode="task")
    two = llm("two", finish("second result"), mode="task")
    boss = coordinator(ask("one"), ask("two"), "both done", children=[one, two])
    got = await App(boss).ask("hi")
    assert responses(got.events, "one") == [{"result": "first result"}]
    assert responses(got.events, "two") == [{"result": "second result"}]
    assert (got.text, got.outcome.status) == ("both done", "finished")


async def test_section_3_15_two_tasks_at_once_are_done_one_by_one():
    one = llm("one", finish("first"), mode="task")
    two = llm("two", finish("second"), mode="task")
    boss = coordinator([ask("one"), ask("two")], ask("two"), "both done", children=[one, two])
    got = await App(boss).ask("hi")
    first, second = responses(got.events, "two")
    assert first is not None and "'one' is not done yet" in first["error"]
    assert (second, got.text) == ({"result": "second"}, "both done")


async def test_core_111_arguments_of_finish_task_that_do_not_fit_go_back_to_the_model():
    bad = [call("finish_task", a) for a in ({}, {"city": "Rome", "days": "many"})]
    task = llm(
        "task", *bad, call("finish_task", {"city": "Rome", "days": 2}), mode="task", output_schema=Trip, output_key="t"
    )
    boss = coordinator(ask("task"), "done", children=[task], instruction="{t?}")
    got = await App(boss).ask("hi")
    first, second, third = responses(got.events, "finish_task")
    assert first is not None and "city" in first["error"]
    assert second is not None and "days" in second["error"]
    assert third == {"result": "Task completed."}
    assert responses(got.events, "task") == [{"city": "Rome", "days": 2}]
    assert model(boss).requests[1].system.startswith('{"city":"Rome","days":2}'), (
        "the output is stored under output_key"
    )


async def test_core_72_the_output_schema_of_a_task_is_not_asked_of_what_it_says():
    task = llm(
        "task",
        "Which city?",
        call("finish_task", {"city": "Rome", "days": 2}),
        mode="task",
        output_schema=Trip,
        output_key="t",
    )
    app = App(coordinator(ask("task"), "done", children=[task]))
    got = await app.ask("hi", session="s1")
    assert got.text == "Which city?" and got.events[-1].actions.state_delta == {}
    request = model(task).requests[0]
    assert request.response_schema is None
    assert [t.name for t in request.tools] == ["finish_task"]
    assert sorted(request.tools[0].parameters["properties"]) == ["city", "days"]


@pytest.mark.parametrize("kind", [int, list[str]])
async def test_section_3_15_a_result_that_is_no_object_is_wrapped(kind: Any):
    value = 7 if kind is int else ["a"]
    task = llm("task", finish(value), mode="task", output_schema=kind, output_key="t")
    boss = coordinator(ask("task"), "done", children=[task])
    got = await App(boss).ask("hi")
    assert responses(got.events, "task") == [{"result": value}]
    assert [e.actions.state_delta for e in got.events if e.actions.state_delta] == [{"t": value}]


async def test_core_111_a_task_that_waits_for_a_human_stays_open(serve: Serve):
    task = llm("task", call("later", id="x"), finish("approved"), mode="task", tools=[LATER])
    boss = coordinator(ask("task"), "done", children=[task])
    app = App(boss)
    got = await app.ask("hi", session="s1")
    assert (got.outcome.status, len(model(boss).requests)) == ("paused", 1)
    got = await app.ask(said("x", "later", {"ok": True}), session="s1")
    assert (responses(got.events, "task"), got.text) == ([{"result": "approved"}], "done")


async def test_core_42_the_newest_open_task_gets_the_message_and_an_error_does_not_close_it():
    inner = llm("inner", "inner asks", call("finish_task", {}), "inner asks again", finish("inner done"), mode="task")
    outer = llm(
        "outer", "outer asks", ask("inner"), "outer asks again", finish("all done"), mode="task", sub_agents=[inner]
    )
    boss = coordinator(ask("outer"), "done", children=[outer])
    app = App(boss)
    said_so_far = [(await app.ask(str(n), session="s1")).text for n in range(5)]
    assert said_so_far == ["outer asks", "inner asks", "inner asks again", "outer asks again", "done"]


async def test_section_12_19_an_open_task_inside_a_hidden_tool_is_talked_to():
    task = llm("task", "Which city?", finish("Rome"), mode="task")
    middle = llm("middle", ask("task"), "middle done", sub_agents=[task])
    boss = llm("boss", ask("middle"), "done", tools=[AgentTool(middle)])
    root = SequentialAgent(name="app", sub_agents=[boss, llm("last", "last")])
    app = App(root)
    got = await app.ask("hi", session="s1")
    assert [(e.author, e.text) for e in got.events if e.text] == [("task", "Which city?")]
    got = await app.ask("Rome", session="s1")
    assert [(e.author, e.text) for e in got.events if e.text] == [("boss", "done"), ("last", "last")]
    assert responses(got.events, "middle") == [{"result": "middle done"}]


async def test_section_3_15_a_sub_agent_to_which_a_task_handed_over_gets_the_next_message():
    own = llm("own", "own asks", call("transfer_to_agent", {"agent_name": "task"}))
    task = llm("task", call("transfer_to_agent", {"agent_name": "own"}), finish("done"), mode="task", sub_agents=[own])
    app = App(coordinator(ask("task"), "bye", children=[task]))
    assert (await app.ask("hi", session="s1")).text == "own asks"
    got = await app.ask("answer", session="s1")
    assert [e.author for e in got.events] == ["own", "own", "task", "task", "boss", "boss"]
    assert got.text == "bye"


async def test_section_3_15_a_task_that_fails_is_closed_by_the_error():
    task = llm("task", "Which city?", RuntimeError("broken"), mode="task")
    boss = coordinator(ask("task"), "sorry", "what else?", children=[task])
    app = App(boss)
    await app.ask("hi", session="s1")
    got = await app.ask("Rome", session="s1")
    (response,) = responses(got.events, "task")
    assert response is not None and "broken" in response["error"]
    assert got.text == "sorry"
    assert (await app.ask("hm", session="s1")).text == "what else?"


async def test_section_3_15_a_blocked_answer_does_not_end_a_task():
    task = llm("task", ModelResponse(error_code="SAFETY"), finish(), mode="task")
    app = App(coordinator(ask("task"), "done", children=[task]))
    assert (await app.ask("hi", session="s1")).outcome.status == "paused"
    assert (await app.ask("please", session="s1")).text == "done"


async def test_section_3_15_a_tool_of_the_task_hears_what_the_user_says_now():
    heard: list[str] = []

    def hear(ctx: ToolContext) -> str:
        """Hear."""
        heard.append(ctx.user_content.text if ctx.user_content is not None else "")
        return "ok"

    task = llm("task", call("hear"), "?", call("hear"), finish(), mode="task", tools=[hear])
    app = App(coordinator(ask("task", "x"), "done", children=[task]))
    await app.ask("first", session="s1")
    await app.ask("second", session="s1")
    assert heard == ['{"request":"x"}', "second"]


# ---- where modes are illegal


async def nothing(ctx: RunContext) -> None: ...


def test_core_109_a_task_needs_an_llm_agent_above():
    task = llm("task", mode="task")
    for parent in (
        SequentialAgent(name="app", sub_agents=[task]),
        LoopAgent(name="app", sub_agents=[task]),
        ParallelAgent(name="app", sub_agents=[task]),
        FunctionAgent(name="app", function=nothing, sub_agents=[task]),
    ):
        with pytest.raises(ConfigError, match="'task' is in task mode and stands below 'app'"):
            App(parent)


@pytest.mark.parametrize("mode", ["task", "single_turn"])
def test_section_2_2_the_root_must_be_in_chat_mode(mode: Any):
    with pytest.raises(ConfigError, match="'app' is"):
        App(llm("app", mode=mode))


@pytest.mark.parametrize("spec", [str, list[int], {"type": "string"}])
def test_section_3_1_the_arguments_of_a_call_are_an_object(spec: Any):
    with pytest.raises(ConfigError, match="input_schema of agent 'child' must be that of an object"):
        App(llm("app", sub_agents=[llm("child", mode="single_turn", input_schema=spec)]))
    with pytest.raises(ConfigError, match="input_schema of agent 'child' must be that of an object"):
        AgentTool(llm("child"), input_schema=spec)


def test_section_3_1_unknown_modes_and_clashing_names_are_refused():
    with pytest.raises(ConfigError, match="the mode 'chatty'; there are: chat, task, single_turn"):
        App(llm("app", sub_agents=[llm("child", mode="chatty")]))

    def child() -> str:
        """Clash."""
        return ""

    with pytest.raises(ConfigError, match="two tools of agent 'app' are named 'child'"):
        App(llm("app", tools=[child], sub_agents=[llm("child", mode="task")]))

    def finish_task() -> str:
        """Clash."""
        return ""

    with pytest.raises(ConfigError, match="'finish_task', which is reserved"):
        App(llm("app", tools=[finish_task]))


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


@pytest.mark.parametrize("at", range(2, 7))
async def test_DESIGN_7_the_second_turn_of_a_task_goes_on_where_it_died(serve: Serve, at: int):
    """Events of the second turn: user, task finishes, result of that, boss's result, boss says."""
    task = llm("task", "Which city?", mode="task")
    boss = coordinator(ask("task", id="c1"), children=[task])
    store = Dying(1000)
    async with serve(boss, stores=Stores(store)) as talk:
        await talk.run("hi")
        before = len((await talk.stored())["events"])
        store.left = at
        model(task).steps[:], model(boss).steps[:] = [finish("Rome", "f")], ["done"]
        await talk.sse("Rome")
        events = (await talk.stored())["events"][before:]
        assert len(events) == at - 1
        store.left = 1000
        model(task).steps[:] = [finish("Rome", "f")][len(events) > 1 :]
        model(boss).steps[:] = ["done"][len(events) > 4 :]
        got = await talk.client.post("/run", json=talk.body(None, invocationId=events[0]["invocationId"]))
        assert got.status == (409 if at == 6 else 200), got.text
        events = (await talk.stored())["events"][before:]
    assert [e["author"] for e in events] == ["user", "task", "task", "boss", "boss"]
    assert texts(events)[-1] == "done"
    model(task).check()


async def test_DESIGN_7_to_resume_a_run_in_which_a_task_waits_changes_nothing(serve: Serve):
    task = llm("task", "Which city?", finish(), mode="task")
    boss = coordinator(ask("task"), "done", children=[task])
    async with serve(boss) as talk:
        first = await talk.run("hi")
        assert await talk.run(None, invocationId=first[0]["invocationId"]) == []
        assert texts(await talk.run("Rome")) == ["done"]
