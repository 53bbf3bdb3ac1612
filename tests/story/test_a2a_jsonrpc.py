"""A2A over JSON-RPC: envelopes, ids and notifications; and A2A 0.3 at the same URLs, over JSON-RPC, REST and gRPC."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import grpc.aio
import pytest

from polyport import LlmAgent, make_tool
from polyport.data.limits import Limits
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.protocols.a2a.settings import A2aSettings
from polyport.testing import ScriptedModel, call
from polyport.wire import a2a_proto
from support.a2a_talk import Gate
from support.a2a_wires import JSON, Said, Wire, echoing, message, state, wired

TASK_ROOTS = [
    "/",
    "/a2a",
    "/a2a/",
    "/a2a/v1/invoke",
    "/a2a/v1/invoke/",
    "/a2a/invoke",
    "/a2a/invoke/",
    "/a2a/app",
    "/a2a/app/",
]


def ticket() -> None:
    """Ask a human."""


def asking(*steps: Any) -> LlmAgent:
    return LlmAgent(name="app", model=ScriptedModel(*steps), tools=[make_tool(ticket, long_running=True)])


async def post(wire: Wire, body: Any, **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = await wire.client.post("/a2a", body=content, headers={**JSON, **headers})
    assert response.status == 200, response.text
    return response.json()


# ---- envelopes


@pytest.mark.parametrize("path", TASK_ROOTS)
async def test_a2a_every_root_takes_calls(path: str):
    async with wired("jsonrpc", echoing()) as wire:
        wire.path = path
        assert state((await wire.send())["task"]) == "completed"


@pytest.mark.parametrize(
    ("body", "code", "id"),
    [
        (b'{"jsonrpc":"2.0",', -32700, None),
        (b"", -32700, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ListTasks"}]', -32600, None),
        (b"{}", -32600, None),
        (b'"call"', -32600, None),
        (b'{"jsonrpc":"2.0","id":7}', -32600, 7),
        (b'{"jsonrpc":"1.0","id":7,"method":"ListTasks"}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":{},"method":"ListTasks"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"Nope"}', -32601, 7),
        (b'{"jsonrpc":"2.0","id":"a","method":"ListTasks","params":[]}', -32602, "a"),
        (b'{"jsonrpc":"2.0","id":7,"method":"ListTasks","params":"x"}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"GetTask","params":{}}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"GetTask","params":{"id":5}}', -32602, 7),
    ],
)
async def test_T070_FR_152_what_is_no_call(body: bytes, code: int, id: Any):
    async with wired("jsonrpc", echoing()) as wire:
        answer = await post(wire, body)
        assert (answer["error"]["code"], answer["id"]) == (code, id)
        assert answer["error"]["data"][0]["domain"] == "a2a-protocol.org"


@pytest.mark.parametrize("id", ["a", "", 7, -1.5, None, 12345678901234567890])
async def test_T071_ids_come_back_as_they_were(id: Any):
    async with wired("jsonrpc", echoing()) as wire:
        answer = await post(wire, {"jsonrpc": "2.0", "id": id, "method": "ListTasks"})
        assert (answer["id"], type(answer["id"])) == (id, type(id))
        answer = await post(wire, {"jsonrpc": "2.0", "id": id, "method": "GetTask", "params": {"id": "x"}})
        assert (answer["id"], answer["error"]["code"]) == (id, -32001)


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage", "message/send"])
async def test_T071_a_notification_is_carried_out_and_not_answered(method: str):
    gate = Gate()
    agent = LlmAgent(name="app", model=ScriptedModel(call("wait"), "done"), tools=[gate.wait])
    said = message() if "/" not in method else {**old_message(), "messageId": "m1"}
    async with wired("jsonrpc", agent) as wire:
        body = {"jsonrpc": "2.0", "method": method, "params": {"message": said}}
        with anyio.fail_after(10):
            response = await wire.client.post("/a2a", json=body)
            assert (response.status, response.body) == (204, b"")
            await gate.begun.wait()
        gate.go.set()
        response = await wire.client.post("/a2a", json={"jsonrpc": "2.0", "method": "Nope"})
        assert (response.status, response.body) == (204, b"")


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/json; charset=latin-1", ""])
async def test_T072_the_content_type_is_looked_at_first(kind: str):
    async with wired("jsonrpc", echoing()) as wire:
        headers = {"content-type": kind} if kind else {}
        response = await wire.client.post("/a2a", body=b"{'id': 1}", headers=headers)
        assert (response.status, response.json()["error"]["code"]) == (200, -32005)


async def test_a2a_only_posts_are_calls():
    async with wired("jsonrpc", echoing()) as wire:
        response = await wire.client.get("/a2a/v1/invoke")
        assert (response.status, response.headers["allow"]) == (405, "OPTIONS, POST")


# ---- 0.3


def old_message(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"kind": "message", "messageId": "o1", "role": "user", "parts": [{"kind": "text", "text": text}], **more}


async def old(wire: Wire, method: str, params: dict[str, Any]) -> Any:
    answer = await post(wire, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    return answer["result"] if "result" in answer else answer["error"]


async def old_stream(wire: Wire, method: str, params: dict[str, Any]) -> list[dict[str, Any]]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with wire.client.stream("POST", "/a2a", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        return [json.loads(event.data)["result"] async for event in response.events()]


async def test_T080_the_old_spelling():
    async with wired("jsonrpc", echoing()) as wire:
        task = await old(wire, "message/send", {"message": old_message()})
        assert (task["kind"], task["status"]["state"]) == ("task", "completed")
        assert task["artifacts"][0]["parts"][0] == {"kind": "text", "text": "you said: hi"}
        assert (task["history"][0]["kind"], task["history"][0]["role"]) == ("message", "user")
        frames = await old_stream(wire, "message/stream", {"message": old_message(messageId="o2")})
        assert [f["kind"] for f in frames][:2] == ["task", "status-update"]
        assert [f.get("final") for f in frames if f["kind"] == "status-update"] == [False, True]
        assert frames[-1]["status"]["state"] == "completed"


async def test_T080_a_stream_ends_at_a_question_and_a_subscription_stays():
    async with wired("jsonrpc", asking(call("ticket", {}, "c1"), "thanks")) as wire:
        frames = await old_stream(wire, "message/stream", {"message": old_message()})
        assert (frames[-1]["status"]["state"], frames[-1]["final"]) == ("input-required", True)
        task_id = frames[0]["id"]
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": task_id}}
        async with wire.client.stream("POST", "/a2a", json=body) as response:
            events = response.events()
            first = json.loads((await anext(events)).data)["result"]
            assert (first["kind"], first["status"]["state"]) == ("task", "input-required")
            answer = {"id": "c1", "name": "ticket", "response": {"ok": True}}
            parts = [{"kind": "data", "data": answer, "metadata": {"adk_type": "function_response"}}]
            reply = {**old_message(messageId="o2", taskId=task_id), "parts": parts}
            task = await old(wire, "message/send", {"message": reply})
            assert task["status"]["state"] == "completed"
            rest = [json.loads(event.data)["result"] async for event in events]
        assert [f["final"] for f in rest if f["kind"] == "status-update"] == [False, True]


async def test_T080_only_the_last_frame_of_a_stream_is_final():
    """A client of 0.3 leaves at the first final frame, and a message that waits sees the question of the turn before it."""
    gate = Gate()
    asks = make_tool(ticket, long_running=True)
    agent = LlmAgent(name="app", model=ScriptedModel(call("wait"), call("ticket", {}, "c1")), tools=[gate.wait, asks])
    async with wired("jsonrpc", agent) as wire, anyio.create_task_group() as group:
        task = (await wire.send(configuration={"returnImmediately": True}))["task"]
        await gate.begun.wait()
        found: list[dict[str, Any]] = []

        async def late() -> None:
            said = old_message(messageId="o2", taskId=task["id"])
            found.extend(await old_stream(wire, "message/stream", {"message": said}))

        group.start_soon(late)
        while len((await wire.call("GetTask", {"id": task["id"]}))["history"]) < 2:
            await anyio.lowlevel.checkpoint()
        gate.go.set()
    told = [(f["status"]["state"], f["final"]) for f in found if f["kind"] == "status-update"]
    assert told == [("input-required", False), ("input-required", True)]


async def test_T081_FR_156_blocking_in_the_old_sense():
    gate = Gate()
    agent = LlmAgent(name="app", model=ScriptedModel(call("wait"), "done", "again"), tools=[gate.wait])
    async with wired("jsonrpc", agent) as wire:
        with anyio.fail_after(10):
            params = {"message": old_message(), "configuration": {"blocking": False}}
            task = await old(wire, "message/send", params)
        assert task["status"]["state"] in ("submitted", "working")
        gate.go.set()
        task = await old(wire, "message/send", {"message": old_message(messageId="o2")})
        assert task["status"]["state"] == "completed"


async def test_T082_push_configurations_in_the_old_form():
    async with wired("jsonrpc", echoing(), push=PushSettings(allow_private=True, allow_http=True)) as wire:
        task = await old(wire, "message/send", {"message": old_message()})
        config = {"id": "p1", "url": "http://127.0.0.1:9/x", "authentication": {"schemes": ["Bearer"]}}
        params = {"taskId": task["id"], "pushNotificationConfig": config}
        assert await old(wire, "tasks/pushNotificationConfig/set", params) == params
        named = {"id": task["id"], "pushNotificationConfigId": "p1"}
        assert await old(wire, "tasks/pushNotificationConfig/get", named) == params
        assert await old(wire, "tasks/pushNotificationConfig/get", {"id": task["id"]}) == params
        assert await old(wire, "tasks/pushNotificationConfig/list", {"id": task["id"]}) == [params]
        assert await old(wire, "tasks/pushNotificationConfig/delete", named) is None
        assert await old(wire, "tasks/pushNotificationConfig/list", {"id": task["id"]}) == []
        assert (await old(wire, "tasks/pushNotificationConfig/get", {"id": task["id"]}))["code"] == -32001


async def test_T083_old_mistakes():
    async with wired("jsonrpc", echoing()) as wire:
        assert (await old(wire, "message/send", {}))["code"] == -32602
        assert (await old(wire, "message/send", {"message": {**old_message(), "parts": "x"}}))["code"] == -32602
        assert (await old(wire, "tasks/get", {"id": "nope"}))["code"] == -32001
        assert (await old(wire, "tasks/nothing", {}))["code"] == -32601
        assert (await old(wire, "agent/getAuthenticatedExtendedCard", {}))["code"] == -32004
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "x"}}
        assert (await post(wire, body, **{"a2a-version": "1.0"}))["error"]["code"] == -32600
        assert (await post(wire, body, **{"a2a-version": "0.3"}))["error"]["code"] == -32001
        assert (await post(wire, {**body, "method": "GetTask"}, **{"a2a-version": "0.3"}))["error"]["code"] == -32009
    async with wired("jsonrpc", echoing(), settings=A2aSettings(versions=("1.0",))) as wire:
        assert (await old(wire, "message/send", {"message": old_message()}))["code"] == -32601
        assert (await wire.client.post("/a2a/v1/message:send", json={})).status == 404


async def test_T084_the_old_rest_paths():
    said = {"messageId": "o1", "role": "ROLE_USER", "content": [{"text": "hi"}]}
    async with wired("rest", echoing(), push=PushSettings(allow_private=True, allow_http=True)) as wire:
        response = await wire.client.post("/v1/message:send", json={"message": said})
        assert (response.status, response.headers["content-type"]) == (200, "application/json")
        task = response.json()["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert task["history"][0]["content"] == [{"text": "hi"}]
        assert (await wire.client.get(f"/a2a/app/v1/tasks/{task['id']}")).json()["id"] == task["id"]
        assert (await wire.client.get(f"/v1/tasks/{task['id']}", query={"historyLength": 0})).json()["history"]
        async with wire.client.stream(
            "POST", "/v1/message:stream", json={"message": {**said, "messageId": "o2"}}
        ) as stream:
            frames = [json.loads(event.data) async for event in stream.events()]
        assert "task" in frames[0] and frames[-1]["statusUpdate"]["final"] is True
        response = await wire.client.post(f"/v1/tasks/{task['id']}:cancel", json={})
        assert (response.status, response.json()["type"]) == (400, "TaskNotCancelableError")
        response = await wire.client.get(f"/v1/tasks/{task['id']}:subscribe")
        assert response.status == 400
        config = {"config": {"pushNotificationConfig": {"id": "p", "url": "http://127.0.0.1:9/"}}}
        made = await wire.client.post(f"/v1/tasks/{task['id']}/pushNotificationConfigs", json=config)
        assert made.json()["name"] == f"tasks/{task['id']}/pushNotificationConfigs/p"
        assert (await wire.client.get(f"/v1/tasks/{task['id']}/pushNotificationConfigs/p")).json() == made.json()
        assert (await wire.client.request("DELETE", f"/v1/tasks/{task['id']}/pushNotificationConfigs/p")).status == 200
        assert (await wire.client.get("/v1/card")).status == 400


async def test_T084_the_old_grpc_package():
    async with wired("grpc", echoing(), push=PushSettings(allow_private=True, allow_http=True)) as wire:  # noqa: SIM117  wire
        async with grpc.aio.insecure_channel(f"127.0.0.1:{wire.server.grpc.port}") as channel:

            async def ask(method: str, takes: str, gives: str, **request: Any) -> Any:
                wire = a2a_proto.from_json(f"a2a.v1.{takes}", json.dumps(request))
                found = await channel.unary_unary(f"/a2a.v1.A2AService/{method}")(wire, timeout=20)
                return json.loads(a2a_proto.to_json(gives if "." in gives else f"a2a.v1.{gives}", found))

            said = {"messageId": "o1", "role": "ROLE_USER", "content": [{"text": "hi"}]}
            task = (await ask("SendMessage", "SendMessageRequest", "SendMessageResponse", message=said))["task"]
            name = f"tasks/{task['id']}"
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            assert (await ask("GetTask", "GetTaskRequest", "Task", name=name))["id"] == task["id"]
            config = {"pushNotificationConfig": {"url": "http://127.0.0.1:9/"}}
            kind = "CreateTaskPushNotificationConfigRequest"
            made = await ask(
                "CreateTaskPushNotificationConfig",
                kind,
                "TaskPushNotificationConfig",
                parent=name,
                configId="p",
                config=config,
            )
            assert made["name"] == f"{name}/pushNotificationConfigs/p"
            listed = await ask(
                "ListTaskPushNotificationConfig",
                "ListTaskPushNotificationConfigRequest",
                "ListTaskPushNotificationConfigResponse",
                parent=name,
            )
            assert listed == {"configs": [made]}
            for method in ("Get", "Delete"):
                await ask(
                    f"{method}TaskPushNotificationConfig",
                    f"{method}TaskPushNotificationConfigRequest",
                    "TaskPushNotificationConfig" if method == "Get" else a2a_proto.EMPTY,
                    name=made["name"],
                )
            for wrong in ("", "tasks", "projects/x", f"{name}/else/p"):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await ask("GetTask", "GetTaskRequest", "Task", name=wrong)
                assert caught.value.code().name == "INVALID_ARGUMENT"
            body = a2a_proto.from_json(
                "a2a.v1.SendMessageRequest", json.dumps({"message": {**said, "messageId": "o2"}})
            )
            frames = [
                json.loads(a2a_proto.to_json("a2a.v1.StreamResponse", frame))
                async for frame in channel.unary_stream("/a2a.v1.A2AService/SendStreamingMessage")(body, timeout=20)
            ]
            assert "task" in frames[0] and frames[-1]["statusUpdate"]["final"] is True


async def test_T085_one_task_in_both_versions():
    parts = [
        {"kind": "text", "text": "see"},
        {"kind": "file", "file": {"bytes": "AAEC", "mimeType": "image/png", "name": "a.png"}},
        {"kind": "file", "file": {"uri": "https://x.test/a", "mimeType": "image/png"}},
        {"kind": "data", "data": {"a": [1, None]}},
    ]
    new_parts = [
        {"text": "see"},
        {"raw": "AAEC", "mediaType": "image/png", "filename": "a.png"},
        {"url": "https://x.test/a", "mediaType": "image/png"},
        {"data": {"a": [1, None]}},
    ]
    async with wired("jsonrpc", echoing()) as wire:
        task = await old(wire, "message/send", {"message": {**old_message(), "parts": parts}})
        seen = await wire.call("GetTask", {"id": task["id"]})
        assert (seen["history"][0]["parts"], state(seen)) == (new_parts, "completed")
        sent = (await wire.call("SendMessage", {"message": {**message(), "parts": new_parts}}, Said()))["task"]
        seen = await old(wire, "tasks/get", {"id": sent["id"]})
        assert (seen["history"][0]["parts"], seen["status"]["state"]) == (parts, "completed")


# ---- streams that are quiet


async def test_T035_a_quiet_stream_is_kept_alive_and_a_hang_up_changes_nothing():
    gate = Gate()
    agent = LlmAgent(name="app", model=ScriptedModel(call("wait"), "done"), tools=[gate.wait])
    async with wired("jsonrpc", agent, limits=Limits(heartbeat_s=0.002)) as wire:
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message()}}
        async with wire.client.stream("POST", "/a2a", json=body) as response:
            lines = response.lines()
            first = json.loads((await anext(lines)).removeprefix("data: "))
            async for line in lines:
                if line == ": ping":
                    break
        assert response.late_writes == 0
        assert not gate.cancelled.is_set()
        asked = {"id": first["result"]["task"]["id"]}
        body = {"jsonrpc": "2.0", "id": 2, "method": "SubscribeToTask", "params": asked}
        async with wire.client.stream("POST", "/a2a", json=body) as response:
            events = response.events()
            await anext(events)
            gate.go.set()
            frames = [json.loads(event.data)["result"] async for event in events]
        assert state(frames[-1]["statusUpdate"]) == "completed"
