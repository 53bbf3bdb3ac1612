"""Numbers for Prometheus: what is counted, by which labels, and who may see it (spec rest 11.33)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from polyport import App, LlmAgent, ModelResponse, tool
from polyport.data.content import model_text
from polyport.data.limits import Limits
from polyport.data.model import Usage
from polyport.protocols.metrics.mount import Metrics
from polyport.testing import ScriptedModel, call, connect
from support.debugging import Said
from support.talk import Talk

USAGE = Usage(prompt_token_count=7, candidates_token_count=2, thoughts_token_count=3, cached_content_token_count=4)


def weather(city: str) -> str:
    """The weather of a city."""
    if city == "nowhere":
        raise ValueError("no such city")
    return f"sunny in {city}"


def agent(*steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name="top", model=ScriptedModel(*steps, name="mock"), tools=[weather], **fields)


@asynccontextmanager
async def measured(agents: Any, **options: Any) -> AsyncGenerator[Talk]:
    metrics = Metrics()
    app = App(agents, plugins=list(metrics.plugins), protocols=["rest", metrics], **options)
    async with connect(app.asgi.watched_by(metrics.watches)) as client:
        yield Talk(client, "top", app)


async def numbers(talk: Talk, name: str, **headers: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric: label values in the order of the names -> value."""
    response = await talk.client.get("/metrics", headers={k.replace("_", "-"): v for k, v in headers.items()})
    assert response.status == 200, response.text
    assert response.headers["content-type"].startswith("text/plain; version=")
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            if sample.name == name:
                found[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


async def test_runs_models_tokens_and_tools_are_counted():
    calls = [call("weather", {"city": "Rome"}, "c1"), call("weather", {"city": "nowhere"}, "c2"), call("x", {}, "c3")]
    async with measured(agent(calls, ModelResponse(content=model_text("Sunny."), usage_metadata=USAGE))) as talk:
        await talk.create()
        await talk.run()
        assert await numbers(talk, "polyport_runs_total") == {("top", "finished"): 1}
        assert await numbers(talk, "polyport_model_calls_total") == {("mock", "ok"): 2}
        assert await numbers(talk, "polyport_model_call_seconds_count") == {("mock",): 2}
        assert await numbers(talk, "polyport_model_tokens_total") == {
            ("input", "mock"): 7,
            ("output", "mock"): 5,
            ("thoughts", "mock"): 3,
            ("cached", "mock"): 4,
        }
        assert await numbers(talk, "polyport_tool_calls_total") == {
            ("ok", "weather"): 1,
            ("error", "weather"): 1,
            ("error", "(unknown)"): 1,
        }
        assert await numbers(talk, "polyport_tool_call_seconds_count") == {("weather",): 2, ("(unknown)",): 1}


async def test_runs_are_counted_by_how_they_ended():
    @tool(require_confirmation=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    began = anyio.Event()

    async def hang(request: Any, on_partial: Any) -> None:
        began.set()
        await anyio.sleep_forever()

    steps = [call("pay", {}, "c1"), RuntimeError("broken"), ModelResponse(error_code="SAFETY"), hang]
    root = LlmAgent(name="top", model=ScriptedModel(*steps, name="mock"), tools=[pay])
    async with measured(root) as talk:
        for session in ("s1", "s2", "s3", "s4"):
            await talk.at(session).create()
        await talk.run()
        assert (await talk.client.post("/run", json=talk.at("s2").body())).status == 500
        await talk.at("s3").run()
        assert await numbers(talk, "polyport_runs_active") == {(): 0}
        started = await talk.client.post("/run?detach=true", json=talk.at("s4").body())
        await began.wait()
        assert await numbers(talk, "polyport_runs_active") == {(): 1}
        run_id = started.json()["invocationId"]
        assert (await talk.client.post(f"/runs/{run_id}:cancel")).status == 200
        assert await numbers(talk, "polyport_runs_total") == {
            ("top", "paused"): 1,
            ("top", "failed"): 1,
            ("top", "finished"): 1,
            ("top", "cancelled"): 1,
        }
        assert await numbers(talk, "polyport_runs_active") == {(): 0}
        assert await numbers(talk, "polyport_model_calls_total") == {
            ("mock", "ok"): 1,
            ("mock", "error"): 2,
            ("mock", "cancelled"): 1,
        }


async def test_a_run_that_took_too_long_has_failed():
    async def hang(request: Any, on_partial: Any) -> None:
        await anyio.sleep_forever()

    async with measured(agent(hang), limits=Limits(run_timeout_s=0.01)) as talk:
        await talk.create()
        assert (await talk.client.post("/run", json=talk.body())).status == 504
        assert await numbers(talk, "polyport_runs_total") == {("top", "failed"): 1}


async def test_requests_are_counted_by_pattern_and_status():
    async with measured(agent("hi")) as talk:
        await talk.create()
        await talk.run()
        for path in ("/apps/top/users/u1/sessions/s1", "/apps/top/users/u1/sessions/nope", "/nowhere", "/else/where"):
            await talk.client.get(path)
        await talk.client.request("BREW", "/run")
        await talk.client.get("/run")
        session = "/apps/{app}/users/{user}/sessions/{session}"
        assert await numbers(talk, "polyport_http_requests_total") == {
            ("POST", session, "200"): 1,
            ("POST", "/run", "200"): 1,
            ("GET", session, "200"): 1,
            ("GET", session, "404"): 1,
            ("GET", "", "404"): 2,
            ("other", "", "405"): 1,
            ("GET", "", "405"): 1,
        }
        assert ("GET", "/metrics") in await numbers(talk, "polyport_http_request_seconds_count")


async def test_a_client_that_hangs_up_is_counted():
    began = anyio.Event()

    async def hang(request: Any, on_partial: Any) -> None:
        began.set()
        await anyio.sleep_forever()

    async with measured(agent(hang)) as talk:
        await talk.create()
        async with talk.client.stream("POST", "/run_sse", json=talk.body()):
            await began.wait()
        assert (await numbers(talk, "polyport_runs_total")) == {("top", "cancelled"): 1}
        found = await numbers(talk, "polyport_http_requests_total")
        assert [(key, n) for key, n in found.items() if "/run_sse" in key] == [(("POST", "/run_sse", "200"), 1)]


async def test_the_event_loop_is_measured():
    async with measured(agent()) as talk:
        await anyio.lowlevel.checkpoint()
        (lag,) = (await numbers(talk, "polyport_event_loop_lag_seconds")).values()
        assert lag > 0


async def test_metrics_are_for_those_who_administer():
    async with measured(agent("hi"), auth=Said()) as talk:
        assert (await talk.client.get("/metrics")).status == 401
        assert (await talk.client.get("/metrics", headers={"x-user": "ann"})).status == 403


async def test_there_are_none_unless_asked_for():
    async with connect(App(agent())) as client:
        assert (await client.get("/metrics")).status == 404


async def test_two_apps_of_one_process_count_for_themselves():
    async with measured(agent("hi")) as one, measured(agent()) as two:
        await one.create()
        await one.run()
        assert await numbers(one, "polyport_runs_total") == {("top", "finished"): 1}
        assert await numbers(two, "polyport_runs_total") == {}


@pytest.mark.parametrize("path", ["/metrics", "/api/metrics"])
async def test_the_process_is_there_too(path: str):
    async with measured(agent()) as talk:
        assert "process_cpu_seconds_total" in (await talk.client.get(path)).text
