"""Guard: which Host and Origin a request may carry, and who the caller is.

Asked by the host before every handler. It stops pages of other sites from calling a local server through the user's
browser: DNS rebinding (Host) and forged requests (Origin); spec rest 4.4. The Host of a request is never taken from a
forwarded header. Never looks at a body.
"""

import copy
import ipaddress
import logging
import re
from collections.abc import Collection

from polyport.data.auth import ANONYMOUS, Caller, Credentials
from polyport.errors import AuthenticationFailed, BadRequest, Forbidden, LimitExceeded, Unauthenticated
from polyport.ports.auth import Auth
from polyport.protocols.http import Header, Request
from polyport.protocols.limits import CallerLimits

log = logging.getLogger("polyport.guard")

PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    (
        b"access-control-allow-headers",
        b"Content-Type, Authorization, X-API-Key, X-ADK-Telemetry-Request, X-Request-Id, Last-Event-ID, If-None-Match, "
        b"A2A-Version, A2A-Extensions, Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name",
    ),
    (b"access-control-max-age", b"600"),
)
_VARY: Header = (b"vary", b"Origin")
_EXPOSE: Header = (
    b"access-control-expose-headers",
    b"X-Request-Id, X-Run-Id, X-Next-Page-Token, ETag, Retry-After, WWW-Authenticate, A2A-Version, A2A-Extensions, "
    b"Mcp-Session-Id",
)
_DEFAULT_PORT = {"http": ":80", "https": ":443"}
_WEB_SCHEME = {"ws": "http", "wss": "https"}
_FORWARDED = re.compile(r'(?:^|[;\s])(host|proto)="?([^";,\s]+)"?', re.IGNORECASE)
_PREFIX = re.compile(r"(?:/(?!\.\.?(?:/|$))[\w.~!$&'()*+,;=:@%-]+){0,16}", re.ASCII)
"""A path as it may stand in front of ours; anything else in X-Forwarded-Prefix counts as nothing."""
_KEEP = 256
"""How many accepted Host values are remembered."""


class Guard:
    """`allowed_hosts` are names (`api.test`, `api.test:8443`, `*.api.test`), `allowed_origins` whole origins
    (`https://ui.test`); `*` in either turns that check off. `bind_host` is what the server listens on. With
    `trusted_proxy` the forwarded host and scheme decide what "same origin" means (FR-226). `auth` says who calls and what
    they may do; without it everybody is anonymous and may do everything."""

    auth: Auth | None = None

    def __init__(
        self,
        allowed_hosts: Collection[str] = (),
        allowed_origins: Collection[str] = (),
        *,
        bind_host: str = "127.0.0.1",
        trusted_proxy: bool = False,
    ) -> None:
        self._any_host = "*" in allowed_hosts
        self._any_origin = "*" in allowed_origins
        self._origins = frozenset(_normal_origin(origin) for origin in allowed_origins if origin != "*")
        of_origins = {origin.partition("://")[2] for origin in self._origins}
        names = {host.lower().rstrip(".") for host in allowed_hosts} | of_origins
        self._hosts = frozenset({*names, bind_host.lower(), f"[{bind_host.lower()}]"})
        self._wildcard_bind = bind_host in ("", "0.0.0.0", "::")
        self._trusted_proxy = trusted_proxy
        self._known: set[bytes] = set()
        self.callers = CallerLimits()

    @classmethod
    def open(cls) -> "Guard":
        """A guard that lets everything through: for tests, and for embedding behind a guard of one's own."""
        return cls(allowed_hosts=["*"], allowed_origins=["*"])

    @property
    def is_open(self) -> bool:
        """Whether it lets every Host and Origin through, as `Guard.open()` does."""
        return self._any_host and self._any_origin

    def behind(self, auth: Auth) -> "Guard":
        """The same guard with this identity in front."""
        guarded = copy.copy(self)
        guarded.auth = auth
        return guarded

    async def admit(self, request: Request) -> Caller:
        """Who is calling; asked once for each request to a route that is not public. Unauthenticated, Forbidden, LimitExceeded,
        AuthenticationFailed when the provider of identities is at fault (spec rest 3.3)."""
        caller = ANONYMOUS if self.auth is None else await self._authenticate(request, self.auth)
        if request.limits.caller_requests_per_s:
            self.callers.take(caller, request)
        return caller

    async def _authenticate(self, request: Request, auth: Auth) -> Caller:
        authenticator, request.authorizer = auth
        try:
            caller = await authenticator.authenticate(Credentials(request.scope["headers"], request.peer))
        except Unauthenticated as error:
            error.challenge = error.challenge or authenticator.challenge
            raise
        except (Forbidden, LimitExceeded, AuthenticationFailed):
            raise
        except Exception as error:
            log.error("request %s: the authenticator failed", request.id, exc_info=error)
            raise AuthenticationFailed("authentication failed") from error
        if caller is None:
            raise Unauthenticated("unauthorized", authenticator.challenge)
        return caller

    def check_host(self, request: Request) -> None:
        """Forbidden unless the Host is loopback, what the server listens on, or allowed. No Host at all passes: browsers
        always send one. BadRequest for several."""
        if self._any_host:
            return
        raw = request.headers.get(b"host")
        if raw is None or (raw in self._known and len(request.headers) == len(request.scope["headers"])):
            return
        if len(request.header_values("host")) > 1:
            raise BadRequest("the request has more than one Host header")
        host = raw.decode("latin-1").strip().lower()
        if not self._good_host(host):
            log.warning("refused Host %.200r of %s %s", host, request.method, request.path)
            raise Forbidden(f"host not allowed: {_shown(host)}. If it is yours, set --allowed-hosts {_shown(host)}")
        if len(self._known) < _KEEP:
            self._known.add(raw)

    def check_origin(self, request: Request, public: bool) -> tuple[Header, ...]:
        """The CORS headers for the answer. Forbidden for a foreign Origin, except on public routes, where a foreign page
        simply cannot read the answer."""
        raw = request.headers.get(b"origin")
        fixed = (_VARY,) if self._origins and not self._any_origin else ()
        if raw is None:
            return fixed
        if self._any_origin:
            return ((b"access-control-allow-origin", b"*"), _EXPOSE)
        values = request.header_values("origin")
        origin = _normal_origin(values[0]) if len(values) == 1 and len(raw) <= 2048 else ""
        if origin in self._origins:
            return ((b"access-control-allow-origin", raw), _EXPOSE, *fixed)
        if public or (origin and origin == self.public_origin(request)):
            return fixed
        shown = _shown(raw.decode("latin-1"))
        log.warning("refused Origin %s of %s %s", shown, request.method, request.path)
        raise Forbidden(
            f"origin not allowed: {shown} is not {self.public_origin(request)}. If the server is behind a proxy that sets "
            f"X-Forwarded-Host and X-Forwarded-Proto, set --trusted-proxy; to let this page call it, set "
            f"--allowed-origins {shown}"
        )

    def public_origin(self, request: Request) -> str:
        """`scheme://host[:port]` under which the client reached this server, without a default port."""
        scheme: str = request.scope.get("scheme", "http")
        scheme = _WEB_SCHEME.get(scheme, scheme)
        host = request.header("host")
        if self._trusted_proxy:
            forwarded = {k.lower(): v for k, v in _FORWARDED.findall(request.header("forwarded").partition(",")[0])}
            host = _first(request.header("x-forwarded-host")) or forwarded.get("host", "") or host
            scheme = _first(request.header("x-forwarded-proto")) or forwarded.get("proto", "") or scheme
        return _normal_origin(f"{scheme}://{host}")

    def public_base(self, request: Request) -> str:
        """The URL of the app's root as the client knows it, without a slash at its end: `public_origin`, the path that a
        trusted proxy took away (X-Forwarded-Prefix), and where the app is mounted."""
        prefix = _first(request.header("x-forwarded-prefix")).rstrip("/") if self._trusted_proxy else ""
        return self.public_origin(request) + (prefix if _PREFIX.fullmatch(prefix) else "") + request.prefix

    def _good_host(self, host: str) -> bool:
        if host in self._hosts:
            return True
        name, port = _split_port(host)
        if port is None or not name:
            return False
        if name in self._hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        if any(allowed.startswith("*.") and name.endswith(allowed[1:]) for allowed in self._hosts):
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        # An address cannot be rebound to another one, so a server that listens on all takes any.
        return address.is_loopback or self._wildcard_bind


def _split_port(host: str) -> tuple[str, str | None]:
    """(name without a last dot, port digits or ""); the port is None when the Host is malformed."""
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        name, port = host, ""
    malformed = bool(colon and not port.isdigit()) or (":" in name and not (name[0] == "[" and name[-1] == "]"))
    return name.rstrip("."), None if malformed else port


def _normal_origin(origin: str) -> str:
    """Lower case, without the scheme's default port and a last slash."""
    origin = origin.strip().lower().rstrip("/")
    return origin.removesuffix(_DEFAULT_PORT.get(origin.partition("://")[0], "\0"))


def _first(value: str) -> str:
    return value.partition(",")[0].strip()


def _shown(text: str) -> str:
    """Text of a stranger, fit for a message."""
    return ascii(text[:200])[1:-1]
