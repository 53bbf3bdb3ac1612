"""Agents from YAML files (spec core 9): `load_yaml("team/root_agent.yaml")`.

For programs, and for the loader of the command line. A file is read, checked and built, with all files that it names; all
mistakes are told at once, each with file, line and column
(LoadError). Every load makes new agents: nothing is shared between two loads. Runs nothing but the code that the files name.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from polyport.agents.flows import FunctionAgent, LoopAgent, ParallelAgent, SequentialAgent
from polyport.agents.llm import LlmAgent
from polyport.agents.remote import RemoteAgent
from polyport.app import App
from polyport.codec import convert
from polyport.config import schema
from polyport.config.env import read_env
from polyport.config.places import ROOT_FILES, root_file
from polyport.config.project import Project
from polyport.config.schema import AGENTS, NODES, AgentSection, CodeSection, SubAgentSection
from polyport.config.schema_tools import ToolSection
from polyport.config.yaml_app import make_app
from polyport.config.yaml_models import Models, generate_config
from polyport.config.yaml_read import BROKEN, Section, nearest, read
from polyport.config.yaml_text import Node
from polyport.config.yaml_tools import Tools
from polyport.config.yaml_workflow import Graphs
from polyport.errors import BadRequest, ConfigError
from polyport.ports.agent import Agent
from polyport.ports.model import Model
from polyport.wire.a2a import SendMessageConfiguration
from polyport.workflow import Workflow

_NAME = re.compile(r"[^\W\d][\w-]*")
MAX_AGENTS = 500
"""Agents that one load may make."""


def load_yaml(
    path: str | Path,
    *,
    names: Mapping[str, Any] | None = None,
    models: Mapping[str, Model] | None = None,
    app_name: str = "",
) -> Agent | App:
    """The agent of a file, or of the `root_agent.yaml` of a folder; an App if the file has `app:` settings.

    `names` are tools, callbacks and other objects that the file may name. `models` stand in for models by the names that the
    file has, as in tests: `models={"gemini-flash-latest": ScriptedModel(...)}`. LoadError tells everything that is wrong.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        file = root_file(file) or file / ROOT_FILES[0]
    file = file.resolve()
    read_env(file.parent)
    builder = Builder(Project(file.parent, names or {}), models or {})
    found = builder.root(file, app_name)
    builder.project.problems.check(builder.project.shown(file))
    assert found is not None, "whatever went wrong is a problem"
    return found


class Builder:
    """Makes the agents of one load."""

    def __init__(self, project: Project, models: Mapping[str, Model]) -> None:
        self.project = project
        self._models = Models(project, models)
        self._tools = Tools(project, self)
        self._graphs = Graphs(project, self)
        self._trail: list[Path] = []
        """The files that are being read now, each named by the one before."""
        self._names: list[dict[str, Node]] = []
        """For each tree that is being made, its names and where they are."""
        self._made = 0
        self._root: Node | None = None

    def root(self, file: Path, app_name: str) -> Agent | App | None:
        node = self.project.read(file)
        if node is None:
            return None
        self._trail.append(file)
        self._root = node
        self._names.append({})
        agent = self.agent(node)
        app = node.members.get("app")
        if agent is None or app is None or app[1].is_null:
            return agent
        return make_app(self.project, agent, app[1], app_name or agent.name)

    def tree(self, node: Node) -> Agent | None:
        """The agent of `node`, by reference or in place, as the root of a tree of its own: names are unique in a tree only."""
        self._names.append({})
        try:
            return self.child(node)
        finally:
            self._names.pop()

    # ---- one agent

    def agent(self, node: Node) -> Agent | None:
        """The agent that a mapping describes; None and a problem if it cannot be made."""
        problems = self.project.problems
        if node.kind != "map":
            problems.add(node, f"an agent is a mapping with `name`, `model` and more, not {node.shown()}")
            return None
        self._made += 1
        if self._made > MAX_AGENTS:
            problems.add(node, f"the files make more than {MAX_AGENTS} agents")
            return None
        before = len(problems.found)
        kind = node.of("agent_class") if "agent_class" in node.members else None
        word = "LlmAgent" if kind is None or kind.is_null else kind.text
        if kind is not None and ("." in word or ":" in word):
            made = self._own_class(node, kind)
        elif word in NODES:
            problems.add(kind or node, f"a {word} is a node of a Workflow, and no agent")
            return None
        elif word not in MAKERS:
            known = ", ".join(MAKERS)
            guess = nearest(word, list(MAKERS)) or "."
            problems.add(
                kind or node, f"there is no agent_class {word!r}{guess} There are: {known}, and classes by code"
            )
            return None
        else:
            made = self._made_of(node, word)
        return made if len(problems.found) == before else None

    def _made_of(self, node: Node, word: str) -> Agent | None:
        before = len(self.project.problems.found)
        section = read(node, AGENTS[word], self.project.problems, AGENTS[word].what)
        if section is BROKEN:
            return None
        fields = self._common(section) | MAKERS[word][1](self, section)
        if len(self.project.problems.found) > before:
            return None
        return self._construct(MAKERS[word][0], fields, node)

    def _construct(self, make: Callable[..., Any], fields: dict[str, Any], node: Node) -> Agent | None:
        if any(value is BROKEN for value in fields.values()):
            return None
        try:
            return make(**fields)
        except ConfigError as error:
            self.project.problems.add(node, str(error))
            return None

    def _common(self, section: AgentSection) -> dict[str, Any]:
        node, problems = section.node, self.project.problems
        self._check_name(section)
        if "app" in node.members and node is not self._root:
            problems.add(node.of("app"), "`app` belongs to the root of the root file: it is about the whole app")
        children = [self.child(item) for item in section.sub_agents]
        return {
            "name": section.name,
            "description": section.description,
            "sub_agents": [child for child in children if child is not None],
            "before_agent": self.callbacks(section, "before_agent"),
            "after_agent": self.callbacks(section, "after_agent"),
        }

    def _check_name(self, section: AgentSection) -> None:
        name, place, names = section.name, section.node.of("name"), self._names[-1]
        if name and not _NAME.fullmatch(name):
            self.project.problems.add(place, f"the name {name!r} must be an identifier: letters, digits, _ and -")
        elif name == "user":
            self.project.problems.add(place, 'an agent cannot be named "user": that is who its messages come from')
        elif name in names:
            first = f"{names[name].file}:{names[name].line}"
            self.project.problems.add(place, f"two agents of one tree are named {name!r}; the first is in {first}")
        names[name] = section.node

    def callbacks(self, section: Section, name: str) -> list[Callable[..., Any]]:
        """The functions that `NAME_callbacks` names."""
        key = f"{name}_callbacks"
        given: Any = getattr(section, key)
        place = section.node.of(key)
        several = isinstance(given, list)
        found: list[Callable[..., Any]] = []
        for index, one in enumerate(cast("list[Any]", given) if several else [given]):
            node = section.node.of(key, index) if several else place
            made = self.function(one, node, "a callback")
            if made is not None:
                found.append(made)
        return found

    def function(self, given: str | CodeSection, node: Node, what: str) -> Any:
        """A function by code; None for "", and when there is a problem."""
        if given == "":
            return None
        found = self.project.code(given, node)
        if found is BROKEN:
            return None
        if not callable(found):
            self.project.problems.add(node, f"{what} must be a function, not of type {type(found).__name__}")
            return None
        return found

    # ---- references

    def child(self, node: Node) -> Agent | None:
        """An agent by `config_path`, by `code`, or written in place."""
        if node.kind == "map" and not {"config_path", "code"} & node.members.keys():
            return self.agent(node)
        ref = read(node, SubAgentSection, self.project.problems, "a sub-agent")
        if ref is BROKEN:
            return None
        if ref.config_path and not ref.code:
            return self.file_of(ref.config_path, node.of("config_path"), self.agent)
        if ref.config_path or not ref.code:
            self.project.problems.add(node, "give one of config_path and code")
            return None
        found = self.project.find(ref.code, node.of("code"))
        if found is not BROKEN and not isinstance(found, Agent) and callable(found):
            found = self.project.call(found, ref.args or Node(kind="map", file=node.file, line=node.line))
        if found is not BROKEN and not isinstance(found, Agent):
            self.project.problems.add(node.of("code"), f"{ref.code!r} is of type {type(found).__name__}, not an agent")
            return None
        return None if found is BROKEN else found

    def path_of(self, word: str, node: Node) -> Path | None:
        """The file that a word of the file that is being read names."""
        return self.project.path(word, node, near=self._trail[-1])

    def file_of(self, word: str, node: Node, make: Callable[[Node], Any]) -> Any:
        """What `make` makes of a file; None and a problem if it cannot be read, or is being read now."""
        path = self.path_of(word, node)
        if path is None:
            return None
        if path in self._trail:
            ring = [*self._trail[self._trail.index(path) :], path]
            names = " -> ".join(self.project.shown(one) for one in ring)
            self.project.problems.add(node, f"the files name each other in a circle: {names}")
            return None
        inner = self.project.read(path)
        if inner is None:
            return None
        self._trail.append(path)
        try:
            return make(inner)
        finally:
            self._trail.pop()

    def tool_of(self, section: ToolSection) -> Any:
        """The tool of an item of `tools`."""
        return self._tools.made(section)

    @property
    def file(self) -> Path:
        """The file that is being read now."""
        return self._trail[-1]

    # ---- kinds

    def llm(self, section: schema.LlmSection) -> dict[str, Any]:
        node = section.node
        hooks = ("before_model", "after_model", "on_model_error", "before_tool", "after_tool", "on_tool_error")
        return {
            "model": self._models.model(section.model, node.of("model")),
            "instruction": self._instruction(section.instruction, node.of("instruction")),
            "global_instruction": self._instruction(section.global_instruction, node.of("global_instruction")),
            "tools": self._tools.tools(section.tools),
            "config": generate_config(section.generate_content_config, self.project),
            "mode": section.mode,
            "input_schema": self.type_of(section.input_schema),
            "output_schema": self.type_of(section.output_schema),
            "output_key": section.output_key,
            "include_contents": section.include_contents,
            "disallow_transfer_to_parent": section.disallow_transfer_to_parent,
            "disallow_transfer_to_peers": section.disallow_transfer_to_peers,
            **{hook: self.callbacks(section, hook) for hook in hooks},
        }

    def _instruction(self, given: str | schema.TextFileSection, node: Node) -> Any:
        if isinstance(given, str):
            return given
        if given.file:
            return self.project.text(given.file, node.of("file"), self.file)
        code = CodeSection(name=given.name, code=given.code, args=given.args, params=given.params, node=node)
        return self.function(code, node, "an instruction") or ""

    def type_of(self, node: Node | None) -> Any:
        """A JSON Schema, or what a code reference names."""
        if node is None:
            return None
        if node.kind == "text":
            return self._type(node.text, node)
        if node.kind == "map" and node.members.keys() <= {"name", "code"}:
            given = read(node, CodeSection, self.project.problems)
            return None if given is BROKEN else self._type(given, node)
        schema_of = node.value()
        if not isinstance(schema_of, dict):
            self.project.problems.add(node, f"a schema is a mapping, or code that names a type; not {node.shown()}")
            return None
        return cast("dict[str, Any]", schema_of)

    def _type(self, given: str | CodeSection, node: Node) -> Any:
        found = self.project.code(given, node)
        return None if found is BROKEN else found

    def loop(self, section: schema.LoopSection) -> dict[str, Any]:
        return {"max_iterations": section.max_iterations}

    def workflow(self, section: schema.WorkflowSection) -> dict[str, Any]:
        return self._graphs.workflow(section)

    def plain(self, section: AgentSection) -> dict[str, Any]:
        return {}

    def function_agent(self, section: schema.FunctionSection) -> dict[str, Any]:
        found = self.function(section.function, section.node.of("function"), "the function of an agent")
        return {"function": BROKEN if found is None else found}

    def remote(self, section: schema.RemoteSection) -> dict[str, Any]:
        node = section.node
        fields: dict[str, Any] = {
            name: self.function(getattr(section, name), node.of(name), name)
            for name in ("header_provider", "refresh", "build_message", "before_request", "after_event")
        }
        same = ("url", "card_url", "headers", "stream", "escalate", "cancel_remote", "cancel_timeout_s")
        fields |= {name: getattr(section, name) for name in same}
        fields["metadata"] = None if section.metadata is None else section.metadata.value()
        fields["card_keys"] = [key.value() for key in section.card_keys]
        if section.options:
            fields["options"] = self.project.code(section.options, node.of("options"))
        if section.configuration is not None:
            fields["configuration"] = self._configuration(section.configuration)
        fields["card"] = self._card(section.card) if section.card is not None else None
        return fields

    def _configuration(self, node: Node) -> Any:
        try:
            return convert(node.value(), SendMessageConfiguration)
        except BadRequest as error:
            self.project.problems.add(node, str(error))
            return BROKEN

    def _card(self, node: Node) -> Any:
        if node.kind == "map":
            return node.value()
        path = self.project.path(node.text, node, near=self.file)
        card = None if path is None else self.project.read(path)  # JSON is YAML
        return BROKEN if card is None else card.value()

    def _own_class(self, node: Node, kind: Node) -> Agent | None:
        """An agent of the user's own class: the usual keys, and what else the class takes."""
        found = self.project.find(kind.text, kind)
        usual = {key: pair for key, pair in node.members.items() if key in AgentSection.__struct_fields__}
        inner = Node(kind="map", file=node.file, line=node.line, column=node.column, members=usual)
        section = read(inner, AgentSection, self.project.problems)
        if found is BROKEN or section is BROKEN:
            return None
        if not isinstance(found, type) or not issubclass(found, Agent):
            self.project.problems.add(kind, f"{kind.text!r} is not a class of agents: a subclass of polyport.Agent")
            return None
        fields: dict[str, Any] = {name: value for name, value in self._common(section).items() if value}
        known = [one.name for one in dataclasses.fields(found) if one.init and one.name not in fields]
        for key, (key_node, value) in node.members.items():
            if key in usual or key == "app":
                continue
            if key not in known:
                guess = nearest(key, known) or f". It takes: {', '.join(known)}"
                self.project.problems.add(key_node, f"{found.__name__} takes no {key!r}{guess}")
            else:
                fields[key] = value.value()
        try:
            return self._construct(found, fields, node)
        except TypeError as error:
            self.project.problems.add(node, f"{found.__name__} cannot be made: {error}")
            return None


def _workflow(sub_agents: object, **fields: Any) -> Agent:
    """A Workflow, which takes its sub-agents from its edges."""
    return Workflow(**fields)


MAKERS: dict[str, tuple[Callable[..., Agent], Callable[[Builder, Any], dict[str, Any]]]] = {
    "LlmAgent": (LlmAgent, Builder.llm),
    "SequentialAgent": (SequentialAgent, Builder.plain),
    "ParallelAgent": (ParallelAgent, Builder.plain),
    "LoopAgent": (LoopAgent, Builder.loop),
    "RemoteAgent": (RemoteAgent, Builder.remote),
    "FunctionAgent": (FunctionAgent, Builder.function_agent),
    "Workflow": (_workflow, Builder.workflow),
}
"""agent_class -> what makes it, and what reads the keys of its own."""
