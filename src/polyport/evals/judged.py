"""Metrics that a model judges: what of a turn is shown to the judge, and what its verdicts make of the turn.

Used by `metrics`. How a judge is asked is in `judging`.
"""

from polyport.evals import judging
from polyport.evals.cases import Invocation, InvocationEvent, Rubric
from polyport.evals.marks import Exam, Mark, Scorer, answer_of
from polyport.evals.results import MetricDetails, RubricScore


def judged(task: str, reference: bool) -> Scorer:
    async def score(exam: Exam) -> list[Mark]:
        options = exam.criterion.judge_model_options
        judge, times = exam.judges.of(options), judging.samples(options)
        marks: list[Mark] = []
        for expected, actual in exam.turns:
            if reference and expected.final_response is None:
                marks.append(Mark())
                continue
            material = {"question": actual.user_content.text, "answer": answer_of(actual, exam)}
            if reference:
                material["reference"] = expected.text
            marks.append(Mark(await judging.verdict(judge, times, task, material)))
        return marks

    return score


def rubric_based(kind: str, task: str) -> Scorer:
    async def score(exam: Exam) -> list[Mark]:
        options = exam.criterion.judge_model_options
        judge, times = exam.judges.of(options), judging.samples(options)
        marks: list[Mark] = []
        for expected, actual in exam.turns:
            rubrics = _rubrics_of(exam, expected, kind)
            if not rubrics:
                marks.append(Mark())
                continue
            material = {
                "question": actual.user_content.text,
                "answer": answer_of(actual, exam),
                "steps": _steps(actual),
                "tools": _tools(actual),
                "rubrics": [{"rubric_id": id, "property": text} for id, text in rubrics.items()],
            }
            found = await judging.rubric_verdicts(judge, times, task, material, list(rubrics))
            scores = [RubricScore(rubric_id=id, score=got, rationale=why) for id, (got, why) in found.items()]
            mean = sum(got for got, _ in found.values()) / len(found)
            marks.append(Mark(mean, MetricDetails(rubric_scores=scores)))
        return marks

    return score


def _rubrics_of(exam: Exam, expected: Invocation, kind: str) -> dict[str, str]:
    """Id -> text, of the criterion, the case and the turn; the last two may be meant for other metrics."""
    near: list[Rubric] = [r for r in [*exam.case.rubrics, *expected.rubrics] if r.type.upper() in ("", kind)]
    return {r.rubric_id: r.rubric_content.text_property for r in [*exam.criterion.rubrics, *near]}


async def hallucinations(exam: Exam) -> list[Mark]:
    options = exam.criterion.judge_model_options
    judge, times = exam.judges.of(options), judging.samples(options)
    marks: list[Mark] = []
    for _, actual in exam.turns:
        texts = [actual.text]
        if exam.criterion.evaluate_intermediate_nl_responses:
            texts = [*(step.content.text for step in actual.steps if step.content is not None), *texts]
        context = {"instructions": _instructions(actual), "tools": _tools(actual), "steps": _steps(actual)}
        question = actual.user_content.text
        shares = [
            await judging.grounded(judge, times, {"question": question, "answer": text, "context": context})
            for text in texts
            if text.strip()
        ]
        marks.append(Mark(sum(shares) / len(shares) if shares else None))
    return marks


def _steps(turn: Invocation) -> list[object]:
    def told(step: InvocationEvent) -> list[object]:
        content = step.content
        if content is None:
            return []
        calls = [{"call": call.name, "args": call.args} for call in content.calls]
        results = [{"result_of": response.name, "result": response.response} for response in content.responses]
        return [*calls, *results, *([{"says": content.text}] if content.text else [])]

    return [item for step in turn.steps for item in told(step)]


def _tools(turn: Invocation) -> list[object]:
    details = turn.app_details.agent_details.values() if turn.app_details is not None else ()
    return [tool for agent in details for tool in agent.tool_declarations]


def _instructions(turn: Invocation) -> list[str]:
    details = turn.app_details.agent_details.values() if turn.app_details is not None else ()
    return [agent.instructions for agent in details if agent.instructions]
