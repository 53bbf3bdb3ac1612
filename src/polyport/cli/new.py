"""`polyport new`: a project that runs without a key and has a test that passes."""

import re
import shlex
from pathlib import Path

from polyport.config.text import readable
from polyport.errors import ConfigError

_AGENT = '''"""{name}: an agent. Try it with `polyport run {name}`."""

import random

from polyport import LlmAgent


def roll_dice(sides: int = 6) -> dict:
    """Roll one die.

    Args:
        sides: how many sides the die has
    """
    return {{"sides": sides, "rolled": random.randint(1, sides)}}


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

The model is `demo`: a few rules that work offline, no language model. For a real one change `model=` in agent.py and put its
key into a file `.env` beside it, which is read first and which git leaves out:

    GEMINI_API_KEY=...
"""


def make_project(name: str) -> None:
    """Write the project into a new folder `name`. ConfigError for a bad name or a folder that is not empty."""
    folder = Path(name)
    shown = readable(folder.resolve().name)
    agent = shown.replace("-", "_")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", agent) or agent == "user":
        raise ConfigError(f"{shown!r} cannot be an agent's name: use letters, digits and _, starting with a letter")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{readable(name)} exists already and is not empty")
    files = {
        "agent.py": _AGENT.format(name=agent),
        "test_agent.py": _TEST,
        "README.md": _README.format(name=agent),
        ".gitignore": ".env\n__pycache__/\n*.db*\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {readable(name)}: {error.strerror or error}") from None
    print(f"Made {readable(name)} with {', '.join(files)}.\n\nNext:")
    for command in ("run", "serve", "check"):
        print(f"  polyport {command} {shlex.quote(readable(name))}")
