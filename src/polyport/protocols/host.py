"""Host: the one ASGI app. Finds the route of a request, asks the guard, calls the handler, turns errors into answers.

Made by the App from the routes of all protocols. Plain ASGI 3, for a framework would cost more than a whole run. It knows
no protocol, no agent and no store.
"""

import copy
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import anyio

from polyport import codec
from polyport.data.limits import Limits
from polyport.errors import BadRequest, NotFound, PolyportError, Unavailable, unwrap
from polyport.ports.trace import INCOMING, NO_TRACE
from polyport.protocols.answers import (
    JSON,
    close_reason,
    error_body,
    error_headers,
    refuse_websocket,
    send_empty,
    send_error,
    send_json,
    status_of,
)
from polyport.protocols.guard import PREFLIGHT, Guard
from polyport.protocols.http import ClientGone, Header, Message, Receive, Request, Scope, Send
from polyport.protocols.routes import Leaf, Route, Table
from polyport.seams import REAL, Seams

log = logging.getLogger("polyport.host")
access = logging.getLogger("polyport.access")

NOSNIFF: Header = (b"x-content-type-options", b"nosniff")
Lifespan = Callable[[], AbstractAsyncContextManager[Any]]
Watch = Callable[[Request], Callable[[int], None]]
"""Called when a request comes; what it gives is called with the status once the answer has ended. `request.route` is then the
pattern of its path."""


CLOSE: Header = (b"connection", b"close")
LINGER_S = 10.0
"""How long a client may go on sending a body that was refused, so that it gets to read the answer."""
GONE = 499
"""What the access log says of a request whose client left; never sent."""


class Outgoing:
    """The `send` that handlers get: adds the host's headers, notes the status, drops the body for HEAD."""

    __slots__ = ("_request", "_send", "done", "headers", "status")

    def __init__(self, send: Send, request: Request) -> None:
        self._send = send
        self._request = request
        self.headers: tuple[Header, ...] = ()
        self.status = 0
        self.done = False

    def __call__(self, message: Message) -> Awaitable[None]:
        kind, request = message["type"], self._request
        if kind == "http.response.body":
            if request.method == "HEAD":
                message = {**message, "body": b""}
            if not message.get("more_body"):
                self.done = True
                if request.unread:
                    return self._linger(message)
        elif kind == "http.response.start" or kind == "websocket.http.response.start":
            self.status = message["status"]
            name = (b"x-request-id", request.id.encode("ascii", "replace"))
            headers = [*message.get("headers", ()), name, NOSNIFF, *self.headers]
            if request.unread:
                headers.append(CLOSE)
            message = {**message, "headers": headers}
        else:
            return self._websocket(message)
        return self._send(message)

    async def _linger(self, message: Message) -> None:
        """End an answer whose request is still being sent. A connection that is closed under a sender is reset, and the
        answer lost; so what comes is dropped for a while, and only then the answer ended."""
        await self._send({**message, "more_body": True})
        with anyio.move_on_after(LINGER_S):
            more = True
            while more:
                got = await self._request.receive()
                more = got["type"] == "http.request" and got.get("more_body", False)
        await self._send({"type": "http.response.body", "body": b""})

    async def _websocket(self, message: Message) -> None:
        if message["type"] == "websocket.accept":
            self.status = 101
        elif message["type"] == "websocket.close":
            self.status = self.status or 403
            self.done = True
        try:
            await self._send(message)
        except OSError:  # what ASGI servers raise when the peer is gone
            raise ClientGone("the client closed the connection") from None


class Host:
    """Serves `routes` under every prefix. Immutable once made.

    `lifespan` is entered at start-up and left at shutdown, in one task, so it may hold a task group. When the server never
    runs the lifespan (an app mounted in another app), `ensure_started` is awaited before the first request; without it such
    requests are 503 and say why (FR-169).
    """

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        prefixes: Sequence[str] = ("", "/api"),
        guard: Guard | None = None,
        limits: Limits | None = None,
        seams: Seams = REAL,
        lifespan: Lifespan | None = None,
        ensure_started: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.routes = tuple(routes)
        self.guard = guard if guard is not None else Guard()
        self.limits = limits if limits is not None else Limits()
        self.seams = seams
        self._table = Table(self.routes, prefixes)
        self._watches: tuple[Watch, ...] = ()
        self._lifespan = lifespan
        self._ensure_started = ensure_started
        self._started = lifespan is None and ensure_started is None
        self._starting = anyio.Lock()

    def watched_by(self, watches: Iterable[Watch]) -> "Host":
        """The same host with these asked about every request, each once. To be used in place of this one, before it serves."""
        host = copy.copy(self)
        host._watches = tuple(dict.fromkeys((*self._watches, *watches)))
        return host

    def under(self, prefixes: Sequence[str]) -> "Host":
        """The same host with its routes below these prefixes only. To be used in place of this one, before it serves."""
        host = copy.copy(self)
        host._table = Table(self.routes, prefixes)
        return host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            return await self._live(receive, send)
        if kind != "http" and kind != "websocket":
            raise RuntimeError(f"an ASGI scope of type {kind!r} is not known here")
        request = Request(scope, receive, self.limits, self.seams)
        out = Outgoing(send, request)
        logged = access.isEnabledFor(logging.INFO)
        began = self.seams.clock() if logged else 0.0
        ends = [watch(request) for watch in self._watches] if self._watches else ()
        traced = request.join_trace()
        try:
            await self._answer(request, out)
        except ClientGone:
            out.status = out.status or GONE
        finally:
            if logged:
                self._log(request, out, began)
            for end in ends:
                end(out.status)
            if traced:
                INCOMING.set(NO_TRACE)  # a server may serve the next request in the same task

    async def _answer(self, request: Request, out: Outgoing) -> None:
        route: Route | None = None
        try:
            self.guard.check_host(request)
            values: list[str] = []
            leaf = self._table.find(request.scope, values)
            target = leaf.methods.get(request.method) if leaf is not None else None
            if target is not None:
                route = target.route
                request.prefix = request.scope.get("root_path", "") + target.prefix
                request.route = route.pattern
                if values:
                    request.params = dict(zip(target.names, values))  # noqa: B905  the table gives one for each; twice as fast
            out.headers = self.guard.check_origin(request, leaf is None or (route is not None and route.public))
            if route is None:
                return await _no_handler(request, out, leaf)
            if not self._started:
                await self._start()
            if not route.public:
                request.caller = await self.guard.admit(request)
                if request.authorizer is not None:
                    await _authorize(request, route)
                if self.limits.caller_requests:
                    with self.guard.callers.open(request):
                        return await route.handler(request, out)
            await route.handler(request, out)
        except ClientGone:
            raise
        except Exception as raised:  # noqa: BLE001 noted and answered just below
            error = unwrap(raised)
            if isinstance(error, ClientGone):
                raise error from None
            _note(request, error)
            await _answer_error(request, out, error, route)

    async def _start(self) -> None:
        async with self._starting:
            if self._started:
                return
            if self._ensure_started is None:
                raise Unavailable(
                    "the app was not started: the server that it is mounted in must run its ASGI lifespan "
                    "(forward the lifespan to the mounted app)"
                )
            await self._ensure_started()
            self._started = True

    async def _live(self, receive: Receive, send: Send) -> None:
        """The lifespan protocol. A failure is told to the server and raised, so that nothing hides it."""
        await receive()
        stage = "startup"
        try:
            async with self._lifespan() if self._lifespan is not None else nullcontext():
                self._started = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
                stage = "shutdown"
                self._started = self._lifespan is None and self._ensure_started is None
        except Exception as error:
            await send({"type": f"lifespan.{stage}.failed", "message": error_text(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    def _log(self, request: Request, out: Outgoing, began: float) -> None:
        access.info(
            "%s %s %d %.1fms request=%s%s",
            request.method,
            request.path,
            out.status,
            (self.seams.clock() - began) * 1000,
            request.id,
            f" run={request.run_id}" if request.run_id else "",
        )


async def _authorize(request: Request, route: Route) -> None:
    """Forbidden, by what the path says. It is asked for every route, so that none can be forgotten."""
    user, app = request.params.get("user"), request.params.get("app", route.app)
    if route.admin:
        await request.administer(app)
    elif user is not None:
        await request.act_as(user, app)
    elif app:
        await request.use(app)


async def _no_handler(request: Request, out: Outgoing, leaf: Leaf | None) -> None:
    """404, 405, or the answer to OPTIONS (spec rest 4.3)."""
    method = request.method
    if leaf is None or method == "WEBSOCKET":
        raise NotFound(f"nothing is served at {method} {request.path}")
    allow = (b"allow", leaf.allow)
    if method == "OPTIONS":
        preflight = b"access-control-request-method" in request.headers
        await send_empty(out, 204, (allow, *PREFLIGHT) if preflight else (allow,))
        return
    if method == "GET" and "WEBSOCKET" in leaf.methods:
        raise BadRequest("this path speaks WebSocket: send the upgrade headers")
    text = f"method {method} is not allowed here; allowed: {leaf.allow.decode()}"
    await send_json(out, {"error": text, "detail": text}, 405, [allow])


def _note(request: Request, error: BaseException) -> None:
    """Log what the answer will not say: the traceback of an error that is not ours, the text of a failure that is."""
    if not isinstance(error, PolyportError):
        log.error("request %s: %s %s failed", request.id, request.method, request.path, exc_info=error)
    elif error.status.http >= 500:
        log.warning("request %s: %s %s: %s", request.id, request.method, request.path, error)


async def _answer_error(request: Request, out: Outgoing, error: BaseException, route: Route | None) -> None:
    if request.method == "WEBSOCKET":
        await _close_websocket(request, out, error)
    elif not out.status:
        await (route.on_error if route is not None and route.on_error is not None else send_error)(out, request, error)
    elif not out.done:
        # Too late for a status. The server drops the connection of an unfinished answer, so the client can tell.
        log.warning("request %s: the answer of %s broke off: %s", request.id, request.path, type(error).__name__)


async def _close_websocket(request: Request, out: Outgoing, error: BaseException) -> None:
    body = error_body(error, request.id)
    if out.done:
        return
    if out.status == 101:
        await out({"type": "websocket.close", "code": 1011, "reason": close_reason(body["error"])})
        return
    headers = [JSON, *error_headers(error)]
    await refuse_websocket(request.scope, out, status_of(error), codec.encode(body) + b"\n", headers)


def error_text(error: BaseException) -> str:
    """What an operator is told about a failed start."""
    error = unwrap(error)
    return str(error) if isinstance(error, PolyportError) else f"{type(error).__name__}: {error}"
