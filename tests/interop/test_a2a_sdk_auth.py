"""The official A2A client reads in our card that it needs a token, and brings it."""

from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, AuthInterceptor, ClientConfig, ClientFactory, CredentialService
from a2a.client.errors import A2AClientError
from a2a.types import Message, Part, Role, SendMessageRequest

from interop.mcp_servers.lab import listening
from polyport import App, LlmAgent
from polyport.testing import ScriptedModel
from support.identity import Keyed

KEYED = Keyed(alice=[])


class Tokens(CredentialService):
    def __init__(self, token: str) -> None:
        self._token = token

    async def get_credentials(self, security_scheme_name: str, context: Any) -> str | None:
        return self._token if security_scheme_name == "bearer" else None


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a2a_the_official_client_brings_the_token_that_the_card_asks_for(binding: str):
    app = App(LlmAgent(name="app", model=ScriptedModel("hello alice")), auth=KEYED.auth, protocols=["rest", "a2a"])
    async with listening(app.asgi) as url, httpx.AsyncClient(timeout=20) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        assert card.security_schemes["bearer"].http_auth_security_scheme.scheme == "Bearer"
        config = ClientConfig(httpx_client=http, streaming=False, supported_protocol_bindings=[binding])

        async def ask(token: str) -> str:
            client = ClientFactory(config).create(card, interceptors=[AuthInterceptor(Tokens(token))])
            message = Message(message_id="m", role=Role.ROLE_USER, parts=[Part(text="hi")])
            return str([event async for event in client.send_message(SendMessageRequest(message=message))])

        with pytest.raises(A2AClientError):
            await ask("nobodys")
        assert "hello alice" in await ask(KEYED.keys["alice"])
