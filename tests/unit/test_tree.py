"""AgentTree: found names, parents, plugs (spec core 2.1, 3.7)."""

from typing import Any

import pytest

from polyport import Agent, FunctionAgent, LlmAgent, ParallelAgent, RunContext, SequentialAgent, make_tool
from polyport.engine.flow import point
from polyport.engine.spec import LlmSpec
from polyport.engine.tree import AgentTree
from polyport.errors import ConfigError
from polyport.ports.agent import Bound, Tool, ToolContext
from polyport.testing import ScriptedModel


def bind(agent: LlmSpec, above: Bound | None) -> Bound:
    """As the App does it, for models that are objects."""
    if not isinstance(agent.model, str):
        return Bound(agent.model, tuple(t for t in agent.tools if isinstance(t, Tool)))
    if above is None:
        raise ConfigError(f"agent {agent.name!r} has no model")
    return above


def llm(name: str, *children: Agent, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, sub_agents=children, **fields)


def tree_of(root: Agent) -> AgentTree:
    return AgentTree(root, bind)


def test_section_2_1_parents_and_names():
    deep = llm("deep")
    middle = SequentialAgent(name="middle", sub_agents=[deep])
    root = llm("root", middle, llm("other"), model=ScriptedModel())
    tree = tree_of(root)
    assert [a.name for a in tree.agents()] == ["root", "middle", "deep", "other"], "parents before children"
    assert tree.find("deep") is deep and tree.find("nobody") is None
    assert tree.parent(deep) is middle and tree.parent(middle) is root and tree.parent(root) is None
    assert tree.parent(llm("stranger")) is None


def test_section_3_1_a_model_is_inherited_through_flows():
    model, other = ScriptedModel(), ScriptedModel()
    low = llm("low")
    own = llm("own", low, model=other)
    flow = SequentialAgent(name="flow", sub_agents=[llm("child"), own])
    tree = tree_of(llm("root", flow, model=model))
    by_name = {a.name: tree.bound(a).model for a in tree.agents() if isinstance(a, LlmSpec)}
    assert by_name == {"root": model, "child": model, "own": other, "low": other}
    assert len(tree.bounds()) == 4


def test_bound_of_an_agent_outside_the_tree_and_of_one_without_a_model():
    async def body(ctx: RunContext) -> None: ...

    tree = tree_of(llm("root", model=ScriptedModel()))
    model = ScriptedModel()
    assert tree.bound(llm("guest", model=model)).model is model
    with pytest.raises(ConfigError, match="'guest' has no model"):
        tree.bound(llm("guest"))
    with pytest.raises(ConfigError, match="'f' is not an LLM agent"):
        tree.bound(FunctionAgent(name="f", function=body))


class Nameless(Tool):
    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any: ...


def noop() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([make_tool(noop), make_tool(noop)], "two tools of agent 'me' are named 'noop'"),
        ([Nameless()], "a tool of agent 'me', a Nameless, has no name"),
        ([make_tool(noop, name="set_model_response")], "'set_model_response', which is reserved"),
    ],
)
def test_section_12_31_names_of_tools(tools: list[Any], words: str):
    with pytest.raises(ConfigError, match=words):
        tree_of(llm("root", llm("me", model=ScriptedModel(), tools=tools), model=ScriptedModel()))


def test_where_a_run_goes_on_is_the_topmost_flow_around_the_asker():
    asker = llm("asker")
    inner = ParallelAgent(name="inner", sub_agents=[asker, llm("peer")])
    steps = SequentialAgent(name="steps", sub_agents=[llm("one"), inner])
    outer = ParallelAgent(name="outer", sub_agents=[steps])
    root = llm("root", outer, model=ScriptedModel())
    tree = tree_of(root)
    assert point(tree, asker, "a.outer.steps.inner.asker") == (outer, "a")
    assert point(tree, asker, "outer.steps.inner.asker") == (outer, "")
    assert point(tree, root, "") == (root, "")
