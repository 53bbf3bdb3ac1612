"""Live sessions of an app on a Gemini model, against a strict Live API: whole stories, and every way in which one ends."""

import base64
from typing import Any

import anyio
import pytest
from gemini_live_fake import KEY, Line
from gemini_live_ways import MICROPHONE, NEW, OLD, PCM, REFUSALS, staged

from polyport.engine import live_loop
from polyport.models import gemini_live
from support.live import Client, lines_of


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr(live_loop, "RETRY_S", (0.0,) * len(live_loop.RETRY_S))


def get_weather(city: str) -> dict[str, Any]:
    """Current weather of a city."""
    return {"city": city, "sky": "cloudy"}


async def turn(client: Client) -> list[str]:
    return lines_of(await client.until(lambda e: e.get("turnComplete")))


# ---- stories


@pytest.mark.parametrize("name", [NEW, OLD])
async def test_sound_in_sound_and_transcriptions_out(name: str):
    async with staged(name, instruction="Be kind.") as stage, stage.live() as (client, line):
        assert line.headers["x-goog-api-key"] == KEY
        assert line.setup == {
            "model": f"models/{name}",
            "generationConfig": {"responseModalities": ["AUDIO"]},
            "systemInstruction": {"parts": [{"text": line.setup["systemInstruction"]["parts"][0]["text"]}]},
            "sessionResumption": {},
            "contextWindowCompression": {"slidingWindow": {}},
            "inputAudioTranscription": {},
            "outputAudioTranscription": {},
        }
        assert line.setup["systemInstruction"]["parts"][0]["text"].startswith("Be kind.")
        await client.socket.send_bytes(PCM)
        sound = {"mimeType": MICROPHONE, "data": base64.b64encode(PCM).decode()}
        assert await line.heard() == {"realtimeInput": {"audio": sound}}
        await line.content(inputTranscription={"text": "how are"})
        await line.content(inputTranscription={"text": " you"})
        await line.sound(PCM[:100], outputTranscription={"text": "fine"})
        await line.content(generationComplete=True)
        usage = {"promptTokenCount": 5, "responseTokenCount": 7, "totalTokenCount": 12}
        await line.say(serverContent={"turnComplete": True}, usageMetadata=usage)
        events = await client.until(lambda e: e.get("turnComplete"))
        assert lines_of(events) == [
            "~user heard: how are",
            "~user heard:  you",
            "~app spoke: fine",
            "app: sound",
            "user heard: how are you",
            "app spoke: fine",
            "app: turn complete",
        ]
        assert events[3]["content"]["parts"][0]["inlineData"] == {
            "mimeType": "audio/pcm;rate=24000",
            "data": base64.b64encode(PCM[:100]).decode(),
        }
        assert events[-1]["usageMetadata"] == {
            "promptTokenCount": 5,
            "candidatesTokenCount": 7,
            "totalTokenCount": 12,
        }
        assert events[-1]["modelVersion"] == name


async def test_words_in_words_out_and_pictures():
    async with staged(OLD) as stage, stage.live(modalities="TEXT", voice="Kore") as (client, line):
        assert line.setup["generationConfig"] == {"responseModalities": ["TEXT"]}
        assert "outputAudioTranscription" not in line.setup
        await client.say("hi")
        assert await line.heard() == {
            "clientContent": {"turns": [{"role": "user", "parts": [{"text": "hi"}]}], "turnComplete": True}
        }
        picture = {"mimeType": "image/jpeg", "data": base64.b64encode(PCM).decode()}
        await client.send(blob=picture)
        assert await line.heard() == {"realtimeInput": {"video": picture}}
        await line.text("hm", turnComplete=False)
        await line.text("!")
        await line.content(turnComplete=True, turnCompleteReason="NEED_MORE_INPUT")
        events = await client.until(lambda e: e.get("turnComplete"))
        assert lines_of(events) == ["~app: hm", "~app: !", "app: hm!", "app: turn complete"]
        assert not events[-1].get("errorCode")


@pytest.mark.parametrize("name", [NEW, OLD])
async def test_a_tool_call_in_a_session(name: str):
    async with staged(name, tools=[get_weather]) as stage, stage.live() as (client, line):
        declared = line.setup["tools"][0]["functionDeclarations"][0]
        assert (declared["name"], declared["description"].splitlines()[0]) == (
            "get_weather",
            "Current weather of a city.",
        )
        if name == NEW:
            assert declared["parametersJsonSchema"]["properties"] == {"city": {"type": "string"}}
        else:
            assert declared["parameters"] == {
                "type": "OBJECT",
                "properties": {"city": {"type": "STRING"}},
                "required": ["city"],
            }
        await line.call("get_weather", {"city": "Rome"}, "call-1")
        assert await line.heard() == {
            "toolResponse": {
                "functionResponses": [
                    {"id": "call-1", "name": "get_weather", "response": {"city": "Rome", "sky": "cloudy"}}
                ]
            }
        }
        await line.sound(PCM, outputTranscription={"text": "Clouds."})
        await line.content(turnComplete=True)
        assert await turn(client) == [
            "app: call get_weather",
            "app: result get_weather",
            "~app spoke: Clouds.",
            "app: sound",
            "app spoke: Clouds.",
            "app: turn complete",
        ]


async def test_a_call_that_the_model_cancels_is_stopped_and_never_answered():
    began, stopped = anyio.Event(), anyio.Event()

    async def dig() -> str:
        """Dig."""
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        return "gold"

    async with staged(tools=[dig]) as stage, stage.live() as (client, line):
        await line.call("dig", {}, "d1")
        await began.wait()
        await line.say(serverContent={"interrupted": True})
        await line.say(toolCallCancellation={"ids": ["d1"]})
        await stopped.wait()
        await client.say("never mind")
        assert await line.heard() == {"realtimeInput": {"text": "never mind"}}


async def test_FR_029_a_result_that_comes_after_the_turn_is_told_once_and_adds_no_turn():
    go = anyio.Event()

    async def wait() -> str:
        """Wait."""
        await go.wait()
        return "done"

    async with staged(tools=[wait]) as stage, stage.live() as (client, line):
        await line.call("wait", {}, "w1")
        await line.content(turnComplete=True)
        await turn(client)
        go.set()
        assert "toolResponse" in await line.heard()
        await client.say("and?")
        assert await line.heard() == {"realtimeInput": {"text": "and?"}}
        await line.text("done", turnComplete=True)
        assert await turn(client) == ["app: result wait", "~app: done", "app: done", "app: turn complete"]


async def test_an_interruption():
    async with staged() as stage, stage.live() as (client, line):
        await line.sound(PCM, outputTranscription={"text": "Once upon a"})
        await client.socket.send_bytes(PCM)
        await line.heard()
        await line.content(interrupted=True)
        await line.content(inputTranscription={"text": "stop"})
        await line.content(turnComplete=True)
        assert await turn(client) == [
            "~app spoke: Once upon a",
            "app: sound",
            "app spoke: Once upon a",
            "app: interrupted",
            "~user heard: stop",
            "user heard: stop",
            "app: turn complete",
        ]


async def test_a_turn_that_the_model_does_not_answer_says_why():
    async with staged() as stage, stage.live() as (client, line):
        await line.content(turnComplete=True, turnCompleteReason="PROHIBITED_INPUT_CONTENT")
        event = (await client.until(lambda e: e.get("turnComplete")))[-1]
        assert event["errorCode"] == event["finishReason"] == "PROHIBITED_INPUT_CONTENT"
        await client.say("something else")
        await line.heard()


async def test_grounding_that_comes_before_the_end_of_the_turn_is_told_with_it():
    async with staged(NEW) as stage, stage.live() as (client, line):
        await line.text("Spain won.", groundingMetadata={"webSearchQueries": ["euro"]})
        await line.content(turnComplete=True, interactionStatus="IDLE")
        event = (await client.until(lambda e: e.get("turnComplete")))[-1]
        assert event["groundingMetadata"] == {"webSearchQueries": ["euro"]}
        assert event["customMetadata"] == {"interactionStatus": "IDLE"}
        await line.content(turnComplete=True)
        assert not (await client.until(lambda e: e.get("turnComplete")))[-1].get("groundingMetadata")


@pytest.mark.parametrize("name", [NEW, OLD])
async def test_manual_activity(name: str):
    async with staged(name) as stage, stage.live(activity="manual") as (client, line):
        assert line.setup["realtimeInputConfig"] == {"automaticActivityDetection": {"disabled": True}}
        await client.send(activityStart={})
        assert await line.heard() == {"realtimeInput": {"activityStart": {}}}
        await client.socket.send_bytes(PCM)
        assert "audio" in (await line.heard())["realtimeInput"]
        await client.send(audioStreamEnd=True)
        await client.send(activityEnd={})
        assert await line.heard() == {"realtimeInput": {"activityEnd": {}}}
        await client.say("in words")
        if name == NEW:
            words = [await line.heard() for _ in range(3)]
            assert [frame["realtimeInput"] for frame in words] == [
                {"activityStart": {}},
                {"text": "in words"},
                {"activityEnd": {}},
            ]
        else:
            assert "clientContent" in await line.heard()


async def test_what_the_api_would_close_the_connection_for_is_refused_and_the_session_goes_on():
    async with staged() as stage, stage.live() as (client, line):
        for frame in (
            {"activityStart": {}},
            {"blob": {"mimeType": "audio/webm", "data": "AAAA"}},
            {"blob": {"mimeType": "video/mp4", "data": "AAAA"}},
            {"content": {"parts": [{"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}}]}},
        ):
            await client.send(**frame)
            event = await client.event()
            assert event["errorCode"] == "INVALID_ARGUMENT", frame
            assert "Gemini" in event["errorMessage"]
        await client.send(audioStreamEnd=True)
        assert await line.heard() == {"realtimeInput": {"audioStreamEnd": True}}
        assert not line.closed


@pytest.mark.parametrize(
    ("query", "word"),
    [({"modalities": ["AUDIO", "TEXT"]}, "AUDIO"), ({"enable_affective_dialog": "true"}, "affective")],
)
async def test_what_the_api_cannot_do_closes_with_1011_and_says_so(query: dict[str, Any], word: str):
    async with staged() as stage, stage.connected(**query) as client:
        code, reason = await client.closed()
        assert (code, word in reason) == (1011, True)
        assert not stage.server.urls


# ---- connections that end


async def say_all_is_well(client: Client, line: Line) -> None:
    await client.say("are you there?")
    assert (await line.heard())["realtimeInput"]["text"] == "are you there?"
    await line.text("yes", turnComplete=True)
    assert (await turn(client))[-2:] == ["app: yes", "app: turn complete"]


async def test_FR_028_after_a_go_away_the_session_is_resumed_on_a_new_connection():
    async with staged(tools=[get_weather]) as stage, stage.live() as (client, line):
        await line.say(sessionResumptionUpdate={"newHandle": "h1", "resumable": True})
        await line.say(sessionResumptionUpdate={"resumable": False})
        await line.say(goAway={"timeLeft": "9.5s"})
        again = await stage.model.connection()
        assert line.close_code == 1000
        assert again.setup["sessionResumption"] == {"handle": "h1"}
        assert {**again.setup, "sessionResumption": {}} == line.setup
        assert not again.frames
        await say_all_is_well(client, again)


@pytest.mark.parametrize("code", [0, 1001, 1008, 1011])
async def test_FR_028_a_cut_connection_is_resumed(at_once: None, code: int):
    async with staged() as stage, stage.live() as (client, line):
        await line.text("I think", turnComplete=False)
        await line.say(sessionResumptionUpdate={"newHandle": "h1", "resumable": True})
        await client.until(lambda e: e.get("partial"))
        if code:
            await line.close(code, "The operation was aborted.")
        else:
            line.drop()
        again = await stage.model.connection()
        assert again.setup["sessionResumption"] == {"handle": "h1"}
        await again.text(" so", turnComplete=True)
        assert (await turn(client))[-2:] == ["app: I think so", "app: turn complete"]


async def test_an_activity_that_began_before_a_cut_ends_after_it():
    async with staged() as stage, stage.live(activity="manual") as (client, line):
        await line.say(sessionResumptionUpdate={"newHandle": "h1", "resumable": True})
        await client.send(activityStart={})
        await client.send(activityStart={})
        assert await line.heard() == {"realtimeInput": {"activityStart": {}}}
        line.drop()
        again = await stage.model.connection()
        await client.send(activityEnd={})
        assert await again.heard() == {"realtimeInput": {"activityStart": {}}}
        assert await again.heard() == {"realtimeInput": {"activityEnd": {}}}


async def test_a_call_is_answered_on_the_connection_that_resumes_the_session():
    go = anyio.Event()

    async def wait() -> str:
        """Wait."""
        await go.wait()
        return "done"

    async with staged(tools=[wait]) as stage, stage.live() as (_, line):
        await line.call("wait", {}, "w1")
        await line.say(sessionResumptionUpdate={"newHandle": "h1", "resumable": True})
        line.drop()
        again = await stage.model.connection()
        go.set()
        response = (await again.heard())["toolResponse"]["functionResponses"][0]
        assert (response["id"], response["response"]) == ("w1", {"result": "done"})


@pytest.mark.parametrize("name", [NEW, OLD])
async def test_FR_031_without_a_handle_the_new_connection_is_told_the_conversation(name: str):
    async with staged(name) as stage, stage.live() as (client, line):
        await client.say("my code is 42")
        await line.heard()
        await line.sound(PCM, outputTranscription={"text": "ok"})
        await line.content(turnComplete=True)
        await turn(client)
        line.drop()
        again = await stage.model.connection()
        assert await again.heard() == {
            "clientContent": {
                "turns": [
                    {"role": "user", "parts": [{"text": "my code is 42"}]},
                    {"role": "model", "parts": [{"text": "ok"}]},
                ],
                "turnComplete": name == NEW,  # the end of a history that was announced; the others would answer it
            }
        }
        assert again.setup.get("historyConfig") == ({"initialHistoryInClientContent": True} if name == NEW else None)
        await client.say("and now?")
        said = await again.heard()
        assert ("realtimeInput" in said) == (name == NEW)


async def test_a_handle_that_has_expired_is_given_up_for_the_conversation():
    async with staged() as stage, stage.live() as (client, line):
        await client.say("remember me")
        await line.heard()
        await line.text("I do", turnComplete=True)
        await turn(client)
        await line.say(sessionResumptionUpdate={"newHandle": "h1", "resumable": True})
        await line.text("by the way", turnComplete=True)
        await turn(client)
        stage.server.handles.clear()
        line.drop()
        again = await stage.model.connection()
        assert "handle" not in again.setup["sessionResumption"]
        assert (await again.heard())["clientContent"]["turns"][0]["parts"] == [{"text": "remember me"}]


@pytest.mark.parametrize(("code", "reason", "_"), REFUSALS)
async def test_a_set_up_that_is_refused_ends_the_session_with_1011_and_the_reason(code: int, reason: str, _: str):
    async with staged() as stage:
        stage.server.refusals.append((code, reason))
        async with stage.connected() as client:
            got, told = await client.closed()
        assert got == 1011
        assert told.startswith(f"Gemini closed the live session ({code}): {reason}"[:120])
        assert len(stage.server.urls) == 1, "it is not tried again"


@pytest.mark.parametrize(("code", "reason", "_"), [r for r in REFUSALS if r[0] != 1008])
async def test_an_error_in_the_middle_ends_the_session_with_1011_and_the_reason(code: int, reason: str, _: str):
    async with staged() as stage, stage.live() as (client, line):
        await line.say(sessionResumptionUpdate={"newHandle": "h1", "resumable": True})
        await line.close(code, reason)
        got, told = await client.closed()
        assert (got, reason in told) == (1011, True)
        assert len(stage.server.urls) == 1


async def test_FR_028_attempts_are_bounded_and_the_last_error_is_told(at_once: None):
    async with staged() as stage:
        stage.server.refusals.extend([(1011, "Internal error encountered.")] * 20)
        async with stage.connected() as client:
            assert await client.closed() == (1011, "Gemini closed the live session (1011): Internal error encountered.")
        assert len(stage.server.urls) == 1 + len(live_loop.RETRY_S)


async def test_the_model_hangs_up():
    async with staged() as stage, stage.live() as (client, line):
        await line.text("bye", turnComplete=True)
        await line.close(1000)
        assert await client.closed() == (1000, "")


async def test_an_error_message_ends_the_session_with_what_it_says():
    async with staged() as stage, stage.live() as (client, line):
        await line.raw(b'{"error": {"code": 400, "message": "No such thing.", "status": "INVALID_ARGUMENT"}}')
        assert await client.closed() == (1011, "Gemini answered 400 INVALID_ARGUMENT: No such thing.")


@pytest.mark.parametrize("junk", [b"{", b"[]", b'{"serverContent": 3}', b"[" * 100_000, b"\xff"])
async def test_nonsense_ends_the_session_and_the_connection(junk: bytes):
    async with staged() as stage, stage.live() as (client, line):
        await line.raw(junk)
        code, reason = await client.closed()
        assert (code, reason.startswith("Gemini sent what is no message")) == (1011, True)
        await line.gone()


@pytest.mark.parametrize("message", [{"voiceActivity": {"type": "ACTIVITY_START"}}, {"setupComplete": {}}])
async def test_messages_that_say_nothing_to_us_are_passed_over(message: dict[str, Any]):
    async with staged() as stage, stage.live() as (client, line):
        await line.say(**message)
        await line.raw(b'{"serverContent": {"modelTurn": {"parts": [{"text": "hi", "new": 1}], "x": 2}}, "later": {}}')
        await line.content(turnComplete=True)
        assert await turn(client) == ["~app: hi", "app: hi", "app: turn complete"]


# ---- no connection outlives its session


@pytest.mark.parametrize("way", ["close", "leave", "cancel", "forget"])
async def test_no_connection_is_left_when_the_client_goes(way: str):
    async with staged() as stage:
        async with stage.live() as (client, line):
            await line.text("hello", turnComplete=True)
            event = await client.event()
            await turn(client)
            if way == "close":
                await client.send(close=True)
                assert await client.closed() == (1000, "")
            elif way == "leave":
                client.socket.close()
            elif way == "cancel":
                await stage.talk.client.post(f"/runs/{event['invocationId']}:cancel")
                assert (await client.closed())[0] == 1001
        await line.gone()
        await stage.server.all_closed()
        assert line.close_code == 1000


async def test_no_connection_is_left_when_the_client_goes_before_the_set_up_is_accepted():
    async with staged() as stage:
        stage.server.mute = True
        async with stage.connected():
            await stage.server.opened()
        await stage.server.all_closed()


async def test_no_connection_is_left_when_the_api_takes_no_more(monkeypatch: pytest.MonkeyPatch):
    """The network is full: neither a message nor a good-bye gets through."""
    monkeypatch.setattr(gemini_live, "CLOSING_S", 0.05)
    async with staged() as stage:
        async with stage.live() as (client, line):
            line.deaf()
            for _ in range(40):
                await client.socket.send_bytes(bytes(256 * 1024))
            await anyio.wait_all_tasks_blocked()
        assert stage.talk.server.runs.active == 0
        line.deaf(False)
        await line.gone()
        assert line.close_code is None
