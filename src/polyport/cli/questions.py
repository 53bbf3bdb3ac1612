"""What a run asks the user at the terminal: approvals, inputs, results of long-running calls (spec rest 7.2).

Used by `polyport run`. Questions are put one after the other, each line answers one, and all answers go out in one message.
Shows nothing itself.
"""

from collections import deque
from typing import Any, cast

import msgspec

from polyport.codec import encode
from polyport.data.asking import CONFIRMATION, INPUT
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part
from polyport.data.event import Event

_YES = frozenset({"y", "yes", "true", "confirm"})


class Questions:
    """The questions of a conversation that wait, and the answers that were given so far."""

    def __init__(self) -> None:
        self._open: deque[FunctionCall] = deque()
        self._seen: set[str] = set()
        self._given: list[Part] = []
        self._sent: list[FunctionCall] = []

    def see(self, event: Event) -> None:
        """Note what an event asks. What is asked once is put once, though the call comes in several events."""
        if event.partial:
            return
        for call in event.calls:
            if call.id in event.long_running_tool_ids and call.id not in self._seen:
                self._seen.add(call.id)
                self._open.append(call)
        for response in event.responses:  # a call that has failed waits for nobody
            if "error" in (response.response or {}):
                self._open = deque(call for call in self._open if call.id != response.id)

    @property
    def open(self) -> bool:
        return bool(self._open)

    def text(self) -> str:
        """The question at the head of the line, to be shown."""
        call = self._open[0]
        if call.name == CONFIRMATION:
            return _approval(call)
        if call.name == INPUT:
            lines = [str(call.args.get("message") or "Input requested")]
            if call.args.get("payload") is not None:
                lines.append(f"  {_json(call.args['payload'])}")
            if call.args.get("responseSchema") is not None:
                lines.append(f"  as JSON of the schema {_json(call.args['responseSchema'])}")
            return _plain("\n".join(lines))
        return _plain(f"Result of {call.name}({_json(call.args)})?")

    def take(self, line: str) -> Content | None:
        """Take a line as the answer to the question at the head; the message with all answers when it was the last one."""
        call = self._open.popleft()
        self._sent = [*(self._sent if self._given else ()), call]
        response = FunctionResponse(id=call.id, name=call.name, response=_answer(call.name, line.strip()))
        self._given.append(Part(function_response=response))
        if self._open:
            return None
        given, self._given = self._given, []
        return Content(role="user", parts=given)

    def again(self) -> None:
        """Put the questions of the last message once more: its answers were refused."""
        self._open.extend(self._sent)
        self._sent = []


def _approval(call: FunctionCall) -> str:
    asked, wanted = _object(call.args.get("originalFunctionCall")), _object(call.args.get("toolConfirmation"))
    name = str(asked.get("name", ""))
    lines = [str(wanted.get("hint") or f"Confirm {name}?"), f"  {name}({_json(asked.get('args'))})"]
    if wanted.get("payload") is not None:
        lines.append(f"  {_json(wanted['payload'])}")
    return _plain("\n".join([*lines, "yes or no?"]))


def _answer(name: str, line: str) -> dict[str, Any]:
    if name == CONFIRMATION:
        return {"confirmed": line.lower() in _YES}
    try:
        value: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        value = line
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {"payload" if name == INPUT else "result": value}


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _json(value: Any) -> str:
    return encode(value).decode()


def _plain(text: str) -> str:
    """`text` without characters that a terminal obeys: what is asked may come from a model."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
