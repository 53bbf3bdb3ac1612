"""For stories of live sessions: an app served in memory, a client on a WebSocket, and a live model that the test plays."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from polyport import LlmAgent
from polyport.data.content import Blob, Content, Part
from polyport.data.live import LiveContent, LiveInput, LiveResponses
from polyport.protocols.live import Live
from polyport.testing.live import LiveDouble, LiveLine
from polyport.testing.websocket import WebSocket
from support.talk import Talk, serving

PATIENCE_S = 10.0
"""After this a story fails; nothing waits for it."""


class Client:
    """One live connection of a client."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket

    async def say(self, text: str, **more: Any) -> None:
        await self.socket.send_json({"content": {"role": "user", "parts": [{"text": text}]}, **more})

    async def send(self, **frame: Any) -> None:
        await self.socket.send_json(frame)

    async def event(self) -> dict[str, Any]:
        """The next event."""
        frame = await self.socket.receive()
        assert isinstance(frame, str), "an event is a text message"
        return json.loads(frame)

    async def until(self, fits: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
        """The next events up to the first that fits."""
        found = [await self.event()]
        while not fits(found[-1]):
            found.append(await self.event())
        return found

    async def closed(self) -> tuple[int, str]:
        """Read to the end; the close code and reason."""
        async for _ in self.socket:
            pass
        assert self.socket.code is not None
        return self.socket.code, self.socket.reason


class Stage:
    """A client's side and the model's side of one app. `line` is the model's newest connection."""

    def __init__(self, talk: Talk, model: LiveDouble) -> None:
        self.talk = talk
        self.model = model

    def query(self, **more: Any) -> dict[str, Any]:
        return {"appName": self.talk.app, "userId": self.talk.user, "sessionId": self.talk.session, **more}

    @asynccontextmanager
    async def connected(self, **query: Any) -> AsyncGenerator[Client]:
        async with self.talk.client.websocket("/run_live", query=self.query(**query)) as socket:
            yield Client(socket)

    @asynccontextmanager
    async def live(self, **query: Any) -> AsyncGenerator[tuple[Client, LiveLine]]:
        """A client, and the connection that the agent opened for it."""
        async with self.connected(**query) as client:
            yield client, await self.model.connection()

    async def stored(self) -> list[dict[str, Any]]:
        return (await self.talk.stored())["events"]


@asynccontextmanager
async def staged(
    *steps: Any, agent: Any = None, model: LiveDouble | None = None, **options: Any
) -> AsyncGenerator[Stage]:
    """An agent `app` on a live model that the test plays; `tools`, `sub_agents` and so on are fields of the agent, other
    options are the App's. Fails when something hangs, or when a connection to the model is left open."""
    model = model or LiveDouble(*steps)
    fields = {name: options.pop(name) for name in list(options) if name in LlmAgent.__dataclass_fields__}
    served = agent if agent is not None else LlmAgent(name="app", model=model, **fields)
    with anyio.fail_after(PATIENCE_S):
        async with serving(served, protocols=["rest", Live()], **options) as talk:
            yield Stage(talk, model)
        await model.all_closed()


def sound(data: bytes, mime_type: str = "audio/pcm;rate=24000") -> Content:
    return Content(role="model", parts=[Part(inline_data=Blob(mime_type=mime_type, data=data))])


def text_of(item: LiveInput) -> str:
    assert isinstance(item, LiveContent), item
    return item.content.text


def results_of(item: LiveInput) -> list[tuple[str, Any]]:
    """`(call id, response)` of an input with results."""
    assert isinstance(item, LiveResponses), item
    return [(r.id, r.response) for r in item.responses]


def lines_of(events: Sequence[dict[str, Any]]) -> list[str]:
    """Events as REST shows them, one short line each: `app: hello`, `user heard: hi`, `app: call f`, `app: result f`,
    `app: turn complete`; pieces begin with `~`."""
    return [("~" if event.get("partial") else "") + f"{event['author']}{_about(event)}" for event in events]


def _about(event: dict[str, Any]) -> str:
    for member, word in (("inputTranscription", " heard"), ("outputTranscription", " spoke")):
        if member in event:
            return f"{word}: {event[member]['text']}"
    if event.get("errorCode"):
        return f": {event['errorCode']}"
    if event.get("interrupted"):
        return ": interrupted"
    if event.get("turnComplete"):
        return ": turn complete"
    shown: list[str] = []
    for part in (event.get("content") or {}).get("parts", []):
        if "text" in part:
            shown.append(part["text"])
        elif "functionCall" in part:
            shown.append(f"call {part['functionCall']['name']}")
        elif "functionResponse" in part:
            shown.append(f"result {part['functionResponse']['name']}")
        elif "inlineData" in part:
            shown.append("sound")
    return ": " + " | ".join(shown)
