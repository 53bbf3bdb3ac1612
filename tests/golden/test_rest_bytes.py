"""Exact bytes of the REST wire: events, sessions, errors, frames. Written from spec rest 1.1, 1.4, 1.7 and 2.3, by hand.

Differences from the spec's Go examples, all of them its TARGET lines: `lastUpdateTime` and `timestamp` are float seconds,
events carry a `timestamp` and all metadata, errors are JSON under both keys, and no HTML characters are escaped.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from polyport import App, Content, LlmAgent, Part
from polyport.data.content import Blob, FileData, FunctionCall, FunctionResponse
from polyport.data.event import Event, EventActions, NodeInfo, RequestInput, ToolConfirmation
from polyport.data.model import Transcription, Usage
from polyport.errors import ModelError
from polyport.protocols.answers import error_frame
from polyport.testing import ScriptedModel, chunks, connect
from polyport.testing.connect import Client
from polyport.testing.samples import Clock
from polyport.wire import sse
from polyport.wire.adk import encode_event

AT = datetime(2026, 2, 25, 6, 13, 20, 250000, UTC)
"""1772000000.25"""
HOME = "/apps/weather/users/alice/sessions"


def test_rest_33_34_the_smallest_event():
    assert encode_event(Event()) == (
        b'{"id":"","invocationId":"","author":"","content":null,"groundingMetadata":null,"usageMetadata":null,'
        b'"actions":{"stateDelta":{},"artifactDelta":{}}}'
    )
    assert encode_event(Event(actions=EventActions())).endswith(b'"actions":{"stateDelta":null,"artifactDelta":null}}')


def test_the_specs_example_of_a_final_event():
    event = Event(
        id="e2",
        invocation_id="e-1",
        author="weather",
        timestamp=AT,
        content=Content(role="model", parts=[Part(text="18°C")]),
        usage_metadata=Usage(total_token_count=12),
        finish_reason="STOP",
    )
    assert encode_event(event).decode() == (
        '{"id":"e2","invocationId":"e-1","author":"weather","content":{"parts":[{"text":"18°C"}],"role":"model"},'
        '"groundingMetadata":null,"usageMetadata":{"totalTokenCount":12},"finishReason":"STOP",'
        '"actions":{"stateDelta":{},"artifactDelta":{}},"timestamp":1772000000.25}'
    )


def test_a_partial_event():
    event = Event(
        id="a",
        invocation_id="i",
        author="w",
        partial=True,
        timestamp=AT,
        content=Content(role="model", parts=[Part(text="18")]),
    )
    assert encode_event(event) == (
        b'{"id":"a","invocationId":"i","author":"w","partial":true,"content":{"parts":[{"text":"18"}],"role":"model"},'
        b'"groundingMetadata":null,"usageMetadata":null,"actions":{"stateDelta":{},"artifactDelta":{}},'
        b'"timestamp":1772000000.25}'
    )


def test_the_fullest_event_in_the_order_of_the_spec():
    event = Event(
        id="e",
        invocation_id="i",
        branch="a.b",
        author="w",
        partial=False,
        long_running_tool_ids=["c1"],
        content=Content(role="model", parts=[Part(text="x")]),
        grounding_metadata={"q": ["x"]},
        usage_metadata=Usage(prompt_token_count=3, candidates_token_count=0),
        turn_complete=True,
        interrupted=True,
        error_code="E",
        error_message="bad",
        avg_logprobs=-0.5,
        finish_reason="STOP",
        model_version="m",
        input_transcription=Transcription(text="in", finished=True),
        output_transcription=Transcription(text="out"),
        actions=EventActions(
            state_delta={"k": None},
            artifact_delta={"f": 2},
            escalate=True,
            skip_summarization=True,
            transfer_to_agent="t",
            requested_tool_confirmations={"c1": ToolConfirmation()},
        ),
        output={"o": 1},
        node_info=NodeInfo(path="p", message_as_output=True, output_for=["q"]),
        isolation_scope="s",
        routes=["r"],
        requested_input=RequestInput(interrupt_id="n", message="m", response_schema={"type": "string"}, payload=[1]),
        timestamp=datetime(2026, 2, 25, 6, 13, 20, 123457, UTC),
        custom_metadata={"a2a:response": 1},
        citation_metadata={"citations": []},
    )
    assert encode_event(event) == (
        b'{"id":"e","invocationId":"i","branch":"a.b","author":"w","longRunningToolIds":["c1"],'
        b'"content":{"parts":[{"text":"x"}],"role":"model"},"groundingMetadata":{"q":["x"]},'
        b'"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":0},'
        b'"turnComplete":true,"interrupted":true,"errorCode":"E","errorMessage":"bad","avgLogprobs":-0.5,'
        b'"finishReason":"STOP","modelVersion":"m","inputTranscription":{"text":"in","finished":true},'
        b'"outputTranscription":{"text":"out"},"actions":{"stateDelta":{"k":null},"artifactDelta":{"f":2},'
        b'"escalate":true,"skipSummarization":true,"transferToAgent":"t",'
        b'"requestedToolConfirmations":{"c1":{"hint":"","confirmed":false,"payload":null}}},'
        b'"output":{"o":1},"nodeInfo":{"path":"p","messageAsOutput":true,"outputFor":["q"]},"isolationScope":"s",'
        b'"routes":["r"],"requestedInput":{"interruptId":"n","message":"m","responseSchema":{"type":"string"},"payload":[1]},'
        b'"timestamp":1772000000.123457,"customMetadata":{"a2a:response":1},"citationMetadata":{"citations":[]}}'
    )


@pytest.mark.parametrize(
    ("part", "json"),
    [
        (Part(text=""), '{"text":""}'),
        (Part(text="hm", thought=True), '{"text":"hm","thought":true}'),
        (Part(), "{}"),
        (
            Part(inline_data=Blob(mime_type="image/png", data=b"\xfb\xff")),
            '{"inlineData":{"mimeType":"image/png","data":"+/8="}}',
        ),
        (
            Part(inline_data=Blob(mime_type="a/b", data=b"\0", display_name="n")),
            '{"inlineData":{"mimeType":"a/b","data":"AA==","displayName":"n"}}',
        ),
        (
            Part(file_data=FileData(file_uri="gs://b/f", mime_type="a/b")),
            '{"fileData":{"fileUri":"gs://b/f","mimeType":"a/b"}}',
        ),
        (Part(function_call=FunctionCall(name="f")), '{"functionCall":{"name":"f","args":{}}}'),
        (
            Part(function_call=FunctionCall(id="c", name="f", args={"a": 1.0}), thought_signature=b"\xfb\xff\0"),
            '{"functionCall":{"id":"c","name":"f","args":{"a":1.0}},"thoughtSignature":"+/8A"}',
        ),
        (
            Part(function_response=FunctionResponse(id="c", name="f", response={})),
            '{"functionResponse":{"id":"c","name":"f","response":{}}}',
        ),
        (
            Part(function_response=FunctionResponse(id="c", name="f")),
            '{"functionResponse":{"id":"c","name":"f","response":null}}',
        ),
    ],
)
def test_parts(part: Part, json: str):
    assert msgspec.json.encode(part).decode() == json


# ---- whole answers, under a clock that stands still


@asynccontextmanager
async def weather(*steps: Any) -> AsyncGenerator[Client]:
    agent = LlmAgent(name="weather", model=ScriptedModel(*steps))
    app = App(agent, seams=Clock(1772000000.25).seams())
    async with connect(app, headers={"x-request-id": "r-1"}) as client:
        yield client


async def test_rest_13_a_session():
    async with weather() as client:
        made = await client.post(HOME + "/s1", json={"state": {"city": "Tokyo"}})
        whole = (
            b'{"id":"s1","appName":"weather","userId":"alice","lastUpdateTime":1772000000.25,'
            b'"events":[],"state":{"city":"Tokyo"}}'
        )
        assert made.body == whole + b"\n"
        assert (await client.get(HOME + "/s1")).body == whole + b"\n"
        assert (await client.get(HOME)).body == b"[" + whole + b"]\n"
        assert made.headers["content-type"] == "application/json; charset=UTF-8"
        assert (await client.get("/apps/weather/users/bob/sessions")).body == b"[]\n"


async def test_rest_27_a_patched_session():
    async with weather() as client:
        await client.post(HOME + "/s1", json={"state": {"city": "Tokyo"}})
        body = {"stateDelta": {"__session_metadata__": {"displayName": "Trip"}}}
        assert (await client.patch(HOME + "/s1", json=body)).text == (
            '{"id":"s1","appName":"weather","userId":"alice","lastUpdateTime":1772000000.25,"events":['
            '{"id":"id-1","invocationId":"p-id-2","author":"user","content":null,"groundingMetadata":null,'
            '"usageMetadata":null,"actions":{"stateDelta":{"__session_metadata__":{"displayName":"Trip"}},'
            '"artifactDelta":{}},"timestamp":1772000000.25}],'
            '"state":{"city":"Tokyo","__session_metadata__":{"displayName":"Trip"}}}\n'
        )


async def test_rest_24_delete_has_no_body():
    async with weather() as client:
        response = await client.delete(HOME + "/s1")
        assert (response.status, response.body, response.headers["content-length"]) == (200, b"", "0")


async def test_artifacts():
    async with weather() as client:
        at = HOME + "/s1/artifacts"
        await client.post(HOME + "/s1")
        assert (await client.get(at)).body == b"[]\n"
        saved = await client.post(at, json={"filename": "user:profile.json", "artifact": {"text": "{}"}})
        assert saved.body == (
            b'{"version":1,"mimeType":"text/plain",'
            b'"canonicalUri":"artifact://weather/users/alice/user%3Aprofile.json/versions/1","createTime":1772000000.25}\n'
        )
        await client.post(at, json={"filename": "a.txt", "artifact": {"text": "hello"}})
        assert (await client.get(at)).body == b'["a.txt","user:profile.json"]\n'
        assert (await client.get(at + "/a.txt?version=1")).body == b'{"text":"hello"}\n'
        assert (await client.get(at + "/a.txt/versions")).body == b"[1]\n"
        refused = await client.get(at + "/a.txt?version=x")
        words = "version parameter must be an integer"
        assert (refused.status, refused.text) == (400, f'{{"error":"{words}","detail":"{words}"}}\n')


async def test_an_unknown_field_of_a_run():
    async with weather() as client:
        refused = await client.post("/run", json={"appNme": "weather"})
        words = 'failed to decode request: unknown field \\"appNme\\"'
        assert (refused.status, refused.text) == (400, f'{{"error":"{words}","detail":"{words}"}}\n')


async def test_about():
    async with weather() as client:
        assert (await client.get("/health")).body == b'{"status":"ok"}\n'
        assert (await client.get("/list-apps")).body == b'["weather"]\n'
        assert (await client.get("/apps/weather/app-info")).body == (
            b'{"name":"weather","rootAgentName":"weather","description":"","language":"python","agents":{"weather":'
            b'{"name":"weather","description":"","instruction":"","tools":[],"subAgents":[]}}}\n'
        )


RUN = {
    "appName": "weather",
    "userId": "alice",
    "sessionId": "s1",
    "newMessage": {"role": "user", "parts": [{"text": "weather?"}]},
}


def event(id: str, run: str, text: str, mark: str = "") -> str:
    """The JSON of an answer of the agent `weather`."""
    content = f'{{"parts":[{{"text":"{text}"}}],"role":"model"}}'
    end = "" if mark else '"finishReason":"STOP",'  # so the scripted model ends
    return (
        f'{{"id":"{id}","invocationId":"{run}","author":"weather",{mark}"content":{content},'
        f'"groundingMetadata":null,"usageMetadata":null,{end}"actions":{{"stateDelta":{{}},"artifactDelta":{{}}}},'
        '"timestamp":1772000000.25}'
    )


async def test_rest_32_a_run():
    async with weather("18°C") as client:
        await client.post(HOME + "/s1")
        response = await client.post("/run", json=RUN)
        id = response.json()[0]["id"]
        assert response.text == "[" + event(id, response.headers["x-run-id"], "18°C") + "]\n"


async def test_rest_50_60_frames():
    async with weather(chunks("18", "°C")) as client:
        await client.post(HOME + "/s1")
        response = await client.post("/run_sse", json={**RUN, "streaming": True})
        run, id = response.headers["x-run-id"], msgspec.json.decode(response.body.split(b"\n")[0][6:])["id"]
        assert response.text == (
            f"data: {event(id, run, '18', PARTIAL)}\n\n"
            f"data: {event(id, run, '°C', PARTIAL)}\n\n"
            f"data: {event(id, run, '18°C')}\n\n"
        )


PARTIAL = '"partial":true,'


async def test_frames_with_ids_to_go_on_from():
    async with weather(chunks("18", "°C")) as client:
        await client.post(HOME + "/s1")
        response = await client.post("/run_sse?detach=true", json={**RUN, "streaming": True})
        heads = [block.split("data: ")[0] for block in response.text.split("\n\n")[:-1]]
        assert heads == ["id: 1.0\n", "id: 2.0\n", "id: 3.1\n"]
        run = response.headers["x-run-id"]
        id = msgspec.json.decode(response.text.split("data: ")[1].split("\n")[0])["id"]
        assert response.text.split("\n\n")[2] == f"id: 3.1\ndata: {event(id, run, '18°C')}"


async def test_rest_52_an_error_frame():
    async with weather(ModelError("model unavailable", code="UNAVAILABLE")) as client:
        await client.post(HOME + "/s1")
        response = await client.post("/run_sse", json=RUN)
        assert response.status == 200
        assert response.body == b'event: error\ndata: {"error":"model unavailable","errorCode":"UNAVAILABLE"}\n\n'


def test_frames_by_hand():
    assert sse.frame(b"{}") == b"data: {}\n\n"
    assert sse.frame(b"{}", id="4.2") == b"id: 4.2\ndata: {}\n\n"
    assert sse.frame(b"{}", event="error", id="1") == b"id: 1\nevent: error\ndata: {}\n\n"
    assert sse.HEARTBEAT == b": ping\n\n"
    assert error_frame(ValueError("secret")) == (
        b"event: error\n"
        b'data: {"error":"internal error (ValueError); the server\'s log has the details","errorCode":"INTERNAL"}\n\n'
    )
