"""uvicorn's protocol for WebSocket connections, without its complaint about a handshake that was refused properly, and with a
close that reaches a client which is still sending.

Imported by `serve` for the first handshake: it brings a fifth of all modules, and many servers never need it.
"""

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

LINGER_S = 10.0
"""How long a client may go on sending a message that was refused, so that it gets to read why (spec rest 75)."""
QUIET_S = 1.0
"""After so long without another byte of it the connection is closed."""


class WebSocket(WebSocketsSansIOProtocol):
    deadline = 0.0
    """When a connection that is over is closed at the latest; 0 for one that is not."""

    async def send(self, message: ASGISendEvent) -> None:
        if self.deadline:
            raise ClientDisconnected
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # answered: 404, 403 and so on are no failure of the app

    def data_received(self, data: bytes) -> None:
        if self.deadline:
            self._linger()
        else:
            super().data_received(data)

    def handle_parser_exception(self) -> None:
        """Say why, and drop what still comes. A connection that is closed under a sender is reset, and what it was told is
        lost with it."""
        told = self.conn.close_sent
        assert told is not None
        self.queue.put_nowait({"type": "websocket.disconnect", "code": told.code, "reason": told.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.stop_keepalive()
        self.deadline = self.loop.time() + LINGER_S
        self._linger()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def _linger(self) -> None:
        if self.close_timer is not None:
            self.close_timer.cancel()
        left = min(QUIET_S, self.deadline - self.loop.time())
        self.close_timer = self.loop.call_later(max(0.0, left), self.transport.close)
