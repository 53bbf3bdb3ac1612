"""Plays the cases of eval sets against an app, and scores them.

The one way to evaluate: `polyport eval`, `polyport.testing.evaluate` and the eval routes all call it. Checks the whole plan
before anything is played. Stores nothing; see `folder`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import anyio
from msgspec import Struct

from polyport.errors import BadRequest, NotFound, PolyportError, unwrap
from polyport.evals.cases import EvalCase, EvalSet
from polyport.evals.custom import Function
from polyport.evals.judging import DEFAULT_JUDGE, Judges
from polyport.evals.marks import Exam, Mark, Metric, mean
from polyport.evals.metrics import find
from polyport.evals.playing import Meter, Played, Subject, apart, play
from polyport.evals.results import (
    EvalCaseResult,
    EvalMetric,
    EvalMetricResult,
    EvalMetricResultPerInvocation,
    EvalSetResult,
    EvalStatus,
    final_status,
)
from polyport.ports.model import Model
from polyport.wire.adk import session_shape

MAX_RUNS, MAX_PARALLEL = 1000, 64
MAX_ID = 150
"""How many characters of the names of app and set are in the id of a result, which is the name of a file."""


class Plan(Struct, frozen=True, kw_only=True):
    """`metrics` are what is measured, `functions` those of the user's own by name. `cases` are evalIds, all when empty. Each
    is played `runs` times, `parallel` of them side by side. `judge` is the model for criteria that name none."""

    metrics: Sequence[EvalMetric]
    functions: Mapping[str, Function] = {}
    cases: Collection[str] = ()
    runs: int = 1
    parallel: int = 1
    judge: Model | str = DEFAULT_JUDGE


Told = Callable[[EvalCaseResult], None]
"""Is told of each case when it is done, in the order in which they end."""
Measured = list[tuple[EvalMetric, Metric]]


async def evaluate(
    subject: Subject, app: str, sets: Sequence[EvalSet], plan: Plan, told: Told | None = None
) -> list[EvalSetResult]:
    """One result for each set; in it one for each case and each time it was played, in this order. The app must be running.

    NotFound for an app or case that is not there, BadRequest or ConfigError for a plan that cannot be carried out.
    """
    if app not in subject.trees:
        raise NotFound(f"there is no app {app!r}; the apps are: {', '.join(subject.trees)}")
    if not (1 <= plan.runs <= MAX_RUNS and 1 <= plan.parallel <= MAX_PARALLEL):
        raise BadRequest(f"runs must be from 1 to {MAX_RUNS}, parallel from 1 to {MAX_PARALLEL}")
    measured = [(metric, find(metric, plan.functions)) for metric in plan.metrics]
    picked = _pick(sets, plan.cases)
    jobs = [(found, case) for found, cases in picked for case in cases for _ in range(plan.runs)]
    results: list[EvalCaseResult | None] = [None] * len(jobs)
    meter, judges = Meter(subject.seams), Judges(plan.judge)
    limiter = anyio.CapacityLimiter(plan.parallel)
    try:
        for asked, metric in measured:
            if metric.judged:
                judges.of(asked.criterion.judge_model_options if asked.criterion is not None else None)
        async with apart(subject, meter) as runs, anyio.create_task_group() as group:

            async def work(index: int, found: EvalSet, case: EvalCase) -> None:
                async with limiter:
                    played = await play(runs, app, case, meter, subject.seams)
                    result = await _graded(found, case, played, measured, judges)
                results[index] = result
                if told is not None:
                    told(result)

            for index, (found, case) in enumerate(jobs):
                group.start_soon(work, index, found, case)
    except BaseExceptionGroup as group:
        raise unwrap(group) from None
    finally:
        await judges.aclose()
    done = iter([result for result in results if result is not None])
    now = subject.seams.clock()
    return [
        _set_result(app, found, [next(done) for _ in range(len(cases) * plan.runs)], now + place / 1000)
        for place, (found, cases) in enumerate(picked)  # times are part of the ids
    ]


def _pick(sets: Sequence[EvalSet], wanted: Collection[str]) -> list[tuple[EvalSet, list[EvalCase]]]:
    known = {case.eval_id for found in sets for case in found.eval_cases}
    missing = [id for id in wanted if id not in known]
    if missing:
        raise NotFound(f"there is no case {missing[0]!r}; the cases are: {', '.join(sorted(known)) or 'none'}")
    return [(found, [case for case in found.eval_cases if not wanted or case.eval_id in wanted]) for found in sets]


def _set_result(app: str, found: EvalSet, results: list[EvalCaseResult], now: float) -> EvalSetResult:
    id = re.sub(r"[^\w.-]", "_", f"{f'{app}_{found.eval_set_id}'[:MAX_ID]}_{now}", flags=re.ASCII)
    return EvalSetResult(
        eval_set_result_id=id,
        eval_set_result_name=id,
        eval_set_id=found.eval_set_id,
        eval_case_results=results,
        creation_timestamp=now,
    )


async def _graded(found: EvalSet, case: EvalCase, played: Played, measured: Measured, judges: Judges) -> EvalCaseResult:
    """What all metrics say of a case that was played. A metric that fails is noted as the error of the case."""
    turns = list(zip(case.conversation or (), played.turns, strict=False))
    errors = [played.error] if played.error else []
    overall: list[EvalMetricResult] = []
    by_turn: list[list[EvalMetricResult]] = [[] for _ in turns]
    for asked, metric in measured:
        try:
            marks = await metric.score(Exam(asked, case, turns, played, judges))
        except PolyportError as error:
            errors.append(f"{asked.metric_name}: {error}")
            marks = [Mark() for _ in turns]
        overall.append(_result(asked, metric, mean(marks)))
        for results, mark in zip(by_turn, marks, strict=True):
            results.append(_result(asked, metric, mark))
    error = "; ".join(errors)
    return EvalCaseResult(
        eval_set_file=found.eval_set_id,
        eval_set_id=found.eval_set_id,
        eval_id=case.eval_id,
        final_eval_status=final_status(overall, error, not played.error),
        overall_eval_metric_results=overall,
        eval_metric_result_per_invocation=[
            EvalMetricResultPerInvocation(
                actual_invocation=actual, expected_invocation=expected, eval_metric_results=results
            )
            for (expected, actual), results in zip(turns, by_turn, strict=True)
        ],
        user_id=played.user,
        session_id=played.session.id,
        session_details=session_shape(played.session),
        error=error,
    )


def _result(asked: EvalMetric, metric: Metric, mark: Mark) -> EvalMetricResult:
    threshold = asked.given_threshold
    if threshold is None:
        threshold = metric.threshold
    if threshold is None:
        status = EvalStatus.INFORMATIONAL
    elif mark.score is None:
        status = EvalStatus.NOT_EVALUATED
    else:
        status = EvalStatus.PASSED if metric.passes(mark.score, threshold) else EvalStatus.FAILED
    return EvalMetricResult(
        metric_name=asked.metric_name,
        threshold=threshold,
        criterion=asked.criterion,
        custom_function_path=asked.custom_function_path,
        score=mark.score,
        eval_status=status,
        details=mark.details,
    )
