"""The JSON-RPC binding of A2A, 1.0 and 0.3 at the same URLs, told apart by the method's name (spec a2a 1.4, 2.2).

Mounted by `mount`. Decodes a call, asks the handler, encodes what comes out; streams are server-sent events whose data are
whole responses. The HTTP status is 200 also for errors of the call.
"""

from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from msgspec import structs

from polyport.errors import PolyportError
from polyport.protocols.a2a.calls import CallContext, TaskStream
from polyport.protocols.a2a.edge import (
    TRANSPORT_ERRORS,
    V03,
    V1,
    Base,
    Edge,
    Find,
    call_of,
    echo,
    internal,
    stream_frames,
    told,
)
from polyport.protocols.a2a.operations import STREAMING, UNARY
from polyport.protocols.a2a.speech import payload_of
from polyport.protocols.answers import JSON, error_headers, send_body, send_empty, status_of, unwrap
from polyport.protocols.http import ClientGone, Request, Send
from polyport.wire import a2a, a2a_v03, jsonrpc, sse
from polyport.wire.a2a_card import AgentCard
from polyport.wire.a2a_errors import MethodNotFound, jsonrpc_error


class _Asked(NamedTuple):
    """A call, read. `old` is the method's name in 0.3, "" in a call of 1.0."""

    id: bytes
    operation: str
    request: Any
    old: str


class JsonRpc:
    """`find` gives the app of a request, `base` the URL of this server."""

    def __init__(self, find: Find, base: Base) -> None:
        self._find = find
        self._base = base

    async def handle(self, request: Request, send: Send) -> None:
        """One POST."""
        edge = self._find(request)
        body = await request.body()
        try:
            call = jsonrpc.read_call(body, request.header("content-type") or None)
        except jsonrpc.Refused as refused:
            return await _answer(send, jsonrpc.failure(refused.id, refused.error))
        old = call.method in a2a_v03.METHODS and V03 in edge.handler.settings.versions
        try:
            context = call_of(edge, request, V03 if old else V1)
            await self._serve(edge, request, send, context, _asked(call, old))
        except ClientGone:
            raise
        except Exception as raised:  # noqa: BLE001  the caller is told, and the log
            error = told(raised, request)
            status = status_of(error) if isinstance(error, TRANSPORT_ERRORS) else 200
            await _answer(send, _failed(call.id, error, old), status, error_headers(error))

    async def refuse(self, send: Send, request: Request, error: BaseException) -> None:
        """What was wrong before a call was read: it has its HTTP status, and an error response without an id. The host has
        logged it."""
        error = unwrap(error)
        shown = error if isinstance(error, PolyportError) else internal(request.id)
        await _answer(send, jsonrpc.failure(jsonrpc.NO_ID, shown), status_of(shown), error_headers(shown))

    async def _serve(self, edge: Edge, request: Request, send: Send, call: CallContext, asked: _Asked) -> None:
        if not asked.id:
            await _unheard(edge, call, asked)
            return await send_empty(send, 204)
        unary = UNARY.get(asked.operation)
        if unary is not None:
            headers = echo(edge, call)
            found = await unary.run(edge.handler, call, asked.request)
            if isinstance(found, AgentCard):
                found = edge.card.completed(found, self._base(request))
            return await _answer(send, jsonrpc.success(asked.id, _result(found, asked.old)), headers=headers)
        headers = echo(edge, call)

        def failed(error: BaseException) -> bytes:
            return _failed(asked.id, error, bool(asked.old))

        async with STREAMING[asked.operation].open(edge.handler, call, asked.request) as stream:
            frames = _frames_v03(stream, asked) if asked.old else _frames(stream, asked.id)
            await stream_frames(edge, request, send, frames, headers, failed, stream.nudge)


def _asked(call: jsonrpc.Call, old: bool) -> _Asked:
    if old:
        operation, request = a2a_v03.read_params(call.method, call.params)
        return _Asked(call.id, operation, request, call.method)
    kind = UNARY.get(call.method) or STREAMING.get(call.method)
    if kind is None:
        raise MethodNotFound(f"there is no method {call.method[:100]!r} in A2A 1.0")
    return _Asked(call.id, call.method, a2a.read(call.params, kind.takes), "")


async def _unheard(edge: Edge, call: CallContext, asked: _Asked) -> None:
    """Carry out a notification: nobody waits for an answer (T071)."""
    request = asked.request
    if isinstance(request, a2a.SendMessageRequest):
        now = structs.replace(request.configuration, return_immediately=True)
        await edge.handler.send(call, structs.replace(request, configuration=now))
    elif asked.operation in UNARY:
        await UNARY[asked.operation].run(edge.handler, call, request)


def _result(value: Any, old: str) -> Any:
    if old:
        return a2a_v03.result(old, value)
    return {} if value is None else value


def _failed(id: bytes, error: BaseException, old: bool) -> bytes:
    return jsonrpc.failure_object(id, a2a_v03.error_object(error) if old else jsonrpc_error(error))


async def _answer(send: Send, body: bytes, status: int = 200, headers: Any = ()) -> None:
    if body:
        await send_body(send, status, body, (JSON, *headers))
    else:
        await send_empty(send, 204 if status == 200 else status, headers)


async def _frames(stream: TaskStream, id: bytes) -> AsyncGenerator[bytes]:
    head = b'data: {"jsonrpc":"2.0","id":' + id + b',"result":'
    async for updates in stream:
        yield b"".join([head + update.json + b"}\n\n" for update in updates])


async def _frames_v03(stream: TaskStream, asked: _Asked) -> AsyncGenerator[bytes]:
    async for updates in stream:
        events = [a2a_v03.event(payload_of(u), final=stream.last and u is updates[-1]) for u in updates]
        yield b"".join(sse.frame(jsonrpc.success(asked.id, event)) for event in events)
