"""RequestHeadersPlugin: HTTP headers for the model's provider that depend on who asks, such as a tenant or a user's own token.

Used in `App(plugins=[...])`. The headers are put on each request to a model, over those of the agent's configuration, and are
stored and logged nowhere. Does no I/O of its own.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping

from msgspec import structs

from polyport.data.model import ModelRequest
from polyport.errors import AgentError
from polyport.ports.agent import CallbackContext
from polyport.ports.plugin import Plugin

Headers = Mapping[str, str]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")


class RequestHeadersPlugin(Plugin):
    """`headers(ctx)`, or what it awaits, is sent with every request to a model; an empty mapping adds nothing.

    AgentError for a name or a value that cannot be a header, for a line break in it say; it does not show the value. With
    `Fallback`, only the first model gets them (see there).
    """

    def __init__(
        self, headers: Callable[[CallbackContext], Headers | Awaitable[Headers]], *, name: str = "request_headers"
    ) -> None:
        self.name = name
        self._headers = headers

    async def before_model(self, ctx: CallbackContext, request: ModelRequest) -> None:
        """Put the headers on the request."""
        made = self._headers(ctx)
        added = await made if inspect.isawaitable(made) else made
        for key, value in added.items():
            if not _NAME.fullmatch(key) or not _VALUE.fullmatch(value):
                raise AgentError(
                    f"plugin {self.name!r}: the header {key!r:.80} cannot be sent: its name or value is none"
                )
        if added:
            names = {key.lower() for key in added}
            kept = {k: v for k, v in request.config.headers.items() if k.lower() not in names}
            request.config = structs.replace(request.config, headers={**kept, **added})
