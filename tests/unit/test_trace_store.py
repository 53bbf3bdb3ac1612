"""The trace store: its limits, and what it forgets."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from polyport.data.session import SessionKey
from polyport.protocols.debug.store import LogShape, SpanShape, TraceStore

ANN, BOB = SessionKey("app", "ann", "s1"), SessionKey("app", "bob", "s1")


def span(trace: str, id: str, start: int = 0, parent: str | None = None, **attributes: object) -> SpanShape:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return SpanShape(f"span {id}", start, start + 1, id, trace, parent, named, [])


def model(trace: str, id: str, event: str, start: int = 0) -> SpanShape:
    about = {"gen_ai.operation.name": "generate_content", "gcp.vertex.agent.event_id": event}
    return SpanShape(f"span {id}", start, start + 1, id, trace, None, about, [])


def log(trace: str, id: str, body: object = "x") -> LogShape:
    return LogShape(body, "2026-01-01T00:00:00.000000000Z", trace, id, "e")


def put(store: TraceStore, trace: str, id: str, owner: SessionKey | None = ANN, **attributes: object) -> None:
    store.begin(trace, id, owner)
    store.end(span(trace, id, **attributes))


def ids(store: TraceStore, key: SessionKey) -> list[str]:
    return [found.span_id for found in store.of_session(key)]


def test_the_trace_used_longest_ago_goes_first():
    store = TraceStore(2, 1_000_000, 100)
    put(store, "t1", "a")
    put(store, "t2", "b")
    assert ids(store, ANN) == ["a", "b"]
    store.begin("t1", "a2", ANN)  # used now
    put(store, "t3", "c")
    assert ids(store, ANN) == ["a", "c"]
    assert len(store) == 2


def test_texts_that_json_cannot_hold_are_kept_as_far_as_they_can_be():
    store = TraceStore(2, 1_000_000, 10)
    store.begin("t1", "a", ANN)
    store.log(log("t1", "a", {"half \ud800": ["of a pair \udfff and more"]}))
    store.end(span("t1", "a", odd="\ud83d", fine="ü"))
    (found,) = store.of_session(ANN)
    assert found.attributes == {"odd": "?", "fine": "ü"}
    assert found.logs[0].body == {"half ?": ["of a pair ... (20 characters)"]}


def test_reading_is_using():
    store = TraceStore(2, 1_000_000, 100)
    for trace, owner in (("t1", ANN), ("t2", BOB)):
        put(store, trace, trace, owner)
    store.of_session(ANN)
    put(store, "t3", "t3", ANN)
    assert ids(store, BOB) == []
    assert store.sessions("s1") == [ANN]


def test_bytes_are_bounded_by_forgetting_old_traces_and_then_by_keeping_nothing_new():
    store = TraceStore(1000, 10_000, 100_000)
    for n in range(20):
        put(store, f"t{n}", f"s{n}", text="x" * 2000)
        assert store.size <= 10_000
    assert ids(store, ANN) == ["s17", "s18", "s19"]
    for n in range(20):
        put(store, "big", f"b{n}", text="y" * 2000)
        assert store.size <= 10_000
    assert ids(store, ANN) == ["b0", "b1", "b2"]


def test_texts_are_cut():
    store = TraceStore(10, 1_000_000, 10)
    store.begin("t", "a", ANN)
    store.end(span("t", "a", text="x" * 11, short="y" * 10, many=("z" * 11, 1)))
    store.log(log("t", "a", {"content": {"parts": [{"text": "q" * 99}]}, "n": 1.5, "none": None, "b": b"\0"}))
    (found,) = store.of_session(ANN)
    assert found.attributes["text"] == "x" * 10 + "... (11 characters)"
    assert found.attributes["short"] == "y" * 10
    assert found.attributes["many"] == ["z" * 10 + "... (11 characters)", 1]
    body = found.logs[0].body
    assert body["content"]["parts"][0]["text"] == "q" * 10 + "... (99 characters)"
    assert (body["n"], body["none"]) == (1.5, None)


def test_a_deep_body_is_cut():
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    store = TraceStore(10, 1_000_000, 10)
    store.begin("t", "a", ANN)
    store.log(log("t", "a", deep))
    store.end(span("t", "a"))
    (found,) = store.of_session(ANN)
    assert len(found.logs) == 1


def test_a_span_of_no_run_is_shown_only_where_all_runs_are_of_one_session():
    store = TraceStore(10, 1_000_000, 100)
    store.begin("t", "http", None)
    put(store, "t", "mine", start=1)
    store.end(span("t", "http"))
    assert ids(store, ANN) == ["http", "mine"]
    put(store, "t", "his", BOB)
    assert ids(store, ANN) == ["mine"]
    assert ids(store, BOB) == ["his"]


def test_spans_outside_of_any_run_are_not_kept():
    store = TraceStore(10, 1_000_000, 100)
    put(store, "t", "a", None)
    store.log(log("t", "a"))
    assert (len(store), store.size) == (0, 0)


def test_a_parent_that_is_not_shown_is_none():
    store = TraceStore(10, 1_000_000, 100)
    for id, parent in (("a", "elsewhere"), ("b", "a")):
        store.begin("t", id, ANN)
        store.end(span("t", id, parent=parent))
    assert [found.parent_span_id for found in store.of_session(ANN)] == [None, "a"]


def test_the_first_span_of_an_event_stands_for_it():
    store = TraceStore(10, 1_000_000, 100)
    for id, start in (("late", 5), ("early", 2)):
        store.begin("t", id, ANN)
        store.end(model("t", id, "e1", start))
    store.begin("t", "agent", ANN)
    store.end(span("t", "agent", gcp__vertex__agent__event_id="e1"))
    assert [(key, found.span_id) for key, found in store.of_event("e1")] == [(ANN, "early"), (ANN, "late")]
    assert store.of_event("") == store.of_event("e2") == []


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([ANN, BOB]), st.integers(0, 3)), max_size=60))
def test_nothing_is_left_of_what_is_forgotten(steps: list[tuple[int, SessionKey, int]]):
    store = TraceStore(3, 20_000, 1000)
    for n, (trace, owner, event) in enumerate(steps):
        store.begin(f"t{trace}", f"s{n}", owner)
        store.log(log(f"t{trace}", f"s{n}"))
        store.end(model(f"t{trace}", f"s{n}", f"e{event}", n))
        assert len(store) <= 3 and store.size <= 20_000
    seen = {found.span_id for key in store.sessions("s1") for found in store.of_session(key)}
    of_events = {found.span_id for event in range(4) for _, found in store.of_event(f"e{event}")}
    assert seen == of_events
    for n in range(3):
        put(store, f"new{n}", f"new{n}", SessionKey("app", "zoe", "other"))
    assert store.sessions("s1") == []
    assert all(store.of_event(f"e{event}") == [] for event in range(4))


def test_many_threads_at_once():
    store = TraceStore(5, 50_000, 100)

    def work(me: int) -> None:
        for n in range(200):
            put(store, f"t{(me + n) % 9}", f"{me}-{n}", ANN if n % 2 else BOB)
            store.of_session(ANN)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store) <= 5 and 0 < store.size <= 50_000
