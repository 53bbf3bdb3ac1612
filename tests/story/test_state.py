"""State in runs: deltas, `temp:` keys, what agents see of each other's writes, templates (spec core 1.6, 2.2, 3.4, 5.2)."""

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from polyport import (
    App,
    CallbackContext,
    Event,
    FunctionAgent,
    LlmAgent,
    ModelRequest,
    ParallelAgent,
    Part,
    Plugin,
    ReadContext,
    RunConfig,
    RunContext,
    SequentialAgent,
    Session,
    SessionKey,
    Tool,
    ToolContext,
)
from polyport.data.model import ToolDeclaration
from polyport.engine import commit
from polyport.errors import BadRequest
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call
from support.talk import Serve, texts


def llm(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps, name=f"model of {name}"), **fields)


def model(agent: LlmAgent) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


async def state_of(app: App, session: str = "s1", user: str = "user") -> dict[str, Any]:
    return (await app.stores.sessions.get(SessionKey(next(iter(app.trees)), user, session))).state


class SlowSessions(MemorySessions):
    """A store that lets everybody else run before it takes an event."""

    instant = False

    async def append(self, session: Session, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        return await super().append(session, event, claim=claim, strict=strict)


# ---- temp: keys


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_FR_035_temp_keys_live_in_one_run_and_nowhere_else(serve: Serve, store: str, tmp_path: Path):
    path = tmp_path / "x.db"
    seen: list[Any] = []

    def note(ctx: CallbackContext) -> None:
        seen.append((ctx.state.get("temp:r"), ctx.state.get("temp:tok")))

    first = llm("first", "SECRET-ANSWER", "SECRET-ANSWER", output_key="temp:r", after_agent=note)
    second = llm("second", "ok", "ok", instruction="r={temp:r?} tok={temp:tok?}")
    third = FunctionAgent(name="third", function=_peek(seen))
    app = SequentialAgent(name="app", sub_agents=[first, second, third])
    url = f"sqlite:///{path}" if store == "sqlite" else store
    async with serve(app, stores=url) as talk:
        events = await talk.sse(stateDelta={"temp:tok": "SECRET-TOKEN", "kept": 1})
        assert seen == [("SECRET-ANSWER", "SECRET-TOKEN"), ("SECRET-ANSWER", "SECRET-TOKEN")]
        assert "r=SECRET-ANSWER tok=SECRET-TOKEN" in model(second).requests[0].system
        assert all("temp:" not in str(e["actions"]) for e in events)
        stored = await talk.stored()
        assert stored["state"] == {"kept": 1}
        assert "SECRET-TOKEN" not in str(stored) and "temp:" not in str(stored)
        seen.clear()
        await talk.run("again")
        assert seen[0] == ("SECRET-ANSWER", None), "the token of the first run is gone"
    if store == "sqlite":
        dump = b"".join(file.read_bytes() for file in tmp_path.glob("x.db*") if file.is_file())
        assert b"SECRET-ANSWER" in dump, "the answer itself is an event"
        assert b"SECRET-TOKEN" not in dump and b"temp:r" not in dump and b"temp:tok" not in dump


def _peek(seen: list[Any]) -> Any:
    async def peek(ctx: RunContext) -> None:
        seen.append((ctx.state.get("temp:r"), ctx.state.get("temp:tok")))

    return peek


# ---- whose writes are seen when


async def test_section_12_7_a_write_comes_true_with_its_event_only(scripted: Any):
    """Two tools of one answer: neither sees the other's write; the next call of the model sees both."""
    seen: list[Any] = []
    written = anyio.Event()

    async def write(ctx: ToolContext) -> str:
        """Write."""
        ctx.state["k"] = "new"
        seen.append(ctx.state["k"])
        written.set()
        return "ok"

    async def read(ctx: ToolContext) -> str:
        """Read."""
        await written.wait()
        seen.append(ctx.state.get("k"))
        return "ok"

    agent, model = scripted([call("write"), call("read")], "done", tools=[write, read], instruction="k={k?}.")
    await App(agent).ask("hi")
    assert seen == ["new", None]
    assert ["k=." in r.system or "k=new." in r.system for r in model.requests] == [True, True]
    assert "k=new." in model.requests[1].system


async def test_section_12_7_what_a_failed_run_wrote_and_did_not_commit_is_not_kept(scripted: Any):
    def write(ctx: CallbackContext, request: ModelRequest) -> None:
        ctx.state["k"] = 1
        raise BadRequest("no")

    agent, _ = scripted("ok", before_model=write, instruction="{k?}")
    app = App(agent)
    with pytest.raises(BadRequest):
        await app.ask("hi", session="s1")
    assert await state_of(app) == {}


async def test_core_53_nested_state_of_parallel_calls_is_merged_and_later_calls_win(scripted: Any):
    def write(ctx: ToolContext, n: int) -> str:
        """Write."""
        ctx.state["prefs"] = {f"k{n}": n, "last": n, "deep": {f"d{n}": n}}
        ctx.state["plain"] = n
        return "ok"

    agent, _ = scripted([call("write", {"n": n}) for n in (1, 2, 3)], "done", tools=[write])
    app = App(agent)
    got = await app.ask("hi", session="s1")
    wanted = {
        "prefs": {"k1": 1, "k2": 2, "k3": 3, "last": 3, "deep": {"d1": 1, "d2": 2, "d3": 3}},
        "plain": 3,
    }
    assert got.events[1].actions.state_delta == wanted
    assert await state_of(app) == wanted


async def test_FR_041_state_written_in_a_request_hook_and_in_the_tool_is_stored(scripted: Any):
    class Probe(Tool):
        name = "probe"

        def declaration(self) -> ToolDeclaration:
            return ToolDeclaration(name="probe")

        async def prepare(self, ctx: CallbackContext, request: ModelRequest) -> None:
            ctx.state["hook"] = ctx.state.get("hook", 0) + 1
            request.system += " PROBED"

        async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
            ctx.state["body"] = ctx.state["hook"]
            return "ok"

    agent, model = scripted(call("probe"), "done", tools=[Probe()])
    app = App(agent)
    await app.ask("hi", session="s1")
    assert await state_of(app) == {"hook": 2, "body": 1}
    assert [r.system.count("PROBED") for r in model.requests] == [1, 1]


async def test_core_34_the_runs_delta_is_visible_to_callbacks_and_custom_agents(serve: Serve):
    seen: list[Any] = []

    async def body(ctx: RunContext) -> None:
        seen.append(dict(ctx.state))

    agent = FunctionAgent(name="app", function=body, before_agent=lambda c: seen.append(dict(c.state)))
    async with serve(agent) as talk:
        await talk.run(stateDelta={"k": 1, "app:a": 2})
    assert seen == [{"k": 1, "app:a": 2}] * 2


async def test_core_33_the_users_message_is_yielded_when_asked_for_and_carries_the_delta(scripted: Any):
    agent, _ = scripted("ok", "ok")
    app = App(agent)
    got = await app.ask("hi", state={"k": 1, "temp:t": 2}, session="s1", config=RunConfig(yield_user_message=True))
    user, answer = got.events
    assert (user.author, user.text, user.actions.state_delta) == ("user", "hi", {"k": 1})
    assert user.invocation_id == answer.invocation_id
    got = await app.ask("hi", state={"k": 2}, session="s1")
    assert [e.author for e in got.events] == ["app"]
    session = await app.stores.sessions.get(SessionKey("app", "user", "s1"))
    assert [e.author for e in session.events] == ["user", "app", "user", "app"]


async def test_core_32_sessions_are_made_for_ask_and_not_for_rest(serve: Serve, scripted: Any):
    agent, _ = scripted("ok", "ok")
    async with serve(agent, create=False) as talk:
        assert (await talk.client.post("/run", json=talk.body())).status == 404
        got = await talk.server.ask("hi", user="u1", session="s1")
        assert got.session_id == "s1"
        assert texts(await talk.run()) == ["ok"]


async def test_a_custom_agents_event_may_write_state(serve: Serve):
    async def body(ctx: RunContext) -> None:
        from polyport.data.event import EventActions

        await ctx.emit(Event(actions=EventActions(state_delta={"user:k": {"a": [1]}, "temp:t": 1})))
        assert ctx.state["user:k"] == {"a": [1]} and ctx.state["temp:t"] == 1
        with pytest.raises(TypeError):
            ctx.state["x"] = 1  # type: ignore[index]  # read only: an agent writes by events

    async with serve(FunctionAgent(name="app", function=body)) as talk:
        await talk.run()
        assert (await talk.stored())["state"] == {"user:k": {"a": [1]}}


# ---- templates


async def test_core_69_76_instructions_are_templates_and_functions_are_not(serve: Serve):
    async def provider(ctx: ReadContext) -> str:
        return f"provided {ctx.state['k']} {{k}} {ctx.agent_name}"

    child = llm("child", "hi", instruction=provider)
    root = llm(
        "app",
        call("transfer_to_agent", {"agent_name": "child"}),
        instruction="own {k} {user:lang} {missing?} {not-a-key} {{k}} {artifact.note}",
        global_instruction="global {k}",
        sub_agents=[child],
    )
    async with serve(root) as talk:
        await talk.server.stores.artifacts.save(  # type: ignore[union-attr]  # memory has them
            SessionKey("app", "u1", "s1"), "note", Part(text="NOTE {k}")
        )
        await talk.run(stateDelta={"k": "VALUE", "user:lang": "fr"})
    system = model(root).requests[0].system
    assert system.startswith("global VALUE\n\nown VALUE fr  {not-a-key} VALUE NOTE {k}\n\n")
    assert model(child).requests[0].system.startswith("global VALUE\n\nprovided VALUE {k} child\n\n")


async def test_core_76_sync_providers_and_global_functions_work():
    agent = llm("app", "hi", instruction=lambda ctx: "from sync", global_instruction=lambda ctx: "for all")
    await App(agent).ask("hi")
    assert model(agent).requests[0].system.startswith("for all\n\nfrom sync\n\n")


async def test_core_69_a_missing_key_names_itself(serve: Serve, scripted: Any):
    agent, _ = scripted("fine", instruction="{nowhere}")
    async with serve(agent) as talk:
        ((kind, error),) = await talk.sse()
        assert kind == "error" and "'nowhere'" in error["error"]
        assert texts(await talk.run(stateDelta={"nowhere": 1})) == ["fine"]


async def test_core_70_the_identity_is_told_and_has_no_clause_without_description():
    plain, described = llm("plain", "a"), llm("described", "b", description="Tells jokes.")
    await App(SequentialAgent(name="app", sub_agents=[plain, described])).ask("hi")
    assert model(plain).requests[0].system == 'You are the agent named "plain".'
    assert "Tells jokes." in model(described).requests[0].system


async def test_section_3_5_a_global_instruction_counts_at_the_root_only_or_for_itself_below_another_kind():
    child = llm("child", "a", global_instruction="not this")
    root = llm("app", call("transfer_to_agent", {"agent_name": "child"}), global_instruction="root", sub_agents=[child])
    await App(root).ask("hi")
    assert "not this" not in model(child).requests[0].system and "root\n\n" in model(child).requests[0].system
    alone = llm("alone", "a", global_instruction="mine")
    await App(SequentialAgent(name="app", sub_agents=[alone])).ask("hi")
    assert model(alone).requests[0].system.startswith("mine\n\n")


# ---- concurrency


@pytest.mark.parametrize("store", ["memory:", "slow", "sqlite"])
async def test_FR_061_parallel_agents_lose_no_write(store: str, tmp_path: Path):
    def worker(n: int) -> LlmAgent:
        def count(ctx: ToolContext) -> str:
            """Count."""
            ctx.state["shared"] = ctx.state.get("shared", 0) + 1
            ctx.state[f"own{n}"] = n
            return "ok"

        return llm(f"w{n}", call("count"), f"answer {n}", tools=[count], output_key=f"out{n}")

    stores: Any = Stores(SlowSessions()) if store == "slow" else store
    if store == "sqlite":
        stores = f"sqlite:///{tmp_path / 'x.db'}"
    async with App(ParallelAgent(name="app", sub_agents=[worker(n) for n in range(20)]), stores=stores) as app:
        await app.ask("hi", session="s1")
        state = await state_of(app)
    assert {state[f"own{n}"] for n in range(20)} == set(range(20))
    assert [state[f"out{n}"] for n in range(20)] == [f"answer {n}" for n in range(20)]
    assert 1 <= state["shared"] <= 20, "last wins: a counter of several agents is not a sum"


async def test_FR_062_parallel_agents_see_their_own_tool_response_with_a_slow_store():
    def work(n: int) -> str:
        """Work."""
        return f"result {n}"

    workers = [llm(f"w{n}", call("work", {"n": n}), "done", tools=[work]) for n in range(8)]
    await App(ParallelAgent(name="app", sub_agents=workers), stores=Stores(SlowSessions())).ask("hi")
    for n, worker in enumerate(workers):
        assert model(worker).prompt() == [
            "user: hi",
            f"model: call work({{'n': {n}}})",
            f"user: result work {{'result': 'result {n}'}}",
        ]


async def test_FR_065_concurrent_workers_hold_only_their_own_input_calls_and_responses():
    """One agent object run eight times at once, each on a branch of its own, three tool rounds each."""
    requests: dict[str, list[list[str]]] = {}

    async def answer(request: Any, on_partial: Any) -> Any:
        lines = ScriptedModel()
        lines.requests = [request]
        prompt = lines.prompt()
        me = next(line for line in prompt if "input for " in line).rsplit(" ", 1)[-1]
        requests.setdefault(me, []).append(prompt)
        for _ in range(int(me) % 3):
            await anyio.lowlevel.checkpoint()
        rounds = len(requests[me])
        return call("step", {"who": me, "round": rounds}) if rounds < 4 else f"done {me}"

    async def step(who: str, round: int) -> str:
        """Step."""
        await anyio.lowlevel.checkpoint()
        return f"{who}/{round}"

    worker = llm("worker", *[answer] * 32, tools=[step])

    async def body(ctx: RunContext) -> None:
        async def one(n: int) -> None:
            branch = f"job{n}"
            await ctx.at(ctx.agent, branch).emit(Event(author="user", content=_user(f"input for {n}"), branch=branch))
            await ctx.run_agent(worker, branch)

        async with anyio.create_task_group() as group:
            for n in range(8):
                group.start_soon(one, n)

    root = FunctionAgent(name="app", function=body, sub_agents=[worker])
    await App(root, stores=Stores(SlowSessions())).ask("go")
    assert sorted(requests) == [str(n) for n in range(8)]
    for me, prompts in requests.items():
        wanted = ["user: go", f"user: input for {me}"]
        for number, prompt in enumerate(prompts, 1):
            assert prompt == wanted
            wanted = [
                *wanted,
                f"model: call step({{'who': '{me}', 'round': {number}}})",
                f"user: result step {{'result': '{me}/{number}'}}",
            ]


def _user(text: str) -> Any:
    from polyport.data.content import user_text

    return user_text(text)


async def test_FR_109_a_step_of_a_branch_sees_what_the_step_before_it_wrote():
    second = llm("b", "ok", instruction="x={x}")
    branch = SequentialAgent(name="steps", sub_agents=[llm("a", "VALUE", output_key="x"), second])
    other = llm("other", "ok")
    await App(ParallelAgent(name="app", sub_agents=[branch, other]), stores=Stores(SlowSessions())).ask("hi")
    assert "x=VALUE" in model(second).requests[0].system


async def test_FR_108_include_contents_none_with_parallel_calls_in_parallel_agents():
    def work(n: int) -> str:
        """Work."""
        return f"r{n}"

    workers = [
        llm(
            f"w{n}",
            [call("work", {"n": n}), call("work", {"n": n + 10})],
            "done",
            tools=[work],
            include_contents="none",
        )
        for n in range(3)
    ]
    app = App(ParallelAgent(name="app", sub_agents=workers))
    for n, worker in enumerate(workers):
        model(worker).steps += list(model(worker).steps)
        del n
    await app.ask("first question", session="s1")
    await app.ask("second question", session="s1")
    for n, worker in enumerate(workers):
        assert model(worker).prompt(3) == [
            "user: second question",
            f"model: call work({{'n': {n}}}) | call work({{'n': {n + 10}}})",
            f"user: result work {{'result': 'r{n}'}} | result work {{'result': 'r{n + 10}'}}",
        ]


# ---- persistence failures


async def test_FR_223_a_store_that_hangs_ends_the_run_with_an_error(
    serve: Serve, scripted: Any, monkeypatch: pytest.MonkeyPatch
):
    class Hanging(MemorySessions):
        instant = False

        async def append(self, session: Session, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
            if event.author != "user":
                await anyio.sleep_forever()
            return await super().append(session, event, claim=claim, strict=strict)

    monkeypatch.setattr(commit, "STORE_TIMEOUT_S", 0.01)
    agent, _ = scripted("lost")
    async with serve(agent, stores=Stores(Hanging())) as talk:
        ((kind, error),) = await talk.sse()
        assert (kind, error["errorCode"]) == ("error", "TIMEOUT")
        assert [e["author"] for e in (await talk.stored())["events"]] == ["user"]


class FailingSessions(MemorySessions):
    """Raises on the n-th append, once."""

    def __init__(self, at: int, error: Exception) -> None:
        super().__init__()
        self.left = at
        self.error = error

    async def append(self, session: Session, event: Event, *, claim: bool = False, strict: bool = False) -> Event:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return await super().append(session, event, claim=claim, strict=strict)


@pytest.mark.parametrize("error", [OSError("disk full: /secret/path"), BadRequest("odd event")])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_FR_223_a_store_that_fails_ends_the_stream_with_an_error(
    serve: Serve, scripted: Any, at: int, error: Exception
):
    def look() -> str:
        """Look."""
        return "seen"

    after: list[str] = []

    class Note(Plugin):
        name = "note"

        async def after_run(self, ctx: CallbackContext) -> None:
            after.append("after")

    agent, model = scripted(call("look"), "done", "again", tools=[look])
    async with serve(agent, stores=Stores(FailingSessions(at, error)), plugins=[Note()]) as talk:
        events = await talk.sse()
        kind, frame = events[-1]
        assert kind == "error" and len(events) == max(at - 1, 1)
        assert "secret" not in str(frame)
        stored = await talk.stored()
        assert len(stored["events"]) == at - 1, "what was stored before stays, nothing is half saved"
        assert [e["id"] for e in stored["events"][1:]] == [e["id"] for e in events[:-1]], "sent is stored"
        assert after == ([] if at == 1 else ["after"])
        model.steps[:] = ["healthy"]
        assert texts(await talk.run("again"))[-1] == "healthy"
