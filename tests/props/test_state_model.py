"""State scopes: for any deltas, every store says what a plain model says (spec core 5.2)."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyport.data.session import State, merge_state, split_delta, without_temp
from polyport.ports.stores import SessionStore
from polyport.stores.memory import MemorySessions
from polyport.stores.sqlite import SqliteSessions
from polyport.testing.samples import change

keys = st.builds(
    str.__add__, st.sampled_from(["", "app:", "user:", "temp:"]), st.sampled_from(["a", "b", "app:a", "é", ""])
)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
deltas = st.dictionaries(keys, values, max_size=5)


@given(deltas)
def test_split_and_merge_are_inverse_but_for_temp(delta: dict[str, Any]) -> None:
    parts = split_delta(delta)
    assert merge_state(parts.session, parts.app, parts.user) == without_temp(delta)
    assert set(delta) - set(without_temp(delta)) == {f"temp:{key}" for key in parts.temp}


@given(deltas, deltas)
def test_the_overlay_reads_like_the_committed_state_will(base: dict[str, Any], delta: dict[str, Any]) -> None:
    state = State(dict(base), {})
    for key, value in delta.items():
        state[key] = value
    assert dict(state) == base | delta
    assert len(state) == len(list(state))
    assert state.delta == delta


step = st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from(["s1", "s2"]), deltas)


def in_memory(folder: Path) -> SessionStore:
    return MemorySessions()


def in_sqlite(folder: Path) -> SessionStore:
    return SqliteSessions(folder / "s.db")


@pytest.mark.parametrize("make", [in_memory, in_sqlite])
@settings(max_examples=25, deadline=None)
@given(steps=st.lists(step, max_size=8))
def test_stores_agree_with_the_model(make: Callable[[Path], SessionStore], steps: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        anyio.run(_compare, make(Path(folder)), steps)


async def _compare(store: SessionStore, steps: list[tuple[str, str, dict[str, Any]]]) -> None:
    app: dict[str, Any] = {}
    users: dict[str, dict[str, Any]] = {"ann": {}, "bob": {}}
    own: dict[tuple[str, str], dict[str, Any]] = {}
    sessions = {(user, id): await store.create("app", user, id) for user in users for id in ("s1", "s2")}
    for user, id, delta in steps:
        session = sessions[user, id]
        stored = await store.append(session, change(delta))
        parts = split_delta(delta)
        app |= parts.app
        users[user] |= parts.user
        own.setdefault((user, id), {}).update(parts.session)
        assert stored.actions.state_delta == without_temp(delta)
        assert session.state | delta == session.state
    for (user, id), session in sessions.items():
        read = await store.get(session.key)
        assert read.state == merge_state(own.get((user, id), {}), app, users[user])
        assert [event.actions.state_delta for event in read.events] == [
            event.actions.state_delta for event in session.events
        ]
    assert {s.key: s.state for s in (await store.list("app")).sessions} == {
        session.key: (await store.get(session.key)).state for session in sessions.values()
    }
    await store.aclose()
