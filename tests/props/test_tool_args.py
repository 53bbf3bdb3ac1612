"""For generated signatures: whatever fits the schema converts and calls; whatever does not is refused in one way only."""

import enum
import inspect
import json
from dataclasses import make_dataclass
from typing import Any, Literal, NotRequired, TypedDict

import jsonschema_rs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyport import codec
from polyport.errors import BadRequest
from polyport.ports.agent import ToolContext
from polyport.tools.function import FunctionTool, make_tool
from polyport.tools.schema import check, convert, normalize, schema_of

CTX = ToolContext.__new__(ToolContext)
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Node(msgspec.Struct):
    value: int
    next: "Node | None" = None


NAMES = ["a", "b", "c_d", "type", "items"]
LEAVES = [int, str, float, bool, Color, Literal["x", 1, None], int | None, str | int, Any, Node]
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 2.0, "", "x", "1"])


@st.composite
def json_values(draw: st.DrawFn, depth: int = 0) -> Any:
    kind = draw(st.integers(0, 3 if depth < 3 else 0))
    if kind == 2:
        return [draw(json_values(depth + 1)) for _ in range(draw(st.integers(0, 3)))]
    if kind == 3:
        keys = draw(st.lists(st.sampled_from(["first", "a", "b", "value"]), unique=True, max_size=3))
        return {k: draw(json_values(depth + 1)) for k in keys}
    return draw(SCALARS)


@st.composite
def classes(draw: st.DrawFn, depth: int) -> Any:
    """A dataclass, Struct or TypedDict with a required field and optional ones."""
    first = draw(types(depth + 1))
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    more = [(name, draw(types(depth + 1))) for name in names]
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return make_dataclass("D", [("first", first), *((n, t | None, None) for n, t in more)])
    if kind == 1:
        return msgspec.defstruct("S", [("first", first), *((n, t | None, None) for n, t in more)])
    new: Any = TypedDict
    return new("T", {"first": first, **{n: NotRequired[t] for n, t in more}})


@st.composite
def types(draw: st.DrawFn, depth: int = 0) -> Any:
    kind = draw(st.integers(0, 7 if depth < 3 else 1))
    if kind < 2:
        return draw(st.sampled_from(LEAVES))
    if kind == 2:
        return list[draw(types(depth + 1))]
    if kind == 3:
        return dict[str, draw(types(depth + 1))]
    if kind == 4:
        return draw(types(depth + 1)) | None
    if kind == 5:
        return tuple[draw(types(depth + 1)), draw(types(depth + 1))]
    if kind == 6:
        return draw(classes(depth)) | draw(classes(depth))
    return draw(classes(depth))


@st.composite
def fitting(draw: st.DrawFn, schema: dict[str, Any], root: dict[str, Any], depth: int = 0) -> Any:
    """A value that fits a schema made here. Independent of the code under test: it knows the keywords by itself."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if "anyOf" in schema:
        options = schema["anyOf"] if depth < 6 or {"type": "null"} not in schema["anyOf"] else [{"type": "null"}]
        return draw(fitting(draw(st.sampled_from(options)), root, depth))
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = draw(st.sampled_from(kind))
    if kind == "array":
        size = schema.get("maxItems", None) or draw(st.integers(0, 2))
        shapes = schema.get("prefixItems") or [schema.get("items", {})] * size
        return [draw(fitting(s, root, depth + 1)) for s in shapes]
    if kind == "object" and "properties" not in schema:
        keys = draw(st.lists(st.sampled_from(["a", "b", "first"]), unique=True, max_size=2))
        return {k: draw(fitting(schema.get("additionalProperties", {}), root, depth + 1)) for k in keys}
    if kind == "object":
        need = schema.get("required", ())
        chosen = [k for k in schema["properties"] if k in need or (depth < 6 and draw(st.booleans()))]
        return {k: draw(fitting(schema["properties"][k], root, depth + 1)) for k in chosen}
    scalars = {
        None: json_values(),
        "null": st.none(),
        "boolean": st.booleans(),
        "integer": st.integers(-99, 99) | st.sampled_from([3.0]),
        "number": st.integers(-99, 99) | st.floats(-9, 9, allow_nan=False),
        "string": st.sampled_from(["", "a", "7", "null", "[1]"]),
    }
    return draw(scalars[kind])


def function(types: list[Any], required: int) -> FunctionTool:
    """A tool that gives its arguments back; of its parameters the first `required` have no default."""

    async def echo(**given: Any) -> dict[str, Any]:
        echo.given = given  # type: ignore[attr-defined]  looked at by the test
        return {"got": sorted(given)}

    kinds = inspect.Parameter
    params = [
        kinds(f"p{i}", kinds.KEYWORD_ONLY, annotation=t, default=kinds.empty if i < required else None)
        for i, t in enumerate(types)
    ]
    echo.__signature__ = inspect.Signature(params)  # type: ignore[attr-defined]
    return make_tool(echo)


@st.composite
def calls(draw: st.DrawFn) -> tuple[FunctionTool, list[Any], dict[str, Any]]:
    """A tool, the types of its parameters, and arguments that fit. All drawn before the test's task begins: what
    Hypothesis raises to end a draw must not pass through a task."""
    kinds = draw(st.lists(types(), min_size=1, max_size=3))
    made = function(kinds, draw(st.integers(0, 3)))
    schema = made.declaration().parameters
    return made, kinds, draw(fitting(schema, schema))


@FEW
@given(calls())
async def test_FR_093_whatever_fits_the_schema_converts_and_calls(
    call: tuple[FunctionTool, list[Any], dict[str, Any]],
):
    made, kinds, args = call
    before = json.dumps(args)
    assert check(args, made.declaration().parameters) == []
    assert await made.call(CTX, args) == {"got": sorted(args)}
    assert json.dumps(args) == before
    for name, value in made.fn.given.items():
        again = convert(codec.json_safe([value], "it")[0], kinds[int(name[1:])] | None)
        assert codec.encode(again) == codec.encode(value)


@FEW
@given(types(), json_values())
def test_FR_093_what_is_read_fits_the_schema_and_what_is_not_is_a_bad_request(kind: Any, value: Any):
    schema = schema_of(kind)
    try:
        found = convert(value, kind)
    except BadRequest as error:
        assert str(error) != ""
        assert check(value, schema) != []  # nothing that fits is refused
    else:
        assert check(codec.json_safe([found], "it")[0], schema) == []


SIMPLE = [
    *({"minimum": 2}, {"exclusiveMaximum": 2}, {"maxLength": 0}, {"pattern": "^x"}, {"minItems": 1}),
    *({"uniqueItems": True}, {"required": ["a"]}, {"maxProperties": 1}, {"multipleOf": 2}),
    *({"propertyNames": {"minLength": 2}}, {"dependentRequired": {"a": ["b"]}}, {"$ref": "#/$defs/D"}),
    *({"type": t} for t in ("integer", "string", "object", "array", "null", "number", ["string", "null"])),
    *(True, False),
]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0) -> Any:
    kind = draw(st.integers(0, 9 if depth < 3 else 2))
    if kind == 0:
        return {"enum": [draw(json_values()) for _ in range(draw(st.integers(1, 2)))]}
    if kind == 1:
        return {"const": draw(json_values())}
    if kind == 2:
        return draw(st.sampled_from(SIMPLE))
    if kind < 6:
        key = ["anyOf", "oneOf", "allOf"][kind - 3]
        return {key: [draw(schemas(depth + 1)) for _ in range(draw(st.integers(1, 2)))]}
    if kind == 6:
        key = draw(st.sampled_from(["not", "items", "additionalProperties", "contains"]))
        return {key: draw(schemas(depth + 1))}
    if kind == 7:
        return {"prefixItems": [draw(schemas(depth + 1))], "items": False}
    if kind == 8:
        names = draw(st.lists(st.sampled_from(["a", "first"]), unique=True, max_size=2))
        return {"properties": {n: draw(schemas(depth + 1)) for n in names}, "additionalProperties": False}
    return {key: draw(schemas(depth + 1)) for key in ("if", "then", "else")}


@settings(FEW, max_examples=300)
@given(schemas(), json_values())
def test_check_and_normalize_agree_with_an_independent_validator(inner: Any, value: Any):
    schema = {"allOf": [inner], "$defs": {"D": {"items": {"$ref": "#/$defs/D"}, "type": ["array", "integer"]}}}
    right = jsonschema_rs.Draft202012Validator(schema).is_valid(value)
    assert (check(value, schema) == []) == right
    normal = normalize(schema)
    assert jsonschema_rs.Draft202012Validator(normal).is_valid(value) == right
    assert (check(value, normal) == []) == right
