"""An MCP server over streamable HTTP on loopback, in the test's own process, that counts and does what a test tells it to."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from aiohttp import web

from interop.mcp_servers.lab import ECHO, tool


class WebMcp:
    """`counts` methods (also DELETE), `sessions` open ones with the Authorization they were made with, `headers` of each POST.
    `status` answers every POST with it; `drops` calls of `drop` break the connection."""

    def __init__(self) -> None:
        self.url = ""
        self.counts: Counter[str] = Counter()
        self.sessions: dict[str, str] = {}
        self.most_sessions = 0
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.drops = 0
        self.called = anyio.Event()
        self.cancelled = anyio.Event()
        self.goodbye = anyio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.Response(status=405)
        session = request.headers.get("mcp-session-id", "")
        if request.method == "DELETE":
            self.counts["DELETE"] += 1
            self.sessions.pop(session, None)
            self.goodbye.set()
            return web.Response(status=200)
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        message = await request.json()
        method = message["method"]
        self.counts[method] += 1
        if self.status != 200:
            return web.Response(status=self.status, text="secret details")
        user = request.headers.get("authorization", "")
        if method == "initialize":
            session = f"s{self.counts['initialize']}"
            self.sessions[session] = user
            self.most_sessions = max(self.most_sessions, len(self.sessions))
            version = message["params"]["protocolVersion"]
            info = {"name": "web", "version": "1"}
            result: Any = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            return self.reply(message, result, {"mcp-session-id": session})
        if self.sessions.get(session) != user:
            return web.Response(status=404)
        if method == "notifications/cancelled":
            self.cancelled.set()
        if "id" not in message:
            return web.Response(status=202)
        return await self.answer(request, message, user)

    async def answer(self, request: web.Request, message: dict[str, Any], user: str) -> web.StreamResponse:
        method, params = message["method"], message.get("params", {})
        if method == "ping":
            return self.reply(message, {})
        if method == "tools/list":
            return self.reply(message, {"tools": [ECHO, tool("who"), tool("drop"), tool("hang")]})
        name = params["name"]
        if name == "drop" and self.drops:
            self.drops -= 1
            assert request.transport is not None
            request.transport.abort()
        if name == "hang":
            self.called.set()
            await anyio.sleep_forever()
        text = params["arguments"]["text"] if name == "echo" else user
        return self.reply(message, {"content": [{"type": "text", "text": text}]})

    @staticmethod
    def reply(message: dict[str, Any], result: Any, headers: dict[str, str] | None = None) -> web.Response:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return web.Response(text=body, content_type="application/json", headers=headers)


@asynccontextmanager
async def web_mcp() -> AsyncIterator[WebMcp]:
    server = WebMcp()
    app = web.Application()
    app.router.add_route("*", "/mcp", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        yield server
    finally:
        await runner.cleanup()
