"""One SQLite database file of Polyport: how it is opened, checked and brought to the newest schema.

Called by `sqlite.py` at start and by the threads that hold connections. WAL with full durability: what was committed
survives kill -9 and power loss. Never on the event loop, but for `prepare` before there is one.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import apsw

from polyport.errors import ConfigError, Unavailable
from polyport.seams import REAL, Seams

T = TypeVar("T")
log = logging.getLogger("polyport.stores")

BUSY_TRIES = 3
"""How often a statement is tried again after the busy time has passed."""
WAL_LIMIT = 64 << 20
"""Bytes to which the write-ahead log is cut back after a checkpoint."""


class Connection(Protocol):
    """What is used of an apsw.Connection, whose own types name one that Python 3.11 does not have."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, statements: str, bindings: Sequence[Any] = ..., /) -> Any:
        """A cursor: iterate over its rows, or take `.get` (None, the only value, or the only row)."""
        ...

    def executemany(self, statements: str, rows: Iterable[Sequence[Any]], /) -> Any: ...

    def close(self, force: bool = False, /) -> None: ...


class Migration(NamedTuple):
    version: int
    name: str
    sql: str


def known_migrations() -> list[Migration]:
    """The numbered .sql files of this package, in order."""
    found: list[Migration] = []
    for file in resources.files("polyport.stores").joinpath("migrations").iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        if file.name.endswith(".sql"):
            found.append(Migration(int(number), name, file.read_text("utf-8")))
    return sorted(found)


class SqliteFile:
    """A database file, and the settings with which every connection to it is made.

    `busy_s` is how long a connection waits for another process, BUSY_TRIES times.
    """

    def __init__(self, path: str | Path, *, busy_s: float = 10.0, seams: Seams = REAL) -> None:
        self.path = Path(path).absolute()
        self._busy_ms = max(1, int(busy_s * 1000))
        self._seams = seams

    def prepare(self, migrations: Sequence[Migration] | None = None) -> None:
        """Make the file if there is none, and bring its schema up to date. Blocks.

        ConfigError, with nothing written, for a file that is not ours or that a newer Polyport made.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # conversations are nobody else's business; SQLite gives its other files the same mode
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise ConfigError(f"cannot open the database {self.path}: {error.strerror}") from None
        try:
            con = self._open()
            try:
                retry_busy(lambda: self._migrate(con, known_migrations() if migrations is None else migrations))
            finally:
                con.close()
        except apsw.NotADBError:
            raise ConfigError(f"{self.path} is not an SQLite database; name another file") from None
        except apsw.Error as error:
            raise ConfigError(f"cannot open the database {self.path}: {error}") from error

    def connect(self, *, read_only: bool = False) -> Connection:
        """A connection with this store's settings, for one thread. Raises apsw errors."""
        con = self._open()
        con.execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")
        con.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
        if read_only:
            con.execute("PRAGMA query_only = ON")
        return con

    def _open(self) -> Connection:
        con = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        con.set_busy_timeout(self._busy_ms)
        return cast("Connection", con)

    def _migrate(self, con: Connection, migrations: Sequence[Migration]) -> None:
        last = migrations[-1].version
        if self._version(con, last) == last:
            return
        if con.execute("PRAGMA journal_mode = WAL").get != "wal":
            raise ConfigError(f"{self.path} lies where SQLite cannot use its write-ahead log (a network folder?)")
        con.execute("BEGIN IMMEDIATE")
        try:
            now = self._seams.clock()
            version = self._version(con, last)  # again, for another process may have been faster
            for step in migrations:
                if step.version > version:
                    con.execute(step.sql).fetchall()  # to its end: a cursor rests at each row that comes
                    con.execute("INSERT INTO polyport_schema VALUES (?, ?, ?)", (step.version, step.name, now))
            con.execute("COMMIT")
        except BaseException:
            con.execute("ROLLBACK")
            raise

    def _version(self, con: Connection, last: int) -> int:
        tables = [str(row[0]) for row in con.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        if not tables:
            return 0
        if "polyport_schema" not in tables:
            raise ConfigError(
                f"{self.path} is a database of another program (it has a table {tables[0]!r}); name another file"
            )
        version = con.execute("SELECT max(version) FROM polyport_schema").get
        if not isinstance(version, int):
            raise ConfigError(f"{self.path} does not say its schema version; restore it from a backup")
        if version > last:
            raise ConfigError(
                f"{self.path} has schema version {version}, this Polyport knows versions up to {last}: "
                "upgrade Polyport, or name another file"
            )
        return version


def retry_busy(step: Callable[[], T]) -> T:
    """`step()`, tried again while another process holds the file. The last apsw.BusyError if it never lets go."""
    for left in range(BUSY_TRIES - 1, -1, -1):
        try:
            return step()
        except apsw.BusyError:
            if not left:
                raise
            time.sleep(0.01)  # not all kinds of "busy" were waited for by SQLite itself
    raise AssertionError("unreachable")


def unavailable(error: apsw.Error, what: str) -> Unavailable:
    """What a caller is told when the database fails; the log has SQLite's own words."""
    log.error("the session database could not %s: %s: %s", what, type(error).__name__, error)
    if isinstance(error, apsw.BusyError):
        return Unavailable(f"the session database could not {what}: another process did not let go of it in time")
    if isinstance(error, apsw.FullError):
        return Unavailable(f"the session database could not {what}: the disk is full")
    return Unavailable(f"the session database could not {what} ({type(error).__name__})")
