"""Providers that export over OTLP/HTTP, set as the global ones. Called by `telemetry_from_env` only, for its imports are heavy.

Endpoints, headers, timeouts, sampling and batching are read from the environment by the SDK itself.
"""

from collections.abc import Callable, Collection
from typing import Any

import anyio.to_thread
from opentelemetry import _logs, metrics, trace
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from polyport.plugins.telemetry import TelemetryPlugin

FLUSH_MS = 5_000
"""How long the export of what is left may take when an app is closed, per signal."""


class ExportedTelemetry(TelemetryPlugin):
    """Exports these of TRACES, METRICS and LOGS. What is set already stays. `service` names the process where the environment
    does not."""

    def __init__(self, signals: Collection[str], service: str) -> None:
        resource = Resource.create({"service.name": service} if service else {})
        self._flushes: list[Callable[[int], Any]] = []
        if "TRACES" in signals and not isinstance(trace.get_tracer_provider(), TracerProvider):
            tracers = TracerProvider(resource=resource)
            tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            trace.set_tracer_provider(tracers)
            self._flushes.append(tracers.force_flush)
        if "METRICS" in signals and not isinstance(metrics.get_meter_provider(), MeterProvider):
            meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
            metrics.set_meter_provider(meters)
            self._flushes.append(meters.force_flush)
        if "LOGS" in signals and not isinstance(_logs.get_logger_provider(), LoggerProvider):
            loggers = LoggerProvider(resource=resource)
            loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
            _logs.set_logger_provider(loggers)
            self._flushes.append(loggers.force_flush)
        super().__init__()

    async def close(self) -> None:
        """Export what is left."""
        for flush in self._flushes:
            await anyio.to_thread.run_sync(flush, FLUSH_MS, abandon_on_cancel=True)
