"""`polyport serve --reload` as real processes: YAML and Python are taken over, a broken file keeps the old (FR-220)."""

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from story.test_serve_process import Background, ask
from support.processes import PATIENCE_S, Process, Serving
from support.projects import write

TOOLS = '''
def wait() -> str:
    """Wait until somebody at the door says something."""
    import socket
    from pathlib import Path
    port = int((Path(__file__).parent / "door").read_text())
    with socket.create_connection(("127.0.0.1", port)) as door:
        return door.recv(100).decode()
'''

SING = 'def sing() -> str:\n    """Sing."""\n    return "la"\n'


def bot(word: str, tools: str = "wait") -> dict[str, str | bytes]:
    root = f"name: bot\nmodel: demo\ndescription: {word}\ninstruction: Use the tools.\ntools: [{tools}]\n"
    return {"bots/bot/root_agent.yaml": root}


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    write({**bot("one"), "bots/bot/tools.py": TOOLS}, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        (tmp_path / "bots/bot/door").write_text(str(listener.getsockname()[1]))
        yield listener


def message(session: str, text: str, app: str = "bot") -> dict[str, Any]:
    return {"appName": app, "userId": "u", "sessionId": session, "newMessage": {"parts": [{"text": text}]}}


def create(serving: Serving, session: str, app: str = "bot") -> None:
    assert ask(serving, "POST", f"/apps/{app}/users/u/sessions/{session}")[0] == 200


def responses(serving: Serving, session: str, text: str) -> list[Any]:
    status, events = ask(serving, "POST", "/run", message(session, text))
    assert status == 200, events
    parts = [part for event in events for part in event["content"]["parts"]]
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


def test_FR_220_a_run_ends_with_the_agent_it_began_with_and_sessions_stay(tmp_path: Path, listener: socket.socket):
    with Serving("bots", "--reload", cwd=tmp_path) as serving:
        create(serving, "s")
        create(serving, "t")
        run = Background(serving, "/run_sse", message("s", "wait"))
        door = listener.accept()[0]
        write({**bot("two", "sing"), "bots/bot/tools.py": SING}, tmp_path)
        serving.says(r"reloaded: (root_agent\.yaml|tools\.py)", err=True)
        assert responses(serving, "t", "sing") == [{"result": "la"}]
        door.sendall(b"still the old tool")
        door.close()
        assert "still the old tool" in run.result(), "the old agent ends its run"
        status, session = ask(serving, "GET", "/apps/bot/users/u/sessions/s")
        assert status == 200 and "still the old tool" in str(session["events"])
        serving.signal(signal.SIGINT)
        assert serving.ended() == 0


def test_FR_220_a_broken_file_keeps_the_old_agents_and_says_why(tmp_path: Path, listener: socket.socket):
    with Serving("bots", "--reload", cwd=tmp_path) as serving:
        create(serving, "s")
        write({"bots/bot/root_agent.yaml": "name: bot\nmodel: demo\ninstrution: x\n"}, tmp_path)
        serving.says(r"the change is not taken over", err=True)
        serving.says(r"root_agent\.yaml:3:1: there is no key 'instrution'.*did you mean 'instruction'\?", err=True)
        serving.says(r"the old agents stay in service \(changed: root_agent\.yaml\)", err=True)
        assert ask(serving, "GET", "/list-apps") == (200, ["bot"])
        write({**bot("mended", "sing"), "bots/bot/tools.py": SING}, tmp_path)
        serving.says(r"reloaded", err=True)
        assert responses(serving, "s", "sing") == [{"result": "la"}]


def test_FR_220_agents_come_and_go_while_the_server_runs(tmp_path: Path, listener: socket.socket):
    with Serving("bots", "--reload", cwd=tmp_path) as serving:
        create(serving, "s")
        code = "from polyport import LlmAgent\nroot_agent = LlmAgent(name='x', model='demo', instruction='hi')\n"
        write({"bots/fresh/agent.py": code}, tmp_path)
        serving.says(r"reloaded: agent\.py", err=True)
        assert ask(serving, "GET", "/list-apps") == (200, ["bot", "fresh"])
        create(serving, "n", "fresh")
        assert ask(serving, "POST", "/run", message("n", "hi", "fresh"))[0] == 200
        shutil.rmtree(tmp_path / "bots/bot")
        serving.says(r"reloaded: .*root_agent\.yaml", err=True)
        assert ask(serving, "GET", "/list-apps") == (200, ["fresh"])
        status, _ = ask(serving, "GET", "/apps/bot/users/u/sessions/s")
        assert status in (200, 404)
        assert ask(serving, "GET", "/apps/fresh/users/u/sessions/n")[0] == 200


def test_a_change_that_takes_the_guard_away_is_not_taken_over(tmp_path: Path):
    root = "name: bot\nmodel: demo\ninstruction: hi\n"
    door = (
        "class Door:\n    challenge = 'Bearer'\n    async def authenticate(self, credentials):\n        return None\n"
    )
    write({"bot/root_agent.yaml": f"{root}app: {{auth: own.Door, stores: chat.db}}\n", "bot/own.py": door}, tmp_path)
    with Serving("bot", "--reload", "--host", "0.0.0.0", cwd=tmp_path) as serving:
        serving.url = f"http://127.0.0.1:{serving.port}"
        assert ask(serving, "GET", "/list-apps")[0] == 401
        write({"bot/root_agent.yaml": root}, tmp_path)
        serving.says(r"the old agents stay in service", err=True)
        assert serving.err.find(r"everybody who reaches the port can act as any user")
        assert ask(serving, "GET", "/list-apps")[0] == 401


def test_a_process_that_died_is_started_anew_and_sessions_stay(tmp_path: Path):
    tools = 'import os\n\ndef process() -> int:\n    """Which process."""\n    return os.getpid()\n'
    write({**bot("one", "process"), "bots/bot/tools.py": tools}, tmp_path)
    with Serving("bots", "--reload", cwd=tmp_path) as serving:
        create(serving, "s")
        (first,) = responses(serving, "s", "process")
        os.kill(first["result"], signal.SIGKILL)
        serving.says(r"ended with code -9; starting it anew", err=True)
        serving.says(r"reloaded$", err=True)
        (second,) = responses(serving, "s", "process")
        assert first != second
        assert len(ask(serving, "GET", "/apps/bot/users/u/sessions/s")[1]["events"]) == 8
        assert not list(tmp_path.rglob("*.pyc")), "bytecode would hide the second of two quick edits"


def test_what_reload_cannot_do_is_said_at_start(tmp_path: Path, listener: socket.socket):
    for words, told in (
        (["bots", "--reload", "--workers", "2"], "--reload is for one worker"),
        (["nowhere", "--reload"], "'nowhere' is not a folder"),
    ):
        with Process("serve", *words, cwd=tmp_path) as process:
            assert process.ended() == 1 and told in process.err.text


def test_a_file_that_is_broken_at_start_ends_the_command(tmp_path: Path):
    write({"bot/root_agent.yaml": "name: bot\nmodl: demo\n"}, tmp_path)
    for command in ("check", "run", "serve"):
        more = ["--once", "hi"] if command == "run" else []
        with Process(command, "bot", *more, cwd=tmp_path) as process:
            assert process.ended() == 1
            assert (
                "bot/root_agent.yaml:2:1: there is no key 'modl' in an LlmAgent; did you mean 'model'?"
                in process.err.text
            )
