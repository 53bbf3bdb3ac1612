"""Runs that A2A calls start belong to the trace of the call, over HTTP and over gRPC."""

from typing import Any

import grpc.aio
from a2a.types import a2a_pb2, a2a_pb2_grpc

from polyport import App, LlmAgent
from polyport.protocols.a2a.mount import A2a, A2aServer
from polyport.testing import ScriptedModel, connect
from support.spans import Telemetry

PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"


class Kept:
    """A2A, whose server stays at hand."""

    server: A2aServer

    def __init__(self, a2a: A2a) -> None:
        self._a2a = a2a

    def mount(self, parts: Any) -> A2aServer:
        self.server = self._a2a.mount(parts)
        return self.server


def check(telemetry: Telemetry) -> None:
    span = telemetry.span("invoke_agent root")
    assert span.context is not None and span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (int("ab" * 16, 16), int("cd" * 8, 16))


def agent() -> LlmAgent:
    return LlmAgent(name="root", model=ScriptedModel("hi", name="mock"))


async def test_a_task_over_json_rpc_is_in_the_trace_of_the_call():
    telemetry = Telemetry()
    async with connect(App(agent(), plugins=[telemetry.plugin], protocols=["a2a"])) as client:
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        answer = await client.post("/a2a", json=call, headers={"traceparent": PARENT, "a2a-version": "1.0"})
        assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    check(telemetry)


async def test_a_task_over_grpc_is_in_the_trace_of_the_call():
    telemetry = Telemetry()
    kept = Kept(A2a(grpc="127.0.0.1:0"))
    async with connect(App(agent(), plugins=[telemetry.plugin], protocols=[kept])):
        assert kept.server.grpc is not None
        async with grpc.aio.insecure_channel(f"127.0.0.1:{kept.server.grpc.port}") as channel:
            message = a2a_pb2.Message(message_id="m1", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text="hello")])
            stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
            request = a2a_pb2.SendMessageRequest(message=message)
            answer = await stub.SendMessage(request, metadata=(("traceparent", PARENT),))
            assert answer.task.status.state == a2a_pb2.TASK_STATE_COMPLETED
    check(telemetry)
