"""A user's message with answers, before a run acts on it (spec core 3.11, FR-118, FR-129).

`check_replies` is asked by the coordinator before a run starts, and with `check_awaited` for what a live client says;
`refuse_answered` and `without_credentials` by the runner when it stores the message. No error says what an answer was.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, cast

from msgspec import structs

from polyport.data.asking import CONFIRMATION, CREDENTIAL, INPUT, RESERVED, WITHHELD, input_value, verdict
from polyport.data.content import Content, FunctionResponse, Part
from polyport.data.event import Event
from polyport.data.session import Session
from polyport.engine.approvals import Place, Request, find_requests, sealed_call
from polyport.engine.spec import LlmSpec
from polyport.errors import BadRequest, Conflict
from polyport.ports.agent import Tree

Conforms = Callable[[Any, dict[str, Any]], Sequence[str]]
"""`(value, JSON Schema)` -> what is wrong with the value, one line each."""


def check_replies(tree: Tree, session: Session, message: Content, secret: bytes, conforms: Conforms) -> None:
    """Refuse a message with answers that must not be acted on: to requests that are unknown, settled or not to be trusted, and
    results for calls that wait for a human (FR-129) or that are carried out here: only those of long-running calls come from
    outside (statement 40), and a client must not speak for the tools of the server. Results of unknown calls are none of its
    business.

    Conflict where the session is not in the state for it, BadRequest where the answer is wrong in itself; both name the id,
    neither says what the answer was.
    """
    found = find_requests(session.events)
    held = _Held(session.events, found, {r.id for r in message.responses if r.id})
    seen: set[str] = set()
    for response in message.responses:
        request = found.get(response.id)
        if request is None:
            if response.name in RESERVED:
                raise Conflict(f"nothing to resume: {session.key} has no request {response.id!r}")
            held.check(response)
            continue
        if response.id in seen:
            raise BadRequest(f"request {response.id!r} is answered twice in one message", "newMessage")
        seen.add(response.id)
        _check_reply(tree, session, request, response, secret)
        if request.call.name == INPUT:
            _check_input(request, response, conforms)


def check_awaited(session: Session, message: Content) -> None:
    """Conflict for results that nobody waits for: of calls that are not long-running, or that nobody made. A client must not
    speak for the tools of the server."""
    awaited = {id for event in session.events if event.author != "user" for id in event.long_running_tool_ids}
    for response in message.responses:
        if response.id not in awaited:
            raise Conflict(f"no result is waited for of call {response.id!r}: no long-running call has this id")


def _check_reply(tree: Tree, session: Session, request: Request, response: FunctionResponse, secret: bytes) -> None:
    name = request.call.name
    if response.name not in ("", name):
        raise BadRequest(f"the answer to request {response.id!r} must have the name {name}", "newMessage")
    _refuse_answered(request)
    if name == CONFIRMATION:
        verdict(response)
    agent = tree.find(request.event.author)
    if request.record is None and not (name == CONFIRMATION and isinstance(agent, LlmSpec)):
        return  # made by an agent that sees to its own requests: a remote one, or a function
    if agent is None and not request.event.isolation_scope:
        raise Conflict(f"request {response.id!r} was made by agent {request.event.author!r}, which is gone")
    sealed_call(session, request, secret)


def refuse_answered(session: Session, responses: Sequence[FunctionResponse]) -> None:
    """Conflict if one of the requests that `responses` answer has an answer by now."""
    found = find_requests(session.events)
    for response in responses:
        if response.id in found:
            _refuse_answered(found[response.id])


def _refuse_answered(request: Request) -> None:
    if request.answer is not None:
        raise Conflict(
            f"nothing to resume: request {request.call.id!r} was answered already; if that run died, go on with it by its "
            "invocationId and no message"
        )


def _check_input(request: Request, response: FunctionResponse, conforms: Conforms) -> None:
    wanted = request.event.requested_input
    schema: Any = wanted.response_schema if wanted is not None else request.call.args.get("responseSchema")
    if not isinstance(schema, dict):
        return
    wrong = conforms(input_value(response), cast("dict[str, Any]", schema))
    if wrong:
        raise BadRequest(
            f"the answer to request {response.id!r} does not fit its schema: {'; '.join(wrong)}", "newMessage"
        )


class _Held:
    """The calls whose results do not come from outside. `wanted` are the ids that are asked about."""

    def __init__(self, events: Sequence[Event], found: Mapping[str, Request], wanted: Set[str]) -> None:
        self._by_call: dict[str, list[Request]] = {}
        for request in found.values():
            record = request.record
            if record is not None:
                self._by_call.setdefault(str(record.get("call", "")), []).append(request)
        self._newest: dict[str, Place] = {}
        for at in range(len(events) - 1, -1, -1):
            if len(self._newest) == len(wanted):
                break
            event = events[at]
            for call in event.calls if event.author != "user" else ():
                if call.id in wanted:
                    self._newest.setdefault(call.id, Place(at, event, call))

    def check(self, response: FunctionResponse) -> None:
        """Conflict for a result of such a call."""
        asked = self._newest.get(response.id)
        if asked is None:
            return
        about = [r for r in self._by_call.get(response.id, ()) if r.at > asked.at]
        for request in about:
            if request.answer is None:
                raise Conflict(
                    f"call {response.id!r} waits for a human: answer {request.call.name} {request.call.id!r}, "
                    f"not the call of {asked.call.name!r} itself"
                )
        if response.id in asked.event.long_running_tool_ids:
            return
        if about:
            raise Conflict(f"call {response.id!r} of {asked.call.name!r} was settled by a human's answer already")
        raise Conflict(
            f"no result is waited for of call {response.id!r}: {asked.call.name!r} is not long-running, so its result comes "
            "from the server"
        )


def without_credentials(events: Sequence[Event], message: Content) -> tuple[Content, dict[str, dict[str, Any]]]:
    """The message as it may be stored, and the credentials that were in it, by request id."""
    if not message.responses:
        return message, {}
    found = find_requests(events)
    given: dict[str, dict[str, Any]] = {}
    parts: list[Part] = []
    for part in message.parts:
        response = part.function_response
        request = found.get(response.id) if response is not None else None
        name = request.call.name if request is not None else response.name if response is not None else ""
        if response is not None and name == CREDENTIAL:
            given[response.id] = response.response or {}
            part = structs.replace(part, function_response=structs.replace(response, response=dict(WITHHELD), parts=[]))
        parts.append(part)
    return (structs.replace(message, parts=parts), given) if given else (message, {})
