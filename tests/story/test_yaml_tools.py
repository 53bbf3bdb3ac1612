"""The tools of agent files: built in, by code, agents, MCP, OpenAPI, skills, examples (spec core 9, 12.30)."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polyport import App, McpToolset, OpenApiToolset, SkillToolset
from polyport.testing import ScriptedModel, call
from polyport.tools.mcp import HttpServer, StdioServer
from support.projects import agent_of, clean_process, mistakes


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with clean_process():
        yield tmp_path


def tools_of(tools: str, files: dict[str, str | bytes] | None = None, **options: Any) -> Any:
    return agent_of(f"name: a\nmodel: demo\ninstruction: x\ntools:\n{tools}", files, **options).tools


def wrong(tools: str, files: dict[str, str | bytes] | None = None) -> list[str]:
    return mistakes(f"name: a\nmodel: demo\ntools:\n{tools}", files)


TOOLS = '''
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"

def much(amount: int) -> bool:
    return amount > 100
'''


def test_all_built_in_tools_have_their_names():
    names = [
        "exit_loop",
        "google_search",
        "url_context",
        "google_maps_grounding",
        "load_memory",
        "preload_memory",
        "load_artifacts",
    ]
    found = tools_of("".join(f"  - {name}\n" for name in names))
    assert [tool.name for tool in found] == names
    again = tools_of("  - {name: load_memory, args: {max_memories: 2}}\n  - {name: exit_loop}\n")
    assert again[0]._max_memories == 2 and again[1] is found[0]
    assert (
        "has no argument 'max_memoris'; did you mean 'max_memories'?"
        in wrong("  - {name: load_memory, args: {max_memoris: 2}}\n")[0]
    )
    assert "max_memories is 0; it must be 1 or more" in wrong("  - {name: load_memory, args: {max_memories: 0}}\n")[0]
    assert "exit_loop takes no args" in wrong("  - {name: exit_loop, args: {a: 1}}\n")[0]


async def test_exit_loop_by_name_ends_a_loop():
    root = "agent_class: LoopAgent\nname: loop\nsub_agents: [{name: a, model: demo, tools: [exit_loop]}]\n"
    model = ScriptedModel("once", call("exit_loop"))
    await App(agent_of(root, models={"demo": model})).ask("go")
    model.check()


@pytest.mark.parametrize("when", ["true", "tools.much", "much"])
async def test_confirmation_of_a_function_asks_a_human(when: str):
    model = ScriptedModel(call("pay", {"amount": 500}))
    root = f"name: a\nmodel: demo\ntools: [{{name: pay, require_confirmation: {when}}}]\n"
    reply = await App(agent_of(root, {"tools.py": TOOLS}, models={"demo": model})).ask("go")
    assert reply.outcome.status == "paused"
    assert [c.name for e in reply.events for c in e.calls] == ["pay", "adk_request_confirmation"]


async def test_function_tools_with_options_and_long_running_ones():
    tools = """\
  - {name: FunctionTool, args: {func: tools.pay, name: give, description: Gives., idempotent: true, response: {type: string}}}
  - {name: LongRunningFunctionTool, args: {func: pay}}
"""
    give, pay = tools_of(tools, {"tools.py": TOOLS})
    assert (give.name, give.description, give.idempotent, give.long_running) == ("give", "Gives.", True, False)
    assert (pay.name, pay.long_running) == ("pay", True)
    assert "needs the key 'func'" in wrong("  - {name: LongRunningFunctionTool}\n")[0]
    assert (
        "is no name for a tool"
        in wrong("  - {name: FunctionTool, args: {func: pay, name: a b}}\n", {"tools.py": TOOLS})[0]
    )


async def test_agent_tools_by_file_in_place_and_with_the_spelling_of_adk():
    root = """
        name: root
        model: demo
        tools:
          - name: AgentTool
            args: {agent: {config_path: in/expert.yaml, skip_summarization: true}}
          - name: AgentTool
            args:
              description: Asks another.
              agent: {name: other, model: demo, instruction: Answer.}
        """
    expert = "name: expert\nmodel: expert-model\ndescription: An expert.\n"
    models = {
        "demo": ScriptedModel(call("other", {"request": "a"}), "from other", call("expert", {"request": "b"})),
        "expert-model": ScriptedModel("expert says"),
    }
    agent = agent_of(root, {"in/expert.yaml": expert}, models=models)
    reply = await App(agent).ask("go")
    results = [r.response for e in reply.events for r in e.responses]
    assert results == [{"result": "from other"}, {"result": "expert says"}]
    declared = {tool.name: tool.description for tool in models["demo"].requests[0].tools}
    assert declared == {"expert": "An expert.", "other": "Asks another."}
    for model in models.values():
        model.check()


def test_agent_tools_have_trees_of_their_own():
    root = """
        name: root
        model: demo
        tools:
          - {name: AgentTool, args: {agent: {name: expert, model: demo, sub_agents: [{name: root, description: r}]}}}
        """
    App(agent_of(root))
    (line,) = mistakes(
        "name: r\nmodel: demo\ntools: [{name: AgentTool, args: {agent: {name: e, mode: task, model: demo}}}]\n"
    )
    assert "is in task mode: put it into sub_agents" in line
    (line,) = mistakes("name: r\nmodel: demo\ntools: [{name: AgentTool}]\n")
    assert "the args of AgentTool needs the key 'agent'" in line


async def test_examples_are_shown_to_the_model():
    tools = """\
  - name: ExampleTool
    args:
      examples:
        - {input: 2+2?, output: 4}
        - input: {role: user, parts: [{text: three}]}
          output: [drei, {role: model, parts: [{functionCall: {name: f, args: {x: 1}}}]}]
"""
    model = ScriptedModel("ok")
    root = f"name: a\nmodel: demo\ntools:\n{tools}"
    await App(agent_of(root, models={"demo": model})).ask("hi")
    for text in ("2+2?", "4", "three", "drei", "calls `f`"):
        assert text in model.requests[0].system
    assert "an example needs the key 'output'" in wrong("  - {name: ExampleTool, args: {examples: [{input: a}]}}\n")[0]
    assert "at least one example" in wrong("  - {name: ExampleTool, args: {examples: []}}\n")[0]


# ---- MCP


def test_core_122_the_args_of_mcp_servers_must_be_strings():
    tools = """\
  - name: McpToolset
    args:
      stdio_connection_params:
        server_params: {command: npx, args: [-y, 8080, true, '9090', [x]]}
      tool_filter: [read_file, 7]
"""
    lines = wrong(tools)
    assert [line.split(": ")[0] for line in lines] == [
        "root_agent.yaml:7:50",
        "root_agent.yaml:7:56",
        "root_agent.yaml:7:70",
        "root_agent.yaml:8:32",
    ]
    assert "put it into quotes" in lines[0] and "tool_filter are texts" in lines[3]


def test_mcp_toolsets_of_all_kinds():
    os.environ["TOKEN"] = "t-secret"
    tools = """\
  - name: McpToolset
    args:
      stdio_connection_params:
        server_params: {command: npx, args: [-y, server], env: {MODE: on, KEY: !env TOKEN}, cwd: work}
        timeout: 5
      tool_filter: [read_file]
      tool_name_prefix: fs
      limits: {call_timeout_s: 9, sessions: 2}
      name: files
  - {name: MCPToolset, args: {stdio_server_params: {command: uvx}}}
  - name: McpToolset
    require_confirmation: true
    args:
      streamable_http_connection_params:
        url: https://mcp.example/mcp
        headers: {Authorization: !env "Bearer ${TOKEN}"}
        header_provider: own.headers
        auth: own.AUTH
      use_resources: true
"""
    files: dict[str, str | bytes] = {"own.py": "AUTH = object()\ndef headers(ctx):\n    return {}\n", "work/x": ""}
    first, second, confirmed = tools_of(tools, files)
    assert isinstance(first, McpToolset) and isinstance(second, McpToolset)
    server = first.server
    assert isinstance(server, StdioServer)
    assert (server.command, server.args, server.env) == ("npx", ["-y", "server"], {"MODE": "on", "KEY": "t-secret"})
    assert server.cwd == Path("work").resolve()
    limits = first.limits
    assert (limits.connect_timeout_s, limits.call_timeout_s, limits.sessions) == (5.0, 9.0, 2)
    assert first._prefix == "fs_" and first.name == "files"
    assert (
        "sessions is 0; it must be above zero"
        in wrong("  - {name: McpToolset, args: {stdio_server_params: {command: x}, limits: {sessions: 0}}}\n")[0]
    )
    http = confirmed._toolset.server
    assert isinstance(http, HttpServer) and http.headers == {"Authorization": "Bearer t-secret"}
    assert http.header_provider is not None and http.auth is not None and "t-secret" not in repr(http)
    for args in ("{}", "{stdio_server_params: {command: x}, streamable_http_connection_params: {url: 'http://x'}}"):
        assert "McpToolset needs one of" in wrong(f"  - {{name: McpToolset, args: {args}}}\n")[0]
    bad = "  - {name: McpToolset, args: {streamable_http_connection_params: {url: ftp://x}}}\n"
    assert "must begin with http:// or https://" in wrong(bad)[0]


async def test_a_real_mcp_server_answers():
    tools = f"""\
  - name: McpToolset
    args:
      stdio_connection_params:
        server_params: {{command: {json.dumps(sys.executable)}, args: [-m, mcp_server_time, --local-timezone, UTC]}}
      tool_filter: [convert_time]
"""
    args = {"source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "Europe/Oslo"}
    model = ScriptedModel(call("convert_time", args), "ok")
    agent = agent_of(f"name: a\nmodel: demo\ntools:\n{tools}", models={"demo": model})
    async with App(agent) as app:
        reply = await app.ask("go")
    assert [tool.name for tool in model.requests[0].tools] == ["convert_time"]
    assert "12:00" in json.dumps([r.response for e in reply.events for r in e.responses])


# ---- OpenAPI, skills, remote agents


API = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "servers": [{"url": "https://api.example"}],
    "paths": {
        "/pets": {
            "get": {"operationId": "listPets", "responses": {}},
            "post": {"operationId": "addPet", "responses": {}},
        }
    },
    "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
}


@pytest.mark.parametrize("spec", ["api.json", "./api.json", json.dumps(API), "https://api.example/openapi.json"])
async def test_openapi_toolsets_by_file_url_or_in_place(spec: str):
    os.environ["TOKEN"] = "t-secret"
    args = f"{{spec: {spec}, include: ['list*'], prefix: shop_, headers: {{X-A: on}}, auth: {{bearer: !env TOKEN}}}}"
    (found,) = tools_of(f"  - {{name: OpenApiToolset, args: {args}}}\n", {"api.json": json.dumps(API)})
    assert isinstance(found, OpenApiToolset) and "t-secret" not in repr(found)
    assert found.headers == {"X-A": "on"}
    more = "{spec: api.json, headers: own.headers, original_names: true, max_bytes: 10, max_spec_bytes: 20}"
    own = "def headers(ctx):\n    return {}\n"
    (other,) = tools_of(f"  - {{name: OpenApiToolset, args: {more}}}\n", {"own.py": own})
    assert callable(other.headers) and (other.original_names, other.max_bytes, other.max_spec_bytes) == (True, 10, 20)
    if not spec.startswith("https"):
        assert [tool.name for tool in await found.load()] == ["shop_list_pets"]


def test_openapi_mistakes_are_told_with_their_place():
    lines = wrong("  - {name: OpenApiToolset, args: {spec: api.json, auth: {}}}\n", {"api.json": json.dumps(API)})
    assert "auth needs one of bearer, api_key, user" in lines[0]
    (line,) = wrong("  - {name: OpenApiToolset, args: {spec: {openapi: 2}}}\n")
    assert line.startswith("root_agent.yaml:4:5: ") and "OpenAPI" in line
    assert (
        "there is no file 'ap.json'; did you mean 'api.json'?"
        in wrong("  - {name: OpenApiToolset, args: {spec: ap.json}}\n")[0]
    )


async def test_skills_of_the_project():
    skill = "---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n"
    model = ScriptedModel(call("load_skill", {"name": "greet"}), "hello")
    root = "name: a\nmodel: demo\ntools: [{name: SkillToolset}]\n"
    agent = agent_of(root, {"skills/greet/SKILL.md": skill}, models={"demo": model})
    assert isinstance(agent.tools[0], SkillToolset)
    reply = await App(agent).ask("hi")
    assert reply.text == "hello" and "Say hello." in str([r.response for e in reply.events for r in e.responses])
    assert (
        "there is no folder 'skils'; did you mean 'skills'?"
        in wrong("  - {name: SkillToolset, args: {folders: skils}}\n")[0]
    )


def test_remote_agents_as_tools():
    (found,) = tools_of(
        "  - {name: RemoteAgentTool, args: {name: prime, endpoint: 'https://prime.example', headers: {A: b}}}\n"
    )
    assert found.name == "prime" and found.agent.headers == {"A": "b"}


# ---- tools of the user's own


def test_classes_toolsets_and_objects_by_code():
    own = """
        from polyport import Tool

        class Mine(Tool):
            def __init__(self, size=1):
                self.size = size
                self.name = f"mine_{size}"
            async def call(self, ctx, args):
                return {}

        ready = Mine(7)

        class Set:
            name = "set"
            async def tools(self, ctx):
                return [ready]
            async def aclose(self): ...
        """
    found = tools_of(
        "  - {name: own.Mine, args: {size: 3}}\n  - own.Mine\n  - own:ready\n  - own.Set\n", {"own.py": own}
    )
    assert [getattr(tool, "size", 0) for tool in found] == [3, 1, 7, 0]


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ("  - {nam: x}\n", "no key 'nam' in a tool; did you mean 'name'?"),
        ("  - pay\n  - tools.pay\n", "root_agent.yaml:5:5: two tools of this agent are named 'pay'"),
        ("  - [x]\n", "an item of tools takes a text or a tool, not a list"),
        ("  - {name: AgentTol, args: {}}\n", "there is no tool 'AgentTol'; did you mean 'AgentTool'?"),
        ("  - {name: McpToolset, args: [x]}\n", "takes the args of McpToolset, not a list"),
        ("  - {name: pay, require_confirmation: much_more}\n", "has no 'much_more'; did you mean 'much'?"),
    ],
)
def test_mistakes_are_told(tools: str, told: str):
    assert any(told in line for line in wrong(tools, {"tools.py": TOOLS}))


def test_a_tool_whose_function_cannot_be_described_is_told_with_its_place():
    (line,) = wrong("  - pay\n", {"tools.py": "def pay(f: complex, /):\n    'P.'\n"})
    assert line.startswith("root_agent.yaml:4:5: ") and "pay" in line
