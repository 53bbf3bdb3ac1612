"""Words of the MCP toolset: which server, which limits, and what a server offers, as plain Structs.

Used by the other `mcp_*` modules and by users. Knows nothing of the MCP SDK, so that importing it costs nothing, and does no
I/O.
"""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import asdict

from polyport.data.content import Part
from polyport.data.model import Schema
from polyport.errors import ConfigError, PolyportError
from polyport.ports.agent import ReadContext

MIB = 1024 * 1024

HeaderProvider = Callable[[ReadContext], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""`(context)` -> HTTP headers for what this run asks of the server, sync or async."""


class McpLimits(Struct, frozen=True, kw_only=True):
    """What an MCP server may cost. ConfigError for a limit that is not above zero."""

    connect_timeout_s: float = 30.0
    """Starting the server and the handshake; also the wait for a free session."""
    list_timeout_s: float = 30.0
    """Listing all tools (or resources, or prompts), every page."""
    call_timeout_s: float = 60.0
    """One call; the model is told when it is over."""
    ping_timeout_s: float = 5.0
    """The answer to a ping, by which a connection in doubt is tested."""
    sessions: int = 32
    """Sessions that are open at one time: one for each set of headers that the header provider gives."""
    idle_timeout_s: float = 0.0
    """How long a session that nobody uses stays open; 0 is as long as the app runs."""
    items: int = 1000
    """Tools (or resources, or prompts) that one server may list."""
    text_chars: int = 100_000
    """Characters of one result that the model gets to see; what is longer is cut, and says so."""
    blob_bytes: int = 10 * MIB
    """The largest image, sound or file in a result that is kept."""
    message_bytes: int = 16 * MIB
    """The largest event of an HTTP server's event stream."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 0 or (value == 0 and name != "idle_timeout_s"):
                raise ConfigError(f"MCP limits: {name} is {value}; it must be above zero")


@dataclass(frozen=True)
class StdioServer:
    """An MCP server that is started as a child process and spoken to over its stdin and stdout.

    It inherits HOME, PATH and a few more variables only; `env` adds to them.
    """

    command: str
    args: Sequence[str] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | Path | None = None

    def __post_init__(self) -> None:
        words: list[Any] = [self.command, *self.args]
        wrong = next((w for w in words if not isinstance(w, str)), None)
        if wrong is not None or isinstance(self.args, str):
            raise ConfigError(
                f"the command of an MCP server and its arguments must be strings, not {wrong or self.args!r}"
            )
        if not self.command:
            raise ConfigError("an MCP server needs a command or a URL")

    @property
    def where(self) -> str:
        """The server in messages; without arguments, which may hold secrets."""
        return f"the MCP server {Path(self.command).name!r}"


@dataclass(frozen=True)
class HttpServer:
    """An MCP server at a URL (streamable HTTP).

    `header_provider` is asked for more headers before every operation; each set of headers has a session of its own, so that
    users never share one. `auth` is an object of the HTTP library's (`httpx2.Auth`), such as the SDK's `OAuthClientProvider`.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    header_provider: HeaderProvider | None = field(default=None, repr=False)
    auth: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the URL of an MCP server must begin with http:// or https:// and name a host")

    @property
    def where(self) -> str:
        """The server in messages; without credentials and query."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"the MCP server {parts.scheme}://{parts.hostname}{port}{parts.path}"


def server_of(server: "str | StdioServer | HttpServer") -> StdioServer | HttpServer:
    """A URL or a command line as what it stands for."""
    if not isinstance(server, str):
        return server
    if server.startswith(("http://", "https://")):
        return HttpServer(server)
    words = shlex.split(server)
    return StdioServer(words[0] if words else "", words[1:])


class McpToolInfo(Struct, frozen=True, kw_only=True):
    """A tool as its server describes it. The hints are the server's word, None when it says nothing."""

    name: str
    description: str = ""
    input_schema: Schema
    output_schema: Schema | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None

    @property
    def repeatable(self) -> bool:
        """Whether the server says that a second call does no harm."""
        return bool(self.read_only or self.idempotent)


class McpResourceInfo(Struct, frozen=True, kw_only=True):
    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None
    """Bytes, if known."""


class McpArgumentInfo(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    required: bool = False


class McpPromptInfo(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    arguments: list[McpArgumentInfo] = []


class CallResult(Struct, frozen=True, kw_only=True):
    """What a call gave: text, blobs and links in their order; `structured` when the server sent any."""

    parts: list[Part]
    structured: Any = None
    has_structured: bool = False
    is_error: bool = False


class Lost(PolyportError):
    """The connection was lost while something was asked; it may be asked again on a new one."""

    kind = "unavailable"
