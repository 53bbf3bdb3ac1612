"""`polyport run`: talk to an agent in the terminal.

The main thread reads lines and signals, the app runs in an event loop beside it: Ctrl-C cancels the turn, and only the turn.
Text is written as it comes and only once; prompts and notes go to a terminal or standard error, so that a pipe gets just
answers.
"""

import contextlib
import logging
import sys
from collections.abc import Callable
from contextlib import aclosing
from importlib import import_module
from queue import Empty, SimpleQueue
from signal import SIGINT, signal
from types import FrameType

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import Struct

from polyport.app import App
from polyport.cli.ending import die_of, leave
from polyport.cli.logs import configure
from polyport.cli.printer import Printer
from polyport.cli.questions import Questions
from polyport.data.content import Content
from polyport.errors import BadRequest, ConfigError, RunCancelled
from polyport.seams import REAL

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended."""


class Chat(Struct, kw_only=True):
    """How to talk: to which app, as whom, in which session, and whether events are printed as JSON. `kept` says that the
    session can be gone on with later, `verbose` that logs are shown."""

    user: str
    session: str
    as_json: bool
    app: str = ""
    kept: bool = False
    verbose: bool = False


def talk(app: App, chat: Chat, once: str | None) -> None:
    """Talk until the user ends it, then end the process: 0, or 1 if a question failed that nobody at a terminal saw fail, or
    130 after Ctrl-C. ConfigError when it is not clear which agent to talk to."""
    configure("text", "info" if chat.verbose else "warning")
    logging.getLogger("polyport.runs").disabled = not chat.verbose  # a failed run is shown anyway, in one line
    chat.app = _choose(app, chat.app)
    fresh = not chat.session
    chat.session = chat.session or REAL.new_id()
    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(app):
        talker = Talker(portal, app, chat)
        if once is not None:
            code = talker.hear(once)
        elif sys.stdin.isatty():
            code = talker.converse(fresh)
        else:
            code = talker.read_all()
    sys.stdout.flush()
    leave(code)


def _choose(app: App, name: str) -> str:
    names = list(app.trees)
    if name and name not in names:
        raise ConfigError(f"there is no agent {name!r}; there are: {', '.join(names)}")
    if not name and len(names) > 1:
        raise ConfigError(f"there are several agents: {', '.join(names)}; say which with --app, or give its folder")
    return name or names[0]


class Talker:
    """One conversation. Its methods run in the main thread and give exit codes."""

    def __init__(self, portal: BlockingPortal, app: App, chat: Chat) -> None:
        self._portal = portal
        self._app = app
        self._chat = chat
        self._team = len(app.trees[chat.app].agents()) > 1
        self._questions = Questions()

    def converse(self, fresh: bool) -> int:
        """Ask the user at the terminal for one line after the other."""
        chat = self._chat
        _note(f"Talking to {chat.app}. Ctrl-C stops an answer; `exit` or Ctrl-D ends.")
        if fresh and chat.kept:
            _note(f"Go on later with --session {chat.session}")
        read = _line_reader(f"\n{chat.user}> ")
        warned = False
        while True:
            try:
                line = read()
                if line is None or line.strip() in ("exit", "quit"):
                    return 0
                warned = False
                self.hear(line)
            except KeyboardInterrupt:
                if warned:
                    return INTERRUPTED
                warned = True
                _note("\nCtrl-C again, Ctrl-D or `exit` ends.")

    def read_all(self) -> int:
        """Ask what standard input has, a question in each line."""
        worst = 0
        for line in sys.stdin:
            if line.strip() in ("exit", "quit"):
                break
            code = self.hear(line)
            if code == INTERRUPTED:
                return code
            worst = max(worst, code)
        return worst

    def hear(self, line: str) -> int:
        """A line of the user: the answer to what the run waits for, else what the next turn is about. What it waits for then is
        shown."""
        message = self._questions.take(line) if self._questions.open else line.strip()
        code = self.turn(message) if message else 0
        if self._questions.open and not self._chat.as_json:
            _note(self._questions.text())
        return code

    def turn(self, message: str | Content) -> int:
        """One question and its answer. Ctrl-C stops it and waits for its clean-up; a second one ends the process."""
        news: SimpleQueue[str] = SimpleQueue()  # the one queue that a signal handler may write to

        def interrupt(number: int, frame: FrameType | None) -> None:
            news.put("interrupt")

        before = signal(SIGINT, interrupt)
        try:
            scope = self._portal.call(anyio.CancelScope)
            asked = self._portal.start_task_soon(self._answer, message, scope)
            asked.add_done_callback(lambda _: news.put("done"))
            self._wait(news, scope)
            code = asked.result()
        finally:
            signal(SIGINT, before)
        if code == INTERRUPTED:
            _note("(stopped)")
        return code

    def _wait(self, news: "SimpleQueue[str]", scope: anyio.CancelScope) -> None:
        """Wait until the answer is done. Wakes now and then, for Python may miss a signal just before it begins to wait."""
        word, stopping = "", False
        while word != "done":
            with contextlib.suppress(Empty):
                word = news.get(timeout=0.5)
                if word == "interrupt" and stopping:
                    die_of(SIGINT)
                if word == "interrupt":
                    stopping, word = True, ""
                    self._portal.call(scope.cancel)

    async def _answer(self, message: str | Content, scope: anyio.CancelScope) -> int:
        chat = self._chat
        printer = Printer(chat.as_json, self._team)
        code = INTERRUPTED
        with scope:
            try:
                events = self._app.stream(message, user=chat.user, session=chat.session, app=chat.app)
                async with aclosing(events):
                    async for event in events:
                        printer.show(event)
                        self._questions.see(event)
                code = 0
            except RunCancelled:
                code = INTERRUPTED
            except BadRequest as error:
                printer.failed(error)
                self._questions.again()
                code = 1
            except OSError as error:
                if isinstance(error, BrokenPipeError):  # nobody reads: the program ends
                    raise
                printer.failed(error)
                code = 1
            except Exception as error:  # noqa: BLE001  shown to the user as one line; the session lives on
                printer.failed(error)
                code = 1
        printer.finish()
        return code


def _line_reader(prompt: str) -> Callable[[], str | None]:
    """Gives the next line, None at the end. With line editing and history where the terminal can do it."""
    if not sys.stdout.isatty():  # the answers go elsewhere, so the prompt must not

        def plain() -> str | None:
            print(prompt, end="", file=sys.stderr, flush=True)
            return sys.stdin.readline() or None

        return plain
    with contextlib.suppress(ImportError):  # not every Python has it
        import_module("readline")  # being there it makes `input` better

    def editing() -> str | None:
        try:
            return input(prompt)
        except EOFError:
            print()
            return None

    return editing


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
