"""Starts a server of the benchmark as a process of its own on the server's core, and reads what it costs from /proc.

Used by `main.py`, `rows.py` and `streams.py`. It never measures by itself.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import load

HERE = Path(__file__).parent
BENCH = HERE.parent / ".bench"
ADK_PYTHON = BENCH / "adk" / "bin" / "python"
ADK, OURS, CEILING, SDK = "google-adk", "polyport", "ceiling", "a2a-sdk"
COMMANDS = {
    ADK: [str(ADK_PYTHON), str(HERE / "adk_server.py")],
    OURS: [sys.executable, str(HERE / "our_server.py")],
    CEILING: [sys.executable, str(HERE / "ceiling.py")],
    SDK: [str(ADK_PYTHON), str(HERE / "sdk_server.py")],
}
OPTIONS = {"a2a": ["--a2a"], "window": ["--window", "20"]}
"""What a store other than "memory" and "sqlite" means: a server in memory with these options."""
TICKS = os.sysconf("SC_CLK_TCK")


def cores() -> tuple[int | None, int | None]:
    """The server's core and the client's. (None, None) where processes cannot be pinned or there is one core only."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    free = sorted(ALLOWED)
    return (free[0], free[1]) if len(free) > 1 else (None, None)


ALLOWED: set[int] = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def pin(core: int | None) -> None:
    """Keep this process, and what it starts from now on, on one core."""
    if core is not None:
        os.sched_setaffinity(0, {core})


@dataclass
class Server:
    """One running server. `started` is the `perf_counter` time just before the process was made."""

    kind: str
    port: int
    process: subprocess.Popen[bytes]
    started: float
    log: Path
    sessions: int = 0
    made: list[str] = field(default_factory=list)
    preloaded: dict[str, str] = field(default_factory=dict)

    def cpu(self) -> float:
        """CPU seconds used so far by all threads, dead ones too; steps of 10 ms."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_kb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def new_session_ids(self, count: int) -> list[str]:
        self.sessions += count
        return [f"s{n}" for n in range(self.sessions - count, self.sessions)]

    async def ready(self) -> float:
        """Seconds from the start of the process to the first 200."""
        try:
            status, body = await load.fetch(self.port, load.get("/list-apps"), timeout=60)
        except (OSError, TimeoutError) as error:
            raise RuntimeError(f"{self.kind} did not start: {error!r}\n{self.log.read_text()[-2000:]}") from error
        if status != 200:
            raise RuntimeError(f"{self.kind} answered {status} to /list-apps: {body[:200]!r}")
        return time.perf_counter() - self.started

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _compiled() -> dict[str, str]:
    """The environment of a server: both sides keep what they have compiled, as what pip installs is compiled."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def start(kind: str, store: str = "memory") -> Server:
    """Start a server; it takes connections at once and answers them when it is ready. `store`: "memory", "sqlite" or a key
    of OPTIONS."""
    work = BENCH / "run"
    work.mkdir(parents=True, exist_ok=True)
    command = list(COMMANDS[kind])
    if store == "sqlite":
        folder = work / kind
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        command += ["--sqlite", str(folder / "sessions.db")]
    command += OPTIONS.get(store, [])
    server_core, client_core = cores()
    log = work / f"{kind}.log"
    with socket.socket() as listener, log.open("wb") as out:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)
        port = listener.getsockname()[1]
        command += ["--fd", str(listener.fileno())]
        pin(server_core)  # the child inherits it
        started = time.perf_counter()
        process = subprocess.Popen(
            command, pass_fds=[listener.fileno()], stdout=out, stderr=subprocess.STDOUT, cwd=work, env=_compiled()
        )
        pin(client_core)
    return Server(kind, port, process, started, log)
