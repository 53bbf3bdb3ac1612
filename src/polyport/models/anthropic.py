"""AnthropicModel: Claude and whatever else speaks the Anthropic Messages API.

Made by the registry or by users. The I/O around wire/anthropic: key, headers, retries, streaming. It starts over only while
nothing of the answer has been handed on, and never shows the key.
"""

import contextlib
import dataclasses
import os
from collections.abc import Mapping

import anyio

from polyport.data.model import ModelRequest, ModelResponse
from polyport.errors import ConfigError, ModelError, TooLarge
from polyport.models.http import Endpoint, Http, Retry
from polyport.ports.model import OnPartial
from polyport.wire.anthropic import AnthropicDecoder, decode_response, encode_request, error_code, max_tokens
from polyport.wire.sse import SseDecoder, SseEvent

PATH = "/v1/messages"
VERSION = "2023-06-01"
"""The version that every server of this API knows, and the last one with temperature, top_p and top_k. An
`anthropic-version` among the headers chooses another; requests without these three fit 2026-10-21 as well."""
KEY = "ANTHROPIC_API_KEY"
STREAM_ABOVE = 4096
"""With more `max_tokens` than this the answer is streamed even when nobody watches: a silent request of that length would
run into timeouts, here or on the way."""
LINGER_S = 0.25
"""How long to wait for the end of a stream whose answer is whole, so that the connection can be used again."""

_BUSY = frozenset({"overloaded_error", "rate_limit_error", "api_error", "timeout_error"})


class AnthropicModel:
    """The model `name` of the provider, or of a cloud: `base_url` may be a Vertex (models/vertex) or Bedrock (models/bedrock).

    `api_key` defaults to the environment's ANTHROPIC_API_KEY; ConfigError when there is neither a key nor an `x-api-key` or
    `authorization` in `headers`. `http`, when given, brings its own base URL and retries. `schema_with_tools=False` is for
    servers that do not know `output_config`.
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | Endpoint = "https://api.anthropic.com",
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        http: Http | None = None,
        schema_with_tools: bool = True,
    ) -> None:
        self._name = name
        self._schema_with_tools = schema_with_tools
        if isinstance(base_url, str):
            base_url = base_url.rstrip("/").removesuffix("/v1")
        http = http or Http(base_url, retry=retry or Retry(), timeout_s=3600)
        given = {k.lower(): v for k, v in {**http.headers, **(headers or {})}.items()}
        if not http.cloud_without(api_key) and not given.keys() & {"x-api-key", "authorization"}:
            given["x-api-key"] = _key(api_key, name)
        self._http = dataclasses.replace(http, headers={"anthropic-version": VERSION, **given})

    @property
    def name(self) -> str:
        return self._name

    @property
    def schema_with_tools(self) -> bool:
        return self._schema_with_tools

    def __repr__(self) -> str:
        return f"AnthropicModel({self._name!r})"

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        """See ports.model. `request.model` wins over the name. An HTTP error's `code` is the provider's error type."""
        stream = on_partial is not None or max_tokens(request.config) > STREAM_ABOVE
        body = encode_request(request, model=request.model or self._name, stream=stream)
        headers = {k.lower(): v for k, v in request.config.headers.items()}
        try:
            if stream:
                return await self._streamed(body, headers, on_partial)
            return decode_response(await self._http.post(PATH, body, headers), self._http.seams.new_id)
        except ModelError as error:
            raise self._told(error, headers) from None

    async def _streamed(self, body: bytes, headers: dict[str, str], on_partial: OnPartial | None) -> ModelResponse:
        """The provider may answer 200 and then send "overloaded" at once: that is retried like a 529, if no partial has
        been handed on."""
        attempt, handed_on = 0, False

        async def hand_on(partial: ModelResponse) -> None:
            nonlocal handed_on
            handed_on = True
            if on_partial is not None:
                await on_partial(partial)

        while True:
            attempt += 1
            try:
                return await self._once(body, headers, hand_on)
            except ModelError as error:
                retry = self._http.retry
                if handed_on or error.http_status or error.code not in _BUSY or attempt >= retry.attempts:
                    raise
                await self._http.sleep(min(retry.base_s * 2 ** (attempt - 1), retry.max_wait_s))

    async def _once(self, body: bytes, headers: dict[str, str], on_partial: OnPartial) -> ModelResponse:
        events, decoder = SseDecoder(), AnthropicDecoder(self._http.seams.new_id)
        chunks = self._http.stream(PATH, body, headers)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                for event in _events(events, chunk):
                    for partial in decoder.feed(event.event, event.data):
                        await on_partial(partial)
                if decoder.done:
                    break
            with contextlib.suppress(ModelError), anyio.move_on_after(LINGER_S):
                async for _ in chunks:
                    pass
        return decoder.finish()

    def _told(self, error: ModelError, headers: dict[str, str]) -> ModelError:
        """`error` with the provider's own code, and without any secret that we sent."""
        told = self._http.struck(error, headers)
        told.code = told.code or error_code(str(told))
        return told

    async def aclose(self) -> None:
        await self._http.aclose()


def _key(api_key: str | None, name: str) -> str:
    key = (api_key if api_key is not None else os.environ.get(KEY, "")).strip()
    if not key:
        raise ConfigError(f"the model {name!r} needs a key of the Anthropic API: set {KEY}, or pass api_key")
    return key


def _events(decoder: SseDecoder, chunk: bytes) -> list[SseEvent]:
    try:
        return decoder.feed(chunk)
    except TooLarge as error:
        raise ModelError(f"the model's server sent too much: {error}", code="TOO_LARGE") from None
