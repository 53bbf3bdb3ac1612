"""What may go wrong between processes of a cluster: lost answers, garbage on NATS, words of callers, races of a session."""

import shutil
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs

from polyport import LlmAgent
from polyport.cluster.jetstream import JetStream
from polyport.cluster.nats_url import parse
from polyport.cluster.subjects import Subjects, digest
from polyport.data.limits import Limits
from polyport.data.run import RunOutcome, RunRequest
from polyport.data.session import SessionKey
from polyport.errors import ConfigError, TooLarge, Unavailable
from polyport.ports.peers import Ticket
from polyport.runs.run import LiveRun
from polyport.testing import ScriptedModel, call
from support.clusters import SECRET, Gate, Replicas, detached, frames, replicas, until
from support.nats import NatsServer
from support.processes import Serving
from support.talk import texts

GARBAGE = (b"", b"\xff\xfe", b"{}", b"[]", b"null", b'{"name": 5}', b'"' + b"x" * 10_000)
TAILS = ("", "x", "1 2 3 4 5 6 7 8 9", "9" * 5000, "-1 -1 -1 -1 -1 -1 -1", "0 0 0 0 5 1 0", "1 0 0 0 0 1 0")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncGenerator[Replicas]:
    with anyio.fail_after(60):
        async with replicas(tmp_path) as made:
            yield made


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    server = NatsServer()
    yield server
    server.close()


@pytest.fixture
async def restartable(tmp_path: Path, nats: NatsServer) -> AsyncGenerator[Replicas]:
    with anyio.fail_after(90):
        async with replicas(tmp_path, nats) as made:
            yield made


def says(*steps: Any, tools: Any = ()) -> LlmAgent:
    return LlmAgent(name="app", model=ScriptedModel(*steps), tools=list(tools))


def ticket(run_id: str = "e-1", session: str = "s") -> Ticket:
    return Ticket(request=RunRequest(key=SessionKey("app", "u", session)), run_id=run_id)


async def take_nothing(ticket: Ticket) -> None:
    raise AssertionError("nothing was left behind")


@asynccontextmanager
async def attacker(cluster: Replicas) -> AsyncGenerator[JetStream]:
    """Somebody who has the password of NATS, and nothing else."""
    jetstream = JetStream(parse(cluster.nats.url), "somebody")
    async with jetstream.connected(lambda: None):
        yield jetstream


# ---- garbage


async def test_garbage_on_every_subject_stops_nobody(cluster: Replicas):
    gate = Gate()
    web = await cluster.add(says(), cluster={"runs": "workers"})
    worker = await cluster.add(
        says(call("wait", id="c1"), "done", "again", tools=[gate.wait]), cluster={"worker": True, "runs": "workers"}
    )
    await web.create()
    run_id = await detached(web)
    await gate.begun.wait()
    subjects = Subjects(cluster.prefix)
    beats = [0]
    worker.server.runs.peers._taking._tell = lambda gone: beats.__setitem__(0, beats[0] + 1)
    async with attacker(cluster) as somebody:
        for n, data in enumerate(GARBAGE):
            for subject in (
                f"{cluster.prefix}.ticket.{digest('x', str(n))}",
                f"{cluster.prefix}.waiting.{digest('app')}.{digest('x', str(n))}",
                subjects.replica(f"x{n}"),
                f"{cluster.prefix}.feed.{digest('e-x')}.{n}",
                f"{cluster.prefix}.feed.{digest('e-y')}.y{n}",
                f"{cluster.prefix}.cancel.{digest('e-x')}.{n}",
                f"{cluster.prefix}.loss.x.{n}.y",
            ):
                assert await somebody.put(subject, data)
            for subject in (
                subjects.ask,
                subjects.work("app"),
                f"{cluster.prefix}.freed.x",
                f"{cluster.prefix}.ring.x",
                f"{cluster.prefix}.shown.x.y",
            ):
                await somebody.publish(subject, data)
                await somebody.publish(subject, data, reply=subjects.replica("y"))
        for tail in TAILS:
            assert await somebody.put(subjects.feed("e-z", 7), b"{}", about={"Polyport-Tail": tail})
        for name in ("e-x", "e-y", "e-z"):
            for each in (web, worker):
                response = await each.client.get(f"/runs/{name}")
                assert response.status == 404, response.text
    beats[0] = 0
    await until(lambda: beats[0] > 4)  # whoever is there says so, still, and has looked at everything
    assert (await web.client.get("/ready")).status == 200
    gate.go.set()
    assert texts([e for _, e in await frames(web, run_id)]) == ["done"]
    assert texts(await web.run("more")) == ["again"]


async def test_garbage_in_the_feed_of_a_run_ends_those_who_follow_it_elsewhere_and_not_the_run(cluster: Replicas):
    gate = Gate()
    one = await cluster.add(says(call("wait", id="c1"), "done", tools=[gate.wait]))
    two = await cluster.add(says())
    await one.create()
    run_id = await detached(one)
    await gate.begun.wait()
    found: list[Any] = []

    async def follow() -> None:
        found.extend(await frames(two, run_id))

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await until(lambda: any(m.watchers for m in two.server.runs.peers._mirrors._kept.values()))
        subject = Subjects(cluster.prefix).feed(run_id, next(iter(one.server.runs.peers._shared.values())).ticket.life)
        async with attacker(cluster) as somebody:
            for tail in TAILS:
                assert await somebody.put(subject, b"\xff", about={"Polyport-Tail": tail})
        gate.go.set()
    assert found and found[-1][0] == "error"
    await until(lambda: not one.server.runs.active)
    assert texts((await one.stored())["events"]) == ["hi", "done"]


async def test_a_ticket_of_another_version_is_told_as_what_it_is(cluster: Replicas):
    one = await cluster.add(says("x"))
    await one.create()
    async with attacker(cluster) as somebody:
        key = SessionKey(one.app, one.user, one.session)
        assert await somebody.put(Subjects(cluster.prefix).ticket(key), b'{"owner": "newer", "much": "else"}')
    response = await one.client.post("/run", json=one.body())
    assert response.status == 503 and "another version" in response.json()["error"], response.text
    assert (await one.client.post("/run", json=one.body() | {"sessionId": "s2"})).status == 404


# ---- words of callers


async def test_the_reason_of_a_caller_does_not_hand_its_run_over(cluster: Replicas):
    gate = Gate()
    web = await cluster.add(says(), cluster={"runs": "workers"})
    worker = await cluster.add(
        says(call("wait", id="c1"), "again", tools=[gate.wait]), cluster={"worker": True, "runs": "workers"}
    )
    await web.create()
    run_id = await detached(web)
    await gate.begun.wait()
    with anyio.fail_after(20):
        response = await web.client.post(f"/runs/{run_id}:cancel", json={"reason": "the server is shutting down"})
    assert response.json()["status"] == "cancelled"
    await until(lambda: not worker.server.runs.active)
    assert texts(await web.run("more")) == ["again"], "and the worker still takes runs"


# ---- answers that are lost


async def test_a_claim_of_which_the_answer_was_lost_blocks_no_session_at_a_server_that_hands_out(cluster: Replicas):
    one = cluster.cluster(name="one", runs="workers", lease_s=1)
    async with one.serving(take_nothing, ["app"]):
        _, held = await one.claim(ticket())
        one._link.mine.clear()  # as if nobody here knew
        assert await one.freed(held, 30.0)


async def test_a_run_that_was_taken_up_is_carried_out_though_the_answer_was_lost(cluster: Replicas):
    taken: list[str] = []
    told = anyio.Event()

    async def take(ticket: Ticket) -> None:
        taken.append(ticket.run_id)
        told.set()

    one = cluster.cluster(name="one", lease_s=1)
    async with one.serving(take, ["app"]):
        tickets = one._link.tickets
        _, held = await tickets.claim(structs.replace(ticket(), owner=""))
        assert await tickets.change(held, structs.replace(held, owner=one.name))
        await told.wait()
    assert taken == ["e-1"]


async def test_forty_runs_are_taken_over_and_none_is_so_large_that_it_cannot(cluster: Replicas):
    taken: set[str] = set()
    cared = anyio.Event()

    async def take(ticket: Ticket) -> None:
        taken.add(ticket.run_id)

    async def care() -> None:
        cared.set()

    old, new = cluster.cluster(name="o", lease_s=1), cluster.cluster(name="n" * 40, lease_s=1)
    old.on_loss("thing", care)
    new.on_loss("thing", care)
    async with new.serving(take, ["app"]):
        async with old.serving(take_nothing, ["app"]):
            room, small = old._link.jetstream.max_payload, ticket("e-big", "big")
            size = len(old._link.tickets._data(structs.replace(small, owner=old.name)))
            text = "x" * (room - size - len('"state_delta":{"x":""},'))
            request = structs.replace(small.request, state_delta={"x": text})
            with pytest.raises(TooLarge):  # it fits, but would not when somebody else has it
                await old.claim(structs.replace(small, request=request))
            for n in range(40):
                assert (await old.claim(ticket(f"e-{n}", f"s{n}")))[0]
            await until(lambda: old.name in new._link.replicas.known)
        await until(lambda: len(taken) >= 40)
        await cared.wait()
    assert taken == {f"e-{n}" for n in range(40)}


async def test_a_server_that_comes_back_is_not_told_what_nobody_waits_for_any_more(
    restartable: Replicas, nats: NatsServer
):
    web = await restartable.add(says(), cluster={"runs": "workers"})
    worker = await restartable.add(says("one"), cluster={"worker": True, "runs": "workers"})
    await web.create()
    await anyio.to_thread.run_sync(nats.stop)
    for _ in range(2):
        assert (await web.client.post("/run", json=web.body())).status == 503
    await anyio.to_thread.run_sync(nats.start)
    with anyio.fail_after(20):
        while (response := await web.client.post("/run", json=web.body("now?"))).status == 503:
            await anyio.lowlevel.checkpoint()
    assert texts(response.json()) == ["one"]
    assert texts((await worker.stored())["events"]) == ["now?", "one"], "what was answered with 503 is not carried out"


async def test_a_run_cannot_be_handed_out_while_the_server_is_away(restartable: Replicas, nats: NatsServer):
    one = restartable.cluster(runs="workers", lease_s=1)
    async with one.serving(take_nothing, ["app"]):
        _, held = await one.claim(ticket())
        await anyio.to_thread.run_sync(nats.stop)
        with pytest.raises(Unavailable), anyio.fail_after(20):
            await one.hand_out(held, False)
        await one.release(held)
        await anyio.to_thread.run_sync(nats.start)


async def test_a_server_that_lost_its_disk_is_used_again(restartable: Replicas, nats: NatsServer):
    one = await restartable.add(says("one", "two"))
    await one.create()
    assert texts(await one.run()) == ["one"]
    await anyio.to_thread.run_sync(nats.stop)
    shutil.rmtree(nats.folder / "jetstream")
    await anyio.to_thread.run_sync(nats.start)
    with anyio.fail_after(30):
        while (response := await one.client.post("/run", json=one.body("now?"))).status == 503:
            await anyio.lowlevel.checkpoint()
    assert texts(response.json()) == ["two"]


async def test_how_a_run_ended_is_shown_though_its_ticket_is_given_back_and_an_answer_was_lost(cluster: Replicas):
    """As when the server was away for longer than a lease while it ended."""
    one, two = cluster.cluster(name="one", lease_s=60), cluster.cluster(name="two", lease_s=60)
    async with one.serving(take_nothing, ["app"]), two.serving(take_nothing, ["app"]):
        _, held = await one.claim(ticket())
        run = shown_run(held.request.key)
        one.share(run, held, [], lambda reason: None)
        showing = one._shared[run.id]
        await until(lambda: showing._seq)
        showing._seq = 0  # as if the answer had not come
        assert await one._link.tickets.drop(held)
        run.close()
        await one.ended(run, RunOutcome(status="finished"))
        found = await two.find(run.id)
        assert found is not None and (await found.wait()).status == "finished"


# ---- races


async def test_a_session_that_is_taken_up_while_a_message_asks_for_it_is_ours(cluster: Replicas):
    one, two = cluster.cluster(name="one", lease_s=60), cluster.cluster(name="two", lease_s=60)
    async with one.serving(take_nothing, ["app"]), two.serving(take_nothing, ["app"]):
        _, held = await one.claim(ticket())
        async with anyio.create_task_group() as group:
            asked: list[Any] = []

            async def ask() -> None:
                asked.append(await two.claim(ticket("e-2")))

            group.start_soon(ask)
            await until(lambda: held.request.key in two._link.mine)
            ours = structs.replace(held, owner=two.name)
            two._link.mine[held.request.key] = ours  # taken up in this moment
        assert not asked[0][0]
        assert two._link.mine.get(held.request.key) is ours, "what was taken up is still known"


async def test_a_message_interrupts_a_run_that_is_being_taken_in_elsewhere(cluster: Replicas):
    limits = Limits(on_busy="interrupt", queue_wait_s=20)
    one = cluster.cluster(name="one", lease_s=60)
    two = await cluster.add(says("second"), limits=limits)
    await two.create()
    key = SessionKey(two.app, two.user, two.session)
    async with one.serving(take_nothing, ["app"]):
        _, held = await one.claim(Ticket(request=RunRequest(key=key), run_id="e-1"))
        stopped = anyio.Event()
        answers: list[list[str]] = []

        async def ask() -> None:
            answers.append(texts(await two.run("no, rather")))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await until(
                lambda: any(
                    ".freed." in s._subject for s in two.server.runs.peers._link.jetstream._client._subs.values()
                )
            )
            run = shown_run(key)
            one.share(run, held, [], lambda reason: stopped.set())
            await stopped.wait()
            await one.release(held)
    assert answers == [["second"]]


def shown_run(key: SessionKey) -> LiveRun:
    """A run that is carried out nowhere."""
    return LiveRun("e-1", key, False, 100, 0)


async def test_a_run_that_waits_is_found_behind_one_that_cannot_be_read(cluster: Replicas):
    taken = anyio.Event()

    async def take(ticket: Ticket) -> None:
        taken.set()

    one = cluster.cluster(name="one", lease_s=1)
    async with attacker(cluster) as somebody, one.serving(take, ["app"]):
        tickets, other = one._link.tickets, SessionKey("app", "u", "other")
        assert await somebody.put(Subjects(cluster.prefix).ticket(other), b'{"owner": ""}')
        await tickets.wait(other)
        assert (await tickets.claim(structs.replace(ticket(), owner="")))[0]
        await tickets.wait(ticket().request.key)
        await taken.wait()


async def test_a_process_that_says_what_is_not_understood_is_there(cluster: Replicas):
    """A newer version, say. Its runs are its own."""
    one = cluster.cluster(name="one", lease_s=1)
    beats = [0]
    async with attacker(cluster) as somebody, one.serving(take_nothing, ["app"]):
        assert await somebody.put(Subjects(cluster.prefix).replica("newer"), b'{"name": {"v": 9}}')
        assert (await one._link.tickets.claim(structs.replace(ticket(), owner="newer")))[0]
        assert await one._link.replicas.names() == {one.name, "newer"}
        one._taking._tell = lambda gone: beats.__setitem__(0, beats[0] + 1)
        await until(lambda: beats[0] > 8)
        held = await one._link.tickets.read(ticket().request.key)
        assert held is not None and held.owner == "newer"


async def test_what_a_server_that_stood_still_hears_late_blocks_no_session(restartable: Replicas, nats: NatsServer):
    web = await restartable.add(says(), cluster={"runs": "workers"})
    worker = await restartable.add(says("one"), cluster={"worker": True, "runs": "workers"})
    await web.create()
    tell(nats, "STOP")
    assert (await web.client.post("/run", json=web.body())).status == 503
    assert (await web.client.get("/ready")).status == 503
    assert (await web.client.get("/health")).status == 200
    tell(nats, "CONT")
    with anyio.fail_after(30):
        while (response := await web.client.post("/run", json=web.body("now?"))).status == 503:
            await anyio.lowlevel.checkpoint()
    assert texts(response.json()) == ["one"]
    assert texts((await worker.stored())["events"]) == ["now?", "one"]


def tell(nats: NatsServer, word: str) -> None:
    process = nats._process
    assert process is not None and process.stdin is not None
    process.stdin.write(f"{word}\n".encode())
    process.stdin.flush()


def test_a_process_ends_cleanly_when_the_server_is_away(tmp_path: Path, nats: NatsServer):
    (tmp_path / "bot.py").write_text('from polyport import LlmAgent\nagent = LlmAgent(name="bot", model="demo")\n')
    flags = ["bot.py", "--db", "sqlite:///data.db", "--cluster", nats.url, "--cluster-lease", "1", "--grace", "0"]
    with Serving(*flags, cwd=tmp_path, env={"POLYPORT_SECRET": SECRET}) as process:
        nats.stop()
        process.says("connection to the cluster .* is lost", err=True)
        process.signal(signal.SIGTERM)
        assert process.ended() == 0, process.said
        assert "Traceback" not in process.err.text and "ERROR" not in process.err.text


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nats://me:12?hush@host", "has the option one; known are"),
        ("nats://me:hush@host,me:hush@host2", "one sign-in for all hosts"),
    ],
)
def test_what_is_wrong_with_a_url_is_told_without_a_part_of_its_password(url: str, told: str):
    with pytest.raises(ConfigError, match=told) as raised:
        parse(url)
    assert "hush" not in str(raised.value)
