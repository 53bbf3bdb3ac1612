"""Live sessions as data: how one is set up, what goes to the model, and what comes back (spec rest 2.4, core 2.4).

A live session is one run in which user and model talk at the same time, over one connection to the model. Protocols make
LiveRequests, the engine turns them into LiveInputs, models answer with LiveMessages. Neutral between providers.
"""

from typing import Any, Literal

from msgspec import Struct, field

from polyport.codec import Data
from polyport.data.content import Blob, Content, FunctionCall, FunctionResponse
from polyport.data.model import Transcription, Usage

Modality = Literal["AUDIO", "TEXT"]


def _audio() -> list[Modality]:
    return ["AUDIO"]


AUDIO_IN = "audio/pcm;rate=16000"
"""What audio is that comes without a media type: 16-bit little-endian mono samples, 16000 a second."""


class LiveConfig(Data, frozen=True, kw_only=True):
    """How a live session is to be. `extra` is merged into the provider's set-up message as it is."""

    modalities: list[Modality] = field(default_factory=_audio)
    """What the model answers with."""
    input_transcription: bool = True
    output_transcription: bool = True
    """Whether the text of what is heard and said comes along."""
    activity: Literal["automatic", "manual"] = "automatic"
    """Who says when the user speaks: the provider listens for it, or the client sends `activity_start` and `activity_end`."""
    explicit_vad_signal: bool = False
    """Whether the provider tells what it noticed of the user's speaking."""
    proactive_audio: bool = False
    """Whether the model may stay silent when it was not spoken to."""
    affective_dialog: bool = False
    """Whether the model adapts to the tone of the user."""
    voice: str = ""
    """The provider's name of a voice; "" for its default."""
    language: str = ""
    """A BCP-47 code such as `en-US`; "" for the provider's choice."""
    resumption: bool = True
    """Whether the provider is asked for handles with which a lost connection goes on."""
    resumption_handle: str = ""
    """The handle with which this connection goes on; set by the engine. The provider knows the conversation then."""
    save_blobs: bool = False
    """Whether sound is kept, as artifacts of the session: one for each side and turn. Its transcriptions are in any case."""
    extra: dict[str, Any] = {}


class LiveContent(Struct, frozen=True, gc=False):
    """Said in turn: text, pictures. With `turn_complete` the model is to answer."""

    content: Content
    turn_complete: bool = True


class LiveBlob(Struct, frozen=True, gc=False):
    """A piece of a stream of audio or of pictures, as it is recorded."""

    blob: Blob


class LiveSignal(Struct, frozen=True, gc=False):
    """`activity_start` and `activity_end`: the user begins and ends to speak (LiveConfig.activity "manual").
    `audio_stream_end`: the microphone was turned off."""

    kind: Literal["activity_start", "activity_end", "audio_stream_end"]


class LiveResponses(Struct, frozen=True, gc=False):
    """Results of calls that this connection's model, or the one it resumes, has made. Each call gets one, in any order; with
    `will_continue` more."""

    responses: list[FunctionResponse]


LiveInput = LiveContent | LiveBlob | LiveSignal | LiveResponses
"""What the engine sends to a model."""


class LiveRequest(Struct, frozen=True, kw_only=True, gc=False):
    """One message of a client. `content` and `realtime` may come together (spec rest 2.4)."""

    content: Content | None = None
    """Text, pictures, or function responses."""
    turn_complete: bool = True
    """Whether the content is the end of what the user says now."""
    realtime: LiveBlob | LiveSignal | None = None
    state_delta: dict[str, Any] = {}
    """State that comes true with the stored content, or with an event of its own."""
    size: int
    """As how many bytes it came: what it counts for while it waits."""


class LiveMessage(Struct, frozen=True, kw_only=True, gc=False):
    """One message of a live model: any of these, several at once if the provider says them at once."""

    content: Content | None = None
    """The next piece of the answer: text to be joined, thoughts, blobs of audio (`inline_data`). No function calls."""
    input_transcription: Transcription | None = None
    output_transcription: Transcription | None = None
    """The next piece of the text of what was heard or said, to be joined. `finished` on its last piece, which may be empty, if
    the provider says so."""
    calls: list[FunctionCall] = []
    """Tools to be carried out now; the model waits for LiveResponses, or talks on."""
    cancelled_calls: list[str] = []
    """Ids of calls whose results the model does not want any more."""
    interrupted: bool = False
    """The user spoke while the model did: what was not played yet is not to be."""
    generation_complete: bool = False
    """The answer is made, if not yet played."""
    turn_complete: bool = False
    """It is the user's turn."""
    go_away_s: float | None = None
    """The provider will close the connection in so many seconds."""
    resumption_handle: str = ""
    """A new handle, with which a later connection goes on from here."""
    usage_metadata: Usage | None = None
    grounding_metadata: dict[str, Any] | None = None
    finish_reason: str = ""
    """Why the turn is complete, if it did not simply end; the provider's word."""
    error_code: str = ""
    error_message: str = ""
    """The provider did not answer this turn, but the session goes on."""
    model_version: str = ""
    custom_metadata: dict[str, Any] | None = None
