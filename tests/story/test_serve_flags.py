"""What `polyport serve` serves: a flag for each protocol, prefixes, the environment, telemetry, and what the banner tells."""

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from polyport import App, LlmAgent
from polyport.cli.main import main
from polyport.cli.options import ServeOptions
from polyport.cli.serve import build
from polyport.cli.served import KNOWN, served_by
from polyport.errors import BadRequest, ConfigError
from polyport.ports.stores import Stores
from polyport.stores.memory import MemoryArtifacts, MemorySessions
from polyport.testing import connect
from support.processes import PATIENCE_S, Process, Serving, environment

AGENT = '''
import anyio
from polyport import App, LlmAgent

async def linger() -> dict:
    """Wait for ever."""
    await anyio.sleep_forever()

root_agent = LlmAgent(name="bot", model="demo", instruction="Use the tool.", tools=[linger])
'''


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(AGENT)
    return tmp_path / "bot"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "page").mkdir()
    (tmp_path / "page/index.html").write_text("<html><head></head><body>page</body></html>")
    return tmp_path / "page"


def polyport(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(args), prog_name="polyport")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def ask(url: str, body: Any = None, method: str | None = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def flags(bot: Path, **options: Any) -> set[str]:
    """The flags of what is served with these options."""
    return {known.flag for known in served_by(build(ServeOptions(agents=[str(bot)], **options)).asgi.routes)}


# ---- what is served


def test_without_flags_it_is_rest_and_live(bot: Path):
    assert flags(bot) == {"--rest", "--live"}
    assert flags(bot, live=False) == {"--rest"}
    assert flags(bot, rest=False, a2a=True) == {"--a2a"}, "live sessions are made over REST"
    assert flags(bot, rest=False, live=True) == {"--live"}


def test_each_flag_adds_its_protocol_and_nothing_else(bot: Path, page: Path):
    values: dict[str, Any] = {"web": str(page)}
    for known in KNOWN:
        name = known.flag.removeprefix("--").replace("-", "_")
        assert flags(bot, **{name: values.get(name, True)}) == {"--rest", "--live", known.flag}


def test_rest_126_the_page_of_adk_comes_with_what_it_asks_for(bot: Path, page: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("polyport.protocols.web.mount.adk_page", lambda: page)  # google-adk is not installed here
    assert flags(bot, adk_web=True) == {"--rest", "--live", "--web", "--debug", "--evals"}


def test_rest_125_nothing_to_serve_tells_what_there_is(bot: Path):
    code, _, err = polyport("serve", str(bot), "--no-rest")
    assert code == 1
    assert all(known.flag in err for known in KNOWN)


def test_rest_124_retries_of_zero_and_words_that_nobody_knows_are_refused(bot: Path):
    code, _, err = polyport("serve", str(bot), "--triggers", "--trigger-max-retries", "0")
    assert code == 2 and "--trigger-max-retries" in err
    code, _, err = polyport("serve", str(bot), "--pubsub")
    assert code == 2 and "--pubsub" in err
    code, _, err = polyport("serve", str(bot), "consolle")
    assert code == 1 and "consolle" in err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"grpc_port": 0}, "--a2a"),
        ({"push": True}, "--a2a"),
        ({"engine_id": "7"}, "--agent-engine"),
        ({"trigger_max_retries": 1}, "--triggers"),
        ({"trigger_max_runs": 1}, "--triggers"),
        ({"oidc_audience": "x"}, "--triggers"),
        ({"triggers": True, "oidc_audience": "x"}, "oidc_service_accounts"),
        ({"adk_web": True, "web": "."}, "--adk-web"),
        ({"web": "/nowhere"}, "index.html"),
        ({"mcp": True, "workers": 2}, "--mcp"),
        ({"debug": True, "workers": 2}, "--debug"),
        ({"adk_web": True, "workers": 2}, "--adk-web"),
        ({"metrics": True, "workers": 2}, "--metrics"),
        ({"prefix": ["api"]}, "--prefix"),
        ({"prefix": ["/a//b"]}, "--prefix"),
        ({"prefix": ["/{app}"]}, "--prefix"),
    ],
)
def test_flags_that_do_not_go_together_say_what_would(bot: Path, options: dict[str, Any], told: str):
    with pytest.raises(ConfigError, match=told):
        build(ServeOptions(agents=[str(bot)], **options))


def test_the_settings_of_flags_arrive(bot: Path):
    app = build(
        ServeOptions(agents=[str(bot)], agent_engine=True, engine_id="777", triggers=True, trigger_max_retries=9)
    )
    engine = next(route.handler.__self__ for route in app.asgi.routes if route.pattern == "/reasoning_engine")  # type: ignore[attr-defined]
    assert engine.engine.id == "777"


def test_only_what_is_chosen_is_loaded(bot: Path):
    code = (
        "import sys\nfrom polyport.cli.serve import build\nfrom polyport.cli.options import ServeOptions\n"
        f"build(ServeOptions(agents=[{str(bot)!r}]))\nprint('\\n'.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    loaded = set(done.stdout.split())
    protocols = {name.split(".")[2] for name in loaded if name.startswith("polyport.protocols.")}
    assert not protocols & {"a2a", "agent_engine", "triggers", "debug", "metrics", "evals", "web"}
    assert not loaded & {"opentelemetry.sdk", "mcp", "grpc", "prometheus_client", "aiohttp", "pydantic"}
    assert not [name for name in loaded if name.startswith("polyport.cli.deploy")]


# ---- an App of the user's own


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["--no-rest"],
            ["--live"],
            ["--a2a"],
            ["--mcp"],
            ["--agent-engine"],
            ["--triggers"],
            ["--adk-web"],
            ["--debug"],
        ),
        *(["--evals"], ["--metrics"], ["--web", "."], ["--prefix", "/x"]),
    ],
    ids=lambda words: words[0],
)
def test_an_app_says_itself_what_it_serves(bot: Path, words: list[str]):
    (bot / "agent.py").write_text(AGENT + "app = App(root_agent)\n")
    code, _, err = polyport("serve", str(bot), *words)
    assert code == 1 and f"remove {words[0]}" in err


def test_an_app_is_not_changed_by_the_environment_either(bot: Path, monkeypatch: pytest.MonkeyPatch):
    (bot / "agent.py").write_text(AGENT + "app = App(root_agent)\n")
    monkeypatch.setenv("POLYPORT_A2A", "1")
    code, _, err = polyport("serve", str(bot))
    assert code == 1 and "remove --a2a" in err


# ---- the environment


def test_options_come_from_the_environment_and_a_flag_wins(monkeypatch: pytest.MonkeyPatch):
    serve = main.commands["serve"]
    for name, value in {
        "POLYPORT_PORT": "9001",
        "POLYPORT_HISTORY_WINDOW": "7",
        "POLYPORT_METRICS": "true",
        "POLYPORT_REST": "0",
        "POLYPORT_ALLOWED_HOSTS": "a.test b.test",
        "POLYPORT_AUTH": "iap:x",
    }.items():
        monkeypatch.setenv(name, value)
    with serve.make_context("serve", ["bot", "--port", "9002"]) as ctx:
        taken = ctx.params
    assert (taken["port"], taken["history_window"], taken["metrics"], taken["rest"]) == (9002, 7, True, False)
    assert taken["allowed_hosts"] == ("a.test", "b.test")
    assert taken["auth"] == (), "read once the agents are loaded, for a .env beside them may have it"
    monkeypatch.setenv("POLYPORT_PORT", "tcp://10.0.0.1:8000")
    code, _, err = polyport("serve", "bot")
    assert code == 2 and "POLYPORT_PORT" in err, "as in Kubernetes, beside a Service named polyport"


def test_the_help_has_topics(monkeypatch: pytest.MonkeyPatch):
    code, out, _ = polyport("serve", "--help")
    assert code == 0
    places = [
        out.index(f"\n{topic}:") for topic in ("Where it listens", "Who may call (see docs/identity.md)", "Other")
    ]
    assert places == sorted(places)
    assert places[0] < out.index("  --port") < places[1] < out.index("  --authorize") < places[2] < out.index("--help")


# ---- prefixes


async def test_prefixes_are_where_everything_is(bot: Path):
    async with connect(build(ServeOptions(agents=[str(bot)], prefix=["/v1/", "/v2"], metrics=True))) as client:
        assert [(await client.get(path)).status for path in ("/v1/health", "/v2/health")] == [200, 200]
        assert [(await client.get(path)).status for path in ("/health", "/api/health", "/v1x/health")] == [404] * 3
        assert 'route="/health",status="200"} 2.0' in (await client.get("/v1/metrics")).text, "it is watched as ever"
    async with connect(build(ServeOptions(agents=[str(bot)], prefix=["/", "/x"]))) as client:
        assert [(await client.get(path)).status for path in ("/health", "/x/health", "/api/health")] == [200, 200, 404]


# ---- real processes


def test_the_banner_tells_what_is_where_and_it_is_there(bot: Path, page: Path):
    every = ["--a2a", "--mcp", "--agent-engine", "--triggers", "--debug", "--evals", "--metrics", "--web", str(page)]
    with Serving(str(bot), *every, cwd=bot.parent) as serving:
        for name, path, status in (
            ("for people", "/docs", 200),
            ("A2A", "/.well-known/agent-card.json", 200),
            ("metrics", "/metrics", 200),
            ("web page", "/ui/", 200),
            ("debug", "/debug/trace/session/SESSION", 200),
            ("evaluation", "/dev/apps/APP/eval-sets", 200),
            ("Agent Engine", "/reasoning_engine", 405),
            ("MCP", "/mcp", 406),  # it wants a client that takes event streams
            ("live", "/run_live", 400),
        ):
            place = serving.says(rf"^  {name} +(http://\S+)")[1]
            assert place == serving.url + path
            assert ask(place)[0] == status, name
        assert serving.says("^  triggers .*/apps/APP/trigger/")
        message = {"message": {"data": "aGk="}, "subscription": "s"}
        assert json.loads(ask(f"{serving.url}/apps/bot/trigger/pubsub", message)[1]) == {"status": "success"}
        assert ask(f"{serving.url}/dev/apps/bot/eval-sets")[0] == 200, "the folder above has the folder of the app"
        assert "page" in ask(f"{serving.url}/ui/")[1]


def test_the_banner_below_a_prefix_can_be_copied(bot: Path):
    with Serving(str(bot), cwd=bot.parent, env={"POLYPORT_PREFIX": "/agents /more"}) as serving:
        line = serving.says(r"^  curl -X POST (\S+)$")[1]
        assert line.startswith(f"{serving.url}/agents/apps/")
        assert ask(line, method="POST")[0] == 200
        assert serving.says(r"^  REST \+ SSE +\S+/agents \(and below /more\)$")
        assert ask(f"{serving.url}/health")[0] == 404


def test_the_banner_of_an_app_tells_its_protocols(bot: Path):
    (bot / "agent.py").write_text(AGENT + "app = App(root_agent, protocols=['a2a', 'metrics'])\n")
    with Serving(str(bot), cwd=bot.parent) as serving:
        assert serving.says("^  A2A ") and serving.says("^  metrics ") and serving.says("^Ctrl-C stops")
        assert not serving.out.find("REST") and not serving.out.find("curl")


class Collector(BaseHTTPRequestHandler):
    """Takes what an exporter sends."""

    paths: set[str] = set()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.paths.add(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[str]:
    Collector.paths.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("beside", [False, True], ids=["environment", "a .env beside the agent"])
def test_telemetry_of_the_environment_feeds_the_debug_routes_too(bot: Path, collector: str, beside: bool):
    told = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector}
    if beside:
        (bot / ".env").write_text("".join(f"{name}={value}\n" for name, value in told.items()))
    with Serving(str(bot), "--debug", cwd=bot.parent, env={} if beside else told) as serving:
        assert ask(f"{serving.url}/apps/bot/users/u/sessions/s", method="POST")[0] == 200
        body = {"appName": "bot", "userId": "u", "sessionId": "s", "newMessage": {"parts": [{"text": "hello"}]}}
        assert ask(f"{serving.url}/run", body)[0] == 200
        names = [span["name"] for span in json.loads(ask(f"{serving.url}/debug/trace/session/s")[1])]
        assert names.count("invoke_agent bot") == 1, "one plugin makes the spans, for both"
        serving.signal(signal.SIGTERM)
        assert serving.wait() == 0
    assert {"/v1/traces", "/v1/metrics"} <= Collector.paths


def test_rest_127_told_to_stop_it_takes_nothing_more_and_ends(bot: Path):
    with Serving(str(bot), "--grace", "0", cwd=bot.parent) as serving:
        ask(f"{serving.url}/apps/bot/users/u/sessions/s", method="POST")
        body = {"appName": "bot", "userId": "u", "sessionId": "s", "newMessage": {"parts": [{"text": "linger"}]}}
        request = urllib.request.Request(
            f"{serving.url}/run_sse", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert b"linger" in answer.readline(), "it is at work"
            serving.signal(signal.SIGTERM)
            assert b"error" in answer.read(), "and its client is told"
        assert serving.wait() == 0
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", serving.port)):
            pass


def test_a_name_that_is_no_folder_is_told_with_what_there_is(bot: Path):
    with Process("serve", "bto", cwd=bot.parent) as process:
        assert process.ended() == 1 and "bot" in process.err.text


# ---- FR-235: stores that make their own ids


class OwnIds(MemorySessions):
    """A store like those of managed platforms: a caller cannot choose the id of a session."""

    async def create(self, app: str, user: str, session_id: str = "", **more: Any) -> Any:
        if session_id:
            raise BadRequest("this store makes the ids of sessions itself")
        return await super().create(app, user, "", **more)


async def test_FR_235_a_store_that_refuses_ids_of_callers_is_a_reason_and_no_500():
    stores = Stores(OwnIds(), MemoryArtifacts())
    app = App(LlmAgent(name="bot", model="demo"), stores=stores, protocols=["rest", "a2a"])
    async with connect(app) as client:
        refused = await client.post("/apps/bot/users/u/sessions/mine")
        assert refused.status == 400 and "makes the ids" in refused.json()["error"]
        made = (await client.post("/apps/bot/users/u/sessions")).json()["id"]
        asked = {"appName": "bot", "userId": "u", "sessionId": made, "newMessage": {"parts": [{"text": "hi"}]}}
        assert (await client.post("/run", json=asked)).status == 200
        sent = {"message": {"messageId": "m", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
        status = (await client.post("/message:send", json=sent)).json()["task"]["status"]
        assert status["state"] == "TASK_STATE_REJECTED" and "makes the ids" in status["message"]["parts"][0]["text"]
