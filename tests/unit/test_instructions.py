"""Templates in instructions: 13 cases of spec core 3.5 and a few more."""

import pytest

from polyport.engine.instructions import identity_text, join, render
from polyport.errors import BadRequest, NotFound, Unavailable

STATE = {
    "user_name": "Ada",
    "app:title": "Lab",
    "user:lang": "en",
    "temp:step": 3,
    "empty": None,
    "items": [1, {"a": True}],
    "trick": "{user_name}",
    "yes": True,
}


async def load(name: str) -> str | None:
    return {"notes.txt": "remember {user_name}", "picture": ""}.get(name)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Hello {user_name}, in {app:title}.", "Hello Ada, in Lab."),
        ("{user:lang}/{temp:step}", "en/3"),
        ("Notes: {artifact.notes.txt}", "Notes: remember {user_name}"),
        ("Picture: {artifact.picture}.", "Picture: ."),
        ("Maybe: {missing?}.", "Maybe: ."),
        ("Maybe: {app:missing?}.", "Maybe: ."),
        ("Maybe: {artifact.missing?}.", "Maybe: ."),
        ("There: {user_name?}", "There: Ada"),
        ("Null: {empty}.", "Null: ."),
        ("{invalid-key} {invalid:key} {app:bad-key} {1st} {}", "{invalid-key} {invalid:key} {app:bad-key} {1st} {}"),
        ("{{user_name}} {{{ user_name }} {  user_name}", "Ada Ada Ada"),
        ("{items} {yes}", '[1,{"a":true}] true'),
        ("No slots at all", "No slots at all"),
    ],
)
async def test_core_69_slots_are_filled_and_all_else_is_left_alone(template: str, text: str):
    assert await render(template, STATE, load) == text


@pytest.mark.parametrize(
    "text",
    [
        'Answer as {"name": "x", "n": {"deep": [1, 2]}}',
        "function f() { return 1; }",
        "open { and close } apart",
        "{\n  a: 1\n}",
        "{{}}",
        "{" * 3000,
        "}{",
        "{user_name ?}",
    ],
)
async def test_core_69_braces_that_are_no_slot_survive(text: str):
    assert await render(text, STATE, load) == text


@pytest.mark.parametrize("key", ["missing", "app:missing", "user:missing", "temp:missing"])
async def test_core_69_a_missing_key_is_named_with_the_remedy(key: str):
    with pytest.raises(BadRequest, match=f"'{key}'.*{{{key}\\?}}") as caught:
        await render(f"x {{{key}}}", STATE, load)
    assert caught.value.field == f"state.{key}"


@pytest.mark.parametrize("name", ["missing", ""])
async def test_core_69_a_missing_or_nameless_artifact_is_an_error(name: str):
    with pytest.raises(BadRequest, match=f"artifact '{name}'"):
        await render(f"x {{artifact.{name}}}", STATE, load)


async def test_core_69_an_artifact_without_a_store_is_an_error_even_when_optional():
    for template in ("{artifact.notes.txt}", "{artifact.notes.txt?}"):
        with pytest.raises(Unavailable, match=r"notes\.txt"):
            await render(template, STATE, None)


async def test_a_loader_may_say_missing_by_not_found():
    async def refuse(name: str) -> str | None:
        raise NotFound(f"artifact {name}")

    assert await render("[{artifact.a?}]", {}, refuse) == "[]"
    with pytest.raises(BadRequest, match="artifact 'a'"):
        await render("{artifact.a}", {}, refuse)


async def test_what_was_filled_in_is_no_template():
    assert await render("{trick} {artifact.notes.txt}", STATE, load) == "{user_name} remember {user_name}"


async def test_a_value_without_text_form_is_named_by_type_only():
    with pytest.raises(BadRequest, match="state key 'thing' holds a object"):
        await render("{thing}", {"thing": object()}, None)


def test_core_70_identity_has_no_description_clause_when_there_is_none():
    assert identity_text("helper", "finds things") == identity_text("helper") + " Your task in short: finds things"
    assert '"helper"' in identity_text("helper")
    assert "task" not in identity_text("helper")


def test_core_76_parts_are_joined_by_a_blank_line_and_blank_ones_left_out():
    assert join(["a", "", "  \n", "b\n", "c"]) == "a\n\nb\n\n\nc"
    assert join([]) == ""
