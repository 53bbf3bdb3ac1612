"""Vertex AI: Gemini and Claude in a project of Google Cloud, signed in to by google-auth (extra `vertex`).

Given to GeminiModel or AnthropicModel as `base_url`, by users or by the registry (`vertex/NAME`). Knows where a model is and
who asks; the requests themselves are those of the makers' own APIs. Never logs, shows or stores a token.
"""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import quote

from yarl import URL

from polyport.errors import BadRequest, ConfigError, ModelError
from polyport.models.http import Call
from polyport.models.tokens import Token, Tokens, checked_url, checked_word, refused
from polyport.seams import REAL, Seams
from polyport.wire.anthropic_clouds import MESSAGES, moved

CLAUDE_VERSION = "vertex-2023-10-16"
"""The `anthropic_version` of bodies; `config.extra` may say another."""
SCOPE = "https://www.googleapis.com/auth/cloud-platform"

_TODO = (
    "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account, "
    "or pass credentials="
)


class GoogleCredentials(Protocol):
    """Credentials of google-auth, of any kind."""

    @property
    def token(self) -> str | None: ...

    @property
    def expiry(self) -> datetime | None:
        """UTC, without a zone."""
        ...

    @property
    def valid(self) -> bool: ...

    def refresh(self, request: Any) -> None: ...


class Vertex:
    """A project and location of Google Cloud, whose Gemini and Claude models are asked.

    `project` and `location` default to GOOGLE_CLOUD_PROJECT (else the project of the credentials) and GOOGLE_CLOUD_LOCATION
    (else `global`), as in google-genai. `credentials` default to the application default credentials, which are looked up
    with the first request. `api_key` is for express mode (Gemini only, no project); GOOGLE_API_KEY is used so if there is
    neither a project nor a location nor credentials. `base_url` replaces the address of Google, without a version.
    ConfigError when google-auth is missing or a name cannot be one.
    """

    def __init__(
        self,
        project: str | None = None,
        location: str | None = None,
        *,
        credentials: GoogleCredentials | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        seams: Seams = REAL,
    ) -> None:
        if api_key and (project or location or credentials):
            raise ConfigError("Vertex takes an api_key (express mode), or a project with credentials; not both")
        named = project or os.environ.get("GOOGLE_CLOUD_PROJECT", "").strip()
        placed = location or os.environ.get("GOOGLE_CLOUD_LOCATION", "").strip()
        if not api_key and not (named or placed or credentials):
            api_key = os.environ.get("GOOGLE_API_KEY", "")
        self._key = (api_key or "").strip()
        self._project = checked_word(named, "the project of Vertex") if named and not self._key else ""
        self._location = checked_word(placed or "global", "the location of Vertex")
        self._url = checked_url(base_url, "base_url of Vertex") if base_url else _google(self._location, self._key)
        self._credentials = credentials
        self._tokens = Tokens(self._fetch, seams)
        if not self._key:
            _google_auth()

    def __repr__(self) -> str:
        return f"Vertex({self._project!r}, {self._location!r})"

    @property
    def address(self) -> str:
        return self._url

    async def sign(self, path: str, body: bytes, headers: dict[str, str]) -> Call:
        """See Endpoint. An `authorization` among `headers` is left as it is. ConfigError without credentials or a project."""
        if self._key:
            if path == MESSAGES:
                raise ConfigError(
                    "Claude on Vertex needs a project and credentials; a key (express mode) is not enough"
                )
            where = _gemini_path(path, "")
            return Call(
                URL(f"{self._url}/v1beta1{where}", encoded=True), {"x-goog-api-key": self._key, **headers}, body
            )
        signed = dict(headers)
        if "authorization" not in headers:
            signed["authorization"] = f"Bearer {await self._tokens.get()}"
            quota = str(getattr(self._credentials, "quota_project_id", None) or "")
            if quota:
                signed.setdefault("x-goog-user-project", quota)
        if not self._project:
            raise ConfigError(
                "Vertex needs a project, and the credentials name none: set GOOGLE_CLOUD_PROJECT, or Vertex(project=)"
            )
        place = f"/projects/{self._project}/locations/{self._location}"
        if path != MESSAGES:
            return Call(URL(f"{self._url}/v1beta1{_gemini_path(path, place)}", encoded=True), signed, body)
        signed.pop("anthropic-version", None)
        said = moved(body, CLAUDE_VERSION, keep_stream=True)
        if "/" in said.model or ".." in said.model:
            raise BadRequest(f"{said.model!r} is not the name of a Claude model on Vertex", "model")
        verb = "streamRawPredict" if said.stream else "rawPredict"
        where = f"/v1{place}/publishers/anthropic/models/{quote(said.model, safe='@')}:{verb}"
        return Call(URL(self._url + where, encoded=True), signed, said.body)

    async def renew(self, call: Call, refusal: ModelError) -> bool:
        """After a 401, with a token that is fetched anew."""
        used = call.headers.get("authorization", "").removeprefix("Bearer ")
        return (
            not self._key and refusal.http_status == 401 and used in self.secrets() and await self._tokens.renew(used)
        )

    def secrets(self) -> Sequence[str]:
        return (self._key,) if self._key else self._tokens.secrets()

    def decoder(self) -> Callable[[bytes], bytes]:
        return bytes

    def _fetch(self, replace: bool) -> Token:
        """A token. Blocks: it reads files, asks Google, or the machine that this one runs on."""
        auth, failed = _google_auth()
        try:
            if self._credentials is None:
                self._credentials, found = auth.default(scopes=[SCOPE])
                self._project = self._project or checked_word(found, "the project of the credentials") if found else ""
            elif not self._project:
                self._project = str(getattr(self._credentials, "project_id", None) or "")
            credentials: Any = import_module("google.auth.credentials").with_scopes_if_required(
                self._credentials, [SCOPE]
            )
            self._credentials = credentials
            if replace or not credentials.valid:
                credentials.refresh(import_module("google.auth.transport.requests").Request())
        except failed.DefaultCredentialsError:
            raise ConfigError(f"Vertex finds no credentials of Google Cloud: {_TODO}") from None
        except failed.TransportError as error:
            raise ModelError(
                f"the token server of Google Cloud cannot be reached ({type(error).__name__})", code="UNAVAILABLE"
            ) from None
        except failed.GoogleAuthError as error:
            raise refused("Google Cloud", error, f"the credentials may have ended or been revoked; {_TODO}") from None
        ends = credentials.expiry
        return Token(str(credentials.token), ends.replace(tzinfo=UTC).timestamp()) if ends else Token(credentials.token)


def wanted() -> bool:
    """Whether the environment says that Gemini models are those of Vertex, in google-genai's words."""
    says = os.environ.get("GOOGLE_GENAI_USE_ENTERPRISE") or os.environ.get("GOOGLE_GENAI_USE_VERTEXAI") or ""
    return says.strip().lower() in ("true", "1")


def _google(location: str, key: str) -> str:
    if location == "global" or key:
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


def _gemini_path(path: str, place: str) -> str:
    """Where a `path` of the Gemini API is, in `place`: a publisher's model, or one of the project by its whole name."""
    first, _, rest = path[1:].partition("/")
    name = quote(rest, safe="/:@?=")
    if first == "projects":
        return f"/projects/{name}"
    if first == "publishers":
        return f"{place}/publishers/{name}"
    if first == "models":
        return f"{place}/publishers/google/models/{name}"
    return f"{place}/publishers/{quote(first)}/models/{name}"


def _google_auth() -> tuple[Any, Any]:
    """google.auth and its exceptions."""
    try:
        import_module("google.auth.transport.requests")
        return import_module("google.auth"), import_module("google.auth.exceptions")
    except ImportError:
        raise ConfigError("Vertex needs google-auth with requests: pip install 'polyport[vertex]'") from None
