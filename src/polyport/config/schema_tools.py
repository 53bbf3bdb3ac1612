"""What agent files may say of tools: a Struct for the args of each (see `config/schema`).

Read by `yaml_tools`, and by `json_schema`. Holds values only.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from polyport.config.schema import Code
from polyport.config.yaml_read import Section
from polyport.config.yaml_text import Node
from polyport.data.limits import MIB
from polyport.tools.mcp_data import McpLimits


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
    response: Annotated[Node | None, Meta(description="A JSON Schema of the result, or a type by code.")] = None


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
    auth: Annotated[Code, Meta(description="An object of the HTTP library's, such as an OAuth provider.")] = ""
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
    limits: Annotated[McpLimits | None, Meta(description="What the server may cost.")] = None
    name: str = "mcp_tool_set"


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
    headers: Annotated[dict[str, str] | str, Meta(description="Or a function `(context)` by code.")] = {}
    auth: Annotated[str | AuthSection | None, Meta(description="A secret for the only scheme, or a credential.")] = None
    original_names: Annotated[bool, Meta(description="Show the model the names of the document.")] = False
    timeout_s: float = 30.0
    max_bytes: int = MIB
    max_spec_bytes: int = 10 * MIB
    name: str = "openapi"


class SkillToolsetArgs(Section, kw_only=True):
    what: ClassVar[str] = "the args of SkillToolset"
    folders: Annotated[list[str] | str, Meta(description="Folders of the project.")] = "skills"
    max_file_bytes: int = 10 * MIB
    name: str = "skills"


class RemoteAgentToolArgs(Section, kw_only=True):
    what: ClassVar[str] = "the args of RemoteAgentTool"
    name: str
    endpoint: Annotated[str, Meta(description="The agent's base URL, or that of its card.")]
    description: str = ""
    headers: dict[str, str] = {}
    header_provider: Annotated[Code, Meta(description="A function `(context)` that gives more headers.")] = ""


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
