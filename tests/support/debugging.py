"""For stories of the debug routes: an app with `Debug`, served in memory, and callers who say who they are."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from polyport import App
from polyport.data.auth import Caller, Credentials
from polyport.protocols.debug.mount import Debug
from polyport.testing import connect
from support.talk import Talk


class Said:
    """Believes the header x-user."""

    challenge = "Bearer"

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        users = credentials.values("x-user")
        return Caller(users[0]) if users else None


@asynccontextmanager
async def debugging(agents: Any, debug: Debug | None = None, **options: Any) -> AsyncGenerator[Talk]:
    """The agents served with the debug routes; session s1 of user u1 is made, unless callers must say who they are."""
    debug = debug if debug is not None else Debug()
    app = App(agents, plugins=list(debug.plugins), protocols=["rest", debug], **options)
    async with connect(app) as client:
        talk = Talk(client, next(iter(app.trees)), app)
        if "auth" not in options:
            await talk.create()
        yield talk


async def get(talk: Talk, path: str, status: int = 200, **headers: str) -> Any:
    """The JSON answer of a GET; names of headers with underscores for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await talk.client.get(path, headers=named)
    assert response.status == status, response.text
    return response.json()
