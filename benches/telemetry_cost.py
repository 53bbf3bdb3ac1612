"""What telemetry costs: CPU per `POST /run`, in process, without it and with its parts. `python benches/telemetry_cost.py`.

The agents are those of our_server.py. Rounds of all kinds take turns, so that a busy machine disturbs all alike; the best
round of each counts.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import script
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from our_server import Scripted, ToolCaller

from polyport import App, LlmAgent
from polyport.plugins.telemetry import TelemetryPlugin
from polyport.protocols.debug.mount import Debug
from polyport.protocols.metrics.mount import Metrics
from polyport.testing import connect

ROUNDS, REQUESTS = 15, 150


class Dropping(InMemorySpanExporter):
    """Takes spans and keeps none."""

    def export(self, spans: Any) -> Any:
        result = super().export(spans)
        self.clear()
        return result


def agents() -> list[LlmAgent]:
    return [
        LlmAgent(name="one", model=Scripted(), instruction=script.INSTRUCTION),
        LlmAgent(name="tool", model=ToolCaller(), instruction=script.INSTRUCTION, tools=[script.weather]),
    ]


def exporting() -> TelemetryPlugin:
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(Dropping()))
    return TelemetryPlugin(tracer_provider=tracers, meter_provider=MeterProvider())


def debugging() -> App:
    debug = Debug()
    return App(agents(), plugins=list(debug.plugins), protocols=["rest", debug])


def counting() -> Any:
    metrics = Metrics()
    return App(agents(), plugins=list(metrics.plugins), protocols=["rest", metrics]), metrics.watches


KINDS: dict[str, Callable[[], Any]] = {
    "off": lambda: App(agents()),
    "plugin, no SDK": lambda: App(agents(), plugins=[TelemetryPlugin()]),
    "plugin, SDK, batched export": lambda: App(agents(), plugins=[exporting()]),
    "Debug()": debugging,
    "Metrics()": counting,
}


async def ask(asgi: Any, method: str, path: str, body: Any) -> None:
    sent = json.dumps(body).encode()
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "scheme": "http",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")], "client": ("127.0.0.1", 1),
    }  # fmt: skip
    status = 0

    async def receive() -> Any:
        return {"type": "http.request", "body": sent}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    await asgi(scope, receive, send)
    assert status == 200, status


async def main() -> None:
    best: dict[tuple[str, str], float] = {}
    made = {name: make() for name, make in KINDS.items()}
    hosts = {name: app[0].asgi.watched_by(app[1]) if isinstance(app, tuple) else app.asgi for name, app in made.items()}
    async with AsyncExitStack() as stack:
        for host in hosts.values():
            await stack.enter_async_context(connect(host))
        for turn in range(ROUNDS):
            for name, host in hosts.items():
                for agent in ("one", "tool"):
                    spent = await measure(host, agent, turn)
                    best[name, agent] = min(spent, best.get((name, agent), spent))
    print(f"{'':30}{'one answer':>14}{'with a tool':>14}   (CPU us per POST /run)")
    for name in KINDS:
        print(f"{name:30}{best[name, 'one']:14.0f}{best[name, 'tool']:14.0f}")


async def measure(host: Any, agent: str, turn: int) -> float:
    """CPU microseconds per run, each in a new session."""
    for n in range(REQUESTS):
        await ask(host, "POST", f"/apps/{agent}/users/u/sessions/s{turn}-{n}", {})
    body = {"appName": agent, "userId": "u", "newMessage": {"role": "user", "parts": [{"text": "hi"}]}}
    began = time.process_time()
    for n in range(REQUESTS):
        await ask(host, "POST", "/run", {**body, "sessionId": f"s{turn}-{n}"})
    return (time.process_time() - began) / REQUESTS * 1e6


if __name__ == "__main__":
    asyncio.run(main())
