"""From the words of a command to an App. Used by the commands `run`, `serve` and `check`."""

from polyport.app import App
from polyport.config.load import load
from polyport.data.limits import Limits
from polyport.errors import ConfigError
from polyport.protocols.guard import Guard


def make_app(
    words: list[str], *, db: str | None = None, limits: Limits | None = None, guard: Guard | None = None
) -> App:
    """The App that the words name. ConfigError when a flag contradicts an App of the user's own."""
    found = load(words)
    if isinstance(found, App):
        if db:
            raise ConfigError(
                f"{words[0]} is an App that chooses its own stores; remove --db, or give its agent instead"
            )
        if guard is not None:
            found.asgi.guard = guard
        return found
    return App(found, stores=db, limits=limits, guard=guard)
