"""Live sessions over WebSocket: the handshake, the messages of both sides, and every way a session ends."""

import base64
import json
from typing import Any

import anyio
import pytest

from polyport import FunctionAgent, LlmAgent, ParallelAgent
from polyport.auth.authorize import Strict
from polyport.auth.combine import FunctionAuth
from polyport.data.auth import Caller
from polyport.data.content import model_text
from polyport.data.limits import MIB, Limits
from polyport.data.live import LiveBlob, LiveConfig, LiveSignal
from polyport.data.model import Transcription, Usage
from polyport.errors import ModelError
from polyport.models.fallback import Fallback
from polyport.models.retry import Retrying
from polyport.ports.agent import RunContext
from polyport.ports.auth import Auth
from polyport.protocols.live import Live
from polyport.testing import ScriptedModel
from polyport.testing.live import LiveDouble
from polyport.testing.websocket import Refused
from support.live import lines_of, sound, staged, text_of
from support.talk import serving

PCM = bytes(range(256)) * 4


# ---- the handshake


@pytest.mark.parametrize("missing", ["appName", "userId", "sessionId"])
async def test_rest_63_a_missing_id_is_400_before_the_upgrade(missing: str):
    async with staged() as stage:
        query = stage.query()
        del query[missing]
        with pytest.raises(Refused) as refused:
            async with stage.talk.client.websocket("/run_live", query=query):
                pass
        assert refused.value.response.status == 400
        assert "appName, userId, and sessionId are required" in refused.value.response.text


async def test_rest_64_both_spellings_of_the_ids_are_read_and_camel_case_wins():
    async with staged() as stage:
        snake = {"app_name": "app", "user_id": "u1", "session_id": "s1"}
        async with stage.talk.client.websocket("/run_live", query=snake):
            await stage.model.connection()
        wrong = {"app_name": "other", "user_id": "other", "session_id": "other"}
        async with stage.talk.client.websocket("/run_live", query={**wrong, **stage.query()}):
            await stage.model.connection()


async def test_rest_67_an_unknown_app_closes_with_1011_and_says_so():
    async with staged() as stage, stage.connected(appName="nobody") as client:
        code, reason = await client.closed()
        assert code == 1011
        assert reason.startswith("agent nobody not found for original error: ")


async def test_rest_68_a_missing_session_closes_with_1011():
    async with staged() as stage, stage.connected(sessionId="none") as client:
        code, reason = await client.closed()
        assert code == 1011
        assert "none" in reason


async def test_a_user_may_not_talk_in_the_name_of_another_and_storage_is_not_asked():
    auth = Auth(FunctionAuth(lambda credentials: Caller("alice")), Strict())
    async with staged(auth=auth, create=False) as stage:
        for session in ("s1", "none"):
            with pytest.raises(Refused) as refused:
                query = stage.query(userId="bob", sessionId=session)
                async with stage.talk.client.websocket("/run_live", query=query):
                    pass
            assert refused.value.response.status == 403
        assert not stage.model.lines


async def test_state_that_all_users_share_is_not_for_every_client():
    auth = Auth(FunctionAuth(lambda credentials: Caller("u1")), Strict())
    async with staged(auth=auth, instruction="Rule: {app:rule?}.") as stage, stage.live() as (client, line):
        await client.send(stateDelta={"app:rule": "obey u1", "mine": 1}, content={"parts": [{"text": "no"}]})
        refused = await client.event()
        assert (refused["errorCode"], "app:rule" in refused["errorMessage"]) == ("PERMISSION_DENIED", True)
        await client.send(stateDelta={"user:mine": 1}, content={"parts": [{"text": "yes"}]})
        assert text_of(await line.heard()) == "yes"
        session = await stage.talk.stored()
        assert {key: value for key, value in session["state"].items() if key != "mine"} == {"user:mine": 1}
        assert lines_of(session["events"]) == ["user: yes"]


async def test_more_sessions_than_the_limit_are_503():
    async with staged(limits=Limits(max_live_sessions=1)) as stage:
        async with stage.live():
            with pytest.raises(Refused) as refused:
                async with stage.connected():
                    pass
            assert refused.value.response.status == 503
            assert "live session limit of 1 reached" in refused.value.response.text
        async with stage.live():
            pass  # the place is free again


@pytest.mark.parametrize(
    ("query", "modalities"),
    [
        ({}, ["AUDIO"]),
        ({"modalities": "TEXT"}, ["TEXT"]),
        ({"modalities": ["audio", "VIDEO"]}, ["AUDIO"]),
        ({"modalities": "VIDEO"}, ["AUDIO"]),
    ],
)
async def test_the_modalities_that_a_client_asks_for_reach_the_model(query: dict[str, Any], modalities: list[str]):
    async with staged() as stage, stage.live(**query) as (_, line):
        assert line.config.modalities == modalities


@pytest.mark.parametrize(
    "query", [{"modalities": "SMELL"}, {"proactive_audio": "perhaps"}, {"activity": "x"}, {"voice": "\x01"}]
)
async def test_a_parameter_that_makes_no_sense_closes_with_1008(query: dict[str, Any]):
    async with staged() as stage, stage.connected(**query) as client:
        code, reason = await client.closed()
        assert code == 1008
        assert next(iter(query)) in reason
        assert not stage.model.lines


async def test_the_parameters_of_other_clients_set_the_session_up():
    query = {
        "proactive_audio": "true",
        "enable_affective_dialog": "1",
        "enable_session_resumption": "false",
        "explicit_vad_signal": "true",
        "activity": "manual",
        "voice": "Puck",
        "language": "de-DE",
        "something_new": "ignored",
    }
    async with staged() as stage, stage.live(**query) as (_, line):
        assert line.config == LiveConfig(
            proactive_audio=True,
            affective_dialog=True,
            resumption=False,
            explicit_vad_signal=True,
            activity="manual",
            voice="Puck",
            language="de-DE",
        )


async def test_a_server_may_set_sessions_up_by_itself():
    model = LiveDouble()
    live = Live(config=LiveConfig(voice="Kore", modalities=["TEXT"]))
    async with serving(LlmAgent(name="app", model=model), protocols=["rest", live]) as talk:
        query = {"appName": "app", "userId": "u1", "sessionId": "s1", "language": "fr-FR"}
        async with talk.client.websocket("/run_live", query=query):
            line = await model.connection()
            assert (line.config.voice, line.config.language, line.config.modalities) == ("Kore", "fr-FR", ["TEXT"])


# ---- what a client says


async def test_rest_69_a_binary_message_is_sound_with_the_same_bytes():
    async with staged() as stage, stage.live() as (client, line):
        await client.socket.send_bytes(PCM)
        heard = await line.heard()
        assert isinstance(heard, LiveBlob)
        assert (heard.blob.mime_type, heard.blob.data) == ("audio/pcm;rate=16000", PCM)


async def test_rest_70_activity_start_goes_before_a_blob_in_one_message():
    blob = {"mime_type": "audio/pcm", "data": base64.b64encode(PCM).decode()}
    async with staged() as stage, stage.live() as (client, line):
        await client.send(activityStart={}, blob=blob)
        await client.send(activityEnd={}, blob=blob, activityStart=None)
        await client.send(audio_stream_end=True, blob=blob)
        await client.send(activityStart={}, activityEnd={}, content={"parts": [{"text": "hi"}]})
        assert await line.heard() == LiveSignal("activity_start")
        assert await line.heard() == LiveSignal("activity_end")
        assert await line.heard() == LiveSignal("audio_stream_end")
        assert text_of(await line.heard()) == "hi"
        assert await line.heard() == LiveSignal("activity_start")


async def test_rest_71_what_is_no_json_is_ignored_and_the_next_message_works():
    async with staged() as stage, stage.live() as (client, line):
        for text in ("", "{", "hello", "[1,2]", "null", '"x"', "\ud83d\ude00"):
            await client.socket.send_text(text)
        await client.send(unknown={"deep": [1]})
        await client.say("now")
        assert text_of(await line.heard()) == "now"
        await line.say(content=model_text("yes"))
        assert lines_of([await client.event()]) == ["~app: yes"]


async def test_a_message_with_a_wrong_member_is_answered_by_an_error_that_names_it():
    async with staged() as stage, stage.live() as (client, line):
        await client.send(content={"parts": [{"text": 7}]})
        event = await client.event()
        assert event["errorCode"] == "INVALID_ARGUMENT"
        assert "content.parts[0].text" in event["errorMessage"]
        await client.send(blob={"mimeType": "audio/pcm", "data": "no base64!"})
        assert (await client.event())["errorCode"] == "INVALID_ARGUMENT"
        await client.socket.send_text("[" * 100)
        assert "nests deeper" in (await client.event())["errorMessage"]
        await client.say("still here")
        assert text_of(await line.heard()) == "still here"
        assert lines_of(await stage.stored()) == ["user: still here"]


async def test_blobs_come_in_both_spellings_and_both_alphabets_of_base64():
    data = b"\xfb\xff\xfe" * 3
    frames = [
        {"mime_type": "audio/pcm;rate=16000", "data": base64.b64encode(data).decode()},
        {"mimeType": "image/jpeg", "data": base64.urlsafe_b64encode(data).decode()},
        {"data": base64.b64encode(data).decode()},
    ]
    async with staged() as stage, stage.live() as (client, line):
        for blob in frames:
            await client.send(blob=blob)
        got = [await line.heard() for _ in frames]
        assert [(b.blob.mime_type, b.blob.data) for b in got if isinstance(b, LiveBlob)] == [
            ("audio/pcm;rate=16000", data),
            ("image/jpeg", data),
            ("audio/pcm;rate=16000", data),
        ]


async def test_partial_content_is_not_the_end_and_a_state_delta_is_stored_with_it():
    async with staged() as stage, stage.live() as (client, line):
        await client.say("one", partial=True)
        await client.say("two", state_delta={"k": 1})
        await client.send(stateDelta={"user:lang": "fr"})
        first, second = await line.heard(), await line.heard()
        assert (text_of(first), getattr(first, "turn_complete", None)) == ("one", False)
        assert (text_of(second), getattr(second, "turn_complete", None)) == ("two", True)
        await client.send(close=True)
        assert (await client.closed())[0] == 1000
        session = await stage.talk.stored()
        assert (session["state"]["k"], session["state"]["user:lang"]) == (1, "fr")
        assert lines_of(session["events"])[:2] == ["user: one", "user: two"]


async def test_rest_72_a_client_that_says_close_is_closed_with_1000():
    async with staged() as stage, stage.live() as (client, line):
        await client.send(close=True)
        assert await client.closed() == (1000, "")
        assert line.closed


async def test_rest_75_a_message_of_17_mib_closes_with_1009():
    async with staged() as stage:
        async with stage.live() as (client, line):
            await client.socket.send_bytes(bytes(16 * MIB))
            heard = await line.heard()
            assert isinstance(heard, LiveBlob)
            await client.socket.send_bytes(bytes(17 * MIB))
            assert (await client.closed())[0] == 1009
        async with stage.live() as (client, _):
            await client.say("x" * 17 * MIB)
            code, reason = await client.closed()
            assert (code, "live_message_bytes" in reason) == (1009, True)


# ---- what the model says


async def test_rest_73_each_frame_is_the_json_of_one_event_and_a_newline():
    async with staged() as stage, stage.live() as (client, line):
        await line.say(content=model_text("hel"))
        await line.say(content=model_text("lo"))
        await line.say(content=sound(PCM))
        await line.say(turn_complete=True, usage_metadata=Usage(total_token_count=3), finish_reason="STOP")
        frames = [await client.socket.receive() for _ in range(5)]
        assert all(isinstance(f, str) and f.endswith("}\n") and f.count("\n") == 1 for f in frames)
        events = [json.loads(f) for f in frames]
        assert lines_of(events) == ["~app: hel", "~app: lo", "app: sound", "app: hello", "app: turn complete"]
        assert {e["id"] for e in events[:2]} == {events[3]["id"]}
        assert base64.b64decode(events[2]["content"]["parts"][0]["inlineData"]["data"]) == PCM
        assert events[4]["usageMetadata"] == {"totalTokenCount": 3}
        assert len({e["invocationId"] for e in events}) == 1
        run = await stage.talk.server.runs.get(events[0]["invocationId"])
        assert run is not None
        assert (run.offset, run.kept) == (5, 0), "what was sent is not kept in memory"


async def test_FR_031_what_was_said_aloud_is_stored_as_text_and_told_to_the_next_session_and_to_run():
    async with staged("your code is 42") as stage:
        async with stage.live() as (client, line):
            await client.socket.send_bytes(PCM)
            await line.heard()
            await line.say(input_transcription=Transcription(text="my code "))
            await line.say(input_transcription=Transcription(text="is 42", finished=True))
            await line.say(content=sound(PCM), output_transcription=Transcription(text="ok", finished=True))
            await line.say(turn_complete=True)
            await client.until(lambda e: e.get("turnComplete"))
        stored = await stage.stored()
        assert lines_of(stored) == ["user heard: my code is 42", "app spoke: ok", "app: turn complete"]
        assert [e["content"]["role"] for e in stored[:2]] == ["user", "model"]
        assert [e["content"]["parts"] for e in stored[:2]] == [[{"text": "my code is 42"}], [{"text": "ok"}]]
        assert "inlineData" not in json.dumps(stored)
        async with stage.live() as (_, line):
            told = [(c.role, c.text) for c in line.request.contents]
            assert told == [("user", "my code is 42"), ("model", "ok")]
        await stage.talk.run("what is my code?")
        assert stage.model.prompt() == ["user: my code is 42", "model: ok", "user: what is my code?"]
        stage.model.check()


async def test_sound_is_kept_as_artifacts_when_that_is_asked_for():
    async with staged() as stage:
        async with stage.live(save_live_blob="true") as (client, line):
            for piece in (PCM, PCM):
                await client.socket.send_bytes(piece)
                await line.heard()
            await line.say(content=sound(b"ab"))
            await line.say(content=sound(b"cd"))
            await line.say(turn_complete=True)
            told = await client.until(lambda e: e["actions"]["artifactDelta"])
        names = sorted(told[-1]["actions"]["artifactDelta"])
        assert [name.rpartition("_")[2] for name in names] == ["model", "user"]
        kept = [(await stage.talk.client.get(f"{stage.talk.path}/artifacts/{name}")).json() for name in names]
        assert [base64.b64decode(k["inlineData"]["data"]) for k in kept] == [b"abcd", PCM + PCM]
        assert kept[0]["inlineData"]["mimeType"] == "audio/pcm;rate=24000"
        assert "inlineData" not in json.dumps(await stage.stored())


async def test_an_interruption_is_told_at_once_and_what_was_said_stays():
    async with staged() as stage, stage.live() as (client, line):
        await line.say(content=model_text("Once upon"))
        await line.say(input_transcription=Transcription(text="wait"))
        await line.say(interrupted=True)
        await line.say(turn_complete=True)
        events = await client.until(lambda e: e.get("turnComplete"))
        assert lines_of(events) == [
            "~app: Once upon",
            "~user heard: wait",
            "app: Once upon",
            "app: interrupted",
            "user heard: wait",
            "app: turn complete",
        ]
        assert lines_of(await stage.stored())[:2] == ["app: Once upon", "app: interrupted"]


async def test_a_turn_that_the_model_refuses_is_told_and_the_session_goes_on():
    async with staged() as stage, stage.live() as (client, line):
        await line.say(error_code="SAFETY", error_message="no", turn_complete=True)
        event = await client.event()
        assert (event["errorCode"], event["errorMessage"]) == ("SAFETY", "no")
        await client.say("something else")
        assert text_of(await line.heard()) == "something else"


# ---- how a session ends


async def test_a_model_that_hangs_up_ends_the_session_with_1000():
    async with staged() as stage, stage.live() as (client, line):
        await line.say(content=model_text("bye"))
        line.hang_up()
        assert await client.closed() == (1000, "")
        assert lines_of(await stage.stored()) == ["app: bye"]


async def test_rest_74_an_error_of_the_agent_closes_with_1011_and_a_short_reason():
    async with staged() as stage, stage.live() as (client, line):
        line.drop(ModelError("no quota — " + "ü" * 300, http_status=429))
        code, reason = await client.closed()
        assert code == 1011
        assert reason.startswith("no quota — ü")
        assert 100 < len(reason.encode()) <= 123


async def test_an_error_that_is_not_ours_is_not_told():
    async with staged() as stage, stage.live() as (client, line):
        line.drop(ValueError("password=hunter2"))
        code, reason = await client.closed()
        assert (code, "hunter2" in reason, "internal error" in reason) == (1011, False, True)


async def test_a_client_that_leaves_closes_the_models_connection_and_what_was_said_is_stored():
    async with staged() as stage:
        async with stage.live() as (client, line):
            await line.say(content=model_text("The answer is"))
            await line.say(input_transcription=Transcription(text="and"))
            client.socket.close(1006)
            await line.gone()
        assert stage.model.open == 0
        assert stage.talk.server.runs.active == 0
        assert lines_of(await stage.stored()) == ["app: The answer is", "user heard: and"]


async def test_a_live_run_can_be_cancelled_by_its_id():
    async with staged() as stage, stage.live() as (client, line):
        await line.say(content=model_text("hm"))
        run = (await client.event())["invocationId"]
        done = await stage.talk.client.post(f"/runs/{run}:cancel", json={"reason": "lunch"})
        assert done.status == 200
        assert await client.closed() == (1001, "lunch")
        assert line.closed


async def test_others_may_follow_a_live_run_from_where_it_is():
    async with staged() as stage, stage.live() as (client, line):
        await line.say(content=model_text("one"), turn_complete=True)
        run = (await client.until(lambda e: e.get("turnComplete")))[-1]["invocationId"]
        async with stage.talk.client.stream("GET", f"/runs/{run}/events") as follower:
            assert follower.status == 200
            await line.say(content=model_text("two"), turn_complete=True)
            await client.until(lambda e: e.get("turnComplete"))
            seen = [json.loads((await follower.events().__anext__()).data) for _ in range(3)]
            assert lines_of(seen) == ["~app: two", "app: two", "app: turn complete"]
        assert stage.talk.server.runs.active == 1, "a follower that leaves ends nothing"


async def test_a_server_that_shuts_down_says_goodbye():
    model = LiveDouble()
    async with staged(model=model) as stage, stage.live() as (client, line):
        await line.say(content=model_text("and so"))
        await stage.talk.server.runs.drain(3600)
        code, reason = await client.closed()
        assert (code, reason) == (1001, "the server is shutting down")
        assert line.closed


async def test_a_session_has_one_conversation_at_a_time():
    async with staged("hi", limits=Limits(on_busy="reject")) as stage:
        async with stage.live():
            response = await stage.talk.client.post("/run", json=stage.talk.body("hello"))
            assert response.status == 409
            async with stage.connected() as second:
                code, reason = await second.closed()
                assert (code, "active run" in reason) == (1011, True)
        await stage.talk.run("hello")


async def test_a_second_client_waits_and_what_it_says_meanwhile_is_kept():
    async with staged() as stage, stage.live() as (first, _), stage.connected() as second:
        await second.say("is anybody there?")
        await second.send(close=False)
        await anyio.wait_all_tasks_blocked()
        assert len(stage.model.lines) == 1
        await first.send(close=True)
        await first.closed()
        line = await stage.model.connection()
        assert text_of(await line.heard()) == "is anybody there?"


async def test_a_second_client_may_take_over():
    async with staged(limits=Limits(on_busy="interrupt")) as stage, stage.live() as (first, line):
        await line.say(content=model_text("as I was saying"))
        async with stage.connected():
            again = await stage.model.connection()
            code, reason = await first.closed()
            assert (code, reason) == (1001, "interrupted by a newer message")
            assert again.request.contents[0].text == "as I was saying"


async def test_a_slow_client_is_dropped_and_holds_up_nobody():
    async with staged(limits=Limits(feed_items=3)) as stage, stage.live() as (client, line):
        async with stage.talk.client.websocket("/run_live", query=stage.query()):
            pass  # another one waits its turn and leaves
        client.socket.hold()
        for n in range(6):
            await line.say(content=model_text(f"{n} "))
        client.socket.hold(False)
        code, reason = await client.closed()
        assert (code, reason.startswith("the client is too slow")) == (1008, True)
        assert lines_of(await stage.stored()) == ["app: 0 1 2 3 4 5 "]


async def test_sound_that_a_client_does_not_read_is_bounded_in_bytes():
    async with staged(limits=Limits(live_queue_bytes=64 * 1024)) as stage, stage.live() as (client, line):
        for _ in range(10):  # far more than the limit, but it reads
            await line.say(content=sound(bytes(30_000)))
            assert (await client.event())["content"]["parts"]
        client.socket.hold()
        for _ in range(4):
            await line.say(content=sound(bytes(30_000)))
        client.socket.hold(False)
        code, reason = await client.closed()
        assert (code, reason.startswith("the client is too slow")) == (1008, True)


async def test_a_model_that_takes_nothing_slows_its_client_down_and_then_ends_the_session():
    limits = Limits(live_queue_bytes=8 * 1024, live_stall_s=0.05)
    async with staged(limits=limits) as stage, stage.live() as (client, line):
        line.stall()
        for _ in range(6):
            await client.socket.send_bytes(bytes(4096))
        code, reason = await client.closed()
        assert (code, "live_stall_s" in reason) == (1013, True)
        await line.gone()


@pytest.mark.parametrize(
    "frame",
    [
        {"stateDelta": {"k": "x" * 4096}},
        {"content": {"parts": [{"fileData": {"fileUri": "x" * 4096, "mimeType": "text/plain"}}]}},
    ],
    ids=["state", "file"],
)
async def test_all_that_a_client_says_counts_while_it_waits(frame: dict[str, Any]):
    limits = Limits(live_queue_bytes=8 * 1024, live_stall_s=0.05)
    async with staged(limits=limits) as stage, stage.live() as (client, line):
        line.stall()
        await client.say("hi")
        for _ in range(6):
            await client.send(**frame)
        code, reason = await client.closed()
        assert (code, "live_stall_s" in reason) == (1013, True)


async def test_back_pressure_loses_nothing():
    async with staged(limits=Limits(live_queue_bytes=2048)) as stage, stage.live() as (client, line):
        line.stall()
        for n in range(20):
            await client.socket.send_bytes(bytes([n]) * 900)
        line.stall(False)
        got = [await line.heard() for _ in range(20)]
        assert [b.blob.data[0] for b in got if isinstance(b, LiveBlob)] == list(range(20))


# ---- who can take part


async def work(ctx: RunContext) -> None:
    raise AssertionError("an agent that cannot talk live must not run")


@pytest.mark.parametrize(
    "agent",
    [
        FunctionAgent(name="app", function=work),
        LlmAgent(name="app", model=ScriptedModel()),
    ],
    ids=["function", "model"],
)
async def test_an_agent_that_cannot_talk_live_closes_with_1011_and_says_why(agent: Any):
    async with staged(agent=agent) as stage, stage.connected() as client:
        code, reason = await client.closed()
        assert code == 1011
        assert reason.startswith("agent 'app' cannot take part in a live session")


@pytest.mark.parametrize("wrap", [Retrying, lambda model: Fallback(Retrying(model), ScriptedModel())])
async def test_a_model_that_is_wrapped_talks_live_as_it_does_by_itself(wrap: Any):
    model = LiveDouble(name="inner")
    agent = LlmAgent(name="app", model=wrap(model))
    async with staged(agent=agent, model=model) as stage, stage.live() as (client, line):
        assert line.request.model == "inner"
        await line.say(turn_complete=True)
        assert (await client.event())["turnComplete"]


@pytest.mark.parametrize("wrap", [Retrying, lambda model: Fallback(model, LiveDouble())])
async def test_a_model_that_is_wrapped_and_not_live_is_refused(wrap: Any):
    agent = LlmAgent(name="app", model=wrap(ScriptedModel()))
    async with staged(agent=agent) as stage, stage.connected() as client:
        code, reason = await client.closed()
        assert (code, "cannot take part in a live session" in reason) == (1011, True)


async def test_agents_side_by_side_cannot_share_one_conversation():
    model = LiveDouble()
    team = ParallelAgent(name="app", sub_agents=[LlmAgent(name="a", model=model), LlmAgent(name="b", model=model)])
    async with staged(agent=team, model=model) as stage, stage.connected() as client:
        code, reason = await client.closed()
        assert (code, "at the same time" in reason) == (1011, True)
