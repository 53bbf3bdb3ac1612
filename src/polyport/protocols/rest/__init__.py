"""The REST and SSE protocol of ADK (spec rest 1, 2.1-2.3, 4): `routes` gives all its routes to the host."""

from collections.abc import Callable, Mapping

from polyport.data.limits import Limits
from polyport.engine.tree import AgentTree
from polyport.ports.runs import Runs
from polyport.protocols.guard import Guard
from polyport.protocols.rest.about import About
from polyport.protocols.rest.artifacts import Artifacts
from polyport.protocols.rest.run import RunRoutes
from polyport.protocols.rest.sessions import Sessions
from polyport.protocols.routes import Route
from polyport.seams import Seams


def routes(
    runs: Runs, trees: Mapping[str, AgentTree], limits: Limits, seams: Seams, guard: Callable[[], Guard]
) -> list[Route]:
    """All routes of the protocol, as data. `guard` gives the one that is in force now."""
    found = [
        *RunRoutes(runs, limits).routes(),
        *Sessions(runs.stores.sessions, limits, seams).routes(),
        *Artifacts(runs.stores, limits).routes(),
    ]
    return [*found, *About(runs, trees, found, guard).routes()]
