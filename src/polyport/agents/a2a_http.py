"""The HTTP of A2A clients: one request or one stream, bounded, on aiohttp.

Used by the card cache and the bindings. One session for each event loop; no cookies are kept. A redirect is followed on the
same host only. With `public_only` nothing but addresses of the internet is connected to, checked where the name is
resolved. Knows nothing of A2A; errors never show a URL's query.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import aiohttp
import aiohttp.abc
import anyio
from msgspec import Struct, structs
from yarl import URL

from polyport.agents.a2a_kept import Kept
from polyport.errors import BadRequest, Forbidden, PolyportError, TimedOut, TooLarge, Unavailable

_CHUNK = 65_536
_MAX_REDIRECTS = 5
_USUAL_PORT = {"http": 80, "https": 443}


class Outgoing(Struct, frozen=True, kw_only=True):
    """One request; `headers` may hold secrets. `timeout_s` is for a whole answer, or until a stream begins."""

    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes | None = None
    timeout_s: float = 30.0
    public_only: bool = False

    def __repr__(self) -> str:
        return f"Outgoing({self.method} {place(self.url)})"


class Answer(Struct, frozen=True):
    """What came back; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


class BrokenOff(Unavailable):
    """A stream ended in the middle: the connection broke, or nothing came for too long."""


def place(url: str) -> str:
    """Scheme, host and path of a URL, without user, query and fragment: for errors."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port. BadRequest for what is no absolute http(s) URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadRequest(f"{url!r:.200} is not a URL", "url") from None
    if parts.scheme not in _USUAL_PORT or not parts.hostname:
        raise BadRequest(f"{url!r:.200} is not a URL that begins with http:// or https://", "url")
    return parts.scheme, parts.hostname, port or _USUAL_PORT[parts.scheme]


def same_host(old: str, new: str) -> bool:
    """The same scheme, host and port; also from http to https on their usual ports."""
    a, b = origin(old), origin(new)
    return a == b or (a[1] == b[1] and (a[0], b[0]) == ("http", "https") and (a[2], b[2]) == (80, 443))


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet: not loopback, private, link-local, multicast, or one of these inside an
    IPv6 address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or _behind_nat64(found)
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast


def _behind_nat64(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    inside = address in ipaddress.ip_network("64:ff9b::/96")
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if inside else None


async def leads_inside(url: str) -> bool:
    """Whether the host of `url` has an address that is not one of the internet."""
    _, host, port = origin(url)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False  # nor can it be connected to
    return any(not is_public(str(item[4][0])) for item in found)


async def public_addresses(url: str) -> list[str]:
    """The addresses of the host of `url`, of one family. Forbidden when one of them is not of the internet; Unavailable."""
    _, host, port = origin(url)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _unreachable(place(url), error) from None
    addresses = list(dict.fromkeys(str(item[4][0]) for item in found))
    if not addresses or not all(is_public(address) for address in addresses):
        raise _not_public(place(url))
    return [a for a in addresses if (":" in a) == (":" in addresses[0])]


class _NotPublic(OSError):
    pass


class _PublicOnly(aiohttp.abc.AbstractResolver):
    """Gives the addresses that will be connected to, and none that is not public: there is no time between check and use."""

    def __init__(self) -> None:
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        if not all(is_public(item["host"]) for item in found):
            raise _NotPublic(host)
        return found

    async def close(self) -> None:
        await self._inner.close()


class Stream:
    """An open answer whose body has not been read."""

    def __init__(self, response: aiohttp.ClientResponse, where: str, idle_s: float) -> None:
        self._response = response
        self._where = where
        self._idle_s = idle_s
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body as it comes, decompressed. BrokenOff when it does not end properly."""
        while True:
            try:
                with anyio.fail_after(self._idle_s):
                    chunk = await self._response.content.readany()
            except TimeoutError:
                raise BrokenOff(f"{self._where} sent nothing for {self._idle_s:g} s") from None
            except (aiohttp.ClientError, OSError) as error:
                raise BrokenOff(f"{self._where} broke off ({type(error).__name__})") from None
            if not chunk:
                return
            yield chunk

    async def read(self, max_bytes: int) -> bytes:
        """The whole body. TooLarge; Unavailable when it breaks off."""
        pieces: list[bytes] = []
        size = 0
        try:
            async for chunk in self._response.content.iter_chunked(_CHUNK):
                size += len(chunk)
                if size > max_bytes:
                    raise TooLarge(f"{self._where} answered with more than {max_bytes} bytes")
                pieces.append(chunk)
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{self._where} broke off ({type(error).__name__})") from None
        return b"".join(pieces)


class HttpClient:
    """`idle_s`: how long a stream may be silent. Connections are limited by the runs that use them, not here. `kept` is where
    the sessions are, and what else lives as long as the client."""

    def __init__(self, *, connect_s: float = 15.0, idle_s: float = 120.0) -> None:
        self.kept = Kept()
        self._connect_s = connect_s
        self._idle_s = idle_s

    async def send(self, request: Outgoing, max_bytes: int) -> Answer:
        """The answer, whatever its status. TimedOut, TooLarge, Forbidden (an address that is not public), Unavailable."""
        try:
            with anyio.fail_after(request.timeout_s):
                async with self.open(request) as stream:
                    return Answer(stream.status, stream.headers, await stream.read(max_bytes))
        except TimeoutError:
            raise TimedOut(f"{place(request.url)} did not answer within {request.timeout_s:g} s") from None

    @asynccontextmanager
    async def open(self, request: Outgoing) -> AsyncGenerator[Stream]:
        """The answer as a stream; the connection is closed on leaving. Errors as those of `send`."""
        where = place(request.url)
        try:
            with anyio.fail_after(request.timeout_s):
                response = await self._follow(request)
        except TimeoutError:
            raise TimedOut(f"{where} did not answer within {request.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable(where, error) from None
        try:
            yield Stream(response, where, self._idle_s)
        finally:
            response.close()

    async def _follow(self, request: Outgoing) -> aiohttp.ClientResponse:
        session = await self._session(request.public_only)
        for _ in range(_MAX_REDIRECTS):
            if request.public_only:
                _check_literal(request.url)
            response = await session.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
            )
            location = response.headers.get("location")
            if response.status not in (301, 302, 303, 307, 308) or not location:
                return response
            response.close()
            request = _redirected(request, response.status, location)
        raise Unavailable(f"{place(request.url)} redirects in a circle")

    # ---- sessions

    async def _session(self, public_only: bool) -> aiohttp.ClientSession:
        return await self.kept.get(
            ("http", public_only), lambda: _held(self._connect_s, public_only), lambda session: session.closed
        )

    async def aclose(self) -> None:
        """Close what is open on the running event loop. The rest is closed when other loops end."""
        await self.kept.aclose()


async def _held(connect_s: float, public_only: bool) -> AsyncGenerator[aiohttp.ClientSession]:
    """A session, open until this generator is closed. Through a proxy the address that is connected to cannot be known, so
    `public_only` uses none."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
    connector = aiohttp.TCPConnector(limit=0, resolver=_PublicOnly() if public_only else None)
    cookies = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, cookie_jar=cookies, trust_env=not public_only
    ) as session:
        yield session


def _check_literal(url: str) -> None:
    """An address written out is not resolved, so it is looked at here."""
    host = origin(url)[1]
    try:
        public = is_public(host)
    except ValueError:
        return
    if not public:
        raise _not_public(place(url))


def _not_public(where: str) -> Forbidden:
    return Forbidden(f"{where} is not on the internet, and addresses of this network may not be called (allow_private)")


def _unreachable(where: str, error: Exception) -> PolyportError:
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, _NotPublic):
        return _not_public(where)
    return Unavailable(f"{where} could not be reached ({type(error).__name__})")


def _redirected(request: Outgoing, status: int, location: str) -> Outgoing:
    """The request that a redirect asks for. Unavailable when it may not be followed."""
    url = urljoin(request.url, location)
    try:
        if not same_host(request.url, url):
            raise Unavailable(f"{place(request.url)} redirects to another host, {place(url)}: name that URL instead")
    except BadRequest as error:
        raise Unavailable(f"{place(request.url)} redirects to what cannot be called: {error}") from None
    if request.method == "GET" or status in (307, 308):
        return structs.replace(request, url=url)
    raise Unavailable(f"{place(request.url)} redirects a {request.method} to {place(url)}: name that URL instead")
