"""`polyport serve --reload`: when a file of the agents changes, a new process takes over. Not for Windows.

The parent watches files and holds the listening socket. A new process loads everything afresh, so nothing of the old code stays
behind; once it takes requests, the old one takes no more and ends when its runs have ended: each run sees one version only.
What cannot be loaded is told, and the old process stays (FR-220). Sessions live in a file, so that they survive.
"""

import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM, SIGUSR1, signal
from tempfile import TemporaryDirectory
from threading import Event
from types import FrameType

import anyio
from uvicorn.config import STARTUP_FAILURE

from polyport.app import App
from polyport.cli.ending import die_of
from polyport.cli.identity import check_open
from polyport.cli.logs import configure
from polyport.cli.options import ServeOptions
from polyport.cli.serve import FAILED, Config, build
from polyport.cli.workers import Worker, WorkerServer
from polyport.config.load import load
from polyport.errors import ConfigError, PolyportError
from polyport.stores.memory import MemorySessions

log = logging.getLogger("polyport")

LOOK_S = 0.25
"""How often the files are looked at."""
TRIES = 100
"""How often an old process is asked whether it still takes requests."""
MAX_FILES = 20_000
"""How many are looked at."""
SUFFIXES = frozenset({".py", ".yaml", ".yml", ".json", ".toml", ".md", ".txt", ".env"})
LEFT_OUT = frozenset({"node_modules", "__pycache__", "site-packages"})

Seen = dict[str, tuple[int, int]]
"""Path -> time of change and size."""


@contextmanager
def sessions_kept(options: ServeOptions) -> Generator[None]:
    """Sees to it that sessions survive a reload: without `--db` they go into a file that is deleted at the end. ConfigError for
    what cannot work."""
    if options.workers > 1:
        raise ConfigError("--reload is for one worker; leave out --workers")
    sys.dont_write_bytecode = True  # what is edited twice in a second would be taken from the first edit's bytecode
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # the same for the processes that serve
    with TemporaryDirectory(prefix="polyport-") as folder:
        if options.db is None:
            options.db = f"sqlite:///{folder}/sessions.db"
            os.environ.setdefault("POLYPORT_SECRET", secrets.token_hex(16))  # approvals survive, too
            fit(options)
        yield


def fit(options: ServeOptions) -> None:
    """An App of the user's own keeps its stores."""
    if "--db" in options.given or options.db is None:
        return
    own = load(options.agents)
    if isinstance(own, App):
        options.db = None
        if isinstance(own.stores.sessions, MemorySessions):
            log.warning("the sessions of this App are in memory, and gone after a reload; give it stores=")


class RetiringServer(WorkerServer):
    """On SIGUSR1 it takes no more requests and waits for its runs, as long as they take; SIGTERM stops it as ever."""

    signals = (SIGTERM, SIGUSR1)
    told_to_stop = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.told_to_stop = self.told_to_stop or sig == SIGTERM
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()  # those that are idle; the others after their answer
        self.started = False  # the parent is told so by the next pong
        while self.active and not self.told_to_stop:  # noqa: ASYNC110
            await anyio.sleep(0.1)  # a signal handler must not touch an anyio.Event
        await super().shutdown(sockets)


class Generation(Worker):
    """A process that serves the agents as their files were when it started, on the parent's socket."""

    def _serve(self, sockets: list[socket.socket]) -> int:
        config = self.config
        assert isinstance(config, Config)
        configure(config.options.log_format, config.options.log_level)
        try:
            fit(config.options)
            app = build(config.options)
            check_open(app, config.options.host, config.options.insecure)  # a change may have taken the App's auth away
        except PolyportError as error:
            log.error("the change is not taken over. %s", error)
            return STARTUP_FAILURE
        config.app = app.asgi
        self._server = RetiringServer(config, app, lambda: None)
        self._server.run(sockets)
        return 0

    def retire(self) -> None:
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, SIGUSR1)


class Reloader:
    """The parent: starts a generation after each change, until a signal."""

    def __init__(self, config: Config, listener: socket.socket, folders: list[Path]) -> None:
        self._config = config
        self._listener = listener
        self._folders = folders
        self._stop = Event()
        self._now: Generation | None = None
        self._old: list[Generation] = []

    def run(self, ready: Callable[[], None]) -> int:
        """Serve until a signal; the exit code."""
        for number in (SIGINT, SIGTERM):
            signal(number, self._stopped)
        seen = look(self._folders)
        self._now = self._started()
        if self._now is None:
            return FAILED
        ready()
        ended = 0
        while not self._stop.wait(LOOK_S):
            self._old = [old for old in self._old if old.process.is_alive()]
            now = look(self._folders)
            if now != seen:
                self._take_over(changed(seen, now))
                ended = 0
            elif not self._now.process.is_alive() and self._now.pid != ended:
                log.error("the server process ended with code %s; starting it anew", self._now.exitcode)
                ended = self._now.pid or 0  # if that fails, the next try is after a change
                self._take_over("")
            seen = now
        self._end()
        return 0

    def _take_over(self, what: str) -> None:
        new = self._started()
        if new is None:
            if not self._stop.is_set():
                stays = self._now is not None and self._now.process.is_alive()
                state = "the old agents stay in service" if stays else "nothing is served until a file changes"
                log.error("%s%s", state, f" (changed: {what})" if what else "")
            return
        if self._now is not None:
            self._now.retire()
            self._old.append(self._now)
            self._until_it_takes_no_more(self._now)
        self._now = new
        log.info("reloaded%s", f": {what}" if what else "")

    def _until_it_takes_no_more(self, old: Generation) -> None:
        """So that whoever asks after the message is answered by the new agents. Code that blocks the event loop may hold this
        up; then it is not waited for."""
        for _ in range(TRIES):
            if not old.is_ready(0.1) or self._stop.wait(0.02):
                return

    def _started(self) -> Generation | None:
        """A generation that takes requests; None when it could not start, or the server is to stop."""
        new = Generation(self._config, [self._listener])
        new.start()
        while new.process.is_alive() and not self._stop.is_set():
            if new.is_ready(0.1):
                return new
            self._stop.wait(0.02)
        if new.process.is_alive():
            new.terminate()
        new.join()
        return None

    def _stopped(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set():
            for process in self._all():
                process.process.kill()
            die_of(number)
        self._stop.set()

    def _all(self) -> Iterator[Generation]:
        yield from self._old
        if self._now is not None:
            yield self._now

    def _end(self) -> None:
        for process in self._all():
            process.terminate()
        for process in self._all():
            process.join()


def folders_of(words: list[str]) -> list[Path]:
    """What to watch: the folder of each agent; for a module, the current one."""
    found: list[Path] = []
    for word in words:
        path_word, colon, attr = word.rpartition(":")
        path = Path(path_word if colon and attr.isidentifier() else word).expanduser()
        found.append(path.resolve() if path.is_dir() else path.resolve().parent if path.is_file() else Path.cwd())
    return list(dict.fromkeys(found))


def look(folders: list[Path]) -> Seen:
    """The files of the folders, as far as they may belong to agents."""
    seen: Seen = {}
    for folder in folders:
        for root, inner, files in os.walk(folder):
            inner[:] = [name for name in inner if not name.startswith(".") and name not in LEFT_OUT]
            if "pyvenv.cfg" in files and root != str(folder):
                inner.clear()
                continue
            for name in files:
                if len(seen) >= MAX_FILES:
                    return seen
                if name == ".env" or Path(name).suffix in SUFFIXES:
                    path = Path(root, name)
                    try:
                        stat = path.stat()
                    except OSError:  # deleted meanwhile
                        continue
                    seen[str(path)] = (stat.st_mtime_ns, stat.st_size)
    return seen


def changed(before: Seen, now: Seen) -> str:
    """The names of up to three files that differ."""
    paths = [path for path in {**before, **now} if before.get(path) != now.get(path)]
    return ", ".join(Path(path).name for path in paths[:3]) + (", ..." if len(paths) > 3 else "")


def reload_forever(config: Config, listener: socket.socket, ready: Callable[[], None]) -> int:
    """Serve and reload until a signal; the exit code. The options have the real port."""
    return Reloader(config, listener, folders_of(config.options.agents)).run(ready)
