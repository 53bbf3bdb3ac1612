"""MetricsPlugin: counts questions to models, tokens and tool calls for Prometheus.

Made by `protocols/metrics`, which serves what it counts; imported on demand, for it needs prometheus_client. Labels are names
that the app's maker chose, never what a model or a caller made up. Changes nothing.
"""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from polyport.data.content import FunctionCall
from polyport.data.model import ModelRequest, ModelResponse, Usage
from polyport.ports.agent import CallbackContext, Tool, ToolContext
from polyport.ports.plugin import CallNext, Plugin

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0)
UNKNOWN_TOOL = "(unknown)"
"""The label of all calls of tools that are not there."""


class MetricsPlugin(Plugin):
    """Counts into `registry`."""

    name = "metrics"

    def __init__(self, registry: CollectorRegistry) -> None:
        self._models = Counter(
            "polyport_model_calls", "Questions to models, by outcome", ("model", "outcome"), registry=registry
        )
        self._model_seconds = Histogram(
            "polyport_model_call_seconds", "How long they took", ("model",), buckets=SECONDS, registry=registry
        )
        self._tokens = Counter(
            "polyport_model_tokens",
            "Tokens by kind; input includes cached, output includes thoughts",
            ("model", "kind"),
            registry=registry,
        )
        self._tools = Counter("polyport_tool_calls", "Tool calls, by outcome", ("tool", "outcome"), registry=registry)
        self._tool_seconds = Histogram(
            "polyport_tool_call_seconds", "How long they took", ("tool",), buckets=SECONDS, registry=registry
        )

    async def watch_model(
        self, ctx: CallbackContext, event_id: str, request: ModelRequest, call_next: CallNext
    ) -> ModelResponse:
        clock, model, outcome = ctx.scope.seams.clock, request.model, "cancelled"
        began = clock()
        try:
            response: ModelResponse = await call_next(request)
            outcome = "error" if response.error_code else "ok"
            self._count(model, response.usage_metadata)
            return response
        except Exception:
            outcome = "error"
            raise
        finally:
            self._models.labels(model, outcome).inc()
            self._model_seconds.labels(model).observe(max(0.0, clock() - began))

    def _count(self, model: str, usage: Usage | None) -> None:
        if usage is None:
            return
        taken = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
        thoughts = usage.thoughts_token_count or 0
        said = (usage.candidates_token_count or 0) + thoughts
        cached = usage.cached_content_token_count or 0
        for kind, count in (("input", taken), ("output", said), ("cached", cached), ("thoughts", thoughts)):
            if count:
                self._tokens.labels(model, kind).inc(count)

    async def watch_tool(self, ctx: ToolContext, call: FunctionCall, tool: Tool | None, call_next: CallNext) -> Any:
        clock, name, outcome = ctx.scope.seams.clock, tool.name if tool is not None else UNKNOWN_TOOL, "cancelled"
        began = clock()
        try:
            made = await call_next()
            outcome = "error" if "error" in (made.response or ()) else "ok"
            return made
        finally:
            self._tools.labels(name, outcome).inc()
            self._tool_seconds.labels(name).observe(max(0.0, clock() - began))
