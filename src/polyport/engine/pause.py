"""A call that waits for a human: the gate before it, and the events that ask (spec core 3.9, 3.11, 4.6).

Used by the tool calls and the turn loop; `engine/approvals` reads what is made here. The stored events are the only record:
each asking event says in its custom metadata which call it is about, with a seal over that call, so that an answer can carry
out exactly that call and no other.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import structs

from polyport.codec import encode
from polyport.data.asking import CONFIRMATION, CREDENTIAL, Question, input_call
from polyport.data.content import Content, FunctionCall, Part
from polyport.data.event import Event, ToolConfirmation
from polyport.data.session import Session
from polyport.ports.agent import RunContext, Tool, ToolContext

RECORD = "polyport:asked"
"""The key of the custom metadata: `{request id: {"call": id of the call it is about, "seal": text}}`."""
GRAPH = "polyport:graph"
"""The key of what the journal of a workflow notes (see engine/journal), with a seal over it."""
NEEDED = "This call needs the approval of a human, who has been asked. It has not been carried out."
REJECTED = "A human has rejected this call. It has not been carried out."


async def gated(tool: Tool, ctx: ToolContext, args: dict[str, Any]) -> Any:
    """What the tool gives, if it needs no approval or has it; else what the model is told instead. A declined call never
    reaches the tool, whoever had asked for the approval."""
    said = ctx.confirmation
    if said is None:
        if await tool.needs_confirmation(ctx, args):
            ctx.request_confirmation(f"Approve or reject the call of the tool {tool.name!r}.")
            return {"error": NEEDED}
    elif not said.confirmed:
        return _rejection(said)
    return await tool.call(ctx, args)


def _rejection(said: ToolConfirmation) -> dict[str, Any]:
    """With the reviewer's reason: `payload.reason`, else the payload (FR-138)."""
    reason: Any = said.payload
    if isinstance(reason, dict):
        reason = cast("dict[str, Any]", reason).get("reason", cast("Any", reason))
    return {"error": REJECTED} if reason in (None, "", {}) else {"error": REJECTED, "reason": reason}


def canonical(value: Any) -> bytes:
    """The one JSON form of a value: the same for the value that a store gives back."""
    return msgspec.json.encode(msgspec.json.decode(encode(value)), order="sorted")


def seal(secret: bytes, session: Session, asked: Event, request_id: str, call: FunctionCall) -> str:
    """What binds a request to its session (and not to another one of the same name), run, agent and call. Without a secret it
    shows that nothing was mixed up or changed by mistake; only with one can nobody else make it."""
    facts = [*session.key, session.created_at, asked.invocation_id, asked.author, asked.branch, asked.isolation_scope]
    return sign(secret, [*facts, request_id, call.id, call.name, call.args])


def sign(secret: bytes, facts: Sequence[Any]) -> str:
    """A seal over facts that have a JSON form."""
    text = canonical(facts)
    if secret:
        return "hmac-sha256:" + hmac.new(secret, text, hashlib.sha256).hexdigest()
    return PLAIN + hashlib.sha256(text).hexdigest()


PLAIN = "sha256:"
"""How a seal begins that anybody can make."""


def disarmed(event: Event) -> Event:
    """An event from outside, whose seals are worth nothing if anybody could have made them: they are taken off it, and what it
    asks for can be seen, but never be carried out, nor is a step of a workflow taken as done. Seals that were made with a
    secret stay."""
    noted: Any = (event.custom_metadata or {}).get(GRAPH)
    if isinstance(noted, dict) and str(cast("dict[str, Any]", noted).get("seal", "")).startswith(PLAIN):
        rest = {key: value for key, value in (event.custom_metadata or {}).items() if key != GRAPH}
        event = structs.replace(event, custom_metadata=rest or None)
    records = records_of(event)
    if not any(str(r.get("seal", "")).startswith(PLAIN) for r in records.values()):
        return event
    bare = {id: {**r, "seal": ""} if str(r.get("seal", "")).startswith(PLAIN) else r for id, r in records.items()}
    return structs.replace(event, custom_metadata={**(event.custom_metadata or {}), RECORD: bare})


def records_of(event: Event) -> dict[str, dict[str, Any]]:
    """The records of the requests in an event, by request id; what is no record is left out."""
    found: Any = (event.custom_metadata or {}).get(RECORD)
    if not isinstance(found, dict):
        return {}
    records = cast("dict[str, Any]", found)
    return {id: cast("dict[str, Any]", r) for id, r in records.items() if isinstance(r, dict)}


def request_events(
    ctx: RunContext,
    asked: Event,
    confirmations: Mapping[str, ToolConfirmation],
    questions: Mapping[str, Sequence[Question]],
) -> list[Event]:
    """The events that ask a human about calls of `asked`, in the order of the calls: one for all approvals, one for each
    question, one for all credentials. The events of a step are emitted after its responses."""
    confirms, credentials = _Asking(ctx, asked), _Asking(ctx, asked)
    inputs: list[Event] = []
    seen: set[str] = set()
    for part in asked.content.parts if asked.content is not None else ():
        call = part.function_call
        if call is None or call.id in seen:
            continue
        seen.add(call.id)
        wanted = confirmations.get(call.id)
        if wanted is not None:
            confirms.add(CONFIRMATION, confirmation_args(call, wanted), call, part.thought_signature)
        for question in questions.get(call.id, ()):
            if question.auth_config is not None:
                args = {"functionCallId": call.id, "authConfig": question.auth_config}
                credentials.add(CREDENTIAL, args, call, part.thought_signature)
            else:
                inputs.append(_input_event(ctx, asked, call, question))
    return [*confirms.events(), *inputs, *credentials.events()]


def confirmation_args(call: FunctionCall, wanted: ToolConfirmation) -> dict[str, Any]:
    """The arguments of a confirmation request (spec core 3.11.2)."""
    return {
        "originalFunctionCall": {"id": call.id, "name": call.name, "args": call.args},
        "toolConfirmation": {"hint": wanted.hint, "confirmed": wanted.confirmed, "payload": wanted.payload},
    }


class _Asking:
    """One event with several requests."""

    def __init__(self, ctx: RunContext, asked: Event) -> None:
        self._ctx = ctx
        self._asked = asked
        self._parts: list[Part] = []
        self._records: dict[str, dict[str, str]] = {}

    def add(self, name: str, args: dict[str, Any], call: FunctionCall, signature: bytes | None) -> None:
        id = "adk-" + self._ctx.scope.seams.new_id()
        made = FunctionCall(id=id, name=name, args=args)
        self._parts.append(Part(function_call=made, thought_signature=signature))
        self._records[id] = _record(self._ctx, self._asked, id, call)

    def events(self) -> list[Event]:
        if not self._parts:
            return []
        content = Content(role="model", parts=self._parts)
        metadata = {RECORD: self._records}
        return [self._ctx.event(content=content, long_running_tool_ids=list(self._records), custom_metadata=metadata)]


def _input_event(ctx: RunContext, asked: Event, call: FunctionCall, question: Question) -> Event:
    id = "adk-" + ctx.scope.seams.new_id()
    made, wanted = input_call(id, question)
    return ctx.event(
        content=Content(role="model", parts=[Part(function_call=made)]),
        requested_input=wanted,
        long_running_tool_ids=[id],
        custom_metadata={RECORD: {id: _record(ctx, asked, id, call)}},
    )


def _record(ctx: RunContext, asked: Event, id: str, call: FunctionCall) -> dict[str, str]:
    return {"call": call.id, "seal": seal(ctx.scope.secret, ctx.session, asked, id, call)}
