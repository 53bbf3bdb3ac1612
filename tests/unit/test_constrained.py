"""Tools by constraint: what the inner model is asked, and what its JSON becomes."""

import json
from collections.abc import Sequence
from typing import Any

import jsonschema_rs
import pytest

from polyport.data.content import Content, FunctionCall, FunctionResponse, Part, model_text, user_text
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse, ToolDeclaration, Usage
from polyport.models.constrained import Constrained, turn_schema
from polyport.ports.model import OnPartial
from polyport.seams import Seams

WEATHER = ToolDeclaration(
    name="get_weather",
    description="Get the weather of a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
ADD = ToolDeclaration(
    name="add",
    description="Add two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


class Says:
    """A model that says one text, in the given pieces, and keeps the question."""

    name = "tiny"
    schema_with_tools = False
    closed = False

    def __init__(self, *pieces: str, thought: str = "", finish: str = "STOP") -> None:
        self.pieces, self.thought, self.finish = pieces, thought, finish
        self.asked: ModelRequest | None = None

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        self.asked = request
        parts = [Part(text=self.thought, thought=True)] * bool(self.thought)
        if on_partial is not None:
            for part in [*parts, *(Part(text=p) for p in self.pieces)]:
                await on_partial(ModelResponse(content=Content(role="model", parts=[part]), partial=True))
        content = Content(role="model", parts=[*parts, Part(text="".join(self.pieces))])
        return ModelResponse(content=content, finish_reason=self.finish)

    async def aclose(self) -> None:
        self.closed = True


def ask(*contents: Content, tools: Sequence[ToolDeclaration] = (WEATHER, ADD), **more: Any) -> ModelRequest:
    return ModelRequest(contents=list(contents) or [user_text("Hi")], tools=list(tools), **more)


def constrained(inner: Says, **more: Any) -> Constrained:
    return Constrained(inner, seams=Seams(new_id=lambda: "1"), **more)


async def test_a_call_in_json_becomes_a_call():
    inner = Says('{"tool":"get_weather","args":{"city":"Bern"}}', thought="hm")
    answer = await constrained(inner).generate(ask())
    assert answer.content is not None
    assert answer.content.parts == [
        Part(text="hm", thought=True),
        Part(function_call=FunctionCall(id="adk-1", name="get_weather", args={"city": "Bern"})),
    ]
    assert answer.finish_reason == "STOP"


async def test_an_answer_in_json_becomes_text():
    answer = await constrained(Says('{"answer":"It is \\"fine\\"."}')).generate(ask())
    assert answer.content == model_text('It is "fine".')


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("plain words", "plain words"),
        ('{"answer":"It was a long', "It was a long"),
        ('{"tool":"add","args":{"a"', '{"tool":"add","args":{"a"'),
    ],
)
async def test_text_that_is_no_turn_is_kept_with_its_finish_reason(said: str, kept: str):
    answer = await constrained(Says(said, finish="MAX_TOKENS")).generate(ask())
    assert (answer.content, answer.finish_reason) == (model_text(kept), "MAX_TOKENS")


async def test_the_inner_model_is_asked_for_a_turn_and_never_for_tools():
    inner = Says('{"answer":"ok"}')
    await constrained(inner).generate(ask(system="Be kind."))
    asked = inner.asked
    assert asked is not None and asked.tools == [] and asked.response_schema is not None
    assert (
        asked.system.startswith("Be kind.\n\n")
        and "get_weather(city: string): Get the weather of a city." in asked.system
    )
    assert asked.contents[-1] == user_text("Hi")
    for shown in asked.contents[:-1]:
        if shown.role == "model":
            jsonschema_rs.validate(asked.response_schema, json.loads(shown.text))
    assert {json.loads(c.text).get("tool") for c in asked.contents if c.role == "model"} == {"get_weather", "add", None}


async def test_own_examples_take_the_place_of_made_ones():
    inner = Says('{"answer":"ok"}')
    examples = [("Sun in Rome?", FunctionCall(name="get_weather", args={"city": "Rome"})), ("Bye", "Goodbye")]
    await constrained(inner, examples=examples).generate(ask())
    assert inner.asked is not None
    assert [c.text for c in inner.asked.contents] == [
        "Sun in Rome?",
        '{"tool":"get_weather","args":{"city":"Rome"}}',
        "Bye",
        '{"answer":"Goodbye"}',
        "Hi",
    ]


async def test_the_talk_so_far_is_told_in_the_same_forms():
    inner = Says('{"answer":"ok"}')
    call, response = (
        FunctionCall(id="c1", name="add", args={"a": 1}),
        FunctionResponse(id="c1", name="add", response={"r": 2}),
    )
    history = [
        user_text("1?"),
        Content(role="model", parts=[Part(function_call=call)]),
        Content(role="user", parts=[Part(function_response=response)]),
        model_text("Two."),
        user_text("thanks"),
    ]
    await constrained(inner, examples=[("x", "y")]).generate(ask(*history))
    assert inner.asked is not None
    told = ["1?", '{"tool":"add","args":{"a":1}}', 'Result of add: {"r":2}', '{"answer":"Two."}', "thanks"]
    assert [c.text for c in inner.asked.contents[2:]] == told
    assert history[1].calls == [call]


def after_a_call(**args: Any) -> list[Content]:
    call, response = (
        FunctionCall(id="c1", name="add", args=args),
        FunctionResponse(id="c1", name="add", response={"r": 2}),
    )
    return [
        user_text("1?"),
        Content(role="model", parts=[Part(function_call=call)]),
        Content(role="user", parts=[Part(function_response=response)]),
    ]


AGAIN = '{"tool":"add","args":{"a":1,"b":2}}'


class SaysInTurn(Says):
    """A model with one text for each question."""

    async def generate(self, request: ModelRequest, on_partial: OnPartial | None = None) -> ModelResponse:
        self.asked = request
        text, *self.pieces = self.pieces
        return ModelResponse(
            content=model_text(text), usage_metadata=Usage(prompt_token_count=10, total_token_count=12)
        )


async def test_a_call_that_repeats_an_answered_one_is_asked_again_for_an_answer():
    inner = SaysInTurn(AGAIN, '{"answer":"Two."}')
    answer = await constrained(inner).generate(ask(*after_a_call(a=1, b=2)))
    assert answer.content == model_text("Two.")
    assert answer.usage_metadata == Usage(prompt_token_count=20, total_token_count=24)
    assert inner.asked is not None and inner.asked.response_schema is not None
    assert not jsonschema_rs.is_valid(inner.asked.response_schema, json.loads(AGAIN))


@pytest.mark.parametrize(
    ("contents", "options", "choice"),
    [
        (after_a_call(a=1, b=3), {}, "auto"),
        ([*after_a_call(a=1, b=2), model_text("Two."), user_text("And again?")], {}, "auto"),
        (after_a_call(a=1, b=2), {"repeats": True}, "auto"),
        (after_a_call(a=1, b=2), {}, "add"),
    ],
)
async def test_a_call_that_is_new_or_wanted_stands(contents: list[Content], options: dict[str, Any], choice: str):
    inner = SaysInTurn(AGAIN)
    answer = await constrained(inner, **options).generate(ask(*contents, config=GenerateConfig(tool_choice=choice)))
    assert answer.content is not None
    assert [(c.name, c.args) for c in answer.content.calls] == [("add", {"a": 1, "b": 2})]


async def test_without_tools_the_question_passes_and_calls_of_the_past_get_words():
    inner = Says("free text")
    call = Content(role="model", parts=[Part(function_call=FunctionCall(name="add", args={"a": 1}))])
    answer = await constrained(inner).generate(
        ask(call, model_text("Two."), tools=[], response_schema={"type": "object"})
    )
    assert answer.content == model_text("free text")
    assert inner.asked is not None and inner.asked.response_schema == {"type": "object"}
    assert [c.text for c in inner.asked.contents] == ['{"tool":"add","args":{"a":1}}', "Two."]


@pytest.mark.parametrize(
    ("choice", "right", "wrong"),
    [
        (
            "auto",
            [{"answer": "x"}, {"tool": "add", "args": {"a": 1, "b": 2}}],
            [{"tool": "nope", "args": {}}, {"tool": "add"}],
        ),
        ("none", [{"answer": "x"}], [{"tool": "add", "args": {"a": 1, "b": 2}}]),
        ("any", [{"tool": "get_weather", "args": {"city": "x"}}], [{"answer": "x"}]),
        (
            "add",
            [{"tool": "add", "args": {"a": 1, "b": 2}}],
            [{"answer": "x"}, {"tool": "get_weather", "args": {"city": "x"}}],
        ),
    ],
)
async def test_the_choice_of_tools_shapes_the_schema(choice: str, right: list[Any], wrong: list[Any]):
    inner = Says('{"answer":"ok"}')
    await constrained(inner).generate(ask(config=GenerateConfig(tool_choice=choice)))
    assert inner.asked is not None and inner.asked.response_schema is not None
    valid = jsonschema_rs.validator_for(inner.asked.response_schema).is_valid
    assert all(valid(turn) for turn in right) and not any(valid(turn) for turn in wrong)


async def test_FR_087_a_response_schema_takes_the_place_of_the_answers_text():
    inner = Says('{"answer":{"color":"red"}}')
    model = constrained(inner)
    assert model.schema_with_tools
    schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    answer = await model.generate(ask(response_schema=schema))
    assert answer.content == model_text('{"color":"red"}')
    assert inner.asked is not None and inner.asked.response_schema is not None
    valid = jsonschema_rs.validator_for(inner.asked.response_schema).is_valid
    assert valid({"answer": {"color": "red"}}) and not valid({"answer": "red"})


def test_definitions_of_several_tools_do_not_meet():
    def tool(name: str, kind: str) -> ToolDeclaration:
        params = {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/X"}},
            "required": ["x"],
            "$defs": {"X": {"type": kind}},
        }
        return ToolDeclaration(name=name, parameters=params)

    valid = jsonschema_rs.validator_for(turn_schema([tool("a", "string"), tool("b", "integer")], None)).is_valid
    assert valid({"tool": "a", "args": {"x": "s"}}) and valid({"tool": "b", "args": {"x": 1}})
    assert not valid({"tool": "a", "args": {"x": 1}}) and not valid({"tool": "b", "args": {"x": "s"}})


async def streamed(inner: Says) -> tuple[list[Part], ModelResponse]:
    parts: list[Part] = []

    async def keep(piece: ModelResponse) -> None:
        assert piece.partial and piece.content is not None
        parts.extend(piece.content.parts)

    return parts, await constrained(inner).generate(ask(), keep)


async def test_only_the_text_of_an_answer_and_thoughts_are_streamed():
    parts, answer = await streamed(Says('{"ans', 'wer": "It', " is", ' fine."}', thought="hm"))
    assert parts == [Part(text="hm", thought=True), Part(text="It"), Part(text=" is"), Part(text=" fine.")]
    assert answer.content is not None and answer.content.text == "It is fine."
    parts, answer = await streamed(Says('{"tool":"add",', '"args":{"a":1,"b":2}}'))
    assert parts == []
    assert answer.content is not None and answer.content.calls[0].args == {"a": 1, "b": 2}


async def test_an_answer_cut_anywhere_streams_the_same_text():
    text = 'Zürich: "sun" \\ 🌦\n\tend}'
    for raw in (json.dumps({"answer": text}), json.dumps({"answer": text}, ensure_ascii=False)):
        for at in range(len(raw)):
            parts, answer = await streamed(Says(raw[:at], raw[at:]))
            assert "".join(p.text or "" for p in parts) == text
            assert answer.content == model_text(text)
        parts, _ = await streamed(Says(*raw))
        assert "".join(p.text or "" for p in parts) == text


async def test_it_closes_the_inner_model_and_has_its_name():
    inner = Says("")
    model = constrained(inner)
    await model.aclose()
    assert inner.closed and model.name == "tiny"
