"""The feed of a run: what a follower reads, from wherever it begins, and who is woken."""

import anyio
import pytest

from polyport.data.event import Event
from polyport.errors import LimitExceeded
from polyport.runs.feed import Feed


def filled(count: int, limit: int = 100) -> Feed:
    feed = Feed(limit)
    for number in range(1, count + 1):
        feed.publish(Event(id=str(number)))
    return feed


def offsets(feed: Feed, after: int) -> list[int]:
    return [item.offset for item in feed.read(after)]


@pytest.mark.parametrize("after", range(8))
def test_a_follower_reads_what_comes_after_its_offset_in_order(after: int) -> None:
    assert offsets(filled(7), after) == list(range(after + 1, 8))


def test_a_follower_that_fell_behind_the_kept_items_is_told_so() -> None:
    feed = filled(9, limit=4)
    assert offsets(feed, 5) == [6, 7, 8, 9] and offsets(feed, 7) == [8, 9]
    with pytest.raises(LimitExceeded, match="items 5 to 5"):
        feed.read(4)


async def test_a_follower_that_leaves_takes_nobody_along() -> None:
    feed = Feed()
    told: list[bool] = []

    async def follow() -> None:
        told.append(await feed.changed(0))

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        group.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0):
            await feed.changed(0)
        feed.publish(Event(id="1"))
    assert told == [True, True]
    feed.close()
    assert not await feed.changed(1)
