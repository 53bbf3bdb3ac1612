"""Replicas of a server on one PostgreSQL database: a message that reaches two, and a clock that is wrong."""

from typing import Any

import anyio

from polyport import App, LlmAgent
from polyport.seams import Seams
from polyport.testing import ScriptedModel, connect
from polyport.testing.connect import Client
from support.postgres import rows, server
from support.talk import Talk, texts

V1 = {"A2A-Version": "1.0"}


async def test_T108_the_same_message_to_two_replicas_at_once_is_one_run() -> None:
    url = server().url(server().new_database())
    scripts = [ScriptedModel("said"), ScriptedModel("said")]
    one, two = (App(LlmAgent(name="bot", model=script), stores=url, protocols=["rest", "a2a"]) for script in scripts)
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    tasks: list[Any] = []

    async def send(client: Client) -> None:
        response = await client.post("/message:send", json={"message": message}, headers=V1)
        assert response.status == 200, response.text
        tasks.append(response.json()["task"])

    async with connect(one) as here, connect(two) as there:
        async with anyio.create_task_group() as group:
            for client in (here, there, here, there):
                group.start_soon(send, client)
        assert len({task["id"] for task in tasks}) == 1
        for client in (here, there):
            found = (await client.get(f"/tasks/{tasks[0]['id']}", headers=V1)).json()
            assert found["status"]["state"] == "TASK_STATE_COMPLETED" and "said" in str(found["artifacts"])
    assert sum(len(script.requests) for script in scripts) == 1
    assert [dict(row) for row in await rows(url, "SELECT count(*) AS n FROM polyport_sessions")] == [{"n": 1}]


async def test_T110_a_clock_that_is_off_changes_no_order() -> None:
    url = server().url(server().new_database())
    now = 1_772_000_000.0
    apps = [
        App(LlmAgent(name="bot", model="demo"), stores=url, seams=Seams(clock=lambda off=off: now + off))
        for off in (0.0, -10.0, 10.0)
    ]
    async with connect(apps[0]) as one, connect(apps[1]) as two, connect(apps[2]) as three:
        talks = [Talk(client, "bot", app) for client, app in zip((one, two, three), apps, strict=True)]
        await talks[0].create()
        said: list[str] = []
        for number in range(9):
            said += [f"message {number}", *texts(await talks[number % 3].run(f"message {number}"))]
        for talk in talks:
            assert texts((await talk.stored())["events"]) == said
        listed = (await one.get("/apps/bot/users/u1/sessions")).json()
        assert [session["id"] for session in listed] == ["s1"]
