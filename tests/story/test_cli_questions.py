"""`polyport run` puts the questions of a run to the user at the terminal (spec rest 7.2)."""

import json
from pathlib import Path
from typing import Any

import pytest

from polyport.cli.questions import Questions
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part
from polyport.data.event import Event
from support.processes import Process, Terminal

AGENT = '''
from polyport import LlmAgent, ToolContext, make_tool, tool
from polyport.testing import ScriptedModel, call

@tool(require_confirmation=True)
def pay(amount: int) -> dict:
    """Pay."""
    return {"paid": amount}

def book(ctx: ToolContext) -> dict:
    """Book."""
    if not ctx.inputs:
        ctx.request_input("Which day?", {"type": "integer"})
        return {"status": "waiting"}
    return {"day": ctx.input}

@tool(long_running=True)
def build() -> None:
    """Build."""

async def model(request, on_partial):
    last = request.contents[-1]
    if last.responses:
        return "; ".join(f"{r.name}: {r.response}" for r in last.responses)
    wanted = [call("pay", {"amount": 5}, "p"), call("book", {}, "b"), call("build", {}, "l")]
    return [c for c in wanted if c.name in last.text]

root_agent = LlmAgent(name="bot", model=ScriptedModel(*[model] * 9), tools=[pay, book, build])
'''


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(AGENT)
    return tmp_path / "bot"


@pytest.mark.parametrize(("line", "paid"), [("yes", True), (" Y ", True), ("no", False), ("", False), ("ok", False)])
def test_rest_128_a_line_answers_the_approval_and_the_end_of_input_ends(bot: Path, line: str, paid: bool):
    with Process("run", str(bot)) as process:
        process.write("pay")
        process.says(r'pay\(\{"amount":5\}\)$', err=True)
        process.says("yes or no", err=True)
        process.write(line)
        process.stdin.close()
        assert process.ended() == 0
        assert ("'paid': 5" in process.out.text) is paid and ("rejected" in process.out.text) is not paid


def test_all_questions_are_asked_in_turn_and_answered_in_one_message(bot: Path):
    with Process("run", str(bot)) as process:
        process.write("book, pay and build")
        for question, line in (("Result of build", "done"), ("yes or no", "y"), ("Which day", "many")):
            process.says(question, err=True)
            process.write(line)
        process.says("does not fit its schema", err=True)
        for line in ('{"ok": true}', "yes", "7"):
            process.write(line)
        process.stdin.close()
        process.ended()
        assert process.out.text.strip() == "pay: {'paid': 5}; book: {'day': 7}; build: {'ok': True}"


def test_the_other_questions_are_put_only_when_it_is_their_turn(bot: Path):
    with Terminal("run", str(bot)) as terminal:
        terminal.shows("user> ")
        terminal.type("pay and build\n")
        assert "yes or no" not in terminal.shows(r"Result of build.*\n\n.*user> ")
        terminal.type("ready\n")
        terminal.shows(r"yes or no.*\n\n.*user> ")
        terminal.type("yes\n")
        terminal.shows("pay: .'paid': 5.; build: .'result': 'ready'.")
        terminal.type("exit\n")
        assert terminal.wait() == 0


def test_a_question_is_answered_in_a_later_process(bot: Path, tmp_path: Path):
    database = f"sqlite:///{tmp_path}/x.db"
    with Process("run", str(bot), "--db", database, "--session", "s", "--once", "pay", "--json") as process:
        assert process.ended() == 0 and process.err.text == ""
        events = [json.loads(line) for line in process.out.text.splitlines()]
        assert events[-1]["content"]["parts"][0]["functionCall"]["name"] == "adk_request_confirmation"


# ---- what is asked, and what an answer means


def asks(name: str, args: dict[str, Any], id: str = "q1", **fields: Any) -> Event:
    made = FunctionCall(id=id, name=name, args=args)
    content = Content(role="model", parts=[Part(function_call=made)])
    return Event(**{"author": "a", "content": content, "long_running_tool_ids": [id], **fields})


def answer(event: Event, line: str) -> Any:
    questions = Questions()
    questions.see(event)
    message = questions.take(line)
    assert message is not None and not questions.open
    return message.responses[0].response


@pytest.mark.parametrize(
    ("name", "line", "response"),
    [
        ("adk_request_confirmation", "confirm", {"confirmed": True}),
        ("adk_request_confirmation", "TRUE", {"confirmed": True}),
        ("adk_request_confirmation", '{"confirmed": true}', {"confirmed": False}),
        ("adk_request_input", "Monday", {"payload": "Monday"}),
        ("adk_request_input", "7", {"payload": 7}),
        ("adk_request_input", "[1]", {"payload": [1]}),
        ("adk_request_input", '{"day": 7}', {"day": 7}),
        ("build", "ready", {"result": "ready"}),
        ("build", "null", {"result": None}),
        ("build", '{"ok": true}', {"ok": True}),
    ],
)
def test_section_7_2_what_a_line_means(name: str, line: str, response: Any):
    assert answer(asks(name, {}), line) == response


def test_section_7_2_what_is_shown():
    def text(event: Event) -> str:
        questions = Questions()
        questions.see(event)
        return questions.text()

    original = {"originalFunctionCall": {"id": "c", "name": "pay", "args": {"n": 1}}}
    asked = {**original, "toolConfirmation": {"hint": "Sure?", "confirmed": False, "payload": {"a": 1}}}
    assert text(asks("adk_request_confirmation", asked)) == 'Sure?\n  pay({"n":1})\n  {"a":1}\nyes or no?'
    assert text(asks("adk_request_confirmation", original)).startswith("Confirm pay?")
    assert text(asks("adk_request_input", {})) == "Input requested"
    hidden = {"message": "Hi\x1b[2Jthere\r", "payload": "\x1b"}
    assert "\x1b" not in text(asks("adk_request_input", hidden)) and "\r" not in text(asks("adk_request_input", hidden))


def test_a_question_is_put_once_and_not_for_a_call_that_failed():
    questions = Questions()
    questions.see(asks("build", {}, partial=True))
    assert not questions.open
    questions.see(asks("build", {}))
    questions.see(asks("build", {}))
    failed = FunctionResponse(id="q1", name="build", response={"error": "no"})
    questions.see(Event(author="a", content=Content(role="user", parts=[Part(function_response=failed)])))
    assert not questions.open
    questions.see(asks("build", {}, "q2", long_running_tool_ids=[]))
    assert not questions.open
