"""The trace routes: what a page sees of the runs of a session, and who may see it (spec rest 5.1, 5.2, 9.5, 11.4)."""

import json
from typing import Any

import pytest
from opentelemetry import _logs, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import TracerProvider

from polyport import App, LlmAgent, ModelResponse, Plugin
from polyport.data.content import model_text
from polyport.data.model import Usage
from polyport.errors import ConfigError
from polyport.protocols.debug.mount import Debug
from polyport.testing import ScriptedModel, call, connect
from support.debugging import Said, debugging, get
from support.spans import Telemetry
from support.talk import Talk

USAGE = Usage(prompt_token_count=7, candidates_token_count=2)


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def agent(*steps: Any, name: str = "top") -> LlmAgent:
    steps = steps or (ModelResponse(content=model_text("thinking"), usage_metadata=USAGE, finish_reason="STOP"),)
    return LlmAgent(name=name, model=ScriptedModel(*steps, name="mock"), tools=[weather])


def with_tool() -> LlmAgent:
    return agent(
        call("weather", {"city": "Rome"}, "c1"), ModelResponse(content=model_text("Sunny."), usage_metadata=USAGE)
    )


def check_page_takes(spans: list[dict[str, Any]]) -> None:
    """What the page refuses a whole trace for (spec rest 9.5)."""
    for span in spans:
        assert set(span) == {
            "name", "start_time", "end_time", "span_id", "trace_id", "parent_span_id", "attributes", "logs",
        }  # fmt: skip
        assert isinstance(span["name"], str)
        assert isinstance(span["start_time"], int) and isinstance(span["end_time"], int)
        assert len(span["trace_id"]) == 32 and len(span["span_id"]) == 16
        assert span["parent_span_id"] is None or isinstance(span["parent_span_id"], str)
        attributes = span["attributes"]
        assert isinstance(span["logs"], list)
        for name, value in attributes.items():
            assert not name.startswith("gen_ai.usage.") or isinstance(value, int)
        if attributes["gen_ai.operation.name"] == "generate_content":
            assert attributes["gcp.vertex.agent.event_id"] and attributes["gcp.vertex.agent.invocation_id"]
            assert all(isinstance(reason, str) for reason in attributes["gen_ai.response.finish_reasons"])
        if attributes["gen_ai.operation.name"] == "invoke_agent":
            assert attributes["gen_ai.conversation.id"]


@pytest.mark.parametrize("prefix", ["", "/dev/apps/top", "/api", "/api/dev/apps/top"])
async def test_rest_101_102_FR_225_traces_of_a_session_and_of_an_event(prefix: str):
    async with debugging(with_tool()) as talk:
        events = await talk.run()
        spans = await get(talk, f"{prefix}/debug/trace/session/s1")
        check_page_takes(spans)
        assert [span["name"] for span in spans] == [
            "invoke_agent top",
            "generate_content mock",
            "execute_tool weather",
            "generate_content mock",
        ]
        assert [span["start_time"] for span in spans] == sorted(span["start_time"] for span in spans)
        root = spans[0]
        assert root["parent_span_id"] is None
        assert [span["parent_span_id"] for span in spans[1:]] == [root["span_id"]] * 3
        assert root["attributes"]["gen_ai.conversation.id"] == "s1"
        assert spans[3]["attributes"]["gen_ai.usage.input_tokens"] == 7
        assert spans[3]["attributes"]["gen_ai.response.finish_reasons"] == [""]
        for event, span in zip(events, spans[1:], strict=True):
            found = await get(talk, f"{prefix}/debug/trace/{event['id']}")
            assert found["gcp.vertex.agent.event_id"] == event["id"]
            assert found["name"] == span["name"]
            assert found == {
                **span["attributes"],
                **{name: value for name, value in span.items() if name != "attributes"},
            }


async def test_rest_100_FR_225_unknown_ids():
    async with debugging(agent()) as talk:
        error = await get(talk, "/debug/trace/unknown", status=404)
        assert error["error"] == "event not found: unknown"
        assert await get(talk, "/debug/trace/session/unknown") == []
        assert await get(talk, "/dev/apps/nobody/debug/trace/session/s1") == []


async def test_rest_105_no_debug_routes_unless_asked_for():
    app = App(agent())
    async with connect(app) as client:
        talk = Talk(client, "top", app)
        await talk.create()
        events = await talk.run()
        for path in (
            f"/debug/trace/{events[0]['id']}",
            "/debug/trace/session/s1",
            f"/dev/apps/top/debug/trace/{events[0]['id']}",
            "/dev/apps/top/debug/trace/session/s1",
            "/dev/apps/top/build_graph",
            f"{talk.path}/events/{events[0]['id']}/graph",
        ):
            assert (await client.get(path)).status == 404


async def test_rest_101_logs_belong_to_their_span_and_hold_content_only_when_asked():
    for capture in (None, True):
        async with debugging(agent("Sunny."), Debug(capture_content=capture)) as talk:
            (event,) = await talk.run("hello")
            spans = await get(talk, "/debug/trace/session/s1")
            assert [len(span["logs"]) for span in spans] == [0, 3]
            system, user, choice = spans[1]["logs"]
            assert [log["event_name"] for log in spans[1]["logs"]] == [
                "gen_ai.system.message",
                "gen_ai.user.message",
                "gen_ai.choice",
            ]
            assert set(system) == {"body", "observed_timestamp", "trace_id", "span_id", "event_name"}
            assert (system["trace_id"], system["span_id"]) == (spans[1]["trace_id"], spans[1]["span_id"])
            assert system["observed_timestamp"][10] == "T" and system["observed_timestamp"].endswith("Z")
            assert len(system["observed_timestamp"]) == len("2026-01-01T00:00:00.123456789Z")
            said = (
                {"role": "user", "parts": [{"text": "hello"}]}
                if capture
                else {"role": "user", "parts": [{"text": "<elided>"}]}
            )
            assert user["body"] == {"content": said}
            assert choice["body"]["finish_reason"] == "STOP"
            assert (await get(talk, f"/debug/trace/{event['id']}"))["logs"] == spans[1]["logs"]


async def test_an_answer_that_is_only_an_error_is_a_log_without_words_and_no_harm():
    debug = Debug(capture_content=True)
    async with debugging(agent(ModelResponse(error_code="SAFETY", error_message="refused")), debug) as talk:
        (event,) = await talk.run()
        assert event["errorCode"] == "SAFETY"
        spans = await get(talk, "/debug/trace/session/s1")
        bodies = [log["body"] for span in spans for log in span["logs"] if log["event_name"] == "gen_ai.choice"]
        assert bodies == [{"content": {"role": "model", "parts": []}, "index": 0}]


async def test_FR_225_traces_are_seen_also_with_providers_of_ones_own():
    """The processors are added to the providers that are in use; what they export otherwise goes on."""
    telemetry = Telemetry()
    async with debugging(agent("one"), Debug(telemetry=telemetry.plugin)) as talk:
        await talk.run()
        spans = await get(talk, "/debug/trace/session/s1")
        assert [span["name"] for span in spans] == ["invoke_agent top", "generate_content mock"]
        assert len(spans[1]["logs"]) == 3
    assert telemetry.tree() == ["invoke_agent top", "  generate_content mock"]
    assert len(telemetry.logs()) == 3


async def test_FR_225_traces_are_seen_also_with_global_providers_that_come_late(monkeypatch: Any):
    debug = Debug()  # before anybody has set a provider
    mine, logs = TracerProvider(shutdown_on_exit=False), LoggerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", mine)
    monkeypatch.setattr(_logs._internal, "_LOGGER_PROVIDER", logs)  # pyright: ignore[reportPrivateUsage]
    async with debugging(agent("one"), debug) as talk:
        assert debug.telemetry.tracer_provider is mine
        assert debug.telemetry.logger_provider is logs
        await talk.run()
        assert len(await get(talk, "/debug/trace/session/s1")) == 2


async def test_traces_of_several_runs_and_sessions():
    async with debugging(agent("one", "two", "three")) as talk:
        await talk.run()
        await talk.run()
        other = talk.at("s2")
        await other.create()
        await other.run()
        spans = await get(talk, "/debug/trace/session/s1")
        assert [span["name"] for span in spans] == ["invoke_agent top", "generate_content mock"] * 2
        assert len({span["trace_id"] for span in spans}) == 2
        assert len(await get(talk, "/debug/trace/session/s2")) == 2


async def run_as(talk: Talk, user: str, **headers: str) -> list[dict[str, Any]]:
    """A run in session s1 of this user."""
    named = {"x-user": user, **headers}
    path = f"/apps/{talk.app}/users/{user}/sessions/s1"
    assert (await talk.client.post(path, headers=named)).status == 200
    body = {**talk.body(), "userId": user}
    response = await talk.client.post("/run", json=body, headers=named)
    assert response.status == 200, response.text
    return response.json()


async def test_traces_are_seen_by_the_owner_of_the_session_only():
    """Also when two users have a session of the same id (spec rest 11.4)."""
    async with debugging(agent("for ann", "for bob"), auth=Said()) as talk:
        (ann,) = await run_as(talk, "ann")
        (bob,) = await run_as(talk, "bob")
        for user, own, other in (("ann", ann, bob), ("bob", bob, ann)):
            spans = await get(talk, "/debug/trace/session/s1", x_user=user)
            assert [span["attributes"].get("gcp.vertex.agent.event_id") for span in spans] == [None, own["id"]]
            assert (await get(talk, f"/debug/trace/{own['id']}", x_user=user))["name"] == "generate_content mock"
            error = await get(talk, f"/debug/trace/{other['id']}", status=404, x_user=user)
            assert error["error"] == f"event not found: {other['id']}"
        assert await get(talk, "/debug/trace/session/s1", x_user="eve") == []
        await get(talk, "/debug/trace/session/s1", status=401)


async def test_a_trace_that_two_users_name_is_not_shared():
    """Anybody may send a `traceparent` that he has seen elsewhere."""
    async with debugging(agent("for ann", "for bob"), auth=Said()) as talk:
        same = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
        await run_as(talk, "ann", **same)
        await run_as(talk, "bob", **same)
        spans = await get(talk, "/debug/trace/session/s1", x_user="ann")
        assert len(spans) == 2
        assert {span["trace_id"] for span in spans} == {"ab" * 16}


async def test_the_app_of_the_path_limits_what_is_seen():
    agents = [agent("one", name="one"), agent("two", name="two")]
    async with debugging(agents) as talk:
        (event,) = await talk.run()
        assert len(await get(talk, "/dev/apps/one/debug/trace/session/s1")) == 2
        assert await get(talk, "/dev/apps/two/debug/trace/session/s1") == []
        await get(talk, f"/dev/apps/two/debug/trace/{event['id']}", status=404)


async def test_a_run_belongs_to_the_trace_of_the_request():
    telemetry = Telemetry()
    app = App(agent("one", "two"), plugins=[telemetry.plugin])
    async with connect(app) as client:
        talk = Talk(client, "top", app)
        await talk.create()
        parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
        for headers in ({"traceparent": parent}, {}):
            assert (await client.post("/run", json=talk.body(), headers=headers)).status == 200
        first, second = (span for span in telemetry.spans() if span.name == "invoke_agent top")
        assert first.parent is not None and first.context is not None
        assert (first.context.trace_id, first.parent.span_id) == (int("ab" * 16, 16), int("cd" * 8, 16))
        assert first.parent.is_remote
        assert second.parent is None


@pytest.mark.parametrize("bad", ["", "x", "00-0-0-01", f"00-{'0' * 32}-{'0' * 16}-01", "00-" + "a" * 5000, "é"])
async def test_a_broken_traceparent_is_nobodys(bad: str):
    telemetry = Telemetry()
    app = App(agent("one"), plugins=[telemetry.plugin])
    async with connect(app) as client:
        talk = Talk(client, "top", app)
        await talk.create()
        headers = [("traceparent", bad.encode("latin-1").decode("latin-1")), ("content-type", "application/json")]
        assert (await client.post("/run", json=talk.body(), headers=dict(headers))).status == 200
        assert telemetry.span("invoke_agent top").parent is None


async def test_the_page_gets_a_root_also_when_the_caller_has_a_span_around_it():
    async with debugging(agent("one")) as talk:
        headers = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
        assert (await talk.client.post("/run", json=talk.body(), headers=headers)).status == 200
        spans = await get(talk, "/debug/trace/session/s1")
        assert [span["parent_span_id"] for span in spans] == [None, spans[0]["span_id"]]


async def test_a_trace_follows_a_run_that_is_detached():
    telemetry = Telemetry()
    async with debugging(agent("one"), Debug(telemetry=telemetry.plugin)) as talk:
        headers = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
        response = await talk.client.post("/run?detach=true", json=talk.body(), headers=headers)
        assert response.status in (200, 202), response.text
        run = await talk.server.runs.get(response.json()["invocationId"])
        assert run is not None
        await run.wait()
        assert telemetry.span("invoke_agent top").parent is not None


async def test_debug_refuses_sizes_that_make_no_sense():
    with pytest.raises(ConfigError, match="capacity of Debug is 0"):
        Debug(capacity=0)
    with pytest.raises(ConfigError, match="telemetry of Debug is a Plugin"):
        Debug(telemetry=Plugin())
    with pytest.raises(ConfigError, match="capture_content"):
        Debug(telemetry=Telemetry().plugin, capture_content=True)


async def test_a_run_inside_a_run_belongs_to_its_own_session():
    telemetry = Telemetry()
    inner = App(agent("inner", name="inner"), plugins=[telemetry.plugin])

    async def delegate() -> str:
        """Asks another app."""
        return (await inner.ask("hi", user="somebody", session="s2")).text

    root = LlmAgent(name="top", model=ScriptedModel(call("delegate", {}, "c1"), "done", name="mock"), tools=[delegate])
    async with debugging(root, Debug(telemetry=telemetry.plugin)) as talk:
        await talk.run()
        spans = await get(talk, "/debug/trace/session/s1")
        assert "invoke_agent top" in [span["name"] for span in spans]
        assert "invoke_agent inner" not in [span["name"] for span in spans]
        spans = await get(talk, "/debug/trace/session/s2")
        assert [span["name"] for span in spans] == ["invoke_agent inner", "generate_content mock"]
    assert telemetry.span("invoke_agent inner").parent == telemetry.span("execute_tool delegate").context


async def test_the_trace_of_one_request_is_not_that_of_the_next_in_the_same_task():
    """Some servers serve a whole connection in one task."""
    telemetry = Telemetry()
    app = App(agent("one", "two"), plugins=[telemetry.plugin])
    async with connect(app) as client:
        talk = Talk(client, "top", app)
        await talk.create()
        for headers in ([(b"traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01".encode())], []):
            body = json.dumps(talk.body()).encode()
            scope = {
                "type": "http", "method": "POST", "path": "/run", "query_string": b"", "scheme": "http",
                "headers": [(b"content-type", b"application/json"), *headers],
            }  # fmt: skip

            async def receive(body: bytes = body) -> Any:
                return {"type": "http.request", "body": body}

            async def send(message: Any) -> None:
                assert message.get("status", 200) == 200

            await app.asgi(scope, receive, send)
    first, second = (span for span in telemetry.spans() if span.name == "invoke_agent top")
    assert first.parent is not None and second.parent is None
