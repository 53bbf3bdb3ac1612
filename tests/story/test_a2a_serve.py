"""`polyport serve --a2a` as a real process: all bindings of one server, a restart in the middle of a task, and wrong flags."""

import json
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from polyport.cli.main import main
from polyport.wire import a2a_proto
from support.processes import PATIENCE_S, Serving

AGENT = '''
from pathlib import Path
import anyio
from polyport import LlmAgent

async def linger() -> dict:
    """Wait for ever, but for the second time."""
    seen = Path(__file__).parent / "seen"
    if not seen.exists():
        seen.write_text("")
        await anyio.sleep_forever()
    return {"ok": True}

root_agent = LlmAgent(name="bot", model="demo", instruction="Use the tool.", tools=[linger])
'''


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(AGENT)
    return tmp_path / "bot"


def body(text: str, **configuration: Any) -> dict[str, Any]:
    said = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": said, "configuration": configuration}


def ask(server: Serving, path: str, sent: Any = None) -> Any:
    data = None if sent is None else json.dumps(sent).encode()
    request = urllib.request.Request(server.url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())


def test_T002_one_command_serves_every_binding(bot: Path):
    with Serving(str(bot), "--a2a", "--grpc-port", "0", cwd=bot.parent) as server:
        server.says(r"A2A +http://127\.0\.0\.1:\d+/\.well-known/agent-card\.json")
        card = ask(server, "/.well-known/agent-card.json")
        urls = {(i["protocolBinding"], i["protocolVersion"]): i["url"] for i in card["supportedInterfaces"]}
        assert len(urls) == 6
        rest = urls["HTTP+JSON", "1.0"].removeprefix(server.url)
        task = ask(server, f"{rest}/message:send", body("hello"))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}
        assert ask(server, "/a2a/v1/invoke", call)["result"]["totalSize"] == 1
        with grpc.insecure_channel(urls["GRPC", "1.0"]) as channel:
            lists = channel.unary_unary("/lf.a2a.v1.A2AService/ListTasks")
            answer = json.loads(a2a_proto.to_json("lf.a2a.v1.ListTasksResponse", lists(b"", timeout=20)))
        assert answer["totalSize"] == 1
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_T109_a_task_goes_on_after_its_server_was_killed(bot: Path):
    words = (str(bot), "--a2a", "--db", f"sqlite:///{bot}/data.db")
    with Serving(*words, cwd=bot.parent) as server:
        task = ask(server, "/message:send", body("linger", returnImmediately=True))["task"]
        deadline = time.monotonic() + PATIENCE_S
        while not (bot / "seen").exists():
            assert time.monotonic() < deadline
        server.signal(signal.SIGKILL)
        server.ended()
    with Serving(*words, cwd=bot.parent) as server:
        deadline = time.monotonic() + PATIENCE_S
        while (found := ask(server, f"/tasks/{task['id']}"))["status"]["state"] != "TASK_STATE_COMPLETED":
            assert time.monotonic() < deadline, found
        assert found["contextId"] == task["contextId"]
        assert "interrupted" in json.dumps(found["artifacts"])


def test_T064_several_workers_send_push_notifications(bot: Path):
    words = (str(bot), "--a2a", "--push", "--db", f"sqlite:///{bot}/data.db", "--workers", "2")
    with Serving(*words, cwd=bot.parent) as server:
        assert ask(server, "/.well-known/agent-card.json")["capabilities"]["pushNotifications"] is True
        task = ask(server, "/message:send", body("hello"))["task"]
        config = {"url": "https://example.com/hook", "id": "p", "token": "secret"}
        ask(server, f"/tasks/{task['id']}/pushNotificationConfigs", config)
        for _ in range(8):  # whichever worker is asked
            found = ask(server, f"/tasks/{task['id']}/pushNotificationConfigs/p")
            assert found["url"] == config["url"] and "token" not in found
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--push"], "add --a2a"),
        (["--grpc-port", "9"], "add --a2a"),
        (["--a2a", "--grpc-port", "0", "--workers", "2"], "--workers"),
    ],
)
def test_a2a_flags_that_do_not_go_together(bot: Path, flags: list[str], text: str):
    done = CliRunner().invoke(main, ["serve", str(bot), "--db", f"sqlite:///{bot}/x.db", *flags])
    assert done.exit_code == 1
    assert text in done.output
