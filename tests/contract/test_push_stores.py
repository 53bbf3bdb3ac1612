"""The stores of push configurations: the contract, and what is SQLite's own."""

import stat
from collections.abc import AsyncGenerator
from pathlib import Path

import apsw
import pytest

from polyport.ports.tasks import PushKey, PushStore, TaskScope, TaskStore
from polyport.seams import Seams
from polyport.stores.memory_pushes import MemoryPushes
from polyport.stores.memory_tasks import MemoryTasks
from polyport.stores.sqlite_pushes import ORPHAN_MS, SqlitePushes
from polyport.stores.sqlite_tasks import SqliteTasks
from polyport.testing.push_suite import KEY, PushStoreSuite
from polyport.testing.samples import Clock
from polyport.testing.task_suite import NOW, first, head

FIXTURES = Path(__file__).parent / "schemas"


class TestMemoryPushes(PushStoreSuite):
    @pytest.fixture
    def pushes(self) -> PushStore:
        return MemoryPushes()

    @pytest.fixture
    def tasks(self) -> TaskStore:
        return MemoryTasks()


class TestSqlitePushes(PushStoreSuite):
    @pytest.fixture
    async def tasks(self, tmp_path: Path, seams: Seams) -> AsyncGenerator[TaskStore]:
        store = SqliteTasks(tmp_path / "tasks.db", seams=seams)
        yield store
        await store.aclose()

    @pytest.fixture
    async def pushes(self, tmp_path: Path, seams: Seams, tasks: SqliteTasks) -> AsyncGenerator[PushStore]:
        store = SqlitePushes(tmp_path / "tasks.db", seams=seams, writer=tasks.writer)
        yield store
        await store.aclose()

    async def test_they_are_there_after_a_restart(self, tmp_path: Path) -> None:
        path = tmp_path / "p.db"
        before = SqlitePushes(path)
        await before.put(KEY, b"body", 1, 5)
        await before.hold(KEY, "one", NOW, NOW + 5, sent=7)
        await before.aclose()
        await before.aclose()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, "there are secrets in it"
        after = SqlitePushes(path)
        assert [(t.key, t.body, t.sent) for t in await after.list(KEY.scope, "t1")] == [(KEY, b"body", 7)]
        await after.aclose()

    async def test_what_a_dead_process_left_is_removed(self, tmp_path: Path, seams: Seams, clock: Clock) -> None:
        tasks, before = SqliteTasks(tmp_path / "p.db", seams=seams), SqlitePushes(tmp_path / "p.db", seams=seams)
        await tasks.create(head(), first())
        await before.put(KEY, b"", 0, 5)
        await before.put(KEY._replace(task_id="never made"), b"", 0, 5)
        for left in (1, 0):
            after = SqlitePushes(tmp_path / "p.db", seams=seams)
            assert len(await after.list(KEY.scope, "never made")) == left
            assert len(await after.list(KEY.scope, "t1")) == 1
            await after.aclose()
            clock.now += ORPHAN_MS / 1000 + 1
        await before.aclose()
        await tasks.aclose()

    async def test_what_is_looked_for_again_and_again_is_found_by_an_index(self, tmp_path: Path) -> None:
        store = SqlitePushes(tmp_path / "p.db")
        con = apsw.Connection(str(tmp_path / "p.db"))
        plan = [
            row[3]
            for row in con.execute(
                "EXPLAIN QUERY PLAN SELECT p.id FROM push_configs AS p INDEXED BY push_configs_open"
                " JOIN tasks ON tasks.id = p.task_id WHERE p.done = 0 AND p.app IN ('a')"
                " AND p.held_until_ms <= 5 AND tasks.version > p.sent"
            )
        ]
        con.close()
        assert len(plan) == 2 and all(step.startswith("SEARCH") for step in plan), plan
        await store.aclose()

    async def test_FR_052_a_database_of_an_older_release_opens(self, tmp_path: Path) -> None:
        con = apsw.Connection(str(tmp_path / "old.db"))
        con.execute((FIXTURES / "version_4.sql").read_text("utf-8")).fetchall()
        con.close()
        store = SqlitePushes(tmp_path / "old.db")
        key = PushKey(TaskScope("app", "", "ann"), "t-1", "p-1")
        assert list(await store.due(["app"], NOW, 5)) == [key]
        (found,) = await store.list(key.scope, "t-1")
        assert (found.sent, b"https://example.com/hook" in found.body) == (1, True)
        await store.aclose()
