"""What every store of A2A tasks must do, as tests: subclass the suite and give it a `store` fixture (see `testing.suites`).

Each test is named after the statements of the A2A specification notes that it checks, where there is one.
"""

from collections.abc import Sequence

import pytest

from polyport.errors import BadRequest, Conflict, NotFound, PolyportError
from polyport.ports.tasks import (
    MessageKey,
    TaskChange,
    TaskFilter,
    TaskHead,
    TaskPage,
    TaskScope,
    TaskStore,
    TaskUpdate,
)
from polyport.testing.samples import Suite, together

ANN = TaskScope("app", "", "ann")
BOB = TaskScope("app", "", "bob")
NOW = 1_772_000_000_000
WORKING, DONE, FAILED = "TASK_STATE_WORKING", "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"


def head(id: str = "t1", *, scope: TaskScope = ANN, context: str = "c1", at: int = NOW) -> TaskHead:
    return TaskHead(
        id=id, scope=scope, context_id=context, state="TASK_STATE_SUBMITTED", status_ms=at, created_ms=at, run_id=""
    )


def first(text: str = "first") -> list[TaskChange]:
    return [TaskChange(kind="task", body=b'{"task":"%s"}' % text.encode())]


def piece(number: int, event: str = "") -> TaskChange:
    return TaskChange(kind="artifact", body=b'{"piece":%d}' % number, event_id=event)


def status(state: str, at: int = NOW, **columns: str) -> TaskUpdate:
    change = TaskChange(kind="status", body=b'{"state":"%s"}' % state.encode())
    return TaskUpdate(changes=[change], state=state, status_ms=at, run_id=columns.get("run_id"))


def ids(page: TaskPage) -> list[str]:
    return [task.head.id for task in page.tasks]


async def make(store: TaskStore, *names: str, scope: TaskScope = ANN, at: int = NOW) -> None:
    """Tasks one millisecond apart."""
    for number, name in enumerate(names):
        await store.create(head(name, scope=scope, at=at + number), first())


class TaskStoreSuite(Suite):
    """The contract of `polyport.ports.tasks.TaskStore`."""

    # ---- one task

    async def test_a_task_comes_back_with_its_changes_in_order(self, store: TaskStore) -> None:
        made = await store.create(head(), first())
        assert (made.version, made.state, made.run_id) == (1, "TASK_STATE_SUBMITTED", "")
        update = TaskUpdate(
            changes=[*status(WORKING).changes, piece(1, "ev-1")], state=WORKING, status_ms=NOW + 5, run_id="e-1"
        )
        after = await store.append(ANN, "t1", 1, update)
        assert (after.version, after.state, after.status_ms, after.run_id) == (3, WORKING, NOW + 5, "e-1")
        assert (after.created_ms, after.context_id, after.scope) == (NOW, "c1", ANN)
        found = await store.get(ANN, "t1")
        assert found.head == after
        assert [c.kind for c in found.changes] == ["task", "status", "artifact"]
        assert found.changes[2] == piece(1, "ev-1")
        assert found.changes[0].body == b'{"task":"first"}'

    async def test_artifacts_can_be_left_out(self, store: TaskStore) -> None:
        await store.create(head(), first())
        await store.append(ANN, "t1", 1, TaskUpdate(changes=[piece(1), piece(2)]))
        await store.append(ANN, "t1", 3, status(DONE))
        found = await store.get(ANN, "t1", artifacts=False)
        assert [c.kind for c in found.changes] == ["task", "status"]
        assert found.head.version == 4

    async def test_changes_after_a_version_are_numbered_by_what_they_made(self, store: TaskStore) -> None:
        await store.create(head(), first())
        await store.append(ANN, "t1", 1, TaskUpdate(changes=[piece(1), piece(2)]))
        await store.append(ANN, "t1", 3, TaskUpdate(changes=[piece(3)]))
        assert await store.changes(ANN, "t1", 2) == [(3, piece(2)), (4, piece(3))]
        assert [n for n, _ in await store.changes(ANN, "t1", 0)] == [1, 2, 3, 4]
        assert await store.changes(ANN, "t1", 4) == []

    async def test_columns_alone_can_be_set(self, store: TaskStore) -> None:
        await store.create(head(), first())
        after = await store.append(ANN, "t1", 1, TaskUpdate(changes=[], run_id="e-9"))
        assert (after.version, after.run_id, after.state) == (1, "e-9", "TASK_STATE_SUBMITTED")
        assert (await store.get(ANN, "t1")).head == after

    async def test_bodies_are_kept_to_the_byte(self, store: TaskStore) -> None:
        body = '{"t":"\\u0000 é 😀 \\ud83d"}'.encode()
        await store.create(head(), [TaskChange(kind="task", body=body)])
        big = TaskChange(kind="artifact", body=b'"' + b"x" * (1 << 20) + b'"')
        await store.append(ANN, "t1", 1, TaskUpdate(changes=[big]))
        assert [c.body for c in (await store.get(ANN, "t1")).changes] == [body, big.body]

    async def test_an_id_is_used_once(self, store: TaskStore) -> None:
        await store.create(head(), first())
        for scope in (ANN, BOB):
            with pytest.raises(Conflict):
                await store.create(head(scope=scope), first("other"))
        assert (await store.get(ANN, "t1")).changes == first()
        with pytest.raises(NotFound):
            await store.get(BOB, "t1")

    # ---- versions

    async def test_T054_a_version_is_written_once(self, store: TaskStore) -> None:
        await store.create(head(), first())
        await store.append(ANN, "t1", 1, status(DONE))
        for version in (0, 1, 3):
            with pytest.raises(Conflict, match="version 2"):
                await store.append(ANN, "t1", version, status(FAILED))
        found = await store.get(ANN, "t1")
        assert (found.head.state, len(found.changes)) == (DONE, 2)

    async def test_T054_of_many_racing_writers_one_wins(self, store: TaskStore) -> None:
        await store.create(head(), first())
        states = [DONE, FAILED, "TASK_STATE_CANCELED"] * 5
        results = await together(*[lambda s=s: store.append(ANN, "t1", 1, status(s)) for s in states])
        winners = [(r.state, s) for r, s in zip(results, states, strict=True) if isinstance(r, TaskHead)]
        assert len(winners) == 1 and winners[0][0] == winners[0][1]
        assert all(isinstance(r, TaskHead | Conflict) for r in results)
        found = await store.get(ANN, "t1")
        assert (found.head.version, found.head.state, len(found.changes)) == (2, winners[0][0], 2)

    # ---- who sees what

    async def test_T045_T051_a_scope_sees_its_own_tasks_only(self, store: TaskStore) -> None:
        await store.create(head(), first())
        others = [BOB, TaskScope("app", "t", "ann"), TaskScope("other", "", "ann"), TaskScope("app", "ann", "")]
        messages: set[str] = set()
        for other in others:
            asked = [
                lambda o=other: store.get(o, "t1"),
                lambda o=other: store.changes(o, "t1", 0),
                lambda o=other: store.append(o, "t1", 1, status(DONE)),
                lambda: store.get(ANN, "t2"),
            ]
            results = await together(*asked)
            assert [type(r) for r in results] == [NotFound] * 4
            messages |= {str(r).replace("t2", "t1") for r in results}
            assert (await store.list(other, TaskFilter(), page_size=5)).total == 0
        assert len(messages) == 1, "what is hidden looks like what is not there"
        assert (await store.get(ANN, "t1")).head.version == 1

    # ---- messages

    async def test_T023_a_message_that_comes_again_makes_no_second_task(self, store: TaskStore) -> None:
        key = MessageKey("", "m1", "d1")
        made = await store.create(head("t1"), first(), key, NOW - 100)
        again = await store.create(head("t2", at=NOW + 50), first("second"), key, NOW - 50)
        assert (made.id, again.id, again) == ("t1", "t1", made)
        assert (await store.list(ANN, TaskFilter(), page_size=5)).total == 1
        with pytest.raises(NotFound):
            await store.get(ANN, "t2")

    async def test_T023_other_messages_other_scopes_and_old_ones_do_make_one(self, store: TaskStore) -> None:
        key = MessageKey("", "m1", "d1")
        await store.create(head("t1"), first(), key)
        keys = [MessageKey("c1", "m1", "d1"), MessageKey("", "m2", "d1"), MessageKey("", "m1", "d2")]
        for number, other in enumerate(keys):
            assert (await store.create(head(f"k{number}"), first(), other)).id == f"k{number}"
        assert (await store.create(head("b1", scope=BOB), first(), key)).id == "b1"
        late = await store.create(head("t2", at=NOW + 1000), first(), key, NOW + 1)
        assert late.id == "t2"
        assert await store.find_message(ANN, key, NOW) == "t2"

    async def test_T023_the_same_message_at_once(self, store: TaskStore) -> None:
        key = MessageKey("", "m1", "d1")
        names = [f"t{n}" for n in range(12)]
        heads = await together(*[lambda n=n: store.create(head(n), first(), key) for n in names])
        assert len({h.id for h in heads}) == 1
        assert (await store.list(ANN, TaskFilter(), page_size=50)).total == 1

    async def test_T023_a_message_of_a_follow_up_is_found(self, store: TaskStore) -> None:
        await store.create(head(), first())
        key = MessageKey("c1", "m2", "d")
        update = TaskUpdate(changes=[TaskChange(kind="message", body=b"{}")], status_ms=NOW + 10, message=key)
        await store.append(ANN, "t1", 1, update)
        assert await store.find_message(ANN, key, NOW + 10) == "t1"
        assert await store.find_message(ANN, key, NOW + 11) is None
        assert await store.find_message(BOB, key, 0) is None
        assert await store.find_message(ANN, key._replace(context=""), 0) is None

    # ---- lists

    async def test_T046_newest_status_first_with_a_total(self, store: TaskStore) -> None:
        await make(store, "a", "b", "c")
        await store.append(ANN, "a", 1, status(WORKING, NOW + 100))
        page = await store.list(ANN, TaskFilter(), page_size=2)
        assert (ids(page), page.total) == (["a", "c"], 3)
        rest = await store.list(ANN, TaskFilter(), page_size=2, page_token=page.next_token)
        assert (ids(rest), rest.total, rest.next_token) == (["b"], 3, "")
        exact = await store.list(ANN, TaskFilter(), page_size=3)
        assert exact.next_token == ""

    async def test_T046_equal_times_are_in_order_of_making(self, store: TaskStore) -> None:
        for name in "badc":
            await store.create(head(name), first())
        seen: list[str] = []
        token = ""
        for _ in range(4):
            page = await store.list(ANN, TaskFilter(), page_size=1, page_token=token)
            seen += ids(page)
            token = page.next_token
        assert (seen, token) == (["c", "d", "a", "b"], "")

    async def test_T048_pages_are_stable_while_tasks_arrive(self, store: TaskStore) -> None:
        await make(store, *[f"t{n}" for n in range(6)])
        whole = ids(await store.list(ANN, TaskFilter(), page_size=50))
        seen: list[str] = []
        token = ""
        for number in range(3):
            page = await store.list(ANN, TaskFilter(), page_size=2, page_token=token)
            seen += ids(page)
            token = page.next_token
            await make(store, f"new{number}", at=NOW + 1000 + number)
        assert (seen, token) == (whole, "")

    async def test_T049_filters_alone_and_together(self, store: TaskStore) -> None:
        for number, context in enumerate(["c1", "c2", "c1", "c2"]):
            await store.create(head(f"t{number}", context=context, at=NOW + number), first())
        await store.append(ANN, "t0", 1, status(DONE, NOW + 10))
        await store.append(ANN, "t1", 1, status(DONE, NOW + 11))

        async def listed(filter: TaskFilter) -> Sequence[str]:
            page = await store.list(ANN, filter, page_size=50)
            assert page.total == len(page.tasks)
            return ids(page)

        assert await listed(TaskFilter(context_id="c1")) == ["t0", "t2"]
        assert await listed(TaskFilter(state=DONE)) == ["t1", "t0"]
        assert await listed(TaskFilter(since_ms=NOW + 3)) == ["t1", "t0", "t3"], "inclusive"
        assert await listed(TaskFilter(context_id="c2", state=DONE, since_ms=NOW + 11)) == ["t1"]
        assert await listed(TaskFilter(context_id="c1", state=DONE, since_ms=NOW + 11)) == []
        page = await store.list(ANN, TaskFilter(state=DONE), page_size=1)
        rest = await store.list(ANN, TaskFilter(state=DONE), page_size=1, page_token=page.next_token)
        assert (ids(page), ids(rest), rest.next_token) == (["t1"], ["t0"], "")

    async def test_T047_tokens_that_were_not_given_and_bad_sizes(self, store: TaskStore) -> None:
        await make(store, "a", "b")
        token = (await store.list(ANN, TaskFilter(), page_size=1)).next_token
        for bad in ("x", "!", "e30", "WzEsMl0", token[:-2]):
            with pytest.raises(BadRequest, match="pageToken"):
                await store.list(ANN, TaskFilter(), page_size=1, page_token=bad)
        for scope, filter in ((BOB, TaskFilter()), (ANN, TaskFilter(state=DONE))):
            with pytest.raises(BadRequest, match="other filters"):
                await store.list(scope, filter, page_size=1, page_token=token)
        for size in (0, -1):
            with pytest.raises(BadRequest):
                await store.list(ANN, TaskFilter(), page_size=size)

    async def test_T050_lists_show_artifacts_when_asked(self, store: TaskStore) -> None:
        await store.create(head(), first())
        await store.append(ANN, "t1", 1, TaskUpdate(changes=[piece(1)]))
        without = await store.list(ANN, TaskFilter(), page_size=5)
        assert [c.kind for c in without.tasks[0].changes] == ["task"]
        shown = await store.list(ANN, TaskFilter(), page_size=5, artifacts=True)
        assert [c.kind for c in shown.tasks[0].changes] == ["task", "artifact"]

    # ---- what the server asks

    async def test_T109_tasks_in_a_state_are_found_across_scopes(self, store: TaskStore) -> None:
        await make(store, "a", "b", "c")
        await make(store, "d", scope=BOB)
        await make(store, "e", scope=TaskScope("other", "", "ann"))
        await store.append(ANN, "b", 1, status(WORKING, run_id="e-1"))
        await store.append(ANN, "c", 1, status(DONE))
        found = await store.in_state("app", [WORKING, "TASK_STATE_SUBMITTED"])
        assert [(h.id, h.scope.owner, h.run_id) for h in found] == [
            ("a", "ann", ""),
            ("b", "ann", "e-1"),
            ("d", "bob", ""),
        ]
        assert await store.in_state("none", [WORKING]) == []

    async def test_old_tasks_are_forgotten_with_all_that_belongs_to_them(self, store: TaskStore) -> None:
        key = MessageKey("", "m1", "d")
        await store.create(head("a"), first(), key)
        await make(store, "b", "c", "d", at=NOW + 1)
        for name in "abd":
            await store.append(ANN, name, 1, status(DONE, NOW + (900 if name == "d" else 10)))
        await make(store, "e", scope=TaskScope("other", "", "ann"))
        assert [h.id for h in await store.forget("app", NOW + 500, [DONE], limit=1)] == ["a"]
        assert [h.id for h in await store.forget("app", NOW + 500, [DONE, FAILED])] == ["b"]
        assert await store.forget("app", NOW + 500, [DONE, FAILED]) == []
        assert ids(await store.list(ANN, TaskFilter(), page_size=9)) == ["d", "c"]
        assert await store.find_message(ANN, key, 0) is None
        assert (await store.create(head("a"), first("new"), key)).id == "a", "the id is free again"
        assert (await store.get(ANN, "a")).changes == first("new")

    async def test_it_can_be_asked_whether_it_is_there(self, store: TaskStore) -> None:
        await store.ping()

    async def test_writes_at_the_same_time_to_many_tasks(self, store: TaskStore) -> None:
        async def life(name: str) -> TaskHead:
            known = await store.create(head(name), first())
            for number in range(5):
                known = await store.append(ANN, name, known.version, TaskUpdate(changes=[piece(number)]))
            return await store.append(ANN, name, known.version, status(DONE))

        heads = await together(*[lambda n=n: life(f"t{n}") for n in range(20)])
        assert not [h for h in heads if isinstance(h, PolyportError)]
        assert {h.version for h in heads} == {7}
        for number in range(20):
            bodies = [c.body for c in (await store.get(ANN, f"t{number}")).changes]
            assert bodies[1:6] == [piece(n).body for n in range(5)]
