"""Exact bytes of the Agent Engine wire: sessions, event lines, envelopes, errors. Written from spec rest 6.2 and 6.3, by hand.

Differences from the spec's examples: `actions` comes where the event has it, and a run names the session that it made.
"""

from datetime import UTC, datetime
from typing import Any

from polyport import App, Content, LlmAgent, Part
from polyport.data.content import Blob, FunctionCall, FunctionResponse, model_text
from polyport.data.event import Event, EventActions, ToolConfirmation
from polyport.data.model import Usage
from polyport.errors import ModelError
from polyport.protocols.agent_engine import AgentEngine
from polyport.testing import ScriptedModel, connect
from polyport.testing.samples import Clock
from polyport.wire.agent_engine import event_shape, line

AT = datetime(2026, 2, 25, 6, 13, 20, 250000, UTC)
"""1772000000.25"""


def test_rest_110_a_partial_event():
    event = Event(id="a", invocation_id="e-1", author="w", timestamp=AT, partial=True, content=model_text("18"))
    shape: dict[str, Any] = event_shape(event)
    assert shape == {
        "id": "a",
        "timestamp": 1772000000,
        "invocation_id": "e-1",
        "author": "w",
        "actions": {"state_delta": {}, "artifact_delta": {}},
        "content": {"parts": [{"text": "18"}], "role": "model"},
        "partial": True,
        "avg_logprobs": 0,
        "finish_reason": "",
    }


def test_rest_110_names_of_members_are_snake_case_and_keys_of_maps_are_untouched():
    event = Event(
        id="a",
        author="w",
        content=Content(
            role="model",
            parts=[
                Part(function_call=FunctionCall(id="c1", name="f", args={"someKey": {"otherKey": 1}})),
                Part(function_response=FunctionResponse(id="c1", name="f", response={"theAnswer": None})),
                Part(inline_data=Blob(mime_type="image/png", data=b"\xff\xfe")),
            ],
        ),
        long_running_tool_ids=["c1"],
        usage_metadata=Usage(total_token_count=12),
        actions=EventActions(
            state_delta={"camelKey": True},
            artifact_delta=None,
            requested_tool_confirmations={"c1": ToolConfirmation(hint="sure?")},
        ),
        finish_reason="STOP",
    )
    shape = event_shape(event)
    assert shape["content"]["parts"] == [
        {"function_call": {"id": "c1", "name": "f", "args": {"someKey": {"otherKey": 1}}}},
        {"function_response": {"id": "c1", "name": "f", "response": {"theAnswer": None}}},
        {"inline_data": {"mime_type": "image/png", "data": b"\xff\xfe"}},
    ]
    assert b'"inline_data":{"mime_type":"image/png","data":"//4="}' in line(shape)
    assert shape["actions"] == {
        "state_delta": {"camelKey": True},
        "artifact_delta": {},
        "requested_tool_confirmations": {"c1": {"hint": "sure?", "confirmed": False}},
    }
    assert (shape["long_running_tool_ids"], shape["usage_metadata"]) == (["c1"], {"total_token_count": 12})
    assert "timestamp" not in shape and shape["finish_reason"] == "STOP"


async def test_rest_107_a_session():
    app = App(LlmAgent(name="w", model="demo"), protocols=[AgentEngine(engine_id="77")], seams=Clock().seams())
    async with connect(app) as client:
        body = {"class_method": "async_create_session", "input": {"user_id": "u", "session_id": "s", "state": {"k": 1}}}
        response = await client.post("/reasoning_engine", json=body)
        assert response.text == (
            '{"output":{"user_id":"u","last_update_time":1772000000.25,"app_name":"77","id":"s","state":{"k":1},'
            '"events":[]}}\n'
        )
        body = {"class_method": "async_delete_session", "input": {"user_id": "u", "session_id": "s"}}
        assert (await client.post("/reasoning_engine", json=body)).text == '{"output":""}\n'


async def test_rest_113_114_lines():
    model = ScriptedModel("18", ModelError("down", http_status=503))
    app = App(LlmAgent(name="w", model=model), protocols=[AgentEngine()], seams=Clock().seams())
    async with connect(app) as client:
        inner = '{"user_id":"u","session_id":"","message":{"role":"user","parts":[{"text":"x"}]}}'
        body: dict[str, Any] = {
            "class_method": "streaming_agent_run_with_events",
            "input": {"request_json": inner},
        }
        response = await client.post("/stream_reasoning_engine", json=body)
        assert response.headers["content-type"] == "application/json; charset=UTF-8"
        assert response.headers["cache-control"] == "no-cache"
        event = response.json()
        session = event["session_id"]
        (said,) = event.pop("events")
        assert event == {"session_id": session} and response.text.endswith("}\n")
        assert said["content"] == {"parts": [{"text": "18"}], "role": "model"}
        assert (said["timestamp"], said["author"], said["finish_reason"]) == (1772000000, "w", "STOP")
        body = {"class_method": "async_stream_query", "input": {"user_id": "u", "session_id": session, "message": "x"}}
        response = await client.post("/stream_reasoning_engine", json=body)
        assert (response.status, response.text) == (200, '{"error":"down"}\n')
