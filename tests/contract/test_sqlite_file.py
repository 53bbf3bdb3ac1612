"""The database file over time: schemas, foreign files, several processes, kill -9."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from polyport.errors import ConfigError
from polyport.stores.sqlite import SqliteSessions
from polyport.stores.sqlite_file import Migration, SqliteFile, known_migrations
from polyport.testing.samples import KEY, note

FIXTURES = Path(__file__).parent / "schemas"
WRITER = Path(__file__).parent / "writer_process.py"


def from_sql(path: Path, sql: str) -> Path:
    con = apsw.Connection(str(path))
    con.execute(sql).fetchall()
    con.close()
    return path


def schema(path: Path) -> list[tuple[str, str]]:
    con = apsw.Connection(str(path))
    found = list(con.execute("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name"))
    con.close()
    return found


class TestSchemas:
    @pytest.mark.parametrize("name", [path.name for path in sorted(FIXTURES.glob("*.sql"))])
    async def test_FR_052_a_database_of_an_older_release_opens(self, tmp_path: Path, name: str) -> None:
        path = from_sql(tmp_path / "old.db", (FIXTURES / name).read_text("utf-8"))
        store = SqliteSessions(path)
        session = await store.get(KEY)
        assert session.state == {"city": "Tokyo", "app:limit": 3, "user:tags": ["a", "b"]}
        assert [(event.id, event.author, event.text) for event in session.events] == [
            ("ev-1", "user", "weather?"),
            ("ev-2", "weather", "18°C"),
        ]
        assert (session.revision, session.fence, session.created_at) == (3, 1, 1772000000.25)
        await store.append(session, note("still works", city="Kyoto"), strict=True)
        assert (await store.list("app", "ann")).sessions[0].state["city"] == "Kyoto"
        assert await store.find_run("e-1") == KEY
        await store.aclose()

        SqliteFile(tmp_path / "new.db").prepare()
        assert schema(path) == schema(tmp_path / "new.db")

    def test_FR_052_there_is_a_fixture_for_every_version(self) -> None:
        versions = [migration.version for migration in known_migrations()]
        assert versions == list(range(1, len(versions) + 1))
        assert sorted(int(path.stem.split("_")[1]) for path in FIXTURES.glob("version_*.sql")) == versions

    def test_FR_052_a_database_of_a_newer_release_is_refused_untouched(self, tmp_path: Path) -> None:
        file = SqliteFile(tmp_path / "s.db")
        file.prepare()
        con = file.connect()
        con.execute("INSERT INTO polyport_schema VALUES (99, 'of the future', 0)")
        con.close()
        before = file.path.read_bytes()
        with pytest.raises(ConfigError, match=r"has schema version 99, .* up to \d+: upgrade Polyport"):
            SqliteSessions(file.path)
        assert file.path.read_bytes() == before

    def test_FR_052_steps_are_applied_once_and_recorded(self, tmp_path: Path) -> None:
        file = SqliteFile(tmp_path / "s.db")
        file.prepare()
        last = known_migrations()[-1].version
        more = [*known_migrations(), Migration(last + 1, "more", "PRAGMA user_version; CREATE TABLE more (x)")]
        file.prepare(more)
        file.prepare(more)
        con = file.connect()
        recorded = list(con.execute("SELECT version, name FROM polyport_schema ORDER BY version"))
        con.close()
        assert recorded == [(step.version, step.name) for step in more]

    def test_FR_052_a_step_that_fails_leaves_nothing(self, tmp_path: Path) -> None:
        file = SqliteFile(tmp_path / "s.db")
        file.prepare()
        before = schema(file.path)
        last = known_migrations()[-1].version
        bad = [Migration(last + 1, "good", "CREATE TABLE good (x)"), Migration(last + 2, "bad", "CREATE NONSENSE")]
        with pytest.raises(ConfigError, match="NONSENSE"):
            file.prepare([*known_migrations(), *bad])
        assert schema(file.path) == before
        file.prepare()


class TestForeignFiles:
    def test_a_file_that_is_no_database(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        path.write_text("Dear diary, " * 100)
        with pytest.raises(ConfigError, match="is not an SQLite database"):
            SqliteSessions(path)
        assert path.read_text() == "Dear diary, " * 100

    def test_a_database_of_another_program(self, tmp_path: Path) -> None:
        path = from_sql(tmp_path / "s.db", "CREATE TABLE sessions (app_name, user_id)")
        before = path.read_bytes()
        with pytest.raises(ConfigError, match="another program"):
            SqliteSessions(path)
        assert path.read_bytes() == before

    def test_a_path_that_cannot_be_opened(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for path in (tmp_path, tmp_path / "file" / "s.db"):
            with pytest.raises(ConfigError, match="cannot open"):
                SqliteSessions(path)


def start(path: Path, name: str, sessions: int, events: int) -> "subprocess.Popen[str]":
    """A process that writes and prints one line for each acknowledged append: `<session> <number>`."""
    command = [sys.executable, str(WRITER), str(path), name, str(sessions), str(events)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def stored(path: Path) -> dict[str, list[str]]:
    store = SqliteSessions(path)
    sessions = (await store.list("app")).sessions
    found = {s.id: [event.text for event in (await store.get(s.key)).events] for s in sessions}
    await store.aclose()
    con = apsw.Connection(str(path))
    assert con.execute("PRAGMA integrity_check").get == "ok"
    assert list(con.execute("PRAGMA foreign_key_check")) == []
    con.close()
    return found


class TestProcesses:
    async def test_kill_9_loses_nothing_that_was_acknowledged(self, tmp_path: Path) -> None:
        child = start(tmp_path / "s.db", "w", 50, 1_000_000)
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(1000)]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.communicate()[0].split("\n")[:-1]  # the last one may be torn
        assert child.returncode == -signal.SIGKILL
        found = await stored(tmp_path / "s.db")
        assert len(found) == 50
        for line in lines:
            session, number = line.split()
            assert found[session][int(number)] == number
        for texts in found.values():
            assert texts == [str(number) for number in range(len(texts))]

    async def test_two_processes_write_to_one_file(self, tmp_path: Path) -> None:
        path = tmp_path / "s.db"
        children = [start(path, name, 5, 20) for name in ("one", "two")]  # both may make the file
        for child in children:
            child.communicate()
            assert child.returncode == 0
        found = await stored(path)
        shared = found.pop("shared")
        assert found == {f"{name}-{n}": [str(i) for i in range(20)] for name in ("one", "two") for n in range(5)}
        assert sorted(shared) == sorted(f"{name} {i}" for name in ("one", "two") for i in range(20))

    def test_a_store_that_was_used_before_a_fork_says_so(self, tmp_path: Path) -> None:
        command = [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            str(WRITER),
            str(tmp_path / "s.db"),
            "fork",
            "0",
            "0",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout.splitlines()) == (0, ["Unavailable", "Unavailable"]), done.stderr
