"""GeminiLiveModel against a strict Live API: whole live sessions of an app, and every way in which one ends."""

import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from gemini_live_fake import KEY, Line, LiveServer, serve

from polyport import LlmAgent
from polyport.data.content import Blob, Content, FunctionCall, FunctionResponse, Part, model_text, user_text
from polyport.data.live import LiveBlob, LiveConfig, LiveContent, LiveResponses, LiveSignal
from polyport.data.model import GenerateConfig, ModelRequest, ToolDeclaration
from polyport.engine import live_loop
from polyport.errors import BadRequest, ConfigError, ModelError
from polyport.models import gemini_live
from polyport.models.gemini import GeminiModel
from polyport.models.gemini_live import GeminiLiveConnection, GeminiLiveModel
from polyport.models.registry import resolve
from polyport.ports.live import CONNECTION_LOST, LiveModel
from polyport.protocols.live import Live
from support.live import PATIENCE_S, Client, Stage, lines_of
from support.talk import serving

NEW, OLD = "gemini-3.8-live", "gemini-2.5-flash-native-audio-preview-12-2025"
PCM = bytes(range(256)) * 4
MICROPHONE = "audio/pcm;rate=16000"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between attempts."""
    monkeypatch.setattr(live_loop, "RETRY_S", (0.0,) * len(live_loop.RETRY_S))


def model_of(server: LiveServer, name: str = NEW, **more: Any) -> GeminiLiveModel:
    return GeminiLiveModel(name, api_key=KEY, base_url=server.url + "/v1beta", **more)


class LiveStage(Stage):
    """A client's side, and the API's side."""

    def __init__(self, talk: Any, server: LiveServer) -> None:
        super().__init__(talk, server)  # type: ignore[arg-type]
        self.server = server


@asynccontextmanager
async def staged(name: str = NEW, *, live: LiveConfig | None = None, **fields: Any) -> AsyncIterator[LiveStage]:
    """An agent `app` on a Gemini model. Fails when something hangs, when the API is sent anything wrong, or when a connection
    is left open."""
    with anyio.fail_after(PATIENCE_S):
        async with serve() as server:
            agent = LlmAgent(name="app", model=model_of(server, name), **fields)
            protocols = ["rest", Live(config=live) if live is not None else Live()]
            async with serving(agent, protocols=protocols) as talk:
                yield LiveStage(talk, server)


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
    async with staged(OLD) as stage, stage.live(modalities="TEXT") as (client, line):
        assert line.setup["generationConfig"]["responseModalities"] == ["TEXT"]
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


REFUSALS = [
    (1007, "API key expired. Please renew the API key.", "UNAUTHENTICATED"),
    (1008, "models/x is not found for API version v1beta, or is not supported for bidiGenerateContent.", "NOT_FOUND"),
    (1011, "You exceeded your current quota, please check your plan.", "RESOURCE_EXHAUSTED"),
    (1007, "Request contains an invalid argument.", "INVALID_ARGUMENT"),
    (1008, "Your project has been denied access.", "PERMISSION_DENIED"),
]


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
        assert stage.talk.server.runs.active == 0
        line.deaf(False)
        await line.gone()
        assert line.close_code is None


# ---- the connection itself


@asynccontextmanager
async def connected(
    request: ModelRequest | None = None, config: LiveConfig | None = None, name: str = NEW
) -> AsyncIterator[tuple[GeminiLiveConnection, Line]]:
    with anyio.fail_after(PATIENCE_S):
        async with serve() as server:
            model = model_of(server, name)
            async with model.connect(request or ModelRequest(contents=[]), config or LiveConfig()) as connection:
                yield connection, await server.connection()


async def failure(server: LiveServer, name: str = NEW, **config: Any) -> ModelError:
    with anyio.fail_after(PATIENCE_S), pytest.raises(ModelError) as caught:
        async with model_of(server, name).connect(ModelRequest(contents=[]), LiveConfig(**config)):
            pass
    return caught.value


async def test_all_that_is_configured_goes_into_the_set_up():
    config = LiveConfig(
        voice="Kore",
        language="de-DE",
        input_transcription=False,
        output_transcription=False,
        resumption=False,
        affective_dialog=True,
        proactive_audio=True,
        extra={
            "contextWindowCompression": None,
            "generationConfig": {"speechConfig": {"languageCode": "de-AT"}, "mediaResolution": "MEDIA_RESOLUTION_LOW"},
            "tools": [{"googleSearch": {}}],
        },
    )
    generate = GenerateConfig(temperature=0.5, stop_sequences=["X"], tool_choice="any", headers={"X-Team": "a"})
    request = ModelRequest(contents=[], system="S", tools=[ToolDeclaration(name="f")], config=generate)
    async with connected(request, config, OLD) as (_, line):
        assert line.version == "v1alpha"
        assert line.headers["x-team"] == "a"
        assert line.setup == {
            "model": f"models/{OLD}",
            "generationConfig": {
                "temperature": 0.5,
                "responseModalities": ["AUDIO"],
                "speechConfig": {
                    "voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}},
                    "languageCode": "de-AT",
                },
                "enableAffectiveDialog": True,
                "mediaResolution": "MEDIA_RESOLUTION_LOW",
            },
            "systemInstruction": {"parts": [{"text": "S"}]},
            "tools": [{"functionDeclarations": [{"name": "f"}]}, {"googleSearch": {}}],
            "proactivity": {"proactiveAudio": True},
        }


@pytest.mark.parametrize(
    "config", [{"modalities": ["AUDIO", "TEXT"]}, {"modalities": []}, {"explicit_vad_signal": True}]
)
async def test_what_the_api_cannot_do_is_said_before_anything_is_sent(config: dict[str, Any]):
    async with serve() as server:
        with pytest.raises(ConfigError):
            async with model_of(server).connect(ModelRequest(contents=[]), LiveConfig(**config)):
                pass
        assert not server.urls


CONVERSATION = [
    user_text("Weather in Rome?"),
    Content(role="model", parts=[Part(function_call=FunctionCall(id="adk-1", name="get_weather", args={"city": "Rome"}))]),
    Content(role="user", parts=[Part(function_response=FunctionResponse(id="adk-1", name="get_weather", response={"t": 1}))]),
    model_text("Cold."),
]  # fmt: skip
TOLD = [
    {"role": "user", "parts": [{"text": "Weather in Rome?"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "get_weather", "args": {"city": "Rome"}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "get_weather", "response": {"t": 1}}}]},
    {"role": "model", "parts": [{"text": "Cold."}]},
]


@pytest.mark.parametrize(
    ("name", "contents", "frames"),
    [
        (OLD, CONVERSATION, [{"clientContent": {"turns": TOLD, "turnComplete": False}}]),
        (OLD, CONVERSATION[:1], [{"clientContent": {"turns": TOLD[:1], "turnComplete": True}}]),
        (NEW, CONVERSATION, [{"clientContent": {"turns": TOLD, "turnComplete": True}}]),
        (
            NEW,
            [*CONVERSATION, user_text("Why?")],
            [{"clientContent": {"turns": TOLD, "turnComplete": True}}, {"realtimeInput": {"text": "Why?"}}],
        ),
        (NEW, CONVERSATION[:1], [{"realtimeInput": {"text": "Weather in Rome?"}}]),
        (
            NEW,
            CONVERSATION[:3],
            [{"clientContent": {"turns": TOLD[:3], "turnComplete": True}}, {"realtimeInput": {"text": "Please continue."}}],
        ),
    ],
)  # fmt: skip
async def test_a_conversation_is_told_so_that_the_model_answers_a_user_and_only_a_user(
    name: str, contents: list[Content], frames: list[dict[str, Any]]
):
    async with connected(ModelRequest(contents=list(contents)), name=name) as (_, line):
        assert [await line.heard() for _ in frames] == frames
        assert ("historyConfig" in line.setup) == (name == NEW and "clientContent" in frames[0])


async def test_what_is_said_in_pieces_is_sent_with_its_end():
    picture = Part(inline_data=Blob(mime_type="image/png", data=PCM, display_name="a.png"))
    async with connected() as (connection, line):
        await connection.send(
            LiveContent(Content(role="user", parts=[Part(text="look"), picture]), turn_complete=False)
        )
        with pytest.raises(BadRequest):
            await connection.send(
                LiveContent(Content(role="user", parts=[Part(inline_data=Blob(mime_type="audio/pcm", data=PCM))]))
            )
        await connection.send(LiveContent(user_text("what is it?")))
        await connection.send(LiveContent(Content(role="user", parts=[picture])))
        shown = {"video": {"mimeType": "image/png", "data": base64.b64encode(PCM).decode()}}
        assert [(await line.heard())["realtimeInput"] for _ in range(4)] == [
            shown,
            {"text": "look\nwhat is it?"},
            shown,
            {"text": "See the picture."},
        ]


async def test_results_keep_how_they_are_to_be_told():
    response = FunctionResponse(id="c", name="f", response=None, will_continue=True, scheduling="WHEN_IDLE")
    async with connected() as (connection, line):
        await line.call("f", {}, "c")
        assert (await anext(aiter(connection))).calls == [FunctionCall(id="c", name="f", args={})]
        await connection.send(LiveResponses([response]))
        assert (await line.heard())["toolResponse"]["functionResponses"] == [
            {"id": "c", "name": "f", "response": {"result": None}, "willContinue": True, "scheduling": "WHEN_IDLE"}
        ]


@pytest.mark.parametrize(("code", "reason", "word"), REFUSALS)
async def test_a_refusal_has_the_code_that_says_so(code: int, reason: str, word: str):
    async with serve() as server:
        server.refusals.append((code, reason))
        assert (await failure(server)).code == word


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND"), (429, "RESOURCE_EXHAUSTED"),
     (500, CONNECTION_LOST), (503, CONNECTION_LOST), (302, "INVALID_ARGUMENT"), (200, "INVALID_ARGUMENT")],
)  # fmt: skip
async def test_a_handshake_that_is_refused(status: int, code: str):
    async with serve() as server:
        server.statuses.append(status)
        error = await failure(server)
        assert (error.http_status, error.code) == (status, code)
        assert len(server.urls) == 1, "a redirect is not followed with the key"


async def test_an_address_where_nobody_is():
    async with serve() as server:
        pass
    error = await failure(server)
    assert error.code == CONNECTION_LOST
    assert "cannot be reached" in str(error)


async def test_a_set_up_that_is_never_accepted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gemini_live, "SETUP_S", 0.05)
    async with serve() as server:
        server.mute = True
        error = await failure(server)
        assert error.code == CONNECTION_LOST
        assert NEW in str(error)


async def test_a_message_above_the_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gemini_live, "MESSAGE_BYTES", 1000)
    async with connected() as (connection, line):
        await line.sound(bytes(2000))
        with pytest.raises(ModelError, match="more than 1000 bytes") as caught:
            await anext(aiter(connection))
        assert caught.value.code == "BAD_ANSWER"


async def test_who_sends_is_told_why_the_connection_was_closed():
    async with connected() as (connection, line):
        await line.close(1007, "Request contains an invalid argument.")
        async with anyio.create_task_group() as group:

            async def listen() -> None:
                with pytest.raises(ModelError):
                    await anext(aiter(connection))

            group.start_soon(listen)
            with pytest.raises(ModelError) as caught:
                while True:
                    await connection.send(LiveBlob(Blob(mime_type=MICROPHONE, data=PCM)))
        assert caught.value.code == "INVALID_ARGUMENT"


async def test_the_key_is_in_a_header_and_nowhere_else(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    key = "another-key-0123456789"
    async with serve() as server:
        model = GeminiLiveModel(NEW, api_key=key, base_url=server.url + "/v1beta")
        with pytest.raises(ModelError, match="not valid") as caught:
            async with model.connect(ModelRequest(contents=[]), LiveConfig()):
                pass
        assert key not in str(caught.value) + caplog.text + "".join(server.urls)
        assert "API key *** not valid" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "live"),
    [
        ("gemini-3.8-live", True),
        ("gemini/gemini-3.1-flash-live-preview", True),
        (OLD, True),
        ("gemini-live-2.5-flash-preview", True),
        ("gemini-flash-latest", False),
        ("gemini-2.5-pro", False),
    ],
)
async def test_a_live_name_gives_a_live_model(spec: str, live: bool):
    model = resolve(spec, api_key=KEY)
    assert isinstance(model, GeminiModel)
    assert isinstance(model, LiveModel) == live
    assert model.name == spec.removeprefix("gemini/")


async def test_signals_of_a_model_that_listens_itself():
    async with connected() as (connection, _):
        with pytest.raises(BadRequest, match="activity=manual"):
            await connection.send(LiveSignal("activity_end"))
