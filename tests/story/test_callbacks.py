"""Callbacks and plugins: who is asked, in which order, and what an answer means (spec core 2.2, 3.2, 3.8, 3.9, 7)."""

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
    LlmAgent,
    LoopAgent,
    ModelRequest,
    ModelResponse,
    Part,
    Plugin,
    ReadContext,
    RunConfig,
    RunContext,
    SequentialAgent,
    SessionKey,
    Tool,
    ToolContext,
)
from polyport.data.content import model_text, user_text
from polyport.engine import runner
from polyport.errors import AgentError, BadRequest, ModelError, RunCancelled
from polyport.testing import ScriptedModel, call, chunks
from support.talk import Serve, texts


def reply(text: str) -> ModelResponse:
    return ModelResponse(content=model_text(text))


def noop() -> str:
    """Do nothing."""
    return "ok"


async def state_of(app: App, session: str = "s1") -> dict[str, Any]:
    return (await app.stores.sessions.get(SessionKey(next(iter(app.trees)), "user", session))).state


class Diary(Plugin):
    """Writes down every hook that is called; answers nothing."""

    def __init__(self, seen: list[str], name: str = "diary") -> None:
        self.seen = seen
        self.name = name

    async def on_user_message(self, ctx: CallbackContext, message: Content) -> None:
        self.seen.append("on_user_message")

    async def before_run(self, ctx: CallbackContext) -> None:
        self.seen.append("before_run")

    async def after_run(self, ctx: CallbackContext) -> None:
        self.seen.append("after_run")

    async def on_event(self, ctx: ReadContext, event: Event) -> None:
        kind = "call" if event.calls else "result" if event.responses else "text" if event.text else "state"
        self.seen.append(f"on_event({kind}{' partial' if event.partial else ''})")

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

    async def on_tool_error(
        self, ctx: ToolContext, tool: "Tool | None", args: dict[str, Any], error: Exception
    ) -> None:
        self.seen.append("on_tool_error")

    async def close(self) -> None:
        self.seen.append("close")


# ---- order


async def test_section_7_the_order_of_all_hooks_of_one_tool_turn(scripted: Any):
    seen: list[str] = []
    agent, _ = scripted(call("noop"), "done", tools=[noop])
    async with App(agent, plugins=[Diary(seen)]) as app:
        await app.ask("hi")
    assert seen == [
        "on_user_message",
        "before_run",
        "before_agent",
        "before_model",
        "after_model",
        "on_event(call)",
        "before_tool",
        "after_tool",
        "on_event(result)",
        "before_model",
        "after_model",
        "on_event(text)",
        "after_agent",
        "after_run",
        "close",
    ]


async def test_section_7_a_failing_tool_and_model_add_their_hooks(scripted: Any):
    seen: list[str] = []

    def bad() -> str:
        """Fail."""
        raise ValueError("x")

    agent, _ = scripted(call("bad"), ModelError("down"), tools=[bad])
    with pytest.raises(ModelError, match="down"):
        await App(agent, plugins=[Diary(seen)]).ask("hi")
    assert seen[6:9] == ["before_tool", "on_tool_error", "after_tool"]
    assert seen[-3:] == ["before_model", "on_model_error", "after_run"], "neither after_model nor after_agent"


class Log(Plugin):
    """One named plugin that writes its name at one hook, and answers there if told so."""

    def __init__(self, name: str, seen: list[str], answer: Any = None) -> None:
        self.name = name
        self.seen = seen
        self.answer = answer

    async def before_model(self, ctx: CallbackContext, request: ModelRequest) -> Any:
        self.seen.append(self.name)
        return self.answer

    async def after_model(self, ctx: CallbackContext, response: ModelResponse) -> None:
        self.seen.append(f"{self.name} after")


async def test_section_7_plugins_go_in_order_and_after_hooks_in_the_same_order(scripted: Any):
    seen: list[str] = []
    agent, _ = scripted("ok", before_model=lambda c, r: seen.append("agent"))
    await App(agent, plugins=[Log("p1", seen), Log("p2", seen)]).ask("hi")
    assert seen == ["p1", "p2", "agent", "p1 after", "p2 after"]


async def test_core_50_a_plugins_answer_suppresses_later_plugins_and_the_agents_own(scripted: Any):
    seen: list[str] = []
    agent, model = scripted(before_model=lambda c, r: seen.append("agent"))
    got = await App(agent, plugins=[Log("p1", seen, reply("plugin")), Log("p2", seen)]).ask("hi")
    assert got.text == "plugin"
    assert seen == ["p1"]
    assert model.requests == []


# ---- model callbacks


async def test_core_45_before_model_skips_model_and_after_model_and_only_the_first_answers(scripted: Any):
    seen: list[str] = []

    def first(ctx: CallbackContext, request: ModelRequest) -> ModelResponse:
        seen.append("first")
        return reply("cached")

    async def second(ctx: CallbackContext, request: ModelRequest) -> ModelResponse:
        seen.append("second")
        return reply("never")

    agent, model = scripted(before_model=[first, second], after_model=lambda c, r: seen.append("after"))
    got = await App(agent).ask("hi")
    assert got.text == "cached"
    assert (seen, model.requests) == (["first"], [])


@pytest.mark.parametrize("where", ["before_model", "after_model", "on_model_error"])
async def test_core_46_an_error_of_a_model_callback_ends_the_run(scripted: Any, where: str):
    seen: list[str] = []

    def fail(*args: Any) -> None:
        raise BadRequest(f"bad {where}")

    others = {"after_model": [lambda c, r: seen.append("after_model")]}
    others.pop(where, None)
    step = ModelError("down") if where == "on_model_error" else "ok"
    agent, _ = scripted(step, **{where: fail}, **others)
    with pytest.raises(BadRequest, match=f"bad {where}"):
        await App(agent).ask("hi")
    assert seen == [], "after_model is asked neither after an error of before_model nor of on_model_error"


async def test_core_47_on_model_error_is_asked_for_model_errors_only(scripted: Any):
    seen: list[str] = []

    def mend(ctx: CallbackContext, request: ModelRequest, error: Exception) -> ModelResponse:
        seen.append(str(error))
        return reply("mended")

    def boom(ctx: CallbackContext, request: ModelRequest) -> None:
        raise BadRequest("mine")

    agent, _ = scripted("fine", on_model_error=mend)
    assert (await App(agent).ask("hi")).text == "fine"
    agent, _ = scripted(on_model_error=mend, before_model=lambda c, r: reply("early"))
    assert (await App(agent).ask("hi")).text == "early"
    agent, _ = scripted(on_model_error=mend, before_model=boom)
    with pytest.raises(BadRequest):
        await App(agent).ask("hi")
    assert seen == []
    agent, _ = scripted(ModelError("down"), on_model_error=mend, after_model=lambda c, r: reply(r.content.text + "!"))
    assert (await App(agent).ask("hi")).text == "mended!", "the replacement passes after_model"
    assert seen == ["down"]


async def test_core_47_an_error_that_nobody_mends_stays_the_same(scripted: Any):
    failure = ModelError("down", http_status=503, code="UNAVAILABLE")
    agent, _ = scripted(failure, on_model_error=lambda c, r, e: None)
    with pytest.raises(ModelError) as caught:
        await App(agent).ask("hi")
    assert caught.value is failure


async def test_section_3_8_after_model_sees_and_may_replace_pieces_too(serve: Serve, scripted: Any):
    def shout(ctx: CallbackContext, response: ModelResponse) -> ModelResponse:
        ctx.state["pieces"] = ctx.state.get("pieces", 0) + 1
        return ModelResponse(content=model_text(response.content.text.upper()))

    agent, _ = scripted(chunks("a", "b"), after_model=shout)
    async with serve(agent) as talk:
        events = await talk.sse(streaming=True)
        assert texts(events) == ["A", "B", "AB"]
        assert [bool(e.get("partial")) for e in events] == [True, True, False]
        stored = await talk.stored()
    assert stored["state"] == {"pieces": 3}
    assert len(stored["events"]) == 2


@pytest.mark.parametrize("where", ["after_model", "on_event"])
@pytest.mark.parametrize("model_hides_it", [False, True])
async def test_core_47_a_callback_that_fails_on_a_piece_is_no_model_error(
    scripted: Any, where: str, model_hides_it: bool
):
    async def fail(*args: Any) -> None:
        raise BadRequest("not this piece")

    async def streamed(request: Any, on_partial: Any) -> Any:
        try:
            await on_partial(ModelResponse(content=model_text("a"), partial=True))
        except BadRequest as error:
            if model_hides_it:
                return "whole"
            raise ModelError("wrapped") from error

    seen: list[str] = []
    fields = {"after_model": fail} if where == "after_model" else {}
    plugins = [one_hook("on_event", fail)] if where == "on_event" else []
    agent, _ = scripted(streamed, on_model_error=lambda c, r, e: seen.append("asked"), **fields)
    with pytest.raises(BadRequest, match="not this piece"):
        await App(agent, plugins=plugins).ask("hi", config=RunConfig(streaming=True))
    assert seen == []


async def test_before_model_edits_the_request_of_this_call_only(scripted: Any):
    def edit(ctx: CallbackContext, request: ModelRequest) -> None:
        request.system += " EXTRA"
        request.contents.append(user_text("one more"))
        request.tools.clear()
        request.config.headers["X-Edit"] = request.config.headers.get("X-Edit", "") + "1"
        request.config.extra.setdefault("deep", {})["n"] = len(request.config.extra.get("deep", {}))
        request.config.stop_sequences.append("x")

    from polyport import GenerateConfig

    config = GenerateConfig(headers={"A": "b"}, extra={"deep": {"k": 1}})
    agent, model = scripted("one", "two", before_model=edit, tools=[noop], config=config)
    app = App(agent)
    await app.ask("hi", session="s1")
    await app.ask("again", session="s1")
    for request in model.requests:
        assert request.system.endswith(" EXTRA") and request.system.count("EXTRA") == 1
        assert request.tools == []
        assert request.config.headers == {"A": "b", "X-Edit": "1"}
        assert request.config.extra == {"deep": {"k": 1, "n": 1}}
        assert request.config.stop_sequences == ["x"]
    assert model.prompt() == ["user: hi", "model: one", "user: again", "user: one more"]
    assert config == GenerateConfig(headers={"A": "b"}, extra={"deep": {"k": 1}}), "agents are shared: never changed"


async def test_section_12_8_state_and_artifacts_of_model_callbacks_are_on_the_event(serve: Serve, scripted: Any):
    async def before(ctx: CallbackContext, request: ModelRequest) -> None:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        await ctx.save_artifact("prompt.txt", Part(text="p"))

    agent, _ = scripted(call("noop"), "done", tools=[noop], before_model=before)
    async with serve(agent) as talk:
        events = await talk.run()
    assert [e["actions"]["stateDelta"] for e in events] == [{"n": 1}, {}, {"n": 2}]
    assert [e["actions"]["artifactDelta"] for e in events] == [{"prompt.txt": 1}, {}, {"prompt.txt": 2}]


async def test_section_12_8_state_of_a_model_callback_is_kept_when_the_model_says_nothing(scripted: Any):
    def before(ctx: CallbackContext, request: ModelRequest) -> None:
        ctx.state["asked"] = True

    agent, _ = scripted(ModelResponse(), before_model=before)
    app = App(agent)
    got = await app.ask("hi", session="s1")
    assert await state_of(app) == {"asked": True}
    assert [(e.content, e.actions.state_delta) for e in got.events] == [(None, {"asked": True})]


async def test_section_3_4_an_empty_answer_is_skipped_also_from_a_callback(scripted: Any):
    agent, _ = scripted(ModelResponse(content=Content(role="model", parts=[Part()])))
    assert (await App(agent).ask("hi")).events == []
    agent, _ = scripted(before_model=lambda c, r: ModelResponse())
    assert (await App(agent).ask("hi")).events == []


# ---- agent callbacks


async def test_section_3_2_before_agent_answers_in_place_of_the_body(scripted: Any):
    def before(ctx: CallbackContext) -> Content:
        ctx.state["seen"] = 1
        return Content(parts=[Part(text="cached")])

    after: list[str] = []
    agent, model = scripted(before_agent=before, after_agent=lambda c: after.append("after"))
    app = App(agent)
    got = await app.ask("hi", session="s1")
    (event,) = got.events
    assert (event.author, event.content, event.actions.state_delta) == ("app", model_text("cached"), {"seen": 1})
    assert (model.requests, after) == ([], [])


async def test_section_3_2_a_skipped_child_does_not_stop_its_siblings(scripted: Any):
    first, _ = scripted(name="first", before_agent=lambda c: model_text("skipped"))
    second, _ = scripted("two", name="second")
    got = await App(SequentialAgent(name="app", sub_agents=[first, second])).ask("hi")
    assert [(e.author, e.text) for e in got.events] == [("first", "skipped"), ("second", "two")]


async def test_section_3_2_state_without_content_is_one_event_without_content(scripted: Any):
    async def write(ctx: CallbackContext) -> None:
        ctx.state["k"] = ctx.state.get("k", 0) + 1
        await ctx.save_artifact("log", Part(text="x"))

    agent, _ = scripted("ok", before_agent=write, after_agent=write)
    got = await App(agent).ask("hi")
    assert [(e.text, e.actions.state_delta, e.actions.artifact_delta) for e in got.events] == [
        ("", {"k": 1}, {"log": 1}),
        ("ok", {}, {}),
        ("", {"k": 2}, {"log": 2}),
    ]
    assert got.events[0].content is None


async def test_section_3_2_after_agent_adds_one_event(scripted: Any):
    agent, _ = scripted("ok", after_agent=[lambda c: None, lambda c: model_text("bye"), lambda c: model_text("no")])
    got = await App(agent).ask("hi")
    assert [e.text for e in got.events] == ["ok", "bye"]


async def test_section_12_4_an_error_in_before_agent_ends_the_run(scripted: Any):
    def fail(ctx: CallbackContext) -> None:
        raise BadRequest("no")

    agent, model = scripted(before_agent=fail)
    other, _ = scripted(name="other")
    with pytest.raises(BadRequest, match="no"):
        await App(SequentialAgent(name="seq", sub_agents=[agent, other])).ask("hi")
    assert model.requests == []


@pytest.mark.parametrize("kind", ["function", "sequential", "loop"])
async def test_section_3_2_every_kind_of_agent_has_its_callbacks(kind: str):
    async def body(ctx: RunContext) -> None:
        await ctx.emit(Event(content=model_text("body")))

    hooks: dict[str, Any] = {"before_agent": lambda c: c.state.update(b=1), "after_agent": lambda c: model_text("end")}
    worker = FunctionAgent(name="worker", function=body)
    agent: Agent
    if kind == "function":
        agent = FunctionAgent(name="app", function=body, **hooks)
    elif kind == "sequential":
        agent = SequentialAgent(name="app", sub_agents=[worker], **hooks)
    else:
        agent = LoopAgent(name="app", sub_agents=[worker], max_iterations=1, **hooks)
    got = await App(agent).ask("hi")
    assert [e.text for e in got.events] == ["", "body", "end"]
    assert got.events[0].actions.state_delta == {"b": 1}
    assert got.events[-1].author == "app"


@pytest.mark.parametrize("where", ["before_agent", "after_agent"])
async def test_core_86_a_callback_may_escalate_out_of_a_loop(scripted: Any, where: str):
    def stop(ctx: CallbackContext) -> None:
        ctx.actions.escalate = True

    worker, _ = scripted("work", name="worker", **{where: stop})
    other, model = scripted(name="other")
    got = await App(LoopAgent(name="app", sub_agents=[worker, other])).ask("hi")
    assert [e.author for e in got.events if e.text] == ["worker"]
    assert [e.actions.escalate for e in got.events].count(True) == 1
    assert model.requests == []


async def test_core_86_a_before_agent_answer_may_escalate(scripted: Any):
    def stop(ctx: CallbackContext) -> Content:
        ctx.actions.escalate = True
        return model_text("enough")

    worker, model = scripted(name="worker", before_agent=stop)
    got = await App(LoopAgent(name="app", sub_agents=[worker], max_iterations=5)).ask("hi")
    assert [e.text for e in got.events] == ["enough"]
    assert model.requests == []


# ---- the run's hooks


def one_hook(hook: str, fn: Any) -> Plugin:
    """A plugin with one hook, given as a function."""
    return type(f"Only_{hook}", (Plugin,), {"name": hook, hook: staticmethod(fn)})()


async def test_core_31_the_replaced_user_message_is_what_the_agent_sees_and_what_is_stored(serve: Serve, scripted: Any):
    seen: list[Content | None] = []

    async def replace(ctx: CallbackContext, message: Content) -> Content:
        ctx.state["original"] = message.text
        return Content(parts=[Part(text="changed")])

    agent, model = scripted("ok", before_agent=lambda c: seen.append(c.user_content))
    async with serve(agent, plugins=[one_hook("on_user_message", replace)]) as talk:
        await talk.run("hi")
        stored = await talk.stored()
    assert model.prompt() == ["user: changed"]
    assert seen == [user_text("changed")]
    assert stored["events"][0]["content"] == {"role": "user", "parts": [{"text": "changed"}]}
    assert stored["events"][0]["actions"]["stateDelta"] == {"original": "hi"}


async def test_section_2_2_an_error_in_on_user_message_ends_the_run_and_stores_nothing(serve: Serve, scripted: Any):
    async def refuse(ctx: CallbackContext, message: Content) -> None:
        raise BadRequest("not this")

    agent, _ = scripted()
    async with serve(agent, plugins=[one_hook("on_user_message", refuse)]) as talk:
        response = await talk.client.post("/run", json=talk.body())
        assert (response.status, "not this" in response.text) == (400, True)
        assert (await talk.stored())["events"] == []


async def test_section_2_2_6_12_3_before_run_answers_once_as_the_agent(serve: Serve, scripted: Any):
    async def answer(ctx: CallbackContext) -> Content:
        ctx.state["blocked"] = 1
        return Content(parts=[Part(text="closed today")])

    seen: list[str] = []
    agent, model = scripted()
    async with serve(agent, plugins=[one_hook("before_run", answer), Diary(seen)]) as talk:
        events = await talk.sse("hi")
        stored = await talk.stored()
    assert [(e["author"], e["content"]["parts"]) for e in events] == [("app", [{"text": "closed today"}])]
    assert events[0]["content"]["role"] == "model"
    assert [(e["author"], e["content"]["parts"][0]["text"]) for e in stored["events"]] == [
        ("user", "hi"),
        ("app", "closed today"),
    ]
    assert stored["state"] == {"blocked": 1}
    assert model.requests == []
    assert seen == ["on_user_message", "on_event(text)", "after_run", "close"]


async def test_section_2_2_state_that_before_run_and_after_run_write_is_stored(scripted: Any):
    async def write(ctx: CallbackContext) -> None:
        ctx.state["count"] = ctx.state.get("count", 0) + 1

    agent, model = scripted("ok", instruction="count={count}")
    app = App(agent, plugins=[one_hook("before_run", write), one_hook("after_run", write)])
    await app.ask("hi", session="s1")
    assert "count=1" in model.requests[0].system
    assert await state_of(app) == {"count": 2}


@pytest.mark.parametrize("where", ["before_run", "model", "agent", "callback"])
async def test_section_2_2_6_after_run_runs_on_every_error(scripted: Any, where: str):
    after: list[str] = []

    def fail(*args: Any) -> None:
        raise BadRequest(where)

    async def fail_run(ctx: CallbackContext) -> None:
        raise BadRequest(where)

    async def body(ctx: RunContext) -> None:
        fail()

    async def note(ctx: CallbackContext) -> None:
        after.append("after")

    plugins: list[Plugin] = [one_hook("after_run", note)]
    agent: Agent
    agent, _ = scripted(BadRequest(where))
    if where == "before_run":
        plugins.append(one_hook("before_run", fail_run))
    elif where == "agent":
        agent = FunctionAgent(name="app", function=body)
    elif where == "callback":
        agent, _ = scripted("ok", after_agent=fail)
    with pytest.raises(BadRequest, match=where):
        await App(agent, plugins=plugins).ask("hi")
    assert after == ["after"]


async def test_section_2_2_6_after_run_runs_when_the_run_is_cancelled(scripted: Any):
    started = anyio.Event()
    after: list[str] = []

    async def hang(request: Any, on_partial: Any) -> None:
        started.set()
        await anyio.sleep_forever()

    async def note(ctx: CallbackContext) -> None:
        await anyio.lowlevel.checkpoint()
        ctx.state["ended"] = True
        after.append(ctx.invocation_id)

    agent, _ = scripted(hang)
    async with App(agent, plugins=[one_hook("after_run", note)]) as app, anyio.create_task_group() as group:

        async def asking() -> None:
            with pytest.raises(RunCancelled, match="enough"):
                await app.ask("hi", session="s1")

        group.start_soon(asking)
        await started.wait()
        (run_id,) = app.runs._live  # pyright: ignore[reportPrivateUsage]
        await app.runs.cancel(run_id, "enough")
        assert after == [run_id]
        assert await state_of(app) == {"ended": True}


async def test_section_2_2_6_every_after_run_runs_and_an_error_of_one_does_not_hide_the_runs_error(scripted: Any):
    after: list[str] = []

    async def fail(ctx: CallbackContext) -> None:
        after.append("first")
        raise BadRequest("after_run is broken")

    class Second(Plugin):
        name = "second"

        async def after_run(self, ctx: CallbackContext) -> None:
            after.append("second")

    agent, _ = scripted(ModelError("down"), "ok")
    app = App(agent, plugins=[one_hook("after_run", fail), Second()])
    with pytest.raises(ModelError, match="down"):
        await app.ask("hi")
    assert after == ["first", "second"]
    with pytest.raises(BadRequest, match="after_run is broken"):
        await app.ask("hi")


async def test_section_2_2_6_an_after_run_that_hangs_is_left_behind(
    scripted: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def hang(ctx: CallbackContext) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(runner, "AFTER_RUN_S", 0.01)
    agent, _ = scripted("ok")
    assert (await App(agent, plugins=[one_hook("after_run", hang)]).ask("hi")).text == "ok"
    assert "after_run" in caplog.text


# ---- on_event


async def test_section_2_2_7c_on_event_replaces_what_is_stored_and_what_is_sent(serve: Serve, scripted: Any):
    async def hide(ctx: ReadContext, event: Event) -> Event | None:
        if "secret" not in event.text:
            return None
        return Event(content=model_text(event.text.replace("secret", "***")))

    agent, model = scripted(chunks("my ", "secret"), "next")
    async with serve(agent, plugins=[one_hook("on_event", hide)]) as talk:
        events = await talk.sse("tell", streaming=True)
        stored = (await talk.stored())["events"]
        await talk.run("more")
    assert texts(events) == ["my ", "***", "my ***"]
    assert texts(stored) == ["tell", "my ***"], "a replaced piece is still a piece"
    assert {e["id"] for e in events} == {events[0]["id"]}, "a replaced event is still the same event"
    assert {(e["author"], e["invocationId"]) for e in events} == {("app", events[0]["invocationId"])}
    assert events[0]["invocationId"]
    assert model.prompt() == ["user: tell", "model: my ***", "user: more"]


async def test_section_2_2_7c_an_error_in_on_event_drops_the_event_and_ends_the_run(serve: Serve, scripted: Any):
    async def refuse(ctx: ReadContext, event: Event) -> None:
        if event.text == "bad":
            raise BadRequest("not this event")

    agent, _ = scripted("bad")
    async with serve(agent, plugins=[one_hook("on_event", refuse)]) as talk:
        events = await talk.sse()
        assert events == [("error", {"error": "not this event", "errorCode": "INVALID_ARGUMENT"})]
        assert [e["author"] for e in (await talk.stored())["events"]] == ["user"]


async def test_section_2_2_5c_on_event_does_not_see_the_users_message(scripted: Any):
    seen: list[str] = []
    agent, _ = scripted("ok")
    got = await App(agent, plugins=[Diary(seen)]).ask("hi", config=RunConfig(yield_user_message=True))
    assert [e.author for e in got.events] == ["user", "app"]
    assert [s for s in seen if s.startswith("on_event")] == ["on_event(text)"]


# ---- wrong answers and sync plugins


@pytest.mark.parametrize(
    ("hook", "answer"),
    [
        ("before_agent", "text"),
        ("after_agent", {"text": "x"}),
        ("before_model", "text"),
        ("after_model", model_text("x")),
    ],
)
async def test_a_callback_that_returns_the_wrong_type_is_named(scripted: Any, hook: str, answer: Any):
    agent, _ = scripted("ok", **{hook: lambda *args: answer})
    with pytest.raises(AgentError, match=f"{hook}.*{type(answer).__name__}"):
        await App(agent).ask("hi")


@pytest.mark.parametrize("hook", ["on_user_message", "before_run", "on_event"])
async def test_a_plugin_that_returns_the_wrong_type_is_named(scripted: Any, hook: str):
    async def wrong(*args: Any) -> str:
        return "x"

    agent, _ = scripted("ok")
    with pytest.raises(AgentError, match=f"{hook}.*str"):
        await App(agent, plugins=[one_hook(hook, wrong)]).ask("hi")


async def test_a_plugin_may_have_sync_methods(scripted: Any):
    seen: list[str] = []
    agent, _ = scripted("ok")
    plugins = [
        one_hook(name, lambda *args, name=name: seen.append(name)) for name in ("before_run", "on_event", "after_run")
    ]
    assert (await App(agent, plugins=plugins).ask("hi")).text == "ok"
    assert seen == ["before_run", "on_event", "after_run"]


async def test_FR_097_a_callback_that_exits_ends_the_run_and_not_the_server(serve: Serve, scripted: Any):
    fails = [True]

    def leave(ctx: CallbackContext, request: ModelRequest) -> None:
        if fails.pop() if fails else False:
            raise SystemExit(3)

    agent, _ = scripted("alive", before_model=leave)
    async with serve(agent) as talk:
        events = await talk.sse()
        assert [e[0] for e in events] == ["error"]
        assert "SystemExit" in events[0][1]["error"]
        assert texts(await talk.run()) == ["alive"]


# ---- ending a run


async def test_section_12_13_a_tool_ends_the_run(scripted: Any):
    def stop(ctx: ToolContext) -> str:
        """Stop."""
        ctx.end("seen enough")
        return "stopped"

    seen: list[str] = []
    agent, model = scripted(call("stop"), name="first", tools=[stop], after_agent=lambda c: seen.append("after"))
    other, other_model = scripted(name="second")
    got = await App(SequentialAgent(name="app", sub_agents=[agent, other])).ask("hi")
    assert [len(e.responses) for e in got.events] == [0, 1], "the result of the tool is kept"
    assert got.events[-1].actions.end_invocation
    assert (got.outcome.status, got.outcome.reason) == ("finished", "seen enough")
    assert (len(model.requests), other_model.requests, seen) == (1, [], [])


async def test_section_12_13_the_action_end_invocation_does_the_same(scripted: Any):
    def stop(ctx: ToolContext) -> str:
        """Stop."""
        ctx.actions.end_invocation = True
        return "stopped"

    agent, model = scripted(call("stop"), name="first", tools=[stop])
    other, other_model = scripted(name="second")
    got = await App(SequentialAgent(name="app", sub_agents=[agent, other])).ask("hi")
    assert [len(e.responses) for e in got.events] == [0, 1]
    assert (len(model.requests), other_model.requests) == (1, [])


@pytest.mark.parametrize("where", ["before_agent", "before_model", "after_model"])
async def test_section_12_13_a_callback_ends_the_run(scripted: Any, where: str):
    def stop(ctx: CallbackContext, *args: Any) -> None:
        ctx.state["why"] = where
        ctx.end("stop")

    first, model = scripted("said", name="first", **{where: stop})
    second, second_model = scripted(name="second")
    app = App(SequentialAgent(name="app", sub_agents=[first, second]))
    got = await app.ask("hi", session="s1")
    assert [e.text for e in got.events] == (["said"] if where == "after_model" else [""])
    assert len(model.requests) == (1 if where == "after_model" else 0)
    assert second_model.requests == []
    assert await state_of(app) == {"why": where}


async def test_section_3_2_a_custom_agent_that_ends_the_run_skips_its_after_callback():
    async def body(ctx: RunContext) -> str:
        await ctx.emit(Event(content=model_text("last")))
        return "ended"

    seen: list[str] = []
    first = FunctionAgent(name="first", function=body, after_agent=lambda c: seen.append("after"))
    second = LlmAgent(name="second", model=ScriptedModel())
    got = await App(SequentialAgent(name="app", sub_agents=[first, second])).ask("hi")
    assert ([e.text for e in got.events], seen) == (["last"], [])
