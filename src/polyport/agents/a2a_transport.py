"""How an A2A client speaks to one interface of a card: the Binding, and JSON-RPC in versions 1.0 and 0.3 (spec a2a 1.4, 2.1).

Used by `a2a_client`, which knows operations only; HTTP+JSON is in `a2a_rest`, gRPC in `a2a_grpc`. A Binding for another
transport has the same two methods, and is named in `A2AClient(bindings=...)`. Errors come out as exceptions of
`polyport.errors` and `wire.a2a_errors`. Nothing is retried here.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct, structs

from polyport import codec
from polyport.agents.a2a_door import A2ALimits, Caller, Door, http_error
from polyport.agents.a2a_http import Answer, Outgoing, Stream, place
from polyport.errors import BadRequest, TooLarge
from polyport.wire import a2a, a2a_v03, jsonrpc
from polyport.wire.a2a_card import AgentCard
from polyport.wire.a2a_errors import InvalidAgentResponse
from polyport.wire.sse import SseDecoder, SseEvent

T = TypeVar("T")


class Target(Struct, frozen=True, kw_only=True):
    """One interface of a card, and all that is needed to speak to it."""

    url: str
    door: Door
    limits: A2ALimits
    new_id: Callable[[], str]
    tenant: str = ""
    v03: bool = False
    extensions: tuple[str, ...] = ()
    public_only: bool = False

    def outgoing(self, method: str, url: str, body: Any, *, stream: bool = False, long: bool = False) -> Outgoing:
        """A request to this interface; `body` None is none, bytes are sent as they are."""
        headers = {"accept": "text/event-stream, application/json" if stream else _ACCEPT}
        if not self.v03:
            headers["a2a-version"] = "1.0"
        if self.extensions:
            headers["x-a2a-extensions" if self.v03 else "a2a-extensions"] = ", ".join(self.extensions)
        if body is not None:
            headers["content-type"] = "application/json"
        return Outgoing(
            method=method,
            url=url,
            headers=headers,
            body=body if isinstance(body, bytes | None) else codec.encode(body),
            timeout_s=self.limits.timeout_s if long or stream else self.limits.call_timeout_s,
            public_only=self.public_only,
        )


_ACCEPT = "application/json, application/a2a+json"


class Binding(Protocol):
    """One transport. Operations are named as in A2A 1.0, requests and answers are its Structs."""

    async def call(self, operation: str, request: Any, caller: Caller) -> Any:
        """The answer of an operation that does not stream; None for a delete."""
        ...

    def stream(self, operation: str, request: Any, caller: Caller) -> AsyncGenerator[a2a.Payload]:
        """The frames of SendStreamingMessage or SubscribeToTask, to the end of the stream. BrokenOff when it was cut."""
        ...


_ANSWERS: dict[str, Any] = {
    "SendMessage": a2a.SendMessageResponse,
    "GetTask": a2a.Task,
    "ListTasks": a2a.ListTasksResponse,
    "CancelTask": a2a.Task,
    "CreateTaskPushNotificationConfig": a2a.TaskPushNotificationConfig,
    "GetTaskPushNotificationConfig": a2a.TaskPushNotificationConfig,
    "ListTaskPushNotificationConfigs": a2a.ListTaskPushNotificationConfigsResponse,
    "GetExtendedAgentCard": AgentCard,
}


def read_answer(v03: bool, operation: str, body: bytes) -> Any:
    if operation == "DeleteTaskPushNotificationConfig":
        return None
    if v03:
        return _understood(a2a_v03.read_answer, operation, body)
    return _understood(a2a.read, body, _ANSWERS[operation])


def read_event(v03: bool, body: bytes) -> a2a.Payload | None:
    """The payload of a frame; None in a frame of a kind that is not known."""
    if v03:
        return _understood(a2a_v03.read_event, body)
    return _understood(a2a.read, body, a2a.StreamResponse).payload


def _understood(read: Callable[..., T], *args: Any) -> T:
    """What `read` makes of a body. InvalidAgentResponse when it cannot, or when the JSON nests too deeply."""
    body = next(arg for arg in args if isinstance(arg, bytes))
    try:
        codec.check_depth(body)
        return read(*args)
    except InvalidAgentResponse:
        raise
    except BadRequest as error:
        raise InvalidAgentResponse(f"the remote agent's answer is not A2A: {error}") from None


async def events(stream: Stream, max_bytes: int) -> AsyncGenerator[SseEvent]:
    decoder = SseDecoder()
    size = 0
    async with aclosing(stream.chunks()) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > max_bytes:
                raise TooLarge(f"the remote agent's stream is larger than {max_bytes} bytes")
            for event in decoder.feed(chunk):
                yield event


def media(stream: Stream | Answer) -> str:
    return stream.headers.get("content-type", "").partition(";")[0].strip().lower()


class JsonRpc:
    """The JSON-RPC binding: everything is a POST to one URL; the id of an answer must be that of its call (FR-181)."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._where = place(target.url)

    async def call(self, operation: str, request: Any, caller: Caller) -> Any:
        target = self._target
        id, body = self._encode(operation, request)
        outgoing = target.outgoing("POST", target.url, body, long=operation == "SendMessage")
        answer = await target.door.send(outgoing, caller, target.limits.answer_bytes)
        if operation == "DeleteTaskPushNotificationConfig" and _is_empty(answer, id):
            return None
        result = self._result(answer, id)
        return read_answer(target.v03, operation, result)

    async def stream(self, operation: str, request: Any, caller: Caller) -> AsyncGenerator[a2a.Payload]:
        target = self._target
        id, body = self._encode(operation, request)
        async with target.door.open(target.outgoing("POST", target.url, body, stream=True), caller) as stream:
            if stream.status != 200 or media(stream) != "text/event-stream":
                whole = await stream.read(target.limits.answer_bytes)
                result = self._result(Answer(stream.status, stream.headers, whole), id)
                payload = read_event(target.v03, result)
                if payload is not None:
                    yield payload
                return
            async with aclosing(events(stream, target.limits.stream_bytes)) as found:
                async for event in found:
                    payload = read_event(target.v03, jsonrpc.read_result(event.data.encode(), id))
                    if payload is not None:
                        yield payload

    def _encode(self, operation: str, request: Any) -> tuple[str, bytes]:
        target = self._target
        id = target.new_id()
        if target.v03:
            method, params = a2a_v03.call(operation, request)
            return id, jsonrpc.encode_call(id, method, params)
        if target.tenant and not request.tenant:
            request = structs.replace(request, tenant=target.tenant)
        return id, jsonrpc.encode_call(id, operation, request)

    def _result(self, answer: Answer, id: str) -> bytes:
        """The result; the error that the answer is, by its body if that is JSON-RPC, else by its status."""
        if answer.status == 200:
            return jsonrpc.read_result(answer.body, id)
        if jsonrpc.is_json(answer.headers.get("content-type")):
            with suppress(InvalidAgentResponse):  # then the status says more
                jsonrpc.read_result(answer.body, id)
        raise http_error(self._where, answer)


def _is_empty(answer: Answer, id: str) -> bool:
    """A response with neither result nor error: how a2a-go, and a2a-sdk in 0.3, say "deleted"."""
    if answer.status != 200:
        return False
    try:
        found = msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return found.get("id") == id and not found.keys() & {"result", "error"}
