"""`polyport worker`: the words and options of the command. What it does is in `cli.work`, imported when it is used."""

from typing import Any

import click
from click.core import ParameterSource

from polyport.cli.clustering import clustered
from polyport.cli.serving import flag, logged
from polyport.cli.topics import AGENT_HELP, TopicCommand, about

work = about("What it does")
session = about("Sessions and runs")


@click.command(cls=TopicCommand, epilog=AGENT_HELP, context_settings={"auto_envvar_prefix": "POLYPORT"})
@click.argument("agents", nargs=-1, required=True)
@clustered
@session("--db", metavar="URL", help="Where sessions live, as of the servers: postgresql://user@host/database.")
@session("--max-runs", metavar="N", type=click.IntRange(1), help="Runs at one time; the others wait. Default: 4096.")
@session("--history-window", metavar="N", type=click.IntRange(1), help="Only this many newest events go into prompts.")
@session(
    "--grace",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="How long runs get to end after SIGTERM or Ctrl-C; then another process goes on with them.",
)
@work("--a2a", is_flag=True, help="Go on with A2A tasks of a process that is gone, too.")
@work("--push", is_flag=True, help="With --a2a: send the notifications that callers of --push servers asked for.")
@work(
    "--health",
    metavar="[ADDRESS:]PORT",
    help="Answer /health and /ready there, and nothing else; on this machine only without an ADDRESS.",
)
@logged
@click.pass_context
def worker(ctx: click.Context, agents: tuple[str, ...], **options: Any) -> None:
    """Carry out runs of AGENTS for the servers of a cluster.

    \b
    Takes runs that polyport serve --cluster-runs workers hands out, and goes on
    with those of a process that is gone. Takes no requests. Start as many as the
    work needs, with the same agents, --db, --cluster and POLYPORT_SECRET:
      export POLYPORT_SECRET=... POLYPORT_DB=postgresql://... POLYPORT_CLUSTER=nats://...
      polyport serve my_agent --cluster-runs workers
      polyport worker my_agent

    SIGTERM or Ctrl-C stops it: runs get --grace seconds, then other processes go on with them; a second signal ends it at once.
    Each option can be set in the environment, too: --max-runs as POLYPORT_MAX_RUNS; a flag wins.

    Exit codes: 0 after a signal; 1 if it could not start, or not stop cleanly.
    """
    from polyport.cli.options import ServeOptions
    from polyport.cli.work import work_forever

    said = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    given = [flag(name, options[name]) for name in options if ctx.get_parameter_source(name) in said]
    options["grace_s"] = options.pop("grace")
    options["cluster_lease_s"] = options.pop("cluster_lease")
    work_forever(ServeOptions(agents=list(agents), worker=True, live=False, given=given, **options))
