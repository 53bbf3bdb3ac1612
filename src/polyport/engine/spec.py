"""LlmSpec: all that the turn loop needs to know of an LLM agent (spec core 3.1).

Fields only, so that the engine can read an agent without knowing floor 4. `agents.llm.LlmAgent` adds `run`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from polyport.data.model import GenerateConfig
from polyport.errors import ConfigError
from polyport.ports.agent import Agent, ModelCallback, ReadContext, ToolCallback, ToolLike, Tree
from polyport.ports.live import live_model
from polyport.ports.model import Model

DEFAULT_CONFIG = GenerateConfig()

Mode = Literal["chat", "task", "single_turn"]

InstructionProvider = Callable[[ReadContext], Any]
"""`(context)` -> text, sync or async. Its text is not treated as a template."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LlmSpec(Agent):
    """An agent that asks a model. An empty `model` means that of the nearest LLM agent above.

    `mode` says how an LLM agent above uses this one: "chat" hands the conversation over to it; "single_turn" calls it as a
    tool, with one question and one answer; "task" calls it as a tool that may talk with the user until the task is done.
    `input_schema`, a type or a JSON Schema of an object, is what such a call takes; one text `request` by default.

    `instruction` is a template (`{key}`, `{key?}`, `{artifact.name}`) or a function. `output_schema` is a type or a JSON
    Schema; the answer is then JSON of it, and `output_key` stores it parsed. Callbacks may be one function or several.
    """

    model: str | Model = ""
    instruction: str | InstructionProvider = ""
    global_instruction: str | InstructionProvider = ""
    tools: Sequence[ToolLike] = ()
    config: GenerateConfig = DEFAULT_CONFIG
    mode: Mode = "chat"
    input_schema: Any = None
    output_schema: Any = None
    output_key: str = ""
    include_contents: Literal["default", "none"] = "default"
    disallow_transfer_to_parent: bool = False
    disallow_transfer_to_peers: bool = False
    before_model: ModelCallback | Sequence[ModelCallback] = ()
    after_model: ModelCallback | Sequence[ModelCallback] = ()
    on_model_error: ModelCallback | Sequence[ModelCallback] = ()
    before_tool: ToolCallback | Sequence[ToolCallback] = ()
    after_tool: ToolCallback | Sequence[ToolCallback] = ()
    on_tool_error: ToolCallback | Sequence[ToolCallback] = ()

    def __post_init__(self) -> None:
        """ConfigError for what no type checker stopped."""
        _need(self, "model", isinstance(self.model, str) or hasattr(self.model, "generate"), "a name or a Model")
        _need(
            self, "instruction", isinstance(self.instruction, str) or callable(self.instruction), "text or a function"
        )
        _need(self, "tools", hasattr(self.tools, "__iter__") and not isinstance(self.tools, str), "a list")
        _need(self, "include_contents", self.include_contents in ("default", "none"), '"default" or "none"')


def can_be_live(tree: Tree, agent: Agent) -> bool:
    """Whether an agent of the tree can take part in a live session."""
    return live_model(tree.bound(agent).model) is not None if isinstance(agent, LlmSpec) else agent.live


def _need(agent: LlmSpec, field: str, fits: bool, wanted: str) -> None:
    if not fits:
        given = getattr(agent, field)
        shown = repr(given) if isinstance(given, str) else f"a {type(given).__name__}"
        raise ConfigError(f"agent {agent.name!r}: {field}= takes {wanted}, not {shown}")
