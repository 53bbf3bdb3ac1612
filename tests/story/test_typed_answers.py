"""Typed answers: `output_schema` and `output_key` through runs (spec core 3.5, 3.14; field reports on structured output)."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from polyport import App, Content, LlmAgent, ModelResponse, Part, SequentialAgent, SessionKey, ToolContext
from polyport.data.content import model_text
from polyport.errors import AgentError
from polyport.testing import ScriptedModel, call, chunks
from support.talk import Serve, texts


class Plan(BaseModel):
    title: str
    steps: int = 0


RAW = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
RESULT = "set_model_response"


def look() -> str:
    """Look."""
    return "seen"


async def state_of(app: App) -> dict[str, Any]:
    return (await app.stores.sessions.get(SessionKey(next(iter(app.trees)), "user", "s1"))).state


# ---- which way to ask


async def test_core_71_FR_087_without_native_support_tools_come_with_a_result_tool(scripted: Any):
    agent, model = scripted(
        call("look"), call(RESULT, {"title": "x", "steps": 2}), tools=[look], output_schema=Plan, output_key="plan"
    )
    app = App(agent)
    got = await app.ask("hi", session="s1")
    for request in model.requests:
        assert request.response_schema is None
        assert [t.name for t in request.tools] == ["look", RESULT]
        assert RESULT in request.system
    declared = model.requests[0].tools[1].parameters
    assert declared["required"] == ["title"] and set(declared["properties"]) == {"title", "steps"}
    assert json.loads(got.text) == {"title": "x", "steps": 2}
    kinds = ["call" if e.calls else "result" if e.responses else "text" for e in got.events]
    assert kinds == ["call", "result", "call", "result", "text"]
    assert (got.events[-1].author, got.events[-1].content.role if got.events[-1].content else "") == ("app", "model")
    assert await state_of(app) == {"plan": {"title": "x", "steps": 2}}


async def test_core_71_FR_087_with_native_support_the_schema_goes_beside_the_tools(scripted: Any):
    agent, model = scripted(call("look"), '{"title": "x"}', tools=[look], output_schema=Plan, schema_with_tools=True)
    got = await App(agent).ask("hi")
    for request in model.requests:
        assert request.response_schema is not None and request.response_schema["required"] == ["title"]
        assert [t.name for t in request.tools] == ["look"]
    assert json.loads(got.text)["title"] == "x"


@pytest.mark.parametrize("native", [True, False])
async def test_core_71_without_tools_the_schema_is_sent_and_there_is_no_result_tool(scripted: Any, native: bool):
    agent, model = scripted('{"title": "x"}', output_schema=Plan, schema_with_tools=native)
    await App(agent).ask("hi")
    assert model.requests[0].response_schema is not None
    assert model.requests[0].tools == []


async def test_core_71_FR_087_the_transfer_tool_is_a_tool_as_well(scripted: Any):
    child, _ = scripted(name="child")
    agent, model = scripted(call(RESULT, {"title": "x"}), output_schema=Plan, sub_agents=[child])
    got = await App(agent).ask("hi")
    assert model.requests[0].response_schema is None
    assert {t.name for t in model.requests[0].tools} == {RESULT, "transfer_to_agent"}
    assert json.loads(got.text)["title"] == "x"


async def test_FR_087_a_model_that_answers_in_text_at_once_is_taken_at_its_word(scripted: Any):
    agent, model = scripted('{"title": "x", "steps": 1}', tools=[look], output_schema=Plan)
    got = await App(agent).ask("hi")
    assert json.loads(got.text) == {"title": "x", "steps": 1}
    model.check()


# ---- second chances


async def test_FR_101_core_71_bad_arguments_of_the_result_tool_get_a_second_chance(scripted: Any):
    agent, model = scripted(
        call(RESULT, {"title": 1}, "c1"),
        call(RESULT, {}, "c2"),
        call(RESULT, {"title": "ok"}, "c3"),
        tools=[look],
        output_schema=Plan,
        output_key="plan",
    )
    app = App(agent)
    got = await app.ask("hi", session="s1")
    first, second, third = (r.response for e in got.events for r in e.responses)
    assert first is not None and "title" in first["error"]
    assert second is not None and "title" in second["error"]
    assert third == {"result": {"title": "ok", "steps": 0}}
    assert "title" in str(model.requests[1].contents[-1].responses[0].response), "the model is told what was wrong"
    assert json.loads(got.text)["title"] == "ok"
    assert (await state_of(app))["plan"]["title"] == "ok"


async def test_FR_101_attempts_are_bounded(serve: Serve, scripted: Any):
    for bad in (call(RESULT, {"title": 1}), "no JSON at all"):
        agent, model = scripted(*[bad] * 50, tools=[look], output_schema=Plan, output_key="plan")
        async with serve(agent) as talk:
            events = await talk.sse()
            kind, error = events[-1]
            assert kind == "error" and "output_schema" in error["error"]
            assert len(model.requests) == 3
            stored = await talk.stored()
            assert stored["state"] == {}
            model.steps[:] = [call(RESULT, {"title": "ok"})]
            assert json.loads(texts(await talk.run("again"))[-1])["title"] == "ok", "the session stays usable"


async def test_FR_103_a_raw_json_schema_works_and_is_enforced(scripted: Any):
    agent, _ = scripted(
        call(RESULT, {"a": "one"}), call(RESULT, {"a": 1}), tools=[look], output_schema=RAW, output_key="r"
    )
    app = App(agent)
    got = await app.ask("hi", session="s1")
    assert json.loads(got.text) == {"a": 1}
    assert await state_of(app) == {"r": {"a": 1}}
    agent, _ = scripted('{"a": true}', '{"a": 2}', output_schema=RAW)
    assert json.loads((await App(agent).ask("hi")).text) == {"a": 2}


@pytest.mark.parametrize(
    "text",
    [
        'Sure! {"title":"x"}',
        'Here it is:\n```json\n{"title": "x"}\n```\nAnything else?',
        '```\n{"title": "x"}\n```',
        '  {"title": "x"}\n',
        'First {"title": 3} no\n```json\n{"title": "x"}\n```',
    ],
)
@pytest.mark.parametrize("tools", [[], [look]])
async def test_FR_104_json_is_taken_out_of_prose(scripted: Any, text: str, tools: list[Any]):
    agent, _ = scripted(text, tools=tools, output_schema=Plan, output_key="plan")
    app = App(agent)
    got = await app.ask("hi", session="s1")
    assert json.loads(got.text) == {"title": "x", "steps": 0}
    assert await state_of(app) == {"plan": {"title": "x", "steps": 0}}


async def test_FR_104_prose_without_json_is_asked_again_and_never_half_written(scripted: Any):
    agent, model = scripted("I cannot say", '{"title": "y"}', output_schema=Plan, output_key="plan")
    app = App(agent)
    got = await app.ask("hi", session="s1")
    assert [e.text for e in got.events] == ['{"title":"y","steps":0}'], "the answer that did not fit is no event"
    assert model.prompt()[-2:][0] == "model: I cannot say"
    assert "schema" in model.prompt()[-1]
    assert await state_of(app) == {"plan": {"title": "y", "steps": 0}}
    model.check()


async def test_FR_104_streamed_prose_ends_with_the_typed_answer(serve: Serve, scripted: Any):
    agent, _ = scripted(chunks("Sure! ", '{"title":', '"x"}'), output_schema=Plan)
    async with serve(agent) as talk:
        events = await talk.sse(streaming=True)
        assert texts([e for e in events if not e.get("partial")]) == ['{"title":"x","steps":0}']
        assert len({e["id"] for e in events}) == 1


async def test_core_38_one_event_and_the_parsed_value_in_state(scripted: Any):
    """A divergence: the reference stores the JSON text."""
    agent, _ = scripted('{"title": "x", "steps": 3}', output_schema=Plan, output_key="plan")
    app = App(agent)
    got = await app.ask("hi", session="s1")
    assert len(got.events) == 1
    assert got.events[0].actions.state_delta == {"plan": {"title": "x", "steps": 3}}
    assert await state_of(app) == {"plan": {"title": "x", "steps": 3}}


async def test_section_12_23_state_of_callbacks_is_kept_when_an_answer_is_asked_for_again(scripted: Any):
    asked: list[int] = []

    def before(ctx: Any, request: Any) -> None:
        asked.append(1)
        ctx.state[f"call{len(asked)}"] = True

    agent, _ = scripted("prose", '{"title": "y"}', output_schema=Plan, before_model=before)
    app = App(agent)
    await app.ask("hi", session="s1")
    assert await state_of(app) == {"call1": True, "call2": True}


async def test_core_45_a_callbacks_answer_is_not_held_against_the_schema(scripted: Any):
    blocked = ModelResponse(content=model_text("I may not talk about that."))
    agent, model = scripted(before_model=lambda c, r: blocked, output_schema=Plan, output_key="plan")
    app = App(agent)
    got = await app.ask("hi", session="s1")
    assert (got.text, model.requests) == ("I may not talk about that.", [])
    assert await state_of(app) == {}
    typed = ModelResponse(content=model_text('Sure: {"title": "c"}'))
    agent, _ = scripted(before_model=lambda c, r: typed, output_schema=Plan, output_key="plan")
    app = App(agent)
    assert json.loads((await app.ask("hi", session="s1")).text) == {"title": "c", "steps": 0}
    assert (await state_of(app))["plan"] == {"title": "c", "steps": 0}


async def test_an_answer_with_an_error_code_is_not_asked_again(scripted: Any):
    cut = ModelResponse(content=model_text('{"title": "'), error_code="MAX_TOKENS", error_message="too long")
    agent, model = scripted(cut, output_schema=Plan, output_key="plan")
    app = App(agent)
    got = await app.ask("hi", session="s1")
    assert (got.events[-1].error_code, len(model.requests)) == ("MAX_TOKENS", 1)
    assert await state_of(app) == {}


async def test_a_thought_and_a_signature_stay_with_a_typed_answer(scripted: Any):
    parts = [Part(text="hmm", thought=True), Part(text='{"title": "x"}', thought_signature=b"sig")]
    agent, _ = scripted(Content(role="model", parts=parts), output_schema=Plan)
    got = await App(agent).ask("hi")
    content = got.events[-1].content
    assert content is not None
    assert [(p.text, p.thought, p.thought_signature) for p in content.parts] == [
        ("hmm", True, None),
        ('{"title":"x","steps":0}', False, b"sig"),
    ]


# ---- output_key


async def test_core_75_output_key_holds_the_joined_text_of_the_agents_final_answer(scripted: Any):
    parts = [Part(text="think", thought=True), Part(text="a"), Part(text="b")]
    agent, _ = scripted(
        Content(role="model", parts=[Part(text="let me see"), Part(function_call=call("look"))]),
        Content(role="model", parts=parts),
        tools=[look],
        output_key="r",
    )
    app = App(agent)
    got = await app.ask("hi", session="s1")
    assert await state_of(app) == {"r": "ab"}
    written = [e.actions.state_delta for e in got.events if e.actions.state_delta]
    assert written == [{"r": "ab"}], "once, on the final answer; never blank on calls and results (12.23)"


async def test_core_75_output_key_is_not_written_by_pieces_or_by_other_agents(serve: Serve, scripted: Any):
    child, _ = scripted("from the child", name="App")
    root, _ = scripted(call("transfer_to_agent", {"agent_name": "App"}), sub_agents=[child], output_key="r")
    async with serve(root) as talk:
        await talk.run()
        assert (await talk.stored())["state"] == {}
    agent, _ = scripted(chunks("x", "y"), output_key="r")
    async with serve(agent) as talk:
        events = await talk.sse(streaming=True)
        assert [e["actions"]["stateDelta"] for e in events] == [{}, {}, {"r": "xy"}]


async def test_section_12_23_output_key_is_not_blanked_by_an_exit_tool(scripted: Any):
    def leave(ctx: ToolContext) -> dict[str, Any]:
        """Leave."""
        ctx.actions.escalate = True
        ctx.actions.skip_summarization = True
        return {}

    agent, _ = scripted("draft", call("leave"), tools=[leave], output_key="r")
    app = App(agent)
    await app.ask("hi", session="s1")
    await app.ask("leave", session="s1")
    assert await state_of(app) == {"r": "draft"}


@pytest.mark.parametrize("where", ["before_agent", "before_model", "after_agent"])
async def test_FR_037_output_key_is_written_when_a_callback_answers(scripted: Any, where: str):
    cached: Any = model_text("cached answer")
    if where == "before_model":
        cached = ModelResponse(content=cached)
    first, _ = scripted(*["own"] * (where == "after_agent"), name="first", output_key="r", **{where: lambda *a: cached})
    second, model = scripted("ok", name="second", instruction="Use {r}")
    app = App(SequentialAgent(name="app", sub_agents=[first, second]))
    await app.ask("hi", session="s1")
    assert "Use cached answer" in model.requests[0].system
    assert await state_of(app) == {"r": "cached answer"}


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_FR_038_own_output_is_readable_in_after_agent_and_later(scripted: Any, store: str, tmp_path: Path):
    seen: list[Any] = []
    a, _ = scripted("from a", name="a", output_key="r", after_agent=lambda c: seen.append(c.state["r"]))
    b, _ = scripted("from b", name="b", before_agent=lambda c: seen.append(c.state["r"]))
    url = f"sqlite:///{tmp_path / 'x.db'}" if store == "sqlite" else store
    async with App(SequentialAgent(name="app", sub_agents=[a, b]), stores=url) as app:
        await app.ask("hi")
    assert seen == ["from a", "from a"]


async def test_the_budget_counts_corrections(scripted: Any):
    from polyport import RunConfig

    agent, model = scripted("prose", "prose", output_schema=Plan)
    with pytest.raises(AgentError, match="max_llm_calls"):
        await App(agent).ask("hi", config=RunConfig(max_llm_calls=1))
    assert len(model.requests) == 1


async def test_one_agent_serves_many_runs_with_their_own_corrections(scripted: Any):
    """What one run was told about its answer must not show up in another one."""
    model = ScriptedModel("prose", '{"title": "1"}', '{"title": "2"}')
    app = App(LlmAgent(name="app", model=model, output_schema=Plan))
    await app.ask("hi")
    await app.ask("hi")
    assert model.prompt() == ["user: hi"]
