"""What only a PostgreSQL server can get wrong: its clock, its locks, its end; and who may use it."""

import threading
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import asyncpg
import pytest

from polyport import App, LlmAgent
from polyport.data.session import Session
from polyport.errors import BadRequest, ConfigError, NotFound, Superseded, Unavailable
from polyport.stores.open import open_stores
from polyport.stores.postgres import PostgresSessions
from polyport.stores.postgres_database import PostgresDatabase, known_migrations
from polyport.stores.sqlite_file import Migration
from polyport.testing.samples import KEY, change, full_event, note, together
from support.postgres import rows, server


@pytest.fixture
def name() -> str:
    """A new database."""
    return server().new_database()


@pytest.fixture
def url(name: str) -> str:
    return server().url(name)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresSessions]:
    store = PostgresSessions(PostgresDatabase(url))
    yield store
    await store.aclose()


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresSessions]:
    """A second store on the same database, as another process would have it."""
    other = PostgresSessions(PostgresDatabase(url))
    yield other
    await other.aclose()


class TestData:
    async def test_FR_049_times_are_utc_whatever_the_servers_zone(self, name: str, url: str) -> None:
        server().psql(f"ALTER DATABASE {name} SET timezone TO 'Asia/Tokyo'")
        store = open_stores(url.replace("postgresql:", "postgresql+asyncpg:")).sessions
        try:
            session = await store.create(*KEY)
            stored = await store.append(session, full_event())
            read = await store.get(KEY, after=full_event().timestamp.timestamp())
            assert read.events == [stored] == [full_event()]
            assert (read.created_at, read.updated_at) == (session.created_at, session.updated_at)
            (row,) = await rows(url, "SELECT at, to_timestamp(at) AS time FROM polyport_events")
            assert row["at"] == row["time"].timestamp() == full_event().timestamp.timestamp()
        finally:
            await store.aclose()

    async def test_text_that_postgresql_does_not_know_is_kept(self, store: PostgresSessions) -> None:
        session = await store.create(*KEY, state={"a\0b": "c\0d", "user:\0": 1, "app:😀": "\0"})
        await store.append(session, note("x\0y", run="e\0", **{"app__\0": 2}))
        read = await store.get(KEY)
        assert read.state == {"a\0b": "c\0d", "user:\0": 1, "app:😀": "\0", "app:\0": 2} == session.state
        assert read.events[0].text == "x\0y" and read.events[0].invocation_id == "e\0"
        assert await store.find_run("e\0") == KEY
        assert await store.find_run("\ud800") is None

    async def test_one_that_cannot_be_kept_does_not_take_others_with_it(self, store: PostgresSessions) -> None:
        keys = [KEY._replace(id=f"s{n}") for n in range(20)]
        sessions = [await store.create(*key) for key in keys]
        long = "".join(chr(0x4E00 + n) for n in range(8000))  # no index takes a key like that
        events = [change({long if n == 7 else "k": n, "app:n": n}) for n in range(20)]
        await store.delete(keys[11])
        results = await together(*[lambda s=s, e=e: store.append(s, e) for s, e in zip(sessions, events, strict=True)])
        assert [(n, type(r)) for n, r in enumerate(results) if isinstance(r, Exception)] == [
            (7, BadRequest),
            (11, NotFound),
        ]
        for number, key in enumerate(keys):
            if number != 11:
                read = await store.get(key)
                assert read.state.get("k") == (None if number == 7 else number) and len(read.events) == (number != 7)

    async def test_the_newest_events_are_read_by_an_index(self, store: PostgresSessions, url: str) -> None:
        await store.create(*KEY, events=[note(str(n)) for n in range(3000)])
        await rows(url, "ANALYZE")
        sql = "SELECT body FROM polyport_events WHERE sid = 1 ORDER BY seq DESC LIMIT 5"
        plan = "\n".join(row[0] for row in await rows(url, f"EXPLAIN {sql}"))
        assert "Index Scan Backward using polyport_events_pkey" in plan and "Sort" not in plan
        assert [event.text for event in (await store.get(KEY, recent=2)).events] == ["2998", "2999"]
        assert store.decoded == 2
        assert [event.text for event in (await store.get(KEY)).events] == [str(n) for n in range(3000)]

    async def test_FR_047_FR_054_a_read_costs_what_is_new(
        self, store: PostgresSessions, other: PostgresSessions
    ) -> None:
        await store.create(*KEY, events=[note(str(n)) for n in range(200)])

        async def read(recent: int | None = None) -> tuple[list[str], int]:
            before = store.decoded
            events = (await store.get(KEY, recent=recent)).events
            return [event.text for event in events], store.decoded - before

        assert await read(5) == ([str(n) for n in range(195, 200)], 5)
        assert await read(3) == ([str(n) for n in range(197, 200)], 0)
        assert (await store.get(KEY, recent=1 << 70, after=0.0)).events[0].text == "0"
        assert (await read(1 << 70))[1] == 200
        assert (await read())[1] == (await read(150))[1] == 0
        session = await other.get(KEY)
        await other.append(session, note("theirs"))
        await store.append(await store.get(KEY), note("mine"))
        assert await read(3) == (["199", "theirs", "mine"], 1)
        assert len((await read())[0]) == 202
        (await store.get(KEY)).events.clear()
        await other.delete(KEY)
        with pytest.raises(NotFound):
            await read()
        await other.create(*KEY, events=[note("anew")])
        assert await read() == (["anew"], 1)

    async def test_a_session_that_was_made_anew_elsewhere_is_read_anew(
        self, store: PostgresSessions, other: PostgresSessions
    ) -> None:
        await store.create(*KEY, events=[note("old 1"), note("old 2")])
        assert len((await store.get(KEY)).events) == 2
        await other.delete(KEY)
        await other.create(*KEY, events=[note(f"new {n}") for n in range(3)])
        assert [event.text for event in (await store.get(KEY, recent=2)).events] == ["new 1", "new 2"]
        assert [event.text for event in (await store.get(KEY)).events] == ["new 0", "new 1", "new 2"]

    async def test_readers_and_writers_at_once_see_all_in_order(
        self, store: PostgresSessions, other: PostgresSessions
    ) -> None:
        await store.create(*KEY)

        async def write(where: PostgresSessions, name: str) -> None:
            session = await where.get(KEY)
            for number in range(25):
                await where.append(session, note(f"{name}{number}"))

        async def read(where: PostgresSessions) -> None:
            before: list[str] = []
            while len(before) < 100:
                now = [event.text for event in (await where.get(KEY)).events]
                assert now[: len(before)] == before
                before = now

        jobs = [lambda w=w, n=n: write(w, n) for w, n in ((store, "a"), (other, "b"), (store, "c"), (other, "d"))]
        assert set(await together(*jobs, *[lambda w=w: read(w) for w in (store, other, store)])) == {None}


class TestWriters:
    async def test_FR_056_an_append_without_app_keys_waits_for_no_row_of_the_app(
        self, store: PostgresSessions, url: str
    ) -> None:
        """While another connection holds all state of the app and of the user, 50 users append."""
        sessions = [await store.create("app", f"u{n}", "s", state={"app:n": 0, "user:n": 0}) for n in range(50)]
        holder = await asyncpg.connect(url)
        try:
            async with holder.transaction():
                await holder.fetch("SELECT FROM polyport_app_state FOR UPDATE")
                await holder.fetch("SELECT FROM polyport_user_state FOR UPDATE")

                async def write(number: int) -> None:
                    for step in range(20):
                        await store.append(sessions[number], note(str(step), own=step))

                assert set(await together(*[lambda n=n: write(n) for n in range(50)])) == {None}
        finally:
            await holder.close()
        assert len((await store.get(sessions[7].key)).events) == 20

    async def test_writers_of_shared_keys_in_any_order_do_not_fail(
        self, store: PostgresSessions, other: PostgresSessions
    ) -> None:
        keys = [KEY._replace(id=f"s{n}") for n in range(8)]
        for key in keys:
            await store.create(*key)

        async def write(where: PostgresSessions, number: int) -> None:
            for step in range(10):
                session = await where.get(keys[(number + step) % 8])
                names = ["app:a", "user:b", "c", "app:d", "user:e"]
                await where.append(session, change(dict.fromkeys(names[number % 5 :] + names[: number % 5], step)))

        jobs = [(where, number) for number in range(16) for where in (store, other)]
        assert set(await together(*[lambda w=where, n=number: write(w, n) for where, number in jobs])) == {None}
        assert sum([len((await store.get(key)).events) for key in keys]) == 320

    async def test_FR_059_another_server_takes_over(self, store: PostgresSessions, other: PostgresSessions) -> None:
        run = await store.create(*KEY)
        await store.append(run, note("one"), claim=True)
        await other.append(await other.get(KEY), note("two"), claim=True)
        with pytest.raises(Superseded):
            await store.append(run, note("late"))
        assert [event.text for event in (await store.get(KEY)).events] == ["one", "two"]

    async def test_a_statement_that_waits_too_long_is_given_up(self, url: str) -> None:
        store = PostgresSessions(PostgresDatabase(f"{url}&statement_timeout=0.2"))
        session = await store.create(*KEY)
        holder = await asyncpg.connect(url)
        try:
            async with holder.transaction():
                await holder.fetch("SELECT FROM polyport_sessions FOR UPDATE")
                with pytest.raises(Unavailable, match="did not answer in time"):
                    await store.append(session, note("late"))
            assert (session.events, session.revision) == ([], 1)
            await store.append(session, note("in time"))
            assert [event.text for event in (await store.get(KEY)).events] == ["in time"]
        finally:
            await holder.close()
            await store.aclose()


class TestServer:
    async def test_it_goes_on_after_the_server_was_started_again(self, store: PostgresSessions) -> None:
        session = await store.create(*KEY)
        await together(*[lambda: store.get(KEY)] * 8)
        for signal in ("INT", "QUIT"):
            await anyio.to_thread.run_sync(server().stop, signal)
            try:
                for broken in (store.ping, lambda: store.get(KEY), lambda: store.append(session, note())):
                    with pytest.raises(Unavailable, match="cannot be reached"):
                        await broken()
            finally:
                await anyio.to_thread.run_sync(server().start)
            await store.append(session, note(signal))
            await store.ping()
        assert [event.text for event in (await store.get(KEY)).events] == ["INT", "QUIT"]

    async def test_connections_that_are_cut_are_made_anew(self, store: PostgresSessions, url: str) -> None:
        session = await store.create(*KEY)
        for step in range(5):
            await rows(
                url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'polyport'"
            )
            assert len((await store.get(KEY)).events) == step
            await store.append(session, note())

    async def test_nothing_is_left_of_loops_that_ended(self, url: str) -> None:
        """Each `run_sync` has an event loop of its own."""

        def use() -> None:
            app = App(LlmAgent(name="a", model="demo"), stores=url)
            for number in range(3):
                app.run_sync(f"hello {number}", session="s")

        await anyio.to_thread.run_sync(use)
        counted = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'polyport'"
        with anyio.fail_after(60):
            while (await rows(url, counted))[0]["n"]:  # the server notices a moment later
                await anyio.lowlevel.checkpoint()
        assert (await rows(url, "SELECT count(*) AS n FROM polyport_events"))[0]["n"] == 6

    async def test_a_store_that_was_closed_says_so(self, store: PostgresSessions) -> None:
        await store.create(*KEY)
        await store.aclose()
        await store.aclose()
        for closed in (store.ping(), store.get(KEY), store.append(Session(key=KEY), note())):
            with pytest.raises(Unavailable, match="closed"):
                await closed


class TestSetUp:
    async def test_FR_052_a_schema_of_a_newer_release_is_refused(self, store: PostgresSessions, url: str) -> None:
        await store.create(*KEY)
        newer = [*known_migrations(), Migration(999, "later", "CREATE TABLE polyport_later ()")]
        database = PostgresDatabase(url, migrations=newer)
        await database.ping()
        await database.aclose()
        old = PostgresSessions(PostgresDatabase(url))
        with pytest.raises(ConfigError, match=r"schema version 999, this Polyport knows versions up to .* upgrade"):
            await old.get(KEY)
        await old.aclose()
        again = PostgresSessions(PostgresDatabase(url, migrations=newer))
        assert (await again.get(KEY)).key == KEY
        await again.aclose()

    async def test_FR_052_an_older_schema_is_brought_up_to_date_with_what_is_in_it(self, url: str) -> None:
        old = PostgresSessions(PostgresDatabase(url, migrations=known_migrations()[:1]))
        session = await old.create(*KEY, state={"k": 1})
        await old.append(session, note("old"))
        await old.aclose()
        stores = open_stores(url)
        assert (await stores.sessions.get(KEY)).events == session.events
        assert await stores.need_artifacts().names(KEY) == []
        await stores.sessions.aclose()

    async def test_a_migration_that_fails_leaves_nothing(self, url: str) -> None:
        broken = [*known_migrations(), Migration(999, "broken", "CREATE TABLE polyport_half (); SELECT nonsense")]
        database = PostgresDatabase(url, migrations=broken)
        with pytest.raises(Unavailable):
            await database.ping()
        await database.aclose()
        assert await rows(url, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'polyport%'") == []

    async def test_many_servers_that_start_at_once_make_one_schema(self, url: str) -> None:
        databases = [PostgresDatabase(url) for _ in range(12)]
        assert set(await together(*[database.ping for database in databases])) == {None}
        for database in databases:
            await database.aclose()
        found = await rows(url, "SELECT version FROM polyport_schema ORDER BY version")
        assert [row["version"] for row in found] == [step.version for step in known_migrations()]

    async def test_who_may_not_is_told_what_to_do_and_no_password_is_shown(
        self, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        server().psql(f"DROP ROLE IF EXISTS guest_{name}; CREATE ROLE guest_{name} LOGIN PASSWORD 'hunter2'")
        for url, words in (
            (server().url(name, "nobody_here:hunter2"), "refuses the user"),
            (server().url(f"not_{name}", "postgres:hunter2"), "no such database"),
            (server().url(name, f"guest_{name}:hunter2"), "does not give the user the right"),
            ("postgresql://me:hunter2@/x?host=/nowhere", "cannot be reached"),
            (server().url(name, "postgres:hunter2") + "&sslmode=nonsense", "settings in the URL"),
        ):
            store = PostgresSessions(PostgresDatabase(url))
            with pytest.raises((ConfigError, Unavailable), match=words) as caught:
                await store.ping()
            assert "hunter2" not in f"{caught.value!s} {store.database!r}"
            await store.aclose()
        assert "hunter2" not in caplog.text

    def test_several_threads_may_use_one_store(self, url: str) -> None:
        store = PostgresSessions(PostgresDatabase(url))
        anyio.run(lambda: store.create(*KEY))

        def write() -> None:
            async def append() -> None:
                await store.append(await store.get(KEY), note())

            anyio.run(append)

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        async def count() -> int:
            found = len((await store.get(KEY)).events)
            await store.aclose()
            return found

        assert anyio.run(count) == 8
