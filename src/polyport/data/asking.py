"""Calls to a human: their names, what they say, and how an answer is read (spec core 2.3, 3.11, 4.6).

Used by the contexts that ask, by the engine that pauses and goes on, and by the coordinator that refuses bad answers. Pure;
nothing here knows a tool or an agent, and no error repeats what an answer said.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Struct

from polyport.codec import json_safe
from polyport.data.content import FunctionCall, FunctionResponse
from polyport.data.event import Event, RequestInput, ToolConfirmation
from polyport.data.model import Schema
from polyport.errors import BadRequest

CONFIRMATION = "adk_request_confirmation"
INPUT = "adk_request_input"
CREDENTIAL = "adk_request_credential"
WITHHELD = {"status": "A credential was given; it is not stored."}
"""What is stored in the place of a credential."""
RESERVED = frozenset({CONFIRMATION, CREDENTIAL, INPUT})
"""These calls and their answers are not for the model's eyes."""


class Question(Struct, frozen=True, kw_only=True):
    """What a tool wants to know: an input, or with `auth_config` a credential."""

    message: str = ""
    response_schema: Schema | None = None
    payload: Any = None
    auth_config: dict[str, Any] | None = None


class Reply(NamedTuple):
    """What a human has said about one call, over all rounds of asking."""

    confirmation: ToolConfirmation | None = None
    inputs: tuple[Any, ...] = ()
    credential: dict[str, Any] | None = None


NO_REPLY = Reply()


def input_question(message: str, response_schema: Schema | None, payload: Any) -> Question:
    """A question for an input. BadRequest when a part of it has no JSON form."""
    if response_schema is not None and not isinstance(response_schema, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  user code is not checked
        raise BadRequest("response_schema must be a JSON Schema as a dict", "response_schema")
    schema = json_safe(response_schema, "response_schema")
    return Question(message=str(message), response_schema=schema, payload=json_safe(payload, "payload"))


def input_call(id: str, asked: Question) -> tuple[FunctionCall, RequestInput]:
    """The call of an input request, and the member of the event that says the same."""
    args: dict[str, Any] = {"interruptId": id, "message": asked.message, "payload": asked.payload}
    if asked.response_schema is not None:
        args["responseSchema"] = asked.response_schema
    wanted = RequestInput(
        interrupt_id=id, message=asked.message, response_schema=asked.response_schema, payload=asked.payload
    )
    return FunctionCall(id=id, name=INPUT, args=args), wanted


def verdict(response: FunctionResponse) -> ToolConfirmation:
    """The answer to a confirmation: `{"confirmed": bool, "payload"?, "hint"?}`, or that object as JSON text under the only key
    `response`. BadRequest for anything else: what is no clear answer must never be taken for one."""
    said: Any = response.response
    if isinstance(said, dict) and list(cast("dict[str, Any]", said)) == ["response"]:
        said = _parsed(cast("dict[str, Any]", said)["response"], None)
    if not isinstance(said, dict) or not isinstance(cast("dict[str, Any]", said).get("confirmed"), bool):
        raise BadRequest(
            f"the answer to {response.id!r} is not understood: its response must be "
            '{"confirmed": true or false, "payload": anything}, or {"response": "<that object as JSON text>"}',
            "response",
        )
    answer = cast("dict[str, Any]", said)
    hint = answer.get("hint")
    return ToolConfirmation(
        hint=hint if isinstance(hint, str) else "", confirmed=answer["confirmed"], payload=answer.get("payload")
    )


def input_value(response: FunctionResponse) -> Any:
    """What was answered to an input request: the key `response` (its text is read as JSON where it is JSON), else the key
    `payload`, else the whole object."""
    said = response.response or {}
    if "response" in said:
        value = said["response"]
        return _parsed(value, value)
    return said.get("payload", said)


def _parsed(value: Any, otherwise: Any) -> Any:
    if not isinstance(value, str):
        return otherwise
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return otherwise


def answers(events: Sequence[Event], invocation_id: str, author: str) -> dict[str, Any]:
    """The answers to the input requests of an agent in one run, by interrupt id, in the order in which they were asked. A
    question that was asked again and is open is not among them."""
    asked: dict[str, Any] = {}
    for event in events:
        if event.invocation_id != invocation_id:
            continue
        if event.author == author:
            for call in event.calls:
                if call.name == INPUT and call.id in event.long_running_tool_ids:
                    asked.pop(call.id, None)
                    asked[call.id] = msgspec.UNSET
        elif event.author == "user":
            for response in event.responses:
                if asked.get(response.id) is msgspec.UNSET:
                    asked[response.id] = input_value(response)
    return {id: value for id, value in asked.items() if value is not msgspec.UNSET}
