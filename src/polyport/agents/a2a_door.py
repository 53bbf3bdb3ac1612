"""The way out of an A2A client: limits, whose headers go where, and what a refusal means.

Used by the card cache and by the bindings. A caller's headers go only to hosts that were named by the user; credentials that
are refused are refreshed once (FR-177). Knows HTTP, and no operation of A2A.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from polyport.agents.a2a_http import Answer, HttpClient, Outgoing, Stream, place
from polyport.engine.hooks import ask
from polyport.errors import Forbidden, LimitExceeded, PolyportError, Unauthenticated, Unavailable
from polyport.ports.trace import outgoing_trace
from polyport.wire.a2a_errors import ERROR_INFO, remote_error

MIB = 1024 * 1024


class A2ALimits(Struct, frozen=True, kw_only=True):
    """What a remote agent may cost."""

    call_timeout_s: float = 30.0
    """One request that does not wait for the agent's work: card, get, list, cancel, push."""
    timeout_s: float = 600.0
    """One message until the task has ended or asks for something; also until a stream begins."""
    idle_timeout_s: float = 120.0
    """How long a stream may be silent before it counts as cut."""
    connect_timeout_s: float = 15.0
    card_bytes: int = 1 * MIB
    answer_bytes: int = 32 * MIB
    """One answer that is no stream."""
    stream_bytes: int = 64 * MIB
    """All frames of one stream together."""
    resubscribes: int = 5
    """How often in a row, without any news, a cut stream is taken up again before the task is polled."""
    poll_s: float = 0.25
    """The first pause between two looks at a task that cannot be streamed; it grows up to `poll_max_s`."""
    poll_max_s: float = 5.0
    poll_failures: int = 5
    """How many looks in a row may fail."""
    linger_s: float = 2.0
    """How long a stream stays open after its one message, to see that nothing else comes (FR-163)."""


class Caller(Struct, frozen=True, kw_only=True):
    """Who calls, as headers of each request. `provider()` gives more of them each time (sync or async). After a 401
    `refresh(challenge)` is called with the text of WWW-Authenticate, `provider` is asked again, and the request is sent once
    more. `identity` tells callers apart to whom a server may show different cards."""

    headers: Mapping[str, str] = {}
    provider: Callable[[], Any] | None = None
    refresh: Callable[[str], Any] | None = None
    identity: str = ""

    async def current(self) -> dict[str, str]:
        """The headers for one request."""
        found = {name.lower(): value for name, value in self.headers.items()}
        if self.provider is not None:
            given: Mapping[str, str] = await ask(self.provider) or {}
            found |= {name.lower(): value for name, value in given.items()}
        return found


ANYONE = Caller()


class Door:
    """The way out: it adds a caller's headers, where they may go, and refreshes them once when they are refused."""

    def __init__(self, http: HttpClient, trusts: Callable[[str], bool]) -> None:
        self.kept = http.kept
        """Where a transport keeps what lives as long as the client."""
        self._http = http
        self._trusts = trusts

    async def send(self, request: Outgoing, caller: Caller, max_bytes: int) -> Answer:
        """The answer, whatever its status but 401 (Unauthenticated)."""
        request = _with(request, self.trace(request.url))
        own = await self.own(request.url, caller)
        answer = await self._http.send(_with(request, own), max_bytes)
        if answer.status == 401:
            own = await self.fresh(request.url, caller, own, answer.headers.get("www-authenticate", ""))
            answer = await self._http.send(_with(request, own), max_bytes)
            if answer.status == 401:
                raise self.refused(request.url, caller)
        return answer

    @asynccontextmanager
    async def open(self, request: Outgoing, caller: Caller) -> AsyncGenerator[Stream]:
        """The same for a stream."""
        request = _with(request, self.trace(request.url))
        own = await self.own(request.url, caller)
        async with self._http.open(_with(request, own)) as stream:
            if stream.status != 401:
                yield stream
                return
            challenge = stream.headers.get("www-authenticate", "")
        own = await self.fresh(request.url, caller, own, challenge)
        async with self._http.open(_with(request, own)) as stream:
            if stream.status == 401:
                raise self.refused(request.url, caller)
            yield stream

    def trace(self, url: str) -> Mapping[str, str]:
        """The headers that say to which trace a request to `url` belongs, if it may know."""
        return outgoing_trace() if self._trusts(url) else {}

    async def own(self, url: str, caller: Caller) -> dict[str, str]:
        """The caller's headers that may go to `url`."""
        return await caller.current() if self._trusts(url) else {}

    async def fresh(self, url: str, caller: Caller, before: dict[str, str], challenge: str) -> dict[str, str]:
        """Other headers than `before`, which were refused. Unauthenticated when there are none."""
        if self._trusts(url):
            if caller.refresh is not None:
                await ask(caller.refresh, challenge)
            after = await caller.current()
            if after != before:
                return after
        raise self.refused(url, caller)

    def refused(self, url: str, caller: Caller) -> Unauthenticated:
        """The error for credentials that are not accepted at `url`, or were not sent there."""
        where = place(url)
        if not self._trusts(url) and (caller.headers or caller.provider is not None):
            return Unauthenticated(
                f"{where} wants credentials; none were sent, for its card came from another host. If that host is to be "
                "trusted, name it in trusted_hosts"
            )
        return Unauthenticated(f"{where} does not accept the credentials (401)")


def _with(request: Outgoing, own: Mapping[str, str]) -> Outgoing:
    return structs.replace(request, headers={**request.headers, **own}) if own else request


def http_error(where: str, answer: Answer) -> PolyportError:
    """The exception for a status that is no success, by what its body says, if it is JSON."""
    said, v03_type = error_of(answer.body)
    text = said.get("message")
    message = text if isinstance(text, str) and text else f"{where} answered {answer.status}"
    details = said.get("details")
    if v03_type:
        details = named_error(v03_type)
    if answer.status == 429:
        return LimitExceeded(message, seconds(answer.headers.get("retry-after", "")))
    if answer.status in (408, 500, 502, 503, 504, 520, 521, 522, 523, 524) and not said:
        return Unavailable(message)
    if answer.status == 403:
        return Forbidden(message)
    status = said.get("status")
    return remote_error(message, details, http=answer.status, grpc=status if isinstance(status, str) else "")


def named_error(name: str) -> list[dict[str, Any]]:
    """Details that say what 0.3 says by a name, such as TaskNotFoundError; empty for what is no such name."""
    if not name.endswith("Error") or not name.isalpha():
        return []
    reason = "".join("_" + c if c.isupper() else c.upper() for c in name.removesuffix("Error")).strip("_")
    return [{"@type": ERROR_INFO, "reason": reason}]


def error_of(body: bytes) -> tuple[dict[str, Any], str]:
    """The error object of a REST body, and the name of 0.3's."""
    try:
        plain = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}, ""
    if not isinstance(plain, dict):
        return {}, ""
    outer = cast("dict[str, Any]", plain)
    inner = outer.get("error")
    name = outer.get("type")
    found = cast("dict[str, Any]", inner) if isinstance(inner, dict) else outer if "message" in outer else {}
    return found, name if isinstance(name, str) and name.endswith("Error") and "/" not in name else ""


def seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() else None
