"""How the tests of GeminiLiveModel reach it: whole sessions of an app, and single connections, against the strict fake."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from gemini_live_fake import KEY, Line, LiveServer, serve

from polyport import LlmAgent
from polyport.data.live import LiveConfig
from polyport.data.model import ModelRequest
from polyport.models.gemini_live import GeminiLiveConnection, GeminiLiveModel
from polyport.protocols.live import Live
from support.live import PATIENCE_S, Stage
from support.talk import Talk, serving

NEW, OLD = "gemini-3.8-live", "gemini-2.5-flash-native-audio-preview-12-2025"
PCM = bytes(range(256)) * 4
MICROPHONE = "audio/pcm;rate=16000"
REFUSALS = [
    (1007, "API key expired. Please renew the API key.", "UNAUTHENTICATED"),
    (1008, "models/x is not found for API version v1beta, or is not supported for bidiGenerateContent.", "NOT_FOUND"),
    (1011, "You exceeded your current quota, please check your plan.", "RESOURCE_EXHAUSTED"),
    (1007, "Request contains an invalid argument.", "INVALID_ARGUMENT"),
    (1008, "Your project has been denied access.", "PERMISSION_DENIED"),
]
"""Close code, reason, and our code for it."""


def model_of(server: LiveServer, name: str = NEW, **more: Any) -> GeminiLiveModel:
    return GeminiLiveModel(name, api_key=KEY, base_url=server.url + "/v1beta", **more)


class LiveStage(Stage):
    """A client's side, and the API's side."""

    def __init__(self, talk: Talk, server: LiveServer) -> None:
        super().__init__(talk, server)  # type: ignore[arg-type]  it has `connection`, too
        self.server = server


@asynccontextmanager
async def staged(name: str = NEW, **fields: Any) -> AsyncIterator[LiveStage]:
    """An agent `app` on a Gemini model. Fails when something hangs, when the API is sent anything wrong, or when a connection
    is left open."""
    with anyio.fail_after(PATIENCE_S):
        async with serve() as server:
            agent = LlmAgent(name="app", model=model_of(server, name), **fields)
            async with serving(agent, protocols=["rest", Live()]) as talk:
                yield LiveStage(talk, server)


@asynccontextmanager
async def connected(
    request: ModelRequest | None = None, config: LiveConfig | None = None, name: str = NEW
) -> AsyncIterator[tuple[GeminiLiveConnection, Line]]:
    """One connection: our end and the API's."""
    with anyio.fail_after(PATIENCE_S):
        async with serve() as server:
            model = model_of(server, name)
            async with model.connect(request or ModelRequest(contents=[]), config or LiveConfig()) as connection:
                yield connection, await server.connection()
