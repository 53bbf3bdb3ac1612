"""Writes the events of one turn to a terminal, a pipe, or as JSON lines.

Used by `polyport run`. Answers go to standard output, each text once though it comes in pieces and whole; tool calls, errors
and who speaks go to standard error. Agents that answer side by side do not mix: one is shown live, the others when they are
done.
"""

import sys
from typing import Any

from polyport.codec import encode
from polyport.config.importing import blame
from polyport.data.event import Event
from polyport.errors import PolyportError, describe
from polyport.wire.adk import encode_event


class Printer:
    """`team` says that several agents may speak, so that each is named when it begins."""

    def __init__(self, as_json: bool, team: bool = False) -> None:
        self._as_json = as_json
        self._team = team
        self._live = ""
        """Whose text is being written."""
        self._streamed = ""
        self._waiting: list[Event] = []
        self._speaker = ""
        self._open_line = False

    def show(self, event: Event) -> None:
        if self._as_json:
            print(encode_event(event).decode(), flush=True)
        elif event.author == "user":
            return
        elif event.partial:
            self._piece(event)
        elif self._live and event.author != self._live:
            self._waiting.append(event)
        else:
            self._whole(event)
            self.finish()

    def _piece(self, event: Event) -> None:
        text = event.text
        if not text or (self._live and event.author != self._live):
            return
        if not self._live:
            self._live = event.author
            self._introduce(event.author)
        self._streamed += text
        self._write(text)

    def _whole(self, event: Event) -> None:
        text = event.text
        seen = self._streamed if event.author == self._live else ""
        if text:
            if not seen:
                self._introduce(event.author)
            elif not text.startswith(seen):  # the model thought better of it: say it anew
                self.end()
                seen = ""
            self._write(text[len(seen) :])
        self.end()
        if event.calls:
            self._introduce(event.author)
        for call in event.calls:
            self._note(f"  {call.name}({_short(call.args)})")
        for response in event.responses:
            self._note(f"  {response.name} = {_short(response.response)}")
        if event.error_code:
            self._note(f"  {event.error_code}: {event.error_message}")

    def failed(self, error: Exception) -> None:
        """Say that the turn failed. The text of an error that is not ours is for the user's own terminal only."""
        said = describe(error)
        if self._as_json:
            print(encode({"error": said["message"], "errorCode": said["code"]}).decode(), flush=True)
        elif isinstance(error, PolyportError):
            self._note(f"error: {said['message']}")
        else:
            self._note("\n".join([f"error: {type(error).__name__}: {error}", *(f"  {line}" for line in blame(error))]))

    def finish(self) -> None:
        """Nobody is live any more: end the line, write what waited."""
        self.end()
        self._live = self._streamed = ""
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self._whole(event)

    def end(self) -> None:
        """End an open line."""
        if self._open_line:
            self._open_line = False
            print(flush=True)

    def _introduce(self, author: str) -> None:
        if self._team and author != self._speaker:
            self._speaker = author
            self._note(f"{author}:")

    def _write(self, text: str) -> None:
        if text:
            self._open_line = not text.endswith("\n")
            print(text, end="", flush=True)

    def _note(self, text: str) -> None:
        self.end()
        print(text, file=sys.stderr, flush=True)


def _short(value: Any) -> str:
    text = encode(value).decode()
    return text if len(text) <= 200 else text[:197] + "..."
