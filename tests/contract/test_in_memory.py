"""The stores in memory keep the contracts."""

import pytest

from polyport.data.event import Event
from polyport.data.session import Session
from polyport.seams import Seams
from polyport.stores.memory import KeywordMemory, MemoryArtifacts, MemorySessions
from polyport.testing.samples import KEY, note
from polyport.testing.suites import ArtifactStoreSuite, MemoryStoreSuite, SessionStoreSuite


class TestMemorySessions(SessionStoreSuite):
    @pytest.fixture
    def store(self, seams: Seams) -> MemorySessions:
        return MemorySessions(seams)

    async def test_FR_047_FR_054_events_are_shared_not_copied(self, store: MemorySessions) -> None:
        session = await store.create(*KEY)
        stored = await store.append(session, note())
        assert (await store.get(KEY)).events[0] is stored is (await store.get(KEY, recent=1)).events[0]


class TestMemoryArtifacts(ArtifactStoreSuite):
    @pytest.fixture
    def store(self, seams: Seams) -> MemoryArtifacts:
        return MemoryArtifacts(seams)


class TestKeywordMemory(MemoryStoreSuite):
    @pytest.fixture
    def store(self) -> KeywordMemory:
        return KeywordMemory()

    async def test_scripts_without_spaces(self, store: KeywordMemory) -> None:
        event: Event = note("今天天气很好", at=1.0)
        await store.add_session(Session(key=KEY, events=[event]))
        assert len(await store.search("app", "ann", "天气")) == 1
        assert await store.search("app", "ann", "东京") == []
