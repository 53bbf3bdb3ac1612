"""An A2A agent made with a2a-sdk, on loopback in the test's own process: JSON-RPC, HTTP+JSON, gRPC, and the 0.3 forms of all.

What the user says decides what the agent does (see Script). The server keeps all requests, can cut streams after some frames,
and can ask for a bearer token.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import uvicorn
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers.default_request_handler_v2 import DefaultRequestHandlerV2
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
    a2a_pb2_grpc,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from starlette.applications import Starlette


def text_part(text: str, **metadata: Any) -> Part:
    return ParseDict({"text": text, **({"metadata": metadata} if metadata else {})}, Part())


class Script(AgentExecutor):
    """`chunks`: an artifact in three pieces. `message`: no task. `ask`: asks for a city, then greets it. `call`: a long-running
    function call, then tells its result. `echo`: the parts that came, as an artifact. `slow`: works until it is cancelled.
    `fail`, `reject`. Anything else: an artifact with the text."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.working = asyncio.Event()
        self.canceled: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        assert message is not None and context.task_id and context.context_id
        self.messages.append(MessageToDict(message))
        said = context.get_user_input()
        if said.startswith("message"):
            await event_queue.enqueue_event(
                Message(
                    message_id="m", role=Role.ROLE_AGENT, parts=[text_part("just this")], context_id=context.context_id
                )
            )
            return
        before = context.current_task
        if before is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            status.timestamp.GetCurrentTime()
            await event_queue.enqueue_event(
                Task(id=context.task_id, context_id=context.context_id, status=status, history=[message])
            )
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work(updater.new_agent_message([text_part("thinking")]))
        await self.act(said, message, updater, follow_up=before is not None)

    async def act(self, said: str, message: Message, updater: TaskUpdater, *, follow_up: bool) -> None:
        if said.startswith("ask"):
            await updater.requires_input(updater.new_agent_message([text_part("Which city?")]))
        elif said.startswith("call"):
            call = {
                "data": {"id": "call-1", "name": "approve", "args": {"sum": 3}},
                "metadata": {"adk_type": "function_call", "adk_is_long_running": True},
            }
            await updater.requires_input(updater.new_agent_message([ParseDict(call, Part())]))
        elif follow_up:
            parts = list(message.parts)
            await updater.add_artifact([text_part("Hello from "), *parts], artifact_id="a")
            await updater.complete()
        elif said.startswith("chunks"):
            for n, piece in enumerate(("Hello, ", "big ", "world!")):
                await updater.add_artifact([text_part(piece)], artifact_id="a", append=n > 0, last_chunk=n == 2)
                if n == 0:
                    await self.go_on.wait()
            await updater.complete()
        elif said.startswith("echo"):
            await updater.add_artifact(list(message.parts)[1:], artifact_id="a", last_chunk=True)
            await updater.complete()
        elif said.startswith("slow"):
            self.working.set()
            await asyncio.Event().wait()
        elif said.startswith("fail"):
            await updater.failed(updater.new_agent_message([text_part("no more tea", adk_is_error_message=True)]))
        elif said.startswith("reject"):
            await updater.reject(updater.new_agent_message([text_part("not for me")]))
        else:
            await updater.add_artifact([text_part(f"you said {said}")], artifact_id="a")
            await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id and context.context_id
        self.canceled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class CutOff(Exception):
    """The server drops the connection."""


@dataclass
class Peer:
    """`cuts` holds, for each stream to come, after how many frames it is cut; those after them are whole. `token`, if set, must
    come as a bearer token with each request."""

    url: str
    script: Script
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    token: str = ""
    app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        self.requests.append((scope["method"], scope["path"], headers))
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            refused = [(b"www-authenticate", b'Bearer realm="peer"'), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 401, "headers": refused})
            await send({"type": "http.response.body", "body": b""})
            return
        left: int | None = None

        async def cutting(message: Any) -> None:
            nonlocal left
            if message["type"] == "http.response.start":
                media = dict(message["headers"]).get(b"content-type", b"")
                if media.startswith(b"text/event-stream") and self.cuts:
                    left = self.cuts.pop(0)
            elif left is not None and message.get("body"):
                if left == 0:
                    raise CutOff
                left -= 1
            await send(message)

        await self.app(scope, receive, cutting)


class Watching(grpc.aio.ServerInterceptor):
    """What a Peer does with requests, for gRPC."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        headers = dict(details.invocation_metadata)
        self.peer.requests.append(("GRPC", details.method, headers))
        handler = await continuation(details)
        codecs = handler.request_deserializer, handler.response_serializer
        if self.peer.token and headers.get("authorization") != f"Bearer {self.peer.token}":

            async def refuse(request: Any, context: Any) -> None:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

            return grpc.unary_unary_rpc_method_handler(refuse, *codecs)
        if not handler.response_streaming or not self.peer.cuts:
            return handler
        left = self.peer.cuts.pop(0)

        async def cutting(request: Any, context: Any) -> Any:
            nonlocal left
            async for frame in handler.unary_stream(request, context):
                if left == 0:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
                left -= 1
                yield frame

        return grpc.unary_stream_rpc_method_handler(cutting, *codecs)


@asynccontextmanager
async def grpc_beside(peer: Peer, handler: Any) -> AsyncIterator[str]:
    """The agent over gRPC in both versions, at the address that is given."""
    server = grpc.aio.server(interceptors=[Watching(peer)])
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def make_card(url: str, *, bindings: list[tuple[str, str]], streaming: bool) -> AgentCard:
    return AgentCard(
        name="peer",
        description="An agent of another kit.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version=version) for binding, version in bindings
        ],
        capabilities=AgentCapabilities(streaming=streaming, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="s", name="s", description="does what it is told", tags=["t"])],
    )


@asynccontextmanager
async def a2a_peer(
    *bindings: tuple[str, str], streaming: bool = True, cache_control: str | None = None
) -> AsyncIterator[Peer]:
    """The agent behind a card with `bindings` (binding, version), JSON-RPC 1.0 by default."""
    logs = [logging.getLogger(name) for name in ("a2a", "uvicorn.error", "sse_starlette")]
    for logger in logs:
        logger.setLevel(logging.CRITICAL + 1)  # a stream that is cut is no news
    script = Script()
    peer = Peer("", script)
    server = uvicorn.Server(
        uvicorn.Config(peer, host="127.0.0.1", port=0, lifespan="off", log_config=None, ws="none", loop="none")
    )
    server.install_signal_handlers = lambda: None  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
        peer.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        card = make_card(peer.url, bindings=list(bindings) or [("JSONRPC", "1.0")], streaming=streaming)
        handler = DefaultRequestHandlerV2(
            script, InMemoryTaskStore(), card, push_config_store=InMemoryPushNotificationConfigStore()
        )
        peer.app = Starlette(
            routes=[
                *create_agent_card_routes(card, cache_control=cache_control),
                *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
                *create_rest_routes(handler, enable_v0_3_compat=True),
            ]
        )
        try:
            async with AsyncExitStack() as stack:
                if any(interface.protocol_binding == "GRPC" for interface in card.supported_interfaces):
                    address = await stack.enter_async_context(grpc_beside(peer, handler))
                    for interface in card.supported_interfaces:
                        interface.url = address if interface.protocol_binding == "GRPC" else interface.url
                yield peer
        finally:
            script.go_on.set()
            server.should_exit = True
            server.force_exit = True
            await serving
            for logger in logs:
                logger.setLevel(logging.NOTSET)
