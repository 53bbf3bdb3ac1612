"""The Gemini wire: exact requests, answers, and streams cut anywhere (spec core 3.13)."""

import base64
import itertools
import json
from typing import Any

import pytest

from polyport import codec
from polyport.data.content import Blob, Content, FileData, FunctionCall, FunctionResponse, Part, model_text, user_text
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse, ToolDeclaration, Usage
from polyport.errors import BadRequest, ModelError
from polyport.wire.gemini import GeminiStream, read_answer, read_error
from polyport.wire.gemini_args import parse_path
from polyport.wire.gemini_request import GO_ON, UNKNOWN_RESULT, encode_request, path

WEATHER = ToolDeclaration(
    name="get_weather",
    description="Weather of a city",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
PNG = b"\x89PNG\r\n\x1a\n0000"


def sent(request: ModelRequest) -> dict[str, Any]:
    return json.loads(encode_request(request))


def sent_contents(*contents: Content) -> list[dict[str, Any]]:
    return sent(ModelRequest(contents=list(contents)))["contents"]


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


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_full_request_is_exactly_this_json():
    request = ModelRequest(
        contents=[
            user_text("Weather in Paris?"),
            Content(
                role="model",
                parts=[Part(function_call=FunctionCall(id="c1", name="get_weather", args={"city": "Paris"}))],
            ),
            Content(
                role="user",
                parts=[Part(function_response=FunctionResponse(id="c1", name="get_weather", response={"temp": 21}))],
            ),
        ],
        system="Be brief.",
        tools=[WEATHER, ToolDeclaration(name="now")],
        response_schema={"type": "object", "properties": {"a": {"type": "string"}}},
        config=GenerateConfig(
            temperature=0.5,
            top_p=0.9,
            top_k=40,
            max_output_tokens=100,
            stop_sequences=["END"],
            seed=7,
            presence_penalty=0.1,
            frequency_penalty=0.2,
            thinking_budget=0,
            include_thoughts=True,
            tool_choice="get_weather",
            extra={
                "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
                "generationConfig": {"candidateCount": 1, "thinkingConfig": {"thinkingLevel": "LOW"}},
                "tools": [{"googleSearch": {}}],
            },
        ),
    )
    assert sent(request) == {
        "contents": [
            {"role": "user", "parts": [{"text": "Weather in Paris?"}]},
            {
                "role": "model",
                "parts": [{"functionCall": {"id": "c1", "name": "get_weather", "args": {"city": "Paris"}}}],
            },
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "c1", "name": "get_weather", "response": {"temp": 21}}}],
            },
        ],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "get_weather",
                        "description": "Weather of a city",
                        "parametersJsonSchema": WEATHER.parameters,
                    },
                    {"name": "now", "parametersJsonSchema": {"type": "object", "properties": {}}},
                ]
            },
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["get_weather"]}},
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "topK": 40,
            "maxOutputTokens": 100,
            "stopSequences": ["END"],
            "seed": 7,
            "presencePenalty": 0.1,
            "frequencyPenalty": 0.2,
            "thinkingConfig": {"thinkingBudget": 0, "includeThoughts": True, "thinkingLevel": "LOW"},
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
            "candidateCount": 1,
        },
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    }


def test_a_bare_request_says_nothing_it_was_not_told():
    assert encode_request(ModelRequest(contents=[user_text("hi")])) == (
        b'{"contents":[{"parts":[{"text":"hi"}],"role":"user"}]}'
    )


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", None),
        ("none", {"functionCallingConfig": {"mode": "NONE"}}),
        ("any", {"functionCallingConfig": {"mode": "ANY"}}),
    ],
)
def test_tool_choice(choice: str, config: dict[str, Any] | None):
    request = ModelRequest(contents=[user_text("hi")], tools=[WEATHER], config=GenerateConfig(tool_choice=choice))
    assert sent(request).get("toolConfig") == config


def test_a_tool_choice_that_names_no_tool_is_refused():
    request = ModelRequest(contents=[user_text("hi")], tools=[WEATHER], config=GenerateConfig(tool_choice="get_wether"))
    with pytest.raises(BadRequest, match="get_wether"):
        encode_request(request)


def test_what_the_api_refuses_is_taken_out():
    contents = sent_contents(
        Content(
            role="user",
            parts=[
                Part(inline_data=Blob(mime_type="image/png", data=PNG, display_name="a.png")),
                Part(file_data=FileData(file_uri="gs://b/a.pdf", mime_type="application/pdf", display_name="a.pdf")),
                Part(text="x", part_metadata={"k": 1}),
                Part(part_metadata={"k": 1}),
                Part(),
                Part(text=""),
                Part(text="", thought=True),
            ],
        ),
        Content(role="user", parts=[Part()]),
    )
    assert contents == [
        {
            "role": "user",
            "parts": [
                {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}},
                {"fileData": {"fileUri": "gs://b/a.pdf", "mimeType": "application/pdf"}},
                {"text": "x"},
            ],
        }
    ]


def test_made_up_ids_stay_at_home_and_the_providers_own_go_back():
    contents = sent_contents(
        user_text("go"),
        Content(
            role="model",
            parts=[
                Part(function_call=FunctionCall(id="adk-1", name="f", will_continue=True)),
                Part(function_call=FunctionCall(id="x1", name="f")),
            ],
        ),
        Content(
            role="user",
            parts=[
                Part(function_response=FunctionResponse(id="x1", name="f", response={"n": 2})),
                Part(function_response=FunctionResponse(id="adk-1", name="f", response=None)),
            ],
        ),
    )
    assert contents[1]["parts"] == [
        {"functionCall": {"name": "f", "args": {}}},
        {"functionCall": {"id": "x1", "name": "f", "args": {}}},
    ]
    assert contents[2]["parts"] == [
        {"functionResponse": {"name": "f", "response": {"result": None}}},
        {"functionResponse": {"id": "x1", "name": "f", "response": {"n": 2}}},
    ]


def test_other_roles_become_user_and_the_last_content_is_the_users():
    contents = sent_contents(
        Content(role="system", parts=[Part(text="s")]), Content(role="assistant", parts=[Part(text="a")])
    )
    assert [c["role"] for c in contents] == ["user", "model", "user"]
    assert contents[-1]["parts"] == [{"text": GO_ON}]
    assert sent_contents() == []


def test_the_history_is_not_changed_by_sending_it():
    content = Content(role="user", parts=[Part(inline_data=Blob(mime_type="image/png", data=PNG, display_name="a"))])
    before = codec.encode(content)
    sent_contents(content)
    assert codec.encode(content) == before


@pytest.mark.parametrize(
    ("uri", "mime_type", "expected"),
    [
        ("data:image/png;base64,iVBORw0KGgo=", "", ("image/png", b"\x89PNG\r\n\x1a\n")),
        ("data:image/png;base64,iVBORw0KGgo", "image/jpeg", ("image/png", b"\x89PNG\r\n\x1a\n")),
        ("DATA:text/plain;charset=utf-8;base64,_-8=", "", ("text/plain", b"\xff\xef")),
        ("data:text/plain,a%20b", "", ("text/plain", b"a b")),
        ("data:;base64,iVBORw0KGgo=", "", ("image/png", b"\x89PNG\r\n\x1a\n")),
        ("data:,x", "text/csv", ("text/csv", b"x")),
        ("data:image/*;base64,/9j/4AA=", "", ("image/jpeg", b"\xff\xd8\xff\xe0\x00")),
    ],
)
def test_FR_013_a_data_uri_becomes_inline_data(uri: str, mime_type: str, expected: tuple[str, bytes]):
    part = Part(file_data=FileData(file_uri=uri, mime_type=mime_type))
    (content,) = sent_contents(Content(role="user", parts=[part]))
    (out,) = content["parts"]
    assert out == {"inlineData": {"mimeType": expected[0], "data": base64.b64encode(expected[1]).decode()}}


@pytest.mark.parametrize(
    "part",
    [
        Part(inline_data=Blob(mime_type="image/*", data=b"\0\0\0")),
        Part(inline_data=Blob(data=b"\0\0\0")),
        Part(file_data=FileData(file_uri="data:image/png;base64,???")),
        Part(file_data=FileData(file_uri="data:image/png;base64")),
    ],
)
def test_FR_013_what_cannot_be_read_is_refused_by_name(part: Part):
    with pytest.raises(BadRequest, match=r"contents\[0\]\.parts\[1\]") as caught:
        sent_contents(Content(role="user", parts=[Part(text="see"), part]))
    assert caught.value.field.startswith("contents[0].parts[1]")


def test_FR_013_a_wildcard_type_is_read_off_the_bytes():
    (content,) = sent_contents(Content(role="user", parts=[Part(inline_data=Blob(mime_type="image/*", data=PNG))]))
    assert content["parts"][0]["inlineData"]["mimeType"] == "image/png"


def call(name: str, id: str = "", **args: Any) -> Part:
    return Part(function_call=FunctionCall(id=id, name=name, args=args))


def result(name: str, id: str = "", **response: Any) -> Part:
    return Part(function_response=FunctionResponse(id=id, name=name, response=response))


def test_FR_033_an_unanswered_call_gets_a_neutral_result_in_the_same_user_turn():
    contents = sent_contents(
        user_text("go"), Content(role="model", parts=[call("f", "c1")]), user_text("stop, do something else")
    )
    assert [c["role"] for c in contents] == ["user", "model", "user"]
    assert contents[2]["parts"] == [
        {"functionResponse": {"id": "c1", "name": "f", "response": UNKNOWN_RESULT}},
        {"text": "stop, do something else"},
    ]


def test_FR_033_responses_are_as_many_as_calls_and_in_their_order():
    contents = sent_contents(
        user_text("go"),
        Content(role="model", parts=[call("f", "a"), call("g", "b"), call("f", "c")]),
        Content(role="user", parts=[result("f", "c", n=3), Part(text="and")]),
        Content(role="user", parts=[result("f", "a", n=1), Part(text="so on")]),
        model_text("ok"),
        Content(role="model", parts=[call("h", "d")]),
    )
    answers = contents[2]["parts"]
    assert [p["functionResponse"]["id"] for p in answers[:3]] == ["a", "b", "c"]
    assert answers[1]["functionResponse"]["response"] == UNKNOWN_RESULT
    assert answers[3:] == [{"text": "and"}]
    assert contents[3]["parts"] == [{"text": "so on"}]
    assert contents[-1]["parts"][0]["functionResponse"]["name"] == "h"


def test_FR_033_calls_without_ids_are_matched_by_name_in_order():
    contents = sent_contents(
        user_text("go"),
        Content(role="model", parts=[call("f"), call("f"), call("g")]),
        Content(role="user", parts=[result("f", n=1), result("f", n=2)]),
    )
    assert [p["functionResponse"]["response"] for p in contents[2]["parts"]] == [{"n": 1}, {"n": 2}, UNKNOWN_RESULT]


def test_FR_033_a_result_without_a_call_is_kept_as_text():
    contents = sent_contents(user_text("go"), Content(role="user", parts=[result("f", "zz", n=1)]))
    assert contents[1]["parts"] == [{"text": 'Result of f, called earlier: {"n":1}'}]


def test_FR_080_signatures_go_back_byte_for_byte():
    signature = bytes(range(256))
    answer = whole(
        said({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": base64.b64encode(signature).decode()})
    )
    assert answer.content is not None
    stored = codec.decode(codec.encode(answer.content), Content)  # through a database and REST
    contents = sent_contents(user_text("go"), stored)
    assert contents[1]["parts"][0]["thoughtSignature"] == base64.b64encode(signature).decode()


@pytest.mark.parametrize("signature", ["-_-_", "_w", "-_8="])
def test_FR_080_a_signature_in_the_other_base64_alphabet_keeps_its_bytes(signature: str):
    part = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": signature}
    answer = whole(said(part, finish="STOP"))
    assert answer.content is not None
    padded = signature + "=" * (-len(signature) % 4)
    assert answer.content.parts[0].thought_signature == base64.urlsafe_b64decode(padded)


@pytest.mark.parametrize("name", ["../x", "a b", "x?key=1", "", "models/../x", "a:b"])
def test_a_model_name_that_could_leave_its_place_is_refused(name: str):
    with pytest.raises(BadRequest):
        path(name, stream=False)


def test_paths():
    assert path("gemini-x", stream=False) == "/models/gemini-x:generateContent"
    assert path("tunedModels/mine", stream=True) == "/tunedModels/mine:streamGenerateContent?alt=sse"


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
