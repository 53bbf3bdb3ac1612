"""Metrics as part of an app: `metrics = Metrics()`, then `App(agent, plugins=metrics.plugins, protocols=["rest", metrics])`.

Serves `/metrics` for Prometheus to whoever may administer: runs, questions to models, tokens, tool calls, HTTP requests and how
late the event loop is. The host must ask `watches` about its requests. Each process counts for itself. Needs prometheus_client.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from polyport.errors import ConfigError
from polyport.ports.plugin import Plugin
from polyport.protocols.answers import send_body
from polyport.protocols.host import Watch
from polyport.protocols.http import Request, Send
from polyport.protocols.parts import Parts
from polyport.protocols.routes import Route


class Metrics:
    """One object counts for one app. ConfigError without prometheus_client."""

    def __init__(self) -> None:
        try:
            from polyport.protocols.metrics.counts import Counts  # an optional dependency
        except ModuleNotFoundError as error:
            raise ConfigError(f"Metrics needs the package {error.name!r}: pip install 'polyport[otel]'") from None
        self.counts = Counts()

    @property
    def plugins(self) -> Sequence[Plugin]:
        """What the app must have among its plugins."""
        return (self.counts.plugin,)

    @property
    def watches(self) -> Sequence[Watch]:
        """What the host must ask about its requests."""
        return (self.watch,)

    def watch(self, request: Request) -> Callable[[int], None]:
        """See protocols.host.Watch."""
        began = request.seams.clock()

        def ended(status: int) -> None:
            self.counts.request(request.route, request.method, status, request.seams.clock() - began)

        return ended

    def mount(self, parts: Parts) -> "MetricsServer":
        return MetricsServer(self, parts)


class MetricsServer:
    """See the module."""

    def __init__(self, options: Metrics, parts: Parts) -> None:
        self._counts = options.counts
        self._counts.runs(parts.runs)

    def routes(self) -> list[Route]:
        summary = "Numbers for Prometheus"
        return [Route("GET", "/metrics", self.show, admin=True, summary=summary, returns="text/plain")]

    async def show(self, request: Request, send: Send) -> None:
        """The text format of Prometheus."""
        kind, body = self._counts.text()
        await send_body(send, 200, body, [(b"content-type", kind.encode()), (b"cache-control", b"no-store")])

    def around(self) -> AbstractAsyncContextManager[None]:
        """See protocols.parts.Mounted."""
        return nullcontext()

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        """See protocols.parts.Mounted: the event loop is measured."""
        with self._counts.lag():
            yield
