"""Server-sent events, both ways (the event stream section of the HTML standard)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyport.errors import TooLarge
from polyport.wire import sse
from polyport.wire.sse import SseDecoder, SseEvent, frame

STREAM = (
    "\ufeff: hello\r\n"
    "data: one\n\n"
    'event: error\r\ndata: {"e":"é"}\r\n\r\n'
    "id: a\rdata: two\rdata:  lines\r\r"
    "id\ndata\n\n"
    "retry: 100\ndata: 日本\n\n"
    "data: never finished"
).encode()

EXPECTED = [
    SseEvent("one"),
    SseEvent('{"e":"é"}', "error"),
    SseEvent("two\n lines", id="a"),
    SseEvent(""),
    SseEvent("日本", retry_ms=100),
]


def decoded(chunks: list[bytes]) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def test_the_standards_own_forms():
    assert decoded([STREAM]) == EXPECTED


@pytest.mark.parametrize("at", range(len(STREAM) + 1))
def test_cut_at_every_byte(at: int):
    assert decoded([STREAM[:at], STREAM[at:]]) == EXPECTED


def test_byte_by_byte():
    assert decoded([STREAM[n : n + 1] for n in range(len(STREAM))]) == EXPECTED


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_cut_anywhere(cuts: list[int]):
    edges = [0, *sorted(cuts), len(STREAM)]
    assert decoded([STREAM[a:b] for a, b in itertools.pairwise(edges)]) == EXPECTED


def test_FR_025_an_empty_id_clears_the_cursor_and_one_with_nul_is_ignored():
    decoder = SseDecoder()
    decoder.feed(b"id: a\ndata: x\n\n")
    assert decoder.last_id == "a"
    decoder.feed(b"id: b\0c\ndata: x\n\n")
    assert decoder.last_id == "a"
    decoder.feed(b"id:\ndata: x\n\n")
    assert decoder.last_id == ""


@given(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"")), st.sampled_from(["", "error"]))
def test_what_is_framed_is_read_back(data: bytes, event: str):
    (found,) = decoded([frame(data, event=event, id="7.1")])
    assert found == SseEvent(data.decode("utf-8", "replace"), event or "message", "7.1")


def test_comments_are_no_events():
    assert decoded([sse.HEARTBEAT * 3]) == []


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sse, "MAX_EVENT", 100)
    decoder = SseDecoder()
    with pytest.raises(TooLarge):
        for _ in range(20):
            decoder.feed(b"data: 0123456789\n")
    decoder = SseDecoder()
    with pytest.raises(TooLarge):
        for _ in range(20):
            decoder.feed(b"0123456789")


def test_bad_utf8_is_replaced():
    assert decoded([b"data: a\xffb\n\n"]) == [SseEvent("a\ufffdb")]
