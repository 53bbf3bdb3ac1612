"""Memory in SQLite keeps the contract; and what only a file and an index can get wrong."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from polyport.data.content import user_text
from polyport.data.event import Event
from polyport.data.session import Session
from polyport.errors import ConfigError, Unavailable
from polyport.seams import Seams
from polyport.stores.open import open_stores
from polyport.stores.sqlite import SqliteSessions
from polyport.stores.sqlite_memory import SqliteMemory
from polyport.testing.samples import KEY, note, together
from polyport.testing.suites import MemoryStoreSuite

FIXTURE = Path(__file__).parent / "schemas" / "version_2.sql"


def session_of(*texts: str, start: int = 0) -> Session:
    return Session(key=KEY, events=[note(text, at=float(start + n)) for n, text in enumerate(texts)])


async def found(store: SqliteMemory, query: str) -> list[str]:
    return [entry.content.text for entry in await store.search("app", "ann", query)]


def rows(path: Path, sql: str) -> list[object]:
    con = apsw.Connection(str(path))
    try:
        return list(con.execute(sql))
    finally:
        con.close()


class TestSqliteMemory(MemoryStoreSuite):
    @pytest.fixture
    async def store(self, tmp_path: Path, seams: Seams) -> AsyncIterator[SqliteMemory]:
        store = SqliteMemory(tmp_path / "new folder" / "memory.db", seams=seams)
        yield store
        await store.aclose()

    async def test_core_12_29_only_what_is_new_is_written(self, store: SqliteMemory) -> None:
        session = session_of(*(f"day {n}" for n in range(1200)))
        await store.add_session(session)
        assert store.written == 1200
        await store.add_session(session)
        assert store.written == 1200
        session.events.append(note("evening", at=2000.0))
        await store.add_session(session)
        assert store.written == 1201
        assert await found(store, "evening") == ["evening"]

    async def test_core_12_29_a_store_opened_anew_writes_what_is_new(self, store: SqliteMemory) -> None:
        session = session_of("one", "two")
        await store.add_session(session)
        again = SqliteMemory(store.path)
        session.events.append(note("three", at=3.0))
        await again.add_session(session)
        assert again.written == 1
        await again.aclose()
        assert await found(store, "one two three") == ["three", "two", "one"]

    async def test_an_event_that_says_something_else_now_is_replaced(self, store: SqliteMemory) -> None:
        for text in ("Tokyo", "Kyoto", "Kyoto"):
            await store.add_session(Session(key=KEY, events=[Event(id="e", author="user", content=user_text(text))]))
        assert store.written == 2
        assert (await found(store, "tokyo"), await found(store, "kyoto")) == ([], ["Kyoto"])
        await store.add_session(Session(key=KEY, events=[Event(id="e", author="user")]))
        assert await found(store, "tokyo kyoto") == []
        for table in ("memories", "memory_words_docsize"):
            assert rows(store.path, f"SELECT count(*) FROM {table}") == [(0,)], "nothing is left in the index"

    async def test_core_12_29_a_rare_word_weighs_more_than_a_common_one(self, store: SqliteMemory) -> None:
        await store.add_session(session_of("the plan is the plan", *["the plan"] * 20, "the umbrella"))
        assert (await found(store, "the umbrella plan"))[0] == "the umbrella"

    async def test_a_search_is_bounded(self, tmp_path: Path) -> None:
        store = SqliteMemory(tmp_path / "m.db", max_results=3)
        await store.add_session(session_of(*(f"rain {n}" for n in range(9))))
        assert await found(store, "rain") == ["rain 8", "rain 7", "rain 6"]
        await store.aclose()
        with pytest.raises(ConfigError, match="max_results is 0"):
            SqliteMemory(tmp_path / "m.db", max_results=0)

    async def test_it_is_there_after_a_restart(self, store: SqliteMemory) -> None:
        await store.add_session(session_of("你好 Tokyo 😀"))
        await store.aclose()
        await store.aclose()
        again = SqliteMemory(store.path)
        assert await found(again, "tokyo") == await found(again, "你好") == ["你好 Tokyo 😀"]
        await again.aclose()
        for attempt in (again.search("app", "ann", "tokyo"), again.add_session(session_of("x"))):
            with pytest.raises(Unavailable, match="closed"):
                await attempt

    async def test_a_damaged_entry_is_reported(self, store: SqliteMemory) -> None:
        await store.add_session(session_of("Tokyo"))
        con = apsw.Connection(str(store.path))
        con.execute("UPDATE memories SET body = '{'")
        con.close()
        with pytest.raises(Unavailable, match="memory number 1 of the database is damaged"):
            await store.search("app", "ann", "tokyo")


async def test_sessions_and_memory_share_a_file(tmp_path: Path) -> None:
    stores = open_stores(f"sqlite:///{tmp_path}/data.db")
    assert isinstance(stores.sessions, SqliteSessions)
    assert isinstance(stores.memory, SqliteMemory)
    assert stores.memory.path == stores.sessions.path == tmp_path / "data.db"
    session = await stores.sessions.create("app", "ann", "s1", events=[note("Tokyo")])

    async def talk() -> None:
        for number in range(20):
            await stores.sessions.append(session, note(f"rain {number}"))

    async def remember() -> None:
        assert stores.memory is not None
        for _ in range(20):
            await stores.memory.add_session(session)

    await together(talk, remember)
    await stores.memory.add_session(session)
    assert len(await stores.memory.search("app", "ann", "rain tokyo")) == 21
    await stores.sessions.delete(KEY)
    assert len(await stores.memory.search("app", "ann", "tokyo")) == 1, "memories outlive their session"
    await stores.sessions.aclose()
    await stores.memory.aclose()


async def test_FR_052_memories_of_an_older_release_are_found(tmp_path: Path) -> None:
    con = apsw.Connection(str(tmp_path / "old.db"))
    con.execute(FIXTURE.read_text("utf-8")).fetchall()
    con.close()
    store = SqliteMemory(tmp_path / "old.db")
    (entry,) = await store.search("app", "ann", "the weather")
    assert (entry.id, entry.author, entry.content) == ("ev-1", "user", user_text("weather?"))
    await store.add_session(session_of("snow"))
    assert await found(store, "weather snow") == ["snow"]
    await store.aclose()


CHILD = """
import sys, anyio
from polyport.data.session import Session
from polyport.stores.sqlite_memory import SqliteMemory
from polyport.testing.samples import KEY, note
async def main():
    store = SqliteMemory(sys.argv[1])
    for n in range(10):
        await store.add_session(Session(key=KEY._replace(id=f"{sys.argv[2]}-{n}"), events=[note("\\u4f60\\u597d Tokyo")]))
    await store.aclose()
anyio.run(main)
"""


async def test_FR_233_processes_share_a_file_in_any_locale(tmp_path: Path) -> None:
    env = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    children = [
        subprocess.Popen([sys.executable, "-X", "utf8=0", "-c", CHILD, str(tmp_path / "m.db"), name], env=env)
        for name in ("one", "two")
    ]
    assert [child.wait() for child in children] == [0, 0]
    store = SqliteMemory(tmp_path / "m.db")
    assert await found(store, "tokyo") == ["你好 Tokyo"] * 20
    await store.aclose()
