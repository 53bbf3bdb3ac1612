"""The open sessions of one MCP toolset, each owned by one task from its opening to its closing (FR-207).

Used by `McpToolset`. A session is opened when it is first needed, tested by a ping when it is in doubt, and closed by the task
that opened it: when it is lost, unused for long, in the way of another one, or when the app ends. There is never more than
one connection for a key, so never more than one child process for a server (FR-208, FR-211). Knows nothing of MCP itself.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, Protocol, TypeVar

import anyio
import anyio.abc

from polyport.errors import LimitExceeded, PolyportError, Unavailable
from polyport.tools.mcp_data import Lost, McpLimits

log = logging.getLogger("polyport.mcp")

Key = tuple[tuple[str, str], ...]
"""The headers that a session is for."""

CLOSE_S = 5.0
"""How long saying goodbye to a server may take."""


class Pingable(Protocol):
    async def alive(self) -> bool: ...


S = TypeVar("S", bound=Pingable)


class Connection(Generic[S]):
    """One session and its state. `stop` asks its owner to close it; `closed` says that it is gone, child and all."""

    __slots__ = ("closed", "doubtful", "error", "key", "ready", "scope", "session", "stop", "used_at", "users")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.session: S | None = None
        self.error: Exception | None = None
        self.ready = anyio.Event()
        self.stop = anyio.Event()
        self.closed = anyio.Event()
        self.scope = anyio.CancelScope()
        self.doubtful = False
        self.users = 0
        self.used_at = anyio.current_time()

    @property
    def idle(self) -> bool:
        return self.users == 0 and not self.stop.is_set()


class Pool(Generic[S]):
    """Sessions by key. `open` gives a context manager around one; it raises PolyportErrors."""

    def __init__(
        self,
        group: anyio.abc.TaskGroup,
        open: Callable[[Key], AbstractAsyncContextManager[S]],
        limits: McpLimits,
        where: str,
    ) -> None:
        self._group = group
        self._open = open
        self._limits = limits
        self._where = where
        self._connections: dict[Key, Connection[S]] = {}
        self._freed = anyio.Event()

    def __len__(self) -> int:
        return len(self._connections)

    @asynccontextmanager
    async def borrow(self, key: Key) -> AsyncGenerator[S]:
        """A session for the block, shared with whoever has the same key. When the block raises Lost or TimeoutError, the
        session is tested before it is used again. Unavailable, LimitExceeded."""
        connection = await self._ready(key)
        assert connection.session is not None
        try:
            yield connection.session
        except (Lost, TimeoutError):
            connection.doubtful = True
            raise
        finally:
            self._give_back(connection)

    def _give_back(self, connection: Connection[S]) -> None:
        connection.users -= 1
        connection.used_at = anyio.current_time()
        self._wake()

    async def _ready(self, key: Key) -> Connection[S]:
        while True:
            connection = self._connections.get(key)
            if connection is None:
                if len(self._connections) >= self._limits.sessions:
                    await self._make_room()
                    continue
                connection = self._connections[key] = Connection[S](key)
                self._group.start_soon(self._own, connection)
            elif connection.stop.is_set():
                await connection.closed.wait()
                continue
            if await self._usable(connection):
                return connection

    async def _usable(self, connection: Connection[S]) -> bool:
        """Count as a user of the connection once it is open; False when it has to be replaced."""
        connection.users += 1
        good = False
        try:
            await connection.ready.wait()
            session = connection.session
            if session is None:
                raise connection.error or Unavailable(f"{self._where} was closed while it was being opened")
            if connection.doubtful:
                if not await session.alive():
                    log.info("%s: the connection was lost", self._where)
                    connection.stop.set()
                    return False
                connection.doubtful = False
            good = not connection.stop.is_set()
            return good
        finally:
            if not good:
                self._give_back(connection)

    async def _make_room(self) -> None:
        """Close the session that was unused for the longest time, or wait until one is free."""
        idle = [c for c in self._connections.values() if c.idle]
        if idle:
            oldest = min(idle, key=lambda c: c.used_at)
            oldest.stop.set()
            await oldest.closed.wait()
            return
        try:
            with anyio.fail_after(self._limits.connect_timeout_s):
                await self._freed.wait()
        except TimeoutError:
            raise LimitExceeded(
                f"all {self._limits.sessions} sessions of {self._where} are in use (the limit `sessions`)", 1.0
            ) from None

    def _wake(self) -> None:
        self._freed.set()
        self._freed = anyio.Event()

    async def _own(self, connection: Connection[S]) -> None:
        """The task that opens a session, keeps it open and closes it."""
        try:
            with connection.scope:
                async with self._open(connection.key) as session:
                    connection.session = session
                    connection.ready.set()
                    await self._until_unwanted(connection)
                    connection.scope.deadline = anyio.current_time() + CLOSE_S
        except PolyportError as error:
            connection.error = error
        except Exception as error:  # the SDK's tasks may raise anything; those who wait are told
            log.info("%s: the connection broke: %s", self._where, type(error).__name__, exc_info=error)
            connection.error = Unavailable(f"the connection to {self._where} broke")
        finally:
            connection.session = None
            connection.stop.set()
            del self._connections[connection.key]
            connection.ready.set()
            connection.closed.set()
            self._wake()

    async def _until_unwanted(self, connection: Connection[S]) -> None:
        limit = self._limits.idle_timeout_s
        while not connection.stop.is_set():
            if not limit:
                await connection.stop.wait()
                return
            with anyio.move_on_at(connection.used_at + limit if not connection.users else anyio.current_time() + limit):
                await connection.stop.wait()
            if connection.idle and anyio.current_time() >= connection.used_at + limit:
                connection.stop.set()

    async def close(self) -> None:
        """Close all sessions, and wait until they are gone. New ones may be opened afterwards."""
        for connection in list(self._connections.values()):
            connection.stop.set()
            if not connection.ready.is_set():
                connection.scope.cancel()  # it is still being opened
        for connection in list(self._connections.values()):
            await connection.closed.wait()


@asynccontextmanager
async def pooling(
    open: Callable[[Key], AbstractAsyncContextManager[S]], limits: McpLimits, where: str
) -> AsyncGenerator[Pool[S]]:
    """A pool whose tasks live as long as the block. On leaving all sessions are closed first. What the block raises leaves as
    it is, not in a group."""
    raised: BaseException | None = None
    async with anyio.create_task_group() as group:
        pool = Pool(group, open, limits, where)
        try:
            yield pool
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  raised below, outside of the group
            raised = error
        finally:
            with anyio.CancelScope(shield=True):
                await pool.close()
    if raised is not None:
        raise raised
