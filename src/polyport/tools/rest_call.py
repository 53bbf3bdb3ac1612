"""The HTTP of tools: one request, its redirects, and a bounded answer.

Used by the OpenAPI toolset and its credentials. One aiohttp session for each event loop; no cookies are kept, for users must
not share them. Credentials go to the host that they are meant for and to no other; errors never show a URL's query.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
import anyio
import msgspec
from msgspec import Struct, structs
from yarl import URL

from polyport.errors import TimedOut, Unavailable
from polyport.tools.openapi_request import FormPart

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEPT_ELSEWHERE = frozenset({"accept", "user-agent"})
"""The only headers that another host gets."""


class Outgoing(Struct, frozen=True, kw_only=True):
    """One request. `where` names it in errors; `headers` may hold secrets."""

    method: str
    url: str
    where: str
    headers: dict[str, str] = {}
    body: bytes | None = None
    parts: tuple[FormPart, ...] = ()

    def __repr__(self) -> str:
        return f"Outgoing({self.where})"


class Answer(Struct, frozen=True, kw_only=True):
    """What came back; header names in lower case. `cut`: the body was longer than allowed, and is not whole."""

    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool = False


class RestClient:
    """`timeout_s` is for one request with all its redirects; `max_bytes` is for a body, decompressed."""

    def __init__(self, *, timeout_s: float, max_bytes: int, max_redirects: int = 5) -> None:
        self.timeout_s = timeout_s
        self.max_bytes = max_bytes
        self.max_redirects = max_redirects
        self._open: dict[asyncio.AbstractEventLoop, tuple[AsyncGenerator[aiohttp.ClientSession], Any]] = {}

    async def send(self, request: Outgoing, *, other_hosts: bool = True) -> Answer:
        """The answer, whatever its status. A redirect that may not be followed is the answer itself.

        TimedOut, or Unavailable when the host cannot be reached or breaks off.
        """
        host = urlsplit(request.url).netloc.rpartition("@")[2]
        try:
            with anyio.fail_after(self.timeout_s):
                return await self._follow(request, other_hosts)
        except TimeoutError:
            raise TimedOut(f"{request.where}: {host} did not answer within {self.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(f"{request.where}: {host} could not be reached ({type(error).__name__})") from None

    async def _follow(self, request: Outgoing, other_hosts: bool) -> Answer:
        session = await self._session()
        for left in range(self.max_redirects, -1, -1):
            response = await session.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=_form(request.parts) if request.parts else request.body,
                allow_redirects=False,
            )
            try:
                after = await self._redirected(request, response, other_hosts) if left else None
                if after is None:
                    return await self._read(response)
                request = after
            finally:
                response.close()
        raise AssertionError("the last round returns")

    async def _read(self, response: aiohttp.ClientResponse) -> Answer:
        headers = {name.lower(): value for name, value in response.headers.items()}
        pieces: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_chunked(65_536):
            size += len(chunk)
            pieces.append(chunk)
            if size > self.max_bytes:
                break
        body = b"".join(pieces)
        return Answer(status=response.status, headers=headers, body=body[: self.max_bytes], cut=size > self.max_bytes)

    # ---- redirects

    async def _redirected(
        self, request: Outgoing, response: aiohttp.ClientResponse, other_hosts: bool
    ) -> Outgoing | None:
        """The request that a redirect asks for; None when the answer is none, or may not be followed."""
        location = response.headers.get("location")
        if response.status not in REDIRECTS or not location:
            return None
        url = urljoin(request.url, location)
        if not _followable(request.url, url):
            return None
        method, body, parts = request.method, request.body, request.parts
        if response.status == 303 or (response.status in (301, 302) and method == "POST"):
            method, body, parts = ("HEAD" if method == "HEAD" else "GET"), None, ()
        headers = request.headers
        if body is None and not parts:
            headers = {k: v for k, v in headers.items() if k.lower() != "content-type"}
        if not _same_host(request.url, url):
            if not other_hosts or method not in ("GET", "HEAD") or await self._leads_inside(request.url, url):
                return None
            headers = {k: v for k, v in headers.items() if k.lower() in _KEPT_ELSEWHERE}
            body, parts = None, ()
        return structs.replace(request, method=method, url=url, headers=headers, body=body, parts=parts)

    async def _leads_inside(self, old: str, new: str) -> bool:
        """Whether a host of the internet sends us into this network."""
        return await addresses_inside(new) and not await addresses_inside(old)

    # ---- sessions

    async def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        known = self._open.get(loop)
        if known is not None and not known[1].closed:
            return known[1]
        for other in [one for one in self._open if one.is_closed()]:
            del self._open[other]
        holder = _held(self.timeout_s)
        session = await anext(holder)
        self._open[loop] = holder, session
        return session

    async def aclose(self) -> None:
        """Close the session of the running event loop. Those of others are closed when their loops end."""
        known = self._open.pop(asyncio.get_running_loop(), None)
        if known is not None:
            await known[0].aclose()


async def _held(timeout_s: float) -> AsyncGenerator[aiohttp.ClientSession]:
    """A session, open until this generator is closed. An event loop that ends closes its generators: nothing is left open
    when a toolset is used in one loop after another, as `App.run_sync` does."""
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=True) as session:
        yield session


def _form(parts: tuple[FormPart, ...]) -> aiohttp.FormData:
    form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
    for part in parts:
        form.add_field(
            part.name,
            part.data if part.filename else part.data.decode(),
            content_type=part.media,
            filename=part.filename or None,
        )
    return form


def _followable(old: str, new: str) -> bool:
    parts = urlsplit(new)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        return False
    return parts.scheme == "https" or urlsplit(old).scheme == "http"


def _same_host(old: str, new: str) -> bool:
    """The same scheme, host and port; also from http to https on their usual ports."""
    a, b = urlsplit(old), urlsplit(new)
    if a.hostname != b.hostname:
        return False
    if (a.scheme, b.scheme) == ("http", "https"):
        return a.port in (None, 80) and b.port in (None, 443)
    usual = {"http": 80, "https": 443}[a.scheme]
    return a.scheme == b.scheme and (a.port or usual) == (b.port or usual)


async def addresses_inside(url: str) -> bool:
    """Whether the host of `url` has an address that is not one of the internet: loopback, private, link-local."""
    host = urlsplit(url).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False  # nor can it be connected to
    return any(not ipaddress.ip_address(str(item[4][0]).partition("%")[0]).is_global for item in found)


async def post_form(
    client: RestClient, url: str, form: Mapping[str, str], headers: Mapping[str, str]
) -> tuple[int, Any]:
    """Status and JSON of an answer to a form, as token endpoints want it; None for an answer that is no JSON."""
    request = Outgoing(
        method="POST",
        url=url,
        where="the token endpoint",
        headers={"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", **headers},
        body=urlencode(form).encode(),
    )
    answer = await client.send(request, other_hosts=False)
    try:
        return answer.status, msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return answer.status, None
