"""From the words of a command to an App. Used by the commands `run`, `serve`, `check`, `eval` and `deploy`."""

import logging
import os
from collections.abc import Callable, Sequence

from polyport.app import App
from polyport.cli.identity import Identity
from polyport.cli.options import ServeOptions
from polyport.config.load import load
from polyport.data.limits import Limits
from polyport.errors import ConfigError
from polyport.plugins.telemetry_env import telemetry_from_env
from polyport.ports.peers import Peers
from polyport.ports.plugin import Plugin
from polyport.protocols.guard import Guard
from polyport.protocols.parts import Mountable

log = logging.getLogger("polyport")

LIMITS = (
    *("--on-busy", "--history-window", "--sse-timeout", "--grace", "--max-runs", "--body-limit"),
    *("--caller-rate", "--caller-burst", "--caller-requests", "--user-runs"),
)
PROTOCOLS = (
    *("--rest", "--no-rest", "--live", "--no-live"),
    *("--a2a", "--grpc-port", "--grpc-tls", "--push", "--card-key"),
    *("--mcp", "--agent-engine", "--engine-id", "--triggers"),
    *(
        "--trigger-max-retries",
        "--trigger-max-runs",
        "--oidc-audience",
        "--oidc-service-accounts",
        "--web",
        "--adk-web",
    ),
    *("--debug", "--evals", "--metrics", "--prefix"),
)
CLUSTER = ("--cluster", "--cluster-runs", "--cluster-prefix", "--cluster-lease", "--cluster-replicas")
GUARD = ("--allowed-hosts", "--allowed-origins", "--trusted-proxy")
AUTH = ("--auth", "--authorize", "--trusted-proxy-cidr")

Protocols = Callable[[Plugin | None], Sequence[str | Mountable]]
"""From the plugin for telemetry, if there is one, to what is served. Called once the agents are loaded, for a `.env` beside
them may ask for telemetry."""


def only_rest(telemetry: Plugin | None) -> list[str | Mountable]:
    return ["rest"]


def no_others() -> None:
    return None


def cluster_of(options: ServeOptions) -> Peers | None:
    """The other processes, if there may be any. ConfigError for a URL that is none, and without the package that is needed."""
    if options.cluster is None:
        alone = [flag for flag in options.given if flag in CLUSTER]
        if alone:
            raise ConfigError(f"{', '.join(alone)}: add --cluster, for which it is")
        return None
    if options.db is None:
        raise ConfigError(
            "--cluster needs sessions that all processes share: add --db postgresql://..., or sqlite:///data.db on one machine"
        )
    from polyport.cluster import Cluster  # needed by this choice only

    return Cluster(
        options.cluster,
        runs="workers" if options.cluster_runs == "workers" else "here",
        worker=options.worker,
        prefix=options.cluster_prefix,
        lease_s=options.cluster_lease_s,
        replicas=options.cluster_replicas,
    )


def make_app(
    words: list[str],
    *,
    db: str | None = None,
    limits: Limits | None = None,
    guard: Guard | None = None,
    identity: Identity | None = None,
    given: Sequence[str] = (),
    protocols: Protocols = only_rest,
    cluster: Callable[[], Peers | None] = no_others,
) -> App:
    """The App that the words name, with telemetry if the OTEL_* environment asks for it. `protocols` and `cluster` are asked
    for agents only, for an App of the user's own is never changed behind its back. `given` are the flags that the user wrote:
    ConfigError when one of them is the business of such an App."""
    found = load(words)
    if not isinstance(found, App):
        telemetry = telemetry_from_env()
        served = protocols(telemetry)
        auth = identity.made() if identity is not None else None
        plugins = [telemetry] if telemetry is not None else []
        return App(
            found,
            stores=db,
            plugins=plugins,
            limits=limits,
            guard=guard,
            auth=auth,
            protocols=served,
            cluster=cluster(),
        )
    own_auth = found.asgi.guard.auth
    own_guard = not found.asgi.guard.is_open or type(found.asgi.guard) is not Guard
    refused = [*LIMITS, *PROTOCOLS, *CLUSTER, *(GUARD if own_guard else ()), *(AUTH if own_auth is not None else ())]
    contradicting = [flag for flag in given if flag in refused]
    if db is not None:
        contradicting.insert(0, "--db")
    if contradicting:
        raise ConfigError(
            f"{words[0]} is an App with settings of its own; remove {', '.join(contradicting)}, or give its agent instead"
        )
    if guard is not None and not own_guard:
        found.asgi.guard = guard
    if identity is not None and own_auth is not None and os.environ.get("POLYPORT_AUTH"):
        log.warning("POLYPORT_AUTH is not used: %s is an App with auth of its own", words[0])
    auth = identity.made() if identity is not None and own_auth is None else own_auth
    if auth is not None:
        found.asgi.guard = found.asgi.guard.behind(auth)
    return found
