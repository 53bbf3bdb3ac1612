"""A2A over its bindings: what is the same over JSON-RPC, HTTP+JSON and gRPC, and what is special to HTTP+JSON."""

import base64
import json
import re
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from polyport import Agent, App, LlmAgent, make_tool
from polyport.data.limits import Limits
from polyport.protocols.a2a.card import CardConfig
from polyport.protocols.a2a.settings import A2aSettings, ExecutorConfig
from polyport.testing import ScriptedModel, call, chunks, connect
from polyport.wire.a2a import Message, Role
from polyport.wire.a2a import Part as A2aPart
from support.a2a_talk import Gate
from support.a2a_wires import BINDINGS, JSON, PLAIN, Failed, Said, Wire, echoing, kinds, message, state, wired

bindings = pytest.mark.parametrize("binding", BINDINGS)
http_bindings = pytest.mark.parametrize("binding", ["jsonrpc", "rest"])
EXT = "urn:test:extension"
BAD = (-32602, 400, "INVALID_ARGUMENT")
MISSING = (-32001, 404, "NOT_FOUND")


def ticket() -> None:
    """Ask a human."""


def asking(*steps: Any) -> LlmAgent:
    return LlmAgent(name="app", model=ScriptedModel(*steps), tools=[make_tool(ticket, long_running=True)])


def waiting(gate: Gate, *rest: Any) -> LlmAgent:
    return LlmAgent(name="app", model=ScriptedModel(call("wait"), *rest), tools=[gate.wait])


async def refused(wire: Wire, operation: str, params: dict[str, Any], said: Said = PLAIN) -> Failed:
    with pytest.raises(Failed) as caught:
        if operation in ("SendStreamingMessage", "SubscribeToTask"):
            await wire.stream(operation, params, said)
        else:
            await wire.call(operation, params, said)
    return caught.value


def replies(id: str) -> list[dict[str, Any]]:
    """Parts that answer the call of `ticket`."""
    return [
        {"data": {"id": id, "name": "ticket", "response": {"ok": True}}, "metadata": {"adk_type": "function_response"}}
    ]


# ---- requests


@bindings
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messageId": ""}, "message.messageId"),
        ({"role": "ROLE_UNSPECIFIED"}, "message.role"),
        ({"parts": []}, "message.parts"),
        ({"parts": [{"metadata": {"a": 1}}]}, "message.parts[0]"),
    ],
)
async def test_T020_a_message_that_lacks_something(binding: str, change: dict[str, Any], field: str):
    async with wired(binding, echoing()) as wire:
        error = await refused(wire, "SendMessage", {"message": {**message(), **change}})
        assert error.code in BAD
        assert error.reason == "INVALID_ARGUMENT"
        assert error.fields == [field]
        assert not (await wire.call("ListTasks", {})).get("tasks")


@bindings
async def test_T021_clients_do_not_speak_for_the_agent(binding: str):
    async with wired(binding, echoing()) as wire:
        error = await refused(wire, "SendMessage", {"message": message(role="ROLE_AGENT")})
        assert (error.code in BAD, error.fields) == (True, ["message.role"])


@bindings
async def test_T022_FR_164_media_types_are_checked_when_asked_for(binding: str):
    settings = A2aSettings(input_modes=("text/plain",))
    async with wired(binding, echoing(), settings=settings) as wire:
        wrong = {**message(), "parts": [{"raw": "AAAA", "mediaType": "application/x-foo"}]}
        error = await refused(wire, "SendMessage", {"message": wrong})
        assert error.code in (-32005, 400, "INVALID_ARGUMENT")
        assert error.reason == "CONTENT_TYPE_NOT_SUPPORTED"
        # What a caller would rather have is a wish: an agent answers as it can.
        sent = await wire.send(configuration={"acceptedOutputModes": ["image/png"]})
        assert state(sent["task"]) == "completed"
        card = (await wire.client.get("/.well-known/agent-card.json")).json()
        assert card["defaultInputModes"] == ["text/plain"]


@http_bindings
async def test_T027_snake_case_is_read_and_camel_case_written(binding: str):
    async with wired(binding, echoing()) as wire:
        said = {
            "message_id": "m1",
            "context_id": "c1",
            "role": "ROLE_USER",
            "parts": [{"text": "hi", "media_type": "a/b"}],
        }
        task = (await wire.call("SendMessage", {"message": said, "newer": {"than": "us"}}))["task"]
        assert task["contextId"] == "c1"
        assert task["history"][0]["parts"] == [{"text": "hi", "mediaType": "a/b"}]
        found = await wire.call("ListTasks", {"context_id": "c1", "page_size": 3, "include_artifacts": True})
        assert (found["pageSize"], len(found["tasks"][0]["artifacts"])) == (3, 1)
        assert all(name.startswith("adk_") for name in re.findall(r'"(\w+_\w+)":', json.dumps(found)))


@http_bindings
async def test_T028_an_unknown_state_is_refused_and_not_forgotten(binding: str):
    async with wired(binding, echoing()) as wire:
        error = await refused(wire, "ListTasks", {"status": "TASK_STATE_DREAMING"})
        assert error.code in BAD
        assert "status" in error.fields[0]


@bindings
async def test_T029_files_and_data_survive(binding: str):
    blob = base64.b64encode(bytes(range(256)) * 4096).decode()
    data = [None, 0, [], "x", {"a": [1, {"b": None}], "c": 2.5}]
    parts: list[dict[str, Any]] = [{"raw": blob, "mediaType": "application/x-y", "filename": "f.bin"}]
    parts += [{"data": value} for value in data]
    async with wired(binding, echoing()) as wire:
        sent = await wire.call("SendMessage", {"message": {**message(), "parts": parts}})
        task = await wire.call("GetTask", {"id": sent["task"]["id"]})
        assert task["history"][0]["parts"] == parts


@bindings
async def test_T030_any_text_survives(binding: str):
    text = "".join(map(chr, range(32))) + "\x7f\u2028 🤷 𝄞 \U0010ffff é"
    async with wired(binding, echoing()) as wire:
        task = (await wire.send(text))["task"]
        assert task["history"][0]["parts"] == [{"text": text}]
        assert task["artifacts"][0]["parts"][0]["text"].endswith(text)


# ---- streams


@bindings
async def test_T031_a_stream_begins_with_the_task_and_ends_with_its_end(binding: str):
    model = ScriptedModel(chunks("a", "b"))
    async with wired(binding, LlmAgent(name="app", model=model)) as wire:
        frames = await wire.stream("SendStreamingMessage", {"message": message()})
    found = kinds(frames)
    assert found[:2] == ["task submitted", "status working"]
    assert found[-1] == "status completed"
    assert "artifact ab" in found


@bindings
async def test_FR_148_every_frame_says_which_task_and_context(binding: str):
    async with wired(binding, asking(call("ticket", {}, "c1"), "thanks")) as wire:
        frames = await wire.stream("SendStreamingMessage", {"message": message()})
        assert kinds(frames)[-1] == "status input_required"
        task = frames[0]["task"]
        more = {**message(messageId="m2", taskId=task["id"]), "parts": replies("c1")}
        frames += await wire.stream("SendStreamingMessage", {"message": more})
        assert kinds(frames)[-1] == "status completed"
    for frame in frames:
        ((name, value),) = frame.items()
        assert value["contextId"] == task["contextId"]
        assert value["id" if name == "task" else "taskId"] == task["id"]


@bindings
async def test_T014_T032_a_message_is_the_only_frame_and_leaves_no_task(binding: str):
    def answer(call: Any, request: Any) -> Message:
        return Message(message_id="r1", role=Role.AGENT, parts=[A2aPart(text="just that")])

    async with wired(binding, echoing(), executor=ExecutorConfig(message_reply=answer)) as wire:
        assert kinds(await wire.stream("SendStreamingMessage", {"message": message()})) == ["message just that"]
        assert kinds([await wire.send()]) == ["message just that"]
        assert not (await wire.call("ListTasks", {})).get("tasks")


@http_bindings
async def test_T033_FR_166_one_line_of_data_for_each_event(binding: str):
    async with wired(binding, echoing()) as wire:
        path = "/a2a" if binding == "jsonrpc" else "/message:stream"
        body: dict[str, Any] = {"message": message("two\nlines")}
        if binding == "jsonrpc":
            body = {"jsonrpc": "2.0", "id": "x-1", "method": "SendStreamingMessage", "params": body}
        # A client that asks for JSON only gets the stream all the same: there is no other answer to this operation.
        async with wire.client.stream("POST", path, json=body, headers={"accept": "application/json"}) as response:
            assert response.status == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            text = (await response.read()).decode()
    events = text.strip("\n").split("\n\n")
    assert len(events) >= 3
    for event in events:
        assert event.startswith("data: ") and "\n" not in event
        frame = json.loads(event.removeprefix("data: "))
        if binding == "jsonrpc":
            assert list(frame) == ["jsonrpc", "id", "result"]
            assert (frame["jsonrpc"], frame["id"]) == ("2.0", "x-1")
            frame = frame["result"]
        assert len(frame) == 1


@bindings
async def test_T034_T036_those_who_subscribe_see_what_the_sender_sees(binding: str):
    gate = Gate()
    async with wired(binding, waiting(gate, "done")) as wire:
        task = (await wire.send(configuration={"returnImmediately": True}))["task"]
        await gate.begun.wait()
        seen: list[list[dict[str, Any]]] = []

        async def follow() -> None:
            seen.append([])
            mine = seen[-1]
            async for frame in wire.frames("SubscribeToTask", {"id": task["id"]}):
                mine.append(frame)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                group.start_soon(follow)
                while len(seen) < 2 or not all(seen):
                    await anyio.lowlevel.checkpoint()
                gate.go.set()
        assert seen[0] == seen[1]
        assert kinds(seen[0])[0] == "task working"
        assert kinds(seen[0])[-2:] == ["artifact done", "status completed"]


@bindings
async def test_T035_FR_156_a_task_goes_on_without_its_sender(binding: str):
    gate = Gate()
    async with wired(binding, waiting(gate, "done")) as wire:
        frames = wire.frames("SendStreamingMessage", {"message": message()})
        task = (await anext(frames))["task"]
        await gate.begun.wait()
        await frames.aclose()
        assert state(await wire.call("GetTask", {"id": task["id"]})) == "working"
        gate.go.set()
        await ended(wire, task["id"], "completed")
        assert not gate.cancelled.is_set()


async def ended(wire: Wire, task_id: str, *states: str) -> dict[str, Any]:
    with anyio.fail_after(20):
        while state(task := await wire.call("GetTask", {"id": task_id})) not in states:
            await anyio.lowlevel.checkpoint()
    return task


@bindings
async def test_T037_what_cannot_be_followed(binding: str):
    async with wired(binding, echoing()) as wire:
        task = (await wire.send())["task"]
        error = await refused(wire, "SubscribeToTask", {"id": task["id"]})
        assert (error.code in (-32004, 400, "FAILED_PRECONDITION"), error.reason) == (True, "UNSUPPORTED_OPERATION")
        error = await refused(wire, "SubscribeToTask", {"id": "nope"})
        assert (error.code in MISSING, error.reason) == (True, "TASK_NOT_FOUND")
    async with wired(binding, echoing(), settings=A2aSettings(streaming=False)) as wire:
        for operation, params in (("SendStreamingMessage", {"message": message()}), ("SubscribeToTask", {"id": "x"})):
            assert (await refused(wire, operation, params)).reason == "UNSUPPORTED_OPERATION"


@bindings
async def test_FR_162_a2a_T041_more_of_an_artifact_that_is_not_there_makes_it(binding: str):
    def grown(execution: Any, event: Any, update: Any) -> Any:
        return type(update)(
            task_id=update.task_id, context_id=update.context_id, artifact=update.artifact, append=True, last_chunk=True
        )

    async with wired(binding, echoing(), executor=ExecutorConfig(after_event=grown)) as wire:
        task = (await wire.send())["task"]
        assert (state(task), len(task["artifacts"])) == ("completed", 1)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_T042_rest_subscribes_with_either_verb(method: str):
    gate = Gate()
    async with wired("rest", waiting(gate, "done")) as wire:
        task = (await wire.send(configuration={"returnImmediately": True}))["task"]
        await gate.begun.wait()
        async with wire.client.stream(method, f"/tasks/{task['id']}:subscribe") as response:
            assert response.status == 200
            events = response.events()
            frames = [json.loads((await anext(events)).data)]
            gate.go.set()
            frames += [json.loads(event.data) async for event in events]
        assert kinds(frames)[0] == "task working" and kinds(frames)[-1] == "status completed"
        assert (await wire.client.get(f"/tasks/{task['id']}:cancel")).status == 405


@http_bindings
async def test_T043_an_error_before_the_first_frame_is_no_stream(binding: str):
    async with wired(binding, echoing()) as wire:
        if binding == "rest":
            response = await wire.client.post("/message:stream", json={"message": {}})
            assert (response.status, response.headers["content-type"]) == (400, "application/json")
        else:
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": {}}}
            response = await wire.client.post("/a2a", json=body)
            assert (response.status, response.json()["error"]["code"]) == (200, -32602)
            assert response.headers["content-type"].startswith("application/json")


@http_bindings
async def test_T044_silence_is_filled_with_comments(binding: str):
    gate = Gate()
    async with wired(binding, waiting(gate, "done"), limits=Limits(heartbeat_s=0.002)) as wire:
        body: dict[str, Any] = {"message": message()}
        path = "/message:stream"
        if binding == "jsonrpc":
            path, body = "/", {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": body}
        async with wire.client.stream("POST", path, json=body) as response:
            text = b""
            async for chunk in response.chunks():
                text += chunk
                if text.count(b": ping\n\n") == 2:
                    gate.go.set()
        assert b"TASK_STATE_COMPLETED" in text


@bindings
async def test_a2a_a_stream_that_breaks_off_says_why(binding: str):
    gate = Gate()
    async with wired(binding, waiting(gate, "done"), stream_s=0.01) as wire:
        error = await refused(wire, "SendStreamingMessage", {"message": message()})
        assert (error.code in (-32603, 504, "DEADLINE_EXCEEDED"), error.reason) == (True, "TIMEOUT")
        assert "stream_s" in error.message
        task = (await wire.call("ListTasks", {}))["tasks"][0]
        assert state(task) == "working"
        gate.go.set()
        await ended(wire, task["id"], "completed")


@bindings
async def test_T039_a_reader_that_is_too_slow_is_told(binding: str):
    pieces = [f"{n} " for n in range(200)]
    agent = LlmAgent(name="app", model=ScriptedModel(chunks(*pieces)))
    async with wired(binding, agent, settings=A2aSettings(feed_items=5)) as wire:
        # Two hundred pieces come at once, and a stream may be five behind.
        error = await refused(wire, "SendStreamingMessage", {"message": message()})
        assert (error.code in (-32603, 429, "RESOURCE_EXHAUSTED"), error.reason) == (True, "LIMIT_EXCEEDED")
        task = (await wire.call("ListTasks", {"includeArtifacts": True}))["tasks"][0]
        assert task["artifacts"][0]["parts"] == [{"text": "".join(pieces)}]


# ---- sends and follow-ups


@bindings
async def test_T017_T018_T019_FR_145_where_no_message_can_go(binding: str):
    async with wired(binding, asking(call("ticket", {}, "c1"), "thanks")) as wire:
        task = (await wire.send())["task"]
        error = await refused(wire, "SendMessage", {"message": message(taskId=task["id"], contextId="other")})
        assert (error.code in BAD, error.fields) == (True, ["message.contextId"])
        assert await wire.call("GetTask", {"id": task["id"]}) == task
        assert (await refused(wire, "SendMessage", {"message": message(taskId="nope")})).code in MISSING
        await wire.call("CancelTask", {"id": task["id"]})
        error = await refused(wire, "SendMessage", {"message": message(messageId="m3", taskId=task["id"])})
        assert (error.code in (-32004, 400, "FAILED_PRECONDITION"), error.reason) == (True, "UNSUPPORTED_OPERATION")


@bindings
async def test_FR_155_a_blocking_send_returns_with_the_question(binding: str):
    async with wired(binding, asking(call("ticket", {}, "c1"), "thanks")) as wire:
        with anyio.fail_after(5):
            task = (await wire.send())["task"]
        assert state(task) == "input_required"
        assert task["status"]["message"]["parts"][0]["data"]["name"] == "ticket"
        answer = {**message(messageId="m2", taskId=task["id"]), "parts": replies("c1")}
        assert state((await wire.call("SendMessage", {"message": answer}))["task"]) == "completed"


@bindings
async def test_T012_FR_156_return_immediately_and_no_other_name(binding: str):
    gate = Gate()
    async with wired(binding, waiting(gate, "done")) as wire:
        with anyio.fail_after(5):
            task = (await wire.send(configuration={"returnImmediately": True}))["task"]
        assert state(task) in ("submitted", "working")
        gate.go.set()
        await ended(wire, task["id"], "completed")
    async with wired(binding, echoing()) as wire:
        assert state((await wire.send(configuration={"blocking": True}))["task"]) == "completed"


@bindings
async def test_FR_153_lists_say_everything_also_when_there_is_nothing(binding: str):
    async with wired(binding, echoing()) as wire:
        found = await wire.call("ListTasks", {})
        if binding == "grpc":  # protobuf does not carry what is empty
            assert found == {"pageSize": 50}
        else:
            assert found == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
        for n in range(3):
            await wire.send(messageId=f"m{n}")
        await wire.send(said=Said(caller="eve"))
        first = await wire.call("ListTasks", {"pageSize": 2})
        assert (len(first["tasks"]), first["totalSize"]) == (2, 3)
        last = await wire.call("ListTasks", {"pageSize": 2, "pageToken": first["nextPageToken"]})
        assert len(last["tasks"]) == 1 and not last.get("nextPageToken")
        assert not any("artifacts" in task for task in first["tasks"])
        shown = await wire.call("ListTasks", {"includeArtifacts": True})
        assert all(task["artifacts"] for task in shown["tasks"])


@bindings
async def test_T025_T047_FR_154_lengths_and_pages(binding: str):
    async with wired(binding, echoing()) as wire:
        task = (await wire.send(configuration={"historyLength": 0}))["task"]
        assert "history" not in task
        assert len((await wire.call("GetTask", {"id": task["id"]}))["history"]) == 1
        assert "history" not in await wire.call("GetTask", {"id": task["id"], "historyLength": 0})
        listed = await wire.call("ListTasks", {"historyLength": 0, "pageSize": 2})
        assert "history" not in listed["tasks"][0] and listed["pageSize"] == 2
        for params in ({"pageSize": 0}, {"pageSize": 101}, {"pageSize": -1}, {"pageToken": "?"}, {"historyLength": -5}):
            error = await refused(wire, "ListTasks", params)
            assert (error.code in BAD, error.fields) == (True, list(params)), params
        assert (await refused(wire, "GetTask", {"id": task["id"], "historyLength": -5})).fields == ["historyLength"]
        bad = {"message": message(messageId="m9"), "configuration": {"historyLength": -5}}
        assert (await refused(wire, "SendMessage", bad)).fields == ["configuration.historyLength"]


# ---- versions, extensions, tenants, callers


@bindings
async def test_T066_FR_149_versions(binding: str):
    async with wired(binding, echoing()) as wire:
        for version in ("1.0", "1.0.7"):
            await wire.call("ListTasks", {}, Said(version=version))
        for version in ("1.5", "2.0", "99.0", "abc", "1"):
            error = await refused(wire, "ListTasks", {}, Said(version=version))
            assert error.code in (-32009, 400, "FAILED_PRECONDITION"), version
            assert error.reason == "VERSION_NOT_SUPPORTED"


async def test_T066_versions_in_the_query():
    async with wired("rest", echoing()) as wire:
        assert (await wire.client.get("/tasks", query={"A2A-Version": "1.0"})).status == 200
        response = await wire.client.get("/tasks", query={"A2A-Version": "99.0"})
        assert (response.status, response.json()["error"]["details"][0]["reason"]) == (400, "VERSION_NOT_SUPPORTED")


@bindings
async def test_T067_no_version_is_taken_as_it_comes_or_refused(binding: str):
    async with wired(binding, echoing()) as wire:
        await wire.call("ListTasks", {}, Said(version=None))
    async with wired(binding, echoing(), settings=A2aSettings(strict_version=True)) as wire:
        error = await refused(wire, "ListTasks", {}, Said(version=None))
        assert error.reason == "VERSION_NOT_SUPPORTED"
        await wire.call("ListTasks", {}, Said(version="1.0"))


@bindings
async def test_T068_required_extensions(binding: str):
    async with wired(binding, echoing(), settings=A2aSettings(required_extensions=(EXT,))) as wire:
        error = await refused(wire, "ListTasks", {})
        assert error.code in (-32008, 400, "FAILED_PRECONDITION")
        assert error.reason == "EXTENSION_SUPPORT_REQUIRED"
        await wire.call("ListTasks", {}, Said(extensions=(EXT,)))
        assert wire.echoed == EXT
        await wire.call("ListTasks", {}, Said(extensions=("urn:else", EXT)))
        assert wire.echoed == EXT
        await wire.stream("SendStreamingMessage", {"message": message()}, Said(extensions=("urn:else", EXT)))
        assert wire.echoed == EXT


async def test_T068_extensions_in_several_header_lines():
    async with wired("rest", echoing(), settings=A2aSettings(required_extensions=(EXT,))) as wire:
        lines = [("a2a-extensions", "urn:else"), ("A2A-Extensions", f" {EXT} ,urn:third")]
        async with wire.client.stream("GET", "/tasks", headers=lines) as response:
            assert (response.status, response.headers["a2a-extensions"]) == (200, EXT)


@bindings
async def test_T069_tenants_do_not_see_each_other(binding: str):
    async with wired(binding, echoing(), settings=A2aSettings(tenants=("red", "blue"))) as wire:
        task = (await wire.send(said=Said(tenant="red")))["task"]
        assert (await wire.call("GetTask", {"id": task["id"]}, Said(tenant="red")))["id"] == task["id"]
        for tenant in ("blue", ""):
            assert (await refused(wire, "GetTask", {"id": task["id"]}, Said(tenant=tenant))).reason == "TASK_NOT_FOUND"
        assert (await refused(wire, "ListTasks", {}, Said(tenant="green"))).code in MISSING


async def test_T069_a_tenant_in_the_path_is_one_in_the_body():
    async with wired("rest", echoing()) as wire:
        sent = await wire.client.post("/red/message:send", json={"message": message()})
        task_id = sent.json()["task"]["id"]
        body = {"message": message(messageId="m2"), "tenant": "red"}
        other = (await wire.client.post("/message:send", json=body)).json()["task"]["id"]
        listed = (await wire.client.get("/red/tasks")).json()
        assert {task["id"] for task in listed["tasks"]} == {task_id, other}
        assert (await wire.client.get("/tasks")).json()["totalSize"] == 0
        assert (await wire.client.get("/a2a/app/red/tasks")).json()["totalSize"] == 2
        body["tenant"] = "blue"  # the path wins
        assert (await wire.client.post("/red/message:send", json=body)).json()["task"]["id"] == other


@bindings
async def test_T045_T079_others_see_nothing(binding: str):
    async with wired(binding, echoing()) as wire:
        task = (await wire.send(said=Said(caller="ann")))["task"]
        theirs = await refused(wire, "GetTask", {"id": task["id"]}, Said(caller="bob"))
        nobodys = await refused(wire, "GetTask", {"id": "0" * 36}, Said(caller="bob"))
        assert theirs.message.replace(task["id"], "") == nobodys.message.replace("0" * 36, "")
        assert theirs.reason == nobodys.reason == "TASK_NOT_FOUND"
        error = await refused(wire, "ListTasks", {}, Said(caller="nobody")) if binding != "jsonrpc" else None
        assert error is None or error.code in (401, "UNAUTHENTICATED")


@http_bindings
async def test_T079_401_says_how_to_sign_in(binding: str):
    async with wired(binding, echoing()) as wire:
        headers = {"authorization": "Bearer nobody"}
        if binding == "rest":
            response = await wire.client.get("/tasks/secret", headers=headers)
            assert response.json()["error"]["status"] == "UNAUTHENTICATED"
        else:
            body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "secret"}}
            response = await wire.client.post("/a2a", json=body, headers=headers)
            assert response.json()["error"]["data"][0]["reason"] == "UNAUTHENTICATED"
        assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")


# ---- errors


ERRORS = """
    TASK_NOT_FOUND                     -32001  404  404  NOT_FOUND            NOT_FOUND
    TASK_NOT_CANCELABLE                -32002  400  409  FAILED_PRECONDITION  FAILED_PRECONDITION
    PUSH_NOTIFICATION_NOT_SUPPORTED    -32003  400  400  FAILED_PRECONDITION  UNIMPLEMENTED
    UNSUPPORTED_OPERATION              -32004  400  400  FAILED_PRECONDITION  UNIMPLEMENTED
    CONTENT_TYPE_NOT_SUPPORTED         -32005  400  415  INVALID_ARGUMENT     INVALID_ARGUMENT
    EXTENDED_AGENT_CARD_NOT_CONFIGURED -32007  400  400  FAILED_PRECONDITION  FAILED_PRECONDITION
    EXTENSION_SUPPORT_REQUIRED         -32008  400  400  FAILED_PRECONDITION  FAILED_PRECONDITION
    VERSION_NOT_SUPPORTED              -32009  400  400  FAILED_PRECONDITION  UNIMPLEMENTED
    INVALID_ARGUMENT                   -32602  400  400  INVALID_ARGUMENT     INVALID_ARGUMENT
"""
"""Reason, JSON-RPC code, HTTP status of 1.0.1 and of 1.0.0, gRPC status of both (spec a2a 1.5)."""
WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "TASK_NOT_FOUND": ("GetTask", {"id": "nope"}),
    "TASK_NOT_CANCELABLE": ("CancelTask", {"id": "DONE"}),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": ("ListTaskPushNotificationConfigs", {"taskId": "DONE"}),
    "UNSUPPORTED_OPERATION": ("SubscribeToTask", {"id": "DONE"}),
    "CONTENT_TYPE_NOT_SUPPORTED": (
        "SendMessage",
        {"message": {**message(messageId="mx"), "parts": [{"raw": "AA==", "mediaType": "a/b"}]}},
    ),
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": ("GetExtendedAgentCard", {}),
    "EXTENSION_SUPPORT_REQUIRED": ("ListTasks", {}),
    "VERSION_NOT_SUPPORTED": ("ListTasks", {}),
    "INVALID_ARGUMENT": ("GetTask", {"id": "x", "historyLength": -1}),
}


@bindings
@pytest.mark.parametrize("codes", ["1.0.1", "1.0.0"])
async def test_T073_T074_the_table_of_errors(binding: str, codes: str):
    settings = A2aSettings(required_extensions=(EXT,), input_modes=("text/plain",))
    card = CardConfig(extended=True)
    async with wired(binding, echoing(), settings=settings, status_codes=codes, card=card) as wire:
        done = (await wire.send(said=Said(extensions=(EXT,))))["task"]["id"]
        for row in filter(None, map(str.split, ERRORS.splitlines())):
            reason, rpc, http, old_http, name, old_name = row
            operation, params = WRONG[reason]
            params = {key: done if value == "DONE" else value for key, value in params.items()}
            said = Said(extensions=() if reason == "EXTENSION_SUPPORT_REQUIRED" else (EXT,))
            if reason == "VERSION_NOT_SUPPORTED":
                said = said._replace(version="7.0")
            error = await refused(wire, operation, params, said)
            if codes == "1.0.0":
                http, name = old_http, old_name
            assert error.reason == reason
            assert str(error.code) == {"jsonrpc": rpc, "rest": http, "grpc": name}[binding], reason


@bindings
async def test_T076_what_went_wrong_inside_stays_inside(binding: str, caplog: pytest.LogCaptureFixture):
    def answer(call: Any, request: Any) -> Message:
        raise RuntimeError("the password is swordfish")

    async with wired(binding, echoing(), executor=ExecutorConfig(message_reply=answer)) as wire:
        error = await refused(wire, "SendMessage", {"message": message()})
        assert error.code in (-32603, 500, "INTERNAL")
        assert "swordfish" not in str(error)
        id = error.message.rpartition(" ")[2]
        assert id in caplog.text and "swordfish" in caplog.text


@bindings
async def test_T078_bodies_have_limits(binding: str):
    deep: Any = 1
    for _ in range(90):
        deep = [deep]
    async with wired(binding, echoing(), limits=Limits(body_bytes=2000)) as wire:
        if binding != "grpc":
            path = "/a2a" if binding == "jsonrpc" else "/message:send"
            response = await wire.client.post(path, body=b"[" + b" " * 2000 + b"]", headers=JSON)
            assert (response.status, "body_bytes" in response.text) == (413, True)
        else:
            error = await refused(wire, "SendMessage", {"message": message("x" * 3000)})
            assert error.code == "RESOURCE_EXHAUSTED"
        body = {"message": {**message(), "parts": [{"data": deep}]}}
        if binding == "jsonrpc":
            response = await wire.client.post(
                "/a2a", json={"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": body}
            )
            assert (response.json()["error"]["code"], response.json()["id"]) == (-32600, None)
        elif binding == "rest":
            assert (await refused(wire, "SendMessage", body)).code == 400
        assert state((await wire.send())["task"]) == "completed"  # protobuf itself refuses to write what is that deep


@bindings
async def test_T077_the_bindings_tell_the_same_story(binding: str):
    async with wired(binding, asking(call("ticket", {}, "c1"), "thanks")) as wire:
        story = [await wire.send(contextId="c")]
        task_id = story[0]["task"]["id"]
        answer = {**message(messageId="m2", taskId=task_id), "parts": replies("c1")}
        story += await wire.stream("SendStreamingMessage", {"message": answer})
        story.append(await wire.call("GetTask", {"id": task_id}))
        story.append(await wire.call("ListTasks", {"includeArtifacts": True}))
        text = json.dumps(story).replace(task_id, "TASK")
    text = re.sub(r'"[0-9a-f]{8}-[0-9a-f-]{27}"', '"ID"', text)
    text = re.sub(r'"(e-|adk-)[0-9a-f-]{36}"', '"ID"', text)
    text = re.sub(r'"\d{4}-\d\d-\d\dT[^"]*Z"', '"TIME"', text)
    plain: Any = json.loads(text)
    TOLD.setdefault("story", _bare(plain))
    assert _bare(plain) == TOLD["story"]


TOLD: dict[str, Any] = {}
"""What the first binding told."""


def _bare(value: Any) -> Any:
    """Without what protobuf leaves out because it is empty."""
    if isinstance(value, dict):
        members = {k: _bare(v) for k, v in value.items()}
        return {k: v for k, v in members.items() if v not in ("", [], {}, False, 0) or k == "adk_partial"}
    return [_bare(v) for v in value] if isinstance(value, list) else value


# ---- HTTP+JSON itself


async def test_T072_only_json_is_read():
    async with wired("rest", echoing()) as wire:
        text = json.dumps({"message": message()}).encode()
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            response = await wire.client.post(
                "/message:send", body=text, headers={"content-type": kind} if kind else {}
            )
            assert response.status == 400
            assert response.json()["error"]["details"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"
    async with wired("rest", echoing(), status_codes="1.0.0") as wire:
        response = await wire.client.post("/message:send", body=text, headers={"content-type": "text/plain"})
        assert response.status == 415


@pytest.mark.parametrize(
    ("accept", "sent", "answered"),
    [
        ("*/*", "application/json", "application/json"),
        ("", "application/json; charset=utf-8", "application/json"),
        ("", "application/a2a+json", "application/a2a+json"),
        ("application/a2a+json", "application/json", "application/a2a+json"),
        ("application/json, application/a2a+json", "application/a2a+json", "application/json"),
    ],
)
async def test_a2a_media_types_are_those_of_the_caller(accept: str, sent: str, answered: str):
    async with wired("rest", echoing()) as wire:
        headers = {"content-type": sent, **({"accept": accept} if accept else {})}
        body = json.dumps({"message": message()}).encode()
        response = await wire.client.post("/message:send", body=body, headers=headers)
        assert (response.status, response.headers["content-type"]) == (200, answered)
        response = await wire.client.post("/message:send", body=b"{}", headers=headers)
        assert (response.status, response.headers["content-type"]) == (400, answered)
        assert (await wire.client.get("/tasks")).headers["content-type"] == "application/a2a+json"


async def test_T075_paths_and_verbs():
    async with wired("rest", echoing()) as wire:
        assert (await wire.client.post("/message:sing", json={})).status == 404
        response = await wire.client.request("PUT", "/tasks")
        assert (response.status, response.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert (await wire.client.request("HEAD", "/tasks")).status == 200
        assert (await wire.client.request("OPTIONS", "/message:send")).status == 204
        assert (await wire.client.post("/message:send/", json={"message": message()})).status == 200
        assert (await wire.client.get("/tasks/")).json()["totalSize"] == 1
        assert (await wire.client.get("/a2a/nobody/tasks")).status == 404


async def test_a2a_queries_in_both_spellings_and_their_mistakes():
    async with wired("rest", echoing()) as wire:
        await wire.send(contextId="c1")
        for query in ({"contextId": "c1", "includeArtifacts": "true"}, {"context_id": "c1", "include_artifacts": "1"}):
            found = (await wire.client.get("/tasks", query=query)).json()
            assert len(found["tasks"][0]["artifacts"]) == 1
        assert (await wire.client.get("/tasks", query={"contextId": "other"})).json()["totalSize"] == 0
        for name, value in (("pageSize", "ten"), ("includeArtifacts", "maybe"), ("historyLength", "1.5")):
            response = await wire.client.get("/tasks", query={name: value})
            assert response.status == 400
            assert response.json()["error"]["details"][1]["fieldViolations"][0]["field"] == name


# ---- mounting


async def test_FR_169_an_app_whose_lifespan_does_not_run_says_so():
    app = App(echoing(), protocols=["a2a"])

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":  # a server that does not pass it on
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await app.asgi({**scope, "root_path": "/agents/x", "path": "/agents/x" + scope["path"]}, receive, send)

    async with connect(mounted) as client:
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message()}}
        with anyio.fail_after(5):
            response = await client.post("/a2a", json=body)
        assert (response.status, "lifespan" in response.json()["error"]["message"]) == (503, True)
        response = await client.post("/message:send", json={"message": message()})
        assert (response.status, "lifespan" in response.json()["error"]["message"]) == (503, True)


async def test_FR_169_two_apps_side_by_side_have_tasks_and_cards_of_their_own():
    apps: dict[str, App] = {name: App(echoing(description=name), protocols=["a2a"]) for name in ("red", "blue")}
    async with connect(apps["red"]), connect(apps["blue"]):  # the outer app passes its lifespan on

        async def outer(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
                return await send({"type": "lifespan.shutdown.complete"})
            name = scope["path"].split("/")[1]
            await apps[name].asgi({**scope, "root_path": f"/{name}"}, receive, send)

        async with connect(outer) as client:
            task_id = ""
            for name in apps:
                card = (await client.get(f"/{name}/.well-known/agent-card.json")).json()
                assert card["description"] == name
                url = card["supportedInterfaces"][0]["url"]
                assert url == f"http://localhost/{name}/a2a/app"
                body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message()}}
                answer = (await client.post(url.removeprefix("http://localhost"), json=body)).json()
                assert state(answer["result"]["task"]) == "completed"
                assert answer["result"]["task"]["id"] != task_id
                task_id = answer["result"]["task"]["id"]
            assert (await client.get("/red/tasks")).json()["totalSize"] == 1


async def test_a2a_several_agents_on_one_server():
    agents: list[Agent] = [LlmAgent(name=n, model=ScriptedModel(f"I am {n}")) for n in ("first", "second")]
    app = App(agents, protocols=["rest", "a2a"])
    async with connect(app) as client:
        for name in ("second", "first"):
            card = (await client.get(f"/a2a/{name}/.well-known/agent-card.json")).json()
            assert card["name"] == name
            path = card["supportedInterfaces"][0]["url"].removeprefix("http://localhost")
            assert path == f"/a2a/{name}"
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message()}}
            task = (await client.post(path, json=body)).json()["result"]["task"]
            assert task["artifacts"][0]["parts"][0]["text"] == f"I am {name}"
            assert (await client.get(f"{path}/tasks/{task['id']}")).status == 200
            other = "first" if name == "second" else "second"
            assert (await client.get(f"/a2a/{other}/tasks/{task['id']}")).status == 404
        assert (await client.get("/.well-known/agent-card.json")).json()["name"] == "first"
        assert (await client.get("/tasks")).json()["totalSize"] == 1
        assert (await client.post("/a2a/third", json={})).status == 404
