"""A cluster of real processes: one of them is killed, stopped, told to end, or has a wrong clock, in the middle of a run."""

import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import pytest

from support.nats import nats
from support.processes import Serving

AGENT = """
import os, signal, time
from pathlib import Path
from polyport import App, Content, LlmAgent, ModelResponse, Part, make_tool
from polyport.data.content import FunctionCall
from polyport.data.limits import Limits
from polyport.ports.plugin import Plugin
from polyport.runs.cluster import Cluster
from polyport.seams import Seams

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
            for piece in ("after ", said):
                if on_partial is not None:
                    await on_partial(ModelResponse(content=Content(role="model", parts=[Part(text=piece)]), partial=True))
            return ModelResponse(content=Content(role="model", parts=[Part(text="after " + said)]))
        return ModelResponse(content=Content(role="model", parts=[Part(function_call=FunctionCall(id=name, name=name))]))

    async def aclose(self): ...

class Early(Plugin):
    name = "early"

    async def on_user_message(self, ctx, content):
        if content.text == "early" and (HERE / "hang").exists():
            (HERE / "hang").read_text()  # the whole process stands still, before anything is stored

wrong = float(os.environ.get("BOT_CLOCK", "0"))
app = App(
    LlmAgent(name="bot", model=Steps(), tools=[first, *(make_tool(t, idempotent=True) for t in (second, kill))]),
    stores=f"sqlite:///{HERE / 'data.db'}",
    cluster=Cluster(
        os.environ["BOT_NATS"], prefix=os.environ["BOT_PREFIX"], lease_s=1, runs=os.environ.get("BOT_RUNS", "here")
    ),
    secret="the same in all of them, and long",
    plugins=[Early()],
    limits=Limits(shutdown_s=0.1, max_takeovers=1),
    seams=Seams(clock=lambda: time.time() + wrong),
)
"""
LEASE_S = 1


class Bots:
    """How processes of one cluster are started, and what is on disk beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "bot.py"
        self.file.write_text(AGENT, encoding="utf-8")
        os.mkfifo(folder / "hang")
        url, prefix = nats()
        self._env = {"BOT_NATS": url, "BOT_PREFIX": prefix}

    def serving(self, **env: str) -> Serving:
        return Serving(str(self.file), cwd=self.folder, env={**self._env, **env})

    async def at_work(self) -> Any:
        """Something to be closed: until then the tool hangs that is at work now."""
        return await anyio.to_thread.run_sync((self.folder / "hang").open, "w")

    def hangs_no_more(self) -> None:
        (self.folder / "hang").unlink()

    def done(self) -> list[str]:
        return (self.folder / "log.txt").read_text().splitlines()


@pytest.fixture
def bots(tmp_path: Path) -> Bots:
    return Bots(tmp_path)


class Http:
    """Calls of REST to any process. The session is always the same."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def run(self, server: Serving, text: str) -> str:
        """Start a run that is not waited for; its id."""
        async with self.session.post(f"{server.url}/run?detach=1", json=self.body(text)) as response:
            assert response.status == 202, await response.text()
            return (await response.json())["invocationId"]

    async def wait(self, server: Serving, text: str) -> Any:
        async with self.session.post(f"{server.url}/run", json=self.body(text)) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    def body(self, text: str) -> Any:
        message = {"role": "user", "parts": [{"text": text}]}
        return {"appName": "bot", "userId": "u", "sessionId": "s", "streaming": True, "newMessage": message}

    async def create(self, server: Serving) -> None:
        async with self.session.post(f"{server.url}/apps/bot/users/u/sessions/s", json={}) as response:
            assert response.status == 200, await response.text()

    async def stored(self, server: Serving) -> list[Any]:
        async with self.session.get(f"{server.url}/apps/bot/users/u/sessions/s") as response:
            return (await response.json())["events"]

    async def status(self, server: Serving, run_id: str) -> Any:
        async with self.session.get(f"{server.url}/runs/{run_id}") as response:
            return await response.json()


class Reading:
    """A run that is followed in the background: `got` are ids and events, `ended` is set at its end."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.open = anyio.Event()
        self.ended = anyio.Event()

    async def read(self, http: Http, server: Serving, run_id: str, after: str = "") -> None:
        headers = {"Last-Event-ID": after} if after else {}
        async with http.session.get(f"{server.url}/runs/{run_id}/events", headers=headers) as response:
            assert response.status == 200, await response.text()
            id, kind = "", ""
            async for line in response.content:
                name, _, value = line.decode().strip().partition(": ")
                if name == "id":
                    id = value
                elif name == "event":
                    kind = value
                elif name == "data":
                    self.got.append((id, json.loads(value) | ({"frame": kind} if kind else {})))
                    self.open.set()
        self.ended.set()

    @property
    def offsets(self) -> list[int]:
        return [int(id.partition(".")[0]) for id, _ in self.got]

    @property
    def said(self) -> list[str]:
        return [said(event) for _, event in self.got]


def said(event: Any) -> str:
    if "frame" in event:
        return f"{event['frame']}: {event.get('error', event)}"
    part = event["content"]["parts"][0]
    mark = "~" if event.get("partial") else ""
    return mark + (part.get("text") or (part.get("functionCall") or part.get("functionResponse"))["name"])


@asynccontextmanager
async def calling() -> AsyncGenerator[Http]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield Http(session)


WHOLE = ["first", "first", "second", "second", "~after ", "~second", "after second"]
STORED = ["go", "first", "first", "second", "second", "after second"]


async def test_T106_a_run_goes_on_in_another_process_when_its_own_is_killed(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two, bots.serving() as three:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            run_id = await http.run(one, "go")
            reading = Reading()
            with await bots.at_work():
                group.start_soon(reading.read, http, three, run_id)
                await reading.open.wait()
                one.signal(signal.SIGKILL)
                one.ended()
                bots.hangs_no_more()
                with anyio.fail_after(30):
                    await reading.ended.wait()
            assert reading.said == WHOLE, "what was lost in the middle is said again, and nothing twice"
            assert reading.offsets == [1, 2, 3, 4, 5, 6, 7]
            for server in (two, three):
                again = Reading()
                await again.read(http, server, run_id, after=reading.got[2][0])
                assert again.got == reading.got[3:]
                assert await http.status(server, run_id) == {"invocationId": run_id, "status": "finished"}
            assert [said(e) for e in await http.stored(two)] == STORED
            assert [said(e) for e in await http.wait(two, "hello")][-1] == "after hello", "the session is free again"
    assert bots.done() == ["first", "second", "second"]


async def test_T107_a_process_that_was_stopped_and_wakes_up_writes_nothing(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            run_id = await http.run(one, "go")
            here, there = Reading(), Reading()
            with await bots.at_work():
                group.start_soon(here.read, http, one, run_id)
                group.start_soon(there.read, http, two, run_id)
                await here.open.wait()
                await there.open.wait()
                bots.hangs_no_more()
                one.signal(signal.SIGSTOP)
                with anyio.fail_after(30):
                    await there.ended.wait()
                assert there.said == WHOLE
                one.signal(signal.SIGCONT)
            with anyio.fail_after(30):
                await here.ended.wait()
            assert here.said[-1].startswith("error: "), "who followed there is told to look elsewhere"
            assert [said(e) for e in await http.stored(two)] == STORED
            again = Reading()
            await again.read(http, one, run_id, after=here.got[-2][0])
            assert here.got[:-1] + again.got == there.got, "and gets the rest, from the very same process"
            assert [said(e) for e in await http.wait(one, "hello")][-1] == "after hello", "it serves, as before"
            assert [said(e) for e in await http.stored(two)] == [*STORED, "hello", "after hello"]
    assert bots.done() == ["first", "second", "second"]


async def test_T107_a_process_that_was_stopped_before_its_first_word_adds_nothing(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            answered: list[Any] = []

            async def ask() -> None:
                async with http.session.post(f"{one.url}/run", json=http.body("early")) as response:
                    answered.append(response.status)

            group.start_soon(ask)
            with await bots.at_work():
                bots.hangs_no_more()
                with anyio.fail_after(30):
                    while [said(e) for e in await http.stored(two)] != ["early", "after early"]:
                        await anyio.lowlevel.checkpoint()
        assert answered == [409], "it has lost its session"
        async with calling() as http:
            assert [said(e) for e in await http.stored(two)] == ["early", "after early"]
            assert [said(e) for e in await http.wait(one, "hello")][-1] == "after hello"


async def test_T110_a_process_whose_clock_is_wrong_changes_neither_order_nor_lease(bots: Bots) -> None:
    with bots.serving(BOT_CLOCK="-10") as one, bots.serving(BOT_CLOCK="10") as two, bots.serving() as three:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            run_id = await http.run(one, "go")
            reading = Reading()
            with await bots.at_work():
                group.start_soon(reading.read, http, three, run_id)
                await reading.open.wait()
                bots.hangs_no_more()
            with anyio.fail_after(30):
                await reading.ended.wait()
            assert reading.said == WHOLE and reading.offsets == [1, 2, 3, 4, 5, 6, 7]
            assert [said(e) for e in await http.wait(two, "hello")][-1] == "after hello"
            assert [said(e) for e in await http.stored(three)] == [*STORED, "hello", "after hello"]
    assert bots.done() == ["first", "second"], "nobody was taken for gone"


async def test_T111_a_process_that_is_told_to_end_hands_over_what_it_carries_out(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            run_id = await http.run(one, "go")
            reading = Reading()
            with await bots.at_work():
                group.start_soon(reading.read, http, two, run_id)
                await reading.open.wait()
                bots.hangs_no_more()
                one.signal(signal.SIGTERM)
                with anyio.fail_after(30):
                    await reading.ended.wait()
            assert one.ended() in (0, -signal.SIGTERM)
            assert reading.said == WHOLE and reading.offsets == [1, 2, 3, 4, 5, 6, 7]
            assert [said(e) for e in await http.stored(two)] == STORED
            assert await http.status(two, run_id) == {"invocationId": run_id, "status": "finished"}


async def test_a_run_that_kills_each_process_is_given_up(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two, bots.serving(BOT_RUNS="workers") as three:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            run_id = await http.run(one, "kill")
            reading = Reading()
            one.ended()
            two.ended()
            with bots.serving() as four:
                group.start_soon(reading.read, http, three, run_id)
                with anyio.fail_after(30):
                    await reading.ended.wait()
                assert reading.said[:-1] == ["kill"]
                assert reading.said[-1].startswith("error: the run was stopped: 2 processes were lost")
                assert [said(e) for e in await http.wait(four, "hello")][-1] == "after hello"
    assert bots.done() == ["kill", "kill"]
