"""What protocols ask of the other processes: who holds what, who is gone, what is new (ports.peers.Peers)."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from polyport.cluster import Cluster
from polyport.data.run import RunRequest
from polyport.data.session import SessionKey
from polyport.errors import Conflict, Superseded
from polyport.ports.peers import Ticket
from support.clusters import Replicas, replicas, until


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[Replicas]:
    with anyio.fail_after(60):
        async with replicas(tmp_path) as made:
            yield made


async def take_nothing(ticket: Ticket) -> None:
    raise AssertionError("nothing was left behind")


class Two:
    """Two processes without an app, that have just looked who is there, and do so again in 20 s."""

    def __init__(self, one: Cluster, two: Cluster) -> None:
        self.one = one
        self.two = two


@pytest.fixture
async def two(cluster: Replicas) -> AsyncGenerator[Two]:
    found = Two(cluster.cluster(name="one", lease_s=60), cluster.cluster(name="two", lease_s=60))
    async with found.one.serving(take_nothing, ["app"]), found.two.serving(take_nothing, ["app"]):
        await until(lambda: found.one._link.replicas.known and found.two._link.replicas.known)
        yield found


def ticket(run_id: str = "e-1", session: str = "s") -> Ticket:
    return Ticket(request=RunRequest(key=SessionKey("app", "u", session)), run_id=run_id)


async def test_a_session_has_one_ticket_among_all(two: Two):
    ours, held = await two.one.claim(ticket())
    assert ours and held.owner == two.one.name and held.life == held.revision > 0
    assert await two.two.claim(ticket("e-2")) == (False, held)
    with pytest.raises(Conflict, match=r"e-1.* is active"):
        await two.one.claim(ticket())
    assert await two.one.claim(ticket("e-3")) == (False, held), "another run here has to wait as well"
    assert not await two.two.freed(held, 0.0)
    async with anyio.create_task_group() as group:
        group.start_soon(two.two.freed, held, 30.0)
        await two.one.release(held)
    assert (await two.two.claim(ticket("e-2")))[0]


async def test_who_has_an_older_ticket_can_neither_change_nor_return_it(two: Two):
    _, old = await two.one.claim(ticket())
    await two.one.release(old)
    _, new = await two.two.claim(ticket("e-2"))
    await two.one.release(old)
    assert await two.one.claim(ticket("e-3")) == (False, new)
    with pytest.raises(Superseded):
        await two.one.renew(old)


async def test_what_others_hold_is_known(two: Two):
    two.one.holds("thing", lambda ids: [id for id in ids if id in ("a", "b")])
    two.two.holds("thing", lambda ids: ids)
    assert await two.two.held("thing", ["a", "b", "c"]) == {"a", "b"}, "not what we hold ourselves"
    assert await two.two.held("other", ["a"]) == set()


async def test_a_ring_is_heard_by_others(two: Two):
    heard: list[str] = []
    async with (
        two.one.listening("topic", lambda: heard.append("one")),
        two.two.listening("topic", lambda: heard.append("two")),
    ):
        two.two.ring("topic")
        await until(lambda: heard)
    assert heard == ["one"]


async def test_one_process_cares_for_what_another_one_has_left(cluster: Replicas):
    cared: list[str] = []
    left = cluster.cluster(name="left")
    left.on_loss("thing", lambda: care("left"))
    left.on_loss("other", lambda: care("left"))

    async def care(name: str) -> None:
        cared.append(name)

    others = [cluster.cluster(name=f"o{n}") for n in range(3)]
    async with AsyncExitStack() as stack:
        for n, other in enumerate(others):
            other.on_loss("thing", lambda n=n: care(f"o{n}"))
            await stack.enter_async_context(other.serving(take_nothing, ["app"]))
        async with left.serving(take_nothing, ["app"]):
            await until(lambda: all(left.name in other._link.replicas.known for other in others))
        await until(lambda: cared and not any(left.name in other._link.replicas.known for other in others))
    assert len(cared) == 1 and cared[0] != "left"
