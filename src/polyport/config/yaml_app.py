"""The `app:` settings of a root agent file: plugins, compaction, limits, stores, cluster. Called by `yaml_agents`.

A file with them gives an App instead of an agent, as a module with an `app` does.
"""

from typing import Any

from msgspec import structs

from polyport.app import App
from polyport.config.project import Project
from polyport.config.schema import AppSection, ClusterSection, CodeSection, CompactionSection
from polyport.config.yaml_read import BROKEN, read
from polyport.config.yaml_text import Node
from polyport.data.compaction import CompactionConfig
from polyport.errors import ConfigError
from polyport.plugins import CallModifierPlugin, LoggingPlugin, RecordReplay, RetryReflectPlugin, UsagePlugin
from polyport.ports.agent import Agent
from polyport.ports.auth import Auth, Authenticator
from polyport.ports.peers import Peers
from polyport.ports.plugin import Plugin

PLUGINS: dict[str, type[Plugin]] = {
    plugin.__name__: plugin
    for plugin in (LoggingPlugin, RetryReflectPlugin, UsagePlugin, CallModifierPlugin, RecordReplay)
}
"""Plugins that are named without a module."""


def make_app(project: Project, agent: Agent, node: Node, name: str) -> App | None:
    """The App; None when there are problems, which are noted."""
    problems = project.problems
    section = read(node, AppSection, problems, "'app'")
    if section is BROKEN:
        return None
    plugins = [_plugin(project, one, node.of("plugins", n)) for n, one in enumerate(section.plugins)]
    protocols = [_protocol(project, one, node.of("protocols", n)) for n, one in enumerate(section.protocols)]
    auth = _auth(project, section.auth, node.of("auth"))
    compaction = _compaction(project, section.compaction)
    cluster = _cluster(project, section.cluster, node.of("cluster"))
    if problems.found:
        return None
    try:
        return App(
            {name: agent},
            stores=section.stores or None,
            plugins=[plugin for plugin in plugins if plugin is not None],
            remember=section.remember,
            limits=section.limits,
            compaction=compaction,
            auth=auth,
            protocols=protocols or ("rest",),
            cluster=cluster,
        )
    except ConfigError as error:
        problems.add(node, str(error))
        return None


def _plugin(project: Project, given: str | CodeSection, node: Node) -> Plugin | None:
    word = given if isinstance(given, str) else given.name or given.code
    if word in PLUGINS:
        args = None if isinstance(given, str) else given.args if given.args is not None else given.params
        found = project.call(PLUGINS[word], args if args is not None else _nothing(node))
    else:
        found = _made(project, given, node)
    if found is BROKEN:
        return None
    if not isinstance(found, Plugin):
        project.problems.add(node, f"{word!r} is of type {type(found).__name__}, not a plugin")
        return None
    return found


def _protocol(project: Project, given: str | CodeSection, node: Node) -> Any:
    """The name of a protocol, or an object by code."""
    return given if isinstance(given, str) and "." not in given and ":" not in given else _made(project, given, node)


def _auth(project: Project, given: str | CodeSection, node: Node) -> Auth | Authenticator | None:
    if given == "":
        return None
    found = _made(project, given, node)
    if found is not BROKEN and not isinstance(found, Auth) and not hasattr(found, "authenticate"):
        project.problems.add(node, f"auth must be an authenticator or an Auth, not of type {type(found).__name__}")
    return found


def _made(project: Project, given: str | CodeSection, node: Node) -> Any:
    """What code names; of a class an object."""
    found = project.code(given, node)
    return project.call(found, _nothing(node)) if isinstance(found, type) else found


def _nothing(node: Node) -> Node:
    return Node(kind="map", file=node.file, line=node.line, column=node.column)


def _cluster(project: Project, given: str | ClusterSection | None, node: Node) -> Peers | None:
    """Needs a package of its own, which is told where it is missing. Nothing is made of what is known to be wrong."""
    if not given or project.problems.found:
        return None
    settings: dict[str, Any] = {"url": given} if isinstance(given, str) else structs.asdict(given)
    settings.pop("node", None)
    try:
        from polyport.cluster import Cluster  # an optional dependency

        return Cluster(**settings)
    except ConfigError as error:
        project.problems.add(node, str(error))
        return None


def _compaction(project: Project, section: CompactionSection | None) -> CompactionConfig | None:
    if section is None:
        return None
    fields = {name: value for name, value in structs.asdict(section).items() if name not in ("node", "summariser")}
    if section.summariser:
        fields["summariser"] = project.find(section.summariser, section.node.of("summariser"))
        if fields["summariser"] is BROKEN:
            return None
    try:
        return CompactionConfig(**fields)
    except ConfigError as error:
        project.problems.add(section.node, str(error))
        return None
