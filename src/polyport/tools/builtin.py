"""Small tools that come with Polyport: `exit_loop`, and the tools that Gemini models run themselves (spec core 6.5).

Used in `LlmAgent(tools=[exit_loop, google_search])`, and by name (BUILTIN) in agent files. Gemini's tools have no code here:
they add to a request what makes the provider use them.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from msgspec import structs

from polyport.data.model import ModelRequest, ToolDeclaration
from polyport.errors import AgentError, ConfigError
from polyport.ports.agent import CallbackContext, Tool, ToolContext
from polyport.ports.stores import Stores
from polyport.tools.artifacts import load_artifacts
from polyport.tools.memory import load_memory, preload_memory

GEMINI_NAMES = r"(?:models/|tunedModels/|(?:projects/.+/)?publishers/google/models/)?(?:gemini|gemma|learnlm)[\w.-]*"
"""The names of models that take Gemini's own tools; `google/gemini-...` is how other APIs call them."""


class ExitLoop(Tool):
    """Ends the loop that the agent is in, without a last word of the model."""

    name = "exit_loop"
    description = (
        "End the loop. Call it only when you were told that the loop may end, and the condition for that is met."
    )
    idempotent = True

    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(name=self.name, description=self.description)

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        ctx.actions.escalate = True
        ctx.actions.skip_summarization = True
        return {}


class GeminiTool(Tool):
    """A tool that the Gemini API runs itself: `tool` is the member of the request's `tools`, such as `{"googleSearch": {}}`.

    For models whose name fits the regular expression `models`; with any other one the request fails with ConfigError. It is
    added to `config.extra["tools"]`, which `wire/gemini_request` appends to the declared functions.
    """

    def __init__(self, name: str, tool: dict[str, Any], *, models: str = GEMINI_NAMES) -> None:
        self.name = name
        self._tool = tool
        self._models = re.compile(models)

    async def prepare(self, ctx: CallbackContext, request: ModelRequest) -> None:
        if not self._models.fullmatch(request.model):
            raise ConfigError(
                f"agent {ctx.agent_name!r} has the tool {self.name}, which only Gemini models can use, but its model is "
                f"{request.model!r}: take the tool out, or use a model such as gemini-flash-latest"
            )
        extra = request.config.extra
        others = extra.get("tools", [])
        if not isinstance(others, list):
            raise ConfigError(f"config.extra['tools'] of agent {ctx.agent_name!r} must be a list")
        if self._tool not in others:
            tools = [*cast("list[Any]", others), self._tool]
            request.config = structs.replace(request.config, extra={**extra, "tools": tools})

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        raise AgentError(f"{self.name} is not for calling: the model's provider uses it by itself")


exit_loop = ExitLoop()
google_search = GeminiTool("google_search", {"googleSearch": {}})
url_context = GeminiTool("url_context", {"urlContext": {}})
google_maps_grounding = GeminiTool("google_maps_grounding", {"googleMaps": {}})

BUILTIN: Mapping[str, Tool] = MappingProxyType(
    {
        tool.name: tool
        for tool in (
            exit_loop,
            google_search,
            url_context,
            google_maps_grounding,
            load_memory,
            preload_memory,
            load_artifacts,
        )
    }
)
"""Name -> the tool, as agent files name them."""


def missing_stores(tools: Sequence[object], stores: Stores) -> list[str]:
    """What to warn of when an app starts: one line for each tool that needs a store which the app does not have (FR-100)."""
    lines: list[str] = []
    for tool in tools:
        for need in getattr(tool, "needs", ()):
            if getattr(stores, need) is None:
                what = need.removesuffix("s")
                name = getattr(tool, "name", "")
                lines.append(f"the tool {name} needs the {what} store, and none is configured: its calls will fail")
    return lines
