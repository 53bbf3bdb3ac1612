"""What every store of push configurations must do, as tests: subclass the suite and give it a `pushes` fixture, and a `tasks`
one, the TaskStore beside it. Used by the tests of the stores, and by those of others.
"""

from functools import partial

import pytest

from polyport.errors import LimitExceeded
from polyport.ports.tasks import PushKey, PushStore, TaskStore, TaskUpdate
from polyport.testing.samples import Suite, together
from polyport.testing.task_suite import ANN, BOB, NOW, first, head, piece

KEY = PushKey(ANN, "t1", "p1")
LATER = NOW + 1000


class PushStoreSuite(Suite):
    """The contract of `polyport.ports.tasks.PushStore`."""

    async def test_T060_configurations_come_back_in_order(self, pushes: PushStore) -> None:
        for name in ("b", "a", "c"):
            await pushes.put(KEY._replace(id=name), name.encode() + b"\x00\xff", 3, 16)
        await pushes.put(KEY._replace(task_id="t2"), b"other", 0, 16)
        found = await pushes.list(ANN, "t1")
        assert [(t.key.id, t.body, t.sent) for t in found] == [(n, n.encode() + b"\x00\xff", 3) for n in "bac"]
        assert sorted(t.number for t in found) == [t.number for t in found]
        await pushes.delete(KEY._replace(id="a"))
        await pushes.delete(KEY._replace(id="a"))
        await pushes.delete(KEY._replace(task_id="nope"))
        assert [t.key.id for t in await pushes.list(ANN, "t1")] == ["b", "c"]
        assert await pushes.list(ANN, "nope") in ([], ())

    async def test_a_configuration_that_is_put_again_keeps_its_place(self, pushes: PushStore) -> None:
        await pushes.put(KEY, b"one", 3, 1)
        (before,) = await pushes.list(ANN, "t1")
        await pushes.put(KEY, b"two", 9, 1)
        (after,) = await pushes.list(ANN, "t1")
        assert (after.number, after.body, after.sent) == (before.number, b"two", 3)
        with pytest.raises(LimitExceeded, match="at most 1"):
            await pushes.put(KEY._replace(id="p2"), b"", 0, 1)

    async def test_T045_other_scopes_have_their_own(self, pushes: PushStore) -> None:
        theirs = PushKey(BOB, "t1", "p1")
        await pushes.put(KEY, b"ann's", 0, 1)
        await pushes.put(theirs, b"bob's", 0, 1)
        await pushes.delete(PushKey(BOB, "t1", "p2"))
        assert [t.body for t in await pushes.list(ANN, "t1")] == [b"ann's"]
        await pushes.delete(theirs)
        assert [t.body for t in await pushes.list(ANN, "t1")] == [b"ann's"]
        assert not await pushes.list(BOB, "t1")

    async def test_T065_they_go_with_their_tasks(self, pushes: PushStore) -> None:
        for task_id in ("t1", "t1", "t2"):
            await pushes.put(PushKey(ANN, task_id, "p"), b"", 0, 5)
        await pushes.forget([head("t1"), head("nope")])
        assert not await pushes.list(ANN, "t1")
        assert len(await pushes.list(ANN, "t2")) == 1
        await pushes.forget([])

    async def test_one_holder_at_a_time(self, pushes: PushStore) -> None:
        await pushes.put(KEY, b"body", 2, 1)
        held = await pushes.hold(KEY, "one", NOW, LATER)
        assert held is not None and (held.key, held.body, held.sent) == (KEY, b"body", 2)
        assert await pushes.hold(KEY, "two", NOW + 999, LATER + 999) is None
        more = await pushes.hold(KEY, "one", NOW, LATER, sent=5)
        assert more is not None and more.sent == 5
        assert await pushes.hold(KEY, "one", NOW, LATER, sent=4) == more, "it never falls"
        taken = await pushes.hold(KEY, "two", LATER, LATER + 1000)
        assert taken is not None and taken.sent == 5, "the time of the first one was over"
        assert await pushes.hold(KEY, "one", LATER, LATER + 1000, sent=9) is None, "and it cannot write any more"
        await pushes.release(KEY, "one", done=False)
        assert await pushes.hold(KEY, "three", LATER, LATER + 1) is None
        await pushes.release(KEY, "two", done=False)
        assert await pushes.hold(KEY, "three", LATER, LATER + 1) is not None
        assert await pushes.hold(KEY._replace(id="nope"), "one", NOW, LATER) is None
        await pushes.release(KEY._replace(id="nope"), "one", done=True)

    async def test_of_many_who_want_it_one_holds_it(self, pushes: PushStore) -> None:
        await pushes.put(KEY, b"body", 0, 1)
        found = await together(*[partial(pushes.hold, KEY, f"h{n}", NOW, LATER) for n in range(8)])
        assert sum(target is not None for target in found) == 1

    async def test_what_is_due_after_a_restart(self, pushes: PushStore, tasks: TaskStore) -> None:
        if not pushes.durable:
            assert not await pushes.due(["app"], NOW, 10)
            return
        await tasks.create(head(), first())
        await pushes.put(KEY, b"", 1, 5)
        await pushes.put(KEY._replace(id="new"), b"", 0, 5)
        await pushes.put(KEY._replace(task_id="none yet"), b"", 0, 5)
        new = KEY._replace(id="new")
        assert list(await pushes.due(["app"], NOW, 10)) == [new], "the other one knows all there is"
        assert not await pushes.due(["other"], NOW, 10)
        await tasks.append(ANN, "t1", 1, TaskUpdate(changes=[piece(1)]))
        assert set(await pushes.due(["other", "app"], NOW, 10)) == {KEY, new}
        assert len(await pushes.due(["app"], NOW, 1)) == 1
        await pushes.hold(KEY, "one", NOW, LATER, sent=1)
        assert list(await pushes.due(["app"], LATER - 1, 10)) == [new]
        assert set(await pushes.due(["app"], LATER, 10)) == {KEY, new}
        await pushes.hold(new, "one", NOW, LATER, sent=2)
        await pushes.release(new, "one", done=False)
        await pushes.release(KEY, "one", done=True)
        assert not await pushes.due(["app"], LATER, 10)
