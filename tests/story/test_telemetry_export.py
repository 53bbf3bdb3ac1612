"""Telemetry by the environment: what leaves the process over OTLP, received by a real HTTP server (spec core 10)."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from polyport.errors import ConfigError
from polyport.plugins.telemetry_env import telemetry_from_env

ROOT = Path(__file__).resolve().parents[2]

RUN = """
import anyio, json, os, sys
from polyport import App, LlmAgent
from polyport.plugins.telemetry_env import telemetry_from_env
from polyport.testing import ScriptedModel

plugin = telemetry_from_env()

async def main():
    app = App(LlmAgent(name="root", model=ScriptedModel("secret answer", name="mock")), plugins=[plugin] if plugin else [])
    async with app:
        await app.ask("secret question", session="s1")

anyio.run(main)
print(json.dumps(sorted(name for name in sys.modules if name.startswith("opentelemetry"))), flush=True)
os._exit(0)  # what was not exported when the app was closed is lost
"""


class Collector:
    """What came in: path -> decoded requests, and the headers of all."""

    def __init__(self) -> None:
        self.url = ""
        self.got: dict[str, list[Any]] = {}
        self.headers: list[Any] = []

    async def take(self, request: web.Request) -> web.Response:
        kinds = {
            "/v1/traces": ExportTraceServiceRequest,
            "/v1/metrics": ExportMetricsServiceRequest,
            "/v1/logs": ExportLogsServiceRequest,
        }
        decoded = kinds[request.path]()
        decoded.ParseFromString(await request.read())
        self.got.setdefault(request.path, []).append(decoded)
        self.headers.append(request.headers)
        return web.Response()

    @property
    def spans(self) -> list[Any]:
        requests = self.got.get("/v1/traces", [])
        return [s for r in requests for rs in r.resource_spans for ss in rs.scope_spans for s in ss.spans]


@asynccontextmanager
async def collecting() -> AsyncGenerator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/{signal}", collector.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


async def run(**environ: str) -> list[str]:
    """Run the script in a process of its own; the OpenTelemetry modules that it loaded."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = await anyio.run_process([sys.executable, "-c", RUN], env={**clean, **environ}, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr, done.stderr.decode()
    return json.loads(done.stdout)


async def test_core_123_spans_metrics_and_logs_go_where_the_environment_says():
    async with collecting() as collector:
        await run(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_EXPORTER_OTLP_HEADERS="x-key=k1")
        assert sorted(collector.got) == ["/v1/logs", "/v1/metrics", "/v1/traces"]
        assert sorted(span.name for span in collector.spans) == ["generate_content mock", "invoke_agent root"]
        assert all(headers["x-key"] == "k1" for headers in collector.headers)
        (resource,) = {
            kv.value.string_value
            for request in collector.got["/v1/traces"]
            for spans in request.resource_spans
            for kv in spans.resource.attributes
            if kv.key == "service.name"
        }
        assert resource == "polyport"
        assert "secret" not in str(collector.got)
        metrics = {
            m.name
            for request in collector.got["/v1/metrics"]
            for rm in request.resource_metrics
            for sm in rm.scope_metrics
            for m in sm.metrics
        }
        assert "gen_ai.client.operation.duration" in metrics


async def test_core_123_each_signal_may_have_an_endpoint_of_its_own():
    async with collecting() as collector:
        await run(
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.url}/v1/traces",
            OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=f"{collector.url}/v1/logs",
            OTEL_LOGS_EXPORTER="none",
            OTEL_SERVICE_NAME="mine",
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true",
        )
        assert sorted(collector.got) == ["/v1/traces"]
        assert '"mine"' in str(collector.got) and "polyport" not in [
            kv.value.string_value
            for request in collector.got["/v1/traces"]
            for spans in request.resource_spans
            for kv in spans.resource.attributes
        ]


@pytest.mark.parametrize(
    "environ", [{}, {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}]
)
async def test_without_a_wish_for_telemetry_nothing_of_it_is_loaded(environ: dict[str, str]):
    assert await run(**environ) == []


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "OTEL_TRACES_EXPORTER is 'jaeger'; it may be otlp or none"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; only http/protobuf",
        ),
    ],
)
def test_what_is_not_there_is_an_error(environ: dict[str, str], said: str):
    with pytest.raises(ConfigError, match=said):
        telemetry_from_env(environ)


def test_no_import_of_polyport_loads_opentelemetry():
    """Whoever does without pays nothing."""
    code = "import sys; from polyport import App, LlmAgent; App(LlmAgent(name='a', model='demo'), protocols=['rest', 'a2a'])"
    show = "print([m for m in sys.modules if m.startswith(('opentelemetry', 'prometheus'))])"
    done = subprocess.run([sys.executable, "-c", f"{code}; {show}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
