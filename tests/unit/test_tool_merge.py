"""The one event that the calls of an answer become (spec core 3.9, statements 52 and 53)."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyport.data.content import FunctionCall
from polyport.data.event import Event, EventActions, ToolConfirmation, new_actions
from polyport.engine.prepare import Toolbox
from polyport.engine.tool_calls import Outcome, merge, merge_actions, without_calls
from polyport.ports.agent import Tool, ToolContext


class Named(Tool):
    def __init__(self, name: str, long_running: bool = False) -> None:
        self.name = name
        self.long_running = long_running

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any: ...


class Maker:
    """Stands where the context does: all that `merge` wants of it is new events."""

    def event(self, **fields: Any) -> Event:
        return Event(id="e", author="a", **fields)


def box() -> Toolbox:
    made = Toolbox("me")
    made.add(Named("plain"))
    made.add(Named("later", long_running=True))
    return made


def outcome(name: str, id: str, response: dict[str, Any] | None, **actions: Any) -> Outcome:
    made = new_actions()
    for key, value in actions.items():
        setattr(made, key, value)
    return Outcome(FunctionCall(id=id, name=name), response, made)


def merged(*outcomes: Outcome) -> Event | None:
    return merge(Maker(), outcomes, box())  # type: ignore[arg-type]  # see Maker


def actions_of(*outcomes: Outcome) -> EventActions:
    event = merged(*outcomes)
    assert event is not None
    return event.actions


def test_core_53_nothing_at_all_is_no_event():
    assert merged() is None
    assert merged(outcome("later", "1", None), outcome("later", "2", None)) is None


def test_core_52_a_null_response_is_kept_of_plain_tools_and_of_unknown_ones():
    event = merged(outcome("later", "1", None), outcome("plain", "2", None), outcome("gone", "3", None))
    assert event is not None and event.content is not None
    assert [(r.id, r.response) for r in event.responses] == [("2", None), ("3", None)]
    assert event.content.role == "user"


def test_core_52_an_interim_response_of_a_waiting_tool_is_kept():
    event = merged(outcome("later", "1", {"status": "pending"}))
    assert event is not None and [r.response for r in event.responses] == [{"status": "pending"}]


@pytest.mark.parametrize(
    "actions",
    [
        {"state_delta": {"k": 1}},
        {"artifact_delta": {"f": 1}},
        {"escalate": True},
        {"skip_summarization": True},
        {"end_invocation": True},
        {"transfer_to_agent": "b"},
        {"requested_tool_confirmations": {"1": ToolConfirmation(hint="sure?")}},
    ],
)
def test_core_53_what_a_waiting_tool_asked_for_makes_an_event_without_content(actions: dict[str, Any]):
    event = merged(outcome("later", "1", None, **actions))
    assert event is not None and event.content is None
    for name, value in actions.items():
        assert getattr(event.actions, name) == value


def test_core_53_flags_are_ored_and_the_last_transfer_wins():
    actions = actions_of(
        outcome("plain", "1", {}, escalate=True, transfer_to_agent="a"),
        outcome("plain", "2", {}, skip_summarization=True, transfer_to_agent="b"),
        outcome("plain", "3", {}, end_invocation=True),
    )
    assert (actions.escalate, actions.skip_summarization, actions.end_invocation) == (True, True, True)
    assert actions.transfer_to_agent == "b"


def test_core_53_the_higher_artifact_version_wins_even_if_it_came_earlier():
    actions = actions_of(
        outcome("plain", "1", {}, artifact_delta={"f": 3, "g": 1}),
        outcome("plain", "2", {}, artifact_delta={"f": 2, "g": 4}),
    )
    assert actions.artifact_delta == {"f": 3, "g": 4}


def test_core_53_confirmations_are_united():
    first, second = ToolConfirmation(hint="1"), ToolConfirmation(hint="2")
    actions = actions_of(
        outcome("plain", "1", {}, requested_tool_confirmations={"1": first}),
        outcome("plain", "2", {}, requested_tool_confirmations={"2": second}),
    )
    assert actions.requested_tool_confirmations == {"1": first, "2": second}


def test_core_53_deltas_that_are_unset_do_no_harm():
    actions = actions_of(
        outcome("plain", "1", {}, state_delta=None, artifact_delta=None),
        outcome("plain", "2", {}, state_delta={"k": 1}),
    )
    assert (actions.state_delta, actions.artifact_delta) == ({"k": 1}, {})


def test_core_53_merging_leaves_the_parts_alone():
    first, second = {"deep": {"a": 1}}, {"deep": {"b": 2}}
    actions = actions_of(outcome("plain", "1", {}, state_delta=first), outcome("plain", "2", {}, state_delta=second))
    assert actions.state_delta == {"deep": {"a": 1, "b": 2}}
    assert (first, second) == ({"deep": {"a": 1}}, {"deep": {"b": 2}})


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ({"k": {"a": 1}}, {"k": 2}, {"k": 2}),
        ({"k": 1}, {"k": {"a": 1}}, {"k": {"a": 1}}),
        ({"k": [1]}, {"k": [2]}, {"k": [2]}),
        ({"k": {"a": 1}}, {"k": None}, {"k": None}),
        ({"k": {"a": {"x": 1}}}, {"k": {"a": {"y": 2}, "b": 3}}, {"k": {"a": {"x": 1, "y": 2}, "b": 3}}),
        ({}, {"k": {}}, {"k": {}}),
    ],
)
def test_core_53_only_maps_are_merged_deeply(first: Any, second: Any, result: Any):
    actions = actions_of(outcome("plain", "1", {}, state_delta=first), outcome("plain", "2", {}, state_delta=second))
    assert actions.state_delta == result


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=6,
)
_deltas = st.dictionaries(st.sampled_from("klm"), _values, max_size=3)


@given(_deltas, _deltas)
def test_core_53_merging_any_two_deltas(a: Any, b: Any):
    """All keys are there, a plain value of the later one stands, and neither delta is changed or shared at the top."""
    before = deepcopy((a, b))
    into = new_actions()
    merge_actions(into, EventActions(state_delta=a, artifact_delta={}))
    assert into.state_delta == a
    merge_actions(into, EventActions(state_delta=b, artifact_delta={}))
    assert (a, b) == before
    merged = into.state_delta
    assert merged is not None and merged.keys() == a.keys() | b.keys()
    for key, value in merged.items():
        if key not in b:
            assert value == a[key]
        elif not isinstance(b[key], dict) or not isinstance(a.get(key), dict):
            assert value == b[key]
        else:
            assert value.keys() == a[key].keys() | b[key].keys()


def test_core_86_a_closing_answer_keeps_its_text_and_loses_its_calls():
    from polyport.data.content import Content, Part

    call = Part(function_call=FunctionCall(id="1", name="f"))
    event = Event(content=Content(role="model", parts=[Part(text="bye"), call]), long_running_tool_ids=["1"])
    kept = without_calls(event)
    assert (kept.text, kept.calls, kept.long_running_tool_ids) == ("bye", [], [])
    alone = without_calls(Event(content=Content(role="model", parts=[call])))
    assert alone.content is None
    plain = Event(content=Content(role="model", parts=[Part(text="x")]))
    assert without_calls(plain) is plain
