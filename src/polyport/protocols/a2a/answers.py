"""What a message to a waiting task means: the answers it gives, and what is missing (spec a2a 3.1.4, 3.5).

Used by the executor at the beginning of a turn. Pure.
"""

import re
from typing import Any, cast

from msgspec import structs

from polyport.data.asking import CONFIRMATION, CREDENTIAL, WITHHELD
from polyport.data.content import Content, FunctionResponse, Part
from polyport.protocols.a2a.settings import FromA2aPart
from polyport.wire import a2a_translate as translate
from polyport.wire.a2a import Message
from polyport.wire.a2a import Part as A2aPart

_YES = frozenset(
    {"yes", "y", "ok", "okay", "approve", "approved", "confirm", "confirmed", "true", "yes please", "go ahead"}
)
_NO = frozenset(
    {"no", "n", "reject", "rejected", "deny", "denied", "decline", "declined", "false", "cancel", "no thanks"}
)


def content_of(message: Message, convert: FromA2aPart | None) -> Content:
    """A message for the agent. BadRequest names a part that makes no sense."""
    if convert is None:
        return translate.to_content(message)
    parts = [found for part in message.parts if (found := convert(message, part)) is not None]
    return Content(role="user", parts=parts)


def answered(content: Content, question: Message, *, late: bool = False) -> Content | list[A2aPart]:
    """What the agent gets, or the parts of the question to be asked again, with what was missing.

    A plain yes or no answers the only question, if that is one for approval and the message was not sent before it (`late`).
    """
    asked = translate.call_ids(question.parts)
    given = {response.id for response in content.responses}
    missing = [id for id in asked if id not in given]
    if not missing:
        return content
    approved = None if late or len(asked) != 1 else plain_answer(content)
    if approved is not None and _name(question, asked[0]) == CONFIRMATION:
        response = FunctionResponse(id=asked[0], name=CONFIRMATION, response={"confirmed": approved})
        return structs.replace(content, parts=[Part(function_response=response)])
    return asked_again(question, f"no input was given for the function call {missing[0]!r}")


def asked_again(question: Message, why: str) -> list[A2aPart]:
    """The parts of a question that is put again, with what was wrong with the answer."""
    kept = [part for part in question.parts if not translate.is_marked(part, translate.VALIDATION_ERROR)]
    return [*kept, translate.validation_error_part(why)]


def without_credentials(message: Message, question: Message | None) -> Message:
    """A message as the task may keep it: answers to requests for credentials are left out."""
    asked = translate.call_ids(question.parts) if question is not None else []
    wanted = {id for id in asked if question is not None and _name(question, id) == CREDENTIAL}
    parts = [_withheld(part, wanted) for part in message.parts]
    return message if parts == message.parts else structs.replace(message, parts=parts)


def _withheld(part: A2aPart, wanted: set[str]) -> A2aPart:
    data: Any = part.data
    if not isinstance(data, dict):
        return part
    said = cast("dict[str, Any]", data)
    if said.get("name") != CREDENTIAL and said.get("id") not in wanted:
        return part
    return structs.replace(part, data={**said, "response": dict(WITHHELD)})


def plain_answer(content: Content) -> bool | None:
    """Yes or no, if that is all that a text says."""
    if any(part.text is None for part in content.parts):
        return None
    word = re.sub(r"[\s.!,]+", " ", content.text).strip().casefold()
    return True if word in _YES else False if word in _NO else None


def _name(question: Message, call_id: str) -> str:
    """The name of a call in a question."""
    for part in question.parts:
        if translate.call_ids([part]) == [call_id]:
            return str(cast("dict[str, Any]", part.data).get("name", ""))
    return ""
