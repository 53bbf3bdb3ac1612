"""The vendor's own live client (google-genai) as a peer of the same fake: it sends what we send, and reads what we read."""

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from gemini_live_fake import KEY, Line, LiveServer, serve, tls_of
from gemini_live_ways import MICROPHONE, NEW, OLD, PCM, model_of
from google import genai
from google.genai import types
from google.genai.live import AsyncSession

from polyport.data.content import Blob, Content, FunctionResponse, Part, user_text
from polyport.data.live import LiveBlob, LiveConfig, LiveContent, LiveMessage, LiveResponses, LiveSignal
from polyport.data.model import GenerateConfig, ModelRequest, ToolDeclaration
from polyport.models.gemini_live import GeminiLiveConnection
from support.live import PATIENCE_S

pytestmark = pytest.mark.filterwarnings(  # the vendor's client does what aiohttp discourages
    "ignore:Inheritance class AiohttpClientSession from ClientSession is discouraged:DeprecationWarning"
)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return tls_of(tmp_path_factory.mktemp("tls"))


Tls = tuple[ssl.SSLContext, ssl.SSLContext]


@asynccontextmanager
async def vendor(
    server: LiveServer, trust: ssl.SSLContext, name: str, config: Any, version: str = "v1beta"
) -> AsyncIterator[tuple[AsyncSession, Line]]:
    """A session of the vendor's client, and the API's end of it."""
    options = types.HttpOptions(base_url=server.tls_url, api_version=version, async_client_args={"ssl": trust})
    client = genai.Client(api_key=KEY, http_options=options)
    try:
        async with client.aio.live.connect(model=name, config=config) as session:
            yield session, await server.connection()
    finally:
        await client.aio.aclose()
        client.close()


@asynccontextmanager
async def both(
    tls: Tls, name: str, *, request: ModelRequest | None = None, ours: LiveConfig | None = None, theirs: Any = None
) -> AsyncIterator[tuple[tuple[GeminiLiveConnection, Line], tuple[AsyncSession, Line]]]:
    """Two sessions side by side: ours and the vendor's."""
    config = ours or LiveConfig()
    with anyio.fail_after(PATIENCE_S):
        async with (
            serve(tls[0]) as server,
            model_of(server, name).connect(request or ModelRequest(contents=[]), config) as connection,
        ):
            line = await server.connection()
            async with vendor(server, tls[1], name, theirs or config_of(name), line.version) as theirs_too:
                yield (connection, line), theirs_too


def config_of(name: str, **more: Any) -> types.LiveConnectConfig:
    """What the vendor's client is told so that it asks for what LiveConfig() asks for."""
    return types.LiveConnectConfig(
        response_modalities=[types.Modality.AUDIO],
        session_resumption=types.SessionResumptionConfig(),
        context_window_compression=types.ContextWindowCompressionConfig(sliding_window=types.SlidingWindow()),
        input_audio_transcription=types.AudioTranscriptionConfig(),
        output_audio_transcription=types.AudioTranscriptionConfig(),
        **more,
    )


# ---- what is sent


@pytest.mark.parametrize("name", [NEW, OLD])
async def test_the_vendors_client_sends_the_same_set_up(tls: Tls, name: str):
    async with both(tls, name) as ((_, ours), (_, theirs)):
        assert theirs.setup == ours.setup
        assert theirs.server.urls[0] == theirs.server.urls[1]
        assert theirs.headers["x-goog-api-key"] == ours.headers["x-goog-api-key"]


@pytest.mark.parametrize("name", [NEW, OLD])
async def test_the_vendors_client_sends_the_same_set_up_with_everything_in_it(tls: Tls, name: str):
    schema = {"type": "object", "properties": {"city_name": {"type": "string"}}, "required": ["city_name"]}
    request = ModelRequest(
        contents=[],
        system="Be brief.",
        tools=[
            ToolDeclaration(name="get_weather", description="Weather", parameters=schema),
            ToolDeclaration(name="now"),
        ],
        config=GenerateConfig(temperature=0.5, top_p=0.5, top_k=3, max_output_tokens=9, seed=1, thinking_budget=0),
    )
    config = LiveConfig(
        activity="manual",
        voice="Kore",
        language="de-DE",
        resumption_handle="",
        proactive_audio=True,
        affective_dialog=name == OLD,
    )
    told: dict[str, Any] = (
        {"parameters_json_schema": schema}
        if name == NEW
        else {"parameters": types.Schema.from_json_schema(json_schema=types.JSONSchema.model_validate(schema))}
    )
    nothing: dict[str, Any] = {"parameters_json_schema": {"type": "object", "properties": {}}} if name == NEW else {}
    voice = types.VoiceConfig(prebuilt_voice_config=types.PrebuiltVoiceConfig(voice_name="Kore"))
    theirs_config = config_of(
        name,
        temperature=0.5,
        top_p=0.5,
        top_k=3,
        max_output_tokens=9,
        seed=1,
        thinking_config=types.ThinkingConfig(thinking_budget=0),
        speech_config=types.SpeechConfig(voice_config=voice, language_code="de-DE"),
        enable_affective_dialog=True if name == OLD else None,
        proactivity=types.ProactivityConfig(proactive_audio=True) if name == OLD else None,
        system_instruction=types.Content(parts=[types.Part(text="Be brief.")]),
        realtime_input_config=types.RealtimeInputConfig(
            automatic_activity_detection=types.AutomaticActivityDetection(disabled=True)
        ),
        tools=[
            types.Tool(
                function_declarations=[
                    types.FunctionDeclaration(name="get_weather", description="Weather", **told),
                    types.FunctionDeclaration(name="now", **nothing),
                ]
            )
        ],
    )
    async with both(tls, name, request=request, ours=config, theirs=theirs_config) as ((_, ours), (_, theirs)):
        assert theirs.setup == ours.setup
        assert theirs.version == ours.version == ("v1beta" if name == NEW else "v1alpha")


async def test_the_vendors_client_sends_the_same_history_and_handle(tls: Tls):
    history = [user_text("Hi."), Content(role="model", parts=[Part(text="Hello.")])]
    theirs_config = config_of(NEW, history_config=types.HistoryConfig(initial_history_in_client_content=True))
    request = ModelRequest(contents=list(history))
    async with both(tls, NEW, request=request, theirs=theirs_config) as ((_, ours), (session, theirs)):
        turns = [types.Content.model_validate({"role": c.role, "parts": [{"text": c.text}]}) for c in history]
        await session.send_client_content(turns=list(turns), turn_complete=True)
        assert await theirs.heard() == await ours.heard()
        assert theirs.setup == ours.setup
    with anyio.fail_after(PATIENCE_S):
        async with serve(tls[0]) as server:
            model, empty = model_of(server), ModelRequest(contents=[])
            async with model.connect(empty, LiveConfig()):
                first = await server.connection()
                await first.say(sessionResumptionUpdate={"newHandle": "h", "resumable": True})
            await server.all_closed()
            async with model.connect(empty, LiveConfig(resumption_handle="h")):
                ours = await server.connection()
            config = config_of(NEW)
            config.session_resumption = types.SessionResumptionConfig(handle="h")
            async with vendor(server, tls[1], NEW, config) as (_, theirs):
                assert theirs.setup == ours.setup


SOUND = Blob(mime_type=MICROPHONE, data=PCM)
PICTURE = Blob(mime_type="image/jpeg", data=PCM)


async def test_the_vendors_client_sends_the_same_inputs(tls: Tls):
    async with both(tls, NEW) as ((connection, ours), (session, theirs)):
        await ours.call("f", {"a": 1}, "c1")
        await theirs.call("f", {"a": 1}, "c1")
        await connection.send(LiveBlob(SOUND))
        await session.send_realtime_input(audio=types.Blob(mime_type=MICROPHONE, data=PCM))
        await connection.send(LiveBlob(PICTURE))
        await session.send_realtime_input(video=types.Blob(mime_type="image/jpeg", data=PCM))
        await connection.send(LiveContent(user_text("hi")))
        await session.send_realtime_input(text="hi")
        await connection.send(LiveSignal("audio_stream_end"))
        await session.send_realtime_input(audio_stream_end=True)
        await connection.send(
            LiveResponses([FunctionResponse(id="c1", name="f", response={"x_y": [1, None]}, scheduling="SILENT")])
        )
        await session.send_tool_response(
            function_responses=[
                types.FunctionResponse(
                    id="c1",
                    name="f",
                    response={"x_y": [1, None]},
                    scheduling=types.FunctionResponseScheduling.SILENT,
                )
            ]
        )
        for _ in range(5):
            assert await theirs.heard() == await ours.heard()


async def test_the_vendors_client_sends_the_same_turns_and_signals(tls: Tls):
    detection = types.AutomaticActivityDetection(disabled=True)
    theirs_config = config_of(
        OLD, realtime_input_config=types.RealtimeInputConfig(automatic_activity_detection=detection)
    )
    config = LiveConfig(activity="manual")
    async with both(tls, OLD, ours=config, theirs=theirs_config) as ((connection, ours), (session, theirs)):
        parts = [Part(text="look"), Part(inline_data=PICTURE)]
        await connection.send(LiveContent(Content(role="user", parts=parts), turn_complete=False))
        shown = types.Part(inline_data=types.Blob(mime_type="image/jpeg", data=PCM))
        turn = types.Content(role="user", parts=[types.Part(text="look"), shown])
        await session.send_client_content(turns=turn, turn_complete=False)
        await connection.send(LiveSignal("activity_start"))
        await session.send_realtime_input(activity_start=types.ActivityStart())
        await connection.send(LiveSignal("activity_end"))
        await session.send_realtime_input(activity_end=types.ActivityEnd())
        for _ in range(3):
            assert await theirs.heard() == await ours.heard()


# ---- what is read

USAGE = {
    "promptTokenCount": 5,
    "responseTokenCount": 7,
    "totalTokenCount": 15,
    "thoughtsTokenCount": 3,
    "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 5}],
    "responseTokensDetails": [{"modality": "AUDIO", "tokenCount": 7}],
}
SAID = base64.b64encode(PCM).decode()
PARTS = [
    {"text": "hm", "thought": True},
    {"text": "so"},
    {"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": SAID}},
    {"executableCode": {"language": "PYTHON", "code": "1+1"}},
]
MESSAGES: list[dict[str, Any]] = [
    {"serverContent": {"modelTurn": {"role": "model", "parts": PARTS}}, "usageMetadata": USAGE},
    {"serverContent": {"inputTranscription": {"text": "hello", "finished": True}}},
    {"serverContent": {"outputTranscription": {"text": " there"}, "generationComplete": True}},
    {"serverContent": {"interrupted": True}},
    {"toolCall": {"functionCalls": [{"id": "c1", "name": "f", "args": {"a_b": [1, None]}}, {"id": "c2", "name": "g"}]}},
    {"toolCallCancellation": {"ids": ["c1", "c2"]}},
    {"sessionResumptionUpdate": {"newHandle": "h1", "resumable": True}},
    {"goAway": {"timeLeft": "49.5s"}},
    {"serverContent": {"turnComplete": True, "turnCompleteReason": "RESPONSE_REJECTED"}},
]


@pytest.mark.parametrize("message", MESSAGES, ids=[",".join(next(iter(m.values()))) for m in MESSAGES])
async def test_the_vendors_client_reads_the_same_out_of_a_message(tls: Tls, message: dict[str, Any]):
    async with both(tls, NEW) as ((connection, ours), (session, theirs)):
        for line in (ours, theirs):
            await line.say(**message)
            await line.say(serverContent={"turnComplete": True})
        theirs_too = [m async for m in session.receive()]
        assert told(await anext(aiter(connection))) == read(theirs_too[0])


def told(message: LiveMessage) -> dict[str, Any]:
    """What we have read."""
    usage = message.usage_metadata
    return _without_nothing(
        text=[(p.text, p.thought) for p in (message.content.parts if message.content else []) if p.text],
        data=b"".join(p.inline_data.data for p in (message.content.parts if message.content else []) if p.inline_data),
        code=[p.executable_code.code for p in (message.content.parts if message.content else []) if p.executable_code],
        heard=_spoken(message.input_transcription),
        spoke=_spoken(message.output_transcription),
        interrupted=message.interrupted,
        generated=message.generation_complete,
        complete=message.turn_complete,
        reason=message.finish_reason,
        calls=[(c.id, c.name, c.args) for c in message.calls],
        cancelled=message.cancelled_calls,
        handle=message.resumption_handle,
        left=f"{message.go_away_s:g}s" if message.go_away_s is not None else None,
        usage=(
            usage.prompt_token_count,
            usage.candidates_token_count,
            usage.total_token_count,
            usage.thoughts_token_count,
        )
        if usage
        else None,
        details=[d["tokenCount"] for d in usage.candidates_tokens_details] if usage else None,
    )


def read(message: types.LiveServerMessage) -> dict[str, Any]:
    """What the vendor's client has read."""
    said = message.server_content or types.LiveServerContent()
    parts = (said.model_turn.parts if said.model_turn else None) or []
    calls = (message.tool_call.function_calls if message.tool_call else None) or []
    usage = message.usage_metadata
    update = message.session_resumption_update
    return _without_nothing(
        text=[(p.text, bool(p.thought)) for p in parts if p.text],
        data=b"".join(p.inline_data.data or b"" for p in parts if p.inline_data),
        code=[p.executable_code.code for p in parts if p.executable_code],
        heard=_spoken(said.input_transcription),
        spoke=_spoken(said.output_transcription),
        interrupted=said.interrupted,
        generated=said.generation_complete,
        complete=said.turn_complete,
        reason=said.turn_complete_reason.value if said.turn_complete_reason else None,
        calls=[(c.id, c.name, c.args or {}) for c in calls],
        cancelled=message.tool_call_cancellation.ids if message.tool_call_cancellation else None,
        handle=update.new_handle if update else None,
        left=message.go_away.time_left if message.go_away else None,
        usage=(
            usage.prompt_token_count,
            usage.response_token_count,
            usage.total_token_count,
            usage.thoughts_token_count,
        )
        if usage
        else None,
        details=[d.token_count for d in usage.response_tokens_details or []] if usage else None,
    )


def _spoken(words: Any) -> Any:
    return (words.text, bool(words.finished)) if words is not None else None


def _without_nothing(**members: Any) -> dict[str, Any]:
    return {k: v for k, v in members.items() if v}
