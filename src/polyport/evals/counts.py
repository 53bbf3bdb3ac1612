"""Metrics that only count what a turn took: tool calls, model calls, tokens, seconds.

Used by `metrics`; what they count was measured while the case was played.
"""

from collections.abc import Sequence

from polyport.data.model import Usage
from polyport.evals.marks import Exam, Mark
from polyport.evals.results import DurationDetails, MetricDetails, TokenUsage

COUNTS = ("tool_call_count_v1", "inference_call_count_v1", "token_usage_v1", "invocation_duration_v1")
"""The metrics of this module."""


async def tool_calls(exam: Exam) -> list[Mark]:
    return [Mark(float(len(actual.calls))) for _, actual in exam.turns]


async def model_calls(exam: Exam) -> list[Mark]:
    return [Mark(float(spent.model_calls)) for spent in exam.played.spent]


async def tokens(exam: Exam) -> list[Mark]:
    return [_token_mark(spent.usage) for spent in exam.played.spent]


def _token_mark(usages: Sequence[Usage]) -> Mark:
    if not usages:
        return Mark(None, MetricDetails(token_usage_details=TokenUsage()))

    def total(*names: str) -> float:
        return float(sum(getattr(usage, name) or 0 for usage in usages for name in names))

    taken = total("prompt_token_count", "tool_use_prompt_token_count")
    said = total("candidates_token_count", "thoughts_token_count")
    whole = total("total_token_count") or taken + said
    details = TokenUsage(
        total_tokens=whole,
        input_tokens=taken,
        cached_tokens=total("cached_content_token_count"),
        output_tokens=said,
        reasoning_tokens=total("thoughts_token_count"),
    )
    return Mark(whole, MetricDetails(token_usage_details=details))


async def duration(exam: Exam) -> list[Mark]:
    return [
        Mark(
            actual.duration,
            MetricDetails(
                duration_details=DurationDetails(
                    total_seconds=actual.duration,
                    model_seconds=actual.model_duration,
                    tool_seconds=actual.tool_duration,
                )
            ),
        )
        for _, actual in exam.turns
    ]
