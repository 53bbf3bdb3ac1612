"""`polyport new`, `polyport check`, and what `--help` teaches."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from polyport.cli.main import main
from polyport.version import VERSION
from support.processes import Process, Serving, environment

ROOT = Path(__file__).parents[2]
COMMANDS: dict[str, click.Command] = main.commands


def polyport(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(args), prog_name="polyport")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


# ---- help


def test_the_help_shows_where_to_start():
    code, out, _ = polyport("--help")
    assert code == 0
    for command in ("new my_agent", "run my_agent", "serve my_agent", "check my_agent"):
        assert f"polyport {command}" in out
    for line in (line for line in out.splitlines() if line.strip().split(" ")[0] in COMMANDS):
        assert not line.endswith("..."), "the first sentence of each command fits its line"
    assert polyport("--version")[1].strip().endswith(VERSION)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_has_a_text(name: str):
    command = COMMANDS[name]
    assert command.help and len(command.help) > 30
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help and parameter.help[-1] in ".;", parameter.name
            assert parameter.help[0].isupper() or parameter.help[0].isdigit(), parameter.name
    code, out, _ = polyport(name, "--help")
    assert code == 0
    assert "Exit codes: 0" in out or name in ("new", "a2a")
    if any(p.name in ("agent", "agents") for p in command.params):
        assert "AGENT is a folder with an agent.py" in out
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        assert inner.help, inner.name
        assert all(p.help for p in inner.params if isinstance(p, click.Option)), inner.name


def test_mistakes_in_words_are_exit_code_2_and_say_what_was_meant():
    for args, told in (
        (["sevre"], "serve"),
        (["serve", "x", "--prot", "1"], "--port"),
        (["serve"], "AGENTS"),
        (["serve", "x", "--port", "99999"], "0<=x<=65535"),
        (["serve", "x", "--on-busy", "wait"], "queue"),
        (["run"], "AGENT"),
    ):
        code, out, err = polyport(*args)
        assert code == 2 and told in err and out == ""


# ---- new


@pytest.mark.parametrize("name", ["my_agent", "deeper/my-agent", "with space/dicer"])
def test_a_new_project_runs_is_tested_and_checks_clean(tmp_path: Path, name: str):
    with Process("new", name, cwd=tmp_path) as process:
        assert process.ended() == 0
        assert "polyport run" in process.out.text
    project = tmp_path / name
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "1 passed" in tested.stdout
    with Process("run", name, "--once", "roll a die with 1 sides", cwd=tmp_path) as process:
        assert process.ended() == 0
        assert "rolled 1" in process.out.text
    with Process("check", ".", cwd=project) as process:
        assert process.ended() == 0
        assert process.out.text.endswith("\nok") and process.err.text == ""


def test_a_new_project_is_served(tmp_path: Path):
    with Process("new", "dicer", cwd=tmp_path) as process:
        assert process.ended() == 0
    with Serving(".", cwd=tmp_path / "dicer") as serving:
        assert serving.says("^Polyport serves dicer on")


def test_the_current_folder_can_become_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert polyport("new", ".")[0] == 0
    assert 'name="here"' in Path("agent.py").read_text()


@pytest.mark.parametrize("name", ["9lives", "user", "my agent", "größe", "a.b", "..", "full", "file"])
def test_a_name_that_does_not_do_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    work = tmp_path / "w.w"
    (work / "full").mkdir(parents=True)
    (work / "full/notes").touch()
    (work / "file").touch()
    monkeypatch.chdir(work)
    code, out, err = polyport("new", name)
    assert code == 1 and err.startswith("Error: ") and out == ""
    assert sorted(p.name for p in work.iterdir()) == ["file", "full"]


# ---- check


def test_check_shows_agents_models_and_tools():
    code, out, err = polyport("check", str(ROOT / "examples/travel"))
    assert code == 0 and err == ""
    assert "app travel" in out and "tool plan_trip(city)" in out and "hotels (LlmAgent, model demo)" in out
    assert out.endswith("ok\n")


def test_check_warns_of_what_the_model_cannot_know(tmp_path: Path):
    (tmp_path / "agent.py").write_text(
        "from polyport import LlmAgent\ndef f(x: int): ...\n"
        "root_agent = LlmAgent(name='a', model='demo', tools=[f], sub_agents=[LlmAgent(name='b', instruction='i')])\n"
    )
    code, out, err = polyport("check", str(tmp_path))
    assert code == 0
    for told in ("'a' has no instruction", "'f' of agent 'a' has no description", "'b' has no description"):
        assert told in err
    assert out.endswith("ok, with 3 warnings\n")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("LlmAgent(name='a', model='gemnii-2')", "gemini-2"),
        ("LlmAgent(name='a')", "has no model"),
        ("LlmAgent(name='not ok', model='demo')", "'not ok'"),
        ("LlmAgent(name='a', model='demo', tools=[lambda x: x])", "name"),
        ("LlmAgent(name='a', model='openai/gpt-5')", "OPENAI_API_KEY"),
    ],
)
def test_check_finds_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, told: str):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "agent.py").write_text(f"from polyport import LlmAgent\nroot_agent = {code}\n")
    status, _, err = polyport("check", str(tmp_path))
    assert status == 1 and told in err and "Traceback" not in err
