"""Many A2A tasks on three replicas, of which one after the other is killed and started again: each task ends once, whole."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from polyport import LlmAgent
from polyport.errors import Unavailable
from polyport.testing import ScriptedModel, call
from support.a2a_replicas import Ear, Together
from support.a2a_talk import Gate, lines, said, short, until
from support.nats import NatsServer, nats
from support.postgres import rows, server
from support.processes import Serving

pytestmark = pytest.mark.long

AGENT = """
import os
import anyio
from polyport import App, make_tool, Content, LlmAgent, ModelResponse, Part
from polyport.data.content import FunctionCall
from polyport.protocols.a2a.mount import A2a
from polyport.cluster import Cluster

async def step(n: int) -> int:
    "One step."
    await anyio.sleep(0.6)
    return n

class Steps:
    name = "steps"
    schema_with_tools = True

    async def generate(self, request, on_partial=None):
        last = request.contents[-1].parts[-1]
        n = 1 if last.function_response is None else last.function_response.response["result"] + 1
        if n > 10:
            return ModelResponse(content=Content(role="model", parts=[Part(text="done")]))
        return ModelResponse(
            content=Content(role="model", parts=[Part(function_call=FunctionCall(id=f"s{n}", name="step", args={"n": n}))])
        )

    async def aclose(self): ...

app = App(
    LlmAgent(name="bot", model=Steps(), tools=[make_tool(step, idempotent=True)]),
    stores=os.environ["BOT_DB"],
    cluster=Cluster(os.environ["BOT_NATS"], prefix=os.environ["BOT_PREFIX"], lease_s=2),
    secret="the same in all of them, and long",
    protocols=[A2a()],
)
"""
V1 = {"A2A-Version": "1.0"}
TASKS = 60
CALLS = [word for n in range(1, 11) for word in (f"call {n}", f"result {n}")]


async def test_T106_tasks_outlive_replicas_that_are_killed_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "bot.py").write_text(AGENT, encoding="utf-8")
    url, prefix = nats()
    db = server().url(server().new_database())
    env = {"BOT_DB": db, "BOT_NATS": url, "BOT_PREFIX": prefix}

    def started() -> Serving:
        return Serving(str(tmp_path / "bot.py"), cwd=tmp_path, env=env).__enter__()

    replicas = [started() for _ in range(3)]
    tasks: list[str] = []
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            async with anyio.create_task_group() as group:
                for number in range(TASKS):
                    group.start_soon(begin, http, replicas[number % 3].url, f"m{number}", tasks)
            for turn in range(3):
                os.killpg(replicas[turn].pid, signal.SIGKILL)
                replicas[turn].ended()
                replicas[turn].__exit__(None, None, None)
                replicas[turn] = await anyio.to_thread.run_sync(started)
            with anyio.fail_after(120):
                for number, task_id in enumerate(tasks):
                    await ended(http, replicas[number % 3].url, task_id)
    finally:
        for replica in replicas:
            replica.__exit__(None, None, None)
    found = await rows(
        db,
        "SELECT id, kind, body FROM polyport_task_changes AS c JOIN polyport_tasks USING (seq) ORDER BY seq, c.version",
    )
    steps: dict[str, list[str]] = {}
    for row in found:
        steps.setdefault(row["id"], []).extend(told(row["kind"], json.loads(row["body"])))
    assert len(steps) == TASKS
    for task_id, steps_told in steps.items():
        assert steps_told == [*CALLS, "done", "TASK_STATE_COMPLETED"], (task_id, steps_told)


async def begin(http: aiohttp.ClientSession, url: str, id: str, tasks: list[str]) -> None:
    message = {"messageId": id, "role": "ROLE_USER", "parts": [{"text": "go"}]}
    body = {"message": message, "configuration": {"returnImmediately": True}}
    async with http.post(f"{url}/message:send", json=body, headers=V1) as response:
        assert response.status == 200, await response.text()
        tasks.append((await response.json())["task"]["id"])


async def ended(http: aiohttp.ClientSession, url: str, task_id: str) -> None:
    """Wait for the end of a task, at any replica."""
    async with http.get(f"{url}/tasks/{task_id}:subscribe", headers=V1) as response:
        async for _ in response.content:
            pass
    async with http.get(f"{url}/tasks/{task_id}", headers=V1) as response:
        assert (await response.json())["status"]["state"] == "TASK_STATE_COMPLETED"


def told(kind: str, frame: Any) -> list[str]:
    """What a change of a task says that its caller sees."""
    if kind == "status":
        state = frame["statusUpdate"]["status"]["state"]
        return [] if state == "TASK_STATE_WORKING" else [state]
    if kind != "artifact":
        return []
    found: list[str] = []
    for part in frame["artifactUpdate"]["artifact"]["parts"]:
        if "text" in part:
            found.append(part["text"])
        elif "args" in part["data"]:
            found.append(f"call {part['data']['args']['n']}")
        else:
            found.append(f"result {part['data']['response']['result']}")
    return found


async def test_while_the_cluster_cannot_be_reached_no_message_is_lost(tmp_path: Path) -> None:
    """What is at work goes on; what comes is stored, refused, and worked on later; sent again, it is known."""
    gate = Gate()
    models = ScriptedModel(call("wait", id="c1"), "done", "later"), ScriptedModel("later")
    agent, other = (LlmAgent(name="app", model=model, tools=[gate.wait]) for model in models)
    ear = Ear()
    own = NatsServer()
    together = Together(f"sqlite:///{tmp_path}/all.db", own, lease_s=1)
    try:
        async with (
            together.replica(agent) as here,
            together.replica(other) as there,
            anyio.create_task_group() as group,
        ):
            task = await here.begin("go")
            await gate.begun.wait()
            group.start_soon(ear.listen, there, task.id)
            await ear.open.wait()
            await anyio.to_thread.run_sync(own.stop)
            gate.go.set()
            await here.until(task.id, "completed")
            with pytest.raises(Unavailable):
                await there.send("and this", id="same")
            await anyio.to_thread.run_sync(own.start)
            await until(lambda: ear.frames and lines(ear.frames)[-1] == "status completed")
            again = await there.send("and this", id="same")
            assert (short(again), said(again)) == ("completed", "later")
    finally:
        own.close()
