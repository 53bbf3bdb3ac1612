"""What `polyport run` writes for a turn: every text once, agents side by side one after the other."""

import json

import pytest

from polyport.cli.printer import Printer
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part
from polyport.data.event import Event
from polyport.errors import LimitExceeded, ModelError


def said(author: str, text: str, *, partial: bool = False) -> Event:
    return Event(author=author, partial=partial, content=Content(role="model", parts=[Part(text=text)]))


def called(author: str, name: str) -> Event:
    call = FunctionCall(id="1", name=name, args={"x": "y" * 300})
    return Event(author=author, content=Content(role="model", parts=[Part(function_call=call)]))


@pytest.fixture
def printer() -> Printer:
    return Printer(as_json=False)


def out(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    got = capsys.readouterr()
    return got.out, got.err


def test_pieces_and_the_whole_are_written_once(printer: Printer, capsys: pytest.CaptureFixture[str]):
    for event in (said("a", "one ", partial=True), said("a", "two", partial=True), said("a", "one two")):
        printer.show(event)
    assert out(capsys) == ("one two\n", "")


def test_pieces_come_as_they_come(printer: Printer, capsys: pytest.CaptureFixture[str]):
    printer.show(said("a", "one ", partial=True))
    assert out(capsys) == ("one ", "")
    printer.end()
    assert out(capsys) == ("\n", "")


def test_a_whole_that_goes_further_is_finished(printer: Printer, capsys: pytest.CaptureFixture[str]):
    printer.show(said("a", "one", partial=True))
    printer.show(said("a", "one and more"))
    assert out(capsys) == ("one and more\n", "")


def test_a_whole_that_differs_is_said_anew(printer: Printer, capsys: pytest.CaptureFixture[str]):
    printer.show(said("a", "no", partial=True))
    printer.show(said("a", "yes"))
    assert out(capsys) == ("no\nyes\n", "")


def test_two_messages_that_are_equal_are_both_written(printer: Printer, capsys: pytest.CaptureFixture[str]):
    for _ in range(2):
        printer.show(said("a", "again", partial=True))
        printer.show(said("a", "again"))
    assert out(capsys) == ("again\nagain\n", "")


def test_text_that_ends_with_a_line_break_gets_no_second_one(printer: Printer, capsys: pytest.CaptureFixture[str]):
    printer.show(said("a", "done\n"))
    assert out(capsys) == ("done\n", "")


def test_the_users_own_words_are_not_repeated(printer: Printer, capsys: pytest.CaptureFixture[str]):
    printer.show(said("user", "hi"))
    assert out(capsys) == ("", "")


def test_agents_side_by_side_do_not_mix(capsys: pytest.CaptureFixture[str]):
    printer = Printer(as_json=False, team=True)
    for event in (
        said("a", "a1 ", partial=True),
        said("b", "b1 ", partial=True),
        said("a", "a2", partial=True),
        said("b", "b2", partial=True),
        said("b", "b1 b2"),
        called("b", "tool"),
        said("a", "a1 a2"),
    ):
        printer.show(event)
    text, notes = out(capsys)
    assert text == "a1 a2\nb1 b2\n"
    assert notes.startswith("a:\nb:\n  tool(")


def test_what_waited_is_written_when_the_live_one_never_ends(printer: Printer, capsys: pytest.CaptureFixture[str]):
    for event in (said("a", "a1", partial=True), said("b", "b1")):
        printer.show(event)
    printer.finish()
    assert out(capsys) == ("a1\nb1\n", "")


def test_tool_calls_are_notes_and_short(printer: Printer, capsys: pytest.CaptureFixture[str]):
    printer.show(said("a", "let me see", partial=True))
    printer.show(called("a", "tool"))
    answer = FunctionResponse(id="1", name="tool", response={"ok": True})
    printer.show(Event(author="a", content=Content(role="user", parts=[Part(function_response=answer)])))
    text, notes = out(capsys)
    assert text == "let me see\n"
    first, second = notes.splitlines()
    assert first.startswith('  tool({"x":"yyy') and len(first) < 220 and first.endswith("...)")
    assert second == '  tool = {"ok":true}'


def test_errors_in_events_are_notes(printer: Printer, capsys: pytest.CaptureFixture[str]):
    printer.show(Event(author="a", error_code="SAFETY", error_message="blocked"))
    assert out(capsys) == ("", "  SAFETY: blocked\n")


def test_json_is_one_line_for_each_event_and_the_failure(capsys: pytest.CaptureFixture[str]):
    printer = Printer(as_json=True)
    printer.show(said("user", "hi\nthere"))
    printer.show(said("a", "one", partial=True))
    printer.failed(LimitExceeded("too many"))
    printer.failed(ValueError("secret"))
    text, notes = out(capsys)
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line.get("author") for line in lines] == ["user", "a", None, None]
    assert lines[2] == {"error": "too many", "errorCode": "LIMIT_EXCEEDED"}
    assert "secret" not in text and notes == ""


def test_failures_say_what_and_where(printer: Printer, capsys: pytest.CaptureFixture[str]):
    printer.failed(ModelError("quota is over", http_status=429))
    try:
        raise ValueError("broken")
    except ValueError as error:
        printer.failed(error)
    text, notes = out(capsys)
    assert text == ""
    first, second, third = notes.splitlines()
    assert first == "error: quota is over" and second == "error: ValueError: broken"
    assert third.startswith(f"  {__file__}, line ") and third.endswith('raise ValueError("broken")')
