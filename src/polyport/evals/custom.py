"""Metrics of the user's own: functions in code, or named `module:function` in a configuration file.

Called by the metrics. Never from a request: a name from outside is not imported (see `protocols/evals`).
"""

import importlib
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import anyio

from polyport.errors import AgentError, ConfigError
from polyport.evals.cases import Invocation
from polyport.evals.results import EvalMetric

Function = Callable[[EvalMetric, list[Invocation], list[Invocation]], Any]
"""`(metric, actual turns, expected turns)` -> one score, or a list with one for each turn (None: nothing to compare). Sync (in
a worker thread) or async."""


def load_function(path: str) -> Function:
    """The function of `module:function` or `module.function`. ConfigError says what is not there."""
    module_name, colon, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not (module_name and colon and name):
        raise ConfigError(f"a metric of your own is named as module:function, not {path!r}")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(f"the metric {path!r} cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"the metric {path!r}: module {module_name!r} has no function {name!r}")
    return cast("Function", found)


async def run_function(
    function: Function, metric: EvalMetric, actual: list[Invocation], expected: list[Invocation]
) -> list[float | None]:
    """One score for each turn. AgentError when the function fails, or gives something else."""
    name = metric.metric_name
    try:
        if inspect.iscoroutinefunction(function):
            answer: Any = await function(metric, actual, expected)
        else:
            answer = await anyio.to_thread.run_sync(function, metric, actual, expected)
    except Exception as error:
        raise AgentError(f"the metric {name!r} failed: {type(error).__name__}: {error}") from error
    scores = list(cast("Sequence[Any]", answer)) if isinstance(answer, list | tuple) else [answer] * len(actual)
    if len(scores) != len(actual):
        raise AgentError(f"the metric {name!r} gave {len(scores)} scores for {len(actual)} turns")
    return [_score(name, score) for score in scores]


def _score(name: str, score: Any) -> float | None:
    if score is None:
        return None
    if not isinstance(score, int | float) or not math.isfinite(score):
        raise AgentError(f"the metric {name!r} gave {score!r}; a score is a number, or None")
    return float(score)
