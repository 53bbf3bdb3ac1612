"""The metrics by name: what each is, what it needs, and how it scores the turns of one case (spec rest 10.1).

`evaluate` asks `find` for each metric of a plan before anything is played. Metrics that only count are informational without a
threshold; with one, it is the most that is allowed.
"""

import math
from collections.abc import Mapping, Sequence

from polyport.data.content import FunctionCall
from polyport.errors import BadRequest
from polyport.evals import judging
from polyport.evals.cases import Invocation
from polyport.evals.counts import duration, model_calls, tokens, tool_calls
from polyport.evals.custom import Function, load_function, run_function
from polyport.evals.judged import hallucinations, judged, rubric_based
from polyport.evals.marks import Exam, Mark, Metric, Scorer, answer_of
from polyport.evals.results import Criterion, EvalMetric, Interval, MetricInfo, MetricValueInfo
from polyport.evals.words import rouge_1, stemmer

MATCHES = ("EXACT", "IN_ORDER", "ANY_ORDER")
"""In the order of their numbers."""


def find(metric: EvalMetric, functions: Mapping[str, Function]) -> Metric:
    """The metric that is asked for, its criterion checked. BadRequest for a name that nobody knows, with those there are."""
    name, threshold = metric.metric_name, metric.given_threshold
    if threshold is not None and not math.isfinite(threshold):
        raise BadRequest(f"the threshold of {name} is {threshold}; it must be a number", "threshold")
    function = functions.get(name)
    if metric.custom_function_path:
        function = load_function(metric.custom_function_path)
    if function is not None:
        return Metric(name, (function.__doc__ or "").strip(), _own(function), 0.5)
    found = BY_NAME.get(name)
    if found is None:
        raise BadRequest(f"there is no metric {name!r}; there are: {', '.join([*BY_NAME, *functions])}", "metricName")
    if found.check is not None:
        found.check(metric)
    return found


def infos(functions: Mapping[str, Function]) -> list[MetricInfo]:
    """All metrics as the eval routes tell of them."""
    own = [Metric(name, (fn.__doc__ or "").strip(), _own(fn), 0.5) for name, fn in functions.items()]
    unit = MetricValueInfo(interval=Interval(min_value=0.0, max_value=1.0))
    return [
        MetricInfo(
            metric_name=metric.name,
            description=metric.description,
            metric_value_info=MetricValueInfo() if metric.most else unit,
            requires_threshold=not metric.most,
        )
        for metric in [*BY_NAME.values(), *own]
    ]


# ---- compared with what was expected


def _match_type(metric: EvalMetric) -> str:
    given = (metric.criterion or Criterion()).match_type
    if isinstance(given, int):
        given = MATCHES[given] if 0 <= given < len(MATCHES) else str(given)
    if given.upper() not in MATCHES:
        raise BadRequest(f"matchType is {given!r}; it must be one of {', '.join(MATCHES)}", "criterion.matchType")
    return given.upper()


async def _trajectory(exam: Exam) -> list[Mark]:
    how = _match_type(exam.metric)

    def fits(expected: Invocation, actual: Invocation) -> bool:
        want, have = (_plain(turn.calls, exam.criterion.ignore_args) for turn in (expected, actual))
        if how == "EXACT":
            return want == have
        if how == "IN_ORDER":
            rest = iter(have)
            return all(call in rest for call in want)
        left = list(have)
        for call in want:
            if call not in left:
                return False
            left.remove(call)
        return True

    return [Mark(1.0 if fits(expected, actual) else 0.0) for expected, actual in exam.turns]


def _plain(calls: Sequence[FunctionCall], ignore_args: bool) -> list[tuple[str, object]]:
    return [(call.name, None if ignore_args else call.args) for call in calls]


async def _response_match(exam: Exam) -> list[Mark]:
    return [
        Mark(None if expected.final_response is None else rouge_1(expected.text, answer_of(actual, exam)))
        for expected, actual in exam.turns
    ]


def _needs_stemmer(metric: EvalMetric) -> None:
    stemmer()


# ---- of the user's own


def _own(function: Function) -> Scorer:
    async def score(exam: Exam) -> list[Mark]:
        actual = [actual for _, actual in exam.turns]
        expected = [expected for expected, _ in exam.turns]
        return [Mark(score) for score in await run_function(function, exam.metric, actual, expected)]

    return score


# ---- the table

_ANSWER, _TOOL = "FINAL_RESPONSE_QUALITY", "TOOL_USE_QUALITY"
"""The `type` of rubrics in cases."""


def _check_match(metric: EvalMetric) -> None:
    _match_type(metric)


_METRICS = (
    Metric(
        "tool_trajectory_avg_score",
        "The share of turns in which the tools were called as expected: exactly, in order, or in any order.",
        _trajectory,
        1.0,
        check=_check_match,
    ),
    Metric(
        "response_match_score",
        "How many words the answer shares with the expected one (ROUGE-1, F measure).",
        _response_match,
        0.8,
        check=_needs_stemmer,
    ),
    Metric(
        "final_response_match_v2",
        "The share of answers that say the same as the expected one, judged by a model.",
        judged(judging.MATCH, True),
        0.8,
        judged=True,
    ),
    Metric(
        "rubric_based_final_response_quality_v1",
        "The share of rubrics that are true of the answers, judged by a model.",
        rubric_based(_ANSWER, judging.ANSWER_RUBRICS),
        0.8,
        judged=True,
    ),
    Metric(
        "rubric_based_tool_use_quality_v1",
        "The share of rubrics that are true of how tools were used, judged by a model.",
        rubric_based(_TOOL, judging.TOOL_RUBRICS),
        0.8,
        judged=True,
    ),
    Metric(
        "hallucinations_v1",
        "The share of sentences of the answers that instructions, tools and their results support, judged by a model.",
        hallucinations,
        0.8,
        judged=True,
    ),
    Metric(
        "safety_v1",
        "The share of answers that are harmless, judged by a model.",
        judged(judging.SAFETY, False),
        0.8,
        judged=True,
    ),
    Metric("tool_call_count_v1", "Tool calls of a turn, on average.", tool_calls, most=True),
    Metric("inference_call_count_v1", "Calls of models of a turn, on average.", model_calls, most=True),
    Metric("token_usage_v1", "Tokens that a turn took, on average.", tokens, most=True),
    Metric("invocation_duration_v1", "Seconds that a turn took, on average.", duration, most=True),
)
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in _METRICS}
