"""What an evaluation is asked and what it finds: metrics, their configuration, and results, in ADK's JSON (spec rest 10.1).

Read from `test_config.json` and requests; results are written to files and answers. Does no I/O and computes nothing but how
statuses add up.
"""

import enum
from collections.abc import Sequence
from typing import Any

from msgspec import field

from polyport.codec import Data
from polyport.evals.cases import Invocation, Rubric


class EvalStatus(enum.IntEnum):
    PASSED = 1
    FAILED = 2
    NOT_EVALUATED = 3
    INFORMATIONAL = 4


class JudgeOptions(Data, frozen=True, kw_only=True):
    """`num_samples` verdicts are asked for, and the majority counts."""

    judge_model: str = ""
    num_samples: int = 5


class Criterion(Data, frozen=True, kw_only=True):
    """How strict a metric is, and what it needs. `match_type` is EXACT (0), IN_ORDER (1) or ANY_ORDER (2)."""

    threshold: float | None = None
    match_type: str | int = "EXACT"
    ignore_args: bool = False
    judge_model_options: JudgeOptions | None = None
    rubrics: list[Rubric] = []
    evaluate_intermediate_nl_responses: bool = False
    include_intermediate_responses_in_final: bool = False


class EvalMetric(Data, frozen=True, kw_only=True):
    metric_name: str
    threshold: float | None = None
    criterion: Criterion | None = None
    custom_function_path: str = ""

    @property
    def given_threshold(self) -> float | None:
        if self.threshold is not None or self.criterion is None:
            return self.threshold
        return self.criterion.threshold


class CodeConfig(Data, frozen=True, kw_only=True):
    name: str


class CustomMetric(Data, frozen=True, kw_only=True):
    """`code_config.name` is `module:function`, or `module.function` as in ADK."""

    code_config: CodeConfig
    description: str = ""


class EvalConfig(Data, frozen=True, kw_only=True):
    """The file `test_config.json`: metric name -> threshold, or how to apply it."""

    criteria: dict[str, float | Criterion] = {}
    custom_metrics: dict[str, CustomMetric] | None = None

    def metrics(self) -> list[EvalMetric]:
        own = self.custom_metrics or {}
        return [
            EvalMetric(
                metric_name=name,
                threshold=how.threshold if isinstance(how, Criterion) else how,
                criterion=how if isinstance(how, Criterion) else None,
                custom_function_path=own[name].code_config.name if name in own else "",
            )
            for name, how in self.criteria.items()
        ]


DEFAULT_CONFIG = EvalConfig(criteria={"tool_trajectory_avg_score": 1.0, "response_match_score": 0.8})
"""What is measured when nobody says what, as in ADK."""


class RubricScore(Data, frozen=True, kw_only=True):
    rubric_id: str
    rationale: str = ""
    score: float | None = None


class TokenUsage(Data, frozen=True, kw_only=True):
    total_tokens: float | None = None
    input_tokens: float | None = None
    cached_tokens: float | None = None
    output_tokens: float | None = None
    reasoning_tokens: float | None = None


class DurationDetails(Data, frozen=True, kw_only=True):
    total_seconds: float | None = None
    model_seconds: float | None = None
    tool_seconds: float | None = None


class MetricDetails(Data, frozen=True, kw_only=True):
    rubric_scores: list[RubricScore] = []
    token_usage_details: TokenUsage | None = None
    duration_details: DurationDetails | None = None


class EvalMetricResult(Data, frozen=True, kw_only=True):
    metric_name: str
    threshold: float | None = None
    criterion: Criterion | None = None
    custom_function_path: str = ""
    score: float | None = None
    eval_status: EvalStatus
    details: MetricDetails = field(default_factory=lambda: MetricDetails())


class EvalMetricResultPerInvocation(Data, frozen=True, kw_only=True):
    actual_invocation: Invocation
    expected_invocation: Invocation | None = None
    eval_metric_results: list[EvalMetricResult] = field(default_factory=list[EvalMetricResult])


class EvalCaseResult(Data, frozen=True, kw_only=True):
    """One case, played once. `error` is an addition of ours: why the case could not be played or judged to the end."""

    eval_set_file: str = ""
    eval_set_id: str = field(default_factory=lambda: "")
    eval_id: str = field(default_factory=lambda: "")
    final_eval_status: EvalStatus
    eval_metric_results: list[Any] = field(default_factory=list[Any])
    overall_eval_metric_results: list[EvalMetricResult] = field(default_factory=list[EvalMetricResult])
    eval_metric_result_per_invocation: list[EvalMetricResultPerInvocation] = field(
        default_factory=list[EvalMetricResultPerInvocation]
    )
    user_id: str = field(default_factory=lambda: "")
    session_id: str = field(default_factory=lambda: "")
    session_details: Any = None
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing stands against the case. One in which nothing could be compared has not passed; one that was only
        to be measured has."""
        if self.final_eval_status == EvalStatus.PASSED:
            return True
        measured = [result.eval_status for result in self.overall_eval_metric_results]
        return not self.error and bool(measured) and all(s == EvalStatus.INFORMATIONAL for s in measured)


class EvalSetResult(Data, frozen=True, kw_only=True):
    eval_set_result_id: str
    eval_set_result_name: str = field(default_factory=lambda: "")
    eval_set_id: str
    eval_case_results: list[EvalCaseResult] = field(default_factory=list[EvalCaseResult])
    creation_timestamp: float = field(default_factory=lambda: 0.0)


class Interval(Data, frozen=True, kw_only=True, omit_defaults=False):
    min_value: float
    open_at_min: bool = False
    max_value: float
    open_at_max: bool = False


class MetricValueInfo(Data, frozen=True, kw_only=True):
    interval: Interval | None = None


class MetricInfo(Data, frozen=True, kw_only=True, omit_defaults=False):
    metric_name: str
    description: str
    metric_value_info: MetricValueInfo
    requires_threshold: bool


def final_status(results: Sequence[EvalMetricResult], error: str, played: bool) -> EvalStatus:
    """How a case ended: failed if any metric failed or it was not `played` to the end; passed if some metric passed and no
    error was in the way."""
    statuses = [result.eval_status for result in results]
    if not played or EvalStatus.FAILED in statuses:
        return EvalStatus.FAILED
    if error or EvalStatus.PASSED not in statuses:
        return EvalStatus.NOT_EVALUATED
    return EvalStatus.PASSED
