"""One connection of GeminiLiveModel to a strict Live API: what is sent, and what each refusal and loss is told as."""

import base64
import logging
from typing import Any

import anyio
import pytest
from gemini_live_fake import KEY, LiveServer, serve
from gemini_live_ways import MICROPHONE, NEW, OLD, PCM, REFUSALS, connected, model_of

from polyport.data.content import Blob, Content, FunctionCall, FunctionResponse, Part, model_text, user_text
from polyport.data.live import LiveBlob, LiveConfig, LiveContent, LiveResponses, LiveSignal
from polyport.data.model import GenerateConfig, ModelRequest, ToolDeclaration
from polyport.errors import BadRequest, ConfigError, ModelError
from polyport.models import gemini_live
from polyport.models.gemini import GeminiModel
from polyport.models.gemini_live import GeminiLiveConnection, GeminiLiveModel
from polyport.models.http import Http
from polyport.models.registry import resolve
from polyport.models.vertex import Vertex
from polyport.ports.live import CONNECTION_LOST, LiveModel
from support.live import PATIENCE_S


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
    "config",
    [{"modalities": ["AUDIO", "TEXT"]}, {"modalities": []}, {"explicit_vad_signal": True}, {"affective_dialog": True}],
)
async def test_what_the_api_cannot_do_is_said_before_anything_is_sent(config: dict[str, Any]):
    async with serve() as server:
        with pytest.raises(ConfigError):
            async with model_of(server).connect(ModelRequest(contents=[]), LiveConfig(**config)):
                pass
        assert not server.urls


async def test_a_cloud_is_told_from_the_api():
    model = GeminiLiveModel(NEW, http=Http(Vertex(api_key=KEY)))
    with pytest.raises(ConfigError, match="Gemini API itself"):
        async with model.connect(ModelRequest(contents=[]), LiveConfig()):
            pass


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
    caught: list[ModelError] = []

    async def talk(connection: GeminiLiveConnection) -> None:
        with pytest.raises(ModelError) as error:
            while True:
                await connection.send(LiveBlob(Blob(mime_type=MICROPHONE, data=PCM)))
        caught.append(error.value)

    async with connected() as (connection, line):
        await line.close(1007, "Request contains an invalid argument.")
        await line.gone()
        async with anyio.create_task_group() as group:
            group.start_soon(talk, connection)
            await anyio.wait_all_tasks_blocked()  # it has met the closed connection first
            with pytest.raises(ModelError):
                await anext(aiter(connection))
        assert [error.code for error in caught] == ["INVALID_ARGUMENT"]


async def test_a_history_that_is_not_taken_is_told_why():
    request = ModelRequest(contents=[user_text("x" * 12_000_000)])
    async with serve() as server:
        server.cuts.append((1007, "Request contains an invalid argument."))
        with anyio.fail_after(PATIENCE_S), pytest.raises(ModelError) as caught:
            async with model_of(server, OLD).connect(request, LiveConfig()):
                pass
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
