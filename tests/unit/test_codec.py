"""The codec: exact JSON of the data Structs, and the tolerant reader."""

from datetime import UTC, datetime

import pytest

from polyport import codec
from polyport.data.content import Content, FunctionCall, Part
from polyport.data.event import Event, EventActions, NodeInfo
from polyport.errors import BadRequest


def test_core_22_empty_event_has_exactly_five_keys():
    import json

    assert set(json.loads(codec.encode(Event()))) == {"actions", "author", "id", "invocationId", "timestamp"}


def test_core_23_unset_and_empty_deltas_keep_their_difference():
    for text in (
        b'{"actions":{}}',
        b'{"actions":{"stateDelta":{},"artifactDelta":{}}}',
        b'{"actions":{"stateDelta":{}}}',
    ):
        again = codec.encode(codec.decode(text, Event))
        assert text[1:-1] in again
    assert b"null" not in codec.encode(EventActions())


@pytest.mark.parametrize(
    ("spelling", "micros"),
    [
        ('"2026-02-25T06:13:20.123456Z"', 123456),
        ('"2026-02-25T07:13:20.123456+01:00"', 123456),
        ("1772000000.123456", 123456),
        ("1772000000", 0),
        ("1.7720000001e9", 100000),
        ('"2026-02-25T06:13:20Z"', 0),
    ],
)
def test_core_24_times_in_many_spellings(spelling: str, micros: int):
    event = codec.decode(f'{{"timestamp":{spelling}}}', Event)
    assert event.timestamp is not None
    assert event.timestamp.astimezone(UTC) == datetime(2026, 2, 25, 6, 13, 20, micros, UTC)


@pytest.mark.parametrize(
    "spelling", ["1772000000000", "1e300", "9223372036854775807", "true", "{}", '"tomorrow"', '""']
)
def test_core_24_impossible_times_are_refused(spelling: str):
    with pytest.raises(BadRequest, match="timestamp"):
        codec.decode(f'{{"timestamp":{spelling}}}', Event)


def test_core_25_old_key_spellings_load():
    event = codec.decode('{"ID":"1","InvocationID":"e-1","actions":{"StateDelta":{"someKey":1}}}', Event)
    assert (event.id, event.invocation_id, event.actions.state_delta) == ("1", "e-1", {"someKey": 1})


def test_snake_case_is_read_and_keys_of_user_data_are_left_alone():
    event = codec.decode('{"actions":{"state_delta":{"my_key":{"inner_key":1}}},"invocation_id":"e"}', Event)
    assert event.actions.state_delta == {"my_key": {"inner_key": 1}}


def test_both_base64_alphabets_are_read_and_the_standard_one_is_written():
    part = codec.decode('{"thoughtSignature":"_-8"}', Part)
    assert part.thought_signature == b"\xff\xef"
    assert codec.encode(part) == b'{"thoughtSignature":"/+8="}'


def test_unknown_field_is_refused_by_path_or_dropped():
    body = '{"parts":[{"text":"a","txt":1}],"role":"user"}'
    with pytest.raises(BadRequest, match=r'unknown field "txt" at parts\[0\].txt') as caught:
        codec.decode(body, Content)
    assert caught.value.field == "parts[0].txt"
    assert codec.decode(body, Content, unknown="drop").text == "a"


def test_arguments_of_a_call_are_always_written():
    assert codec.encode(FunctionCall(name="f")) == b'{"name":"f","args":{}}'


def test_depth_is_bounded():
    codec.check_depth(b'{"a":' * 64 + b"1" + b"}" * 64)
    with pytest.raises(BadRequest, match="deeper"):
        codec.check_depth(b"[" * 65 + b"]" * 65)
    codec.check_depth(b'{"a":"' + b"[" * 100 + b'\\"' + b"{" * 100 + b'"}')


def test_content_round_trip_is_stable():
    node = Event(node_info=NodeInfo(path="a"), content=Content(role="user", parts=[Part(text="")]))
    assert codec.decode(codec.encode(node), Event) == node


async def test_values_of_state_get_their_json_form_or_name_the_key():
    assert codec.json_safe({"a": (1, float("nan"))}, "x") == {"a": [1, None]}
    with pytest.raises(BadRequest, match="state key 'm'"):
        codec.json_safe(object(), "state key 'm'")
