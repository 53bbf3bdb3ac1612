"""RetryReflectPlugin: what the model hears of failing tools, what is counted, and when it is forgotten (spec core 7)."""

from typing import Any

import pytest

from polyport import App, LlmAgent, ParallelAgent, Plugin, ToolContext
from polyport.errors import BadRequest, ConfigError, ModelError
from polyport.plugins import RetryReflectPlugin
from polyport.plugins.retry_reflect import REFLECTION
from polyport.testing import ScriptedModel, call


class Flaky:
    """A tool that fails when told so."""

    def __init__(self) -> None:
        self.calls = 0

    def work(self, ok: bool = False) -> str:
        """Work."""
        self.calls += 1
        if not ok:
            raise ValueError("no luck")
        return "fine"


def flaky() -> list[Any]:
    return [Flaky().work]


def told(got: Any) -> list[Any]:
    """What the model heard of each call: the count for a reflection, the whole response else."""
    heard = [r.response for e in got.events for r in e.responses]
    return [h["retry_count"] if h.get("response_type") == REFLECTION else h for h in heard]


async def test_core_120_a_failure_is_answered_with_guidance(scripted: Any):
    agent, _ = scripted(call("work"), "sorry", tools=flaky())
    got = await App(agent, plugins=[RetryReflectPlugin()]).ask("hi")
    response = got.events[1].responses[0].response
    assert response is not None
    assert list(response) == ["response_type", "error_type", "error_details", "retry_count", "reflection_guidance"]
    assert (response["error_type"], response["error_details"], response["retry_count"]) == ("ValueError", "no luck", 1)
    assert "failure 1 of at most 3" in response["reflection_guidance"]


async def test_core_120_counts_up_to_the_limit_then_says_stop(scripted: Any):
    agent, _ = scripted(*[call("work")] * 5, "end", tools=flaky())
    got = await App(agent, plugins=[RetryReflectPlugin(max_retries=3)]).ask("hi")
    assert told(got) == [1, 2, 3, 4, 5]
    guidance = [r.response["reflection_guidance"] for e in got.events for r in e.responses if r.response]
    assert ["Do not call it again" in g for g in guidance] == [False, False, False, True, True]
    assert "failed more than 3 times" in guidance[3]


async def test_core_120_error_when_exceeded_lets_the_tools_own_error_stand(scripted: Any):
    agent, _ = scripted(*[call("work")] * 3, "end", tools=flaky())
    got = await App(agent, plugins=[RetryReflectPlugin(1, error_when_exceeded=True)]).ask("hi")
    error = {"error": "ValueError: no luck"}
    assert told(got) == [1, error, error], "an error that stands is no success: the count goes on"


async def test_core_120_zero_retries_is_exceeded_at_once(scripted: Any):
    agent, _ = scripted(call("work"), "end", tools=flaky())
    got = await App(agent, plugins=[RetryReflectPlugin(0)]).ask("hi")
    response = got.events[1].responses[0].response
    assert response is not None
    assert response["retry_count"] == 1
    assert "Do not call it again" in response["reflection_guidance"]
    agent, _ = scripted(call("work"), "end", tools=flaky())
    got = await App(agent, plugins=[RetryReflectPlugin(0, error_when_exceeded=True)]).ask("hi")
    assert told(got) == [{"error": "ValueError: no luck"}]


async def test_core_120_a_success_sets_the_count_back_and_its_own_reply_does_not(scripted: Any):
    good = call("work", {"ok": True})
    agent, _ = scripted(call("work"), call("work"), good, call("work"), "end", tools=flaky())
    got = await App(agent, plugins=[RetryReflectPlugin()]).ask("hi")
    assert told(got) == [1, 2, {"result": "fine"}, 1]


async def test_core_120_every_tool_is_counted_by_itself(scripted: Any):
    def other() -> str:
        """Fail, too."""
        raise BadRequest("other")

    agent, _ = scripted(call("work"), call("other"), call("work"), call("nothing"), "end", tools=[*flaky(), other])
    got = await App(agent, plugins=[RetryReflectPlugin()]).ask("hi")
    assert told(got) == [1, 1, 2, 1]


async def test_core_120_calls_side_by_side_are_all_counted(scripted: Any):
    calls = [call("work", id=f"c{n}") for n in range(3)]
    agent, _ = scripted(calls, call("work", {"ok": True}), call("work"), "end", tools=flaky())
    got = await App(agent, plugins=[RetryReflectPlugin()]).ask("hi")
    assert sorted(told(got)[:3]) == [1, 2, 3]
    assert told(got)[3:] == [{"result": "fine"}, 1]


async def test_core_120_scopes_an_invocation_counts_for_itself_and_global_for_all(scripted: Any):
    plugin = RetryReflectPlugin(scope="invocation")
    agent, _ = scripted(*[call("work"), "end"] * 2, tools=flaky())
    async with App(agent, plugins=[plugin]) as app:
        assert told(await app.ask("hi")) == told(await app.ask("hi")) == [1]
    agent, _ = scripted(*[call("work"), "end"] * 3, call("work", {"ok": True}), call("work"), "end", tools=flaky())
    async with App(agent, plugins=[RetryReflectPlugin(scope="global")]) as app:
        assert [told(await app.ask("hi", user=u)) for u in ("u1", "u2", "u1")] == [[1], [2], [3]]
        assert told(await app.ask("hi")) == [{"result": "fine"}, 1]


async def test_core_120_a_global_count_belongs_to_one_app():
    tools = flaky()
    agents = [LlmAgent(name=n, model=ScriptedModel(call("work"), "end"), tools=tools) for n in ("one", "two")]
    async with App(agents, plugins=[RetryReflectPlugin(scope="global")]) as app:
        assert [told(await app.ask("hi", app=n)) for n in ("one", "two")] == [[1], [1]]


@pytest.mark.parametrize("end", ["end", ModelError("down")])
async def test_counters_are_gone_when_the_run_has_ended(scripted: Any, end: Any):
    plugin = RetryReflectPlugin()
    agent, _ = scripted(call("work"), end, tools=flaky())
    app = App(agent, plugins=[plugin])
    if isinstance(end, str):
        await app.ask("hi")
    else:
        with pytest.raises(ModelError):
            await app.ask("hi")
    assert not plugin._runs


async def test_core_120_runs_beside_each_other_do_not_mix():
    tools = flaky()
    agents = [LlmAgent(name=n, model=ScriptedModel(call("work"), call("work"), "end"), tools=tools) for n in "ab"]
    got = await App(ParallelAgent(name="both", sub_agents=agents), plugins=[RetryReflectPlugin(5)]).ask("hi")
    assert sorted(told(got)) == [1, 2, 3, 4], "one invocation, one count for both agents"


async def test_a_failure_that_an_earlier_plugin_mended_is_not_counted(scripted: Any):
    class Mends(Plugin):
        async def on_tool_error(self, ctx: ToolContext, tool: Any, args: dict[str, Any], error: Exception) -> Any:
            return {"mended": True} if args.get("ok") is None else None

    agent, _ = scripted(call("work"), call("work", {"ok": False}), "end", tools=flaky())
    got = await App(agent, plugins=[Mends(), RetryReflectPlugin()]).ask("hi")
    assert told(got) == [{"mended": True}, 1]


async def test_core_120_errors_to_ignore_stay_and_neither_count_nor_reset(scripted: Any):
    def work(refuse: bool = False) -> str:
        """Work."""
        raise PermissionError("ask first") if refuse else ValueError("no luck")

    agent, _ = scripted(call("work"), call("work", {"refuse": True}), call("work"), "end", tools=[work])
    got = await App(agent, plugins=[RetryReflectPlugin(ignore=(PermissionError,))]).ask("hi")
    assert told(got) == [1, {"error": "PermissionError: ask first"}, 2]


def test_core_120_wrong_settings_fail_at_construction():
    with pytest.raises(ConfigError, match="max_retries of RetryReflectPlugin is -1"):
        RetryReflectPlugin(-1)
    with pytest.raises(ConfigError, match="must be 'invocation' or 'global'"):
        RetryReflectPlugin(scope="session")  # pyright: ignore[reportArgumentType]
