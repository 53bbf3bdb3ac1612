"""A2A on replicas that are processes: one of them is killed, stopped, or told to end in the middle of a task."""

import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from support.a2a_hook import hooked
from support.nats import nats
from support.postgres import rows, server
from support.processes import Serving

AGENT = """
import os, signal
from pathlib import Path
from polyport import App, make_tool, Content, LlmAgent, ModelResponse, Part
from polyport.data.content import FunctionCall
from polyport.data.limits import Limits
from polyport.protocols.a2a.mount import A2a
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.cluster import Cluster

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

def kill() -> str:
    "Kill this process."
    log("kill")
    os.kill(os.getpid(), signal.SIGKILL)

class Steps:
    name = "steps"
    schema_with_tools = True

    async def generate(self, request, on_partial=None):
        last = request.contents[-1].parts[-1]
        said = last.text or last.function_response.name
        name = {"go": "first", "first": "second", "kill": "kill"}.get(said)
        if name is None:
            return ModelResponse(content=Content(role="model", parts=[Part(text="after " + said)]))
        return ModelResponse(content=Content(role="model", parts=[Part(function_call=FunctionCall(id=name, name=name))]))

    async def aclose(self): ...

app = App(
    LlmAgent(name="bot", model=Steps(), tools=[first, *(make_tool(t, idempotent=True) for t in (second, kill))]),
    stores=os.environ["BOT_DB"],
    cluster=Cluster(os.environ["BOT_NATS"], prefix=os.environ["BOT_PREFIX"], lease_s=int(os.environ["BOT_LEASE"])),
    secret="the same in all of them, and long",
    limits=Limits(shutdown_s=0.1, max_takeovers=1),
    protocols=[A2a(push=PushSettings(allow_http=True, allow_private=True, look_s=0.2))],
)
"""
V1 = {"A2A-Version": "1.0"}
DONE = "TASK_STATE_COMPLETED"


class Bots:
    """How replicas are started, and what is on disk beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "bot.py"
        self.file.write_text(AGENT, encoding="utf-8")
        os.mkfifo(folder / "hang")
        self.db = server().url(server().new_database())
        url, prefix = nats()
        self._env = {"BOT_DB": self.db, "BOT_NATS": url, "BOT_PREFIX": prefix}

    def serving(self, lease_s: int = 1) -> Serving:
        return Serving(str(self.file), cwd=self.folder, env={**self._env, "BOT_LEASE": str(lease_s)})

    async def at_work(self) -> Any:
        """Something to be closed: until then the tool hangs that is at work now."""
        return await anyio.to_thread.run_sync((self.folder / "hang").open, "w")

    def done(self) -> list[str]:
        return (self.folder / "log.txt").read_text().splitlines()


@pytest.fixture
def bots(tmp_path: Path) -> Bots:
    return Bots(tmp_path)


class Http:
    """Calls of HTTP+JSON to any replica."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def send(self, server: Serving, text: str, **more: Any) -> Any:
        task, configuration = more.pop("task", ""), {"returnImmediately": True, **more}
        message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}], "taskId": task}
        body = {"message": message, "configuration": configuration}
        async with self.session.post(f"{server.url}/message:send", json=body, headers=V1) as response:
            assert response.status == 200, await response.text()
            return (await response.json())["task"]

    async def get(self, server: Serving, task_id: str) -> Any:
        async with self.session.get(f"{server.url}/tasks/{task_id}", headers=V1) as response:
            assert response.status == 200, await response.text()
            return await response.json()


class Reading:
    """A subscription that is read in the background; `ended` is set at its end."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.open = anyio.Event()
        self.ended = anyio.Event()

    async def read(self, http: Http, server: Serving, task_id: str) -> None:
        async with http.session.get(f"{server.url}/tasks/{task_id}:subscribe", headers=V1) as response:
            async for line in response.content:
                if line.startswith(b"data:"):
                    self.frames.append(json.loads(line[5:]))
                    self.open.set()
        self.ended.set()

    @property
    def said(self) -> list[str]:
        """The statuses and what the artifacts say, in order."""
        found: list[str] = []
        for frame in self.frames:
            if "statusUpdate" in frame:
                found.append(frame["statusUpdate"]["status"]["state"])
            elif "artifactUpdate" in frame:
                found += words(frame["artifactUpdate"]["artifact"])
        return found


def words(artifact: Any) -> list[str]:
    return [part["text"] if "text" in part else part["data"]["name"] for part in artifact["parts"]]


@asynccontextmanager
async def calling() -> AsyncGenerator[Http]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield Http(session)


async def terminal_states(bots: Bots, task_id: str) -> list[str]:
    found = await rows(
        bots.db,
        "SELECT body FROM polyport_task_changes JOIN polyport_tasks USING (seq)"
        f" WHERE id = '{task_id}' AND kind = 'status' ORDER BY polyport_task_changes.version",
    )
    states = [json.loads(row["body"])["statusUpdate"]["status"]["state"] for row in found]
    return [state for state in states if state != "TASK_STATE_WORKING"]


async def test_T106_a_task_goes_on_when_its_replica_is_killed(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two, bots.serving() as three:
        async with calling() as http, hooked() as hook, anyio.create_task_group() as group:
            task = await http.send(one, "go", taskPushNotificationConfig={"url": hook.url, "id": "p"})
            reading = Reading()
            with await bots.at_work():
                group.start_soon(reading.read, http, three, task["id"])
                await reading.open.wait()
                late = await http.send(two, "and more", task=task["id"])
                assert late["status"]["state"] == "TASK_STATE_WORKING"
                one.signal(signal.SIGKILL)
                one.ended()
            (bots.folder / "hang").unlink()
            with anyio.fail_after(30):
                await reading.ended.wait()
            assert reading.said == ["second", "after second", "after and more", DONE]
            found = await http.get(two, task["id"])
            assert found == await http.get(three, task["id"])
            assert [w for a in found["artifacts"] for w in words(a)] == [
                *("first", "first", "second", "second"),
                *("after second", "after and more"),
            ]
            assert await terminal_states(bots, task["id"]) == [DONE]
            await hook.until(9)
            told = [body["statusUpdate"]["status"]["state"] for body in hook.bodies if "statusUpdate" in body]
            assert told[-1] == DONE
    assert bots.done() == ["first", "second", "second"]


async def test_T106_a_task_that_kills_whoever_works_on_it_is_given_up(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two, bots.serving() as three:
        async with calling() as http:
            task = await http.send(one, "kill")
            assert one.wait() == -signal.SIGKILL
            state, found = "", None
            with anyio.fail_after(30):
                while state != "TASK_STATE_FAILED":
                    for replica in (two, three):
                        with suppress(aiohttp.ClientError):
                            found = await http.get(replica, task["id"])
                            state = found["status"]["state"]
            assert "given up" in json.dumps(found)
            assert await terminal_states(bots, task["id"]) == ["TASK_STATE_FAILED"]
    assert bots.done() == ["kill", "kill"]


async def test_T107_a_replica_that_was_stopped_and_wakes_up_adds_nothing(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two:
        async with calling() as http, anyio.create_task_group() as group:
            task = await http.send(one, "go")
            reading = Reading()
            with await bots.at_work():
                group.start_soon(reading.read, http, two, task["id"])
                await reading.open.wait()
                (bots.folder / "hang").unlink()
                one.signal(signal.SIGSTOP)
                with anyio.fail_after(30):
                    await reading.ended.wait()
                found = await http.get(two, task["id"])
                assert found["status"]["state"] == DONE
                one.signal(signal.SIGCONT)
            assert await http.get(one, task["id"]) == found
            again = await http.send(one, "hello", returnImmediately=False)  # it serves, as before
            assert words(again["artifacts"][-1]) == ["after hello"]
            assert await http.get(one, task["id"]) == found
            assert await terminal_states(bots, task["id"]) == [DONE]
    assert bots.done() == ["first", "second", "second"]


async def test_T109_a_replica_that_was_only_slow_loses_its_task_and_nothing_is_lost(bots: Bots) -> None:
    """It does not say in time that it works on the task. What it still stores in the session, the other one makes up for."""
    with bots.serving(lease_s=60) as one:
        async with calling() as http, anyio.create_task_group() as group:
            task = await http.send(one, "go")
            with await bots.at_work() as hang:
                one.signal(signal.SIGSTOP)
                with bots.serving(lease_s=60) as two:
                    two.says(f"task {task['id']} is taken up", err=True)
                    reading = Reading()
                    group.start_soon(reading.read, http, two, task["id"])
                    await reading.open.wait()
                    one.signal(signal.SIGCONT)
                    hang.close()
                    with anyio.fail_after(30):
                        await reading.ended.wait()
                    assert reading.said == ["second", "after second", DONE]
                    assert await http.get(one, task["id"]) == await http.get(two, task["id"])
                    assert await terminal_states(bots, task["id"]) == [DONE]
    assert bots.done() == ["first", "second"]


async def test_T111_a_replica_that_is_told_to_end_leaves_its_tasks_to_another(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two:
        async with calling() as http, anyio.create_task_group() as group:
            task = await http.send(one, "go")
            reading = Reading()
            with await bots.at_work():
                group.start_soon(reading.read, http, two, task["id"])
                await reading.open.wait()
                (bots.folder / "hang").unlink()
                one.signal(signal.SIGTERM)
                with anyio.fail_after(30):
                    await reading.ended.wait()
            assert reading.said == ["second", "after second", DONE]
            assert await terminal_states(bots, task["id"]) == [DONE]
            assert one.wait() == 0
    assert bots.done() == ["first", "second", "second"]
