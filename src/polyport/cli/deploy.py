"""`polyport deploy`: the words and options of the command. What it does is in `cli.deployment`, imported when it is used."""

from typing import Any

import click
import msgspec

from polyport.cli.topics import AGENT_HELP, TopicCommand, about
from polyport.version import VERSION

files = about("The files")
image = about("What is in the image")
served = about("What is served")
access = about("Who may call")


@click.command(cls=TopicCommand, epilog=AGENT_HELP)
@click.argument("kind", type=click.Choice(["docker", "compose", "kubernetes", "agent-engine"]))
@click.argument("agents", nargs=-1, required=True)
@files("--out", metavar="DIR", default="deploy", show_default=True, help="Where to write; below the current folder.")
@files("--force", is_flag=True, help="Replace files that are there.")
@files("--name", metavar="NAME", default="", help="What everything is called. Default: the name of the first app.")
@files("--image", metavar="NAME:TAG", default="", help="The image. Default: NAME:1.")
@files("--postgres", is_flag=True, help="With compose: bring a PostgreSQL, and keep sessions there.")
@files(
    "--cluster",
    is_flag=True,
    help="With compose or kubernetes: several processes that take requests in, workers that carry runs out, and the "
    "PostgreSQL and NATS that they share.",
)
@image("--include", multiple=True, metavar="PATH", help="A file or folder that the agents need, too (repeatable).")
@image("--extra", multiple=True, metavar="EXTRA", help="An extra of Polyport that is not found by itself (repeatable).")
@image(
    "--package",
    metavar="WHAT",
    default=f"polyport=={VERSION}",
    show_default=True,
    help="What pip installs Polyport from: a requirement, or a wheel below the current folder.",
)
@served(
    "--with",
    "protocols",
    multiple=True,
    metavar="PROTOCOL",
    type=click.Choice(["a2a", "mcp", "agent-engine", "triggers", "debug", "metrics"]),
    help="Serve a2a, mcp, agent-engine, triggers, debug or metrics beside REST and live (repeatable).",
)
@served("--allowed-hosts", multiple=True, metavar="HOST", help="Host names that callers use (repeatable).")
@access(
    "--auth", multiple=True, metavar="KIND", help="As of polyport serve; keys-env:VARIABLE for API keys (repeatable)."
)
@access("--trusted-proxy-cidr", multiple=True, metavar="CIDR", help="As of polyport serve (repeatable).")
@access("--insecure", is_flag=True, help="Serve without authentication: everybody who reaches it may do everything.")
@access("--secret", "secrets", multiple=True, metavar="NAME", help="A variable that holds a secret (repeatable).")
def deploy(**words: Any) -> None:
    """Write what it takes to run AGENTS elsewhere.

    \b
    KIND is one of
      docker         a Dockerfile, its ignore file, and the versions that are installed here
      compose        the same, and a compose.yaml; with --cluster PostgreSQL, NATS and workers, too
      kubernetes     the same, and a kubernetes.yaml: StatefulSet, Service, ConfigMap, NetworkPolicy;
                     with --cluster Deployments, and PostgreSQL, NATS and workers, too
      agent-engine   the metadata of the methods, which a deployment to Agent Engine registers

    Nothing is built, sent or replaced; the next commands are printed. Run it in the folder of the project: images are built
    from there. Keys and other secrets stay in the environment or in a Secret, and never get into a file. Sessions live in
    SQLite on a volume, in one process; with --cluster in PostgreSQL, for any number of processes (docs/cluster.md). Servers
    that you have are used instead of those that the files bring with --secret POLYPORT_DB and --secret POLYPORT_CLUSTER,
    whose values are their URLs.

    Exit codes: 0; 1 on a mistake, or if a file is there already.
    """
    from polyport.cli.deploy_plan import Wanted
    from polyport.cli.deployment import write

    write(msgspec.convert(words, Wanted))
