"""SIGKILL in the middle of 50 concurrent runs on SQLite: no event that a client has seen is lost, no session is unusable."""

import json
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import anyio

from support.processes import Serving

RUNS = 50
STEPS = 40
SEEN_BEFORE_THE_KILL = 6
"""Whole events that every client has seen before the server is killed, of 2 x STEPS + 1."""

AGENT = f'''
"""Calls its tool {STEPS} times in a turn. The model is as strict as a provider: each call must have its one response."""
from pathlib import Path
from polyport import Content, LlmAgent, ModelResponse, Part
from polyport.data.content import FunctionCall

LOG = Path(__file__).parent / "tool.log"

async def note(session: str, step: int) -> dict:
    """Note a step."""
    with LOG.open("a") as log:
        log.write(f"{{session}} {{step}}\\n")
    return {{"noted": step}}

class Strict:
    name = "strict"
    schema_with_tools = True

    async def generate(self, request, on_partial=None):
        open_calls, since = [], 0
        for content in request.contents:
            for part in content.parts:
                if part.function_call:
                    open_calls.append(part.function_call.id)
                elif part.function_response:
                    open_calls.remove(part.function_response.id)
                    since += 1
                elif part.text and content.role == "user":
                    assert not open_calls, "a call without a response in the history"
                    session, since = part.text, 0
        assert not open_calls
        if since >= {STEPS} or session.startswith("again"):
            return ModelResponse(content=Content(role="model", parts=[Part(text=f"done {{session}}")]))
        call = FunctionCall(id=f"c{{len(request.contents)}}", name="note", args={{"session": session, "step": since}})
        return ModelResponse(content=Content(role="model", parts=[Part(function_call=call)]))

    async def aclose(self): ...

root_agent = LlmAgent(name="bot", model=Strict(), tools=[note])
'''


def body(session: str, text: str) -> dict[str, Any]:
    return {"appName": "bot", "userId": "u", "sessionId": session, "newMessage": {"parts": [{"text": text}]}}


def path(session: str) -> str:
    return f"/apps/bot/users/u/sessions/{session}"


class Clients:
    """`seen` are the events that each client got, whole lines only, up to the moment its connection broke."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self.seen: dict[str, list[dict[str, Any]]] = {f"s{n}": [] for n in range(RUNS)}
        self.ended: list[str] = []
        self._killed = False

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(self._serving.url, connector=connector) as http:
            for session in self.seen:
                async with http.post(path(session)) as response:
                    assert response.status == 200
            with anyio.fail_after(120):
                async with anyio.create_task_group() as group:
                    for session in self.seen:
                        group.start_soon(self._one, http, session)

    async def _one(self, http: aiohttp.ClientSession, session: str) -> None:
        try:
            async with http.post("/run_sse", json=body(session, session)) as response:
                assert response.status == 200
                async for line in response.content:
                    if line.startswith(b"data: ") and line.endswith(b"\n"):
                        self.seen[session].append(json.loads(line[6:]))
                        self._kill_in_the_middle()
            self.ended.append(session)
        except aiohttp.ClientError:
            assert self._killed

    def _kill_in_the_middle(self) -> None:
        if not self._killed and min(map(len, self.seen.values())) >= SEEN_BEFORE_THE_KILL:
            self._killed = True
            self._serving.signal(signal.SIGKILL)


def check_file(db: Path) -> None:
    connection = sqlite3.connect(db)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


async def go_on(serving: Serving, clients: Clients) -> None:
    """Every session has what its client saw, and takes a new run."""
    async with aiohttp.ClientSession(serving.url) as http:
        for session, seen in clients.seen.items():
            async with http.get(path(session)) as response:
                assert response.status == 200
                before = (await response.json())["events"]
            assert [e["id"] for e in before[1 : len(seen) + 1]] == [e["id"] for e in seen]
            assert before[1 : len(seen) + 1] == seen
            async with http.post("/run", json=body(session, f"again {session}")) as response:
                assert response.status == 200, await response.text()
                events = await response.json()
            assert events[-1]["content"]["parts"] == [{"text": f"done again {session}"}]
            async with http.get(path(session)) as response:
                after = (await response.json())["events"]
            assert after[: len(before)] == before and [e["id"] for e in after][-1] == events[-1]["id"]


def noted_in(events: list[dict[str, Any]]) -> list[int]:
    parts = [p for e in events for p in e["content"]["parts"]]
    return [p["functionResponse"]["response"]["noted"] for p in parts if "functionResponse" in p]


def test_a_killed_server_loses_no_committed_event_and_leaves_no_session_unusable(tmp_path: Path):
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(AGENT)
    db = tmp_path / "sessions.db"
    args = [str(tmp_path / "bot"), "--db", f"sqlite:///{db}", "--log-level", "warning"]
    with Serving(*args) as serving:
        clients = Clients(serving)
        anyio.run(clients.run)
        assert serving.wait() == -signal.SIGKILL
    assert len(clients.ended) < RUNS / 2, "most runs were in the middle"
    check_file(db)
    log = Counter(tuple(line.split()) for line in (tmp_path / "bot/tool.log").read_text().splitlines())
    for session, seen in clients.seen.items():
        steps = noted_in(seen)
        assert steps == list(range(len(steps)))
        assert all(log[session, str(step)] == 1 for step in steps), "what was answered was done, once"
    with Serving(*args) as serving:
        anyio.run(go_on, serving, clients)
        serving.signal(signal.SIGTERM)
        assert serving.ended() == 0
        assert serving.err.text == ""
    check_file(db)
