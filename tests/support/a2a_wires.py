"""For stories of A2A over its three bindings: one client for each, with the same calls and the same way to fail."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import anyio
import grpc
import grpc.aio

from polyport import App, LlmAgent
from polyport.data.auth import ANONYMOUS, Caller
from polyport.data.limits import Limits
from polyport.errors import Unauthenticated
from polyport.protocols.a2a.mount import A2a, A2aServer
from polyport.protocols.guard import Guard
from polyport.protocols.http import Request
from polyport.testing import ScriptedModel, connect
from polyport.testing.connect import Client
from polyport.wire import a2a_proto

JSON = {"content-type": "application/json"}
MESSAGE = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
INFO = "type.googleapis.com/google.rpc.ErrorInfo"
VIOLATIONS = "type.googleapis.com/google.rpc.BadRequest"


class Door(Guard):
    """Lets everybody in; `Authorization: Bearer NAME` says who it is, and NAME "nobody" is refused."""

    async def admit(self, request: Request) -> Caller:
        name = request.header("authorization").removeprefix("Bearer ")
        if name == "nobody":
            raise Unauthenticated("who are you?")
        return Caller(name) if name else ANONYMOUS


def door() -> Door:
    return Door(["*"], ["*"])


class Failed(Exception):
    """An error of the server: `code` as the binding has it (number, HTTP status, gRPC name), and the typed details."""

    def __init__(self, code: Any, message: str, details: list[dict[str, Any]]) -> None:
        super().__init__(f"{code} {message} {details}")
        self.code = code
        self.message = message
        self.details = details

    @property
    def reason(self) -> str:
        info = next((d for d in self.details if d["@type"] == INFO), {})
        assert info.get("domain") == "a2a-protocol.org", self
        return str(info.get("reason"))

    @property
    def fields(self) -> list[str]:
        """The members that were wrong."""
        return [v["field"] for d in self.details if d["@type"] == VIOLATIONS for v in d["fieldViolations"]]


class Said(NamedTuple):
    """Service parameters and credentials of a call."""

    version: str | None = "1.0"
    extensions: tuple[str, ...] = ()
    caller: str = ""
    tenant: str = ""

    @property
    def headers(self) -> dict[str, str]:
        found = {} if self.version is None else {"a2a-version": self.version}
        if self.extensions:
            found["a2a-extensions"] = ", ".join(self.extensions)
        if self.caller:
            found["authorization"] = f"Bearer {self.caller}"
        return found


PLAIN = Said()


class Wire:
    """A binding. `call` gives the result of an operation, `stream` its frames; `echoed` are the extensions it answered."""

    name = ""

    def __init__(self, client: Client, server: A2aServer) -> None:
        self.client = client
        self.server = server
        self.echoed = ""

    async def call(self, operation: str, params: dict[str, Any], said: Said = PLAIN) -> dict[str, Any]:
        raise NotImplementedError

    def frames(self, operation: str, params: dict[str, Any], said: Said = PLAIN) -> AsyncGenerator[dict[str, Any]]:
        raise NotImplementedError

    async def stream(self, operation: str, params: dict[str, Any], said: Said = PLAIN) -> list[dict[str, Any]]:
        with anyio.fail_after(20):
            return [frame async for frame in self.frames(operation, params, said)]

    async def send(self, text: str = "hi", said: Said = PLAIN, **more: Any) -> dict[str, Any]:
        """SendMessage; the members of `more` are those of the message, `configuration` is beside it."""
        params = {"message": message(text, **more)}
        if "configuration" in more:
            params["configuration"] = more["configuration"]
        return await self.call("SendMessage", params, said)


def message(text: str = "hi", **more: Any) -> dict[str, Any]:
    more.pop("configuration", None)
    return {**MESSAGE, "parts": [{"text": text}], **more}


class JsonRpcWire(Wire):
    name = "jsonrpc"
    path = "/a2a"

    async def call(self, operation: str, params: dict[str, Any], said: Said = PLAIN) -> dict[str, Any]:
        response = await self.client.post(self.path, json=_rpc(operation, params, said), headers=said.headers)
        self.echoed = response.headers.get("a2a-extensions", "")
        return _result(json.loads(response.body))

    async def frames(
        self, operation: str, params: dict[str, Any], said: Said = PLAIN
    ) -> AsyncGenerator[dict[str, Any]]:
        body = _rpc(operation, params, said)
        async with self.client.stream("POST", self.path, json=body, headers=said.headers) as response:
            self.echoed = response.headers.get("a2a-extensions", "")
            if not response.headers["content-type"].startswith("text/event-stream"):
                _result(json.loads(await response.read()))
                raise AssertionError("neither a stream nor an error")
            async for event in response.events():
                yield _result(json.loads(event.data))


def _rpc(operation: str, params: dict[str, Any], said: Said) -> dict[str, Any]:
    tenant = {"tenant": said.tenant} if said.tenant else {}
    return {"jsonrpc": "2.0", "id": 7, "method": operation, "params": {**params, **tenant}}


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["jsonrpc"] == "2.0" and answer["id"] == 7, answer
    if "error" in answer:
        error = answer["error"]
        raise Failed(error["code"], error["message"], error["data"])
    return answer["result"]


class RestWire(Wire):
    name = "rest"

    async def call(self, operation: str, params: dict[str, Any], said: Said = PLAIN) -> dict[str, Any]:
        async with self._open(operation, params, said) as response:
            self.echoed = response.headers.get("a2a-extensions", "")
            body = await response.read()
            if response.status >= 400:
                raise _rest_failed(response.status, json.loads(body))
            return json.loads(body)

    async def frames(
        self, operation: str, params: dict[str, Any], said: Said = PLAIN
    ) -> AsyncGenerator[dict[str, Any]]:
        async with self._open(operation, params, said) as response:
            self.echoed = response.headers.get("a2a-extensions", "")
            if response.status >= 400:
                raise _rest_failed(response.status, json.loads(await response.read()))
            async for event in response.events():
                frame = json.loads(event.data)
                if "error" in frame:
                    raise _rest_failed(response.status, frame)
                yield frame

    def _open(self, operation: str, params: dict[str, Any], said: Said) -> Any:
        params = dict(params)
        method, path = PATHS[operation]
        names = {"{id}": "id", "{task}": "taskId", "{config}": "id"}
        for mark, name in names.items():
            if mark in path:
                path = path.replace(mark, str(params.pop(name, "")))
        path = (f"/{said.tenant}" if said.tenant else "") + path
        if method == "POST":
            return self.client.stream(method, path, json=params, headers=said.headers)
        query = {k: str(v).lower() if isinstance(v, bool) else v for k, v in params.items()}
        return self.client.stream(method, path, query=query, headers=said.headers)


PATHS = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{task}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{task}/pushNotificationConfigs/{config}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{task}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{task}/pushNotificationConfigs/{config}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}


def _rest_failed(status: int, body: dict[str, Any]) -> Failed:
    error = body["error"]
    assert error["code"] == status or status == 200, body
    return Failed(error["code"], error["message"], error["details"])


class GrpcWire(Wire):
    name = "grpc"

    def __init__(self, client: Client, server: A2aServer, channel: Any) -> None:
        super().__init__(client, server)
        self._channel = channel

    def _begin(self, operation: str, params: dict[str, Any], said: Said, kind: Any) -> tuple[Any, str]:
        takes, gives = MESSAGES[operation]
        tenant = {"tenant": said.tenant} if said.tenant else {}
        wire = a2a_proto.from_json(f"lf.a2a.v1.{takes}", json.dumps({**params, **tenant}))
        metadata = tuple(said.headers.items())
        call = kind(f"/lf.a2a.v1.A2AService/{operation}")(wire, metadata=metadata, timeout=20)
        return call, gives if "." in gives else f"lf.a2a.v1.{gives}"

    async def call(self, operation: str, params: dict[str, Any], said: Said = PLAIN) -> dict[str, Any]:
        call, gives = self._begin(operation, params, said, self._channel.unary_unary)
        try:
            wire = await call
            self.echoed = str(dict(await call.initial_metadata()).get("a2a-extensions", ""))
        except grpc.aio.AioRpcError as error:
            raise _grpc_failed(error) from None
        return json.loads(a2a_proto.to_json(gives, wire))

    async def frames(
        self, operation: str, params: dict[str, Any], said: Said = PLAIN
    ) -> AsyncGenerator[dict[str, Any]]:
        call, gives = self._begin(operation, params, said, self._channel.unary_stream)
        try:
            async for wire in call:
                yield json.loads(a2a_proto.to_json(gives, wire))
            self.echoed = str(dict(await call.initial_metadata()).get("a2a-extensions", ""))
        except grpc.aio.AioRpcError as error:
            raise _grpc_failed(error) from None
        finally:
            call.cancel()


MESSAGES = {
    "SendMessage": ("SendMessageRequest", "SendMessageResponse"),
    "SendStreamingMessage": ("SendMessageRequest", "StreamResponse"),
    "GetTask": ("GetTaskRequest", "Task"),
    "ListTasks": ("ListTasksRequest", "ListTasksResponse"),
    "CancelTask": ("CancelTaskRequest", "Task"),
    "SubscribeToTask": ("SubscribeToTaskRequest", "StreamResponse"),
    "CreateTaskPushNotificationConfig": ("TaskPushNotificationConfig", "TaskPushNotificationConfig"),
    "GetTaskPushNotificationConfig": ("GetTaskPushNotificationConfigRequest", "TaskPushNotificationConfig"),
    "ListTaskPushNotificationConfigs": (
        "ListTaskPushNotificationConfigsRequest",
        "ListTaskPushNotificationConfigsResponse",
    ),
    "DeleteTaskPushNotificationConfig": ("DeleteTaskPushNotificationConfigRequest", "google.protobuf.Empty"),
    "GetExtendedAgentCard": ("GetExtendedAgentCardRequest", "AgentCard"),
}


def _grpc_failed(error: grpc.aio.AioRpcError) -> Failed:
    wire = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    details = a2a_proto.read_status(wire)[2] if isinstance(wire, bytes) else []
    return Failed(error.code().name, error.details() or "", details)


class Echo(ScriptedModel):
    """Answers as often as it is asked."""

    async def generate(self, request: Any, on_partial: Any = None) -> Any:
        self.steps.append(f"you said: {request.contents[-1].text}")
        return await super().generate(request, on_partial)


def echoing(**fields: Any) -> LlmAgent:
    return LlmAgent(name="app", model=Echo(), **fields)


BINDINGS = ["jsonrpc", "rest", "grpc"]


@asynccontextmanager
async def wired(
    binding: str,
    agent: Any,
    a2a: A2a | None = None,
    *,
    guard: Guard | None = None,
    limits: Limits | None = None,
    stores: Any = None,
    **options: Any,
) -> AsyncGenerator[Any]:
    """The agent over A2A, and a client of a binding. `options` are those of `A2a`."""
    a2a = replace(a2a or A2a(), grpc="127.0.0.1:0" if binding == "grpc" else "", **options)
    mounted: list[A2aServer] = []

    class Watched:
        def mount(self, parts: Any) -> A2aServer:
            mounted.append(a2a.mount(parts))
            return mounted[0]

    app = App(agent, protocols=["rest", Watched()], guard=guard or door(), limits=limits, stores=stores)
    async with connect(app) as client:
        server = mounted[0]
        if binding == "grpc":
            assert server.grpc is not None
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
                yield GrpcWire(client, server, channel)
        else:
            yield (JsonRpcWire if binding == "jsonrpc" else RestWire)(client, server)


def kinds(frames: list[dict[str, Any]]) -> list[str]:
    """`task submitted`, `status completed`, `artifact text`, `message text`: frames in short."""
    found: list[str] = []
    for frame in frames:
        ((name, value),) = frame.items()
        if name in ("task", "statusUpdate"):
            found.append(f"{name.removesuffix('Update')} {state(value)}")
        elif name == "message":
            found.append("message " + "".join(p.get("text", "") for p in value["parts"]))
        else:
            found.append("artifact " + "".join(p.get("text", "") for p in value["artifact"]["parts"]))
    return found


def state(task: dict[str, Any]) -> str:
    return str(task["status"]["state"]).removeprefix("TASK_STATE_").lower()
