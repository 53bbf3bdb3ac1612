"""For stories of triggers: an agent that is told of messages, and senders of them."""

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from polyport import App, LlmAgent
from polyport.protocols.triggers import Triggers
from polyport.testing import ScriptedModel, connect
from polyport.testing.connect import Client, Response

SUBSCRIPTION = "projects/p/subscriptions/s"


def push(data: str | bytes | None = "hi", id: str = "", subscription: str = "s", **message: Any) -> dict[str, Any]:
    """The body of a Pub/Sub push."""
    if data is not None:
        message["data"] = base64.b64encode(data.encode() if isinstance(data, str) else data).decode()
    if id:
        message["messageId"] = id
    return {"message": message, "subscription": subscription}


class Sender:
    """Sends messages to the triggers of one served app."""

    def __init__(self, client: Client, model: ScriptedModel, app: App) -> None:
        self.client = client
        self.model = model
        self.app = app

    async def pubsub(self, body: Any = None, app: str = "a", **options: Any) -> Response:
        return await self.client.post(f"/apps/{app}/trigger/pubsub", json=body or push(), **options)

    async def eventarc(self, body: Any, content_type: str = "application/json", **headers: str) -> Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(
            "/apps/a/trigger/eventarc", body=raw, headers={"content-type": content_type, **names}
        )

    async def webhook(self, body: bytes, name: str = "", **headers: str) -> Response:
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        path = "/apps/a/trigger/webhook" + (f"/{name}" if name else "")
        return await self.client.post(path, body=body, headers={"content-type": "application/json", **names})

    async def sessions(self, user: str) -> list[dict[str, Any]]:
        return (await self.client.get(f"/apps/a/users/{user}/sessions")).json()

    async def letters(self) -> list[dict[str, Any]]:
        response = await self.client.get("/apps/a/trigger/dead-letters")
        assert response.status == 200, response.text
        return response.json()["deadLetters"]

    @property
    def told(self) -> list[str]:
        """What the agent was told, one for each time that the model was asked."""
        return [self.model.prompt(index)[0].removeprefix("user: ") for index in range(len(self.model.requests))]


@asynccontextmanager
async def triggers(*steps: Any, settings: Triggers | None = None, **options: Any) -> AsyncGenerator[Sender]:
    """An app `a` whose model has this script, served with triggers that do not wait between attempts."""
    model = ScriptedModel(*steps)
    app = App(LlmAgent(name="a", model=model), protocols=["rest", settings or Triggers(base_delay_s=0)], **options)
    async with connect(app) as client:
        yield Sender(client, model, app)
    model.check()


def success(response: Response) -> bool:
    return (response.status, response.text) == (200, '{"status":"success"}\n')
