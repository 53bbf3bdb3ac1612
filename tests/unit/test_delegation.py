"""Isolation scopes as read from events, and what a delegation came to (spec core 2.5, 3.15, 6.3)."""

from typing import Any

import pytest

from polyport import AgentTool, LlmAgent, Part
from polyport.data.content import Content, FunctionCall, FunctionResponse, model_text, user_text
from polyport.data.event import Event, new_actions
from polyport.engine.delegation import answer_of, check_arguments
from polyport.engine.scopes import answered_ids, callers, finished_with, open_task, reopened_event, seen_from
from polyport.engine.start import Start, pick_start
from polyport.engine.tree import AgentTree
from polyport.errors import AgentError, BadRequest
from polyport.ports.agent import Bound
from polyport.testing import ScriptedModel

DONE = {"result": "Task completed."}


def calls(*ids: str, author: str = "boss", scope: str = "", name: str = "task", **args: Any) -> Event:
    parts = [Part(function_call=FunctionCall(id=id, name=name, args=args)) for id in ids]
    return Event(id=f"call {ids}", author=author, isolation_scope=scope, content=Content(role="model", parts=parts))


def responds(id: str, response: dict[str, Any] | None = None, scope: str = "", name: str = "task") -> Event:
    part = Part(function_response=FunctionResponse(id=id, name=name, response=response))
    return Event(author="boss", isolation_scope=scope, content=Content(role="user", parts=[part]))


def says(text: str, author: str = "task", scope: str = "") -> Event:
    return Event(author=author, isolation_scope=scope, content=model_text(text))


def finishes(scope: str, response: dict[str, Any] = DONE, **args: Any) -> list[Event]:
    return [
        calls(f"f {scope}", author="task", scope=scope, name="finish_task", **args),
        responds(f"f {scope}", response, scope, "finish_task"),
    ]


def always(scope: str) -> bool:
    return True


# ---- the open task


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        ([], ""),
        ([says("hi")], ""),
        ([calls("a"), says("which?", scope="a")], "a"),
        ([calls("a"), says("which?", scope="a"), *finishes("a")], ""),
        ([calls("a"), *finishes("a", {"error": "no"})], "a"),
        ([calls("a"), *finishes("a", {"error": "no"}), says("again?", scope="a"), *finishes("a")], ""),
        ([calls("a"), *finishes("a", {"result": "Something else."})], "a"),
        ([calls("a"), says("x", scope="a"), calls("b"), says("y", scope="b")], "b"),
        ([calls("a"), says("x", scope="a"), calls("b"), says("y", scope="b"), *finishes("b")], "a"),
        ([calls("a"), says("x", scope="a"), responds("a", {"error": "failed"})], ""),
        ([calls("a"), says("x", scope="a"), says("something else", "boss")], "a"),
        ([calls("a"), says("x", scope="a"), responds("z", DONE, "a", "other_tool")], "a"),
    ],
)
def test_core_42_open_task_scope(events: list[Event], wanted: str):
    assert open_task(events, always) == wanted


def test_core_42_scopes_that_are_no_tasks_are_never_open():
    events = [calls("a"), says("x", scope="a"), calls("b"), says("y", scope="b")]
    assert open_task(events, lambda scope: scope == "a") == "a"
    assert open_task(events, lambda scope: False) == ""


def test_what_a_task_was_finished_with():
    events = [calls("a"), *finishes("a", {"error": "no"}, n=1), calls("b"), *finishes("b", n=3)]
    assert finished_with(events, "a") is None
    assert finished_with([*events, *finishes("a", n=2)], "a") == {"n": 2}
    assert finished_with(events, "b") == {"n": 3}


# ---- who delegated to whom


def test_callers_lead_to_the_outermost_one():
    top, middle, deep = calls("a"), calls("b", author="m", scope="a"), says("x", "d", "b")
    events = [top, middle, deep]
    assert list(callers(events, deep)) == [deep, middle, top]
    assert list(callers(events, top)) == [top]
    assert [seen_from(events, deep, s) for s in ("", "a", "b", "z")] == [top, middle, deep, None]
    assert list(callers([deep], deep)) == [deep], "its call is gone"


def test_callers_do_not_go_round_in_circles():
    a, b = calls("a", scope="b"), calls("b", scope="a")
    assert list(callers([a, b], a)) == [a, b, a]


def test_answers_count_from_the_call_on():
    asked = calls("a", "b")
    events = [responds("a"), asked, responds("b"), says("x")]
    assert answered_ids(events, asked) == {"b"}


def test_the_event_to_go_on_with_is_the_newest_of_that_agent_in_that_scope():
    old, new = calls("a", "z"), calls("b", scope="s")
    assert reopened_event([old, new], {"a", "b"}, "boss", "") is old
    assert reopened_event([old, new], {"a", "b"}, "boss", "s") is new
    assert reopened_event([old, new], {"a", "b"}, "other", "") is None
    assert reopened_event([old, new], {"c"}, "boss", "") is None
    assert reopened_event([old, new], set(), "boss", "") is None


# ---- who goes on


def tree_of(root: LlmAgent) -> AgentTree:
    return AgentTree(root, lambda agent, above: Bound(ScriptedModel()))


def team() -> AgentTree:
    task = LlmAgent(name="task", mode="task", sub_agents=[LlmAgent(name="own")])
    return tree_of(LlmAgent(name="boss", sub_agents=[task, LlmAgent(name="chat")]))


def start(tree: AgentTree, events: list[Event], message: Content) -> Start:
    return pick_start(tree, events, message, "r")


def test_core_42_a_message_belongs_to_the_open_task_of_whoever_works_on_it():
    tree = team()
    events = [says("hello", "chat"), calls("a"), says("which?", scope="a")]
    got = start(tree, events, user_text("Rome"))
    assert (got.agent.name, got.scope, got.reopened) == ("boss", "a", {"a"})
    assert got.askers == {"": {"boss"}, "a": {"task"}}
    got = start(tree, [*events, says("own?", "own", "a")], user_text("Rome"))
    assert got.askers == {"": {"boss"}, "a": {"own"}}
    got = start(tree, [*events, *finishes("a")], user_text("Rome"))
    assert (got.agent.name, got.scope, got.askers) == ("boss", "", {}), "never one that works for a call"


def test_core_42_a_task_is_found_through_all_that_work_for_each_other():
    inner = LlmAgent(name="inner", mode="task")
    outer = LlmAgent(name="outer", mode="single_turn", sub_agents=[inner])
    tool = AgentTool(LlmAgent(name="middle", sub_agents=[outer]))
    tree = AgentTree(
        LlmAgent(name="boss"), lambda agent, above: Bound(ScriptedModel(), [tool] if agent.name == "boss" else [])
    )
    assert tree.has_tasks
    events = [calls("a", name="middle"), calls("b", author="middle", scope="a", name="outer")]
    events += [calls("c", author="outer", scope="b", name="inner"), says("which?", "inner", "c")]
    got = start(tree, events, user_text("Rome"))
    assert (got.agent.name, got.scope, got.reopened) == ("boss", "c", {"a", "b", "c"})
    assert got.askers == {"": {"boss"}, "a": {"middle"}, "b": {"outer"}, "c": {"inner"}}


def test_a_scope_whose_caller_or_tool_is_gone_is_not_open():
    for events in (
        [calls("a", author="gone"), says("which?", scope="a")],
        [calls("a", name="gone"), says("which?", scope="a")],
        [says("which?", scope="a")],
        [calls("a", author="task", scope="b"), calls("b", author="task", scope="a"), says("which?", scope="a")],
    ):
        got = start(team(), events, user_text("Rome"))
        assert (got.agent.name, got.scope, got.reopened) == ("boss", "", set())


def test_answers_to_several_askers_are_sorted_by_their_scopes():
    events = [calls("a", "b"), calls("x", scope="a", author="task"), calls("y", scope="b", author="task")]
    parts = [*responds("y").content.parts, Part(text="see you"), *responds("x").content.parts]  # type: ignore[union-attr]  # it has content
    got = start(team(), events, Content(role="user", parts=parts))
    assert got.reopened == {"a", "b"}
    placed = {place: content.parts for place, content in got.places(Content(role="user", parts=parts))}
    assert placed == {"b": parts[:2], "a": parts[2:]}


def test_an_answer_for_a_call_that_has_its_response_reopens_nothing():
    events = [calls("a"), calls("x", scope="a", author="task"), responds("a", {"error": "interrupted"})]
    got = start(team(), events, Content(role="user", parts=responds("x").content.parts))  # type: ignore[union-attr]  # it has content
    assert (got.agent.name, got.scope, got.reopened) == ("boss", "", set())


# ---- arguments and answers


def test_core_114_arguments_without_a_schema():
    check_arguments("t", {"request": "x"}, None)
    for args, named in (({}, "needs the parameter 'request'"), ({"request": "x", "a": 1}, "no parameter 'a'")):
        with pytest.raises(BadRequest, match=named):
            check_arguments("t", args, None)


def test_the_last_answer_in_a_scope_counts():
    tree = team()
    skipped = new_actions()
    skipped.skip_summarization = True
    exits = Event(author="own", isolation_scope="a", content=responds("q", {}).content, actions=skipped)
    events = [
        says("elsewhere", scope="b"),
        says("first", scope="a"),
        says("last", "own", "a"),
        exits,
        says("out", "boss"),
    ]
    assert answer_of(events, "a", tree) == "last", "an exit without words is no answer"
    assert answer_of(events, "none", tree) is None
    assert answer_of([Event(author="x", isolation_scope="a", output=[1])], "a", tree) == [1]
    with pytest.raises(AgentError, match="agent 'own' failed: SAFETY: no"):
        answer_of(
            [*events, Event(author="own", isolation_scope="a", error_code="SAFETY", error_message="no")], "a", tree
        )
