"""Pairing: every tool call of a prompt is followed by exactly its responses, whatever the history looks like.

Used by `engine/contents`. Providers refuse a prompt in which a call has no response right after it, or a response has no
call; histories have both after a crash, an interruption or a late answer. Here they are repaired (spec core 3.6.7 to 3.6.9,
12.22, FR-033); the stored events are never changed. Pure: no I/O, no clock, no ids but those made from the history.
"""

from typing import Any

from msgspec import structs

from polyport import codec
from polyport.data.asking import RESERVED as RESERVED
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part
from polyport.data.event import Event

NO_RESULT = {"status": "No result of this call has been recorded so far."}
"""The response of a call that has none. It must not claim that the tool ran, nor that it did not."""


def json_text(value: Any) -> str:
    """`value` as compact JSON, or as Python shows it when it has no JSON form. Never raises."""
    try:
        return codec.encode(value).decode()
    except (TypeError, NotImplementedError, ValueError, RecursionError):
        return f"(a {type(value).__name__})"


def result_text(response: FunctionResponse) -> str:
    """The result of a tool as text; attachments are counted, not shown."""
    more = f" (and {len(response.parts)} attachments that are not shown)" if response.parts else ""
    return json_text(response.response) + more


class Turn:
    """The calls of one model content, and the latest response to each. `at` is where the responses stand in the prompt,
    right behind the calls; -1 while the calls are not placed."""

    __slots__ = ("answers", "at", "calls", "given")

    def __init__(self) -> None:
        self.at = -1
        self.calls: list[FunctionCall] = []
        self.given: list[str] = []
        self.answers: list[Part | None] = []

    def content(self) -> Content:
        """One response for each call, in the order of the calls."""
        pairs = zip(self.calls, self.answers, strict=True)
        return Content(role="user", parts=[_no_result(call) if part is None else part for call, part in pairs])


def _no_result(call: FunctionCall) -> Part:
    return Part(function_response=FunctionResponse(id=call.id, name=call.name, response=dict(NO_RESULT)))


class Pairing:
    """The calls that a prompt shows, so that responses find theirs. Fed in order of history."""

    __slots__ = ("_asked", "_shown", "turns")

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._asked: dict[str, Turn] = {}
        self._shown: set[str] = set()

    def ask(self, turn: Turn, part: Part, call: FunctionCall) -> Part:
        """Take in a call of `turn`; the part to show.

        Ids are unique in a prompt (Anthropic insists): a call without one, or with one that was used before, gets another.
        Models behind OpenAI-like servers do reuse ids; a response belongs to the newest call before it.
        """
        given = call.id
        if not given or given in self._shown:
            call = structs.replace(call, id=self._fresh(given))
            part = structs.replace(part, function_call=call)
        if given:
            self._asked[given] = turn
        self._shown.add(call.id)
        turn.calls.append(call)
        turn.given.append(given)
        turn.answers.append(None)
        return part

    def _fresh(self, given: str) -> str:
        base, number = (given, 2) if given else ("adk-call", 1)
        while f"{base}-{number}" in self._shown:
            number += 1
        return f"{base}-{number}"

    def place(self, turn: Turn, at: int) -> None:
        """The responses of `turn` go to position `at` of the prompt."""
        turn.at = at
        self.turns.append(turn)

    def answer(
        self, part: Part, response: FunctionResponse, turn: Turn | None, *, by_name: bool
    ) -> tuple[Turn, str] | None:
        """Give a response to its call; the turn and the tool's name, or None when there is no such call in the prompt.

        The latest response to a call replaces earlier ones. `turn` is one that is not placed yet. `by_name` allows pairing
        by the tool's name where the call or the response lacks an id.
        """
        found = self._find(response, turn, by_name)
        if found is None:
            return None
        turn, slot = found
        call = turn.calls[slot]
        if response.id != call.id or response.name != call.name:
            part = structs.replace(part, function_response=structs.replace(response, id=call.id, name=call.name))
        turn.answers[slot] = part
        return turn, call.name

    def reopen(self, call_id: str) -> Turn | None:
        """Forget the response to a call: a human has answered what it waited for, and it has none until the next one comes.
        The turn of the call, if it is shown."""
        asked = self._asked.get(call_id)
        if asked is not None:
            for slot, given in enumerate(asked.given):
                if given == call_id:
                    asked.answers[slot] = None
        return asked

    def waits(self, response: FunctionResponse) -> bool:
        """Whether a shown call has the id of this response."""
        return response.id in self._asked

    def _find(self, response: FunctionResponse, turn: Turn | None, by_name: bool) -> tuple[Turn, int] | None:
        id = response.id
        asked = self._asked.get(id) if id else None
        if asked is not None:
            if len(asked.calls) == 1:
                return asked, 0
            return _waiting(asked, [i for i, given in enumerate(asked.given) if given == id])
        newest = turn if turn is not None else self.turns[-1] if self.turns else None
        if newest is None or not by_name:
            return None
        calls = zip(newest.calls, newest.given, strict=True)
        return _waiting(
            newest, [i for i, (c, given) in enumerate(calls) if c.name == response.name and not (id and given)]
        )

    def late(self, turn: Turn, length: int) -> bool:
        """Whether anything but calls and responses stands behind `turn` in a prompt of `length` contents."""
        end = length
        for other in reversed(self.turns):
            if other.at != end - 1:
                return turn.at >= 0
            if other is turn:
                return False
            end -= 2
        return False


def _waiting(turn: Turn, slots: list[int]) -> tuple[Turn, int] | None:
    """The first of `slots` without a response; when all have one, the last."""
    for slot in slots:
        if turn.answers[slot] is None:
            return turn, slot
    return (turn, slots[-1]) if slots else None


class CallIndex:
    """Finds a call by its id in all of a history, shown or not. Built on first need, then kept up with `events`."""

    __slots__ = ("_answers", "_calls", "_done", "_events")

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._done = 0
        self._calls: dict[str, list[tuple[int, Event, FunctionCall]]] = {}
        self._answers: dict[int, int] = {}

    def find(self, call_id: str, before: Event | None = None) -> tuple[Event, FunctionCall] | None:
        """The newest call with that id, and its event. `before` is the event with the response: later calls do not count."""
        events = self._events
        for at in range(self._done, len(events)):
            event = events[at]
            for part in event.content.parts if event.content is not None else ():
                if part.function_call is not None:
                    self._calls.setdefault(part.function_call.id, []).append((at, event, part.function_call))
                elif part.function_response is not None:
                    self._answers.setdefault(id(event), at)
        self._done = len(events)
        limit = self._answers.get(id(before), self._done)
        for at, event, call in reversed(self._calls.get(call_id, [])):
            if at <= limit:
                return event, call
        return None
