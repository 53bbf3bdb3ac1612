"""The Gemini wire: exact requests. Answers are in test_gemini_answers.py."""

import base64
import json
from typing import Any

import pytest

from polyport import codec
from polyport.data.content import Blob, Content, FileData, FunctionCall, FunctionResponse, Part, model_text, user_text
from polyport.data.model import GenerateConfig, ModelRequest, ToolDeclaration
from polyport.errors import BadRequest
from polyport.wire.gemini import read_answer
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


@pytest.mark.parametrize(
    ("text", "signature"),
    [(base64.b64encode(bytes(range(256))).decode(), bytes(range(256))), ("-_-_", b"\xfb\xff\xbf"), ("_w", b"\xff")],
)
def test_FR_080_a_signature_goes_back_byte_for_byte_whatever_its_alphabet(text: str, signature: bytes):
    part = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": text}
    body = json.dumps({"candidates": [{"content": {"role": "model", "parts": [part]}}]})
    answer = read_answer(body.encode(), lambda: "1")
    assert answer.content is not None
    stored = codec.decode(codec.encode(answer.content), Content)  # through a database and REST
    contents = sent_contents(user_text("go"), stored)
    assert base64.b64decode(contents[1]["parts"][0]["thoughtSignature"]) == signature


@pytest.mark.parametrize("name", ["../x", "a b", "x?key=1", "", "models/../x", "a:b"])
def test_a_model_name_that_could_leave_its_place_is_refused(name: str):
    with pytest.raises(BadRequest):
        path(name, stream=False)


def test_paths():
    assert path("gemini-x", stream=False) == "/models/gemini-x:generateContent"
    assert path("tunedModels/mine", stream=True) == "/tunedModels/mine:streamGenerateContent?alt=sse"
