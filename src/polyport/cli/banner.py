"""What `polyport serve` and `polyport worker` say once they are at work: what is where, and a first request to copy."""

import ipaddress
import json
import shlex
from urllib.parse import quote

from polyport.app import App
from polyport.cli.options import ServeOptions
from polyport.cli.served import prefixes_of, served_by
from polyport.stores.memory import MemorySessions
from polyport.stores.open import shown_url

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def banner(app: App, options: ServeOptions) -> str:
    """The lines for people; the first ends with the URL. The routes tell what is served, for an App of one's own too."""
    host, port = options.host, options.port
    shown = f"[{host}]" if ":" in host else host
    here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(shown, shown)  # where it listens is not where to call
    first, *others = prefixes_of(options.prefix) or ("", "/api")
    local = f"http://{here}:{port}{first}"
    served = served_by(app.asgi.routes)
    rest = any(known.flag == "--rest" for known in served)
    also = f" (and below {', '.join(other or '/' for other in others)})" if others else ""
    lines = [("for people", f"{local}/docs")] if rest else []
    lines += [(known.name, f"{local}{known.place}{also if known.flag == '--rest' else ''}") for known in served]
    return "\n".join(
        [
            f"Polyport serves {', '.join(app.trees)} on http://{shown}:{port}",
            *_table(*lines, ("sessions", _kept(app, options)), *_cluster(app, options)),
            *(_first_request(app, local) if rest else ()),
            "Ctrl-C stops.",
        ]
    )


def worker_banner(app: App, options: ServeOptions) -> str:
    """The lines for people of a process that serves nothing but, perhaps, probes."""
    shown = f"[{options.host}]" if ":" in options.host else options.host
    probes = [("probes", f"http://{shown}:{options.port}/health, /ready")] if app.asgi.routes else []
    return "\n".join(
        [
            f"Polyport works for {', '.join(app.trees)} as {app.runs.peers.name}",
            *_table(*probes, ("sessions", _kept(app, options)), *_cluster(app, options)),
            "Ctrl-C stops.",
        ]
    )


def _table(*lines: tuple[str, str]) -> list[str]:
    return [f"  {name:<13}{place}" for name, place in lines]


def _kept(app: App, options: ServeOptions) -> str:
    sessions = app.stores.sessions
    if isinstance(sessions, MemorySessions):
        return "in memory: gone when the server stops (keep them with --db sqlite:///data.db)"
    return shown_url(options.db) if options.db else f"in the App's own {type(sessions).__name__}"


def _cluster(app: App, options: ServeOptions) -> list[tuple[str, str]]:
    """Which cluster it belongs to, and under which name, which it has once it serves; each process of several has its own."""
    name = app.runs.peers.name
    if not name:
        return []
    where = "the App's own"
    if options.cluster is not None:
        from polyport.cluster.nats_url import shown  # needed by this choice only

        where = shown(options.cluster)
    if options.workers > 1:
        where += f" as {options.workers} processes"
    elif not options.reload:  # which has a new process, and name, with each change
        where += f" as {name}"
    return [("cluster", where)]


def _first_request(app: App, local: str) -> list[str]:
    first = next(iter(app.trees))
    body = {"appName": first, "userId": "me", "sessionId": "s1", "newMessage": {"parts": [{"text": "Hello"}]}}
    data = shlex.quote(json.dumps(body, ensure_ascii=False, separators=(",", ":")))
    session = shlex.quote(f"{local}/apps/{quote(first, safe='')}/users/me/sessions/s1")
    return [
        "Try:" if app.asgi.guard.auth is None else "Try, with a credential, as the user that it names:",
        f"  curl -X POST {session}",
        f"  curl {local}/run -H 'content-type: application/json' -d {data}",
    ]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK
