"""What `polyport serve` says once it serves: where, and a first request to copy."""

import ipaddress
import json
import shlex
from urllib.parse import quote

from polyport.app import App
from polyport.stores.memory import MemorySessions

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def banner(app: App, host: str, port: int, db: str | None, *, a2a: bool = False) -> str:
    """The lines for people; the first ends with the URL."""
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}"
    here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(shown, shown)  # where it listens is not where to call
    local = f"http://{here}:{port}"
    first = next(iter(app.trees))
    body = {"appName": first, "userId": "me", "sessionId": "s1", "newMessage": {"parts": [{"text": "Hello"}]}}
    data = shlex.quote(json.dumps(body, ensure_ascii=False, separators=(",", ":")))
    session = shlex.quote(f"{local}/apps/{quote(first, safe='')}/users/me/sessions/s1")
    kept = db or f"in the App's own {type(app.stores.sessions).__name__}"
    if isinstance(app.stores.sessions, MemorySessions):
        kept = "in memory: gone when the server stops (keep them with --db sqlite:///data.db)"
    return "\n".join(
        [
            f"Polyport serves {', '.join(app.trees)} on {url}",
            f"  for people   {local}/docs",
            f"  REST + SSE   {local} (and {local}/api)",
            *([f"  A2A          {local}/.well-known/agent-card.json"] if a2a else []),
            f"  sessions     {kept}",
            "Try:" if app.asgi.guard.auth is None else "Try, with a credential, as the user that it names:",
            f"  curl -X POST {session}",
            f"  curl {local}/run -H 'content-type: application/json' -d {data}",
            "Ctrl-C stops.",
        ]
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK
