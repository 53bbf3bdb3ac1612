"""What OpenTelemetry's own SDK saw of a run: a plugin on in-memory exporters, and spans as a tree."""

from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from polyport.plugins.telemetry import TelemetryPlugin


class Telemetry:
    """`plugin` is for the app; `spans()`, `logs()` and `metrics()` are what was exported."""

    def __init__(self, **options: Any) -> None:
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._logs = InMemoryLogRecordExporter()
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self._logs))
        self._metrics = InMemoryMetricReader()
        self.meters = MeterProvider([self._metrics], shutdown_on_exit=False)
        self.plugin = TelemetryPlugin(
            tracer_provider=self.tracers, meter_provider=self.meters, logger_provider=self.loggers, **options
        )

    def spans(self) -> list[ReadableSpan]:
        """The ended spans, by start."""
        return sorted(self._spans.get_finished_spans(), key=lambda span: span.start_time or 0)

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans() if span.name == name]
        return found

    def attributes(self, name: str) -> dict[str, Any]:
        return dict(self.span(name).attributes or {})

    def tree(self) -> list[str]:
        """The names of the spans, indented below their parents."""
        spans = self.spans()
        ids = {span.context.span_id for span in spans if span.context}

        def lines(parent: int | None, depth: int) -> list[str]:
            found: list[str] = []
            for span in spans:
                above = span.parent.span_id if span.parent is not None else None
                if span.context and (above == parent or (parent is None and above not in ids)):
                    found += ["  " * depth + span.name, *lines(span.context.span_id, depth + 1)]
            return found

        return lines(None, 0)

    def logs(self) -> list[tuple[str, Any]]:
        """(event name, body) of the log events, in order."""
        return [(log.log_record.event_name or "", log.log_record.body) for log in self.records()]

    def records(self) -> list[Any]:
        return list(self._logs.get_finished_logs())

    def metrics(self) -> dict[str, list[Any]]:
        """Metric name -> its data points."""
        data = self._metrics.get_metrics_data()
        found: dict[str, list[Any]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = list(metric.data.data_points)
        return found
