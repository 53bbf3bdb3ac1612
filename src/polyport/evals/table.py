"""Results of an evaluation as text for people: a table of cases and scores, and what was different where a case failed.

Used by `polyport eval` and by the message of `polyport.testing.evaluate`. Pure.
"""

from collections.abc import Iterable, Sequence

from polyport.codec import encode
from polyport.data.content import FunctionCall
from polyport.evals.cases import Invocation
from polyport.evals.results import EvalCaseResult, EvalMetricResult, EvalSetResult, EvalStatus

SHOWN_TURNS = 5
SHOWN_CHARS = 200


def table(results: Iterable[EvalSetResult]) -> str:
    """All sets: one line for each case with the mean of each score, `!` where it failed; what is different below."""
    blocks: list[str] = []
    for result in results:
        cases: dict[str, list[EvalCaseResult]] = {}
        for case in result.eval_case_results:
            cases.setdefault(case.eval_id, []).append(case)
        names = list(
            dict.fromkeys(m.metric_name for c in result.eval_case_results for m in c.overall_eval_metric_results)
        )
        rows = [["case", "result", *names], *(_row(id, played, names) for id, played in cases.items())]
        blocks.append(f"eval set {result.eval_set_id}")
        blocks += [f"  {line}" for line in _aligned(rows)]
        for id, played in cases.items():
            failed = next((case for case in played if not case.passed), None)
            if failed is not None:
                blocks += [f"  {id}:", *(f"    {line}" for line in _why(failed))]
    return "\n".join(blocks)


def summary(results: Sequence[EvalSetResult]) -> str:
    """`3 of 4 passed`."""
    cases = [case for result in results for case in result.eval_case_results]
    return f"{sum(case.passed for case in cases)} of {len(cases)} passed"


def _row(id: str, played: Sequence[EvalCaseResult], names: Sequence[str]) -> list[str]:
    good = sum(case.passed for case in played)
    word = "passed" if good == len(played) else "failed" if _failed(played) else "not evaluated"
    return [id, word if len(played) == 1 else f"{word} {good}/{len(played)}", *(_score(played, name) for name in names)]


def _failed(played: Iterable[EvalCaseResult]) -> bool:
    return any(case.final_eval_status == EvalStatus.FAILED for case in played)


def _score(played: Sequence[EvalCaseResult], name: str) -> str:
    found = [m for case in played for m in case.overall_eval_metric_results if m.metric_name == name]
    scores = [metric.score for metric in found if metric.score is not None]
    if not scores:
        return "-"
    text = f"{sum(scores) / len(scores):.3f}".rstrip("0").rstrip(".")
    return text + ("!" if any(metric.eval_status == EvalStatus.FAILED for metric in found) else "")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _why(case: EvalCaseResult) -> list[str]:
    lines = [case.error] if case.error else []
    for metric in case.overall_eval_metric_results:
        if metric.eval_status == EvalStatus.FAILED:
            lines.append(f"{metric.metric_name} is {metric.score:g}, the threshold {metric.threshold:g}")
        elif metric.eval_status == EvalStatus.NOT_EVALUATED and not case.error:
            lines.append(f"{metric.metric_name}: there was nothing to compare")
    for number, turn in enumerate(case.eval_metric_result_per_invocation[:SHOWN_TURNS], 1):
        if any(metric.eval_status == EvalStatus.FAILED for metric in turn.eval_metric_results):
            lines.append(f"turn {number}: {_short(turn.actual_invocation.user_content.text)}")
            lines += _compared(turn.expected_invocation, turn.actual_invocation, turn.eval_metric_results)
    return lines


def _compared(expected: Invocation | None, actual: Invocation, results: Sequence[EvalMetricResult]) -> list[str]:
    lines: list[str] = []
    if expected is not None and [_call(c) for c in expected.calls] != [_call(c) for c in actual.calls]:
        lines += [f"  expected calls: {_calls(expected)}", f"  actual calls:   {_calls(actual)}"]
    if expected is not None and expected.final_response is not None:
        lines.append(f"  expected: {_short(expected.text)}")
    lines.append(f"  actual:   {_short(actual.text) or 'no answer'}")
    for metric in results:
        lines += [
            f"  rubric {rubric.rubric_id}: no. {_short(rubric.rationale)}"
            for rubric in metric.details.rubric_scores
            if rubric.score == 0.0
        ]
    return lines


def _calls(turn: Invocation) -> str:
    return ", ".join(_call(call) for call in turn.calls) or "none"


def _call(call: FunctionCall) -> str:
    return _short(f"{call.name}({encode(call.args).decode()})")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else line[:SHOWN_CHARS] + "..."
