"""uvicorn's protocol for WebSocket connections, without its complaint about a handshake that was refused properly.

Imported by `serve` for the first handshake: it brings a fifth of all modules, and many servers never need it.
"""

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class WebSocket(WebSocketsSansIOProtocol):
    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # answered: 404, 403 and so on are no failure of the app
