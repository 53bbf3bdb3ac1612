"""The stores of A2A tasks: the contract, what is SQLite's own, and that an append never reads what is there."""

from collections.abc import AsyncGenerator
from pathlib import Path

import apsw
import pytest

from polyport.errors import Unavailable
from polyport.ports.tasks import TaskFilter, TaskScope, TaskStore, TaskUpdate
from polyport.seams import Seams
from polyport.stores.memory_tasks import MemoryTasks
from polyport.stores.sqlite import SqliteSessions
from polyport.stores.sqlite_file import SqliteFile
from polyport.stores.sqlite_tasks import SqliteTasks
from polyport.testing.samples import KEY
from polyport.testing.task_suite import ANN, DONE, NOW, TaskStoreSuite, first, head, ids, make, piece, status

FIXTURES = Path(__file__).parent / "schemas"


class TestMemoryTasks(TaskStoreSuite):
    @pytest.fixture
    def store(self) -> TaskStore:
        return MemoryTasks()


class TestSqliteTasks(TaskStoreSuite):
    @pytest.fixture
    async def store(self, tmp_path: Path, seams: Seams) -> AsyncGenerator[TaskStore]:
        store = SqliteTasks(tmp_path / "tasks.db", seams=seams)
        yield store
        await store.aclose()

    async def test_tasks_are_there_after_a_restart(self, tmp_path: Path) -> None:
        before = SqliteTasks(tmp_path / "tasks.db")
        await make(before, "a", "b")
        await before.append(ANN, "a", 1, status(DONE, NOW + 50))
        await before.aclose()
        await before.aclose()
        with pytest.raises(Unavailable):
            await before.get(ANN, "a")
        after = SqliteTasks(tmp_path / "tasks.db")
        assert ids(await after.list(ANN, TaskFilter(), page_size=5)) == ["a", "b"]
        assert (await after.get(ANN, "a")).head.version == 2
        await after.aclose()

    async def test_two_stores_on_one_file_race_by_version(self, tmp_path: Path) -> None:
        one, two = SqliteTasks(tmp_path / "t.db"), SqliteTasks(tmp_path / "t.db")
        await one.create(head(), first())
        await two.append(ANN, "t1", 1, status(DONE))
        with pytest.raises(Exception, match="version 2, not 1"):
            await one.append(ANN, "t1", 1, status(DONE))
        assert (await one.get(ANN, "t1")).head.state == DONE
        await one.aclose()
        await two.aclose()

    async def test_an_append_touches_no_row_but_its_own(self, tmp_path: Path) -> None:
        """The plan of every statement of an append is a look-up by key, whatever the length of the task."""
        SqliteFile(tmp_path / "t.db").prepare()
        con = apsw.Connection(str(tmp_path / "t.db"))
        statements = [
            "SELECT seq FROM tasks WHERE id = 'x' AND app = '' AND tenant = '' AND owner = ''",
            "UPDATE tasks SET version = 1, state = '', status_ms = 1, run_id = '' WHERE seq = 1",
        ]
        for statement in statements:
            plan = [row[3] for row in con.execute("EXPLAIN QUERY PLAN " + statement)]
            assert len(plan) == 1 and plan[0].startswith("SEARCH tasks USING"), plan
        con.close()

    async def test_sessions_and_tasks_share_a_file_and_its_writer(self, tmp_path: Path) -> None:
        sessions = SqliteSessions(tmp_path / "all.db")
        tasks = SqliteTasks(sessions.path, writer=sessions.writer)
        await sessions.create(*KEY)
        await tasks.create(head(), first())
        for number in range(3):
            await tasks.append(ANN, "t1", number + 1, TaskUpdate(changes=[piece(number)]))
        assert sessions.writer.transactions == 5
        await tasks.aclose()
        await sessions.create("app", "ann", "s2")
        await sessions.aclose()

    async def test_FR_052_a_database_with_tasks_of_an_older_release_opens(self, tmp_path: Path) -> None:
        con = apsw.Connection(str(tmp_path / "old.db"))
        con.execute((FIXTURES / "version_3.sql").read_text("utf-8")).fetchall()
        con.close()
        store = SqliteTasks(tmp_path / "old.db")
        scope = TaskScope("app", "", "ann")
        found = await store.get(scope, "t-1")
        assert (found.head.state, found.head.version, [c.kind for c in found.changes]) == (DONE, 2, ["task", "status"])
        await store.append(scope, "t-1", 2, TaskUpdate(changes=[piece(1)]))
        await store.aclose()
