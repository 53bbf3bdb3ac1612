"""The stores of deliveries to triggers: the contract, and what is each one's own."""

import pytest

from polyport.errors import NotFound
from polyport.ports.triggers import TriggerStore
from polyport.stores.memory_triggers import MemoryTriggers
from polyport.testing.trigger_suite import TriggerStoreSuite, delivery, ended


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
