"""evaluate: play eval sets against an app in a test, and fail with a table when a case has not passed.

    def test_my_agent():
        evaluate_sync(agent, "my_agent/weather.evalset.json", metrics={"tool_trajectory_avg_score": 1.0})

For the tests of users. The sessions of the app are not touched. What an app that is not running needs is started, and ended
again.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from polyport.app import App
from polyport.evals.cases import EvalSet
from polyport.evals.custom import Function
from polyport.evals.evaluate import Plan
from polyport.evals.evaluate import evaluate as run_evaluation
from polyport.evals.judging import DEFAULT_JUDGE
from polyport.evals.playing import Subject
from polyport.evals.results import DEFAULT_CONFIG, Criterion, EvalConfig, EvalMetric, EvalSetResult
from polyport.evals.sources import config_beside, read_sources
from polyport.evals.table import summary, table
from polyport.ports.agent import Agent
from polyport.ports.model import Model
from polyport.seams import REAL


class Asked(Struct, frozen=True, kw_only=True):
    """How to evaluate. `metrics` maps names to thresholds, None for the default one, or to a Criterion; without it the
    `test_config.json` beside the first file counts, or ADK's default. `functions` are metrics of your own by name; they are
    measured, too. `app_name` is for apps with several agents. See `evals.evaluate.Plan` for the rest."""

    metrics: Mapping[str, float | Criterion | None] | None = None
    functions: Mapping[str, Function] = {}
    cases: Collection[str] = ()
    runs: int = 1
    parallel: int = 1
    judge: Model | str = DEFAULT_JUDGE
    app_name: str = ""


async def evaluate(app: App | Agent, *sets: str | Path | EvalSet, **asked: Any) -> list[EvalSetResult]:
    """The results for all sets, each a file, a folder of files, or an EvalSet. Keywords are those of `Asked`. AssertionError,
    with a table, when a case has not passed; ConfigError or BadRequest for what cannot be evaluated."""
    how = Asked(**asked)
    app = app if isinstance(app, App) else App(app)
    given = [one for one in sets if isinstance(one, EvalSet)]
    words = [one for one in sets if not isinstance(one, EvalSet)]
    files = read_sources(words, Path()) if words else []
    config = config_beside(files) if files else DEFAULT_CONFIG
    plan = Plan(
        metrics=_metrics(how, config),
        functions=how.functions,
        cases=how.cases,
        runs=how.runs,
        parallel=how.parallel,
        judge=how.judge,
    )
    name = how.app_name or next(iter(app.trees))
    async with app.serving():
        subject = Subject(app.trees, app.plugins, app.limits, REAL)
        results = await run_evaluation(subject, name, [*(file.found for file in files), *given], plan)
    if not all(case.passed for result in results for case in result.eval_case_results):
        raise AssertionError(f"{summary(results)}\n{table(results)}")
    return results


def evaluate_sync(app: App | Agent, *sets: str | Path | EvalSet, **asked: Any) -> list[EvalSetResult]:
    """`evaluate` for tests that are not async."""
    return anyio.run(lambda: evaluate(app, *sets, **asked))


def _metrics(how: Asked, config: EvalConfig) -> list[EvalMetric]:
    if how.metrics is None:
        named = config.metrics()
    else:
        named = [
            EvalMetric(
                metric_name=name,
                threshold=None if isinstance(value, Criterion) else value,
                criterion=value if isinstance(value, Criterion) else None,
            )
            for name, value in how.metrics.items()
        ]
    known = {metric.metric_name for metric in named}
    return [*named, *(EvalMetric(metric_name=name) for name in how.functions if name not in known)]
