"""The page's question whether it may send telemetry: a flag, kept while the server runs (spec rest 10.1).

For the ADK web page only, which asks the user while nobody has answered: here it is no until somebody says yes. Polyport itself
sends nothing to anybody.
"""

from polyport.codec import Data
from polyport.errors import BadRequest
from polyport.protocols.answers import send_json
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route

PATH = "/config/telemetry"
HEADER = "X-ADK-Telemetry-Request"
"""A page of another site cannot send it without asking first."""


class Consent(Data, frozen=True, kw_only=True):
    telemetry: bool


class ConsentShape(Data, frozen=True, kw_only=True, omit_defaults=False):
    telemetry: bool = False


class ConsentRoutes:
    def __init__(self) -> None:
        self._given = False

    def routes(self) -> list[Route]:
        return [
            Route("GET", PATH, self.get, summary="Whether the page may send telemetry", returns=ConsentShape),
            Route("POST", PATH, self.set, admin=True, summary="Allow or forbid it", body=Consent, returns=ConsentShape),
        ]

    async def get(self, request: Request, send: Send) -> None:
        await send_json(send, ConsentShape(telemetry=self._given))

    async def set(self, request: Request, send: Send) -> None:
        if request.header(HEADER).lower() != "true":
            raise BadRequest(f"the header {HEADER}: true is missing")
        self._given = (await request.json(Consent, unknown="drop")).telemetry
        await send_json(send, ConsentShape(telemetry=self._given))
