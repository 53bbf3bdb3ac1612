"""What one caller may take of a server: requests per second, open requests, runs (spec rest 11.12)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from polyport import App, FunctionAgent, Limits, LlmAgent, RunContext
from polyport.data.auth import Caller
from polyport.errors import ConfigError, LimitExceeded
from polyport.protocols.http import Request
from polyport.protocols.limits import KEPT, CallerLimits
from polyport.seams import Seams
from polyport.testing import ScriptedModel, connect
from polyport.testing.connect import Client
from support.identity import Clock, Keyed, from_peers


def app_of(clock: Clock, agent: Any = None, **limits: Any) -> App:
    return App(
        agent or LlmAgent(name="a", model=ScriptedModel()),
        limits=Limits(**limits),
        auth=KEYED.auth,
        seams=Seams(clock=clock),
    )


KEYED = Keyed(alice=[], bob=[])
ALICE, BOB = KEYED.headers("alice"), KEYED.headers("bob")


async def test_requests_above_the_pace_are_429_and_say_when_to_come_back():
    clock = Clock()
    async with connect(app_of(clock, caller_requests_per_s=0.5, caller_burst=2)) as client:
        for status in (200, 200, 429, 429):
            answer = await client.get("/list-apps", headers=ALICE)
            assert answer.status == status
        assert answer.headers["retry-after"] == "2" and "caller_requests_per_s" in answer.json()["error"]
        assert (await client.get("/list-apps", headers=BOB)).status == 200, "another caller"
        assert (await client.get("/health", headers=ALICE)).status == 200, "public routes do not count"
        clock.now += 2
        assert (await client.get("/list-apps", headers=ALICE)).status == 200
        assert (await client.get("/list-apps", headers=ALICE)).status == 429
        clock.now += 1000
        assert [(await client.get("/list-apps", headers=ALICE)).status for _ in range(3)] == [200, 200, 429]
        clock.now -= 7200  # a clock that was set back shuts nobody out for long
        assert (await client.get("/list-apps", headers=ALICE)).status == 429
        clock.now += 4
        assert (await client.get("/list-apps", headers=ALICE)).status == 200


async def test_who_has_no_credential_takes_nothing_of_anybody():
    async with connect(app_of(Clock(), caller_requests_per_s=1, caller_burst=1)) as client:
        for _ in range(5):
            assert (await client.get("/list-apps")).status == 401
        assert (await client.get("/list-apps", headers=ALICE)).status == 200


async def test_anonymous_callers_count_by_their_address():
    limits = Limits(caller_requests_per_s=1, caller_burst=1)
    app = App(LlmAgent(name="a", model=ScriptedModel()), limits=limits, seams=Clock().seams)
    async with connect(from_peers(app.asgi)) as client:

        async def status(peer: str) -> int:
            return (await client.get("/list-apps", headers={"x-test-peer": peer})).status

        assert [await status("192.0.2.1"), await status("192.0.2.1"), await status("192.0.2.2")] == [200, 429, 200]
        assert [await status("2001:db8::1"), await status("2001:db8::2"), await status("2001:db8:0:1::1")] == [
            200,
            429,
            200,
        ]


def test_what_is_remembered_of_callers_is_bounded():
    clock = Clock()
    limits = Limits(caller_requests_per_s=0.001, caller_burst=1)
    scope = {"type": "http", "method": "GET", "headers": []}
    request = Request(scope, lambda: anyio.sleep(0), limits, clock.seams)  # pyright: ignore
    callers = CallerLimits()
    callers.take(Caller("first"), request)
    with pytest.raises(LimitExceeded):
        callers.take(Caller("first"), request)
    for n in range(KEPT):
        callers.take(Caller(f"u{n}"), request)
    callers.take(Caller("first"), request)  # forgotten


class Waiting:
    """An agent that waits until it may go on; `begun` counts its runs."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.begun = 0
        self._news = anyio.Condition()

    async def __call__(self, ctx: RunContext) -> None:
        async with self._news:
            self.begun += 1
            self._news.notify_all()
        await self.go.wait()

    async def runs(self, count: int) -> None:
        with anyio.fail_after(20):
            async with self._news:
                while self.begun < count:
                    await self._news.wait()


@asynccontextmanager
async def waiting(**limits: Any) -> AsyncGenerator[tuple[Waiting, Client]]:
    agent = Waiting()
    async with connect(app_of(Clock(), FunctionAgent(name="a", function=agent), shutdown_s=0.01, **limits)) as client:
        for user, headers in (("alice", ALICE), ("bob", BOB)):
            for session in ("s1", "s2"):
                assert (await client.post(f"/apps/a/users/{user}/sessions/{session}", headers=headers)).status == 200
        yield agent, client


def run(user: str, session: str) -> dict[str, Any]:
    return {"appName": "a", "userId": user, "sessionId": session, "newMessage": {"parts": [{"text": "hi"}]}}


async def test_an_open_stream_counts_until_it_ends():
    async with waiting(caller_requests=1) as (_, client):
        async with client.stream("POST", "/run_sse", json=run("alice", "s1"), headers=ALICE) as stream:
            assert stream.status == 200
            refused = await client.post("/run_sse", json=run("alice", "s2"), headers=ALICE)
            assert refused.status == 429 and "caller_requests" in refused.text and refused.headers["retry-after"] == "1"
            assert (await client.get("/list-apps", headers=BOB)).status == 200
        assert (await client.get("/list-apps", headers=ALICE)).status == 200, "the place is free again"
        assert (await client.post("/run", json={}, headers=ALICE)).status == 400
        assert (await client.get("/list-apps", headers=ALICE)).status == 200, "also after an error"


async def test_the_runs_of_one_user_are_counted_over_its_sessions():
    async with waiting(user_runs=1) as (agent, client):
        detached = {"detach": "true"}
        first = await client.post("/run", json=run("alice", "s1"), headers=ALICE, query=detached)
        assert first.status == 202
        await agent.runs(1)
        refused = await client.post("/run", json=run("alice", "s2"), headers=ALICE, query=detached)
        assert refused.status == 429 and "user_runs" in refused.text
        assert (await client.post("/run", json=run("bob", "s1"), headers=BOB, query=detached)).status == 202
        cancelled = await client.post(f"/runs/{first.json()['invocationId']}:cancel", headers=ALICE)
        assert cancelled.status == 200
        again = await client.post("/run", json=run("alice", "s2"), headers=ALICE, query=detached)
        assert again.status == 202


@pytest.mark.parametrize("wrong", [{"caller_requests_per_s": -1}, {"caller_burst": 0}, {"user_runs": -1}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**wrong)
