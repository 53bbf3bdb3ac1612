"""The documents of Agent Engine and triggers: what they show runs, and what they name is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from polyport import App, LlmAgent
from polyport.protocols.agent_engine import AgentEngine, class_methods
from polyport.protocols.triggers import Triggers

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXTS = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("agent-engine", "triggers")}
BLOCKS = [(name, code) for name, text in TEXTS.items() for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


@pytest.mark.parametrize(("name", "code"), BLOCKS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(BLOCKS)])
def test_blocks_run_as_pasted(name: str, code: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_every_method_of_agent_engine_is_named() -> None:
    for method in class_methods():
        assert f"`{method['name']}`" in TEXTS["agent-engine"]


def test_every_route_is_named() -> None:
    protocols = [AgentEngine(), Triggers()]
    for route in App(LlmAgent(name="a", model="demo"), protocols=protocols).asgi.routes:
        last = route.pattern.rpartition("/")[2].replace("{letter}", "{id}")
        assert any(last in text for text in TEXTS.values()), route.pattern


def test_every_setting_is_named() -> None:
    for name in Triggers.__dataclass_fields__.keys() - {"sources", "store"}:
        assert name in TEXTS["triggers"], name
    for name in AgentEngine.__dataclass_fields__.keys() - {"app"}:
        assert name in TEXTS["agent-engine"], name
