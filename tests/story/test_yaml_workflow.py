"""Workflows in agent files: the six kinds of files that the reference loads, and what it cannot (spec core 9, 122; 12.30)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polyport import App
from polyport.data.content import user_text
from polyport.testing import ScriptedModel, call
from polyport.workflow import Workflow
from support.projects import agent_of, clean_process, mistakes
from support.talk import said

CODE = '''
from polyport import Event, ToolContext, tool
from polyport.workflow import RequestInput, route

def upper(text: str) -> str:
    return text.upper()

def mark(text: str) -> str:
    return text + "!"

def decide(text: str):
    return route("yes" if "ok" in text.lower() else "perhaps" if "hm" in text.lower() else "other")

def words(text: str) -> list:
    return text.split()

def both(node_input: dict) -> str:
    return " ".join(f"{k}={v}" for k, v in sorted(node_input.items()))

def ask(text: str):
    return RequestInput(message="How many?")

def join_words(items: list) -> str:
    return "-".join(items)

CALLS = []

def flaky(text: str) -> str:
    CALLS.append(text)
    if len(CALLS) < 3:
        raise ValueError("not yet")
    return "after " + str(len(CALLS))

def greet(name: str) -> str:
    """Greet somebody."""
    return "hello " + name

def arguments(text: str) -> dict:
    return {"name": text}
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with clean_process():
        yield tmp_path


def flow(text: str, files: dict[str, str | bytes] | None = None, **options: Any) -> Any:
    return agent_of(f"agent_class: Workflow\nname: flow\n{text}", {"tools.py": CODE, **(files or {})}, **options)


def wrong(text: str, files: dict[str, str | bytes] | None = None) -> list[str]:
    return mistakes(f"agent_class: Workflow\nname: flow\n{text}", {"tools.py": CODE, **(files or {})})


async def outputs(agent: Any, message: str = "hi") -> list[Any]:
    reply = await App(agent).ask(message)
    return [event.output for event in reply.events if event.output is not None]


async def test_core_122_a_chain_of_functions():
    agent = flow("edges: [[START, upper, tools.mark]]\n")
    assert isinstance(agent, Workflow)
    assert await outputs(agent) == ["HI", "HI!"]


@pytest.mark.parametrize(("message", "last"), [("ok", "upper"), ("hm", "upper"), ("no", "mark")])
async def test_core_122_routes_with_default_in_any_case_and_several_to_one_node(message: str, last: str):
    agent = flow("edges:\n  - [START, decide]\n  - [decide, {yes: upper, perhaps: upper, DeFault: mark}]\n")
    reply = await App(agent).ask(message)
    paths = [event.node_info.path for event in reply.events if event.node_info is not None and event.output is not None]
    assert any(f"/{last}@" in path for path in paths), paths


async def test_core_122_fan_out_and_join():
    root = """\
edges:
  - [START, [upper, mark]]
  - [[upper, mark], all_of_them, both]
nodes:
  all_of_them: {agent_class: JoinNode}
"""
    assert (await outputs(flow(root)))[-1] == "mark=hi! upper=HI"


async def test_core_122_function_and_tool_nodes_in_files_and_in_place():
    root = """\
edges: [[START, first, nodes/prepare.yaml, nodes/greet.yaml]]
nodes:
  first: {agent_class: FunctionNode, func_code: upper}
"""
    files: dict[str, str | bytes] = {
        "nodes/prepare.yaml": "agent_class: FunctionNode\nname: prepare\nfunc_code: {name: tools.arguments}\n",
        "nodes/greet.yaml": "agent_class: ToolNode\nname: greeting\ntool_code: greet\n",
    }
    assert (await outputs(flow(root, files), "ann"))[-1] == "hello ANN"


async def test_core_122_agents_in_files_and_in_place_and_nested_workflows():
    root = """\
edges: [[START, upper, inner.yaml, writer]]
nodes:
  writer: {model: writer-model, mode: single_turn, instruction: Write.}
"""
    inner = "agent_class: Workflow\nname: inner\nedges: [[START, mark, thinker.yaml]]\n"
    thinker = "name: thinker\nmodel: thinker-model\nmode: single_turn\ninstruction: Think.\n"
    models = {"writer-model": ScriptedModel("written"), "thinker-model": ScriptedModel("thought")}
    agent = flow(root, {"inner.yaml": inner, "thinker.yaml": thinker}, models=models)
    assert [child.name for child in agent.sub_agents] == ["inner", "writer"]
    reply = await App(agent).ask("hi")
    assert reply.text == "written"
    for model, asked in (("thinker-model", "user: HI!"), ("writer-model", "user: thought")):
        assert models[model].prompt()[0].startswith(asked)


async def test_core_122_parallel_workers_and_retries():
    root = """\
edges: [[START, words, each, join_words]]
nodes:
  each: {agent_class: FunctionNode, func_code: upper, parallel_worker: true, parallel_limit: 2}
"""
    assert (await outputs(flow(root), "a b c"))[-1] == "A-B-C"
    root = """\
edges: [[START, shaky]]
max_concurrency: 1
nodes:
  shaky: {agent_class: FunctionNode, func_code: flaky, retry: {max_attempts: 3, initial_s: 0}, timeout_s: 30}
"""
    assert (await outputs(flow(root)))[-1] == "after 3"


async def test_a_node_that_is_named_twice_is_one_node():
    """In the reference a function that stands in two chains makes two nodes of one name, which is an error."""
    agent = flow("edges:\n  - [START, decide]\n  - [decide, {yes: upper, default: mark}]\n  - [upper, both]\n")
    assert sorted(node.name for node in agent.graph.nodes) == ["both", "decide", "mark", "upper"]
    one = "name: one\nmodel: demo\nmode: single_turn\n"
    agent = flow("edges:\n  - [START, decide]\n  - [decide, {yes: one.yaml, default: ./one.yaml}]\n", {"one.yaml": one})
    assert [child.name for child in agent.sub_agents] == ["one"]


async def test_a_workflow_in_yaml_goes_on_after_a_humans_answer():
    """In the reference a YAML workflow begins anew."""
    agent = flow("edges: [[START, upper, ask, mark]]\n")
    app = App(agent)
    reply = await app.ask("hi", session="s")
    assert reply.outcome.status == "paused"
    (asked,) = [call for event in reply.events for call in event.calls]
    reply = await app.ask(said(asked.id, asked.name, {"response": "seven"}), session="s")
    assert [event.output for event in reply.events if event.output is not None][-1] == "seven!"
    assert "HI" not in [event.output for event in reply.events], "what was done is not done again"


async def test_a_workflow_as_a_sub_agent_and_a_tool_node_that_a_human_approves():
    tools = CODE + '\n@tool(require_confirmation=True)\ndef pay(name: str) -> str:\n    """Pay."""\n    return "paid"\n'
    root = "edges: [[START, arguments, paying]]\nnodes:\n  paying: {agent_class: ToolNode, tool_code: pay}\n"
    app = App(flow(root, {"tools.py": tools}))
    reply = await app.ask("ann", session="s")
    assert reply.outcome.status == "paused"
    (asked,) = [c for event in reply.events for c in event.calls if c.name == "adk_request_confirmation"]
    reply = await app.ask(said(asked.id, asked.name, {"confirmed": True}), session="s")
    assert [event.output for event in reply.events if event.output is not None] == ["paid"]
    root = """
        name: root
        model: demo
        sub_agents:
          - agent_class: Workflow
            name: flow
            description: Shouts.
            edges: [[START, upper]]
        """
    model = ScriptedModel(call("transfer_to_agent", {"agent_name": "flow"}))
    reply = await App(agent_of(root, {"tools.py": CODE}, models={"demo": model})).ask(user_text("hi"))
    assert [event.output for event in reply.events if event.output is not None] == ["HI"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("edges: [[START]]\n", "root_agent.yaml:3:9: an edge is a list such as [START, first, second]"),
        ("edges: [upper]\n", "an edge is a list"),
        ("edges: [[{yes: upper}, mark]]\n", "routes come after a node"),
        ("edges: [[START, uper]]\n", "root_agent.yaml:3:17: 'uper': 'tools' has no 'uper'; did you mean 'upper'?"),
        ("edges: [[START, [upper, 3, null]]]\n", "a node is START, a name, a file or code; not nothing"),
        ("edges: [[START, {x: upper}]]\n", "an edge from START cannot have routes"),
        ("edges: [[upper, mark]]\n", "needs an edge from START"),
        ("edges: [[START, upper, mark, upper]]\n", "upper"),
        ("edges: [[START, ../x.yaml]]\n", "leads out of the project"),
        ("edges: [[START, nope.yaml]]\n", "there is no file 'nope.yaml'"),
        ("edges: [[START, root_agent.yaml]]\n", "in a circle: root_agent.yaml -> root_agent.yaml"),
        ("edges: [[START, tools.CALLS]]\n", "a list cannot be a node"),
        ("edges: [[START, upper]]\nsub_agents: [{name: x}]\n", "takes its agents from `edges`"),
        ("edges: [[START, a]]\nnodes: {a: {agent_class: FunctionNode, func_cod: x}}\n", "did you mean 'func_code'?"),
        ("edges: [[START, a]]\nnodes: {a: {agent_class: FunctionNode}}\n", "a FunctionNode needs the key 'func_code'"),
        (
            "edges: [[START, a]]\nnodes: {a: {agent_class: ToolNode, tool_code: exit_lop}}\n",
            "did you mean 'exit_loop'?",
        ),
        ("edges: [[START, a]]\nnodes: {a: {agent_class: FunctionNod, name: a}}\n", "no agent_class 'FunctionNod'"),
        ("", "a Workflow needs the key 'edges'"),
        (
            "edges: [[START, a]]\nnodes: {a: {agent_class: FunctionNode, func_code: upper, retry: {jitter: 3}}}\n",
            "a jitter from 0 to 1",
        ),
    ],
)
def test_mistakes_in_workflows_are_told(text: str, told: str):
    lines = wrong(text)
    assert any(told in line for line in lines), lines


def test_a_node_alone_is_no_agent():
    lines = mistakes("agent_class: FunctionNode\nname: f\nfunc_code: upper\n", {"tools.py": CODE})
    assert "is a node of a Workflow, and no agent" in lines[0]
