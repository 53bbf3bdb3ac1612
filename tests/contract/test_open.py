"""From a URL to stores."""

import sys
from pathlib import Path

import pytest

from polyport.errors import ConfigError
from polyport.stores.files import FileArtifacts
from polyport.stores.memory import KeywordMemory, MemoryArtifacts, MemorySessions
from polyport.stores.open import open_stores, shown_url
from polyport.stores.postgres import PostgresSessions
from polyport.stores.postgres_artifacts import PostgresArtifacts
from polyport.stores.postgres_memory import PostgresMemory
from polyport.stores.sqlite import SqliteSessions


def test_memory() -> None:
    for url in ("memory:", "memory://"):
        stores = open_stores(url)
        assert isinstance(stores.sessions, MemorySessions)
        assert isinstance(stores.artifacts, MemoryArtifacts)
        assert isinstance(stores.memory, KeywordMemory)


@pytest.mark.parametrize("form", ["sqlite:///{}", "{}"])
def test_sqlite_with_artifacts_beside_it(tmp_path: Path, form: str) -> None:
    stores = open_stores(form.format(tmp_path / "my data.db"))
    assert isinstance(stores.sessions, SqliteSessions)
    assert isinstance(stores.artifacts, FileArtifacts)
    assert stores.sessions.path == tmp_path / "my data.db"
    assert stores.artifacts.root == tmp_path / "my data.db.artifacts"


def test_relative_and_escaped_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stores = open_stores("sqlite:///a%20b/s.sqlite", "files")
    assert isinstance(stores.sessions, SqliteSessions)
    assert isinstance(stores.artifacts, FileArtifacts)
    assert stores.sessions.path == tmp_path / "a b" / "s.sqlite"
    assert stores.artifacts.root == tmp_path / "files"


def test_artifacts_elsewhere(tmp_path: Path) -> None:
    assert isinstance(open_stores(str(tmp_path / "s.db"), "memory:").artifacts, MemoryArtifacts)
    artifacts = open_stores("memory:", f"file://{tmp_path}/x%20y").artifacts
    assert isinstance(artifacts, FileArtifacts)
    assert artifacts.root == tmp_path / "x y"


@pytest.mark.parametrize(
    "url", ["", "redis://h/0", "sqlite://", "sqlite:", "sqlite:///", "sqlite:///:memory:", "data.txt", "sqlite://x.db"]
)
def test_what_is_not_known_is_refused_with_what_is(url: str) -> None:
    with pytest.raises(ConfigError, match="known are memory:, sqlite:///relative"):
        open_stores(url)


def test_artifact_stores_that_are_not_known() -> None:
    with pytest.raises(ConfigError, match="no artifact store is known for 's3://bucket'"):
        open_stores("memory:", "s3://bucket")


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter2@db/x",
        "postgresql://me:hunter2@db:port/x",
        "postgresql:me:hunter2@db/x",
        "postgresql://me:hunter2#@db/x",
        "postgresql://me:hunter2@db/x?pool_size=none",
        "postgresql://me:hunter2@[db/x",
    ],
)
def test_a_password_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_stores(url)
    assert "hunter2" not in str(caught.value) + shown_url(url)


def test_a_url_is_shown_without_its_secrets() -> None:
    assert shown_url("sqlite:///data.db") == "sqlite:///data.db"
    for url in ("postgresql://me:hunter2@db/x?password=hunter2", "postgres://me@db/x?pool_size=2&password=hunter2"):
        assert shown_url(url) == "postgresql://me@db/x"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_postgresql_is_not_asked_before_it_is_used(scheme: str, tmp_path: Path) -> None:
    stores = open_stores(f"{scheme}://me:hunter2@nowhere.invalid:5433/data")
    assert isinstance(stores.sessions, PostgresSessions)
    assert isinstance(stores.artifacts, PostgresArtifacts)
    assert isinstance(stores.memory, PostgresMemory)
    assert repr(stores.sessions.database) == "PostgresDatabase('postgresql://me@nowhere.invalid:5433/data')"
    files = open_stores(f"{scheme}://nowhere.invalid/data", str(tmp_path / "files")).artifacts
    assert isinstance(files, FileArtifacts)


def test_without_asyncpg_postgresql_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    monkeypatch.delitem(sys.modules, "polyport.stores.postgres_pool", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'polyport\[postgres\]'"):
        open_stores("postgresql://db/x")
