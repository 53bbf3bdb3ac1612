"""The trace to which a request from outside belongs, for whoever measures the run that it starts; and the one to which the
requests of a run belong, for whom they reach.

INCOMING is set by the host (and by other edges) in the task that serves the request, OUTGOING by who measures the run; tasks
that begin there inherit it, so that nobody needs to be told. What comes in is a stranger's text. Never read by the engine.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar

TRACE_HEADERS = ("traceparent", "tracestate")
"""The headers of W3C Trace Context."""
NO_TRACE: Mapping[str, str] = {}
INCOMING: ContextVar[Mapping[str, str]] = ContextVar("polyport_incoming_trace", default=NO_TRACE)
"""Those of the request, without the ones that it does not have."""
OUTGOING: ContextVar[Callable[[], Mapping[str, str]] | None] = ContextVar("polyport_outgoing_trace", default=None)
"""Gives the headers that name the step that is being measured now; None where nobody measures."""


def outgoing_trace() -> Mapping[str, str]:
    """The headers by which a request that goes out now says to which trace it belongs; none where nobody measures."""
    told = OUTGOING.get()
    return told() if told is not None else NO_TRACE
