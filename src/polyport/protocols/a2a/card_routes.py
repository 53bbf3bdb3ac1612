"""The routes of agent cards: at the well-known path, below every URL where clients look for it, and the keys (spec a2a 1.2).

Mounted by `mount`. Cards are public, need no credentials, and are the same for everybody who came by the same URL.
"""

from polyport.codec import encode
from polyport.errors import NotFound
from polyport.protocols.a2a.edge import Base, Find
from polyport.protocols.answers import JSON, send_body
from polyport.protocols.http import Header, Request, Send
from polyport.protocols.routes import Route
from polyport.wire import a2a_sign

CARD = "/.well-known/agent-card.json"
OLD_CARD = "/.well-known/agent.json"
"""Where clients of old versions look."""
KEYS = "/.well-known/jwks.json"


class CardRoutes:
    def __init__(self, find: Find, base: Base) -> None:
        self._find = find
        self._base = base

    def routes(self, below: str) -> list[Route]:
        """The routes below a path, "" for the root."""
        return [
            Route("GET", below + CARD, self.card, public=True, summary="A2A: the agent card"),
            Route("GET", below + OLD_CARD, self.card, public=True, summary="A2A: the agent card, as 0.2 called it"),
            Route("GET", below + KEYS, self.keys, public=True, summary="A2A: the keys that sign the card"),
        ]

    async def card(self, request: Request, send: Send) -> None:
        """The card, or 304 for who has it. `?version=0.3` or A2A-Version: 0.3 asks for the members of 0.3."""
        card = self._find(request).card
        version = request.header("a2a-version") or request.query_text("A2A-Version", "version")
        document = card.document(self._base(request), union=card.unites(version))
        headers: list[Header] = [
            (b"etag", document.etag),
            (b"last-modified", card.last_modified),
            (b"cache-control", card.cache_control),
            (b"vary", b"A2A-Version"),
        ]
        asked = request.header("if-none-match"), request.header("if-modified-since")
        if card.not_modified(document, *asked):
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            return await send({"type": "http.response.body", "body": b""})
        await send_body(send, 200, document.body, (JSON, *headers))

    async def keys(self, request: Request, send: Send) -> None:
        """The public keys as a JWK Set; 404 when the card is not signed."""
        card = self._find(request).card
        if not card.keys:
            raise NotFound("this agent's card is not signed")
        body = encode(a2a_sign.public_keys(card.keys))
        await send_body(send, 200, body, (JSON, (b"cache-control", card.cache_control)))
