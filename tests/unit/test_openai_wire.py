"""The Chat Completions wire: exact requests, and answers cut anywhere."""

import json
from typing import Any

import pytest

from polyport.data.content import (
    INVALID_ARGS,
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    Part,
    model_text,
    user_text,
)
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse, ToolDeclaration
from polyport.errors import BadRequest, ModelError
from polyport.wire.openai import NO_RESULT, OFFICIAL, Dialect, encode_request, simpler
from polyport.wire.openai_answer import AnswerDecoder, decode_answer, read_args
from polyport.wire.openai_schema import structured
from polyport.wire.sse import SseDecoder

WEATHER = ToolDeclaration(
    name="get_weather",
    description="Get the weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
PNG = b"\x89PNG\r\n"


def body(*contents: Content, dialect: Dialect | None = None, stream: bool = False, **more: Any) -> dict[str, Any]:
    request = ModelRequest(contents=list(contents), **more)
    return encode_request(request, model="m", stream=stream, dialect=dialect or Dialect())


def messages(*contents: Content, **more: Any) -> list[dict[str, Any]]:
    return body(*contents, **more)["messages"]


def call(name: str = "f", id: str = "", **args: Any) -> Part:
    return Part(function_call=FunctionCall(id=id, name=name, args=args))


def result(
    name: str = "f", id: str = "", response: dict[str, Any] | None = None, parts: list[Any] | None = None
) -> Part:
    return Part(function_response=FunctionResponse(id=id, name=name, response=response, parts=parts or []))


def model(*parts: Part) -> Content:
    return Content(role="model", parts=list(parts))


def user(*parts: Part) -> Content:
    return Content(role="user", parts=list(parts))


# requests


def test_a_plain_question_is_exactly_this():
    assert body(user_text("Hi"), system="Be kind.", stream=True) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        "stream_options": {"include_usage": True},
        "stream": True,
    }


def test_FR_075_usage_is_asked_for_in_streams_only_and_only_where_the_dialect_has_it():
    assert "stream_options" not in body(user_text("x"))
    assert "stream_options" not in body(user_text("x"), stream=True, dialect=Dialect(stream_usage=False))


def test_all_settings_have_their_names():
    config = GenerateConfig(
        temperature=0.0,
        top_p=0.5,
        top_k=7,
        max_output_tokens=9,
        stop_sequences=["END"],
        seed=3,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        thinking_budget=2000,
        extra={"service_tier": "flex"},
        headers={"x-a": "b"},
    )
    got = body(user_text("x"), config=config)
    del got["messages"], got["model"]
    assert got == {
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 3,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "max_tokens": 9,
        "stop": ["END"],
        "top_k": 7,
        "reasoning_effort": "medium",
        "service_tier": "flex",
        "stream": False,
    }


def test_the_official_dialect_says_max_completion_tokens_and_refuses_top_k():
    got = body(user_text("x"), dialect=OFFICIAL, config=GenerateConfig(max_output_tokens=9))
    assert got["max_completion_tokens"] == 9 and "max_tokens" not in got
    with pytest.raises(BadRequest, match="top_k"):
        body(user_text("x"), dialect=OFFICIAL, config=GenerateConfig(top_k=1))


@pytest.mark.parametrize(
    ("budget", "effort"), [(0, "none"), (1024, "low"), (8192, "medium"), (24576, "high"), (-1, None)]
)
def test_a_thinking_budget_becomes_an_effort(budget: int, effort: str | None):
    assert body(user_text("x"), config=GenerateConfig(thinking_budget=budget)).get("reasoning_effort") == effort


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", None),
        ("none", "none"),
        ("any", "required"),
        ("get_weather", {"type": "function", "function": {"name": "get_weather"}}),
    ],
)
def test_tools_and_the_choice_among_them(choice: str, sent: Any):
    got = body(user_text("x"), tools=[WEATHER], config=GenerateConfig(tool_choice=choice))
    assert got["tools"] == [
        {
            "type": "function",
            "function": {"name": "get_weather", "description": "Get the weather.", "parameters": WEATHER.parameters},
        }
    ]
    assert got.get("tool_choice") == sent


def test_a_choice_of_no_tool_and_a_bad_name_are_refused_before_sending():
    with pytest.raises(BadRequest, match="'nope'"):
        body(user_text("x"), tools=[WEATHER], config=GenerateConfig(tool_choice="nope"))
    with pytest.raises(BadRequest, match="'my tool'"):
        body(user_text("x"), tools=[ToolDeclaration(name="my tool")])
    assert "tool_choice" not in body(user_text("x"), config=GenerateConfig(tool_choice="any"))


def test_calls_and_results_become_tool_messages():
    got = messages(
        user_text("Weather?"),
        model(
            Part(text="Let me look."), call("get_weather", "c1", city="Zürich"), call("get_weather", "c2", city="Bern")
        ),
        user(result("get_weather", "c1", {"t": 20}), result("get_weather", "c2"), Part(text="and?")),
    )
    assert got == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Zürich"}'}},
                {"id": "c2", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Bern"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"t":20}'},
        {"role": "tool", "tool_call_id": "c2", "content": "null"},
        {"role": "user", "content": "and?"},
    ]


def test_FR_033_a_call_without_a_result_gets_a_neutral_one():
    got = messages(user_text("a"), model(call(id="c1")), user_text("stop, do something else"))
    assert got[1]["content"] is None
    assert got[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": NO_RESULT},
        {"role": "user", "content": "stop, do something else"},
    ]


def test_FR_033_calls_without_ids_get_stable_ones_and_results_match_by_name_in_order():
    history = [
        user_text("a"),
        model(call("f", n=1), call("g"), call("f", n=2)),
        user(result("f", response={"r": 1}), result("f", response={"r": 2})),
    ]
    got = messages(*history)
    ids = [c["id"] for c in got[1]["tool_calls"]]
    assert len(set(ids)) == 3 and all(ids)
    assert [(m["tool_call_id"], m["content"]) for m in got[2:]] == [
        (ids[0], '{"r":1}'),
        (ids[1], NO_RESULT),
        (ids[2], '{"r":2}'),
    ]
    assert messages(*history, user_text("more"))[:5] == got


def test_FR_033_a_result_goes_to_the_newest_turn_that_waits_for_it():
    interrupted = model(call("f", n=1))
    got = messages(
        user_text("a"), interrupted, user_text("again"), model(call("f", n=2)), user(result("f", response={"r": 2}))
    )
    assert [m["content"] for m in got if m["role"] == "tool"] == [NO_RESULT, '{"r":2}']


def test_FR_033_servers_that_number_each_turns_calls_from_zero_are_paired_right():
    got = messages(
        model(call(id="call_0", n=1)),
        user(result(id="call_0", response={"r": 1})),
        model(call(id="call_0", n=2)),
        user(result(id="call_0", response={"r": 2})),
    )
    assert [m.get("content") for m in got] == [None, '{"r":1}', None, '{"r":2}']


def test_FR_033_a_late_result_moves_to_its_call():
    got = messages(model(call(id="c1")), user_text("hm"), user(result(id="c1", response={"r": 1})))
    assert [m["role"] for m in got] == ["assistant", "tool", "user"]
    assert got[1]["content"] == '{"r":1}'


def test_FR_033_a_result_of_no_call_and_a_second_result_are_told_as_text():
    got = messages(
        user(result("g", "zz", {"a": 1})),
        model(call(id="c1")),
        user(result(id="c1"), result(id="c1", response={"b": 2})),
    )
    assert got[0] == {"role": "user", "content": 'Result of the tool g: {"a":1}'}
    assert got[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "null"},
        {"role": "user", "content": 'Result of the tool f: {"b":2}'},
    ]


def test_thoughts_are_not_sent_back_unless_the_dialect_says_so():
    turn = model(Part(text="hmm", thought=True), Part(text="Hello"), Part(text=" there"))
    assert messages(turn) == [{"role": "assistant", "content": "Hello there"}]
    assert messages(model(Part(text="hmm", thought=True))) == []
    got = messages(turn, dialect=Dialect(reasoning_content=True))
    assert got == [{"role": "assistant", "content": "Hello there", "reasoning_content": "hmm"}]


def test_images_and_other_data_of_a_user():
    got = messages(
        user(
            Part(text="Look"),
            Part(inline_data=Blob(mime_type="image/png", data=PNG)),
            Part(file_data=FileData(file_uri="https://x.test/a.jpg", mime_type="image/jpeg")),
            Part(file_data=FileData(file_uri="data:image/gif;base64,R0lG")),
            Part(inline_data=Blob(mime_type="text/plain; charset=utf-8", data="naïve".encode())),
            Part(inline_data=Blob(mime_type="audio/mpeg", data=b"m")),
            Part(inline_data=Blob(mime_type="application/pdf", data=b"p")),
            Part(file_data=FileData(file_uri="data:text/plain,a%20b")),
        )
    )
    assert got == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}},
                {"type": "image_url", "image_url": {"url": "https://x.test/a.jpg"}},
                {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}},
                {"type": "text", "text": "naïve"},
                {"type": "input_audio", "input_audio": {"data": "bQ==", "format": "mp3"}},
                {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,cA=="}},
                {"type": "text", "text": "a b"},
            ],
        }
    ]


@pytest.mark.parametrize(
    "part",
    [
        Part(inline_data=Blob(mime_type="video/mp4", data=b"x")),
        Part(file_data=FileData(file_uri="gs://bucket/a.png", mime_type="image/png")),
        Part(file_data=FileData(file_uri="https://x.test/a.pdf", mime_type="application/pdf")),
        Part(file_data=FileData(file_uri="data:image/png;base64,!!")),
    ],
)
def test_what_the_api_has_no_words_for_is_refused_with_its_place(part: Part):
    with pytest.raises(BadRequest, match=r"contents\[0\].parts\[1\]") as caught:
        messages(user(Part(text="x"), part))
    assert caught.value.field == "contents[0].parts[1]"


def test_an_unknown_role_is_refused():
    with pytest.raises(BadRequest, match="'critic'"):
        messages(Content(role="critic", parts=[Part(text="x")]))


def test_images_in_a_tool_result_or_a_models_turn_follow_in_a_user_message():
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}}
    piece = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}}
    got = messages(model(call(id="c1"), call(id="c2")), user(result(id="c1", parts=[image]), result(id="c2")))
    assert [m["role"] for m in got] == ["assistant", "tool", "tool", "user"]
    assert got[3]["content"] == [piece]
    got = messages(model(Part(text="Here"), Part(inline_data=Blob(mime_type="image/png", data=PNG))), user_text("nice"))
    assert got == [
        {"role": "assistant", "content": "Here"},
        {"role": "user", "content": [piece, {"type": "text", "text": "nice"}]},
    ]


def test_user_turns_in_a_row_become_one_message_and_code_is_told_as_text():
    got = messages(
        user_text("a"),
        user(Part(text="b"), Part()),
        model(
            Part(executable_code=ExecutableCode(language="PYTHON", code="1+1")),
            Part(code_execution_result=CodeExecutionResult(outcome="OUTCOME_OK", output="2")),
        ),
    )
    assert got == [
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "```python\n1+1\n```Output:\n```\n2\n```"},
    ]


# structured output


def test_FR_079_a_schema_is_sent_in_the_shape_of_this_api():
    schema = {
        "title": "F",
        "type": "object",
        "properties": {
            "color": {"title": "Color", "type": "string"},
            "taste": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Taste"},
        },
        "required": ["color"],
    }
    before = json.dumps(schema)
    assert body(user_text("x"), response_schema=schema)["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "F",
            "strict": True,
            "schema": {
                "title": "F",
                "type": "object",
                "properties": {
                    "color": {"title": "Color", "type": "string"},
                    "taste": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Taste"},
                },
                "required": ["color", "taste"],
                "additionalProperties": False,
            },
        },
    }
    assert json.dumps(schema) == before


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (obj(a={"type": "integer"}), True),
        (obj([], a={"type": "integer", "default": 1}), True),
        (obj([], a={"type": ["integer", "null"]}), True),
        (obj([], a={"type": "integer"}), False),  # to require it would need a value that the caller's schema refuses
        (obj(a={"type": "object", "additionalProperties": {"type": "integer"}}), False),
        (obj(a={"type": "object"}), False),
        (obj(a={}), False),
        (obj(a={"type": "array", "items": True}), False),
        (obj(a={"oneOf": [{"type": "string"}, {"type": "null"}]}), False),
        (obj(a={"oneOf": [obj(k={"const": 1}), obj(k={"const": 2})], "discriminator": {"propertyName": "k"}}), True),
        (obj(a={"type": "string", "format": "uri"}), False),
        (obj(a={"type": "string", "minLength": 1}), False),
        (obj(a={"$ref": "#/$defs/X", "description": "d"}) | {"$defs": {"X": obj(b={"type": "string"})}}, True),
        ({"type": "array", "items": {"type": "string"}}, False),
    ],
)
def test_FR_079_a_schema_is_strict_only_where_its_answers_stay_valid(schema: dict[str, Any], strict: bool):
    assert structured(schema)[1] is strict
    assert structured(schema, strict=False)[1] is False


def test_FR_079_nested_objects_are_closed_and_open_ones_stay_open():
    inner = obj(b={"type": "string"})
    strict, _ = structured(
        obj(a={"type": "array", "items": inner}, r={"$ref": "#/$defs/X", "title": "T"}) | {"$defs": {"X": inner}}
    )
    assert strict["properties"]["a"]["items"]["additionalProperties"] is False
    assert strict["$defs"]["X"]["additionalProperties"] is False
    assert strict["properties"]["r"] == {"anyOf": [{"$ref": "#/$defs/X"}], "title": "T"}
    loose, _ = structured(obj(a={"oneOf": [inner]}, free={"type": "object"}, items={"type": "array", "items": inner}))
    assert loose["additionalProperties"] is False
    assert loose["properties"]["a"]["oneOf"][0]["additionalProperties"] is False
    assert loose["properties"]["items"]["items"]["additionalProperties"] is False
    assert loose["properties"]["free"] == {"type": "object"}


def test_FR_079_json_mode_and_no_mode_say_the_schema_in_the_system_text():
    schema = obj(a={"type": "integer"})
    got = body(user_text("x"), system="S", response_schema=schema, dialect=Dialect(structured="json_object"))
    assert got["response_format"] == {"type": "json_object"}
    text = got["messages"][0]["content"]
    assert text.startswith("S\n\n") and "JSON" in text and json.dumps(schema, separators=(",", ":")) in text
    got = body(user_text("x"), response_schema=schema, dialect=Dialect(structured="none"))
    assert "response_format" not in got and "JSON" in got["messages"][0]["content"]


# what to leave out after a refusal


SENT = {
    "stream_options": {},
    "response_format": {"type": "json_schema", "json_schema": {"strict": True}},
    "max_tokens": 5,
}


@pytest.mark.parametrize(
    ("complaint", "change"),
    [
        ('{"error":{"message":"Unknown parameter","param":"stream_options"}}', {"stream_usage": False}),
        ("extra fields not permitted: stream_options.include_usage", {"stream_usage": False}),
        ("", {"stream_usage": False}),
        ("Bad Request", {"stream_usage": False}),
        ('{"error":{"message":"no","param":"response_format"}}', {"strict": False}),
        ("Invalid schema for response_format", {"strict": False}),
        (
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            {"max_tokens": "max_completion_tokens"},
        ),
        ("max_tokens is too large", None),
        ('{"error":{"message":"stream_options and more","param":"messages[0]"}}', None),
        ("This model's maximum context length is 100 tokens", None),
        ("Incorrect API key", None),
    ],
)
def test_what_is_left_out_after_a_refusal(complaint: str, change: dict[str, Any] | None):
    assert simpler(Dialect(), SENT, complaint) == (None if change is None else Dialect(**change))


def test_refusals_end():
    dialect, seen = Dialect(), 0
    while dialect is not None:
        schema = obj(a={"type": "integer"})
        sent = body(user_text("x"), response_schema=schema, stream=True, dialect=dialect)
        last, dialect, seen = dialect, simpler(dialect, sent, "Bad Request"), seen + 1
    assert (seen, last.structured, last.stream_usage) == (5, "none", False)


# answers


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "r1", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def decode(*chunks: dict[str, Any], done: bool = True) -> tuple[list[ModelResponse], ModelResponse]:
    ids = iter(f"u{n}" for n in range(100))
    decoder = AnswerDecoder(lambda: next(ids))
    pieces: list[ModelResponse] = []
    for data in [json.dumps(c) for c in chunks] + ["[DONE]"] * done:
        pieces += decoder.feed(data)
    return pieces, decoder.finish()


def said(response: ModelResponse) -> list[tuple[bool, str]]:
    return [(p.thought, p.text) for p in response.content.parts if p.text is not None] if response.content else []


def calls(response: ModelResponse) -> list[tuple[str, str, dict[str, Any]]]:
    return [(c.id, c.name, c.args) for c in response.content.calls] if response.content else []


def tool(
    index: int | None = 0, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    given = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [{k: v for k, v in given.items() if v is not None}]}


def test_FR_070_text_is_joined_and_each_piece_is_partial():
    pieces, whole = decode(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hi Ada "}),
        chunk({"content": "how?"}),
        chunk({}, "stop"),
    )
    assert [(p.partial, said(p)) for p in pieces] == [(True, [(False, "Hi Ada ")]), (True, [(False, "how?")])]
    assert said(whole) == [(False, "Hi Ada how?")]
    assert (whole.finish_reason, whole.model_version, whole.partial) == ("STOP", "m-1", False)
    assert whole.content.role == "model"
    assert whole.custom_metadata == {"openai_response_id": "r1", "openai_model": "m-1"}


def test_FR_070_thoughts_text_and_calls_keep_their_order_as_parts():
    pieces, whole = decode(
        chunk({"reasoning_content": "Hm"}),
        chunk({"reasoning_content": "m", "reasoning": "m"}),
        chunk({"content": "A"}),
        chunk({"reasoning": "again"}),
        chunk({"content": "B"}),
        chunk(tool(id="c1", name="f", arguments="{}"), "tool_calls"),
    )
    assert said(whole) == [(True, "Hmm"), (False, "A"), (True, "again"), (False, "B")]
    assert whole.content.parts[-1].function_call == FunctionCall(id="c1", name="f", args={})
    assert [said(p)[0] for p in pieces] == [(True, "Hm"), (True, "m"), (False, "A"), (True, "again"), (False, "B")]


def test_a_refusal_is_text_and_listed_content_is_read():
    _, whole = decode(chunk({"refusal": "I "}), chunk({"refusal": "won't"}, "stop"))
    assert said(whole) == [(False, "I won't")]
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    _, whole = decode(chunk({"content": [thinking, {"type": "text", "text": "yes"}, {"type": "odd"}]}, "stop"))
    assert said(whole) == [(True, "hm"), (False, "yes")]


def test_parallel_calls_are_put_together_by_index():
    _, whole = decode(
        chunk(tool(0, "c1", "f", "")),
        chunk(tool(1, "c2", "g", '{"b"')),
        chunk(tool(0, arguments='{"a":')),
        chunk(tool(1, arguments=":2}")),
        chunk(tool(0, arguments="1}")),
        chunk({}, "tool_calls"),
    )
    assert calls(whole) == [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]
    assert whole.finish_reason == "STOP"


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        # every call numbered 0, told apart by id
        ([tool(0, "a", "f", "{}"), tool(0, "b", "f", "{}")], [("a", "f", {}), ("b", "f", {})]),
        # no index, with ids
        (
            [tool(None, "a", "f", '{"x":'), tool(None, "a", None, "1}"), tool(None, "b", "g", "{}")],
            [("a", "f", {"x": 1}), ("b", "g", {})],
        ),
        # neither index nor id: a name begins a call
        (
            [tool(None, None, "f", '{"x":'), tool(None, None, None, "1}"), tool(None, None, "f", "{}")],
            [("adk-u0", "f", {"x": 1}), ("adk-u1", "f", {})],
        ),
        # id and name repeated in every piece
        ([tool(0, "a", "f", '{"x":'), tool(0, "a", "f", "1}")], [("a", "f", {"x": 1})]),
        # the id comes late
        ([tool(0, None, "f", "{"), tool(0, "a", None, "}")], [("a", "f", {})]),
        # arguments as an object, or none at all
        ([tool(0, "a", "f", {"x": 1}), tool(1, "b", "g")], [("a", "f", {"x": 1}), ("b", "g", {})]),
        # the same id for two calls with different indexes
        ([tool(0, "a", "f", "{}"), tool(1, "a", "g", "{}")], [("a", "f", {}), ("a", "g", {})]),
    ],
)
def test_calls_of_servers_with_odd_habits(deltas: list[dict[str, Any]], expected: list[Any]):
    _, whole = decode(*[chunk(d) for d in deltas], chunk({}, "tool_calls"))
    assert calls(whole) == expected


def test_FR_068_a_call_without_an_id_gets_one_that_stays():
    ids = iter(["x", "y"])
    decoder = AnswerDecoder(lambda: next(ids))
    decoder.feed(json.dumps(chunk(tool(0, None, "f", "{}"), "tool_calls")))
    assert calls(decoder.finish()) == [("adk-x", "f", {})]
    body = {"choices": [{"message": {"tool_calls": [{"id": "", "function": {"name": "f", "arguments": "{}"}}]}}]}
    assert calls(decode_answer(json.dumps(body).encode(), lambda: "z")) == [("adk-z", "f", {})]


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("", {}),
        ("null", {}),
        ('{"a":"x\ny"}', {"a": "x\ny"}),
        ('"{\\"a\\":1}"', {"a": 1}),
        ('{"a":', {INVALID_ARGS: '{"a":'}),
        ("[1]", {INVALID_ARGS: "[1]"}),
        ('{"a":1} ok', {INVALID_ARGS: '{"a":1} ok'}),
        ("[" * 100_000, {INVALID_ARGS: "[" * 100_000}),
    ],
)
def test_arguments_are_repaired_or_marked_never_emptied(text: str, args: dict[str, Any]):
    assert read_args(text) == args


def test_FR_075_usage_in_a_last_chunk_without_choices():
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    _, whole = decode(chunk({"content": "x"}, "stop", usage=None), {"id": "r1", "choices": [], "usage": usage})
    got = whole.usage_metadata
    assert got is not None
    assert (got.prompt_token_count, got.candidates_token_count, got.total_token_count) == (11, 5, 18)
    assert (got.cached_content_token_count, got.thoughts_token_count) == (4, 2)
    _, whole = decode(chunk({"content": "x"}, "stop", usage={"prompt_tokens": 1, "completion_tokens": 2}))
    assert whole.usage_metadata is not None and whole.usage_metadata.total_token_count == 3


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("stop", "STOP"),
        ("tool_calls", "STOP"),
        ("function_call", "STOP"),
        ("length", "MAX_TOKENS"),
        ("content_filter", "SAFETY"),
        ("weird", "OTHER"),
    ],
)
def test_FR_076_finish_reasons(given: str, word: str):
    _, streamed = decode(chunk({"content": "part"}), chunk({}, given))
    whole = decode_answer(json.dumps({"choices": [{"message": {"content": "part"}, "finish_reason": given}]}).encode())
    assert streamed.finish_reason == whole.finish_reason == word
    assert said(streamed) == said(whole) == [(False, "part")]
    assert not streamed.error_code


def test_FR_076_no_answer_at_all_for_a_bad_reason_is_an_error():
    _, whole = decode(chunk({"reasoning": None}), chunk({}, "content_filter"))
    assert (whole.content, whole.error_code) == (None, "SAFETY")
    assert "SAFETY" in whole.error_message


@pytest.mark.parametrize(
    "body",
    [{"choices": []}, {"choices": None}, {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}, {}],
)
def test_FR_082_an_answer_that_says_nothing_is_no_error(body: dict[str, Any]):
    whole = decode_answer(json.dumps(body).encode())
    assert (whole.content, whole.finish_reason, whole.error_code) == (None, "STOP", "")


def test_FR_082_a_stream_that_says_nothing_is_no_error():
    pieces, whole = decode({"choices": []})
    assert (pieces, whole.content, whole.error_code) == ([], None, "")


@pytest.mark.parametrize(
    ("error", "status", "code", "text"),
    [
        ({"error": {"message": "overloaded", "type": "server_error", "code": None}}, 0, "server_error", "overloaded"),
        ({"error": {"message": "slow down", "code": 429}}, 429, "", "slow down"),
        ({"error": {"message": "slow down", "code": "429"}}, 429, "", "slow down"),
        ({"error": "boom"}, 0, "", "boom"),
        ({"object": "error", "message": "bad", "code": 400}, 400, "", "bad"),
    ],
)
def test_an_error_in_mid_stream_is_a_model_error(error: dict[str, Any], status: int, code: str, text: str):
    decoder = AnswerDecoder()
    decoder.feed(json.dumps(chunk({"content": "x"})))
    with pytest.raises(ModelError, match=text) as caught:
        decoder.feed(json.dumps(error))
    assert (caught.value.http_status, caught.value.code) == (status, code)
    assert decoder.started


def test_nonsense_and_an_early_end_are_model_errors():
    with pytest.raises(ModelError, match="no chat completion"):
        AnswerDecoder().feed("<html>")
    with pytest.raises(ModelError, match="no chat completion"):
        decode_answer(b"")
    with pytest.raises(ModelError, match="before the answer was complete"):
        decode(chunk({"content": "x"}), done=False)
    _, whole = decode(chunk({"content": "x"}, "stop"), done=False)  # some servers send no [DONE]
    assert said(whole) == [(False, "x")]


def test_only_the_first_of_several_answers_counts_and_unknown_fields_do_not():
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}], "x_groq": {"id": 1}}
    _, whole = decode(chunk({"content": "yes", "audio": {"id": 1}}, "stop"), other)
    assert (said(whole), whole.finish_reason) == ([(False, "yes")], "STOP")


def test_a_stream_cut_at_any_byte_gives_the_same_answer():
    chunks = [
        chunk({"content": "Zürich 🌦"}),
        chunk(tool(0, "c1", "f", '{"q":"é'), None),
        chunk(tool(0, None, None, '🙂"}'), "tool_calls"),
    ]
    raw = (
        b"".join(b"data: " + json.dumps(c, ensure_ascii=False).encode() + b"\r\n\r\n" for c in chunks)
        + b"data: [DONE]\n\n"
    )

    def read(*pieces: bytes) -> ModelResponse:
        events, decoder = SseDecoder(), AnswerDecoder()
        for piece in pieces:
            for event in events.feed(piece):
                decoder.feed(event.data)
        assert decoder.done
        return decoder.finish()

    expected = read(raw)
    assert (said(expected), calls(expected)) == ([(False, "Zürich 🌦")], [("c1", "f", {"q": "é🙂"})])
    assert all(read(raw[:at], raw[at:]) == expected for at in range(len(raw)))
    assert read(*[raw[i : i + 1] for i in range(len(raw))]) == expected


def test_an_answer_goes_back_as_history():
    _, whole = decode(chunk({"content": "Hi"}), chunk(tool(0, "c1", "f", '{"a":'), "length"))
    got = messages(user_text("q"), whole.content or model_text(""), user(result("f", "c1", {"error": "bad JSON"})))
    assert json.loads(got[1]["tool_calls"][0]["function"]["arguments"]) == {INVALID_ARGS: '{"a":'}
    assert got[2]["tool_call_id"] == "c1"
