"""WebSocket: the client's end of an in-memory WebSocket to an ASGI app. The part of `connect` for live protocols.

Strict as a real server is: a close reason over 123 bytes, a message before the accept or after the close fail the app.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import anyio
import msgspec

from polyport import codec
from polyport.testing.exchange import Response, check_headers, joined

NOT_CLOSED = 1006
"""What a client sees when the connection ends without a close frame."""


class Refused(Exception):
    """The app answered the handshake with an HTTP status; `response` is that answer."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"the handshake was refused with {response.status}: {response.text[:500]}")
        self.response = response


class Closed(Exception):
    """The app closed the connection; `code` 1006 is "without a close frame"."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"closed with {code} {reason!r}")
        self.code = code
        self.reason = reason


class WebSocket:
    """An open connection. `code` and `reason` are set once the app has closed it (`code` is None before)."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        self.subprotocol = ""
        self.headers: dict[str, str] = {}
        self.code: int | None = None
        self.reason = ""
        self.error: Exception | None = None
        self._accepted = False
        self._refusal: Response | None = None
        self._refused = False
        self._to_app: deque[dict[str, Any]] = deque([{"type": "websocket.connect"}])
        self._to_client: deque[str | bytes] = deque()
        self._gone: dict[str, Any] | None = None
        self._ended = False
        self._held = False
        self._changed = anyio.Event()

    async def send_text(self, text: str) -> None:
        """Send a text message. Closed if the app has closed."""
        self._push({"type": "websocket.receive", "text": text})

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message. Closed if the app has closed."""
        self._push({"type": "websocket.receive", "bytes": data})

    async def send_json(self, value: Any) -> None:
        """Send a value as a text message of JSON."""
        await self.send_text(codec.encode(value).decode())

    async def receive(self) -> str | bytes:
        """The next message: str for text, bytes for binary. Closed at the end; an error of the app is raised."""
        while not self._to_client:
            if self.code is not None or self._ended:
                error, self.error = self.error, None
                raise error or Closed(NOT_CLOSED if self.code is None else self.code, self.reason)
            await self._changed.wait()
        return self._to_client.popleft()

    async def receive_json(self) -> Any:
        """The next message, decoded from JSON."""
        return msgspec.json.decode(await self.receive())

    def __aiter__(self) -> "WebSocket":
        return self

    async def __anext__(self) -> str | bytes:
        try:
            return await self.receive()
        except Closed as closed:
            self.code, self.reason = closed.code, closed.reason
            raise StopAsyncIteration from None

    def hold(self, held: bool = True) -> None:
        """Read nothing any more, or read again: what the app sends waits, as on a full connection."""
        self._held = held
        self._notify()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close from the client's side; 1006 drops the connection. Nothing happens when it is closed already."""
        if self._gone is None:
            self._gone = {"type": "websocket.disconnect", "code": code, "reason": reason}
            self._notify()

    async def opened(self) -> None:
        """Return when the app has accepted. Refused, or what the app raised."""
        while not (self._accepted or self._refused or self._ended):
            await self._changed.wait()
        if self._accepted:
            return
        error, self.error = self.error, None
        raise error or Refused(self._refusal or Response(403, {}, b""))

    async def run(self, app: Any) -> None:
        """Call the app once. Returns when it has ended."""
        try:
            await app(self.scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 kept, and raised where the test waits
            self.error = self.error or error
        finally:
            self._ended = True
            self._notify()

    def _push(self, message: dict[str, Any]) -> None:
        if self.code is not None or self._ended:
            raise Closed(NOT_CLOSED if self.code is None else self.code, self.reason)
        self._to_app.append(message)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _receive(self) -> dict[str, Any]:
        while not self._to_app:
            if self._gone is not None:
                return self._gone
            await self._changed.wait()
        return self._to_app.popleft()

    async def _send(self, message: Mapping[str, Any]) -> None:
        while self._held and message["type"] == "websocket.send" and self._gone is None:
            await self._changed.wait()
        if self._gone is not None and self.code is None:
            raise OSError("the client has gone")
        try:
            self._take(message)
        except AssertionError as error:
            self.error = self.error or error
            raise
        self._notify()

    def _take(self, message: Mapping[str, Any]) -> None:
        kind = message["type"]
        assert self.code is None, f"the app sent {kind} after its close"
        if kind == "websocket.accept":
            assert not self._accepted, "the app accepted twice"
            self._accepted = True
            self.subprotocol = message.get("subprotocol") or ""
            self.headers = joined(check_headers(message.get("headers", ())))
        elif kind == "websocket.send":
            assert self._accepted, "the app sent a message before it accepted"
            text, data = message.get("text"), message.get("bytes")
            assert (text is None) != (data is None), "a message is either text or bytes"
            self._to_client.append(text if text is not None else bytes(data or b""))
        elif kind == "websocket.close":
            self._take_close(message.get("code", 1000), message.get("reason") or "")
        elif kind == "websocket.http.response.start":
            assert not self._accepted and self._refusal is None, "the app answered twice"
            self._refusal = Response(message["status"], joined(check_headers(message.get("headers", ()))), b"")
        else:
            assert kind == "websocket.http.response.body", f"the app sent {kind}"
            assert self._refusal is not None, "the app sent a body before the start of its answer"
            old = self._refusal
            self._refusal = Response(old.status, old.headers, old.body + message.get("body", b""))
            self._refused = not message.get("more_body", False)

    def _take_close(self, code: int, reason: str) -> None:
        assert len(reason.encode()) <= 123, "the reason of a close frame has more than 123 bytes"
        self.code, self.reason = code, reason
        self._refused = not self._accepted
        if self._gone is None:
            self._gone = {"type": "websocket.disconnect", "code": code, "reason": reason}
