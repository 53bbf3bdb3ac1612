"""App from Python: ask, stream, run_sync, and clear words for what is set up wrong."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from polyport import App, LlmAgent, ModelResponse, Plugin, RunConfig, SequentialAgent, Stores, ToolContext
from polyport.data.content import model_text, user_text
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.data.run import RunRequest
from polyport.engine.runner import Engine
from polyport.errors import AgentError, ConfigError, RunCancelled
from polyport.seams import REAL
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call, chunks


def agent(*steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name="app", model=ScriptedModel(*steps), **fields)


async def test_ask_answers_and_a_session_goes_on():
    model = ScriptedModel("Hi Ada.", "You are Ada.")
    app = App(LlmAgent(name="app", model=model))
    first = await app.ask("I am Ada")
    second = await app.ask("Who am I?", session=first.session_id)
    assert (first.text, second.text) == ("Hi Ada.", "You are Ada.")
    assert model.prompt() == ["user: I am Ada", "model: Hi Ada.", "user: Who am I?"]
    assert second.outcome.status == "finished" and [e.author for e in second.events] == ["app"]


async def test_stream_gives_pieces_and_stops_the_run_when_it_is_closed():
    cancelled = anyio.Event()

    async def endless(request: Any, on_partial: Any) -> Any:
        try:
            while True:
                await on_partial(ModelResponse(content=model_text("x"), partial=True))
                await anyio.lowlevel.checkpoint()
        finally:
            cancelled.set()

    async with App(agent(chunks("a", "b"), endless)) as app:
        assert [(e.text, e.partial) async for e in app.stream("hi")] == [("a", True), ("b", True), ("ab", False)]
        events = app.stream("again")
        async for _ in events:
            break
        await events.aclose()
        assert cancelled.is_set()


def test_run_sync_works_again_and_again():
    app = App(agent("one", "two", "three"))
    assert [app.run_sync("x").text for _ in range(3)] == ["one", "two", "three"]


async def test_run_sync_inside_a_running_loop_says_what_to_do():
    with pytest.raises(ConfigError, match=r"await app\.ask"):
        App(agent("x")).run_sync("x")


async def test_ask_raises_what_ended_the_run():
    async def think(request: Any, on_partial: Any) -> str:
        await anyio.sleep_forever()
        return ""

    app = App(agent(ValueError("boom"), *[call("f")] * 3, think, tools=[f]))
    with pytest.raises(ValueError, match="boom"):
        await app.ask("x")
    with pytest.raises(AgentError, match="max_llm_calls"):
        await app.ask("x", config=RunConfig(max_llm_calls=3))
    async with app:
        outcomes: list[Exception] = []

        async def ask() -> None:
            try:
                await app.ask("x")
            except RunCancelled as error:
                outcomes.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while not app.runs.active:
                await anyio.lowlevel.checkpoint()
            (run_id,) = app.runs._live
            await app.runs.cancel(run_id, "because")
        assert str(outcomes[0]) == "because"


def f() -> str:
    """F."""
    return "f"


async def test_state_is_given_with_the_question():
    model = ScriptedModel("ok")
    app = App(LlmAgent(name="app", model=model, instruction="Speak {user:lang}."))
    await app.ask("x", state={"user:lang": "fr"})
    assert model.requests[0].system.startswith("Speak fr.")


def test_what_is_set_up_wrong_is_said_at_once():
    def wrong(match: str, make: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            make()

    wrong("needs at least one agent", lambda: App([]))
    wrong("has no model", lambda: App(LlmAgent(name="a")))
    wrong("two agents are named 'app'", lambda: App([agent(), agent()]))
    wrong("GEMINI_API_KEY", lambda: App(LlmAgent(name="a", model="gemini-flash-latest")))
    wrong("no-such-model", lambda: App(LlmAgent(name="a", model="no-such-model")))
    wrong("session store", lambda: App(agent(), stores="mongodb://x"))

    class Noisy(Plugin):
        name = "noisy"

    wrong("two plugins are named 'noisy'", lambda: App(agent(), plugins=[Noisy(), Noisy()]))
    wrong("needs agents, not a str", lambda: App("weather"))
    wrong("takes objects of subclasses of Plugin, not <class .*Noisy", lambda: App(agent(), plugins=[Noisy]))
    wrong("model= takes a name or a Model, not a int", lambda: LlmAgent(name="a", model=3))
    wrong("tools= takes a list, not a function", lambda: LlmAgent(name="a", model="demo", tools=agent))
    wrong("instruction= takes text or a function", lambda: LlmAgent(name="a", model="demo", instruction=["x"]))
    wrong("include_contents= .* not 'all'", lambda: LlmAgent(name="a", model="demo", include_contents="all"))
    shared = agent()
    wrong("twice in the tree", lambda: App(SequentialAgent(name="s", sub_agents=[shared, shared])))


def test_a_plugins_method_that_looks_like_a_hook_is_told_of(caplog: pytest.LogCaptureFixture):
    class Ported(Plugin):
        async def before_tool_callback(self, **options: Any) -> None: ...

    App(agent(), plugins=[Ported()])
    assert "before_tool_callback is no hook; there are: on_user_message, before_run" in caplog.text


async def test_several_agents_must_be_told_apart():
    app = App({"one": agent("1"), "two": agent("2")})
    with pytest.raises(ConfigError, match="one, two"):
        await app.ask("x")
    assert (await app.ask("x", app="two")).text == "2"


async def test_a_child_without_a_model_takes_that_of_the_agent_above():
    model = ScriptedModel(call("transfer_to_agent", {"agent_name": "child"}), "from the child")
    child = LlmAgent(name="child", description="the child")
    app = App(LlmAgent(name="root", model=model, sub_agents=[child]))
    reply = await app.ask("x")
    assert reply.text == "from the child" and reply.events[-1].author == "child"


async def test_plugins_are_closed_and_an_app_can_be_entered_again():
    closed: list[str] = []

    class Watch(Plugin):
        name = "watch"

        async def close(self) -> None:
            closed.append("x")

    app = App(agent("1", "2"), plugins=[Watch()])
    async with app:
        assert (await app.ask("x")).text == "1"
    assert closed == ["x"]
    async with app:
        assert (await app.ask("x")).text == "2"


async def test_the_limits_of_the_app_hold_for_ask_as_well():
    model = ScriptedModel(*[call("f")] * 2)
    app = App(LlmAgent(name="app", model=model, tools=[f]), limits=Limits(max_llm_calls=2, history_window=1))
    with pytest.raises(AgentError, match="budget of 2"):
        await app.ask("x")


async def test_state_is_read_as_a_copy_and_changed_by_setting_it():
    seen: list[Any] = []

    def note(ctx: ToolContext) -> str:
        """Note."""
        ctx.state["list"].append(2)
        seen.append(ctx.state["list"])
        ctx.state["list"] = [*ctx.state["list"], 3]
        return "noted"

    app = App(LlmAgent(name="app", model=ScriptedModel(call("note"), "ok"), tools=[note]))
    reply = await app.ask("x", state={"list": [1]}, session="s")
    assert seen == [[1]]
    assert reply.events[1].actions.state_delta == {"list": [1, 3]}


async def test_a_session_is_remembered_when_the_app_is_told_to():
    app = App(agent("nice", "yes"), remember=True)
    await app.ask("I have a red bicycle", session="one")
    assert app.stores.memory is not None
    (found, *_) = await app.stores.memory.search("app", "user", "bicycle")
    assert "red bicycle" in found.content.text
    with pytest.raises(ConfigError, match="memory store"):
        App(agent(), remember=True, stores=Stores(app.stores.sessions))


def test_a_session_store_that_is_not_whole_is_told_of_at_start():
    class Half:
        instant = False

        async def get(self, key: Any) -> Any: ...

    half: Any = Half()
    with pytest.raises(ConfigError, match=r"Half is no session store: it has no finishes, create, list, .*claim"):
        App(agent(), stores=Stores(half))


def test_FR_100_a_tool_without_its_store_is_told_of_at_start(caplog: pytest.LogCaptureFixture):
    from polyport.tools.memory import load_memory

    App(agent(tools=[load_memory]), stores=Stores(MemorySessions()))
    assert "load_memory" in caplog.text and "memory store" in caplog.text


async def test_an_error_inside_async_with_app_leaves_as_it_is():
    with pytest.raises(KeyError, match="mine"):
        async with App(agent()):
            raise KeyError("mine")


@pytest.mark.parametrize("streaming", [True, False])
async def test_core_77_an_engine_streams_or_not_without_anything_around_it(streaming: bool):
    app = App(LlmAgent(name="app", model=ScriptedModel(chunks("a", "b"))))
    engine = Engine(app.trees["app"], app.stores, {}, REAL)
    session = await app.stores.sessions.create("app", "u", "s")
    config = RunConfig(streaming=streaming, max_llm_calls=1)
    seen: list[Event] = []
    request = RunRequest(key=session.key, message=user_text("x"), config=config)
    outcome = await engine.execute("e-1", request, session, seen.append)
    assert outcome.status == "finished"
    assert [(e.text, e.partial) for e in seen] == [("a", True), ("b", True)] * streaming + [("ab", False)]
