"""docs/cluster.md: its commands and blocks are run, its options and numbers are those of the code."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from polyport.cli.deploy_servers import nats_conf
from polyport.cli.main import main
from polyport.cluster.subjects import Subjects
from polyport.data.limits import Limits
from support.nats import free_port
from support.processes import PATIENCE_S, Process

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CONFS = re.findall(r"```nats\n(.*?)```", PAGE, re.DOTALL)
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
NATS = str(Path(sys.executable).parent / "nats-server")


@pytest.mark.parametrize("code", PYTHON)
def test_blocks_of_the_page_on_clusters_run_as_pasted(code: str, tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("conf", CONFS)
def test_nats_takes_the_settings_that_are_shown(conf: str, tmp_path: Path):
    (tmp_path / "nats.conf").write_text(conf)
    env = {**os.environ, "NATS_PASSWORD": "p1"}
    done = subprocess.run([NATS, "-t", "-c", "nats.conf"], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_first_settings_are_those_that_deploy_writes():
    def plain(text: str) -> str:
        return re.sub(r"#.*|[\s,]", "", text)

    assert all(plain(line) in plain(nats_conf()) for line in CONFS[0].splitlines())


def test_the_three_commands_make_a_cluster(tmp_path: Path):
    """As they are pasted, but for ports that are free, and a folder for what NATS keeps."""
    shutil.copytree(ROOT / "examples/weather", tmp_path / "weather")
    port = free_port()
    lines = [shlex.split(line.replace(":4222", f":{port}")) for line in COMMANDS.splitlines()]
    more = {"nats-server": ["-a", "127.0.0.1", "-p", str(port), "-sd", str(tmp_path)], "serve": ["--port", "0"]}
    ready = {
        "nats-server": ("Server is ready", True),
        "serve": ("^Polyport serves", False),
        "worker": ("^Polyport works", False),
    }
    with ExitStack() as stack:
        started: dict[str, Process] = {}
        for program, *words in lines:
            name = program if program != "polyport" else words[0]
            command = {"command": [NATS]} if program == "nats-server" else {}
            env = {"POLYPORT_SECRET": "the same in all processes"}
            process = stack.enter_context(
                Process(*words, *more.get(name, ()), cwd=tmp_path, env=env, **command)  # type: ignore[arg-type]
            )
            pattern, err = ready[name]
            process.says(pattern, err=err)
            started[name] = process
        url = started["serve"].says(r"^Polyport serves .* on (http://\S+)$")[1]
        post(f"{url}/apps/weather/users/u/sessions/s", {})
        said = {"parts": [{"text": "Weather in Rome?"}]}
        events = post(f"{url}/run", {"appName": "weather", "userId": "u", "sessionId": "s", "newMessage": said})
        assert "sunny" in json.dumps(events)
        started["worker"].says(rf"run {events[0]['invocationId']} .* taken up", err=True)
        started["worker"].says(rf"run {events[0]['invocationId']} .*: finished", err=True)


def post(url: str, body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def test_every_option_of_a_cluster_is_told_with_its_variable_and_default():
    for command in ("serve", "worker"):
        for parameter in main.commands[command].params:
            name = parameter.name or ""
            if name.startswith("cluster"):
                row = re.search(
                    rf"^\| `--{name.replace('_', '-')}(?: URL)?` \| `POLYPORT_{name.upper()}` \| (.*) \|$", PAGE, re.M
                )
                assert row and (name == "cluster" or str(parameter.default) in row[1]), name
    assert "--max-runs" in PAGE


def test_its_numbers_and_names_are_those_of_the_code():
    assert f"after {Limits().max_takeovers} takeovers (`Limits.max_takeovers`)" in PAGE
    subjects = Subjects("polyport")
    for stream in (subjects.tickets, subjects.feeds, subjects.signals):
        assert f"`{stream}`" in PAGE
    for target in re.findall(r"\]\(([\w.-]+\.md)\)", PAGE):
        assert (ROOT / "docs" / target).is_file(), target
