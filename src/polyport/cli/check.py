"""`polyport check`: load agents as `serve` would and show what they are and what looks wrong."""

import sys

from polyport.app import App
from polyport.cli.words import make_app
from polyport.config.text import count
from polyport.engine.spec import LlmSpec
from polyport.engine.tree import AgentTree
from polyport.ports.agent import Agent, Tool


def report(words: list[str]) -> None:
    """Print the agents; warnings go to standard error. Raises ConfigError on a mistake."""
    app: App = make_app(words)
    warnings: list[str] = []
    for name, tree in app.trees.items():
        print(f"app {name}")
        _show(tree, tree.root, "  ", warnings)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print("ok" if not warnings else f"ok, with {count(len(warnings), 'warning')}")


def _show(tree: AgentTree, agent: Agent, indent: str, warnings: list[str]) -> None:
    kind = type(agent).__name__
    if not isinstance(agent, LlmSpec):
        print(f"{indent}{agent.name} ({kind})")
    else:
        bound = tree.bound(agent)
        print(f"{indent}{agent.name} ({kind}, model {bound.model.name})")
        if not agent.instruction and not agent.global_instruction:
            warnings.append(f"agent {agent.name!r} has no instruction")
        for item in bound.tools:
            declaration = item.declaration() if isinstance(item, Tool) else None
            names = ", ".join(declaration.parameters.get("properties", {})) if declaration is not None else "..."
            print(f"{indent}  tool {item.name}({names})")
            if declaration is not None and not declaration.description:
                warnings.append(f"tool {item.name!r} of agent {agent.name!r} has no description; write a docstring")
    parent = tree.parent(agent)
    if isinstance(parent, LlmSpec) and not agent.description:
        warnings.append(
            f"agent {agent.name!r} has no description, so {parent.name!r} cannot know when to hand over to it"
        )
    for child in agent.sub_agents:
        _show(tree, child, indent + "  ", warnings)
