"""What docs/yaml.md shows is loaded as it stands there, and what it says of keys and tools is all there is."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from polyport import App
from polyport.config import schema
from polyport.config.json_schema import json_schema
from polyport.config.schema_tools import TOOLS
from polyport.config.yaml_agents import load_yaml
from polyport.config.yaml_text import Problems, read_text
from polyport.testing import ScriptedModel
from polyport.tools.builtin import BUILTIN
from support.projects import clean_process, write

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "yaml.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
FILES: dict[str, str | bytes] = {
    "research.md": "Research.\n",
    "tools.py": """
        def track_shipment(id: str) -> str:
            '''Track.'''
            return id
        def look_up(word: str) -> str:
            '''Look up.'''
            return word
        def pay(amount: int) -> str:
            '''Pay.'''
            return ""
        def is_large(amount):
            return amount > 100
        """,
    "checks.py": "def no_secrets(ctx, response): ...\n",
    "flows.py": "def classify(text: str): ...\ndef file_it(text: str): ...\n",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with clean_process():
        yield tmp_path


@pytest.mark.parametrize("text", BLOCKS, ids=range(len(BLOCKS)))
def test_every_file_loads_and_fits_the_schema(text: str):
    write({**FILES, "root_agent.yaml": text})
    found = load_yaml(".", models={"gemini-2.5-flash": ScriptedModel()})
    assert isinstance(found, App) or App(found)
    node = read_text(text, "f.yaml", Problems())
    assert node is not None
    jsonschema.Draft7Validator(json_schema()).validate(node.value())


def test_the_python_runs_as_pasted(here: Path):
    write({**{f"my_agent/{name}": text for name, text in FILES.items()}, "my_agent/root_agent.yaml": BLOCKS[0]})
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (here / "pasted.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "pasted.py"], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert done.stdout == "It is in Oslo.\n", done.stderr


def test_every_key_and_tool_is_named():
    sections = {**schema.AGENTS, **schema.NODES, **TOOLS, "app": schema.AppSection}
    for name, section in sections.items():
        assert f"`{name}`" in TEXT or name in ("MCPToolset", "app"), name
        for key in section.__struct_fields__:
            hidden = key in ("node", "wait_for_output", "stdio_server_params") or name == "MCPToolset"
            assert hidden or re.search(rf"\b{key}\b", TEXT), f"{name}.{key}"
    for name in BUILTIN:
        assert f"`{name}`" in TEXT, name


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (DOCS / target).exists(), target
