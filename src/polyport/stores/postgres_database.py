"""A PostgreSQL database of Polyport: its connections, and its tables, brought to the newest schema on first use.

Shared by the stores of `postgres*.py`; made by `open_stores`. Any number of processes and event loops may use it at once. All
tables are called `polyport_...`, so that the database may have others. Never keeps a password in a message.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib import resources
from typing import Any, Protocol, TypeVar

from polyport.errors import ConfigError, Unavailable
from polyport.seams import REAL, Seams
from polyport.stores import postgres_url
from polyport.stores.sqlite_file import Migration

T = TypeVar("T")
LOCK = 7_012_019_001
"""The advisory lock under which the schema is changed; any number that is the same everywhere."""


class Connection(Protocol):
    """What is used of an asyncpg.Connection, which has no types."""

    async def fetch(self, query: str, *args: Any) -> list[Any]: ...

    async def fetchrow(self, query: str, *args: Any) -> Any: ...

    async def fetchval(self, query: str, *args: Any) -> Any: ...

    async def execute(self, query: str, *args: Any) -> str: ...

    def transaction(self, *, isolation: str | None = None, readonly: bool = False) -> Any: ...


class _Pool(Protocol):
    """What is used of a postgres_pool.LoopPool."""

    async def do(self, work: Callable[[Connection], Awaitable[T]], *, reads: bool = False) -> T: ...

    async def aclose(self) -> None: ...


def known_migrations() -> list[Migration]:
    """The numbered .sql files for PostgreSQL, in order."""
    found: list[Migration] = []
    for file in resources.files("polyport.stores").joinpath("migrations", "postgres").iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        if file.name.endswith(".sql"):
            found.append(Migration(int(number), name, file.read_text("utf-8")))
    return sorted(found)


class PostgresDatabase:
    """The database at `url`: see `postgres_url.parse`. Nothing is connected before the first use.

    ConfigError without asyncpg, for a URL that is none, for a server that refuses us, and for a schema of a newer Polyport.
    """

    def __init__(self, url: str, *, seams: Seams = REAL, migrations: Sequence[Migration] | None = None) -> None:
        try:
            from polyport.stores.postgres_pool import LoopPool  # an optional dependency
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise ConfigError("PostgreSQL needs the package 'asyncpg': pip install 'polyport[postgres]'") from None
        self._url = postgres_url.parse(url)
        self._make: Callable[[postgres_url.PostgresUrl], _Pool] = LoopPool
        self._seams = seams
        self._migrations = known_migrations() if migrations is None else list(migrations)
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._ready = False
        self._closed = False

    def __repr__(self) -> str:
        return f"PostgresDatabase({self._url.shown!r})"

    @property
    def shown(self) -> str:
        """Its URL without secrets."""
        return self._url.shown

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The result of `work`, which changes nothing: it is done again on a new connection when the old one was lost."""
        return await (await self._here()).do(work, reads=True)

    async def write(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The result of `work`, which is durable then. Done again only when all of it was undone for sure."""
        return await (await self._here()).do(work)

    async def ping(self) -> None:
        """Return if the database answers."""
        await self.read(lambda con: con.fetchval("SELECT 1"))

    async def aclose(self) -> None:
        """Let go of all connections. Idempotent. Those of other event loops end with these."""
        self._closed = True
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    async def _here(self) -> _Pool:
        """The connections of this event loop, to a database that has our tables."""
        if self._closed:
            raise Unavailable("the session store is closed")
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for other in [other for other in list(self._pools) if other.is_closed()]:
                self._pools.pop(other, None)
            pool = self._pools[loop] = self._make(self._url)
        if not self._ready:
            await pool.do(self._migrate)
            self._ready = True
        return pool

    async def _migrate(self, con: Connection) -> None:
        last = self._migrations[-1].version
        if await self._version(con, last) == last:
            return
        async with con.transaction():
            await con.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            version = await self._version(con, last)  # again, for another process may have been faster
            for step in self._migrations:
                if step.version > version:
                    await con.execute(step.sql)
                    await con.execute(
                        "INSERT INTO polyport_schema VALUES ($1, $2, $3)", step.version, step.name, self._seams.clock()
                    )

    async def _version(self, con: Connection, last: int) -> int:
        # (to_regclass does not hear of a table that another process has just made)
        if not await con.fetchval(
            "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = ANY (current_schemas(false))"
            " AND tablename = 'polyport_schema')"
        ):
            return 0
        version = await con.fetchval("SELECT max(version) FROM polyport_schema")
        if not isinstance(version, int):
            raise ConfigError(f"{self.shown} does not say its schema version; restore it from a backup")
        if version > last:
            raise ConfigError(
                f"{self.shown} has schema version {version}, this Polyport knows versions up to {last}: "
                "upgrade Polyport, or name another database"
            )
        return version
