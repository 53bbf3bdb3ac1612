"""What feeds the trace store: processors for the OpenTelemetry SDK, and how they get to the provider in use (FR-225).

Used by the mount at start, for only then the user's own provider is known. Needs the SDK. Processors are called by every span
and log record that ends, in any thread; they never wait and never raise.
"""

from datetime import UTC, datetime
from typing import Any, cast

from opentelemetry import _logs, trace
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor, ReadWriteLogRecord
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

from polyport.plugins.telemetry import TelemetryPlugin, owner_of
from polyport.plugins.telemetry_events import CHOICE, ELIDED, SYSTEM
from polyport.protocols.debug.store import LogShape, SpanShape, TraceStore

_NS = 1_000_000_000


class StoreSpans(SpanProcessor):
    """Spans into a trace store. For a provider of your own: `provider.add_span_processor(...)`."""

    def __init__(self, store: TraceStore) -> None:
        self._store = store

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        ids = span.get_span_context()
        self._store.begin(format_trace_id(ids.trace_id), format_span_id(ids.span_id), owner_of(parent_context))

    def on_end(self, span: ReadableSpan) -> None:
        ids = span.get_span_context()
        if ids is None:
            return
        parent = span.parent
        self._store.end(
            SpanShape(
                name=span.name,
                start_time=span.start_time or 0,
                end_time=span.end_time or 0,
                span_id=format_span_id(ids.span_id),
                trace_id=format_trace_id(ids.trace_id),
                parent_span_id=format_span_id(parent.span_id) if parent is not None else None,
                attributes=dict(span.attributes or {}),
                logs=[],
            )
        )


class StoreLogs(LogRecordProcessor):
    """Log records into a trace store, those of a span only."""

    def __init__(self, store: TraceStore) -> None:
        self._store = store

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        record = log_record.log_record
        if record.span_id and record.trace_id:
            self._store.log(
                LogShape(
                    body=_shown(record.event_name or "", record.body),
                    observed_timestamp=rfc3339(record.observed_timestamp or 0),
                    trace_id=format_trace_id(record.trace_id),
                    span_id=format_span_id(record.span_id),
                    event_name=record.event_name or "",
                )
            )

    def shutdown(self) -> None:
        """Nothing is held."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


def _shown(event: str, body: Any) -> Any:
    """The body as the page of ADK validates it: what was said is a content, also where its words are left out."""
    if event == SYSTEM or not isinstance(body, dict) or "content" not in body:
        return cast("Any", body)
    told = cast("dict[str, Any]", body)
    said: Any = {"parts": [{"text": ELIDED}]} if told["content"] == ELIDED else told["content"]
    content = cast("dict[str, Any]", said or {"parts": []})  # an answer that is only an error says nothing
    return {**told, "content": {"role": "model" if event == CHOICE else "user", **content}}


def connect_store(telemetry: TelemetryPlugin, store: TraceStore) -> None:
    """Let the store see what the plugin makes. The providers in use get processors when they are the SDK's; where there are
    none yet, the plugin gets providers of its own, which export nothing."""
    spans: Any = telemetry.tracer_provider or trace.get_tracer_provider()
    if not isinstance(spans, TracerProvider):
        spans = TracerProvider(shutdown_on_exit=False)
    logs: Any = telemetry.logger_provider or _logs.get_logger_provider()
    if not isinstance(logs, LoggerProvider):
        logs = LoggerProvider(shutdown_on_exit=False)
    spans.add_span_processor(StoreSpans(store))
    logs.add_log_record_processor(StoreLogs(store))
    telemetry.use(spans, logs)


def rfc3339(ns: int) -> str:
    """A time in epoch nanoseconds as text, with nine digits."""
    seconds, rest = divmod(ns, _NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"
