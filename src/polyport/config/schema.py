"""What an agent file may say: a Struct for each kind of mapping, the one source for reading, for messages and for editors.

Read by the builders (`yaml_agents`, `yaml_tools`, ...), and by `json_schema` for the schema that editors use. Fields are the
keys. A field of the type Node is looked at later, when it is known what it should be. Holds values only.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from polyport.config.yaml_read import Section
from polyport.config.yaml_text import Node
from polyport.data.limits import Limits


class CodeSection(Section, kw_only=True):
    what: ClassVar[str] = "a code reference"
    name: Annotated[str, Meta(description="What to take: `module:attr` or `module.attr`.")] = ""
    code: Annotated[str, Meta(description="The same as `name`.")] = ""
    args: Annotated[Node | None, Meta(description="Call it with these; what comes back is taken.")] = None
    params: Annotated[Node | None, Meta(description="The same as `args`.")] = None


Code = str | CodeSection
Callbacks = str | CodeSection | list[str | CodeSection]


class AgentSection(Section, kw_only=True):
    """The keys of every agent."""

    what: ClassVar[str] = "an agent"
    agent_class: Annotated[
        str, Meta(description="What kind of agent; or `module:Class` for an agent class of your own.")
    ] = "LlmAgent"
    name: Annotated[str, Meta(description="An identifier, unique in its tree.")]
    description: Annotated[str, Meta(description="What the agent is for: other agents and callers read it.")] = ""
    sub_agents: Annotated[list[Node], Meta(description="`config_path`, `code`, or an agent that is written here.")] = []
    before_agent_callbacks: Callbacks = []
    after_agent_callbacks: Callbacks = []


class ModelSection(Section, kw_only=True):
    what: ClassVar[str] = "a model"
    type: Annotated[
        str, Meta(description="The provider: gemini, openai, anthropic, ollama, vllm, llamacpp, lmstudio or demo.")
    ] = ""
    provider: Annotated[str, Meta(description="The same as `type`.")] = ""
    name: Annotated[str, Meta(description="The model's name; with its provider if `type` does not say it.")] = ""
    api_key: Annotated[str, Meta(description="The key, as `!env NAME`. Default: the provider's own variable.")] = ""
    base_url: Annotated[str, Meta(description="Where the API is.")] = ""
    api_base: Annotated[str, Meta(description="The same as `base_url`.")] = ""
    headers: Annotated[dict[str, str], Meta(description="Sent with every request.")] = {}
    fallback: Annotated[list[Node], Meta(description="Models that are asked when this one fails.")] = []
    constrained: Annotated[bool, Meta(description="For a small model that cannot call tools: it answers in JSON.")] = (
        False
    )
    code: Annotated[str, Meta(description="A model object, or a function that makes one: `module:attr`.")] = ""
    args: Annotated[Node | None, Meta(description="Call `code` with these.")] = None


class ThinkingSection(Section, kw_only=True):
    what: ClassVar[str] = "thinking_config"
    folded: ClassVar[bool] = True
    thinking_budget: int | None = None
    include_thoughts: bool = False


class GenerateSection(Section, kw_only=True):
    what: ClassVar[str] = "generate_content_config"
    folded: ClassVar[bool] = True
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] = []
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    thinking_budget: int | None = None
    include_thoughts: bool = False
    thinking_config: ThinkingSection | None = None
    tool_choice: Annotated[str, Meta(description="auto, none, any, or the name of the tool that must be called.")] = (
        "auto"
    )
    headers: Annotated[dict[str, str], Meta(description="Added to the HTTP request.")] = {}
    extra: Annotated[Node | None, Meta(description="Merged into the provider's request body as it is.")] = None


class TextFileSection(Section, kw_only=True):
    what: ClassVar[str] = "a text in a file"
    file: Annotated[str, Meta(description="A text file of the project; read when the agent is loaded.")] = ""
    name: str = ""
    code: Annotated[str, Meta(description="A function `(context)` that gives the text: `module:attr`.")] = ""
    args: Node | None = None
    params: Node | None = None


class LlmSection(AgentSection, kw_only=True):
    what: ClassVar[str] = "an LlmAgent"
    model: Annotated[
        str | ModelSection, Meta(description="Such as gemini-flash-latest, openai/gpt-5-mini, ollama/llama3.2 or demo.")
    ] = ""
    instruction: Annotated[
        str | TextFileSection, Meta(description="A template: {key}, {key?}, {artifact.name}. Or a file, or code.")
    ] = ""
    global_instruction: Annotated[
        str | TextFileSection, Meta(description="Of the root: for all agents below it, too.")
    ] = ""
    tools: Annotated[list[Node], Meta(description="Names of built-in tools, code references, or toolsets.")] = []
    generate_content_config: GenerateSection | None = None
    mode: Annotated[
        Literal["chat", "task", "single_turn"], Meta(description="How the LLM agent above uses this one.")
    ] = "chat"
    input_schema: Annotated[Node | None, Meta(description="A JSON Schema of an object, or a type by code.")] = None
    output_schema: Annotated[Node | None, Meta(description="A JSON Schema, or a type by code.")] = None
    output_key: Annotated[str, Meta(description="Where the answer goes in the state.")] = ""
    include_contents: Annotated[
        Literal["default", "none"], Meta(description="Whether the agent sees the conversation.")
    ] = "default"
    disallow_transfer_to_parent: bool = False
    disallow_transfer_to_peers: bool = False
    before_model_callbacks: Callbacks = []
    after_model_callbacks: Callbacks = []
    on_model_error_callbacks: Callbacks = []
    before_tool_callbacks: Callbacks = []
    after_tool_callbacks: Callbacks = []
    on_tool_error_callbacks: Callbacks = []
    app: Annotated[Node | None, Meta(description="Of the root file: settings of the whole app.")] = None


class SequentialSection(AgentSection, kw_only=True):
    what: ClassVar[str] = "a SequentialAgent"
    app: Node | None = None


class ParallelSection(AgentSection, kw_only=True):
    what: ClassVar[str] = "a ParallelAgent"
    app: Node | None = None


class LoopSection(AgentSection, kw_only=True):
    what: ClassVar[str] = "a LoopAgent"
    max_iterations: Annotated[int, Meta(description="Rounds at most; 0 is no limit.")] = 0
    app: Node | None = None


class RemoteSection(AgentSection, kw_only=True):
    what: ClassVar[str] = "a RemoteAgent"
    url: Annotated[str, Meta(description="The agent's base URL, over A2A.")] = ""
    card_url: Annotated[str, Meta(description="The URL of its card, instead.")] = ""
    card: Annotated[Node | None, Meta(description="The card itself, or a JSON file of the project.")] = None
    headers: Annotated[dict[str, str], Meta(description="Sent with every request; secrets as `!env NAME`.")] = {}
    header_provider: Annotated[Code, Meta(description="A function `(context)` that gives more headers.")] = ""
    metadata: Annotated[Node | None, Meta(description="Goes with each message.")] = None
    stream: bool = True
    escalate: bool = False
    cancel_remote: bool = True
    cancel_timeout_s: float = 5.0
    before_request: Code = ""
    after_event: Code = ""
    app: Node | None = None


class FunctionSection(AgentSection, kw_only=True):
    what: ClassVar[str] = "a FunctionAgent"
    function: Annotated[Code, Meta(description="`async def f(context)` that emits or yields events.")]
    app: Node | None = None


class SubAgentSection(Section, kw_only=True):
    what: ClassVar[str] = "a sub-agent by reference"
    config_path: Annotated[str, Meta(description="A file of the project, relative to this one.")] = ""
    code: Annotated[str, Meta(description="An agent, or a function that makes one: `module:attr`.")] = ""
    args: Node | None = None


AGENTS: dict[str, type[AgentSection]] = {
    "LlmAgent": LlmSection,
    "SequentialAgent": SequentialSection,
    "ParallelAgent": ParallelSection,
    "LoopAgent": LoopSection,
    "RemoteAgent": RemoteSection,
    "FunctionAgent": FunctionSection,
}
"""agent_class -> its keys."""

# ---- tools


class ToolSection(Section, kw_only=True):
    what: ClassVar[str] = "a tool"
    name: Annotated[str, Meta(description="A built-in tool, a toolset, or a code reference.")]
    args: Annotated[Node | None, Meta(description="What the tool is made with.")] = None
    require_confirmation: Annotated[
        bool | str, Meta(description="A human approves each call; or a predicate by code.")
    ] = False


class AgentToolArgs(Section, kw_only=True):
    what: ClassVar[str] = "the args of AgentTool"
    agent: Annotated[Node, Meta(description="`config_path`, `code`, or an agent that is written here.")]
    description: str = ""
    input_schema: Node | None = None
    skip_summarization: bool = False
    show_events: Annotated[bool, Meta(description="Whether those who watch see what the agent does.")] = False


class FunctionToolArgs(Section, kw_only=True):
    what: ClassVar[str] = "the args of a function tool"
    func: Annotated[Code, Meta(description="The function: `module:attr`.")]
    name: Annotated[str, Meta(description="Default: the function's name.")] = ""
    description: Annotated[str, Meta(description="Default: the function's docstring.")] = ""
    idempotent: Annotated[bool, Meta(description="May be carried out again when a run is resumed.")] = False
    parameters: Annotated[Node | None, Meta(description="A JSON Schema instead of the type hints.")] = None


class ExampleSection(Section, kw_only=True):
    what: ClassVar[str] = "an example"
    input: Annotated[Node, Meta(description="A text, or a content with `role` and `parts`.")]
    output: Annotated[Node, Meta(description="The answer, or a list of its steps.")]


class ExampleToolArgs(Section, kw_only=True):
    what: ClassVar[str] = "the args of ExampleTool"
    examples: Annotated[list[ExampleSection] | str, Meta(description="Examples, or a function that finds some.")]


class ServerSection(Section, kw_only=True):
    what: ClassVar[str] = "an MCP server on this machine"
    command: str
    args: list[Node] = []
    env: Annotated[dict[str, str], Meta(description="Added to the few variables it inherits.")] = {}
    cwd: Annotated[str, Meta(description="A folder of the project.")] = ""


class StdioSection(Section, kw_only=True):
    what: ClassVar[str] = "stdio_connection_params"
    server_params: ServerSection
    timeout: Annotated[float | None, Meta(description="Seconds to connect.")] = None


class HttpSection(Section, kw_only=True):
    what: ClassVar[str] = "an MCP server at a URL"
    url: str
    headers: Annotated[dict[str, str], Meta(description="Secrets as `!env NAME`.")] = {}
    header_provider: Annotated[Code, Meta(description="A function `(context)` that gives more headers.")] = ""
    timeout: Annotated[float | None, Meta(description="Seconds to connect.")] = None


class McpToolsetArgs(Section, kw_only=True):
    what: ClassVar[str] = "the args of McpToolset"
    stdio_connection_params: StdioSection | None = None
    stdio_server_params: Annotated[ServerSection | None, Meta(description="The server alone, without a timeout.")] = (
        None
    )
    streamable_http_connection_params: HttpSection | None = None
    tool_filter: Annotated[list[Node] | None, Meta(description="Names of the tools to offer. Default: all.")] = None
    tool_name_prefix: Annotated[str, Meta(description="`prefix_` goes before the tools' names.")] = ""
    use_resources: Annotated[bool, Meta(description="Let the model read the server's resources.")] = False
    call_timeout: Annotated[float | None, Meta(description="Seconds for one call.")] = None


class AuthSection(Section, kw_only=True):
    what: ClassVar[str] = "auth"
    bearer: Annotated[str, Meta(description="A token, as `!env NAME`.")] = ""
    api_key: Annotated[str, Meta(description="A key, as `!env NAME`.")] = ""
    name: Annotated[str, Meta(description="Of the header, query field or cookie of the API key.")] = "X-API-Key"
    place: Literal["header", "query", "cookie"] = "header"
    user: str = ""
    password: Annotated[str, Meta(description="Of `user`, as `!env NAME`.")] = ""
    code: Annotated[str, Meta(description="A credential, or a function `(context)` that gives headers.")] = ""


class OpenApiToolsetArgs(Section, kw_only=True):
    what: ClassVar[str] = "the args of OpenApiToolset"
    spec: Annotated[Node, Meta(description="A file of the project, an http(s) URL, or the document itself.")]
    base_url: str = ""
    include: Annotated[list[str] | str | None, Meta(description="Patterns of tool names, or of `GET /path`.")] = None
    exclude: list[str] | str | None = None
    prefix: str = ""
    headers: dict[str, str] = {}
    auth: Annotated[str | AuthSection | None, Meta(description="A secret for the only scheme, or a credential.")] = None
    timeout_s: float = 30.0
    name: str = "openapi"


class SkillToolsetArgs(Section, kw_only=True):
    what: ClassVar[str] = "the args of SkillToolset"
    folders: Annotated[list[str] | str, Meta(description="Folders of the project.")] = "skills"
    name: str = "skills"


class RemoteAgentToolArgs(Section, kw_only=True):
    what: ClassVar[str] = "the args of RemoteAgentTool"
    name: str
    endpoint: Annotated[str, Meta(description="The agent's base URL, or that of its card.")]
    description: str = ""
    headers: dict[str, str] = {}


TOOLS: dict[str, type[Section]] = {
    "AgentTool": AgentToolArgs,
    "FunctionTool": FunctionToolArgs,
    "LongRunningFunctionTool": FunctionToolArgs,
    "ExampleTool": ExampleToolArgs,
    "McpToolset": McpToolsetArgs,
    "MCPToolset": McpToolsetArgs,
    "OpenApiToolset": OpenApiToolsetArgs,
    "SkillToolset": SkillToolsetArgs,
    "RemoteAgentTool": RemoteAgentToolArgs,
}
"""Name -> its args."""

# ---- the app


class CompactionSection(Section, kw_only=True):
    what: ClassVar[str] = "compaction"
    token_threshold: int | None = None
    event_retention_size: int | None = None
    compaction_interval: int | None = None
    overlap_size: int | None = None
    summariser: Annotated[str, Meta(description="An async function by code. Default: a model is asked.")] = ""
    model: str = ""
    summary_tokens: int = 4096
    part_chars: int = 20_000
    timeout_s: float = 30.0


class AppSection(Section, kw_only=True):
    what: ClassVar[str] = "app"
    plugins: Annotated[
        list[str | CodeSection], Meta(description="Names of Polyport's plugins, or code references.")
    ] = []
    compaction: CompactionSection | None = None
    limits: Annotated[Limits | None, Meta(description="Numbers that keep callers from using up the server.")] = None
    remember: Annotated[bool, Meta(description="Sessions go into memory when a run ends.")] = False
    stores: Annotated[str, Meta(description="Where sessions live, such as sqlite:///data.db.")] = ""
    protocols: Annotated[list[Literal["rest", "mcp", "a2a"]], Meta(description="What is served. Default: rest.")] = []
