"""The tools of agent files (spec core 9). Called by `yaml_agents` for each item of `tools`.

An item is a name (of a built-in tool, or code), or `{name, args}`. Makes tools and toolsets only: no server is started and
nothing is fetched before a run needs it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from msgspec import structs

from polyport.agents.remote_tool import RemoteAgentTool
from polyport.codec import convert
from polyport.config import schema_tools as schema
from polyport.config.project import Project
from polyport.config.schema import Code
from polyport.config.schema_tools import TOOLS, ToolSection
from polyport.config.yaml_read import BROKEN, nearest, read
from polyport.config.yaml_text import Node
from polyport.data.content import Content
from polyport.errors import PolyportError
from polyport.ports.agent import Agent, Tool, Toolset
from polyport.tools.agent_tool import AgentTool
from polyport.tools.artifacts import LoadArtifacts
from polyport.tools.builtin import BUILTIN
from polyport.tools.confirm import confirm
from polyport.tools.credentials import ApiKey, Basic, Bearer
from polyport.tools.examples import Example, ExampleTool
from polyport.tools.function import make_tool
from polyport.tools.mcp import DEFAULT_LIMITS, HttpServer, McpToolset, StdioServer
from polyport.tools.memory import LoadMemory, PreloadMemory
from polyport.tools.openapi import OpenApiToolset
from polyport.tools.skills import SkillToolset

WITH_ARGS: dict[str, Callable[..., Tool]] = {
    "load_memory": LoadMemory,
    "preload_memory": PreloadMemory,
    "load_artifacts": LoadArtifacts,
}
"""Built-in tools that take args."""


class Agents(Protocol):
    """What tools need of the builder of agents."""

    @property
    def file(self) -> Path: ...
    def tree(self, node: Node) -> Agent | None: ...
    def type_of(self, node: Node | None) -> Any: ...
    def function(self, given: Code, node: Node, what: str) -> Any: ...


class Tools:
    """Makes the tools of one load."""

    def __init__(self, project: Project, agents: Agents) -> None:
        self._project = project
        self._agents = agents

    def tools(self, nodes: list[Node]) -> list[Any]:
        """The tools of one agent; those that cannot be made are left out, and a problem."""
        found: list[Any] = []
        names: set[str] = set()
        for node in nodes:
            tool = self.tool(node)
            if isinstance(tool, Tool) and tool.name in names:
                self._project.problems.add(node, f"two tools of this agent are named {tool.name!r}; leave one out")
            elif tool is not None:
                found.append(tool)
                names.add(tool.name)
        return found

    def tool(self, node: Node) -> Any:
        """A tool, a toolset or a function; None and a problem if it cannot be made."""
        section = read(node, str | ToolSection, self._project.problems, "an item of tools")
        if section is BROKEN:
            return None
        return self.made(ToolSection(name=section, node=node) if isinstance(section, str) else section)

    def made(self, section: ToolSection) -> Any:
        """The tool of an item; None and a problem if it cannot be made."""
        before = len(self._project.problems.found)
        made = self._made(section)
        if made is None or made is BROKEN or len(self._project.problems.found) > before:
            return None
        return self._confirmed(made, section)

    def _made(self, section: ToolSection) -> Any:
        name, node = section.name, section.node
        place = node.of("name")
        if name in self._project.names:
            return self._coded(section, place)
        if name in MAKERS:
            args = section.args
            if args is None or args.is_null:
                args = Node(kind="map", file=node.file, line=node.line, column=node.column)
            wanted = TOOLS[name]
            before = len(self._project.problems.found)
            read_args = read(args, wanted, self._project.problems, wanted.what)
            if len(self._project.problems.found) > before:
                return None
            return self._guarded(node, MAKERS[name], self, read_args)
        if name in BUILTIN:
            if section.args is None:
                return BUILTIN[name]
            if name not in WITH_ARGS:
                self._project.problems.add(section.args, f"{name} takes no args")
                return None
            return self._project.call(WITH_ARGS[name], section.args)
        return self._coded(section, place)

    def _guarded(self, node: Node, make: Callable[..., Any], *args: Any) -> Any:
        """What `make` gives; None and a problem when a tool cannot be made with what the file says."""
        try:
            return make(*args)
        except PolyportError as error:
            self._project.problems.add(node, str(error))
            return None

    def _coded(self, section: ToolSection, place: Node) -> Any:
        """A tool, toolset or function of the user's; with args, what a function or class makes of them."""
        name, before = section.name, len(self._project.problems.found)
        found = self._project.find(name, place)
        if found is BROKEN:
            guess = nearest(name, [*BUILTIN, *TOOLS])
            if guess and len(self._project.problems.found) > before:
                self._project.problems.found.pop()
                self._project.problems.add(place, f"there is no tool {name!r}{guess}")
            return None
        if section.args is not None or isinstance(found, type):
            found = self._project.call(found, section.args or Node(kind="map", file=place.file, line=place.line))
        if found is BROKEN:
            return None
        if isinstance(found, Agent):
            self._project.problems.add(place, f"{name!r} is an agent; write it as an AgentTool, or in sub_agents")
            return None
        if not isinstance(found, Tool | Toolset) and not callable(found):
            self._project.problems.add(place, f"{name!r} is of type {type(found).__name__}, not a tool or a function")
            return None
        return found

    def _confirmed(self, made: Any, section: ToolSection) -> Any:
        when: Any = section.require_confirmation
        if isinstance(when, str):
            when = self._agents.function(when, section.node.of("require_confirmation"), "require_confirmation")
        if isinstance(made, Tool | Toolset):
            return confirm(cast("Tool", made), when) if when else made
        return self._guarded(section.node, lambda: make_tool(made, require_confirmation=when or False))

    # ---- by name

    def agent_tool(self, args: schema.AgentToolArgs) -> Any:
        node, skip = args.agent, args.skip_summarization
        inner = node.members.get("skip_summarization")
        if inner is not None and {"config_path", "code"} & node.members.keys():  # where ADK has it
            value = read(inner[1], bool, self._project.problems, "'skip_summarization'")
            skip = skip or value is True
            members = {key: pair for key, pair in node.members.items() if key != "skip_summarization"}
            node = Node(kind="map", file=node.file, line=node.line, column=node.column, members=members)
        agent = self._agents.tree(node)
        if agent is None:
            return None
        return AgentTool(
            agent,
            description=args.description,
            input_schema=self._agents.type_of(args.input_schema),
            skip_summarization=skip,
            show_events=args.show_events,
        )

    def function_tool(self, args: schema.FunctionToolArgs, long_running: bool = False) -> Any:
        found = self._agents.function(args.func, args.node.of("func"), "func")
        if found is None or isinstance(found, Tool):
            return found
        return make_tool(
            found,
            name=args.name or None,
            description=args.description or None,
            long_running=long_running,
            idempotent=args.idempotent,
            parameters=None if args.parameters is None else args.parameters.value(),
            response=self._agents.type_of(args.response),
        )

    def long_running(self, args: schema.FunctionToolArgs) -> Any:
        return self.function_tool(args, long_running=True)

    def example_tool(self, args: schema.ExampleToolArgs) -> Any:
        if isinstance(args.examples, str):
            found = self._project.find(args.examples, args.node.of("examples"))
            return None if found is BROKEN else ExampleTool(found)
        examples: list[Example] = []
        for one in args.examples:
            steps = one.output.items if one.output.kind == "list" else [one.output]
            said = [self._said(node) for node in (one.input, *steps)]
            if all(step is not None for step in said):
                texts = cast("list[str | Content]", said)
                examples.append(Example(texts[0], texts[1:]))
        return ExampleTool(examples)

    def _said(self, node: Node) -> str | Content | None:
        """A text or a content (role and parts)."""
        if node.kind == "text" and not node.is_null:
            return node.text
        if node.kind == "map":
            return self._guarded(node, lambda: convert(node.value(), Content))
        self._project.problems.add(node, f"an example says a text, or a content with parts; not {node.shown()}")
        return None

    def mcp_toolset(self, args: schema.McpToolsetArgs) -> Any:
        node, problems = args.node, self._project.problems
        stdio, http = args.stdio_connection_params, args.streamable_http_connection_params
        given = [one for one in (stdio, args.stdio_server_params, http) if one is not None]
        if len(given) != 1:
            problems.add(
                node,
                "McpToolset needs one of stdio_connection_params, stdio_server_params and streamable_http_connection_params",
            )
            return None
        timeout = http.timeout if http is not None else stdio.timeout if stdio is not None else None
        server: StdioServer | HttpServer | None
        if http is not None:
            provider = self._agents.function(http.header_provider, http.node.of("header_provider"), "header_provider")
            auth = self._project.code(http.auth, http.node.of("auth")) if http.auth else None
            server = HttpServer(http.url, http.headers, provider, auth)
        else:
            server = self._stdio(stdio.server_params if stdio is not None else args.stdio_server_params)
        only = None if args.tool_filter is None else self._strings(args.tool_filter, "tool_filter")
        limits = args.limits or DEFAULT_LIMITS
        if timeout is not None:
            limits = structs.replace(limits, connect_timeout_s=timeout)
        if server is None:
            return None
        return McpToolset(
            server,
            name=args.name,
            only=only,
            prefix=args.tool_name_prefix,
            use_resources=args.use_resources,
            limits=limits,
        )

    def _stdio(self, params: schema.ServerSection | None) -> StdioServer | None:
        if params is None:
            return None
        words = self._strings(params.args, "the args of an MCP server")
        cwd = self._project.path(params.cwd, params.node.of("cwd"), folder=True) if params.cwd else None
        return StdioServer(params.command, words, params.env, cwd)

    def _strings(self, nodes: list[Node], what: str) -> list[str]:
        """Only what is a text (spec core 9): a number is quoted, so that it is passed on as it is written."""
        found: list[str] = []
        for node in nodes:
            if node.kind == "text" and isinstance(node.value(), str):
                found.append(node.text)
            else:
                self._project.problems.add(node, f"{what} are texts, not {node.shown()}; put it into quotes")
        return found

    def openapi_toolset(self, args: schema.OpenApiToolsetArgs) -> Any:
        spec: Any = self._spec(args.spec)
        if spec is None:
            return None
        return OpenApiToolset(
            spec,
            base_url=args.base_url or None,
            include=args.include,
            exclude=args.exclude,
            prefix=args.prefix,
            headers=self._headers(args),
            auth=self._auth(args.auth) if args.auth is not None else None,
            original_names=args.original_names,
            timeout_s=args.timeout_s,
            max_bytes=args.max_bytes,
            max_spec_bytes=args.max_spec_bytes,
            name=args.name,
        )

    def _headers(self, args: schema.OpenApiToolsetArgs) -> Any:
        if isinstance(args.headers, str):
            return self._agents.function(args.headers, args.node.of("headers"), "headers") or {}
        return args.headers

    def _spec(self, node: Node) -> Any:
        if node.kind == "map":
            return node.value()
        if node.kind == "text" and node.text.startswith(("http://", "https://")):
            return node.text
        return self._project.path(node.text, node, near=self._agents.file)

    def _auth(self, given: str | schema.AuthSection) -> Any:
        if isinstance(given, str):
            return given
        ways = [name for name in ("bearer", "api_key", "user", "code") if getattr(given, name)]
        if len(ways) != 1:
            self._project.problems.add(given.node, "auth needs one of bearer, api_key, user (with password) and code")
            return None
        if given.bearer:
            return Bearer(given.bearer)
        if given.api_key:
            return ApiKey(given.api_key, given.name, given.place)
        if given.user:
            return Basic(given.user, given.password)
        found = self._project.find(given.code, given.node.of("code"))
        return None if found is BROKEN else found

    def skill_toolset(self, args: schema.SkillToolsetArgs) -> Any:
        words = [args.folders] if isinstance(args.folders, str) else args.folders
        place, near = args.node.of("folders"), self._agents.file
        folders = [self._project.path(word, place, near=near, folder=True) for word in words]
        if not all(folders):
            return None
        return SkillToolset(*filter(None, folders), max_file_bytes=args.max_file_bytes, name=args.name)

    def remote_agent_tool(self, args: schema.RemoteAgentToolArgs) -> Any:
        provider = self._agents.function(args.header_provider, args.node.of("header_provider"), "header_provider")
        more = {"headers": args.headers, "header_provider": provider}
        return RemoteAgentTool(args.name, args.endpoint, args.description, **more)


MAKERS: dict[str, Callable[[Tools, Any], Any]] = {
    "AgentTool": Tools.agent_tool,
    "FunctionTool": Tools.function_tool,
    "LongRunningFunctionTool": Tools.long_running,
    "ExampleTool": Tools.example_tool,
    "McpToolset": Tools.mcp_toolset,
    "MCPToolset": Tools.mcp_toolset,
    "OpenApiToolset": Tools.openapi_toolset,
    "SkillToolset": Tools.skill_toolset,
    "RemoteAgentTool": Tools.remote_agent_tool,
}
"""Name -> what makes it of its args."""
