"""wire/anthropic: answers, streamed and cut anywhere, or whole."""

import json
from typing import Any

import pytest

from polyport.codec import decode, encode
from polyport.data.content import (
    Content,
    FunctionCall,
    FunctionResponse,
    Part,
    model_text,
    user_text,
)
from polyport.data.model import ModelRequest, ModelResponse, Usage
from polyport.errors import ModelError
from polyport.wire.anthropic import AnthropicDecoder, decode_response, encode_request, error_code
from polyport.wire.anthropic_request import REDACTED
from polyport.wire.sse import SseDecoder


def user(*parts: Part) -> Content:
    return Content(role="user", parts=list(parts))


def model(*parts: Part) -> Content:
    return Content(role="model", parts=list(parts))


def call(id: str, name: str = "f", **args: Any) -> Part:
    return Part(function_call=FunctionCall(id=id, name=name, args=args))


def result(id: str, response: dict[str, Any], name: str) -> Part:
    return Part(function_response=FunctionResponse(id=id, name=name, response=response))


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n".encode() for e in events)


def start(**usage: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-1", "content": []}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}


def opened(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def closed(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str | None, **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}


STOP = {"type": "message_stop"}
PING = {"type": "ping"}
MIXED = [
    start(input_tokens=10, cache_read_input_tokens=100, cache_creation_input_tokens=7, output_tokens=1),
    PING,
    opened(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Ich grüb"),
    delta(0, "thinking_delta", thinking="le 🤔"),
    delta(0, "signature_delta", signature="EqQBCgIYAhIM+/=="),
    closed(0),
    opened(1, type="redacted_thinking", data="EmwKAhgB=="),
    closed(1),
    opened(2, type="text", text=""),
    delta(2, "text_delta", text="Schö"),
    delta(2, "text_delta", text="n 🎉!"),
    PING,
    closed(2),
    opened(3, type="tool_use", id="toolu_1", name="get", input={}),
    delta(3, "input_json_delta", partial_json=""),
    delta(3, "input_json_delta", partial_json='{"ort": "Kö'),
    delta(3, "input_json_delta", partial_json='ln", "n": [1, 2]}'),
    closed(3),
    opened(4, type="tool_use", id="toolu_2", name="now", input={}),
    closed(4),
    opened(5, type="text", text=""),
    delta(5, "text_delta", text="after"),
    closed(5),
    ended("tool_use", output_tokens=50, output_tokens_details={"thinking_tokens": 20}),
    STOP,
]
MIXED_PARTS = [
    Part(text="Ich grüble 🤔", thought=True, thought_signature=b"EqQBCgIYAhIM+/=="),
    Part(text="", thought=True, thought_signature=b"EmwKAhgB==", part_metadata=REDACTED),
    Part(text="Schön 🎉!"),
    Part(function_call=FunctionCall(id="toolu_1", name="get", args={"ort": "Köln", "n": [1, 2]})),
    Part(function_call=FunctionCall(id="toolu_2", name="now", args={})),
    Part(text="after"),
]


def run(*chunks: bytes) -> tuple[list[ModelResponse], ModelResponse]:
    events, decoder = SseDecoder(), AnthropicDecoder(new_id=iter("ABCDEF").__next__)
    partials = [p for c in chunks for e in events.feed(c) for p in decoder.feed(e.event, e.data)]
    return partials, decoder.finish()


def test_FR_086_mixed_blocks_keep_order_signatures_and_usage() -> None:
    partials, whole = run(sse(*MIXED))
    assert whole == ModelResponse(
        content=Content(role="model", parts=MIXED_PARTS),
        finish_reason="STOP",
        model_version="claude-test-1",
        usage_metadata=Usage(
            prompt_token_count=117,
            candidates_token_count=30,
            thoughts_token_count=20,
            total_token_count=167,
            cached_content_token_count=100,
        ),
    )
    assert all(p.partial for p in partials)
    assert [part for p in partials if p.content for part in p.content.parts] == [
        Part(text="Ich grüb", thought=True),
        Part(text="le 🤔", thought=True),
        Part(text="Schö"),
        Part(text="n 🎉!"),
        MIXED_PARTS[3],
        MIXED_PARTS[4],
        Part(text="after"),
    ]


def test_FR_086_what_came_goes_back_byte_for_byte_also_after_a_store() -> None:
    _, whole = run(sse(*MIXED))
    stored = decode(encode(whole.content), Content)
    history = [user_text("q"), stored, user(result("toolu_1", {}, "get"), result("toolu_2", {}, "now"))]
    request = ModelRequest(contents=history)
    back = json.loads(encode_request(request, model="m", stream=False))["messages"][1]["content"]
    assert back[0] == {"type": "thinking", "thinking": "Ich grüble 🤔", "signature": "EqQBCgIYAhIM+/=="}
    assert back[1] == {"type": "redacted_thinking", "data": "EmwKAhgB=="}
    assert [b["type"] for b in back[2:]] == ["text", "tool_use", "tool_use", "text"]


def test_a_stream_may_be_cut_anywhere() -> None:
    raw = sse(*MIXED)
    expected = run(raw)
    for at in range(1, len(raw)):
        assert run(raw[:at], raw[at:]) == expected, at
    assert run(*(raw[i : i + 1] for i in range(len(raw)))) == expected


def test_streamed_and_whole_answers_are_the_same() -> None:
    content = [
        {"type": "thinking", "thinking": "Ich grüble 🤔", "signature": "EqQBCgIYAhIM+/=="},
        {"type": "redacted_thinking", "data": "EmwKAhgB=="},
        {"type": "text", "text": "Schön 🎉!"},
        {"type": "tool_use", "id": "toolu_1", "name": "get", "input": {"ort": "Köln", "n": [1, 2]}},
        {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
        {"type": "text", "text": "after", "citations": None},
    ]
    usage = {
        "input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7, "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 20}, "service_tier": "standard",
    }  # fmt: skip
    whole = {"model": "claude-test-1", "content": content, "stop_reason": "tool_use", "usage": usage}
    assert decode_response(json.dumps(whole).encode()) == run(sse(*MIXED))[1]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "STOP"),
        ("stop_sequence", "STOP"),
        ("tool_use", "STOP"),
        ("max_tokens", "MAX_TOKENS"),
        ("model_context_window_exceeded", "MAX_TOKENS"),
        ("refusal", "SAFETY"),
        ("pause_turn", "OTHER"),
        ("something_new", "OTHER"),
    ],
)
def test_FR_076_stop_reasons_and_the_text_is_kept(reason: str, finish: str) -> None:
    _, streamed = run(
        sse(
            start(),
            opened(0, type="text", text="Hal"),
            delta(0, "text_delta", text="f"),
            closed(0),
            ended(reason),
            STOP,
        )
    )
    whole = decode_response(
        json.dumps({"content": [{"type": "text", "text": "Half"}], "stop_reason": reason, "usage": {}}).encode()
    )
    for response in (streamed, whole):
        assert (response.finish_reason, response.error_code) == (finish, "")
        assert response.content == model_text("Half")


def test_FR_076_a_refusal_without_a_word_is_an_error_with_the_reason() -> None:
    end = ended("refusal", output_tokens=0)
    end["delta"]["stop_details"] = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
    _, whole = run(sse(start(), end, STOP))
    assert (whole.content, whole.finish_reason) == (None, "SAFETY")
    assert (whole.error_code, whole.error_message) == ("SAFETY", "Not this.")


def test_FR_082_an_answer_without_content_is_no_error() -> None:
    _, whole = run(sse(start(), ended("end_turn"), STOP))
    assert (whole.content, whole.finish_reason, whole.error_code) == (None, "STOP", "")


@pytest.mark.parametrize("pieces", [['{"a": 1, "b'], []])
def test_a_call_that_was_cut_off_is_left_out_and_told(pieces: list[str]) -> None:
    _, whole = run(
        sse(
            start(),
            opened(0, type="text", text=""),
            delta(0, "text_delta", text="I will"),
            closed(0),
            opened(1, type="tool_use", id="t", name="pay", input={}),
            *(delta(1, "input_json_delta", partial_json=p) for p in pieces),
            closed(1),
            ended("max_tokens"),
            STOP,
        )
    )
    assert whole.content == model_text("I will")
    assert (whole.finish_reason, whole.error_code) == ("MAX_TOKENS", "MAX_TOKENS")
    assert "pay" in whole.error_message


@pytest.mark.parametrize("args", ["{not json", "[1]", '"x"'])
def test_arguments_that_are_no_object_are_told_and_not_run(args: str) -> None:
    _, whole = run(
        sse(
            start(),
            opened(0, type="tool_use", id="t", name="pay", input={}),
            delta(0, "input_json_delta", partial_json=args),
            closed(0),
            ended("tool_use"),
            STOP,
        )
    )
    assert whole.content is None
    assert whole.error_code == "MALFORMED_FUNCTION_CALL"


def test_FR_068_a_call_without_id_gets_the_same_one_in_partial_and_whole() -> None:
    partials, whole = run(
        sse(
            start(),
            opened(0, type="tool_use", name="f", input={}),
            closed(0),
            opened(1, type="tool_use", id="", name="f", input={}),
            closed(1),
            ended("tool_use"),
            STOP,
        )
    )
    assert whole.content is not None
    ids = [c.id for c in whole.content.calls]
    assert ids == ["call_A", "call_B"]
    assert [c.id for p in partials if p.content for c in p.content.calls] == ids


def test_deltas_go_to_the_block_of_their_index_only() -> None:
    _, whole = run(
        sse(
            start(),
            opened(0, type="text", text=""),
            opened(1, type="tool_use", id="t", name="f", input={}),
            delta(0, "text_delta", text="a"),
            delta(1, "input_json_delta", partial_json='{"x":'),
            delta(1, "text_delta", text="not into the arguments"),
            delta(0, "text_delta", text="b"),
            delta(1, "input_json_delta", partial_json="1}"),
            ended("tool_use"),
            STOP,
        )
    )
    assert whole.content == model(Part(text="ab"), call("t", x=1))


def test_unknown_events_blocks_deltas_and_fields_are_ignored() -> None:
    _, whole = run(
        sse(
            {**start(input_tokens=1, unknown={"a": 1}), "new": 1},
            {"type": "brand_new", "delta": "text", "index": "x"},
            opened(0, type="server_tool_use", id="s", name="web_search", input={}, text={"odd": 1}),
            delta(0, "input_json_delta", partial_json='{"q'),
            closed(0),
            opened(1, type="web_search_tool_result", content=[{"type": "x"}]),
            closed(1),
            opened(2, type="text", text=""),
            delta(2, "citations_delta", citation={"type": "page_location"}),
            delta(2, "brand_new_delta", text={"odd": 1}),
            delta(2, "text_delta", text="ok"),
            closed(2),
            ended("end_turn", output_tokens=2, server_tool_use={"web_search_requests": 1}),
            STOP,
        )
        + b": comment\n\nevent: odd\ndata: no json\n\n"
    )
    assert whole.content == model_text("ok")
    raw = {
        "content": [{"type": "container_upload", "text": 3}, {"type": "text", "text": "ok"}],
        "stop_reason": "end_turn",
    }
    assert decode_response(json.dumps(raw).encode()).content == model_text("ok")


def test_events_without_a_name_are_told_by_their_type() -> None:
    raw = b"".join(line + b"\n" for line in sse(*MIXED).split(b"\n") if not line.startswith(b"event:"))
    assert run(raw + b"data: [DONE]\n\n") == run(sse(*MIXED))


def test_FR_086_an_error_event_is_a_model_error_with_its_code() -> None:
    decoder = AnthropicDecoder()
    for event in MIXED[:5]:
        decoder.feed(event["type"], json.dumps(event))
    data = '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    with pytest.raises(ModelError, match="Overloaded") as caught:
        decoder.feed("error", data)
    assert (caught.value.code, caught.value.http_status) == ("overloaded_error", 0)


def test_a_stream_that_ends_early_is_an_error() -> None:
    for count in range(len(MIXED) - 2):
        with pytest.raises(ModelError, match="before the answer was whole"):
            run(sse(*MIXED[:count]))
    assert run(sse(*MIXED[:-1])) == run(sse(*MIXED)), "the stop reason is enough"


@pytest.mark.parametrize(
    "data", ["{", '{"type": 3}', '{"type": "content_block_delta", "delta": {"type": "text_delta", "text": 3}}']
)
def test_nonsense_is_a_model_error(data: str) -> None:
    with pytest.raises(ModelError, match="not of the Messages API") as caught:
        AnthropicDecoder().feed("content_block_delta", data)
    assert caught.value.code == "MALFORMED_ANSWER"
    with pytest.raises(ModelError, match="not of the Messages API"):
        decode_response(b"<html>")


def test_the_providers_word_for_an_error() -> None:
    assert (
        error_code('answered 529: {"type":"error","error":{"type":"overloaded_error","message":"x"}}')
        == "overloaded_error"
    )
    assert (
        error_code('{"error": {"message": "m", "type": "request_too_large"}, "type": "error"}') == "request_too_large"
    )
    assert error_code("bad gateway") == ""
