"""What every session store must do, as tests. Documented in `polyport.testing.suites`."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.to_thread
import pytest
from msgspec import structs

from polyport.data.content import Blob, Content, Part
from polyport.data.event import Compaction, Event, EventActions
from polyport.data.session import Session, SessionKey
from polyport.errors import BadRequest, Conflict, NotFound, Superseded
from polyport.ports.stores import SessionStore
from polyport.testing.samples import KEY, Clock, Suite, change, full_event, note, together


class SessionsBasics(Suite):
    """Create, get, list, delete; statements 1 to 8 and 21 of spec core 11."""

    async def test_core_1_create_with_a_full_key_echoes_it(self, store: SessionStore) -> None:
        session = await store.create("app", "ann", "s1", state={"k": 1})
        assert (session.key, session.state, session.events) == (KEY, {"k": 1}, [])

    async def test_core_2_create_without_an_id_generates_one(self, store: SessionStore) -> None:
        first, second = await store.create("app", "ann"), await store.create("app", "ann", "")
        assert first.id and second.id and first.id != second.id
        assert (await store.get(first.key)).key == first.key

    async def test_core_3_FR_003_create_of_an_existing_id_is_a_conflict(self, store: SessionStore) -> None:
        await store.create(*KEY, state={"n": 1, "app:n": 1})
        with pytest.raises(Conflict, match="Session already exists: s1"):
            await store.create(*KEY, state={"n": 2, "app:n": 2}, events=[note(app__n=3)])
        session = await store.get(KEY)
        assert (session.state, session.events) == ({"n": 1, "app:n": 1}, [])

    async def test_core_3_one_of_many_parallel_creates_wins(self, store: SessionStore) -> None:
        def in_a_thread() -> list[Any]:
            return asyncio.run(together(*[lambda: store.create(*KEY)] * 8))

        threads = await together(*[lambda: anyio.to_thread.run_sync(in_a_thread)] * 8)
        results = [result for thread in threads for result in thread]
        assert len(results) == 64
        assert [type(r) for r in results if not isinstance(r, Conflict)] == [Session]

    async def test_core_4_get_returns_the_state_and_refuses_the_unknown(self, store: SessionStore) -> None:
        await store.create(*KEY, state={"k": {"a": [1]}})
        assert (await store.get(KEY)).state == {"k": {"a": [1]}}
        with pytest.raises(NotFound):
            await store.get(KEY._replace(id="s2"))

    async def test_core_5_get_respects_the_user_and_the_app(self, store: SessionStore) -> None:
        await store.create(*KEY)
        for other in (KEY._replace(user="bob"), KEY._replace(app="other")):
            with pytest.raises(NotFound):
                await store.get(other)

    async def test_core_6_get_filters_by_count_and_time(self, store: SessionStore) -> None:
        session = await store.create(*KEY)
        for number in range(1, 6):
            await store.append(session, note(str(number), at=1000.000001 * number))

        async def texts(recent: int | None = None, after: float | None = None) -> list[str]:
            return [event.text for event in (await store.get(KEY, recent=recent, after=after)).events]

        assert await texts(recent=3) == ["3", "4", "5"]
        assert await texts(after=2000.000002) == ["2", "3", "4", "5"]
        assert await texts(recent=2, after=1000.000001) == ["4", "5"]
        assert await texts(recent=0) == [] == await texts(after=9e9)
        assert await texts(recent=99) == await texts() == ["1", *await texts(recent=4)] == ["1", "2", "3", "4", "5"]

    async def test_core_7_FR_004_list_gives_merged_state_and_no_events(self, store: SessionStore, clock: Clock) -> None:
        for number in (1, 2, 3):
            clock.now += 1
            await store.create("app", "ann", f"s{number}", state={"title": f"T{number}", "user:u": 1, "app:a": [2]})
        await store.create("app", "bob", "s1", events=[note()])
        await store.create("other", "ann", "s1")
        page = await store.list("app", "ann")
        assert ([s.id for s in page.sessions], page.next_token) == (["s3", "s2", "s1"], "")
        assert page.sessions[0].state == {"title": "T3", "user:u": 1, "app:a": [2]}
        assert page.sessions[0].updated_at == clock.now
        everybody = (await store.list("app")).sessions
        assert [(s.key.user, s.id) for s in everybody] == [("bob", "s1"), ("ann", "s3"), ("ann", "s2"), ("ann", "s1")]
        assert all(s.events == [] for s in everybody) and everybody[0].state == {"app:a": [2]}
        assert (await store.list("app", "nobody")).sessions == []
        with pytest.raises(BadRequest, match="app"):
            await store.list("")

    async def test_FR_054_lists_have_pages(self, store: SessionStore, clock: Clock) -> None:
        for number in range(7):
            clock.now += number % 2  # some of them at the same time
            await store.create("app", "ann" if number % 3 else "bob", f"s{number}")
        whole = [s.key for s in (await store.list("app")).sessions]
        seen: list[SessionKey] = []
        token = ""
        for _ in range(4):
            page = await store.list("app", page_size=2, page_token=token)
            seen += [s.key for s in page.sessions]
            token = page.next_token
        assert (seen, token) == (whole, "")
        first = await store.list("app", page_size=7)
        assert (len(first.sessions), first.next_token) == (7, "")
        token = (await store.list("app", page_size=1)).next_token
        with pytest.raises(BadRequest):
            await store.list("other", page_size=1, page_token=token)
        for bad in ("x", "e30", "!", "WzEsMl0"):
            with pytest.raises(BadRequest, match="page token"):
                await store.list("app", page_token=bad)
        with pytest.raises(BadRequest):
            await store.list("app", page_size=-1)

    async def test_core_8_delete(self, store: SessionStore) -> None:
        session = await store.create(*KEY, state={"x": 1, "user:u": 1, "app:a": 1}, events=[note()])
        await store.delete(KEY._replace(user="bob"))
        assert len((await store.get(KEY)).events) == 1
        await store.delete(KEY)
        await store.delete(KEY)
        with pytest.raises(NotFound):
            await store.get(KEY)
        with pytest.raises(NotFound):
            await store.append(session, note())
        assert await store.find_run("e-1") is None
        again = await store.create(*KEY)
        assert (again.state, (await store.get(KEY)).events) == ({"user:u": 1, "app:a": 1}, [])

    async def test_core_21_clock_and_ids_come_from_the_seams(self, store: SessionStore, clock: Clock) -> None:
        session = await store.create("app", "ann", events=[note()])
        assert (session.id, session.events[0].id) == ("id-1", "id-2")
        assert session.updated_at == session.created_at == clock.now
        assert session.events[0].timestamp == datetime.fromtimestamp(clock.now, UTC)

    async def test_empty_and_unfit_keys_are_refused(self, store: SessionStore) -> None:
        for app, user in (("", "ann"), ("app", ""), ("a\x00b", "ann"), ("app", "\ud800")):
            with pytest.raises(BadRequest):
                await store.create(app, user, "s")
        for key in (SessionKey("", "", ""), KEY._replace(id="")):
            with pytest.raises(BadRequest, match="session id"):
                await store.get(key)
            with pytest.raises(BadRequest, match="session id"):
                await store.delete(key)
        with pytest.raises(BadRequest):
            await store.get(KEY, recent=-1)

    async def test_a_store_that_works_answers_a_ping(self, store: SessionStore) -> None:
        assert await store.ping() is None


class SessionsAppend(Suite):
    """Append and state; statements 9 to 20 of spec core 11."""

    async def test_core_9_append_to_an_unknown_session_fails(self, store: SessionStore) -> None:
        session = Session(key=KEY)
        with pytest.raises(NotFound):
            await store.append(session, note(k=1))
        with pytest.raises(NotFound):
            await store.append(session, note(k=1), claim=True)
        assert session == Session(key=KEY)

    async def test_core_10_a_partial_event_is_not_stored(self, store: SessionStore) -> None:
        session = await store.create(*KEY)
        partial = structs.replace(note(k=1), partial=True)
        assert await store.append(session, partial) is partial
        assert (session.events, session.state, session.revision) == ([], {}, (await store.get(KEY)).revision)
        assert (await store.get(KEY)).events == []

    async def test_core_11_inline_bytes_survive(self, store: SessionStore) -> None:
        session = await store.create(*KEY)
        blob = Blob(mime_type="application/octet-stream", data=bytes(range(256)) * 300)
        await store.append(session, Event(author="user", content=Content(role="user", parts=[Part(inline_data=blob)])))
        (event,) = (await store.get(KEY)).events
        assert event.content is not None and event.content.parts[0].inline_data == blob

    async def test_core_12_events_keep_the_order_of_storage(self, store: SessionStore) -> None:
        session = await store.create(*KEY, events=[note("0", at=9000), note("1", at=1)])
        for number, at in ((2, 500.0), (3, 500.0), (4, 2.0)):
            await store.append(session, note(str(number), at=at))
        assert [event.text for event in (await store.get(KEY)).events] == ["0", "1", "2", "3", "4"]
        assert session.events == (await store.get(KEY)).events

    async def test_core_13_core_19_FR_010_FR_053_all_fields_round_trip(self, store: SessionStore) -> None:
        given = full_event()
        session = await store.create(*KEY)
        stored = await store.append(session, given)
        (event,) = (await store.get(KEY)).events
        assert event == stored == given == session.events[0]
        assert event.timestamp == datetime(2026, 2, 25, 6, 13, 20, 123457, UTC)
        assert isinstance(event.actions.compaction, Compaction)
        copy = await store.create("app", "ann", "s2", events=[event])
        assert copy.events == (await store.get(copy.key)).events == [given]
        assert copy.state == {"k": [1, {"deep": None}]}

    async def test_core_23_an_unset_delta_stays_unset(self, store: SessionStore) -> None:
        session = await store.create(*KEY)
        await store.append(session, Event(actions=EventActions(state_delta=None, artifact_delta={})))
        await store.append(session, Event(actions=EventActions(state_delta={}, artifact_delta=None)))
        first, second = (await store.get(KEY)).events
        assert (first.actions.state_delta, first.actions.artifact_delta) == (None, {})
        assert (second.actions.state_delta, second.actions.artifact_delta) == ({}, None)

    async def test_core_14_15_16_state_scopes(self, store: SessionStore) -> None:
        await store.create(*KEY, state={"app:a": 1, "user:u": 1, "own": 1})
        mine = await store.create("app", "ann", "s2")
        other = await store.create("app", "bob", "s1")
        assert mine.state == {"app:a": 1, "user:u": 1}
        assert other.state == {"app:a": 1}
        await store.append(other, note(app__a=2, user__u=5, own=7, nothing=None))
        assert other.state == {"app:a": 2, "user:u": 5, "own": 7, "nothing": None}
        assert (await store.get(KEY)).state == {"app:a": 2, "user:u": 1, "own": 1}
        assert (await store.get(other.key)).state == other.state
        assert (await store.create("other", "ann")).state == {}

    async def test_deltas_are_shallow_merges_in_order(self, store: SessionStore) -> None:
        events = [note(d={"a": 1, "b": 1}, user__n=1), note(d={"b": 2}, user__n=2, app__x=True)]
        session = await store.create(*KEY, state={"d": 0, "e": 0}, events=events)
        assert session.state == {"d": {"b": 2}, "e": 0, "user:n": 2, "app:x": True} == (await store.get(KEY)).state

    async def test_core_17_FR_035_temp_state_is_not_stored(self, store: SessionStore) -> None:
        session = await store.create(*KEY, state={"temp:a": 1, "b": 1}, events=[note(temp__c=1, d=1)])
        assert session.state == {"b": 1, "d": 1}
        stored = await store.append(session, note(temp__e=1, f=1))
        assert session.state == {"b": 1, "d": 1, "temp:e": 1, "f": 1}
        assert stored.actions.state_delta == {"f": 1}
        again = await store.get(KEY)
        assert again.state == {"b": 1, "d": 1, "f": 1}
        assert [event.actions.state_delta for event in again.events] == [{"d": 1}, {"f": 1}]

    async def test_core_18_temp_keys_stay_in_the_callers_event(self, store: SessionStore) -> None:
        session = await store.create(*KEY)
        event = note(temp__t=1, k=1)
        await store.append(session, event)
        assert event.actions.state_delta == {"temp:t": 1, "k": 1}
        assert session.events[0].actions.state_delta == {"k": 1}
        assert event.id == "" and session.events[0].id

    async def test_core_20_FR_061_parallel_deltas_lose_nothing(self, store: SessionStore) -> None:
        session = await store.create(*KEY)
        sessions = [await store.get(KEY) for _ in range(10)] + [session] * 10

        async def write(number: int) -> None:
            for step in range(5):
                delta = {f"own_{number}": step, "shared": step, "app:shared": step}
                await store.append(sessions[number], change(delta))

        await together(*[lambda n=number: write(n) for number in range(20)])
        read = await store.get(KEY)
        assert {key: value for key, value in read.state.items() if key.startswith("own")} == {
            f"own_{number}": 4 for number in range(20)
        }
        assert read.state.keys() >= {"shared", "app:shared"}
        assert (len(read.events), len(session.events)) == (100, 50)
        assert [event for event in read.events if event in session.events] == session.events

    async def test_FR_095_state_without_a_json_form_fails_naming_the_key(self, store: SessionStore) -> None:
        session = await store.create(*KEY)
        with pytest.raises(BadRequest, match="'bad'"):
            await store.append(session, note(good=1, bad=object()))
        with pytest.raises(BadRequest, match="'bad'"):
            await store.create("app", "ann", "s2", state={"bad": {"deep": object()}})
        with pytest.raises(BadRequest, match="'app:bad'"):
            await store.create("app", "ann", "s2", events=[note(app__bad=object())])
        assert (await store.list("app")).sessions == [await store.get(KEY)] == [session]

    async def test_FR_095_other_values_are_stored_as_their_json_form(self, store: SessionStore) -> None:
        session = await store.create(*KEY, state={"set": {1}, "time": datetime(2026, 1, 2, tzinfo=UTC)})
        stored = await store.append(session, note(nan=float("nan"), tuple=(1, (2,)), whole=1.0, number_keys={1: 2}))
        expected = {"nan": None, "tuple": [1, [2]], "whole": 1.0, "number_keys": {"1": 2}}
        read = await store.get(KEY)
        assert stored.actions.state_delta == read.events[0].actions.state_delta == expected
        assert read.state == session.state == expected | {"set": [1], "time": "2026-01-02T00:00:00Z"}
        assert type(read.state["whole"]) is float

    async def test_what_is_changed_in_place_is_not_stored(self, store: SessionStore) -> None:
        items = [1]
        session = await store.create(*KEY, state={"items": items})
        event = note(more=items, app__a={"b": items})
        await store.append(session, event)
        items.append(2)
        event.actions.escalate = True
        assert event.actions.state_delta is not None
        event.actions.state_delta["later"] = 1
        for read in (session, await store.get(KEY), (await store.list("app")).sessions[0]):
            for value in (read.state["items"], read.state["more"], read.state["app:a"]["b"]):
                value.append(3)
            read.state["later"] = 1
            read.events.clear()
        read = await store.get(KEY)
        assert read.state == {"items": [1], "more": [1], "app:a": {"b": [1]}}
        assert read.events[0].actions == EventActions(state_delta={"more": [1], "app:a": {"b": [1]}}, artifact_delta={})


class SessionsWriters(Suite):
    """Several writers of one session: revision, fence, time."""

    async def test_FR_045_clocks_do_not_make_conflicts(self, store: SessionStore, clock: Clock) -> None:
        session = await store.create(*KEY)
        begun = clock.now
        for step in range(5):
            await store.append(session, note(str(step)), strict=True)  # the clock stands still
        clock.now -= 2
        await store.append(session, note("5", at=5.0), strict=True)
        read = await store.get(KEY)
        assert [event.text for event in read.events] == list("012345")
        assert read.updated_at == session.updated_at == begun
        clock.now += 10
        await store.append(session, note("6", at=5.0), strict=True)
        assert (await store.get(KEY)).updated_at == session.updated_at == begun + 8
        assert read.created_at == begun

    async def test_FR_046_a_second_writer_does_not_stop_a_run(self, store: SessionStore) -> None:
        await store.create(*KEY)
        run = await store.get(KEY)
        await store.append(run, note("question"), claim=True)
        patch = await store.get(KEY)
        await store.append(patch, note("patch", from_patch=1, app__p=1))
        await store.append(run, note("answer", from_run=1))
        read = await store.get(KEY)
        assert read.state == {"from_patch": 1, "from_run": 1, "app:p": 1}
        assert [event.text for event in read.events] == ["question", "patch", "answer"]
        for late in (run, patch):  # each has missed a write of the other
            with pytest.raises(Conflict, match="changed by somebody else"):
                await store.append(late, note("late", x=1), strict=True)
            assert "x" not in late.state and late.events[-1].text != "late"
        await store.append(read, note("in time", x=1), strict=True)
        assert (await store.get(KEY)).revision == read.revision

    async def test_T107_a_claim_from_outside_supersedes_the_run_that_has_the_session(self, store: SessionStore) -> None:
        made = await store.create(*KEY)
        await store.append(made, note("one"), claim=True)
        await store.claim(KEY)
        with pytest.raises(Superseded):
            await store.append(made, note("two"))
        await store.append(await store.get(KEY), note("three"))
        assert [event.text for event in (await store.get(KEY)).events] == ["one", "three"]
        with pytest.raises(NotFound):
            await store.claim(KEY._replace(id="another"))

    async def test_FR_059_a_second_claim_supersedes_the_first(self, store: SessionStore) -> None:
        first = await store.create(*KEY)
        second = await store.get(KEY)
        await store.append(first, note("first"), claim=True)
        await store.append(second, note("second"), claim=True)
        before = await store.get(KEY)
        revision, events = first.revision, first.events.copy()
        with pytest.raises(Superseded):
            await store.append(first, note("late", k=1, app__k=1))
        assert (first.revision, first.events, first.state) == (revision, events, {})
        assert await store.get(KEY) == before
        await store.append(second, note("goes on"))
        assert [event.text for event in (await store.get(KEY)).events] == ["first", "second", "goes on"]
        await store.append(first, note("again"), claim=True)
        with pytest.raises(Superseded):
            await store.append(second, note("late"))

    async def test_one_of_many_parallel_claims_owns_the_session(self, store: SessionStore) -> None:
        await store.create(*KEY)
        sessions = [await store.get(KEY) for _ in range(8)]
        await together(*[lambda s=session: store.append(s, note(), claim=True) for session in sessions])
        results = await together(*[lambda s=session: store.append(s, note()) for session in sessions])
        assert sorted(type(result) is Superseded for result in results) == [False] + [True] * 7
        assert sorted(session.fence for session in sessions) == list(range(1, 9))

    async def test_a_strict_claim_tells_of_other_writers(self, store: SessionStore) -> None:
        first = await store.create(*KEY)
        second = await store.get(KEY)
        await store.append(first, note(), claim=True, strict=True)
        with pytest.raises(Conflict):
            await store.append(second, note(), claim=True, strict=True)
        await store.append(first, note())  # the refused claim took nothing

    async def test_append_to_a_windowed_session(self, store: SessionStore) -> None:
        await store.create(*KEY, events=[note(str(n)) for n in range(5)])
        session = await store.get(KEY, recent=1)
        await store.append(session, note("5"), strict=True)
        assert [event.text for event in session.events] == ["4", "5"]
        assert [event.text for event in (await store.get(KEY, recent=3)).events] == ["3", "4", "5"]
        assert [event.text for event in (await store.get(KEY)).events] == list("012345")

    async def test_other_writers_show_at_the_next_get(self, store: SessionStore) -> None:
        session = await store.create(*KEY)
        other = await store.create("app", "ann", "s2")
        await store.append(other, note(app__a=1, user__u=1, own=1))
        await store.append(session, note("mine"))
        assert (await store.get(KEY)).state == {"app:a": 1, "user:u": 1}
        await store.append(await store.get(KEY), note("theirs"))
        assert [event.text for event in (await store.get(KEY)).events] == ["mine", "theirs"]

    async def test_a_run_is_found_by_its_id(self, store: SessionStore) -> None:
        session = await store.create(*KEY)
        await store.create("app", "ann", "s2", events=[note(run="e-2"), note(run="")])
        await store.append(session, note(run="e-1"))
        assert await store.find_run("e-1") == KEY
        assert await store.find_run("e-2") == KEY._replace(id="s2")
        assert await store.find_run("e-3") is None
        assert await store.find_run("") is None


class SessionStoreSuite(SessionsBasics, SessionsAppend, SessionsWriters):
    """All that the port SessionStore asks for."""
