"""A table of toy routes for tests of the host, and `served`: a client for a host with them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from polyport.errors import (
    NotFound,
)
from polyport.protocols.answers import send_empty, send_json
from polyport.protocols.host import Host
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route
from polyport.testing.connect import Client, connect

SESSION = "/apps/{app}/users/{user}/sessions/{session}"


class Note(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""
    deep: Any = None


async def health(request: Request, send: Send) -> None:
    await send_json(send, {"status": "ok"})


async def params(request: Request, send: Send) -> None:
    await send_json(send, request.params)


async def remove(request: Request, send: Send) -> None:
    await send_empty(send)


async def echo(request: Request, send: Send) -> None:
    await send_json(send, await request.json(Note))


async def size(request: Request, send: Send) -> None:
    await send_json(send, {"size": len(await request.body())})


async def query(request: Request, send: Send) -> None:
    await send_json(
        send,
        {
            "name": request.query_text("appName", "app_name"),
            "size": request.query_int("size", 0, 10, 5),
            "flag": request.query_bool("flag"),
            "all": request.query.get("m", []),
        },
    )


def raising(error: BaseException) -> Any:
    async def handler(request: Request, send: Send) -> None:
        raise error

    return handler


async def socket(request: Request, send: Send) -> None:
    await request.receive()
    await send({"type": "websocket.accept"})
    while (message := await request.receive())["type"] != "websocket.disconnect":
        if message.get("text") == "fail":
            raise NotFound("ünknown " * 30)
        await send({"type": "websocket.send", "text": message.get("text", "") + request.params["name"]})


ROUTES = [
    Route("GET", "/", params),
    Route("GET", "/health", health, public=True),
    Route("GET", "/list-apps", params),
    Route("POST", "/run", echo),
    Route("POST", "/size", size),
    Route("GET", "/query", query),
    Route("GET", "/apps/{app}/users/{user}/sessions", params),
    Route("GET", SESSION, params),
    Route("POST", SESSION, params),
    Route("DELETE", SESSION, remove),
    Route("GET", "/runs/{id}", params),
    Route("POST", "/runs/{id}:cancel", params),
    Route("GET", "/runs/latest", health),
    Route("GET", "/runs/latest/{what}", params),
    Route("GET", "/runs/{id}/events", params, head=False),
    Route("GET", "/ui/{path*}", params),
    Route("WEBSOCKET", "/live/{name}", socket),
]


@asynccontextmanager
async def served(*more: Route, **options: Any) -> AsyncIterator[Client]:
    async with connect(Host([*ROUTES, *more], **options)) as client:
        yield client
