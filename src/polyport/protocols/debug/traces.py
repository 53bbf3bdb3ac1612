"""The trace routes: the spans of a session's runs, and the span of one event (spec rest 5.2, 9.5).

Called by the host. Whoever asks sees the traces of sessions of users as which they may act, and nothing tells whether there are
others (spec rest 11.4).
"""

from typing import Any

from polyport.data.session import SessionKey
from polyport.errors import Forbidden, NotFound
from polyport.protocols.answers import send_json
from polyport.protocols.debug.store import SpanShape, TraceStore
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route

PREFIXES = ("", "/dev/apps/{app}")
"""Where the routes are served, old and new; below an app only with what belongs to it."""


class Traces:
    def __init__(self, store: TraceStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        found: list[Route] = []
        for prefix in PREFIXES:
            found += [
                Route(
                    "GET",
                    f"{prefix}/debug/trace/{{event}}",
                    self.event,
                    summary="The span of an event",
                    returns=dict[str, Any],
                ),
                Route(
                    "GET",
                    f"{prefix}/debug/trace/session/{{session}}",
                    self.session,
                    summary="The spans of a session's runs",
                    returns=list[SpanShape],
                ),
            ]
        return found

    async def session(self, request: Request, send: Send) -> None:
        """Sorted by start; empty for a session that is not known, or that is another user's."""
        found: list[SpanShape] = []
        for key in self._store.sessions(request.params["session"]):
            if await _may_see(request, key):
                found += self._store.of_session(key)
        await send_json(send, sorted(found, key=lambda span: span.start_time))

    async def event(self, request: Request, send: Send) -> None:
        """The first span of the event that is a model call or a tool call, flat. 404 for an unknown one."""
        event_id = request.params["event"]
        for key, span in self._store.of_event(event_id):
            if await _may_see(request, key):
                return await send_json(send, _flat(span))
        raise NotFound(f"event not found: {event_id}")


async def _may_see(request: Request, key: SessionKey) -> bool:
    if request.params.get("app", key.app) != key.app:
        return False
    try:
        await request.act_as(key.user, key.app)
    except Forbidden:
        return False
    return True


def _flat(span: SpanShape) -> dict[str, Any]:
    """The attributes beside the rest; none of them can stand for something else."""
    return {
        **span.attributes,
        "name": span.name,
        "start_time": span.start_time,
        "end_time": span.end_time,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "logs": span.logs,
    }
