"""The one thread that writes to the database, many operations in one transaction (group commit).

Called by `sqlite.py`. While one transaction is being made durable, further operations queue up, and all of them go
into the next: the cost of durability is shared by those who write at the same time. Each operation stands or falls alone,
and is answered only when its transaction is durable.
"""

import asyncio
import logging
import math
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

import anyio
import apsw

from polyport.errors import PolyportError, TimedOut, Unavailable
from polyport.ports.stores import STORE_TIMEOUT_S
from polyport.stores.sqlite_file import Connection, SqliteFile, retry_busy, unavailable

T = TypeVar("T")
log = logging.getLogger("polyport.stores")

QUEUE_LIMIT = 1024
"""How many operations may wait; further callers wait outside."""
GROUP_LIMIT = 256
"""How many operations go into one transaction at most."""


class _Operation:
    """Something to do in a transaction, and who waits for it."""

    __slots__ = ("error", "future", "loop", "result", "settled", "then", "work")

    def __init__(self, work: Callable[[Connection], Any], then: Callable[[Any], None] | None) -> None:
        self.work = work
        self.then = then
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.settled = False


class GroupWriter:
    """Carries out operations in order of arrival. The thread starts with the first one."""

    def __init__(self, file: SqliteFile, *, queue_limit: int = QUEUE_LIMIT, group_limit: int = GROUP_LIMIT) -> None:
        self._file = file
        self._queue: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._queue_limit = queue_limit
        self._group_limit = group_limit
        self._lock = threading.Lock()  # guards `_closed`, `_thread`, and that nothing is queued after the end mark
        self._closed = False
        self._thread: threading.Thread | None = None
        self._room: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self.transactions = 0
        """How many transactions were committed."""

    @property
    def waiting(self) -> int:
        """How many operations are queued."""
        return self._queue.qsize()

    async def do(self, work: Callable[[Connection], T], then: Callable[[T], None] | None = None) -> T:
        """The result of `work(connection)` once it is durable. `work` runs in the writer's thread, inside a transaction.

        An error of `work` undoes what it did, and is raised here; Unavailable when the database fails or is closed. A
        caller that is cancelled does not stop its operation: `then(result)` is called on the loop in any case.
        """
        return cast("T", await (await self._begin(work, then)).future)

    async def finish(self, work: Callable[[Connection], T], then: Callable[[T], None]) -> T:
        """The same, but a caller that a scope cancels gets the result, too, and the cancellation where it waits next. TimedOut
        if there is none within STORE_TIMEOUT_S. A shield would cost all callers what it costs here those who are cancelled."""
        operation = await self._begin(work, then)
        late = operation.loop.call_later(STORE_TIMEOUT_S, _too_late, operation)
        try:
            return cast("T", await operation.future)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await _settled(operation)
            if anyio.current_effective_deadline() != -math.inf:
                raise  # no scope cancels it, and so nobody would do it again
            return cast("T", operation.result)
        finally:
            late.cancel()

    async def _begin(self, work: Callable[[Connection], Any], then: Callable[[Any], None] | None) -> _Operation:
        while self.waiting >= self._queue_limit:
            await self._wait_for_room()
        operation = _Operation(work, then)
        with self._lock:
            self._check_open()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="polyport-sqlite-writer", daemon=True)
                self._thread.start()
            self._queue.put(operation)
        return operation

    def close(self) -> None:
        """Carry out what is waiting, then stop. Blocks; idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the session store is closed")
        if self._thread is not None and not self._thread.is_alive():
            raise Unavailable("the session store's writer is gone: a process that forks must make its store afterwards")

    async def _wait_for_room(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._room.append((loop, future))
        if self.waiting < self._queue_limit or self._closed:  # it became free before we were on the list
            self._give_room()
        await future

    def _give_room(self) -> None:
        """Let all who wait outside look again. Called from any thread."""
        while self._room:
            try:
                loop, future = self._room.popleft()
            except IndexError:  # another thread was faster
                return
            on_loop(loop, _wake, future)

    def _run(self) -> None:
        con: Connection | None = None
        going = True
        while going:
            group, going = self._next_group()
            try:
                con = con or retry_busy(self._file.connect)
                self._commit(con, group)
            except apsw.Error as error:
                _fail(group, unavailable(error, "write"))
                con = _give_up(con)
            except BaseException as error:  # the thread must live on, and nobody may wait for ever
                log.exception("the session database's writer failed")
                _fail(group, Unavailable(f"the session database's writer failed ({type(error).__name__})"))
            _answer(group)
        if con is not None:
            con.close()

    def _next_group(self) -> tuple[list[_Operation], bool]:
        """The operations that wait, at least one unless the end has come; and whether to go on after them."""
        group: list[_Operation] = []
        item = self._queue.get()
        try:
            while item is not None:
                group.append(item)
                if len(group) >= self._group_limit:
                    break
                item = self._queue.get_nowait()
        except queue.Empty:
            pass  # that was all
        if self._room:
            self._give_room()
        return group, item is not None

    def _commit(self, con: Connection, group: list[_Operation]) -> None:
        """One transaction. Raises apsw.Error if all of it is lost; errors of one operation are noted on it."""
        if not group:
            return
        retry_busy(lambda: con.execute("BEGIN IMMEDIATE"))
        try:
            alone = len(group) == 1  # the transaction is savepoint enough
            for operation in group:
                _carry_out(con, operation, alone)
            con.execute("ROLLBACK" if alone and group[0].error is not None else "COMMIT")
        except BaseException:
            if con.in_transaction:
                con.execute("ROLLBACK")
            raise
        self.transactions += 1


def _carry_out(con: Connection, operation: _Operation, alone: bool) -> None:
    """Do one operation, in its own savepoint unless it is `alone` in its transaction. Raises apsw.Error if the database
    itself failed."""
    if not alone:
        con.execute("SAVEPOINT operation")
    try:
        operation.result = operation.work(con)
    except (PolyportError, apsw.ConstraintError, apsw.TooBigError, TypeError, ValueError) as error:
        operation.error = unavailable(error, "write") if isinstance(error, apsw.Error) else error
        if not alone:
            con.execute("ROLLBACK TO operation")
    if not alone:
        con.execute("RELEASE operation")


def _give_up(con: Connection | None) -> None:
    """Close a connection that failed; the next transaction gets a new one."""
    if con is not None:
        con.close(True)


def _fail(group: list[_Operation], error: Unavailable) -> None:
    """The whole transaction is lost: everybody is told, but for those whose own error came first."""
    for operation in group:
        operation.error = operation.error or Unavailable(str(error))


def _answer(group: list[_Operation]) -> None:
    """Tell those who wait, with one wake-up for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[_Operation]] = {}
    for operation in group:
        loops.setdefault(operation.loop, []).append(operation)
    for loop, operations in loops.items():
        on_loop(loop, _settle, operations)


def on_loop(loop: asyncio.AbstractEventLoop, step: Callable[[Any], None], argument: Any) -> None:
    """Have `step(argument)` called on the loop, from any thread."""
    try:
        loop.call_soon_threadsafe(step, argument)
    except RuntimeError:  # the loop has been closed, and so nobody waits there
        log.warning("an event loop was closed while it waited for the session database")


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _too_late(operation: _Operation) -> None:
    if not operation.future.done():
        error = TimedOut(f"the session store did not take an event within {STORE_TIMEOUT_S:.0f} s")
        operation.future.set_exception(error)


async def _settled(operation: _Operation) -> None:
    """Wait on for an operation whose caller was cancelled. Its error is raised."""
    if not operation.settled:
        if operation.future.cancelled():
            operation.future = operation.loop.create_future()
        await operation.future
    elif operation.error is not None:
        raise operation.error


def _settle(operations: list[_Operation]) -> None:
    """On the loop: hand out results in the order of the transaction."""
    for operation in operations:
        operation.settled = True
        error = operation.error
        if error is None and operation.then is not None:
            operation.then(operation.result)
        if operation.future.done():  # its caller was cancelled
            if error is not None:
                log.warning("a write to the session database failed after its caller was cancelled: %s", error)
        elif error is None:
            operation.future.set_result(operation.result)
        else:
            operation.future.set_exception(error)
