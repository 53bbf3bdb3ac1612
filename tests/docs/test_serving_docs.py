"""docs/serving.md and docs/deployment.md, and all options that any document names, against what the commands take (FR-235)."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from polyport.cli.main import main
from polyport.cli.served import KNOWN

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    path.name: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
SERVING, DEPLOYMENT = PAGES["serving.md"], PAGES["deployment.md"]
BLOCKS = re.findall(r"```python\n(.*?)```", SERVING + DEPLOYMENT, re.DOTALL)


def options(command: click.Command) -> set[str]:
    names = {name for p in command.params if isinstance(p, click.Option) for name in (*p.opts, *p.secondary_opts)}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return names.union({"--help"}, *map(options, inner))


COMMANDS = {name: options(command) for name, command in main.commands.items()}


@pytest.mark.parametrize("code", BLOCKS)
def test_blocks_run_as_pasted(code: str, tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", sorted(PAGES))
def test_FR_235_options_that_are_shown_exist(page: str):
    """Whole commands take all their options; an option that stands alone is one of any command."""
    text = PAGES[page]
    for name, rest in re.findall(r"polyport (\w+)((?: [^\n`#]*)?)", text):
        if name in COMMANDS:
            given = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", rest))
            assert given <= COMMANDS[name], f"polyport {name} {rest}"
    if page in ("serving.md", "deployment.md"):
        every = set().union(*COMMANDS.values(), {"--no-deps", "--scale", "--replicas"})  # of pip, docker and kubectl
        assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) <= every


def test_every_protocol_and_its_options_are_told():
    for known in KNOWN:
        assert f"`{known.flag}" in SERVING, known.flag
    for flag in (
        "--prefix",
        "--allowed-hosts",
        "--allowed-origins",
        "--trusted-proxy",
        "--insecure",
        "--workers",
        "--grace",
    ):
        assert flag in SERVING, flag


def test_every_option_of_deploy_is_told():
    told = {option for option in COMMANDS["deploy"] if option.startswith("--")} - {
        "--help",
        "--name",
        "--trusted-proxy-cidr",
    }
    assert not [option for option in told if option not in DEPLOYMENT]


def test_every_variable_is_an_option_of_serve_or_known():
    serve = {parameter.name for parameter in main.commands["serve"].params}
    for variable in re.findall(r"POLYPORT_([A-Z0-9_]+)", SERVING + DEPLOYMENT):
        assert variable.lower() in serve or variable in ("SECRET", "KEYS"), variable


def test_every_link_leads_somewhere():
    for text in (SERVING, DEPLOYMENT):
        for target in re.findall(r"\]\(([\w.-]+\.md)\)", text):
            assert (ROOT / "docs" / target).is_file(), target
