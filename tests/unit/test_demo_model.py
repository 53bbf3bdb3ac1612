"""The demo model: calls that fit their schemas, results said back, hand-overs, typed answers, streams of words."""

import inspect
import json
import subprocess
import sys
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyport import codec
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part, model_text, user_text
from polyport.data.event import Event
from polyport.data.model import GenerateConfig, ModelRequest, ModelResponse, ToolDeclaration
from polyport.engine.contents import build_contents
from polyport.models.demo import DemoModel, answer
from polyport.models.demo_values import Filler, Unfillable, read_hints


def tool(name: str, description: str = "", required: list[str] | None = None, **properties: Any) -> ToolDeclaration:
    names = list(properties) if required is None else required
    schema = {"type": "object", "properties": properties, "required": names, "additionalProperties": False}
    return ToolDeclaration(name=name, description=description, parameters=schema)


TEXT = {"type": "string"}
WEATHER = tool(
    "get_weather",
    "Returns the current weather of a city.",
    ["city"],
    city=TEXT,
    unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
)
CLOCK = tool("get_current_time", "The time in a city", city=TEXT)
DICE = tool("roll_dice", "Roll dice", count={"type": "integer", "minimum": 1}, sides={"type": "integer"})
FLIGHT = tool("book_flight", "", origin=TEXT, destination=TEXT, day={"type": "string", "format": "date"})
TRANSFER = tool(
    "transfer_to_agent", "Hand over", agent_name={"type": "string", "enum": ["billing_agent", "weather_man"]}
)


def ask(text: str, *tools: ToolDeclaration, **more: Any) -> ModelRequest:
    return ModelRequest(contents=[user_text(text)], tools=list(tools), **more)


def calls(text: str, *tools: ToolDeclaration, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(c.name, c.args) for p in answer(ask(text, *tools, **more)) if (c := p.function_call) is not None]


def said(request: ModelRequest) -> str:
    (part,) = answer(request)
    assert part.text is not None
    return part.text


def answered(request: ModelRequest, *responses: dict[str, Any] | None) -> ModelRequest:
    """`request` after its calls were made and came back."""
    made = [p.function_call for p in answer(request) if p.function_call is not None]
    assert len(made) == len(responses)
    results = [
        Part(function_response=FunctionResponse(id=c.id, name=c.name, response=r))
        for c, r in zip(made, responses, strict=True)
    ]
    request.contents = [
        *request.contents,
        Content(role="model", parts=[Part(function_call=c) for c in made]),
        Content(role="user", parts=results),
    ]
    return request


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "What's the weather in Paris and Rome?",
            [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})],
        ),
        ("weather in paris in fahrenheit", [("get_weather", {"city": "paris", "unit": "fahrenheit"})]),
        ("Paris weather?", [("get_weather", {"city": "Paris"})]),
        ("Weather in 'Los Angeles'", [("get_weather", {"city": "Los Angeles"})]),
        (
            "Weather and time in New York please",
            [("get_weather", {"city": "New York"}), ("get_current_time", {"city": "New York"})],
        ),
        ("What time is it in São Paulo?", [("get_current_time", {"city": "São Paulo"})]),
        ("Roll 3 dice with 20 sides", [("roll_dice", {"count": 3, "sides": 20})]),
        (
            "weather in Berlin and roll 2 dice with 6 sides",
            [("get_weather", {"city": "Berlin"}), ("roll_dice", {"count": 2, "sides": 6})],
        ),
        (
            "Book a flight from Berlin to Madrid on 2026-05-04",
            [("book_flight", {"origin": "Berlin", "destination": "Madrid", "day": "2026-05-04"})],
        ),
        ("tell me a joke", []),
        ("hello", []),
    ],
)
def test_tools_are_chosen_by_words_and_filled_from_the_text(text: str, expected: list[Any]):
    assert calls(text, WEATHER, CLOCK, DICE, FLIGHT) == expected


def test_an_optional_text_is_filled_when_it_is_all_there_is():
    assert calls("forecast for Oslo", tool("forecast", "", [], place=TEXT)) == [("forecast", {"place": "Oslo"})]


def test_a_required_enum_is_asked_for_each_value_mentioned():
    picker = tool("paint", "", colour={"type": "string", "enum": ["red", "dark_green", "blue"]})
    assert calls("Paint it dark green, then red", picker) == [
        ("paint", {"colour": "dark_green"}),
        ("paint", {"colour": "red"}),
    ]


def test_tool_choice():
    assert calls("weather in Paris", WEATHER, config=GenerateConfig(tool_choice="none")) == []
    assert calls("Ada", DICE, config=GenerateConfig(tool_choice="any")) == [("roll_dice", {"count": 1, "sides": 1})]
    chosen = calls("Paris", WEATHER, CLOCK, config=GenerateConfig(tool_choice="get_current_time"))
    assert chosen == [("get_current_time", {"city": "Paris"})]


def test_results_are_said_back():
    request = answered(
        ask("Weather in Paris and Rome?", WEATHER), {"temperature": 21, "sky": "clear"}, {"error": "no data"}
    )
    assert said(request) == "Paris: temperature 21, sky clear. get_weather failed for Rome: no data."
    assert said(answered(ask("Weather in Oslo", WEATHER), {"result": "It snows in Oslo"})) == "It snows in Oslo."
    assert said(answered(ask("Weather in Oslo", WEATHER), {"result": 3})) == "Oslo: 3."
    assert said(answered(ask("Weather in Oslo", WEATHER), None)) == "Oslo: done."
    assert said(answered(ask("Reset", tool("reset")), {})) == "reset: done."


def test_the_next_question_is_a_new_turn():
    request = answered(ask("Weather in Paris", WEATHER), {"sky": "clear"})
    request.contents += [model_text("Paris: sky clear."), user_text("And the weather in Rome?")]
    assert [p.function_call and p.function_call.args for p in answer(request)] == [{"city": "Rome"}]


def test_a_plain_answer_says_what_it_is_and_what_it_can():
    assert said(ask("Hello!", WEATHER)) == (
        "Hello! I am the demo model: a few rules that work offline, no language model. I can use: get_weather."
    )
    assert 'You said: "why?". I have no tools here.' in said(ask("why?"))
    assert said(ModelRequest(contents=[])).startswith("I am the demo model")


def test_it_hands_over_to_the_agent_that_is_named_once_in_a_turn():
    request = ask("I want the billing agent", WEATHER, TRANSFER)
    assert answer(request)[0].function_call == FunctionCall(
        name="transfer_to_agent", args={"agent_name": "billing_agent"}
    )
    seen_by_the_other = [
        *request.contents,
        Content(
            role="user",
            parts=[Part(text="For your information:"), Part(text="[root] called the tool `transfer_to_agent` with {}")],
        ),
    ]
    assert "billing agent" in said(ModelRequest(contents=seen_by_the_other, tools=[TRANSFER]))


def test_it_hands_over_by_description_when_no_tool_of_its_own_fits():
    system = "The agents:\n- billing_agent: Invoices and payments\n- weather_man: Knows the weather"
    assert calls("my invoice is wrong", WEATHER, TRANSFER, system=system) == [
        ("transfer_to_agent", {"agent_name": "billing_agent"})
    ]
    assert calls("weather in Rome", WEATHER, TRANSFER, system=system) == [("get_weather", {"city": "Rome"})]


def test_core_3_5_set_model_response_comes_last_and_carries_what_the_tools_said():
    final = tool("set_model_response", "Give the final answer.", city=TEXT, temperature={"type": "number"}, note=TEXT)
    request = ask("Weather in Oslo", WEATHER, final)
    assert calls("Weather in Oslo", WEATHER, final) == [("get_weather", {"city": "Oslo"})]
    (part,) = answer(answered(request, {"temperature": -3.5}))
    assert part.function_call is not None
    assert part.function_call.name == "set_model_response"
    assert part.function_call.args == {"city": "Oslo", "temperature": -3.5, "note": "Oslo: temperature -3.5."}
    assert said(answered(request, {"result": {}})) != ""


def test_a_response_schema_is_answered_with_json_of_it():
    schema = {
        "type": "object",
        "properties": {
            "name": TEXT,
            "people": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "kind": {"$ref": "#/$defs/K"},
        },
        "required": ["name", "kind"],
        "$defs": {"K": {"type": "string", "enum": ["city", "land"]}},
    }
    assert json.loads(said(ask("Tell me of the land Peru, 34", response_schema=schema))) == {
        "name": "Peru",
        "people": 34,
        "kind": "land",
    }


def test_a_late_result_is_the_same_turn():
    call = FunctionCall(id="c1", name="approve", args={"what": "Trip"})

    def result(**response: Any) -> Content:
        return Content(
            role="user", parts=[Part(function_response=FunctionResponse(id="c1", name="approve", response=response))]
        )

    events = [
        Event(author="user", content=user_text("approve the Trip")),
        Event(
            author="a", content=Content(role="model", parts=[Part(function_call=call)]), long_running_tool_ids=["c1"]
        ),
        Event(author="user", content=result(status="pending")),
        Event(author="a", content=model_text("Trip: status pending.")),
        Event(author="user", content=result(status="granted")),
    ]
    request = ModelRequest(contents=build_contents(events, agent="a"), tools=[tool("approve", "", what=TEXT)])
    assert said(request) == "Trip: status granted."


async def test_it_streams_words_that_join_to_the_answer():
    pieces: list[ModelResponse] = []

    async def on_partial(piece: ModelResponse) -> None:
        pieces.append(piece)

    got = await DemoModel().generate(ask("hi there", WEATHER), on_partial)
    assert got.content is not None
    assert len(pieces) == len(got.content.text.split())
    assert all(p.partial for p in pieces)
    assert "".join(p.content.text for p in pieces if p.content) == got.content.text
    assert got.usage_metadata is not None
    assert (got.usage_metadata.prompt_token_count, got.usage_metadata.candidates_token_count) == (2, len(pieces))
    assert (got.finish_reason, got.partial) == ("STOP", False)


async def test_FR_068_streamed_calls_have_the_ids_of_the_answer():
    pieces: list[Part] = []

    async def on_partial(piece: ModelResponse) -> None:
        pieces.extend(piece.content.parts if piece.content else [])

    got = await DemoModel().generate(ask("Weather in Paris and Rome", WEATHER), on_partial)
    assert got.content is not None
    assert got.content.parts == pieces
    ids = [c.id for c in got.content.calls]
    assert len(set(ids)) == 2 and all(i.startswith("adk-") for i in ids)


async def test_it_waits_between_words_only_when_told_to(monkeypatch: pytest.MonkeyPatch):
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def on_partial(piece: ModelResponse) -> None: ...

    monkeypatch.setattr("anyio.sleep", sleep)
    await DemoModel().generate(ask("hi"), on_partial)
    assert slept == []
    await DemoModel(delay_s=0.25).generate(ask("hi"), on_partial)
    assert set(slept) == {0.25}


def test_the_same_request_gives_the_same_answer():
    request = ask("Weather and time in Paris and Rome, and roll 2 dice", WEATHER, CLOCK, DICE)
    before = codec.encode(request.contents)
    assert answer(request) == answer(request)
    assert codec.encode(request.contents) == before


def test_it_says_what_it_is():
    assert DemoModel().name == "demo"
    assert "understands nothing" in (inspect.getdoc(sys.modules[DemoModel.__module__]) or "")


# --- arguments always fit ---------------------------------------------------------------------------------------------

TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "Weather in Paris and Rome",
            "roll 3 dice with 6.5 sides",
            "set it to 'dark red', no sound",
            "mail a@b.example on 2026-02-28",
        ]
    ),
)
BOUNDS = st.integers(-20, 20)


def maybe(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=parts)


def with_type(kind: str, **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return maybe(**parts).map(lambda d: {"type": kind, **d})


SCALARS = st.one_of(
    with_type("string", minLength=st.integers(0, 30), maxLength=st.integers(0, 30)),
    with_type("string", pattern=st.sampled_from(["^[A-Z]", "^$", "[0-9]+", "^(red|blue)$"])),
    with_type("string", format=st.sampled_from(["date", "date-time", "email", "uri", "uuid", "made-up"])),
    st.lists(st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.none()), min_size=1, max_size=3).map(
        lambda v: {"enum": v}
    ),
    with_type("integer", minimum=BOUNDS, maximum=BOUNDS, multipleOf=st.integers(1, 7), exclusiveMinimum=BOUNDS),
    with_type("number", minimum=BOUNDS, maximum=BOUNDS, exclusiveMaximum=BOUNDS, multipleOf=st.sampled_from([2, 0.5])),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"const": "x"}, {"type": ["null", "integer"]}, {}, True]),
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["city", "count", "colour"])
    return st.one_of(
        st.tuples(
            st.dictionaries(names, inner, max_size=3), st.lists(names, unique=True, max_size=2), st.booleans()
        ).map(lambda t: {"type": "object", "properties": t[0], "required": t[1], "additionalProperties": t[2]}),
        st.tuples(inner, maybe(minItems=st.integers(0, 4), maxItems=st.integers(0, 4), uniqueItems=st.booleans())).map(
            lambda t: {"type": "array", "items": t[0], **t[1]}
        ),
        st.lists(inner, min_size=1, max_size=2).map(lambda v: {"type": "array", "prefixItems": v, "items": False}),
        st.tuples(st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(inner, min_size=1, max_size=3)).map(
            lambda t: {t[0]: t[1], "title": "x"}
        ),
        st.sampled_from(["X", "Loop"]).map(lambda name: {"$ref": f"#/$defs/{name}"}),
        st.tuples(inner, inner).map(lambda t: {"not": t[0], "if": t[1]}),
    )


@given(value=st.recursive(SCALARS, nested, max_leaves=8), shared=SCALARS, text=TEXTS, eager=st.booleans())
@settings(max_examples=400, deadline=None)
def test_a_value_that_is_given_fits_its_schema(value: Any, shared: Any, text: str, eager: bool):
    schema = {"properties": {"it": value}, "required": ["it"], "$defs": {"X": shared, "Loop": {"$ref": "#/$defs/Loop"}}}
    hints = read_hints(text, lambda word: word.lower() == "weather")
    hints.known = {"city": text, "count": len(text)}
    try:
        made = Filler(schema, hints, eager=eager).fill(schema)
    except Unfillable:
        return
    jsonschema_rs.validate(schema, made, validate_formats=True)


@given(text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_arguments_of_calls_fit_the_declared_schema(text: str):
    by_name = {t.name: t for t in (WEATHER, CLOCK, DICE, FLIGHT, TRANSFER)}
    for choice in ("any", *by_name):
        for name, args in calls(text, *by_name.values(), config=GenerateConfig(tool_choice=choice)):
            jsonschema_rs.validate(by_name[name].parameters, args)


def test_what_cannot_be_filled_for_sure_is_not_called():
    odd = tool("odd", "", value={"type": "string", "pattern": "^never$"})
    assert calls("odd value 'x'", odd) == []
    assert "odd" in said(ask("odd value 'x'", odd))


def test_the_demo_model_needs_no_http_client():
    code = (
        "import sys; from polyport.models.registry import resolve; resolve('demo');"
        "print([m for m in ('aiohttp', 'uvicorn', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
