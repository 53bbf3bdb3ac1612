"""Frames of Bedrock from a hostile server: whatever comes, and however it is cut, the decoder gives server-sent events."""

import base64
import json
import struct
import zlib

from hypothesis import example, given
from hypothesis import strategies as st

from polyport.errors import ModelError
from polyport.models.bedrock import Bedrock
from polyport.wire.anthropic import AnthropicDecoder
from polyport.wire.sse import SseDecoder

BEDROCK = Bedrock("eu-central-1", api_key="k")


def frame(head: bytes, payload: bytes, length: int | None = None) -> bytes:
    """A frame with right checksums and anything else; `length` is what it says to be long."""
    total = 16 + len(head) + len(payload) if length is None else length
    start = struct.pack("!II", total, len(head))
    said = start + struct.pack("!I", zlib.crc32(start)) + head + payload
    return said + struct.pack("!I", zlib.crc32(said))


def header(name: str, value: str) -> bytes:
    raw, said = name.encode()[:255], value.encode()
    return bytes([len(raw)]) + raw + b"\x07" + struct.pack("!H", len(said)) + said


KINDS = st.sampled_from(["event", "exception", "error", "", "other"])
NAMES = st.sampled_from([":message-type", ":event-type", ":exception-type", ":error-code", ":error-message", "x"])
HEADS = st.one_of(
    st.binary(max_size=40),
    st.lists(st.tuples(NAMES, st.one_of(KINDS, st.just("chunk"), st.text(max_size=9))), max_size=4).map(
        lambda pairs: b"".join(header(*pair) for pair in pairs)
    ),
)
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=2), max_leaves=4
)
PAYLOADS = st.one_of(
    st.binary(max_size=60),
    st.dictionaries(st.sampled_from(["bytes", "message", "p"]), JSON, max_size=3).map(lambda v: json.dumps(v).encode()),
    st.sampled_from([b'{"bytes": "aGkK/w=="}', b'{"message": ' + b"[" * 5000, b'{"p": ' + b"[" * 50_000]),
)
FRAMES = st.builds(frame, HEADS, PAYLOADS, st.none() | st.integers(0, 80))
CHUNK = header(":message-type", "event") + header(":event-type", "chunk")


@given(st.lists(FRAMES | st.binary(max_size=20), max_size=4), st.integers(1, 40))
@example([frame(b"", b"", 0)], 40)
@example([frame(CHUNK, b'{"p": ' + b"[" * 50_000)], 40)
@example([frame(CHUNK, b'{"bytes": "' + b"/" * 8 + b'"}')], 1)
def test_whatever_comes_is_read_or_an_error_of_the_model(pieces: list[bytes], size: int):
    told, decoder, events = b"".join(pieces), BEDROCK.decoder(), SseDecoder()
    reader = AnthropicDecoder(lambda: "id")
    try:
        for start in range(0, len(told), size):
            for event in events.feed(decoder(told[start : start + size])):
                reader.feed(event.event, event.data)
    except ModelError as error:
        assert error.code


@given(st.lists(st.sampled_from(["message_start", "ping", "a\\nb"]), max_size=5), st.integers(1, 64))
def test_frames_cut_anywhere_are_the_events_in_order(kinds: list[str], size: int):

    payloads = [{"bytes": base64.b64encode(f'{{"type":\n"{k}"}}'.encode()).decode()} for k in kinds]
    told = b"".join(frame(CHUNK, json.dumps(p).encode()) for p in payloads)
    decoder, events = BEDROCK.decoder(), SseDecoder()
    got = [e.data for start in range(0, len(told), size) for e in events.feed(decoder(told[start : start + size]))]
    assert [json.loads(data)["type"] for data in got] == [k.replace("\\n", "\n") for k in kinds]
