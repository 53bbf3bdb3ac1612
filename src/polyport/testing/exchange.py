"""Exchange: one in-memory HTTP exchange with an ASGI app, strict about what the app sends.

The part of `connect` that plays the server. It keeps what the app sent until the client takes it, and tells the app when
the client has hung up. Never opens a socket, never starts a task.
"""

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlencode

import anyio
import msgspec

from polyport import codec

App = Any
"""An ASGI callable, or anything with an `asgi` attribute that is one."""
Body = bytes | str | AsyncIterator[bytes] | None
Headers = Mapping[str, str] | Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. `headers` have lower-case names; repeated ones are joined by a comma."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def joined(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """ASGI headers as text; repeated ones are joined by a comma."""
    out: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        out[key] = f"{out[key]}, {text}" if key in out else text
    return out


def check_headers(headers: Any) -> list[tuple[bytes, bytes]]:
    """Headers from an app, copied. AssertionError for what a real server would refuse."""
    out = [(bytes(name), bytes(value)) for name, value in headers]
    for name, value in out:
        assert name == name.lower(), f"header {name!r} is not lower case"
        assert not set(b"\r\n\0") & set(name + value), f"header {name!r} holds a line break"
    return out


def asgi_of(app: App) -> Any:
    """The ASGI callable of `app`."""
    return getattr(app, "asgi", app)


def pairs(headers: Headers | None) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI wants them: lower-case names, bytes."""
    items = list(headers.items()) if isinstance(headers, Mapping) else list(headers or ())
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in items]


def scope_of(
    kind: str, path: str, query: Mapping[str, Any] | None, headers: list[tuple[bytes, bytes]]
) -> dict[str, Any]:
    """A scope as uvicorn makes it. `path` is sent as it is (percent-encoded by the caller) and may have a query string."""
    raw, _, question = path.partition("?")
    raw = quote(raw, safe="/%:@!$&'()*+,;=~-._{}[]|\\^`\"<> ")
    if query:
        question = "&".join(filter(None, [question, urlencode(query, doseq=True)]))
    scope = {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "http" if kind == "http" else "ws",
        "path": unquote(raw),
        "raw_path": raw.encode("ascii"),
        "query_string": question.encode("ascii"),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("localhost", 80),
        "state": {},
    }
    if not any(name == b"host" for name, _ in headers):
        headers.insert(0, (b"host", b"localhost"))
    return scope


def body_of(json: Any, body: Body, headers: list[tuple[bytes, bytes]]) -> AsyncIterator[bytes] | bytes:
    """The request body; its Content-Length, Transfer-Encoding and JSON type are added to `headers` where missing."""
    names = {name for name, _ in headers}
    if json is not None:
        body = codec.encode(json)
        if b"content-type" not in names:
            headers.append((b"content-type", b"application/json"))
    if isinstance(body, str):
        body = body.encode()
    if body is None:
        return b""
    if isinstance(body, bytes):
        if b"content-length" not in names:
            headers.append((b"content-length", b"%d" % len(body)))
    elif not names & {b"content-length", b"transfer-encoding"}:
        headers.append((b"transfer-encoding", b"chunked"))
    return body


class Exchange:
    """`receive` and `send` are the app's side, the rest is the client's.

    With `window` the app's `send` waits while so many bytes are not taken yet, as a connection with a slow reader does.
    Errors of the app and of its messages are kept and raised on the client's side.
    """

    def __init__(self, scope: dict[str, Any], body: AsyncIterator[bytes] | bytes, window: int | None = None) -> None:
        self.scope = scope
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.error: Exception | None = None
        self.late_writes = 0
        self._body = body
        self._sent_body = False
        self._window = window
        self._chunks: deque[bytes] = deque()
        self._waiting = 0
        self._promised: int | None = None
        self._complete = False
        self._ended = False
        self._gone = anyio.Event()
        self._changed = anyio.Event()
        self._taken = anyio.Event()

    async def run(self, app: Any) -> None:
        """Call the app once. Returns when it has ended."""
        try:
            await app(self.scope, self.receive, self.send)
            if not self._complete and not self._gone.is_set():
                self.error = self.error or AssertionError("the app ended without finishing its answer")
        except Exception as error:  # noqa: BLE001 kept, and raised where the test waits for the answer
            self.error = self.error or error
        finally:
            self._ended = True
            self._notify()

    async def receive(self) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        if not self._sent_body and not self._gone.is_set():
            if isinstance(self._body, bytes):
                self._sent_body = True
                return {"type": "http.request", "body": self._body, "more_body": False}
            async for chunk in self._body:
                return {"type": "http.request", "body": chunk, "more_body": True}
            self._sent_body = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        if self._gone.is_set() and not self._complete:
            self.late_writes += message["type"] != "http.response.body" or bool(message.get("body"))
            return
        try:
            self._take(message)
        except AssertionError as error:
            self.error = self.error or error
            raise
        self._notify()
        while self._window is not None and self._waiting > self._window and not self._gone.is_set():
            self._taken = anyio.Event()
            await self._taken.wait()

    def _take(self, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        assert not self._complete, f"the app sent {kind} after the end of its answer"
        if kind == "http.response.start":
            assert not self.status, "the app started its answer twice"
            self.headers = check_headers(message.get("headers", ()))
            for name, value in self.headers:
                if name == b"content-length":
                    self._promised = int(value)
            self.status = message["status"]
            return
        assert kind == "http.response.body", f"the app sent {kind}"
        assert self.status, "the app sent a body before the start of its answer"
        self._take_body(message.get("body", b""), bool(message.get("more_body", False)))

    def _take_body(self, chunk: bytes, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            assert not chunk, "the app sent a body for HEAD"
            self._promised = None
        if self._promised is not None:
            self._promised -= len(chunk)
            assert self._promised >= 0, "the answer is longer than its Content-Length"
            assert more or self._promised == 0, "the answer is shorter than its Content-Length"
        if chunk:
            self._chunks.append(chunk)
            self._waiting += len(chunk)
        if not more:
            self._complete = True
            self._gone.set()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def started(self) -> None:
        """Return when status and headers are there; raises what the app raised before."""
        while not self.status and not self._ended:
            await self._changed.wait()
        if not self.status and self.error is not None:
            raise self.error

    async def chunk(self) -> bytes:
        """The next piece of the body, b"" at its end; raises what broke it off."""
        while not self._chunks:
            if self._complete or self._promised == 0:
                return b""
            if self._ended:
                error, self.error = self.error, None
                raise error or AssertionError("the app ended without finishing its answer")
            await self._changed.wait()
        chunk = self._chunks.popleft()
        self._waiting -= len(chunk)
        self._taken.set()
        return chunk

    def hang_up(self) -> None:
        """Close the connection from the client's side."""
        self._gone.set()
        self._taken.set()

    async def aclose_body(self) -> None:
        """Close a request body that is a generator. To be called when the app has ended."""
        close = getattr(self._body, "aclose", None)
        if close is not None:
            await close()
