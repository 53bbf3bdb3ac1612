"""Gemini models over the Gemini API: the I/O around `wire/gemini.py` and `wire/gemini_request.py`.

Made by the registry or by users; called by the engine. The key travels in a header, never in a URL, and never shows up
in an error. Retries are those of `models/http.py`, before the first byte only.
"""

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from polyport.data.model import ModelRequest, ModelResponse
from polyport.errors import BadRequest, ConfigError, ModelError
from polyport.models.http import Endpoint, Http, Retry
from polyport.models.vertex import Vertex, wanted
from polyport.ports.model import OnPartial
from polyport.wire.gemini import GeminiStream, read_answer, read_error
from polyport.wire.gemini_request import encode_request, path

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
"""Environment variables that may hold the key, best first."""

_CLIENT = "polyport"


@dataclass
class GeminiHttp(Http):
    """Http that reads google.rpc.Status bodies, so that its RetryInfo counts as a Retry-After."""

    async def _refused(self, response: aiohttp.ClientResponse) -> ModelError:
        try:
            body = await response.content.read(65_536)
        except (TimeoutError, aiohttp.ClientError):
            body = b""
        plain = await super()._refused(response)
        return read_error(plain.http_status, body, plain.retry_after_s)


class GeminiModel:
    """A Gemini model by name, such as `gemini-flash-latest`; see `ports.model.Model`.

    `base_url` is an address or a Vertex (models/vertex), by default the Gemini API; or Vertex() when the environment says so by
    GOOGLE_GENAI_USE_VERTEXAI, as for google-genai.

    `api_key` defaults to GEMINI_API_KEY or GOOGLE_API_KEY; ConfigError when there is neither, nor a key or authorization
    in `headers`. With `http`, its base URL, headers, retries and clock are used.
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | Endpoint | None = None,
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        http: Http | None = None,
    ) -> None:
        try:
            path(name, stream=False)
        except BadRequest as error:
            raise ConfigError(str(error)) from None
        self._name = name
        if base_url is None:
            base_url, api_key = (Vertex(api_key=api_key), None) if wanted() and not http else (BASE_URL, api_key)
        http = http or Http(base_url, retry=retry or Retry())
        cloud = http.cloud_without(api_key)
        self._schema_from = 2 if cloud else 3
        sent = _headers({**http.headers, **(headers or {})})
        if not cloud and (api_key or not sent.keys() & {"x-goog-api-key", "authorization"}):
            sent["x-goog-api-key"] = (api_key or "").strip() or _key_from_environment(name)
        self._http = GeminiHttp(
            base_url=http.base_url,
            headers=sent,
            retry=http.retry,
            timeout_s=http.timeout_s,
            idle_timeout_s=http.idle_timeout_s,
            seams=http.seams,
            sleep=http.sleep,
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def schema_with_tools(self) -> bool:
        """The Gemini API takes a response schema beside functions from Gemini 3 on, Vertex from Gemini 2 on (spec core 3.5); a
        name without a number may be older."""
        found = re.match(r"(?:models/)?gemini-(\d+)", self._name)
        return found is not None and int(found[1]) >= self._schema_from

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        """See `ports.model.Model`. BadRequest for a part that the API cannot take (a wildcard media type, say)."""
        body = encode_request(request)
        where = path(request.model or self._name, stream=on_partial is not None)
        headers = {k.lower(): v for k, v in request.config.headers.items()}
        try:
            return await self._asked(where, body, headers, on_partial)
        except ModelError as error:
            raise self._http.struck(error, headers) from None

    async def _asked(
        self, where: str, body: bytes, headers: dict[str, str], on_partial: OnPartial | None
    ) -> ModelResponse:
        if on_partial is None:
            return read_answer(await self._http.post(where, body, headers), self._http.seams.new_id)
        reader = GeminiStream(self._http.seams.new_id)
        async with contextlib.aclosing(self._http.stream(where, body, headers)) as chunks:
            async for chunk in chunks:
                for piece in reader.feed(chunk):
                    await on_partial(piece)
        for piece in reader.end():
            await on_partial(piece)
        return reader.answer()

    async def aclose(self) -> None:
        await self._http.aclose()


def _headers(given: Mapping[str, str]) -> dict[str, str]:
    """`given` in lower case, with our name added to the client header."""
    out = {k.lower(): v for k, v in given.items()}
    out["x-goog-api-client"] = " ".join(v for v in (out.get("x-goog-api-client"), _CLIENT) if v)
    return out


def _key_from_environment(name: str) -> str:
    for variable in KEYS:
        if key := os.environ.get(variable, "").strip():
            return key
    raise ConfigError(f"the model {name!r} needs an API key: set {' or '.join(KEYS)}, or pass api_key=")
