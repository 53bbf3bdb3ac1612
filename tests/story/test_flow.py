"""The turn loop and the spine of a run (spec core 2.2, 3.3, 3.4; statements 27-59 that are the engine's)."""

import itertools
import json
from typing import Any

import pytest

from polyport import (
    App,
    CallbackContext,
    Content,
    Event,
    FunctionAgent,
    LlmAgent,
    LoopAgent,
    ModelRequest,
    ModelResponse,
    ParallelAgent,
    Part,
    RunConfig,
    RunContext,
    SequentialAgent,
    SessionKey,
    ToolContext,
)
from polyport.data.content import Blob, FunctionCall, model_text
from polyport.data.event import NodeInfo
from polyport.data.model import Usage
from polyport.errors import AgentError, ConfigError
from polyport.seams import Seams
from polyport.testing import ScriptedModel, call, chunks
from support.talk import Serve, texts


def look() -> str:
    """Look."""
    return "seen"


def thought(text: str = "hmm") -> Content:
    return Content(role="model", parts=[Part(text=text, thought=True)])


# ---- the outer loop


async def test_section_3_3_the_model_is_asked_until_its_answer_is_final(scripted: Any):
    agent, model = scripted(call("look"), [call("look"), call("look")], "done", tools=[look])
    got = await App(agent).ask("hi")
    assert [(len(e.calls), len(e.responses), e.text) for e in got.events] == [
        (1, 0, ""),
        (0, 1, ""),
        (2, 0, ""),
        (0, 2, ""),
        (0, 0, "done"),
    ]
    model.check()


async def test_core_59_a_turn_of_thoughts_only_asks_again(scripted: Any):
    agent, model = scripted(thought(), thought("more"), "done")
    got = await App(agent).ask("hi")
    assert got.text == "done"
    assert [bool(e.content and e.content.parts[0].thought) for e in got.events] == [True, True, False]
    model.check()


async def test_core_59_thoughts_alone_do_not_go_on_for_ever(scripted: Any):
    agent, model = scripted(*[thought()] * 50)
    got = await App(agent).ask("hi")
    assert (got.text, len(model.requests)) == ("", 3)


async def test_core_59_the_count_of_thoughts_starts_anew_after_a_tool(scripted: Any):
    agent, model = scripted(thought(), thought(), call("look"), thought(), thought(), "done", tools=[look])
    assert (await App(agent).ask("hi")).text == "done"
    model.check()


async def test_core_59_a_thought_with_an_error_code_is_final(scripted: Any):
    response = ModelResponse(content=thought(), error_code="MAX_TOKENS", error_message="thought too long")
    agent, _ = scripted(response)
    got = await App(agent).ask("hi")
    assert [(e.error_code, e.error_message) for e in got.events] == [("MAX_TOKENS", "thought too long")]


@pytest.mark.parametrize("budget", [1, 5])
async def test_section_12_1_the_budget_of_model_calls_ends_the_run_with_an_error(
    serve: Serve, scripted: Any, budget: int
):
    from polyport.data.limits import Limits

    agent, model = scripted(*[call("look")] * 50, tools=[look])
    async with serve(agent, limits=Limits(max_llm_calls=budget)) as talk:
        events = await talk.sse()
        kind, error = events[-1]
        assert kind == "error"
        assert f"{budget} model calls" in error["error"] and "max_llm_calls" in error["error"]
        assert len(model.requests) == budget
        assert len(events) == 2 * budget + 1, "what happened before is kept"
        model.steps[:] = ["fresh"]
        assert texts(await talk.run()) == ["fresh"], "the budget is one of the run, not of the session"


async def test_section_12_1_the_budget_is_shared_by_the_whole_tree():
    def endless(name: str) -> LlmAgent:
        return LlmAgent(name=name, model=ScriptedModel(*[call("look")] * 50), tools=[look])

    agents = [endless("a"), endless("b")]
    with pytest.raises(AgentError, match="7 model calls"):
        await App(ParallelAgent(name="app", sub_agents=agents)).ask("hi", config=RunConfig(max_llm_calls=7))
    assert sum(len(a.model.requests) for a in agents if isinstance(a.model, ScriptedModel)) == 7


async def test_section_12_1_a_callbacks_answer_costs_no_call(scripted: Any):
    left = [1, 2, 3]

    def cached(ctx: CallbackContext, request: ModelRequest) -> ModelResponse | None:
        return ModelResponse(content=Content(parts=[Part(function_call=call("look"))])) if left and left.pop() else None

    agent, model = scripted("done", tools=[look], before_model=cached)
    got = await App(agent).ask("hi", config=RunConfig(max_llm_calls=1))
    assert (got.text, len(model.requests)) == ("done", 1)


async def test_section_3_4_a_model_is_needed():
    with pytest.raises(ConfigError, match="agent 'app' has no model"):
        App(LlmAgent(name="app"))


async def test_section_3_4_a_missing_model_is_that_of_the_llm_agent_above(scripted: Any):
    child = LlmAgent(name="child")
    steps = SequentialAgent(name="steps", sub_agents=[child])
    root, model = scripted(call("transfer_to_agent", {"agent_name": "steps"}), "from the child", sub_agents=[steps])
    got = await App(root).ask("hi")
    assert (got.events[-1].author, got.text) == ("child", "from the child")
    model.check()


async def test_section_3_4_everything_the_model_told_is_on_the_event(scripted: Any):
    response = ModelResponse(
        content=model_text("x"),
        usage_metadata=Usage(prompt_token_count=3, total_token_count=5),
        finish_reason="STOP",
        model_version="m-1",
        turn_complete=True,
        grounding_metadata={"a": 1},
        citation_metadata={"citations": []},
        custom_metadata={"c": [1]},
        logprobs_result={"l": 1},
        avg_logprobs=-0.5,
        session_resumption_handle="h",
    )
    agent, _ = scripted(response)
    app = App(agent)
    (event,) = (await app.ask("hi", session="s1")).events
    from msgspec import structs

    for name, value in structs.asdict(response).items():
        if name != "partial":
            assert getattr(event, name) == value, name
    assert event.author == "app" and event.id and event.timestamp is not None


async def test_section_3_4_an_error_answer_without_content_is_an_event_and_the_run_ends(scripted: Any):
    agent, model = scripted(ModelResponse(error_code="SAFETY", error_message="blocked"))
    got = await App(agent).ask("hi")
    assert [(e.content, e.error_code) for e in got.events] == [(None, "SAFETY")]
    assert (got.outcome.status, len(model.requests)) == ("finished", 1)


async def test_section_3_4_zero_parts_are_not_stored(scripted: Any):
    parts = [Part(), Part(text="x"), Part(), Part(thought_signature=b"s")]
    agent, _ = scripted(Content(role="model", parts=parts))
    (event,) = (await App(agent).ask("hi")).events
    assert event.content is not None
    assert event.content.parts == [Part(text="x"), Part(thought_signature=b"s")]


async def test_section_3_4_text_beside_calls_stays_and_calls_get_ids(scripted: Any):
    parts = [Part(text="let me see"), Part(function_call=call("look")), Part(function_call=call("look", id="own"))]
    agent, _ = scripted(Content(parts=parts), "done", tools=[look])
    got = await App(agent).ask("hi")
    first = got.events[0]
    assert first.text == "let me see" and first.content is not None and first.content.role == "model"
    made, own = first.calls
    assert made.id.startswith("adk-") and own.id == "own"
    assert [r.id for r in got.events[1].responses] == [made.id, "own"]


async def test_core_54_streamed_pieces_of_a_call_are_shown_and_run_once(serve: Serve, scripted: Any):
    ran: list[str] = []

    def work(n: str) -> str:
        """Work."""
        ran.append(n)
        return n

    async def streamed(request: Any, on_partial: Any) -> Any:
        for n in ("a", "ab"):
            piece = FunctionCall(id="c1", name="work", args={"n": n}, will_continue=n == "a")
            await on_partial(
                ModelResponse(content=Content(role="model", parts=[Part(function_call=piece)]), partial=True)
            )
        return call("work", {"n": "abc"}, "c1")

    agent, _ = scripted(streamed, "done", tools=[work])
    async with serve(agent) as talk:
        events = await talk.sse(streaming=True)
        stored = await talk.stored()
    assert ran == ["abc"]
    assert [bool(e.get("partial")) for e in events] == [True, True, False, False, False]
    assert len(stored["events"]) == 4, "pieces are never stored"


async def test_a_model_of_ones_own_that_gives_nonsense_is_named():
    class Odd(ScriptedModel):
        async def generate(self, request: Any, on_partial: Any = None) -> Any:
            return "text"

    with pytest.raises(AgentError, match="model 'odd' gave a str"):
        await App(LlmAgent(name="app", model=Odd(name="odd"))).ask("hi")


@pytest.mark.parametrize("name", ["adk_request_input", "adk_request_credential"])
async def test_core_62_questions_to_a_human_never_reach_the_prompt(scripted: Any, name: str):
    from support.talk import said

    agent, model = scripted("after the answer", "more")
    app = App(agent)
    await app.stores.sessions.create(
        "app",
        "user",
        "s1",
        events=[
            Event(author="user", content=Content(role="user", parts=[Part(text="start")])),
            Event(
                author="app",
                content=Content(role="model", parts=[Part(function_call=call(name, {}, "q1"))]),
                long_running_tool_ids=["q1"],
            ),
        ],
    )
    await app.ask(said("q1", name, {"confirmed": True}), session="s1")
    assert "adk_request" not in str(model.requests[0].contents)
    assert model.prompt() == ["user: start"]


# ---- the spine


async def test_FR_221_one_invocation_id_and_times_that_do_not_fall(serve: Serve, scripted: Any):
    agent, _ = scripted(
        [call("look"), call("look")], chunks("a", "b"), tools=[look], after_agent=lambda c: model_text("x")
    )
    async with serve(agent) as talk:
        events = await talk.sse(streaming=True)
        stored = (await talk.stored())["events"]
    ids = {e["invocationId"] for e in (*events, *stored)}
    assert len(ids) == 1 and ids.pop().startswith("e-")
    for run in (events, stored):
        times = [e["timestamp"] for e in run]
        assert times == sorted(times)
    assert len({e["id"] for e in stored}) == len(stored)


async def test_section_1_1_ids_and_times_come_from_the_seams(scripted: Any):
    numbers, clock = itertools.count(1), itertools.count(1_000_000_000)
    seams = Seams(clock=lambda: float(next(clock)), new_id=lambda: f"id{next(numbers)}")
    agent, _ = scripted(call("look"), "done", tools=[look])
    got = await App(agent, seams=seams).ask("hi", session="s1")
    assert {e.invocation_id[:4] for e in got.events} == {"e-id"}
    assert all(e.id.startswith("id") for e in got.events)
    assert got.events[0].calls[0].id.startswith("adk-id")
    assert all(e.timestamp is not None and e.timestamp.year == 2001 for e in got.events)


async def test_core_30_uploads_become_artifacts_and_are_recorded(scripted: Any):
    agent, model = scripted("ok")
    app = App(agent)
    upload = Content(
        role="user",
        parts=[
            Part(text="look"),
            Part(inline_data=Blob(mime_type="image/png", data=b"\x00\x01", display_name="cat.png")),
            Part(inline_data=Blob(mime_type="text/plain", data=b"hello")),
        ],
    )
    await app.ask(upload, session="s1", config=RunConfig(save_input_blobs=True))
    key = SessionKey("app", "user", "s1")
    stored = (await app.stores.sessions.get(key)).events[0]
    names = [f"artifact_{stored.invocation_id}_{n}" for n in (1, 2)]
    assert app.stores.artifacts is not None
    assert await app.stores.artifacts.names(key) == names
    kept = await app.stores.artifacts.load(key, names[0])
    assert kept.inline_data is not None and kept.inline_data.data == b"\x00\x01"
    assert stored.actions.artifact_delta == {names[0]: 1, names[1]: 1}
    assert stored.content is not None
    assert [p.inline_data for p in stored.content.parts] == [None] * 3
    assert "cat.png" in (stored.content.parts[1].text or "")
    assert upload.parts[1].inline_data is not None, "the caller's message is left alone"
    assert [p.inline_data is not None for p in model.requests[0].contents[0].parts] == [False, True, True]


async def test_core_30_without_the_setting_a_blob_stays_in_the_event(scripted: Any):
    agent, _ = scripted("ok")
    app = App(agent)
    await app.ask(Content(role="user", parts=[Part(inline_data=Blob(mime_type="a/b", data=b"x"))]), session="s1")
    stored = (await app.stores.sessions.get(SessionKey("app", "user", "s1"))).events[0]
    assert stored.content is not None and stored.content.parts[0].inline_data is not None


async def test_section_2_2_5_a_message_without_a_role_is_the_users(scripted: Any):
    agent, model = scripted("ok")
    app = App(agent)
    await app.ask(Content(parts=[Part(text="hi")]), session="s1")
    stored = (await app.stores.sessions.get(SessionKey("app", "user", "s1"))).events[0]
    assert stored.content is not None and stored.content.role == "user"
    assert model.requests[0].contents[0].role == "user"


async def test_section_12_4_the_first_error_ends_the_run_and_no_next_child_begins(scripted: Any):
    first, _ = scripted(ValueError("boom"), name="first")
    second, model = scripted(name="second")
    for kind in (SequentialAgent, LoopAgent):
        first, _ = scripted(ValueError("boom"), name="first")
        with pytest.raises(ValueError, match="boom"):
            await App(kind(name="app", sub_agents=[first, second])).ask("hi")
    assert model.requests == []


async def test_section_12_6_one_agent_serves_many_runs_at_once():
    """Runs that overlap: each asks the same agent object, and each sees its own history and its own state."""
    import anyio

    gates = {n: anyio.Event() for n in range(4)}

    async def answer(request: Any, on_partial: Any) -> Any:
        text = request.contents[0].parts[0].text
        n = int(text)
        if n < 3:
            await gates[n + 1].wait()
        gates[n].set()
        return f"answer {text} {request.system.split('.')[0]}"

    agent = LlmAgent(name="app", model=ScriptedModel(*[answer] * 4), instruction="k={k}.", output_key="out")
    app = App(agent)
    got: dict[int, str] = {}

    async def one(n: int) -> None:
        reply = await app.ask(str(n), session=f"s{n}", state={"k": n})
        got[n] = reply.text
        state = (await app.stores.sessions.get(SessionKey("app", "user", f"s{n}"))).state
        assert state == {"k": n, "out": reply.text}

    async with app, anyio.create_task_group() as group:
        for n in range(4):
            group.start_soon(one, n)
    assert got == {n: f"answer {n} k={n}" for n in range(4)}


# ---- custom agents: what they may emit


async def test_FR_113_an_event_without_author_id_time_or_branch_gets_them(serve: Serve):
    async def events(ctx: RunContext) -> Any:
        yield Event(content=model_text("model says"))
        yield Event(content=Content(role="user", parts=[Part(text="user says")]))
        yield None
        yield Event(id="mine", author="somebody", content=model_text("own"), invocation_id="e-own")

    async with serve(FunctionAgent(name="app", function=events)) as talk:
        got = await talk.run()
        stored = (await talk.stored())["events"]
    assert [e["author"] for e in got] == ["app", "user", "somebody"]
    assert all(e["id"] and e["timestamp"] and e["invocationId"] for e in got)
    assert got[2]["id"] == "mine"
    assert [e["id"] for e in stored[1:]] == [e["id"] for e in got]


async def test_FR_113_an_event_that_has_all_but_a_branch_gets_that_too():
    async def body(ctx: RunContext) -> None:
        made = ctx.event(content=model_text("x"))
        await ctx.emit(Event(id="i", timestamp=made.timestamp, invocation_id=made.invocation_id, author="a"))

    agent = ParallelAgent(name="app", sub_agents=[FunctionAgent(name="child", function=body)])
    (event,) = (await App(agent).ask("hi")).events
    assert event.branch == "app.child"


async def _dict(ctx: RunContext) -> Any:
    yield {"content": "x"}


async def _emit_dict(ctx: RunContext) -> None:
    await ctx.emit({"content": "x"})  # type: ignore[arg-type]  # what a user may do by mistake


async def _return_text(ctx: RunContext) -> Any:
    return "the answer"


async def _return_event(ctx: RunContext) -> Any:
    return Event(content=model_text("x"))


def _not_async(ctx: RunContext) -> Any:
    return "x"


def _generator(ctx: RunContext) -> Any:
    yield Event()


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (_dict, "dict"),
        (_emit_dict, "dict"),
        (_return_text, "str"),
        (_return_event, "Event"),
        (_not_async, "str"),
        (_generator, "generator"),
    ],
)
async def test_FR_113_what_is_no_event_is_a_clear_error_naming_the_agent(serve: Serve, function: Any, word: str):
    async with serve(FunctionAgent(name="custom", function=function)) as talk:
        ((kind, error),) = await talk.sse()
        assert kind == "error"
        assert "'custom'" in error["error"] and word in error["error"]
        assert (await talk.client.get("/health")).status == 200


async def test_FR_113_an_agent_that_never_yields_gives_no_events(serve: Serve):
    async def never(ctx: RunContext) -> Any:
        if ctx.agent_name == "":
            yield Event()

    async with serve(FunctionAgent(name="app", function=never)) as talk:
        assert await talk.run() == []
        assert await talk.sse() == []


async def test_section_2_2_7_an_agent_reads_its_own_writes_at_once():
    seen: list[int] = []

    async def body(ctx: RunContext) -> None:
        for n in range(3):
            stored = await ctx.emit(Event(content=model_text(str(n))))
            seen.append(len(ctx.session.events))
            assert ctx.session.events[-1].id == stored.id
        await ctx.emit(Event(content=model_text("piece"), partial=True))
        seen.append(len(ctx.session.events))

    await App(FunctionAgent(name="app", function=body)).ask("hi")
    assert seen == [2, 3, 4, 4]


async def test_core_37_a_message_that_is_the_output_is_sent_once(serve: Serve):
    async def body(ctx: RunContext) -> None:
        await ctx.emit(Event(output={"n": 1}, node_info=NodeInfo(path="wf@1/n@1"), routes=["a"]))
        says = NodeInfo(path="wf@1/m@1", message_as_output=True)
        await ctx.emit(Event(output={"n": 2}, node_info=says, content=model_text('{"n": 2}')))
        await ctx.emit(Event(output={"n": 3}, node_info=says))

    async with serve(FunctionAgent(name="app", function=body)) as talk:
        events = await talk.run()
        stored = (await talk.stored())["events"][1:]
    assert [(e.get("output"), texts([e])) for e in events] == [({"n": 1}, []), (None, ['{"n": 2}']), ({"n": 3}, [])]
    assert [e.get("output") for e in stored] == [{"n": 1}, None, {"n": 3}]
    assert events[0]["nodeInfo"] == {"path": "wf@1/n@1"} and events[0]["routes"] == ["a"]
    assert events[1]["nodeInfo"]["messageAsOutput"] is True


# ---- leaving loops


def leave(ctx: ToolContext) -> str:
    """Leave."""
    ctx.actions.escalate = True
    return "left"


def leave_at_once(ctx: ToolContext) -> str:
    """Leave without a word."""
    ctx.actions.escalate = True
    ctx.actions.skip_summarization = True
    return "left"


async def test_core_86_escalate_lets_the_model_say_a_last_word_and_the_next_child_never_runs(scripted: Any):
    first, model = scripted(call("leave"), "goodbye", name="first", tools=[leave])
    second, other = scripted(name="second")
    got = await App(LoopAgent(name="app", sub_agents=[first, second])).ask("hi")
    assert got.text == "goodbye"
    assert model.requests[-1].config.tool_choice == "none"
    assert other.requests == []


async def test_core_86_with_skip_summarization_it_stops_right_away(scripted: Any):
    first, model = scripted(call("leave_at_once"), name="first", tools=[leave_at_once])
    second, other = scripted(name="second")
    got = await App(LoopAgent(name="app", sub_agents=[first, second])).ask("hi")
    assert [len(e.responses) for e in got.events] == [0, 1]
    assert (len(model.requests), other.requests) == (1, [])


async def test_FR_111_a_model_that_calls_the_exit_tool_again_and_again_leaves_after_the_first_call(scripted: Any):
    ran: list[int] = []

    def leave(ctx: ToolContext) -> str:
        """Leave."""
        ran.append(1)
        ctx.actions.escalate = True
        return "left"

    first, model = scripted(*[call("leave")] * 20, name="first", tools=[leave])
    second, other = scripted(name="second")
    got = await App(LoopAgent(name="app", sub_agents=[first, second])).ask("hi")
    assert (len(ran), len(model.requests), other.requests) == (1, 2, [])
    assert [(len(e.calls), len(e.responses)) for e in got.events] == [(1, 0), (0, 1)], "no event without a word in it"


@pytest.mark.parametrize("last", [ModelResponse(), thought(), Content(role="model", parts=[Part(text="")])])
async def test_FR_111_a_silent_last_word_still_leaves_the_loop(scripted: Any, last: Any):
    first, model = scripted(call("leave"), last, *[call("leave")] * 5, name="first", tools=[leave])
    await App(LoopAgent(name="app", sub_agents=[first])).ask("hi")
    assert len(model.requests) == 2


async def test_core_86_a_last_word_beside_calls_keeps_its_text(scripted: Any):
    parts = [Part(text="bye"), Part(function_call=call("leave"))]
    first, _ = scripted(call("leave"), Content(role="model", parts=parts), name="first", tools=[leave])
    got = await App(LoopAgent(name="app", sub_agents=[first])).ask("hi")
    assert got.text == "bye" and got.events[-1].calls == []


async def test_section_3_9_skip_summarization_ends_the_turn_without_another_model_call(scripted: Any):
    def show(ctx: ToolContext) -> dict[str, Any]:
        """Show."""
        ctx.actions.skip_summarization = True
        return {"shown": True}

    first, model = scripted(call("show"), name="first", tools=[show])
    second, other = scripted("next", name="second")
    got = await App(SequentialAgent(name="app", sub_agents=[first, second])).ask("hi")
    assert (len(model.requests), len(other.requests), got.text) == (1, 1, "next")
    assert got.events[1].actions.skip_summarization


async def test_section_12_22_a_history_with_an_open_call_is_repaired(scripted: Any):
    """A run that ended between a call and its result does not poison the session."""

    def stop(ctx: CallbackContext, response: ModelResponse) -> None:
        if response.content is not None and response.content.calls:
            ctx.end("stop")

    agent, model = scripted(call("look", id="c1"), "fine", tools=[look], after_model=stop)
    app = App(agent)
    first = await app.ask("hi", session="s1")
    assert [len(e.calls) for e in first.events] == [1]
    assert (await app.ask("more", session="s1")).text == "fine"
    lines = model.prompt()
    assert lines[1] == "model: call look({})" and lines[2].startswith("user: result look")


async def test_prompts_are_built_from_new_events_only_once(scripted: Any):
    """Requests of one run hold the history up to their own moment, not later."""
    agent, model = scripted(call("look"), call("look"), "done", tools=[look])
    await App(agent).ask("hi")
    assert [len(model.prompt(n)) for n in range(3)] == [1, 3, 5]
    assert json.dumps(model.prompt(0)) == '["user: hi"]'
