"""`/run` and `/run_sse`: what callers get, in which order, and what they may send (spec rest 2.1-2.3, 8)."""

import json
from typing import Any

import anyio
import pytest

from polyport import Content, LlmAgent, Part, RunContext, ToolContext
from polyport.data.limits import Limits
from polyport.testing import ScriptedModel, call, chunks
from support.talk import Serve, texts


async def test_rest_32_run_gives_the_agents_events_without_the_users(serve: Serve, scripted: Any):
    agent, model = scripted("hello there")
    async with serve(agent) as talk:
        events = await talk.run("hi")
    assert texts(events) == ["hello there"]
    assert {e["author"] for e in events} == {"app"}
    model.check()


async def test_rest_33_34_members_that_are_always_there(serve: Serve, scripted: Any):
    agent, _ = scripted(chunks("a", "b"))
    async with serve(agent) as talk:
        events = await talk.sse(streaming=True)
    for event in events:
        assert {"content", "groundingMetadata", "usageMetadata"} <= set(event)
        assert event["actions"]["stateDelta"] == {} and event["actions"]["artifactDelta"] == {}
        assert isinstance(event["timestamp"], float)
    assert [e.get("partial") for e in events] == [True, True, None]


@pytest.mark.parametrize("path", ["/run", "/run_sse", "/api/run", "/run/", "/api/run_sse/"])
async def test_rest_35_36_86_unknown_field_is_400_and_the_model_is_not_asked(serve: Serve, scripted: Any, path: str):
    agent, model = scripted()
    async with serve(agent) as talk:
        for body in (talk.body(foo=1), talk.body({"parts": [{"text": "x", "txt": 1}]})):
            response = await talk.client.post(path, json=body)
            assert response.status == 400
            assert "unknown field" in response.json()["error"]
            assert set(response.json()) == {"error", "detail"}
    assert model.requests == []


async def test_rest_37_function_call_event_id_has_no_effect(serve: Serve, scripted: Any):
    agent, _ = scripted("ok")
    async with serve(agent) as talk:
        assert texts(await talk.run(functionCallEventId="x")) == ["ok"]


@pytest.mark.parametrize("route", ["run", "sse"])
async def test_FR_001_rest_38_state_delta_is_applied_before_the_model_is_asked(serve: Serve, scripted: Any, route: str):
    def peek(ctx: ToolContext) -> dict[str, Any]:
        """Look."""
        return {"tok": ctx.state["temp:tok"]}

    agent, model = scripted(call("peek"), "done", instruction="Lang={user:lang} K={k}", tools=[peek])
    async with serve(agent) as talk:
        delta = {"k": "v", "user:lang": "fr", "temp:tok": "t"}
        events = await (talk.run if route == "run" else talk.sse)(stateDelta=delta)
        stored = await talk.stored()
    assert "Lang=fr K=v" in model.requests[0].system
    responses = [
        p["functionResponse"]["response"] for e in events for p in e["content"]["parts"] if "functionResponse" in p
    ]
    assert responses == [{"tok": "t"}]
    assert stored["state"] == {"k": "v", "user:lang": "fr"}
    assert stored["events"][0]["actions"]["stateDelta"] == {"k": "v", "user:lang": "fr"}


async def test_rest_38_a_null_state_delta_is_none(serve: Serve, scripted: Any):
    agent, _ = scripted("ok")
    async with serve(agent) as talk:
        response = await talk.client.post("/run", json={**talk.body(), "stateDelta": None})
        assert response.status == 200


async def test_rest_39_40_unknown_session_or_app_is_404(serve: Serve, scripted: Any):
    agent, _ = scripted()
    async with serve(agent) as talk:
        response = await talk.client.post("/run", json=talk.at("nope").body())
        assert response.status == 404
        assert response.json()["error"].startswith("failed to get session: ")
        response = await talk.client.post("/run", json={**talk.body(), "appName": "other"})
        assert response.status == 404


async def test_FR_011_a_missing_session_is_named_in_full(serve: Serve, scripted: Any):
    agent, _ = scripted()
    async with serve(agent) as talk:
        for response in (
            await talk.client.post("/run_sse", json={**talk.body(), "appName": "appB"}),
            await talk.client.get("/apps/appB/users/u1/sessions/s1"),
        ):
            assert response.status == 404
            for word in ("appB", "u1", "s1"):
                assert word in response.json()["error"]
            assert "Traceback" not in response.text


async def test_rest_42_an_agents_error_is_500_and_stored_events_stay(serve: Serve, scripted: Any):
    agent, _ = scripted(ValueError("boom"))
    async with serve(agent) as talk:
        response = await talk.client.post("/run", json=talk.body())
        assert response.status == 500
        assert "boom" not in response.text, "the text of an error that is not ours may hold secrets"
        assert [e["author"] for e in (await talk.stored())["events"]] == ["user"]


async def test_rest_43_no_event_is_an_empty_array(serve: Serve):
    from polyport import FunctionAgent

    async def silent(ctx: RunContext) -> None:
        return None

    async with serve(FunctionAgent(name="quiet", function=silent)) as talk:
        assert await talk.run() == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b'{"appName":1}', b'{"appName":"app"}garbage'])
async def test_rest_45_46_malformed_bodies_are_400(serve: Serve, scripted: Any, body: bytes):
    agent, _ = scripted()
    async with serve(agent) as talk:
        for path in ("/run", "/run_sse"):
            response = await talk.client.post(path, body=body, headers={"content-type": "application/json"})
            assert response.status == 400, response.text
            assert response.json()["error"].startswith("failed to decode request")


@pytest.mark.parametrize("field", ["appName", "userId", "sessionId", "newMessage"])
async def test_missing_fields_are_named(serve: Serve, scripted: Any, field: str):
    agent, _ = scripted()
    async with serve(agent) as talk:
        body = talk.body()
        del body[field]
        response = await talk.client.post("/run", json=body)
        assert response.status == 400
        assert f"{field} is required" in response.json()["error"]


async def test_rest_47_snake_case_is_accepted(serve: Serve, scripted: Any):
    agent, _ = scripted("ok")
    async with serve(agent) as talk:
        body = {"app_name": "app", "user_id": "u1", "session_id": "s1", "new_message": {"parts": [{"text": "x"}]}}
        response = await talk.client.post("/run", json={**body, "state_delta": {"some_key": 1}})
        assert response.status == 200
        assert (await talk.stored())["state"] == {"some_key": 1}


async def test_rest_48_partials_only_when_asked_for(serve: Serve, scripted: Any):
    agent, _ = scripted(chunks("a", "b"), chunks("c", "d"))
    async with serve(agent) as talk:
        assert texts(await talk.run(streaming=False)) == ["ab"]
        assert texts(await talk.run(streaming=True)) == ["c", "d", "cd"]


async def test_rest_49_50_51_60_frames_and_their_headers(serve: Serve, scripted: Any):
    gate = anyio.Event()

    async def slow(request: Any, on_partial: Any) -> Any:
        await gate.wait()
        return "second"

    agent, _ = scripted([call("noop")], slow, tools=[noop])
    async with serve(agent) as talk, talk.client.stream("POST", "/run_sse", json=talk.body()) as response:
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in response.headers["cache-control"]
        assert response.headers["x-accel-buffering"] == "no"
        seen = b""
        async for chunk in response.chunks():
            seen += chunk
            if seen.count(b"\n\n") == 2:
                gate.set()  # call and result came while the model was still thinking about the answer
        frames = seen.split(b"\n\n")
        assert frames.pop() == b""
        assert len(frames) == 3
        for frame in frames:
            assert frame.startswith(b"data: {") and b"\n" not in frame
            json.loads(frame[6:])
        assert b"[DONE]" not in seen and b"id:" not in seen.replace(b'"id:', b"") and b"retry:" not in seen


def noop() -> str:
    """Do nothing."""
    return "ok"


async def test_rest_52_FR_023_an_error_is_one_frame_and_the_end(serve: Serve, scripted: Any):
    from polyport.errors import ModelError

    failures = [ModelError("the model's server answered 401: bad key", http_status=401) for _ in range(40)]
    agent, _ = scripted(*failures, "healthy again")
    async with serve(agent) as talk:
        for _ in range(20):
            events = await talk.sse()
            assert [e[0] for e in events] == ["error"]
            assert events[0][1] == {"error": "the model's server answered 401: bad key", "errorCode": "HTTP_401"}
            response = await talk.client.post("/run", json=talk.body())
            assert response.status == 500
            assert response.json()["error"].startswith("failed to run agent: ")
        assert texts(await talk.run()) == ["healthy again"]


async def test_rest_54_55_56_errors_before_the_stream_are_plain_answers(serve: Serve, scripted: Any):
    agent, _ = scripted()
    async with serve(agent) as talk:
        response = await talk.client.post("/run_sse", json=talk.at("nope").body())
        assert response.status == 404
        assert not response.headers["content-type"].startswith("text/event-stream")
        response = await talk.client.post("/run_sse", json=talk.body(foo=1))
        assert response.json()["error"].startswith("failed to decode request body: ")


async def test_rest_57_hanging_up_cancels_the_run_and_nothing_is_written_after(serve: Serve, scripted: Any):
    started, cancelled = anyio.Event(), anyio.Event()

    async def forever() -> str:
        """Wait."""
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return ""

    agent, model = scripted(call("forever", id="c1"), "after all", tools=[forever])
    async with serve(agent) as talk:
        async with talk.client.stream("POST", "/run_sse", json=talk.body()) as response:
            async for _ in response.events():
                await started.wait()
                break
        assert cancelled.is_set(), "leaving the stream waits for the app, so the tool has seen the cancellation"
        assert response.late_writes == 0
        assert [e["author"] for e in (await talk.stored())["events"]] == ["user", "app"], "what was committed stays"
        assert texts(await talk.run("again")) == ["after all"]
    assert model.prompt()[-1] == "user: again"


async def test_rest_57_hanging_up_on_run_cancels_too(serve: Serve, scripted: Any):
    started, cancelled = anyio.Event(), anyio.Event()

    async def forever() -> str:
        """Wait."""
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return ""

    agent, _ = scripted(call("forever"), tools=[forever])
    async with serve(agent) as talk:
        async with anyio.create_task_group() as group:

            async def hang_up() -> None:
                await started.wait()
                group.cancel_scope.cancel()

            group.start_soon(hang_up)
            await talk.client.post("/run", json=talk.body())
        with anyio.fail_after(5):
            await cancelled.wait()


async def test_rest_58_a_timeout_ends_the_stream_with_an_error_frame(serve: Serve, scripted: Any):
    async def hang(request: Any, on_partial: Any) -> str:
        await anyio.sleep_forever()
        return ""

    agent, _ = scripted(hang)
    async with serve(agent, limits=Limits(sse_timeout_s=0.05)) as talk:
        events = await talk.sse()
    assert events[-1][0] == "error" and "timeout" in events[-1][1]["error"]


def test_rest_59_a_timeout_of_zero_is_the_default():
    assert Limits(sse_timeout_s=0).sse_deadline_s == 120
    assert Limits(sse_timeout_s=-1).sse_deadline_s is None


async def test_rest_61_FR_070_partials_then_one_final_with_the_same_text(serve: Serve, scripted: Any):
    agent, model = scripted(chunks("Hi Ada ", "how are you ", "doing?"), "fine")
    async with serve(agent) as talk:
        events = await talk.sse(streaming=True)
        assert texts([e for e in events if e.get("partial")]) == ["Hi Ada ", "how are you ", "doing?"]
        assert texts(events)[-1] == "Hi Ada how are you doing?"
        await talk.sse("more")
    assert model.prompt() == ["user: hi", "model: Hi Ada how are you doing?", "user: more"]


async def test_FR_071_pieces_and_their_answer_share_an_id(serve: Serve, scripted: Any):
    first = Content(role="model", parts=[Part(text="Let me check"), Part(function_call=call("noop", id="c1"))])
    agent, _ = scripted(first, chunks("Re", "sult"), tools=[noop])
    async with serve(agent) as talk:
        events = await talk.sse(streaming=True)
    ids = [e["id"] for e in events]
    assert ids[2] == ids[3] == ids[4] and len(set(ids)) == 3
    assert [bool(e.get("partial")) for e in events] == [False, False, True, True, False]


async def test_FR_068_a_call_has_one_id_everywhere(serve: Serve, scripted: Any):
    def later() -> None:
        """Answer later."""

    from polyport import make_tool
    from polyport.data.model import ModelResponse

    async def streamed(request: Any, on_partial: Any) -> Any:
        piece = Content(role="model", parts=[Part(function_call=call("later"))])
        await on_partial(ModelResponse(content=piece, partial=True))
        return [call("later")]

    agent, model = scripted(streamed, "thanks", tools=[make_tool(later, long_running=True)])
    async with serve(agent) as talk:
        events = await talk.sse(streaming=True)
        ids = {p["functionCall"]["id"] for e in events for p in e["content"]["parts"] if "functionCall" in p}
        assert len(ids) == 1
        id = ids.pop()
        assert events[-1]["longRunningToolIds"] == [id]
        reply = {"role": "user", "parts": [{"functionResponse": {"id": id, "name": "later", "response": {"x": 1}}}]}
        assert texts(await talk.sse(reply)) == ["thanks"]
    assert model.prompt() == ["user: hi", "model: call later({})", "user: result later {'x': 1}"]


async def test_FR_069_a_preview_of_a_call_does_not_run_it(serve: Serve, scripted: Any):
    from polyport.data.model import ModelResponse

    ran: list[str] = []

    def work(n: str) -> str:
        """Work."""
        ran.append(n)
        return n

    async def streamed(request: Any, on_partial: Any) -> Any:
        calls = [call("work", {"n": n}, f"c{n}") for n in "ab"]
        for one in calls:
            await on_partial(
                ModelResponse(content=Content(role="model", parts=[Part(function_call=one)]), partial=True)
            )
        return calls

    agent, _ = scripted(streamed, "done", tools=[work])
    async with serve(agent) as talk:
        events = await talk.sse(streaming=True)
    assert sorted(ran) == ["a", "b"]
    previews = [e for e in events if e.get("partial")]
    assert len(previews) == 2 and all("functionCall" in e["content"]["parts"][0] for e in previews)


async def test_FR_013_data_urls_become_inline_data_and_wildcards_are_refused(serve: Serve, scripted: Any):
    agent, model = scripted("nice")
    async with serve(agent) as talk:
        await talk.run({"parts": [{"fileData": {"fileUri": "data:image/png;base64,AAAA"}}]})
        blob = model.requests[0].contents[0].parts[0].inline_data
        assert blob is not None and (blob.mime_type, blob.data) == ("image/png", b"\0\0\0")
        bad = talk.body({"parts": [{"inlineData": {"mimeType": "image/*", "data": "AAAA"}}]})
        response = await talk.client.post("/run", json=bad)
        assert response.status == 400 and "mimeType" in response.json()["error"]
        response = await talk.client.post("/run", json=talk.body({"parts": [{"fileData": {"fileUri": "data:x"}}]}))
        assert response.status == 400 and "fileUri" in response.json()["error"]


async def test_FR_015_rest_90_a_body_over_the_limit_is_413(serve: Serve, scripted: Any):
    agent, _ = scripted("ok")
    async with serve(agent, limits=Limits(body_bytes=1000)) as talk:
        response = await talk.client.post("/run", json=talk.body("x" * 2000))
        assert response.status == 413
        assert "body_bytes" in response.json()["error"]
        assert texts(await talk.run("small")) == ["ok"]


async def test_FR_020_streams_end_by_themselves(serve: Serve, scripted: Any):
    agent, _ = scripted(*["hi"] * 50)
    async with serve(agent) as talk:
        for _ in range(50):
            events = await talk.sse()
            assert texts(events) == ["hi"]


async def test_FR_020_an_early_end_in_a_callback_closes_the_stream(serve: Serve):
    model = ScriptedModel()
    from polyport.data.content import model_text

    agent = LlmAgent(name="app", model=model, before_agent=lambda ctx: model_text("cached"))
    async with serve(agent) as talk:
        assert texts(await talk.sse()) == ["cached"]


async def test_FR_022_quiet_streams_get_comments_that_are_no_events(serve: Serve, scripted: Any):
    gate = anyio.Event()

    async def slow() -> str:
        """Take long."""
        await gate.wait()
        return "ok"

    agent, _ = scripted(call("slow"), "done", tools=[slow])
    async with (
        serve(agent, limits=Limits(heartbeat_s=0.02)) as talk,
        talk.client.stream("POST", "/run_sse", json=talk.body()) as response,
    ):
        seen = b""
        async for chunk in response.chunks():
            seen += chunk
            if b": ping\n\n" in seen:
                gate.set()
        assert not seen.startswith(b":"), "no comment inside or before the first frame here"
        for block in seen.split(b"\n\n"):
            assert not block or block.startswith((b"data: {", b": ping"))


async def test_FR_014_uploads_become_artifacts(serve: Serve, scripted: Any):
    agent, model = scripted("seen")
    async with serve(agent) as talk:
        upload = {"parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]}
        await talk.run(upload, saveInputBlobsAsArtifacts=True)
        names = (await talk.client.get(talk.path + "/artifacts")).json()
        assert len(names) == 1 and names[0].startswith("artifact_e-")
        stored = (await talk.stored())["events"][0]
        assert "inlineData" not in json.dumps(stored)
        assert stored["actions"]["artifactDelta"] == {names[0]: 1}
        part = (await talk.client.get(f"{talk.path}/artifacts/{names[0]}")).json()
        assert part["inlineData"] == {"mimeType": "image/png", "data": "AAAA"}
    assert model.requests[0].contents[0].parts[1].inline_data is not None, "the model still receives the file"


async def test_arguments_that_are_no_json_object_go_back_to_the_model(serve: Serve, scripted: Any):
    from polyport.data.content import INVALID_ARGS

    agent, model = scripted(call("noop", {INVALID_ARGS: '{"a":'}), "sorry", tools=[noop])
    async with serve(agent) as talk:
        assert texts(await talk.run()) == ["sorry"]
    assert "not a JSON object" in model.prompt()[-1]


async def test_rest_41_56_a_session_whose_app_is_gone(serve: Serve, scripted: Any):
    """The reference answers 500; an unknown app is the caller's mistake here (rest section 10)."""
    agent, _ = scripted()
    async with serve(agent) as talk:
        assert (await talk.client.post("/apps/ghost/users/u1/sessions/s1")).status == 200
        for path in ("/run", "/run_sse"):
            response = await talk.client.post(path, json={**talk.body(), "appName": "ghost"})
            assert response.status == 404
            assert response.json()["error"].startswith("failed to load agent: ")
            assert "ghost" in response.json()["error"]


async def test_rest_53_62_nothing_is_skipped_before_an_error_and_nothing_follows_it(serve: Serve):
    """The reference goes on after an error frame; here the first error ends the run (core section 12.4)."""
    from collections.abc import AsyncIterator

    from polyport import Event, FunctionAgent
    from polyport.data.content import model_text

    async def yields(ctx: RunContext) -> AsyncIterator[Event | None]:
        yield None
        yield Event(content=model_text("first"))
        raise ValueError("secret detail")
        yield Event(content=model_text("never"))

    async with serve(FunctionAgent(name="app", function=yields)) as talk:
        events = await talk.sse()
    assert texts(events) == ["first"]
    assert [e[0] for e in events[1:]] == ["error"] and "secret" not in str(events[1:])
