"""The inbox and the feed of a live run: order, bounds, and what is counted."""

import anyio
import pytest

from polyport.data.content import Blob, user_text
from polyport.data.event import Event
from polyport.data.live import LiveBlob, LiveConfig, LiveRequest
from polyport.errors import LimitExceeded
from polyport.runs.feed import Feed
from polyport.runs.inbox import ITEM_BYTES, Inbox


def sound(size: int) -> LiveRequest:
    return LiveRequest(realtime=LiveBlob(Blob(mime_type="audio/pcm", data=bytes(size))), size=size)


def said(text: str) -> LiveRequest:
    return LiveRequest(content=user_text(text), size=len(text))


async def test_an_inbox_gives_out_what_came_first_and_takes_back():
    inbox = Inbox(LiveConfig(), 1 << 20)
    for text in "abc":
        await inbox.put(said(text))
    first = await inbox.take()
    assert first is not None
    inbox.put_back(first)
    inbox.close()
    await inbox.put(said("too late"))
    taken = [await inbox.take() for _ in range(4)]
    assert [r.content.text if r is not None and r.content is not None else None for r in taken] == ["a", "b", "c", None]


async def test_a_full_inbox_makes_its_filler_wait_until_there_is_room():
    inbox = Inbox(LiveConfig(), 2 * (1000 + ITEM_BYTES))
    done: list[int] = []

    async def fill() -> None:
        for n in range(4):
            await inbox.put(sound(1000))
            done.append(n)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(fill)
            await anyio.wait_all_tasks_blocked()
            assert done == [0, 1]
            await inbox.take()
            await anyio.wait_all_tasks_blocked()
            assert done == [0, 1, 2]
            inbox.close()  # who waits then must not wait for ever


async def test_one_message_above_the_limit_is_taken_when_it_is_alone():
    inbox = Inbox(LiveConfig(), 100)
    with anyio.fail_after(5):
        await inbox.put(sound(5000))
        await inbox.take()
        await inbox.put(sound(5000))


async def test_a_cancelled_taker_loses_nothing():
    inbox = Inbox(LiveConfig(), 1 << 20)
    with anyio.move_on_after(0):
        await inbox.take()
    await inbox.put(said("a"))
    with anyio.fail_after(5):
        assert await inbox.take() is not None


def test_sound_is_published_and_not_counted_as_stored():
    feed = Feed()
    feed.publish(Event(id="a"))
    feed.publish(Event(id="sound"), stored=False)
    feed.publish(Event(id="piece", partial=True))
    feed.publish(Event(id="b"))
    assert [(i.offset, i.stored) for i in feed.read(0)] == [(1, 1), (2, 1), (3, 1), (4, 2)]


def test_what_a_feed_forgets_is_not_missed_by_those_who_come_later():
    feed = Feed()
    for n in range(4):
        feed.publish(Event(id=str(n)))
    feed.forget(2)
    feed.forget(1)
    assert [i.offset for i in feed.read(0)] == [3, 4]
    assert [i.offset for i in feed.read(3)] == [4]
    feed.forget(9)
    assert (feed.kept, feed.offset, list(feed.read(0))) == (0, 4, [])
    feed.publish(Event(id="5"))
    assert [i.offset for i in feed.read(0)] == [5]


async def test_who_follows_from_what_is_forgotten_waits_for_what_is_new():
    feed = Feed()
    feed.publish(Event(id="old"))
    feed.forget(1)
    with anyio.move_on_after(0.01) as waited:
        await feed.changed(0)
    assert waited.cancelled_caught
    feed.publish(Event(id="new"))
    feed.close()
    assert [i.event.id async for items in feed.follow() for i in items] == ["new"]


def test_what_did_not_fit_is_missed():
    feed = Feed(limit=2)
    for n in range(4):
        feed.publish(Event(id=str(n)))
    with pytest.raises(LimitExceeded):
        feed.read(0)
