"""The journal of workflows: what a run needs to know of a graph in order to go on (spec core 4.7, 12.15).

A workflow writes it as it goes, into the custom metadata of events: that it has begun, what each node came to, how it ended.
Read when a run goes on, in any process, and by those who ask whether there is something to go on with. Each record has a seal,
so that a history from outside cannot claim that a step was taken. Pure; runs nothing.
"""

import hmac
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

import msgspec

from polyport.data.event import Event
from polyport.data.session import Session
from polyport.engine.pause import GRAPH, sign
from polyport.engine.scopes import callers

Kind = Literal["start", "done", "end"]

MAX_NESTED = 100
"""How many workflows may work for each other: scopes may come from outside, and be of any length."""


class Record(NamedTuple):
    """`path` is that of a workflow ("start" with its input, "end") or of a node ("done" with its output and routes). `scope` is
    that of the notes of the workflow. `waits`: it ended because it waits for somebody outside. `escalated`: a node had
    escalated by then."""

    kind: Kind
    scope: str
    path: str
    value: Any = None
    routes: Sequence[str] = ()
    waits: bool = False
    escalated: bool = False


def write(secret: bytes, session: Session, run_id: str, record: Record) -> dict[str, Any]:
    """The custom metadata that hold a record."""
    body = {
        "kind": record.kind,
        "scope": record.scope,
        "path": record.path,
        "value": record.value,
        "routes": list(record.routes),
        "waits": record.waits,
    }
    if record.escalated:
        body["escalated"] = True
    return {GRAPH: {**body, "seal": _seal(secret, session, run_id, body)}}


def read(secret: bytes, session: Session, event: Event, *, kind: Kind | None = None, scope: str = "") -> Record | None:
    """The record in an event, if it is of that kind and scope; None if there is none that was made here, in this session and
    run."""
    body = _body(event)
    if body is None or (kind and body.get("kind") != kind) or (scope and body.get("scope") != scope):
        return None  # the seal is looked at last, for it costs most
    seal = str(body.pop("seal", ""))
    if not hmac.compare_digest(
        _seal(secret, session, event.invocation_id, body).encode(), seal.encode("utf-8", "replace")
    ):
        return None
    try:
        return msgspec.convert([{"escalated": False, **body}[key] for key in Record._fields], Record)
    except (KeyError, msgspec.ValidationError):
        return None


def _seal(secret: bytes, session: Session, run_id: str, body: dict[str, Any]) -> str:
    return sign(secret, [GRAPH, *session.key, session.created_at, run_id, body])


def _body(event: Event) -> dict[str, Any] | None:
    found: Any = (event.custom_metadata or {}).get(GRAPH)
    return dict(cast("dict[str, Any]", found)) if isinstance(found, dict) else None


def ended(event: Event) -> bool:
    """Whether a workflow ended with this event: a reader's question, for which the seal does not matter."""
    body = _body(event)
    return body is not None and body.get("kind") == "end"


def waits(event: Event) -> bool:
    """Whether that end was for somebody outside who is waited for."""
    body = _body(event)
    return body is not None and body.get("waits") is True


def in_graph(event: Event) -> bool:
    """Whether an event was made in a node of a workflow, or is about one."""
    return _body(event) is not None or (event.node_info is not None and "/" in event.node_info.path)


# -- isolation scopes of nodes


def node_scope(outer: str, run_id: str, workflow: str, path: str) -> str:
    """The isolation scope of an agent that works in a node (or of a workflow's own notes), made so that the way back to the
    workflow can be read from it."""
    return f"{outer}#{run_id}|{workflow}|{path}"


def workflow_of(scope: str) -> tuple[str, str] | None:
    """(isolation scope in which the workflow works, its name) of a scope made by `node_scope`; None for another one."""
    outer, mark, rest = scope.rpartition("#")
    parts = rest.split("|")
    return (outer, parts[1]) if mark and len(parts) == 3 else None


def way_back(events: Sequence[Event], event: Event) -> Iterator[Event]:
    """`scopes.callers`, also through workflows: where an agent works for one, the next event stands for the workflow itself."""
    for _ in range(MAX_NESTED):
        last = event
        for last in callers(events, event):
            yield last
        found = workflow_of(last.isolation_scope)
        if found is None:
            return
        outer, name = found
        event = Event(author=name, invocation_id=last.invocation_id, isolation_scope=outer, branch=trunk(last.branch))


def trunk(branch: str) -> str:
    """The branch on which the outermost workflow works, from that of one of its nodes: branches of nodes hold a number."""
    kept: list[str] = []
    for segment in branch.split("."):
        if "@" in segment:
            break
        kept.append(segment)
    return ".".join(kept)
