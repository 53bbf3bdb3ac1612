"""Everything that the README shows is run as pasted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_it_begins_with_the_two_commands():
    assert README.split("\n")[2].strip().startswith("make run")
    assert README.split("\n")[3].strip().startswith("make test")


@pytest.mark.parametrize("code", BLOCKS, ids=[str(n) for n in range(len(BLOCKS))])
def test_python_blocks_run_as_pasted(code: str, tmp_path: Path):
    file = tmp_path / "pasted.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_the_hello_world_is_short_and_answers(tmp_path: Path):
    hello = BLOCKS[0]
    assert len([line for line in hello.split("\n") if line.strip()]) <= 10
    (tmp_path / "hello.py").write_text(hello, encoding="utf-8")
    done = subprocess.run([sys.executable, "hello.py"], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "Paris" in done.stdout and "18" in done.stdout


def test_polyport_run_takes_the_hello_world(tmp_path: Path):
    (tmp_path / "hello.py").write_text(BLOCKS[0], encoding="utf-8")
    words = [sys.executable, "-m", "polyport.cli.main", "run", "hello.py", "--once", "Weather in Rome?"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=True, env=dict(os.environ))
    assert "Rome" in done.stdout


def test_every_route_of_the_server_is_named():
    from polyport import App, LlmAgent

    for route in App(LlmAgent(name="a", model="demo")).asgi.routes:
        stem = route.pattern.split("{")[0].rstrip("/")
        assert stem in README or "artifacts" in route.pattern, route.pattern


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_options_that_the_readme_names_exist():
    from click.testing import CliRunner

    from polyport.cli.main import main

    texts = "".join(CliRunner().invoke(main, [name, "--help"]).output for name in ("run", "serve", "new", "check"))
    for option in set(re.findall(r"--[a-z][a-z-]+", README)):
        assert option in texts, option
