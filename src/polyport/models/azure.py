"""Azure OpenAI: deployments of a resource, asked with a key or a token of Entra ID (azure-identity, extra `azure`).

Given to OpenAIModel as `base_url`, by users or by the registry (`azure/DEPLOYMENT`). The model's name is the deployment's.
Knows the address and who asks; the requests are those of the Chat Completions API. Never logs, shows or stores a secret.
"""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct
from yarl import URL

from polyport.errors import ConfigError, ModelError
from polyport.models.http import Call
from polyport.models.tokens import Token, Tokens, checked_url, checked_word, refused
from polyport.seams import REAL, Seams

SCOPE = "https://cognitiveservices.azure.com/.default"
"""What tokens are asked for; other clouds than the public one have another."""

_V1 = ("", "v1", "latest", "preview")
"""API versions that mean the v1 API, which has no dated ones."""
_TODO = (
    "sign in with `az login`, set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or set AZURE_OPENAI_API_KEY"
)


class AzureToken(Protocol):
    @property
    def token(self) -> str: ...

    @property
    def expires_on(self) -> int: ...


class AzureCredential(Protocol):
    """A credential of azure-identity (not of `azure.identity.aio`)."""

    def get_token(self, *scopes: str) -> AzureToken: ...


class _Named(Struct):
    model: str


class Azure:
    """A resource of Azure OpenAI, such as `https://NAME.openai.azure.com`.

    `endpoint` defaults to AZURE_OPENAI_ENDPOINT; `api_version` to OPENAI_API_VERSION, and to the v1 API when there is none.
    Signs in with `api_key`, else with `credential`, else with AZURE_OPENAI_AD_TOKEN or AZURE_OPENAI_API_KEY, else with the
    DefaultAzureCredential of azure-identity. ConfigError for a missing endpoint or package.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        api_version: str | None = None,
        api_key: str | None = None,
        credential: AzureCredential | None = None,
        scope: str = SCOPE,
        seams: Seams = REAL,
    ) -> None:
        if api_key and credential:
            raise ConfigError("Azure takes an api_key or a credential, not both")
        where = endpoint or os.environ.get("AZURE_OPENAI_ENDPOINT", "").strip()
        if not where:
            raise ConfigError(
                "Azure needs the address of your resource: set AZURE_OPENAI_ENDPOINT, or Azure(endpoint=)"
            )
        url = checked_url(where, "the endpoint of Azure")
        self._url = url.removesuffix("/v1").removesuffix("/openai")
        version = api_version if api_version is not None else os.environ.get("OPENAI_API_VERSION", "").strip()
        self._version = checked_word(version, "the api_version of Azure") if version else ""
        self._key = (api_key or "").strip()
        self._fixed = ""
        if not api_key and credential is None:
            self._fixed = os.environ.get("AZURE_OPENAI_AD_TOKEN", "").strip()
            self._key = "" if self._fixed else os.environ.get("AZURE_OPENAI_API_KEY", "").strip()
        self._scope = scope
        self._credential = credential
        if not (self._key or self._fixed):
            _identity()
        self._tokens = Tokens(self._fetch, seams)

    def __repr__(self) -> str:
        return f"Azure({self._url!r})"

    @property
    def address(self) -> str:
        return self._url

    async def sign(self, path: str, body: bytes, headers: dict[str, str]) -> Call:
        """See Endpoint. An `authorization` or `api-key` among `headers` is left as it is."""
        signed = dict(headers)
        if not headers.keys() & {"authorization", "api-key"}:
            if self._key:
                signed["api-key"] = self._key
            else:
                signed["authorization"] = f"Bearer {self._fixed or await self._tokens.get()}"
        return Call(URL(self._url + self._where(path, body), encoded=True), signed, body)

    def _where(self, path: str, body: bytes) -> str:
        if self._version in _V1:
            return f"/openai/v1{path}" + ("?api-version=preview" if self._version == "preview" else "")
        deployment = quote(msgspec.json.decode(body, type=_Named).model, safe="")
        return f"/openai/deployments/{deployment}{path}?api-version={quote(self._version)}"

    async def renew(self, call: Call, refusal: ModelError) -> bool:
        """After a 401, if Entra ID gives another token."""
        used = call.headers.get("authorization", "").removeprefix("Bearer ")
        return refusal.http_status == 401 and used in self._tokens.secrets() and await self._tokens.renew(used)

    def secrets(self) -> Sequence[str]:
        return [s for s in (self._key, self._fixed, *self._tokens.secrets()) if s]

    def decoder(self) -> Callable[[bytes], bytes]:
        return bytes

    def _fetch(self, replace: bool) -> Token:
        """A token. Blocks: the credential asks Entra ID, this machine, or a command. It keeps tokens of its own."""
        identity, failed = _identity()
        try:
            if self._credential is None:
                self._credential = cast("AzureCredential", identity.DefaultAzureCredential())
            got = self._credential.get_token(self._scope)
        except failed.ServiceRequestError as error:
            raise ModelError(f"Entra ID cannot be reached ({type(error).__name__})", code="UNAVAILABLE") from None
        except failed.AzureError as error:
            raise refused("Azure", error, _TODO) from None
        return Token(got.token, float(got.expires_on))


def _identity() -> tuple[Any, Any]:
    """azure.identity, and the errors of its credentials."""
    try:
        return import_module("azure.identity"), import_module("azure.core.exceptions")
    except ImportError:
        raise ConfigError(
            "Azure has no key: set AZURE_OPENAI_API_KEY; or, to sign in with Entra ID: pip install 'polyport[azure]'"
        ) from None
