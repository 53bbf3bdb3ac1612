"""The `watch_*` hooks of plugins: what they lie around."""

from typing import Any

import anyio
import pytest

from polyport import App, LlmAgent, Plugin
from polyport.testing import ScriptedModel, call


class Watch(Plugin):
    """Notes when what it watches begins and ends, and all other hooks in between."""

    name = "watch"

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def _noted(self, what: str, inner: Any, *args: Any) -> Any:
        self.seen.append(f"{what}>")
        try:
            return await inner(*args)
        finally:
            self.seen.append(f"<{what}")

    async def watch_agent(self, ctx: Any, call_next: Any) -> Any:
        return await self._noted(f"agent {ctx.agent_name}", call_next)

    async def watch_model(self, ctx: Any, event_id: str, request: Any, call_next: Any) -> Any:
        self.event_id = event_id
        return await self._noted(f"model {request.model}", call_next, request)

    async def watch_tools(self, ctx: Any, calls: Any, call_next: Any) -> Any:
        done = await self._noted(f"{len(calls)} calls", call_next)
        self.merged = done.event
        return done

    async def watch_tool(self, ctx: Any, call: Any, tool: Any, call_next: Any) -> Any:
        made = await self._noted(f"{call.name}{'' if tool else '?'}", call_next)
        self.seen.append(str(made.response))
        return made

    async def before_agent(self, ctx: Any) -> None:
        self.seen.append("before_agent")

    async def after_agent(self, ctx: Any) -> None:
        self.seen.append("after_agent")

    async def around_model(self, ctx: Any, request: Any, call_next: Any) -> Any:
        return await self._noted("around_model", call_next, request)

    async def before_tool(self, ctx: Any, tool: Any, args: Any) -> None:
        self.seen.append("before_tool")

    async def on_tool_error(self, ctx: Any, tool: Any, args: Any, error: Exception) -> None:
        self.seen.append("on_tool_error")

    async def after_tool(self, ctx: Any, tool: Any, args: Any, result: Any) -> None:
        self.seen.append("after_tool")


async def test_a_watch_lies_around_the_hooks_but_inside_the_onion_of_the_model():
    watch = Watch()
    model = ScriptedModel(call("hello", {}, "c1"), "Done.")
    reply = await App(LlmAgent(name="a", model=model, tools=[hello]), plugins=[watch]).ask("hi")
    asked = ["around_model>", "model scripted>", "<model scripted", "<around_model"]
    assert watch.seen == [
        "agent a>",
        "before_agent",
        *asked,
        "1 calls>",
        "hello>",
        "before_tool",
        "after_tool",
        "<hello",
        "{'result': 'hello'}",
        "<1 calls",
        *asked,
        "after_agent",
        "<agent a",
    ]
    assert watch.merged.id == reply.events[1].id
    assert watch.event_id == reply.events[2].id


def hello() -> str:
    """Say hello."""
    return "hello"


async def test_a_watch_sees_calls_of_tools_that_are_not_there():
    watch = Watch()
    model = ScriptedModel(call("nobody", {}, "c1"), "Done.")
    await App(LlmAgent(name="a", model=model, tools=[hello]), plugins=[watch]).ask("hi")
    start = watch.seen.index("nobody?>")
    assert watch.seen[start : start + 3] == ["nobody?>", "on_tool_error", "<nobody?"]
    assert "there is no tool 'nobody'" in watch.seen[start + 3]


async def test_a_watch_of_an_agent_sees_those_to_whom_it_hands_over():
    watch = Watch()
    model = ScriptedModel(call("transfer_to_agent", {"agent_name": "b"}, "c1"), "b")
    b = LlmAgent(name="b")
    await App(LlmAgent(name="a", model=model, sub_agents=[b]), plugins=[watch]).ask("hi")
    agents = [line for line in watch.seen if "agent" in line and "transfer" not in line]
    assert agents == [
        "agent a>",
        "before_agent",
        "agent b>",
        "before_agent",
        "<agent b",
        "after_agent",
        "after_agent",
        "<agent a",
    ]


async def test_a_watch_ends_with_the_run_that_is_cancelled():
    watch = Watch()
    began = anyio.Event()

    async def hang() -> str:
        """Never ends."""
        began.set()
        await anyio.sleep_forever()
        return ""

    app = App(LlmAgent(name="a", model=ScriptedModel(call("hang", {}, "c1")), tools=[hang]), plugins=[watch])

    async def ask() -> None:
        await app.ask("hi")

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await began.wait()
        group.cancel_scope.cancel()
    assert watch.seen[-3:] == ["<hang", "<1 calls", "<agent a"]


async def test_a_watch_must_give_back_the_models_answer():
    class Loses(Plugin):
        async def watch_model(self, ctx: Any, event_id: str, request: Any, call_next: Any) -> Any:
            await call_next(request)

    with pytest.raises(Exception, match="watch_model of a plugin returned a NoneType"):
        await App(LlmAgent(name="a", model=ScriptedModel("x")), plugins=[Loses()]).ask("hi")
