"""uvicorn's protocol for HTTP/1.1 with the same answers for less: head and body leave in one write, headers are checked
together, and a connection has one timer for its idle times rather than one for each request.

Given to uvicorn by `serve`. Parsing, pipelining, flow control and the tasks of requests are uvicorn's. It writes no access
log, for the host does, and knows neither `root_path` nor `limit_concurrency`, which `serve` never sets.
"""

import asyncio
from contextvars import Context
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

_LARGE = 65_536
"""A body of so many bytes is not copied behind its head."""
_BUSY = float("inf")
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection"})


class Signal:
    """What an `asyncio.Event` is, made only when somebody waits: most requests are there as a whole before they are read."""

    __slots__ = ("_event", "_on")

    def __init__(self) -> None:
        self._on = False
        self._event: asyncio.Event | None = None

    def set(self) -> None:
        self._on = True
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        self._on = False
        if self._event is not None:
            self._event.clear()

    async def wait(self) -> None:
        if not self._on:
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()


class Cycle(RequestResponseCycle):
    """One request and its answer. What most requests never change is kept by the class."""

    access_log = disconnected = response_started = response_complete = False
    more_body = True
    chunked_encoding: bool | None = None
    expected_content_length = 0
    head = b""
    """What waits for the first part of the body."""

    def __init__(self, protocol: HttpToolsProtocol, *, keep_alive: bool) -> None:
        self.scope = protocol.scope
        self.transport = protocol.transport
        self.flow = protocol.flow
        self.logger = protocol.logger
        self.default_headers = protocol.server_state.default_headers
        self.message_event: Any = Signal()
        self.on_response = protocol.on_response_complete
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.body = bytearray()

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if not self.response_started and kind == "http.response.start":
            self.response_started = True
            self.waiting_for_100_continue = False
            self.head = self._head(message["status"], message.get("headers", ()))
        elif self.response_started and not self.response_complete and kind == "http.response.body":
            self._send_body(message.get("body", b""), message.get("more_body", False))
        else:
            raise RuntimeError(f"an ASGI message {kind!r} has no place here")

    def _head(self, status: int, headers: Any) -> bytes:
        """Status line and headers, and from them how the body is framed and whether the connection stays."""
        lines: list[bytes] = [STATUS_LINE[status]]
        names: list[bytes] = []
        values: list[bytes] = []
        for name, value in self.default_headers:
            lines += (name, b": ", value, b"\r\n")
        closes = False
        for name, value in headers:
            name = name.lower()
            names.append(name)
            values.append(value)
            lines += (name, b": ", value, b"\r\n")
            if name not in _FRAMING:
                continue
            if name == b"content-length" and self.chunked_encoding is None:
                self.expected_content_length = int(value)
                self.chunked_encoding = False
            elif name == b"transfer-encoding" and value.lower() == b"chunked":
                self.expected_content_length = 0
                self.chunked_encoding = True
            elif name == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]:
                self.keep_alive = False
                closes = True
        if HEADER_RE.search(b"".join(names)) or HEADER_VALUE_RE.search(b"".join(values)):
            raise RuntimeError("a header of the answer has a character that no header may have")
        if not self.keep_alive and not closes:
            lines.append(b"connection: close\r\n")
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in (204, 304):
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _send_body(self, body: bytes, more: bool) -> None:
        head, self.head = self.head, b""
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            body = b""
        elif self.chunked_encoding:
            if body:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            if not more:
                body += b"0\r\n\r\n"
        else:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("Response content longer than Content-Length")
        if head and len(body) > _LARGE:
            self.transport.write(head)
            head = b""
        if head or body:
            self.transport.write(head + body)
        if more:
            return
        if self.expected_content_length:
            raise RuntimeError("Response content shorter than Content-Length")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    idle_since = _BUSY
    """When its last answer ended, by the clock of the loop, while nothing has come since."""

    def on_headers_complete(self) -> None:
        parser: Any = self.parser
        scope = self.scope
        version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        if version != "1.1":
            scope["http_version"] = version
        if parser.should_upgrade() and self._should_upgrade():
            return
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        before = self.cycle
        app: Any = getattr(self, "app")  # noqa: B009  uvicorn leaves its type unknown
        self.cycle = Cycle(self, keep_alive=version != "1.0" and parser.should_keep_alive())
        if before is None or before.response_complete:  # pyright: ignore[reportUnnecessaryComparison]  uvicorn's types hide it
            self._start_asgi_task(self.cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            return
        self.idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._wait(self.timeout_keep_alive)

    def _wait(self, seconds: float) -> None:
        # not in the context of a request: the timer lasts as long as its connection, and would keep that one's variables
        timer = self.loop.call_later(seconds, self.timeout_keep_alive_handler, context=Context())
        self.timeout_keep_alive_task = timer  # pyright: ignore[reportAttributeAccessIssue]

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for long enough; of one that was not, look again when it can be."""
        self.timeout_keep_alive_task = None
        if self.idle_since == _BUSY or self.transport.is_closing():
            return
        left = self.idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._wait(left)
        else:
            self.transport.close()

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn calls it when bytes come. The timer goes on: it asks whether the connection is idle."""
        self.idle_since = _BUSY

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
