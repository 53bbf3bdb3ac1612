"""Debug as part of an app: `debug = Debug()`, then `App(agent, plugins=debug.plugins, protocols=["rest", debug])`.

Holds the traces of the newest runs, and serves them and the pictures of the agents. Off unless asked for, and not meant for
the public: traces hold what users said when content is captured. Needs the OpenTelemetry SDK, and configures no exporter.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from polyport.errors import ConfigError
from polyport.plugins.telemetry import TelemetryPlugin
from polyport.ports.plugin import Plugin
from polyport.protocols.debug.graphs import Graphs
from polyport.protocols.debug.store import TraceStore
from polyport.protocols.debug.traces import Traces
from polyport.protocols.host import Watch
from polyport.protocols.parts import Parts
from polyport.protocols.routes import Route

CAPACITY = 10_000
MAX_BYTES = 64 * 1024 * 1024
TEXT_CHARS = 20_000


class Debug:
    """`capacity` traces with `max_bytes` altogether are kept, texts in them cut at `text_chars`; the oldest go first.

    `telemetry` is the TelemetryPlugin that makes the spans, if the app has one already; `capture_content` is that of the one
    that is made otherwise. ConfigError for sizes that make no sense, or without the SDK. One object serves one app.
    """

    def __init__(
        self,
        *,
        telemetry: Plugin | None = None,
        capture_content: bool | None = None,
        capacity: int = CAPACITY,
        max_bytes: int = MAX_BYTES,
        text_chars: int = TEXT_CHARS,
    ) -> None:
        for name, value in (("capacity", capacity), ("max_bytes", max_bytes), ("text_chars", text_chars)):
            if value < 1:
                raise ConfigError(f"{name} of Debug is {value}; it must be at least 1")
        if telemetry is not None and capture_content is not None:
            raise ConfigError("capture_content of Debug is for a plugin of its own; set it where telemetry= is made")
        made = telemetry if telemetry is not None else TelemetryPlugin(capture_content=capture_content)
        if not isinstance(made, TelemetryPlugin):
            raise ConfigError(f"telemetry of Debug is a {type(made).__name__}; it must be a TelemetryPlugin")
        self.telemetry = made
        self.store = TraceStore(capacity, max_bytes, text_chars)
        self._connected = False

    @property
    def plugins(self) -> Sequence[Plugin]:
        """What the app must have among its plugins."""
        return (self.telemetry,)

    @property
    def watches(self) -> Sequence[Watch]:
        """See protocols.parts.Watching: none."""
        return ()

    def mount(self, parts: Parts) -> "DebugServer":
        return DebugServer(self, parts)

    def connect(self) -> None:
        """Feed the store from the provider that is in use now. Once is enough."""
        if self._connected:
            return
        try:
            from polyport.protocols.debug.processors import connect_store  # an optional dependency
        except ModuleNotFoundError as error:
            raise ConfigError(f"Debug needs the package {error.name!r}: pip install 'polyport[otel]'") from None
        connect_store(self.telemetry, self.store)
        self._connected = True


class DebugServer:
    """See the module."""

    def __init__(self, options: Debug, parts: Parts) -> None:
        self._options = options
        self._traces = Traces(options.store)
        self._graphs = Graphs(parts.trees, parts.runs.stores)

    def routes(self) -> list[Route]:
        return [*self._traces.routes(), *self._graphs.routes()]

    @asynccontextmanager
    async def around(self) -> AsyncGenerator[None]:
        """See protocols.parts.Mounted."""
        self._options.connect()
        yield

    def beside(self) -> AbstractAsyncContextManager[None]:
        """See protocols.parts.Mounted."""
        return nullcontext()
