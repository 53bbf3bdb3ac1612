"""Sessions in SQLite keep the contract; and what only a file can get wrong."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import apsw
import pytest

from polyport import App, FunctionAgent, Stores
from polyport.data.content import model_text, user_text
from polyport.data.event import Event
from polyport.data.run import RunRequest
from polyport.errors import BadRequest, Conflict, NotFound, Superseded, Unavailable
from polyport.ports.agent import RunContext
from polyport.seams import Seams
from polyport.stores.sqlite import SqliteSessions
from polyport.testing.samples import KEY, full_event, note, together
from polyport.testing.suites import SessionStoreSuite


@contextmanager
def on_connect(hook: Any) -> Iterator[None]:
    """`hook(connection)` for every connection that is made meanwhile."""
    apsw.connection_hooks.append(hook)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(hook)


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SQL that connections made meanwhile execute."""
    seen: list[str] = []

    def trace(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
        seen.append(sql)
        return True

    def hook(con: apsw.Connection) -> None:
        con.exec_trace = trace

    with on_connect(hook):
        yield seen


def places(sql: str) -> int:
    """How many bindings a statement takes."""
    found = re.findall(r"\?(\d*)", sql)
    return max((int(number or len(found)) for number in found), default=0)


class TestSqliteSessions(SessionStoreSuite):
    @pytest.fixture
    async def store(self, tmp_path: Path, seams: Seams) -> AsyncIterator[SqliteSessions]:
        store = SqliteSessions(tmp_path / "new folder" / "sessions.db", seams=seams)
        yield store
        await store.aclose()

    @pytest.fixture
    async def other(self, store: SqliteSessions) -> AsyncIterator[SqliteSessions]:
        """A second store on the same file, as another process would have it."""
        other = SqliteSessions(store.path)
        yield other
        await other.aclose()

    async def test_what_was_stored_is_there_after_closing(self, store: SqliteSessions) -> None:
        session = await store.create(*KEY, state={"a": 1, "app:b": [2]}, events=[full_event()])
        await store.append(session, note("more", user__c=3))
        before = await store.get(KEY)
        await store.aclose()
        again = SqliteSessions(store.path)
        assert await again.get(KEY) == before
        await again.aclose()
        assert [path.name for path in store.path.parent.iterdir()] == ["sessions.db"]
        assert store.path.stat().st_mode & 0o777 == 0o600

    async def test_FR_035_temp_state_never_reaches_the_file(self, store: SqliteSessions) -> None:
        session = await store.create(
            *KEY, state={"temp:x": "SECRET-1"}, events=[note(temp__x="SECRET-2", kept="KEPT-1")]
        )
        await store.append(session, note(temp__x="SECRET-3", kept="KEPT-2"))
        files = b"".join(path.read_bytes() for path in store.path.parent.iterdir())
        assert b"KEPT-1" in files and b"KEPT-2" in files
        assert b"SECRET" not in files and b"temp:" not in files

    async def test_FR_046_another_connection_may_write_during_a_run(
        self, store: SqliteSessions, other: SqliteSessions
    ) -> None:
        run = await store.create(*KEY)
        await store.append(run, note("question"), claim=True)
        webhook = await other.get(KEY)
        await other.append(webhook, note("webhook", hook=1))
        await store.append(run, note("answer", answer=1))
        with pytest.raises(Conflict):
            await other.append(webhook, note(), strict=True)
        for reader in (store, other):
            read = await reader.get(KEY)
            assert [event.text for event in read.events] == ["question", "webhook", "answer"]
            assert read.state == {"hook": 1, "answer": 1}

    async def test_FR_059_another_connection_takes_over(self, store: SqliteSessions, other: SqliteSessions) -> None:
        run = await store.create(*KEY)
        await store.append(run, note("one"), claim=True)
        await other.append(await other.get(KEY), note("two"), claim=True)
        with pytest.raises(Superseded):
            await store.append(run, note("late"))
        assert [event.text for event in (await store.get(KEY)).events] == ["one", "two"]

    async def test_writers_in_two_stores_lose_nothing(self, store: SqliteSessions, other: SqliteSessions) -> None:
        await store.create(*KEY)

        async def write(where: SqliteSessions, name: str) -> None:
            session = await where.get(KEY)
            for number in range(20):
                await where.append(session, note(f"{name} {number}", **{name: number}))

        writers = [(where, f"{kind}{number}") for number in range(4) for kind, where in (("a", store), ("b", other))]
        assert set(await together(*[lambda w=where, n=name: write(w, n) for where, name in writers])) == {None}
        read = await other.get(KEY)
        assert read == await store.get(KEY)
        assert read.state == {name: 19 for _, name in writers}
        for _, name in writers:
            own = [event.text for event in read.events if event.text.startswith(f"{name} ")]
            assert own == [f"{name} {number}" for number in range(20)]

    async def test_appends_that_wait_share_a_transaction(self, store: SqliteSessions) -> None:
        sessions = [await store.create("app", "ann") for _ in range(50)]
        before = store.transactions
        await together(*[lambda s=session: store.append(s, note()) for session in sessions])
        assert 1 <= store.transactions - before <= 3

    async def test_one_bad_append_in_a_transaction_fails_alone(self, store: SqliteSessions) -> None:
        good = [await store.create("app", "ann") for _ in range(10)]
        gone = await store.create(*KEY)
        await store.delete(KEY)
        sessions = [*good[:5], gone, *good[5:]]
        before = store.transactions
        results = await together(*[lambda s=session: store.append(s, note(k=1, app__k=1)) for session in sessions])
        assert store.transactions - before <= 2
        assert [type(result) for result in results] == [Event] * 5 + [NotFound] + [Event] * 5
        for session in good:
            assert await store.get(session.key) == session


class TestCost:
    """What is done, counted: no clock is asked."""

    async def test_FR_047_an_append_costs_the_same_for_any_history(self, tmp_path: Path) -> None:
        steps = 0

        def count() -> bool:
            nonlocal steps
            steps += 1
            return False

        with on_connect(lambda con: con.set_progress_handler(count, 1)):
            store = SqliteSessions(tmp_path / "s.db", readers=1)
            short = await store.create("app", "ann", "short", events=[note(k=n, app__k=n) for n in range(3)])
            long = await store.create("app", "ann", "long", events=[note(k=n, app__k=n) for n in range(3000)])
            costs: list[int] = []
            for session in (short, long, short, long):
                steps = 0
                await store.append(session, note(k=1, user__k=2, app__k=3))
                costs.append(steps)
            await store.aclose()
        assert costs[2] > 0 and costs[2:3] == costs[3:4]

    async def test_FR_056_state_of_the_app_is_touched_only_by_its_keys(self, tmp_path: Path) -> None:
        with statements() as seen:
            store = SqliteSessions(tmp_path / "s.db")
            session = await store.create(*KEY)
            seen.clear()
            await store.append(session, note(own=1))
            assert any("INSERT INTO session_state" in sql for sql in seen)
            assert not any("app_state" in sql or "user_state" in sql for sql in seen)
            seen.clear()
            await store.append(session, note("no state at all"))
            assert not any("_state" in sql for sql in seen)
            seen.clear()
            await store.append(session, note(app__n=1))
            assert any("INSERT INTO app_state" in sql for sql in seen)
            await store.aclose()

    async def test_FR_047_no_statement_reads_a_whole_table(self, tmp_path: Path) -> None:
        with statements() as seen:
            store = SqliteSessions(tmp_path / "s.db", cache_bytes=0)
            session = await store.create(*KEY, state={"a": 1, "app:a": 1, "user:a": 1}, events=[note()])
            await store.append(session, note(a=1, app__a=1, user__a=1), strict=True)
            await store.get(KEY)
            await store.get(KEY, recent=1, after=1.0)
            token = (await store.list("app", "ann", page_size=1)).next_token
            await store.list("app", page_token=token)
            await store.find_run("e-1")
            await store.delete(KEY)
            await store.aclose()
        con = apsw.Connection(str(store.path))
        planned = {sql for sql in seen if sql.split()[0] in ("SELECT", "UPDATE", "DELETE", "INSERT")}
        assert len(planned) > 12
        for sql in planned - {"SELECT name FROM sqlite_schema WHERE type = 'table'"}:
            plan = [row[3] for row in con.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * places(sql))]
            scans = [step for step in plan if step.startswith("SCAN") and "json_each" not in step]
            assert not scans or "max(version)" in sql, sql
        con.close()

    async def test_FR_056_an_app_counter_keeps_every_increment(self, tmp_path: Path) -> None:
        store = SqliteSessions(tmp_path / "s.db")
        for number in range(10):
            session = await store.create("app", f"user-{number}")
            for _ in range(5):
                fresh = await store.get(session.key)
                await store.append(fresh, note(app__n=fresh.state.get("app:n", 0) + 1))
        assert (await store.create(*KEY)).state == {"app:n": 50}
        await store.aclose()

    async def test_FR_054_a_get_decodes_only_what_is_new(self, tmp_path: Path) -> None:
        store, other = SqliteSessions(tmp_path / "s.db"), SqliteSessions(tmp_path / "s.db")
        session = await store.create(*KEY, events=[note(str(n)) for n in range(1000)])

        async def decodes(recent: int | None = None, where: SqliteSessions = store) -> tuple[int, int]:
            before = where.decoded
            found = await where.get(KEY, recent=recent)
            return where.decoded - before, len(found.events)

        assert await decodes(recent=0) == (0, 0)
        assert await decodes(recent=10) == (10, 10)
        assert await decodes(recent=10) == (0, 10)
        assert await decodes(recent=30) == (20, 30)
        assert await decodes() == (970, 1000)
        assert await decodes() == (0, 1000)
        await store.append(session, note("1000"))
        await other.append(await other.get(KEY, recent=0), note("1001"))
        assert await decodes(recent=5) == (2, 5)
        assert await decodes() == (0, 1002)
        assert await decodes(where=other) == (1002, 1002)
        assert [event.text for event in (await store.get(KEY)).events] == [str(n) for n in range(1002)]
        assert (await store.get(KEY)).events[0] is (await store.get(KEY)).events[0]
        await other.delete(KEY)
        await other.create(*KEY, events=[note("another")])
        assert [event.text for event in (await store.get(KEY)).events] == ["another"]
        await store.aclose()
        await other.aclose()

    async def test_FR_054_what_is_kept_decoded_is_bounded(self, tmp_path: Path) -> None:
        store = SqliteSessions(tmp_path / "s.db", cache_bytes=100_000)  # room for two of these sessions
        for name in "abc":
            await store.create("app", "ann", name, events=[note("x" * 100) for _ in range(20)])
        keys = [KEY._replace(id=name) for name in "abc"]
        for key in (*keys, keys[2], keys[0]):
            await store.get(key)
        assert store.decoded == 80  # "c" was still there, "a" had to go
        await store.create("app", "ann", "huge", events=[note("x" * 200_000)])
        await store.get(KEY._replace(id="huge"))
        await store.get(keys[2])
        assert store.decoded == 81  # one that is too large drives nobody out
        tiny = SqliteSessions(tmp_path / "s.db", cache_bytes=0)
        for _ in range(2):
            assert len((await tiny.get(keys[0])).events) == 20
        assert tiny.decoded == 40
        await store.aclose()
        await tiny.aclose()


class TestCancelled:
    async def test_an_append_that_was_queued_is_carried_out_and_waited_for(self, tmp_path: Path) -> None:
        store = SqliteSessions(tmp_path / "s.db")
        session = await store.create(*KEY)
        blocker = apsw.Connection(str(store.path))
        blocker.execute("BEGIN IMMEDIATE")  # so that the append cannot be done at once
        async with anyio.create_task_group() as group:
            group.start_soon(store.append, session, note("queued", k=1))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
            assert session.events == []
            blocker.execute("ROLLBACK")
        assert [event.text for event in session.events] == ["queued"]
        await store.append(session, note("next"))
        assert [event.text for event in session.events] == ["queued", "next"]
        assert session == await store.get(KEY)
        blocker.close()
        await store.aclose()

    @pytest.mark.parametrize("more", [0, 5])
    async def test_what_was_stored_is_published_though_the_run_is_cancelled(self, tmp_path: Path, more: int) -> None:
        class Slower(SqliteSessions):
            async def append(self, *args: Any, **options: Any) -> Event:
                stored = await super().append(*args, **options)
                for _ in range(more):
                    await anyio.lowlevel.checkpoint()
                return stored

        store = (Slower if more else SqliteSessions)(tmp_path / "s.db")
        blocker = apsw.Connection(str(store.path))
        emitting = anyio.Event()

        async def speak(ctx: RunContext) -> None:
            blocker.execute("BEGIN IMMEDIATE")  # so that the event cannot be stored at once
            emitting.set()
            await ctx.emit(ctx.event(content=model_text("one")))
            await anyio.lowlevel.checkpoint()
            await ctx.emit(ctx.event(content=model_text("two")))

        async with App(FunctionAgent(name="app", function=speak), stores=Stores(sessions=store)) as app:
            run = await app.runs.start(RunRequest(key=KEY, message=user_text("hi"), create_session=True))
            await emitting.wait()
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as group:
                group.start_soon(app.runs.cancel, run.id, "enough")
                await anyio.wait_all_tasks_blocked()
                blocker.execute("ROLLBACK")
            stored = await store.get(KEY)
            assert run.outcome is not None and run.outcome.status == "cancelled"
            assert [item.event.text for item in run.read(0) if item.event is not None] == ["one"]
        assert [event.text for event in stored.events if event.author == "app"] == ["one"]
        blocker.close()


class TestFailures:
    """FR-223: a store that fails says so; nobody waits for ever, nothing is half stored."""

    async def test_FR_223_a_closed_store(self, tmp_path: Path) -> None:
        store = SqliteSessions(tmp_path / "s.db")
        session = await store.create(*KEY)
        before = await store.get(KEY)
        await store.aclose()
        await store.aclose()
        for call in (store.append(session, note()), store.get(KEY), store.ping(), store.create("app", "ann")):
            with pytest.raises(Unavailable, match="closed"):
                await call
        assert session == before
        unused = SqliteSessions(tmp_path / "s.db")
        await unused.aclose()

    async def test_FR_223_the_disk_is_full(self, tmp_path: Path) -> None:
        store = SqliteSessions(tmp_path / "s.db")
        await store.create(*KEY)
        await store.aclose()

        with on_connect(lambda con: con.execute("PRAGMA max_page_count = 40")):
            full = SqliteSessions(tmp_path / "s.db")
            session = await full.get(KEY)
            big = [note("x" * 20_000, k=number) for number in range(20)]
            results = await together(*[lambda e=event: full.append(session, e) for event in big])
            failed = [result for result in results if isinstance(result, Unavailable)]
            assert failed and all("the disk is full" in str(error) for error in failed)
            await full.append(session, note("small"))
            assert session == await full.get(KEY)
            assert len(session.events) == 21 - len(failed)
            await full.aclose()

    async def test_FR_223_another_process_holds_the_file(self, tmp_path: Path) -> None:
        store = SqliteSessions(tmp_path / "s.db", busy_s=0.01)
        session = await store.create(*KEY)
        holder = apsw.Connection(str(store.path))
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="did not let go of it in time"):
            await store.append(session, note())
        assert (await store.get(KEY)).events == []  # reading goes on
        holder.execute("ROLLBACK")
        await store.append(session, note())
        holder.close()
        await store.aclose()

    async def test_an_event_that_could_not_be_read_again_is_refused(self, tmp_path: Path) -> None:
        store = SqliteSessions(tmp_path / "s.db")
        session = await store.create(*KEY)
        for bad in (Event(author=5), Event(output="\ud800"), Event(content="text")):  # type: ignore[arg-type] # the point
            with pytest.raises(BadRequest, match="cannot be stored"):
                await store.append(session, bad)
        assert await store.get(KEY) == session
        await store.aclose()

    async def test_a_damaged_event_is_not_the_callers_fault(self, tmp_path: Path) -> None:
        store = SqliteSessions(tmp_path / "s.db")
        await store.create(*KEY, events=[note()])
        con = apsw.Connection(str(store.path))
        con.execute("UPDATE events SET body = '{\"id\": 5}'")
        with pytest.raises(Unavailable, match="event number 1 of the session database is damaged"):
            await store.get(KEY)
        con.execute('UPDATE events SET body = \'{"id": "e", "fieldOfTheFuture": 1}\'')
        assert (await store.get(KEY)).events[0].id == "e"
        con.close()
        await store.aclose()
