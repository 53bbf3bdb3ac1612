"""`polyport run` as a real process: in a terminal, in a pipe, and with Ctrl-C (FR-236, FR-233)."""

import json
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from support.processes import PATIENCE_S, Process, Terminal

WEATHER = str(Path(__file__).parents[2] / "examples/weather")
AGENT = '''
from pathlib import Path
import socket, anyio
from polyport import LlmAgent

async def linger() -> dict:
    """Wait for ever."""
    await anyio.sleep_forever()

def block() -> dict:
    """Block a thread until somebody at the door says something."""
    with socket.create_connection(("127.0.0.1", int((Path(__file__).parent / "door").read_text()))) as door:
        return {"got": door.recv(100).decode()}

async def cling() -> dict:
    """Wait for ever, also when it is cancelled."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()

root_agent = LlmAgent(name="bot", model="demo", instruction="Use the tools.", tools=[linger, block, cling])
'''
BROKEN_MODEL = """
from polyport import LlmAgent, Model, ModelResponse

class Broken(Model):
    name = "broken"
    schema_with_tools = False
    async def generate(self, request, on_partial=None):
        raise RuntimeError("the model is broken")
    async def aclose(self): ...

root_agent = LlmAgent(name="bot", model=Broken())
"""
SAYS = """
from polyport import Content, FunctionAgent, Part

async def say(ctx):
    for n in range(2000):
        await ctx.emit(ctx.event(content=Content(role="model", parts=[Part(text=f"line {n} 你好 🌦")])))

root_agent = FunctionAgent(name="bot", function=say)
"""


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    return agent(tmp_path, AGENT)


def agent(tmp_path: Path, code: str) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot/agent.py").write_text(code, encoding="utf-8")
    return tmp_path / "bot"


# ---- one question


def test_once_prints_the_answer_and_shows_tool_calls_on_standard_error():
    with Process("run", WEATHER, "--once", "How is the weather in Paris and Rome?") as process:
        assert process.ended() == 0
        assert process.out.text.count("Paris") == 1
        assert "18" in process.out.text and "27" in process.out.text
        assert len(process.out.text.splitlines()) == 1
        assert re.search(r'get_weather\(\{"city":"Paris"\}\)', process.err.text)
        assert re.search(r'get_weather = \{"temperature_c":27', process.err.text)


def test_once_as_json_gives_one_event_a_line():
    with Process("run", WEATHER, "--once", "weather in Oslo", "--json") as process:
        assert process.ended() == 0
        events = [json.loads(line) for line in process.out.text.splitlines()]
        assert len({e["invocationId"] for e in events}) == 1
        whole = [e for e in events if not e.get("partial")]
        assert "11" in whole[-1]["content"]["parts"][0]["text"]
        assert process.err.text == ""


def test_a_failure_is_one_line_and_exit_code_1(tmp_path: Path):
    broken = agent(tmp_path, BROKEN_MODEL)
    with Process("run", str(broken), "--once", "hi") as process:
        assert process.ended() == 1
        assert process.out.text == "" and "Traceback" not in process.err.text.partition("error: ")[2]
        assert "error: RuntimeError: the model is broken" in process.err.text
    with Process("run", str(broken), "--once", "hi", "--json") as process:
        assert process.ended() == 1
        assert json.loads(process.out.text.splitlines()[-1])["errorCode"] == "INTERNAL"
    with Process("run", str(broken)) as process:
        process.write("hi")
        process.stdin.close()
        assert process.ended() == 1


def test_ctrl_c_ends_the_one_question_with_130(bot: Path):
    with Process("run", str(bot), "--once", "linger") as process:
        process.says(r"linger\(\{\}\)", err=True)
        process.signal(signal.SIGINT)
        assert process.ended() == 130
        assert "(stopped)" in process.err.text and "Traceback" not in process.err.text


def test_a_thread_that_never_ends_does_not_keep_the_process(bot: Path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        (bot / "door").write_text(str(listener.getsockname()[1]))
        with Process("run", str(bot), "--once", "block") as process, listener.accept()[0]:
            process.signal(signal.SIGINT)
            assert process.ended() == 130
            assert "Traceback" not in process.err.text


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_what_cannot_be_loaded_is_one_line_and_exit_code_1(tmp_path: Path, name: str):
    with Process("run", name, "--once", "hi", cwd=tmp_path) as process:
        assert process.ended() == 1
        assert process.err.text.startswith("Error: ") and "Traceback" not in process.err.text


def test_of_several_agents_one_must_be_chosen(bot: Path):
    (bot.parent / "other").mkdir()
    (bot.parent / "other/agent.py").write_text(AGENT)
    with Process("run", str(bot.parent), "--once", "hi") as process:
        assert process.ended() == 1
        assert "bot, other" in process.err.text and "--app" in process.err.text
    with Process("run", str(bot.parent), "--app", "other", "--once", "hi") as process:
        assert process.ended() == 0
    with Process("run", str(bot.parent), "--app", "third", "--once", "hi") as process:
        assert process.ended() == 1
        assert "no agent 'third'" in process.err.text


def test_a_session_in_a_database_goes_on(tmp_path: Path):
    args = ["run", WEATHER, "--db", f"sqlite:///{tmp_path}/chat.db", "--session", "mine", "--json", "--once"]
    for question in ("weather in Oslo", "and in Rome"):
        with Process(*args, question) as process:
            assert process.ended() == 0
    with Process(*args, "hello") as process:
        assert process.ended() == 0
    assert (tmp_path / "chat.db").exists()


# ---- pipes


def test_FR_236_answers_are_written_at_once_and_once(bot: Path):
    with Process("run", WEATHER) as process:
        process.write("weather in Paris")
        process.says("Paris.*cloudy")  # before standard input ends
        process.write("weather in Rome")
        process.says("Rome.*sunny")
        process.write("exit")
        assert process.ended() == 0
        assert len(process.out.text.splitlines()) == 2
        assert "Talking to" not in process.err.text and "user>" not in process.out.text + process.err.text


def test_FR_236_the_end_of_input_is_exit_code_0():
    with Process("run", WEATHER) as process:
        process.stdin.close()
        assert process.ended() == 0
        assert process.said.replace("\n", "") == "--- stdout--- stderr---"


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_FR_236_a_closed_pipe_is_quiet(tmp_path: Path, flags: list[str]):
    command = f'"{sys.executable}" -m polyport.cli.main run bot --once hi {" ".join(flags)} | head -n 1'
    agent(tmp_path, SAYS)
    with Shell(command, tmp_path) as shell:
        assert shell.ended() == 0
        assert "line 0" in shell.out.text and len(shell.out.text.splitlines()) == 1
        assert shell.err.text == ""


def test_FR_233_236_unicode_with_a_bare_locale(tmp_path: Path):
    (tmp_path / "größe").mkdir()
    (tmp_path / "größe/agent.py").write_text(AGENT.replace('name="bot"', 'name="größe"'), encoding="utf-8")
    env = {"PYTHONUTF8": "0", "LC_ALL": "C", "LANG": "C", "TERM": "dumb"}
    with Process("run", "größe", "--once", "你好 🌦", cwd=tmp_path, env=env) as process:
        assert process.ended() == 0
        assert "你好 🌦" in process.out.text and process.err.text == ""
    with Process("run", "größe", cwd=tmp_path, env=env) as process:
        process.write("你好 🌦")
        process.says("你好 🌦")
        process.stdin.write(b"bad \xff byte\n")
        process.stdin.close()
        assert process.ended() == 0
        assert "bad \ufffd byte" in process.out.text


# ---- terminals


def test_a_conversation_in_a_terminal():
    with Terminal("run", WEATHER) as terminal:
        terminal.shows("Talking to weather.*Ctrl-C")
        terminal.shows("user> ")
        terminal.type("weather in Paris\n")
        shown = terminal.shows("(?s)cloudy.*user> ")
        assert shown.count("get_weather(") == 1 and shown.count("temperature c 18") == 1
        terminal.type("\n")
        terminal.shows("user> ")
        terminal.type("exit\n")
        assert terminal.wait() == 0
        assert "Traceback" not in terminal.seen


def test_ctrl_c_cancels_the_turn_only(bot: Path):
    with Terminal("run", str(bot)) as terminal:
        terminal.shows("user> ")
        terminal.type("linger\n")
        terminal.shows(r"linger\(\{\}\)")
        terminal.type("\x03")
        terminal.shows(r"\(stopped\)")
        terminal.shows("user> ")
        terminal.type("hello\n")
        terminal.shows("I can use: linger")
        terminal.shows("user> ")
        terminal.type("\x04")
        assert terminal.wait() == 0
        assert "Traceback" not in terminal.seen


def test_a_second_ctrl_c_does_not_wait_for_clean_up(bot: Path):
    with Terminal("run", str(bot)) as terminal:
        terminal.shows("user> ")
        terminal.type("cling\n")
        terminal.shows(r"cling\(\{\}\)")
        terminal.type("\x03")
        terminal.shows(r"\^C")
        terminal.interrupts("nothing, but the end")
        assert terminal.wait() == -signal.SIGINT
        assert "Traceback" not in terminal.seen and "(stopped)" not in terminal.seen


def test_ctrl_c_at_the_prompt_asks_once_and_then_ends(bot: Path):
    with Terminal("run", str(bot)) as terminal:
        terminal.shows("user> ")
        terminal.type("half a que")
        terminal.shows("half a que")
        terminal.interrupts("Ctrl-C again")
        terminal.shows("Ctrl-C again, Ctrl-D or `exit` ends")
        terminal.shows("user> ")
        terminal.type("hello\n")
        shown = terminal.shows("I can use")
        assert "half" not in shown
        terminal.shows("user> ")
        terminal.interrupts("Ctrl-C again")
        terminal.shows("user> ")
        terminal.interrupts("nothing, but the end")
        assert terminal.wait() == 130
        assert "Traceback" not in terminal.seen


def test_a_failed_turn_does_not_end_the_conversation(tmp_path: Path):
    with Terminal("run", str(agent(tmp_path, BROKEN_MODEL))) as terminal:
        for _ in range(2):
            terminal.shows("user> ")
            terminal.type("hi\n")
            terminal.shows("error: RuntimeError: the model is broken")
        terminal.shows("user> ")
        terminal.type("exit\n")
        assert terminal.wait() == 0


def test_a_kept_conversation_says_how_to_go_on(tmp_path: Path):
    db = f"sqlite:///{tmp_path}/chat.db"
    with Terminal("run", WEATHER, "--db", db) as terminal:
        session = re.search(r"--session (\S+)", terminal.shows("--session .*\n"))
        assert session
        terminal.shows("user> ")
        terminal.type("\x04")
        assert terminal.wait() == 0
    with Terminal("run", WEATHER, "--db", db, "--session", session[1]) as terminal:
        terminal.shows("user> ")
        terminal.type("\x04")
        assert terminal.wait() == 0


def test_FR_236_a_dumb_terminal_works(bot: Path):
    with Terminal("run", WEATHER, env={"TERM": "dumb"}) as terminal:
        terminal.shows("user> ")
        terminal.type("weather in Tokyo\n")
        terminal.shows("light rain")
        terminal.type("exit\n")
        assert terminal.wait() == 0
        assert "\x1b" not in terminal.seen


class Shell(Process):
    """A command line of the shell, with the exit code of its first failing part."""

    def __init__(self, command: str, cwd: Path) -> None:
        super().__init__(command=["bash", "-o", "pipefail", "-c", command], cwd=cwd)
