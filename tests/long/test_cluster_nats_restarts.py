"""The NATS server of a cluster is killed again and again while clients talk to servers that leave runs to others."""

import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from support.bots import Bots, Http, calling, said
from support.nats import NatsServer
from support.processes import Serving

pytestmark = pytest.mark.long
RESTARTS, SESSIONS = 10, 8
REFUSALS = ("the cluster at", "changes hands too often")
TURN = ["first", "first", "second", "second", "after second"]


class Talks:
    """`taken` are the messages that were answered, `refused` what the others were told."""

    def __init__(self, alive: list[Serving]) -> None:
        self.alive = alive
        self.taken: dict[str, list[str]] = {}
        self.refused: list[str] = []
        self.over = anyio.Event()
        self.news = anyio.Event()
        self.chance = random.Random(5)

    async def talk(self, http: Http) -> None:
        n = 0
        while not self.over.is_set():
            text = f"go {http.name} {n}"
            n += 1
            try:
                if n % 2:
                    await http.wait(self.chance.choice(self.alive), text)
                else:
                    await self.ended(http, await http.run(self.chance.choice(self.alive), text))
                self.taken.setdefault(http.name, []).append(text)
            except AssertionError as error:
                self.refused.append(str(error))
            self.news.set()

    @property
    def answered(self) -> int:
        return sum(map(len, self.taken.values()))

    async def go_on(self, answered: int = 0, refused: int = 0) -> None:
        """Return when so many messages were answered, and so many refused."""
        with anyio.fail_after(60):
            while self.answered < answered or len(self.refused) < refused:
                self.news = anyio.Event()
                await self.news.wait()

    async def ended(self, http: Http, run_id: str) -> Any:
        found: Any = {}
        with anyio.fail_after(40):
            while found.get("status") in (None, "running"):
                found = await http.status(self.chance.choice(self.alive), run_id)
        # "ended": it ended while the server was away, and was not shown yet
        assert found["status"] in ("finished", "ended"), f"{run_id} {found}"


async def test_nothing_is_lost_or_doubled_when_the_server_of_the_cluster_is_killed(tmp_path: Path) -> None:
    nats = NatsServer()
    bots = Bots(tmp_path)
    bots.hangs_no_more()
    bots.env |= {"BOT_NATS": nats.url, "BOT_PREFIX": "p", "BOT_TAKEOVERS": "50"}
    servers = [bots.serving(BOT_RUNS=runs) for runs in ("workers", "workers", "here", "here")]
    try:
        talks = Talks([server.__enter__() for server in servers])
        async with calling() as http:
            https = [Http(http.session, f"s{n}") for n in range(SESSIONS)]
            for each in https:
                await each.create(talks.alive[0])
            async with anyio.create_task_group() as group:
                for each in https:
                    group.start_soon(talks.talk, each)
                for n in range(RESTARTS):
                    await talks.go_on(talks.answered + talks.chance.randrange(5, 25))
                    await anyio.to_thread.run_sync(nats.stop)
                    if n % 2:  # for long enough that somebody notices
                        await talks.go_on(refused=len(talks.refused) + 1)
                    await anyio.to_thread.run_sync(nats.start)
                await talks.go_on(talks.answered + 20)
                talks.over.set()
            assert not [text for text in talks.refused if not any(word in text for word in REFUSALS)]
            print(talks.answered, "answered,", len(talks.refused), "refused")
            for each in https:
                events = await each.stored(talks.alive[0])
                words = [said(e) for e in events]
                asked = [word for word in words if word.startswith("go ")]
                assert len(asked) == len(set(asked)), "twice"
                assert set(talks.taken[each.name]) <= set(asked), "lost"
                assert words == [word for text in asked for word in (text, *TURN)], "mixed, or not whole"
    finally:
        for server in servers:
            server.__exit__(None, None, None)
        nats.close()
