"""How a protocol that is an object of its own becomes part of an app.

The App gives a `Mountable` what protocols are made of, and takes its routes and what it keeps running. Holds no behaviour.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, runtime_checkable

from polyport.data.limits import Limits
from polyport.engine.tree import AgentTree
from polyport.ports.peers import Peers
from polyport.ports.plugin import Plugin
from polyport.ports.runs import Runs
from polyport.protocols.guard import Guard
from polyport.protocols.host import Watch
from polyport.protocols.routes import Route
from polyport.runs.alone import Alone
from polyport.seams import Seams


class Parts(NamedTuple):
    """What protocols are made of. `trees` has the apps in the order in which they were given; `guard` gives the one that is
    in force now; `plugins` are those of the app."""

    runs: Runs
    trees: Mapping[str, AgentTree]
    limits: Limits
    seams: Seams
    guard: Callable[[], Guard]
    plugins: Sequence[Plugin] = ()
    peers: Peers = Alone()


class Mounted(Protocol):
    """A protocol that is part of an app."""

    def routes(self) -> list[Route]: ...

    def around(self) -> AbstractAsyncContextManager[Any]:
        """What is entered before runs are accepted, and left after the last one has ended."""
        ...

    def beside(self) -> AbstractAsyncContextManager[Any]:
        """What is entered once runs are accepted, and left before they have to end."""
        ...


class Still:
    """The rest of a Mounted that has routes and keeps nothing running."""

    def around(self) -> AbstractAsyncContextManager[Any]:
        """See Mounted."""
        return nullcontext()

    def beside(self) -> AbstractAsyncContextManager[Any]:
        """See Mounted."""
        return nullcontext()


class Mountable(Protocol):
    """The settings of a protocol, for `App(protocols=[...])`."""

    def mount(self, parts: Parts) -> Mounted:
        """ConfigError for what makes no sense together."""
        ...


@runtime_checkable
class Watching(Protocol):
    """What a Mountable has besides when it measures: plugins that the app is to have, and watches of all its requests."""

    @property
    def plugins(self) -> Sequence[Plugin]: ...

    @property
    def watches(self) -> Sequence[Watch]: ...
