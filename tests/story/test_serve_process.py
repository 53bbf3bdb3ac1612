"""`polyport serve` as real processes: where it listens, how it stops, what survives a kill, several workers."""

import json
import os
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import anyio
import pytest

from support.processes import COMMAND, PATIENCE_S, Lines, Process, Serving, environment, process_ended

AGENT = '''
from pathlib import Path
import os, socket, anyio
from polyport import LlmAgent

def block() -> dict:
    """Block a thread until somebody at the door says something."""
    port = int((Path(__file__).parent / "door").read_text())
    with socket.create_connection(("127.0.0.1", port)) as door:
        return {"got": door.recv(100).decode()}

async def linger() -> dict:
    """Wait for ever."""
    await anyio.sleep_forever()

def process() -> dict:
    """Which process this is."""
    return {"pid": os.getpid()}

root_agent = LlmAgent(name="bot", model="demo", instruction="Use the tools.", tools=[block, linger, process])
'''
SESSION = "/apps/bot/users/u/sessions/"


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(AGENT)
    return tmp_path / "bot"


class Blocked(NamedTuple):
    """A run whose tool blocks a thread now, and the way to free it."""

    run: "Background"
    door: socket.socket

    def free(self) -> None:
        self.door.sendall(b"free")


Block = Callable[["Serving"], Blocked]


@pytest.fixture
def block(bot: Path) -> Iterator[Block]:
    """`block(serving)` starts such a run in session s; it returns once the tool is in its thread."""
    doors: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        (bot / "door").write_text(str(listener.getsockname()[1]))

        def begin(serving: Serving) -> Blocked:
            create(serving, "s")
            run = Background(serving, "/run_sse", message("s", "block"))
            doors.append(listener.accept()[0])
            return Blocked(run, doors[-1])

        yield begin
        for door in doors:
            door.close()


def ask(serving: Serving, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of one request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(serving.url + path, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read() or "null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def message(session: str, text: str, **more: Any) -> dict[str, Any]:
    return {"appName": "bot", "userId": "u", "sessionId": session, "newMessage": {"parts": [{"text": text}]}, **more}


def create(serving: Serving, session: str) -> None:
    assert ask(serving, "POST", SESSION + session)[0] == 200


class Background:
    """A request in a thread of its own."""

    def __init__(self, serving: Serving, path: str, body: Any) -> None:
        self.lines: list[str] = []
        self.error: Exception | None = None
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(serving, path, body))
        self._thread.start()

    def _run(self, serving: Serving, path: str, body: Any) -> None:
        request = urllib.request.Request(
            serving.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                for line in response:
                    with self._news:
                        self.lines.append(line.decode().rstrip("\n"))
                        self._news.notify_all()
        except (OSError, urllib.error.URLError) as error:
            self.error = error

    def until(self, text: str) -> None:
        """Wait until a line with this text has come."""
        with self._news:
            assert self._news.wait_for(lambda: any(text in line for line in self.lines), 60), self.lines

    def result(self) -> str:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return "\n".join(self.lines)


# ---- where it listens


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's table of sockets")
def test_FR_195_it_listens_on_loopback_only(bot: Path):
    with Serving(str(bot)) as serving:
        assert "127.0.0.1" in serving.url
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [row[1] for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == serving.port]
        assert listening == [f"0100007F:{serving.port:04X}"]
        assert not serving.err.find("everybody")


def test_FR_195_to_listen_on_all_addresses_without_authentication_is_refused(bot: Path):
    with Process("serve", str(bot), "--host", "0.0.0.0", "--port", "0") as process:
        assert process.ended() == 1
        assert "--auth" in process.err.text and "--insecure" in process.err.text and not process.out.text


def test_FR_195_to_do_so_all_the_same_warns(bot: Path):
    with Serving(str(bot), "--host", "0.0.0.0", "--insecure") as serving:
        assert serving.says("without authentication: everybody", err=True)
        assert serving.url.startswith("http://0.0.0.0:")
        assert serving.says("curl .*http://127.0.0.1:")


def test_it_listens_on_an_address_of_version_6(bot: Path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with Serving(str(bot), "--host", "::1") as serving:
        assert serving.url.startswith("http://[::1]:")
        assert ask(serving, "GET", "/health")[0] == 200
        assert not serving.err.find("everybody")


def test_it_serves_on_though_nobody_reads_its_banner(bot: Path):
    reader, writer = os.pipe()
    os.close(reader)
    args = ["serve", str(bot), "--host", "0.0.0.0", "--insecure", "--port", "0"]
    with subprocess.Popen([*COMMAND, *args], stdout=writer, stderr=subprocess.PIPE, env=environment()) as popen:
        os.close(writer)
        assert popen.stderr
        err = Lines(popen.stderr)
        try:
            assert err.wait_for("without authentication"), err.text  # said after the banner
            popen.terminate()
            assert popen.wait(PATIENCE_S) == 0
        finally:
            popen.kill()
        err.join()
        assert "Traceback" not in err.text and "BrokenPipe" not in err.text


def test_several_agents_are_named_in_the_banner(bot: Path):
    with Serving(str(bot), "examples/weather", cwd=Path(__file__).parents[2]) as serving:
        assert serving.says("^Polyport serves bot, weather on ")
        assert ask(serving, "GET", "/list-apps") == (200, ["bot", "weather"])


def test_the_first_request_of_the_banner_works(bot: Path):
    with Serving(str(bot)) as serving:
        lines = [serving.says(r"^  curl -X POST (\S+)")[1], serving.says(r"^  curl (\S+)/run -H .* -d '(.*)'$")]
        assert ask(serving, "POST", str(lines[0]).removeprefix(serving.url))[0] == 200
        status, events = ask(serving, "POST", "/run", json.loads(lines[1][2]))
        assert status == 200 and events


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nowhere"], "'nowhere' is not a folder"),
        (["{bot}", "--insecure", "--host", "not.a.host.invalid"], "--host takes"),
        (["{bot}", "--insecure", "--host", "203.0.113.77"], "cannot listen on 203.0.113.77"),
        (["{bot}", "--workers", "2"], "--db sqlite:///data.db"),
        (["{bot}", "--db", "mysql://u:geheim@h/d"], "no session store is known"),
        (["{bot}", "--db", "sqlite:////proc/nothing/x.db"], "/proc/nothing"),
        (["{bot}", "--sse-timeout", "soon"], "--sse-timeout"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_exit_code_1_or_2(bot: Path, args: list[str], told: str):
    with Process("serve", *[a.format(bot=bot) for a in args], "--port", "0") as process:
        assert process.ended() == (2 if "soon" in args else 1)
        assert told in process.err.text
        assert "Traceback" not in process.err.text and "geheim" not in process.err.text
        assert process.out.text == ""


def test_a_port_in_use_is_one_line_and_exit_code_1(bot: Path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with Process("serve", str(bot), "--port", port) as process:
            assert process.ended() == 1
            assert process.err.text.startswith(f"Error: cannot listen on 127.0.0.1:{port}")
            assert len(process.err.text.splitlines()) == 1
            assert process.out.text == ""


def test_two_servers_do_not_share_a_port(bot: Path):
    with Serving(str(bot)) as serving, Process("serve", str(bot), "--port", str(serving.port)) as second:
        assert second.ended() == 1
        assert "choose another port with --port" in second.err.text


OWN_APP = """
app = App(root_agent, limits=Limits(on_busy="reject", shutdown_s=0.0), guard={guard})
"""
IMPORTS = (
    "from polyport import App\nfrom polyport.data.limits import Limits\nfrom polyport.protocols.guard import Guard\n"
)


def test_an_app_of_ones_own_keeps_its_settings(bot: Path):
    own = OWN_APP.format(guard="Guard(['own.test'])")
    (bot / "agent.py").write_text(IMPORTS + AGENT + own)
    for flags in (["--grace", "3"], ["--on-busy", "queue"], ["--allowed-hosts", "x.test"], ["--db", "sqlite:///x.db"]):
        with Process("serve", str(bot), *flags, "--port", "0", cwd=bot) as process:
            assert process.ended() == 1
            assert f"remove {flags[0]}" in process.err.text
    with Serving(str(bot)) as serving:
        status = [head(serving, host) for host in ("own.test", "localhost", "other.test")]
        assert status == [200, 200, 403]
        create(serving, "s")
        run = Background(serving, "/run_sse", message("s", "linger"))
        run.until("functionCall")
        assert ask(serving, "POST", "/run", message("s", "hello"))[0] == 409
        serving.signal(signal.SIGTERM)
        assert "shutting down" in run.result() and serving.ended() == 0


def test_an_app_without_a_guard_gets_that_of_the_command(bot: Path):
    (bot / "agent.py").write_text(IMPORTS + AGENT + OWN_APP.format(guard="None"))
    with Serving(str(bot), "--allowed-hosts", "own.test") as serving:
        assert [head(serving, host) for host in ("own.test", "other.test")] == [200, 403]


def head(serving: Serving, host: str) -> int:
    """The status of a request with this Host."""
    request = urllib.request.Request(serving.url + "/list-apps", headers={"host": host})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


# ---- while it serves


def test_requests_are_logged_with_their_runs(bot: Path):
    with Serving(str(bot)) as serving:
        create(serving, "s")
        _, events = ask(serving, "POST", "/run", message("s", "hello"))
        assert serving.says(rf"POST /run 200 .* request=\S+ run={events[0]['invocationId']}", err=True)


def test_json_logs_are_one_object_a_line_and_say_the_parts_of_a_request(bot: Path):
    with Serving(str(bot), "--log-format", "json") as serving:
        create(serving, "s")
        _, events = ask(serving, "POST", "/run", message("s", "hello"))
        assert ask(serving, "GET", "/nothing")[0] == 404
        serving.says("GET /nothing 404", err=True)
        serving.signal(signal.SIGTERM)
        assert serving.ended() == 0
        lines = [json.loads(line) for line in serving.err.text.splitlines()]
        assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
        run, nothing = [line for line in lines if line.get("path") in ("/run", "/nothing")]
        assert (run["method"], run["status"], run["run"]) == ("POST", 200, events[0]["invocationId"])
        assert run["ms"] > 0 and run["request"]
        assert nothing["status"] == 404 and "run" not in nothing


def test_log_level_warning_is_quiet(bot: Path):
    with Serving(str(bot), "--log-level", "warning") as serving:
        assert ask(serving, "GET", "/health")[0] == 200
        serving.signal(signal.SIGTERM)
        assert serving.ended() == 0
        assert serving.err.text == ""


def test_a_refused_handshake_and_an_offered_upgrade_make_no_noise(bot: Path):
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    asked = [
        (f"GET /nope HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{key}\r\n", b" 404 "),
        (f"GET /nope HTTP/1.1\r\nHost: evil.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{key}\r\n", b" 403 "),
        ("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", b" 200 "),
    ]
    with Serving(str(bot), "--log-level", "warning") as serving:
        for text, status in asked:
            with socket.create_connection(("127.0.0.1", serving.port), timeout=60) as peer:
                peer.sendall(text.encode())
                assert status in peer.recv(4096).partition(b"\r\n")[0]
        serving.signal(signal.SIGTERM)
        assert serving.ended() == 0
        assert "uvicorn" not in serving.err.text
        assert "refused Host" in serving.err.text


def test_FR_057_a_blocking_tool_blocks_nobody_else(bot: Path, block: Block):
    with Serving(str(bot)) as serving:
        blocked = block(serving)
        assert ask(serving, "GET", "/health")[0] == 200
        create(serving, "other")
        status, events = ask(serving, "POST", "/run", message("other", "process"))
        assert status == 200 and "pid" in json.dumps(events)
        blocked.free()
        assert "free" in blocked.run.result()


def test_FR_233_a_bare_locale_serves_unicode(tmp_path: Path):
    folder = tmp_path / "wetter größe 天气"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT.replace('name="bot"', 'name="größe"'), encoding="utf-8")
    (folder / ".env").write_text("GRÜN=grün\n", encoding="utf-8")
    env = {"PYTHONUTF8": "0", "LC_ALL": "C", "LANG": "C"}
    args = [str(folder), "--db", f"sqlite:///{folder}/größe.db"]
    with Serving(*args, env=env) as serving:
        assert serving.says("^Polyport serves wetter größe 天气 on")
        assert ask(serving, "GET", "/list-apps") == (200, ["wetter größe 天气"])
        path = "/apps/wetter%20gr%C3%B6%C3%9Fe%20%E5%A4%A9%E6%B0%94/users/u/sessions/s"
        assert ask(serving, "POST", path)[0] == 200
        body = {**message("s", "你好 🌦"), "appName": "wetter größe 天气"}
        status, events = ask(serving, "POST", "/run", body)
        assert status == 200 and "你好 🌦" in json.dumps(events, ensure_ascii=False)
        assert (folder / "größe.db").exists()


@pytest.mark.parametrize("flags", [[], ["--db", "sqlite:///x.db"]])
def test_what_is_not_needed_is_not_imported(bot: Path, flags: list[str]):
    (bot / "agent.py").write_text(
        AGENT
        + "\ndef loaded() -> dict:\n    'Loaded modules.'\n    import sys\n    return {'names': list(sys.modules)}\n"
        "root_agent = LlmAgent(name='bot', model='demo', tools=[loaded])\n"
    )
    with Serving(str(bot), *flags, cwd=bot) as serving:
        create(serving, "s")
        _, events = ask(serving, "POST", "/run", message("s", "loaded modules"))
        names = next(p["functionResponse"] for e in events for p in e["content"]["parts"] if "functionResponse" in p)
        heavy = {
            "aiohttp",
            "mcp",
            "openai",
            "websockets",
            "yaml",
            "pydantic",
            "h11",
            "starlette",
            "polyport.testing",
            "unittest",
        }
        assert not heavy & set(names["response"]["names"])
        assert "polyport.cli.serve" in names["response"]["names"]


# ---- how it stops


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_stops_with_exit_code_0(bot: Path, number: int):
    with Serving(str(bot), "--db", f"sqlite:///{bot}/x.db") as serving:
        assert ask(serving, "GET", "/ready")[0] == 200
        serving.signal(number)
        assert serving.ended() == 0
        assert "Traceback" not in serving.err.text and "stopped" in serving.err.text


def test_what_fails_at_the_start_or_at_the_end_is_exit_code_1(bot: Path):
    parts = "class Bad(MemorySessions):\n    async def {method}(self): raise ConnectionError('the database is down')\n"
    imports = "from polyport import App, Stores\nfrom polyport.stores.memory import MemoryArtifacts, MemorySessions\n"
    made = "app = App(root_agent, stores=Stores(Bad(), MemoryArtifacts()))\n"
    (bot / "agent.py").write_text(imports + AGENT + parts.format(method="ping") + made)
    with Process("serve", str(bot), "--port", "0") as process:
        assert process.ended() == 1
        assert "the database is down" in process.err.text and "Traceback" not in process.err.text
        assert process.out.text == ""
    (bot / "agent.py").write_text(imports + AGENT + parts.format(method="aclose") + made)
    with Serving(str(bot)) as serving:
        serving.signal(signal.SIGTERM)
        assert serving.ended() == 1
        assert "the database is down" in serving.err.text and "Traceback" not in serving.err.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_runs_in_progress_may_end(bot: Path, block: Block, number: int):
    with Serving(str(bot), "--grace", "300") as serving:
        blocked = block(serving)
        serving.signal(number)
        serving.says("300 s for 1 run to end", err=True)
        blocked.free()
        told = blocked.run.result()
        assert "free" in told and "event: error" not in told
        assert serving.ended() == 0


def test_what_does_not_end_in_time_is_told_why(bot: Path):
    with Serving(str(bot), "--grace", "0") as serving:
        create(serving, "s")
        run = Background(serving, "/run_sse", message("s", "linger"))
        run.until("functionCall")
        serving.signal(signal.SIGTERM)
        told = run.result()
        assert run.error is None
        assert "event: error" in told and "the server is shutting down" in told
        assert serving.ended() == 0
        assert "Traceback" not in serving.err.text


def test_a_thread_that_never_ends_does_not_keep_the_process(bot: Path, block: Block):
    with Serving(str(bot), "--grace", "0") as serving:
        blocked = block(serving)
        serving.signal(signal.SIGTERM)
        assert "the server is shutting down" in blocked.run.result()
        assert serving.ended() == 0
        assert "leaving without the end of 1 call in threads" in serving.err.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(bot: Path, block: Block, number: int):
    with Serving(str(bot), "--grace", "300") as serving:
        blocked = block(serving)
        serving.signal(signal.SIGTERM)
        serving.says("a second signal ends at once", err=True)
        serving.signal(number)
        assert serving.ended() == -number
        blocked.run.result()


# ---- several processes


def pids(serving: Serving, count: int) -> set[int]:
    """The worker processes, once requests were answered by so many of them."""
    found: set[int] = set()

    async def one(session: aiohttp.ClientSession, n: int) -> None:
        async with session.post(f"{serving.url}{SESSION}p{n}") as response:
            await response.read()
        async with session.post(f"{serving.url}/run", json=message(f"p{n}", "process")) as response:
            events = await response.json()
            parts = [p for e in events for p in e["content"]["parts"] if "functionResponse" in p]
            found.add(parts[0]["functionResponse"]["response"]["pid"])

    async def ask_around() -> None:
        with anyio.fail_after(60):
            round = 0
            while len(found) < count:
                connector = aiohttp.TCPConnector(limit=0, force_close=True)
                async with aiohttp.ClientSession(connector=connector) as session, anyio.create_task_group() as group:
                    for n in range(8):
                        group.start_soon(one, session, round * 8 + n)
                round += 1

    anyio.run(ask_around)
    return found


@pytest.fixture
def db(tmp_path: Path) -> list[str]:
    return ["--db", f"sqlite:///{tmp_path}/sessions.db"]


def test_two_workers_serve_the_same_sessions_and_stop_together(bot: Path, db: list[str]):
    with Serving(str(bot), "--workers", "2", *db) as serving:
        workers = pids(serving, 2)
        assert len(workers) == 2 and serving.pid not in workers
        create(serving, "shared")
        seen: list[str] = []
        for _ in range(6):
            status, events = ask(serving, "POST", "/run", message("shared", "process"))
            assert status == 200
            seen += [e["id"] for e in events]
        status, session = ask(serving, "GET", SESSION + "shared")
        assert status == 200 and [e["id"] for e in session["events"] if e["author"] != "user"] == seen
        serving.signal(signal.SIGTERM)
        assert serving.ended() == 0
        assert all(process_ended(pid) for pid in workers)
        assert "Traceback" not in serving.err.text


def test_ctrl_c_reaches_all_processes_and_stops_them_once(bot: Path, db: list[str]):
    with Serving(str(bot), "--workers", "2", *db) as serving:
        workers = pids(serving, 2)
        os.killpg(serving.pid, signal.SIGINT)
        assert serving.ended() == 0
        assert all(process_ended(pid) for pid in workers)
        assert "Traceback" not in serving.err.text and "KeyboardInterrupt" not in serving.err.text


def test_a_worker_that_dies_is_replaced(bot: Path, db: list[str]):
    with Serving(str(bot), "--workers", "1", *db) as single:
        assert pids(single, 1) == {single.pid}
    with Serving(str(bot), "--workers", "2", *db) as serving:
        before = pids(serving, 2)
        os.kill(min(before), signal.SIGKILL)
        serving.says(f"worker process {min(before)} died", err=True)
        assert pids(serving, 2) - before


def test_workers_do_not_outlive_their_parent(bot: Path, db: list[str]):
    with Serving(str(bot), "--workers", "2", *db) as serving:
        workers = pids(serving, 2)
        serving.signal(signal.SIGKILL)
        assert all(process_ended(pid) for pid in workers)
        serving.wait()


def test_a_second_signal_kills_the_workers_too(bot: Path, block: Block, db: list[str]):
    with Serving(str(bot), "--workers", "2", "--grace", "300", *db) as serving:
        workers = pids(serving, 2)
        blocked = block(serving)
        serving.signal(signal.SIGTERM)
        serving.says("a second signal ends at once", err=True)
        serving.signal(signal.SIGTERM)
        assert serving.ended() == -signal.SIGTERM
        assert all(process_ended(pid) for pid in workers)
        blocked.run.result()


def test_an_agent_that_fails_in_workers_only_stops_the_server(bot: Path, db: list[str]):
    (bot / "agent.py").write_text(
        "import multiprocessing\nassert not multiprocessing.parent_process(), 'not in a worker'\n" + AGENT
    )
    with Process("serve", str(bot), "--workers", "2", "--port", "0", *db) as process:
        assert process.ended() == 1
        assert "not in a worker" in process.err.text and "Traceback" not in process.err.text
