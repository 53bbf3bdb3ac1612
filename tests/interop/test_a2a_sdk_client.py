"""The official A2A client (a2a-sdk) talks to us: every binding in both versions, over loopback."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from a2a.client.card_resolver import A2ACardResolver
from a2a.client.client import Client, ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import A2AError
from a2a.utils.signing import create_signature_verifier
from google.protobuf.json_format import MessageToDict, ParseDict
from grpc import aio
from joserfc import jwk

from interop.mcp_servers.lab import listening
from polyport import App, LlmAgent, make_tool
from polyport.protocols.a2a.card import CardConfig
from polyport.protocols.a2a.mount import A2a
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.testing import ScriptedModel, call, chunks
from polyport.wire import a2a_sign
from support.a2a_hook import hooked
from support.a2a_talk import Gate
from support.a2a_wires import kinds, message, state

VERSIONS = ["1.0", "0.3"]
SDK_BINDINGS = ["JSONRPC", "HTTP+JSON", "GRPC"]
each = pytest.mark.parametrize(("binding", "version"), [(b, v) for b in SDK_BINDINGS for v in VERSIONS])
NEW = pytest.mark.parametrize("binding", SDK_BINDINGS)


def ticket() -> None:
    """Ask a human."""


def llm(*steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name="app", model=ScriptedModel(*steps), **fields)


@asynccontextmanager
async def served(agent: Any, **options: Any) -> AsyncGenerator[str]:
    push = PushSettings(allow_http=True, allow_private=True)
    app = App(agent, protocols=["rest", A2a(grpc="127.0.0.1:0", push=push, **options)])
    async with listening(app.asgi) as url:
        yield url


@asynccontextmanager
async def connected(url: str, binding: str, version: str = "1.0", *, streaming: bool = True) -> AsyncGenerator[Client]:
    """The client of a binding; its card has no other."""
    async with httpx.AsyncClient(timeout=20) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        wanted = [
            i for i in card.supported_interfaces if (i.protocol_binding, i.protocol_version) == (binding, version)
        ]
        assert len(wanted) == 1
        only = AgentCard()
        only.CopyFrom(card)
        del only.supported_interfaces[:]
        only.supported_interfaces.append(wanted[0])

        def channel(target: str) -> Any:
            return aio.insecure_channel(target.removeprefix("http://"))

        config = ClientConfig(
            streaming=streaming,
            httpx_client=http,
            grpc_channel_factory=channel,
            supported_protocol_bindings=[binding],
        )
        async with ClientFactory(config).create(only) as client:
            yield client


def request(text: str = "hi", **more: Any) -> SendMessageRequest:
    configuration = more.pop("configuration", {})
    return ParseDict({"message": message(text, **more), "configuration": configuration}, SendMessageRequest())


async def frames(stream: Any) -> list[dict[str, Any]]:
    with anyio.fail_after(20):
        return [MessageToDict(frame) async for frame in stream]


@each
async def test_sdk_send(binding: str, version: str):
    async with served(llm("hello there")) as url, connected(url, binding, version, streaming=False) as client:
        (answer,) = await frames(client.send_message(request()))
        task = answer["task"]
        assert (state(task), task["artifacts"][0]["parts"]) == ("completed", [{"text": "hello there"}])
        found = MessageToDict(await client.get_task(GetTaskRequest(id=task["id"])))
        assert found["history"][0]["parts"] == [{"text": "hi"}]


@each
async def test_sdk_stream(binding: str, version: str):
    async with served(llm(chunks("a", "b", "c"))) as url, connected(url, binding, version) as client:
        found = kinds(await frames(client.send_message(request())))
    assert found[:2] == ["task submitted", "status working"]
    assert found[-1] == "status completed"
    assert "artifact abc" in found


@each
async def test_sdk_subscribe(binding: str, version: str):
    gate = Gate()
    async with served(llm(call("wait"), "done", tools=[gate.wait])) as url:
        async with connected(url, binding, version, streaming=False) as client:
            (answer,) = await frames(client.send_message(request(configuration={"returnImmediately": True})))
            task_id = answer["task"]["id"]
            with anyio.fail_after(20):
                await gate.begun.wait()
        async with connected(url, binding, version) as client:
            stream = client.subscribe(SubscribeToTaskRequest(id=task_id))
            with anyio.fail_after(20):
                first = MessageToDict(await anext(stream))
            gate.go.set()
            found = kinds([first, *await frames(stream)])
    assert found[0] == "task working"
    assert found[-2:] == ["artifact done", "status completed"]


@each
async def test_sdk_cancel(binding: str, version: str):
    gate = Gate()
    agent = llm(call("wait"), tools=[gate.wait])
    async with served(agent) as url, connected(url, binding, version, streaming=False) as client:
        (answer,) = await frames(client.send_message(request(configuration={"returnImmediately": True})))
        with anyio.fail_after(20):
            await gate.begun.wait()
            task = MessageToDict(await client.cancel_task(CancelTaskRequest(id=answer["task"]["id"])))
            assert state(task) == "canceled"
            await gate.cancelled.wait()


@each
async def test_sdk_push(binding: str, version: str):
    async with hooked() as hook, served(llm("one")) as url, connected(url, binding, version, streaming=False) as client:
        secret = {"scheme": "Bearer", "credentials": "tok-1"}
        config = {"id": "p1", "url": hook.url, "token": "tok-2", "authentication": secret}
        asked = request(configuration={"taskPushNotificationConfig": config})
        (answer,) = await frames(client.send_message(asked))
        task_id = answer["task"]["id"]
        await hook.until(4)
        assert kinds(hook.bodies)[-1] == "status completed"
        assert hook.got[0][1]["authorization"] == "Bearer tok-1"
        other = TaskPushNotificationConfig(task_id=task_id, id="p2", url=hook.url)
        made = await client.create_task_push_notification_config(other)
        assert (made.id, made.task_id) == ("p2", task_id)
        if version == "1.0":
            listed = await client.list_task_push_notification_configs(
                ListTaskPushNotificationConfigsRequest(task_id=task_id)
            )
            assert [c.id for c in listed.configs] == ["p1", "p2"]


@each
async def test_sdk_a_question_and_its_answer(binding: str, version: str):
    agent = llm(call("ticket", {}, "c1"), "thanks", tools=[make_tool(ticket, long_running=True)])
    async with served(agent) as url, connected(url, binding, version) as client:
        found = await frames(client.send_message(request()))
        assert kinds(found)[-1] == "status input_required"
        task: dict[str, Any] = found[0]["task"]
        answer = {"id": "c1", "name": "ticket", "response": {"ok": True}}
        parts = [{"data": answer, "metadata": {"adk_type": "function_response"}}]
        again = request(messageId="m2", taskId=task["id"], contextId=task["contextId"], parts=parts)
        assert kinds(await frames(client.send_message(again)))[-1] == "status completed"


@NEW
async def test_sdk_lists(binding: str):
    async with served(llm("one", "two")) as url, connected(url, binding, streaming=False) as client:
        for n in range(2):
            await frames(client.send_message(request(messageId=f"m{n}", contextId=f"c{n}")))
        found = await client.list_tasks(ListTasksRequest(page_size=1))
        assert (len(found.tasks), found.total_size, bool(found.next_page_token)) == (1, 2, True)
        found = await client.list_tasks(ListTasksRequest(context_id="c0", include_artifacts=True))
        assert [task.artifacts[0].parts[0].text for task in found.tasks] == ["one"]


@each
async def test_sdk_errors_have_their_names(binding: str, version: str):
    async with served(llm("one")) as url, connected(url, binding, version, streaming=False) as client:
        with pytest.raises((A2AError, A2AClientError)) as caught:
            await client.get_task(GetTaskRequest(id="nope"))
        assert "NotFound" in type(caught.value).__name__ or "no task" in str(caught.value)


async def test_sdk_verifies_our_signature():
    key = a2a_sign.new_key("k1")
    public = a2a_sign.public_keys([key])["keys"][0]
    asked: list[Any] = []

    def find(kid: str | None, jku: str | None) -> Any:
        asked.append(kid)
        return jwk.import_key(public).as_pem(private=False).decode()

    async with served(llm("one"), card=CardConfig(keys=[key])) as url, httpx.AsyncClient() as http:
        verifier = create_signature_verifier(find, ["ES256"])
        card = await A2ACardResolver(http, url).get_agent_card(signature_verifier=verifier)
    assert (card.name, asked) == ("app", ["k1"])


async def test_sdk_reads_our_task_as_it_is():
    """Task snapshots and numbers in metadata survive the official protobuf."""
    async with served(llm("one")) as url, httpx.AsyncClient() as http:
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message()}}
        answer = (await http.post(url, json=body)).json()["result"]["task"]
        assert MessageToDict(ParseDict(answer, Task())) == answer
