"""Tools from Python functions: declaration, arguments, calling, results, errors."""

import asyncio
import contextvars
import datetime
import enum
import functools
import json
import math
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any, Literal, cast

import anyio
import msgspec
import pydantic
import pytest

from polyport import codec
from polyport.errors import AgentError, BadRequest, ConfigError
from polyport.ports.agent import RunContext, RunScope, Tool, ToolContext
from polyport.tools.function import FunctionTool, make_tool, tool

CTX = ToolContext.__new__(ToolContext)
CTX.scope = cast("RunScope", SimpleNamespace(live=None))
"""A context that the tools hand on; they only look whether the run is live."""


class Color(str, enum.Enum):  # noqa: UP042  the form that people write
    A = "a"
    B = "b"


@dataclass
class Item:
    id: int
    tags: list[str] = field(default_factory=list)


class Report(pydantic.BaseModel):
    at: datetime.datetime
    key: uuid.UUID
    price: Decimal
    color: Color


async def run(fn: Callable[..., Any], args: dict[str, Any] | None = None, **options: Any) -> Any:
    return await make_tool(fn, **options).call(CTX, args or {})


def parameters(fn: Callable[..., Any]) -> dict[str, Any]:
    declaration = make_tool(fn).declaration()
    return declaration.parameters


# --- the declaration ---------------------------------------------------------------------------------------------------


def weather(city: str, days: int = 3, unit: Literal["C", "F"] = "C", note: Annotated[str, "free text"] = "") -> str:
    """Tell the weather
    of a city.

    Only for large ones.

    Args:
        city: Where.
        days: How many days.
        note: not this one
    """
    return f"{city} {days} {unit} {note}"


def test_declaration_comes_from_hints_defaults_and_docstring():
    made = make_tool(weather)
    assert isinstance(made, Tool)
    declaration = made.declaration()
    assert (declaration.name, declaration.description) == ("weather", "Tell the weather of a city.")
    assert declaration.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "days": {"type": "integer", "description": "How many days.", "default": 3},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "note": {"type": "string", "description": "free text", "default": ""},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert made.declaration() is declaration


def test_options_and_the_decorator():
    @tool(name="other", description="d", long_running=True, idempotent=True)
    def one(a: int) -> int:
        return a + 1

    assert isinstance(one, FunctionTool)
    assert (one.name, one.description, one.long_running, one.idempotent) == ("other", "d", True, True)
    assert one.declaration().description.startswith("d ")
    assert "do not call it again" in one.declaration().description
    assert one(1) == 2

    @tool
    def two(a: int) -> int:
        """Two."""
        return a

    assert (two.name, two.description, two.declaration().description) == ("two", "Two.", "Two.")
    assert not two.long_running


@pytest.mark.parametrize("name", ["", "a b", "1a", "<lambda>", "a" * 129])
def test_a_name_that_no_provider_takes_is_refused(name: str):
    with pytest.raises(ConfigError, match="name="):
        make_tool(weather, name=name)


async def test_FR_088_optional_and_union_parameters():
    def w(local: str | None = None, n: int | float = 1, ids: list[int] | None = None) -> str:
        return f"{local} {n} {ids}"

    schema = parameters(w)
    assert "required" not in schema
    assert schema["properties"]["local"] == {"type": ["string", "null"], "default": None}
    assert schema["properties"]["n"] == {"type": "number", "default": 1}
    assert {"type": "null"} in schema["properties"]["ids"]["anyOf"]
    assert await run(w) == {"result": "None 1 None"}
    assert await run(w, {"local": None, "ids": ["1"], "n": 2.5}) == {"result": "None 2.5 [1]"}


async def test_a_default_of_none_makes_a_parameter_nullable():
    def f(a: int = None) -> Any:  # noqa: RUF013  the form that people write
        return a

    assert parameters(f)["properties"]["a"] == {"type": ["integer", "null"], "default": None}
    assert await run(f, {"a": None}) == {"result": None}


async def test_FR_090_untyped_parameters_take_the_type_of_their_default():
    def list_issues(state="open", per_page=10, labels=[], color=Color.B, extra=None):  # noqa: B006  what people write
        return [state, per_page, labels, color, extra]

    properties = parameters(list_issues)["properties"]
    assert properties == {
        "state": {"type": "string", "default": "open"},
        "per_page": {"type": "integer", "default": 10},
        "labels": {"type": "array", "default": []},
        "color": {"type": "string", "enum": ["a", "b"], "default": "b"},
        "extra": {"default": None},
    }
    assert await run(list_issues, {"per_page": "5"}) == {"result": ["open", 5, [], "b", None]}


class Bag:
    def plain(self, x: int) -> int:
        return x

    def __call__(self, x: int) -> int:
        """Called."""
        return x + 1


def untyped(a: int, b): ...


def star(*args: int): ...


def stars(**kwargs: int): ...


def run_context(ctx: RunContext): ...


def lock(a: threading.Event): ...


def unknown(a: "Nowhere"): ...  # noqa: F821  not there on purpose


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (untyped, r"function untyped, parameter b: it has no type"),
        (star, r"function star, parameter \*args"),
        (stars, r"function stars, parameter \*\*kwargs.*parameters="),
        (Bag.plain, r"function plain, parameter self.*bound method"),
        (run_context, r"function run_context, parameter ctx.*ToolContext"),
        (lock, r"function lock, parameter a: the type Event has no JSON form"),
        (unknown, r"function unknown, parameter a: the annotation 'Nowhere' cannot be resolved"),
    ],
)
def test_FR_090_what_a_model_cannot_fill_in_is_named_at_registration(fn: Callable[..., Any], message: str):
    with pytest.raises(ConfigError, match=message):
        make_tool(fn)


async def test_FR_090_positional_only_methods_objects_and_partials():
    def f(a: int, b: int = 2, /, c: int = 3) -> list[int]:
        return [a, b, c]

    def keyed(a: int, *, key: str) -> str:
        return f"{a} {key}"

    assert await run(f, {"a": 1, "c": 5}) == {"result": [1, 2, 5]}
    assert await run(f, {"a": 1, "b": 4}) == {"result": [1, 4, 3]}
    assert await run(Bag().plain, {"x": 1}) == {"result": 1}
    assert await run(Bag(), {"x": 1}, name="bag") == {"result": 2}
    assert make_tool(Bag()).declaration().description == "Called."
    fixed = functools.partial(keyed, key="secret")
    assert "secret" not in codec.encode(make_tool(fixed).declaration()).decode()
    assert await run(fixed, {"a": 1}) == {"result": "1 secret"}
    with pytest.raises(BadRequest, match="key"):
        await run(fixed, {"a": 1, "key": "mine"})


async def test_FR_090_the_context_is_filled_in_and_not_shown():
    def annotated(where: ToolContext, x: int = 0) -> bool:
        return where is CTX

    def named(x: int, tool_context) -> bool:
        return tool_context is CTX

    def optional(ctx: ToolContext | None = None) -> bool:
        return ctx is CTX

    def text(ctx: "ToolContext", /) -> bool:
        return ctx is CTX

    def for_checkers_only(ctx: "elsewhere.ToolContext") -> bool:  # noqa: F821  imported by type checkers only
        return ctx is CTX

    for fn in (annotated, named, optional, text, for_checkers_only):
        assert set(parameters(fn)["properties"]) <= {"x"}
        assert await run(fn, {"x": 1} if "x" in parameters(fn)["properties"] else {}) == {"result": True}

    def other(ctx: int) -> int:
        return ctx

    assert await run(other, {"ctx": 1}) == {"result": 1}


async def test_string_annotations_see_the_names_around_the_function():
    @dataclass
    class Local:
        n: int

    def f(a: "Local", b: "list[Item] | None" = None) -> "Local":
        assert isinstance(a, Local)
        return a

    assert Local(1).n == 1
    assert await run(f, {"a": {"n": "2"}}) == {"n": 2}


# --- arguments ---------------------------------------------------------------------------------------------------------


async def test_FR_091_enum_members_reach_the_function():
    def f(c: Color, d: Literal["x", 1, None] = None) -> str:
        assert isinstance(c, Color)
        return f"{c.name} {d}"

    properties = parameters(f)["properties"]
    assert properties["c"]["enum"] == ["a", "b"]
    assert properties["d"]["enum"] == ["x", 1, None]
    assert "null" in properties["d"]["type"]
    assert await run(f, {"c": "a", "d": None}) == {"result": "A None"}
    with pytest.raises(BadRequest, match="c: must be one of 'a', 'b'"):
        await run(f, {"c": "z"})


async def test_FR_093_arguments_are_checked_and_models_are_built():
    def f(items: list[Item], m: dict[str, Item], n: int) -> str:
        return f"{items!r} {m!r} {n!r}"

    good = {"items": [{"id": 1}], "m": {"a": {"id": 2}}, "n": "22"}
    assert await run(f, good) == {"result": f"{[Item(1)]!r} { ({'a': Item(2)})!r} 22"}
    with pytest.raises(BadRequest, match="n: must be an integer, not a string") as caught:
        await run(f, {**good, "n": "x"})
    assert caught.value.field == "n"
    with pytest.raises(BadRequest, match="items: is missing"):
        await run(f, {"m": {}, "n": 1})
    with pytest.raises(BadRequest, match="more: is not known; known are items, m, n"):
        await run(f, {**good, "more": 1})
    with pytest.raises(BadRequest) as caught:
        await run(f, {"items": [{}], "m": {"a": 1}, "x": 1})
    for line in ("'f'", "items[0].id: is missing", "m.a: must be an Item object", "n: is missing", "x: is not known"):
        assert line in str(caught.value)


async def test_the_arguments_of_the_call_are_not_shared_with_the_function():
    def f(data: dict[str, Any], rest: Any, items: list) -> None:
        data["new"] = 1
        rest.append(1)
        items.append(1)

    args = {"data": {}, "rest": [], "items": []}
    await run(f, args)
    assert args == {"data": {}, "rest": [], "items": []}


async def test_core_113_given_parameters_replace_the_inferred_ones():
    def f(a, b=2, **more):
        return [a, b, more]

    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 1}, "x": {"type": "string"}},
        "required": ["a"],
    }
    made = make_tool(f, parameters=schema)
    assert made.declaration().parameters == schema
    assert await made.call(CTX, {"a": 1, "x": "y"}) == {"result": [1, 2, {"x": "y"}]}
    with pytest.raises(BadRequest, match="a: must be at least 1"):
        await made.call(CTX, {"a": 0})
    with pytest.raises(BadRequest, match="q: is not known"):
        await made.call(CTX, {"a": 1, "q": 0})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "string"}, "object"),
        ({"type": "object", "properties": {"city": {}, "zzz": {}}}, "no parameter zzz"),
        ({"type": "object", "properties": {}}, "parameter city"),
        ({"type": "object", "properties": {"city": {"$ref": "#/$defs/X"}}}, "X"),
    ],
)
def test_core_113_input_must_be_an_object_that_the_function_takes(schema: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        make_tool(weather, parameters=schema)


# --- results -----------------------------------------------------------------------------------------------------------

AT = datetime.datetime(2026, 2, 25, tzinfo=datetime.UTC)
KEY = uuid.UUID("7b0a1f0e-0000-4000-8000-000000000000")


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ({"a": 1}, {"a": 1}),
        ({}, {}),
        ({1: (2,)}, {"1": [2]}),
        ("text", {"result": "text"}),
        ("", {"result": ""}),
        (0, {"result": 0}),
        ([], {"result": []}),
        (None, {"result": None}),
        (math.nan, {"result": None}),
        ([math.inf], {"result": [None]}),
        ({3}, {"result": [3]}),
        (frozenset([3]), {"result": [3]}),
        (b"\xff\xef", {"result": "/+8="}),
        (Color.A, {"result": "a"}),
        (AT, {"result": "2026-02-25T00:00:00Z"}),
        (KEY, {"result": str(KEY)}),
        (Decimal("1.10"), {"result": "1.10"}),
        (Item(1), {"id": 1, "tags": []}),
        ([Item(1)], {"result": [{"id": 1, "tags": []}]}),
        (
            Report(at=AT, key=KEY, price=Decimal("1.1"), color=Color.A),
            {"at": "2026-02-25T00:00:00Z", "key": str(KEY), "price": "1.1", "color": "a"},
        ),
        ({"in": [Report(at=AT, key=KEY, price=Decimal("1.1"), color=Color.B)], "n": math.nan}, None),
    ],
)
async def test_FR_095_core_113_results_get_their_json_form(value: Any, result: dict[str, Any] | None):
    def f() -> Any:
        return value

    found = await run(f)
    assert isinstance(found, dict)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    if result is not None:
        assert found == result


@pytest.mark.parametrize("value", [object(), {"a": object()}, "\ud800", {(1, 2): 3}])
async def test_FR_095_a_result_without_a_json_form_names_the_tool(value: Any):
    def broken() -> Any:
        return value

    with pytest.raises(AgentError, match="'broken' returned a"):
        await run(broken)


async def test_core_52_a_long_running_tool_may_have_nothing_yet():
    def f() -> None: ...

    assert await run(f, long_running=True) is None
    assert await run(lambda: "id", long_running=True, name="g") == {"result": "id"}
    assert await run(f) == {"result": None}


def test_response_schema_only_when_it_says_something():
    def item() -> Item | None: ...

    def items() -> Awaitable[list[Item]]: ...

    def pieces() -> Iterator[int]: ...

    def made(fn: Callable[..., Any], **options: Any) -> Any:
        return make_tool(fn, **options).declaration().response

    assert made(weather) is None
    assert made(item) is None
    found = made(items)
    assert found["properties"]["result"]["items"]["required"] == ["id"]
    assert made(pieces)["properties"]["result"] == {"type": "array", "items": {"type": "integer"}}
    assert made(weather, response={"type": "object", "properties": {"t": {}}})["properties"] == {"t": {}}
    assert made(weather, response=int)["properties"] == {"result": {"type": "integer"}}


# --- how it is called --------------------------------------------------------------------------------------------------

WHERE: contextvars.ContextVar[str] = contextvars.ContextVar("WHERE", default="")


async def test_sync_functions_run_in_a_thread_with_the_context_variables():
    WHERE.set("here")

    def f() -> list[Any]:
        return [threading.get_ident(), WHERE.get()]

    async def g() -> list[Any]:
        return [threading.get_ident(), WHERE.get()]

    sync, own = await run(f), await run(g)
    assert own == {"result": [threading.get_ident(), "here"]}
    assert sync["result"][0] != threading.get_ident()
    assert sync["result"][1] == "here"


async def test_sync_functions_run_side_by_side():
    both = threading.Barrier(2)

    def f() -> str:
        both.wait(timeout=30)
        return "met"

    found: list[Any] = []

    async def one() -> None:
        found.append(await run(f))

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        group.start_soon(one)
    assert found == [{"result": "met"}] * 2


async def test_awaitables_of_every_make():
    async def inner(x: int) -> int:
        await anyio.lowlevel.checkpoint()
        return x

    @functools.wraps(inner)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    class Caller:
        async def __call__(self, x: int) -> int:
            return await inner(x)

    for fn in (inner, wrapped, Caller(), functools.partial(inner), Bag().plain):
        assert await run(fn, {"x": 7}) == {"result": 7}


@pytest.mark.parametrize(
    ("pieces", "result"), [(["a", "b"], "ab"), ([], ""), ([1, "b"], [1, "b"]), ([{"x": 1}], [{"x": 1}])]
)
async def test_generators_are_collected(pieces: list[Any], result: Any):
    async def later() -> AsyncIterator[Any]:
        for piece in pieces:
            await anyio.lowlevel.checkpoint()
            yield piece

    def now() -> Iterator[Any]:
        yield from pieces

    def given() -> AsyncIterator[Any]:
        return later()

    for fn in (later, now, given):
        assert await run(fn) == {"result": result}


async def test_a_list_of_texts_is_not_joined():
    assert await run(lambda: ["a", "b"], name="f") == {"result": ["a", "b"]}


# --- errors ------------------------------------------------------------------------------------------------------------


def raiser(error: BaseException, how: str) -> Callable[..., Any]:
    async def on_loop() -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    def in_thread() -> None:
        raise error

    async def streaming() -> AsyncIterator[str]:
        yield "a"
        raise error

    def yielding() -> Iterator[str]:
        yield "a"
        raise error

    return {"on_loop": on_loop, "in_thread": in_thread, "streaming": streaming, "yielding": yielding}[how]


HOWS = ["on_loop", "in_thread", "streaming", "yielding"]


@pytest.mark.parametrize("how", HOWS)
async def test_FR_097_ordinary_exceptions_go_out_as_they_are(how: str):
    for error in (ValueError("x"), TimeoutError(), BadRequest("mine")):
        with pytest.raises(type(error)) as caught:
            await run(raiser(error, how), name="f")
        assert caught.value is error


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
async def test_FR_097_exits_and_made_up_cancellation_become_ordinary_errors(how: str, error: type[BaseException]):
    with pytest.raises(AgentError, match=f"'f' raised {error.__name__}"):
        await run(raiser(error(1), how), name="f")
    await anyio.lowlevel.checkpoint()  # the task is as well as before


async def test_FR_097_a_future_that_was_cancelled_elsewhere_is_no_cancellation_of_the_run():
    async def f() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with pytest.raises(AgentError, match="not cancelled"):
        await run(f)


@pytest.mark.parametrize("how", HOWS)
async def test_FR_097_groups_are_told_in_one_message(how: str):
    inner = BaseExceptionGroup("inner", [SystemExit(2), KeyError("k")])
    with pytest.raises(AgentError) as caught:
        await run(raiser(BaseExceptionGroup("outer", [ValueError("x"), inner]), how), name="f")
    assert str(caught.value) == "tool 'f' failed: ValueError: x; SystemExit: 2; KeyError: 'k'"


@pytest.mark.parametrize("native", [False, True])
async def test_FR_097_real_cancellation_cancels_an_async_tool(native: bool):
    began, cleaned, after = anyio.Event(), [], []

    async def f() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(1)

    async def one() -> None:
        await run(f)
        after.append("the call went on")

    if native:
        task = asyncio.ensure_future(one())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(one)
            await began.wait()
            group.cancel_scope.cancel()
    assert (cleaned, after) == ([1], [])


async def test_FR_097_real_cancellation_inside_a_group_stays_one():
    began = anyio.Event()
    ended: list[BaseException] = []

    async def f() -> None:
        async with anyio.create_task_group() as inner:
            inner.start_soon(anyio.sleep_forever)
            began.set()

    async def one() -> None:
        try:
            await run(f)
        except BaseException as error:
            ended.append(error)
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        await began.wait()
        group.cancel_scope.cancel()
    assert [type(e) for e in ended] == [asyncio.CancelledError]


async def test_a_cancelled_run_does_not_wait_for_a_thread():
    began, go, ended = threading.Event(), threading.Event(), threading.Event()

    def f() -> None:
        began.set()
        go.wait(timeout=30)
        ended.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(run, f)
            await anyio.to_thread.run_sync(began.wait, 10)
            group.cancel_scope.cancel()
    assert not ended.is_set()
    go.set()
    assert await anyio.to_thread.run_sync(ended.wait, 10)


async def test_a_sync_generator_without_end_stops_when_the_run_is_cancelled():
    began, ended = threading.Event(), threading.Event()

    def f() -> Iterator[int]:
        try:
            while True:
                began.set()
                yield 1
        finally:
            ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run, f)
        await anyio.to_thread.run_sync(began.wait, 10)
        group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(ended.wait, 10)


def test_closing_the_call_from_outside_is_no_error_of_the_tool():
    closed: list[type[BaseException]] = []

    async def f() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except BaseException as error:
            closed.append(type(error))
            raise

    call = make_tool(f).call(CTX, {})
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # it will complain that the task was left pending
    task = loop.create_task(call)
    loop.call_soon(loop.call_soon, loop.stop)
    loop.run_forever()
    call.close()
    assert closed == [GeneratorExit]
    assert not task.done()
    loop.close()


def test_a_struct_may_be_a_parameter_and_a_result():
    class Inner(msgspec.Struct, rename="camel"):
        first_name: str

    def f(a: Inner) -> Inner:
        return a

    made = make_tool(f)
    assert made.arguments({"a": {"firstName": "x"}}) == {"a": Inner("x")}
    assert made.declaration().response is not None
