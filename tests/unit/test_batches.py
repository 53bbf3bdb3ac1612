"""Group commit: what waits goes together, each stands or falls alone, and nobody is forgotten when somebody is cancelled."""

from collections.abc import Sequence

import anyio
import pytest
from anyio.lowlevel import checkpoint

from polyport.errors import BadRequest, Unavailable
from polyport.stores.batches import Batches


class Gate:
    """Work that stands still until it is let through; `batches` are those that were begun."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = anyio.Event()
        self.fails = False

    async def work(self, items: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(items))
        await self.open.wait()
        if self.fails:
            raise Unavailable("the database is gone")
        return [BadRequest(f"{item} is odd") if item % 2 else item * 10 for item in items]


async def until_idle() -> None:
    for _ in range(5):
        await checkpoint()


async def test_what_waits_goes_together_and_each_has_its_own_result() -> None:
    gate, results, told = Gate(), dict[int, object](), list[int]()
    batches = Batches(gate.work, width=1, limit=4)

    async def do(number: int) -> None:
        try:
            results[number] = await batches.do(number, told.append)
        except BadRequest as error:
            results[number] = str(error)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(do, number)
        await until_idle()
        gate.open.set()
    assert gate.batches == [[0], [1, 2, 3, 4], [5, 6, 7]]
    assert results == {n: f"{n} is odd" if n % 2 else n * 10 for n in range(8)}
    assert told == [0, 20, 40, 60]


async def test_a_database_that_is_gone_is_told_to_all() -> None:
    gate, told = Gate(), list[str]()
    gate.fails = True
    batches = Batches(gate.work, width=2)

    async def do(number: int) -> None:
        with pytest.raises(Unavailable, match="is gone"):
            await batches.do(number, lambda result: None)
        told.append("told")

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(do, number)
        await until_idle()
        gate.open.set()
    assert gate.batches[:2] == [[0], [1]] and len(gate.batches) <= 4
    assert sorted(item for batch in gate.batches for item in batch) == [0, 1, 2, 3, 4, 5] and len(told) == 6


@pytest.mark.parametrize("who", [0, 1, 2, 3])
async def test_whoever_is_cancelled_the_others_are_carried_out(who: int) -> None:
    """0 carries out a batch, 1 would have the next turn, 2 and 3 wait."""
    gate, done, told = Gate(), list[int](), list[int]()
    batches = Batches(gate.work, width=1, limit=3)
    scopes = [anyio.CancelScope() for _ in range(6)]

    async def do(number: int) -> None:
        with scopes[number]:
            await batches.do(number * 2, told.append)
            done.append(number)

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(do, number)
        await until_idle()
        scopes[who].cancel()
        await until_idle()
        gate.open.set()
    others = [n for n in range(6) if n != who or who == 0]  # what was begun is done, and told
    assert sorted(done) == others and sorted(told) == [n * 20 for n in others]
    await batches.do(2, told.append)


async def test_a_turn_that_comes_with_a_cancellation_is_passed_on() -> None:
    gate, done = Gate(), list[int]()
    batches = Batches(gate.work, width=1, limit=1)
    scopes = [anyio.CancelScope() for _ in range(3)]

    async def do(number: int) -> None:
        with scopes[number]:
            await batches.do(number * 2, lambda result: scopes[1].cancel() if number == 0 else None)
            done.append(number)

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(do, number)
        await until_idle()
        gate.open.set()
    assert done == [0, 2]
