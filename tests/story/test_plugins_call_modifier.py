"""CallModifierPlugin: extra arguments that the model gives and no tool sees (spec core 7)."""

from typing import Any

import pytest

from polyport import App, CallbackContext, Content, LlmAgent, ModelResponse, Part, Tool, ToolContext
from polyport.data.content import FunctionCall, PartialArg
from polyport.data.model import ToolDeclaration
from polyport.errors import ConfigError
from polyport.plugins import CallModifierPlugin
from polyport.testing import ScriptedModel, call
from support.talk import Serve

REASON = {"reason": {"type": "string", "description": "Why you call it."}}


def add(a: int, b: int, ctx: ToolContext) -> dict[str, Any]:
    """Add."""
    return {"sum": a + b, "reason": ctx.state.get(f"{ctx.function_call_id}/reason")}


class SharedTool(Tool):
    """A tool with a JSON Schema of its own, and one declaration for everybody."""

    name = "shared"
    declared = ToolDeclaration(
        name="shared",
        description="Share.",
        parameters={
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/X"}},
            "$defs": {"X": {"type": "integer"}},
            "additionalProperties": False,
        },
    )

    def declaration(self) -> ToolDeclaration:
        return self.declared

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        return args


def noop() -> str:
    """Do nothing."""
    return "ok"


def parameters(model: ScriptedModel, tool: str, request: int = 0) -> dict[str, Any]:
    return next(t.parameters for t in model.requests[request].tools if t.name == tool)


def adds(**more: Any) -> FunctionCall:
    return call("add", {"a": 1, "b": 2, **more}, "c1")


async def test_extra_arguments_are_asked_for_taken_out_and_kept_in_state(serve: Serve, scripted: Any):
    agent, model = scripted(adds(reason="to know"), "3", tools=[add, noop])
    async with serve(agent, plugins=[CallModifierPlugin(REASON, required=["reason"])]) as talk:
        events = await talk.run("hi")
        state = (await talk.stored())["state"]
    assert parameters(model, "add")["properties"]["reason"] == REASON["reason"]
    assert parameters(model, "add")["required"] == ["a", "b", "reason"]
    assert parameters(model, "noop")["required"] == ["reason"]
    assert events[0]["content"]["parts"][0]["functionCall"]["args"] == {"a": 1, "b": 2}
    response = events[1]["content"]["parts"][0]["functionResponse"]["response"]
    assert response == {"sum": 3, "reason": "to know"}, "the tool itself finds it in the state"
    assert state == {"c1/reason": "to know"}
    assert "reason" not in str(model.requests[1].contents[1])


async def test_shared_declarations_stay_as_they_are():
    tool = SharedTool()
    before = str(tool.declared)
    models = [ScriptedModel("ok", "ok"), ScriptedModel("ok", "ok")]
    agents = [LlmAgent(name=n, model=m, tools=[tool]) for n, m in zip(("one", "two"), models, strict=True)]
    async with App(agents, plugins=[CallModifierPlugin(REASON, describe=lambda d: d.name.upper())]) as app:
        for name in ("one", "two", "one", "two"):
            await app.ask("hi", app=name)
    assert str(tool.declared) == before
    for model in models:
        for request in model.requests:
            assert request.tools[0].description == "SHARED"
            assert request.tools[0].parameters == {
                "type": "object",
                "properties": {"x": {"$ref": "#/$defs/X"}, **REASON},
                "$defs": {"X": {"type": "integer"}},
                "additionalProperties": False,
            }, "a plain JSON Schema is extended, too, and only once"


async def test_only_matching_tools_are_changed(scripted: Any):
    for tools in (["add"], lambda name: name.startswith("a")):
        agent, model = scripted([adds(reason="x"), call("noop", {"reason": "y"}, "c2")], "end", tools=[add, noop])
        got = await App(agent, plugins=[CallModifierPlugin(REASON, tools=tools)]).ask("hi")
        assert "reason" in parameters(model, "add")["properties"]
        assert "reason" not in parameters(model, "noop").get("properties", {})
        assert [c.args for c in got.events[0].calls] == [{"a": 1, "b": 2}, {"reason": "y"}]
        assert got.events[0].actions.state_delta == {"c1/reason": "x"}


async def test_without_extra_arguments_later_callbacks_are_asked(scripted: Any):
    seen: list[str] = []

    def after(ctx: CallbackContext, response: ModelResponse) -> None:
        seen.append(str(response.content and response.content.calls))

    agent, _ = scripted(call("noop"), "end", tools=[noop], after_model=after)
    got = await App(agent, plugins=[CallModifierPlugin(REASON)]).ask("hi")
    assert len(seen) == 2
    assert not got.events[0].actions.state_delta


async def test_a_call_without_an_id_gets_the_one_under_which_the_value_is_kept(scripted: Any):
    agent, _ = scripted(call("add", {"a": 1, "b": 2, "reason": "r"}), "3", tools=[add])
    got = await App(agent, plugins=[CallModifierPlugin(REASON)]).ask("hi")
    call_id = got.events[0].calls[0].id
    assert call_id.startswith("adk-")
    assert got.events[0].actions.state_delta == {f"{call_id}/reason": "r"}
    assert got.events[1].responses[0].response == {"sum": 3, "reason": "r"}


async def test_a_prefix_keeps_the_values_for_the_run_only(serve: Serve, scripted: Any):
    agent, _ = scripted(adds(reason="r"), "3", tools=[add])
    async with serve(agent, plugins=[CallModifierPlugin(REASON, prefix="temp:")]) as talk:
        await talk.run("hi")
        assert (await talk.stored())["state"] == {}


async def test_pieces_of_a_call_do_not_show_extra_arguments_and_write_no_state(serve: Serve, scripted: Any):
    async def streams(request: Any, on_partial: Any) -> ModelResponse:
        pieces = [PartialArg(json_path="$.a", number_value=1), PartialArg(json_path="$.reason", string_value="be")]
        for made in (
            FunctionCall(id="c1", name="add", partial_args=pieces, will_continue=True),
            FunctionCall(id="c2", name="add", args={"a": 1, "reason": "r"}),
        ):
            content = Content(role="model", parts=[Part(function_call=made)])
            await on_partial(ModelResponse(content=content, partial=True))
        return ModelResponse(
            content=Content(role="model", parts=[Part(text="so"), Part(function_call=adds(reason="r"))])
        )

    agent, _ = scripted(streams, "3", tools=[add])
    async with serve(agent, plugins=[CallModifierPlugin(REASON)]) as talk:
        events = await talk.sse("hi", streaming=True)
    first, second, final = events[:3]
    assert "reason" not in str([first["content"], second["content"], final["content"]])
    assert len(first["content"]["parts"][0]["functionCall"]["partialArgs"]) == 1
    assert not first["actions"].get("stateDelta")
    assert final["actions"]["stateDelta"] == {"c1/reason": "r"}
    assert final["content"]["parts"][0]["text"] == "so"


async def test_a_property_that_a_tool_has_already_is_refused(scripted: Any):
    agent, model = scripted("never", tools=[add])
    with pytest.raises(ConfigError, match="cannot add a to tool 'add'"):
        await App(agent, plugins=[CallModifierPlugin({"a": {"type": "string"}})]).ask("hi")
    assert model.requests == []
    with pytest.raises(ConfigError, match="required names other"):
        CallModifierPlugin(REASON, required=["other"])
