"""A server with a workflow is killed in the middle of it: another process goes on, and repeats nothing that was stored."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.processes import Serving
from support.talk import answer, texts

AGENT = """
from pathlib import Path
from polyport.workflow import START, Join, NodeContext, Workflow

HERE = Path(__file__).parent

def log(word):
    with (HERE / "log.txt").open("a") as file:
        file.write(word + "\\n")

def first(text: str) -> str:
    log("first")
    return text + "1"

async def ask(text: str, ctx: NodeContext) -> None:
    await ctx.request_input("Go on?", interrupt_id="q")

def slow(text: str) -> str:
    log("slow")
    if (HERE / "hang").exists():
        (HERE / "hang").read_text()  # until somebody writes
    return text + "2"

def end(both: dict) -> str:
    return f"{both['ask']} {both['slow']}"

root_agent = Workflow("bot", edges=[(START, (ask, first)), (first, slow), ((ask, slow), Join("both"), end)])
"""

LINE = 'root_agent = Workflow("bot", edges=[(START, first, slow)])\n'
PATIENCE_S = 60


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    folder = tmp_path / "bot"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT, encoding="utf-8")
    return folder


def post(url: str, path: str, body: Any) -> tuple[int, Any]:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def get(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path, timeout=60) as response:
        return json.loads(response.read())


def body(message: Any, **more: Any) -> dict[str, Any]:
    if isinstance(message, str):
        message = {"role": "user", "parts": [{"text": message}]}
    base = {"appName": "bot", "userId": "u", "sessionId": "s", **more}
    return {**base, "newMessage": message} if message is not None else base


@pytest.mark.parametrize("by", ["the answer", "its id"])
def test_section_4_7_a_killed_workflow_goes_on_in_another_process(bot: Path, by: str):
    database = f"sqlite:///{bot}/data.db"
    os.mkfifo(bot / "hang")
    with Serving(str(bot), "--db", database) as serving:
        assert post(serving.url, "/apps/bot/users/u/sessions/s", {})[0] == 200
        status, started = post(serving.url, "/run?detach=true", body("hi"))
        assert status == 202
        run_id = started["invocationId"]
        with (bot / "hang").open("w"):  # the node is at work once it reads
            os.killpg(serving.pid, signal.SIGKILL)
            serving.wait()
    (bot / "hang").unlink()
    with Serving(str(bot), "--db", database) as serving:
        if by == "its id":
            status, events = post(serving.url, "/run", body(None, invocationId=run_id))
            assert status == 200 and [e["output"] for e in events] == ["hi12"]
        status, events = post(serving.url, "/run", body(answer("q", "adk_request_input", {"response": "yes"})))
        assert status == 200 and texts(events) == ["yes hi12"]
        assert post(serving.url, "/run", body(None, invocationId=run_id))[0] == 409, "there is nothing left to do"
    words = (bot / "log.txt").read_text().split()
    assert words == ["first", "slow", "slow"]


def test_T109_a_task_over_a_workflow_goes_on_after_its_server_was_killed(bot: Path):
    """The recovery of A2A tasks finds the run of the graph, and lets it go on by itself."""
    os.mkfifo(bot / "hang")
    (bot / "agent.py").write_text(AGENT + LINE, encoding="utf-8")
    words = (str(bot), "--a2a", "--db", f"sqlite:///{bot}/data.db")
    with Serving(*words, cwd=bot.parent) as serving:
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        status, made = post(
            serving.url, "/message:send", {"message": message, "configuration": {"returnImmediately": True}}
        )
        assert status == 200
        with (bot / "hang").open("w"):
            os.killpg(serving.pid, signal.SIGKILL)
            serving.wait()
    (bot / "hang").unlink()
    with Serving(*words, cwd=bot.parent) as serving:
        deadline = time.monotonic() + PATIENCE_S
        while (found := get(serving.url, f"/tasks/{made['task']['id']}"))["status"]["state"] != "TASK_STATE_COMPLETED":
            assert time.monotonic() < deadline, found
        assert "hi12" in json.dumps(found["artifacts"])
    assert (bot / "log.txt").read_text().split() == ["first", "slow", "slow"]
