"""`polyport serve`: an App behind uvicorn, in one process or several.

Knows the server and its signals; the App knows the rest. On SIGTERM or SIGINT it takes no more runs, lets those that are
alive end (`grace_s`), tells the rest why, and leaves with exit code 0. A second signal ends it at once.
"""

import gc
import logging
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from errno import EACCES, EADDRINUSE
from functools import partial
from signal import SIGINT, SIGTERM, Signals, getsignal, signal
from types import FrameType
from typing import Any

import anyio
import uvicorn
from uvicorn.lifespan.on import LifespanOn

from polyport.app import App
from polyport.cli.banner import LOOPBACK, banner
from polyport.cli.ending import die_of, leave, mute_stdout
from polyport.cli.identity import Identity, check_open, warn_if_open
from polyport.cli.logs import configure
from polyport.cli.options import ServeOptions
from polyport.cli.serve_http import HttpProtocol
from polyport.cli.served import chosen, prefixes_of
from polyport.cli.words import cluster_of, make_app
from polyport.config.text import count
from polyport.data.limits import MIB, Limits
from polyport.errors import ConfigError
from polyport.protocols.guard import Guard
from polyport.stores.memory import MemorySessions

log = logging.getLogger("polyport")

FAILED = 1
"""The exit code when nothing could be served, or a part could not be closed."""

BACKLOG = 2048
"""Connections that may wait to be taken."""


class Config(uvicorn.Config):
    """uvicorn's settings, and the options they were made from. The app is set later, in the process that serves it."""

    def __init__(self, options: ServeOptions, limits: Limits) -> None:
        self.options = options
        super().__init__(
            app="",
            loop="uvloop" if sys.platform != "win32" else "asyncio",
            http=HttpProtocol,
            ws=open_websocket,  # pyright: ignore[reportArgumentType]  it is called like the class that it makes
            ws_max_size=limits.live_message_bytes,
            ws_per_message_deflate=False,
            access_log=False,
            log_config=None,
            lifespan="on",
            server_header=False,
            date_header=True,
            proxy_headers=False,
            workers=options.workers,
            timeout_keep_alive=65,
            timeout_graceful_shutdown=int(limits.shutdown_s + 12),
            timeout_worker_healthcheck=60,
            backlog=BACKLOG,
        )


class Server(uvicorn.Server):
    """uvicorn's server, which drains our runs while it waits for open connections, and calls `ready` once it takes requests.
    A second signal ends the process at once."""

    signals: tuple[Signals, ...] = (SIGINT, SIGTERM)

    def __init__(self, config: uvicorn.Config, app: App, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready
        self._signal = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        calm_gc()
        self._ready()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        before = {number: getsignal(number) for number in self.signals}
        for number in before:
            signal(number, self.handle_exit)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._signal:
            die_of(sig)
        self._signal = sig
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Leave when the app has broken down: nothing else would tell whoever can start it anew."""
        if self.broken and not self.should_exit:
            log.error("the app has broken down, see above; leaving")
            return True
        return await super().on_tick(counter)

    @property
    def broken(self) -> bool:
        """Whether the app ended by itself, or not cleanly."""
        lifespan = self.lifespan
        return isinstance(lifespan, LifespanOn) and (lifespan.error_occurred or lifespan.shutdown_failed)

    @property
    def active(self) -> int:
        """How many runs are alive."""
        return self._app.runs.active

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        runs = self._app.runs
        if runs.active:
            grace = self._app.limits.shutdown_s
            log.warning(
                "%s: %g s for %s to end; a second signal ends at once", self._why(), grace, count(runs.active, "run")
            )
        async with anyio.create_task_group() as group:
            group.start_soon(runs.drain, self._app.limits.shutdown_s)
            await super().shutdown(sockets)
        log.info("%s: stopped", self._why())

    def _why(self) -> str:
        return Signals(self._signal).name if self._signal else "stopping"


def serve_forever(options: ServeOptions) -> None:
    """Serve until a signal. ConfigError for what cannot work, before anything listens."""
    gc.disable()  # what start-up makes stays; `calm_gc` turns it on again
    configure(options.log_format, options.log_level)
    if options.reload and sys.platform == "win32":
        raise ConfigError("--reload needs processes that share a socket, which Windows has not")
    if options.reload:
        from polyport.cli.reload import sessions_kept  # needed by this choice only, and not there on Windows

        with sessions_kept(options):
            code = _serve(options)
    else:
        code = _serve(options)
    leave(code)


def _serve(options: ServeOptions) -> int:
    if options.workers > 1 and sys.platform == "win32":
        raise ConfigError("--workers needs processes that share a socket, which Windows has not; start several servers")
    app = build(options)  # a mistake shows here, once, and not in every worker
    if options.workers > 1 and isinstance(app.stores.sessions, MemorySessions):
        raise ConfigError(
            "--workers needs sessions that all processes share: add --db sqlite:///data.db or postgresql://... (an App of "
            "yours: stores=)"
        )
    check_open(app, options.host, options.insecure)
    listener = listen(options.host, options.port)  # so does a port in use
    options.port = listener.getsockname()[1]

    def ready() -> None:
        say(banner(app, options))
        warn_if_open(app, options.host)

    if options.reload:
        from polyport.cli.reload import reload_forever  # as above

        return reload_forever(Config(options, app.limits), listener, ready)
    if options.workers > 1:
        from polyport.cli.workers import supervise  # as above

        return supervise(Config(options, app.limits), listener, ready)
    return serve_one(options, app, listener, ready)


def say(text: str) -> None:
    """Tell people on standard output."""
    try:
        print(text, flush=True)
    except BrokenPipeError:  # nobody reads it, and the server is not for its banner
        mute_stdout()


def serve_one(options: ServeOptions, app: App, listener: socket.socket | None, ready: Callable[[], None]) -> int:
    """Serve in this process until a signal, without a listener nobody; the exit code."""
    config = Config(options, app.limits)
    config.app = app.asgi
    server = Server(config, app, ready)
    try:
        server.run(sockets=[listener] if listener is not None else [])
    except SystemExit:  # uvicorn's way to say that the start failed; the reason is in the log
        return FAILED
    return FAILED if server.broken else 0


def open_websocket(**options: Any) -> Any:
    """uvicorn's protocol for one WebSocket connection; an optional part that is imported for the first one."""
    from polyport.cli.websocket import WebSocket

    return WebSocket(**options)


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket, so that a second server on the port fails here and an early client waits; with `shared` one of
    several of the same port, among which Linux spreads the connections. ConfigError."""
    listener = bind(host, port, shared=shared)
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from None
    return listener


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that has the address but takes no connections. ConfigError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise _cannot_listen(host, port, error) from None
    return bound


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}.{_advice(error, port)}")


def _advice(error: OSError, port: int) -> str:
    if isinstance(error, socket.gaierror):
        return " --host takes an address or a name of this machine"
    if error.errno == EADDRINUSE:
        return " Another server runs there; stop it, or choose another port with --port"
    if error.errno == EACCES and port < 1024:
        return " Ports below 1024 need more rights; choose another with --port"
    return f" --host takes an address of this machine, such as {LOOPBACK[0]} or 0.0.0.0"


def build(options: ServeOptions) -> App:
    """The App to serve, behind a guard for the address it listens on, and one of a cluster if the options name one."""
    guard = Guard(
        options.allowed_hosts,
        options.allowed_origins,
        bind_host=options.host,
        trusted_proxy=options.trusted_proxy,
    )
    app = make_app(
        options.agents,
        db=options.db,
        limits=limits_of(options),
        guard=guard,
        identity=Identity(
            auth=options.auth, authorize=options.authorize or "", trusted_proxy_cidr=options.trusted_proxy_cidr
        ),
        given=options.given,
        protocols=partial(chosen, options),
        cluster=partial(cluster_of, options),
    )
    if options.prefix:  # refused above for an App of the user's own
        app.asgi = app.asgi.under(prefixes_of(options.prefix))
    return app


def limits_of(options: ServeOptions) -> Limits:
    """What the flags say of limits. ConfigError for one that has no effect."""
    if options.caller_burst is not None and not options.caller_rate:
        raise ConfigError("--caller-burst: add --caller-rate, for which it is")
    settings = {
        "max_runs": options.max_runs,
        "caller_burst": options.caller_burst,
        "body_bytes": options.body_mib and options.body_mib * MIB,
    }
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    return Limits(
        sse_timeout_s=options.sse_timeout_s,
        history_window=options.history_window,
        shutdown_s=options.grace_s,
        on_busy=options.on_busy,  # pyright: ignore[reportArgumentType]  checked by click and by Limits
        caller_requests_per_s=options.caller_rate,
        caller_requests=options.caller_requests,
        user_runs=options.user_runs,
        **given,
    )


def calm_gc() -> None:
    """Full collections are the tail of latency: freeze what start-up made, and look rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
