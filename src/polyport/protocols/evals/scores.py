"""Evaluations over HTTP: run them, read their results, and say which metrics there are (spec rest 10.1)."""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from polyport.codec import Data
from polyport.errors import BadRequest, ConfigError, NotFound
from polyport.evals.counts import COUNTS
from polyport.evals.custom import Function
from polyport.evals.evaluate import Plan, evaluate
from polyport.evals.metrics import infos
from polyport.evals.results import EvalCaseResult, EvalMetric, EvalSetResult, MetricInfo
from polyport.ports.model import Model
from polyport.protocols.answers import send_json
from polyport.protocols.evals.place import DEV, OLD, Place
from polyport.protocols.evals.sets import SETS
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route
from polyport.protocols.streaming import unless_gone


class RunEval(Data, frozen=True, kw_only=True):
    """The body that runs an evaluation. `eval_ids` is the older name of `eval_case_ids`; empty is all. What is about live
    models and simulated users has no effect."""

    eval_metrics: list[EvalMetric]
    eval_case_ids: list[str] = []
    eval_ids: list[str] = []
    live_model_config: Any = None
    user_simulator_config: Any = None


class RunEvalResults(Data, frozen=True, kw_only=True, omit_defaults=False):
    run_eval_results: list[EvalCaseResult]


class ResultIds(Data, frozen=True, kw_only=True, omit_defaults=False):
    eval_result_ids: list[str]


class MetricsInfo(Data, frozen=True, kw_only=True, omit_defaults=False):
    metrics_info: list[MetricInfo]


class ScoreRoutes:
    def __init__(self, place: Place, functions: Mapping[str, Function], judge: Model | str, parallel: int) -> None:
        self._place = place
        self._functions = functions
        self._judge = judge
        self._parallel = parallel

    def routes(self) -> list[Route]:
        local = self._place.local
        found: list[Route] = []
        for base in (DEV, OLD):
            for sets in SETS:
                one = f"{base}/{sets}/{{set}}"
                found += [
                    local("POST", f"{one}/run", self.run, "Evaluate", body=RunEval, returns=RunEvalResults),
                    local(
                        "POST", f"{one}/run_eval", self.run_bare, "Evaluate", body=RunEval, returns=list[EvalCaseResult]
                    ),
                ]
            new, old = f"{base}/eval-results", f"{base}/eval_results"
            found += [
                Route("GET", new, self.list_ids, admin=True, summary="Stored eval results", returns=ResultIds),
                Route("GET", old, self.names, admin=True, summary="Stored eval results", returns=list[str]),
                *[
                    Route(
                        "GET", path + "/{result}", self.get, admin=True, summary="An eval result", returns=EvalSetResult
                    )
                    for path in (new, old)
                ],
                Route(
                    "GET", f"{base}/metrics-info", self.metrics, summary="Which metrics there are", returns=MetricsInfo
                ),
            ]
        return found

    async def run(self, request: Request, send: Send) -> None:
        await send_json(send, RunEvalResults(run_eval_results=await self._evaluated(request)))

    async def run_bare(self, request: Request, send: Send) -> None:
        await send_json(send, await self._evaluated(request))

    async def _evaluated(self, request: Request) -> list[EvalCaseResult]:
        """The result is stored, too. 400 for a set or metric that is not there, or what a metric needs and is not installed.
        A client that hangs up stops the evaluation."""
        body = await request.json(RunEval, unknown="drop")
        folder, set_id, app = self._place.folder(request), request.params["set"], await self._place.known(request)
        for metric in body.eval_metrics:
            if metric.custom_function_path:
                raise BadRequest(
                    "customFunctionPath is not taken from requests: give the function to Evals(metrics={name: function})",
                    "customFunctionPath",
                )
        try:
            found = await self._place.read(folder.eval_set, set_id)
        except NotFound as error:
            raise BadRequest(str(error)) from None
        asked = {metric.metric_name for metric in body.eval_metrics}
        counts = [EvalMetric(metric_name=name) for name in COUNTS if name not in asked]
        plan = Plan(
            metrics=[*body.eval_metrics, *counts],
            functions=self._functions,
            cases=body.eval_case_ids or body.eval_ids,
            parallel=self._parallel,
            judge=self._judge,
        )
        try:
            results = await unless_gone(request, lambda: evaluate(self._place.subject, app, [found], plan))
        except ConfigError as error:
            raise BadRequest(str(error)) from None
        await self._place.change(folder.save_result, results[0])
        return [structs.replace(result, session_details=None) for result in results[0].eval_case_results]

    async def list_ids(self, request: Request, send: Send) -> None:
        await send_json(send, ResultIds(eval_result_ids=await self._ids(request)))

    async def names(self, request: Request, send: Send) -> None:
        await send_json(send, await self._ids(request))

    async def _ids(self, request: Request) -> Any:
        return await self._place.read(self._place.folder(request).result_ids)

    async def get(self, request: Request, send: Send) -> None:
        """404; 500 for a file that cannot be read."""
        await send_json(send, await self._place.read(self._place.folder(request).result, request.params["result"]))

    async def metrics(self, request: Request, send: Send) -> None:
        await send_json(send, MetricsInfo(metrics_info=infos(self._functions)))
