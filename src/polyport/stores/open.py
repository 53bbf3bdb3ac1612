"""From a URL to stores: what `polyport serve --store` and `App(store="...")` understand.

Called by the App and the command line at start, before there is an event loop. Makes files and folders that are missing.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from polyport.errors import ConfigError
from polyport.ports.stores import ArtifactStore, Stores
from polyport.seams import REAL, Seams
from polyport.stores.files import FileArtifacts
from polyport.stores.memory import KeywordMemory, MemoryArtifacts, MemorySessions
from polyport.stores.postgres_url import is_postgres, shown

KNOWN = (
    "memory:, sqlite:///relative/path.db, sqlite:////absolute/path.db, a path that ends in .db,"
    " or postgresql://user@host/database"
)
KNOWN_ARTIFACTS = "memory:, file:///absolute/folder, or the path of a folder"


def open_stores(url: str, artifacts: str | None = None, seams: Seams = REAL) -> Stores:
    """Stores for `url`: "memory:", "sqlite:///path" (four slashes for an absolute one), a path that ends in ".db", or
    "postgresql://user@host/database".

    Long-term memory goes where sessions go. `artifacts` is "memory:", "file:///folder" or a folder's path; without it artifacts
    go where sessions go: memory, the folder `<db>.artifacts`, or PostgreSQL. ConfigError for anything else, listing what is
    known.
    """
    if is_postgres(url):
        return _postgres(url, artifacts, seams)
    path = _database(url)
    if path is None:
        return Stores(MemorySessions(seams), _artifacts(artifacts or "memory:", seams), KeywordMemory())
    return _sqlite(path, artifacts, seams)


def _sqlite(path: Path, artifacts: str | None, seams: Seams) -> Stores:
    # imported here, for a start in memory need not wait for it
    from polyport.stores.sqlite import SqliteSessions
    from polyport.stores.sqlite_memory import SqliteMemory

    sessions = SqliteSessions(path, seams=seams)
    memory = SqliteMemory(sessions.path, seams=seams)
    return Stores(sessions, _artifacts(artifacts or f"{sessions.path}.artifacts", seams), memory)


def _postgres(url: str, artifacts: str | None, seams: Seams) -> Stores:
    # imported here, for a start without PostgreSQL need not wait for it
    from polyport.stores.postgres import PostgresSessions
    from polyport.stores.postgres_artifacts import PostgresArtifacts
    from polyport.stores.postgres_database import PostgresDatabase
    from polyport.stores.postgres_memory import PostgresMemory

    database = PostgresDatabase(url, seams=seams)
    kept = _artifacts(artifacts, seams) if artifacts else PostgresArtifacts(database, seams=seams)
    return Stores(PostgresSessions(database, seams=seams), kept, PostgresMemory(database))


def _database(url: str) -> Path | None:
    """The file of the sessions, None for memory."""
    if url.removesuffix("//") == "memory:":
        return None
    path = url
    if url.startswith("sqlite:"):
        path = unquote(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else ""
    elif _scheme(url) or not url.endswith(".db"):
        raise ConfigError(f"no session store is known for {shown_url(url)!r}; known are {KNOWN}")
    if not path or path == ":memory:":
        raise ConfigError(f"{shown_url(url)!r} names no database file; known are {KNOWN}")
    return Path(path).expanduser()


def _artifacts(url: str, seams: Seams) -> ArtifactStore:
    if url.removesuffix("//") == "memory:":
        return MemoryArtifacts(seams)
    if url.startswith("file:///"):
        return FileArtifacts(unquote(url.removeprefix("file://")), seams=seams)
    if _scheme(url):
        raise ConfigError(f"no artifact store is known for {shown_url(url)!r}; known are {KNOWN_ARTIFACTS}")
    return FileArtifacts(Path(url).expanduser(), seams=seams)


def _scheme(url: str) -> str:
    """The scheme of a URL; a drive letter is none."""
    scheme, colon, _ = url.partition(":")
    return scheme if colon and len(scheme) > 1 and scheme.replace("+", "").isalnum() else ""


def shown_url(url: str) -> str:
    """A URL without the password that it may hold, for people to see."""
    if is_postgres(url):
        return shown(url)
    try:
        password = urlsplit(url).password
    except ValueError:
        return f"{_scheme(url)}:..."
    return url.replace(password, "***") if password else url
