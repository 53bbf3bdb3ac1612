"""TraceStore: the traces of the newest runs, in memory and within a number of traces and of bytes (spec rest 5.1, 11.14).

Fed by the processors, from any thread; read by the trace routes. Keeps with every span whose session it belongs to, for nobody
else may see it. The trace that was used longest ago goes first. Knows nothing of OpenTelemetry and of HTTP.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import Struct, field, structs

from polyport import codec
from polyport.data.session import SessionKey

CONVERSATION, EVENT = "gen_ai.conversation.id", "gcp.vertex.agent.event_id"
OPERATION = "gen_ai.operation.name"
OF_EVENTS = ("execute_tool", "generate_content")
"""The operations that a single event stands for."""
_OVERHEAD = 400
"""What a span or log costs besides its data, about, in bytes."""
_MAX_DEPTH = 16


class LogShape(Struct, frozen=True):
    """A log event of a span, as the page reads it (spec rest 5.2)."""

    body: Any
    observed_timestamp: str
    trace_id: str
    span_id: str
    event_name: str


class SpanShape(Struct, frozen=True):
    """A span, as the page reads it (spec rest 9.5): times in epoch nanoseconds, ids in hex, null for the parent of a root."""

    name: str
    start_time: int
    end_time: int
    span_id: str
    trace_id: str
    parent_span_id: str | None
    attributes: dict[str, Any]
    logs: list[LogShape]


class Trace(Struct):
    """All that is kept of one trace."""

    spans: list[SpanShape] = field(default_factory=list[SpanShape])
    logs: dict[str, list[LogShape]] = field(default_factory=dict[str, list[LogShape]])
    """By span id; they come before their span has ended."""
    owners: dict[str, SessionKey] = field(default_factory=dict[str, SessionKey])
    """Span id -> the session of the run in which it is."""
    size: int = 0

    def seen_by(self, key: SessionKey) -> list[SpanShape]:
        """The spans of a session's runs. A span of no run, such as that of the server around it, is shown when the trace has
        no run of another session."""
        alone = all(owner == key for owner in self.owners.values())
        shown = [s for s in self.spans if self.owners.get(s.span_id) == key or (alone and s.span_id not in self.owners)]
        ids = {span.span_id for span in shown}
        return [self._whole(span, ids) for span in shown]

    def _whole(self, span: SpanShape, ids: set[str]) -> SpanShape:
        parent = (
            span.parent_span_id if span.parent_span_id in ids else None
        )  # a page shows no span whose parent is not there
        return structs.replace(span, parent_span_id=parent, logs=self.logs.get(span.span_id, []))


class TraceStore:
    """`capacity` traces with `max_bytes` altogether. Texts within a span or log are cut at `text_chars`."""

    def __init__(self, capacity: int, max_bytes: int, text_chars: int) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._text_chars = text_chars
        self._lock = threading.Lock()
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._sessions: dict[str, dict[SessionKey, dict[str, None]]] = {}
        self._events: dict[str, dict[str, None]] = {}
        """Event id -> the traces that have spans of it."""
        self._size = 0

    @property
    def size(self) -> int:
        """What is kept, in bytes, about."""
        return self._size

    def __len__(self) -> int:
        return len(self._traces)

    # ---- writing

    def begin(self, trace_id: str, span_id: str, owner: SessionKey | None) -> None:
        """A span has begun in a run of this session; one outside of any run makes no trace worth keeping."""
        if owner is None:
            return
        with self._lock:
            trace = self._traces.get(trace_id)
            if trace is None:
                trace = self._traces[trace_id] = Trace()
            if self._grow(trace_id, trace, _OVERHEAD):
                trace.owners[span_id] = owner
                self._sessions.setdefault(owner.id, {}).setdefault(owner, {})[trace_id] = None

    def end(self, span: SpanShape) -> None:
        """A span has ended. It is not kept when its trace is unknown, or takes up all the room alone."""
        span = structs.replace(span, attributes=self._cut(span.attributes, 0))
        size = _OVERHEAD + len(codec.encode(span.attributes))
        with self._lock:
            trace = self._traces.get(span.trace_id)
            if trace is not None and self._grow(span.trace_id, trace, size):
                trace.spans.append(span)
                event = span.attributes.get(EVENT)
                if isinstance(event, str) and event:
                    self._events.setdefault(event, {})[span.trace_id] = None

    def log(self, log: LogShape) -> None:
        """A log event of a span, ended or not. Kept on the same terms."""
        log = structs.replace(log, body=self._cut(log.body, 0))
        size = _OVERHEAD + len(codec.encode(log.body))
        with self._lock:
            trace = self._traces.get(log.trace_id)
            if trace is not None and self._grow(log.trace_id, trace, size):
                trace.logs.setdefault(log.span_id, []).append(log)

    def _grow(self, trace_id: str, trace: Trace, size: int) -> bool:
        """Make room, at the cost of other traces; whether there is room now."""
        self._traces.move_to_end(trace_id)
        while len(self._traces) > 1 and (len(self._traces) > self._capacity or self._size + size > self._max_bytes):
            self._forget(*self._traces.popitem(last=False))
        if self._size + size > self._max_bytes:
            return False
        trace.size += size
        self._size += size
        return True

    def _forget(self, trace_id: str, trace: Trace) -> None:
        self._size -= trace.size
        for owner in set(trace.owners.values()):
            of_id = self._sessions[owner.id]
            of_id[owner].pop(trace_id, None)
            if not of_id[owner]:
                del of_id[owner]
            if not of_id:
                del self._sessions[owner.id]
        for span in trace.spans:
            traces = self._events.get(span.attributes.get(EVENT, ""))
            if traces is not None and trace_id in traces:
                del traces[trace_id]
                if not traces:
                    del self._events[span.attributes[EVENT]]

    def _cut(self, value: Any, depth: int) -> Any:
        """The same data with long texts cut, and with nothing that JSON cannot hold."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict | list | tuple) and depth == _MAX_DEPTH:
            return "..."
        if isinstance(value, dict):
            return {self._text(str(k)): self._cut(v, depth + 1) for k, v in cast("dict[Any, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self._cut(item, depth + 1) for item in cast("Sequence[Any]", value)]
        return value if value is None or isinstance(value, bool | int | float) else self._text(str(value))

    def _text(self, text: str) -> str:
        if len(text) > self._text_chars:
            text = f"{text[: self._text_chars]}... ({len(text)} characters)"
        return text if text.isascii() else text.encode("utf-8", "replace").decode()

    # ---- reading

    def sessions(self, session_id: str) -> list[SessionKey]:
        """The sessions of that id of which there are traces: every user may have one."""
        with self._lock:
            return list(self._sessions.get(session_id, ()))

    def of_session(self, key: SessionKey) -> list[SpanShape]:
        """The spans of a session's runs, sorted by start."""
        with self._lock:
            ids = self._sessions.get(key.id, {}).get(key, ())
            found = [span for trace in self._use(ids) for span in trace.seen_by(key)]
        return sorted(found, key=lambda span: span.start_time)

    def of_event(self, event_id: str) -> list[tuple[SessionKey, SpanShape]]:
        """The spans of an event that stand for it, with their owners, sorted by start."""
        found: list[tuple[SessionKey, SpanShape]] = []
        with self._lock:
            for trace in self._use(self._events.get(event_id, ())):
                for span in trace.spans:
                    owner = trace.owners.get(span.span_id)
                    attributes = span.attributes
                    wanted = attributes.get(EVENT) == event_id and attributes.get(OPERATION) in OF_EVENTS
                    if wanted and owner is not None:
                        found.append((owner, structs.replace(span, logs=trace.logs.get(span.span_id, []))))
        return sorted(found, key=lambda pair: pair[1].start_time)

    def _use(self, ids: Any) -> Iterator[Trace]:
        for trace_id in list(ids):
            self._traces.move_to_end(trace_id)
            yield self._traces[trace_id]
