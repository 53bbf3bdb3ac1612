"""The contract agent satisfies the table of the conformance kits, over every binding (spec a2a-conformance 3, 4)."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from conformance.agent import REQUIRED, Options, contract
from support.a2a_hook import hooked
from support.a2a_wires import BINDINGS, Failed, Said, Wire, kinds, message, state, wired

bindings = pytest.mark.parametrize("binding", BINDINGS)
COUNT = iter(range(10**6))


def wire_of(binding: str, **options: Any) -> Any:
    return wired(binding, *contract(Options(wait_s=0.0, pause_s=0.0, **options)))


async def asked(wire: Wire, kind: str, **more: Any) -> dict[str, Any]:
    """The answer to a message of this kind, which is sent blocking."""
    return await wire.call("SendMessage", {"message": message(messageId=f"{kind}-{next(COUNT):08x}", **more)})


async def streamed(wire: Wire, kind: str) -> list[dict[str, Any]]:
    said = message(messageId=f"{kind}-{next(COUNT):08x}")
    return await wire.stream("SendStreamingMessage", {"message": said})


@bindings
async def test_conformance_tasks_that_complete(binding: str):
    async with wire_of(binding) as wire:
        for kind, text in (("tck-complete-task", "Hello from TCK"), ("anything", "echo: hi")):
            task = (await asked(wire, kind))["task"]
            assert (state(task), task["status"]["message"]["parts"]) == ("completed", [{"text": text}])
            assert task["status"]["message"]["role"] == "ROLE_AGENT"


@bindings
@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("tck-artifact-text", {"text": "Generated text content"}),
        ("tck-artifact-file", {"raw": "dGNr", "filename": "output.txt", "mediaType": "text/plain"}),
        (
            "tck-artifact-file-url",
            {"url": "https://example.com/output.txt", "filename": "output.txt", "mediaType": "text/plain"},
        ),
        ("tck-artifact-data", {"data": {"key": "value", "count": 42}}),
    ],
)
async def test_conformance_artifacts(binding: str, kind: str, part: dict[str, Any]):
    async with wire_of(binding) as wire:
        task = (await asked(wire, kind))["task"]
        assert state(task) == "completed"
        assert [p for artifact in task["artifacts"] for p in artifact["parts"]] == [part]


@bindings
async def test_conformance_a_direct_message_and_a_rejection(binding: str):
    async with wire_of(binding) as wire:
        answer = await asked(wire, "tck-message-response", contextId="c")
        assert kinds([answer]) == ["message Direct message response"]
        assert (answer["message"]["role"], answer["message"]["contextId"]) == ("ROLE_AGENT", "c")
        assert kinds(await streamed(wire, "tck-message-response")) == ["message Direct message response"]
        task = (await asked(wire, "tck-reject-task"))["task"]
        assert (state(task), task["status"]["message"]["parts"][0]["text"]) == ("rejected", "rejected")


@bindings
async def test_conformance_questions_and_their_history(binding: str):
    async with wire_of(binding) as wire:
        first = (await asked(wire, "tck-input-required", parts=[{"text": "TCK history message 1"}]))["task"]
        assert state(first) == "input_required"
        seen: list[dict[str, Any]] = []
        entered = anyio.Event()

        async def follow() -> None:
            async for frame in wire.frames("SubscribeToTask", {"id": first["id"]}):
                seen.append(frame)
                entered.set()

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                await entered.wait()
                parts = [{"text": "TCK history message 2"}]
                again = (await asked(wire, "tck-input-required", taskId=first["id"], parts=parts))["task"]
                assert (state(again), again["contextId"]) == ("input_required", first["contextId"])
                done = (await asked(wire, "tck-complete-task", taskId=first["id"]))["task"]
        assert (state(done), done["id"]) == ("completed", first["id"])
        users = [m["parts"][0]["text"] for m in done["history"] if m["role"] == "ROLE_USER"]
        assert users == ["TCK history message 1", "TCK history message 2", "hi"]
        assert kinds(seen)[0] == "task input_required" and kinds(seen)[-1] == "status completed"
        with pytest.raises(Failed) as caught:
            await asked(wire, "tck-complete-task", taskId=first["id"])
        assert caught.value.reason == "UNSUPPORTED_OPERATION"


@bindings
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("tck-stream-001", ["artifact Stream hello from TCK"]),
        ("tck-stream-002", []),
        ("tck-stream-003", ["artifact Stream task lifecycle"]),
        ("tck-stream-ordering-001", ["artifact Ordered output"]),
        ("tck-stream-artifact-text", ["artifact Streamed text content"]),
        ("tck-stream-artifact-file", ["artifact "]),
        ("tck-stream-artifact-chunked", ["artifact chunk-1 ", "artifact chunk-2"]),
        ("test-resubscribe-message-id", []),
    ],
)
async def test_conformance_streams(binding: str, kind: str, told: list[str]):
    async with wire_of(binding) as wire:
        frames = await streamed(wire, kind)
    assert kinds(frames) == ["task submitted", "status working", *told, "status completed"]
    if kind.endswith("chunked"):
        one, two = (frame["artifactUpdate"] for frame in frames[2:4])
        assert one["artifact"]["artifactId"] == two["artifact"]["artifactId"]
        assert (one.get("append", False), one.get("lastChunk", False)) == (False, False)
        assert (two["append"], two["lastChunk"]) == (True, True)


@bindings
async def test_conformance_states_of_the_card(binding: str):
    async with wire_of(binding, required_ext=True, extended=True, streaming=False) as wire:
        card = (await wire.client.get("/.well-known/agent-card.json")).json()
        assert card["capabilities"]["streaming"] is False
        assert "url" not in card  # members of 0.3 fail the kit's schema
        extension = next(e for e in card["capabilities"]["extensions"] if e["uri"] == REQUIRED)
        assert extension["required"] is True
        with pytest.raises(Failed) as caught:
            await asked(wire, "tck-complete-task")
        assert caught.value.reason == "EXTENSION_SUPPORT_REQUIRED"
        said = Said(extensions=(REQUIRED,))
        assert (await wire.call("GetExtendedAgentCard", {}, said))["description"].endswith("Extended.")
        with pytest.raises(Failed) as caught:
            await wire.stream("SendStreamingMessage", {"message": message()}, said)
        assert caught.value.reason == "UNSUPPORTED_OPERATION"


@bindings
async def test_conformance_push(binding: str):
    secret = {"scheme": "Bearer", "credentials": "tck-test-token-1"}
    async with hooked() as hook, wire_of(binding, push=True) as wire:
        inline = {"taskPushNotificationConfig": {"url": hook.url, "authentication": secret}}
        params = {"message": message(messageId="tck-complete-task-1"), "configuration": inline}
        task = (await wire.call("SendMessage", params))["task"]
        await hook.until(3)
        listed = await wire.call("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
        assert listed["configs"][0]["authentication"] == secret
    assert {headers["authorization"] for _, headers, _ in hook.got} == {"Bearer tck-test-token-1"}
    assert all("json" in headers["content-type"] for _, headers, _ in hook.got)


async def test_conformance_the_agent_of_0_3():
    said = {"kind": "message", "messageId": "x", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
    async with wire_of("jsonrpc", v03=True) as wire:
        card = (await wire.client.get("/.well-known/agent-card.json")).json()
        assert {"url", "preferredTransport", "additionalInterfaces"} <= set(card)
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}}
        task = (await wire.client.post("/", json=body)).json()["result"]
        assert task["status"]["state"] == "input-required"
        assert task["status"]["message"]["parts"][0]["text"] == "Hello world!"
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel", "params": {"id": task["id"]}}
        assert (await wire.client.post("/", json=body)).json()["result"]["status"]["state"] == "canceled"


def test_conformance_the_command_says_what_it_can_do():
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance", "--help"], cwd=root, capture_output=True, text=True, check=True
    )
    flags = set(re.findall(r"--[\w-]+", done.stdout))
    assert {"--port", "--push", "--extended", "--no-streaming", "--required-ext", "--v03"} <= flags
