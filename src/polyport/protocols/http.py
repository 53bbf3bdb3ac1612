"""Request: one HTTP request (or WebSocket handshake), read only as far as a handler asks.

Made by the host for every call and given to every handler. Path segments are decoded after the raw path was split, so an
id may hold an encoded slash (spec rest 4.2). Never answers anything; see `answers`.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from polyport import codec
from polyport.data.auth import ANONYMOUS
from polyport.data.limits import Limits
from polyport.data.session import APP
from polyport.errors import BadRequest, Forbidden, NotFound, RunCancelled, TooLarge
from polyport.ports.auth import Authorizer
from polyport.ports.trace import INCOMING, TRACE_HEADERS
from polyport.seams import Seams

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

FORM_TYPES = frozenset({b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain"})
"""What a web page of another site may post without asking first (a CORS "simple request")."""

_JSON = b"application/json"
_SANE_ID = re.compile(rb"[!-~]{1,128}")


class ClientGone(RunCancelled):
    """The client closed the connection; nobody will read an answer."""


class Request:
    """`params` are the decoded path parameters, `method` is upper case ("WEBSOCKET" for a handshake), `prefix` the part of
    the path that is not the protocol's (mount point and `/api`). `caller` is who asks, `authorizer` what says no, None where
    everybody may do everything. `route` is the pattern of the route that serves it, "" for none. A handler may set `run_id`
    for the access log. `unread` is true once a body was refused before its end."""

    __slots__ = (
        "_body",
        "_headers",
        "_id",
        "_query",
        "authorizer",
        "caller",
        "limits",
        "method",
        "params",
        "prefix",
        "receive",
        "route",
        "run_id",
        "scope",
        "seams",
        "unread",
    )

    def __init__(self, scope: Scope, receive: Receive, limits: Limits, seams: Seams) -> None:
        self.scope = scope
        self.receive = receive
        self.limits = limits
        self.seams = seams
        self.method: str = scope["method"] if scope["type"] == "http" else "WEBSOCKET"
        self.params: dict[str, str] = {}
        self.prefix = ""
        self.route = ""
        self.caller = ANONYMOUS
        self.authorizer: Authorizer | None = None
        self.run_id = ""
        self.unread = False
        self._id = ""
        self._body: bytes | None = None
        self._headers: dict[bytes, bytes] | None = None
        self._query: dict[str, list[str]] | None = None

    async def act_as(self, user: str, app: str) -> None:
        """Forbidden unless the caller may use this app, and act as this user of it. The host asks for routes with {user} in the
        path; a handler that learns of the user from a body asks itself, before any storage."""
        if self.authorizer is not None:
            await self.authorizer.use(self.caller, app)
            await self.authorizer.act_as(self.caller, user, app)

    async def use(self, app: str) -> None:
        """Forbidden unless the caller may know of this app and call it. The host asks for routes with {app} in the path, and
        for routes of one app."""
        if self.authorizer is not None:
            await self.authorizer.use(self.caller, app)

    async def administer(self, app: str) -> None:
        """Forbidden unless the caller may use what belongs to no single user of this app ("" for the whole server). The host
        asks for routes of admins."""
        if self.authorizer is not None:
            if app:
                await self.authorizer.use(self.caller, app)
            await self.authorizer.administer(self.caller, app)

    async def change_state(self, app: str, state: Iterable[str]) -> None:
        """Forbidden for keys of state that all users of an app share (`app:`), unless the caller may administer the app (spec
        rest 11.10). A handler that takes state from a caller asks before any storage."""
        if self.authorizer is None:
            return
        shared = next((key for key in state if key.startswith(APP)), "")
        if shared:
            try:
                await self.administer(app)
            except Forbidden as error:
                raise Forbidden(f"{error}: all users of the app share the state {shared[:100]!r}") from None

    async def usable(self, apps: Iterable[str]) -> list[str]:
        """Those of the apps that the caller may know of, in the same order (spec rest 11.35)."""
        found: list[str] = []
        for app in apps:
            try:
                await self.use(app)
            except Forbidden:
                continue
            found.append(app)
        return found

    async def no_app(self, name: str, apps: Iterable[str], before: str = "") -> NotFound:
        """The error for an app that is not among those that are served: it names those that the caller may know of."""
        known = await self.usable(sorted(apps))
        there = f"the apps are: {', '.join(known)}" if known else "see /list-apps"
        return NotFound(f"{before}there is no app {name[:100]!r}; {there}")

    def join_trace(self) -> bool:
        """Let the runs that begin in this task know the trace that the request names; whether it names one."""
        if b"traceparent" not in self.headers:
            return False
        INCOMING.set({name: value for name in TRACE_HEADERS if (value := self.header(name))})
        return True

    @property
    def peer(self) -> str:
        """The address of whoever opened the connection, "" where it has none."""
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def loopback(self) -> bool:
        """Whether a program on this machine asks, and not a proxy here for somebody else."""
        if not {b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"}.isdisjoint(self.headers):
            return False
        try:
            return ipaddress.ip_address(self.peer).is_loopback
        except ValueError:
            return False

    @property
    def path(self) -> str:
        """The whole path as it was sent, still percent-encoded; fit for a log line."""
        raw = self.scope.get("raw_path")
        return raw.decode("ascii", "backslashreplace") if raw else ascii(self.scope["path"])[1:-1]

    @property
    def id(self) -> str:
        """The request id: the client's `X-Request-Id` when it is printable ASCII of at most 128, else a new one."""
        if not self._id:
            given = self.headers.get(b"x-request-id")
            sane = given is not None and _SANE_ID.fullmatch(given)
            self._id = given.decode("ascii") if given is not None and sane else self.seams.new_id()
        return self._id

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Lower-case name -> value; of a repeated header the last one. See `header_values`."""
        if self._headers is None:
            self._headers = dict(self.scope["headers"])
        return self._headers

    def header(self, name: str) -> str:
        """A header's value, or ""."""
        return self.headers.get(name.lower().encode("latin-1"), b"").decode("latin-1")

    def header_values(self, name: str) -> list[str]:
        """All values of a header, one for each time it was sent."""
        key = name.lower().encode("latin-1")
        return [value.decode("latin-1") for found, value in self.scope["headers"] if found == key]

    @property
    def wants_events(self) -> bool:
        """Whether the client asked for an event stream."""
        return b"text/event-stream" in self.headers.get(b"accept", b"")

    @property
    def query(self) -> dict[str, list[str]]:
        """The query string: name -> all values. BadRequest when it has too many fields."""
        if self._query is None:
            self._query = {}
            raw: bytes = self.scope["query_string"]
            if raw:
                limit = self.limits.query_fields
                try:
                    pairs = parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=limit)
                except ValueError:
                    raise BadRequest(f"the query string has more than {limit} fields") from None
                for name, value in pairs:
                    self._query.setdefault(name, []).append(value)
        return self._query

    def query_text(self, *names: str) -> str:
        """The first value of the first of `names` that is not empty, or "" (`appName` before `app_name`)."""
        for name in names:
            values = self.query.get(name)
            if values and values[0]:
                return values[0]
        return ""

    def query_int(self, name: str, lo: int, hi: int, default: int | None = None) -> int | None:
        """A whole number from `lo` to `hi`; `default` when absent or blank. BadRequest names the parameter."""
        text = self.query_text(name)
        if not text:
            return default
        digits = text[1:] if text[0] in "+-" else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise BadRequest(f"{name} parameter must be an integer", name)
        value = int(text)
        if not lo <= value <= hi:
            raise BadRequest(f"{name} parameter must be between {lo} and {hi}", name)
        return value

    def query_bool(self, name: str, default: bool = False) -> bool:
        """`true` or `1`, `false` or `0`, in any case; `default` when absent or blank. BadRequest names the parameter."""
        text = self.query_text(name).lower()
        if not text:
            return default
        if text not in ("true", "false", "1", "0"):
            raise BadRequest(f"{name} parameter must be true or false", name)
        return text in ("true", "1")

    async def body(self, limit: int | None = None) -> bytes:
        """The whole body, kept for a second call. TooLarge above `limit` bytes (by default `limits.body_bytes`): from
        Content-Length before anything is read, else as soon as the bytes read are too many. ClientGone."""
        if self._body is not None:
            return self._body
        limit = self.limits.body_bytes if limit is None else limit
        declared = self.headers.get(b"content-length")
        if declared is not None and (not declared.isdigit() or len(declared) > 18):
            raise BadRequest("Content-Length is not a number")
        if declared is not None and int(declared) > limit:
            self.unread = True
            raise _too_large(limit)
        message = await self.receive()
        body = _part(message)
        if message.get("more_body"):
            body = await self._collect(body, limit)
        elif len(body) > limit:
            raise _too_large(limit)
        self._body = body
        return body

    async def _collect(self, first: bytes, limit: int) -> bytes:
        buffer = bytearray(first)
        more = True
        while more:
            if len(buffer) > limit:
                self.unread = True
                raise _too_large(limit)
            message = await self.receive()
            buffer += _part(message)
            more = message.get("more_body", False)
        if len(buffer) > limit:
            raise _too_large(limit)
        return bytes(buffer)

    def refuse_forms(self) -> None:
        """BadRequest for the content types that any web page may send here; a missing one is accepted (spec rest 4.5)."""
        kind = self.headers.get(b"content-type")
        if kind is not None and kind != _JSON and kind.partition(b";")[0].strip().lower() in FORM_TYPES:
            raise BadRequest("this content type is not accepted: send the body with Content-Type: application/json")

    async def json(self, kind: type[T], *, unknown: str = "refuse", empty: T | None = None) -> T:
        """The body as a `kind`. `unknown` fields: "refuse" or "drop". `empty` stands for an empty body or a
        null, which are a BadRequest without it."""
        self.refuse_forms()
        body = await self.body()
        if empty is not None and body.strip() in (b"", b"null"):
            return empty
        codec.check_depth(body, self.limits.json_depth)
        return codec.decode(body, kind, unknown=unknown)

    async def disconnected(self) -> None:
        """Return when the client has gone. Call it after the body was read; what is left of the body is dropped."""
        while (await self.receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
            pass


def _part(message: Message) -> bytes:
    """What a message brings of the body. ClientGone for one that says that nothing more comes."""
    if message["type"] != "http.request":
        raise ClientGone("the client closed the connection while sending the body")
    return message.get("body", b"")


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes; the limit is the setting `body_bytes`")
