"""Polyport: write an agent once; run it and serve it over every protocol its callers speak.

The names below are all that most users need; `__init__.pyi` tells type checkers the same. They are loaded on first touch, so
that importing polyport is cheap and pulls in no server.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "App": "polyport.app",
    "Reply": "polyport.app",
    "Agent": "polyport.ports.agent",
    "AgentTool": "polyport.tools.agent_tool",
    "CallbackContext": "polyport.ports.agent",
    "CompactionConfig": "polyport.data.compaction",
    "Content": "polyport.data.content",
    "Event": "polyport.data.event",
    "FunctionAgent": "polyport.agents.flows",
    "GenerateConfig": "polyport.data.model",
    "HttpServer": "polyport.tools.mcp",
    "Limits": "polyport.data.limits",
    "LlmAgent": "polyport.agents.llm",
    "LoopAgent": "polyport.agents.flows",
    "make_tool": "polyport.tools.function",
    "McpToolset": "polyport.tools.mcp",
    "Model": "polyport.ports.model",
    "ModelRequest": "polyport.data.model",
    "ModelResponse": "polyport.data.model",
    "OpenApiToolset": "polyport.tools.openapi",
    "ParallelAgent": "polyport.agents.flows",
    "Part": "polyport.data.content",
    "Plugin": "polyport.ports.plugin",
    "PolyportError": "polyport.errors",
    "ReadContext": "polyport.ports.agent",
    "RemoteAgent": "polyport.agents.remote",
    "RemoteAgentTool": "polyport.agents.remote_tool",
    "RunConfig": "polyport.data.run",
    "RunContext": "polyport.ports.agent",
    "SequentialAgent": "polyport.agents.flows",
    "Session": "polyport.data.session",
    "SessionKey": "polyport.data.session",
    "SkillToolset": "polyport.tools.skills",
    "StdioServer": "polyport.tools.mcp",
    "Stores": "polyport.ports.stores",
    "Tool": "polyport.ports.agent",
    "tool": "polyport.tools.function",
    "ToolContext": "polyport.ports.agent",
    "Toolset": "polyport.ports.agent",
    "Workflow": "polyport.workflow",
}

__version__ = "0.1.0"  # the same as polyport.version.VERSION, kept by a test


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'polyport' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
