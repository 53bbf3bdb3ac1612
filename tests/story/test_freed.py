"""What a run held is given back when it ends, and not only when the garbage collector comes: a history may be long."""

import gc

import pytest

from polyport import App, LlmAgent
from polyport.ports.agent import RunScope
from polyport.testing import ScriptedModel, call


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def scopes() -> list[str]:
    return [one.id for one in gc.get_objects() if isinstance(one, RunScope)]


@pytest.mark.parametrize("answers", [["hello"], [call("add", {"a": 1, "b": 2}), "3"]], ids=["text", "tool"])
async def test_a_run_that_ended_is_freed_at_once(answers: list[object]) -> None:
    model = ScriptedModel(*answers)
    async with App(LlmAgent(name="one", model=model, tools=[add])) as app:
        gc.collect()
        gc.disable()
        try:
            before = scopes()
            await app.ask("hi")
            assert [id for id in scopes() if id not in before] == []
        finally:
            gc.enable()
