"""Evaluation as part of an app: `App(protocols=["rest", Evals(root="agents")])`.

Gives the routes of spec rest 10.1 in their old and new spellings, under `/dev/apps/{app}` and, those of eval sets, under
`/apps/{app}` too. What changes something is for programs on this machine, and for those who may administer the app.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from polyport.errors import ConfigError
from polyport.evals.custom import Function
from polyport.evals.judging import DEFAULT_JUDGE
from polyport.evals.playing import Subject
from polyport.ports.model import Model
from polyport.protocols.evals.builder import BuilderRoutes
from polyport.protocols.evals.consent import ConsentRoutes
from polyport.protocols.evals.place import Place
from polyport.protocols.evals.scores import ScoreRoutes
from polyport.protocols.evals.sets import SetRoutes
from polyport.protocols.evals.tests import TestRoutes
from polyport.protocols.parts import Parts, Still
from polyport.protocols.routes import Route


@dataclass(frozen=True, kw_only=True)
class Evals:
    """Evaluation, for `App(protocols=[...])`.

    - `root` is the folder in which each app has a folder of its name, for eval sets, results and tests.
    - `judge` is the model that judges where a metric names none: a name of the registry, or a model.
    - `metrics` are metrics of your own by name: see `evals.custom.Function`.
    - `parallel` is how many cases are played side by side.
    """

    root: str | Path = "."
    judge: Model | str = DEFAULT_JUDGE
    metrics: Mapping[str, Function] = field(default_factory=dict[str, Function])
    parallel: int = 4

    def mount(self, parts: Parts) -> "EvalServer":
        root = Path(self.root)
        if not root.is_dir():
            raise ConfigError(f"Evals: root is {str(root)!r}, which is no folder; it must hold the folders of the apps")
        return EvalServer(self, root.resolve(), parts)


class EvalServer(Still):
    """See the module."""

    def __init__(self, options: Evals, root: Path, parts: Parts) -> None:
        subject = Subject(parts.trees, parts.plugins, parts.limits, parts.seams)
        place = Place(root, subject, parts.guard)
        self._parts = (
            SetRoutes(place, parts.runs.stores.sessions),
            ScoreRoutes(place, options.metrics, options.judge, options.parallel),
            TestRoutes(place),
            BuilderRoutes(place),
            ConsentRoutes(),
        )

    def routes(self) -> list[Route]:
        return [route for part in self._parts for route in part.routes()]
