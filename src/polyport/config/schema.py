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
    refresh: Annotated[Code, Meta(description="A function `(context, challenge)`, called after a 401.")] = ""
    metadata: Annotated[Node | None, Meta(description="Goes with each message.")] = None
    configuration: Annotated[Node | None, Meta(description="A2A's SendMessageConfiguration.")] = None
    card_keys: Annotated[list[Node], Meta(description="JWKs: the card must be signed by one of them.")] = []
    options: Annotated[Code, Meta(description="An A2AOptions: limits, trusted hosts, rules for cards.")] = ""
    build_message: Annotated[Code, Meta(description="A function `(context)` that gives the parts to send.")] = ""
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


class WorkflowSection(AgentSection, kw_only=True):
    what: ClassVar[str] = "a Workflow"
    edges: Annotated[
        list[Node], Meta(description="Chains such as [START, first, second] and [decide, {yes: pay, default: refuse}].")
    ]
    nodes: Annotated[dict[str, Node], Meta(description="Nodes and agents by the names that edges use.")] = {}
    max_concurrency: Annotated[int, Meta(description="Nodes at work at once; 0 is no limit.")] = 0
    state_schema: Annotated[Node | None, Meta(description="Names of state keys, or a type by code.")] = None
    app: Node | None = None


class RetrySection(Section, kw_only=True):
    what: ClassVar[str] = "retry"
    max_attempts: Annotated[int, Meta(description="With the first one.")] = 5
    initial_s: float = 1.0
    max_s: float = 60.0
    factor: float = 2.0
    jitter: float = 1.0


class NodeSection(Section, kw_only=True):
    """The keys of the nodes of workflows that do work."""

    what: ClassVar[str] = "a node"
    agent_class: str = ""
    retry: RetrySection | None = None
    timeout_s: float | None = None
    rerun_on_resume: Annotated[
        bool | None, Meta(description="Whether it runs again when its question is answered.")
    ] = None
    wait_for_output: bool = False
    parallel_worker: Annotated[bool, Meta(description="A list goes in, and each item is worked on.")] = False
    parallel_limit: Annotated[int, Meta(description="Items at once; 0 is all.")] = 0
    input_schema: Annotated[Node | None, Meta(description="A type by code.")] = None
    output_schema: Annotated[Node | None, Meta(description="A type by code.")] = None


class FunctionNodeSection(NodeSection, kw_only=True):
    what: ClassVar[str] = "a FunctionNode"
    name: Annotated[str, Meta(description="Default: the function's name.")] = ""
    func_code: Annotated[Code, Meta(description="The function: `module:attr`.")]
    from_state: Annotated[bool, Meta(description="Its parameters are keys of the state.")] = False


class ToolNodeSection(NodeSection, kw_only=True):
    what: ClassVar[str] = "a ToolNode"
    name: Annotated[str, Meta(description="Default: the tool's name.")] = ""
    tool_code: Annotated[str, Meta(description="The tool, as in `tools` of an agent.")]
    args: Annotated[Node | None, Meta(description="What the tool is made with.")] = None


class AgentNodeSection(NodeSection, kw_only=True):
    what: ClassVar[str] = "an AgentNode"
    agent: Annotated[Node, Meta(description="`config_path`, `code`, or an agent that is written here.")]


class JoinNodeSection(Section, kw_only=True):
    what: ClassVar[str] = "a JoinNode"
    agent_class: str = ""
    name: str = "join"


NODES: dict[str, type[Section]] = {
    "FunctionNode": FunctionNodeSection,
    "ToolNode": ToolNodeSection,
    "AgentNode": AgentNodeSection,
    "JoinNode": JoinNodeSection,
}
"""agent_class of a node of a workflow -> its keys."""


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
    "Workflow": WorkflowSection,
}
"""agent_class -> its keys."""

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


class ClusterSection(Section, kw_only=True):
    what: ClassVar[str] = "cluster"
    url: Annotated[str, Meta(description="nats://USER:PASSWORD@HOST:4222; with a password as `!env NAME`.")]
    runs: Annotated[
        Literal["here", "workers"], Meta(description="Where runs are carried out: here, or by polyport worker.")
    ] = "here"
    worker: Annotated[bool, Meta(description="Take what others hand out, too; for a process of polyport worker.")] = (
        False
    )
    prefix: Annotated[str, Meta(description="Processes of one prefix belong together.")] = "polyport"
    lease_s: Annotated[float, Meta(description="A process that was not heard of for so long is gone.")] = 6.0
    replicas: Annotated[int, Meta(description="How many NATS servers keep each thing.")] = 1
    feed_age_s: Annotated[int, Meta(description="How long what a run said can be followed.")] = 3600


class AppSection(Section, kw_only=True):
    what: ClassVar[str] = "app"
    plugins: Annotated[
        list[str | CodeSection], Meta(description="Names of Polyport's plugins, or code references.")
    ] = []
    compaction: CompactionSection | None = None
    limits: Annotated[Limits | None, Meta(description="Numbers that keep callers from using up the server.")] = None
    remember: Annotated[bool, Meta(description="Sessions go into memory when a run ends.")] = False
    stores: Annotated[str, Meta(description="Where sessions live, such as sqlite:///data.db.")] = ""
    protocols: Annotated[
        list[str | CodeSection], Meta(description="What is served: rest, mcp, a2a and so on, or objects by code.")
    ] = []
    auth: Annotated[Code, Meta(description="Who may call: an authenticator, or an Auth, by code.")] = ""
    cluster: Annotated[
        str | ClusterSection | None, Meta(description="The NATS server that processes share, or its settings.")
    ] = None
