"""`polyport eval`, as a user runs it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from polyport.cli.main import main
from support.evals import PARIS, case, eval_set, turn, written

AGENT = '''
from polyport import LlmAgent

def get_weather(city: str) -> dict:
    """Current weather of a city."""
    return {"t": 18}

root_agent = LlmAgent(name="weather", model="demo", instruction="Use the tool.", tools=[get_weather])
'''
WRONG = case("wrong", turn("Weather in Paris?", "Sunny", ("get_weather", {"city": "Rome"})))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "weather"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT, encoding="utf-8")
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["eval", *words])


def test_all_sets_of_the_folder_are_played_and_a_table_is_shown(project: Path):
    written(project, eval_set(PARIS))
    done = run("weather")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "eval set s1"
    assert lines[1].split() == ["case", "result", "tool_trajectory_avg_score", "response_match_score"]
    assert lines[2].split() == ["paris", "passed", "1", "1"]
    assert lines[3] == "1 of 1 passed (1 eval set)"
    assert "[1/1] paris: passed" in done.stderr and "eval_history" in done.stderr
    kept = list((project / ".adk" / "eval_history").iterdir())
    assert len(kept) == 1 and json.loads(kept[0].read_text())["evalSetId"] == "s1"


def test_a_case_that_fails_ends_with_1_and_says_why(project: Path):
    written(project, eval_set(PARIS, WRONG))
    done = run("weather", "s1", "--no-save", "--runs", "2")
    assert done.exit_code == 1
    assert "failed 0/2" in done.stdout and "2 of 4 passed" in done.stdout
    assert 'expected calls: get_weather({"city":"Rome"})' in done.stdout
    assert not (project / ".adk").exists()


def test_cases_metrics_and_thresholds_are_chosen(project: Path):
    path = written(project / "sets", eval_set(PARIS, WRONG))
    assert run("weather", f"{path}:paris").exit_code == 0
    assert run("weather", str(path), "--case", "paris").exit_code == 0
    assert run("weather", str(path), "--threshold", "0").exit_code == 0
    assert (
        run("weather", str(path), "--metric", "tool_trajectory_avg_score=0", "--metric", "tool_call_count_v1").exit_code
        == 0
    )
    counted = run("weather", f"{path}:paris", "--metric", "tool_call_count_v1", "--threshold", "0.5")
    assert counted.exit_code == 0, "a threshold for scores is none for counts"
    done = run("weather", str(path), "--metric", "tool_call_count_v1=0")
    assert done.exit_code == 1 and "tool_call_count_v1 is 1, the threshold 0" in done.stdout


def test_json_is_for_programs(project: Path):
    written(project, eval_set(PARIS))
    done = run("weather", "--json", "--no-save")
    found = json.loads(done.stdout)
    assert [c["finalEvalStatus"] for c in found[0]["evalCaseResults"]] == [1]
    assert "sessionDetails" not in found[0]["evalCaseResults"][0]


def test_a_configuration_and_a_metric_of_your_own(project: Path):
    written(project, eval_set(PARIS))
    (project / "judgement_of_mine.py").write_text("def short(metric, actual, expected):\n    return 0.25\n")
    config = {
        "criteria": {"tool_trajectory_avg_score": {"threshold": 1.0, "match_type": "IN_ORDER"}, "short": 0.5},
        "custom_metrics": {"short": {"code_config": {"name": "judgement_of_mine.short"}}},
    }
    (project / "test_config.json").write_text(json.dumps(config))
    done = run("weather", "--no-save")
    assert done.exit_code == 1 and "short is 0.25, the threshold 0.5" in done.stdout
    other = project / "other.json"
    other.write_text(json.dumps({"criteria": {"tool_trajectory_avg_score": 1.0}}))
    assert run("weather", "--no-save", "--config", str(other)).exit_code == 0
    assert run("weather", "--no-save", "--metric", "judgement_of_mine:short=0.2").exit_code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["weather"], "there is no eval set in"),
        (["weather", "nope"], "there is no eval set 'nope'"),
        (["weather", "weather/bad.evalset.json"], "bad.evalset.json is not an eval set: malformed JSON"),
        (["weather", "--app", "x"], "there is no app 'x'; the apps are: weather"),
        (["weather", "ok", "--metric", "nope"], "there is no metric 'nope'; there are:"),
        (["weather", "ok", "--metric", "safety_v1=much"], "'much' is not a number"),
        (["weather", "ok", "--metric", "response_match_score=nan"], "the threshold of response_match_score is nan"),
        (["weather", "ok", "--metric", "no_such_module:x"], "cannot be imported: ModuleNotFoundError"),
        (["weather", "ok", "--metric", "json:nope"], "has no function 'nope'"),
        (["weather", "ok", "--case", "zz"], "there is no case 'zz'"),
        (["weather", "ok", "--config", "none.json"], "none.json is not a configuration"),
        (["weather", "ok", "--metric", "safety_v1", "--judge", "nobody/x"], "nobody/x"),
        (["nothing"], "'nothing' is not a folder"),
    ],
)
def test_a_mistake_is_one_clear_message(project: Path, words: list[str], says: str):
    if "ok" in words:
        written(project, eval_set(PARIS, id="ok"))
    if len(words) > 1 and "bad" in words[1]:
        (project / "bad.evalset.json").write_text("{")
    done = run(*words)
    assert done.exit_code == 1 and says in done.stderr, done.output
    assert "Traceback" not in done.output
