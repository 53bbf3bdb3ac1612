"""Models and generation settings of agent files. Called by `yaml_agents`.

A name is resolved by the same registry as in Python (FR-218), at once, so that a mistake is told with its place; agents that
name the same model share it. Asks no provider.
"""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import structs

from polyport.config.project import Project
from polyport.config.schema import GenerateSection, ModelSection
from polyport.config.yaml_read import BROKEN, nearest, read
from polyport.config.yaml_text import Node
from polyport.data.model import GenerateConfig
from polyport.errors import ConfigError
from polyport.models.constrained import Constrained
from polyport.models.fallback import Fallback
from polyport.models.registry import LOCAL, resolve
from polyport.ports.model import Model

PROVIDERS = ("demo", "gemini", "openai", "anthropic", "ollama", *LOCAL)
"""What `type` may be."""


class Models:
    """The models of one load. `given` are models that a program gives instead, by the name that the file has."""

    def __init__(self, project: Project, given: Mapping[str, Model]) -> None:
        self._project = project
        self._given = given
        self._known: dict[str, Model] = {}

    def model(self, wanted: str | ModelSection, node: Node) -> Model | str:
        """The model; "" (that of the agent above) for "" and when there is a problem."""
        if isinstance(wanted, str):
            return self._named(wanted, node) if wanted else ""
        found: Any = self._base(wanted)
        if found == "":
            return ""
        others = [self._other(item) for item in wanted.fallback]
        if others:
            found = Fallback(found, *(other for other in others if other != ""))
        return Constrained(found) if wanted.constrained else found

    def _other(self, node: Node) -> Model | str:
        wanted = read(node, str | ModelSection, self._project.problems, "a model of fallback")
        return "" if wanted is BROKEN else self.model(wanted, node)

    def _base(self, wanted: ModelSection) -> Model | str:
        node, problems = wanted.node, self._project.problems
        before = len(problems.found)
        for first, second in (("type", "provider"), ("base_url", "api_base")):
            if getattr(wanted, first) and getattr(wanted, second):
                problems.add(node.of(second), f"{first} and {second} are the same; give one of them")
        if wanted.code:
            others = [n for n in ("type", "provider", "name", "api_key", "base_url", "api_base") if getattr(wanted, n)]
            for name in others:
                problems.add(node.of(name), f"{name} is for a model by its name; this one is made by `code`")
            return "" if len(problems.found) > before else self._coded(wanted)
        family = (wanted.type or wanted.provider).lower()
        if family and family not in PROVIDERS:
            guess = nearest(family, PROVIDERS) or "."
            place = node.of("type" if wanted.type else "provider")
            problems.add(place, f"there is no provider {family!r}{guess} There are: {', '.join(PROVIDERS)}")
        elif not wanted.name and family != "demo":
            problems.add(node, "a model needs its `name`, beside `type` or with the provider in it, or `code`")
        if len(problems.found) > before:
            return ""
        name = wanted.name
        if name in self._given:
            return self._given[name]
        if family == "demo":
            name = "demo"
        elif family and not name.startswith(f"{family}/"):
            name = f"{family}/{name}"
        options = {"api_key": wanted.api_key, "base_url": wanted.base_url or wanted.api_base, "headers": wanted.headers}
        return self._named(name, node, {key: value for key, value in options.items() if value})

    def _named(self, name: str, node: Node, options: dict[str, Any] | None = None) -> Model | str:
        if name in self._given:
            return self._given[name]
        if not options and name in self._known:
            return self._known[name]
        try:
            model = resolve(name, **(options or {}))
        except ConfigError as error:
            self._project.problems.add(node, str(error))
            return ""
        if not options:
            self._known[name] = model
        return model

    def _coded(self, wanted: ModelSection) -> Model | str:
        place = wanted.node.of("code")
        found = self._project.find(wanted.code, place)
        if found is not BROKEN and (wanted.args is not None or isinstance(found, type)):
            found = self._project.call(found, wanted.args or Node(kind="map", file=place.file, line=place.line))
        if found is BROKEN:
            return ""
        if isinstance(found, str):
            return self._named(found, place)
        if not hasattr(found, "generate"):
            self._project.problems.add(place, f"{wanted.code!r} is of type {type(found).__name__}, not a model")
            return ""
        return cast("Model", found)


def generate_config(wanted: GenerateSection | None, project: Project) -> GenerateConfig:
    """The settings of `generate_content_config`."""
    if wanted is None:
        return GenerateConfig()
    values: dict[str, Any] = {
        name: getattr(wanted, name)
        for name in structs.asdict(GenerateConfig())
        if name != "extra" and name in GenerateSection.__struct_fields__
    }
    thinking = wanted.thinking_config
    if thinking is not None:
        values["thinking_budget"] = thinking.thinking_budget
        values["include_thoughts"] = thinking.include_thoughts
    if wanted.extra is not None:
        extra = wanted.extra.value()
        if not isinstance(extra, dict):
            project.problems.add(wanted.extra, f"extra takes a mapping, not {wanted.extra.shown()}")
        else:
            values["extra"] = extra
    return GenerateConfig(**values)
