"""What a run that died left undone (DESIGN section 7). Pure; used by the turn loop and by the coordinator.

A stored model answer is not asked again, a stored response is not computed again, a call without one is executed again only
if its tool is idempotent, and otherwise reported as interrupted.
"""

from collections.abc import Sequence

from polyport.data.content import FunctionCall, FunctionResponse
from polyport.data.event import Event


def newest_event(events: Sequence[Event], invocation_id: str, agent: str, scope: str) -> Event | None:
    """The newest event of this run in an isolation scope that is the agent's or the user's."""
    mine = (
        e
        for e in reversed(events)
        if e.invocation_id == invocation_id and e.isolation_scope == scope and e.author in (agent, "user")
    )
    return next(mine, None)


def interrupted_response(call: FunctionCall) -> FunctionResponse:
    """What the model is told of a call whose fate is unknown."""
    text = "The call was interrupted; whether it took effect is not known. Check before you call it again."
    return FunctionResponse(id=call.id, name=call.name, response={"error": text, "interrupted": True})


def unfinished(events: Sequence[Event], invocation_id: str) -> bool:
    """Whether the run has events and its last one is not a final answer of an agent. An answer inside a delegation is for the
    caller, which has yet to go on."""
    last = next((e for e in reversed(events) if e.invocation_id == invocation_id and not e.partial), None)
    if last is None or last.author == "user":
        return last is not None
    ended = last.final and (not last.isolation_scope or bool(last.long_running_tool_ids))
    return not (ended or last.actions.end_invocation)
