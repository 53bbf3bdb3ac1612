"""Telemetry of workflows: a span for the graph and for each of its nodes (spec core 10)."""

from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from polyport import App, LlmAgent
from polyport.testing import ScriptedModel
from polyport.workflow import START, NodeContext, Workflow, parallel
from support.spans import Telemetry


def first(text: str) -> str:
    return text + "!"


async def asked(root: Any, telemetry: Telemetry) -> Any:
    return await App(root, plugins=[telemetry.plugin]).ask("hello", session="s1")


async def test_core_123_a_workflow_and_its_nodes_have_spans():
    telemetry = Telemetry()
    writer = LlmAgent(name="writer", model=ScriptedModel("Written.", name="mock"))
    reply = await asked(Workflow("flow", edges=[(START, first, writer)]), telemetry)
    assert reply.outcome.status == "finished"
    assert telemetry.tree() == [
        "invoke_workflow flow",
        "  invoke_node first",
        "  invoke_agent writer",
        "    generate_content mock",
    ]
    assert telemetry.attributes("invoke_workflow flow") == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "flow",
        "gen_ai.conversation.id": "s1",
    }
    assert telemetry.attributes("invoke_node first") == {
        "gen_ai.operation.name": "invoke_node",
        "gen_ai.node.name": "first",
        "gen_ai.conversation.id": "s1",
    }


async def test_core_123_each_item_of_a_parallel_worker_has_a_span():
    telemetry = Telemetry()

    def split(text: str) -> list[str]:
        return [text, text]

    await asked(Workflow("flow", edges=[(START, split, parallel(first))]), telemetry)
    tree = telemetry.tree()
    assert tree[:2] == ["invoke_workflow flow", "  invoke_node split"]
    assert tree.count("    invoke_node first") == 2


async def test_core_123_a_node_that_waits_is_no_error_and_one_that_fails_is():
    telemetry = Telemetry()

    async def ask(text: str, ctx: NodeContext) -> None:
        await ctx.request_input("Go on?")

    reply = await asked(Workflow("flow", edges=[(START, ask)]), telemetry)
    assert reply.outcome.status == "paused"
    assert {span.status.status_code for span in telemetry.spans()} == {StatusCode.UNSET}

    def fails(text: str) -> str:
        raise ValueError("secret")

    telemetry = Telemetry()
    with pytest.raises(ValueError, match="secret"):
        await asked(Workflow("flow", edges=[(START, fails)]), telemetry)
    for span in telemetry.spans():
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "ValueError"
        assert "secret" not in span.to_json()
    assert len(telemetry.spans()) == 2
