"""A compiled page as part of an app: `App(protocols=["rest", Web()])`.

At `/ui/` and `/dev-ui/`, with the generated configuration that the page of ADK reads (spec rest 9.1). Without a folder it is
the page of the google-adk package, if that is installed; nothing of it is copied. Never serves what is outside the folder.
"""

from dataclasses import dataclass
from functools import partial
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from anyio import to_thread

from polyport import codec
from polyport.errors import ConfigError
from polyport.protocols.answers import send_body
from polyport.protocols.http import Header, Request, Send
from polyport.protocols.parts import Parts, Still
from polyport.protocols.routes import Route
from polyport.protocols.web.files import based, read

PLACES = ("/ui", "/dev-ui")
_NEVER: Header = (b"cache-control", b"no-store")
_LONG: Header = (b"cache-control", b"public, max-age=31536000, immutable")
_SHORT: Header = (b"cache-control", b"no-cache")
_FRAMES: tuple[Header, ...] = (
    (b"content-security-policy", b"frame-ancestors 'none'; base-uri 'self'; object-src 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


@dataclass(frozen=True, kw_only=True)
class Web:
    """`root` is the folder of the page, with its index.html; by default that of the installed google-adk. `backend_url` is
    where the page finds the API, by default this server. `logo_text` and `logo_image` (a URL) stand in its corner."""

    root: str | Path | None = None
    backend_url: str | None = None
    logo_text: str = ""
    logo_image: str = ""

    def mount(self, parts: Parts) -> "WebPages":
        """ConfigError when there is no page."""
        root = Path(self.root) if self.root is not None else adk_page()
        if not (root / "index.html").is_file():
            raise ConfigError(f"web: {str(root)!r} has no index.html; name the folder of a compiled page")
        return WebPages(self, root.resolve(), parts)


def adk_page() -> Path:
    """The folder of the page that the google-adk package brings. ConfigError when it is not installed."""
    try:
        found = find_spec("google.adk")
    except ModuleNotFoundError:
        found = None
    for place in (found.submodule_search_locations if found is not None else None) or ():
        return Path(place) / "cli" / "browser"
    raise ConfigError(
        "web: the page of ADK is in the package google-adk, which is not installed: pip install google-adk"
    )


class WebPages(Still):
    def __init__(self, options: Web, root: Path, parts: Parts) -> None:
        self._options = options
        self._root = root
        self._parts = parts

    def routes(self) -> list[Route]:
        """See protocols.parts.Mounted."""
        found = [Route("GET", "/", self.start, public=True, summary="Leads to the page")]
        for place in PLACES:
            found += [
                Route("GET", place, partial(self.slash, place), summary="Leads to the page"),
                Route("GET", place + "/assets/config/runtime-config.json", self.config, summary="What the page reads"),
                Route("GET", place + "/{path*}", partial(self.file, place), summary="The page and its files"),
            ]
        return found

    async def start(self, request: Request, send: Send) -> None:
        """To the page (statement rest-126)."""
        await _lead(send, f"{self._below(request)}{PLACES[0]}/", 302)

    async def slash(self, place: str, request: Request, send: Send) -> None:
        """`/ui` is `/ui/`, for the page's links are relative."""
        await _lead(send, f"{self._below(request)}{place}/", 301)

    def _below(self, request: Request) -> str:
        """The path of the app's root as the browser knows it, "" for the root of its host."""
        guard = self._parts.guard()
        return guard.public_base(request)[len(guard.public_origin(request)) :]

    async def config(self, request: Request, send: Send) -> None:
        """Where the API is."""
        url = self._options.backend_url
        if url is None:  # the page opens WebSockets by it, so below a mount point it is a whole URL
            url = self._parts.guard().public_base(request) if self._below(request) else ""
        told: dict[str, Any] = {"backendUrl": url, "telemetry": False}  # else the page asks to report to its makers
        if self._options.logo_text or self._options.logo_image:
            told["logo"] = {"text": self._options.logo_text, "imageUrl": self._options.logo_image}
        await send_body(send, 200, codec.encode(told), [(b"content-type", b"application/json"), _NEVER])

    async def file(self, place: str, request: Request, send: Send) -> None:
        """A file, or the page itself for a place inside it. 404 for a file that is not there."""
        found = await to_thread.run_sync(read, self._root, request.params["path"])
        kind: Header = (b"content-type", found.kind.encode())
        if found.kind.startswith("text/html"):
            index = based(found.body, escape(f"{self._below(request)}{place}/"))
            return await send_body(send, 200, index, [kind, _NEVER, *_FRAMES])
        await send_body(send, 200, found.body, [kind, _LONG if found.lasting else _SHORT])


async def _lead(send: Send, place: str, status: int) -> None:
    await send_body(send, status, b"", [(b"location", place.encode("ascii", "replace"))])
