"""`polyport serve --cluster` and `polyport worker` as real processes: what they say, what they refuse, who carries out what."""

import json
import os
import select
import signal
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.nats import NatsServer
from support.nats import server as nats
from support.processes import PATIENCE_S, Process, Serving

AGENT = '''
import os
from pathlib import Path
import anyio
from polyport import LlmAgent, make_tool

DOOR = Path(__file__).parent / "door"

def process() -> dict:
    """Which process this is."""
    return {"pid": os.getpid()}

async def linger() -> dict:
    """Wait for ever while there is a door, once somebody has read at it which process waits."""
    if DOOR.exists():
        await anyio.to_thread.run_sync(DOOR.write_text, str(os.getpid()))
        await anyio.sleep_forever()
    return {"pid": os.getpid()}

root_agent = LlmAgent(name="bot", model="demo", instruction="Use the tools.",
                      tools=[process, make_tool(linger, idempotent=True)])
'''
OWN = """
from polyport import App
from polyport.cluster import Cluster
works = os.environ.get("ROLE") == "worker"
app = App(root_agent, stores="sqlite:///own.db",
          cluster=Cluster("{url}", prefix="{prefix}", runs="workers", worker=works, lease_s=1))
"""
SECRET = "a secret of the cluster"
SESSION = "/apps/bot/users/u/sessions/s"


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(AGENT)
    return tmp_path / "bot"


@pytest.fixture
def together(bot: Path) -> dict[str, str]:
    """The settings that make processes one cluster."""
    return {
        "POLYPORT_CLUSTER": nats().url,
        "POLYPORT_CLUSTER_PREFIX": nats().new_prefix(),
        "POLYPORT_CLUSTER_LEASE": "1",
        "POLYPORT_DB": f"sqlite:///{bot}/data.db",
        "POLYPORT_SECRET": SECRET,
    }


def message(text: str) -> dict[str, Any]:
    return {"appName": "bot", "userId": "u", "sessionId": "s", "newMessage": {"parts": [{"text": text}]}}


def ask(url: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status, and what the answer is: JSON, or text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if "json" in answer.headers["content-type"] else text
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def pids(events: Any) -> list[int]:
    """Which processes carried out the tools."""
    parts = [part for event in events for part in (event.get("content") or {}).get("parts", ())]
    return [part["functionResponse"]["response"]["pid"] for part in parts if "functionResponse" in part]


def events_of(stream: str) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]


class Worker(Process):
    """`polyport worker ARGS`, once it is at work."""

    def __enter__(self) -> "Worker":
        try:
            self.name = self.says(r"^Polyport works for .* as (\S+)$")[1]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __init__(self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
        super().__init__("worker", *args, cwd=cwd, env=env)


def at_the_door(bot: Path) -> int:
    """Which process came to the door; the next one will find none."""
    door = os.open(bot / "door", os.O_RDONLY | os.O_NONBLOCK)
    try:
        ready, _, _ = select.select([door], [], [], PATIENCE_S)
        assert ready, "nobody came"
        return int(os.read(door, 100))
    finally:
        (bot / "door").unlink()
        os.close(door)


# ---- what they say


def test_a_server_tells_which_cluster_it_joined_under_which_name_and_no_password(bot: Path, together: dict[str, str]):
    with Serving(str(bot), env=together) as serving:
        where, name = serving.says(r"^  cluster +(\S+) as (\S+)$").groups()
        assert where == nats().url and name
        assert ask(serving.url, "/ready")[0] == 200
        serving.signal(signal.SIGTERM)
        assert serving.ended() == 0 and "Traceback" not in serving.said


def test_the_processes_of_one_server_are_replicas_of_a_cluster(bot: Path, together: dict[str, str]):
    with Serving(str(bot), "--workers", "2", env=together) as serving:
        serving.says(r"^  cluster +\S+ as 2 processes$")
        os.mkfifo(bot / "door")
        assert ask(serving.url, SESSION, {})[0] == 200
        status, started = ask(serving.url, "/run?detach=true", message("linger"))
        assert status == 202, started
        run = f"/runs/{started['invocationId']}"
        streams: list[str] = []
        followers = [
            threading.Thread(target=lambda: streams.append(ask(serving.url, f"{run}/events")[1])) for _ in range(8)
        ]
        for follower in followers:
            follower.start()
        assert at_the_door(bot) not in (serving.pid, 0)
        for _ in range(8):  # each on a connection of its own: some go to the other process
            with urllib.request.urlopen(f"{serving.url}{run}/events", timeout=PATIENCE_S) as stream:
                assert b"data: " in next(line for line in stream if line.startswith(b"data: "))
        assert ask(serving.url, f"{run}:cancel", {})[0] == 200
        for follower in followers:
            follower.join(PATIENCE_S)
        told = [[event["id"] for event in events_of(stream) if "id" in event] for stream in streams]
        assert len(told) == 8 and told[0] and all(one == told[0] for one in told)
        serving.signal(signal.SIGTERM)
        assert serving.ended() == 0 and "Traceback" not in serving.said


# ---- what they refuse


@pytest.mark.parametrize(
    ("command", "changed", "told"),
    [
        ("serve", {"POLYPORT_DB": ""}, "--db"),
        ("worker", {"POLYPORT_DB": ""}, "--db"),
        ("serve", {"POLYPORT_SECRET": ""}, "POLYPORT_SECRET"),
        ("worker", {"POLYPORT_SECRET": ""}, "POLYPORT_SECRET"),
        (
            "worker",
            {"POLYPORT_CLUSTER": "", "POLYPORT_CLUSTER_PREFIX": "", "POLYPORT_CLUSTER_LEASE": ""},
            "--cluster nats:",
        ),
        ("serve", {"POLYPORT_CLUSTER": "", "POLYPORT_CLUSTER_RUNS": "workers"}, "add --cluster"),
        ("worker", {"POLYPORT_PUSH": "1"}, "--a2a"),
        ("worker", {"POLYPORT_HEALTH": "here"}, "--health"),
        ("serve", {"POLYPORT_CLUSTER": "redis://me:hunter2@host"}, "nats://"),
        ("serve", {"POLYPORT_CLUSTER": "nats://me:hunter2@127.0.0.1:1"}, "cannot be reached"),
        ("worker", {"POLYPORT_CLUSTER": "nats://me:hunter2@127.0.0.1:1"}, "cannot be reached"),
    ],
)
def test_what_cannot_be_a_cluster_says_what_to_do(
    bot: Path, together: dict[str, str], command: str, changed: dict[str, str], told: str
):
    env = {name: value for name, value in (together | changed).items() if value}
    port = ("--port", "0") if command == "serve" else ()
    with Process(command, str(bot), *port, env=env) as process:
        assert process.ended() == 1
        assert told in process.err.text and "Traceback" not in process.err.text, process.said
        assert "hunter2" not in process.said and process.out.text == ""


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_an_app_with_settings_of_its_own_is_in_a_cluster_by_its_own_word(
    bot: Path, together: dict[str, str], command: str
):
    with (bot / "agent.py").open("a") as file:
        file.write(OWN.format(url=nats().url, prefix="x"))
    del together["POLYPORT_DB"]
    with Process(command, str(bot), cwd=bot, env=together) as process:
        assert process.ended() == 1
        assert "--cluster" in process.err.text and "settings of its own" in process.err.text


# ---- who carries out what


def test_what_a_server_hands_out_a_worker_carries_out_and_tells(bot: Path, together: dict[str, str]):
    with (
        Serving(str(bot), "--cluster-runs", "workers", env=together) as serving,
        Worker(str(bot), env=together) as worker,
    ):
        assert ask(serving.url, SESSION, {})[0] == 200
        status, events = ask(serving.url, "/run", message("process"))
        assert status == 200 and pids(events) == [worker.pid], events
        assert worker.says(rf"run {events[0]['invocationId']} of .*: finished", err=True)


def test_a_run_waits_until_there_is_a_worker(bot: Path, together: dict[str, str]):
    with Serving(str(bot), "--cluster-runs", "workers", env=together) as serving:
        assert ask(serving.url, SESSION, {})[0] == 200
        status, started = ask(serving.url, "/run?detach=true", message("process"))
        assert status == 202
        with Worker(str(bot), env=together) as worker:
            _, stream = ask(serving.url, f"/runs/{started['invocationId']}/events")
            assert pids(events_of(stream)) == [worker.pid]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_T111_the_run_of_a_worker_that_leaves_or_dies_goes_on_in_another_one(
    bot: Path, together: dict[str, str], number: signal.Signals
):
    os.mkfifo(bot / "door")
    with (
        Serving(str(bot), "--cluster-runs", "workers", env=together) as serving,
        Worker(str(bot), "--grace", "0", env=together) as one,
        Worker(str(bot), "--grace", "0", env=together) as two,
    ):
        assert ask(serving.url, SESSION, {})[0] == 200
        status, started = ask(serving.url, "/run?detach=true", message("linger"))
        assert status == 202
        first = at_the_door(bot)
        leaves, stays = (one, two) if first == one.pid else (two, one)
        os.kill(first, number)
        assert leaves.ended() == (0 if number == signal.SIGTERM else -number), leaves.said
        _, stream = ask(serving.url, f"/runs/{started['invocationId']}/events")
        assert pids(events_of(stream)) == [stays.pid], stream
        _, session = ask(serving.url, SESSION)
        assert pids(session["events"]) == [stays.pid]


def test_an_app_of_ones_own_says_itself_whether_it_takes_what_others_hand_out(bot: Path, together: dict[str, str]):
    with (bot / "agent.py").open("a") as file:
        file.write(OWN.format(url=nats().url, prefix=together["POLYPORT_CLUSTER_PREFIX"]))
    env = {"POLYPORT_SECRET": SECRET}
    with (
        Serving(str(bot), cwd=bot, env=env) as serving,
        Worker(str(bot), cwd=bot, env={**env, "ROLE": "worker"}) as worker,
    ):
        assert ask(serving.url, SESSION, {})[0] == 200
        status, events = ask(serving.url, "/run", message("process"))
        assert status == 200 and pids(events) == [worker.pid], events


# ---- probes


def test_a_worker_is_ready_while_its_cluster_can_be_reached(bot: Path, together: dict[str, str]):
    queue = NatsServer()
    try:
        with Worker(str(bot), "--health", "0", env={**together, "POLYPORT_CLUSTER": queue.url}) as worker:
            url = worker.says(r"^  probes +(http://\S+)/health, /ready$")[1]
            assert ask(url, "/ready")[0] == 200
            queue.stop()
            assert ask(url, "/ready")[0] == 503 and ask(url, "/health")[0] == 200
            queue.start()
            assert worker.says("is there again", err=True)
            assert ask(url, "/ready")[0] == 200
    finally:
        queue.close()


def test_a_worker_answers_probes_on_this_machine_and_nothing_else(bot: Path, together: dict[str, str]):
    with Worker(str(bot), "--health", "0", env=together) as worker:
        url = worker.says(r"^  probes +(http://127\.0\.0\.1:\d+)/health, /ready$")[1]
        assert ask(url, "/health")[0] == ask(url, "/ready")[0] == 200
        for path in ("/list-apps", "/docs", "/openapi.json", SESSION):
            assert ask(url, path)[0] == 404
        assert ask(url, "/run", message("hello"))[0] == 404
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0 and "Traceback" not in worker.said
    with Worker(str(bot), env=together) as silent:
        assert "http" not in silent.out.text


BROKEN = """
from polyport import App
app = App(root_agent)
def boom(run):
    raise RuntimeError("boom")
app.runs.on_end(boom)
"""


def test_a_server_whose_app_breaks_down_leaves_so_that_it_is_started_anew(bot: Path):
    with (bot / "agent.py").open("a") as file:
        file.write(BROKEN)
    with Serving(str(bot)) as serving:
        assert ask(serving.url, SESSION, {})[0] == 200
        ask(serving.url, "/run", message("process"))
        assert serving.ended() == 1
        assert "boom" in serving.err.text and "the app has broken down" in serving.err.text


def test_many_runs_at_once_are_each_carried_out_once(bot: Path, together: dict[str, str]):
    """Workers are woken for a run, and look for runs by themselves, at the same moment."""
    sessions, turns = 24, 20
    failed: list[Any] = []

    def talk(number: int) -> None:
        body = {**message("process"), "sessionId": f"s{number}"}
        for _ in range(turns):
            status, events = ask(serving.url, "/run", body)
            if status != 200 or len(pids(events)) != 1:
                failed.append((status, events))

    with (
        Serving(str(bot), "--cluster-runs", "workers", "--log-level", "warning", env=together) as serving,
        Worker(str(bot), "--log-level", "warning", env=together) as one,
        Worker(str(bot), "--log-level", "warning", env=together) as two,
    ):
        for number in range(sessions):
            assert ask(serving.url, f"{SESSION}{number}", {})[0] == 200
        talkers = [threading.Thread(target=talk, args=(number,)) for number in range(sessions)]
        for talker in talkers:
            talker.start()
        for talker in talkers:
            talker.join()
        assert not failed
        assert one.err.text == two.err.text == ""
