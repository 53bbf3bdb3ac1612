"""Connections to PostgreSQL over asyncpg, for one event loop; and what its errors mean.

Made by `postgres_database.py`, which imports this module only when a PostgreSQL database is used: asyncpg is an optional
dependency. Never knows what a statement is for.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar, cast

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from polyport.errors import BadRequest, ConfigError, PolyportError, Unavailable
from polyport.stores.postgres_url import PostgresUrl

T = TypeVar("T")
log = logging.getLogger("polyport.stores")

TRIES = 3
"""How often something is tried that came to nothing for sure, or that only reads."""
IDLE_S = 30
"""How long a transaction may do nothing: no process waits in one, but one that was stopped holds what it has locked."""
CLOSE_S = 5.0
"""How long connections in use may take to end when the store is closed."""
UNDONE = ("40001", "40P01", "57P01", "57P02")
"""It gave way to another transaction, or the server was told to end before it was committed."""
REFUSED = {
    "28000": "refuses the user: check pg_hba.conf",
    "28P01": "refuses the user or the password",
    "3D000": "has no such database: make it with `createdb`",
    "3F000": "has no schema to make tables in",
    "42501": "does not give the user the right to do that: it needs to own the schema, or CREATE in it",
}
"""SQLSTATE -> what is set up wrong."""
UNFIT = {
    "22021": "a NUL character",
    "22P05": "a character that the database's encoding does not have (make the database with ENCODING 'UTF8')",
    "54000": "more than PostgreSQL takes in one value or one key",
}


class _Connection(asyncpg.Connection):  # pyright: ignore[reportMissingTypeArgument, reportUntypedBaseClass]
    """One that is given back as it is: what is done with it leaves nothing behind, and a reset costs a round trip."""

    def get_reset_query(self) -> str:
        return ""


async def _given(connection: Any) -> None:
    """A process that stops in the middle of a transaction must not hold its rows for ever."""
    await connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_S}s'")


class LoopPool:
    """The connections of one event loop. They end with the loop (`asyncio.run` closes what hangs on it), or by `aclose`."""

    def __init__(self, url: PostgresUrl) -> None:
        self._url = url
        self._pool: Any = asyncpg.create_pool(  # pyright: ignore[reportUnknownMemberType]
            url.dsn,
            min_size=0,
            max_size=url.pool_size,
            timeout=url.connect_s,
            command_timeout=url.statement_s,
            connection_class=_Connection,
            init=_given,
            server_settings={"application_name": "polyport"},
        )
        self._opening = asyncio.Lock()
        self._open: AsyncGenerator[None] | None = None

    async def do(self, work: Callable[[Any], Awaitable[T]], *, reads: bool = False) -> T:
        """The result of `work(connection)`. What came to nothing for sure is done again, and what lost its connection if it
        only `reads`. BadRequest, ConfigError or Unavailable for what PostgreSQL refuses."""
        if self._open is None:
            await self._begin()
        left = TRIES
        while True:
            left -= 1
            try:
                async with self._pool.acquire(timeout=self._url.connect_s) as connection:
                    return await self._done(work, connection)
            except _ERRORS as error:
                if not (left and (_undone(error) or (reads and _lost(error)))):
                    raise self._told(error) from None

    async def _done(self, work: Callable[[Any], Awaitable[T]], connection: Any) -> T:
        """A connection that is lost does not go back to the others, which may be lost as well."""
        try:
            return await work(connection)
        except _ERRORS as error:
            if _lost(error):
                connection.terminate()
                await self._pool.expire_connections()
            raise

    async def _begin(self) -> None:
        async with self._opening:
            if self._open is None:
                await self._pool
                opened = self._until_the_loop_ends()
                await anext(opened)
                self._open = opened

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        """An event loop that ends closes its generators: this is how the connections hear of it."""
        try:
            yield
        finally:
            with anyio.move_on_after(CLOSE_S, shield=True) as scope:
                await self._pool.close()
            if scope.cancelled_caught:
                self._pool.terminate()

    async def aclose(self) -> None:
        """Close the connections once they are given back. Idempotent. On its own loop."""
        if self._open is not None:
            await self._open.aclose()

    def _told(self, error: Exception) -> PolyportError:
        where, state = self._url.shown, str(getattr(error, "sqlstate", "") or "")
        if state in REFUSED:
            return ConfigError(f"{where} {REFUSED[state]}")
        if state in UNFIT:
            return BadRequest(f"PostgreSQL cannot keep {UNFIT[state]}")
        if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
            return ConfigError(f"the settings in the URL {where} are wrong, or incomplete: see docs/databases.md")
        if isinstance(error, asyncpg.DataError | ValueError):  # it says so, or the driver cannot encode it
            return BadRequest("PostgreSQL cannot keep such a value")
        words = str(cast("Any", error).args[0]) if error.args else ""
        log.error("%s: %s %s: %s", where, type(error).__name__, state, words)
        if isinstance(error, TimeoutError):
            return Unavailable(f"{where} did not answer in time")
        if isinstance(error, OSError):
            return Unavailable(f"{where} cannot be reached ({type(error).__name__})")
        return Unavailable(f"{where} failed ({type(error).__name__})")


_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


def _unsent(error: Exception) -> bool:
    """Whether the driver saw that the connection is gone before it sent anything. (A ValueError is one of a value.)"""
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError) and not isinstance(error, ValueError)


def _undone(error: Exception) -> bool:
    """Whether nothing of what was begun is in the database."""
    return getattr(error, "sqlstate", None) in UNDONE or _unsent(error)


def _lost(error: Exception) -> bool:
    """Whether the connection is gone, or the server is about to go."""
    lost = asyncpg.PostgresConnectionError | asyncpg.AdminShutdownError | asyncpg.CrashShutdownError | ConnectionError
    return isinstance(error, lost) or _unsent(error)
