"""ADK parts, events and metadata in A2A, written from spec a2a 3.2-3.5 and rest A.3, A.4."""

from typing import Any

import pytest

from polyport import codec
from polyport.data.content import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    Part,
)
from polyport.data.event import Event, EventActions
from polyport.data.model import Usage
from polyport.errors import BadRequest
from polyport.wire import a2a
from polyport.wire import a2a_translate as t

CALL = Part(function_call=FunctionCall(id="c1", name="f", args={"x": 1}))
ANSWER = Part(function_response=FunctionResponse(id="c1", name="f", response={"result": "ok"}))


def wrapped(text: str, **members: Any) -> Part:
    data = f"<a2a_datapart_json>{text}</a2a_datapart_json>".encode()
    return Part(inline_data=Blob(mime_type="text/plain", data=data), **members)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Part(text="Hi"), {"text": "Hi"}),
        (Part(text="hm", thought=True), {"text": "hm", "metadata": {"adk_thought": True}}),
        (Part(text="", thought_signature=b"\xff"), {"text": "", "metadata": {"adk_thought_signature": "/w=="}}),
        (
            Part(
                inline_data=Blob(mime_type="image/png", data=b"\xff", display_name="c.png"), video_metadata={"fps": 1}
            ),
            {
                "raw": "/w==",
                "mediaType": "image/png",
                "filename": "c.png",
                "metadata": {"adk_video_metadata": {"fps": 1}},
            },
        ),
        (
            Part(file_data=FileData(file_uri="gs://c", mime_type="image/png", display_name="c.png")),
            {"url": "gs://c", "mediaType": "image/png", "filename": "c.png"},
        ),
        (
            CALL,
            {
                "data": {"id": "c1", "name": "f", "args": {"x": 1}},
                "metadata": {"adk_type": "function_call", "adk_is_long_running": False},
            },
        ),
        (
            ANSWER,
            {
                "data": {"id": "c1", "name": "f", "response": {"result": "ok"}},
                "metadata": {"adk_type": "function_response"},
            },
        ),
        (
            Part(executable_code=ExecutableCode(language="PYTHON", code="1")),
            {"data": {"language": "PYTHON", "code": "1"}, "metadata": {"adk_type": "executable_code"}},
        ),
        (
            Part(code_execution_result=CodeExecutionResult(outcome="OUTCOME_OK", output="4")),
            {"data": {"outcome": "OUTCOME_OK", "output": "4"}, "metadata": {"adk_type": "code_execution_result"}},
        ),
        (wrapped('{"arbitrary":"data"}'), {"data": {"arbitrary": "data"}}),
        (wrapped("null"), {"data": None}),
        (wrapped('[1,"x",null]', part_metadata={"k": 1}), {"data": [1, "x", None], "metadata": {"k": 1}}),
        (Part(tool_call={"a": 1}), {"data": {"toolCall": {"a": 1}}, "metadata": {"adk_type": "part"}}),
        (
            Part(text="x", thought=True, part_metadata={"adk_thought": 5}),
            {"text": "x", "metadata": {"adk_part_metadata": {"adk_thought": 5}, "adk_thought": True}},
        ),
    ],
)
def test_T097_FR_180_every_kind_of_part_has_one_form_and_comes_back(part: Part, expected: dict[str, Any]):
    sent = t.to_a2a_part(part)
    assert sent is not None
    assert t.plain(sent) == expected
    assert t.from_a2a_part(a2a.read_plain(expected, a2a.Part)) == part


def test_a_part_that_says_nothing_is_not_sent():
    assert t.to_a2a_part(Part()) is None
    assert t.to_a2a_parts([Part(), Part(text="x"), Part()]) == [a2a.Part(text="x")]


def test_adk_for_pythons_wrapping_is_read_with_its_metadata():
    part = wrapped('{"kind":"data","data":{"a":1},"metadata":{"mimeType":"x/y"}}', thought=True)
    assert t.to_a2a_part(part) == a2a.Part(data={"a": 1}, metadata={"mimeType": "x/y", "adk_thought": True})
    assert t.to_a2a_part(wrapped('{"data":[],"metadata":null}')) == a2a.Part(data=[])


@pytest.mark.parametrize(
    "data", [{"kind": "data", "data": 1}, {"data": 1, "metadata": {}}, {"data": 1}, {"data": 1, "metadata": {}, "x": 0}]
)
def test_data_that_looks_like_that_wrapping_survives(data: dict[str, Any]):
    sent = a2a.Part(data=data)
    assert t.to_a2a_part(t.from_a2a_part(sent)) == sent


@pytest.mark.parametrize(
    "blob",
    [
        Blob(mime_type="text/plain", data=b"<a2a_datapart_json>{</a2a_datapart_json>"),
        Blob(mime_type="text/plain", data=b"<a2a_datapart_json>1"),
        Blob(mime_type="text/html", data=b"<a2a_datapart_json>1</a2a_datapart_json>"),
        Blob(mime_type="text/plain", data=b"<a2a_datapart_json>1</a2a_datapart_json>", display_name="x"),
    ],
)
def test_other_text_files_stay_files(blob: Blob):
    sent = t.to_a2a_part(Part(inline_data=blob))
    assert sent is not None
    assert sent.kinds == ["raw"]
    assert t.from_a2a_part(sent) == Part(inline_data=blob)


def test_FR_180_an_unknown_type_is_plain_data_with_its_metadata():
    part = t.from_a2a_part(a2a.Part(data={"a": 1}, metadata={"adk_type": "new", "k": 1, "adk_thought": "yes"}))
    assert part == wrapped('{"a":1}', part_metadata={"k": 1})


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (a2a.Part(), "here"),
        (a2a.Part(metadata={"k": 1}), "here"),
        (a2a.Part(data="x", metadata={"adk_type": "function_call"}), "here.data"),
        (a2a.Part(data={"id": 5}, metadata={"adk_type": "function_response"}), "here.data"),
        (a2a.Part(data={"args": "x"}, metadata={"adk_type": "function_call"}), "here.data"),
    ],
)
def test_what_cannot_be_read_is_named(part: a2a.Part, field: str):
    with pytest.raises(BadRequest) as caught:
        t.from_a2a_part(part, "here")
    assert caught.value.field == field


def test_a_bad_signature_is_a_bad_request():
    with pytest.raises(BadRequest):
        t.from_a2a_part(a2a.Part(text="x", metadata={"adk_thought_signature": "?"}))


def test_a_message_becomes_content_and_its_metadata_has_no_effect():
    message = a2a.Message(
        message_id="m",
        role=a2a.Role.USER,
        parts=[a2a.Part(text="a"), a2a.Part(data=1)],
        metadata={"adk_transfer_to_agent": "x", "adk_escalate": True},
    )
    assert t.to_content(message) == Content(role="user", parts=[Part(text="a"), wrapped("1")])
    with pytest.raises(BadRequest, match=r"message\.parts\[1\]"):
        t.to_content(a2a.Message(parts=[a2a.Part(text="a"), a2a.Part()]))


def test_T091_long_running_calls_are_marked_and_kept_for_the_status():
    other = Part(function_call=FunctionCall(id="c2", name="g"))
    event = Event(
        content=Content(role="model", parts=[Part(text="a"), CALL, other]), long_running_tool_ids=["c1", "c9"]
    )
    assert t.split_pending(event) == ([Part(text="a"), other], [CALL])
    interim = Event(content=Content(role="user", parts=[ANSWER, Part(text="b")]))
    assert t.split_pending(interim, {"c1"}) == ([Part(text="b")], [ANSWER])
    assert t.split_pending(interim) == ([ANSWER, Part(text="b")], [])
    assert t.split_pending(Event()) == ([], [])
    sent = t.to_a2a_parts([CALL, ANSWER, other, CALL], {"c1"})
    assert t.call_ids(sent) == ["c1", "c2"]
    assert t.call_ids(sent, long_running=True) == ["c1"]
    assert t.call_ids([a2a.Part(data="x", metadata={"adk_type": "function_call"}), a2a.Part(text="x")]) == []


def test_marked_parts():
    error, wrong = t.error_part("e"), t.validation_error_part("v")
    assert codec.encode([error, wrong]) == (
        b'[{"text":"e","metadata":{"adk_is_error_message":true}},{"text":"v","metadata":{"validation_error":true}}]'
    )
    assert t.is_marked(error, t.IS_ERROR)
    assert not t.is_marked(error, t.VALIDATION_ERROR)
    assert not t.is_marked(a2a.Part(text="x"), t.IS_ERROR)
    assert t.from_a2a_part(error).part_metadata == {"adk_is_error_message": True}


BASE = {"adk_app_name": "app", "adk_user_id": "u", "adk_session_id": "s"}


def test_an_events_metadata_has_what_is_set():
    assert t.base_metadata("app", "u", "s") == BASE
    assert t.event_metadata(Event(), BASE) == BASE
    event = Event(
        invocation_id="i",
        author="a",
        branch="b",
        error_code="E",
        usage_metadata=Usage(total_token_count=3),
        grounding_metadata={"g": 1},
        citation_metadata={"c": 1},
        custom_metadata={"k": None},
        actions=EventActions(escalate=True, transfer_to_agent="x"),
    )
    assert t.event_metadata(event, BASE) == BASE | {
        "adk_invocation_id": "i",
        "adk_author": "a",
        "adk_branch": "b",
        "adk_error_code": "E",
        "adk_usage_metadata": {"totalTokenCount": 3},
        "adk_grounding_metadata": {"g": 1},
        "adk_citation_metadata": {"c": 1},
        "adk_custom_metadata": {"k": None},
    }


def test_the_final_status_tells_of_escalation_and_transfer():
    assert t.final_metadata(BASE, escalate=False, transfer="") == {t.EXTENSION: True, **BASE}
    assert t.final_metadata({}, escalate=True, transfer="x") == {
        "https://google.github.io/adk-docs/a2a/a2a-extension/": True,
        "adk_escalate": True,
        "adk_transfer_to_agent": "x",
    }


def test_T098_what_a_remote_agent_may_restore():
    event = Event(
        author="a",
        error_code="E",
        usage_metadata=Usage(total_token_count=3),
        grounding_metadata={"g": 1},
        citation_metadata={"c": 1},
        custom_metadata={"k": 1},
    )
    sent = t.event_metadata(event, BASE) | t.final_metadata({}, escalate=True, transfer="root")
    expected = Event(
        error_code="E",
        usage_metadata=Usage(total_token_count=3),
        grounding_metadata={"g": 1},
        citation_metadata={"c": 1},
        custom_metadata={"k": 1},
    )
    assert Event(**t.restored(sent)) == expected
    steered = Event(**t.restored(sent, escalate=True))
    assert steered.actions.escalate
    assert steered.actions.transfer_to_agent == ""
    assert t.restored(None) == {}


def test_odd_metadata_of_a_remote_agent_is_left_out():
    odd = {f"adk_{n}_metadata": 5 for n in ("usage", "grounding", "citation", "custom")} | {"adk_error_code": 5}
    assert t.restored(odd | {"adk_escalate": "true"}, escalate=True) == {}
    assert t.restored({"adk_usage_metadata": {"totalTokenCount": "many"}}) == {}
    found = t.restored({"adk_usage_metadata": {"totalTokenCount": 3, "newCount": 1}})
    assert found == {"usage_metadata": Usage(total_token_count=3)}


@pytest.mark.parametrize(
    ("update", "artifact", "append", "last", "parts", "expected"),
    [
        ({}, {}, False, True, 1, False),
        ({}, {}, False, False, 1, True),
        ({}, {}, True, True, 1, True),
        ({"adk_partial": False}, {}, True, False, 1, False),
        ({"adk_partial": True}, {}, False, False, 1, True),
        ({}, {"adk_partial": False}, True, False, 1, False),
        ({"adk_partial": True}, {}, False, True, 1, None),
        ({}, {}, False, True, 0, None),
    ],
)
def test_T089_T090_previews_and_resets_of_artifacts(
    update: dict[str, Any], artifact: dict[str, Any], append: bool, last: bool, parts: int, expected: bool | None
):
    value = a2a.TaskArtifactUpdateEvent(
        task_id="t",
        artifact=a2a.Artifact(artifact_id="a", parts=[a2a.Part(text="x")] * parts, metadata=artifact),
        append=append,
        last_chunk=last,
        metadata=update,
    )
    assert t.partial(value) is expected
