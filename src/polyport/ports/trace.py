"""The trace to which a request from outside belongs, for whoever measures the run that it starts.

Set by the host (and by other edges) in the task that serves the request; tasks that begin there inherit it, so that a run knows
it without being told. The values are a stranger's text. Never read by the engine.
"""

from collections.abc import Mapping
from contextvars import ContextVar

TRACE_HEADERS = ("traceparent", "tracestate")
"""The headers of W3C Trace Context."""
NO_TRACE: Mapping[str, str] = {}
INCOMING: ContextVar[Mapping[str, str]] = ContextVar("polyport_incoming_trace", default=NO_TRACE)
"""Those of the request, without the ones that it does not have."""
