"""The gRPC binding of an A2A client, in versions 1.0 and 0.3 (spec a2a 1.4, 2.1).

Used by `a2a_client` through the Binding of `a2a_transport`; imported when a card prefers gRPC, for grpcio and protobuf are
optional. A message is protobuf on the wire and ProtoJSON on this side. Channels are kept by the client's Door. Only
`http://host:port` (plain) and `https://host:port` (TLS) are called: none of the other targets that gRPC knows.
"""

import re
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import grpc
import grpc.aio
from google.protobuf.json_format import ParseError
from google.protobuf.message import DecodeError
from msgspec import structs

from polyport import codec
from polyport.agents.a2a_door import Caller, named_error
from polyport.agents.a2a_http import BrokenOff, origin, place, public_addresses
from polyport.agents.a2a_transport import Target, read_answer, read_event
from polyport.errors import BadRequest, Forbidden, LimitExceeded, PolyportError, TimedOut, TooLarge, Unavailable
from polyport.wire import a2a, a2a_proto, a2a_v03, a2a_v03_write
from polyport.wire.a2a_errors import InvalidAgentResponse, MethodNotFound, remote_error

DETAILS = "grpc-status-details-bin"
_UNREACHED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.ABORTED)
_NAME = re.compile(r"(?!grpc-)[0-9a-z_.-]+(?<!-bin)")
"""Names of headers that gRPC can carry as text."""
_OPTIONS = (("grpc.enable_retries", 0), ("grpc.service_config_disable_resolution", 1))
_END: Any = vars(grpc.aio)["EOF"]  # its stubs do not name it
_TOO_LARGE = "larger than max"
"""What grpcio says of a message above the limit; it has no status of its own for that."""


class _Rpc(NamedTuple):
    """How one operation is spelled."""

    name: str
    takes: str
    gives: str


_V03_NAMES = {
    "SubscribeToTask": ("TaskSubscription", "TaskSubscriptionRequest"),
    "ListTaskPushNotificationConfigs": ("ListTaskPushNotificationConfig", "ListTaskPushNotificationConfigRequest"),
    "CreateTaskPushNotificationConfig": (
        "CreateTaskPushNotificationConfig",
        "CreateTaskPushNotificationConfigRequest",
    ),
    "GetExtendedAgentCard": ("GetAgentCard", "GetAgentCardRequest"),
    "SendStreamingMessage": ("SendStreamingMessage", "SendMessageRequest"),
}
_V03_GIVES = {"ListTaskPushNotificationConfigs": "ListTaskPushNotificationConfigResponse"}


class Grpc:
    """The gRPC binding. BadRequest for a URL that is not one of http(s)."""

    def __init__(self, target: Target) -> None:
        origin(target.url)
        self._target = target
        self._where = place(target.url)
        self._package = a2a_proto.V03 if target.v03 else a2a_proto.V10

    # ---- calls

    async def call(self, operation: str, request: Any, caller: Caller) -> Any:
        target = self._target
        rpc, body = self._rpc(operation, request)
        seconds = target.limits.timeout_s if operation == "SendMessage" else target.limits.call_timeout_s
        channel = await self._channel()
        own = await target.door.own(target.url, caller)
        while True:
            try:
                asked = channel.unary_unary(self._path(rpc))(body, metadata=self._metadata(own), timeout=seconds)
                return read_answer(target.v03, operation, self._read(rpc, await asked))
            except grpc.aio.AioRpcError as error:
                own = await self._again(error, caller, own, seconds)
                caller = structs.replace(caller, refresh=None, provider=None, headers=own)  # it is refreshed once

    async def stream(self, operation: str, request: Any, caller: Caller) -> AsyncGenerator[a2a.Payload]:
        target = self._target
        rpc, body = self._rpc(operation, request)
        channel = await self._channel()
        own = await target.door.own(target.url, caller)
        begun = False
        while True:
            asked = channel.unary_stream(self._path(rpc))(body, metadata=self._metadata(own))
            try:
                async with aclosing(self._frames(rpc, asked)) as frames:
                    async for payload in frames:
                        begun = True
                        yield payload
                return
            except grpc.aio.AioRpcError as error:
                if begun:
                    raise self._problem(error, target.limits.timeout_s) from None
                own = await self._again(error, caller, own, target.limits.timeout_s)
                caller = structs.replace(caller, refresh=None, provider=None, headers=own)

    async def _frames(self, rpc: _Rpc, asked: Any) -> AsyncGenerator[a2a.Payload]:
        limits = self._target.limits
        seconds, size = limits.timeout_s, 0
        try:
            while True:
                try:
                    with anyio.fail_after(seconds):
                        wire = await asked.read()
                except TimeoutError:
                    kind = TimedOut if not size else BrokenOff
                    raise kind(f"{self._where} sent nothing for {seconds:g} s") from None
                if wire is _END:
                    return
                size += len(wire)
                if size > limits.stream_bytes:
                    raise TooLarge(f"the remote agent's stream is larger than {limits.stream_bytes} bytes")
                seconds = limits.idle_timeout_s
                payload = read_event(self._target.v03, self._read(rpc, wire))
                if payload is not None:
                    yield payload
        finally:
            asked.cancel()

    # ---- messages

    def _path(self, rpc: _Rpc) -> str:
        return f"/{self._package}.A2AService/{rpc.name}"

    def _rpc(self, operation: str, request: Any) -> tuple[_Rpc, bytes]:
        """How the operation is spelled, and the request on the wire. UnsupportedOperation for what 0.3 does not have."""
        target = self._target
        if target.v03:
            a2a_v03.call(operation, request)
            name, takes = _V03_NAMES.get(operation, (operation, type(request).__name__))
            rpc, plain = (
                _Rpc(name, takes, _V03_GIVES.get(operation, a2a_proto.GIVES[operation])),
                _v03_body(request),
            )
        else:
            rpc = _Rpc(operation, type(request).__name__, a2a_proto.GIVES[operation])
            plain = structs.replace(request, tenant=request.tenant or target.tenant)
        try:
            return rpc, a2a_proto.from_json(f"{self._package}.{rpc.takes}", codec.encode(plain))
        except ParseError as error:
            raise BadRequest(f"the request cannot be sent over gRPC: {error}") from None

    def _read(self, rpc: _Rpc, wire: bytes) -> bytes:
        name = rpc.gives if "." in rpc.gives else f"{self._package}.{rpc.gives}"
        try:
            return a2a_proto.to_json(name, wire).encode()
        except BadRequest as error:
            raise InvalidAgentResponse(f"the remote agent's answer is not A2A: {error}") from None

    def _metadata(self, own: dict[str, str]) -> tuple[tuple[str, str], ...]:
        """Service parameters and the caller's headers. BadRequest for a header that gRPC cannot carry."""
        target = self._target
        found = {**target.door.trace(target.url), **own}
        if not target.v03:
            found["a2a-version"] = "1.0"
        if target.extensions:
            found["x-a2a-extensions" if target.v03 else "a2a-extensions"] = ", ".join(target.extensions)
        for name, value in found.items():
            if not _NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
                raise BadRequest(f"the header {name!r:.100} cannot be sent over gRPC", name)
        return tuple(found.items())

    # ---- errors

    async def _again(
        self, error: grpc.aio.AioRpcError, caller: Caller, own: dict[str, str], seconds: float
    ) -> dict[str, str]:
        """Other credentials after these were refused; else the error, as ours."""
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return await self._target.door.fresh(self._target.url, caller, own, "")
        raise self._problem(error, seconds) from None

    def _problem(self, error: grpc.aio.AioRpcError, seconds: float) -> PolyportError:
        """The exception for a status, by its details, if there are any, else by what 0.3 says in its text."""
        code, text = error.code(), error.details() or ""
        details = _details(error)
        name, colon, rest = text.partition(": ")
        if not details and colon and (found := named_error(name)):
            details, text = found, rest
        if not details:
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                return TimedOut(f"{self._where} did not answer within {seconds:g} s")
            if code in _UNREACHED:
                return Unavailable(f"{self._where} could not be reached ({code.name}: {text[:200]})")
            if code is grpc.StatusCode.UNIMPLEMENTED:
                return MethodNotFound(f"{self._where} has no such operation ({text[:200]})")
            if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
                return (TooLarge if _TOO_LARGE in text else LimitExceeded)(text or f"{self._where} is at its limit")
        if code is grpc.StatusCode.PERMISSION_DENIED:
            return Forbidden(text)
        return remote_error(text, details, grpc=code.name)

    # ---- channels

    async def _channel(self) -> Any:
        target = self._target
        scheme, host, port = origin(target.url)
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        options: list[tuple[str, Any]] = [
            *_OPTIONS,
            ("grpc.max_receive_message_length", target.limits.answer_bytes),
        ]
        where = f"dns:///{authority}"
        if target.public_only:  # what was looked at is what is connected to
            found = await public_addresses(target.url)
            kind = "ipv6" if ":" in found[0] else "ipv4"
            where = f"{kind}:" + ",".join(f"[{a}]:{port}" if ":" in a else f"{a}:{port}" for a in found)
            options += [("grpc.enable_http_proxy", 0), ("grpc.default_authority", authority)]
        key = "grpc", scheme, where, target.limits.answer_bytes
        credentials = await _credentials() if scheme == "https" else None
        return await target.door.kept.get(key, lambda: _held(where, credentials, options))


async def _held(where: str, credentials: Any, options: list[tuple[str, Any]]) -> AsyncGenerator[Any]:
    """A channel, open until this generator is closed."""
    channel = (
        grpc.aio.insecure_channel(where, options=options)
        if credentials is None
        else grpc.aio.secure_channel(where, credentials, options=options)
    )
    async with channel:
        yield channel


async def _credentials() -> Any:
    """TLS with the certificates that this machine trusts for HTTPS, too; grpcio has a list of its own otherwise."""
    file = ssl.get_default_verify_paths().cafile
    return grpc.ssl_channel_credentials(await anyio.to_thread.run_sync(Path(file).read_bytes) if file else None)


def _details(error: grpc.aio.AioRpcError) -> list[dict[str, Any]]:
    wire = dict(error.trailing_metadata() or ()).get(DETAILS)
    try:
        return a2a_proto.read_status(wire)[2] if isinstance(wire, bytes) else []
    except DecodeError:
        return []


def _v03_body(request: Any) -> dict[str, Any]:
    """A request as 0.3's protobuf has it: resources are named by paths."""
    match request:
        case a2a.SendMessageRequest():
            return a2a_v03_write.rest_send_body(request)
        case a2a.TaskPushNotificationConfig():
            return a2a_v03_write.rest_push_body(request)
        case a2a.GetTaskPushNotificationConfigRequest() | a2a.DeleteTaskPushNotificationConfigRequest():
            return {"name": f"tasks/{request.task_id}/pushNotificationConfigs/{request.id}"}
        case a2a.ListTaskPushNotificationConfigsRequest():
            found = {"parent": f"tasks/{request.task_id}", "pageToken": request.page_token}
            return found | ({"pageSize": request.page_size} if request.page_size else {})
        case a2a.GetTaskRequest():
            return {"name": f"tasks/{request.id}", "historyLength": request.history_length or 0}
        case a2a.CancelTaskRequest() | a2a.SubscribeToTaskRequest():
            return {"name": f"tasks/{request.id}"}
        case _:
            return {}
