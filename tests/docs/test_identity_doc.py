"""What docs/identity.md shows is run as pasted, and what it names exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from polyport import App, LlmAgent
from polyport.cli.main import main

TEXT = (Path(__file__).resolve().parents[2] / "docs/identity.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[str(n) for n in range(len(BLOCKS))])
def test_python_blocks_run_as_pasted(code: str, tmp_path: Path):
    (tmp_path / "pasted.py").write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, "pasted.py"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_options_and_kinds_that_are_named_exist():
    helped = [CliRunner().invoke(main, words).output for words in (["serve", "--help"], ["auth", "key", "--help"])]
    for option in set(re.findall(r"--[a-z][a-z-]+", TEXT)):
        assert option in "".join(helped), option
    for kind in re.findall(r"`(\w[\w-]*):[A-Z]", TEXT):
        assert f"{kind}:" in helped[0], kind


def test_the_open_routes_are_those_that_are_said_to_be_open():
    routes = App(LlmAgent(name="a", model="demo"), protocols=["rest", "a2a"]).asgi.routes
    said = set(re.findall(r"`(/[a-z-]*)`", TEXT.split("Open to all are only")[1].split(".")[0]))
    assert {r.pattern for r in routes if r.public and "/.well-known/" not in r.pattern} == said
