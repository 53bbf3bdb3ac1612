"""Compaction: long sessions get summaries, callers notice nothing of it (spec core 3.12, rest-44, FR-053, FR-130)."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from polyport import (
    App,
    Content,
    Event,
    FunctionAgent,
    LlmAgent,
    ModelRequest,
    ModelResponse,
    Plugin,
    SequentialAgent,
    SessionKey,
    make_tool,
)
from polyport.data.compaction import CompactionConfig
from polyport.data.content import Blob, Part, model_text, user_text
from polyport.data.event import Compaction
from polyport.data.limits import Limits
from polyport.data.model import Usage
from polyport.engine.compaction_summary import HEADING, LlmSummariser
from polyport.engine.context_filter import last_invocations
from polyport.errors import ConfigError
from polyport.testing import ScriptedModel, call
from support.approvals import approve, requests
from support.talk import Serve, Talk, answer, said, texts

KEY = SessionKey("app", "user", "s1")
LONG = "and now something that takes many words, so that there is something to be made shorter"


class Notes:
    """A summariser that remembers what it was told."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.told: list[list[str]] = []
        self.previous: list[str] = []

    async def __call__(self, events: Sequence[Event], previous: Content | None) -> Any:
        self.told.append([e.text or "-" for e in events])
        self.previous.append(previous.text if previous is not None else "")
        if not self.answers:
            return user_text(f"S{len(self.told)}")
        step: Any = self.answers.pop(0)
        if isinstance(step, BaseException):
            raise step
        return await cast("Any", step)() if callable(step) else step


class Slow:
    """A summary that comes when it is told to; knows whether it was stopped."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go = anyio.Event()
        self.stopped = False

    async def __call__(self) -> Content:
        self.begun.set()
        try:
            await self.go.wait()
        except BaseException:
            self.stopped = True
            raise
        return user_text("S")


def every(interval: int, overlap: int = 0, **more: Any) -> CompactionConfig:
    return CompactionConfig(compaction_interval=interval, overlap_size=overlap, **more)


def keeping(kept: int, tokens: int, **more: Any) -> CompactionConfig:
    return CompactionConfig(token_threshold=tokens, event_retention_size=kept, **more)


def counted(text: str, tokens: int) -> ModelResponse:
    return ModelResponse(content=model_text(text), usage_metadata=Usage(prompt_token_count=tokens))


async def compactions(app: App, key: SessionKey = KEY) -> list[Event]:
    session = await app.stores.sessions.get(key)
    return [e for e in session.events if e.actions.compaction is not None]


async def quiet(talk: Talk) -> None:
    """Let the server work until no run is left, not even one that has ended and writes its summary."""
    with anyio.fail_after(20):
        while talk.server.runs.active:
            await anyio.lowlevel.checkpoint()


def stored_summaries(session: dict[str, Any]) -> list[str]:
    found = [e["actions"].get("compaction") for e in session["events"]]
    return [c["compactedContent"]["parts"][0]["text"] for c in found if c]


# ---- what is summarised, and what the model sees of it


async def test_core_3_12_every_three_invocations_with_one_told_again(scripted: Any):
    agent, _ = scripted(*[f"a{n}" for n in range(1, 10)])
    notes = Notes()
    app = App(agent, compaction=every(3, 1, summariser=notes))
    for n in range(1, 10):
        assert (await app.ask(f"q{n}", session="s1")).text == f"a{n}"
    assert notes.told == [
        ["q1", "a1", "q2", "a2", "q3", "a3"],
        ["q3", "a3", "q4", "a4", "q5", "a5", "q6", "a6"],
        ["q6", "a6", "q7", "a7", "q8", "a8", "q9", "a9"],
    ]
    found = await compactions(app)
    assert [e.actions.compaction and e.actions.compaction.compacted_content.text for e in found] == ["S1", "S2", "S3"]


async def test_core_3_12_prompts_show_the_summary_and_storage_keeps_everything(scripted: Any):
    agent, model = scripted("a1", "a2", "a3")
    app = App(agent, compaction=every(2, summariser=Notes()))
    for n in (1, 2, 3):
        await app.ask(f"q{n}", session="s1")
    assert model.prompt() == ["user: S1", "user: q3"]
    session = await app.stores.sessions.get(KEY)
    assert [e.text for e in session.events] == ["q1", "a1", "q2", "a2", "", "q3", "a3"]


async def test_core_3_12_the_range_is_from_the_first_to_the_last_event_in_seconds(scripted: Any):
    agent, _ = scripted("a1")
    app = App(agent, compaction=every(1, summariser=Notes()))
    await app.ask("q1", session="s1")
    first, last, summary = (await app.stores.sessions.get(KEY)).events
    assert first.timestamp and last.timestamp and summary.timestamp
    made = summary.actions.compaction
    assert made == Compaction(
        start_timestamp=first.timestamp.timestamp(),
        end_timestamp=last.timestamp.timestamp(),
        compacted_content=user_text("S1"),
    )
    assert (summary.invocation_id, summary.content, summary.final) == (last.invocation_id, None, True)


async def test_core_3_12_size_goes_before_the_interval(scripted: Any):
    sizes = (10, 100, 20, 20, 100, 1)
    agent, model = scripted(*[counted(f"a{n}", size) for n, size in enumerate(sizes, 1)])
    notes = Notes()
    config = CompactionConfig(
        token_threshold=100, event_retention_size=2, compaction_interval=2, overlap_size=0, summariser=notes
    )
    app = App(agent, compaction=config)
    for n in range(1, 7):
        await app.ask(f"q{n}", session="s1")
    assert notes.told == [
        ["q1", "a1"],  # 100 tokens in the second run: all but the newest two events, though two invocations are over
        [
            "q2",
            "a2",
            "q3",
            "a3",
            "q4",
            "a4",
        ],  # two more invocations; in the fifth run there is nothing but the newest two
        ["q5", "a5", "q6", "a6"],
    ]
    model.check()


async def test_core_3_12_by_size_alone_each_summary_takes_the_place_of_the_last(scripted: Any):
    agent, model = scripted(*[counted(f"a{n}", 100) for n in range(1, 5)])
    notes = Notes(None, user_text("S1"), user_text("S2"))
    app = App(agent, compaction=keeping(2, 100, summariser=notes))
    for n in range(1, 4):
        await app.ask(f"q{n}", session="s1")
    assert notes.told == [["q1", "a1"], ["q1", "a1", "q2", "a2"]], "a summariser may leave it"
    notes.answers[:] = [user_text("T1"), user_text("T2")]
    await app.ask("q4", session="s1")
    assert notes.told[-1] == ["q3", "a3"] and notes.previous[-1] == "S1"
    model.steps[:] = ["a5"]
    await app.ask("q5", session="s1")
    assert model.prompt() == ["user: T1", "user: q4", "model: a4", "user: q5"]


async def test_core_3_12_without_counts_of_the_provider_it_is_characters_by_four(scripted: Any):
    agent, _ = scripted("a" * 190, "b" * 190, "c" * 190)
    notes = Notes()
    app = App(agent, compaction=keeping(0, 100, summariser=notes))
    await app.ask("q" * 10, session="s1")
    assert notes.told == [], "200 characters are 50 tokens"
    await app.ask("q" * 10, session="s1")
    assert len(notes.told) == 1
    await app.ask("q" * 10, session="s1")
    assert len(notes.told) == 1, "the summary is small"


async def test_core_3_12_calls_stay_with_their_responses(scripted: Any):
    def look() -> str:
        """Look."""
        return "seen"

    agent, model = scripted(call("look", {}, "c1"), counted("done", 100), counted("next", 1), tools=[look])
    notes = Notes()
    app = App(agent, compaction=keeping(2, 100, summariser=notes))
    await app.ask(LONG, session="s1")
    assert notes.told == [[LONG]], "the newest two are the result and the answer; the call stays with its result"
    await app.ask("and?", session="s1")
    assert model.prompt() == [
        "user: S1",
        "model: call look({})",
        "user: result look {'result': 'seen'}",
        "model: done",
        "user: and?",
    ]


# ---- the model as summariser


async def test_core_3_12_the_root_agents_model_writes_the_summary(scripted: Any):
    def look(path: str) -> str:
        """Look."""
        return "x" * 300

    agent, model = scripted(
        call("look", {"path": "/etc"}, "c1"), "It is 42.", "The user asked about /etc; it is 42.", "ok", tools=[look]
    )
    app = App(agent, compaction=every(1, part_chars=100, summary_tokens=77))
    assert (await app.ask(LONG, session="s1")).text == "It is 42."
    asked = model.requests[-1]
    assert (asked.tools, asked.config.max_output_tokens, len(asked.contents)) == ([], 77, 1)
    told = asked.contents[0].text
    assert f"user: {LONG}\n" in told
    assert 'app called look with {"path":"/etc"}\n' in told
    assert "look gave " in told and "characters are left out here" in told and len(told) < 500
    assert "app: It is 42." in told
    await app.ask("and?", session="s1")
    assert model.prompt(3) == [f"user: {HEADING}The user asked about /etc; it is 42.", "user: and?"]


async def test_core_3_12_the_model_is_told_the_summary_so_far(scripted: Any):
    agent, model = scripted(counted(LONG, 100), "first", counted(LONG, 100), "second", "third")
    app = App(agent, compaction=keeping(0, 100))
    await app.ask("q1", session="s1")
    await app.ask("q2", session="s1")
    told = model.requests[-1].contents[0].text
    assert "<summary-so-far>\nfirst\n</summary-so-far>" in told and "user: q2" in told and "q1" not in told
    await app.ask("q3", session="s1")
    assert model.prompt() == [f"user: {HEADING}second", "user: q3"]


async def test_core_3_12_another_model_may_write_it(scripted: Any):
    agent, model = scripted("a1", "a2")
    small = ScriptedModel("short", name="small")
    app = App(agent, compaction=every(1, summariser=LlmSummariser(small, instruction="Shorten.")))
    await app.ask(LONG, session="s1")
    assert (small.requests[0].system, small.requests[0].model) == ("Shorten.", "small")
    small.steps.append("shorter")
    await app.ask("q2", session="s1")
    assert model.prompt() == [f"user: {HEADING}short", "user: q2"]


async def test_core_3_12_files_and_thoughts_are_not_told_as_they_are(scripted: Any):
    thought = Content(role="model", parts=[Part(text="hmm", thought=True), Part(text="seen")])
    agent, model = scripted(thought, "short")
    picture = Part(inline_data=Blob(mime_type="image/png", data=b"123"))
    await App(agent, compaction=every(1)).ask(Content(role="user", parts=[Part(text=LONG), picture]))
    told = model.requests[-1].contents[0]
    assert len(told.parts) == 1 and "user sent a file (image/png)" in told.text and "app: seen" in told.text
    assert "hmm" not in told.text


@pytest.mark.parametrize(
    "bad",
    [
        ModelResponse(error_code="SAFETY", error_message="no"),
        ModelResponse(content=model_text("half a summ"), finish_reason="MAX_TOKENS"),
        "  ",
        ValueError("provider is down"),
        LONG * 3,
    ],
    ids=["refused", "cut off", "empty", "failed", "longer than what it stands for"],
)
async def test_core_3_12_a_summary_that_is_none_is_not_stored(scripted: Any, bad: Any):
    agent, model = scripted("a1", bad, "a2", "fine")
    app = App(agent, compaction=every(1))
    assert (await app.ask(LONG, session="s1")).outcome.status == "finished"
    assert await compactions(app) == []
    await app.ask("q2", session="s1")
    assert model.prompt(2) == [f"user: {LONG}", "model: a1", "user: q2"]
    assert len(await compactions(app)) == 1, "the next run tries again"
    model.check()


# ---- a summariser that fails, or takes its time


@pytest.mark.parametrize(
    "bad",
    [
        ValueError("secret"),
        SystemExit(1),
        "text",
        Content(),
        user_text("  "),
        Content(parts=[Part(function_call=call("f"))]),
    ],
    ids=["error", "exit", "no content", "empty", "blank", "a call"],
)
async def test_rest_44_a_summariser_that_fails_changes_nothing_for_the_caller(serve: Serve, scripted: Any, bad: Any):
    agent, _ = scripted("a1", "a2", "a3")
    notes = Notes(bad, bad)
    async with serve(agent, compaction=every(1, summariser=notes)) as talk:
        assert texts(await talk.run("q1")) == ["a1"]
        await quiet(talk)
        assert texts(await talk.sse("q2")) == ["a2"]
        await quiet(talk)
        assert stored_summaries(await talk.stored()) == []
        assert texts(await talk.run("q3")) == ["a3"]
        await quiet(talk)
        assert stored_summaries(await talk.stored()) == ["S3"]


async def test_rest_44_a_summariser_that_takes_too_long_is_stopped(scripted: Any):
    agent, _ = scripted("a1", "a2")
    slow = Slow()
    app = App(agent, compaction=every(1, summariser=Notes(slow), timeout_s=0.01))
    assert (await app.ask("q1", session="s1")).outcome.status == "finished"
    assert slow.stopped
    assert await compactions(app) == []


async def test_core_3_12_callers_do_not_wait_for_the_summary_but_the_next_message_does(serve: Serve, scripted: Any):
    agent, model = scripted("a1", "a2")
    slow = Slow()
    async with serve(agent, compaction=every(1, summariser=Notes(slow))) as talk:
        assert texts(await talk.sse("q1")) == ["a1"]
        await slow.begun.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.run, "q2")
            await anyio.wait_all_tasks_blocked()
            assert len(model.requests) == 1
            slow.go.set()
        assert model.prompt() == ["user: S", "user: q2"]


@pytest.mark.parametrize("on_busy", ["reject", "interrupt"])
async def test_core_3_12_a_session_that_is_being_summarised_is_not_busy(serve: Serve, scripted: Any, on_busy: Any):
    agent, model = scripted("a1", "a2")
    slow = Slow()
    limits = Limits(on_busy=on_busy)
    async with serve(agent, compaction=every(1, summariser=Notes(slow)), limits=limits) as talk:
        run = (await talk.client.post("/run", json=talk.body("q1"))).headers["x-run-id"]
        await slow.begun.wait()
        status = (await talk.client.get(f"/runs/{run}")).json()["status"]
        cancelled = await talk.client.post(f"/runs/{run}:cancel")
        assert (status, cancelled.status) == ("finished", 409)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.run, "q2")
            await anyio.wait_all_tasks_blocked()
            assert len(model.requests) == 1
            slow.go.set()
        assert model.prompt() == ["user: S", "user: q2"]


async def test_core_3_12_a_shutdown_does_not_wait_longer_than_it_may(serve: Serve, scripted: Any):
    agent, _ = scripted("a1")
    slow = Slow()
    config = every(1, summariser=Notes(slow), timeout_s=10_000)
    with anyio.fail_after(60):
        async with serve(agent, compaction=config, limits=Limits(shutdown_s=0)) as talk:
            events = await talk.run("q1")
            await slow.begun.wait()
            run = await talk.server.runs.get(events[0]["invocationId"])
    assert slow.stopped
    assert run is not None and run.outcome is not None and run.outcome.status == "finished"


async def test_core_3_12_the_summary_of_a_session_that_was_taken_over_is_dropped(scripted: Any):
    agent, _ = scripted("a1", "a2")
    app: App

    async def taken_over() -> Content:
        other = await app.stores.sessions.get(KEY)
        await app.stores.sessions.append(other, Event(id="x", author="user", content=user_text("mine")), claim=True)
        return user_text("S")

    app = App(agent, compaction=every(1, summariser=Notes(taken_over)))
    assert (await app.ask("q1", session="s1")).outcome.status == "finished"
    assert await compactions(app) == []


async def test_core_3_12_a_run_that_failed_is_not_followed_by_a_summary(scripted: Any):
    agent, _ = scripted(ValueError("down"), "a2")
    notes = Notes()
    app = App(agent, compaction=every(1, summariser=notes))
    with pytest.raises(ValueError, match="down"):
        await app.ask("q1", session="s1")
    assert notes.told == []
    await app.ask("q2", session="s1")
    assert notes.told == [["q1", "q2", "a2"]]


# ---- nobody takes a summary for an answer


async def test_core_3_12_a_summary_is_never_an_answer(serve: Serve, scripted: Any):
    class Watch(Plugin):
        seen: list[str] = []

        async def on_event(self, ctx: Any, event: Event) -> None:
            self.seen.append(event.author)

    agent, _ = scripted("a1", "a2")
    async with serve(agent, compaction=every(1, summariser=Notes()), plugins=[Watch()]) as talk:
        assert texts(await talk.run("q1")) == ["a1"]
        await quiet(talk)
        assert texts(await talk.sse("q2")) == ["a2"]
        await quiet(talk)
        session = await talk.stored()
        assert texts(session["events"]) == ["q1", "a1", "q2", "a2"]
        assert stored_summaries(session) == ["S1", "S2"]
        assert Watch.seen == ["app", "app"]


async def test_core_3_12_a_run_with_a_summary_has_ended(serve: Serve, scripted: Any):
    agent, _ = scripted("a1")
    async with serve(agent, compaction=every(1, summariser=Notes())) as talk:
        events = await talk.run("q1")
        await quiet(talk)
        again = await talk.client.post("/run", json=talk.body(None, invocationId=events[0]["invocationId"]))
        assert (again.status, "nothing to resume" in again.text) == (409, True)


async def test_core_3_12_a_conversation_with_a_sub_agent_goes_on_after_a_summary(scripted: Any):
    child_model = ScriptedModel("I am the child", "still the child")
    child = LlmAgent(name="child", model=child_model)
    root, _ = scripted(call("transfer_to_agent", {"agent_name": "child"}), sub_agents=[child])
    app = App(root, compaction=every(1, summariser=Notes(), timeout_s=5))
    await app.ask(LONG, session="s1")
    assert (await app.ask("and?", session="s1")).text == "still the child"
    assert child_model.prompt() == ["user: S1", "user: and?"]


# ---- storage


async def test_FR_053_a_summary_is_used_after_a_restart(tmp_path: Path, scripted: Any):
    url = f"sqlite:///{tmp_path / 'data.db'}"
    agent, model = scripted("a1", "a2")
    async with App(agent, stores=url, compaction=every(2, summariser=Notes())) as app:
        await app.ask("q1", session="s1")
        await app.ask("q2", session="s1")
    model.steps[:] = ["a3", "a4"]
    notes = Notes()
    async with App(agent, stores=url, compaction=every(2, 1, summariser=notes)) as app:
        await app.ask("q3", session="s1")
        assert model.prompt() == ["user: S1", "user: q3"]
        (stored,) = await compactions(app)
        assert isinstance(stored.actions.compaction, Compaction)
        await app.ask("q4", session="s1")
    assert notes.told == [["q2", "a2", "q3", "a3", "q4", "a4"]]


# ---- open calls


@pytest.mark.parametrize("interim", [None, "working on it"])
async def test_FR_130_a_pending_call_is_never_summarised(serve: Serve, scripted: Any, interim: str | None):
    ran: list[str] = []

    def approve(what: str) -> str | None:
        """Ask a human."""
        ran.append(what)
        return interim

    agent, model = scripted(
        "hello",
        call("approve", {"what": "delete"}, "c1"),
        *(["it waits"] if interim else []),
        *[f"a{n}" for n in range(6)],
        "deleted",
        tools=[make_tool(approve, long_running=True)],
    )
    async with serve(agent, compaction=every(3, 1, summariser=Notes())) as talk:
        for message in ("hi", "delete it", *[f"q{n}" for n in range(6)]):
            await talk.run(message)
            await quiet(talk)
        assert texts(await talk.run(answer("c1", "approve", {"ok": True}))) == ["deleted"]
        await quiet(talk)
        assert ran == ["delete"]
        prompt = model.prompt()
        at = prompt.index("model: call approve({'what': 'delete'})")
        assert prompt[at + 1] == "user: result approve {'ok': True}"
        assert prompt[0] == "user: S1" and "user: S2" in prompt, "all around it is summarised"
        model.steps[:] = ["b1", "b2", "b3"]
        for message in ("q7", "q8", "q9"):
            await talk.run(message)
            await quiet(talk)
        model.steps[:] = ["end"]
        await talk.run("q10")
        assert not any("approve" in line for line in model.prompt()), "now it may go"


async def test_FR_130_a_pending_approval_is_never_summarised(serve: Serve, scripted: Any):
    wiped: list[str] = []

    def wipe(disk: str) -> str:
        """Wipe a disk."""
        wiped.append(disk)
        return "wiped"

    agent, model = scripted(
        "hello",
        call("wipe", {"disk": "c"}, "c1"),
        *[f"a{n}" for n in range(6)],
        "gone",
        tools=[make_tool(wipe, require_confirmation=True)],
    )
    async with serve(agent, compaction=every(3, 1, summariser=Notes())) as talk:
        asked: list[Any] = []
        for message in ("hi", "wipe it", *[f"q{n}" for n in range(6)]):
            asked += requests(await talk.run(message))
            await quiet(talk)
        assert wiped == [] and len(asked) == 1
        assert texts(await talk.run(approve(asked[0]))) == ["gone"]
        assert wiped == ["c"]
        prompt = model.prompt()
        assert prompt[prompt.index("model: call wipe({'disk': 'c'})") + 1] == "user: result wipe {'result': 'wiped'}"
        assert prompt[0] == "user: S1", "all around it is summarised"


async def test_FR_130_an_answer_in_the_same_session_from_python(scripted: Any):
    def approve() -> None:
        """Ask a human."""

    agent, model = scripted(call("approve", {}, "c1"), "ok", tools=[make_tool(approve, long_running=True)])
    notes = Notes()
    app = App(agent, compaction=keeping(0, 1, summariser=notes))
    assert (await app.ask("q1", session="s1")).outcome.status == "paused"
    assert notes.told == []
    await app.ask(said("c1", "approve", {"ok": True}), session="s1")
    assert notes.told == [["q1", "-", "-", "ok"]]
    model.check()


# ---- settings


async def test_core_3_12_without_it_nothing_is_done(scripted: Any):
    agent, model = scripted(*[counted("a", 10**6) for _ in range(5)])
    app = App(agent)
    for _ in range(5):
        await app.ask("q", session="s1")
    assert len((await app.stores.sessions.get(KEY)).events) == 10
    assert len(model.requests) == 5
    model.check()


async def nothing(ctx: Any) -> None:
    return None


def test_core_3_12_it_is_checked_against_all_agents_at_construction():
    mute = FunctionAgent(name="mute", function=nothing)
    wordy = LlmAgent(name="wordy", model="demo")
    below = SequentialAgent(name="steps", sub_agents=[LlmAgent(name="inner", model="demo")])
    with pytest.raises(ConfigError, match=r"'mute'.*set model or summariser"):
        App(mute, compaction=every(1))
    with pytest.raises(ConfigError, match="'mute'"):
        App([wordy, mute], compaction=every(1))
    with pytest.raises(ConfigError, match="'other', but the apps are: mute, wordy"):
        App([mute, wordy], compaction={"other": every(1)})
    with pytest.raises(ConfigError, match="nonsense"):
        App(mute, compaction=every(1, model="nonsense/nowhere"))
    App(below, compaction=every(1))
    App([mute, wordy], compaction={"wordy": every(1)})
    App(mute, compaction=every(1, summariser=Notes()))
    App(mute, compaction=every(1, model="demo"))


async def test_core_3_12_apps_may_differ():
    def app_of(name: str) -> LlmAgent:
        return LlmAgent(name=name, model=ScriptedModel("a1"))

    one, two = Notes(), Notes()
    app = App(
        [app_of("x"), app_of("y"), app_of("z")],
        compaction={"x": every(1, summariser=one), "y": every(2, summariser=two)},
    )
    for name in "xyz":
        await app.ask("q1", app=name, session="s1")
    assert (one.told, two.told) == ([["q1", "a1"]], [])


# ---- only the last invocations


async def test_core_3_12_the_last_invocations_only(scripted: Any):
    def look() -> str:
        """Look."""
        return "seen"

    agent, model = scripted("a1", call("look", {}, "c1"), "a2", "a3", tools=[look], before_model=last_invocations(2))
    app = App(agent)
    for n in (1, 2, 3):
        await app.ask(f"q{n}", session="s1")
    assert model.prompt(0) == ["user: q1"]
    assert model.prompt() == [
        "user: q2",
        "model: call look({})",
        "user: result look {'result': 'seen'}",
        "model: a2",
        "user: q3",
    ]
    assert [e.text for e in (await app.stores.sessions.get(KEY)).events if e.text] == [
        "q1",
        "a1",
        "q2",
        "a2",
        "q3",
        "a3",
    ]


async def test_core_3_12_the_last_invocation_may_be_a_plugins_choice(scripted: Any):
    class Last(Plugin):
        def __init__(self, count: int) -> None:
            self._edit: Callable[[Any, ModelRequest], Awaitable[None]] = last_invocations(count)

        async def before_model(self, ctx: Any, request: ModelRequest) -> None:
            await self._edit(ctx, request)

    agent, model = scripted("a1", "a2")
    app = App(agent, plugins=[Last(1)])
    await app.ask("q1", session="s1")
    await app.ask("q2", session="s1")
    assert model.prompt() == ["user: q2"]
    with pytest.raises(ConfigError, match="above zero"):
        last_invocations(0)


async def test_core_3_12_what_other_agents_did_begins_no_invocation():
    first = LlmAgent(name="first", model=ScriptedModel("draft one", "draft two"))
    model = ScriptedModel("final one", "final two")
    second = LlmAgent(name="second", model=model, before_model=last_invocations(1))
    app = App(SequentialAgent(name="app", sub_agents=[first, second]))
    await app.ask("q1", session="s1")
    await app.ask("q2", session="s1")
    prompt = model.prompt()
    assert prompt[0] == "user: q2" and "draft two" in prompt[1] and len(prompt) == 2


async def test_core_3_12_an_answer_to_an_old_call_keeps_that_call(scripted: Any):
    def approve() -> None:
        """Ask a human."""

    agent, model = scripted(
        "a0",
        call("approve", {}, "c1"),
        "a1",
        "ok",
        tools=[make_tool(approve, long_running=True)],
        before_model=last_invocations(1),
    )
    app = App(agent)
    await app.ask("q0", session="s1")
    await app.ask("q1", session="s1")
    await app.ask("q2", session="s1")
    await app.ask(said("c1", "approve", {"ok": True}), session="s1")
    called = [c.id for content in model.requests[-1].contents for c in content.calls]
    answered = [r.id for content in model.requests[-1].contents for r in content.responses]
    assert called == answered
