"""UsagePlugin: tokens and cost per run and per model, told once, in bounded memory."""

import logging
from typing import Any

import pytest
from msgspec import structs

from polyport import App, CallbackContext, Content, LlmAgent, ModelResponse, Part, SequentialAgent
from polyport.data.content import FunctionCall, model_text
from polyport.data.model import Usage
from polyport.errors import ConfigError, ModelError
from polyport.plugins import Price, RunUsage, UsagePlugin, UsageTotals
from polyport.testing import ScriptedModel, call
from polyport.testing.live import LiveDouble
from support.live import staged

PRICES = {"cheap": Price(input=1.0, output=4.0, cached_input=0.25), "dear-001": Price(input=10.0, output=30.0)}


def said(text: str, version: str = "", **tokens: int) -> ModelResponse:
    usage = Usage(**{f"{key}_token_count": value for key, value in tokens.items()})
    return ModelResponse(content=model_text(text), usage_metadata=usage, model_version=version)


def tokens(prompt: int, candidates: int) -> Usage:
    return Usage(prompt_token_count=prompt, candidates_token_count=candidates)


def team() -> SequentialAgent:
    first = ScriptedModel(
        said("a", prompt=1000, candidates=100, cached_content=400, thoughts=50, total=1150), name="cheap"
    )
    second = ScriptedModel(said("b", "dear-001", prompt=2000, candidates=10), name="dear")
    third = ScriptedModel(said("c", prompt=7, candidates=3, total=10), "d", name="free")
    agents = [LlmAgent(name=f"a{n}", model=m) for n, m in enumerate((first, second, third, third))]
    return SequentialAgent(name="team", sub_agents=agents)


async def test_tokens_and_cost_of_a_run_over_all_agents_and_by_model(caplog: pytest.LogCaptureFixture):
    told: list[tuple[str, RunUsage]] = []
    plugin = UsagePlugin(PRICES, on_total=lambda ctx, totals: told.append((ctx.user_id, totals)))
    caplog.set_level(logging.INFO, "polyport.usage")
    got = await App(team(), plugins=[plugin]).ask("hi", user="ann")
    run_id = got.events[0].invocation_id
    totals = plugin.totals(run_id)
    assert totals is not None
    assert (totals.calls, totals.failed_calls, totals.unpriced_calls) == (4, 0, 2)
    assert (totals.input_tokens, totals.cached_tokens) == (3007, 400)
    assert (totals.output_tokens, totals.thought_tokens, totals.total_tokens) == (163, 50, 1150 + 2010 + 10)
    cheap = (600 * 1.0 + 400 * 0.25 + 150 * 4.0) / 1e6
    dear = (2000 * 10.0 + 10 * 30.0) / 1e6
    assert totals.cost == pytest.approx(cheap + dear)
    assert list(totals.models) == ["cheap", "dear-001", "free"]
    assert totals.models["cheap"].cost == pytest.approx(cheap)
    assert totals.models["free"] == UsageTotals(
        calls=2, input_tokens=7, output_tokens=3, total_tokens=10, unpriced_calls=2
    )
    assert told == [("ann", totals)]
    lines = [r.getMessage() for r in caplog.records if r.name == "polyport.usage"]
    assert lines == [
        f"run {run_id}: 4 model calls (0 failed), 3007 tokens in (400 cached), 163 out, cost 0.021600 without 2 calls of "
        "unknown price"
    ]


async def test_a_failed_run_is_told_too_and_failed_calls_are_counted(scripted: Any):
    told: list[RunUsage] = []

    async def on_total(ctx: CallbackContext, totals: RunUsage) -> None:
        told.append(totals)

    agent, _ = scripted(said("x", prompt=5), ModelError("down"))
    plugins = [UsagePlugin(on_total=on_total)]
    async with App(
        SequentialAgent(name="twice", sub_agents=[agent, LlmAgent(name="b", model=agent.model)]), plugins=plugins
    ) as app:
        with pytest.raises(ModelError):
            await app.ask("hi")
    assert [(t.calls, t.failed_calls, t.input_tokens) for t in told] == [(1, 1, 5)]


async def test_every_run_counts_for_itself_and_one_that_asks_no_model_is_not_told(scripted: Any):
    told: list[int] = []
    plugin = UsagePlugin(on_total=lambda ctx, totals: told.append(totals.input_tokens))
    agent, _ = scripted(
        said("x", prompt=1),
        said("y", prompt=2),
        before_model=lambda c, r: said("early", prompt=9) if c.state.get("e") else None,
    )
    async with App(agent, plugins=[plugin]) as app:
        await app.ask("hi")
        early = await app.ask("hi", state={"e": True})
        await app.ask("hi", session="other")
    assert told == [1, 2]
    assert plugin.totals(early.events[0].invocation_id) is None


async def test_the_turns_of_a_live_session_count_also_what_comes_late_and_when_the_client_just_leaves():
    told: list[RunUsage] = []
    plugin = UsagePlugin(PRICES, on_total=lambda ctx, totals: told.append(totals))
    model = LiveDouble(said("from the child", prompt=50, candidates=5), name="cheap")
    child = LlmAgent(name="child", model=model, description="A child.", mode="single_turn")
    async with staged(model=model, plugins=[plugin], sub_agents=[child]) as stage:
        async with stage.live() as (client, line):
            await line.say(content=model_text("a"))
            await line.say(turn_complete=True, usage_metadata=tokens(1000, 100))
            await line.say(usage_metadata=tokens(10, 1))  # behind the end of the turn
            await line.say(calls=[FunctionCall(id="c1", name="child", args={"request": "hi"})])
            await line.heard()
            await line.say(turn_complete=True, usage_metadata=tokens(200, 2), model_version="dear-001")
            await line.say(usage_metadata=tokens(7, 3))
            await client.until(lambda event: (event.get("usageMetadata") or {}).get("promptTokenCount") == 200)
        (run,) = told
        assert (run.calls, run.input_tokens, run.output_tokens) == (5, 1267, 111)
        assert (run.models["cheap"].input_tokens, run.models["dear-001"].input_tokens) == (1067, 200)
        assert run.unpriced_calls == 0
        shown = [e["usageMetadata"]["promptTokenCount"] for e in await stage.stored() if e.get("usageMetadata")]
        assert sorted(shown) == [7, 10, 50, 200, 1000]


async def test_memory_is_bounded(scripted: Any):
    plugin = UsagePlugin(keep_runs=2)
    agent, _ = scripted(*[said("x", prompt=n) for n in (1, 2, 3)])
    async with App(agent, plugins=[plugin]) as app:
        runs = [(await app.ask("hi")).events[0].invocation_id for _ in range(3)]
    known = [plugin.totals(run) for run in runs]
    assert [t and t.input_tokens for t in known] == [None, 2, 3]
    with pytest.raises(ConfigError, match="keep_runs of UsagePlugin is 0"):
        UsagePlugin(keep_runs=0)


async def test_a_run_that_goes_on_is_not_forgotten_for_one_that_has_ended(scripted: Any):
    plugin = UsagePlugin(keep_runs=2)
    runs: list[str] = []

    async def other() -> str:
        """Run something else meanwhile."""
        runs.append((await app.ask("hi", session="meanwhile")).events[0].invocation_id)
        return "ok"

    first = structs.replace(said("", prompt=1), content=Content(parts=[Part(function_call=call("other", id="c1"))]))
    agent, _ = scripted(first, said("x", prompt=10), said("y", prompt=2), said("z", prompt=4), tools=[other])
    async with App(agent, plugins=[plugin]) as app:
        runs += [(await app.ask("hi", session=s)).events[0].invocation_id for s in ("long", "last")]
    known = [plugin.totals(run) for run in runs]
    assert [t and t.input_tokens for t in known] == [None, 3, 4]


def test_prices_without_a_cache_price_count_cached_tokens_as_input():
    usage = Usage(prompt_token_count=100, cached_content_token_count=40, tool_use_prompt_token_count=10)
    assert Price(input=2.0, output=1.0).of(usage) == pytest.approx(110 * 2.0 / 1e6)
    assert Price(input=2.0, output=1.0, cached_input=0.0).of(usage) == pytest.approx(70 * 2.0 / 1e6)
