"""wire/anthropic_request: whatever the history holds, the messages are what the API takes."""

import json
from typing import Any

import pytest

from polyport.codec import encode
from polyport.data.content import (
    Content,
    FunctionCall,
    FunctionResponse,
    Part,
    model_text,
    user_text,
)
from polyport.data.model import ModelRequest
from polyport.wire.anthropic import encode_request
from polyport.wire.anthropic_request import GO_ON, NO_RESULT, REDACTED

PNG = b"\x89PNG\r\n\x1a\n"


def messages(*contents: Content) -> list[dict[str, Any]]:
    """What goes over the wire for these contents."""
    request = ModelRequest(contents=list(contents))
    return json.loads(encode_request(request, model="claude-test-1", stream=False))["messages"]


def user(*parts: Part) -> Content:
    return Content(role="user", parts=list(parts))


def model(*parts: Part) -> Content:
    return Content(role="model", parts=list(parts))


def call(id: str, name: str = "f", **args: Any) -> Part:
    return Part(function_call=FunctionCall(id=id, name=name, args=args))


def result(id: str, response: dict[str, Any] | None, name: str = "f") -> Part:
    return Part(function_response=FunctionResponse(id=id, name=name, response=response))


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_turns_alternate_and_begin_and_end_with_the_user() -> None:
    assert messages(user_text("a"), user_text("b"), model_text("c"), model_text("d"), user_text("e")) == [
        {"role": "user", "content": [text("a"), text("b")]},
        {"role": "assistant", "content": [text("c"), text("d")]},
        {"role": "user", "content": [text("e")]},
    ]
    assert messages(model_text("a")) == [
        {"role": "user", "content": [text(GO_ON)]},
        {"role": "assistant", "content": [text("a")]},
        {"role": "user", "content": [text(GO_ON)]},
    ]
    assert messages() == [{"role": "user", "content": [text(GO_ON)]}]


def test_empty_contents_and_blank_text_are_not_sent() -> None:
    assert messages(
        user_text("a"), Content(role="model"), model(Part(), Part(text=" \n")), user(Part(text="")), user_text("b")
    ) == [{"role": "user", "content": [text("a"), text("b")]}]


def test_calls_and_results_pair_up() -> None:
    assert messages(
        user_text("q"),
        model(Part(text="let me see"), call("toolu_1", "f", a=1), call("toolu_2", "g")),
        user(Part(text="by the way"), result("toolu_2", {"r": "zwei"}, "g"), result("toolu_1", {"r": 1})),
        model_text("done"),
        user_text("thanks"),
    ) == [
        {"role": "user", "content": [text("q")]},
        {
            "role": "assistant",
            "content": [
                text("let me see"),
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"r":1}'},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": '{"r":"zwei"}'},
                text("by the way"),
            ],
        },
        {"role": "assistant", "content": [text("done")]},
        {"role": "user", "content": [text("thanks")]},
    ]


def test_FR_033_an_unanswered_call_gets_a_neutral_placeholder_in_the_same_user_turn() -> None:
    history = [user_text("go"), model(call("c1")), user_text("stop, do something else")]
    before = encode(history)
    assert messages(*history) == [
        {"role": "user", "content": [text("go")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": NO_RESULT},
                text("stop, do something else"),
            ],
        },
    ]
    assert encode(history) == before, "the stored history is not rewritten"
    assert not {"ran", "run", "executed", "cancelled", "failed", "succeeded"} & {*NO_RESULT.strip(".").lower().split()}


def test_FR_033_one_of_two_calls_unanswered_and_a_call_at_the_very_end() -> None:
    sent = messages(user_text("go"), model(call("a"), call("b")), user(result("b", {"x": 1})), model(call("c")))
    assert sent[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": NO_RESULT},
        {"type": "tool_result", "tool_use_id": "b", "content": '{"x":1}'},
    ]
    assert sent[4] == {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": NO_RESULT}]}


def test_a_late_result_moves_up_to_its_call_and_a_second_one_becomes_text() -> None:
    sent = messages(
        user_text("go"),
        model(call("a")),
        user_text("well?"),
        model_text("soon"),
        user(result("a", {"s": "pending"})),
        user(result("a", {"s": "done"})),
    )
    assert sent[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": '{"s":"pending"}'},
        text("well?"),
    ]
    assert sent[4]["content"] == [text('Result of the tool f: {"s":"done"}')]


def test_a_late_result_alone_leaves_no_empty_turn() -> None:
    sent = messages(
        user_text("go"),
        model(call("a")),
        user_text("well?"),
        model_text("soon"),
        user(result("a", {})),
        model_text("now"),
    )
    assert [m["role"] for m in sent] == ["user", "assistant", "user", "assistant", "user"]
    assert sent[3]["content"] == [text("soon"), text("now")]


def test_a_result_without_a_call_is_not_lost() -> None:
    assert messages(user(result("zz", {"v": "ü"}, "lookup")))[0]["content"] == [
        text('Result of the tool lookup: {"v":"ü"}')
    ]


def test_missing_ids_are_made_the_same_way_each_time_and_matched_first_in_first_out() -> None:
    history = [
        user_text("go"),
        model(call("", a=1), call("", a=2), call("", "g")),
        user(result("", {"n": 1}), result("", {}, "g"), result("", {"n": 2})),
    ]
    sent = messages(*history)
    ids = [b["id"] for b in sent[1]["content"]]
    assert len({*ids}) == 3
    assert [(b["tool_use_id"], b["content"]) for b in sent[2]["content"]] == [
        (ids[0], '{"n":1}'),
        (ids[1], '{"n":2}'),
        (ids[2], "{}"),
    ]
    assert messages(*history, model_text("x"), user_text("y"))[:3] == sent


def test_an_id_on_one_side_only_is_matched_by_name() -> None:
    sent = messages(
        user_text("go"), model(call(""), call("c2", "g")), user(result("made-up", {"n": 1}), result("", {}, "g"))
    )
    assert [b["content"] for b in sent[2]["content"]] == ['{"n":1}', "{}"]


def test_a_result_goes_to_the_newest_turn_that_waits_for_it() -> None:
    sent = messages(
        user_text("go"), model(call("call_0")), user_text("no"), model(call("call_0")), user(result("call_0", {"n": 2}))
    )
    assert sent[2]["content"][0]["content"] == NO_RESULT
    assert sent[4]["content"] == [{"type": "tool_result", "tool_use_id": "call_0_2", "content": '{"n":2}'}]


def test_ids_are_cleaned_on_both_sides_and_stay_unique() -> None:
    sent = messages(
        user_text("go"),
        model(call("a.b"), call("a|b"), call("ü/1")),
        user(*(result(i, {}) for i in ("a.b", "a|b", "ü/1"))),
    )
    assert [b["id"] for b in sent[1]["content"]] == ["a_b", "a_b_2", "__1"]
    assert [b["tool_use_id"] for b in sent[2]["content"]] == ["a_b", "a_b_2", "__1"]


@pytest.mark.parametrize(
    ("response", "content"),
    [
        ({"rows": [{"a": 1}, {"a": 2}], "n": 2}, '{"rows":[{"a":1},{"a":2}],"n":2}'),
        ({"result": [1, 2]}, '{"result":[1,2]}'),
        ({"result": None}, '{"result":null}'),
        ({"result": ""}, '{"result":""}'),
        (None, "null"),
        ({}, "{}"),
    ],
)
def test_FR_077_results_are_sent_as_json(response: dict[str, Any] | None, content: str) -> None:
    assert messages(user_text("q"), model(call("c")), user(result("c", response)))[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c", "content": content}
    ]


def test_a_result_that_is_only_an_error_is_marked() -> None:
    sent = messages(
        user_text("q"),
        model(call("c"), call("d")),
        user(result("c", {"error": "no"}), result("d", {"error": "no", "x": 1})),
    )[2]["content"]
    assert [b.get("is_error") for b in sent] == [True, None]


def test_media_in_a_result_goes_into_the_result() -> None:
    stored = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    response = FunctionResponse(id="c", name="f", response={"ok": True}, parts=[stored])
    sent = messages(user_text("q"), model(call("c")), user(Part(function_response=response)))[2]["content"]
    assert sent == [
        {
            "type": "tool_result",
            "tool_use_id": "c",
            "content": [
                text('{"ok":true}'),
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
            ],
        }
    ]


def test_FR_086_thoughts_go_back_only_with_their_signature_and_never_last() -> None:
    signed = Part(text="hm", thought=True, thought_signature=b"EqQB+/=")
    redacted = Part(text="", thought=True, thought_signature=b"data==", part_metadata=REDACTED)
    foreign = Part(text="other", thought=True, thought_signature=b"\xff\xfe")
    sent = messages(
        user(Part(text="q"), Part(text="user thought", thought=True, thought_signature=b"x")),
        model(Part(text="loose", thought=True), foreign, signed, redacted, call("c")),
        user(result("c", {})),
        model(signed),
        user_text("and?"),
    )
    assert sent == [
        {"role": "user", "content": [text("q")]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "EqQB+/="},
                {"type": "redacted_thinking", "data": "data=="},
                {"type": "tool_use", "id": "c", "name": "f", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "{}"}, text("and?")]},
    ]
