"""The skills in an agent's card: what it is, its tools and its sub-agents, in the words of their descriptions (spec a2a 3.7).

Used by the card. Instructions are never published. Toolsets are not asked for their tools, for that may need a network. Pure.
"""

from collections.abc import Iterator, Sequence

from msgspec import structs

from polyport.agents.flows import LoopAgent, ParallelAgent, SequentialAgent
from polyport.engine.spec import LlmSpec
from polyport.ports.agent import Agent, Tool, Tree
from polyport.wire.a2a_card import AgentSkill
from polyport.workflow import Workflow
from polyport.workflow.tool_node import ToolCaller

LLM = "llm"
_KINDS: tuple[tuple[type[Agent], str, str], ...] = (
    (LlmSpec, LLM, "An LLM-based agent"),
    (SequentialAgent, "sequential_workflow", "A sequential workflow agent"),
    (ParallelAgent, "parallel_workflow", "A parallel workflow agent"),
    (LoopAgent, "loop_workflow", "A loop workflow agent"),
    (Workflow, "graph_workflow", "A workflow of joined nodes"),
    (Agent, "custom_agent", "A custom agent"),
)


def kind_of(agent: Agent) -> tuple[str, str]:
    """The tag of an agent's kind, and what it is called when it has no description."""
    return next((tag, text) for kind, tag, text in _KINDS if isinstance(agent, kind))


def describe_agent(agent: Agent) -> str:
    """An agent's description and, for a workflow, what its sub-agents do in it."""
    found = " ".join(filter(None, (agent.description.strip(), _course(agent))))
    return found or kind_of(agent)[1]


def skills_of(tree: Tree, root: Agent) -> list[AgentSkill]:
    """The skills of an agent and, one level down, of its sub-agents; ids are unique (T010)."""
    found = list(_own(tree, root))
    for child in _members(root):
        for skill in _own(tree, child):
            found.append(
                structs.replace(
                    skill,
                    id=f"{child.name}_{skill.id}",
                    name=f"{child.name}: {skill.name}",
                    tags=[f"sub_agent:{child.name}", *skill.tags],
                )
            )
    return _unique(found)


def _own(tree: Tree, agent: Agent) -> Iterator[AgentSkill]:
    tag, _ = kind_of(agent)
    description = describe_agent(agent)
    if isinstance(agent, LlmSpec):
        yield AgentSkill(id=agent.name, name="model", description=description, tags=[LLM])
        for tool in tree.bound(agent).tools:
            if isinstance(tool, Tool):
                yield _tool(agent, tool)
        return
    name = "custom" if tag == "custom_agent" else "workflow"
    yield AgentSkill(id=agent.name, name=name, description=description, tags=[tag])
    members = _members(agent)
    if members:
        listed = "; ".join(child.description.strip() or "No description" for child in members)
        yield AgentSkill(
            id=f"{agent.name}-sub-agents",
            name="sub-agents",
            description=f"Orchestrates: {listed}",
            tags=[tag, "orchestration"],
        )


def _members(agent: Agent) -> list[Agent]:
    """The sub-agents that somebody gave; what calls a tool in a workflow is none."""
    return [child for child in agent.sub_agents if not isinstance(child, ToolCaller)]


def _tool(agent: Agent, tool: Tool) -> AgentSkill:
    description = str(getattr(tool, "description", "") or "").strip() or f"Tool: {tool.name}"
    return AgentSkill(id=f"{agent.name}-{tool.name}", name=tool.name, description=description, tags=[LLM, "tools"])


def _unique(skills: Sequence[AgentSkill]) -> list[AgentSkill]:
    taken: set[str] = set()
    found: list[AgentSkill] = []
    for skill in skills:
        id, count = skill.id, 1
        while id in taken:
            count += 1
            id = f"{skill.id}-{count}"
        taken.add(id)
        found.append(structs.replace(skill, id=id))
    return found


def _course(agent: Agent) -> str:
    """What the sub-agents of a workflow do, as sentences."""
    steps = [_step(child) for child in agent.sub_agents]
    if not steps or not isinstance(agent, SequentialAgent | ParallelAgent | LoopAgent):
        return ""
    if isinstance(agent, SequentialAgent):
        last = len(steps) - 1
        words = ["First" if i == 0 else "Finally" if i == last else "Then" for i in range(len(steps))]
        return " ".join(f"{word}, this agent will {step}." for word, step in zip(words, steps, strict=True))
    listed = steps[0] if len(steps) == 1 else f"{', '.join(steps[:-1])} and {steps[-1]}"
    if isinstance(agent, ParallelAgent):
        return f"This agent will {listed} simultaneously."
    times = getattr(agent, "max_iterations", 0) or "unlimited"
    return f"This agent will {listed} in a loop (max {times} iterations)."


def _step(child: Agent) -> str:
    text = child.description.strip().rstrip(".")
    return text[:1].lower() + text[1:] if text else f"execute the {child.name} agent"
