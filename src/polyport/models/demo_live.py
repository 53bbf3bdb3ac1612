"""The demo model's side of a live session: text and sound in, text or a tone out, so that live agents can be tried offline.

It understands no sound: it tells silence from noise, says how long it listened, and speaks in tones, one for each word. What it
says in words follows the rules of `models/demo`, which makes these connections. No key, no network, no chance.
"""

import math
import re
import struct
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import lru_cache

import anyio
import anyio.lowlevel

from polyport.data.content import Blob, Content, Part, model_text, user_text
from polyport.data.live import LiveBlob, LiveConfig, LiveContent, LiveInput, LiveMessage, LiveResponses, LiveSignal
from polyport.data.model import ModelRequest, Transcription, Usage
from polyport.errors import BadRequest, ModelError
from polyport.ports.live import CONNECTION_LOST

RATE_OUT = 24_000
"""Samples a second of what it says: 16-bit little-endian mono, as Gemini's."""
WORD_S = 0.12
"""How long a word sounds."""
LOUD = 500
"""The amplitude of 16-bit samples from which sound is speech."""
PAUSE_S = 0.5
"""How much silence ends what the user says."""

_RATE = re.compile(r"rate=(\d{1,6})")

Parts = Callable[[ModelRequest], Sequence[Part]]
"""The parts of an answer: function calls, or one text."""


class DemoConnection:
    """See `ports.live.LiveConnection`. `request` holds the conversation so far; `answer` makes the next part of it."""

    def __init__(
        self,
        request: ModelRequest,
        config: LiveConfig,
        answer: Parts,
        *,
        is_note: Callable[[str], bool],
        delay_s: float = 0.0,
    ) -> None:
        self._request = request
        self._config = config
        self._answer = answer
        self._is_note = is_note
        self._delay_s = delay_s
        self._now: deque[LiveMessage] = deque()
        """What is to be said at once."""
        self._speech: Iterator[LiveMessage] | None = None
        """What is being said, made piece by piece, so that it can be interrupted."""
        self._open: set[str] = set()
        """Ids of calls without a result."""
        self._ear = Ear()
        self._changed = anyio.Event()
        self.closed = False
        if request.contents and request.contents[-1].role == "user":
            self._reply()

    # -- what it hears

    async def send(self, message: LiveInput) -> None:
        await anyio.lowlevel.checkpoint()
        if self.closed:
            raise ModelError("the connection is closed", code=CONNECTION_LOST)
        if isinstance(message, LiveContent):
            self._read(message)
        elif isinstance(message, LiveResponses):
            self._results(message)
        elif isinstance(message, LiveSignal):
            self._signal(message)
        else:
            self._listen(message)
        self._changed.set()
        self._changed = anyio.Event()

    def _read(self, message: LiveContent) -> None:
        self._request.contents.append(message.content)
        if message.turn_complete:
            self._interrupt()
            text = message.content.text
            if self._is_note(text):
                self._say(text)
            else:
                self._reply()

    def _results(self, message: LiveResponses) -> None:
        parts = [Part(function_response=response) for response in message.responses]
        self._request.contents.append(Content(role="user", parts=parts))
        self._open.difference_update(response.id for response in message.responses)
        if not self._open:
            self._reply()

    def _signal(self, signal: LiveSignal) -> None:
        if signal.kind == "activity_start":
            self._interrupt()
            self._ear.begin()
        else:
            self._heard(self._ear.end())

    def _listen(self, message: LiveBlob) -> None:
        blob = message.blob
        if blob.mime_type.startswith("image/"):
            return
        if not blob.mime_type.startswith("audio/pcm"):
            raise BadRequest(f"the demo model hears audio/pcm only, not {blob.mime_type[:100]!r}")
        began = self._ear.listening
        if self._config.activity == "manual":
            self._ear.add(blob)
            return
        self._heard(self._ear.follow(blob))
        if self._ear.listening and not began:
            self._interrupt()

    def _heard(self, seconds: float) -> None:
        """The user has said something of this length."""
        if seconds <= 0:
            return
        said = f"({seconds:.1f} seconds of sound)"
        self._request.contents.append(user_text(said))
        if self._config.input_transcription:
            self._now.append(LiveMessage(input_transcription=Transcription(text=said, finished=True)))
        self._say(f"I heard {seconds:.1f} seconds of sound. I am the demo model, and understand written words only.")

    # -- what it says

    def __aiter__(self) -> AsyncIterator[LiveMessage]:
        return self

    async def __anext__(self) -> LiveMessage:
        while True:
            if self._now:
                return self._now.popleft()
            if self._speech is not None:
                return await self._next_piece(self._speech)
            await self._changed.wait()

    async def _next_piece(self, speech: Iterator[LiveMessage]) -> LiveMessage:
        """The next piece of what is being said, unless it is interrupted just now."""
        await (anyio.sleep(self._delay_s) if self._delay_s > 0 else anyio.lowlevel.checkpoint())
        if self._speech is not speech:
            return await self.__anext__()
        piece = next(speech)
        if piece.turn_complete:
            self._speech = None
        return piece

    def _interrupt(self) -> None:
        if self._speech is not None:
            self._speech = None
            self._now += [LiveMessage(interrupted=True), LiveMessage(turn_complete=True)]

    def _reply(self) -> None:
        """Answer the conversation as it is now: with calls, or in words."""
        parts = self._answer(self._request)
        calls = [p.function_call for p in parts if p.function_call is not None]
        if not calls:
            self._say("".join(p.text or "" for p in parts))
            return
        self._request.contents.append(Content(role="model", parts=list(parts)))
        self._open.update(call.id for call in calls)
        self._now.append(LiveMessage(calls=calls))

    def _say(self, text: str) -> None:
        self._request.contents.append(model_text(text))
        self._speech = self._spoken(text)

    def _spoken(self, text: str) -> Iterator[LiveMessage]:
        words = re.findall(r"\s*\S+|\s+", text)
        asked = sum(len(c.text.split()) for c in self._request.contents[:-1])
        for word in words:
            if "AUDIO" not in self._config.modalities:
                yield LiveMessage(content=model_text(word))
                continue
            if self._config.output_transcription:
                yield LiveMessage(output_transcription=Transcription(text=word))
            blob = Blob(mime_type=f"audio/pcm;rate={RATE_OUT}", data=tone(word))
            yield LiveMessage(content=Content(role="model", parts=[Part(inline_data=blob)]))
        if "AUDIO" in self._config.modalities and self._config.output_transcription:
            yield LiveMessage(output_transcription=Transcription(finished=True))
        yield LiveMessage(generation_complete=True)
        usage = Usage(prompt_token_count=asked, candidates_token_count=len(words), total_token_count=asked + len(words))
        yield LiveMessage(turn_complete=True, usage_metadata=usage, model_version="demo")


class Ear:
    """How long the user has been speaking, in seconds."""

    def __init__(self) -> None:
        self.listening = False
        self._speech_s = 0.0
        self._silence_s = 0.0

    def begin(self) -> None:
        self.listening = True
        self._speech_s = self._silence_s = 0.0

    def end(self) -> float:
        """Stop listening; how long the user spoke."""
        self.listening = False
        seconds, self._speech_s, self._silence_s = self._speech_s, 0.0, 0.0
        return seconds

    def add(self, blob: Blob) -> None:
        """Sound that is known to be the user's."""
        if self.listening:
            self._speech_s += _seconds(blob)

    def follow(self, blob: Blob) -> float:
        """Sound, or silence; how long the user spoke when enough silence says that this was all, else 0."""
        if _loud(blob.data):
            if not self.listening:
                self.begin()
            self._speech_s += self._silence_s + _seconds(blob)
            self._silence_s = 0.0
        elif self.listening:
            self._silence_s += _seconds(blob)
            if self._silence_s >= PAUSE_S:
                return self.end()
        return 0.0


def _seconds(blob: Blob) -> float:
    found = _RATE.search(blob.mime_type)
    return len(blob.data) / 2 / (int(found[1]) if found and int(found[1]) else 16_000)


def _loud(data: bytes) -> bool:
    samples = struct.iter_unpack("<h", data[: len(data) & ~1])
    return any(abs(sample) >= LOUD for (sample,) in samples)


def tone(word: str) -> bytes:
    """The sound of a word: a tone whose height depends on its letters, fading in and out."""
    return _tone(220 + 20 * (sum(map(ord, word.strip())) % 24))


@lru_cache(maxsize=32)
def _tone(hertz: int) -> bytes:
    count = int(RATE_OUT * WORD_S)
    samples = array("h")
    for i in range(count):
        fade = min(1.0, i / 480, (count - i) / 480)
        samples.append(round(8000 * fade * math.sin(2 * math.pi * hertz * i / RATE_OUT)))
    return struct.pack(f"<{count}h", *samples)
