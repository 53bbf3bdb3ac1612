"""Telemetry: the spans, metrics and log events of runs, as OpenTelemetry's own SDK sees them (spec core 10)."""

import contextvars
import logging
import time
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from polyport import (
    AgentTool,
    App,
    FunctionAgent,
    LlmAgent,
    LoopAgent,
    ModelResponse,
    ParallelAgent,
    SequentialAgent,
    tool,
)
from polyport.data.content import Blob, Content, FunctionResponse, Part, model_text
from polyport.data.model import Usage
from polyport.plugins.telemetry import TelemetryPlugin
from polyport.testing import ScriptedModel, call, chunks
from support.spans import Telemetry


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def fails() -> str:
    """Always fails."""
    raise ValueError("no weather today")


def agent(*steps: Any, name: str = "root", **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps, name="mock"), **fields)


async def asked(root: Any, telemetry: Telemetry, message: Any = "hello", **options: Any) -> Any:
    return await App(root, plugins=[telemetry.plugin]).ask(message, session="s1", **options)


USAGE = Usage(
    prompt_token_count=10,
    tool_use_prompt_token_count=2,
    candidates_token_count=5,
    thoughts_token_count=3,
    cached_content_token_count=4,
    total_token_count=20,
)


async def test_core_123_the_span_tree_of_a_run_with_a_tool():
    telemetry = Telemetry()
    root = agent(call("weather", {"city": "Rome"}, "c1"), "Sunny.", description="Knows the weather.", tools=[weather])
    reply = await asked(root, telemetry)
    assert telemetry.tree() == [
        "invoke_agent root",
        "  generate_content mock",
        "  execute_tool weather",
        "  generate_content mock",
    ]
    assert telemetry.attributes("invoke_agent root") == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "root",
        "gen_ai.agent.description": "Knows the weather.",
        "gen_ai.conversation.id": "s1",
        "gcp.vertex.agent.invocation_id": reply.events[0].invocation_id,
    }
    assert telemetry.attributes("execute_tool weather") == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.description": "The weather of a city.",
        "gen_ai.tool.call.id": "c1",
        "gcp.vertex.agent.tool_call_args": "<elided>",
        "gcp.vertex.agent.tool_response": "<elided>",
        "gcp.vertex.agent.event_id": reply.events[1].id,
    }
    models = [span for span in telemetry.spans() if span.name == "generate_content mock"]
    assert [dict(span.attributes or {}) for span in models] == [
        {
            "gen_ai.operation.name": "generate_content",
            "gen_ai.request.model": "mock",
            "gcp.vertex.agent.invocation_id": event.invocation_id,
            "gcp.vertex.agent.event_id": event.id,
            "gen_ai.response.finish_reasons": ("STOP",),
        }
        for event in (reply.events[0], reply.events[2])
    ]
    scope = telemetry.span("invoke_agent root").instrumentation_scope
    assert scope is not None and scope.name == "gcp.vertex.agent"
    assert all(span.status.status_code is StatusCode.UNSET for span in telemetry.spans())
    assert len({span.context.trace_id for span in telemetry.spans() if span.context}) == 1


async def test_core_123_tokens_are_numbers_and_no_finish_reason_is_an_empty_one():
    telemetry = Telemetry()
    await asked(agent(ModelResponse(content=model_text("hi"), usage_metadata=USAGE)), telemetry)
    attributes = telemetry.attributes("generate_content mock")
    assert attributes["gen_ai.response.finish_reasons"] == ("",)
    assert {name: value for name, value in attributes.items() if "usage" in name} == {
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 8,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.reasoning.output_tokens": 3,
    }


async def test_core_123_calls_side_by_side_have_a_span_around_them():
    telemetry = Telemetry(capture_content=True)
    calls = [call("weather", {"city": "Rome"}, "c1"), call("weather", {"city": "Oslo"}, "c2")]
    reply = await asked(agent(calls, "Sunny.", tools=[weather]), telemetry)
    assert telemetry.tree() == [
        "invoke_agent root",
        "  generate_content mock",
        "  execute_tool (merged)",
        "    execute_tool weather",
        "    execute_tool weather",
        "  generate_content mock",
    ]
    assert telemetry.attributes("execute_tool (merged)") == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "(merged tools)",
        "gcp.vertex.agent.event_id": reply.events[1].id,
        "gcp.vertex.agent.tool_response": '[{"result":"sunny in Rome"},{"result":"sunny in Oslo"}]',
    }
    merged = telemetry.span("execute_tool (merged)")
    for span in telemetry.spans():
        if span.name == "execute_tool weather":
            assert span.attributes is not None and span.attributes["gcp.vertex.agent.event_id"] == reply.events[1].id
            assert span.start_time and merged.start_time and merged.start_time <= span.start_time
            assert span.end_time and merged.end_time and span.end_time <= merged.end_time


async def test_core_123_the_span_of_a_call_ends_with_the_call_and_not_with_its_neighbours():
    telemetry = Telemetry()
    over = anyio.Event()
    later: list[int] = []

    async def fast() -> str:
        """Ends first."""
        over.set()
        return "x"

    async def slow() -> str:
        """Goes on."""
        await over.wait()
        later.append(time.time_ns())
        return "x"

    await asked(agent([call("slow", {}, "c1"), call("fast", {}, "c2")], "done", tools=[fast, slow]), telemetry)
    assert (telemetry.span("execute_tool fast").end_time or 0) <= later[0]
    assert (telemetry.span("execute_tool slow").end_time or 0) >= later[0]


async def test_core_123_what_is_said_is_told_only_when_it_is_asked_for():
    for capture in (False, True):
        telemetry = Telemetry(capture_content=capture)
        root = agent(call("weather", {"city": "Rome"}, "c1"), "Sunny.", instruction="You are helpful.", tools=[weather])
        await asked(root, telemetry)
        told = str([dict(span.attributes or {}) for span in telemetry.spans()]) + str(telemetry.logs())
        for text in ("Rome", "sunny", "Sunny", "helpful", "hello"):
            assert (text in told) is capture, text
    attributes = telemetry.attributes("execute_tool weather")
    assert attributes["gcp.vertex.agent.tool_call_args"] == '{"city":"Rome"}'
    assert attributes["gcp.vertex.agent.tool_response"] == '{"result":"sunny in Rome"}'


async def test_core_123_log_events_are_elided_by_default():
    telemetry = Telemetry()
    await asked(agent(call("weather", {"city": "Rome"}, "c1"), "Sunny.", instruction="x", tools=[weather]), telemetry)
    user = ("gen_ai.user.message", {"content": "<elided>"})
    system = ("gen_ai.system.message", {"content": "<elided>"})
    choice = ("gen_ai.choice", {"content": "<elided>", "index": 0, "finish_reason": "STOP"})
    assert telemetry.logs() == [system, user, choice, system, user, user, user, choice]
    models = [span.context.span_id for span in telemetry.spans() if span.name.startswith("generate") and span.context]
    ids = [record.log_record.span_id for record in telemetry.records()]
    assert ids == [models[0]] * 3 + [models[1]] * 5


@pytest.mark.parametrize("value", ["true", "TRUE", "1"])
async def test_core_123_log_events_hold_content_when_the_environment_says_so(value: str, monkeypatch: Any):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    telemetry = Telemetry()
    model = ScriptedModel(ModelResponse(content=model_text("Sunny.")))
    await asked(LlmAgent(name="root", model=model, instruction="You are helpful."), telemetry)
    assert "You are helpful." in model.requests[0].system
    assert telemetry.logs() == [
        ("gen_ai.system.message", {"content": model.requests[0].system}),
        ("gen_ai.user.message", {"content": {"role": "user", "parts": [{"text": "hello"}]}}),
        ("gen_ai.choice", {"content": {"role": "model", "parts": [{"text": "Sunny."}]}, "index": 0}),
    ]
    assert [dict(r.log_record.attributes) for r in telemetry.records()] == [{}] * 3


async def test_core_123_log_events_say_whose_model_it_is():
    for name, system in (("gemini-x", "gcp.gemini"), ("openai/gpt-x", "openai"), ("claude-x", "anthropic")):
        telemetry = Telemetry()
        await asked(LlmAgent(name="root", model=ScriptedModel("hi", name=name)), telemetry)
        assert {r.log_record.attributes["gen_ai.system"] for r in telemetry.records()} == {system}


async def test_core_123_pieces_are_no_choices():
    telemetry = Telemetry(capture_content=True)
    app = App(agent(chunks("Sun", "ny.")), plugins=[telemetry.plugin])
    async with app:
        events = [event async for event in app.stream("hello", session="s1")]
    assert [event.partial for event in events] == [True, True, False]
    assert [name for name, _ in telemetry.logs()].count("gen_ai.choice") == 1
    assert len([span for span in telemetry.spans() if span.name.startswith("generate")]) == 1


async def test_the_bytes_of_files_are_never_told():
    telemetry = Telemetry(capture_content=True)
    secret = Part(inline_data=Blob(mime_type="image/png", data=b"secret bytes"))
    await asked(agent("Nice."), telemetry, Content(role="user", parts=[secret]))
    assert ("gen_ai.user.message", {"content": {"role": "user", "parts": [
        {"inlineData": {"mimeType": "image/png", "data": "<elided>"}}
    ]}}) in telemetry.logs()  # fmt: skip


async def test_core_123_an_error_response_marks_the_span_of_its_tool():
    telemetry = Telemetry()
    await asked(agent(call("fails", {}, "c1"), "Sorry.", tools=[fails]), telemetry)
    span = telemetry.span("execute_tool fails")
    assert span.status.status_code is StatusCode.ERROR
    assert not span.status.description  # it is what the tool said
    assert (span.attributes or {})["error.type"] == "tool_error"
    assert telemetry.span("invoke_agent root").status.status_code is StatusCode.UNSET


async def test_core_123_a_call_of_no_tool_has_a_span_that_says_so():
    telemetry = Telemetry()
    await asked(agent(call("x" * 500, {}, "c1"), "Sorry.", tools=[fails]), telemetry)
    span = telemetry.span(f"execute_tool {'x' * 100}")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["gen_ai.tool.description"] == ""


async def test_core_123_an_error_of_the_model_marks_what_it_went_through():
    telemetry = Telemetry()
    with pytest.raises(RuntimeError):
        await asked(agent(RuntimeError("key sk-123 is bad")), telemetry)
    for name in ("invoke_agent root", "generate_content mock"):
        span = telemetry.span(name)
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "RuntimeError"
        assert "sk-123" not in span.to_json()
    (point,) = telemetry.metrics()["gen_ai.client.operation.duration"]
    assert point.attributes["error.type"] == "RuntimeError"


async def test_core_123_an_answer_that_is_an_error_marks_the_question():
    telemetry = Telemetry()
    await asked(agent(ModelResponse(error_code="SAFETY", error_message="blocked")), telemetry)
    span = telemetry.span("generate_content mock")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "SAFETY")


async def test_core_123_a_pause_is_no_error():
    telemetry = Telemetry()

    @tool(require_confirmation=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    reply = await asked(agent(call("pay", {"amount": 5}, "c1"), tools=[pay]), telemetry)
    assert reply.outcome.status == "paused"
    assert telemetry.span("invoke_agent root").status.status_code is StatusCode.UNSET


async def test_core_123_a_cancellation_is_no_error_and_ends_every_span():
    telemetry = Telemetry()
    began = anyio.Event()

    async def hang() -> str:
        """Never ends."""
        began.set()
        await anyio.sleep_forever()
        return ""

    async def ask() -> None:
        await asked(agent(call("hang", {}, "c1"), tools=[hang]), telemetry)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await began.wait()
        group.cancel_scope.cancel()
    assert telemetry.tree() == ["invoke_agent root", "  generate_content mock", "  execute_tool hang"]
    assert all(span.status.status_code is StatusCode.UNSET for span in telemetry.spans())


async def test_core_123_callbacks_are_outside_of_the_question_to_the_model():
    telemetry = Telemetry()
    current: list[str] = []

    async def note(*args: Any) -> None:
        current.append(getattr(trace.get_current_span(), "name", ""))

    root = agent("hi", before_agent=note, before_model=note, after_model=note, after_agent=note)
    await asked(root, telemetry)
    assert current == ["invoke_agent root"] * 4
    assert not trace.get_current_span().get_span_context().is_valid


async def test_agents_inside_agents_are_spans_inside_spans():
    telemetry = Telemetry()
    helper = agent("help", name="helper")
    first = agent(call("helper", {"request": "x"}, "c1"), "one", name="first", tools=[AgentTool(helper)])
    team = SequentialAgent(
        name="team",
        sub_agents=[first, LoopAgent(name="loop", max_iterations=2, sub_agents=[agent("a", "b", name="again")])],
    )
    await asked(team, telemetry)
    assert telemetry.tree() == [
        "invoke_agent team",
        "  invoke_agent first",
        "    generate_content mock",
        "    execute_tool helper",
        "      invoke_agent helper",
        "        generate_content mock",
        "    generate_content mock",
        "  invoke_agent loop",
        "    invoke_agent again",
        "      generate_content mock",
        "    invoke_agent again",
        "      generate_content mock",
    ]


async def test_parallel_agents_are_beside_each_other():
    telemetry = Telemetry()
    fan = ParallelAgent(name="fan", sub_agents=[agent("a", name="a"), agent("b", name="b")])
    await asked(fan, telemetry)
    tree = telemetry.tree()
    assert sorted(tree) == sorted(
        ["invoke_agent fan", "  invoke_agent a", "  invoke_agent b", *["    generate_content mock"] * 2]
    )
    for name in ("a", "b"):
        assert telemetry.span(f"invoke_agent {name}").parent == telemetry.span("invoke_agent fan").context


async def test_a_transfer_stays_in_the_trace():
    telemetry = Telemetry()
    root = agent(call("transfer_to_agent", {"agent_name": "other"}, "c1"), sub_agents=[agent("hi", name="other")])
    await asked(root, telemetry)
    assert telemetry.tree() == [
        "invoke_agent root",
        "  generate_content mock",
        "  execute_tool transfer_to_agent",
        "  invoke_agent other",
        "    generate_content mock",
    ]


async def test_spans_of_ones_own_are_inside_those_of_the_tool_in_threads_too():
    telemetry = Telemetry()
    tracer = telemetry.tracers.get_tracer("mine")

    def sync() -> str:
        """In a thread."""
        with tracer.start_as_current_span("in a thread"):
            return "x"

    async def aio() -> str:
        """On the loop."""
        with tracer.start_as_current_span("on the loop"):
            await anyio.lowlevel.checkpoint()
            return "x"

    await asked(agent([call("sync", {}, "c1"), call("aio", {}, "c2")], "done", tools=[sync, aio]), telemetry)
    assert telemetry.span("in a thread").parent == telemetry.span("execute_tool sync").context
    assert telemetry.span("on the loop").parent == telemetry.span("execute_tool aio").context


async def test_a_run_is_inside_the_span_that_is_current_where_it_is_asked_for():
    telemetry = Telemetry()
    app = App(agent("a", "b"), plugins=[telemetry.plugin])
    with telemetry.tracers.get_tracer("mine").start_as_current_span("job") as job:
        await app.ask("hello")
        assert trace.get_current_span() is job
    await app.ask("hello")
    assert telemetry.tree() == [
        "job",
        "  invoke_agent root",
        "    generate_content mock",
        "invoke_agent root",
        "  generate_content mock",
    ]


class Pending:
    """Something to wait for that never comes."""

    def __await__(self) -> Any:
        yield


async def test_FR_225_no_noise_when_what_was_begun_in_one_context_is_dropped_in_another(caplog: Any):
    """The complaint of other kits is `Failed to detach context`, and a context that is another task's."""
    telemetry = Telemetry()
    tracer = telemetry.tracers.get_tracer("mine")

    async def never() -> None:
        await Pending()

    async def work(ctx: Any) -> None:
        dropped = telemetry.plugin.watch_agent(ctx, never)
        contextvars.copy_context().run(dropped.send, None)
        with tracer.start_as_current_span("else") as span:
            dropped.close()
            assert trace.get_current_span() is span

    caplog.set_level(logging.DEBUG)
    await asked(FunctionAgent(name="works", function=work), telemetry)
    assert not [r for r in caplog.records if r.name.startswith("opentelemetry")]
    assert [span.name for span in telemetry.spans()] == ["invoke_agent works", "invoke_agent works", "else"]


async def test_core_123_metrics_of_questions_to_models():
    telemetry = Telemetry()
    response = ModelResponse(content=model_text("hi"), usage_metadata=USAGE, model_version="mock-1")
    root = LlmAgent(name="root", model=ScriptedModel(response, name="gemini-mock"))
    await asked(root, telemetry)
    about = {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.request.model": "gemini-mock",
        "gen_ai.response.model": "mock-1",
        "gen_ai.system": "gcp.gemini",
    }
    found = telemetry.metrics()
    (duration,) = found["gen_ai.client.operation.duration"]
    assert (dict(duration.attributes), duration.count) == (about, 1)
    assert duration.explicit_bounds[:2] == (0.01, 0.02)
    tokens = {point.attributes["gen_ai.token.type"]: point for point in found["gen_ai.client.token.usage"]}
    assert {kind: point.sum for kind, point in tokens.items()} == {"input": 12, "output": 8}
    assert dict(tokens["input"].attributes) == {**about, "gen_ai.token.type": "input"}


async def test_without_an_sdk_nothing_happens():
    reply = await App(
        agent(call("weather", {"city": "Rome"}, "c1"), "Sunny.", tools=[weather]), plugins=[TelemetryPlugin()]
    ).ask("hello")
    assert reply.text == "Sunny."


async def test_what_has_no_json_form_does_not_stop_a_run():
    telemetry = Telemetry(capture_content=True)

    def odd(ctx: Any, request: Any) -> None:
        response = FunctionResponse(name="x", response={"odd": object()})
        request.contents = [
            *request.contents,
            Content(role="user", parts=[Part(text="hi"), Part(function_response=response)]),
        ]

    reply = await asked(agent("ok", before_model=odd), telemetry)
    assert reply.text == "ok"
    assert ("gen_ai.user.message", {"content": {"role": "user", "parts": [{"text": "hi"}]}}) in telemetry.logs()
