"""The gRPC binding of A2A, 1.0 and 0.3 on one server beside HTTP, told apart by their packages (spec a2a 1.4, 2.1).

Made by the mount when a port is asked for; the package grpcio is an optional dependency. A message is protobuf on the wire
and ProtoJSON on this side. Service parameters and credentials come as metadata, and are shown to the guard as headers.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import anyio
import anyio.to_thread
import grpc
import grpc.aio
from msgspec import structs

from polyport.codec import encode
from polyport.data.limits import Limits
from polyport.errors import ConfigError
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.edge import V03, V1, Edge, call_of, echo, told, too_long
from polyport.protocols.a2a.fold import Update
from polyport.protocols.a2a.grpc_methods import METHODS, Method
from polyport.protocols.a2a.grpc_tls import read_pair
from polyport.protocols.a2a.operations import STREAMING, UNARY
from polyport.protocols.a2a.speech import payload_of
from polyport.protocols.guard import Guard
from polyport.protocols.http import Message, Request
from polyport.seams import Seams
from polyport.wire import a2a_proto, a2a_v03
from polyport.wire.a2a_card import AgentCard
from polyport.wire.a2a_errors import details, row, text

log = logging.getLogger("polyport.a2a")

DETAILS = "grpc-status-details-bin"
MAX_DETAILS = 6000
"""Trailers have 8 KiB; details that are larger say only which error it is."""
KEEPALIVE = (("grpc.keepalive_time_ms", 20_000), ("grpc.http2.ping_timeout_ms", 20_000))
"""A caller that vanished without a word is noticed by this, else after two hours."""
STOP_S = 2.0
"""How long open streams may last when the server stops. Runs have ended by then."""


class Behind(NamedTuple):
    """What stands behind the server; `edges` has the apps by name, the first one is for calls that name none."""

    edges: Mapping[str, Edge]
    guard: Callable[[], Guard]
    limits: Limits
    seams: Seams

    @property
    def first(self) -> Edge:
        return next(iter(self.edges.values()))

    def routed(self, asked: Any) -> tuple[Edge, Any]:
        """The app that a request is for, and the request as that app gets it. All apps have one address, so where there are
        several the tenant begins with the app, as its card says: `app` or `app/tenant` (spec a2a 1.2, `tenant`)."""
        app, _, tenant = asked.tenant.partition("/")
        if len(self.edges) > 1 and app in self.edges:
            return self.edges[app], structs.replace(asked, tenant=tenant)
        return self.first, asked


class GrpcServer:
    """Serves apps at `listen`, `host:port`; port 0 takes a free one, `port` says which. `tls` are the files of a certificate
    (with its chain) and its private key, in PEM."""

    def __init__(self, listen: str, behind: Behind, tls: tuple[str | Path, str | Path] | None = None) -> None:
        self._listen = listen
        self._behind = behind
        self._tls = tls
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Take calls inside the block. ConfigError when the address cannot be had, or the certificate not be read."""
        limits = self._behind.limits
        server: Any = grpc.aio.server(
            options=[("grpc.max_receive_message_length", limits.body_bytes), *KEEPALIVE],
            maximum_concurrent_rpcs=limits.max_runs,
        )
        server.add_generic_rpc_handlers((_Handlers(self._behind),))
        credentials = await anyio.to_thread.run_sync(_credentials, *self._tls) if self._tls is not None else None
        try:
            if credentials is None:
                self.port = server.add_insecure_port(self._listen)
            else:
                self.port = server.add_secure_port(self._listen, credentials)
        except RuntimeError as error:
            raise ConfigError(f"gRPC cannot listen on {self._listen}: {error}") from None
        await server.start()
        try:
            yield
        finally:
            await server.stop(STOP_S)


def _credentials(certificate: str | Path, key: str | Path) -> Any:
    public, private = read_pair(certificate, key)
    return grpc.ssl_server_credentials([(private, public)])


class _Handlers(grpc.GenericRpcHandler):
    """Finds what carries out a call by its path."""

    def __init__(self, behind: Behind) -> None:
        self._behind = behind

    def service(self, handler_call_details: Any) -> Any:
        path: str = handler_call_details.method
        method = METHODS.get(path)
        if method is None:
            return None  # UNIMPLEMENTED
        call = _Call(self._behind, path, method)
        library: Any = grpc  # its stubs leave the types of messages open
        if method.operation in STREAMING:
            return library.unary_stream_rpc_method_handler(call.stream)
        return library.unary_unary_rpc_method_handler(call.unary)


class _Call:
    """One method. The context of a call is grpcio's."""

    def __init__(self, behind: Behind, path: str, method: Method) -> None:
        self._behind = behind
        self._path = path
        self._method = method
        self._spoken = V1 if method.package == a2a_proto.V10 else V03

    async def unary(self, wire: bytes, context: Any) -> bytes:
        request = self._request(context)
        return await self._guarded(wire, request, context, self._answer)

    async def stream(self, wire: bytes, context: Any) -> None:
        request = self._request(context)
        await self._guarded(wire, request, context, self._frames)

    async def _guarded(
        self, wire: bytes, request: Request, context: Any, work: Callable[[Edge, Request, Any, Any], Awaitable[Any]]
    ) -> Any:
        """What `work` gives for the app and the request, if the caller may call it; errors become the status of the call."""
        guard = self._behind.guard()
        request.join_trace()
        try:
            request.caller = await guard.admit(request)
            asked = self._method.read(a2a_proto.to_json(f"{self._method.package}.{self._method.takes}", wire))
            edge, asked = self._behind.routed(asked)
            await request.use(edge.handler.app)
            with guard.callers.open(request):
                return await work(edge, request, context, asked)
        except Exception as raised:  # noqa: BLE001  the caller is told, and the log
            error = told(raised, request)
        status = row(error, self._behind.first.codes)
        code = grpc.StatusCode[status.grpc]
        number: int = code.value[0]
        body = a2a_proto.status(number, text(error), details(error))
        if len(body) > MAX_DETAILS:
            body = a2a_proto.status(number, text(error)[:1000], details(error)[:1])
        await context.abort(code, text(error)[:1000], trailing_metadata=((DETAILS, body),))

    async def _enter(self, edge: Edge, request: Request, context: Any) -> CallContext:
        """Who calls, and how. The extensions that are active are echoed at once."""
        call = call_of(edge, request, self._spoken)
        headers = echo(edge, call)
        if headers:
            await context.send_initial_metadata(tuple((n.decode(), v.decode("latin-1")) for n, v in headers))
        return call

    async def _answer(self, edge: Edge, request: Request, context: Any, asked: Any) -> bytes:
        call = await self._enter(edge, request, context)
        found = await UNARY[self._method.operation].run(edge.handler, call, asked)
        if isinstance(found, AgentCard):
            found = edge.card.completed(found)
        old = self._spoken == V03
        return self._written(encode(a2a_v03.rest_result(found) if old else {} if found is None else found))

    async def _frames(self, edge: Edge, request: Request, context: Any, asked: Any) -> None:
        call = await self._enter(edge, request, context)
        opened = STREAMING[self._method.operation].open(edge.handler, call, asked)
        deadline = inf if edge.stream_s is None else anyio.current_time() + edge.stream_s
        async with opened as stream:
            while True:
                updates = None
                with anyio.CancelScope(deadline=deadline) as limit:  # grpcio cannot abort after a cancelled `write`
                    updates = await anext(stream, None)
                if limit.cancelled_caught:
                    raise too_long(edge)
                if updates is None:
                    return
                for update in updates:
                    last = stream.last and update is updates[-1]
                    await context.write(self._written(self._frame(update, last)))

    def _frame(self, update: Update, last: bool) -> bytes:
        return update.json if self._spoken == V1 else encode(a2a_v03.rest_event(payload_of(update), final=last))

    def _written(self, json: bytes) -> bytes:
        name = self._method.gives
        return a2a_proto.from_json(name if "." in name else f"{self._method.package}.{name}", json)

    def _request(self, context: Any) -> Request:
        """The call as the guard and the bindings know requests."""
        headers = [
            (str(name).lower().encode("latin-1"), value if isinstance(value, bytes) else str(value).encode("latin-1"))
            for name, value in context.invocation_metadata()
        ]
        scope = {
            "type": "http",
            "method": "POST",
            "scheme": "http",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": b"",
            "headers": headers,
            "client": _address(str(context.peer())),
        }
        return Request(scope, _no_body, self._behind.limits, self._behind.seams)


async def _no_body() -> Message:
    return {"type": "http.disconnect"}


def _address(peer: str) -> tuple[str, int] | None:
    """The address of `ipv4:127.0.0.1:5000` or `ipv6:[::1]:5000` (its brackets may be escaped); None for a socket file."""
    kind, _, where = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    host, _, port = where.rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0
