"""OpenApiToolset: the operations of a REST API, from its OpenAPI 3 document, for an agent's `tools`.

    OpenApiToolset(Path("petstore.yaml"), auth=Bearer(token))           # a file
    OpenApiToolset("https://api.example.com/openapi.json", include=["get_*"], prefix="shop_")

One tool for each operation. Names on the wire are exactly those of the document (FR-105). Nothing is sent that the document
and the model did not ask for; secrets are never shown. HTTP is loaded with the first call.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from anyio import to_thread

from polyport.data.limits import MIB
from polyport.data.model import ToolDeclaration
from polyport.errors import ConfigError, Forbidden, NotFound
from polyport.ports.agent import ReadContext, Tool, ToolContext
from polyport.tools.credentials import Credential, Headers, checked_headers
from polyport.tools.oauth import ConsentNeeded
from polyport.tools.openapi_auth import Auth, Keyring
from polyport.tools.openapi_operations import Operation, Reading, read_operations
from polyport.tools.openapi_request import HttpRequest, make_request
from polyport.tools.openapi_spec import Document, checked_url, parse
from polyport.tools.turns import Turns

Choice = str | Sequence[str] | Callable[[Operation], bool] | None
"""Which operations: patterns (`*`, `?`) for tool names, operation ids or `GET /path`; or a function."""


class Caller(Protocol):
    """Sends requests and makes results of the answers."""

    async def call(
        self, ctx: ToolContext, operation: Operation, credentials: Sequence[Credential], request: HttpRequest
    ) -> Any: ...

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, Any]: ...

    async def aclose(self) -> None: ...


@dataclass(eq=False)
class OpenApiToolset:
    """Tools for the operations of an OpenAPI 3.0 or 3.1 document.

    `spec` is the document as a dict or as JSON or YAML text, a path, or an http(s) URL, which is fetched once, when the tools
    are first wanted. ConfigError says what is wrong with it, at once unless it is a URL. An operation that cannot be called
    is left out with a warning; see `left_out`.
    """

    spec: Mapping[str, Any] | str | Path = field(repr=False)
    base_url: str | None = field(default=None, kw_only=True)
    """Where the API is, instead of the document's `servers`."""
    include: Choice = field(default=None, kw_only=True)
    exclude: Choice = field(default=None, kw_only=True)
    prefix: str = field(default="", kw_only=True)
    """The start of all tool names."""
    headers: Headers = field(default_factory=dict[str, str], kw_only=True, repr=False)
    """Sent with every request: a dict, or a function `(ctx) -> dict`. The model is not asked for those of a dict."""
    auth: Auth = field(default=None, kw_only=True, repr=False)
    original_names: bool = field(default=False, kw_only=True)
    """Show the model every argument's name as it is in the document, also with characters that some providers refuse."""
    timeout_s: float = field(default=30.0, kw_only=True)
    """For one call, with its redirects."""
    max_bytes: int = field(default=MIB, kw_only=True)
    """The largest answer."""
    max_spec_bytes: int = field(default=10 * MIB, kw_only=True)
    """The largest document from a URL."""
    name: str = field(default="openapi", kw_only=True)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"([A-Za-z_][A-Za-z0-9_-]{0,31})?", self.prefix):
            raise ConfigError(f"prefix {self.prefix!r}: use a letter, then letters, digits, _ and -, at most 32")
        if self.timeout_s <= 0 or self.max_bytes <= 0 or self.max_spec_bytes <= 0:
            raise ConfigError("timeout_s, max_bytes and max_spec_bytes must be above zero")
        self._headers = self.headers if callable(self.headers) else checked_headers(self.headers, "headers=")
        if self.base_url is not None:
            self.base_url = checked_url(self.base_url, "base_url")
        self.left_out: dict[str, str] = {}
        """Operations that cannot be called, `METHOD /path`, and why. Filled when the document is read."""
        self._tools: tuple[OpenApiTool, ...] | None = None
        self._turn = Turns()
        self._caller: Caller | None = None
        self._keyring: Keyring | None = None
        text = self._text()
        if text is not None:
            self._tools = self._read(Document(parse(text) if isinstance(text, str | bytes) else text))

    def _text(self) -> Any:
        """The document's text, or the document itself; None if it has to be fetched."""
        spec = self.spec
        if isinstance(spec, Path):
            return _file(spec)
        if not isinstance(spec, str):
            return spec
        if "\n" in spec or spec.lstrip().startswith("{"):
            return spec
        if "://" not in spec:
            return _file(Path(spec))
        if urlsplit(spec).scheme not in ("http", "https"):
            raise ConfigError(
                f"an OpenAPI document is fetched by http or https, not from {spec!r:.200}; give a path for a file"
            )
        checked_url(spec.partition("?")[0], "the address of the OpenAPI document")
        return None

    def _read(self, document: Document) -> "tuple[OpenApiTool, ...]":
        keyring = Keyring(document, self.auth)
        hidden = keyring.fills
        if not callable(self._headers):
            hidden |= {("header", name.lower()) for name in self._headers}
        how = Reading(
            base_url=self.base_url or "", prefix=self.prefix, original_names=self.original_names, hidden=hidden
        )
        operations, self.left_out = read_operations(document, how)
        names = {one.name for one in operations}
        if self.include is not None:
            names = _chosen(operations, self.include, "include")
        if self.exclude is not None:
            names -= _chosen(operations, self.exclude, "exclude")
        self._keyring = keyring
        return tuple(OpenApiTool(self, one, keyring.of(one)) for one in operations if one.name in names)

    async def tools(self, ctx: ReadContext) -> Sequence[Tool]:
        """The tools, by the order of the document. Unavailable or ConfigError when a URL gives no document."""
        return await self.load()

    async def load(self) -> "Sequence[OpenApiTool]":
        """The tools; the document is fetched if it was not yet. Call it at start to find a wrong URL early."""
        if self._tools is None:
            async with self._turn():
                if self._tools is None:
                    self._tools = await self._fetched(str(self.spec))
        return self._tools

    async def _fetched(self, url: str) -> "tuple[OpenApiTool, ...]":
        from polyport.tools import openapi_call  # aiohttp is loaded when something is to be sent

        text = await openapi_call.fetch_document(url, self.timeout_s, self.max_spec_bytes)

        def read() -> tuple[OpenApiTool, ...]:
            return self._read(Document(parse(text), url.partition("?")[0]))

        return await to_thread.run_sync(read)  # a large document takes seconds

    def caller(self) -> Caller:
        """What sends the requests of the tools."""
        if self._caller is None:
            from polyport.tools import openapi_call

            self._caller = openapi_call.HttpCaller(self.timeout_s, self.max_bytes, self._headers)
        return self._caller

    async def answer(self, *, app: str, user: str, response: Any) -> None:
        """Take a user's answer to a request to sign in, for an app that has the page that the browser is sent back to.

        `response` is the address of that page with all its query, or what an ADK client answers. Forbidden when it is no answer
        to a request of ours to this user; Unauthenticated when the user or the token endpoint refused.
        """
        await self.load()
        assert self._keyring is not None
        for credential in self._keyring.all:
            if await credential.answer(app, user, response, self.caller().post):
                return
        raise Forbidden("the answer does not belong to a request to this user to sign in")

    async def aclose(self) -> None:
        """Close the connections of this event loop. A later call opens new ones."""
        if self._caller is not None:
            await self._caller.aclose()


class OpenApiTool(Tool):
    """One operation of an API. Only safe methods are repeated when a run that died goes on."""

    def __init__(self, toolset: OpenApiToolset, operation: Operation, credentials: Sequence[Credential]) -> None:
        self.name = operation.name
        self.description = operation.description
        self.idempotent = operation.method in ("GET", "HEAD", "OPTIONS")
        self.operation = operation
        self._toolset = toolset
        self._credentials = tuple(credentials)
        self._declaration = ToolDeclaration(
            name=self.name, description=self.description, parameters=operation.parameters
        )

    def declaration(self) -> ToolDeclaration:
        """The same object every time: copy it before changing anything in it."""
        return self._declaration

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        """What the API answered; an error result for a status that is no success. When the user has to sign in first, the run
        asks for that and the call is carried out again with the answer. BadRequest for arguments that do not fit, Unavailable
        and TimedOut when there is no answer."""

        async def read_file(name: str) -> tuple[bytes, str]:
            return await _artifact(ctx, name)

        request = await make_request(self.operation, args, read_file)
        if ctx.credential is not None:
            await self._toolset.answer(app=ctx.app_name, user=ctx.user_id, response=ctx.credential)
        try:
            return await self._toolset.caller().call(ctx, self.operation, self._credentials, request)
        except ConsentNeeded as needed:
            ctx.request_credential(needed.config)
            return {"status": "pending", "message": "The user was asked to sign in; the call waits for that."}


async def _artifact(ctx: ToolContext, name: str) -> tuple[bytes, str]:
    part = await ctx.load_artifact(name)
    if part.inline_data is not None:
        return part.inline_data.data, part.inline_data.mime_type or "application/octet-stream"
    if part.text is not None:
        return part.text.encode(), "text/plain"
    raise NotFound(f"artifact {name!r} has no bytes")


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the OpenAPI document {str(path)!r} cannot be read: {error.strerror or error}") from None


def _chosen(operations: list[Operation], choice: Choice, what: str) -> set[str]:
    """The tools that were named. ConfigError for a pattern that names none."""
    if callable(choice):
        return {one.name for one in operations if choice(one)}
    found: set[str] = set()
    for pattern in [choice] if isinstance(choice, str) else choice or ():
        matching = {
            one.name for one in operations if any(fnmatchcase(n, pattern) for n in (one.name, one.id, one.where))
        }
        if not matching:
            raise ConfigError(f"{what}={pattern!r} names no operation; there are: {_few(operations)}")
        found |= matching
    return found


def _few(operations: list[Operation]) -> str:
    names = [one.name for one in operations]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
