"""Answers of a human: which requests are open, and which calls may now be carried out (spec core 3.11).

`answered_steps` is asked by the turn loop, `engine/replies` builds on the rest. Stored events are all that is read. An answer
brings an id and a verdict, never a call: the call is looked up among the agent's own events, and its seal must fit.
"""

import hmac
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from msgspec import structs

from polyport.data.asking import CONFIRMATION, INPUT, RESERVED, Reply, input_value, verdict
from polyport.data.content import FunctionCall, FunctionResponse
from polyport.data.event import Event, ToolConfirmation
from polyport.data.session import Session
from polyport.engine.pause import canonical, records_of, seal
from polyport.engine.scopes import answered_ids
from polyport.errors import BadRequest, Conflict
from polyport.ports.agent import RunContext

log = logging.getLogger("polyport.runs")


class Request:
    """One call to a human: where it was made, and the first answer to it that counts. `mixed` when its id was used for
    something else before."""

    __slots__ = ("answer", "answered_at", "at", "call", "event", "mixed")

    def __init__(self, at: int, event: Event, call: FunctionCall, mixed: bool) -> None:
        self.at = at
        self.event = event
        self.call = call
        self.mixed = mixed
        self.answer: FunctionResponse | None = None
        self.answered_at = -1

    @property
    def record(self) -> dict[str, Any] | None:
        """What the engine noted of it; None for a request that is about no call of a tool, or that somebody else made."""
        return records_of(self.event).get(self.call.id)

    def take(self, at: int, response: FunctionResponse) -> None:
        """Take in an answer. What is not understood is none; the first one counts."""
        if self.answer is None and response.name in ("", self.call.name) and _understood(self.call.name, response):
            self.answer = response
            self.answered_at = at


def _understood(name: str, response: FunctionResponse) -> bool:
    if name != CONFIRMATION:
        return True
    try:
        verdict(response)
    except BadRequest:
        return False
    return True


def find_requests(events: Sequence[Event]) -> dict[str, Request]:
    """All calls to a human in a history, by id: those that an agent made, and that were announced as long-running."""
    found: dict[str, Request] = {}
    for at, event in enumerate(events):
        if event.content is None:
            continue
        if event.author == "user":
            for response in event.content.responses:
                if response.id in found:
                    found[response.id].take(at, response)
        elif event.long_running_tool_ids:
            for call in event.content.calls:
                if call.name in RESERVED and call.id in event.long_running_tool_ids:
                    known = found.get(call.id)
                    found[call.id] = Request(at, event, call, known is not None and _mixed(known, call))
    return found


def _mixed(known: Request, call: FunctionCall) -> bool:
    """Whether an id stands for two different things. Questions may be asked again under the same id; approvals may not."""
    if known.mixed or known.call.name != call.name:
        return True
    return call.name == CONFIRMATION and canonical(known.call.args) != canonical(call.args)


class Place(NamedTuple):
    """A call of a tool, and the event in which the model made it."""

    at: int
    event: Event
    call: FunctionCall


def call_of(events: Sequence[Event], request: Request, call_id: str) -> Place | None:
    """The newest call before the request with that id, among those of the agent that made the request."""
    mine = request.event
    for at in range(request.at - 1, -1, -1):
        event = events[at]
        if event.author == mine.author and event.isolation_scope == mine.isolation_scope:
            for call in event.calls:
                if call.id == call_id and call.name not in RESERVED:
                    return Place(at, event, call)
    return None


def sealed_call(session: Session, request: Request, secret: bytes) -> Place:
    """The call that a request is about. Conflict unless it is the one that was asked about: by this app, in this session, by
    this agent, with these arguments."""
    record = request.record or {}
    place = call_of(session.events, request, str(record.get("call", "")))
    good = place is not None and not request.mixed
    if good and place is not None:
        made = seal(secret, session, place.event, request.call.id, place.call)
        shown = {"id": place.call.id, "name": place.call.name, "args": place.call.args}
        good = hmac.compare_digest(made.encode(), str(record.get("seal", "")).encode("utf-8", "replace")) and (
            request.call.name != CONFIRMATION
            or canonical(request.call.args.get("originalFunctionCall")) == canonical(shown)
        )
    if not good or place is None:
        raise Conflict(
            f"request {request.call.id!r} cannot be verified, and is not carried out: its call was changed, mixed up with "
            "another one, or not asked for by this app in this session"
        )
    return place


class AnsweredStep(NamedTuple):
    """A model's answer whose calls waited. `ready` are the calls that may be carried out now, in their order; `lost` those that
    were to be carried out before, and have no response; `waits` says whether others of it still wait."""

    event: Event
    ready: list[FunctionCall]
    lost: list[FunctionCall]
    replies: dict[str, Reply]
    waits: bool


def answered_steps(ctx: RunContext, agent: str) -> list[AnsweredStep]:
    """The steps of an agent of which the message of this run has answered something, oldest first. A call that has got its
    response since is not carried out again; nor is one whose request cannot be verified."""
    events, message = ctx.session.events, ctx.scope.user_content
    newest = next((at for at in range(len(events) - 1, -1, -1) if _speaks(events[at], ctx.isolation_scope)), -1)
    if newest < 0 or not events[newest].responses:
        return []
    if not ctx.scope.resumed:  # else an answer that an earlier run took in would be acted on again
        said = {r.id for r in message.responses} if message is not None else set[str]()
        if not any(r.id in said for r in events[newest].responses):
            return []
    mine = _requests_of(ctx, agent)
    if not any(r.answered_at == newest for r in mine):
        return []
    asked = _by_step(ctx, mine)
    steps = [_step(ctx, events[at], newest, asked[at]) for at in sorted(asked) if _touched(asked[at], newest)]
    return [step for step in steps if step.ready or step.waits]


def has_open(ctx: RunContext, agent: str) -> bool:
    """Whether an agent still waits for a human in this run."""
    return any(r.answer is None and r.event.invocation_id == ctx.invocation_id for r in _requests_of(ctx, agent))


def replies_to(ctx: RunContext, asked: Event) -> dict[str, Reply]:
    """What a human has said about the calls of an event, for those of which nothing is open."""
    for at, about in _by_step(ctx, _requests_of(ctx, asked.author)).items():
        if ctx.session.events[at].id == asked.id:
            return {id: _reply(ctx, rs) for id, rs in about.items() if all(r.answer is not None for r in rs)}
    return {}


def _requests_of(ctx: RunContext, agent: str) -> list[Request]:
    """The requests of an agent in this isolation scope, oldest first."""
    found = find_requests(ctx.session.events).values()
    return [r for r in found if r.event.author == agent and r.event.isolation_scope == ctx.isolation_scope]


def _by_step(ctx: RunContext, requests: Sequence[Request]) -> dict[int, dict[str, list[Request]]]:
    """Place of the model's answer -> call id -> the requests about that call, oldest first. What cannot be verified is left
    out."""
    steps: dict[int, dict[str, list[Request]]] = {}
    for request in sorted(requests, key=lambda r: r.at):
        if request.record is None:
            continue
        try:
            place = sealed_call(ctx.session, request, ctx.scope.secret)
        except Conflict as error:  # an answer to it is refused before it comes here
            log.info("%s", error)
            continue
        steps.setdefault(place.at, {}).setdefault(place.call.id, []).append(request)
    return steps


def _touched(asked: Mapping[str, list[Request]], newest: int) -> bool:
    return any(r.answered_at == newest for about in asked.values() for r in about)


def _speaks(event: Event, scope: str) -> bool:
    """Whether the user says something in an isolation scope."""
    parts = event.content.parts if event.content is not None else ()
    return event.author == "user" and event.isolation_scope == scope and bool(parts)


def _step(ctx: RunContext, event: Event, newest: int, asked: Mapping[str, list[Request]]) -> AnsweredStep:
    events = ctx.session.events
    done = {r.id for e in events[newest + 1 :] if e.author == event.author for r in e.responses}
    answered = answered_ids(events, event)
    ready: list[FunctionCall] = []
    lost: list[FunctionCall] = []
    for call in event.calls:
        about = asked.get(call.id)
        if about is None or call.id in done or any(r.answer is None for r in about):
            continue
        done.add(call.id)  # an id counts once
        if any(r.answered_at == newest for r in about):
            ready.append(call)
        elif call.id not in answered:
            lost.append(call)
    return AnsweredStep(
        event,
        ready,
        lost,
        {call.id: _reply(ctx, asked[call.id]) for call in ready},
        any(r.answer is None for about in asked.values() for r in about),
    )


def _reply(ctx: RunContext, about: Sequence[Request]) -> Reply:
    confirmation: ToolConfirmation | None = None
    credential: dict[str, Any] | None = None
    inputs: list[Any] = []
    for request in about:
        answer = request.answer
        if answer is None:
            continue
        if request.call.name == CONFIRMATION:
            confirmation = _with_hint(verdict(answer), request)
        elif request.call.name == INPUT:
            inputs.append(input_value(answer))
        else:
            credential = ctx.scope.credentials.get(request.call.id, credential)
    return Reply(confirmation, tuple(inputs), credential)


def _with_hint(said: ToolConfirmation, request: Request) -> ToolConfirmation:
    """The verdict, with the hint of the request where the answer repeats none."""
    asked: Any = request.call.args.get("toolConfirmation")
    if said.hint or not isinstance(asked, dict):
        return said
    return structs.replace(said, hint=str(cast("dict[str, Any]", asked).get("hint", "")))
