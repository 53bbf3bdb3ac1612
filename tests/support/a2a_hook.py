"""A receiver of push notifications on loopback, which does what it is told."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from interop.mcp_servers.lab import listening


class Hook:
    """`got` are path, headers and body of each delivery, oldest first. `answers` are the statuses of the next ones, then 200; a
    status may be a pair with more headers, and None is 200 when `late` is set. While `open` is not set, answers wait."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.answers: list[Any] = []
        self.open = anyio.Event()
        self.open.set()
        self.late = anyio.Event()
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                kind = (await receive())["type"]
                await send({"type": f"{kind}.complete"})
                if kind == "lifespan.shutdown":
                    return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        self.got.append((scope["path"], headers, json.loads(body)))
        answer = self.answers.pop(0) if self.answers else 200
        await self.open.wait()
        if answer is None:
            await self.late.wait()
            answer = 200
        status, more = answer if isinstance(answer, tuple) else (answer, [])
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0"), *more]})
        await send({"type": "http.response.body", "body": b""})

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.got]

    async def until(self, count: int) -> None:
        """Return when there were so many deliveries."""
        with anyio.fail_after(20):
            while len(self.got) < count:
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def hooked() -> AsyncGenerator[Hook]:
    hook = Hook()
    async with listening(hook) as url:
        hook.url = url + "/hook"
        yield hook
