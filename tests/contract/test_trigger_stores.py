"""The stores of deliveries to triggers: the contract, and what is each one's own."""

from collections.abc import AsyncGenerator
from pathlib import Path

import apsw
import pytest

from polyport.errors import NotFound
from polyport.ports.triggers import DeliveryKey, TriggerStore
from polyport.seams import Seams
from polyport.stores.memory_triggers import MemoryTriggers
from polyport.stores.sqlite import SqliteSessions
from polyport.stores.sqlite_triggers import SqliteTriggers
from polyport.testing.trigger_suite import NOW, TriggerStoreSuite, delivery, ended

FIXTURES = Path(__file__).parent / "schemas"


class TestMemoryTriggers(TriggerStoreSuite):
    @pytest.fixture
    def store(self) -> TriggerStore:
        return MemoryTriggers()

    async def test_it_is_bounded_and_what_is_done_goes_first(self) -> None:
        store = MemoryTriggers(keep=2)
        await store.claim(delivery("a"), again=True)
        await store.claim(delivery("b"), again=True)
        await store.update(ended(delivery("b"), "done"))
        await store.claim(delivery("c"), again=True)
        assert (await store.get("app", "s-a")).state == "running"
        with pytest.raises(NotFound):
            await store.get("app", "s-b")

    async def test_a_dead_letter_outlives_what_is_done_however_old_it_is(self) -> None:
        store = MemoryTriggers(keep=2)
        for name, state in (("a", "dead"), ("b", "done")):
            await store.claim(delivery(name), again=True)
            await store.update(ended(delivery(name), state))
        await store.claim(delivery("c"), again=True)
        assert [one.key.id for one in await store.dead("app", 10)] == [delivery("a").key.id]


class TestSqliteTriggers(TriggerStoreSuite):
    @pytest.fixture
    async def store(self, tmp_path: Path, seams: Seams) -> AsyncGenerator[TriggerStore]:
        sessions = SqliteSessions(tmp_path / "s.db", seams=seams)
        yield SqliteTriggers(sessions.writer)
        await sessions.aclose()

    async def test_deliveries_are_there_after_a_restart_and_shared_by_processes(self, tmp_path: Path) -> None:
        one, two = SqliteSessions(tmp_path / "s.db"), SqliteSessions(tmp_path / "s.db")
        first, second = SqliteTriggers(one.writer), SqliteTriggers(two.writer)
        assert (await first.claim(delivery(), again=True))[0]
        assert not (await second.claim(delivery(), again=True))[0]
        await one.aclose()
        assert (await second.claim(delivery(at=NOW + 5000), again=True))[0]
        await two.aclose()

    async def test_FR_052_a_database_with_deliveries_of_an_older_release_opens(self, tmp_path: Path) -> None:
        con = apsw.Connection(str(tmp_path / "old.db"))
        con.execute((FIXTURES / "version_5.sql").read_text("utf-8")).fetchall()
        con.close()
        sessions = SqliteSessions(tmp_path / "old.db")
        store = SqliteTriggers(sessions.writer)
        (letter,) = await store.dead("app", 10)
        assert (letter.key, letter.text) == (DeliveryKey("app", "webhook", "shop", "m-2"), '{"order":1}')
        assert (letter.attempts, letter.error, letter.kind) == (4, "overloaded", "order")
        assert not (await store.claim(delivery("m-1"), again=True))[0]
        await sessions.aclose()
