"""From a URL to stores."""

from pathlib import Path

import pytest

from polyport.errors import ConfigError
from polyport.stores.files import FileArtifacts
from polyport.stores.memory import KeywordMemory, MemoryArtifacts, MemorySessions
from polyport.stores.open import open_stores
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


def test_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        open_stores("postgresql://me:hunter2@db/x")
    assert "hunter2" not in str(caught.value)
