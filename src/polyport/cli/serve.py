"""`polyport serve`: an App behind uvicorn, in one process or several.

Knows the server and its signals; the App knows the rest. On SIGTERM or SIGINT it takes no more runs, lets those that are
alive end (`shutdown_s`), tells the rest why, and leaves.
"""

import gc
import logging
import os
import socket
import sys
from typing import Any

import anyio
import msgspec
import uvicorn
from msgspec import Struct
from uvicorn.supervisors import multiprocess

from polyport.app import App
from polyport.cli.logs import configure
from polyport.cli.words import make_app
from polyport.data.limits import Limits
from polyport.errors import ConfigError
from polyport.protocols.guard import Guard

ENV = "POLYPORT_SERVE"
"""How the options reach worker processes, as JSON."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServeOptions(Struct, kw_only=True):
    """The options of the command, see `polyport serve --help`."""

    agents: list[str]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    db: str | None = None
    on_busy: str = "queue"
    history_window: int | None = None
    sse_timeout_s: float = 120.0
    allowed_hosts: list[str] = []
    allowed_origins: list[str] = []
    trusted_proxy: bool = False
    log_format: str = "text"
    log_level: str = "info"


class Server(uvicorn.Server):
    """uvicorn's server, which drains our runs while it waits for open connections."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app = _apps[-1] if _apps else None
        if app is None:
            return await super().shutdown(sockets)
        async with anyio.create_task_group() as group:
            group.start_soon(app.runs.drain, app.limits.shutdown_s)
            await super().shutdown(sockets)


class Worker(multiprocess.Process):
    """A worker process with the server above."""

    @property
    def server(self) -> Server:
        if self._server is None:
            self._server = Server(config=self.config)
        return self._server  # pyright: ignore[reportReturnType]  it is ours, set two lines above


_apps: list[App] = []
"""The app of this process, for the server above."""


def serve_forever(options: ServeOptions) -> None:
    """Serve until a signal. ConfigError for what cannot work, before anything listens."""
    configure(options.log_format, options.log_level)
    if options.workers > 1 and not options.db:
        raise ConfigError("--workers needs sessions that all processes share: add --db sqlite:///data.db")
    os.environ[ENV] = msgspec.json.encode(options).decode()
    app = build(options)  # a mistake shows here, once, and not in every worker
    config = _uvicorn_config(options)
    listener = _listen(options)
    port = listener.getsockname()[1]
    _banner(app, options, port)
    if options.workers > 1:
        multiprocess.Process = Worker  # the supervisor has no other seam for the server of its workers
        multiprocess.Multiprocess(config, [listener]).run()
    else:
        _apps.append(app)
        config.app = app.asgi
        config.factory = False
        Server(config).run(sockets=[listener])


def _uvicorn_config(options: ServeOptions) -> uvicorn.Config:
    limits = _limits(options)
    return uvicorn.Config(
        "polyport.cli.serve:worker_asgi",
        factory=True,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=limits.live_message_bytes,
        access_log=False,
        log_config=None,
        lifespan="on",
        server_header=False,
        date_header=True,
        proxy_headers=False,
        workers=options.workers,
        timeout_keep_alive=65,
        timeout_graceful_shutdown=int(limits.shutdown_s + 12),
        backlog=2048,
    )


def _listen(options: ServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror or error}. "
            "Is another server running there? Choose another with --port"
        ) from None
    listener.set_inheritable(True)
    return listener


def _limits(options: ServeOptions) -> Limits:
    return Limits(
        sse_timeout_s=options.sse_timeout_s,
        history_window=options.history_window,
        on_busy=options.on_busy,  # pyright: ignore[reportArgumentType]  checked by click and by Limits
    )


def build(options: ServeOptions) -> App:
    """The App to serve, behind a guard for the address it listens on."""
    guard = Guard(
        options.allowed_hosts,
        options.allowed_origins,
        bind_host=options.host,
        trusted_proxy=options.trusted_proxy,
    )
    return make_app(options.agents, db=options.db, limits=_limits(options), guard=guard)


def worker_asgi() -> Any:
    """The ASGI app of a worker process; uvicorn calls it there."""
    options = msgspec.json.decode(os.environ[ENV], type=ServeOptions)
    configure(options.log_format, options.log_level)
    app = build(options)
    _apps.append(app)
    calm_gc()
    return app.asgi


def calm_gc() -> None:
    """Full collections are the tail of latency: freeze what start-up made, and look rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _banner(app: App, options: ServeOptions, port: int) -> None:
    calm_gc()
    host = f"[{options.host}]" if ":" in options.host else options.host
    url = f"http://{host}:{port}"
    first = next(iter(app.trees))
    session = f"{url}/apps/{first}/users/me/sessions/s1"
    body = f'{{"appName":"{first}","userId":"me","sessionId":"s1","newMessage":{{"parts":[{{"text":"Hello"}}]}}}}'
    lines = [
        f"Polyport serves {', '.join(app.trees)} on {url}",
        f"  for people   {url}/docs",
        f"  REST + SSE   {url} (and {url}/api)",
        f"  sessions     {options.db or 'in memory: gone when the server stops (keep them with --db sqlite:///data.db)'}",
        "Try:",
        f"  curl -X POST {session}",
        f"  curl {url}/run -H 'content-type: application/json' -d '{body}'",
    ]
    print("\n".join(lines), flush=True)
    if options.host not in LOOPBACK:
        logging.getLogger("polyport").warning(
            "listening on %s without authentication: everybody who reaches this port can act as any user", options.host
        )
