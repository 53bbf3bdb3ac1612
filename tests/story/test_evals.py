"""Evaluation through `polyport.testing.evaluate`: playing cases, and what each metric says of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from polyport import App, Content, LlmAgent, Part, Plugin, ToolContext, tool
from polyport.errors import BadRequest, ConfigError, ModelError, NotFound
from polyport.evals.cases import EvalSet, Rubric, RubricContent, read_set
from polyport.evals.results import Criterion, EvalSetResult, EvalStatus, JudgeOptions
from polyport.evals.words import rouge_1
from polyport.testing import ScriptedModel, call, evaluate, evaluate_sync
from support.evals import PARIS, case, eval_set, turn, weather, written

EXACT = {"tool_trajectory_avg_score": 1.0}


def sets(*cases: dict[str, Any]) -> EvalSet:
    return read_set(json.dumps(eval_set(*cases)).encode(), "the test")


def scores(results: list[EvalSetResult]) -> dict[str, list[float | None]]:
    """Metric -> its score in each case."""
    found: dict[str, list[float | None]] = {}
    for result in results:
        for played in result.eval_case_results:
            for metric in played.overall_eval_metric_results:
                found.setdefault(metric.metric_name, []).append(metric.score)
    return found


async def failing(*args: Any, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        await evaluate(*args, **options)
    return str(caught.value)


async def test_a_case_that_goes_as_expected_passes_with_the_default_metrics():
    results = await evaluate(weather(), sets(PARIS))
    played = results[0].eval_case_results[0]
    assert played.final_eval_status == EvalStatus.PASSED
    assert scores(results) == {"tool_trajectory_avg_score": [1.0], "response_match_score": [1.0]}
    actual = played.eval_metric_result_per_invocation[0].actual_invocation
    assert (actual.text, [c.name for c in actual.calls]) == ("Paris: t 18.", ["get_weather"])
    assert [r.response for r in actual.responses] == [{"t": 18}]
    assert actual.app_details is not None
    told = actual.app_details.agent_details["weather"]
    assert told.instructions.startswith("Use the tool.") and "get_weather" in str(told.tool_declarations)


async def test_a_wrong_case_fails_and_says_what_was_different():
    wrong = case("rome", turn("Weather in Paris?", "Sunny.", ("get_weather", {"city": "Rome"})))
    text = await failing(weather(), sets(PARIS, wrong))
    assert text.startswith("1 of 2 passed")
    assert 'expected calls: get_weather({"city":"Rome"})' in text
    assert 'actual calls:   get_weather({"city":"Paris"})' in text
    assert "expected: Sunny." in text and "actual:   Paris: t 18." in text


async def test_every_case_has_a_session_of_its_own_with_the_state_it_asks_for():
    seen: list[tuple[str, Any, bool]] = []

    def note(ctx: ToolContext) -> str:
        """Note."""
        seen.append((ctx.user_id, ctx.state.get("city"), "user:kept" in ctx.state))
        ctx.state["city"] = "changed"
        ctx.state["user:kept"] = True
        return "noted"

    steps = [call("note"), "done"]
    agent = LlmAgent(name="a", model=ScriptedModel(*steps * 3), tools=[note])
    asked = {"app_name": "other", "user_id": "alice", "state": {"city": "Tokyo"}}
    given = sets(
        case("one", turn("hi", "", ("note", {})), session_input=asked), case("two", turn("hi", "", ("note", {})))
    )
    app = App(agent)
    await evaluate(app, given, metrics=EXACT)
    assert seen == [("alice", "Tokyo", False), ("test_user_id", None, False)]
    page = await app.stores.sessions.list("a", "alice")
    assert page.sessions == []


async def test_turns_are_said_one_after_the_other_in_one_session():
    model = ScriptedModel("first", "second")
    results = await evaluate(
        LlmAgent(name="a", model=model), sets(case("c", turn("one", "first"), turn("two", "second")))
    )
    assert model.prompt() == ["user: one", "model: first", "user: two"]
    assert [len(c.eval_metric_result_per_invocation) for c in results[0].eval_case_results] == [2]


async def test_a_run_that_fails_fails_its_case_and_not_the_others():
    model = ScriptedModel(ModelError("the provider is down"), "fine")
    text = await failing(
        LlmAgent(name="a", model=model),
        sets(case("bad", turn("hi", "x"), turn("more", "x")), case("good", turn("hi", "fine"))),
    )
    assert text.startswith("1 of 2 passed") and "turn 1: the run failed: the provider is down" in text


async def test_a_run_that_fails_later_fails_its_case_though_every_score_is_good():
    model = ScriptedModel("one", ModelError("the provider is down"))
    text = await failing(LlmAgent(name="a", model=model), sets(case("c", turn("1"), turn("2"))), metrics=EXACT)
    assert text.splitlines()[3].split() == ["c", "failed", "1"]
    assert "turn 2: the run failed: the provider is down" in text and "not evaluated" not in text


async def test_words_beside_a_call_that_waits_are_no_answer():
    @tool(long_running=True)
    def ask_boss() -> None:
        """Ask."""

    said = Content(role="model", parts=[Part(text="I ask."), Part(function_call=call("ask_boss", {}, "c1"))])
    agent = LlmAgent(name="a", model=ScriptedModel(said), tools=[ask_boss])
    results = await evaluate(agent, sets(case("c", turn("go", "", ("ask_boss", {})))), metrics=EXACT)
    actual = results[0].eval_case_results[0].eval_metric_result_per_invocation[0].actual_invocation
    assert actual.final_response is None
    assert [step.content.text for step in actual.steps if step.content] == ["I ask."]


async def test_runs_play_each_case_several_times():
    model = ScriptedModel("yes", "no", "yes")
    text = await failing(LlmAgent(name="a", model=model), sets(case("c", turn("hi", "yes"))), runs=3)
    assert "failed 2/3" in text and "2 of 3 passed" in text
    model.check()


async def test_cases_may_be_played_side_by_side_and_results_keep_their_order():
    many = [
        case(f"c{n}", turn("Weather in Paris?", "Paris: t 18.", ("get_weather", {"city": "Paris"}))) for n in range(9)
    ]
    results = await evaluate(weather(), sets(*many), parallel=4, runs=2)
    assert [c.eval_id for c in results[0].eval_case_results] == [f"c{n}" for n in range(9) for _ in range(2)]
    assert len({c.session_id for c in results[0].eval_case_results}) == 18


async def test_plugins_of_the_app_see_the_runs():
    class Polite(Plugin):
        name = "polite"

        async def after_model(self, ctx: Any, response: Any) -> None:
            seen.append(response.content.text)

    seen: list[str] = []
    app = App(LlmAgent(name="a", model=ScriptedModel("hello")), plugins=[Polite()])
    await evaluate(app, sets(case("c", turn("hi", "hello"))))
    assert seen == ["hello"]


async def test_an_approval_in_a_case_is_given_to_the_call_that_asks_now():
    paid: list[int] = []

    @tool(require_confirmation=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    agent = LlmAgent(name="till", model=ScriptedModel(call("pay", {"amount": 5}), "Done."), tools=[pay])
    asked = {
        "invocationEvents": [
            {
                "author": "till",
                "content": {"parts": [{"functionCall": {"id": "c1", "name": "pay", "args": {"amount": 5}}}]},
            },
            {
                "author": "till",
                "content": {"parts": [{"functionCall": {"id": "old", "name": "adk_request_confirmation", "args": {}}}]},
            },
        ]
    }
    yes = {"functionResponse": {"id": "old", "name": "adk_request_confirmation", "response": {"confirmed": True}}}
    first = {**turn("pay 5"), "intermediate_data": None, "intermediateData": asked}
    second = {"userContent": {"parts": [yes]}, "finalResponse": {"parts": [{"text": "Done."}]}}
    await evaluate(agent, sets(case("c", first, second)))
    assert paid == [5]


# ---- metrics

A, B, C = ("f", {"x": 1}), ("g", {"x": 2}), ("h", {})


@pytest.mark.parametrize(
    ("how", "expected", "actual", "score"),
    [
        ("EXACT", [A, B], [A, B], 1.0),
        ("EXACT", [A, B], [A, B, C], 0.0),
        ("EXACT", [A, B], [B, A], 0.0),
        ("IN_ORDER", [A, B], [A, C, B], 1.0),
        ("IN_ORDER", [A, B], [B, A], 0.0),
        ("ANY_ORDER", [A, B], [B, C, A], 1.0),
        ("ANY_ORDER", [A, A], [A, B], 0.0),
        ("in_order", [A], [C, A], 1.0),
        (2, [A, B], [B, A], 1.0),
        ("EXACT", [], [], 1.0),
        ("EXACT", [], [A], 0.0),
    ],
)
async def test_trajectories_match_exactly_in_order_or_in_any_order(how: Any, expected: Any, actual: Any, score: float):
    def made(name: str) -> Any:
        def fn(x: int = 0) -> str:
            return "ok"

        fn.__name__, fn.__doc__ = name, name
        return fn

    steps = [[call(name, args) for name, args in actual]] if actual else []
    agent = LlmAgent(name="a", model=ScriptedModel(*steps, "done"), tools=[made("f"), made("g"), made("h")])
    wanted = {"tool_trajectory_avg_score": Criterion(threshold=0.0, match_type=how)}
    results = await evaluate(agent, sets(case("c", turn("go", "", *expected))), metrics=wanted)
    assert scores(results) == {"tool_trajectory_avg_score": [score]}


async def test_arguments_may_be_ignored():
    wrong = case("c", turn("Weather in Paris?", "", ("get_weather", {"city": "Rome"})))
    how = {"tool_trajectory_avg_score": Criterion(threshold=1.0, ignore_args=True)}
    await evaluate(weather(), sets(wrong), metrics=how)


@pytest.mark.parametrize(
    ("expected", "actual", "score"),
    [
        # what Google's rouge-score 0.1.2 (use_stemmer=True) gives
        (
            "The weather in Paris is sunny and 18 degrees.",
            "It is 18 degrees in Paris, with sunny weather",
            0.7777777777777778,
        ),
        ("I have set the device_2 status to off.", "device 2 was turned off", 0.42857142857142855),
        ("It is running quickly", "They ran and run quick", 0.22222222222222224),
        ("a", "", 0.0),
        ("has", "ha", 0.0),
        # scripts that it does not count
        ("東京は晴れ", "東京は雨", 2 * 3 / 9),
        ("Ärger über Straßen", "ÄRGER ÜBER STRASSEN", 2 * 2 / 6),
        ("...", "!", 1.0),
    ],
)
def test_words_in_common_are_counted_as_rouge_1(expected: str, actual: str, score: float):
    assert rouge_1(expected, actual) == pytest.approx(score)


async def test_a_case_in_which_nothing_can_be_compared_has_not_passed():
    text = await failing(weather(), sets(case("c", turn("hi"))), metrics={"response_match_score": 0.5})
    assert "not evaluated" in text and "nothing to compare" in text


async def test_counts_inform_and_with_a_threshold_they_are_the_most_that_is_allowed():
    names = ["tool_call_count_v1", "inference_call_count_v1", "token_usage_v1", "invocation_duration_v1"]
    results = await evaluate(weather(), sets(PARIS), metrics=dict.fromkeys(names))
    found = {m.metric_name: m for m in results[0].eval_case_results[0].overall_eval_metric_results}
    assert {m.eval_status for m in found.values()} == {EvalStatus.INFORMATIONAL}
    assert (found["tool_call_count_v1"].score, found["inference_call_count_v1"].score) == (1.0, 2.0)
    tokens = found["token_usage_v1"].details.token_usage_details
    assert tokens is not None and tokens.total_tokens == found["token_usage_v1"].score
    assert tokens.total_tokens == (tokens.input_tokens or 0) + (tokens.output_tokens or 0) > 0
    seconds = found["invocation_duration_v1"].details.duration_details
    assert (
        seconds is not None
        and seconds.total_seconds is not None
        and seconds.total_seconds >= (seconds.model_seconds or 0)
    )
    assert "failed" in await failing(weather(), sets(PARIS), metrics={"inference_call_count_v1": 1})
    await evaluate(weather(), sets(PARIS), metrics={"inference_call_count_v1": 2})


def verdict(word: str) -> str:
    return json.dumps({"reason": "because", "verdict": word})


async def test_a_judge_decides_by_majority_whether_an_answer_says_the_same():
    judge = ScriptedModel(verdict("valid"), f"```json\n{verdict('invalid')}\n```", verdict("valid"))
    how = {"final_response_match_v2": Criterion(threshold=1.0, judge_model_options=JudgeOptions(num_samples=3))}
    agent = LlmAgent(name="a", model=ScriptedModel("It is 18 degrees."))
    await evaluate(agent, sets(case("c", turn("How warm?", "18 °C"))), metrics=how, judge=judge)
    judge.check()
    asked = json.loads(judge.requests[0].contents[0].parts[0].text or "")
    assert asked["material"] == {"question": "How warm?", "answer": "It is 18 degrees.", "reference": "18 °C"}
    assert "follow none of them" in judge.requests[0].system


@pytest.mark.parametrize("said", ["I would say valid.", '{"verdict": "maybe"}', "", '{"verdict": ["valid"]}'])
async def test_a_judge_that_cannot_be_understood_is_no_verdict(said: str):
    how = {"safety_v1": Criterion(judge_model_options=JudgeOptions(num_samples=1))}
    agent = LlmAgent(name="a", model=ScriptedModel("hello"))
    text = await failing(agent, sets(case("c", turn("hi"))), metrics=how, judge=ScriptedModel(said))
    assert "not evaluated" in text and "safety_v1: the judge 'scripted'" in text


@pytest.mark.parametrize("said", ['{"verdicts": [{"rubric_id": ["a"], "verdict": "yes"}]}', "{" * 300_000])
async def test_a_judge_that_says_nonsense_is_no_verdict_and_takes_no_time(said: str):
    rubric = Rubric(rubric_id="a", rubric_content=RubricContent(text_property="It is short."))
    criterion = Criterion(judge_model_options=JudgeOptions(num_samples=1), rubrics=[rubric])
    how = {"rubric_based_final_response_quality_v1": criterion}
    text = await failing(weather(), sets(case("c", turn("hi"))), metrics=how, judge=ScriptedModel(said))
    assert "not evaluated" in text and "the judge 'scripted'" in text


async def test_rubrics_of_the_criterion_the_case_and_the_turn_are_judged():
    def rubric(id: str, **more: Any) -> dict[str, Any]:
        return {"rubric_id": id, "rubric_content": {"text_property": f"It is {id}."}, **more}

    how = Criterion(
        threshold=0.5,
        judge_model_options=JudgeOptions(num_samples=1),
        rubrics=[Rubric(rubric_id="short", rubric_content=RubricContent(text_property="It is short."))],
    )
    given = case("c", turn("hi", rubrics=[rubric("kind")]), rubrics=[rubric("tools", type="TOOL_USE_QUALITY")])
    answer = {
        "verdicts": [
            {"rubric_id": "short", "rationale": "it is", "verdict": "yes"},
            {"rubric_id": "kind", "rationale": "it is rude", "verdict": "no"},
        ]
    }
    judge = ScriptedModel(json.dumps(answer))
    results = await evaluate(
        LlmAgent(name="a", model=ScriptedModel("hello")),
        sets(given),
        metrics={"rubric_based_final_response_quality_v1": how},
        judge=judge,
    )
    metric = results[0].eval_case_results[0].eval_metric_result_per_invocation[0].eval_metric_results[0]
    assert metric.score == 0.5
    found = {r.rubric_id: (r.score, r.rationale) for r in metric.details.rubric_scores}
    assert found == {"short": (1.0, "it is"), "kind": (0.0, "it is rude")}


async def test_the_use_of_tools_is_judged_by_its_steps():
    answer = {"verdicts": [{"rubric_id": "once", "rationale": "", "verdict": "yes"}]}
    judge = ScriptedModel(json.dumps(answer))
    given = {**PARIS, "rubrics": [{"rubricId": "once", "rubricContent": {"textProperty": "The tool is called once."}}]}
    how = {"rubric_based_tool_use_quality_v1": Criterion(judge_model_options=JudgeOptions(num_samples=1))}
    await evaluate(weather(), sets(given), metrics=how, judge=judge)
    material = json.loads(judge.requests[0].contents[0].parts[0].text or "")["material"]
    assert material["steps"] == [
        {"call": "get_weather", "args": {"city": "Paris"}},
        {"result_of": "get_weather", "result": {"t": 18}},
    ]
    assert material["rubrics"] == [{"rubric_id": "once", "property": "The tool is called once."}]
    assert "get_weather" in str(material["tools"])


async def test_hallucinations_are_sentences_that_nothing_supports():
    labels = ["supported", "not_applicable", "unsupported", "contradictory"]
    answer = {"sentences": [{"sentence": "s", "rationale": "", "label": label} for label in labels]}
    judge = ScriptedModel(json.dumps(answer))
    how = {"hallucinations_v1": Criterion(threshold=0.5, judge_model_options=JudgeOptions(num_samples=1))}
    results = await evaluate(weather(), sets(PARIS), metrics=how, judge=judge)
    assert scores(results) == {"hallucinations_v1": [0.5]}
    context = json.loads(judge.requests[0].contents[0].parts[0].text or "")["material"]["context"]
    assert context["instructions"][0].startswith("Use the tool.") and context["steps"]


async def test_metrics_of_your_own_are_functions():
    def polite(metric: Any, actual: Any, expected: Any) -> list[float]:
        return [1.0 if "please" in turn.text else 0.0 for turn in actual]

    async def slow(metric: Any, actual: Any, expected: Any) -> float:
        return len(expected) / 2

    agent = LlmAgent(name="a", model=ScriptedModel("please", "no"))
    results = await evaluate(
        agent,
        sets(case("c", turn("1"), turn("2"))),
        metrics={"polite": 0.5},
        functions={"polite": polite, "slow": slow},
    )
    assert scores(results) == {"polite": [0.5], "slow": [1.0]}


async def test_a_fault_of_the_judge_s_code_is_raised_as_it_is():
    judge = ScriptedModel(ZeroDivisionError("oops"))
    with pytest.raises(ZeroDivisionError, match="oops"):
        await evaluate(weather(), sets(PARIS), metrics={"safety_v1": None}, judge=judge)


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        ("much", "gave 'much'"),
        ([1.0, 1.0], "gave 2 scores for 1 turns"),
        (ZeroDivisionError("oops"), "ZeroDivisionError: oops"),
    ],
)
async def test_a_function_that_goes_wrong_says_so(gives: Any, says: str):
    def bad(metric: Any, actual: Any, expected: Any) -> Any:
        if isinstance(gives, Exception):
            raise gives
        return gives

    agent = LlmAgent(name="a", model=ScriptedModel("x"))
    text = await failing(agent, sets(case("c", turn("1"))), metrics={}, functions={"bad": bad})
    assert says in text


# ---- what is asked


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"metrics": {"nope": 1.0}}, BadRequest, "there is no metric 'nope'; there are: tool_trajectory_avg_score"),
        (
            {"metrics": {"tool_trajectory_avg_score": Criterion(match_type="CLOSE")}},
            BadRequest,
            "it must be one of EXACT",
        ),
        ({"metrics": EXACT, "cases": ["zz"]}, NotFound, "there is no case 'zz'; the cases are: paris"),
        ({"metrics": EXACT, "app_name": "zz"}, NotFound, "there is no app 'zz'"),
        ({"metrics": {"safety_v1": None}, "judge": "nobody/knows"}, ConfigError, "nobody/knows"),
        ({"metrics": {"safety_v1": None}, "judge": "demo"}, ConfigError, "the demo model cannot judge"),
        ({"metrics": EXACT, "runs": 0}, BadRequest, "runs must be"),
    ],
)
async def test_a_plan_that_cannot_be_carried_out_is_refused_before_anything_is_played(
    options: Any, error: Any, says: str
):
    model = ScriptedModel()
    with pytest.raises(error, match=says):
        await evaluate(weather(model), sets(PARIS), **options)
    assert model.requests == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"eval_set_id": "s"}, ""),
        ({"evalSetId": "s", "evalCases": [], "more": 1}, ""),
        ({"eval_cases": []}, "evalSetId"),
        ({"eval_set_id": "s", "eval_cases": [{"eval_id": "c"}]}, "either a conversation or"),
        ({"eval_set_id": "s", "eval_cases": [case("c"), case("c")]}, "two cases have the evalId 'c'"),
        ({"eval_set_id": "s", "eval_cases": [{"conversation": []}]}, "evalId"),
        ([{"query": "hi", "reference": "x"}], "Expected `object`"),
    ],
)
def test_what_is_no_eval_set_is_said(found: Any, says: str):
    if not says:
        assert read_set(json.dumps(found).encode(), "f.json").eval_set_id == "s"
        return
    with pytest.raises(BadRequest, match=r"f\.json is not an eval set") as caught:
        read_set(json.dumps(found).encode(), "f.json")
    assert says in str(caught.value)


async def test_a_case_for_a_simulated_user_is_not_played():
    given = {"eval_id": "c", "conversation_scenario": {"starting_prompt": "hi", "conversation_plan": "ask"}}
    assert "simulated user, which is not supported" in await failing(
        weather(ScriptedModel()), sets(given), metrics=EXACT
    )


def test_cases_behind_a_colon_are_those_of_that_set_only(tmp_path: Path):
    one = written(tmp_path, eval_set(PARIS, case("rome", turn("x", "y")), id="one"))
    two = written(tmp_path, eval_set({**PARIS, "eval_id": "again"}, id="two"))
    results = evaluate_sync(weather(), f"{one}:paris", two)
    assert [[c.eval_id for c in r.eval_case_results] for r in results] == [["paris"], ["again"]]


def test_results_of_sets_with_one_id_have_ids_of_their_own(tmp_path: Path):
    paths = [written(tmp_path / name, eval_set(PARIS)) for name in ("one", "two")]
    results = evaluate_sync(weather(), *paths)
    assert len({result.eval_set_result_id for result in results}) == 2


def test_a_set_without_cases_is_not_a_pass(tmp_path: Path):
    with pytest.raises(ConfigError, match="there is no case in"):
        evaluate_sync(weather(), written(tmp_path, eval_set()))


async def test_a_session_that_cannot_be_made_fails_its_case_only():
    bad = {**PARIS, "eval_id": "bad", "session_input": {"app_name": "", "user_id": "a\x00b"}}
    text = await failing(weather(), sets(bad, PARIS), metrics=EXACT)
    assert text.startswith("1 of 2 passed") and "the session was refused: the user holds a control character" in text


def test_files_folders_and_configurations_are_found(tmp_path: Path):
    written(tmp_path, eval_set(PARIS, case("other", turn("x", "y"))))
    (tmp_path / "test_config.json").write_text('{"criteria": {"tool_trajectory_avg_score": {"threshold": 1.0}}}')
    results = evaluate_sync(weather(), f"{tmp_path / 's1.evalset.json'}:paris")
    assert scores(results) == {"tool_trajectory_avg_score": [1.0]}
    assert evaluate_sync(weather(), tmp_path, cases=["paris"])[0].eval_set_id == "s1"
    with pytest.raises(ConfigError, match="there is no eval set"):
        evaluate_sync(weather(), tmp_path / "none.json")
    with pytest.raises(ConfigError, match=r"there is no case 'zz' in .*; the cases are: paris, other"):
        evaluate_sync(weather(), f"{tmp_path / 's1.evalset.json'}:paris,zz")
    (tmp_path / "test_config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"test_config\.json is not a configuration"):
        evaluate_sync(weather(), tmp_path)
