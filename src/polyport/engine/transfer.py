"""Handing the conversation to another agent of the tree (spec core 3.7).

Used by the request preparation. A bad target is a tool error that the model sees (core 12.20), never the end of the run.
"""

from typing import Any

from polyport.data.model import ToolDeclaration
from polyport.engine.spec import LlmSpec
from polyport.errors import BadRequest
from polyport.ports.agent import Agent, Tool, ToolContext, Tree

NAME = "transfer_to_agent"


def targets(tree: Tree, agent: LlmSpec) -> list[Agent]:
    """Sub-agents, then the parent and its other children where the agent may; the latter only below an LLM agent. One that
    works for a call has its own sub-agents only: its result belongs to the caller."""
    found = [child for child in agent.sub_agents if _takes_over(child)]
    parent = tree.parent(agent)
    if parent is not None and isinstance(parent, LlmSpec) and agent.mode == "chat":
        if not agent.disallow_transfer_to_parent:
            found.append(parent)
        if not agent.disallow_transfer_to_peers:
            found.extend(peer for peer in parent.sub_agents if peer is not agent and _takes_over(peer))
    return found


def _takes_over(agent: Agent) -> bool:
    """Whether the conversation may be handed over to it; an agent in another mode is called as a tool (spec core 3.7)."""
    return not isinstance(agent, LlmSpec) or agent.mode == "chat"


def instruction(tree: Tree, agent: LlmSpec, found: list[Agent]) -> str:
    lines = [f"- {a.name}: {a.description or 'no description'}" for a in found]
    text = (
        f"If another agent fits the request better, call `{NAME}` with its name and say nothing else. "
        "If you are the best fit, answer yourself. The agents:\n" + "\n".join(lines)
    )
    parent = tree.parent(agent)
    if parent is not None and parent in found:
        text += f"\nIf none of them fits and it is not your subject either, hand over to your parent, {parent.name}."
    return text


class TransferTool(Tool):
    """The tool that the model calls to hand over."""

    name = NAME
    description = "Hand the conversation over to another agent."
    idempotent = True

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(
            name=NAME,
            description=self.description,
            parameters={
                "type": "object",
                "properties": {"agent_name": {"type": "string", "enum": self._names, "description": "who goes on"}},
                "required": ["agent_name"],
            },
        )

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        name = args.get("agent_name")
        if not isinstance(name, str) or name.strip() not in self._names:
            raise BadRequest(f"agent_name must be one of: {', '.join(self._names)}; got {name!r}", "agent_name")
        ctx.actions.transfer_to_agent = name.strip()
        return {}
