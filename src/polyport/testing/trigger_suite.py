"""What every store of deliveries must do, as tests: subclass the suite and give it a `store` fixture (see `testing.suites`)."""

import pytest
from msgspec import structs

from polyport.errors import NotFound
from polyport.ports.triggers import SHOWN, Delivery, DeliveryKey, TriggerStore
from polyport.testing.samples import Suite, together

NOW = 1_772_000_000_000


def delivery(id: str = "m1", *, app: str = "app", at: int = NOW, lease: int = 1000, **more: str) -> Delivery:
    key = DeliveryKey(app, more.get("source", "pubsub"), more.get("origin", "projects/p/subscriptions/s"), id)
    return Delivery(key=key, user="u", text="hällo", session_id=f"s-{id}", kind="k", at_ms=at, lease_ms=at + lease)


def ended(one: Delivery, state: str, *, at: int = NOW + 10, error: str = "") -> Delivery:
    return structs.replace(one, state=state, at_ms=at, lease_ms=0, error=error, attempts=2)


class TriggerStoreSuite(Suite):
    """The contract of `polyport.ports.triggers.TriggerStore`."""

    async def test_a_new_delivery_is_the_callers(self, store: TriggerStore) -> None:
        assert await store.claim(delivery(), again=True) == (True, delivery())
        assert await store.claim(delivery("m2"), again=False) == (True, delivery("m2"))
        assert await store.get("app", "s-m1") == delivery()

    async def test_keys_differ_by_each_of_their_parts(self, store: TriggerStore) -> None:
        for one in (
            delivery(),
            delivery(app="b"),
            delivery(source="webhook"),
            delivery(origin="o"),
            delivery("m2"),
        ):
            ours, _ = await store.claim(one, again=True)
            assert ours

    async def test_one_that_is_being_carried_out_is_left_alone(self, store: TriggerStore) -> None:
        await store.claim(delivery(), again=True)
        later = structs.replace(delivery(at=NOW + 999), session_id="other")
        assert await store.claim(later, again=True) == (False, delivery())

    async def test_one_whose_lease_is_over_goes_to_whoever_asks(self, store: TriggerStore) -> None:
        await store.claim(delivery(), again=True)
        await store.update(structs.replace(delivery(), attempts=3))
        late = structs.replace(delivery(at=NOW + 1000), session_id="other", text="another")
        assert await store.claim(late, again=False) == (False, structs.replace(delivery(), attempts=3))
        ours, found = await store.claim(late, again=True)
        assert ours and (found.session_id, found.text, found.attempts) == ("s-m1", "hällo", 3)
        assert (found.at_ms, found.lease_ms) == (late.at_ms, late.lease_ms)
        ours, _ = await store.claim(late, again=True)
        assert not ours

    async def test_one_that_was_done_stays_so_and_its_text_goes(self, store: TriggerStore) -> None:
        await store.claim(delivery(), again=True)
        await store.update(ended(delivery(), "done"))
        await store.update(ended(delivery(), "dead", error="late"))
        ours, found = await store.claim(delivery(at=NOW + 5000), again=True)
        assert not ours and (found.state, found.text, found.error) == ("done", "", "")

    async def test_a_dead_one_can_be_taken_up_again_and_counts_anew(self, store: TriggerStore) -> None:
        await store.claim(delivery(), again=True)
        await store.update(ended(delivery(), "dead", error="no"))
        found = await store.get("app", "s-m1")
        assert (found.state, found.error, found.attempts, found.text) == ("dead", "no", 2, "hällo")
        assert await store.claim(delivery(at=NOW + 20), again=False) == (False, found)
        ours, found = await store.claim(delivery(at=NOW + 20), again=True)
        assert ours and (found.state, found.error, found.attempts) == ("running", "", 0)
        assert await store.dead("app", 10) == []

    async def test_of_many_claims_at_once_one_wins(self, store: TriggerStore) -> None:
        async def claim() -> bool:
            ours, _ = await store.claim(delivery(), again=True)
            return ours

        assert sorted(await together(*[claim] * 8)) == [False] * 7 + [True]

    async def test_dead_letters_of_an_app_newest_first(self, store: TriggerStore) -> None:
        for number, id in enumerate(("a", "b", "c")):
            await store.claim(delivery(id), again=True)
            await store.update(ended(delivery(id), "dead", at=NOW + number, error="x"))
        await store.claim(delivery("d"), again=True)
        await store.claim(delivery("e", app="other"), again=True)
        await store.update(ended(delivery("e", app="other"), "dead"))
        assert [one.key.id for one in await store.dead("app", 10)] == ["c", "b", "a"]
        assert [one.key.id for one in await store.dead("app", 2)] == ["c", "b"]
        assert await store.dead("nobody", 10) == []

    async def test_what_nobody_is_at_any_more(self, store: TriggerStore) -> None:
        for id in ("a", "b", "c", "d"):
            await store.claim(delivery(id, at=NOW if id == "a" else NOW + 1), again=True)
        await store.update(ended(delivery("c"), "done"))
        await store.update(structs.replace(delivery("d", at=NOW + 2), lease_ms=0))
        assert [one.key.id for one in await store.stranded(NOW, 10)] == ["d"]
        assert [one.key.id for one in await store.stranded(NOW + 1001, 10)] == ["a", "b", "d"]
        assert [one.key.id for one in await store.stranded(NOW + 1001, 1)] == ["a"]

    async def test_lists_do_not_carry_long_texts(self, store: TriggerStore) -> None:
        for id in ("a", "b"):
            long = structs.replace(delivery(id), text="ä" * (SHOWN + 1))
            await store.claim(long, again=True)
        await store.update(ended(delivery("a"), "dead"))
        assert [one.text for one in await store.dead("app", 10)] == ["ä" * SHOWN]
        assert [one.text for one in await store.stranded(NOW + 5000, 10)] == [""]
        assert len((await store.get("app", "s-a")).text) == SHOWN + 1
        _, found = await store.claim(structs.replace(delivery("b", at=NOW + 5000), text=""), again=True)
        assert len(found.text) == SHOWN + 1

    async def test_removing(self, store: TriggerStore) -> None:
        await store.claim(delivery(), again=True)
        await store.remove("other", "s-m1")
        await store.remove("app", "s-m1")
        await store.remove("app", "s-m1")
        with pytest.raises(NotFound):
            await store.get("app", "s-m1")
        ours, _ = await store.claim(delivery(), again=False)
        assert ours

    async def test_forgetting_what_is_old(self, store: TriggerStore) -> None:
        for id, state in (("a", "done"), ("b", "done"), ("c", "dead"), ("d", "dead")):
            await store.claim(delivery(id), again=True)
            await store.update(ended(delivery(id), state, at=NOW + (0 if id in "ac" else 100)))
        await store.claim(delivery("e", at=NOW - 10**9), again=True)
        assert await store.forget(NOW + 50, NOW) == 1
        with pytest.raises(NotFound):
            await store.get("app", "s-a")
        assert await store.forget(NOW + 50, NOW + 50) == 1
        assert [one.key.id for one in await store.dead("app", 10)] == ["d"]
        assert (await store.get("app", "s-e")).state == "running"
