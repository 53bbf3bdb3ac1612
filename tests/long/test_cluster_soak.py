"""Processes of a cluster are killed again and again while many clients talk to all of them: nothing is lost or doubled."""

import random
import signal
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from support.bots import Bots, Http, calling, said
from support.postgres import server
from support.processes import Serving

pytestmark = pytest.mark.long
KILLS, SESSIONS = 12, 12
TURN = ["first", "first", "second", "second", "after second"]


class Soak:
    """`alive` are the processes now; `taken` are the messages that were accepted, and their runs."""

    def __init__(self, bots: Bots) -> None:
        self.bots = bots
        self.alive: list[Serving] = []
        self.all: list[Serving] = []
        self.taken: dict[str, tuple[str, str]] = {}
        self.tried: set[str] = set()
        self.over = anyio.Event()
        self.chance = random.Random(7)

    async def talk(self, http: Http) -> None:
        """Say one thing after the other, each to some process, whether or not the last one is done."""
        n = 0
        while not self.over.is_set():
            text = f"go {http.name} {n}"
            n += 1
            self.tried.add(text)
            try:
                run_id = await http.run(self.chance.choice(self.alive), text)
            except (aiohttp.ClientError, AssertionError):
                continue  # it was killed meanwhile; or busy
            self.taken[text] = (http.name, run_id)
            await self.ended(http, run_id)

    async def ended(self, http: Http, run_id: str) -> Any:
        """Ask some process until the run is over."""
        found: Any = {}
        with anyio.move_on_after(30):
            while found.get("status") in (None, "running"):
                try:
                    found = await http.status(self.chance.choice(self.alive), run_id)
                except aiohttp.ClientError:
                    continue
            return found
        events = [(e["invocationId"], said(e)) for e in (await http.stored(self.alive[0]))[-12:]]
        logs = "\n".join(f"--- {process.pid}\n{process.err.text[-3000:]}" for process in self.all)
        raise AssertionError(f"run {run_id} does not end: {found}; {http.name}; {events}\n{logs}")

    async def kill(self) -> None:
        """Put new processes into the place of old ones, which are killed."""
        for _ in range(KILLS):
            await self.replace(signal.SIGKILL)
        self.over.set()

    async def stop(self) -> None:
        """The same with processes that are told to end; another one stands still meanwhile, for longer than a lease."""
        for _ in range(KILLS // 2):
            still = self.alive.pop()
            still.signal(signal.SIGSTOP)
            await self.replace(signal.SIGTERM)
            still.signal(signal.SIGCONT)
            self.alive.insert(0, still)
        self.over.set()

    async def replace(self, number: int) -> None:
        new = await anyio.to_thread.run_sync(self.start)
        old = self.alive[0]
        self.alive = [*self.alive[1:], new]
        old.signal(number)
        await anyio.to_thread.run_sync(old.wait)

    def start(self) -> Serving:
        self.all.append(self.bots.serving())
        return self.all[-1].__enter__()


@pytest.mark.parametrize(
    ("how", "database"),
    [
        ("kill", "sqlite"),
        ("kill", "postgres"),
        ("stop", "postgres"),
    ],  # one that is stopped may hold the lock of SQLite's file
)
async def test_T106_nothing_is_lost_or_doubled_whatever_happens_to_processes(
    tmp_path: Path, how: str, database: str
) -> None:
    bots = Bots(tmp_path)
    bots.hangs_no_more()
    bots.env["BOT_TAKEOVERS"] = "50"
    if database == "postgres":
        bots.env["BOT_DB"] = server().url(server().new_database())
    soak = Soak(bots)
    try:
        soak.alive = [soak.start() for _ in range(3)]
        async with calling() as http:
            talks = [Http(http.session, f"s{n}") for n in range(SESSIONS)]
            for talk in talks:
                await talk.create(soak.alive[0])
            async with anyio.create_task_group() as group:
                for talk in talks:
                    group.start_soon(soak.talk, talk)
                group.start_soon(soak.kill if how == "kill" else soak.stop)
            ends = [await soak.ended(http, run_id) for _, run_id in soak.taken.values()]
            assert {end["status"] for end in ends} == {"finished"}
            for talk in talks:
                await check(soak, talk)
        assert len(soak.taken) > 10 * KILLS
        print(how, database, len(soak.taken), "runs,", len(soak.tried), "tried")
    finally:
        for process in soak.all:
            process.__exit__(None, None, None)


async def check(soak: Soak, talk: Http) -> None:
    """Each accepted message is in its session once, with its whole turn right behind it; what was not accepted may be, too."""
    events = await talk.stored(soak.alive[0])
    words = [said(e) for e in events]
    asked = [word for word in words if word.startswith("go ")]
    assert len(asked) == len(set(asked)), "twice"
    assert {text for text, (name, _) in soak.taken.items() if name == talk.name} <= set(asked), "lost"
    assert words == [word for text in asked for word in (text, *TURN)], "mixed, or not whole"
