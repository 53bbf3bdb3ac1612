"""From an LLM agent and its session to one ModelRequest (spec core 3.4, 3.5).

Called by the turn loop before every model call. Collects tools once per agent run; reads, never writes the session.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from msgspec import structs

from polyport.codec import encode
from polyport.data.content import Part
from polyport.data.model import GenerateConfig, ModelRequest, ToolDeclaration
from polyport.engine import delegation, hooks, instructions, transfer
from polyport.engine.contents import Prompt
from polyport.engine.spec import InstructionProvider, LlmSpec, can_be_live
from polyport.errors import ConfigError, NotFound
from polyport.ports.agent import Bound, CallbackContext, ReadContext, RunContext, Tool, ToolContext

RESULT_TOOL = "set_model_response"


class ResultTool(Tool):
    """The way to a typed answer for models that cannot do tools and a response schema at once (spec core 3.5)."""

    name = RESULT_TOOL
    description = "Give the final answer. Call it last, once, with all required fields."
    idempotent = True

    def __init__(self, bound: Bound) -> None:
        assert bound.output is not None
        self._output = bound.output

    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(name=RESULT_TOOL, description=self.description, parameters=self._output.schema)

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        return {"result": self._output.parse(args)}


class Toolbox:
    """The tools of one agent run: `by_name` are those that the model may call, `all` have a request hook as well."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.all: list[Tool] = []
        self.by_name: dict[str, Tool] = {}
        self.declarations: list[ToolDeclaration] = []
        self.system: list[str] = []
        self.hooked: list[Tool] = []

    def add(self, tool: Tool) -> None:
        name = tool.name
        if not name:
            raise ConfigError(f"a tool of agent {self.owner!r}, a {type(tool).__name__}, has no name")
        if name in self.by_name:
            raise ConfigError(f"two tools of agent {self.owner!r} are named {name!r}; rename one")
        self.all.append(tool)
        self.by_name[name] = tool
        declaration = tool.declaration()
        if declaration is not None:
            self.declarations.append(declaration)
        if type(tool).prepare is not Tool.prepare:
            self.hooked.append(tool)


async def collect_tools(ctx: RunContext, agent: LlmSpec, bound: Bound) -> Toolbox:
    """All tools for this agent run, static ones, those of toolsets, and the engine's own."""
    box = Toolbox(agent.name)
    for item in bound.tools:
        if isinstance(item, Tool):
            box.add(item)
        else:
            for tool in await item.tools(ctx):
                box.add(tool)
    for tool in delegation.child_tools(ctx.tree, agent):
        box.add(tool)
    if agent.mode == "task":
        box.add(delegation.FinishTool(agent, ctx.tree.bound(agent).output))
        box.system.append(delegation.FINISH_NOTE)
    found = transfer.targets(ctx.tree, agent)
    if ctx.scope.live is not None and not ctx.isolation_scope:
        found = [a for a in found if can_be_live(ctx.tree, a)]
    if bound.output is not None and (box.declarations or found) and not bound.model.schema_with_tools:
        box.add(ResultTool(bound))
        box.system.append(f"When you have the answer, call `{RESULT_TOOL}` with it instead of writing text.")
    if found:
        box.add(transfer.TransferTool([a.name for a in found]))
        if agent.mode == "chat":
            box.system.append(transfer.instruction(ctx.tree, agent, found))
    return box


def make_prompt(ctx: RunContext, agent: LlmSpec) -> Prompt:
    """The prompts of one turn: history is read once, later calls of the turn cost their new events only."""
    prompt = Prompt(
        agent=agent.name,
        branch=ctx.branch,
        scope=ctx.isolation_scope,
        include=agent.include_contents,
        window=ctx.scope.config.history_window,
        user_content=ctx.user_content,
        single_turn=agent.mode == "single_turn",
    )
    inner = ctx.scope.delegations.get(ctx.isolation_scope)
    prompt.seed = inner.seed if inner is not None else None
    return prompt


async def make_request(ctx: RunContext, agent: LlmSpec, bound: Bound, box: Toolbox, prompt: Prompt) -> ModelRequest:
    """The request for the next model call, before any hook."""
    scope = ctx.scope
    events = scope.session.events
    prompt.extend(events[prompt.seen :] if prompt.seen else events)
    request = ModelRequest(
        model=bound.model.name,
        contents=prompt.contents(),
        system=await _system(ctx, agent, box),
        tools=list(box.declarations),
        config=_own_config(agent.config),
    )
    if scope.uploads is not None:
        stored, sent = scope.uploads
        request.contents = [sent if c == stored else c for c in request.contents]
    if bound.output is not None and RESULT_TOOL not in box.by_name:
        request.response_schema = bound.output.schema
    return request


def _own_config(config: GenerateConfig) -> GenerateConfig:
    """The agent's settings, for hooks to edit: the agent itself is shared and must not change (spec core 12.6)."""
    return structs.replace(
        config,
        headers=dict(config.headers),
        extra=deepcopy(config.extra) if config.extra else {},
        stop_sequences=list(config.stop_sequences),
    )


async def run_request_hooks(ctx: CallbackContext, box: Toolbox, request: ModelRequest) -> None:
    """Let every tool that wants to edit the request. State that it writes is committed with the model's event."""
    for tool in box.hooked:
        await tool.prepare(ctx, request)


async def _system(ctx: RunContext, agent: LlmSpec, box: Toolbox) -> str:
    root = ctx.tree.root
    root = root if root is not agent and isinstance(root, LlmSpec) else agent
    parts: list[str] = []
    for owner, source in ((root, root.global_instruction), (agent, agent.instruction)):
        if source:
            parts.append(await _text(ctx, source, owner))
    if agent.mode != "single_turn":
        parts.append(instructions.identity_text(agent.name, agent.description))
    parts.extend(box.system)
    return instructions.join(parts)


async def _text(ctx: RunContext, source: str | InstructionProvider, owner: LlmSpec) -> str:
    if isinstance(source, str):
        if "{" not in source:  # as most: nothing to fill in
            return source
        return await instructions.render(source, ctx.state, artifact_text(ctx))
    text = await hooks.ask(source, ReadContext(ctx.scope, ctx.agent, ctx.branch, ctx.isolation_scope))
    if not isinstance(text, str):
        raise ConfigError(f"the instruction function of agent {owner.name!r} gave {type(text).__name__}, not text")
    return text


def artifact_text(ctx: ReadContext) -> Callable[[str], Any] | None:
    """How templates read artifacts: the latest text, "" for one that is no text, None for a missing one."""
    if ctx.scope.stores.artifacts is None:
        return None

    async def load(name: str) -> str | None:
        try:
            part: Part = await ctx.load_artifact(name)
        except NotFound:
            return None
        return part.text or ""

    return load


def result_json(value: Any) -> str:
    """A typed answer as the JSON text of the final event."""
    return encode(value).decode()
