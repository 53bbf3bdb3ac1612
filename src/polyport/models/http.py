"""The HTTP of all providers: one POST, whole or streamed, with bounded retries.

Used by the model adapters only. Where a request goes and how it is signed is the business of an Endpoint: a plain URL, or a
cloud (`models/vertex`, `models/bedrock`, `models/azure`). Retries happen before the first byte of an answer is handed on,
never after, and honour Retry-After up to a limit; no secret ever appears in an error. Never parses a provider's JSON.
"""

import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Protocol

import aiohttp
import anyio
from yarl import URL

from polyport.errors import ConfigError, ModelError
from polyport.seams import REAL, Seams

RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_SECRET_WORDS = ("auth", "key", "token", "cookie", "secret")
"""A header with one of these in its name holds what nobody may see."""


class Call(NamedTuple):
    """A POST as it goes out."""

    url: URL
    headers: dict[str, str]
    body: bytes


class Endpoint(Protocol):
    """Where a model is, and how to sign in there. It makes of a request to the maker's own API the one that this place takes,
    and of its answer the maker's. Asked anew for each attempt, for signatures age. Shared by models as you like."""

    @property
    def address(self) -> str:
        """For errors: no secret is in it."""
        ...

    async def sign(self, path: str, body: bytes, headers: dict[str, str]) -> Call:
        """The request to `path` of the maker's API, `headers` in lower case. ConfigError when there are no credentials,
        ModelError when they cannot be had now."""
        ...

    async def renew(self, call: Call, refusal: ModelError) -> bool:
        """After a 401 or 403: whether there are other credentials than those of `call` now."""
        ...

    def secrets(self) -> Sequence[str]:
        """What must not show up in an error, beside what the headers hold."""
        ...

    def decoder(self) -> Callable[[bytes], bytes]:
        """For one stream: makes of its chunks, as they come, those of the maker's API. It never fails."""
        ...


class Plain(NamedTuple):
    """An Endpoint that is just a base URL: whoever asks brings a key among the headers."""

    address: str

    async def sign(self, path: str, body: bytes, headers: dict[str, str]) -> Call:
        return Call(URL(self.address.rstrip("/") + path), headers, body)

    async def renew(self, call: Call, refusal: ModelError) -> bool:
        return False

    def secrets(self) -> Sequence[str]:
        return ()

    def decoder(self) -> Callable[[bytes], bytes]:
        return bytes


@dataclass(frozen=True)
class Retry:
    """At most `attempts` tries; waits `base_s * 2**n`, jittered, at most `max_wait_s`. A Retry-After above `max_wait_s`
    is not waited for: the error surfaces at once."""

    attempts: int = 3
    base_s: float = 0.5
    max_wait_s: float = 20.0


@dataclass
class Http:
    """A client for one base URL or Endpoint. `sleep` is replaceable so that tests need not wait."""

    base_url: str | Endpoint
    headers: dict[str, str] = field(default_factory=dict[str, str])
    retry: Retry = Retry()
    timeout_s: float = 600.0
    idle_timeout_s: float = 120.0
    seams: Seams = REAL
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    _session: aiohttp.ClientSession | None = None

    @property
    def endpoint(self) -> Endpoint:
        return Plain(self.base_url) if isinstance(self.base_url, str) else self.base_url

    def cloud_without(self, api_key: str | None) -> bool:
        """Whether the endpoint signs in by itself. ConfigError when there is an `api_key` beside it."""
        cloud = not isinstance(self.base_url, str)
        if cloud and api_key:
            raise ConfigError(f"{self.base_url!r} signs in by itself: give the api_key to it, not to the model")
        return cloud

    async def post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
        """The body of a 2xx answer. ModelError otherwise, its message made from at most 2000 characters of the body."""
        async with self._open(path, body, headers) as response:
            try:
                return await response.read()
            except (TimeoutError, aiohttp.ClientError) as error:
                raise self._broken(error) from None

    async def stream(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> AsyncGenerator[bytes]:
        """The chunks of a 2xx answer as they come. Close the iterator (`contextlib.aclosing`) to hang up."""
        async with self._open(path, body, headers) as response:
            decoder = self.endpoint.decoder()
            try:
                async for chunk in response.content.iter_any():
                    if decoded := decoder(chunk):
                        yield decoded
            except (TimeoutError, aiohttp.ClientError) as error:
                raise self._broken(error) from None

    @contextlib.asynccontextmanager
    async def _open(
        self, path: str, body: bytes, headers: dict[str, str] | None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        response = await self._send(path, body, {**self.headers, **(headers or {})})
        try:
            yield response
        finally:
            response.close()

    async def _send(self, path: str, body: bytes, headers: dict[str, str]) -> aiohttp.ClientResponse:
        attempt, renewed, endpoint = 0, False, self.endpoint
        given = {"content-type": "application/json", **{k.lower(): v for k, v in headers.items()}}
        while True:
            attempt += 1
            try:
                call = await endpoint.sign(path, body, given)
                response = await self._client().post(
                    call.url, data=call.body, headers=call.headers, allow_redirects=False
                )
            except ModelError as error:
                failure = error
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                failure = self._broken(error)
            else:
                if 200 <= response.status < 300:
                    return response
                failure = self.struck(await self._refused(response), call.headers)
                if not renewed and response.status in (401, 403) and await endpoint.renew(call, failure):
                    renewed, attempt = True, attempt - 1
                    continue
            wait = self._wait(failure, attempt)
            if wait is None:
                raise failure
            await self.sleep(wait)

    def _wait(self, failure: ModelError, attempt: int) -> float | None:
        """Seconds to wait before the next attempt, or None to give up."""
        retryable = failure.http_status in RETRYABLE or failure.http_status == 0
        if attempt >= self.retry.attempts or not retryable:
            return None
        if failure.retry_after_s is not None:
            return failure.retry_after_s if failure.retry_after_s <= self.retry.max_wait_s else None
        return min(self.retry.base_s * 2 ** (attempt - 1), self.retry.max_wait_s) * (0.5 + self.seams.chance() / 2)

    async def _refused(self, response: aiohttp.ClientResponse) -> ModelError:
        try:
            text = (await response.content.read(65_536)).decode("utf-8", "replace")
        except (TimeoutError, aiohttp.ClientError):
            text = ""
        finally:
            response.close()
        return ModelError(
            f"the model's server answered {response.status}: {text[:2000]}".rstrip(": "),
            http_status=response.status,
            retry_after_s=_retry_after(response.headers.get("retry-after", ""), self.seams),
        )

    def _broken(self, error: BaseException) -> ModelError:
        if isinstance(error, TimeoutError):
            what = "did not answer in time"
        elif isinstance(error, aiohttp.ClientConnectorError):
            number = error.os_error.errno or 0
            why = os.strerror(number) if number > 0 else error.os_error.strerror or type(error).__name__
            what = f"cannot be reached ({why}): check the address, and that it is running"
        else:
            what = f"broke off ({type(error).__name__})"
        return ModelError(f"the model's server at {_without_login(self.endpoint.address)} {what}", code="UNAVAILABLE")

    def struck(self, error: ModelError, headers: Mapping[str, str]) -> ModelError:
        """`error` without any secret that went out: in our headers, in `headers`, or of the endpoint (FR-023)."""
        text = str(error)
        sent = [*self.headers.items(), *headers.items()]
        held = [v.removeprefix("Bearer ").strip() for k, v in sent if any(word in k.lower() for word in _SECRET_WORDS)]
        for secret in sorted({*held, *self.endpoint.secrets()}, key=len, reverse=True):
            if len(secret) >= 8:
                text = text.replace(secret, "***")
        return ModelError(text, http_status=error.http_status, code=error.code, retry_after_s=error.retry_after_s)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self.timeout_s, connect=30, sock_read=self.idle_timeout_s),
                auto_decompress=True,
                trust_env=True,
            )
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _without_login(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _retry_after(value: str, seams: Seams) -> float | None:
    """Seconds from a Retry-After header (a number or a date), or None."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - seams.clock())
    except (ValueError, TypeError):
        return None
