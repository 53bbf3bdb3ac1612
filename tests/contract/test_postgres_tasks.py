"""Tasks, push configurations and deliveries to triggers in PostgreSQL keep the contracts."""

from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from polyport.ports.tasks import PushStore, TaskStore
from polyport.ports.triggers import TriggerStore
from polyport.seams import Seams
from polyport.stores.postgres_database import PostgresDatabase
from polyport.stores.postgres_pushes import ORPHAN_MS, PostgresPushes
from polyport.stores.postgres_tasks import PostgresTasks
from polyport.stores.postgres_triggers import PostgresTriggers
from polyport.testing.push_suite import KEY, PushStoreSuite
from polyport.testing.samples import Clock, together
from polyport.testing.task_suite import ANN, DONE, TaskStoreSuite, first, head, status
from polyport.testing.trigger_suite import TriggerStoreSuite, delivery
from support.postgres import server


@pytest.fixture
async def database(seams: Seams) -> AsyncIterator[PostgresDatabase]:
    database = PostgresDatabase(server().url(server().new_database()), seams=seams)
    yield database
    await database.aclose()


class TestPostgresTasks(TaskStoreSuite):
    @pytest.fixture
    async def store(self, database: PostgresDatabase) -> TaskStore:
        return PostgresTasks(database)

    async def test_two_servers_race_by_version(self, store: TaskStore, database: PostgresDatabase) -> None:
        await store.create(head(), first())
        other = PostgresTasks(database)
        racing = [lambda s=s: s.append(ANN, "t1", 1, status(DONE)) for s in (store, other) * 8]
        results = await together(*racing)
        assert sum(isinstance(result, Exception) for result in results) == 15
        assert (await store.get(ANN, "t1")).head.version == 2


class TestPostgresPushes(PushStoreSuite):
    @pytest.fixture
    async def tasks(self, database: PostgresDatabase) -> TaskStore:
        return PostgresTasks(database)

    @pytest.fixture
    async def pushes(self, database: PostgresDatabase, seams: Seams) -> PushStore:
        return PostgresPushes(database, seams=seams)

    async def test_what_a_dead_process_left_is_removed(
        self, tasks: TaskStore, database: PostgresDatabase, seams: Seams, clock: Clock
    ) -> None:
        await tasks.create(head(), first())
        before = PostgresPushes(database, seams=seams)
        await before.put(KEY, b"", 0, 5)
        await before.put(KEY._replace(task_id="never made"), b"", 0, 5)
        for left in (1, 0):
            after = PostgresPushes(database, seams=seams)
            await after.put(KEY._replace(id="another"), b"", 0, 5)
            assert len(await after.list(KEY.scope, "never made")) == left
            assert len(await after.list(KEY.scope, "t1")) == 2
            clock.now += ORPHAN_MS / 1000 + 1

    async def test_configurations_that_come_at_once_are_counted(self, pushes: PushStore) -> None:
        racing = [lambda n=n: pushes.put(KEY._replace(id=f"p{n}"), b"", 0, 3) for n in range(10)]
        assert sum(isinstance(result, Exception) for result in await together(*racing)) == 7
        assert len(await pushes.list(KEY.scope, "t1")) == 3


class TestPostgresTriggers(TriggerStoreSuite):
    @pytest.fixture
    async def store(self, database: PostgresDatabase) -> TriggerStore:
        return PostgresTriggers(database)

    async def test_one_of_many_claims_wins_whatever_the_text(self, store: TriggerStore) -> None:
        racing = [lambda: store.claim(delivery("a" * 5000), again=True) for _ in range(10)]
        assert sorted(mine for mine, _ in await together(*racing)) == [False] * 9 + [True]
        odd = structs.replace(delivery("b"), text="NUL \x00, and 你好 😀")
        assert (await store.claim(odd, again=True))[1] == odd
        assert (await store.get("app", "s-b")).text == odd.text
