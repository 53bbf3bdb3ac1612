"""What `polyport deploy compose --cluster` wrote, run for real: its NATS configuration and commands as processes, on a real
PostgreSQL. Only addresses differ, for there are no containers here."""

import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from click.testing import CliRunner

from polyport.cli.main import main
from support.nats import free_port
from support.postgres import server
from support.processes import PATIENCE_S, Process, Serving

AGENT = '''
import os
from pathlib import Path
from polyport import LlmAgent

def process() -> dict:
    """Which process this is."""
    return {"pid": os.getpid()}

root_agent = LlmAgent(name="weather", model="demo", instruction="Use the tool.", tools=[process])
'''
KEYS = ("--auth", "keys-env:POLYPORT_KEYS")


class Composed(NamedTuple):
    """The services of the compose file, and the values of its variables."""

    services: dict[str, Any]
    values: dict[str, str]
    folder: Path
    key: str

    def environment(self, service: str, nats: str = "") -> dict[str, str]:
        """What compose tells a service, but for the addresses of the others."""
        told = {
            name: re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: self.values[found[1]], value)
            for name, value in self.services[service]["environment"].items()
        }
        if "POLYPORT_CLUSTER" in told:
            assert "@nats:4222" in told["POLYPORT_CLUSTER"] and "@postgres:5432/" in told["POLYPORT_DB"]
            told["POLYPORT_CLUSTER"] = told["POLYPORT_CLUSTER"].replace("nats:4222", nats)
            told["POLYPORT_DB"] = self.values["POLYPORT_DB"]
        return told


@pytest.fixture
def composed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Composed:
    (tmp_path / "weather").mkdir()
    (tmp_path / "weather/agent.py").write_text(AGENT)
    for name in [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("POLYPORT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["deploy", "compose", "weather", *KEYS, "--cluster"])
    assert result.exit_code == 0, result.output
    with Process("auth", "key", "--user", "ann") as made:
        assert made.ended() == 0
        key, line = made.out.text.strip(), made.err.text.strip().splitlines()[-1]
    values = {"POLYPORT_SECRET": "s" * 32, "POLYPORT_KEYS": line, "POSTGRES_PASSWORD": "p1", "NATS_PASSWORD": "p2"}
    values["POLYPORT_DB"] = server().url(server().new_database())
    services = yaml.safe_load((tmp_path / "deploy/compose.yaml").read_text())["services"]
    return Composed(services, values, tmp_path, key)


@pytest.fixture
def nats(composed: Composed) -> Iterator[tuple[str, str]]:
    """Where the NATS server of the compose file listens, and where its probe asks."""
    service, folder = composed.services["nats"], composed.folder
    program, *words = service["command"]
    conf, kept = (volume.split(":") for volume in sorted(service["volumes"]))
    places = {conf[1]: str(folder / "deploy" / conf[0]), kept[1]: str(folder / "kept")}
    found = [str(Path(sys.executable).parent / program)]
    ports = [free_port(), free_port()]
    free = ["-a", "127.0.0.1", "-p", str(ports[0]), "-m", str(ports[1])]
    words = [places.get(word, word) for word in words]
    with Process(*words, *free, command=found, env=composed.environment("nats")) as process:
        process.says("Server is ready", err=True)
        yield f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"


def ask(url: str, key: str, body: Any = None, path: str = "") -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", "x-api-key": key}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_run_goes_from_a_server_to_a_worker_as_composed(composed: Composed, nats: tuple[str, str]):
    place, monitoring = nats
    probe = composed.services["nats"]["healthcheck"]["test"][-1]
    assert ask(probe.replace("http://127.0.0.1:8222", monitoring), "")[0] == 200
    command = composed.services["weather-worker"]["command"]
    with (
        serving(composed, place) as web,
        working(composed, place, *command[1:]) as worker,
    ):
        address = worker.says(r"probes +(http://\S+)/health")[1]
        assert ask(address, "", path="/ready")[0] == ask(address, "", path="/health")[0] == 200
        assert ask(address, composed.key, path="/list-apps")[0] == 404
        assert ask(web.url, composed.key, path="/ready")[0] == 200
        assert ask(web.url, composed.key, {}, "/apps/weather/users/ann/sessions/s")[0] == 200
        body = {"appName": "weather", "userId": "ann", "sessionId": "s", "newMessage": {"parts": [{"text": "process"}]}}
        status, events = ask(web.url, composed.key, body, "/run")
        assert status == 200, events
        assert pids(events) == [worker.pid]
        worker.says(rf"run {events[0]['invocationId']} of .*: finished", err=True)
        for process in (worker, web):
            process.signal(signal.SIGTERM)
            assert process.ended() == 0, process.said
        for process in (web, worker):
            assert not any(secret in process.said for secret in ("p2@", ":p2", "s" * 32)), "no password is told"


def test_who_does_not_know_the_password_does_not_get_in(composed: Composed, nats: tuple[str, str]):
    composed.values["NATS_PASSWORD"] = "hunter2"
    with working(composed, nats[0], *composed.services["weather-worker"]["command"][1:]) as worker:
        assert worker.ended() == 1
        assert "cannot be reached" in worker.err.text and "hunter2" not in worker.said


def serving(composed: Composed, nats: str) -> Serving:
    """As the image runs it."""
    run = next(
        line for line in (composed.folder / "deploy/Dockerfile").read_text().splitlines() if line.startswith("CMD")
    )
    words = json.loads(run.removeprefix("CMD "))
    assert words[:2] == ["polyport", "serve"]
    return Serving(*words[2:], cwd=composed.folder, env=composed.environment("weather", nats))


def working(composed: Composed, nats: str, *words: str) -> Process:
    here = [word.replace("0.0.0.0:8000", "127.0.0.1:0") for word in words]
    return Process(*here, cwd=composed.folder, env=composed.environment("weather-worker", nats))


def pids(events: list[Any]) -> list[int]:
    parts = [part for event in events for part in (event.get("content") or {}).get("parts", ())]
    return [part["functionResponse"]["response"]["pid"] for part in parts if "functionResponse" in part]
