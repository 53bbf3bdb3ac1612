"""Runs belong to the server: followed, detached, cancelled, resumed, one at a time per session (DESIGN sections 3.4 and 5)."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from polyport import App, Content, Event, FunctionAgent, LlmAgent, Part, RunContext, SequentialAgent, make_tool
from polyport.data.limits import Limits
from polyport.errors import RunCancelled, Unavailable
from polyport.testing import ScriptedModel, call, chunks, connect
from support.talk import Serve, Talk, answer, texts


class Gate:
    """A tool that says when it has begun and ends when it is told to; remembers whether it was cancelled."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go = anyio.Event()
        self.cancelled = anyio.Event()

    async def wait(self) -> str:
        """Wait."""
        self.begun.set()
        try:
            await self.go.wait()
        except BaseException:
            self.cancelled.set()
            raise
        return "waited"


async def until(true: Callable[[], Any]) -> None:
    """Let the server work until something is true."""
    with anyio.fail_after(20):
        while not true():
            await anyio.lowlevel.checkpoint()


async def until_stored(talk: Talk, events: int) -> list[dict[str, Any]]:
    """The session's events once there are so many."""
    with anyio.fail_after(20):
        while len(found := (await talk.stored())["events"]) < events:
            await anyio.lowlevel.checkpoint()
    return found


def in_line(talk: Talk) -> bool:
    """Whether a second message is waiting for the session."""
    turns = talk.server.runs._turns
    return any(line.waiting for line in turns._lines.values())


async def frames(talk: Talk, path: str, **options: Any) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    async with talk.client.stream("GET", path, **options) as response:
        assert response.status == 200, await response.read()
        async for event in response.events():
            found.append((event.id, json.loads(event.data)))
    return found


async def detached(talk: Talk) -> str:
    response = await talk.client.post("/run", json=talk.body(), query={"detach": "1"})
    assert response.status == 202 and response.json()["status"] == "running"
    return response.json()["invocationId"]


async def test_a_detached_run_outlives_its_connection_and_can_be_taken_up_again(serve: Serve, scripted: Any):
    gate = Gate()
    agent, _ = scripted(call("wait", id="c1"), chunks("all ", "done"), tools=[gate.wait])
    async with serve(agent) as talk:
        last = ""
        body = talk.body(streaming=True)
        async with talk.client.stream("POST", "/run_sse", json=body, query={"detach": "true"}) as response:
            run_id = response.headers["x-run-id"]
            async for event in response.events():
                last = event.id
                break
        await gate.begun.wait()
        assert not gate.cancelled.is_set()
        gate.go.set()
        rest = await frames(talk, f"/runs/{run_id}/events", headers={"last-event-id": last})
        assert texts([e for _, e in rest]) == ["all ", "done", "all done"]
        assert [id for id, _ in rest] == ["2.2", "3.2", "4.2", "5.3"]
        again = await frames(talk, f"/runs/{run_id}/events")
        assert len(again) == 5, "a late watcher gets everything, partial events too"
        assert (await talk.client.get(f"/runs/{run_id}")).json() == {"invocationId": run_id, "status": "finished"}


async def test_a_detached_run_by_plain_post_answers_at_once(serve: Serve, scripted: Any):
    gate = Gate()
    agent, _ = scripted(call("wait"), "done", tools=[gate.wait])
    async with serve(agent) as talk:
        run_id = await detached(talk)
        await gate.begun.wait()
        gate.go.set()
        assert texts([e for _, e in await frames(talk, f"/runs/{run_id}/events")]) == ["done"]


async def test_a_run_that_said_nothing_yet_is_running_and_can_be_followed(serve: Serve):
    gate = Gate()

    async def thinks(ctx: RunContext):
        await gate.wait()
        yield Event(content=Content(role="model", parts=[Part(text="at last")]))

    async with serve(FunctionAgent(name="app", function=thinks)) as talk:
        run_id = await detached(talk)
        await gate.begun.wait()
        assert (await talk.client.get(f"/runs/{run_id}")).json()["status"] == "running"
        async with talk.client.stream("GET", f"/runs/{run_id}/events") as response:
            gate.go.set()
            assert [json.loads(e.data)["content"]["parts"] async for e in response.events()] == [[{"text": "at last"}]]


async def test_following_a_run_of_which_only_stored_events_are_left(serve: Serve, scripted: Any):
    agent, _ = scripted(chunks("a", "b"))
    async with serve(agent) as talk:
        response = await talk.client.post("/run", json=talk.body(streaming=True))
        run_id = response.headers["x-run-id"]
        found = await frames(talk, f"/runs/{run_id}/events")
        assert [id for id, _ in found] == ["1.1"] and texts([e for _, e in found]) == ["ab"]
        assert await frames(talk, f"/runs/{run_id}/events", headers={"last-event-id": "3.1"}) == []
        assert (await talk.client.get(f"/runs/{run_id}")).json()["status"] == "ended"


async def test_following_what_does_not_exist_and_bad_cursors(serve: Serve, scripted: Any):
    agent, _ = scripted("x")
    async with serve(agent) as talk:
        assert (await talk.client.get("/runs/e-none/events")).status == 404
        assert (await talk.client.get("/runs/e-none")).status == 404
        assert (await talk.client.post("/runs/e-none:cancel")).status == 404
        run_id = (await talk.client.post("/run", json=talk.body())).headers["x-run-id"]
        response = await talk.client.get(f"/runs/{run_id}/events", headers={"last-event-id": "abc"})
        assert response.status == 400 and "Last-Event-ID" in response.json()["error"]


async def test_FR_018_cancel_stops_the_work_and_leaves_a_usable_session(serve: Serve, scripted: Any):
    gate = Gate()
    agent, model = scripted(call("wait", id="c1"), "next answer", tools=[gate.wait])
    async with serve(agent) as talk, talk.client.stream("POST", "/run_sse", json=talk.body()) as response:
        run_id = response.headers["x-run-id"]
        await gate.begun.wait()
        cancelled = await talk.client.post(f"/runs/{run_id}:cancel", json={"reason": "pressed stop"})
        assert cancelled.status == 200
        assert gate.cancelled.is_set()
        events = [(e.event, json.loads(e.data)) async for e in response.events()]
        assert events[-1][0] == "error" and "pressed stop" in events[-1][1]["error"]
        before = (await talk.stored())["events"]
        assert texts(await talk.run("go on")) == ["next answer"]
        after = (await talk.stored())["events"]
        assert [e for e in after if e["invocationId"] == run_id] == before, "nothing is added to a stopped run"
        assert (await talk.client.post(f"/runs/{run_id}:cancel")).status == 409
    prompt = model.prompt()
    assert prompt[-1] == "user: go on"
    assert prompt[1] == "model: call wait({})" and prompt[2].startswith("user: result wait"), "no unanswered call"


async def test_cancel_reaches_a_model_that_is_thinking(serve: Serve, scripted: Any):
    begun, cancelled = anyio.Event(), anyio.Event()

    async def think(request: Any, on_partial: Any) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return ""

    agent, _ = scripted(think)
    async with serve(agent) as talk:
        run_id = await detached(talk)
        await begun.wait()
        response = await talk.client.post(f"/runs/{run_id}:cancel")
        assert cancelled.is_set()
        assert response.json() == {"invocationId": run_id, "status": "cancelled", "reason": "cancelled by the caller"}


async def test_FR_066_queue_keeps_both_turns_whole_and_in_order(serve: Serve, scripted: Any):
    gate = Gate()
    agent, _ = scripted(call("wait"), "first", "second", tools=[gate.wait])
    async with serve(agent) as talk, anyio.create_task_group() as group:
        group.start_soon(talk.run, "one")
        await gate.begun.wait()
        group.start_soon(talk.run, "two")
        await until(lambda: in_line(talk))
        gate.go.set()
        events = await until_stored(talk, 6)
        assert texts(events) == ["one", "first", "two", "second"]
        assert len({e["invocationId"] for e in events[:4]}) == 1


async def test_FR_066_reject_is_409_for_this_session_only(serve: Serve, scripted: Any):
    gate = Gate()
    agent, _ = scripted(call("wait"), "other", "first", tools=[gate.wait])
    async with serve(agent, limits=Limits(on_busy="reject")) as talk, anyio.create_task_group() as group:
        group.start_soon(talk.run, "one")
        await gate.begun.wait()
        for path in ("/run", "/run_sse"):
            response = await talk.client.post(path, json=talk.body("two"))
            assert response.status == 409 and "active run" in response.json()["error"]
        await talk.at("s2").create()
        assert texts(await talk.at("s2").run()) == ["other"]
        gate.go.set()
        await until_stored(talk, 4)


async def test_FR_066_interrupt_closes_the_first_turn_with_a_marker(serve: Serve, scripted: Any):
    gate = Gate()
    agent, model = scripted(call("wait", id="c1"), "second", tools=[gate.wait])
    answers: list[Any] = []
    async with serve(agent, limits=Limits(on_busy="interrupt")) as talk, anyio.create_task_group() as group:

        async def first() -> None:
            answers.append(await talk.client.post("/run", json=talk.body("one")))

        group.start_soon(first)
        await gate.begun.wait()
        assert texts(await talk.run("two")) == ["second"]
        assert gate.cancelled.is_set()
        events = (await talk.stored())["events"]
        assert [e["author"] for e in events] == ["user", "app", "app", "user", "app"]
        assert events[2]["interrupted"] is True and events[2]["errorCode"] == "INTERRUPTED"
    assert answers[0].status == 409 and "interrupted" in answers[0].json()["error"]
    prompt = model.prompt()
    assert prompt[0] == "user: one" and prompt[-1] == "user: two"
    assert prompt[1].startswith("model: call wait") and prompt[2].startswith("user: result wait")


async def test_a_full_line_is_429(serve: Serve, scripted: Any):
    gate = Gate()
    agent, _ = scripted(call("wait"), "first", tools=[gate.wait])
    async with serve(agent, limits=Limits(queue_length=0)) as talk, anyio.create_task_group() as group:
        group.start_soon(talk.run, "one")
        await gate.begun.wait()
        response = await talk.client.post("/run", json=talk.body("two"))
        assert response.status == 429 and response.headers["retry-after"] == "1"
        gate.go.set()
        await until_stored(talk, 4)


async def test_too_many_runs_are_429(serve: Serve, scripted: Any):
    gate = Gate()
    agent, _ = scripted(call("wait"), "first", tools=[gate.wait])
    async with serve(agent, limits=Limits(max_runs=1)) as talk, anyio.create_task_group() as group:
        await talk.at("s2").create()
        group.start_soon(talk.run, "one")
        await gate.begun.wait()
        response = await talk.client.post("/run", json=talk.at("s2").body("two"))
        assert response.status == 429 and "max_runs" in response.json()["error"]
        gate.go.set()
        await until_stored(talk, 4)


async def test_waiting_too_long_in_line_is_409(serve: Serve, scripted: Any):
    gate = Gate()
    agent, _ = scripted(call("wait"), "first", "third", tools=[gate.wait])
    async with serve(agent, limits=Limits(queue_wait_s=0.02)) as talk, anyio.create_task_group() as group:
        group.start_soon(talk.run, "one")
        await gate.begun.wait()
        response = await talk.client.post("/run", json=talk.body("two"))
        assert response.status == 409 and "busy" in response.json()["error"]
        gate.go.set()
        await until_stored(talk, 4)
        assert texts(await talk.run("three")) == ["third"]


async def test_a_caller_that_leaves_the_line_does_not_hold_it_up(serve: Serve, scripted: Any):
    gate = Gate()
    agent, _ = scripted(call("wait"), "first", "third", tools=[gate.wait])
    async with serve(agent) as talk, anyio.create_task_group() as group:
        group.start_soon(talk.run, "one")
        await gate.begun.wait()
        async with anyio.create_task_group() as impatient:
            impatient.start_soon(talk.run, "two")
            await until(lambda: in_line(talk))
            impatient.cancel_scope.cancel()
        gate.go.set()
        assert texts(await talk.run("three")) == ["third"]
        assert "two" not in texts((await talk.stored())["events"])


async def test_a_run_has_a_wall_clock(serve: Serve, scripted: Any):
    gate = Gate()
    agent, _ = scripted(call("wait"), "later", tools=[gate.wait])
    async with serve(agent, limits=Limits(run_timeout_s=0.05)) as talk:
        response = await talk.client.post("/run", json=talk.body())
        assert response.status == 504 and "took longer than 0.05 s" in response.json()["error"]
        assert gate.cancelled.is_set()


async def test_going_round_in_circles_ends_at_the_call_limit(serve: Serve, scripted: Any):
    agent, model = scripted(*[call("done")] * 5, tools=[done])
    async with serve(agent, limits=Limits(max_llm_calls=5)) as talk:
        events = await talk.sse()
        assert events[-1][0] == "error" and "max_llm_calls" in events[-1][1]["error"]
    model.check()


def done() -> str:
    """Done."""
    return "done"


async def test_shutdown_takes_no_more_runs_waits_and_then_says_why(scripted: Any):
    gate = Gate()
    agent, _ = scripted(call("wait"), tools=[gate.wait])
    app = App(agent, limits=Limits(shutdown_s=0.05))
    outcomes: list[Exception] = []

    async def ask() -> None:
        try:
            await app.ask("hi", session="s")
        except RunCancelled as error:
            outcomes.append(error)

    async with anyio.create_task_group() as group:
        async with app:
            group.start_soon(ask)
            await gate.begun.wait()
        with pytest.raises(Unavailable, match="not been started"):
            await app.runs.start(app._request("hi", "", "u", "s", None, None))
    assert "shutting down" in str(outcomes[0])


async def test_an_app_that_was_not_started_says_so(scripted: Any):
    agent, _ = scripted("hi")
    async with connect(App(agent), lifespan=False) as client:
        response = await client.post("/apps/app/users/u/sessions/s")
        assert response.status == 503 and "lifespan" in response.json()["error"]


# ---- resuming


def on(*steps: Any, database: str, tools: list[Any], **limits: Any) -> tuple[App, ScriptedModel]:
    model = ScriptedModel(*steps)
    agent = LlmAgent(name="app", model=model, tools=tools)
    return App(agent, stores=database, limits=Limits(**limits)), model


async def die_while(app: App, reached: anyio.Event) -> str:
    """Start a run, let it get as far as `reached`, and stop the server; the run's id."""
    async with connect(app) as client:
        talk = Talk(client, "app", app)
        await talk.create()
        run_id = await detached(talk)
        await reached.wait()
        return run_id


async def test_FR_009_a_run_that_died_goes_on_without_a_new_message(tmp_path: Any):
    """The server ends while a tool runs; another one on the same database goes on from the last stored event."""
    gate, database = Gate(), f"sqlite:///{tmp_path}/runs.db"
    first, _ = on(call("wait", id="c1"), database=database, tools=[gate.wait], shutdown_s=0)
    run_id = await die_while(first, gate.begun)
    second, model = on("went on", database=database, tools=[gate.wait])
    async with connect(second) as client:
        talk = Talk(client, "app", second)
        assert (await client.get(f"/runs/{run_id}")).json()["status"] == "stopped"
        events = await talk.sse(None, invocationId=run_id)
        assert texts(events) == ["went on"]
        assert {e["invocationId"] for e in events} == {run_id}
        response = await client.post("/run", json=talk.body(None, invocationId=run_id))
        assert response.status == 409 and "nothing to resume" in response.json()["error"]
        response = await client.post("/run_sse", json=talk.body(None, invocationId="e-other"))
        assert response.status == 404 and "e-other" in response.json()["error"]
    assert model.prompt()[1] == "model: call wait({})"
    assert "interrupted" in model.prompt()[2], "a call whose fate is unknown is reported, not repeated"
    model.check()


async def test_a_run_that_goes_on_is_followed_from_its_first_life_on(tmp_path: Any):
    """A watcher of the run that died comes back with its Last-Event-ID while the run goes on in another server."""
    gate, again, database = Gate(), Gate(), f"sqlite:///{tmp_path}/runs.db"
    first, _ = on(
        [call("done", id="c0")], call("wait", id="c1"), database=database, tools=[gate.wait, done], shutdown_s=0
    )
    run_id = await die_while(first, gate.begun)
    second, _ = on(call("wait", id="c2"), chunks("all ", "done"), database=database, tools=[again.wait])
    async with connect(second) as client:
        talk = Talk(client, "app", second)
        went_on = {**talk.body(None, streaming=True), "invocationId": run_id}
        assert (await client.post("/run", json=went_on, query={"detach": "1"})).status == 202
        await again.begun.wait()
        again.go.set()
        path = f"/runs/{run_id}/events"
        whole = await frames(talk, path)
        ids = [id for id, _ in whole]
        assert ids == ["1.1", "2.2", "3.3", "1.4.3", "2.5.3", "3.6.3", "4.6.3", "5.6.3", "6.7.3"]
        assert texts([e for _, e in whole]) == ["all ", "done", "all done"]
        for seen in range(len(ids)):
            rest = await frames(talk, path, headers={"last-event-id": ids[seen]})
            assert rest == whole[seen + 1 :]
        assert await frames(talk, path, headers={"last-event-id": "9.3"}) == whole[3:], "pieces count in one life only"


async def test_a_team_that_died_between_two_agents_goes_on_with_the_next(tmp_path: Any):
    reached, database = anyio.Event(), f"sqlite:///{tmp_path}/runs.db"

    async def die(request: Any, on_partial: Any) -> str:
        reached.set()
        await anyio.sleep_forever()
        return ""

    def team(*scripts: ScriptedModel) -> App:
        members = [LlmAgent(name=name, model=model) for name, model in zip("abc", scripts, strict=True)]
        inner = SequentialAgent(name="inner", sub_agents=members[:2])
        root = SequentialAgent(name="app", sub_agents=[inner, members[2]])
        return App(root, stores=database, limits=Limits(shutdown_s=0))

    run_id = await die_while(team(ScriptedModel("A"), ScriptedModel(die), ScriptedModel()), reached)
    second = team(ScriptedModel(), ScriptedModel("B"), ScriptedModel("C"))
    async with connect(second) as client:
        talk = Talk(client, "app", second)
        assert texts(await talk.run(None, invocationId=run_id)) == ["B", "C"]
        response = await client.post("/run", json=talk.body(None, invocationId=run_id))
        assert response.status == 409 and "nothing to resume" in response.json()["error"]


async def test_a_paused_run_that_went_on_is_not_told_of_as_paused(serve: Serve, scripted: Any):
    pay = make_tool(done, require_confirmation=True)
    agent, _ = scripted(call("done", id="c1"), "paid", tools=[pay])
    async with serve(agent) as talk:
        run_id = await detached(talk)
        events = await frames(talk, f"/runs/{run_id}/events")
        assert (await talk.client.get(f"/runs/{run_id}")).json()["status"] == "paused"
        calls = [
            p["functionCall"] for _, e in events for p in (e["content"] or {}).get("parts", []) if "functionCall" in p
        ]
        asked = next(c for c in calls if c["name"] == "adk_request_confirmation")
        assert texts(await talk.run(answer(asked["id"], asked["name"], {"confirmed": True}))) == ["paid"]
        assert (await talk.client.get(f"/runs/{run_id}")).json()["status"] == "ended"
        rest = await frames(talk, f"/runs/{run_id}/events", headers={"last-event-id": events[-1][0]})
        assert texts([e for _, e in rest]) == ["paid"]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_lost_call_is_repeated_only_if_the_tool_allows_it(tmp_path: Any, idempotent: bool):
    ran: list[str] = []
    gate, database = Gate(), f"sqlite:///{tmp_path}/runs.db"

    async def fetch() -> str:
        """Fetch."""
        ran.append("x")
        return await gate.wait()

    tools = [make_tool(fetch, idempotent=idempotent), done]
    first, _ = on([call("fetch", id="c1"), call("done", id="c2")], database=database, tools=tools, shutdown_s=0)
    run_id = await die_while(first, gate.begun)
    gate.go.set()
    second, model = on("fine", database=database, tools=tools)
    async with connect(second) as client:
        await Talk(client, "app", second).sse(None, invocationId=run_id)
    assert len(ran) == (2 if idempotent else 1)
    assert ("waited" in model.prompt()[-1]) is idempotent


async def test_what_was_stored_is_not_asked_or_done_again(tmp_path: Any):
    """The server died after the tool's response was stored: the model is asked once, with that response."""
    reached, database = anyio.Event(), f"sqlite:///{tmp_path}/runs.db"

    async def die(request: Any, on_partial: Any) -> str:
        reached.set()
        await anyio.sleep_forever()
        return ""

    first, _ = on(call("done", id="c1"), die, database=database, tools=[done], shutdown_s=0)
    run_id = await die_while(first, reached)
    second, model = on("end", database=database, tools=[done])
    async with connect(second) as client:
        talk = Talk(client, "app", second)
        assert texts(await talk.run(None, invocationId=run_id)) == ["end"]
        assert [e["author"] for e in (await talk.stored())["events"]] == ["user", "app", "app", "app"]
    assert model.prompt() == ["user: hi", "model: call done({})", "user: result done {'result': 'done'}"]


async def test_FR_059_a_run_that_lost_its_session_to_another_process_stops(tmp_path: Any):
    """Two servers on one database: the later run supersedes the earlier one, which ends with a conflict."""
    gate, database = Gate(), f"sqlite:///{tmp_path}/runs.db"
    one, _ = on(call("wait", id="c1"), "too late", database=database, tools=[gate.wait])
    two, model = on("mine", "third", database=database, tools=[gate.wait])
    answers: list[Any] = []
    async with connect(one) as early, connect(two) as late:
        a, b = Talk(early, "app", one), Talk(late, "app", two)
        await a.create()
        async with anyio.create_task_group() as group:

            async def first() -> None:
                answers.append(await early.post("/run", json=a.body("one")))

            group.start_soon(first)
            await gate.begun.wait()
            assert texts(await b.run("two")) == ["mine"]
            gate.go.set()
        assert answers[0].status == 409
        assert texts(await b.run("three")) == ["third"]
        assert "too late" not in texts((await b.stored())["events"])
    assert any(p.startswith("user: result wait") for p in model.prompt()), "the loser's orphan call is repaired"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_FR_046_patching_state_during_a_run_does_not_end_it(
    serve: Serve, scripted: Any, tmp_path: Any, kind: str
):
    gate = Gate()
    agent, _ = scripted(call("wait"), "done", tools=[gate.wait], output_key="out")
    answers: list[Any] = []
    stores = f"sqlite:///{tmp_path}/x.db" if kind == "sqlite" else None
    async with serve(agent, stores=stores) as talk, anyio.create_task_group() as group:

        async def go() -> None:
            answers.append(await talk.client.post("/run", json=talk.body()))

        group.start_soon(go)
        await gate.begun.wait()
        assert (await talk.client.patch(talk.path, json={"stateDelta": {"webhook": 1}})).status == 200
        gate.go.set()
        await until_stored(talk, 5)
        assert (await talk.stored())["state"] == {"webhook": 1, "out": "done"}
    assert answers[0].status == 200


async def test_200_concurrent_runs_on_20_sessions_keep_every_event_in_order(serve: Serve, tmp_path: Any):
    async def echo(request: Any, on_partial: Any) -> str:
        return "re: " + (request.contents[-1].parts[0].text or "")

    agent = LlmAgent(name="app", model=ScriptedModel(*[echo] * 200))
    async with serve(agent, stores=f"sqlite:///{tmp_path}/busy.db") as talk:
        talks = [talk.at(f"t{n}") for n in range(20)]
        for one in talks:
            await one.create()
        async with anyio.create_task_group() as group:
            for n in range(200):
                group.start_soon(talks[n % 20].run, f"m{n}")
        for index, one in enumerate(talks):
            events = (await one.stored())["events"]
            assert len(events) == 20
            for user, answer in zip(events[::2], events[1::2], strict=True):
                assert user["author"] == "user" and user["invocationId"] == answer["invocationId"]
                assert texts([answer]) == ["re: " + texts([user])[0]]
            assert sorted(texts(events[::2])) == sorted(f"m{n}" for n in range(index, 200, 20))
