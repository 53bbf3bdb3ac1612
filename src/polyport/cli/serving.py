"""`polyport serve`: the words and options of the command. What it does is in `cli.serve`, imported when it is used."""

from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from polyport.cli.clustering import cluster, clustered
from polyport.cli.topics import AGENT_HELP, TopicCommand, about

where = about("Where it listens")
protocol = about("What is served (see docs/serving.md)")
access = about("Who may call (see docs/identity.md)")
browser = about("Names, browsers and proxies")
session = about("Sessions and runs")
taken = about("How much may be taken, in each process (see docs/identity.md)")
log = about("Logs, on standard error")
LOGS = (
    log(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Lines for people, or one JSON object a line.",
    ),
    log(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="What to log at least; requests are `info`.",
    ),
)


def logged(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options for logs."""
    for option in reversed(LOGS):
        command = option(command)
    return command


@click.command(cls=TopicCommand, epilog=AGENT_HELP, context_settings={"auto_envvar_prefix": "POLYPORT"})
@click.argument("agents", nargs=-1, required=True)
@where(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; only this machine by default.",
)
@where("--port", default=8000, show_default=True, metavar="PORT", type=click.IntRange(0, 65535), help="0: a free one.")
@where(
    "--workers",
    default=1,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, 256),
    help="Processes; more need --db.",
)
@where("--reload", is_flag=True, help="When a file of AGENTS changes, take over the change; one worker only.")
@where(
    "--prefix",
    multiple=True,
    metavar="PATH",
    help="Serve below PATH only (repeatable). Default: / and /api.",
)
@protocol(
    "--rest/--no-rest", default=True, show_default=True, help="REST and server-sent events, as ADK's clients speak."
)
@protocol("--live/--no-live", default=None, help="Live sessions over WebSocket at /run_live. Default: with --rest.")
@protocol("--a2a", is_flag=True, help="A2A 1.0 and 0.3: see /.well-known/agent-card.json of the running server.")
@protocol("--grpc-port", metavar="PORT", type=click.IntRange(0, 65535), help="With --a2a: over gRPC there, too.")
@protocol("--grpc-tls", nargs=2, metavar="CERT KEY", help="With --grpc-port: TLS there, by these two PEM files.")
@protocol("--push", is_flag=True, help="With --a2a: callers may have notifications sent to public https URLs.")
@protocol(
    "--card-key",
    multiple=True,
    metavar="FILE",
    help="With --a2a: sign the cards with this key of polyport a2a key (repeatable).",
)
@protocol("--mcp", is_flag=True, help="MCP at /mcp, one tool for each agent; one worker only.")
@protocol("--agent-engine", is_flag=True, help="The methods of Agent Engine, for the first agent.")
@protocol("--engine-id", metavar="ID", default="", help="With --agent-engine: the name of the app in its sessions.")
@protocol("--triggers", is_flag=True, help="Pub/Sub, Eventarc and webhooks at /apps/APP/trigger/...")
@protocol(
    "--trigger-max-retries",
    metavar="N",
    type=click.IntRange(1),
    help="With --triggers: how often a run that failed for a passing reason goes on. Default: 3.",
)
@protocol(
    "--trigger-max-runs",
    metavar="N",
    type=click.IntRange(1),
    help="With --triggers: how many messages are carried out at once. Default: 100.",
)
@protocol("--oidc-audience", metavar="URL", help="With --triggers and --auth: what a sender's token must be for.")
@protocol(
    "--oidc-service-accounts",
    multiple=True,
    metavar="EMAIL",
    help="With --oidc-audience: whose token it must be (repeatable).",
)
@protocol("--web", metavar="DIR", help="A compiled page with its index.html, at /ui/.")
@protocol("--adk-web", is_flag=True, help="The page of the installed google-adk at /ui/, with --debug and --evals.")
@protocol("--debug", is_flag=True, help="The newest traces, and pictures of the agents; one worker only.")
@protocol("--evals", is_flag=True, help="Evaluation: eval sets and results in the agents' folders.")
@protocol("--metrics", is_flag=True, help="Numbers for Prometheus at /metrics; one worker only.")
@access(
    "--auth",
    multiple=True,
    metavar="KIND",
    allow_from_autoenv=False,
    help="How callers say who they are, see above; several: any of them (repeatable).",
)
@access(
    "--authorize",
    type=click.Choice(["strict", "open"]),
    allow_from_autoenv=False,
    help="With --auth, strict: callers act as themselves only, the role admin as anybody (default); open: as anybody.",
)
@access(
    "--trusted-proxy-cidr",
    multiple=True,
    metavar="CIDR",
    allow_from_autoenv=False,
    help="Addresses of the proxies whose --auth header: counts (repeatable).",
)
@access("--insecure", is_flag=True, help="Listen on a --host that others can reach though nobody has to say who it is.")
@browser("--allowed-hosts", multiple=True, metavar="HOST", help="More Host names to answer to (repeatable).")
@browser(
    "--allowed-origins",
    multiple=True,
    metavar="ORIGIN",
    help="Pages that may call (CORS), as https://host (repeatable).",
)
@browser("--trusted-proxy", is_flag=True, help="Believe X-Forwarded-Host, -Proto and -Prefix of the proxy in front.")
@session(
    "--db",
    metavar="URL",
    help="Where sessions live: sqlite:///data.db or postgresql://user@host/database. Default: in memory.",
)
@session(
    "--on-busy",
    type=click.Choice(["queue", "reject", "interrupt"]),
    default="queue",
    show_default=True,
    help="What a message to a session with an active run does.",
)
@session("--history-window", metavar="N", type=click.IntRange(1), help="Only this many newest events go into prompts.")
@session(
    "--sse-timeout",
    metavar="SECONDS",
    type=float,
    default=120.0,
    show_default=True,
    help="How long a stream may last; -1: no limit.",
)
@session(
    "--grace",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="How long runs get to end after SIGTERM or Ctrl-C; then they are cancelled.",
)
@taken(
    "--caller-rate",
    metavar="RATE",
    type=click.FloatRange(0, 1_000_000),
    default=0.0,
    help="Requests of one caller per second, over time; more is 429. Default: no limit.",
)
@taken(
    "--caller-burst",
    metavar="N",
    type=click.IntRange(1),
    help="With --caller-rate: how many may come at once before that counts. Default: 20.",
)
@taken(
    "--caller-requests",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    help="Requests and streams of one caller at one time; more is 429. Default: no limit.",
)
@taken(
    "--user-runs",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    help="Runs as one user at one time; more is 429. Default: no limit.",
)
@taken("--max-runs", metavar="N", type=click.IntRange(1), help="Runs at one time; more is 429. Default: 4096.")
@taken(
    "--body-limit",
    metavar="MIB",
    type=click.IntRange(1, 1024),
    help="The largest body of a request; more is 413. Default: 10.",
)
@clustered
@cluster(
    "--cluster-runs",
    type=click.Choice(["here", "workers"]),
    default="here",
    show_default=True,
    help="Where runs are carried out: in the process that took the request in, or by polyport worker.",
)
@logged
@click.pass_context
def serve(ctx: click.Context, agents: tuple[str, ...], **options: Any) -> None:
    """Serve AGENTS over REST, live sessions and more.

    At / and under /api; see /docs of the running server. SIGTERM or Ctrl-C stops it: running answers get --grace seconds, a
    second signal ends it at once. Each option can be set in the environment, too: --on-busy as POLYPORT_ON_BUSY, several
    values with spaces between them; a flag wins. OTEL_... variables turn on telemetry (docs/telemetry.md).

    \b
    --auth takes (and so does POLYPORT_AUTH, with spaces between several):
      none                       everybody is anonymous and may do everything (default)
      keys:FILE                  API keys; make one with polyport auth key --user U --file FILE
      keys-env:VARIABLE          the same text in an environment variable
      jwt:ISSUER,AUDIENCE        OIDC tokens; [,user=CLAIM][,roles=CLAIM][,jwks=URL_OR_FILE]
      header:NAME                a header of your proxy, see --trusted-proxy-cidr; [,roles=HEADER]
      google:AUDIENCE,EMAIL,...  Google accounts of the list
      iap:AUDIENCE               Google's Identity-Aware Proxy

    Exit codes: 0 after a signal; 1 if it could not start, or not stop cleanly.
    """
    from polyport.cli.options import ServeOptions
    from polyport.cli.serve import serve_forever

    sources = {name: ctx.get_parameter_source(name) for name in options}
    said = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    options["given"] = [flag(name, options[name]) for name, source in sources.items() if source in said]
    options["sse_timeout_s"] = options.pop("sse_timeout")
    options["grace_s"] = options.pop("grace")
    options["body_mib"] = options.pop("body_limit")
    options["cluster_lease_s"] = options.pop("cluster_lease")
    serve_forever(ServeOptions(agents=list(agents), **options))


def flag(name: str, value: Any) -> str:
    """How an option is written that was given."""
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
