"""Tools inside runs: callbacks around them, failures, parallel calls, threads, long-running ones (spec core 3.9, 3.10)."""

import asyncio
import contextvars
import dataclasses
import enum
import json
import threading
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from polyport import (
    App,
    CallbackContext,
    Content,
    LlmAgent,
    ModelRequest,
    Part,
    Plugin,
    ReadContext,
    RunConfig,
    Tool,
    ToolContext,
    make_tool,
)
from polyport.data.content import FunctionCall
from polyport.data.model import ToolDeclaration
from polyport.errors import ConfigError, RunCancelled, Unavailable
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import ScriptedModel, call
from support.talk import Serve, answer, said, texts


def results(events: list[Any]) -> list[Any]:
    """The responses of all function responses, in order; of REST events or of ours."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, dict):
            parts = (event.get("content") or {}).get("parts", [])
            found += [p["functionResponse"].get("response") for p in parts if "functionResponse" in p]
        else:
            found += [r.response for r in event.responses]
    return found


def good() -> str:
    """Work."""
    return "fine"


# ---- callbacks around a tool (CallTool x14)

REAL, EARLY, MENDED, AFTER = {"from": "tool"}, {"from": "before"}, {"from": "mend"}, {"from": "after"}


@pytest.mark.parametrize(
    ("before", "tool", "mend", "after", "response", "asked"),
    [
        (None, REAL, None, None, REAL, "before tool after"),
        (EARLY, REAL, None, None, EARLY, "before after"),
        (ValueError("b"), REAL, None, None, {"error": "ValueError: b"}, "before mend after"),
        (ValueError("b"), REAL, MENDED, None, MENDED, "before mend after"),
        (None, ValueError("t"), None, None, {"error": "ValueError: t"}, "before tool mend after"),
        (None, ValueError("t"), MENDED, None, MENDED, "before tool mend after"),
        (None, ValueError("t"), ValueError("m"), None, {"error": "ValueError: m"}, "before tool mend after"),
        (None, ValueError("t"), None, AFTER, AFTER, "before tool mend after"),
        (None, ValueError("t"), ValueError("m"), AFTER, AFTER, "before tool mend after"),
        (None, REAL, None, AFTER, AFTER, "before tool after"),
        (None, REAL, None, ValueError("a"), {"error": "ValueError: a"}, "before tool after"),
        (EARLY, REAL, None, AFTER, AFTER, "before after"),
        (EARLY, REAL, None, ValueError("a"), {"error": "ValueError: a"}, "before after"),
        (None, ValueError("t"), None, ValueError("a"), {"error": "ValueError: a"}, "before tool mend after"),
    ],
)
async def test_core_48_49_what_the_callbacks_make_of_a_call(
    scripted: Any, before: Any, tool: Any, mend: Any, after: Any, response: Any, asked: str
):
    steps: list[str] = []
    seen: list[Any] = []

    def act(name: str, what: Any) -> Any:
        steps.append(name)
        if isinstance(what, Exception):
            raise what
        return what

    def work() -> Any:
        """Work."""
        return act("tool", tool)

    def after_tool(ctx: ToolContext, tool: Tool, args: dict[str, Any], result: Any) -> Any:
        seen.append(result)
        return act("after", after)

    agent, model = scripted(
        call("work", id="c1"),
        "done",
        tools=[work],
        before_tool=lambda c, t, a: act("before", before),
        on_tool_error=lambda c, t, a, e: act("mend", mend),
        after_tool=after_tool,
    )
    got = await App(agent).ask("hi")
    assert results(got.events) == [response]
    assert " ".join(steps) == asked
    assert got.text == "done", "the run goes on whatever happened"
    if after is None:
        assert seen == [response], "after_tool sees what the model would get, errors as well"
    assert model.requests[1].contents[-1].responses[0].response == response


async def test_core_48_callbacks_may_change_the_arguments_but_not_the_event(scripted: Any):
    got: list[Any] = []

    class Raw(Tool):
        name = "raw"

        def declaration(self) -> ToolDeclaration:
            return ToolDeclaration(name="raw", description="Take anything")

        async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
            got.append(args)
            args["deep"]["list"].append("tool was here")
            return {"seen": args["n"]}

    def edit(ctx: ToolContext, tool: Tool, args: dict[str, Any]) -> None:
        args["n"] = 2

    agent, model = scripted(call("raw", {"n": 1, "deep": {"list": []}}), "done", tools=[Raw()], before_tool=edit)
    reply = await App(agent).ask("hi")
    assert results(reply.events) == [{"seen": 2}]
    assert reply.events[0].calls[0].args == {"n": 1, "deep": {"list": []}}
    assert model.requests[1].contents[1].calls[0].args == {"n": 1, "deep": {"list": []}}


async def test_core_50_a_plugins_tool_answer_suppresses_the_agents_own_callback(scripted: Any):
    own: list[str] = []

    class Guard(Plugin):
        name = "guard"

        async def before_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any]) -> Any:
            return {"by": "plugin"}

        async def after_tool(self, ctx: ToolContext, tool: Tool, args: dict[str, Any], result: Any) -> Any:
            return {**result, "after": "plugin"}

    agent, _ = scripted(
        call("good"),
        "done",
        tools=[good],
        before_tool=lambda c, t, a: own.append("before"),
        after_tool=lambda c, t, a, r: own.append("after"),
    )
    got = await App(agent, plugins=[Guard()]).ask("hi")
    assert results(got.events) == [{"by": "plugin", "after": "plugin"}]
    assert own == []


async def test_section_3_9_an_unknown_tool_is_told_to_the_model_and_may_be_mended(scripted: Any):
    asked: list[Any] = []

    def mend(ctx: ToolContext, tool: Tool | None, args: dict[str, Any], error: Exception) -> Any:
        asked.append((tool, args))
        return {"instead": "this"} if args else None

    agent, _ = scripted(
        [call("nope"), call("nope", {"x": 1})],
        "done",
        tools=[good],
        on_tool_error=mend,
        before_tool=lambda *a: asked.append("before"),
        after_tool=lambda *a: asked.append("after"),
    )
    got = await App(agent).ask("hi")
    assert results(got.events) == [{"error": "there is no tool 'nope'; the tools are: good"}, {"instead": "this"}]
    assert sorted(asked, key=str) == [(None, {"x": 1}), (None, {})]
    assert got.text == "done"


# ---- failures


class Leave(BaseException):
    """An exit of a library's own."""


class Custom(Tool):
    """A tool that is not a function: nothing of ours stands between it and the engine."""

    def __init__(self, name: str, failure: BaseException) -> None:
        self.name = name
        self.failure = failure

    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(name=self.name)

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        raise self.failure


FAILURES = [
    ValueError("x"),
    TimeoutError(),
    SystemExit(1),
    asyncio.CancelledError(),
    ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
    BaseExceptionGroup("exits", [SystemExit(2)]),
    Leave("gone"),
    RecursionError("deep"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("kind", ["async", "sync", "custom", "before_tool", "after_tool", "sync before_tool"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_FR_097_a_raising_tool_is_told_to_the_model_and_the_others_go_on(
    serve: Serve, scripted: Any, failure: BaseException, kind: str
):
    def bad_sync() -> str:
        raise failure

    async def bad_async() -> str:
        raise failure

    def fail_for_bad(ctx: ToolContext, tool: Tool, *args: Any) -> None:
        if tool.name == "bad":
            raise failure

    tool: Any = make_tool(bad_sync if kind == "sync" else bad_async, name="bad", description="Fail")
    fields: dict[str, Any] = {}
    if kind == "custom":
        tool = Custom("bad", failure)
    elif kind.endswith("_tool"):
        tool = make_tool(good, name="bad")

        async def callback(ctx: ToolContext, tool: Tool, *args: Any) -> None:
            fail_for_bad(ctx, tool)

        fields = {"before_tool": fail_for_bad} if kind.startswith("sync") else {kind: callback}
    agent, _ = scripted([call("bad"), call("good")], "done", "still alive", tools=[tool, good], **fields)
    async with serve(agent) as talk:
        events = await talk.sse()
        first, second = results(events)
        assert set(first) == {"error"} and second == {"result": "fine"}
        name = "ValueError" if type(failure) is ExceptionGroup else type(failure).__name__
        assert name in first["error"] or "SystemExit" in first["error"]
        assert texts(events)[-1] == "done"
        assert texts(await talk.run()) == ["still alive"]


async def test_FR_097_the_message_of_a_failure_can_be_replaced(scripted: Any):
    def leaky() -> str:
        """Leak."""
        raise ValueError("password=hunter2")

    agent, model = scripted(
        call("leaky"), "ok", tools=[leaky], on_tool_error=lambda c, t, a, e: {"error": "it did not work"}
    )
    got = await App(agent).ask("hi")
    assert results(got.events) == [{"error": "it did not work"}]
    assert "hunter2" not in str(model.requests) + str(got.events)


@pytest.mark.parametrize("count", [1, 3])
async def test_FR_097_a_real_cancellation_still_cancels(scripted: Any, count: int):
    running = 0
    all_running, stopped = anyio.Event(), []

    async def hang() -> str:
        """Hang."""
        nonlocal running
        running += 1
        if running == count:
            all_running.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            stopped.append(1)
            raise
        return ""

    agent, _ = scripted([call("hang") for _ in range(count)], tools=[hang])
    async with App(agent) as app, anyio.create_task_group() as group:

        async def asking() -> None:
            with pytest.raises(RunCancelled, match="enough"):
                await app.ask("hi")

        group.start_soon(asking)
        await all_running.wait()
        (run_id,) = app.runs._live  # pyright: ignore[reportPrivateUsage]
        await app.runs.cancel(run_id, "enough")
        assert len(stopped) == count


async def test_FR_100_artifacts_and_memory_without_a_store_are_errors_that_the_model_sees(scripted: Any):
    async def remember(ctx: ToolContext) -> Any:
        """Search memory."""
        return [m.id for m in await ctx.search_memory("x")]

    async def save(ctx: ToolContext) -> Any:
        """Save."""
        return await ctx.save_artifact("a", Part(text="x"))

    async def load(ctx: ToolContext) -> Any:
        """Load."""
        return await ctx.load_artifact("a")

    async def names(ctx: ToolContext) -> Any:
        """List."""
        return await ctx.artifact_names()

    agent, _ = scripted(
        [call(n) for n in ("remember", "save", "load", "names")], "ok", tools=[remember, save, load, names]
    )
    got = await App(agent, stores=Stores(MemorySessions())).ask("hi")
    memory, *artifacts = results(got.events)
    assert "no memory store is configured" in memory["error"]
    assert len(artifacts) == 3
    for response in artifacts:
        assert "no artifact store is configured" in response["error"]
    assert got.text == "ok"


async def test_FR_100_a_request_hook_without_its_store_fails_clearly_and_the_server_lives(serve: Serve, scripted: Any):
    class Listing(Tool):
        name = "load_artifacts"

        async def prepare(self, ctx: CallbackContext, request: ModelRequest) -> None:
            if "old" in ctx.state:
                return
            await ctx.artifact_names()

        async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
            return None

    agent, _ = scripted("hello", tools=[Listing()])
    async with serve(agent, stores=Stores(MemorySessions())) as talk:
        ((kind, error),) = await talk.sse("hello")
        assert (kind, error["errorCode"]) == ("error", "UNAVAILABLE")
        assert "no artifact store is configured" in error["error"]
        assert texts(await talk.run("hello", stateDelta={"old": True})) == ["hello"]


async def test_FR_082_a_turn_may_end_on_a_tool_result(scripted: Any):
    for empty in (
        Content(role="model"),
        Content(role="model", parts=[Part()]),
        Content(role="model", parts=[Part(text="")]),
    ):
        agent, model = scripted(call("good"), empty, tools=[good])
        got = await App(agent).ask("hi")
        assert got.outcome.status == "finished"
        assert len(got.events) == 2 and got.events[-1].responses, "the tool's response is the last event"
        model.check()


# ---- parallel calls


async def test_core_51_FR_221_parallel_calls_overlap_and_keep_their_order(serve: Serve, scripted: Any):
    """Each tool waits for the next one to have started: only side by side can they end, and they end in reverse order."""
    started = [anyio.Event() for _ in range(6)]
    ended: list[int] = []
    started[5].set()

    async def step(n: int, ctx: ToolContext) -> dict[str, Any]:
        """Step."""
        ctx.state[f"k{n}"] = n
        await started[n + 1].wait()
        ended.append(n)
        started[n].set()
        return {"n": n}

    agent, _ = scripted([call("step", {"n": n}, f"c{n}") for n in range(5)], "done", tools=[step])
    async with serve(agent) as talk:
        with anyio.fail_after(10):
            events = await talk.run()
    assert ended == [4, 3, 2, 1, 0]
    calls, merged, final = events
    parts = [p["functionResponse"] for p in merged["content"]["parts"]]
    assert [(p["id"], p["response"]) for p in parts] == [(f"c{n}", {"n": n}) for n in range(5)]
    assert (merged["author"], merged["content"]["role"]) == ("app", "user")
    assert merged["actions"]["stateDelta"] == {f"k{n}": n for n in range(5)}
    assert {e["invocationId"] for e in events} == {calls["invocationId"]}
    assert calls["timestamp"] <= merged["timestamp"] <= final["timestamp"]
    assert len({e["id"] for e in events}) == 3


async def test_core_52_a_null_result_is_a_response_of_a_plain_tool_only(scripted: Any):
    class Quiet(Tool):
        def __init__(self, name: str, long_running: bool) -> None:
            self.name = name
            self.long_running = long_running

        def declaration(self) -> ToolDeclaration:
            return ToolDeclaration(name=self.name)

        async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
            return None

    tools = [Quiet("plain", False), Quiet("later", True)]
    agent, _ = scripted([call("later", id="c1"), call("plain", id="c2")], "done", tools=tools)
    got = await App(agent).ask("hi")
    (response,) = got.events[1].responses
    assert (response.id, response.response) == ("c2", None)
    assert got.events[0].long_running_tool_ids == ["c1"]


async def test_core_54_a_partial_call_is_not_carried_out_in_any_mode(scripted: Any):
    from polyport import ModelResponse

    ran: list[str] = []

    def work() -> str:
        """Work."""
        ran.append("x")
        return "ok"

    async def streamed(request: Any, on_partial: Any) -> Any:
        if on_partial is not None:
            piece = Content(role="model", parts=[Part(function_call=FunctionCall(name="work"))])
            await on_partial(ModelResponse(content=piece, partial=True))
        return "only text in the end"

    for streaming in (True, False):
        agent, _ = scripted(streamed, tools=[work])
        got = await App(agent).ask("hi", config=RunConfig(streaming=streaming))
        assert got.text == "only text in the end"
    assert ran == []


async def test_duplicate_tool_names_are_refused_when_the_app_is_made(scripted: Any):
    agent, _ = scripted(tools=[good, make_tool(good)])
    with pytest.raises(ConfigError, match="two tools of agent 'app' are named 'good'"):
        App(agent)


@pytest.mark.parametrize(
    "name", ["adk_request_confirmation", "adk_request_credential", "adk_request_input", "set_model_response"]
)
def test_section_12_31_reserved_tool_names_are_refused_when_the_app_is_made(scripted: Any, name: str):
    agent, _ = scripted(tools=[make_tool(good, name=name)])
    with pytest.raises(ConfigError, match=f"{name}.*reserved"):
        App(agent)


async def test_a_toolsets_tool_with_a_name_that_is_taken_is_a_clear_error(serve: Serve, scripted: Any):
    class More:
        name = "more"

        async def tools(self, ctx: ReadContext) -> list[Tool]:
            return [make_tool(good)] if "clash" in ctx.state else [make_tool(good, name="other")]

        async def aclose(self) -> None: ...

    agent, model = scripted(call("other"), "done", tools=[good, More()])
    async with serve(agent) as talk:
        events = await talk.run()
        assert results(events) == [{"result": "fine"}]
        assert sorted(t.name for t in model.requests[0].tools) == ["good", "other"]
        ((_, error),) = await talk.sse(stateDelta={"clash": True})
        assert "two tools of agent 'app' are named 'good'" in error["error"]


# ---- results


class Color(enum.Enum):
    RED = "red"


class Report(BaseModel):
    at: datetime
    id: uuid.UUID
    cost: Decimal
    color: Color


@dataclasses.dataclass
class Point:
    x: int
    y: float


MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ODD: dict[str, tuple[Any, Any]] = {
    "model": (
        Report(at=MOMENT, id=uuid.UUID(int=7), cost=Decimal("1.50"), color=Color.RED),
        {
            "at": "2026-01-02T03:04:05Z",
            "id": "00000000-0000-0000-0000-000000000007",
            "cost": "1.50",
            "color": "red",
        },
    ),
    "dataclass": (Point(1, 2.5), {"x": 1, "y": 2.5}),
    "set": ({3}, {"result": [3]}),
    "bytes": (b"\x00\xff", {"result": "AP8="}),
    "nan": (float("nan"), {"result": None}),
    "deep nan": ({"a": [float("inf"), 1.0]}, {"a": [None, 1.0]}),
    "text": ("plain", {"result": "plain"}),
    "empty list": ([], {"result": []}),
    "number": (0, {"result": 0}),
    "false": (False, {"result": False}),
    "date": (MOMENT, {"result": "2026-01-02T03:04:05Z"}),
}


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
@pytest.mark.parametrize("kind", ["function", "custom", "before_tool"])
async def test_FR_095_core_113_results_are_json_objects_everywhere(
    serve: Serve, scripted: Any, store: str, kind: str, tmp_path: Path
):
    async def give(what: str) -> Any:
        """Give."""
        return ODD[what][0]

    class Give(Tool):
        name = "give"

        def declaration(self) -> ToolDeclaration:
            return ToolDeclaration(name="give")

        async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
            return ODD[args["what"]][0]

    fields: dict[str, Any] = {"tools": [Give() if kind == "custom" else give]}
    if kind == "before_tool":
        fields["before_tool"] = lambda c, t, a: ODD[a["what"]][0]
    agent, _ = scripted([call("give", {"what": what}) for what in ODD], "done", **fields)
    url = f"sqlite:///{tmp_path / 'x.db'}" if store == "sqlite" else store
    async with serve(agent, stores=url) as talk:
        response = await talk.client.post("/run", json=talk.body())
        for word in ("NaN", "Infinity"):
            assert word not in response.text
        assert results(response.json()) == [wanted for _, wanted in ODD.values()]
        stored = (await talk.stored())["events"]
        assert results(stored) == results(response.json())


async def test_FR_095_a_result_or_state_without_a_json_form_is_told_with_its_name(scripted: Any):
    def odd() -> Any:
        """Give something odd."""
        return object()

    class Odd(Tool):
        name = "raw_odd"

        def declaration(self) -> ToolDeclaration:
            return ToolDeclaration(name=self.name)

        async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
            return {"deep": [object()]}

    def write(ctx: ToolContext) -> str:
        """Write."""
        ctx.state["fine"] = {1, 2}
        ctx.state["m"] = object()
        return "never"

    agent, _ = scripted([call("odd"), call("raw_odd"), call("write")], "done", tools=[odd, Odd(), write])
    got = await App(agent).ask("hi")
    first, second, third = (r["error"] for r in results(got.events))
    assert "odd" in first and "object" in first
    assert "raw_odd" in second and "object" in second
    assert "'m'" in third
    assert got.events[1].actions.state_delta == {"fine": [1, 2]}


# ---- threads


async def test_FR_057_a_blocking_tool_or_callback_does_not_stop_other_requests(serve: Serve, scripted: Any):
    """The blocking code is let go by the other request's answer; on the event loop it would never be."""
    release, blocked = threading.Event(), threading.Event()

    def block() -> str:
        """Block."""
        blocked.set()
        assert release.wait(20)
        return "released"

    def block_callback(ctx: CallbackContext) -> None:
        block()

    blocking = LlmAgent(name="blocking", model=ScriptedModel(call("block"), "done"), tools=[block])
    calling = LlmAgent(name="calling", model=ScriptedModel("done"), before_agent=block_callback)
    other = LlmAgent(name="other", model=ScriptedModel("quick", "quick"))
    async with serve([blocking, calling, other], create=False) as talk:
        for name in ("blocking", "calling"):
            release.clear()
            blocked.clear()
            got: list[Any] = []
            talk.app = name
            await talk.create()
            body = talk.body()
            async with anyio.create_task_group() as group:

                async def ask(body: Any = body, got: list[Any] = got) -> None:
                    got.append(await talk.client.post("/run", json=body))

                group.start_soon(ask)
                with anyio.fail_after(15):
                    assert await anyio.to_thread.run_sync(blocked.wait, 15)
                    assert (await talk.client.get("/health")).status == 200
                    talk.app = "other"
                    if name == "blocking":
                        await talk.create()
                    assert texts(await talk.sse()) == ["quick"]
                    assert got == []
                release.set()
            assert texts(got[0].json())[-1] == "done"


async def test_FR_057_sync_tools_of_one_turn_overlap_and_see_context_variables(scripted: Any):
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")
    both = threading.Barrier(2)

    def meet() -> str:
        """Meet."""
        both.wait(20)  # passes only when two threads are here at once
        return place.get()

    def set_place(ctx: CallbackContext, request: ModelRequest) -> None:
        ctx.state["callback saw"] = place.get()

    agent, _ = scripted([call("meet"), call("meet")], "done", tools=[meet], before_model=set_place)
    place.set("here")
    got = await App(agent).ask("hi")
    assert results(got.events) == [{"result": "here"}, {"result": "here"}]
    assert got.events[0].actions.state_delta == {"callback saw": "here"}


# ---- long-running tools


def later(status: str = "") -> Any:
    """Answer later."""
    return {"status": status} if status else None


LATER = make_tool(later, long_running=True)


async def test_core_36_an_interim_result_is_told_once_then_the_run_waits_and_is_resumed(serve: Serve, scripted: Any):
    agent, model = scripted(call("later", {"status": "pending"}, "c1"), "I have asked.", "All done!", tools=[LATER])
    async with serve(agent) as talk:
        events = await talk.run("start")
        assert len(model.requests) == 2
        assert events[0]["longRunningToolIds"] == ["c1"]
        assert results(events) == [{"status": "pending"}]
        assert texts(events) == ["I have asked."]
        resumed = await talk.run(answer("c1", "later", {"status": "ok"}))
        assert texts(resumed) == ["All done!"]
        assert {e["invocationId"] for e in resumed} == {events[0]["invocationId"]}, "a resumed run keeps its id"
    assert model.prompt()[:3] == [
        "user: start",
        "model: call later({'status': 'pending'})",
        "user: result later {'status': 'ok'}",
    ]
    assert "pending'}\"" not in str(model.prompt())


async def test_core_36_the_outcome_of_a_run_with_an_interim_result_is_paused(scripted: Any):
    agent, _ = scripted(call("later", {"status": "pending"}, "c1"), "I have asked.", tools=[LATER])
    got = await App(agent).ask("start")
    assert (got.outcome.status, got.text) == ("paused", "I have asked.")


async def test_section_3_10_a_null_result_ends_the_turn_and_the_answer_goes_on(scripted: Any):
    after: list[str] = []
    agent, model = scripted(
        call("later", id="c1"), "thanks", tools=[LATER], after_agent=lambda c: after.append("after")
    )
    app = App(agent)
    first = await app.ask("hi", session="s1")
    assert (first.outcome.status, len(first.events), len(model.requests)) == ("paused", 1, 1)
    assert after == [], "a turn that waits has not ended"
    second = await app.ask(said("c1", "later", {"x": 1}), session="s1")
    assert (second.outcome.status, second.text, after) == ("finished", "thanks", ["after"])
    assert model.prompt() == ["user: hi", "model: call later({})", "user: result later {'x': 1}"]
    declared = model.requests[0].tools[0].description
    assert "long-running" in declared and "do not call it again" in declared


async def test_section_3_10_many_results_for_one_call_and_the_tool_runs_once(scripted: Any):
    ran: list[int] = []

    def job() -> dict[str, str]:
        """Start a job."""
        ran.append(1)
        return {"status": "started"}

    tool = make_tool(job, long_running=True)
    agent, model = scripted(call("job", id="c1"), "started", "half", "done", tools=[tool])
    app = App(agent)
    await app.ask("hi", session="s1")
    await app.ask(said("c1", "job", {"status": "half"}), session="s1")
    got = await app.ask(said("c1", "job", {"status": "full"}), session="s1")
    assert got.text == "done"
    assert ran == [1]
    prompt = model.prompt()
    assert [line for line in prompt if "result job" in line] == ["user: result job {'status': 'full'}"]


async def test_section_3_10_a_long_running_tool_that_fails_does_not_wait(scripted: Any):
    def broken() -> None:
        """Break."""
        raise ValueError("no")

    agent, _ = scripted(call("broken", id="c1"), "sorry", tools=[make_tool(broken, long_running=True)])
    got = await App(agent).ask("hi")
    assert (got.outcome.status, got.text) == ("finished", "sorry")


async def test_section_3_10_what_a_waiting_tool_asked_for_is_not_lost(scripted: Any):
    def stop(ctx: ToolContext) -> None:
        """Wait, and end the run."""
        ctx.state["asked"] = True
        ctx.actions.skip_summarization = True

    def leave(ctx: ToolContext) -> None:
        """Wait, and leave the loop."""
        ctx.actions.escalate = True

    tools = [make_tool(stop, long_running=True), make_tool(leave, long_running=True)]
    agent, _ = scripted(call("stop", id="c1"), tools=tools)
    got = await App(agent).ask("hi")
    assert got.outcome.status == "paused"
    assert [(e.actions.skip_summarization, e.actions.state_delta) for e in got.events] == [
        (False, {}),
        (True, {"asked": True}),
    ]
    agent, _ = scripted(call("leave", id="c1"), "bye", tools=tools)
    got = await App(agent).ask("hi")
    assert [e.actions.escalate for e in got.events][:2] == [False, True]


async def test_FR_118_a_result_that_comes_much_later_reaches_the_agent_that_asked(scripted: Any):
    child, model = scripted(
        call("later", {"status": "pending"}, "c1"),
        "asked",
        "child got it",
        name="child",
        tools=[LATER],
        disallow_transfer_to_parent=True,
    )
    root_model = ScriptedModel(call("transfer_to_agent", {"agent_name": "child"}), "one", "two")
    root = LlmAgent(name="root", model=root_model, sub_agents=[child])
    app = App(root)
    await app.ask("start", session="s1")
    for text, wanted in (("unrelated", "one"), ("more", "two")):
        got = await app.ask(text, session="s1")
        assert (got.text, got.events[0].author) == (wanted, "root")
    got = await app.ask(said("c1", "later", {"done": True}), session="s1")
    assert [(e.author, e.text) for e in got.events] == [("child", "child got it")]
    assert "user: result later {'done': True}" in model.prompt()
    root_model.check()


async def test_FR_118_several_results_in_one_message(scripted: Any):
    agent, model = scripted([call("later", id="c1"), call("later", id="c2")], "both", tools=[LATER])
    app = App(agent)
    first = await app.ask("hi", session="s1")
    assert first.events[0].long_running_tool_ids == ["c1", "c2"]
    both = Content(role="user", parts=[*said("c2", "later", {"n": 2}).parts, *said("c1", "later", {"n": 1}).parts])
    assert (await app.ask(both, session="s1")).text == "both"
    assert model.prompt() == [
        "user: hi",
        "model: call later({}) | call later({})",
        "user: result later {'n': 1} | result later {'n': 2}",
    ]


async def test_core_35_FR_118_an_unknown_result_is_a_normal_run_and_harms_nothing(serve: Serve, scripted: Any):
    agent, model = scripted("hm", "and", "fine", tools=[LATER])
    async with serve(agent) as talk:
        assert texts(await talk.run(answer("nope", "later", {"x": 1}))) == ["hm"]
        mixed = answer("nope", "later", {"x": 1})
        mixed["parts"].append({"text": "and this?"})
        assert texts(await talk.run(mixed)) == ["and"]
        assert "and this?" in model.prompt()[-1]
        assert texts(await talk.run("hello")) == ["fine"]


async def test_FR_068_a_made_up_call_id_works_after_a_restart(scripted: Any, tmp_path: Path):
    store = f"sqlite:///{tmp_path / 'x.db'}"
    agent, _ = scripted(call("later"), tools=[LATER])
    async with App(agent, stores=store) as app:
        first = await app.ask("hi", session="s1")
    (id,) = first.events[0].long_running_tool_ids
    assert id == first.events[0].calls[0].id and id.startswith("adk-")
    agent, model = scripted("thanks", tools=[LATER])
    async with App(agent, stores=store) as app:
        assert (await app.ask(said(id, "later", {"x": 1}), session="s1")).text == "thanks"
    assert model.prompt() == ["user: hi", "model: call later({})", "user: result later {'x': 1}"]


async def test_FR_100_an_unavailable_store_names_itself(scripted: Any):
    agent, _ = scripted(instruction="{artifact.note}")
    with pytest.raises(Unavailable, match="artifact store"):
        await App(agent, stores=Stores(MemorySessions())).ask("hi")


# ---- signatures


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_FR_080_thought_signatures_survive_stores_rest_and_merging(serve: Serve, store: str, tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'x.db'}" if store == "sqlite" else store
    signatures = [bytes([n, 255, 0]) for n in range(6)]

    def signed(*numbers: int) -> Content:
        parts = [
            Part(function_call=FunctionCall(id=f"c{n}", name="good"), thought_signature=signatures[n]) for n in numbers
        ]
        return Content(role="model", parts=parts)

    def sent(model: ScriptedModel) -> list[bytes | None]:
        return [p.thought_signature for c in model.requests[-1].contents for p in c.parts if p.function_call]

    first = ScriptedModel(signed(0), signed(1), signed(2), signed(3, 4), "done", "more")
    async with serve(LlmAgent(name="app", model=first, tools=[good]), stores=url) as talk:
        events = await talk.run()
        assert sent(first) == signatures[:5]
        shown = [p["thoughtSignature"] for e in events for p in e["content"]["parts"] if "functionCall" in p]
        assert shown == ["AP8A", "Af8A", "Av8A", "A/8A", "BP8A"]
        await talk.run("again")
        assert sent(first) == signatures[:5]
    if store == "sqlite":
        second = ScriptedModel(signed(5), "end")
        async with serve(LlmAgent(name="app", model=second, tools=[good]), stores=url, create=False) as talk:
            await talk.run("after a restart")
            assert sent(second) == signatures


def test_the_expected_results_are_json():
    assert json.dumps([wanted for _, wanted in ODD.values()], allow_nan=False)
