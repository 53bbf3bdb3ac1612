"""Our A2A client, RemoteAgent and command line against an agent made with a2a-sdk, in all of its forms."""

import os
from contextlib import aclosing
from typing import Any

import anyio
import pytest

pytest.importorskip("a2a")

from interop.a2a_peer_server import Peer, a2a_peer
from polyport import App, Content, Part, RunConfig
from polyport.agents.a2a_client import A2AClient
from polyport.agents.a2a_door import Caller
from polyport.agents.remote import RemoteAgent
from polyport.data.content import Blob, FunctionCall
from polyport.wire import a2a
from polyport.wire.a2a_errors import MethodNotFound, TaskNotCancelable, TaskNotFound, UnsupportedOperation
from support.a2a_fake import Fake, chunk, fake_agent, status, task
from support.processes import Process
from support.talk import said

FORMS = [(binding, version) for version in ("1.0", "0.3") for binding in ("JSONRPC", "HTTP+JSON", "GRPC")]
each_form = pytest.mark.parametrize("form", FORMS, ids=["-".join(form) for form in FORMS])
CHUNKS = ["task SUBMITTED", "WORKING", "Hello, ", "big ", "world!", "COMPLETED"]


async def gather(payloads: Any) -> list[a2a.Payload]:
    async with aclosing(payloads):
        return [payload async for payload in payloads]


def short(payloads: list[a2a.Payload]) -> list[str]:
    out: list[str] = []
    for p in payloads:
        if isinstance(p, a2a.Message):
            out.append(f"message {p.text}")
        elif isinstance(p, a2a.TaskArtifactUpdateEvent):
            out.append("".join(part.text or "?" for part in p.artifact.parts))
        else:
            out.append(("task " if isinstance(p, a2a.Task) else "") + p.status.state.removeprefix("TASK_STATE_"))
    return out


def text_of(task: a2a.Task) -> str:
    return "".join(part.text or "?" for artifact in task.artifacts or () for part in artifact.parts)


@each_form
async def test_send_stream_get_and_messages(form: tuple[str, str]):
    async with a2a_peer(form) as peer:
        client = A2AClient(peer.url)
        assert short(await gather(client.stream("chunks"))) == CHUNKS
        assert short(await gather(client.stream("message"))) == ["message just this"]
        whole = await client.send("chunks")
        assert isinstance(whole, a2a.Task) and text_of(whole) == "Hello, big world!"
        again = await client.get(whole.id, history_length=1)
        assert again.status.state is a2a.TaskState.COMPLETED and len(again.history) == 1
        polled = await client.send("chunks", wait="polling")
        assert isinstance(polled, a2a.Task) and text_of(polled) == "Hello, big world!"
        with pytest.raises(TaskNotFound):
            await client.get("nobody")
        await client.aclose()


@each_form
async def test_FR_178_T103_streams_that_are_cut_lose_nothing(form: tuple[str, str]):
    async with a2a_peer(form) as peer:
        client = A2AClient(peer.url)
        for cuts in ([1], [3], [4], [3, 1, 0]):
            peer.cuts = cuts
            payloads = await gather(client.stream("chunks"))
            text = ""
            for payload in payloads:
                if isinstance(payload, a2a.TaskArtifactUpdateEvent):
                    said = "".join(part.text or "" for part in payload.artifact.parts)
                    text = text + said if payload.append else said
            assert text == "Hello, big world!"
            assert short(payloads)[0] == "task SUBMITTED" and short(payloads)[-1] == "COMPLETED"
        await client.aclose()


@each_form
async def test_a_task_that_works_can_be_followed_and_cancelled(form: tuple[str, str]):
    async with a2a_peer(form) as peer:
        client = A2AClient(peer.url)
        begun = await client.send("slow", wait="no")
        assert isinstance(begun, a2a.Task)
        await peer.script.working.wait()
        followed: list[str] = []

        async def follow() -> None:
            followed.extend(short(await gather(client.subscribe(begun.id))))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            while not any("subscri" in path.lower() for _, path, _ in peer.requests) and form[0] != "JSONRPC":
                await anyio.lowlevel.checkpoint()
            canceled = await client.cancel(begun.id)
            assert canceled.status.state is a2a.TaskState.CANCELED
        assert followed[0].startswith("task") and followed[-1].endswith("CANCELED")
        assert peer.script.canceled == [begun.id]
        with pytest.raises(TaskNotCancelable):
            await client.cancel(begun.id)
        await client.aclose()


@each_form
async def test_push_configs_and_lists(form: tuple[str, str]):
    async with a2a_peer(form) as peer:
        client = A2AClient(peer.url)
        asked = await client.send("ask")
        assert isinstance(asked, a2a.Task)
        config = a2a.TaskPushNotificationConfig(task_id=asked.id, id="p1", url="http://127.0.0.1:9/hook", token="tok")
        made = await client.create_push_config(config)
        assert (made.task_id, made.id, made.url) == (asked.id, "p1", config.url)
        assert (await client.get_push_config(asked.id, "p1")).token == "tok"
        if form != ("HTTP+JSON", "0.3"):  # the peer cannot answer these two there
            assert [c.id for c in (await client.list_push_configs(asked.id)).configs] == ["p1"]
            await client.delete_push_config(asked.id, "p1")
            assert (await client.list_push_configs(asked.id)).configs == []
        if form[1] == "1.0":
            page = await client.list(a2a.ListTasksRequest(page_size=1, include_artifacts=True))
            assert [task.id for task in page.tasks] == [asked.id]
        else:
            with pytest.raises(UnsupportedOperation):
                await client.list()
        with pytest.raises((UnsupportedOperation, MethodNotFound)):
            await client.extended_card()
        await client.aclose()


async def test_FR_178_a_peer_without_streaming_is_polled():
    async with a2a_peer(streaming=False) as peer:
        client = A2AClient(peer.url)
        assert "".join(short(await gather(client.stream("chunks")))[1:]).endswith("COMPLETED")
        await client.aclose()


async def test_T105_the_peers_card_is_revalidated():
    async with a2a_peer(cache_control="max-age=0") as peer:
        client = A2AClient(peer.url)
        for _ in range(3):
            await client.card()
        asked = [headers.get("if-none-match") for _, _, headers in peer.requests]
        assert asked[0] is None and asked[1] == asked[2] and asked[1]
        await client.aclose()


# ---- as an agent


def shown(events: list[Any]) -> list[str]:
    return [("~" if e.partial else "") + e.text for e in events]


@each_form
async def test_T101_T102_a_remote_agent_streams_asks_and_is_answered(form: tuple[str, str]):
    async with a2a_peer(form) as peer, App(RemoteAgent(name="far", url=peer.url)) as app:
        events = [e async for e in app.stream("chunks", session="s", config=RunConfig(streaming=True))]
        pieces = [text for text in shown(events) if text != "~"]
        assert pieces == ["~Hello, ", "~big ", "~world!", "Hello, big world!"]
        asked = await app.ask("ask", session="s")
        assert asked.outcome.status == "paused" and asked.text == "Which city?"
        call = asked.events[-1].calls[0]
        reply = await app.ask(said(call.id, call.name, {"payload": "Paris"}), session="s")
        assert reply.text == "Hello from Paris" and reply.outcome.status == "finished"
        first, question, answer = peer.script.messages
        assert question["contextId"] == first["contextId"] == answer["contextId"]
        assert answer["taskId"] == question["taskId"] != first["taskId"]
        assert answer["parts"][0]["text"] == "Paris" and len(answer["parts"]) == 1


@each_form
async def test_T102_a_long_running_call_over_there_is_answered_from_here(form: tuple[str, str]):
    async with a2a_peer(form) as peer, App(RemoteAgent(name="far", url=peer.url)) as app:
        asked = await app.ask("call", session="s")
        event = asked.events[-1]
        assert asked.outcome.status == "paused" and event.long_running_tool_ids == ["call-1"]
        assert event.calls == [FunctionCall(id="call-1", name="approve", args={"sum": 3})]
        await app.ask(said("call-1", "approve", {"ok": True}), session="s")
        answer = peer.script.messages[1]
        assert answer["taskId"] == peer.script.messages[0]["taskId"]
        assert answer["parts"][0]["metadata"]["adk_type"] == "function_response"
        assert answer["parts"][0]["data"] == {"id": "call-1", "name": "approve", "response": {"ok": True}}


@each_form
async def test_FR_180_parts_come_back_as_they_went(form: tuple[str, str]):
    wrapped = Blob(mime_type="text/plain", data=b'<a2a_datapart_json>["y","x",null]</a2a_datapart_json>')
    parts = [
        Part(text="echo"),
        Part(inline_data=Blob(mime_type="image/png", data=bytes(range(256)), display_name="p.png")),
        Part(inline_data=wrapped),
        Part(text="with a note", part_metadata={"mine": {"a": ["1", None]}}),
    ]
    if form in (("HTTP+JSON", "0.3"), ("GRPC", "0.3")):
        del parts[1]  # the peer encodes bytes twice there
    async with a2a_peer(form) as peer, App(RemoteAgent(name="far", url=peer.url)) as app:
        reply = await app.ask(Content(role="user", parts=parts), session="s")
        content = reply.events[-1].content
        assert content is not None and content.parts == parts[1:]
        assert len(peer.script.messages) == 1


@each_form
async def test_core_121_failures_of_the_remote_agent_are_events(form: tuple[str, str]):
    async with a2a_peer(form) as peer, App(RemoteAgent(name="far", url=peer.url)) as app:
        for text, code, why in (
            ("fail", "REMOTE_TASK_FAILED", "no more tea"),
            ("reject", "REMOTE_TASK_REJECTED", "not for me"),
        ):
            reply = await app.ask(text)
            event = reply.events[-1]
            assert reply.outcome.status == "finished"
            assert (event.error_code, event.error_message, event.turn_complete) == (code, why, True)


async def test_cancelling_the_run_cancels_the_task_over_there():
    async with a2a_peer() as peer, App(RemoteAgent(name="far", url=peer.url)) as app:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: app.ask("slow"))
            await peer.script.working.wait()
            tasks.cancel_scope.cancel()
        assert len(peer.script.canceled) == 1


async def test_FR_177_two_users_call_with_their_own_tokens():
    async with a2a_peer() as peer:
        agent = RemoteAgent(
            name="far", url=peer.url, header_provider=lambda ctx: {"Authorization": f"Bearer {ctx.user_id}"}
        )
        async with App(agent) as app, anyio.create_task_group() as tasks:
            for user in ("ann", "bob"):
                tasks.start_soon(lambda user=user: app.ask("hi", user=user))
        assert {h["authorization"] for _, _, h in peer.requests} == {"Bearer ann", "Bearer bob"}
        peer.token = "ann"
        async with App(agent) as app:
            assert (await app.ask("hi", user="ann")).text == "you said hi"
            refused = (await app.ask("hi", user="bob")).events[-1]
            assert refused.error_code == "UNAUTHENTICATED"
        client = A2AClient(peer.url)
        answer = await client.send("hi", caller=Caller(headers={"authorization": "Bearer ann"}))
        assert isinstance(answer, a2a.Task)
        await client.aclose()


# ---- the command line


async def command(peer: Peer | Fake, *words: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    def run() -> tuple[int, str, str]:
        with Process("a2a", words[0], peer.url, *words[1:], env=env) as process:
            process.stdin.close()
            code = process.ended()
            return code, process.out.text, process.err.text

    return await anyio.to_thread.run_sync(run)


async def test_the_command_line_shows_the_card_and_talks():
    async with a2a_peer(("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")) as peer:
        code, out, _ = await command(peer, "card")
        assert code == 0 and "peer 1" in out and "HTTP+JSON 1.0" in out and "streaming" in out
        code, out, err = await command(peer, "send", "chunks")
        assert (code, out) == (0, "Hello, big world!") and "state completed" in err
        code, out, err = await command(peer, "send", "ask", "--binding", "JSONRPC")
        assert (code, out) == (3, "Which city?")
        task_id = err.split()[1]
        code, out, _ = await command(peer, "send", "Paris", "--task", task_id, "--json")
        assert code == 0 and '"Hello from "' in out and out.count("\n") >= 2
        code, out, _ = await command(peer, "get", task_id)
        assert (code, out) == (0, "Hello from Paris")
        code, out, err = await command(peer, "send", "fail")
        assert (code, out) == (1, "") and "no more tea" in err


async def test_the_command_line_cancels_follows_and_signs_in():
    async with a2a_peer() as peer:
        peer.token = "s3cret"
        code, _, err = await command(peer, "card")
        assert code == 1 and "401" in err
        env = {**os.environ, "PEER_TOKEN": "s3cret"}
        sign_in = ("--token-env", "PEER_TOKEN")
        code, _, err = await command(peer, "send", "slow", "--no-wait", *sign_in, env=env)
        assert code == 0
        task_id = err.split()[1]
        code, _, err = await command(peer, "cancel", task_id, *sign_in, env=env)
        assert code == 0 and "state canceled" in err
        code, _, err = await command(peer, "subscribe", task_id, *sign_in, env=env)
        assert code == 1 and "canceled" in err
        code, _, err = await command(peer, "get", "nobody", *sign_in, env=env)
        assert code == 1 and "not found" in err.lower()
        code, _, err = await command(peer, "card", "--token-env", "NOT_SET_ANYWHERE")
        assert code == 1 and "NOT_SET_ANYWHERE" in err


async def test_the_command_line_writes_previews_once():
    preview, whole = {"metadata": {"adk_partial": True}}, {"metadata": {"adk_partial": False}}
    async with fake_agent() as fake:
        fake.streams(
            {"task": task()},
            chunk("Hel", artifact="p", **preview),
            chunk("lo", artifact="p", **preview),
            chunk("Hello", **whole),
            chunk("Other", append=True, **whole),
            chunk({"data": {}}, artifact="p", last=True, **preview),
            status("COMPLETED", "Bye"),
        )
        code, out, err = await command(fake, "send", "hi")
        assert (code, out.splitlines()) == (0, ["Hello", "Other", "Bye"])
        assert err.splitlines() == ["task t1 context c1", "state submitted", "state completed"]
