"""Real processes of one cluster, and a client of REST for them: for tests in which processes are killed."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio

from support.nats import nats
from support.processes import Serving

AGENT = """
import os, signal, time
from pathlib import Path
from polyport import App, Content, LlmAgent, ModelResponse, Part, make_tool
from polyport.data.content import FunctionCall
from polyport.data.limits import Limits
from polyport.ports.plugin import Plugin
from polyport.cluster import Cluster
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
        name = "first" if said.startswith("go") else {"first": "second", "kill": "kill"}.get(said)
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
    stores=os.environ["BOT_DB"],
    cluster=Cluster(
        os.environ["BOT_NATS"], prefix=os.environ["BOT_PREFIX"], lease_s=1, runs=os.environ.get("BOT_RUNS", "here")
    ),
    secret="the same in all of them, and long",
    plugins=[Early()],
    limits=Limits(shutdown_s=0.1, max_takeovers=int(os.environ.get("BOT_TAKEOVERS", "1"))),
    seams=Seams(clock=lambda: time.time() + wrong),
)
"""


class Bots:
    """How processes of one cluster are started, and what is on disk beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "bot.py"
        self.file.write_text(AGENT, encoding="utf-8")
        os.mkfifo(folder / "hang")
        url, prefix = nats()
        self.env = {"BOT_NATS": url, "BOT_PREFIX": prefix, "BOT_DB": f"sqlite:///{folder / 'data.db'}"}

    def serving(self, **env: str) -> Serving:
        return Serving(str(self.file), cwd=self.folder, env={**self.env, **env})

    async def at_work(self) -> Any:
        """Something to be closed: until then the tool hangs that is at work now."""
        return await anyio.to_thread.run_sync((self.folder / "hang").open, "w")

    def hangs_no_more(self) -> None:
        (self.folder / "hang").unlink()

    def done(self) -> list[str]:
        return (self.folder / "log.txt").read_text().splitlines()


class Http:
    """Calls of REST to any process."""

    def __init__(self, session: aiohttp.ClientSession, name: str = "s") -> None:
        self.session = session
        self.name = name

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
        return {"appName": "bot", "userId": "u", "sessionId": self.name, "streaming": True, "newMessage": message}

    async def create(self, server: Serving) -> None:
        async with self.session.post(f"{server.url}/apps/bot/users/u/sessions/{self.name}", json={}) as response:
            assert response.status == 200, await response.text()

    async def stored(self, server: Serving) -> list[Any]:
        async with self.session.get(f"{server.url}/apps/bot/users/u/sessions/{self.name}") as response:
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
