"""Stories: behaviour end to end, in memory, through the public door."""

from collections.abc import Callable
from typing import Any

import pytest

from polyport import LlmAgent
from polyport.testing import ScriptedModel
from support.talk import Serve, serving


@pytest.fixture
def serve() -> Serve:
    """`async with serve(agent, **options of App) as talk`: the agent served in memory, session s1 of user u1 made."""
    return serving


@pytest.fixture
def scripted() -> Callable[..., tuple[LlmAgent, ScriptedModel]]:
    """`agent, model = scripted("hello", tools=[...])`: an LLM agent on a script."""

    def make(
        *steps: Any, name: str = "app", schema_with_tools: bool = False, **fields: Any
    ) -> tuple[LlmAgent, ScriptedModel]:
        model = ScriptedModel(*steps, schema_with_tools=schema_with_tools)
        return LlmAgent(name=name, model=model, **fields), model

    return make
