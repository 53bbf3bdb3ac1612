"""What a run that died left undone (DESIGN section 7). Pure; used by the turn loop, the
coordinator and those who replay a run from the store.

A stored model answer is not asked again, a stored response is not computed again, a call without one is executed again only
if its tool is idempotent, and otherwise reported as interrupted.
"""

from collections.abc import Sequence

from polyport.data.content import FunctionCall, FunctionResponse
from polyport.data.event import Event
from polyport.engine.journal import ended, in_graph, workflow_of


def newest_event(events: Sequence[Event], invocation_id: str, agent: str, scope: str) -> Event | None:
    """The newest event of this run in an isolation scope that is the agent's, or the user's and for the agent: a message with
    answers to the calls of others only is not."""
    here = (e for e in events if e.invocation_id == invocation_id and e.isolation_scope == scope)
    mine = [e for e in here if e.author in (agent, "user")]
    asked = {call.id for e in mine if e.author == agent for call in e.calls}
    return next((e for e in reversed(mine) if e.author == agent or _concerns(e, asked)), None)


def _concerns(message: Event, asked: set[str]) -> bool:
    parts = message.content.parts if message.content is not None else []
    return any(p.function_response is None or p.function_response.id in asked for p in parts)


def interrupted_response(call: FunctionCall) -> FunctionResponse:
    """What the model is told of a call whose fate is unknown."""
    text = "The call was interrupted; whether it took effect is not known. Check before you call it again."
    return FunctionResponse(id=call.id, name=call.name, response={"error": text, "interrupted": True})


def unfinished(events: Sequence[Event], invocation_id: str) -> bool:
    """Whether the run has events and its last one is not a final answer of an agent, nor a question. An answer inside a
    delegation is for the caller, which has yet to go on."""
    last = next((e for e in reversed(events) if e.invocation_id == invocation_id and not e.partial), None)
    if last is None or last.author == "user" or last.actions.requested_tool_confirmations:
        return last is not None  # approvals were announced, but not asked for
    if in_graph(last):  # a workflow says when it has ended; one in a node of another one is not the last to say so
        found = workflow_of(last.isolation_scope)
        return not last.long_running_tool_ids and not (ended(last) and found is not None and not workflow_of(found[0]))
    answered = last.final and (not last.isolation_scope or bool(last.long_running_tool_ids))
    return not (answered or last.actions.end_invocation)


def shown(event: Event) -> bool:
    """Whether a stored event was one for the followers of its run: not the user's own message, no inner work, no summary."""
    return event.author != "user" and not event.unpublished and event.actions.compaction is None
