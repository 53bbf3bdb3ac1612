"""Approvals answered together, apart, in any order and in part: each call is carried out as decided, once (spec core 3.11)."""

from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from polyport import App, Content, LlmAgent, Part
from polyport.data.content import FunctionResponse
from polyport.errors import Conflict
from polyport.testing import ScriptedModel, call
from support.approvals import ASK, Till


@st.composite
def plans(draw: st.DrawFn) -> list[list[tuple[int, bool]]]:
    """Messages, each with some (call, verdict) pairs; some calls may never be answered, some messages are empty: plain text."""
    calls = draw(st.permutations(range(draw(st.integers(1, 5)))))
    messages: list[list[tuple[int, bool]]] = [[] for _ in range(draw(st.integers(1, 4)))]
    for number in calls:
        if draw(st.integers(0, 5)):
            messages[draw(st.integers(0, len(messages) - 1))].append((number, draw(st.booleans())))
    return messages


def reply(ids: dict[int, str], pairs: list[tuple[int, bool]]) -> Content:
    parts = [
        Part(function_response=FunctionResponse(id=ids[n], name=ASK, response={"confirmed": yes})) for n, yes in pairs
    ]
    return Content(role="user", parts=parts or [Part(text="and?")])


async def carried_out(total: int, messages: list[list[tuple[int, bool]]]) -> None:
    till, asked = Till(), [0]

    async def answer(request: Any, on_partial: Any) -> str:
        asked[0] += 1
        return "text"

    calls = [call("pay", {"amount": n}, f"c{n}") for n in range(total)]
    agent = LlmAgent(name="app", model=ScriptedModel(calls, *[answer] * 9), tools=till.tools)
    app = App(agent)
    first = await app.ask("go", session="s1")
    wanted = first.events[-1].calls
    ids = {c.args["originalFunctionCall"]["args"]["amount"]: c.id for c in wanted}
    settled: dict[int, bool] = {}
    for pairs in messages:
        before, paid = asked[0], list(till.paid)
        got = await app.ask(reply(ids, pairs), session="s1")
        settled.update(pairs)
        told = [r.id for e in got.events for r in e.responses]
        assert told == [f"c{n}" for n in sorted(n for n, _ in pairs)], "in the order of the calls"
        assert sorted(till.paid) == sorted([*paid, *(n for n, yes in pairs if yes)])
        assert asked[0] - before == (1 if not pairs or len(settled) == total else 0)
        assert (got.outcome.status == "paused") is bool(pairs and len(settled) < total)
        for number, yes in pairs:
            try:
                await app.ask(reply(ids, [(number, not yes)]), session="s1")
                raise AssertionError("an answer was taken twice")
            except Conflict:
                pass
    assert sorted(till.paid) == sorted(n for n, yes in settled.items() if yes)


@settings(max_examples=40, deadline=None)
@given(plans())
def test_core_79_82_FR_132_in_any_order_and_in_part(messages: list[list[tuple[int, bool]]]):
    total = max((n for pairs in messages for n, _ in pairs), default=0) + 1
    anyio.run(carried_out, total, messages)
