"""The HTTP+JSON binding of A2A, 1.0 and (below `/v1`) 0.3: paths and queries become requests (spec a2a 1.4).

Mounted by `mount`, once for each version; `speech` has the spelling. Streams are server-sent events with one StreamResponse
each.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from msgspec import structs

from polyport import codec
from polyport.errors import PolyportError
from polyport.protocols.a2a.calls import CallContext, TaskStream
from polyport.protocols.a2a.edge import Base, Edge, Find, call_of, echo, internal, stream_frames
from polyport.protocols.a2a.speech import A2A_JSON, JSON, Speech
from polyport.protocols.answers import error_headers, send_body, unwrap
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Handler, Route
from polyport.wire import a2a, jsonrpc
from polyport.wire.a2a_errors import CODES, ContentTypeNotSupported, InvalidParams, Violation

T = TypeVar("T")
CONFIGS = "/tasks/{task}/pushNotificationConfigs"


class HttpJson:
    """`find` gives the app of a request, `base` the URL of this server."""

    def __init__(self, find: Find, base: Base, speech: Speech) -> None:
        self._find = find
        self._base = base
        self._speech = speech

    def routes(self, below: str, *, tenants: bool = False) -> list[Route]:
        """The routes below a path, "" for the root; with `tenants` also below `/{tenant}` there."""
        table: list[tuple[str, str, Handler]] = [
            ("POST", "/message:send", self.send),
            ("POST", "/message:stream", self.stream),
            ("GET", "/tasks", self.list),
            ("GET", "/tasks/{task}", self.get),
            ("POST", "/tasks/{task}:cancel", self.cancel),
            ("GET", "/tasks/{task}:subscribe", self.subscribe),
            ("POST", "/tasks/{task}:subscribe", self.subscribe),
            ("POST", CONFIGS, self.create_config),
            ("GET", CONFIGS, self.list_configs),
            ("GET", CONFIGS + "/{config}", self.get_config),
            ("DELETE", CONFIGS + "/{config}", self.delete_config),
            ("GET", self._speech.card_path, self.extended_card),
        ]
        below += self._speech.prefix
        return [
            Route(method, prefix + path, handler, head=handler != self.subscribe, on_error=self.refuse)
            for prefix in ((below, below + "/{tenant}") if tenants else (below,))
            for method, path, handler in table
            if handler != self.list or not self._speech.prefix  # 0.3 has no ListTasks
        ]

    async def refuse(self, send: Send, request: Request, error: BaseException) -> None:
        """The error as an answer, with its status. The host has logged it."""
        error = unwrap(error)
        shown = error if isinstance(error, PolyportError) else internal(request.id)
        try:
            codes = self._find(request).codes
        except PolyportError:
            codes = CODES[0]
        status, body = self._speech.error(shown, codes)
        await send_body(send, status, body, (self._speech.media(request), *error_headers(shown)))

    # ---- what all operations share

    def _enter(self, request: Request) -> tuple[Edge, CallContext]:
        edge = self._find(request)
        return edge, call_of(edge, request, self._speech.version, request.params.get("tenant", ""))

    async def _answer(self, request: Request, send: Send, value: Any, headers: Any = ()) -> None:
        await send_body(send, 200, self._speech.write(value), (self._speech.media(request), *headers))

    # ---- messages

    async def send(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        asked = self._speech.read_send(await read_body(request))
        headers = echo(edge, call)
        await self._answer(request, send, await edge.handler.send(call, asked), headers)

    async def stream(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        asked = self._speech.read_send(await read_body(request))
        await self._stream(edge, request, send, call, edge.handler.send_stream(call, asked))

    async def subscribe(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        await read_body(request)
        asked = a2a.SubscribeToTaskRequest(id=request.params["task"])
        await self._stream(edge, request, send, call, edge.handler.subscribe(call, asked))

    async def _stream(
        self,
        edge: Edge,
        request: Request,
        send: Send,
        call: CallContext,
        opened: AbstractAsyncContextManager[TaskStream],
    ) -> None:
        headers = echo(edge, call)

        def failed(error: BaseException) -> bytes:
            return self._speech.error(error, edge.codes)[1]

        async with opened as stream:
            await stream_frames(edge, request, send, self._frames(stream), headers, failed, stream.nudge)

    async def _frames(self, stream: TaskStream) -> AsyncGenerator[bytes]:
        async for updates in stream:
            yield self._speech.frames(updates, last=stream.last)

    # ---- tasks

    async def get(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        length = self._speech.history_length(query_int(request, "historyLength"))
        asked = a2a.GetTaskRequest(id=request.params["task"], history_length=length)
        await self._answer(request, send, await edge.handler.get(call, asked), echo(edge, call))

    async def list(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        asked = a2a.ListTasksRequest(
            tenant=query_text(request, "tenant"),
            context_id=query_text(request, "contextId"),
            status=_read(query_text(request, "status"), "status", a2a.TaskState, "must be the name of a state"),
            page_size=query_int(request, "pageSize"),
            page_token=query_text(request, "pageToken"),
            history_length=query_int(request, "historyLength"),
            status_timestamp_after=query_text(request, "statusTimestampAfter"),
            include_artifacts=query_bool(request, "includeArtifacts"),
        )
        await self._answer(request, send, await edge.handler.list(call, asked), echo(edge, call))

    async def cancel(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        asked = a2a.read(await read_body(request), a2a.CancelTaskRequest)
        asked = structs.replace(asked, id=request.params["task"])
        await self._answer(request, send, await edge.handler.cancel(call, asked), echo(edge, call))

    # ---- push notifications

    async def create_config(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        task_id = request.params["task"]
        asked = structs.replace(self._speech.read_push(await read_body(request), task_id), task_id=task_id)
        await self._answer(request, send, await edge.handler.create_push_config(call, asked), echo(edge, call))

    async def list_configs(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        asked = a2a.ListTaskPushNotificationConfigsRequest(
            task_id=request.params["task"],
            page_size=query_int(request, "pageSize") or 0,
            page_token=query_text(request, "pageToken"),
        )
        await self._answer(request, send, await edge.handler.list_push_configs(call, asked), echo(edge, call))

    async def get_config(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        asked = a2a.GetTaskPushNotificationConfigRequest(task_id=request.params["task"], id=request.params["config"])
        await self._answer(request, send, await edge.handler.get_push_config(call, asked), echo(edge, call))

    async def delete_config(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        asked = a2a.DeleteTaskPushNotificationConfigRequest(task_id=request.params["task"], id=request.params["config"])
        await self._answer(request, send, await edge.handler.delete_push_config(call, asked), echo(edge, call))

    # ---- the card

    async def extended_card(self, request: Request, send: Send) -> None:
        edge, call = self._enter(request)
        card = await edge.handler.extended_card(call, a2a.GetExtendedAgentCardRequest())
        headers = (*echo(edge, call), (b"cache-control", b"private, no-store"))
        await self._answer(request, send, edge.card.completed(card, self._base(request)), headers)


async def read_body(request: Request) -> bytes:
    """The body, `{}` for none. ContentTypeNotSupported unless it says that it is JSON; BadRequest when it nests too deep."""
    body = await request.body()
    if not body.strip():
        return b"{}"
    kind = request.header("content-type")
    if not jsonrpc.is_json(kind or None):
        raise ContentTypeNotSupported(f"Content-Type must be {A2A_JSON} or {JSON}, got {kind!r:.80}")
    codec.check_depth(body, request.limits.json_depth)
    return body


# ---- queries: names in camelCase, or in snake_case as the proto has them; a blank value is none


def query_text(request: Request, name: str) -> str:
    return request.query_text(name, "".join(f"_{c.lower()}" if c.isupper() else c for c in name))


def query_int(request: Request, name: str) -> int | None:
    return _read(query_text(request, name)[:20], name, int, "must be a whole number")


def query_bool(request: Request, name: str) -> bool | None:
    values = {"true": True, "1": True, "false": False, "0": False}
    return _read(query_text(request, name).lower(), name, values.__getitem__, "must be true or false")


def _read(text: str, name: str, read: Callable[[str], T], wrong: str) -> T | None:
    try:
        return read(text) if text else None
    except (ValueError, KeyError):
        raise InvalidParams([Violation(name, f"{wrong}, got {text[:40]!r}")]) from None
