"""The demo model's live side: words and sound in, words and tones out, interruptions, signals, calls."""

import struct
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest

from polyport.data.content import Blob, FunctionResponse, model_text, user_text
from polyport.data.live import LiveBlob, LiveConfig, LiveContent, LiveMessage, LiveResponses, LiveSignal
from polyport.data.model import ModelRequest, ToolDeclaration
from polyport.errors import BadRequest, ModelError
from polyport.models.demo import DemoModel
from polyport.models.demo_live import DemoConnection, tone
from polyport.ports.live import CONNECTION_LOST, LiveModel

WEATHER = ToolDeclaration(
    name="get_weather",
    description="The weather of a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
LOUD, SILENT = struct.pack("<h", 8000) * 8000, bytes(16000)
"""Half a second each."""


def connected(*contents: Any, tools: Any = (), **config: Any) -> AbstractAsyncContextManager[DemoConnection]:
    return DemoModel().connect(ModelRequest(contents=list(contents), tools=list(tools)), LiveConfig(**config))


def blob(data: bytes, kind: str = "audio/pcm;rate=16000") -> LiveBlob:
    return LiveBlob(Blob(mime_type=kind, data=data))


async def turn(line: DemoConnection) -> list[LiveMessage]:
    """What it says up to the end of its turn."""
    said: list[LiveMessage] = []
    with anyio.fail_after(5):
        async for message in line:
            said.append(message)
            if message.turn_complete:
                break
    return said


def heard_of(said: list[LiveMessage]) -> str:
    return "".join(m.output_transcription.text for m in said if m.output_transcription is not None)


def sound_of(said: list[LiveMessage]) -> bytes:
    parts = [p for m in said if m.content is not None for p in m.content.parts]
    return b"".join(p.inline_data.data for p in parts if p.inline_data is not None)


def test_it_is_a_live_model():
    assert isinstance(DemoModel(), LiveModel)


async def test_it_answers_words_with_a_tone_for_each_and_says_what_it_says():
    async with connected() as line:
        await line.send(LiveContent(user_text("hello")))
        said = await turn(line)
    text = heard_of(said)
    assert text.startswith("Hello! I am the demo model")
    assert sound_of(said) == b"".join(tone(word) for word in text.split())
    assert said[-1].usage_metadata is not None
    assert said[-1].usage_metadata.candidates_token_count == len(text.split())


async def test_the_same_words_sound_the_same_and_other_words_do_not():
    assert tone("hello") == tone("hello")
    assert tone("hello") != tone("world")
    samples = struct.unpack(f"<{len(tone('x')) // 2}h", tone("x"))
    assert len(samples) == 2880, "0.12 s of 24000 samples"
    assert max(samples) > 4000 > abs(samples[0]), "it can be heard, and does not click"


async def test_without_audio_it_answers_in_text():
    async with connected(modalities=["TEXT"]) as line:
        await line.send(LiveContent(user_text("hello")))
        said = await turn(line)
    assert "".join(m.content.text for m in said if m.content is not None).startswith("Hello! ")
    assert not heard_of(said) and not sound_of(said)


async def test_without_transcription_it_only_sounds():
    async with connected(output_transcription=False, input_transcription=False) as line:
        for piece in (blob(LOUD), blob(SILENT)):
            await line.send(piece)
        said = await turn(line)
    assert sound_of(said) and not heard_of(said)
    assert all(m.input_transcription is None for m in said)


async def test_it_waits_for_the_end_of_what_is_said_in_parts():
    async with connected() as line:
        await line.send(LiveContent(user_text("My name is Ada."), turn_complete=False))
        await line.send(LiveContent(user_text("hello")))
        assert heard_of(await turn(line)).startswith("Hello!")


async def test_it_calls_tools_and_says_their_results():
    async with connected(tools=[WEATHER]) as line:
        await line.send(LiveContent(user_text("What is the weather in Rome?")))
        first = await line.__anext__()
        (call,) = first.calls
        assert (call.name, call.args) == ("get_weather", {"city": "Rome"})
        result = FunctionResponse(id=call.id, name=call.name, response={"result": "Sun over Rome."})
        await line.send(LiveResponses([result]))
        assert heard_of(await turn(line)) == "Sun over Rome."


async def test_what_a_tool_reports_is_said_and_calls_nothing():
    async with connected(tools=[WEATHER]) as line:
        await line.send(LiveContent(user_text("The tool `get_weather` reports: rain in Rome")))
        assert heard_of(await turn(line)) == "The tool `get_weather` reports: rain in Rome"


async def test_it_goes_on_with_a_conversation_that_waits_for_it_only():
    async with connected(user_text("hello")) as line:
        assert heard_of(await turn(line)).startswith("Hello!")
    async with connected(user_text("hello"), model_text("Hello!")) as line:
        with anyio.move_on_after(0.01) as waited:
            await line.__anext__()
        assert waited.cancelled_caught


async def test_it_hears_where_speech_begins_and_ends():
    async with connected() as line:
        for piece in (blob(SILENT), blob(LOUD), blob(LOUD), blob(SILENT)):
            await line.send(piece)
        said = await turn(line)
    spoken = said[0].input_transcription
    assert spoken is not None
    assert (spoken.text, spoken.finished) == ("(1.0 seconds of sound)", True)
    assert heard_of(said).startswith("I heard 1.0 seconds of sound.")


async def test_signals_say_where_speech_begins_and_ends():
    async with connected(activity="manual") as line:
        await line.send(blob(LOUD))  # nobody speaks yet
        await line.send(LiveSignal("activity_start"))
        await line.send(blob(SILENT))
        await line.send(LiveSignal("activity_end"))
        assert heard_of(await turn(line)).startswith("I heard 0.5 seconds of sound.")


async def test_a_microphone_that_is_turned_off_ends_what_is_said():
    async with connected() as line:
        await line.send(blob(LOUD, "audio/pcm;rate=8000"))
        await line.send(LiveSignal("audio_stream_end"))
        assert heard_of(await turn(line)).startswith("I heard 1.0 seconds of sound.")


@pytest.mark.parametrize(
    "by", [LiveSignal("activity_start"), blob(LOUD), LiveContent(user_text("stop"))], ids=["signal", "sound", "words"]
)
async def test_who_speaks_interrupts_it(by: Any):
    async with connected() as line:
        await line.send(LiveContent(user_text("hello")))
        said = [await line.__anext__() for _ in range(4)]
        assert sum(len(sound_of([m])) > 0 for m in said) == 2
        await line.send(by)
        assert (await line.__anext__()).interrupted
        assert (await line.__anext__()).turn_complete


async def test_silence_and_pictures_do_not_interrupt_it():
    async with connected() as line:
        await line.send(LiveContent(user_text("hello")))
        await line.__anext__()
        await line.send(blob(SILENT))
        await line.send(blob(b"\xff\xd8", "image/jpeg"))
        assert not any(m.interrupted for m in await turn(line))


async def test_it_says_what_it_does_not_hear():
    async with connected() as line:
        with pytest.raises(BadRequest, match="audio/pcm"):
            await line.send(blob(b"x", "audio/ogg"))
        await line.send(LiveContent(user_text("hello")))
        assert heard_of(await turn(line))
    with pytest.raises(ModelError) as lost:
        await line.send(LiveContent(user_text("anybody there?")))
    assert lost.value.code == CONNECTION_LOST
