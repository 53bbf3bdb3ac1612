"""What `polyport eval` does: plays eval sets against an agent, shows the scores, keeps the results where ADK keeps them.

Only words and output; the evaluation is `evals.evaluate`. Imported by the command when it is used.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
from msgspec import Struct, structs

from polyport.app import App
from polyport.cli.words import make_app
from polyport.codec import encode
from polyport.config.importing import add_to_path
from polyport.config.text import count, readable
from polyport.errors import ConfigError
from polyport.evals.counts import COUNTS
from polyport.evals.evaluate import Plan, evaluate
from polyport.evals.folder import AppFolder
from polyport.evals.judging import DEFAULT_JUDGE
from polyport.evals.playing import Subject
from polyport.evals.results import EvalCaseResult, EvalConfig, EvalMetric, EvalSetResult
from polyport.evals.sources import Source, config_beside, read_config, read_sources
from polyport.evals.table import summary, table
from polyport.seams import REAL


class Options(Struct, frozen=True, kw_only=True):
    """What the user wrote."""

    agent: str
    evalsets: tuple[str, ...]
    metric: tuple[str, ...] = ()
    config: str | None = None
    case: tuple[str, ...] = ()
    runs: int = 1
    parallel: int = 4
    judge: str = ""
    threshold: float | None = None
    app: str = ""
    as_json: bool = False
    save: bool = True


def run(options: Options) -> bool:
    """Evaluate and print; whether all cases passed."""
    app = make_app([options.agent])
    name = _app_name(app, options)
    folder = _folder(options.agent, name)
    for place in (folder, Path.cwd()):
        add_to_path(place)
    sources = read_sources(options.evalsets, folder)
    plan = Plan(
        metrics=_metrics(options, sources),
        cases=set(options.case),
        runs=options.runs,
        parallel=options.parallel,
        judge=options.judge or DEFAULT_JUDGE,
    )
    results = anyio.run(_evaluated, app, name, sources, plan)
    if options.save:
        home = AppFolder(folder, name)
        for result in results:
            print(f"saved {home.save_result(result)}", file=sys.stderr)
    _show(options, results)
    return all(case.passed for result in results for case in result.eval_case_results)


async def _evaluated(app: App, name: str, sources: Sequence[Source], plan: Plan) -> list[EvalSetResult]:
    found = [source.found for source in sources]
    wanted = [case for one in found for case in one.eval_cases if not plan.cases or case.eval_id in plan.cases]
    total, done = len(wanted) * plan.runs, 0

    def told(case: EvalCaseResult) -> None:
        nonlocal done
        done += 1
        print(f"[{done}/{total}] {case.eval_id}: {'passed' if case.passed else 'did not pass'}", file=sys.stderr)

    async with app.running():
        subject = Subject(app.trees, app.plugins, app.limits, REAL)
        return await evaluate(subject, name, found, plan, told)


def _show(options: Options, results: Sequence[EvalSetResult]) -> None:
    if options.as_json:
        bare = [
            structs.replace(
                result,
                eval_case_results=[structs.replace(case, session_details=None) for case in result.eval_case_results],
            )
            for result in results
        ]
        print(encode(bare).decode())
    else:
        print(readable(table(results)))
        print(f"{summary(results)} ({count(len(results), 'eval set')})")


def _app_name(app: App, options: Options) -> str:
    if options.app and options.app not in app.trees:
        raise ConfigError(f"there is no app {options.app!r}; the apps are: {', '.join(app.trees)}")
    if not options.app and len(app.trees) > 1:
        raise ConfigError(f"{options.agent} gives several agents; say which with --app: {', '.join(app.trees)}")
    return options.app or next(iter(app.trees))


def _folder(word: str, app: str) -> Path:
    """The folder of the agent, for its eval sets and results."""
    path = Path(re.sub(r":[A-Za-z_]\w*$", "", word)).expanduser().resolve()
    if not path.is_dir():
        return path.parent if path.exists() else Path.cwd()
    return path / app if (path / app).is_dir() and path.name != app else path


def _metrics(options: Options, sources: Sequence[Source]) -> list[EvalMetric]:
    """Of the command line; else of the file that it names, or that lies beside the first set."""
    config: EvalConfig = read_config(Path(options.config)) if options.config else config_beside(sources)
    if options.metric:
        known = {metric.metric_name: metric for metric in config.metrics()}
        return [_metric(word, known, options.threshold) for word in options.metric]
    if options.threshold is None:
        return config.metrics()
    return [
        metric if metric.metric_name in COUNTS else structs.replace(metric, threshold=options.threshold)
        for metric in config.metrics()
    ]


def _metric(word: str, known: dict[str, EvalMetric], threshold: float | None) -> EvalMetric:
    """`NAME`, `NAME=THRESHOLD`; the configuration says the rest about a metric that it knows."""
    name, equals, number = word.partition("=")
    try:
        given = float(number) if equals else None if name in COUNTS else threshold
    except ValueError:
        raise ConfigError(f"--metric {word}: {number!r} is not a number") from None
    if ":" in name:
        return EvalMetric(metric_name=name.rpartition(":")[2], threshold=given, custom_function_path=name)
    metric = known.get(name) or EvalMetric(metric_name=name)
    return metric if given is None else structs.replace(metric, threshold=given)
