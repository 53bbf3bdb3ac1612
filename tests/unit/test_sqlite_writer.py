"""The group writer: order, groups, back-pressure, failures, its end."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import apsw
import pytest
from anyio.abc import TaskGroup

from polyport.errors import BadRequest, NotFound, PolyportError, TimedOut, Unavailable
from polyport.stores import sqlite_writer
from polyport.stores.sqlite_file import Connection, SqliteFile
from polyport.stores.sqlite_writer import GroupWriter
from polyport.testing.samples import together


@pytest.fixture
def file(tmp_path: Path) -> SqliteFile:
    file = SqliteFile(tmp_path / "s.db")
    file.prepare()
    con = file.connect()
    con.execute("CREATE TABLE t (x INTEGER UNIQUE)")
    con.close()
    return file


@pytest.fixture
async def writer(file: SqliteFile) -> AsyncIterator[GroupWriter]:
    writer = GroupWriter(file, queue_limit=4, group_limit=3)
    yield writer
    await anyio.to_thread.run_sync(writer.close)


def insert(x: int) -> Any:
    def work(con: Connection) -> int:
        con.execute("INSERT INTO t VALUES (?)", (x,))
        return x

    return work


def refused(con: Connection) -> None:
    raise NotFound("no such row")


def stored(file: SqliteFile) -> list[int]:
    con = file.connect()
    found = [row[0] for row in con.execute("SELECT x FROM t ORDER BY rowid")]
    con.close()
    return found


class Gate:
    """An operation that holds the writer's thread until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()

    def __call__(self, con: Connection) -> str:
        self.entered.set()
        assert self.leave.wait(60)
        return "gate"


async def test_results_come_after_they_are_durable(writer: GroupWriter, file: SqliteFile) -> None:
    assert await writer.do(insert(1)) == 1
    assert stored(file) == [1]


async def test_order_is_kept_and_the_queue_is_bounded(writer: GroupWriter, file: SqliteFile) -> None:
    gate, order = Gate(), []
    async with anyio.create_task_group() as group:
        group.start_soon(writer.do, gate)
        await anyio.to_thread.run_sync(gate.entered.wait)
        for number in range(20):
            group.start_soon(writer.do, insert(number), order.append)
        await anyio.wait_all_tasks_blocked()
        assert writer.waiting == 4
        gate.leave.set()
    assert sorted(order) == list(range(20))
    assert stored(file) == order
    assert order[:4] == [0, 1, 2, 3]
    assert writer.transactions >= 1 + 20 / 3


async def test_one_bad_operation_of_a_group_fails_alone(writer: GroupWriter, file: SqliteFile) -> None:
    def bad(error: Exception) -> Any:
        def work(con: Connection) -> None:
            con.execute("INSERT INTO t VALUES (99)")
            raise error

        return work

    def steps() -> list[Any]:
        works = [insert(1), bad(BadRequest("wrong")), insert(1), insert(2)]
        return [lambda w=work: writer.do(w) for work in works]

    first, second, third, fourth = await together(*steps())
    assert (first, fourth) == (1, 2)
    assert isinstance(second, BadRequest)
    assert isinstance(third, Unavailable)  # a broken constraint is our fault, not the caller's
    assert stored(file) == [1, 2]
    with pytest.raises(TypeError, match="a mistake"):
        await writer.do(bad(TypeError("a mistake")))
    assert await writer.do(insert(3)) == 3


async def test_FR_223_when_the_transaction_is_lost_all_are_told(
    writer: GroupWriter, file: SqliteFile, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()

    def fails(con: Connection) -> None:
        raise apsw.IOError("disk gone")

    results: list[Any] = []

    async def step(work: Any) -> None:
        try:
            results.append(await writer.do(work))
        except PolyportError as error:
            results.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(step, gate)
        await anyio.to_thread.run_sync(gate.entered.wait)
        for work in (insert(1), fails, insert(2)):  # one group: they wait together
            group.start_soon(step, work)
        await anyio.wait_all_tasks_blocked()
        gate.leave.set()
    assert results[0] == "gate"
    assert [str(error) for error in results[1:]] == ["the session database could not write (IOError)"] * 3
    assert "disk gone" in caplog.text
    assert stored(file) == []
    assert await writer.do(insert(4)) == 4  # with a new connection


async def test_FR_223_a_bug_does_not_end_the_thread(writer: GroupWriter, caplog: pytest.LogCaptureFixture) -> None:
    def bug(con: Connection) -> None:
        raise KeyError("bug")

    with pytest.raises(Unavailable, match="KeyError"):
        await writer.do(bug)
    assert await writer.do(insert(1)) == 1
    assert "the session database's writer failed" in caplog.text


async def test_a_cancelled_caller_does_not_stop_its_operation(writer: GroupWriter, file: SqliteFile) -> None:
    gate, seen = Gate(), []
    async with anyio.create_task_group() as group:
        group.start_soon(writer.do, gate)
        await anyio.to_thread.run_sync(gate.entered.wait)
        group.start_soon(writer.do, insert(1), seen.append)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert seen == []
    gate.leave.set()
    await writer.do(insert(2), seen.append)
    assert (seen, stored(file)) == ([1, 2], [1, 2])


async def test_who_finishes_gets_the_result_though_it_is_cancelled(writer: GroupWriter, file: SqliteFile) -> None:
    gate, seen = Gate(), []
    async with anyio.create_task_group() as group:

        async def finish() -> None:
            seen.append(("got", await writer.finish(insert(1), seen.append)))
            with pytest.raises(anyio.get_cancelled_exc_class()):
                await anyio.lowlevel.checkpoint()
            seen.append("cancelled")

        await _cancel_behind(writer, gate, group, finish)
        assert seen == []
        gate.leave.set()
    assert (seen, stored(file)) == ([1, ("got", 1), "cancelled"], [1])


async def test_who_finishes_gets_the_error_though_it_is_cancelled(writer: GroupWriter) -> None:
    gate, seen = Gate(), []
    async with anyio.create_task_group() as group:

        async def finish() -> None:
            with pytest.raises(NotFound, match="no such"):
                await writer.finish(refused, seen.append)
            seen.append("told")

        await _cancel_behind(writer, gate, group, finish)
        gate.leave.set()
    assert seen == ["told"]


async def _cancel_behind(
    writer: GroupWriter, gate: Gate, group: TaskGroup, finish: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Cancel the group in which `finish` waits for the transaction behind the one of the gate."""
    group.start_soon(writer.do, gate)
    await anyio.to_thread.run_sync(gate.entered.wait)
    group.start_soon(finish)
    await anyio.wait_all_tasks_blocked()
    group.cancel_scope.cancel()
    with anyio.CancelScope(shield=True):
        await anyio.wait_all_tasks_blocked()


async def test_a_result_that_comes_with_the_cancellation_is_handed_over(writer: GroupWriter) -> None:
    seen: list[Any] = []
    with anyio.CancelScope() as scope:
        seen.append(await writer.finish(insert(1), lambda _: scope.cancel()))
        await anyio.lowlevel.checkpoint()
        seen.append("not cancelled")
    assert seen == [1]


async def test_a_cancellation_that_no_scope_repeats_is_not_lost(writer: GroupWriter, file: SqliteFile) -> None:
    gate, seen, tasks = Gate(), [], []

    async def finish() -> None:
        await writer.finish(insert(1), seen.append)

    async with anyio.create_task_group() as group:
        group.start_soon(writer.do, gate)
        await anyio.to_thread.run_sync(gate.entered.wait)
        tasks.append(asyncio.create_task(finish()))
        await anyio.wait_all_tasks_blocked()
        tasks[0].cancel()
        await anyio.wait_all_tasks_blocked()
        assert not tasks[0].done()
        gate.leave.set()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert (seen, stored(file)) == ([1], [1])


async def test_FR_223_who_finishes_is_told_when_it_takes_too_long(
    writer: GroupWriter, file: SqliteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "STORE_TIMEOUT_S", 0.01)
    gate, seen = Gate(), []
    async with anyio.create_task_group() as group:
        group.start_soon(writer.do, gate)
        await anyio.to_thread.run_sync(gate.entered.wait)
        with pytest.raises(TimedOut, match="did not take an event"):
            await writer.finish(insert(1), seen.append)
        assert seen == []
        gate.leave.set()
        await writer.do(insert(2))
    assert (seen, stored(file)) == ([1], [1, 2])  # what was queued is done


async def test_cancelled_while_waiting_for_room(writer: GroupWriter, file: SqliteFile) -> None:
    gate = Gate()
    async with anyio.create_task_group() as outer:
        outer.start_soon(writer.do, gate)
        await anyio.to_thread.run_sync(gate.entered.wait)
        for number in range(4):
            outer.start_soon(writer.do, insert(number))
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as inner:
            inner.start_soon(writer.do, insert(100))
            await anyio.wait_all_tasks_blocked()
            inner.cancel_scope.cancel()
        outer.start_soon(writer.do, insert(4))
        await anyio.wait_all_tasks_blocked()
        gate.leave.set()
    assert stored(file) == [0, 1, 2, 3, 4]  # what was never queued is not done


async def test_close_carries_out_what_waits(file: SqliteFile) -> None:
    writer, gate = GroupWriter(file), Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(writer.do, gate)
        await anyio.to_thread.run_sync(gate.entered.wait)
        for number in range(3):
            group.start_soon(writer.do, insert(number))
        await anyio.wait_all_tasks_blocked()
        group.start_soon(anyio.to_thread.run_sync, writer.close)
        await anyio.wait_all_tasks_blocked()
        gate.leave.set()
    assert stored(file) == [0, 1, 2]
    with pytest.raises(Unavailable, match="closed"):
        await writer.do(insert(5))
    writer.close()


async def test_several_event_loops_share_a_writer(writer: GroupWriter, file: SqliteFile) -> None:
    def in_a_thread(number: int) -> int:
        return asyncio.run(writer.do(insert(number)))

    results = await together(*[lambda n=number: anyio.to_thread.run_sync(in_a_thread, n) for number in range(10)])
    assert sorted(results) == sorted(stored(file)) == list(range(10))


async def test_a_loop_that_was_closed_meanwhile(
    writer: GroupWriter, file: SqliteFile, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()

    async def give_up() -> None:
        with anyio.move_on_after(0):
            await writer.do(gate)

    await anyio.to_thread.run_sync(lambda: asyncio.run(give_up()))
    gate.leave.set()
    await writer.do(insert(1))
    assert "an event loop was closed" in caplog.text
