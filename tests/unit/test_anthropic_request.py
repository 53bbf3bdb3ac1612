"""wire/anthropic_request: the exact JSON that goes to the provider, whatever the history holds."""

import json
from typing import Any

import pytest

from polyport.codec import encode
from polyport.data.content import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    Part,
    user_text,
)
from polyport.data.model import GenerateConfig, ModelRequest, ToolDeclaration
from polyport.errors import BadRequest
from polyport.wire.anthropic import encode_request, max_tokens
from polyport.wire.anthropic_request import strict_schema

PNG = b"\x89PNG\r\n\x1a\n"


def body(*contents: Content, stream: bool = False, **more: Any) -> dict[str, Any]:
    """What goes over the wire for these contents."""
    return json.loads(
        encode_request(ModelRequest(contents=list(contents), **more), model="claude-test-1", stream=stream)
    )


def messages(*contents: Content) -> list[dict[str, Any]]:
    return body(*contents)["messages"]


def user(*parts: Part) -> Content:
    return Content(role="user", parts=list(parts))


def model(*parts: Part) -> Content:
    return Content(role="model", parts=list(parts))


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_a_request_with_everything_is_exactly_this() -> None:
    config = GenerateConfig(
        temperature=1.0, top_p=0.95, top_k=40, max_output_tokens=4000, stop_sequences=["END"], thinking_budget=2048,
        extra={"metadata": {"user_id": "u1"}},
    )  # fmt: skip
    request = ModelRequest(
        contents=[user_text("Wetter in Köln?")],
        system="Be brief.",
        tools=[
            ToolDeclaration(name="weather", description="Tells it.", parameters={"type": "object", "properties": {}})
        ],
        response_schema={"type": "object", "properties": {"t": {"type": "number"}}, "required": ["t"]},
        config=config,
    )
    assert json.loads(encode_request(request, model="claude-test-1", stream=True)) == {
        "model": "claude-test-1",
        "max_tokens": 4000,
        "messages": [{"role": "user", "content": [text("Wetter in Köln?")]}],
        "system": "Be brief.",
        "temperature": 1.0,
        "top_p": 0.95,
        "top_k": 40,
        "stop_sequences": ["END"],
        "tools": [
            {"name": "weather", "description": "Tells it.", "input_schema": {"type": "object", "properties": {}}}
        ],
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "output_config": {
            "format": {
                "type": "json_schema",
                "schema": {
                    "type": "object",
                    "properties": {"t": {"type": "number"}},
                    "required": ["t"],
                    "additionalProperties": False,
                },
            }
        },
        "metadata": {"user_id": "u1"},
        "stream": True,
    }


def test_a_plain_request_says_nothing_that_was_not_asked_for() -> None:
    assert body(user_text("hi"), system="  ") == {
        "model": "claude-test-1",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [text("hi")]}],
        "stream": False,
    }


def test_max_tokens_is_always_sent_and_a_default_leaves_room_for_thinking() -> None:
    request = ModelRequest(contents=[user_text("hi")])
    assert json.loads(encode_request(request, model="m", stream=False, max_tokens_default=77))["max_tokens"] == 77
    assert max_tokens(GenerateConfig(thinking_budget=3000)) == 8192 + 3000
    assert max_tokens(GenerateConfig(thinking_budget=3000, max_output_tokens=5000)) == 5000
    assert max_tokens(GenerateConfig(thinking_budget=-1)) == 8192


@pytest.mark.parametrize(
    ("config", "thinking"),
    [
        (GenerateConfig(), None),
        (GenerateConfig(thinking_budget=0), {"type": "disabled"}),
        (GenerateConfig(thinking_budget=-1), {"type": "adaptive"}),
        (GenerateConfig(thinking_budget=1024, include_thoughts=True), {"type": "enabled", "budget_tokens": 1024}),
        (GenerateConfig(include_thoughts=True), {"type": "adaptive", "display": "summarized"}),
    ],
)
def test_thinking(config: GenerateConfig, thinking: dict[str, Any] | None) -> None:
    assert body(user_text("hi"), config=config).get("thinking") == thinking


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("auto", None), ("none", {"type": "none"}), ("any", {"type": "any"}), ("f", {"type": "tool", "name": "f"})],
)
def test_tool_choice(choice: str, sent: dict[str, Any] | None) -> None:
    config = GenerateConfig(tool_choice=choice)
    assert body(user_text("hi"), tools=[ToolDeclaration(name="f")], config=config).get("tool_choice") == sent
    assert "tool_choice" not in body(user_text("hi"), config=config), "the API refuses a choice without tools"


@pytest.mark.parametrize("name", ["seed", "presence_penalty", "frequency_penalty"])
def test_what_the_api_has_no_word_for_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadRequest, match=name) as caught:
        body(user_text("hi"), config=GenerateConfig(**{name: 1}))
    assert caught.value.field == f"config.{name}"


def test_extra_wins_but_adds_to_tools_and_to_output_config() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    sent = body(
        user_text("hi"),
        tools=[ToolDeclaration(name="f")],
        response_schema={"type": "string"},
        config=GenerateConfig(extra={"tools": [search], "output_config": {"effort": "low"}, "max_tokens": 5}),
    )
    assert [t["name"] for t in sent["tools"]] == ["f", "web_search"]
    assert sent["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "string"}}}
    assert sent["max_tokens"] == 5


def test_FR_077_attachments_become_blocks() -> None:
    sent = messages(
        user(
            Part(inline_data=Blob(mime_type="image/png", data=PNG)),
            Part(inline_data=Blob(mime_type="image/jpg", data=b"j")),
            Part(inline_data=Blob(mime_type="application/pdf", data=b"%PDF", display_name="a.pdf")),
            Part(inline_data=Blob(mime_type="text/csv; charset=utf-8", data="ä;b".encode())),
            Part(file_data=FileData(file_uri="data:image/gif;base64,R0lG")),
            Part(file_data=FileData(file_uri="data:,hello%20you")),
            Part(file_data=FileData(file_uri="https://x.test/a.webp")),
            Part(file_data=FileData(file_uri="https://x.test/b", mime_type="application/pdf", display_name="b")),
            Part(file_data=FileData(file_uri="file_011", mime_type="image/png")),
        )
    )[0]["content"]
    base = {"type": "base64"}
    assert sent == [
        {"type": "image", "source": {**base, "media_type": "image/png", "data": "iVBORw0KGgo="}},
        {"type": "image", "source": {**base, "media_type": "image/jpeg", "data": "ag=="}},
        {
            "type": "document",
            "source": {**base, "media_type": "application/pdf", "data": "JVBERg=="},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "ä;b"}},
        {"type": "image", "source": {**base, "media_type": "image/gif", "data": "R0lG"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hello you"}},
        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.webp"}},
        {"type": "document", "source": {"type": "url", "url": "https://x.test/b"}, "title": "b"},
        {"type": "image", "source": {"type": "file", "file_id": "file_011"}},
    ]


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (Part(inline_data=Blob(mime_type="audio/wav", data=b"x", display_name="a.wav")), ["a.wav", "audio/wav"]),
        (Part(inline_data=Blob(mime_type="image/png")), ["image/png"]),
        (Part(file_data=FileData(file_uri="data:image/png;base64,***")), ["image/png"]),
        (Part(file_data=FileData(file_uri="gs://bucket/a.png", mime_type="image/png")), ["gs://bucket/a.png"]),
        (Part(file_data=FileData(file_uri="https://x.test/a.mp4")), ["https://x.test/a.mp4", "video/mp4"]),
    ],
)
def test_an_attachment_that_the_api_cannot_take_is_told_to_the_model(part: Part, told: list[str]) -> None:
    (block,) = messages(user(part))[0]["content"]
    assert block["type"] == "text"
    assert all(word in block["text"] for word in told)


def test_the_models_own_media_and_code_are_text() -> None:
    sent = messages(
        user_text("a"),
        model(
            Part(inline_data=Blob(mime_type="image/png", data=PNG)),
            Part(executable_code=ExecutableCode(language="PYTHON", code="print(1)")),
            Part(code_execution_result=CodeExecutionResult(outcome="OUTCOME_OK", output="1")),
        ),
        user_text("b"),
    )[1]["content"]
    assert [b["type"] for b in sent] == ["text", "text", "text"]
    assert "image/png" in sent[0]["text"]
    assert [b["text"] for b in sent[1:]] == ["```python\nprint(1)\n```", "OUTCOME_OK\n1"]


def test_schemas_are_put_into_the_subset_that_the_api_takes() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "description": "How many", "default": 1},
            "mail": {"type": "string", "format": "email"},
            "zip": {"type": "string", "format": "zip"},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/T"}, "minItems": 1, "maxItems": 3},
            "maybe": {"type": ["string", "null"], "maxLength": 3},
            "kind": {"type": ["string", "null"], "enum": ["a", None]},
            "either": {"oneOf": [{"type": "object", "properties": {}}, {"type": "null"}]},
        },
        "$defs": {"T": {"type": "object", "properties": {"x": {"const": 1}}, "additionalProperties": True}},
        "required": ["n"],
    }
    before = encode(schema)
    assert strict_schema(schema) == {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "description": "How many (minimum: 1, default: 1)"},
            "mail": {"type": "string", "format": "email"},
            "zip": {"type": "string", "description": '(format: "zip")'},
            "tags": {
                "type": "array",
                "items": {"$ref": "#/$defs/T"},
                "minItems": 1,
                "description": "(maxItems: 3)",
            },
            "maybe": {"anyOf": [{"type": "string", "description": "(maxLength: 3)"}, {"type": "null"}]},
            "kind": {"enum": ["a", None]},
            "either": {
                "anyOf": [{"type": "object", "properties": {}, "additionalProperties": False}, {"type": "null"}]
            },
        },
        "$defs": {"T": {"type": "object", "properties": {"x": {"const": 1}}, "additionalProperties": False}},
        "required": ["n"],
        "additionalProperties": False,
    }
    assert encode(schema) == before, "the caller's schema is not changed"


def test_a_property_may_have_the_name_of_a_keyword() -> None:
    schema = {"type": "object", "properties": {"minimum": {"type": "string"}, "type": {"type": "string"}}}
    assert strict_schema(schema) == {**schema, "additionalProperties": False}


def test_a_free_form_object_is_refused_where_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {"scores": {"type": "object", "additionalProperties": {"type": "integer"}}},
    }
    with pytest.raises(BadRequest, match="scores") as caught:
        strict_schema(schema)
    assert caught.value.field == "response_schema.scores"
