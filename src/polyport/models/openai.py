"""Models behind the Chat Completions API: OpenAI's own, and every server that speaks it (Ollama, vLLM, llama.cpp, ...).

The registry and users make one; the engine asks it. The I/O around `wire/openai` and `wire/openai_answer`; it learns what a
server refuses and leaves that out from then on. It never starts over once a piece has come, and never shows the key.
"""

import contextlib
import os
from dataclasses import replace

import anyio
from msgspec import structs

from polyport.codec import encode
from polyport.data.model import ModelRequest, ModelResponse
from polyport.errors import ConfigError, ModelError
from polyport.models.http import Endpoint, Http, Retry
from polyport.ports.model import OnPartial
from polyport.wire.openai import OFFICIAL, Dialect, Json, encode_request, simpler
from polyport.wire.openai_answer import AnswerDecoder, decode_answer
from polyport.wire.sse import SseDecoder

OFFICIAL_URL = "https://api.openai.com/v1"
_LEARNT_SCHEMAS = 256
_LINGER_S = 1.0


class OpenAIModel:
    """The model `name` of the server at `base_url` (with its `/v1`), or the deployment `name` of an Azure (models/azure).

    Without `api_key`, OPENAI_API_KEY is used for OpenAI's own server, and only for that; ConfigError when it is not set. Other
    servers get a key only if it is given. `dialect` says what the server can do; by default that of OpenAI for its own
    server and for Azure, else a careful one. `headers` go with every request. With `http`, its base URL, retries and clock are
    used.
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | Endpoint = OFFICIAL_URL,
        dialect: Dialect | None = None,
        headers: dict[str, str] | None = None,
        retry: Retry | None = None,
        http: Http | None = None,
    ) -> None:
        self._name = name
        self._http = http or Http(base_url, retry=retry or Retry())
        official = self._http.endpoint.address.rstrip("/") == OFFICIAL_URL
        cloud = self._http.cloud_without(api_key)
        self._headers = dict(headers or {})
        has_own = any(key.lower() == "authorization" for key in (*self._http.headers, *self._headers))
        if official and not api_key and not has_own:
            api_key = os.environ.get("OPENAI_API_KEY", "")
            if not api_key:
                raise ConfigError(
                    f"model {name!r} needs a key: set the environment variable OPENAI_API_KEY, or api_key="
                )
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key.strip()}"
        self.dialect = dialect or (OFFICIAL if official or cloud else Dialect())
        self._schemas: dict[bytes, Dialect] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def schema_with_tools(self) -> bool:
        """As the dialect says: true for OpenAI's own server only, unless told otherwise (FR-087)."""
        return self.dialect.schema_with_tools

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        """One answer. When the server refuses a part that can be left out (400, 422), it is asked again without that part."""
        schema = encode(request.response_schema) if request.response_schema is not None else b""
        dialect = self._known(schema)
        while True:
            model = request.model or self._name
            body = encode_request(request, model=model, stream=on_partial is not None, dialect=dialect)
            decoder = AnswerDecoder(self._http.seams.new_id)
            headers = {**self._headers, **request.config.headers}
            try:
                answer = await self._ask(body, headers, decoder, on_partial)
            except ModelError as error:
                refused = error.http_status in (400, 422) and not decoder.started
                other = simpler(dialect, body, _complaint(error)) if refused else None
                if other is None:
                    raise self._http.struck(error, headers) from None
                dialect = other
            else:
                self._learn(schema, dialect)
                return answer

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _ask(
        self, body: Json, headers: dict[str, str], decoder: AnswerDecoder, on_partial: OnPartial | None
    ) -> ModelResponse:
        data = encode(body)
        if on_partial is None:
            return decode_answer(await self._http.post("/chat/completions", data, headers), self._http.seams.new_id)
        events = SseDecoder()
        async with contextlib.aclosing(self._http.stream("/chat/completions", data, headers)) as chunks:
            with anyio.CancelScope() as scope:
                async for chunk in chunks:
                    for event in events.feed(chunk):
                        for piece in decoder.feed(event.data):
                            await on_partial(piece)
                    if (
                        decoder.done
                    ):  # read to the end, so that the connection can be used again; but do not wait for long
                        scope.deadline = anyio.current_time() + _LINGER_S
        return structs.replace(decoder.finish(), turn_complete=True)

    def _known(self, schema: bytes) -> Dialect:
        """The dialect with what was learnt about this very schema: another one may fare better."""
        learnt = self._schemas.get(schema)
        if learnt is None:
            return self.dialect
        return replace(self.dialect, structured=learnt.structured, strict=learnt.strict)

    def _learn(self, schema: bytes, dialect: Dialect) -> None:
        if dialect == self._known(schema):
            return
        if schema:
            if len(self._schemas) >= _LEARNT_SCHEMAS:
                self._schemas.clear()
            self._schemas[schema] = dialect
        self.dialect = replace(self.dialect, stream_usage=dialect.stream_usage, max_tokens=dialect.max_tokens)


def _complaint(error: ModelError) -> str:
    """What the server itself said: after `models/http`'s own words."""
    return str(error).partition(": ")[2]
