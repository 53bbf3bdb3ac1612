"""`polyport run`: talk to an agent in the terminal.

Text is written as it comes and only once; the prompt and notes appear on a terminal only, so that a pipe gets just answers.
"""

import signal
import sys
from typing import Any

import anyio
import anyio.to_thread
from msgspec import Struct

from polyport.app import App
from polyport.codec import encode
from polyport.data.event import Event
from polyport.errors import PolyportError, RunCancelled, describe
from polyport.seams import REAL
from polyport.wire.adk import encode_event


class Chat(Struct, kw_only=True):
    """How to talk: as whom, in which session, and whether events are printed as JSON."""

    user: str
    session: str
    as_json: bool


def talk(app: App, chat: Chat, once: str | None) -> None:
    """Talk until the user ends it. Exit code 1 if the one question of `once` fails, 130 if it is interrupted."""
    chat.session = chat.session or REAL.new_id()
    code = anyio.run(_talk, app, chat, once)
    sys.stdout.flush()
    if code:
        raise SystemExit(code)


async def _talk(app: App, chat: Chat, once: str | None) -> int:
    async with app:
        if once is not None:
            return await _turn(app, chat, once)
        terminal = sys.stdin.isatty()
        name = next(iter(app.trees))
        if terminal:
            print(f"Talking to {name}. Ctrl-C stops an answer; `exit` or Ctrl-D ends.", file=sys.stderr)
        while True:
            line = await _read(f"\n{chat.user}> " if terminal else "")
            if line is None or line.strip() in ("exit", "quit"):
                return 0
            if line.strip():
                await _turn(app, chat, line.strip())


async def _read(prompt: str) -> str | None:
    """The next line of standard input, None at its end or on Ctrl-C."""
    if prompt:
        print(prompt, end="", flush=True)
    lines: list[str] = []
    async with anyio.create_task_group() as group:
        group.start_soon(_interrupted, group.cancel_scope)
        lines.append(await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True))
        group.cancel_scope.cancel()
    return lines[0] if lines and lines[0] else None


async def _interrupted(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def _turn(app: App, chat: Chat, message: str) -> int:
    """One question and its answer on the terminal; 0, or the exit code of a failure."""
    printer = Printer(chat.as_json)
    code = 130
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_interrupted, group.cancel_scope)
            try:
                async for event in app.stream(message, user=chat.user, session=chat.session, app=next(iter(app.trees))):
                    printer.show(event)
                code = 0
            except RunCancelled:
                code = 130
            except Exception as error:  # noqa: BLE001  shown to the user as one line; the session lives on
                printer.failed(error)
                code = 1
            group.cancel_scope.cancel()
    finally:
        printer.end()
    if code == 130:
        print("(stopped)", file=sys.stderr)
    return code


class Printer:
    """Writes the events of one turn: streamed text once, tool calls as notes on standard error."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._streamed = ""
        self._open_line = False

    def show(self, event: Event) -> None:
        if self._as_json:
            print(encode_event(event).decode(), flush=True)
            return
        if event.partial:
            self._streamed += event.text
            self._write(event.text)
            return
        text = event.text
        if text and event.author != "user":
            rest = text[len(self._streamed) :] if text.startswith(self._streamed) else text
            if rest and rest is text and self._streamed:
                self.end()
            self._write(rest)
            self.end()
        self._streamed = ""
        for call in event.calls:
            self._note(f"  {call.name}({_short(call.args)})")
        for response in event.responses:
            self._note(f"  {response.name} = {_short(response.response)}")
        if event.error_code:
            self._note(f"  {event.error_code}: {event.error_message}")

    def failed(self, error: Exception) -> None:
        said = describe(error)
        if self._as_json:
            print(encode({"error": said["message"], "errorCode": said["code"]}).decode(), flush=True)
        else:
            self._note(f"error: {said['message']}")
        if not isinstance(error, PolyportError):
            self._note(f"  ({type(error).__name__}: {error})")

    def end(self) -> None:
        """Finish an open line."""
        if self._open_line:
            print(flush=True)
            self._open_line = False

    def _write(self, text: str) -> None:
        if text:
            print(text, end="", flush=True)
            self._open_line = not text.endswith("\n")

    def _note(self, text: str) -> None:
        self.end()
        print(text, file=sys.stderr, flush=True)


def _short(value: Any) -> str:
    text = encode(value).decode()
    return text if len(text) <= 200 else text[:197] + "..."
