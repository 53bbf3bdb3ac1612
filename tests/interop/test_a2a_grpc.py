"""Our protobuf messages are the official ones, of both versions, and our gRPC server answers the official stubs."""

from contextlib import suppress
from typing import Any

import anyio
import anyio.abc
import grpc.aio
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc
from anyio.abc import ByteStream, SocketStream
from google.rpc import error_details_pb2, status_pb2

from polyport import LlmAgent
from polyport.testing import ScriptedModel, call
from polyport.wire import a2a_proto
from support.a2a_talk import Gate
from support.a2a_wires import echoing, wired

SOON = (("grpc.keepalive_time_ms", 50), ("grpc.http2.ping_timeout_ms", 50))
FILES = {a2a_proto.V10: a2a_pb2, a2a_proto.V03: a2a_v0_3_pb2}


def shape(descriptor: Any) -> set[Any]:
    return {
        (
            f.number,
            f.name,
            f.type,
            f.is_repeated,
            f.json_name,
            f.has_presence,
            f.message_type and f.message_type.full_name,
        )
        for f in descriptor.fields
    }


@pytest.mark.parametrize("package", FILES)
def test_a2a_every_message_is_the_official_one(package: str):
    official = FILES[package].DESCRIPTOR
    for name, theirs in official.message_types_by_name.items():
        ours = a2a_proto.message_class(f"{package}.{name}").DESCRIPTOR
        assert shape(ours) == shape(theirs), name
        groups = [{f.name for f in o.fields} for o in theirs.oneofs]
        assert [{f.name for f in o.fields} for o in ours.oneofs] == groups, name
    task = a2a_proto.message_class(f"{package}.TaskStatus").DESCRIPTOR
    for name, theirs in official.enum_types_by_name.items():
        kind = task if name == "TaskState" else a2a_proto.message_class(f"{package}.Message").DESCRIPTOR
        ours = next(f.enum_type for f in kind.fields if f.enum_type is not None)
        assert {v.name: v.number for v in ours.values} == {v.name: v.number for v in theirs.values}


async def test_a2a_the_official_stubs_and_the_official_errors():
    async with (
        wired("grpc", echoing()) as wire,
        grpc.aio.insecure_channel(f"127.0.0.1:{wire.server.grpc.port}") as channel,
    ):
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        message = a2a_pb2.Message(message_id="m1", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text="hi")])
        answer = await stub.SendMessage(a2a_pb2.SendMessageRequest(message=message))
        assert answer.task.status.state == a2a_pb2.TASK_STATE_COMPLETED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetTask(a2a_pb2.GetTaskRequest(id="nope", history_length=-1))
        trailers = dict(caught.value.trailing_metadata() or ())
        status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])  # pyright: ignore
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        assert status.details[0].Unpack(info) and status.details[1].Unpack(bad)
        assert (info.domain, info.reason) == ("a2a-protocol.org", "INVALID_ARGUMENT")
        assert bad.field_violations[0].field == "historyLength"
        old = a2a_v0_3_pb2_grpc.A2AServiceStub(channel)
        found = await old.GetTask(a2a_v0_3_pb2.GetTaskRequest(name=f"tasks/{answer.task.id}"))
        assert found.history[0].content[0].text == "hi"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/lf.a2a.v1.A2AService/Nope")(b"")
        assert caught.value.code().name == "UNIMPLEMENTED"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")(b"\xff\xff\xff")
        assert caught.value.code().name == "INVALID_ARGUMENT"


async def test_a2a_a_caller_that_vanished_without_a_word_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """Its packets, and those for it, get lost; nobody closes anything."""
    monkeypatch.setattr("polyport.protocols.a2a.grpc.KEEPALIVE", SOON)
    gone, noticed = anyio.Event(), anyio.Event()

    async def carry(source: ByteStream, sink: ByteStream) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                data = await source.receive()
                if not gone.is_set():
                    await sink.send(data)

    async def lossy(caller: SocketStream) -> None:
        async with caller, await anyio.connect_tcp("127.0.0.1", port) as server, anyio.create_task_group() as both:
            both.start_soon(carry, caller, server)
            await carry(server, caller)
            noticed.set()
            both.cancel_scope.cancel()

    gate = Gate()
    agent = LlmAgent(name="app", model=ScriptedModel(call("wait"), "done"), tools=[gate.wait])
    with anyio.fail_after(20):
        way = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with way, wired("grpc", agent) as wire, anyio.create_task_group() as group:
            port = wire.server.grpc.port
            group.start_soon(way.serve, lossy)
            address = way.extra(anyio.abc.SocketAttribute.local_port)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{address}") as channel:
                stub = a2a_pb2_grpc.A2AServiceStub(channel)
                message = a2a_pb2.Message(message_id="m1", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text="hi")])
                frames = stub.SendStreamingMessage(a2a_pb2.SendMessageRequest(message=message))
                assert (await frames.read()).HasField("task")
                await gate.begun.wait()
                gone.set()
                await noticed.wait()
                gate.go.set()
            group.cancel_scope.cancel()


@pytest.mark.parametrize("wire", [b"", b"\x0a\x02hi"])
def test_a2a_details_of_unknown_types_are_left_out(wire: bytes):
    status = status_pb2.Status(code=5, message="x")
    status.details.add(type_url="type.googleapis.com/some.Else", value=wire)
    status.details.add(type_url="no slash", value=wire)
    assert a2a_proto.read_status(status.SerializeToString()) == (5, "x", [])
