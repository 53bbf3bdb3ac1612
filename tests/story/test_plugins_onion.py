"""Plugins around a run: the onion beside before and after, what an answer suppresses, and ends that go wrong."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from polyport import (
    Agent,
    App,
    CallbackContext,
    Content,
    Event,
    FunctionAgent,
    ModelRequest,
    ModelResponse,
    Plugin,
    ReadContext,
    RunConfig,
    RunContext,
    SequentialAgent,
    Tool,
    ToolContext,
    make_tool,
)
from polyport.data.content import model_text
from polyport.data.run import Ending
from polyport.engine.hooks import ModelStep, hook_table, wrap, wrap_model
from polyport.errors import AgentError, ModelError, Unavailable
from polyport.ports.plugin import CallNext
from polyport.testing import ScriptedModel, call, chunks
from support.talk import Serve, texts


def reply(text: str) -> ModelResponse:
    return ModelResponse(content=model_text(text))


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Onion(Plugin):
    """Writes down when it is entered and left, and the hooks before and after."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    async def _around(self, what: str, step: Any) -> Any:
        self.seen.append(f"{self.name}>{what}")
        try:
            return await step
        finally:
            self.seen.append(f"{self.name}<{what}")

    async def around_run(self, ctx: RunContext, call_next: CallNext) -> Ending:
        return await self._around("run", call_next())

    async def around_agent(self, ctx: RunContext, agent: Agent, call_next: CallNext) -> Ending:
        return await self._around(agent.name, call_next())

    async def around_model(self, ctx: CallbackContext, request: ModelRequest, call_next: CallNext) -> ModelResponse:
        return await self._around("model", call_next(request))

    async def around_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], call_next: CallNext) -> Any:
        return await self._around(tool.name, call_next(args))


class Hooks(Plugin):
    """Writes down the hooks that lie around the onion."""

    name = "hooks"

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    async def before_run(self, ctx: CallbackContext) -> None:
        self.seen.append("before_run")

    async def after_run(self, ctx: CallbackContext) -> None:
        self.seen.append("after_run")

    async def before_agent(self, ctx: CallbackContext) -> None:
        self.seen.append("before_agent")

    async def after_agent(self, ctx: CallbackContext) -> None:
        self.seen.append("after_agent")

    async def before_model(self, ctx: CallbackContext, request: ModelRequest) -> None:
        self.seen.append("before_model")

    async def after_model(self, ctx: CallbackContext, response: ModelResponse) -> None:
        self.seen.append("after_model")

    async def on_model_error(self, ctx: CallbackContext, request: ModelRequest, error: Exception) -> None:
        self.seen.append("on_model_error")

    async def before_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any]) -> None:
        self.seen.append("before_tool")

    async def after_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], result: Any) -> None:
        self.seen.append("after_tool")

    async def on_tool_error(self, ctx: ToolContext, tool: Tool | None, args: dict[str, Any], error: Exception) -> None:
        self.seen.append("on_tool_error")


def hook(name: str, fn: Callable[..., Any]) -> Plugin:
    """A plugin with one method."""
    return type(f"Has_{name}_{fn.__name__}", (Plugin,), {name: staticmethod(fn)})()


# ---- the order


async def test_the_onion_lies_inside_the_other_hooks_and_the_first_plugin_is_outermost(scripted: Any):
    seen: list[str] = []
    agent, _ = scripted(call("add", {"a": 1, "b": 2}), "3", tools=[add])
    got = await App(agent, plugins=[Onion("p", seen), Hooks(seen), Onion("q", seen)]).ask("hi")
    assert got.text == "3"
    model = ["before_model", "p>model", "q>model", "q<model", "p<model", "after_model"]
    tool = ["before_tool", "p>add", "q>add", "q<add", "p<add", "after_tool"]
    inner = ["before_agent", "p>app", "q>app", *model, *tool, *model, "q<app", "p<app", "after_agent"]
    assert seen == ["before_run", "p>run", "q>run", *inner, "q<run", "p<run", "after_run"]


async def test_on_error_is_asked_for_what_no_layer_mended(scripted: Any):
    seen: list[str] = []

    def bad() -> str:
        """Fail."""
        raise ValueError("x")

    agent, _ = scripted(call("bad"), ModelError("down"), tools=[bad])
    with pytest.raises(ModelError, match="down"):
        await App(agent, plugins=[Hooks(seen), Onion("p", seen)]).ask("hi")
    assert seen[8:13] == ["before_tool", "p>bad", "p<bad", "on_tool_error", "after_tool"]
    assert seen[13:17] == ["before_model", "p>model", "p<model", "on_model_error"]
    assert seen[17:] == ["p<app", "p<run", "after_run"]


@pytest.mark.parametrize("name", ["before_run", "before_agent", "before_model", "before_tool"])
async def test_core_50_an_answer_before_keeps_the_onion_out(scripted: Any, name: str):
    seen: list[str] = []
    answers: dict[str, Any] = {
        "before_run": model_text("early"),
        "before_agent": model_text("early"),
        "before_model": reply("early"),
        "before_tool": {"result": 7},
    }

    async def early(*args: Any) -> Any:
        return answers[name]

    agent, _ = scripted(call("add", {"a": 1, "b": 2}), "last", tools=[add])
    got = await App(agent, plugins=[hook(name, early), Onion("p", seen)]).ask("hi")
    assert got.text == ("last" if name == "before_tool" else "early")
    inner = {"before_run": "p>run", "before_agent": "p>app", "before_model": "p>model", "before_tool": "p>add"}[name]
    assert inner not in seen


async def test_every_agent_of_a_tree_has_its_own_layer():
    seen: list[str] = []

    async def speak(ctx: RunContext) -> None:
        await ctx.emit(ctx.event(content=model_text(ctx.agent_name)))

    agents = [FunctionAgent(name=n, function=speak) for n in ("one", "two")]
    await App(SequentialAgent(name="all", sub_agents=agents), plugins=[Onion("p", seen)]).ask("hi")
    assert seen == ["p>run", "p>all", "p>one", "p<one", "p>two", "p<two", "p<all", "p<run"]


# ---- what a layer can do


async def test_a_layer_may_answer_by_itself_and_change_what_goes_in_and_out(scripted: Any):
    async def model(ctx: CallbackContext, request: ModelRequest, call_next: CallNext) -> ModelResponse:
        request.system = "changed"
        answer = await call_next(request)
        return reply(f"<{answer.content.text}>") if not answer.content.calls else answer

    async def tool(ctx: ToolContext, tool: Tool, args: dict[str, Any], call_next: CallNext) -> Any:
        ctx.state["seen"] = args["a"]
        return await call_next({**args, "a": 10}) if args["a"] == 1 else {"result": "mine"}

    agent, script = scripted(
        [call("add", {"a": 1, "b": 2}, "c1"), call("add", {"a": 5, "b": 5}, "c2")], "end", tools=[add]
    )
    got = await App(agent, plugins=[hook("around_model", model), hook("around_tool", tool)]).ask("hi")
    assert got.text == "<end>"
    assert [r.system for r in script.requests] == ["changed", "changed"]
    assert [r.response for r in got.events[1].responses] == [{"result": 12}, {"result": "mine"}]
    assert got.events[1].actions.state_delta == {"seen": 5}


async def test_a_layer_may_call_the_model_again(scripted: Any):
    async def twice(ctx: CallbackContext, request: ModelRequest, call_next: CallNext) -> ModelResponse:
        try:
            return await call_next(request)
        except ModelError:
            return await call_next(request)

    agent, model = scripted(ModelError("down"), "up")
    assert (await App(agent, plugins=[hook("around_model", twice)]).ask("hi")).text == "up"
    assert len(model.requests) == 2


async def test_a_layer_sees_the_pieces_and_hands_on_its_own(serve: Serve, scripted: Any):
    seen: list[str] = []

    async def tap(ctx: CallbackContext, request: ModelRequest, call_next: ModelStep) -> ModelResponse:
        out = call_next.on_partial
        assert out is not None

        async def on_partial(piece: ModelResponse) -> None:
            assert piece.content is not None
            seen.append(piece.content.text)
            await out(ModelResponse(content=model_text(piece.content.text.upper()), partial=True))

        return await call_next(request, on_partial)

    async def first(ctx: CallbackContext, request: ModelRequest, call_next: ModelStep) -> ModelResponse:
        assert call_next.on_partial is not None
        await call_next.on_partial(ModelResponse(content=model_text("wait "), partial=True))
        return await call_next(request)

    agent, _ = scripted(chunks("a", "b"))
    async with serve(agent, plugins=[hook("around_model", tap), hook("around_model", first)]) as talk:
        events = await talk.sse("hi", streaming=True)
    assert texts(events) == ["WAIT ", "A", "B", "ab"]
    assert seen == ["wait ", "a", "b"], "the inner layer's piece passes through the outer layer, as the model's do"
    assert len({e["id"] for e in events}) == 1


async def test_a_layer_around_an_agent_may_speak_for_it(scripted: Any):
    async def around(ctx: RunContext, agent: Agent, call_next: CallNext) -> Ending:
        await ctx.emit(ctx.event(content=model_text("instead")))
        return "done"

    agent, model = scripted()
    got = await App(agent, plugins=[hook("around_agent", around)]).ask("hi")
    assert (got.text, got.events[0].author, model.requests) == ("instead", "app", [])


async def test_a_layer_passes_a_pause_on(scripted: Any):
    def slow() -> None:
        """Wait."""

    agent, _ = scripted(call("slow"), "waiting", tools=[make_tool(slow, long_running=True)])
    got = await App(agent, plugins=[Onion("p", [])]).ask("hi")
    assert got.outcome.status == "paused"


@pytest.mark.parametrize("name", ["around_run", "around_agent", "around_model"])
async def test_a_layer_that_forgets_to_return_is_named(scripted: Any, name: str):
    async def forgets(*args: Any) -> None:
        *given, call_next = args
        await (call_next(given[1]) if name == "around_model" else call_next())

    agent, _ = scripted("ok")
    with pytest.raises(AgentError, match=f"{name} of a plugin returned a NoneType"):
        await App(agent, plugins=[hook(name, forgets)]).ask("hi")


async def test_cancelling_passes_through_the_layers(scripted: Any):
    seen: list[str] = []
    asked = anyio.Event()

    async def hangs(request: ModelRequest, on_partial: Any) -> None:
        asked.set()
        await anyio.sleep_forever()

    agent, _ = scripted(hangs)
    async with App(agent, plugins=[Onion("p", seen)]) as app, anyio.create_task_group() as group:

        async def ask() -> None:
            await app.ask("hi")

        group.start_soon(ask)
        await asked.wait()
        group.cancel_scope.cancel()
    assert seen[-3:] == ["p<model", "p<app", "p<run"]


def test_an_unused_hook_costs_one_look_up():
    async def inner() -> None: ...

    model = ScriptedModel()
    table = hook_table([Hooks([])])
    assert wrap(table, "around_tool", inner) is inner
    generate = model.generate
    assert wrap_model(table, None, "", generate) is generate  # pyright: ignore[reportArgumentType]  nothing reads it
    assert hook_table([Plugin()]) == {}


# ---- answers and ends


async def test_core_50_a_plugins_answer_suppresses_the_agents_own_callback_of_the_same_kind(scripted: Any):
    asked: list[str] = []

    def own(name: str) -> Callable[..., None]:
        return lambda *args: asked.append(name)

    def bad() -> str:
        """Fail."""
        raise ValueError("x")

    async def answer_tool(*args: Any) -> Any:
        return {"result": "plugin"}

    async def answer_content(*args: Any) -> Content:
        return model_text("plugin")

    async def answer_model(*args: Any) -> ModelResponse:
        return reply("plugin")

    for name, step in {
        "before_tool": call("add", {"a": 1, "b": 1}),
        "after_tool": call("add", {"a": 1, "b": 1}),
        "on_tool_error": call("bad"),
    }.items():
        agent, _ = scripted(step, "end", tools=[add, bad], **{name: own(name)})
        got = await App(agent, plugins=[hook(name, answer_tool)]).ask("hi")
        assert got.events[1].responses[0].response == {"result": "plugin"}, name
    for name, step in {"before_model": "x", "after_model": "x", "on_model_error": ModelError("down")}.items():
        agent, _ = scripted(step, **{name: own(name)})
        assert (await App(agent, plugins=[hook(name, answer_model)]).ask("hi")).text == "plugin", name
    for name in ("before_agent", "after_agent"):
        agent, _ = scripted("x", **{name: own(name)})
        assert (await App(agent, plugins=[hook(name, answer_content)]).ask("hi")).text == "plugin", name
    assert asked == []


async def test_close_is_called_once_and_after_hooks_go_in_order(scripted: Any):
    seen: list[str] = []

    class Closes(Plugin):
        def __init__(self, name: str) -> None:
            self.name = name

        async def after_run(self, ctx: CallbackContext) -> None:
            seen.append(f"{self.name} after_run")

        async def close(self) -> None:
            seen.append(f"{self.name} close")

    agent, _ = scripted("one", "two")
    async with App(agent, plugins=[Closes("p"), Closes("q")]) as app:
        await app.ask("hi")
        await app.ask("hi")
    assert seen == [*["p after_run", "q after_run"] * 2, "p close", "q close"]


@pytest.mark.parametrize("where", ["after_run", "after_agent", "on_event", "after_model", "around_run"])
async def test_FR_020_a_plugin_chain_that_raises_at_the_end_still_closes_the_stream(
    serve: Serve, scripted: Any, where: str
):
    async def fail(*args: Any) -> Any:
        if where == "around_run":
            await args[-1]()
        if where != "on_event" or args[1].final:
            raise Unavailable(f"no {where}")

    agent, _ = scripted("hi", "hi again")
    async with serve(agent, plugins=[hook(where, fail), Hooks([])]) as talk:
        with anyio.fail_after(10):
            events = await talk.sse("hi")
            again = await talk.sse("hi")
    kind, error = events[-1]
    assert kind == "error"
    assert f"no {where}" in str(error)
    assert again[-1][0] == "error", "the session is free for the next run"


async def test_FR_020_fifty_streams_in_a_row_and_an_early_end_all_close(serve: Serve, scripted: Any):
    agent, _ = scripted(*["hi"] * 50, before_agent=lambda ctx: model_text("early") if ctx.state.get("early") else None)
    async with serve(agent) as talk:
        with anyio.fail_after(60):
            for _ in range(50):
                events = await talk.sse("hi")
                assert texts(events) == ["hi"]
            assert texts(await talk.sse("hi", stateDelta={"early": True})) == ["early"]


async def test_FR_097_a_plugin_sanitises_what_the_model_hears_of_an_error(scripted: Any):
    def leaks() -> str:
        """Fail."""
        raise RuntimeError("password=hunter2 at 10.0.0.7")

    class Sanitise(Plugin):
        async def on_tool_error(self, ctx: ToolContext, tool: Any, args: dict[str, Any], error: Exception) -> Any:
            return {"error": f"{tool.name} is out of order"}

    agent, model = scripted([call("leaks", id="c1"), call("add", {"a": 1, "b": 2}, "c2")], "sorry", tools=[leaks, add])
    got = await App(agent, plugins=[Sanitise()]).ask("hi")
    assert got.text == "sorry"
    assert "hunter2" not in str(got.events)
    assert "hunter2" not in str(model.requests)
    assert [r.response for r in got.events[1].responses] == [{"error": "leaks is out of order"}, {"result": 3}]


async def test_on_event_sees_what_a_layer_emits(scripted: Any):
    seen: list[str] = []

    async def around(ctx: RunContext, call_next: CallNext) -> Ending:
        await ctx.emit(ctx.event(content=model_text("before all")))
        return await call_next()

    async def on_event(ctx: ReadContext, event: Event) -> None:
        seen.append(event.text)

    agent, _ = scripted("ok")
    plugins = [hook("around_run", around), hook("on_event", on_event)]
    got = await App(agent, plugins=plugins).ask("hi", config=RunConfig())
    assert seen == ["before all", "ok"]
    assert [e.text for e in got.events] == seen
