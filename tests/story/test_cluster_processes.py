"""A cluster of real processes: one of them is killed, stopped, told to end, or has a wrong clock, in the middle of a run."""

import signal
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from support.bots import Bots, Reading, calling, said


@pytest.fixture
def bots(tmp_path: Path) -> Bots:
    return Bots(tmp_path)


WHOLE = ["first", "first", "second", "second", "~after ", "~second", "after second"]
STORED = ["go", "first", "first", "second", "second", "after second"]


async def test_T106_a_run_goes_on_in_another_process_when_its_own_is_killed(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two, bots.serving() as three:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            run_id = await http.run(one, "go")
            reading = Reading()
            with await bots.at_work():
                group.start_soon(reading.read, http, three, run_id)
                await reading.open.wait()
                one.signal(signal.SIGKILL)
                one.ended()
                bots.hangs_no_more()
                with anyio.fail_after(30):
                    await reading.ended.wait()
            assert reading.said == WHOLE, "what was lost in the middle is said again, and nothing twice"
            assert reading.offsets == [1, 2, 3, 4, 5, 6, 7]
            for server in (two, three):
                again = Reading()
                await again.read(http, server, run_id, after=reading.got[2][0])
                assert again.got == reading.got[3:]
                assert await http.status(server, run_id) == {"invocationId": run_id, "status": "finished"}
            assert [said(e) for e in await http.stored(two)] == STORED
            assert [said(e) for e in await http.wait(two, "hello")][-1] == "after hello", "the session is free again"
    assert bots.done() == ["first", "second", "second"]


async def test_T107_a_process_that_was_stopped_and_wakes_up_writes_nothing(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            run_id = await http.run(one, "go")
            here, there = Reading(), Reading()
            with await bots.at_work():
                group.start_soon(here.read, http, one, run_id)
                group.start_soon(there.read, http, two, run_id)
                await here.open.wait()
                await there.open.wait()
                bots.hangs_no_more()
                one.signal(signal.SIGSTOP)
                with anyio.fail_after(30):
                    await there.ended.wait()
                assert there.said == WHOLE
                one.signal(signal.SIGCONT)
            with anyio.fail_after(30):
                await here.ended.wait()
            assert here.said[-1].startswith("error: "), "who followed there is told to look elsewhere"
            assert [said(e) for e in await http.stored(two)] == STORED
            again = Reading()
            await again.read(http, one, run_id, after=here.got[-2][0])
            assert here.got[:-1] + again.got == there.got, "and gets the rest, from the very same process"
            assert [said(e) for e in await http.wait(one, "hello")][-1] == "after hello", "it serves, as before"
            assert [said(e) for e in await http.stored(two)] == [*STORED, "hello", "after hello"]
    assert bots.done() == ["first", "second", "second"]


async def test_T107_a_process_that_was_stopped_before_its_first_word_adds_nothing(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            answered: list[Any] = []

            async def ask() -> None:
                async with http.session.post(f"{one.url}/run", json=http.body("early")) as response:
                    answered.append(response.status)

            group.start_soon(ask)
            with await bots.at_work():
                bots.hangs_no_more()
                with anyio.fail_after(30):
                    while [said(e) for e in await http.stored(two)] != ["early", "after early"]:
                        await anyio.lowlevel.checkpoint()
        assert answered == [409], "it has lost its session"
        async with calling() as http:
            assert [said(e) for e in await http.stored(two)] == ["early", "after early"]
            assert [said(e) for e in await http.wait(one, "hello")][-1] == "after hello"


async def test_T110_a_process_whose_clock_is_wrong_changes_neither_order_nor_lease(bots: Bots) -> None:
    with bots.serving(BOT_CLOCK="-10") as one, bots.serving(BOT_CLOCK="10") as two, bots.serving() as three:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            run_id = await http.run(one, "go")
            reading = Reading()
            with await bots.at_work():
                group.start_soon(reading.read, http, three, run_id)
                await reading.open.wait()
                bots.hangs_no_more()
            with anyio.fail_after(30):
                await reading.ended.wait()
            assert reading.said == WHOLE and reading.offsets == [1, 2, 3, 4, 5, 6, 7]
            assert [said(e) for e in await http.wait(two, "hello")][-1] == "after hello"
            assert [said(e) for e in await http.stored(three)] == [*STORED, "hello", "after hello"]
    assert bots.done() == ["first", "second"], "nobody was taken for gone"


async def test_T111_a_process_that_is_told_to_end_hands_over_what_it_carries_out(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            run_id = await http.run(one, "go")
            reading = Reading()
            with await bots.at_work():
                group.start_soon(reading.read, http, two, run_id)
                await reading.open.wait()
                bots.hangs_no_more()
                one.signal(signal.SIGTERM)
                with anyio.fail_after(30):
                    await reading.ended.wait()
            assert one.ended() in (0, -signal.SIGTERM)
            assert reading.said == WHOLE and reading.offsets == [1, 2, 3, 4, 5, 6, 7]
            assert [said(e) for e in await http.stored(two)] == STORED
            assert await http.status(two, run_id) == {"invocationId": run_id, "status": "finished"}


async def test_a_run_that_kills_each_process_is_given_up(bots: Bots) -> None:
    with bots.serving() as one, bots.serving() as two, bots.serving(BOT_RUNS="workers") as three:
        async with calling() as http, anyio.create_task_group() as group:
            await http.create(one)
            run_id = await http.run(one, "kill")
            reading = Reading()
            one.ended()
            two.ended()
            with bots.serving() as four:
                group.start_soon(reading.read, http, three, run_id)
                with anyio.fail_after(30):
                    await reading.ended.wait()
                assert reading.said[:-1] == ["kill"]
                assert reading.said[-1].startswith("error: the run was stopped: 2 processes were lost")
                assert [said(e) for e in await http.wait(four, "hello")][-1] == "after hello"
    assert bots.done() == ["kill", "kill"]
