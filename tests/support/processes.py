"""Real processes of the command line: started, read line by line as they write, and ended with the test.

Nothing here sleeps: every wait is for a line, for an exit or for bytes of a terminal, with a bound (`PATIENCE_S`) after which
the test fails and shows what the process said.
"""

import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

PATIENCE_S = 60.0
COMMAND = [sys.executable, "-m", "polyport.cli.main"]
OWN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes standard input the controlling terminal, so that Ctrl-C typed there is a signal."""


def environment(**more: str) -> dict[str, str]:
    """This environment without keys of model providers, and with `more`."""
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY") and not k.startswith("POLYPORT")}
    return {**kept, **more}


class Lines:
    """What a process writes to one pipe, read by a thread of its own."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._got: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._pipe:
            with self._news:
                self._got.append(line.decode("utf-8", "backslashreplace").rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def find(self, pattern: str) -> re.Match[str] | None:
        return next((m for line in self._got if (m := re.search(pattern, line))), None)

    def wait_for(self, pattern: str) -> re.Match[str] | None:
        """The first match in a line, as soon as there is one; None when the pipe ends or patience does without it."""
        with self._news:
            self._news.wait_for(lambda: self._ended or self.find(pattern), PATIENCE_S)
            return self.find(pattern)

    @property
    def text(self) -> str:
        with self._news:
            return "\n".join(self._got)

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        self._pipe.close()


class Process:
    """`polyport ARGS` as a process. `async`-free; use it as a context manager: it is killed at the end if it is still alive."""

    def __init__(
        self,
        *args: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = COMMAND,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._popen = subprocess.Popen(
            [*command, *args],
            cwd=cwd,
            env=environment(**(env or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=pass_fds,
        )
        assert self._popen.stdin and self._popen.stdout and self._popen.stderr
        self.stdin = self._popen.stdin
        self.out = Lines(self._popen.stdout)
        self.err = Lines(self._popen.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._popen.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(PATIENCE_S)
        self.out.join()
        self.err.join()
        if not self.stdin.closed:
            self.stdin.close()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def said(self) -> str:
        return f"--- stdout\n{self.out.text}\n--- stderr\n{self.err.text}\n---"

    def says(self, pattern: str, *, err: bool = False) -> re.Match[str]:
        """Wait for a line that matches."""
        found = (self.err if err else self.out).wait_for(pattern)
        assert found, f"no line matches {pattern!r}\n{self.said}"
        return found

    def write(self, line: str) -> None:
        self.stdin.write(line.encode() + b"\n")
        self.stdin.flush()

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def wait(self) -> int:
        """The exit code; negative for a signal."""
        try:
            return self._popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the process did not end\n{self.said}") from None

    def ended(self) -> int:
        """The exit code, after all that it wrote was read."""
        code = self.wait()
        self.out._thread.join(PATIENCE_S)
        self.err._thread.join(PATIENCE_S)
        return code


class Serving(Process):
    """`polyport serve ARGS` on a free port."""

    def __init__(self, *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        super().__init__("serve", *args, "--port", "0", cwd=cwd, env=env)
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self.url = self.says(r"^Polyport serves .* on (http://\S+)$")[1]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


class Terminal:
    """`polyport ARGS` in a terminal of its own."""

    def __init__(self, *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, b"\x28\x00\xc8\x00\x00\x00\x00\x00")  # 40 lines of 200
        self._popen = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, *COMMAND, *args],
            cwd=cwd,
            env=environment(**{"TERM": "xterm", **(env or {})}),
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        self.seen = ""
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait(PATIENCE_S)
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def shows(self, pattern: str) -> str:
        """Wait until what was shown since the last call matches; what was shown up to the end of the match."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = re.search(pattern, self.seen[self._at :])
            if found:
                start, self._at = self._at, self._at + found.end()
                return self.seen[start : self._at]
            assert self._more(deadline), f"the terminal does not show {pattern!r}:\n{self.seen}"

    def interrupts(self, pattern: str) -> None:
        """Press Ctrl-C until the pattern is shown, or the process has ended. (Python misses one that comes in the moment
        before `input` begins to wait.)"""
        for patience in (1.0, 2.0, 4.0, 8.0, PATIENCE_S):
            self.type("\x03")
            deadline = time.monotonic() + patience
            while not re.search(pattern, self.seen[self._at :]) and self._more(deadline):
                pass
            if time.monotonic() < deadline:
                break

    def wait(self) -> int:
        """The exit code, once everything that it wrote was read."""
        deadline = time.monotonic() + PATIENCE_S
        while self._more(deadline):
            pass
        return self._popen.wait(PATIENCE_S)

    def _more(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            got = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += got.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(got)


def process_ended(pid: int) -> bool:
    """Whether a process that is not our child ends within patience."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE_S)
        return bool(ready)
    finally:
        os.close(descriptor)
