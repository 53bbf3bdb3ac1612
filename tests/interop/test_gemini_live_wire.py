"""The vocabulary of Gemini's Live API: schemas for its older models, messages, names, and what a close means."""

from typing import Any

import pytest
from gemini_live_rules import check_schema
from gemini_live_ways import NEW, OLD
from google.genai import types

from polyport.data.content import FunctionCall
from polyport.ports.live import CONNECTION_LOST
from polyport.wire.gemini_live import LOST, LiveReader, read_close
from polyport.wire.gemini_live_request import is_new
from polyport.wire.gemini_live_schema import MAX_NESTING, parameters

NODE = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}}
SCHEMAS: dict[str, dict[str, Any]] = {
    "plain": {"type": "integer", "minimum": 1, "maximum": 5, "description": "How many.", "format": "int32"},
    "null": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Perhaps."},
    "types": {"type": ["string", "integer", "null"]},
    "union": {"oneOf": [{"type": "array", "items": {"type": "number"}}, {"type": "boolean"}]},
    "words": {"enum": ["a", "b"]},
    "numbers": {"enum": [1, 2], "description": "Pick."},
    "const": {"const": "x"},
    "anything": {},
    "true": {"type": "array"},
    "map": {"type": "object", "additionalProperties": {"type": "string"}},
    "all": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string", "format": "email", "pattern": "x"}}, "required": ["b", "gone"]},
        ]
    },
    "recursive": {"$ref": "#/$defs/Node"},
    "nowhere": {"$ref": "#/$defs/None"},
}


def test_schemas_are_told_in_the_part_that_the_api_knows():
    given = {"type": "object", "properties": SCHEMAS, "required": ["plain", "other"], "$defs": {"Node": NODE}}
    told = parameters(given)
    assert told is not None
    types.Schema.model_validate(told)
    check_schema(told, "parameters")
    members = told["properties"]
    assert told["required"] == ["plain"]
    assert members["plain"] == {"type": "INTEGER", **{k: v for k, v in SCHEMAS["plain"].items() if k != "type"}}
    assert members["null"] == {"type": "STRING", "nullable": True, "description": "Perhaps."}
    assert members["types"] == {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}], "nullable": True}
    assert members["union"] == {"anyOf": [{"type": "ARRAY", "items": {"type": "NUMBER"}}, {"type": "BOOLEAN"}]}
    assert members["words"] == {"type": "STRING", "enum": ["a", "b"]}
    assert members["numbers"] == {"type": "INTEGER", "description": "Pick. One of: 1, 2"}
    assert members["const"] == {"type": "STRING", "enum": ["x"]}
    assert members["anything"] == {"type": "STRING"}
    assert members["true"] == {"type": "ARRAY", "items": {"type": "STRING"}}
    assert members["map"] == {"type": "OBJECT"}
    assert members["all"].keys() == {"type", "properties", "required"}
    assert members["all"]["properties"] == {"a": {"type": "STRING"}, "b": {"type": "STRING"}}
    assert sorted(members["all"]["required"]) == ["a", "b"]
    assert members["recursive"]["properties"] == {"name": {"type": "STRING"}, "next": {"type": "OBJECT"}}
    assert members["nowhere"] == {"type": "STRING"}
    assert parameters({"type": "object", "properties": {}}) is None


def test_schemas_of_any_depth_and_width_come_to_an_end():
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        deep = {"type": "object", "properties": {"x": deep}}
    many = {f"L{n}": {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 9}} for n in range(40)}
    told = parameters({"type": "object", "properties": {"deep": deep, "many": {"$ref": "#/$defs/L0"}}, "$defs": many})
    check_schema(told, "parameters")
    assert len(str(told)) < 200_000
    assert str(told).count("'x':") <= MAX_NESTING


def test_calls_without_an_id_or_arguments_are_calls():
    message = LiveReader(NEW).read(b'{"toolCall": {"functionCalls": [{"name": "f", "args": null}]}}')
    assert message is not None
    assert message.calls == [FunctionCall(name="f", args={})]


def test_a_message_of_many_members_loses_none():
    message = LiveReader(NEW).read(
        b'{"serverContent": {"modelTurn": {"parts": [{"text": "a"}, {"functionCall": {"name": "f"}}]}, "interrupted": true,'
        b' "inputTranscription": {"text": "b"}, "outputTranscription": {"finished": true}},'
        b' "goAway": {"timeLeft": "?"}, "sessionResumptionUpdate": {"newHandle": "h", "resumable": true}}'
    )
    assert message is not None
    assert message.content is not None
    assert [p.text for p in message.content.parts] == ["a"]
    assert (message.interrupted, message.go_away_s, message.resumption_handle) == (True, 0.0, "h")
    assert message.input_transcription is not None and message.input_transcription.text == "b"
    assert message.output_transcription is not None and message.output_transcription.finished


def test_a_handle_that_cannot_be_resumed_is_none():
    assert LiveReader(NEW).read(b'{"sessionResumptionUpdate": {"newHandle": "h", "resumable": false}}') is None


@pytest.mark.parametrize(
    ("name", "new"),
    [
        (NEW, True),
        (OLD, False),
        ("models/gemini-live-2.5-flash-preview", False),
        ("gemini-2.0-flash-live-001", False),
        ("gemini-3.1-flash-live-preview", True),
        ("gemini-flash-live-latest", True),
        ("gemini-10-live", True),
    ],
)
def test_the_generation_of_a_model(name: str, new: bool):
    assert is_new(name) == new


def test_FR_028_what_a_close_means():
    assert LOST == CONNECTION_LOST
    assert read_close(1000, "", ready=True) is None
    for code in (1001, 1006, 1008, 1011, 1012, 1013, 1014, 4000):
        error = read_close(code, "The operation was aborted.", ready=True)
        assert error is not None and error.code == LOST, code
    for code in (1002, 1003, 1007, 1009):
        error = read_close(code, "", ready=True)
        assert error is not None and (error.code, error.http_status) == ("INVALID_ARGUMENT", 400), code
    for code in (1000, 1005):
        error = read_close(code, "", ready=False)
        assert error is not None and error.code == LOST, code
    for reason, word in (("quota", "RESOURCE_EXHAUSTED"), ("API key not valid", "UNAUTHENTICATED")):
        error = read_close(1008, f"Your {reason} ...", ready=True)
        assert error is not None and error.code == word
        assert reason in str(error)
