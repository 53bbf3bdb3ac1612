"""`polyport worker`: an App that takes no requests, carries out what others of its cluster hand out, and goes on with what they
left behind.

It is `serve` with the routes of the probes only, or none: the same server, signals, grace time and exit codes. Its runs come
from the cluster; here it is told what became of them.
"""

import gc
import logging

from polyport.app import App
from polyport.cli.banner import worker_banner
from polyport.cli.ending import leave
from polyport.cli.logs import configure
from polyport.cli.options import ServeOptions
from polyport.cli.serve import build, listen, say, serve_one
from polyport.errors import ConfigError
from polyport.ports.runs import Run
from polyport.protocols.guard import Guard
from polyport.protocols.host import Host

log = logging.getLogger("polyport")

PROBES = ("/health", "/ready")


def work_forever(options: ServeOptions) -> None:
    """Work until a signal. ConfigError for what cannot work, before anything is begun."""
    gc.disable()  # what start-up makes stays; the server turns it on again
    configure(options.log_format, options.log_level)
    leave(_work(options))


def _work(options: ServeOptions) -> int:
    health = options.health is not None
    if health:
        options.host, options.port = _place(options.health or "")
    app = build(options)
    if not app.runs.peers.name:
        raise ConfigError(
            "a worker works for the processes of a cluster: add --cluster nats://HOST:4222 (see docs/cluster.md)"
        )
    app.runs.on_end(_tell)
    _answer_probes_only(app, options.host, health)
    listener = listen(options.host, options.port) if health else None
    if listener is not None:
        options.port = listener.getsockname()[1]
    return serve_one(options, app, listener, lambda: say(worker_banner(app, options)))


def _place(word: str) -> tuple[str, int]:
    """Address and port of `--health`. ConfigError."""
    host, colon, port = word.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535 or (colon and not host):
        raise ConfigError(f"--health {word!r} must be a port, or ADDRESS:PORT such as 0.0.0.0:8001")
    return host.strip("[]") or "127.0.0.1", int(port)


def _answer_probes_only(app: App, host: str, health: bool) -> None:
    """Replace what the app serves. Its guard stays with it, for A2A asks who may call; the probes need nobody's name."""
    routes = [route for route in app.asgi.routes if health and route.pattern in PROBES]
    if health and len(routes) < len(PROBES):
        raise ConfigError('--health: this App has no /health and /ready; serve "rest", too')
    app.asgi = Host(routes, guard=Guard(bind_host=host), limits=app.limits, lifespan=app.running)


def _tell(run: Run) -> None:
    outcome = run.outcome
    assert outcome is not None
    why = f": {outcome.reason}" if outcome.reason else ""
    log.info("run %s of %s: %s%s", run.id, run.key, outcome.status, why)
