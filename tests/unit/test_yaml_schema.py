"""The JSON Schema of agent files: kept in docs/, and of one mind with the loader."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from polyport.cli.main import main
from polyport.config import schema
from polyport.config.json_schema import json_schema
from polyport.config.schema_tools import TOOLS
from polyport.config.yaml_agents import MAKERS
from polyport.config.yaml_text import Problems, read_text
from polyport.config.yaml_tools import MAKERS as TOOL_MAKERS
from polyport.config.yaml_workflow import MAKERS as NODE_MAKERS
from polyport.workflow import Workflow

ROOT = Path(__file__).parents[2]
SCHEMA = json_schema()


def fits(text: str) -> bool:
    problems = Problems()
    node = read_text(text, "f.yaml", problems)
    assert node is not None and not problems.found, problems.found
    return jsonschema.Draft7Validator(SCHEMA).is_valid(node.value())


def test_it_is_a_schema_and_the_one_of_the_docs():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    kept = json.loads((ROOT / "docs/agent.schema.json").read_text(encoding="utf-8"))
    assert kept == SCHEMA, "run: polyport schema > docs/agent.schema.json"


def test_the_command_prints_it():
    done = CliRunner().invoke(main, ["schema"])
    assert done.exit_code == 0 and json.loads(done.stdout) == SCHEMA


def test_every_kind_has_its_keys_in_one_place():
    assert MAKERS.keys() == schema.AGENTS.keys() and NODE_MAKERS.keys() == schema.NODES.keys()
    assert TOOL_MAKERS.keys() == TOOLS.keys()


@pytest.mark.parametrize("path", sorted((ROOT / "examples/yaml_team").glob("*.yaml")), ids=lambda p: p.name)
def test_the_example_fits(path: Path):
    text = path.read_text(encoding="utf-8")
    assert fits(text)
    found = re.match(r"# yaml-language-server: \$schema=(.*)\n", text)
    assert found and (path.parent / found[1]).resolve() == ROOT / "docs/agent.schema.json"


@pytest.mark.parametrize(
    "text",
    [
        "name: a\n",
        "name: 7\nmodel: demo\ndescription: 1.5\n",
        "name: a\nmodel: {type: gemini, name: gemini-2.5-flash}\ntools: [track_shipment]\n",
        "name: a\nmodel: {type: openai, name: x, fallback: [demo, {type: ollama, name: y}]}\n",
        "name: a\ninstruction: {file: x.md}\noutput_schema: {type: object}\n",
        "name: a\noutput_schema: mod.Type\nbefore_model_callbacks: [a.b, {name: c.d, args: {x: 1}}]\n",
        "name: a\ngenerate_content_config: {topP: 0.5, max_output_tokens: 3, thinkingConfig: {thinkingBudget: 1}}\n",
        "agent_class: LoopAgent\nname: a\nmax_iterations: 3\nsub_agents: [{config_path: x.yaml}, {code: a.b}, {name: b}]\n",
        "agent_class: own.Class\nname: a\nwhatever: 3\n",
        "agent_class: RemoteAgent\nname: a\nurl: http://x\nheaders: {A: b}\n",
        "name: a\ntools: [{name: AgentTool, args: {agent: {config_path: x.yaml, skip_summarization: true}}}]\n",
        "name: a\ntools: [{name: McpToolset, args: {stdio_connection_params: {server_params: {command: x, args: [y]}}}}]\n",
        "name: a\ntools: [{name: own.factory, args: {x: [1]}}, {name: pay, require_confirmation: own.when}]\n",
        "name: a\ntools: [{name: ExampleTool, args: {examples: [{input: a, output: [b]}]}}]\n",
        "name: a\napp: {plugins: [LoggingPlugin, own.P], limits: {max_runs: 3}, remember: true, protocols: [rest]}\n",
    ],
)
def test_what_the_loader_takes_fits(text: str):
    assert fits(text)


@pytest.mark.parametrize(
    "text",
    [
        "model: demo\n",
        "name: a\ninstrution: x\n",
        "name: a\nmode: chatty\n",
        "name: a\nmodel: {type: gemni, name: x}\n",
        "name: a\nmodel: {nam: x}\n",
        "name: a\ntools: x\n",
        "name: a\ndisallow_transfer_to_peers: yes\n",
        "agent_class: LoopAgent\nname: a\nmodel: demo\n",
        "agent_class: LoopAgent\nname: a\nmax_iterations: 1.5\n",
        "agent_class: LoopAgnt\nname: a\nmax_iterations: 1\n",
        "name: a\nsub_agents: [{config_path: x, cod: y}]\n",
        "name: a\nsub_agents: [{name: b, instrution: y}]\n",
        "name: a\ntools: [{name: AgentTool, args: {agnt: x}}]\n",
        "name: a\ntools: [{name: McpToolset, args: {stdio_server_params: {command: x, args: [8080]}}}]\n",
        "name: a\ngenerate_content_config: {temprature: 1}\n",
        "name: a\napp: {limits: {max_rans: 3}}\n",
        "name: a\napp: {protocols: rest}\n",
    ],
)
def test_what_the_loader_refuses_by_its_form_does_not_fit(text: str):
    assert not fits(text)


def test_every_key_of_code_has_its_key_in_the_file():
    """A field of an agent class that no key sets would be an option that YAML lacks."""
    renamed: dict[str, str] = {"config": "generate_content_config", "client": ""}
    classes: dict[str, Any] = {name: cls for name, (cls, _) in MAKERS.items()} | {"Workflow": Workflow}
    for name, cls in classes.items():
        keys = set(schema.AGENTS[name].__struct_fields__)
        for field in (one.name for one in dataclasses.fields(cls) if one.init):
            key = renamed.get(field, field)
            assert not key or key in keys or f"{key}_callbacks" in keys, f"{name}.{field}"
