"""`polyport serve --workers N`: processes that serve one port, watched by this one. Not for Windows.

uvicorn's supervisor with our server in it. The parent answers signals and starts a worker anew that died; a worker loads the
agents itself, ends when the parent tells it to, and also when the parent is gone. A second signal kills all of them.

On Linux each worker has a listening socket of its own, and the kernel spreads connections evenly. With one socket for all,
the first to wake takes every connection that waits, so that a pool of clients ends up on one core.
"""

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from signal import SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGINT, SIGTERM, pthread_sigmask, signal
from threading import Thread
from types import FrameType

from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import multiprocess

from polyport.cli.ending import die_of, leave
from polyport.cli.logs import configure
from polyport.cli.serve import FAILED, Config, Server, bind, build, listen
from polyport.errors import PolyportError

log = logging.getLogger("polyport")

SPREAD = sys.platform == "linux"
"""Whether the kernel spreads connections over sockets of one port."""


class WorkerServer(Server):
    """Stops on SIGTERM only, and does not mind a second one: a service manager may send it to parent and workers alike."""

    signals = (SIGTERM,)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = True


class Worker(multiprocess.Process):
    """One worker process: `start` and `kill` run in the parent, the rest in the worker."""

    def start(self) -> None:
        before = pthread_sigmask(SIG_BLOCK, {SIGINT})  # the child inherits it: no Ctrl-C while it is being made
        try:
            super().start()
        finally:
            pthread_sigmask(SIG_SETMASK, before)

    def kill(self) -> None:
        log.warning("worker process %s died or hangs", self.process.pid)
        super().kill()

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        signal(SIGINT, _nothing)  # Ctrl-C reaches all processes of a terminal; the parent passes it on
        pthread_sigmask(SIG_UNBLOCK, {SIGINT})
        self.parent_conn.close()  # else this process would keep the parent's end open when the parent has died
        Thread(target=self.always_pong, daemon=True).start()
        leave(self._serve(sockets or []))

    def _serve(self, sockets: list[socket.socket]) -> int:
        config = self.config
        assert isinstance(config, Config)
        options = config.options
        configure(options.log_format, options.log_level)
        try:
            app = build(options)
            if SPREAD:
                sockets = [listen(options.host, options.port, shared=True)]
        except PolyportError as error:
            log.error("a worker cannot start: %s", error)
            return STARTUP_FAILURE
        config.app = app.asgi
        self._server = WorkerServer(config, app, lambda: None)
        self._server.run(sockets)
        return 0

    def pong(self) -> None:
        self.child_conn.recv()
        self.child_conn.send(self._server is not None and self._server.started)

    def always_pong(self) -> None:
        """Answer the parent's questions; when it is gone, stop serving."""
        with contextlib.suppress(EOFError, OSError):
            super().always_pong()
        os.kill(os.getpid(), SIGTERM)  # stops the server, or this process if it has none yet


def _nothing(number: int, frame: FrameType | None) -> None:
    """A handler; other than SIG_IGN it is not inherited by the processes that tools start."""


class Supervisor(multiprocess.Multiprocess):
    """Starts and watches the workers. `ready` is called once all take requests."""

    def __init__(self, config: Config, listener: socket.socket, ready: Callable[[], None]) -> None:
        super().__init__(config, [listener])
        self._ready = ready

    def init_processes(self) -> None:
        super().init_processes()
        for process in self.processes:
            while not self.should_exit.is_set() and process.process.is_alive() and not process.is_ready(0.1):
                self.handle_signals()
        if not self.should_exit.is_set() and all(process.process.is_alive() for process in self.processes):
            self._ready()

    def join_all(self) -> None:
        for number in (SIGINT, SIGTERM):
            signal(number, self._force)
        super().join_all()

    def _force(self, number: int, frame: FrameType | None) -> None:
        for process in self.processes:
            process.process.kill()
        die_of(number)

    @property
    def failed(self) -> bool:
        """Whether a worker could not start."""
        return any(process.exitcode == STARTUP_FAILURE for process in self.processes)


def supervise(config: Config, listener: socket.socket, ready: Callable[[], None]) -> int:
    """Serve in several processes until a signal; the exit code. The options have the real port."""
    if SPREAD:
        listener.close()
        listener = bind(config.options.host, config.options.port, shared=True)  # keeps it while workers come and go
    multiprocess.Process = Worker  # the supervisor has no other seam for what it starts
    supervisor = Supervisor(config, listener, ready)
    supervisor.run()
    return FAILED if supervisor.failed else 0
