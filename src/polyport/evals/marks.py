"""What a metric is given and what it gives back.

The vocabulary of the metrics in `metrics`, `judged` and `counts`, and of `evaluate`, which adds the marks up. Does no I/O.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from msgspec import Struct, structs

from polyport.evals.cases import EvalCase, Invocation
from polyport.evals.judging import Judges
from polyport.evals.playing import Played
from polyport.evals.results import (
    Criterion,
    DurationDetails,
    EvalMetric,
    MetricDetails,
    RubricScore,
    TokenUsage,
)

D = TypeVar("D", bound=Struct)


class Mark(NamedTuple):
    """What one turn got; a score of None when there was nothing to compare."""

    score: float | None = None
    details: MetricDetails = MetricDetails()


class Exam(NamedTuple):
    """What a metric looks at. `turns` pairs what was expected with what came, as far as the case was played."""

    metric: EvalMetric
    case: EvalCase
    turns: Sequence[tuple[Invocation, Invocation]]
    played: Played
    judges: Judges

    @property
    def criterion(self) -> Criterion:
        return self.metric.criterion or Criterion()


Scorer = Callable[[Exam], Awaitable[list[Mark]]]


class Metric(NamedTuple):
    """`threshold` is what counts when a plan gives none; None for a metric that only informs. `most` says that a threshold is
    the most that is allowed, not the least; `judged`, that a model judges."""

    name: str
    description: str
    score: Scorer
    threshold: float | None = None
    most: bool = False
    judged: bool = False
    check: Callable[[EvalMetric], None] | None = None

    def passes(self, score: float, threshold: float) -> bool:
        return score <= threshold + 1e-9 if self.most else score >= threshold - 1e-9


def answer_of(turn: Invocation, exam: Exam) -> str:
    """The answer of a turn, with all that was said before it if the criterion wants it."""
    if not exam.criterion.include_intermediate_responses_in_final:
        return turn.text
    before = [step.content.text for step in turn.steps if step.content is not None]
    return "\n".join(text for text in [*before, turn.text] if text)


def mean(marks: Sequence[Mark]) -> Mark:
    """The mean of the turns that have a score, also of what it is made of."""
    scored = [mark for mark in marks if mark.score is not None]
    if not scored:
        return Mark()
    rubrics: dict[str, list[float]] = {}
    for mark in scored:
        for rubric in mark.details.rubric_scores:
            rubrics.setdefault(rubric.rubric_id, []).append(rubric.score or 0.0)
    details = MetricDetails(
        rubric_scores=[RubricScore(rubric_id=id, score=sum(got) / len(got)) for id, got in rubrics.items()],
        token_usage_details=_mean_of(TokenUsage, [mark.details.token_usage_details for mark in scored]),
        duration_details=_mean_of(DurationDetails, [mark.details.duration_details for mark in scored]),
    )
    return Mark(sum(mark.score or 0.0 for mark in scored) / len(scored), details)


def _mean_of(kind: type[D], given: Sequence[D | None]) -> D | None:
    """The mean of each member that is known."""
    found: dict[str, float] = {}
    for name in kind.__struct_fields__:
        values: list[float] = [v for one in given if one is not None and (v := getattr(one, name)) is not None]
        if values:
            found[name] = sum(values) / len(values)
    return structs.replace(kind(), **found) if found else None
