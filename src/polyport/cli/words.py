"""From the words of a command to an App. Used by the commands `run`, `serve` and `check`."""

from collections.abc import Collection, Sequence

from polyport.app import App
from polyport.config.load import load
from polyport.data.limits import Limits
from polyport.errors import ConfigError
from polyport.protocols.guard import Guard
from polyport.protocols.parts import Mountable

LIMITS = ("--on-busy", "--history-window", "--sse-timeout", "--grace")
PROTOCOLS = ("--a2a", "--grpc-port", "--push", "--mcp")
GUARD = ("--allowed-hosts", "--allowed-origins", "--trusted-proxy")


def make_app(
    words: list[str],
    *,
    db: str | None = None,
    limits: Limits | None = None,
    guard: Guard | None = None,
    given: Sequence[str] = (),
    protocols: Collection[str | Mountable] = ("rest",),
) -> App:
    """The App that the words name. `given` are the flags that the user wrote: ConfigError when one of them is the business of
    an App of the user's own, which is never changed behind its back."""
    found = load(words)
    if not isinstance(found, App):
        return App(found, stores=db, limits=limits, guard=guard, protocols=protocols)
    own_guard = not found.asgi.guard.is_open or type(found.asgi.guard) is not Guard
    contradicting = [flag for flag in given if flag in LIMITS or flag in PROTOCOLS or (flag in GUARD and own_guard)]
    if db is not None:
        contradicting.insert(0, "--db")
    if contradicting:
        raise ConfigError(
            f"{words[0]} is an App with settings of its own; remove {', '.join(contradicting)}, or give its agent instead"
        )
    if guard is not None and not own_guard:
        found.asgi.guard = guard
    return found
