"""Types to JSON Schema and back, raw schemas, and the normal form."""

import enum
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest

from polyport.errors import BadRequest, ConfigError
from polyport.tools.docstring import read_docstring
from polyport.tools.schema import check, convert, normalize, output_schema, schema_of


class Color(str, enum.Enum):  # noqa: UP042  the form that people write
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    PAIR = (1, 2)
    NONE = ()


@dataclass
class Item:
    """One thing.

    Attributes:
        id: The number on it.
    """

    id: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Cat:
    name: str
    lives: int = 9


@dataclass
class Dog:
    name: str
    breed: str = ""


class Node(msgspec.Struct):
    value: int
    children: list["Node"] = []


class Renamed(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    first_name: str
    born: date | None = None


class Circle(msgspec.Struct, tag="circle"):
    r: float


class Square(msgspec.Struct, tag="square"):
    r: float


class Address(pydantic.BaseModel):
    """Where."""

    street: str = pydantic.Field(description="With the number")
    zip: str = ""


class Person(pydantic.BaseModel):
    name: str
    home: Address | None = None
    friends: list["Person"] = []


class Options(TypedDict):
    depth: int
    label: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: float = 0.5


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Picky:
    n: int

    def __post_init__(self) -> None:
        if self.n == 13:
            raise ValueError("13 brings bad luck")


ITEM = {
    "type": "object",
    "description": "One thing.",
    "properties": {
        "id": {"type": "integer", "description": "The number on it."},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id"],
}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Any, {}),
        (int | None, {"type": ["integer", "null"]}),
        (Optional[str], {"type": ["string", "null"]}),  # noqa: UP045  the old spelling is the point
        (int | float, {"type": "number"}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (int | str | None, {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
        (list[int] | None, {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (dict, {"type": "object"}),
        (tuple[int, int], {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
        (datetime, {"type": "string", "format": "date-time"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (Path, {"type": "string"}),
        (Item, ITEM),
        (list[Item], {"type": "array", "items": ITEM}),
        (dict[str, Item], {"type": "object", "additionalProperties": ITEM}),
        (Item | None, {"anyOf": [ITEM, {"type": "null"}]}),
        (Box[int], {"type": "object", "properties": {"content": {"type": "integer"}}, "required": ["content"]}),
        (
            Options,
            {
                "type": "object",
                "properties": {"depth": {"type": "integer"}, "label": {"type": "string"}},
                "required": ["depth"],
            },
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.5}},
                "required": ["x"],
            },
        ),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (
            Annotated[str, msgspec.Meta(description="d", min_length=2, pattern="^a")],
            {"type": "string", "description": "d", "minLength": 2, "pattern": "^a"},
        ),
        (
            Annotated[list[int], pydantic.Field(min_length=1, description="some")],
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "description": "some"},
        ),
    ],
)
def test_schema_of_a_type(kind: Any, schema: dict[str, Any]):
    assert schema_of(kind) == schema


def test_FR_091_enums_and_literals_list_their_values_and_give_members():
    assert schema_of(Color) == {"type": "string", "enum": ["red", "blue"]}
    assert schema_of(Level) == {"type": "integer", "enum": [1, 2]}
    assert schema_of(Color | None) == {"type": ["string", "null"], "enum": ["red", "blue", None]}
    assert schema_of(Literal["x", 1, None]) == {"type": ["string", "integer", "null"], "enum": ["x", 1, None]}
    assert convert("red", Color) is Color.RED
    assert convert("2", Level) is Level.HIGH
    assert convert(None, Color | None) is None
    assert [convert(v, Literal["x", 1, None]) for v in ("x", 1, "1", None)] == ["x", 1, 1, None]
    assert convert("blue", Literal[Color.RED, Color.BLUE]) is Color.BLUE
    assert schema_of(Odd)["enum"] == ["PAIR", "NONE"]
    assert convert("PAIR", Odd) is Odd.PAIR
    with pytest.raises(BadRequest, match="must be one of 'red', 'blue'"):
        convert("green", Color)
    with pytest.raises(BadRequest):
        convert(True, Literal[1])


@pytest.mark.parametrize(
    ("value", "kind", "result"),
    [
        ("22", int, 22),
        (3.0, int, 3),
        (1, float, 1.0),
        ("1.5", float, 1.5),
        ("true", bool, True),
        ("2026-02-25", date, date(2026, 2, 25)),
        ("2026-02-25T06:13:20Z", datetime, datetime(2026, 2, 25, 6, 13, 20, tzinfo=UTC)),
        ("2026-02-25 06:13", datetime, datetime(2026, 2, 25, 6, 13)),
        ("06:13", time, time(6, 13)),
        ("PT1H", timedelta, timedelta(hours=1)),
        ("1.10", Decimal, Decimal("1.10")),
        ("7b0a1f0e-0000-4000-8000-000000000000", UUID, UUID("7b0a1f0e-0000-4000-8000-000000000000")),
        ("_-8", bytes, b"\xff\xef"),
        ([1, "2"], set[int], {1, 2}),
        ([1, "a"], tuple[int, str], (1, "a")),
        ("[1, 2]", list[int], [1, 2]),
        ('{"a": "1"}', dict[str, int], {"a": 1}),
        ({"1": True}, dict[int, bool], {1: True}),
        ("22", int | str, "22"),
        ("22", str | int, "22"),
        (3, float | int, 3),
        ("2026-02-25", date | str, date(2026, 2, 25)),
        ("later", date | str, "later"),
        ("[1", list[int] | str, "[1"),
        ("a/b", Path, Path("a/b")),
        ([1, 2], Point, Point(1, 2.0)),
        ({"x": "1"}, Point, Point(1)),
        ({"depth": "1", "more": 2}, Options, {"depth": 1}),
        ({"content": "4"}, Box[int], Box(4)),
    ],
)
def test_FR_093_lossless_coercion(value: Any, kind: Any, result: Any):
    found = convert(value, kind)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", int),
        (3.5, int),
        (True, int),
        (22, str),
        (None, int),
        ("nan", float),
        ("maybe", bool),
        ("tomorrow", datetime),
        ("?", bytes),
        ("ab", list[str]),
        ({"a": 1}, list[int]),
        ([[]], set[list[int]]),
        ([1], tuple[int, int]),
        ({"x": 1}, dict[int, int]),
        (0, Annotated[int, msgspec.Meta(ge=1)]),
        ("5", Annotated[int, pydantic.Field(ge=10)]),
        ("abc", Annotated[str, msgspec.Meta(max_length=2)]),
        ("2026-02-25T06:13:20", Annotated[datetime, msgspec.Meta(tz=True)]),
        ({"n": 13}, Picky),
        ({"firstName": "a", "x": 1}, Renamed),
        ({"type": "square", "r": 1}, Circle),
    ],
)
def test_FR_093_what_would_lose_something_is_refused(value: Any, kind: Any):
    with pytest.raises(BadRequest):
        convert(value, kind)


def test_FR_093_models_are_built_at_every_depth_and_all_bad_fields_are_listed():
    assert convert([{"id": 1}, {"id": "2"}], list[Item]) == [Item(1), Item(2)]
    assert convert({"a": {"id": 2.0}}, dict[str, Item]) == {"a": Item(2)}
    assert convert({"name": "n", "home": {"street": "s"}}, Person) == Person(name="n", home=Address(street="s"))
    with pytest.raises(BadRequest) as caught:
        convert([{"id": "x", "tags": ["a", 1]}, {}], list[Item])
    text = str(caught.value)
    assert "[0].id: must be an integer, not a string" in text
    assert "[0].tags[1]: must be a string, not an integer" in text
    assert "[1].id: is missing" in text
    assert caught.value.field == "[0].id"
    with pytest.raises(BadRequest) as caught:
        convert({"home": {"street": 1}, "friends": [{}]}, Person)
    assert all(path in str(caught.value) for path in ("name: ", "home.street: ", "friends[0].name: "))


def test_union_of_classes_without_tags_takes_the_best_fit_in_order():
    assert convert({"name": "a"}, Cat | Dog) == Cat("a")
    assert convert({"name": "a"}, Dog | Cat) == Dog("a")
    assert convert({"name": "a", "breed": "b"}, Cat | Dog) == Dog("a", "b")
    assert convert({"name": "a", "lives": "3"}, Cat | Dog | None) == Cat("a", 3)
    assert convert({"type": "square", "r": 1}, Circle | Square) == Square(1.0)
    assert convert({"name": "a"}, Address | Person) == Person(name="a")
    with pytest.raises(BadRequest, match="name: is missing"):
        convert({}, Cat | Dog)
    with pytest.raises(BadRequest, match="must be a Cat object or a Dog object, not an integer"):
        convert(1, Cat | Dog)


def test_recursion_keeps_defs_and_nothing_else_does():
    schema = schema_of(Node)
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["value"] == {"type": "integer"}
    assert convert({"value": 1, "children": [{"value": "2"}]}, Node) == Node(1, [Node(2)])
    assert "$defs" not in schema_of(list[Address | Item])
    friends = schema_of(Person)
    assert friends["properties"]["home"]["anyOf"][0]["properties"]["street"]["description"] == "With the number"
    assert friends["properties"]["friends"]["items"]["$ref"] == "#/$defs/Person"
    both = schema_of(tuple[Person, Node])
    assert set(both["$defs"]) == {"Person", "Node"}


def test_a_hostile_depth_is_refused_not_a_crash():
    value: Any = {"value": 1}
    for _ in range(5000):
        value = {"value": "1", "children": [value]}
    with pytest.raises(BadRequest, match="deep"):
        convert(value, Node)


def test_a_union_that_branches_without_end_is_bounded():
    schema_of(Plus)
    value: Any = {"left": 1, "right": "?"}
    for _ in range(40):
        value = {"left": value, "right": value}  # one object, met 2**40 times
    with pytest.raises(BadRequest):
        convert(value, Plus)


@dataclass
class Plus:
    left: "Plus | Times | int"
    right: "Plus | Times | int"


@dataclass
class Times:
    left: "Plus | Times | int"
    right: "Plus | Times | int"


def test_types_without_a_json_form_are_named():
    with pytest.raises(ConfigError, match="the type Weird has no JSON form"):
        schema_of(type("Weird", (), {}))
    with pytest.raises(ConfigError, match="Missing"):
        schema_of(list["Missing"])  # noqa: F821  not there on purpose
    with pytest.raises(ConfigError, match="not a type"):
        schema_of([int])


def test_what_is_read_may_be_changed_without_changing_the_input():
    source = {"a": [1]}
    found = convert(source, dict[str, Any])
    found["a"].append(2)
    assert source == {"a": [1]}


RAW = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def test_FR_103_a_raw_schema_is_enforced():
    schema, parse = output_schema(RAW)
    assert schema == RAW
    assert parse({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(BadRequest, match="a: is missing") as caught:
        parse({})
    assert caught.value.field == "a"
    with pytest.raises(BadRequest, match="a: must be an integer, not a string"):
        parse({"a": "x"})


@pytest.mark.parametrize("spec", [None, "object", [], {"type": "objekt"}, {"properties": []}, {"$ref": "#/$defs/X"}])
def test_FR_103_a_spec_that_cannot_work_is_refused_at_construction(spec: Any):
    with pytest.raises(ConfigError):
        output_schema(spec)


@pytest.mark.parametrize("spec", [list[Item], {"type": "array", "items": {"type": "object", "required": ["id"]}}])
def test_an_answer_that_is_no_object_is_wrapped_and_unwrapped(spec: Any):
    schema, parse = output_schema(spec)
    assert (schema["type"], schema["required"]) == ("object", ["result"])
    assert schema["properties"]["result"]["type"] == "array"
    assert parse({"result": [{"id": 1}]}) == parse([{"id": 1}])
    with pytest.raises(BadRequest, match=r"\[0\].id: is missing"):
        parse({"result": [{}]})


def test_a_wrapped_recursive_type_keeps_its_defs_at_the_root():
    schema, parse = output_schema(list[Node])
    assert schema["properties"]["result"]["items"] == {"$ref": "#/$defs/Node"}
    assert "Node" in schema["$defs"]
    assert parse({"result": [{"value": 1}]}) == [Node(1)]


def test_a_typed_answer_becomes_the_type():
    _, parse = output_schema(Person)
    assert parse({"name": "n"}) == Person(name="n")
    with pytest.raises(BadRequest, match="name"):
        parse({"name": 1})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, 1.0], [True, 1.5, "1", None]),
        ({"type": ["string", "null"]}, ["", None], [1]),
        ({"type": "string", "nullable": True}, ["", None], [1]),
        ({"const": 1}, [1, 1.0], [True, "1"]),
        ({"enum": ["a", None, {"x": [1]}]}, ["a", None, {"x": [1.0]}], ["b", {}]),
        ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, ["", 3], [2]),
        ({"oneOf": [{"minimum": 3}, {"multipleOf": 2}]}, [2, 3], [4, 1]),
        ({"allOf": [{"minimum": 3}, {"maximum": 5}]}, [4], [2, 6]),
        ({"not": {"type": "null"}}, [1], [None]),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "null"}}, ["ab", None], ["a", 1]),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 2}, [1.5], [1, 2]),
        ({"minimum": 1, "exclusiveMinimum": True}, [2], [1]),
        ({"multipleOf": 0.1}, [0.3, 1], [0.35]),
        ({"minLength": 1, "maxLength": 2}, ["a", 5], ["", "abc"]),
        ({"pattern": "^a+$"}, ["aa"], ["b"]),
        ({"items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [[1]], [[], [1, 2, 3], ["a"]]),
        ({"prefixItems": [{"type": "string"}], "items": False}, [["a"], []], [["a", 1], [1]]),
        ({"items": [{"type": "string"}], "additionalItems": False}, [["a"]], [["a", 1]]),
        ({"uniqueItems": True}, [[1, 2, True]], [[1, 1.0]]),
        ({"contains": {"const": 1}}, [[0, 1]], [[0]]),
        ({"properties": {"a": {"type": "null"}}, "additionalProperties": False}, [{"a": None}], [{"b": 1}, {"a": 1}]),
        ({"additionalProperties": {"type": "integer"}}, [{"b": 1}], [{"b": ""}]),
        ({"patternProperties": {"^x": False}}, [{"a": 1}], [{"xa": 1}]),
        ({"propertyNames": {"maxLength": 1}, "minProperties": 1}, [{"a": 1}], [{"ab": 1}, {}]),
        ({"dependentRequired": {"a": ["b"]}}, [{"b": 1}, {"a": 1, "b": 2}], [{"a": 1}]),
        ({"$ref": "#/definitions/N", "definitions": {"N": {"type": "integer"}}}, [1], ["a"]),
        ({"$defs": {"L": {"items": {"$ref": "#/$defs/L"}, "type": "array"}}, "$ref": "#/$defs/L"}, [[[]]], [[1]]),
        ({"$ref": "#/properties/a", "properties": {"a": {"type": "null"}}}, [None], [1]),
    ],
)
def test_check(schema: dict[str, Any], good: list[Any], bad: list[Any]):
    assert [check(value, schema) for value in good] == [[] for _ in good]
    assert all(check(value, schema) for value in bad)


def test_check_names_every_bad_field_by_path():
    schema = schema_of(list[Item])
    assert check([{"id": "x"}, {"tags": [1]}], schema) == [
        "[0].id: must be an integer, not a string",
        "[1].id: is missing",
        "[1].tags[0]: must be a string, not an integer",
    ]
    assert check(
        {"result": {"id": []}}, {"properties": {"result": {"anyOf": [schema_of(Item), {"type": "null"}]}}}
    ) == ["result.id: must be an integer, not an array"]


@pytest.mark.parametrize(
    "hostile",
    [
        "(a+)+$",
        "^(a|aa)*$",
        "^(([a-z])+.)+$",
        "(a?){30}a{30}$",
        r"^(a*)\1\1$",
        "a*a*a*a*a*b",
        r"[a\]]+[a)]+[(a]+$",
        r"a+$",
    ],
)
def test_check_ends_on_hostile_patterns(hostile: str):
    for size in (*range(1, 21), 25, 64, 500, 10_000, 100_000):  # each is refused by the pattern or by its length
        assert check("a" * size + "\n!", {"pattern": hostile}) != []
    assert "is too long to be matched" in check("a" * 100_000, {"pattern": hostile})[0]
    assert "must match" in check("\n!", {"pattern": hostile})[0]


def test_long_texts_are_matched_with_ordinary_patterns():
    assert check("a" * 100_000, {"pattern": "^[a-z]+$"}) == []
    assert check("a" * 2_000 + ".b", {"pattern": r"^[a-z]+\.\w+$"}) == []
    _, parse = output_schema({"type": "object", "properties": {"slug": {"pattern": "^[a-z]+(-[a-z]+)*$"}}})
    assert parse({"slug": "many-" * 50 + "words"})
    long = Annotated[str, pydantic.Field(pattern="(a|b)+c*b*$")]
    assert convert("ab" * 500, long) == "ab" * 500
    with pytest.raises(BadRequest, match="must match"):
        convert("ab" * 500 + "x", Annotated[str, msgspec.Meta(pattern="^[ab]+c*b*$")])


def test_check_ends_on_hostile_schemas(caplog: pytest.LogCaptureFixture):
    assert check("a", {"pattern": "("}) == []
    assert "not checked" in caplog.text
    assert check(1, {"$ref": "#"}) != []
    deep: dict[str, Any] = {
        "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/B"}] * 3}, "B": {"anyOf": [{"$ref": "#/$defs/A"}] * 3}}
    }
    assert check(1, {**deep, "$ref": "#/$defs/A"}) != []


def test_FR_201_draft_07_definitions_are_resolved():
    schema = normalize(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "T",
            "type": "object",
            "properties": {"q": {"$ref": "#/definitions/Q", "description": "ask"}, "title": {"type": "string"}},
            "definitions": {"Q": {"type": "string", "title": "Q"}},
        }
    )
    assert schema == {
        "type": "object",
        "properties": {"q": {"type": "string", "description": "ask"}, "title": {"type": "string"}},
    }


def test_FR_201_a_reference_that_leads_nowhere_is_loosened_with_a_warning(caplog: pytest.LogCaptureFixture):
    broken = {"type": "object", "properties": {"q": {"$ref": "#/definitions/Q"}, "r": {"$ref": "file:///x"}}}
    with caplog.at_level(logging.WARNING):
        assert normalize(broken)["properties"] == {"q": {}, "r": {}}
    assert "#/$defs/Q" in caplog.text
    with pytest.raises(ConfigError, match="Q"):
        normalize(broken, strict=True)


def test_FR_202_type_arrays_stay():
    schema = {"type": "object", "properties": {"kv": {"type": ["object", "null"]}, "x": {"type": ["string"]}}}
    assert normalize(schema)["properties"] == {"kv": {"type": ["object", "null"]}, "x": {"type": "string"}}


def test_FR_203_nested_definitions_are_shown():
    payload = {"type": "object", "properties": {"identifiers": {"type": "array", "items": {"$ref": "#/$defs/I"}}}}
    schema = normalize(
        {
            "type": "object",
            "properties": {"payload": {"$ref": "#/$defs/P"}},
            "$defs": {"P": payload, "I": {"enum": ["a", None]}},
        }
    )
    assert schema["properties"]["payload"]["properties"]["identifiers"]["items"] == {"enum": ["a", None]}
    assert "$defs" not in schema


def test_normalize_leaves_its_input_alone_and_modernizes():
    old = {
        "type": "OBJECT",
        "properties": {
            "a": {"type": "STRING", "nullable": True},
            "b": {"minimum": 1, "exclusiveMinimum": True},
            "c": {"items": [{"type": "string"}], "additionalItems": False},
            "d": {"allOf": [{"$ref": "#/properties/a"}], "description": "d"},
            "e": {"oneOf": [{"const": 1}], "discriminator": {"propertyName": "x"}},
        },
    }
    before = msgspec.json.encode(old)
    assert normalize(old) == {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"]},
            "b": {"exclusiveMinimum": 1},
            "c": {"prefixItems": [{"type": "string"}], "items": False},
            "d": {"type": ["string", "null"], "description": "d"},
            "e": {"anyOf": [{"const": 1}]},
        },
    }
    assert msgspec.json.encode(old) == before


def test_normalize_does_not_blow_up():
    names = [f"D{i}" for i in range(40)]
    defs: dict[str, Any] = {
        name: {"type": "object", "properties": {"l": {"$ref": f"#/$defs/{after}"}, "r": {"$ref": f"#/$defs/{after}"}}}
        for name, after in zip(names, [*names[1:], "End"], strict=True)
    }
    schema = normalize({"type": "object", "properties": {"x": {"$ref": "#/$defs/D0"}}, "$defs": {**defs, "End": {}}})
    assert len(msgspec.json.encode(schema)) < 1_000_000
    loop = normalize({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})
    assert check(1, loop) != []


@pytest.mark.parametrize(
    "text",
    [
        """Find it.

        More words.

        Args:
            q (str, optional): What to find,
                in words.
            *rest: Others.
            limit: At most: this many.

        Returns:
            list: no parameter
        """,
        """
        Find it.

        Parameters
        ----------
        q : str
            What to find,
            in words.
        rest, limit
            At most: this many.

        Returns
        -------
        list : no parameter
        """,
        """Find it.

        :param str q: What to find,
            in words.
        :param limit: At most: this many.
        :param rest: Others.
        :returns: no parameter
        """,
    ],
    ids=["google", "numpy", "rest"],
)
def test_docstring_styles(text: str):
    doc = read_docstring(text)
    assert doc.summary == "Find it."
    assert doc.params["q"] == "What to find, in words."
    assert doc.params["limit"] == "At most: this many."
    assert set(doc.params) == {"q", "rest", "limit"}


def test_docstring_first_paragraph_only():
    assert read_docstring("One\ntwo.\n\nThree.").summary == "One two."
    assert read_docstring(None) == ("", {})
    assert read_docstring("\nArgs:\n    x: y\n").params == {"x": "y"}
