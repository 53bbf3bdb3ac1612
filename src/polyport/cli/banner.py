"""What `polyport serve` says once it serves: what is where, and a first request to copy."""

import ipaddress
import json
import shlex
from collections.abc import Sequence
from urllib.parse import quote

from polyport.app import App
from polyport.cli.served import served_by
from polyport.stores.memory import MemorySessions
from polyport.stores.open import shown_url

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def banner(app: App, host: str, port: int, db: str | None, prefixes: Sequence[str] = ()) -> str:
    """The lines for people; the first ends with the URL. The routes tell what is served, for an App of one's own too."""
    shown = f"[{host}]" if ":" in host else host
    here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(shown, shown)  # where it listens is not where to call
    first, *others = prefixes or ("", "/api")
    local = f"http://{here}:{port}{first}"
    served = served_by(app.asgi.routes)
    rest = any(known.flag == "--rest" for known in served)
    also = f" (and below {', '.join(other or '/' for other in others)})" if others else ""
    kept = shown_url(db) if db else f"in the App's own {type(app.stores.sessions).__name__}"
    if isinstance(app.stores.sessions, MemorySessions):
        kept = "in memory: gone when the server stops (keep them with --db sqlite:///data.db)"
    lines = [("for people", f"{local}/docs")] if rest else []
    lines += [(known.name, f"{local}{known.place}{also if known.flag == '--rest' else ''}") for known in served]
    return "\n".join(
        [
            f"Polyport serves {', '.join(app.trees)} on http://{shown}:{port}",
            *(f"  {name:<13}{place}" for name, place in [*lines, ("sessions", kept)]),
            *(_first_request(app, local) if rest else ()),
            "Ctrl-C stops.",
        ]
    )


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
