"""The HTTP+JSON binding of an A2A client, in versions 1.0 and 0.3 (spec a2a 1.4, 2.1).

Used by `a2a_client` through the Binding of `a2a_transport`. Paths and bodies only; what answers mean is read there.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct, structs

from polyport import codec
from polyport.agents.a2a_door import Caller, error_of, http_error
from polyport.agents.a2a_http import Answer, Outgoing, Stream, place
from polyport.agents.a2a_transport import Target, events, media, read_answer, read_event
from polyport.errors import NotFound, PolyportError
from polyport.wire import a2a, a2a_v03, a2a_v03_write
from polyport.wire.a2a_errors import MethodNotFound


class Route(Struct, frozen=True):
    """How REST spells one operation: its verbs, those of 1.0 first, and its path with members of the request in it."""

    verbs: tuple[str, ...]
    path: str


_CONFIGS = "/tasks/{task_id}/pushNotificationConfigs"
ROUTES = {
    "SendMessage": Route(("POST",), "/message:send"),
    "SendStreamingMessage": Route(("POST",), "/message:stream"),
    "GetTask": Route(("GET",), "/tasks/{id}"),
    "ListTasks": Route(("GET",), "/tasks"),
    "CancelTask": Route(("POST",), "/tasks/{id}:cancel"),
    "SubscribeToTask": Route(("POST", "GET"), "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": Route(("POST",), _CONFIGS),
    "GetTaskPushNotificationConfig": Route(("GET",), _CONFIGS + "/{id}"),
    "ListTaskPushNotificationConfigs": Route(("GET",), _CONFIGS),
    "DeleteTaskPushNotificationConfig": Route(("DELETE",), _CONFIGS + "/{id}"),
    "GetExtendedAgentCard": Route(("GET",), "/extendedAgentCard"),
}


class Rest:
    """The HTTP+JSON binding."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._where = place(target.url)
        base = target.url.rstrip("/")
        if target.v03:
            base = base.removesuffix("/v1") + "/v1"
        elif target.tenant:
            base += "/" + quote(target.tenant, safe="")
        self._base = base

    async def call(self, operation: str, request: Any, caller: Caller) -> Any:
        target = self._target
        outgoing = self._outgoing(operation, request)[0]
        answer = await target.door.send(outgoing, caller, target.limits.answer_bytes)
        if not 200 <= answer.status < 300:
            raise self._refusal(answer)
        return read_answer(target.v03, operation, answer.body)

    async def stream(self, operation: str, request: Any, caller: Caller) -> AsyncGenerator[a2a.Payload]:
        """Servers differ in the verb of SubscribeToTask: the other one is tried after a 405 (spec a2a 1.11)."""
        *others, last = self._outgoing(operation, request, stream=True)
        for outgoing in others:
            async with self._target.door.open(outgoing, caller) as stream:
                if stream.status not in (405, 501):
                    async with aclosing(self._frames(stream)) as frames:
                        async for payload in frames:
                            yield payload
                    return
        async with self._target.door.open(last, caller) as stream, aclosing(self._frames(stream)) as frames:
            async for payload in frames:
                yield payload

    async def _frames(self, stream: Stream) -> AsyncGenerator[a2a.Payload]:
        target = self._target
        if stream.status != 200 or media(stream) != "text/event-stream":
            answer = Answer(stream.status, stream.headers, await stream.read(target.limits.answer_bytes))
            if answer.status != 200:
                raise self._refusal(answer)
            payload = read_event(target.v03, answer.body)
            if payload is not None:
                yield payload
            return
        async with aclosing(events(stream, target.limits.stream_bytes)) as found:
            async for event in found:
                body = event.data.encode()
                if event.event == "error" or body[:20].replace(b" ", b"").startswith(b'{"error"'):
                    raise http_error(self._where, Answer(_status_in(body), {}, body))
                payload = read_event(target.v03, body)
                if payload is not None:
                    yield payload

    def _refusal(self, answer: Answer) -> PolyportError:
        """A 404 without a reason, or a 405, is about the route."""
        error = http_error(self._where, answer)
        if type(error) is NotFound or answer.status in (405, 501):
            return MethodNotFound(f"{self._where} has no such operation ({answer.status})")
        return error

    def _outgoing(self, operation: str, request: Any, *, stream: bool = False) -> list[Outgoing]:
        """The request, once for each verb in the order in which they are to be tried."""
        target = self._target
        if target.v03:
            a2a_v03.call(operation, request)  # UnsupportedOperation for what 0.3 does not have
        route = ROUTES[operation]
        fields = {n: quote(str(getattr(request, n)), safe="") for n in ("id", "task_id") if hasattr(request, n)}
        path = route.path.format(**fields)
        if target.v03 and operation == "GetExtendedAgentCard":
            path = "/card"
        verbs = tuple(reversed(route.verbs)) if target.v03 else route.verbs
        long = operation == "SendMessage"
        return [
            target.outgoing(
                verb,
                self._base + path + (_query(request) if verb == "GET" else ""),
                self._body(operation, request) if verb == "POST" else None,
                stream=stream,
                long=long,
            )
            for verb in verbs
        ]

    def _body(self, operation: str, request: Any) -> Any:
        if self._target.v03:
            if isinstance(request, a2a.SendMessageRequest):
                return a2a_v03_write.rest_send_body(request)
            if isinstance(request, a2a.TaskPushNotificationConfig):
                return a2a_v03_write.rest_push_body(request)
        if operation == "SubscribeToTask":
            return None
        if isinstance(request, a2a.CancelTaskRequest):
            return {} if request.metadata is None else {"metadata": request.metadata}
        return structs.replace(request, tenant="") if self._target.tenant else request


def _query(request: Any) -> str:
    """The members that do not stand in the path, as a query; empty ones are left out."""
    plain: dict[str, Any] = msgspec.json.decode(codec.encode(request))
    left_out = {"id", "taskId", "tenant"}
    pairs = [
        (name, str(value).lower() if isinstance(value, bool) else value)
        for name, value in plain.items()
        if name not in left_out and value != ""
    ]
    return "?" + urlencode(pairs) if pairs else ""


def _status_in(body: bytes) -> int:
    """The HTTP status that an error frame names."""
    code = error_of(body)[0].get("code")
    return code if isinstance(code, int) and 400 <= code < 600 else 500
