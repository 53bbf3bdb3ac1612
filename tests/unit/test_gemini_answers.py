"""Answers of the Gemini wire: whole ones, streams cut anywhere (spec core 3.13), and error bodies."""

import base64
import itertools
import json
from typing import Any

import pytest

from polyport.data.content import Content, FunctionCall, Part
from polyport.data.model import ModelResponse, Usage
from polyport.errors import ModelError
from polyport.wire.gemini import GeminiStream, read_answer, read_error
from polyport.wire.gemini_args import parse_path


def ids():
    counter = itertools.count(1)
    return lambda: f"id{next(counter)}"


def sse(*chunks: dict[str, Any] | str) -> bytes:
    return b"".join(b"data: " + (c if isinstance(c, str) else json.dumps(c)).encode() + b"\r\n\r\n" for c in chunks)


def said(*parts: dict[str, Any], finish: str = "", **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **more}


def read(data: bytes) -> tuple[list[ModelResponse], ModelResponse]:
    stream = GeminiStream(ids())
    pieces = [*stream.feed(data), *stream.end()]
    return pieces, stream.answer()


def whole(*chunks: dict[str, Any] | str) -> ModelResponse:
    return read(sse(*chunks))[1]


# --- answers ----------------------------------------------------------------------------------------------------------


def answer(body: dict[str, Any]) -> ModelResponse:
    return read_answer(json.dumps(body).encode(), ids())


def test_an_answer_with_everything():
    got = answer(
        {
            "candidates": [
                {
                    "content": {
                        "role": "model",
                        "parts": [
                            {"text": "hm", "thought": True},
                            {"text": "a"},
                            {"text": "b", "novelty": {"x": 1}},
                            {"functionCall": {"name": "f", "args": {"n": 1}}, "thoughtSignature": "AAEC"},
                            {},
                        ],
                    },
                    "finishReason": "STOP",
                    "avgLogprobs": -0.5,
                    "citationMetadata": {"citationSources": [{"uri": "https://a"}]},
                    "groundingMetadata": {"webSearchQueries": ["q"]},
                    "safetyRatings": [],
                }
            ],
            "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 9, "serviceTier": "standard"},
            "modelVersion": "gemini-x-001",
            "responseId": "r",
        }
    )
    assert got == ModelResponse(
        content=Content(
            role="model",
            parts=[
                Part(text="hm", thought=True),
                Part(text="a"),
                Part(text="b"),
                Part(function_call=FunctionCall(id="adk-id1", name="f", args={"n": 1}), thought_signature=b"\0\1\2"),
            ],
        ),
        usage_metadata=Usage(prompt_token_count=3, total_token_count=9),
        finish_reason="STOP",
        model_version="gemini-x-001",
        avg_logprobs=-0.5,
        citation_metadata={"citations": [{"uri": "https://a"}]},
        grounding_metadata={"webSearchQueries": ["q"]},
    )


def test_candidate_rule():
    empty = {"candidates": [{"finishReason": "SAFETY", "finishMessage": "no"}]}
    assert (answer(empty).content, answer(empty).error_code, answer(empty).error_message) == (None, "SAFETY", "no")
    assert answer({"candidates": [{"finishReason": "STOP"}]}).content == Content(role="model")
    blocked = answer({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "why"}})
    assert (blocked.error_code, blocked.error_message, blocked.content) == ("PROHIBITED_CONTENT", "why", None)
    zero = answer(said({}, finish="MAX_TOKENS"))
    assert (zero.content, zero.error_code) == (None, "MAX_TOKENS")
    with pytest.raises(ModelError, match="without a candidate"):
        answer({"usageMetadata": {"totalTokenCount": 1}})


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "SAFETY", "STOP", "UNEXPECTED_TOOL_CALL"])
def test_FR_076_the_finish_reason_is_kept_streamed_or_not_and_so_is_the_text(finish: str):
    body = said({"text": "so far"}, finish=finish)
    for got in (answer(body), whole(body)):
        assert got.finish_reason == finish
        assert got.content is not None
        assert got.content.text == "so far"
        assert got.error_code == ""


def test_no_gemini_answer_is_a_model_error():
    for body in (b"<html>", b'{"candidates": 3}', b"\xff", b""):
        with pytest.raises(ModelError) as caught:
            read_answer(body, ids())
        assert caught.value.code == "BAD_ANSWER"


# --- streams ----------------------------------------------------------------------------------------------------------

STREAM = sse(
    {"usageMetadata": {"promptTokenCount": 5}, "modelVersion": "m1"},
    said({"text": "Let me ", "thought": True}),
    said({"text": "think", "thought": True}, {"text": "Hi "}),
    said({"text": "Ada é😀"}, {"text": "", "thoughtSignature": "c2ln"}),
    said({"functionCall": {"name": "f", "args": {"q": "ü"}}}, {"functionCall": {"name": "g", "args": {}}}),
    said({"executableCode": {"language": "PYTHON", "code": "1"}}),
    said({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}, {"text": "end"}),
    said({}, finish="STOP", usageMetadata={"promptTokenCount": 5, "candidatesTokenCount": 7}),
)
STREAM_PARTS = [
    Part(text="Let me think", thought=True),
    Part(text="Hi Ada é😀", thought_signature=b"sig"),
    Part(function_call=FunctionCall(id="adk-id1", name="f", args={"q": "ü"}), thought_signature=b"sig"),
    Part(function_call=FunctionCall(id="adk-id2", name="g")),
]


def test_FR_070_the_whole_answer_has_all_pieces_in_order():
    pieces, got = read(STREAM)
    assert got.content is not None
    assert got.content.parts[:4] == STREAM_PARTS
    assert [p.text for p in got.content.parts[4:]] == [None, None, "end"]
    assert got.content.role == "model"
    assert not got.partial
    assert "".join(p.content.text for p in pieces if p.content) == "Hi Ada é😀end"
    assert got.model_version == "m1"


def test_every_cut_of_the_stream_gives_the_same():
    expected = read(STREAM)
    for cut in range(1, len(STREAM)):
        stream = GeminiStream(ids())
        pieces = [*stream.feed(STREAM[:cut]), *stream.feed(STREAM[cut:]), *stream.end()]
        assert (pieces, stream.answer()) == expected
    stream = GeminiStream(ids())
    pieces = [p for i in range(len(STREAM)) for p in stream.feed(STREAM[i : i + 1])]
    assert (pieces, stream.answer()) == expected


def test_core_3_13_every_chunk_is_a_partial_piece_and_the_finishing_one_completes_the_turn():
    pieces, got = read(STREAM)
    assert len(pieces) == 8
    assert all(p.partial for p in pieces)
    assert [p.turn_complete for p in pieces] == [False] * 7 + [True]
    assert pieces[-1].finish_reason == "STOP"
    assert got.finish_reason == "STOP"


def test_core_54_and_FR_068_a_call_has_the_same_id_in_its_piece_and_in_the_whole():
    pieces, got = read(STREAM)
    assert got.content is not None
    shown = [c.id for p in pieces if p.content for c in p.content.calls]
    assert shown == [c.id for c in got.content.calls] == ["adk-id1", "adk-id2"]


def streamed(*, finish: str = "", more: bool | None = None, **call: Any) -> dict[str, Any]:
    if more is not None:
        call["willContinue"] = more
    if "args" in call:
        call["partialArgs"] = [{"jsonPath": path, **value} for path, value in call.pop("args")]
    return said({"functionCall": call}, finish=finish)


def test_core_55_streamed_arguments_are_joined_by_path():
    pieces, got = read(
        sse(
            streamed(name="book", more=True),
            streamed(more=True, args=[("$.who.name", {"stringValue": "New ", "willContinue": True})]),
            streamed(more=True, args=[("$.who.name", {"stringValue": "York"}), ("n", {"numberValue": 2})]),
            streamed(more=True),
            streamed(more=True, args=[("$.price", {"numberValue": 1.5}), ("$.ok", {"boolValue": False})]),
            streamed(more=True, args=[("$.stops[1].city", {"stringValue": "Rome"}), ("$['a.b']", {"nullValue": None})]),
            streamed(more=False, finish="STOP"),
        )
    )
    assert got.content is not None
    (made,) = got.content.calls
    assert made.name == "book"
    assert made.args == {
        "who": {"name": "New York"},
        "n": 2,
        "price": 1.5,
        "ok": False,
        "stops": [None, {"city": "Rome"}],
        "a.b": None,
    }
    assert type(made.args["n"]) is int
    shown = [c for p in pieces if p.content for c in p.content.calls]
    assert len(shown) == 7
    assert {(c.id, c.name) for c in shown} == {(made.id, "book")}
    assert made.id == "adk-id1"
    assert made.partial_args == [] and not made.will_continue


def test_core_55_two_streamed_calls_in_a_row_and_one_left_open_keep_their_places():
    got = whole(
        said({"text": "First"}),
        streamed(id="a", name="f", more=True, args=[("$.x", {"stringValue": "1"})]),
        streamed(id="b", name="f", more=True, args=[("$.x", {"stringValue": "2"})]),
        streamed(more=False),
        said({"text": "then"}),
        said({"functionCall": {"name": "whole", "args": {"y": 1}}}),
        said({"functionCall": {}}),
        streamed(name="open", more=True, args=[("x", {"stringValue": "3"})]),
    )
    assert got.content is not None
    assert [(p.text, p.function_call and (p.function_call.name, p.function_call.args)) for p in got.content.parts] == [
        ("First", None),
        (None, ("f", {"x": "1"})),
        (None, ("f", {"x": "2"})),
        ("then", None),
        (None, ("whole", {"y": 1})),
        (None, ("open", {"x": "3"})),
    ]


def test_core_55_a_call_that_is_streamed_in_one_chunk_and_followed_by_an_empty_one():
    got = whole(
        streamed(id="c", name="f", more=False, args=[("$.num", {"numberValue": 100}), ("$.s", {"stringValue": "x"})]),
        said({"functionCall": {}}, finish="STOP"),
    )
    assert got.content is not None
    assert got.content.calls == [FunctionCall(id="c", name="f", args={"num": 100, "s": "x"})]


@pytest.mark.parametrize(
    "args",
    [
        [("$.a[99999999]", {"numberValue": 1})],
        [("$.a", {"numberValue": 1}), ("$.a.b", {"numberValue": 1})],
        [("$[0]", {"numberValue": 1})],
        [("$.a[", {"numberValue": 1})],
        [("", {"numberValue": 1})],
    ],
)
def test_core_55_arguments_that_make_no_sense_are_an_error_of_the_model(args: list[Any]):
    with pytest.raises(ModelError) as caught:
        whole(streamed(name="f", more=False, args=args))
    assert caught.value.code == "MALFORMED_FUNCTION_CALL"


def test_json_paths():
    assert parse_path('$.a.b[0][\'c.d\']["e\\"f"]') == ["a", "b", 0, "c.d", 'e"f']
    assert parse_path("a") == ["a"]


def test_core_56_usage_and_other_metadata_survive_chunks_without_them():
    got = whole(
        said({"text": "a"}, usageMetadata={"totalTokenCount": 100}),
        {
            "candidates": [
                {
                    "content": {"parts": [{"text": "b"}]},
                    "groundingMetadata": {"x": 1},
                    "citationMetadata": {"citations": []},
                }
            ]
        },
        {"usageMetadata": {"totalTokenCount": 200}},
        said({"text": "c"}, finish="MAX_TOKENS"),
        {"candidates": [{"content": {"parts": [{"text": "d"}]}}]},
        {},
    )
    assert got.usage_metadata == Usage(total_token_count=200)
    assert got.grounding_metadata == {"x": 1}
    assert got.citation_metadata == {"citations": []}
    assert got.finish_reason == "MAX_TOKENS"
    assert got.content is not None
    assert got.content.text == "abcd"


def test_core_56_a_metadata_only_chunk_is_an_empty_piece_and_no_end():
    pieces, got = read(sse({"usageMetadata": {"totalTokenCount": 1}}, said({"text": "x"}, finish="STOP")))
    assert pieces[0] == ModelResponse(
        content=Content(role="model"), partial=True, usage_metadata=Usage(total_token_count=1)
    )
    assert got.content is not None
    assert got.content.text == "x"


def test_core_57_an_unexpected_tool_call_with_content_keeps_it_and_has_no_error_code():
    got = whole(said({"text": "Some text"}, finish="UNEXPECTED_TOOL_CALL"))
    assert (got.error_code, got.finish_reason) == ("", "UNEXPECTED_TOOL_CALL")
    assert got.content is not None
    assert got.content.text == "Some text"


def test_core_57_the_error_of_the_last_chunk_stays_unless_all_ended_well():
    bad = {"candidates": [{"finishReason": "SAFETY", "finishMessage": "cut"}]}
    got = whole(said({"text": "so far"}), bad, {"usageMetadata": {"totalTokenCount": 1}})
    assert (got.error_code, got.error_message, got.finish_reason) == ("SAFETY", "cut", "SAFETY")
    assert got.content is not None
    assert got.content.text == "so far"
    good = whole(said({"text": "x"}), bad, said({"text": "y"}, finish="STOP"))
    assert (good.error_code, good.error_message) == ("", "")


def test_core_57_a_blocked_prompt_and_a_silent_stream_are_told():
    assert whole({"promptFeedback": {"blockReason": "SAFETY"}}).error_code == "SAFETY"
    silent = whole({"usageMetadata": {"totalTokenCount": 1}})
    assert (silent.content, silent.error_code) == (None, "NO_ANSWER")
    assert whole(said({"text": ""}, finish="STOP")).content == Content(role="model")
    with pytest.raises(ModelError, match="without an answer"):
        GeminiStream(ids()).answer()


@pytest.mark.parametrize("together", [True, False])
def test_core_58_a_signature_goes_to_the_first_call_only(together: bool):
    signature = {"thoughtSignature": base64.b64encode(b"sig").decode()}
    calls = [{"functionCall": {"name": "p", "args": {"m": n}}} for n in (1, 2)]
    got = whole(said(signature, *calls)) if together else whole(said(signature), said(*calls, finish="STOP"))
    assert got.content is not None
    assert [p.thought_signature for p in got.content.parts] == [b"sig", b"sig", None]


def test_core_58_the_signature_of_a_streamed_call_is_kept():
    first = streamed(name="f", more=True)
    first["candidates"][0]["content"]["parts"][0]["thoughtSignature"] = base64.b64encode(b"sig").decode()
    got = whole(first, streamed(more=False, args=[("$.x", {"stringValue": "1"})]))
    assert got.content is not None
    assert got.content.parts == [
        Part(function_call=FunctionCall(id="adk-id1", name="f", args={"x": "1"}), thought_signature=b"sig")
    ]


def test_a_stream_without_its_last_blank_line_is_whole_and_a_torn_one_is_an_error():
    data = sse(said({"text": "a"}), said({"text": "b"}, finish="STOP"))
    assert read(data.rstrip())[1].finish_reason == "STOP"
    with pytest.raises(ModelError) as caught:
        read(data[:-12])
    assert caught.value.code == "BAD_ANSWER"


def test_FR_083_an_error_inside_the_stream_comes_after_the_pieces_before_it():
    fault = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "overloaded"}}
    stream = GeminiStream(ids())
    got: list[str] = []
    with pytest.raises(ModelError, match="overloaded") as caught:
        for piece in stream.feed(sse(said({"text": "a"}), said({"text": "b"}), fault, said({"text": "c"}))):
            assert piece.content is not None
            got.append(piece.content.text)
    assert got == ["a", "b"]
    assert (caught.value.http_status, caught.value.code) == (503, "UNAVAILABLE")


# --- errors -----------------------------------------------------------------------------------------------------------


def test_FR_083_an_error_body_gives_status_code_and_when_to_come_back():
    body = {
        "error": {
            "code": 429,
            "message": "Quota exceeded.",
            "status": "RESOURCE_EXHAUSTED",
            "details": [
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"},
            ],
        }
    }
    for wire in (body, [body]):
        error = read_error(429, json.dumps(wire).encode())
        assert (error.http_status, error.code, error.retry_after_s) == (429, "RESOURCE_EXHAUSTED", 17.5)
        assert str(error) == "Gemini answered 429 RESOURCE_EXHAUSTED: Quota exceeded."
    assert read_error(429, json.dumps(body).encode(), 3.0).retry_after_s == 3.0


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"[]", b'{"message":"x"}', b"\xff\xfe", b"3"])
def test_an_error_body_of_another_kind_is_told_as_it_is(body: bytes):
    error = read_error(502, body, 1.0)
    assert (error.http_status, error.code, error.retry_after_s) == (502, "", 1.0)
    assert str(error).startswith("the model's server answered 502")
