"""Sessions in PostgreSQL keep the contract; and what only a server, or several processes, can get wrong."""

from collections.abc import AsyncIterator

import pytest

from polyport.data.content import Part
from polyport.errors import NotFound
from polyport.seams import Seams
from polyport.stores.postgres import PostgresSessions
from polyport.stores.postgres_artifacts import PostgresArtifacts
from polyport.stores.postgres_database import PostgresDatabase
from polyport.stores.postgres_memory import PostgresMemory
from polyport.testing.samples import KEY
from polyport.testing.suites import ArtifactStoreSuite, MemoryStoreSuite, SessionStoreSuite
from support.postgres import server


@pytest.fixture
def url() -> str:
    """A new database."""
    return server().url(server().new_database())


@pytest.fixture
async def database(url: str) -> AsyncIterator[PostgresDatabase]:
    database = PostgresDatabase(url)
    yield database
    await database.aclose()


class TestPostgresSessions(SessionStoreSuite):
    @pytest.fixture
    async def store(self, url: str, seams: Seams) -> AsyncIterator[PostgresSessions]:
        store = PostgresSessions(PostgresDatabase(url, seams=seams), seams=seams)
        yield store
        await store.aclose()


class TestPostgresArtifacts(ArtifactStoreSuite):
    @pytest.fixture
    async def store(self, database: PostgresDatabase, seams: Seams) -> PostgresArtifacts:
        return PostgresArtifacts(database, seams=seams)

    @pytest.mark.parametrize("version", [1 << 31, 1 << 63, 1 << 100])
    async def test_versions_larger_than_any_number_of_the_database(
        self, store: PostgresArtifacts, version: int
    ) -> None:
        await store.save(KEY, "a", Part(text="x"))
        with pytest.raises(NotFound, match=str(version)):
            await store.load(KEY, "a", version)
        await store.delete(KEY, "a", version)
        assert await store.load(KEY, "a") == Part(text="x")


class TestPostgresMemory(MemoryStoreSuite):
    @pytest.fixture
    async def store(self, database: PostgresDatabase) -> PostgresMemory:
        return PostgresMemory(database)
