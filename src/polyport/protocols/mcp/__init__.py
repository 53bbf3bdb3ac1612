"""Agents served as an MCP server: one tool for each app, over streamable HTTP at `/mcp`, or over stdin and stdout.

Made by the App when MCP is asked for. Only `make_server` imports the MCP SDK, so that apps without it do not pay for it.
"""

from polyport.data.limits import Limits
from polyport.errors import ConfigError
from polyport.ports.runs import Runs
from polyport.protocols.mcp.face import McpFace


def make_server(runs: Runs, limits: Limits, *, stateless: bool = False) -> McpFace:
    """The MCP side of an app: its `routes()`, and `running()`, which must be entered beside the app. `stateless` is for
    several worker processes: clients get no session id, and cannot cancel by a message. ConfigError without the SDK."""
    try:
        from polyport.protocols.mcp.server import McpServer  # an optional dependency
    except ModuleNotFoundError as error:
        raise ConfigError(f"MCP needs the package {error.name!r}: pip install 'polyport[mcp]'") from None
    return McpServer(runs, limits, stateless=stateless)
