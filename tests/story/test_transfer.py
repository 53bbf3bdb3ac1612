"""Handing over between agents, and who answers the next message (spec core 2.2.3, 3.7)."""

from typing import Any

import pytest

from polyport import (
    Agent,
    App,
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
from polyport.engine.transfer import targets
from polyport.engine.tree import AgentTree
from polyport.errors import AgentError
from polyport.ports.agent import Bound
from polyport.testing import ScriptedModel, call
from support.talk import Serve, said, texts


def to(name: str) -> Any:
    return call("transfer_to_agent", {"agent_name": name})


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps, name=f"model of {name}"), **fields)


def model(agent: Agent) -> ScriptedModel:
    assert isinstance(agent, LlmAgent) and isinstance(agent.model, ScriptedModel)
    return agent.model


async def nothing(ctx: RunContext) -> None: ...


# ---- what is offered (17 tree shapes)

NO_PARENT: dict[str, Any] = {"disallow_transfer_to_parent": True}
NO_PEERS: dict[str, Any] = {"disallow_transfer_to_peers": True}


def below(kind: str, *children: Agent) -> Agent:
    """The children below a parent of one kind."""
    if kind == "llm":
        return llm("parent", sub_agents=children)
    if kind == "loop":
        return LoopAgent(name="parent", sub_agents=children, max_iterations=1)
    if kind == "function":
        return FunctionAgent(name="parent", function=nothing, sub_agents=children)
    return {"sequential": SequentialAgent, "parallel": ParallelAgent}[kind](name="parent", sub_agents=children)


SHAPES: dict[str, tuple[Agent, set[str]]] = {
    "alone": (llm("me"), set()),
    "root with children": (llm("me", sub_agents=[llm("a"), llm("b")]), {"a", "b"}),
    "root with flags and children": (llm("me", sub_agents=[llm("a")], **NO_PARENT, **NO_PEERS), {"a"}),
    "child of any kind": (
        llm(
            "me", sub_agents=[SequentialAgent(name="s"), LoopAgent(name="l"), FunctionAgent(name="f", function=nothing)]
        ),
        {"s", "l", "f"},
    ),
    "no grandchildren": (llm("me", sub_agents=[llm("a", sub_agents=[llm("deep")])]), {"a"}),
    "only child": (below("llm", llm("me")), {"parent"}),
    "with a peer": (below("llm", llm("me"), llm("peer")), {"parent", "peer"}),
    "peer of another kind": (below("llm", llm("me"), SequentialAgent(name="peer")), {"parent", "peer"}),
    "not the parent": (below("llm", llm("me", **NO_PARENT), llm("peer")), {"peer"}),
    "not the peers": (below("llm", llm("me", **NO_PEERS), llm("peer")), {"parent"}),
    "neither": (below("llm", llm("me", **NO_PARENT, **NO_PEERS), llm("peer")), set()),
    "flags but children": (below("llm", llm("me", sub_agents=[llm("a")], **NO_PARENT, **NO_PEERS), llm("peer")), {"a"}),
    "all": (below("llm", llm("me", sub_agents=[llm("a")]), llm("peer")), {"a", "parent", "peer"}),
    "below sequential": (below("sequential", llm("me"), llm("peer")), set()),
    "below parallel": (below("parallel", llm("me"), llm("peer")), set()),
    "below loop with a child": (below("loop", llm("me", sub_agents=[llm("a")]), llm("peer")), {"a"}),
    "below a function": (below("function", llm("me"), llm("peer")), set()),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_core_73_whom_an_agent_may_hand_over_to(shape: str):
    root, wanted = SHAPES[shape]
    tree = AgentTree(root, lambda agent, above: Bound(ScriptedModel()))
    me = tree.find("me")
    assert isinstance(me, LlmAgent)
    assert {a.name for a in targets(tree, me)} == wanted


async def test_section_3_7_the_declaration_lists_an_enum_and_the_instruction_describes_it():
    child = llm("child", "hello", description="Knows the weather.")
    peer = llm("peer")
    root = llm("root", to("child"), sub_agents=[child, peer])
    await App(root).ask("hi")
    (tool,) = model(child).requests[0].tools
    assert tool.parameters["properties"]["agent_name"]["enum"] == ["root", "peer"]
    assert tool.parameters["required"] == ["agent_name"]
    (tool,) = model(root).requests[0].tools
    assert tool.parameters["properties"]["agent_name"]["enum"] == ["child", "peer"]
    system = model(root).requests[0].system
    assert "child" in system and "Knows the weather." in system
    assert "your parent, root" in model(child).requests[0].system


async def test_section_3_7_without_targets_there_is_no_tool_and_no_text():
    agent = llm("alone", "hi")
    await App(agent).ask("hi")
    assert model(agent).requests[0].tools == []
    assert "transfer_to_agent" not in model(agent).requests[0].system


# ---- what happens


async def test_section_3_7_call_result_then_the_targets_events(serve: Serve):
    child = llm("child", "I am the child")
    root = llm("root", to("child"), sub_agents=[child])
    async with serve(root) as talk:
        events = await talk.run("hi")
    assert [e["author"] for e in events] == ["root", "root", "child"]
    assert events[1]["content"]["parts"][0]["functionResponse"]["response"] == {}
    assert events[1]["actions"]["transferToAgent"] == "child"
    assert texts(events) == ["I am the child"]
    assert all("branch" not in e for e in events)
    assert len({e["invocationId"] for e in events}) == 1
    prompt = model(child).prompt()
    assert prompt[0] == "user: hi" and "transfer_to_agent" in "".join(prompt[1:]), "the target sees history"


@pytest.mark.parametrize(
    "args", [{}, {"agent_name": None}, {"agent_name": 7}, {"agent_name": "  "}, {"agent_name": "Nope"}]
)
async def test_core_74_FR_107_a_bad_name_is_an_error_that_lists_the_names_and_the_run_goes_on(args: dict[str, Any]):
    root = llm("root", call("transfer_to_agent", args), "I stay", sub_agents=[llm("a"), llm("b")])
    got = await App(root).ask("hi")
    (response,) = got.events[1].responses
    assert response.response is not None and "a, b" in response.response["error"]
    assert got.text == "I stay"
    assert got.events[1].actions.transfer_to_agent == ""


async def test_FR_107_to_itself_and_to_a_forbidden_agent_are_errors_too():
    child = llm("child", to("child"), to("root"), to("peer"), "fine", **NO_PARENT, **NO_PEERS, sub_agents=[llm("deep")])
    root = llm("root", to("child"), sub_agents=[child, llm("peer")])
    got = await App(root).ask("hi")
    failed = [r for e in got.events for r in e.responses if "error" in (r.response or {})]
    assert len(failed) == 3
    assert got.text == "fine"


async def test_FR_107_siblings_parents_and_any_order_of_construction():
    second = llm("second", to("root"))
    first = llm("first", to("second"))
    root = llm("root", to("first"), "back at the top", sub_agents=[first, second])
    got = await App(root).ask("hi")
    assert [e.author for e in got.events] == ["root", "root", "first", "first", "second", "second", "root"]
    assert got.text == "back at the top"


@pytest.mark.parametrize("budget", [100, 300])
async def test_FR_107_ping_pong_stops_at_the_call_limit_with_an_error(serve: Serve, budget: int):
    b = llm("b", *[to("a")] * budget)
    a = llm("a", *[to("b")] * budget, sub_agents=[b])
    got: list[Any] = []
    with pytest.raises(AgentError, match=f"{budget} model calls"):
        got.append(await App(a).ask("hi", config=RunConfig(max_llm_calls=budget)))
    assert len(model(a).requests) + len(model(b).requests) == budget


async def test_section_3_9_other_calls_of_the_answer_run_before_the_hand_over():
    ran: list[str] = []

    def work() -> str:
        """Work."""
        ran.append("work")
        return "worked"

    child = llm("child", "child here")
    root = llm("root", [to("child"), call("work")], tools=[work], sub_agents=[child])
    got = await App(root).ask("hi")
    assert (ran, got.text) == (["work"], "child here")
    assert [r.name for r in got.events[1].responses] == ["transfer_to_agent", "work"]


async def test_section_3_2_after_agent_of_those_who_handed_over_comes_last_first():
    seen: list[str] = []

    def note(ctx: Any) -> None:
        seen.append(ctx.agent_name)

    c = llm("c", "end", after_agent=note)
    b = llm("b", to("c"), after_agent=note, sub_agents=[c])
    a = llm("a", to("b"), after_agent=note, sub_agents=[b])
    await App(a).ask("hi")
    assert seen == ["c", "b", "a"]


async def test_section_3_7_before_agent_of_the_target_may_answer():
    from polyport.data.content import model_text

    child = llm("child", before_agent=lambda c: model_text("closed"))
    root = llm("root", to("child"), sub_agents=[child])
    assert (await App(root).ask("hi")).text == "closed"


async def test_section_3_7_a_workflow_may_be_the_target():
    steps = SequentialAgent(name="steps", sub_agents=[llm("one", "1"), llm("two", "2")])
    root = llm("root", to("steps"), sub_agents=[steps])
    got = await App(root).ask("hi")
    assert [(e.author, e.text) for e in got.events][2:] == [("one", "1"), ("two", "2")]


async def test_section_3_7_a_hand_over_inside_a_sequence_goes_on_with_the_sequence():
    helper = llm("helper", "helped")
    first = llm("first", to("helper"), sub_agents=[helper])
    got = await App(SequentialAgent(name="app", sub_agents=[first, llm("second", "then")])).ask("hi")
    assert [e.text for e in got.events if e.text] == ["helped", "then"]


async def test_section_3_7_escalation_of_the_target_leaves_the_loop_around_the_one_who_handed_over():
    def leave(ctx: ToolContext) -> str:
        """Leave."""
        ctx.actions.escalate = True
        ctx.actions.skip_summarization = True
        return "left"

    helper = llm("helper", call("leave"), tools=[leave])
    first = llm("first", to("helper"), sub_agents=[helper])
    second = llm("second")
    await App(LoopAgent(name="app", sub_agents=[first, second])).ask("hi")
    assert model(second).requests == []


async def test_a_tool_that_hands_over_to_nobody_known_is_a_clear_error():
    def jump(ctx: ToolContext) -> str:
        """Jump."""
        ctx.actions.transfer_to_agent = "nowhere"
        return "x"

    with pytest.raises(AgentError, match="'root' handed over to an unknown agent 'nowhere'"):
        await App(llm("root", call("jump"), tools=[jump])).ask("hi")


# ---- who answers next


async def test_core_26_the_agent_that_spoke_last_goes_on():
    child = llm("child", "one", "two")
    root = llm("root", to("child"), sub_agents=[child])
    app = App(root)
    await app.ask("hi", session="s1")
    got = await app.ask("more", session="s1")
    assert [(e.author, e.text) for e in got.events] == [("child", "two")]


async def test_core_26_not_when_it_may_not_hand_back():
    child = llm("child", "one", **NO_PARENT)
    root = llm("root", to("child"), "root again", sub_agents=[child])
    app = App(root)
    await app.ask("hi", session="s1")
    got = await app.ask("more", session="s1")
    assert [(e.author, e.text) for e in got.events] == [("root", "root again")]


async def test_core_26_29_nor_when_an_agent_above_it_may_not_or_is_no_llm_agent():
    deep = llm("deep", "deep")
    middle = llm("middle", to("deep"), sub_agents=[deep], **NO_PARENT)
    root = llm("root", to("middle"), "root again", sub_agents=[middle])
    app = App(root)
    await app.ask("hi", session="s1")
    assert (await app.ask("more", session="s1")).text == "root again"

    steps = SequentialAgent(name="steps", sub_agents=[llm("one", "1")])
    root = llm("root", to("steps"), "root again", sub_agents=[steps])
    app = App(root)
    await app.ask("hi", session="s1")
    assert (await app.ask("more", session="s1")).text == "root again"


async def test_core_27_without_events_of_agents_it_is_the_root():
    root = llm("root", "hello", sub_agents=[llm("child")])
    assert (await App(root).ask("hi")).events[0].author == "root"


async def test_core_26_events_of_agents_that_are_gone_are_skipped():
    old = llm("root", to("gone"), sub_agents=[llm("gone", "bye")])
    app = App({"app": old})
    await app.ask("hi", session="s1")
    new = App({"app": llm("root", "root", sub_agents=[llm("child")])}, stores=app.stores)
    assert (await new.ask("hi", session="s1")).text == "root"


async def test_core_28_a_result_goes_to_the_agent_that_asked_even_if_it_may_not_hand_back():
    def later() -> None:
        """Answer later."""

    child = llm("child", call("later", id="c1"), "got it", tools=[make_tool(later, long_running=True)], **NO_PARENT)
    root = llm("root", to("child"), sub_agents=[child])
    app = App(root)
    await app.ask("hi", session="s1")
    got = await app.ask(said("c1", "later", {"x": 1}), session="s1")
    assert [(e.author, e.text) for e in got.events] == [("child", "got it")]


async def test_core_28_an_asker_that_is_gone_does_not_stop_the_conversation():
    def later() -> None:
        """Answer later."""

    tool = make_tool(later, long_running=True)
    old = llm("root", to("gone"), sub_agents=[llm("gone", call("later", id="c1"), tools=[tool])])
    app = App({"app": old})
    await app.ask("hi", session="s1")
    child = llm("child", "child", "child again")
    new = App({"app": llm("root", to("child"), sub_agents=[child])}, stores=app.stores)
    assert (await new.ask("to the child", session="s1")).text == "child"
    assert (await new.ask(said("c1", "later", {"x": 1}), session="s1")).text == "child again"


async def test_core_28_the_asker_goes_on_where_it_worked():
    """A child of a parallel agent asks; when it goes on, it still does not see its sibling's events."""

    def later() -> None:
        """Answer later."""

    asker = llm("asker", call("later", id="c1"), "got it", tools=[make_tool(later, long_running=True)])
    sibling = llm("sibling", "noise")
    both = ParallelAgent(name="both", sub_agents=[asker, sibling])
    root = llm("root", to("both"), sub_agents=[both])
    app = App(root)
    await app.ask("hi", session="s1")
    got = await app.ask(said("c1", "later", {"x": 1}), session="s1")
    assert [(e.author, e.branch) for e in got.events] == [("asker", "both.asker")]
    assert "noise" not in str(model(asker).requests[-1].contents)
    assert "{'x': 1}" in model(asker).prompt()[-1]
