"""What is counted beside the plugin: runs, HTTP requests, and how late the event loop is.

Made by Metrics. A timer that asks for itself again is all that runs. Labels are bounded: patterns of routes, known methods, app
names. Needs prometheus_client.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from polyport.plugins.metrics import SECONDS, MetricsPlugin
from polyport.ports.runs import Run, Runs

LAG_EVERY_S = 1.0
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})
_OTHER = "other"


class Counts:
    """A registry of its own, and the plugin that counts into it as well."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.plugin = MetricsPlugin(registry)
        self._active = Gauge("polyport_runs_active", "Runs that are alive", registry=registry)
        self._runs = Counter("polyport_runs", "Runs that ended, by outcome", ("app", "outcome"), registry=registry)
        labels = ("route", "method", "status")
        self._requests = Counter("polyport_http_requests", "HTTP requests", labels, registry=registry)
        self._request_seconds = Histogram(
            "polyport_http_request_seconds",
            "How long they took, streams to their end",
            ("route", "method"),
            buckets=SECONDS,
            registry=registry,
        )
        self._lag = Gauge("polyport_event_loop_lag_seconds", "How late the event loop was lately", registry=registry)

    def runs(self, runs: Runs) -> None:
        """Count the runs of an app from now on."""
        self._active.set_function(lambda: runs.active)
        runs.on_end(self._ended)

    def _ended(self, run: Run) -> None:
        outcome = run.outcome
        self._runs.labels(run.key.app, outcome.status if outcome is not None else _OTHER).inc()

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered. `route` is "" for a path that nothing is served at."""
        method = method if method in _METHODS else _OTHER
        self._requests.labels(route, method, str(status)).inc()
        self._request_seconds.labels(route, method).observe(max(0.0, seconds))

    def text(self) -> tuple[str, bytes]:
        """(media type, body) for Prometheus."""
        return CONTENT_TYPE_LATEST, generate_latest(self.registry)

    @contextmanager
    def lag(self) -> Generator[None]:
        """Measure the running event loop inside the block."""
        loop = asyncio.get_running_loop()

        def look(due: float) -> None:
            nonlocal timer
            now = loop.time()
            self._lag.set(max(0.0, now - due))
            timer = loop.call_at(now + LAG_EVERY_S, look, now + LAG_EVERY_S)

        begin = loop.time()
        timer = loop.call_at(begin, look, begin)
        try:
            yield
        finally:
            timer.cancel()
