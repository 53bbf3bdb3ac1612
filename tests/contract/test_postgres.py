"""Sessions in PostgreSQL keep the contract; and what only a server, or several processes, can get wrong."""

from collections.abc import AsyncIterator

import pytest

from polyport.seams import Seams
from polyport.stores.postgres import PostgresSessions
from polyport.stores.postgres_artifacts import PostgresArtifacts
from polyport.stores.postgres_database import PostgresDatabase
from polyport.stores.postgres_memory import PostgresMemory
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


class TestPostgresMemory(MemoryStoreSuite):
    @pytest.fixture
    async def store(self, database: PostgresDatabase) -> PostgresMemory:
        return PostgresMemory(database)
