"""What the rest of Polyport knows of the MCP server: an interface without the SDK.

Named by the App and the command line; implemented in `server`.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from polyport.protocols.routes import Route


class McpFace(Protocol):
    def routes(self) -> list[Route]:
        """The routes of `/mcp`."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Take requests at the routes inside the block. To be entered and left by one task, while the app runs."""
        ...

    async def serve_stdio(self) -> None:
        """Serve one client over this process's stdin and stdout, until stdin ends. Nothing else may write to stdout."""
        ...
