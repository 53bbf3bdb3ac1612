"""Which protocols `polyport serve` serves: from its flags to what an App takes, from the routes of an App to lines for people.

Used by `serve`, its banner, and `deploy`. A protocol is imported when it is chosen, for cold starts pay for it. Opens nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polyport.assembly import mountable
from polyport.cli.options import ServeOptions
from polyport.config.places import has_agent
from polyport.errors import ConfigError
from polyport.ports.plugin import Plugin
from polyport.protocols.parts import Mountable
from polyport.protocols.routes import Route


class Known(NamedTuple):
    """A protocol as the command line knows it: its flag, a route that only it has, what people are shown (name, and where), and
    the extra of the package that it needs."""

    flag: str
    route: str
    name: str
    place: str
    extra: str = ""


KNOWN = (
    Known("--rest", "/run_sse", "REST + SSE", ""),
    Known("--live", "/run_live", "live", "/run_live (WebSocket)"),
    Known("--a2a", "/a2a/v1/invoke", "A2A", "/.well-known/agent-card.json", "a2a"),
    Known("--mcp", "/mcp", "MCP", "/mcp", "mcp"),
    Known("--agent-engine", "/reasoning_engine", "Agent Engine", "/reasoning_engine"),
    Known("--triggers", "/apps/{app}/trigger/dead-letters", "triggers", "/apps/APP/trigger/..."),
    Known("--web", "/ui", "web page", "/ui/"),
    Known("--debug", "/debug/trace/session/{session}", "debug", "/debug/trace/session/SESSION", "otel"),
    Known("--evals", "/dev/apps/{app}/eval-sets", "evaluation", "/dev/apps/APP/eval-sets", "eval"),
    Known("--metrics", "/metrics", "metrics", "/metrics", "otel"),
)
"""In the order in which people are told."""

ONE_PROCESS = {
    "mcp": "keeps a client's session",
    "debug": "keeps traces",
    "adk_web": "keeps traces",
    "metrics": "counts",
}
"""What cannot be served by several workers, for it does this in one process."""


def served_by(routes: Iterable[Route]) -> list[Known]:
    """The protocols that an App with these routes serves."""
    patterns = {route.pattern for route in routes}
    return [known for known in KNOWN if known.route in patterns]


def chosen(options: ServeOptions, telemetry: Plugin | None) -> list[str | Mountable]:
    """The protocols that the flags ask for, the page last. `telemetry` is the plugin that the app has already. ConfigError for
    flags that do not go together, and for none (statement rest-125)."""
    for name, does in ONE_PROCESS.items():
        if options.workers > 1 and getattr(options, name):
            raise ConfigError(f"--{name.replace('_', '-')} {does} in one process: serve it with --workers 1")
    of_a2a = options.grpc_port is not None or options.grpc_tls or options.push or options.card_key
    _insist(options.a2a or not of_a2a, "--grpc-port, --grpc-tls, --push and --card-key", "--a2a")
    _insist(options.grpc_port is not None or not options.grpc_tls, "--grpc-tls", "--grpc-port")
    _insist(options.agent_engine or not options.engine_id, "--engine-id", "--agent-engine")
    of_triggers = (options.trigger_max_retries, options.trigger_max_runs, options.oidc_audience)
    given = options.oidc_service_accounts or any(value is not None for value in of_triggers)
    _insist(options.triggers or not given, "--trigger-... and --oidc-...", "--triggers")
    if options.adk_web and options.web is not None:
        raise ConfigError("--web and --adk-web are two pages for one place: leave out one of them")
    ways: list[tuple[bool, Callable[[], str | Mountable]]] = [
        (options.rest, lambda: "rest"),
        (options.rest if options.live is None else options.live, lambda: mountable("live")),
        (options.a2a, lambda: _a2a(options)),
        (options.mcp, lambda: "mcp"),
        (options.agent_engine, lambda: _agent_engine(options)),
        (options.triggers, lambda: _triggers(options)),
        (options.debug or options.adk_web, lambda: _debug(telemetry)),
        (options.evals or options.adk_web, lambda: _evals(options)),
        (options.metrics, lambda: mountable("metrics")),
        (options.adk_web or options.web is not None, lambda: _web(options)),
    ]
    found = [made() for wanted, made in ways if wanted]
    if not found:
        raise ConfigError(f"nothing would be served; choose from {', '.join(known.flag for known in KNOWN)}")
    return found


def prefixes_of(words: Sequence[str]) -> list[str]:
    """The prefixes of the flags, `/` for none. ConfigError for what is no path."""
    found = list(dict.fromkeys("" if word == "/" else word.rstrip("/") for word in words))
    for word in found:
        if word and (
            not word.startswith("/") or "//" in word or any(c in word for c in "{}?#*") or not word.isprintable()
        ):
            raise ConfigError(f"--prefix {word!r} must be a path such as /api, or / for none")
    return found


def _insist(fits: bool, flags: str, needed: str) -> None:
    if not fits:
        raise ConfigError(f"{flags}: add {needed}, for which it is")


def _a2a(options: ServeOptions) -> Mountable:
    if options.workers > 1 and options.grpc_port == 0:
        raise ConfigError("a --grpc-port of 0 is for one process: name a port, or serve with --workers 1")
    from polyport.protocols.a2a.card import CardConfig  # needed by this choice only
    from polyport.protocols.a2a.grpc_tls import read_pair
    from polyport.protocols.a2a.mount import A2a
    from polyport.protocols.a2a.push_settings import PushSettings

    tls = (options.grpc_tls[0], options.grpc_tls[1]) if options.grpc_tls else None
    if tls is not None:
        read_pair(*tls)  # wrong files show before anything listens
    host = f"[{options.host}]" if ":" in options.host else options.host
    return A2a(
        card=CardConfig(keys=options.card_key),
        grpc="" if options.grpc_port is None else f"{host}:{options.grpc_port}",
        grpc_tls=tls,
        push=PushSettings() if options.push else None,
        recover=options.workers == 1 or options.cluster is not None,
    )


def _agent_engine(options: ServeOptions) -> Mountable:
    from polyport.protocols.agent_engine.mount import AgentEngine  # as above

    return AgentEngine(engine_id=options.engine_id)


def _triggers(options: ServeOptions) -> Mountable:
    from polyport.protocols.triggers.mount import Triggers  # as above

    settings = {
        "max_retries": options.trigger_max_retries,
        "max_concurrent_runs": options.trigger_max_runs,
        "oidc_audience": options.oidc_audience,
    }
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    return Triggers(oidc_service_accounts=options.oidc_service_accounts, **given)


def _debug(telemetry: Plugin | None) -> Mountable:
    from polyport.protocols.debug.mount import Debug  # as above

    return Debug(telemetry=telemetry)


def _evals(options: ServeOptions) -> Mountable:
    from polyport.protocols.evals.mount import Evals  # as above

    return Evals(root=_above(options.agents[0]))


def _web(options: ServeOptions) -> Mountable:
    from polyport.protocols.web.mount import Web  # as above

    return Web(root=options.web)


def _above(word: str) -> Path:
    """The folder that has the folders of the apps in it: the word itself, or the one above the folder of an agent."""
    path_word, colon, attr = word.rpartition(":")
    path = Path(path_word if colon and attr.isidentifier() else word).expanduser().resolve()
    if path.is_dir():
        return path.parent if has_agent(path) or (path / "__init__.py").is_file() else path
    return (
        path.parent.parent
        if path.is_file() and has_agent(path.parent)
        else path.parent
        if path.is_file()
        else Path.cwd()
    )
