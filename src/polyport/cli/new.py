"""`polyport new`: a project that runs without a key and has a test that passes.

With `--yaml` the agent is in a root_agent.yaml, its tool in a tools.py, and the schema for editors lies beside them.
"""

import json
import re
import shlex
from pathlib import Path

from polyport.config.text import readable
from polyport.errors import ConfigError

_TOOL = '''def roll_dice(sides: int = 6) -> dict:
    """Roll one die.

    Args:
        sides: how many sides the die has
    """
    return {"sides": sides, "rolled": random.randint(1, sides)}
'''

_AGENT = '''"""{name}: an agent. Try it with `polyport run {name}`."""

import random

from polyport import LlmAgent


{tool}

# "demo" is an offline model that follows simple rules; no key is needed. For a real one set its key and write, say,
# "gemini-flash-latest", "openai/gpt-5-mini", "anthropic/claude-sonnet-4-5" or "ollama/llama3.2".
root_agent = LlmAgent(
    name="{name}",
    model="demo",
    description="Rolls dice.",
    instruction="You roll dice for the user. Use the tool, never make up a number.",
    tools=[roll_dice],
)
'''

_YAML = """# yaml-language-server: $schema=agent.schema.json
# Try it with `polyport run .`; the schema lets your editor complete and check this file.
name: {name}
# demo is an offline model that follows simple rules; no key is needed. For a real one set its key and write, say,
# gemini-flash-latest, openai/gpt-5-mini, anthropic/claude-sonnet-4-5 or ollama/llama3.2.
model: demo
description: Rolls dice.
instruction: |
  You roll dice for the user. Use the tool, never make up a number.
tools:
  - roll_dice # in tools.py
"""

_TOOLS = '''"""The tools of the agent: a name without dots in root_agent.yaml is looked up here."""

import random


{tool}'''

_YAML_TEST = '''"""The agent calls its tool, whatever the model says about it afterwards."""

from pathlib import Path

from polyport import App
from polyport.config.yaml_agents import load_yaml
from polyport.testing import ScriptedModel, call


def test_rolls_with_the_tool():
    model = ScriptedModel(call("roll_dice", {"sides": 1}), "You rolled a 1.")
    agent = load_yaml(Path(__file__).parent, models={"demo": model})
    reply = App(agent).run_sync("roll a die with one side")
    assert reply.text == "You rolled a 1."
    assert {"sides": 1, "rolled": 1} in [r.response for e in reply.events for r in e.responses]
    model.check()
'''

_TEST = '''"""The agent calls its tool, whatever the model says about it afterwards."""

import dataclasses

from agent import root_agent

from polyport import App
from polyport.testing import ScriptedModel, call


def test_rolls_with_the_tool():
    model = ScriptedModel(call("roll_dice", {"sides": 1}), "You rolled a 1.")
    agent = dataclasses.replace(root_agent, model=model)
    reply = App(agent).run_sync("roll a die with one side")
    assert reply.text == "You rolled a 1."
    assert {"sides": 1, "rolled": 1} in [r.response for e in reply.events for r in e.responses]
    model.check()
'''

_README = """# {name}

    polyport run .        talk to it ("roll a die with 20 sides")
    polyport serve .      serve it on http://127.0.0.1:8000, see /docs there
    polyport check .      see its tools, and what looks wrong
    pytest                test it

The model is `demo`: a few rules that work offline, no language model. For a real one change {where} and put its
key into a file `.env` beside it, which is read first and which git leaves out:

    GEMINI_API_KEY=...
"""


def make_project(name: str, *, as_yaml: bool = False) -> None:
    """Write the project into a new folder `name`, with the agent in Python or in YAML. ConfigError for a bad name or a folder
    that is not empty."""
    folder = Path(name)
    shown = readable(folder.resolve().name)
    agent = shown.replace("-", "_")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", agent) or agent == "user":
        raise ConfigError(f"{shown!r} cannot be an agent's name: use letters, digits and _, starting with a letter")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{readable(name)} exists already and is not empty")
    files = _yaml_files(agent) if as_yaml else _python_files(agent)
    where = "`model:` in root_agent.yaml" if as_yaml else "`model=` in agent.py"
    files["README.md"] = _README.format(name=agent, where=where)
    files[".gitignore"] = ".env\n__pycache__/\n*.db*\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {readable(name)}: {error.strerror or error}") from None
    print(f"Made {readable(name)} with {', '.join(files)}.\n\nNext:")
    for command in ("run", "serve", "check"):
        print(f"  polyport {command} {shlex.quote(readable(name))}")


def _python_files(agent: str) -> dict[str, str]:
    return {"agent.py": _AGENT.format(name=agent, tool=_TOOL), "test_agent.py": _TEST}


def _yaml_files(agent: str) -> dict[str, str]:
    from polyport.config.json_schema import json_schema  # needed by this choice only

    return {
        "root_agent.yaml": _YAML.format(name=agent),
        "tools.py": _TOOLS.format(tool=_TOOL),
        "test_agent.py": _YAML_TEST,
        "agent.schema.json": json.dumps(json_schema(), indent=2) + "\n",
    }
