"""UsagePlugin: tokens and cost of each run, over all its agents and by model.

Used in `App(plugins=[...])`. Sums what the providers told; says it in one line of the log and to a function of yours when the
run ends, also one that failed or was cancelled. The turns of a live session are counted when it ends. Never asks a model, and
stores nothing in the session.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from polyport.data.model import ModelRequest, ModelResponse, Usage
from polyport.engine.hooks import ask
from polyport.engine.spec import LlmSpec
from polyport.errors import ConfigError
from polyport.ports.agent import CallbackContext
from polyport.ports.plugin import CallNext, Plugin

log = logging.getLogger("polyport.usage")

_MILLION = 1_000_000


class Price(Struct, frozen=True, kw_only=True):
    """What a million tokens cost, in any currency. `cached_input` is that of input from the provider's cache; None means that
    it costs as much as other input."""

    input: float
    output: float
    cached_input: float | None = None

    def of(self, usage: Usage) -> float:
        """The cost of one answer. Thoughts are output."""
        cached = usage.cached_content_token_count or 0
        fresh = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0) - cached
        said = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        per_cached = self.input if self.cached_input is None else self.cached_input
        return (fresh * self.input + cached * per_cached + said * self.output) / _MILLION


class UsageTotals(Struct, kw_only=True):
    """Sums over model calls. `input_tokens` include `cached_tokens`, `output_tokens` include `thought_tokens`.

    `cost` is that of the calls whose model has a price; `unpriced_calls` is how many had none, or no token counts.
    """

    calls: int = 0
    failed_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    thought_tokens: int = 0
    total_tokens: int = 0
    cost: float = 0.0
    unpriced_calls: int = 0

    def add(self, usage: Usage | None, price: Price | None) -> None:
        """Count one answer."""
        self.calls += 1
        if usage is None or price is None:
            self.unpriced_calls += 1
        if usage is None:
            return
        taken = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
        said = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        self.input_tokens += taken
        self.cached_tokens += usage.cached_content_token_count or 0
        self.output_tokens += said
        self.thought_tokens += usage.thoughts_token_count or 0
        self.total_tokens += usage.total_token_count if usage.total_token_count is not None else taken + said
        if price is not None:
            self.cost += price.of(usage)


class RunUsage(UsageTotals, kw_only=True):
    """The sums of one run, and those of each of its models."""

    models: dict[str, UsageTotals] = {}


class UsagePlugin(Plugin):
    """`prices` maps names of models, as asked or as the provider names them (`modelVersion`), to their Price.

    `on_total(ctx, totals)`, sync or async, is called at the end of every run that asked a model. `keep_runs` is how many runs
    `totals` remembers; the ones that were quiet for longest are forgotten first. ConfigError if that is less than 1.
    """

    def __init__(
        self,
        prices: Mapping[str, Price] | None = None,
        *,
        on_total: Callable[[CallbackContext, RunUsage], Any] | None = None,
        keep_runs: int = 10_000,
        name: str = "usage",
    ) -> None:
        if keep_runs < 1:
            raise ConfigError(f"keep_runs of UsagePlugin is {keep_runs}; it must be at least 1")
        self.name = name
        self._prices = dict(prices or {})
        self._on_total = on_total
        self._keep_runs = keep_runs
        self._runs: OrderedDict[str, RunUsage] = OrderedDict()

    def totals(self, invocation_id: str) -> RunUsage | None:
        """What a run has used so far; None when it asked no model, or was forgotten. Not to be changed."""
        return self._runs.get(invocation_id)

    async def around_model(self, ctx: CallbackContext, request: ModelRequest, call_next: CallNext) -> ModelResponse:
        try:
            response: ModelResponse = await call_next(request)
        except Exception:
            self._run(ctx).failed_calls += 1
            raise
        name = response.model_version if response.model_version in self._prices else request.model
        self._count(ctx, name, response.model_version or name, response.usage_metadata)
        return response

    def _count(self, ctx: CallbackContext, name: str, shown: str, usage: Usage | None) -> None:
        """Count one answer of the model that has its price under `name`, or else is `shown`."""
        price = self._prices.get(name)
        run = self._run(ctx)
        run.add(usage, price)
        run.models.setdefault(name if price is not None else shown, UsageTotals()).add(usage, price)

    def _count_live(self, ctx: CallbackContext) -> None:
        """The turns of a live session, each one told by an event without content. Nobody is asked for them one by one."""
        for event in ctx.session.events:
            if event.invocation_id != ctx.invocation_id or event.usage_metadata is None or event.content is not None:
                continue
            speaker = ctx.tree.find(event.author)
            asked = ctx.tree.bound(speaker).model.name if isinstance(speaker, LlmSpec) else event.author
            name = event.model_version if event.model_version in self._prices else asked
            self._count(ctx, name, event.model_version or asked, event.usage_metadata)

    async def after_run(self, ctx: CallbackContext) -> None:
        if ctx.scope.live is not None:
            self._count_live(ctx)
        run = self._runs.get(ctx.invocation_id)
        if run is None:
            return
        log.info(
            "run %s: %d model calls (%d failed), %d tokens in (%d cached), %d out, cost %.6f%s",
            ctx.invocation_id,
            run.calls + run.failed_calls,
            run.failed_calls,
            run.input_tokens,
            run.cached_tokens,
            run.output_tokens,
            run.cost,
            f" without {run.unpriced_calls} calls of unknown price" if run.unpriced_calls else "",
        )
        if self._on_total is not None:
            await ask(self._on_total, ctx, run)

    def _run(self, ctx: CallbackContext) -> RunUsage:
        run = self._runs.get(ctx.invocation_id)
        if run is None:
            run = self._runs[ctx.invocation_id] = RunUsage()
            if len(self._runs) > self._keep_runs:
                self._runs.popitem(last=False)
        self._runs.move_to_end(ctx.invocation_id)
        return run
