"""RecordReplay: a run is recorded once and replayed strictly, without the model and the tools."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs

from polyport import (
    App,
    CallbackContext,
    LlmAgent,
    ModelRequest,
    ParallelAgent,
    Part,
    Reply,
    RunConfig,
    RunContext,
    ToolContext,
)
from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.model import ModelResponse, Usage
from polyport.errors import BadRequest, ConfigError, ModelError, RunCancelled
from polyport.plugins import RecordReplay, ReplayMismatch
from polyport.testing import ScriptedModel, call, chunks


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "talk.jsonl"


def agent_of(*steps: Any, tools: Any = (), name: str = "app", **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(*steps), tools=tools, **fields)


async def ask(agent: Any, plugin: RecordReplay, *messages: str, **options: Any) -> list[Reply]:
    app = App(agent, plugins=[plugin])
    return [await app.ask(m, session="s1", **options) for m in messages or ("hi",)]


def shape(events: list[Event]) -> list[Any]:
    """What two runs of the same talk have in common."""
    return [(e.author, _no_ids(e.content), e.actions, e.usage_metadata, e.error_code) for e in events]


def _no_ids(content: Content | None) -> Any:
    parts: list[Any] = []
    for part in content.parts if content else ():
        said = part.function_call or part.function_response
        parts.append(structs.replace(said, id="") if said is not None else part)
    return parts


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def add(a: int, b: int, ctx: ToolContext) -> int:
    """Add."""
    ctx.state["last"] = a + b
    return a + b


async def test_a_run_is_replayed_without_model_and_tools(path: Path):
    calls = 0

    def counted(a: int, b: int, ctx: ToolContext) -> int:
        """Add."""
        nonlocal calls
        calls += 1
        ctx.state["last"] = a + b
        return a + b

    steps = [
        call("counted", {"a": 1, "b": 2}),
        ModelResponse(
            content=Content(role="model", parts=[Part(text="It is 3", thought_signature=b"\x00\xff")]),
            usage_metadata=Usage(prompt_token_count=5),
        ),
        "Bye {last}",
    ]
    fields = {"tools": [counted], "instruction": "The last sum was {last?}."}
    recorded = await ask(agent_of(*steps, **fields), RecordReplay(path), "1 + 2?", "Bye")
    assert calls == 1
    plugin = RecordReplay(path)
    assert plugin.replays
    replayed = await ask(agent_of(**fields), plugin, "1 + 2?", "Bye")
    assert [shape(r.events) for r in replayed] == [shape(r.events) for r in recorded]
    assert replayed[0].events[1].actions.state_delta == {"last": 3}, "what the tool wrote is written again"
    assert calls == 1
    plugin.check()


async def test_a_request_that_differs_fails_with_a_readable_difference(path: Path):
    await ask(agent_of("hello", instruction="Be kind.\nBe short."), RecordReplay(path), "Hi there")
    plugin = RecordReplay(path)
    with pytest.raises(ReplayMismatch) as caught:
        await ask(agent_of(instruction="Be kind.\nBe short."), plugin, "Hi you")
    text = str(caught.value)
    assert text.startswith(
        "a model call by agent 'app' differs from the recording talk.jsonl:\n--- recorded\n+++ asked"
    )
    assert '-     "text": "Hi there"' in text
    assert '+     "text": "Hi you"' in text
    assert "Be kind" not in text, "what is the same is not shown"
    assert text.endswith("record it again.")
    with pytest.raises(ReplayMismatch, match="Hi you"):
        plugin.check()


async def test_a_question_too_many_and_one_too_few_fail(path: Path):
    await ask(agent_of("one", "two"), RecordReplay(path), "a", "b")
    plugin = RecordReplay(path)
    await ask(agent_of(), plugin, "a")
    with pytest.raises(
        ReplayMismatch, match="1 recorded exchanges were not asked for; next: a model call by agent 'app'"
    ):
        plugin.check()
    with pytest.raises(ReplayMismatch, match="which has no more of them"):
        await ask(agent_of(), RecordReplay(path), "a", "b", "c")


async def test_another_tool_call_ends_the_run_though_errors_of_tools_do_not(path: Path):
    await ask(agent_of(call("add", {"a": 1, "b": 2}, "c1"), "3", tools=[add]), RecordReplay(path))

    async def before(ctx: ToolContext, tool: Any, args: dict[str, Any]) -> None:
        args["b"] = 5

    plugin = RecordReplay(path)
    with pytest.raises(
        ReplayMismatch, match=r"(?s)a call of tool 'add' by agent 'app' differs.*- \"b\": 2.*\+ \"b\": 5"
    ):
        await ask(agent_of(tools=[add], before_tool=before), plugin)
    with pytest.raises(ReplayMismatch, match="a call of tool 'add'"):
        plugin.check()
    assert not plugin._problems, "nothing is kept for a run that has ended"


async def test_streamed_pieces_are_replayed(path: Path):
    config = RunConfig(streaming=True)
    pieces: list[list[str]] = []
    for agent in (agent_of(chunks("He", "llo")), agent_of()):
        async with App(agent, plugins=[RecordReplay(path)]) as app:
            pieces.append([e.text for e in [e async for e in app.stream("hi", session="s1", config=config)]])
    assert pieces == [["He", "llo", "Hello"]] * 2
    assert (await ask(agent_of(), RecordReplay(path)))[0].text == "Hello", "also for who does not stream"


@pytest.mark.parametrize(
    "error", [ModelError("slow down", http_status=429, code="RATE", retry_after_s=3.0), BadRequest("no"), KeyError("k")]
)
async def test_errors_of_the_model_are_replayed(path: Path, error: Exception):
    found: list[Exception] = []
    for agent in (agent_of(error), agent_of()):
        with pytest.raises(Exception) as caught:
            await ask(agent, RecordReplay(path))
        found.append(caught.value)
    first, second = found
    assert type(first).__name__ == type(second).__name__
    assert str(first).strip("'") == str(second).strip("'")
    if isinstance(first, ModelError):
        assert vars(first) == vars(second)


@pytest.mark.parametrize("error", [ValueError("x"), BadRequest("x"), ModelError("x"), RuntimeError(), SystemExit(3)])
async def test_errors_of_tools_read_the_same_to_the_model(path: Path, error: BaseException):
    def bad() -> str:
        """Fail."""
        raise error

    recorded = await ask(agent_of(call("bad", id="c1"), "sorry", tools=[bad]), RecordReplay(path))
    plugin = RecordReplay(path)
    replayed = await ask(agent_of(tools=[make_bad()]), plugin)
    assert recorded[0].events[1].responses == replayed[0].events[1].responses
    plugin.check()


def make_bad() -> Callable[..., str]:
    def bad() -> str:
        """Fail."""
        raise AssertionError("a tool was called in a replay")

    return bad


async def test_made_ids_and_masked_texts_are_not_compared_and_headers_not_stored(path: Path):
    async def before(ctx: CallbackContext, request: ModelRequest) -> None:
        request.config = structs.replace(request.config, headers={"authorization": f"Bearer {ctx.session.key.id}"})
        request.system = f"Run {ctx.invocation_id}, artifact_{ctx.invocation_id}_0. Today is {next(days)}. Be kind."

    days = iter(["2025-01-01", "2026-02-02", "2027-03-03"])
    mask = [r"\d{4}-\d\d-\d\d"]
    await ask(agent_of("ok", before_model=before), RecordReplay(path, mask=mask))
    kept = path.read_text(encoding="utf-8")
    assert "Bearer" not in kept and "2025" not in kept
    assert "Run id-1, artifact_id-1_0. Today is ***. Be kind." in kept
    plugin = RecordReplay(path, mask=mask)
    await ask(agent_of(before_model=before), plugin)
    plugin.check()
    with pytest.raises(ReplayMismatch, match=r"2027-03-03"):
        await ask(agent_of(before_model=before), RecordReplay(path))


async def test_tools_may_be_carried_out_both_times(path: Path):
    agent = {"tools": [add]}
    await ask(agent_of(call("add", {"a": 1, "b": 2}, "c1"), "3", **agent), RecordReplay(path, tools=False))
    assert [line.get("kind") for line in lines(path)] == [None, "model", "model"]
    plugin = RecordReplay(path, tools=False)
    got = await ask(agent_of(**agent), plugin)
    assert got[0].events[1].responses[0].response == {"result": 3}
    plugin.check()


async def test_calls_side_by_side_may_come_in_any_order(path: Path):
    def tree(*steps: Any) -> ParallelAgent:
        models = [ScriptedModel(*steps) for _ in "ab"]
        agents = [LlmAgent(name=n, model=m, tools=[add]) for n, m in zip("ab", models, strict=True)]
        return ParallelAgent(name="both", sub_agents=agents)

    calls = [call("add", {"a": 1, "b": 1}, "c1"), call("add", {"a": 2, "b": 2}, "c2")]
    await ask(tree(calls, "end"), RecordReplay(path))
    kept = lines(path)
    head, *exchanges = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([head, *reversed(exchanges)]) + "\n", encoding="utf-8")
    assert len(kept) == 1 + 2 * 4
    plugin = RecordReplay(path)
    got = await ask(tree(), plugin)
    found = [r.response for e in got[0].events for r in e.responses]
    assert found == [{"result": 2}, {"result": 4}] * 2
    plugin.check()


async def test_what_a_tool_asks_of_a_model_is_part_of_its_result(path: Path):
    def agent(*steps: Any, inner: ScriptedModel) -> LlmAgent:
        sub = LlmAgent(name="sub", model=inner)

        async def helper(ctx: ToolContext) -> str:
            """Ask another agent."""
            await ctx.scope.run_agent(RunContext(ctx.scope, sub), sub)
            return ctx.session.events[-1].text

        return agent_of(*steps, tools=[helper])

    inner = ScriptedModel("inner answer")
    await ask(agent(call("helper", id="c1"), "end", inner=inner), RecordReplay(path))
    inner.check()
    found = [(line.get("kind"), line.get("agent")) for line in lines(path)[1:]]
    assert found == [("model", "app"), ("tool", "app"), ("model", "app")]
    assert lines(path)[2]["response"] == {"result": "inner answer"}


async def test_modes(path: Path):
    assert not RecordReplay(path).replays
    with pytest.raises(ConfigError, match=r"talk.jsonl cannot be read \(FileNotFoundError\); record it first"):
        RecordReplay(path, "replay")
    for answer in ("one", "two"):
        await ask(agent_of(answer), RecordReplay(path, "record"))
        assert len(lines(path)) == 2, "recording writes the file anew"
    assert (await ask(agent_of(), RecordReplay(path, "replay")))[0].text == "two"
    with pytest.raises(ConfigError, match="mode of RecordReplay is 'rewind'"):
        RecordReplay(path, "rewind")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="no regular expression"):
        RecordReplay(path, mask=["("])


async def test_a_damaged_file_is_named_with_its_line(path: Path):
    path.parent.mkdir()
    path.write_text('{"polyport":"recording","version":9}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="no recording of this version"):
        RecordReplay(path)
    path.write_text('{"polyport":"recording","version":1}\n{"kind":"model"', encoding="utf-8")
    with pytest.raises(ConfigError, match="line 2 of the recording"):
        RecordReplay(path)


async def test_a_call_that_was_cancelled_is_not_recorded(path: Path):
    asked = anyio.Event()

    async def hangs(request: ModelRequest, on_partial: Any) -> None:
        asked.set()
        await anyio.sleep_forever()

    app = App(agent_of("one", hangs), plugins=[RecordReplay(path)])
    async with app, anyio.create_task_group() as group:
        await app.ask("a", session="s1")

        async def second() -> None:
            with pytest.raises(RunCancelled):
                await app.ask("b", session="s1")

        group.start_soon(second)
        await asked.wait()
        await app.runs.cancel(next(iter(app.runs._live)), "enough")
    assert [line.get("response", {}).get("content") for line in lines(path)[1:]] == [
        {"parts": [{"text": "one"}], "role": "model"}
    ]
