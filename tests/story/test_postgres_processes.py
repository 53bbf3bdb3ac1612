"""Several servers on one PostgreSQL database: what one began another one goes on with, and many clients at once are served."""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from polyport import App, LlmAgent
from polyport.protocols.a2a.mount import task_store
from polyport.protocols.triggers.mount import trigger_store
from polyport.seams import REAL
from polyport.stores.postgres_tasks import PostgresTasks
from polyport.stores.postgres_triggers import PostgresTriggers
from polyport.testing import call, connect
from support.approvals import Till, approve, on, requests
from support.postgres import rows, server
from support.processes import Serving
from support.talk import Talk, texts

CLIENTS = 64
TURNS = 3
AGENT = """
from pathlib import Path
from polyport import make_tool, Content, LlmAgent, ModelResponse, Part
from polyport.data.content import FunctionCall

HERE = Path(__file__).parent

def log(word):
    with (HERE / "log.txt").open("a") as file:
        file.write(word + "\\n")

def first() -> str:
    "The first step."
    log("first")
    return "one"

def second() -> str:
    "The second step, which may hang."
    log("second")
    if (HERE / "hang").exists():
        (HERE / "hang").read_text()  # until somebody writes
    return "two"

class Steps:
    name = "steps"
    schema_with_tools = True

    async def generate(self, request, on_partial=None):
        last = request.contents[-1].parts[-1]
        said = last.text or last.function_response.name
        if said.startswith("hello"):
            return ModelResponse(content=Content(role="model", parts=[Part(text=said.upper())]))
        name = {"go": "first", "first": "second"}.get(said)
        if name is None:
            return ModelResponse(content=Content(role="model", parts=[Part(text="done")]))
        log(f"model {name}")
        return ModelResponse(content=Content(role="model", parts=[Part(function_call=FunctionCall(id=name, name=name))]))

    async def aclose(self): ...

root_agent = LlmAgent(name="bot", model=Steps(), tools=[first, make_tool(second, idempotent=True)])
"""


@pytest.fixture
def url() -> str:
    """A new database."""
    return server().url(server().new_database())


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    folder = tmp_path / "bot"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT, encoding="utf-8")
    return folder


def body(text: str | None, session: str = "s", **more: Any) -> dict[str, Any]:
    base = {"appName": "bot", "userId": "u", "sessionId": session, **more}
    return base if text is None else {**base, "newMessage": {"role": "user", "parts": [{"text": text}]}}


async def post(http: aiohttp.ClientSession, url: str, path: str, body: Any) -> tuple[int, Any]:
    async with http.post(url + path, json=body) as response:
        return response.status, json.loads(await response.read())


async def test_a_run_whose_server_was_killed_goes_on_in_another_one(bot: Path, url: str) -> None:
    """What was stored is not done again: neither the model's answers nor the tool that had answered."""
    os.mkfifo(bot / "hang")
    with Serving(str(bot), "--db", url) as one, Serving(str(bot), "--db", url) as two:
        async with aiohttp.ClientSession() as http:
            assert (await post(http, one.url, "/apps/bot/users/u/sessions/s", {}))[0] == 200
            status, started = await post(http, one.url, "/run?detach=true", body("go"))
            assert status == 202
            with await anyio.to_thread.run_sync((bot / "hang").open, "w"):  # the tool is at work once it reads
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()
            (bot / "hang").unlink()
            status, events = await post(http, two.url, "/run", body(None, invocationId=started["invocationId"]))
            assert status == 200 and texts(events) == ["done"], events
            assert {event["invocationId"] for event in events} == {started["invocationId"]}
            status, events = await post(http, two.url, "/run", body("hello"))
            assert status == 200 and texts(events) == ["HELLO"]
    assert (bot / "log.txt").read_text().splitlines() == ["model first", "first", "model second", "second", "second"]


async def test_T107_a_server_that_was_stopped_and_wakes_up_can_no_longer_write(bot: Path, url: str) -> None:
    """Meanwhile another one took over the session: what the sleeper still has to say is refused."""
    os.mkfifo(bot / "hang")
    with Serving(str(bot), "--db", url) as one, Serving(str(bot), "--db", url) as two:
        async with aiohttp.ClientSession() as http:
            assert (await post(http, one.url, "/apps/bot/users/u/sessions/s", {}))[0] == 200
            status, started = await post(http, one.url, "/run?detach=true", body("go"))
            assert status == 202
            with await anyio.to_thread.run_sync((bot / "hang").open, "w"):  # the tool is at work once it reads
                one.signal(signal.SIGSTOP)
                status, events = await post(http, two.url, "/run", body("hello"))
                assert status == 200 and texts(events) == ["HELLO"]
            one.signal(signal.SIGCONT)
            async with http.get(f"{one.url}/runs/{started['invocationId']}/events") as response:
                told = await response.text()  # to its end
            assert "event: error" in told and "a newer run has taken over" in told, told
            async with http.get(f"{two.url}/apps/bot/users/u/sessions/s") as response:
                stored = (await response.json())["events"]
    assert texts(stored) == ["go", "hello", "HELLO"]
    assert stored[-1]["invocationId"] != started["invocationId"]


async def test_approvals_are_answered_on_another_server_and_carried_out_once(url: str) -> None:
    till = Till()
    first, _ = on(till, call("pay", {"amount": 5}), "one", database=url)
    second, _ = on(till, "two", database=url)
    statuses: list[int] = []
    async with connect(first) as one, connect(second) as two:
        here, there = Talk(one, "app", first), Talk(two, "app", second)
        await here.create()
        (request,) = requests(await here.run("pay"))

        async def send(talk: Talk) -> None:
            statuses.append((await talk.client.post("/run", json=talk.body(approve(request)))).status)

        async with anyio.create_task_group() as group:
            group.start_soon(send, there)
            group.start_soon(send, here)
    assert sorted(statuses) == [200, 409]
    assert till.paid == [5]


async def many(urls: Sequence[str]) -> None:
    """Clients that go from server to server with each message, all at once."""

    async def one(number: int) -> None:
        session = f"s{number}"
        assert (await post(http, urls[number % len(urls)], f"/apps/bot/users/u/sessions/{session}", {}))[0] == 200
        for turn in range(TURNS):
            said = f"hello {number} {turn}"
            status, events = await post(http, urls[(number + turn) % len(urls)], "/run", body(said, session))
            assert status == 200 and texts(events) == [said.upper()], events

    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        anyio.create_task_group() as group,
    ):
        for number in range(CLIENTS):
            group.start_soon(one, number)


async def test_64_clients_at_once_on_two_servers(bot: Path, url: str) -> None:
    words = (str(bot), "--db", url, "--log-level", "warning")
    with Serving(*words) as first, Serving(*words) as second:
        await many([first.url, second.url])
        for serving in (first, second):
            serving.signal(signal.SIGTERM)
            assert serving.ended() == 0 and serving.err.text == ""
    (counted,) = await rows(url, "SELECT count(*) AS events, count(DISTINCT sid) AS sessions FROM polyport_events")
    assert dict(counted) == {"events": CLIENTS * TURNS * 2, "sessions": CLIENTS}


async def test_workers_of_one_server_share_the_database(bot: Path, url: str) -> None:
    with Serving(str(bot), "--db", url, "--workers", "2") as serving:
        await many([serving.url])
        serving.signal(signal.SIGTERM)
        assert serving.ended() == 0 and "Traceback" not in serving.err.text


async def test_a_database_that_is_not_there_is_told_at_start(bot: Path, tmp_path: Path) -> None:
    serving = Serving(str(bot), "--db", f"postgresql://me:hunter2@/x?host={tmp_path}")
    try:
        assert serving.ended() != 0
        assert "cannot be reached" in serving.err.text and "hunter2" not in serving.err.text, serving.said
    finally:
        serving.__exit__(None, None, None)


async def test_tasks_and_deliveries_go_where_the_sessions_are(url: str) -> None:
    app = App(LlmAgent(name="bot", model="demo"), stores=url, protocols=["rest", "a2a", "triggers"])
    assert isinstance(task_store(app.stores, REAL), PostgresTasks)
    assert isinstance(trigger_store(app.stores), PostgresTriggers)
    async with connect(app) as client:
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        made = await client.post("/message:send", json={"message": message}, headers={"A2A-Version": "1.0"})
        assert made.status == 200, made.text
        pushed = {"message": {"messageId": "p1", "data": "aGVsbG8="}, "subscription": "s"}
        for _ in range(2):
            assert (await client.post("/apps/bot/trigger/pubsub", json=pushed)).status == 200
    assert (await rows(url, "SELECT count(*) AS n FROM polyport_tasks"))[0]["n"] == 1
    (delivery,) = await rows(url, "SELECT state, text FROM polyport_trigger_deliveries")
    assert dict(delivery) == {"state": "done", "text": b""}
