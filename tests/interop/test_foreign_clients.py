"""Clients that cannot be installed beside the tests' a2a-sdk talk to `polyport serve`: google-adk's agent, a2a-sdk 0.3. And
our RemoteAgent talks to google-adk's server.

Each has an environment of its own in `.bench/peers`, made on first use (half a minute each, from the package registry). What
they do is in `adk_remote_chat.py`, `a2a03_chat.py` and `adk_a2a_server.py`; clients print what they saw.
"""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from polyport import App, RemoteAgent
from polyport.data.content import Content, FunctionResponse, Part
from support.processes import PATIENCE_S, Process, Serving, environment

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / ".bench" / "peers"
ADK = ("google-adk==2.13.0", "a2a-sdk[http-server]==1.3.0")
OLD_SDK = ("a2a-sdk[grpc,http-server]==0.3.26",)

TILL = '''
from pathlib import Path
from polyport import LlmAgent, tool
from polyport.testing import ScriptedModel, call, chunks

@tool(require_confirmation=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    with (Path(__file__).parent / "paid").open("a") as file:
        file.write(f"{amount};")
    return f"paid {amount}"

model = ScriptedModel(
    chunks("Hel", "lo."), call("pay", {"amount": 5}), "It is paid.", call("pay", {"amount": 7}), "It is not paid."
)
root_agent = LlmAgent(name="till", model=model, tools=[pay])
'''


def python_of(name: str, *packages: str) -> str:
    """The Python of an environment with these packages."""
    folder = PEERS / name
    python, done = folder / "bin" / "python", folder / "installed.txt"
    if not done.exists() or done.read_text() != " ".join(packages):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *packages]
        subprocess.run(pip, check=True)
        done.write_text(" ".join(packages))
    return str(python)


def chat(python: str, script: str, *words: str, said: str = "") -> list[dict[str, Any]]:
    """What the script printed, line by line."""
    command = [python, str(HERE / script), *words]
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=PATIENCE_S, env=environment())
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def till(tmp_path: Path) -> Path:
    (tmp_path / "till").mkdir()
    (tmp_path / "till/agent.py").write_text(TILL)
    return tmp_path / "till"


@pytest.mark.parametrize("way", ["legacy", "extension"])
def test_T096_google_adks_remote_agent_has_a_chat_with_approvals(till: Path, way: str):
    python = python_of("adk", *ADK)
    with Serving(str(till), "--a2a", cwd=till.parent) as server:
        said = "hello\npay 5\nyes\npay 7\nno\n"
        hello, ask, paid, again, refused = chat(python, "adk_remote_chat.py", server.url, way, said=said)
    # What is not stored over there is not known to the agents around the remote one, in the next turn.
    assert hello["stored"][:2] == ["user: hello", "till: Hello."]
    assert hello["streamed"] == ["Hel", "lo."]
    assert ask["stored"][-1] == again["stored"][-1] == "till: call adk_request_confirmation"
    assert "till: It is paid." in paid["stored"] and 'till: result {"result": "paid 5"}' in paid["stored"]
    assert "till: It is not paid." in refused["stored"]
    assert not any("datapart" in text for turn in (hello, ask, paid, again, refused) for text in turn["stored"])
    assert (till / "paid").read_text() == "5;"


@pytest.mark.parametrize("confirmed", [True, False])
async def test_T102_our_remote_agent_has_a_chat_with_approval_with_google_adks_server(confirmed: bool):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [python_of("adk", *ADK), str(HERE / "adk_a2a_server.py")]
        server = Process(str(listener.fileno()), command=command, pass_fds=[listener.fileno()])
    with server:
        async with App(RemoteAgent(name="far", url=url)) as app:
            assert (await app.ask("hello", session="s")).text == "You said: hello"
            asked = await app.ask("pay 5", session="s")
            assert asked.outcome.status == "paused"
            waits = [c for e in asked.events for c in e.calls if c.id in e.long_running_tool_ids]
            assert [c.name for c in waits] == ["adk_request_confirmation"]
            answer = FunctionResponse(id=waits[0].id, name=waits[0].name, response={"confirmed": confirmed})
            part = Part(function_response=answer)
            reply = await app.ask(Content(role="user", parts=[part]), session="s")
            assert reply.outcome.status == "finished"
            assert ("paid 5" in reply.text) is confirmed, reply.text
            assert (await app.ask("bye", session="s")).text == "You said: bye"


@pytest.mark.parametrize("way", ["stream", "block"])
@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON", "GRPC"])
def test_T086_the_sdk_of_0_3_has_a_whole_chat(till: Path, transport: str, way: str):
    python = python_of("a2a03", *OLD_SDK)
    with Serving(str(till), "--a2a", "--grpc-port", "0", cwd=till.parent) as server:
        card, hello, ask, paid, again, asked, *rest = chat(python, "a2a03_chat.py", server.url, transport, way)
    assert card == {"name": "till", "version": "0.3.0"}
    assert (hello["state"], hello["texts"]) == ("completed", ["Hello."])
    streamed = ["task", "status-update", *["artifact-update"] * 3, "status-update"]
    assert hello["frames"] == (streamed if way == "stream" else ["task"])
    assert ask["state"] == again["state"] == "input-required"
    assert (paid["state"], paid["texts"]) == ("completed", ["It is paid."])
    assert asked == {"asked": "adk_request_confirmation", "history": 1}
    if way == "stream":
        assert {"followed": ["input-required", "canceled"]} in rest
    assert {"cancelled": "canceled"} in rest
    assert "404" in rest[-1]["error"] or "-32001" in rest[-1]["error"] or "NOT_FOUND" in rest[-1]["error"]
    assert (till / "paid").read_text() == "5;"
