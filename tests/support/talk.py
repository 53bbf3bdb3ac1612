"""For stories: an app served in memory, and a client that knows its app, user and session."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from polyport import App, Content, Part
from polyport.data.content import FunctionResponse
from polyport.testing import connect
from polyport.testing.connect import Client

Serve = Callable[..., AbstractAsyncContextManager["Talk"]]


class Talk:
    """A client that knows one app, user and session."""

    def __init__(self, client: Client, app: str, server: App, user: str = "u1", session: str = "s1") -> None:
        self.client = client
        self.app = app
        self.server = server
        self.user = user
        self.session = session

    def at(self, session: str, user: str = "u1") -> "Talk":
        return Talk(self.client, self.app, self.server, user, session)

    @property
    def path(self) -> str:
        return f"/apps/{self.app}/users/{self.user}/sessions/{self.session}"

    def body(self, message: Any = "hi", **more: Any) -> dict[str, Any]:
        if isinstance(message, str):
            message = {"role": "user", "parts": [{"text": message}]}
        base = {"appName": self.app, "userId": self.user, "sessionId": self.session, "newMessage": message, **more}
        return {k: v for k, v in base.items() if v is not None}

    async def create(self, **body: Any) -> Any:
        response = await self.client.post(self.path, json=body)
        assert response.status == 200, response.text
        return response.json()

    async def run(self, message: Any = "hi", **more: Any) -> list[dict[str, Any]]:
        response = await self.client.post("/run", json=self.body(message, **more))
        assert response.status == 200, response.text
        return response.json()

    async def sse(self, message: Any = "hi", query: dict[str, Any] | None = None, **more: Any) -> list[Any]:
        """All events of a run over SSE; an error frame is `("error", {...})`."""
        found: list[Any] = []
        body = self.body(message, **more)
        async with self.client.stream("POST", "/run_sse", json=body, query=query) as response:
            assert response.status == 200, await response.read()
            async for event in response.events():
                data = json.loads(event.data)
                found.append(data if event.event == "message" else (event.event, data))
        return found

    async def stored(self) -> dict[str, Any]:
        response = await self.client.get(self.path)
        assert response.status == 200, response.text
        return response.json()


def texts(events: list[Any]) -> list[str]:
    """The texts of events as REST shows them, in order."""
    return [
        "".join(p["text"] for p in e["content"]["parts"] if p.get("text") and not p.get("thought"))
        for e in events
        if isinstance(e, dict) and e.get("content") and any(p.get("text") for p in e["content"].get("parts", []))
    ]


def answer(id: str, name: str, response: dict[str, Any]) -> dict[str, Any]:
    """A message that answers a function call."""
    return {"role": "user", "parts": [{"functionResponse": {"id": id, "name": name, "response": response}}]}


def said(id: str, name: str, response: dict[str, Any]) -> Content:
    return Content(role="user", parts=[Part(function_response=FunctionResponse(id=id, name=name, response=response))])


@asynccontextmanager
async def serving(agent: Any, *, create: bool = True, **options: Any) -> AsyncGenerator[Talk]:
    app = App(agent, **options)
    async with connect(app) as client:
        talk = Talk(client, next(iter(app.trees)), app)
        if create:
            await talk.create()
        yield talk
