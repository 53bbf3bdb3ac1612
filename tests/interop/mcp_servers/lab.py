"""For tests of the MCP toolset: child servers that do what they are told (`raw.py`), and ASGI apps on loopback."""

import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn

from polyport.ports.agent import ReadContext
from polyport.tools.mcp import McpToolset, StdioServer

RAW = Path(__file__).parent / "raw.py"
ECHO = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
NOBODY: ReadContext | None = None


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **fields}


class Lab:
    """One child server's orders and its log. Orders: tools, results {tool: result}, page_size, circle, die {where: times},
    mute, deaf, garbage, resources, contents {uri: contents}, prompts, messages {prompt: template}. With `tells` it says
    through a FIFO when the tool `hang` is called and when a call is cancelled."""

    def __init__(self, folder: Path, *, tells: bool = False, **orders: Any) -> None:
        self.folder = folder
        self._log = folder / "log"
        self._log.touch()
        self.fifo = folder / "fifo"
        orders = {"tools": [ECHO, tool("pid"), tool("hang"), tool("environment")], **orders}
        if tells:
            os.mkfifo(self.fifo)
            orders["fifo"] = str(self.fifo)
        self._orders = folder / "orders.json"
        self._orders.write_text(json.dumps({"log": str(self._log), **orders}))

    def server(self, **fields: Any) -> StdioServer:
        return StdioServer(sys.executable, ["-I", "-S", str(RAW), str(self._orders)], **fields)

    def toolset(self, **options: Any) -> McpToolset:
        return McpToolset(self.server(), **options)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def count(self, what: str, **more: Any) -> int:
        return sum(line["what"] == what and all(line.get(k) == v for k, v in more.items()) for line in self.log())

    @property
    def started(self) -> list[int]:
        """The pids of all processes there ever were, oldest first."""
        return [line["pid"] for line in self.log() if line["what"] == "start"]

    @property
    def alive(self) -> list[int]:
        return [pid for pid in self.started if exists(pid)]

    async def told(self) -> str:
        """What the server says next through the FIFO."""
        said = ""
        while not said:  # empty: only the writer of the word before has gone now
            end = os.open(self.fifo, os.O_RDONLY | os.O_NONBLOCK)
            try:
                with anyio.fail_after(30):
                    await anyio.wait_readable(end)
                said = os.read(end, 100).decode()
            finally:
                os.close(end)
        return said


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class _Quiet(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(asgi: Any) -> AsyncIterator[str]:
    """The URL of an ASGI app on loopback, its lifespan run."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = uvicorn.Config(asgi, lifespan="on", log_config=None, access_log=False, timeout_graceful_shutdown=1)
        server = _Quiet(config)
        started = anyio.Event()

        async def serve() -> None:
            startup = server.startup

            async def noted(sockets: Any = None) -> None:
                await startup(sockets)
                started.set()

            server.startup = noted
            await server.serve([listener])
            started.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            await started.wait()
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True
