"""`polyport`: the commands. Each lives in a module of its own and is imported when it is used."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from polyport.cli.a2a import a2a
from polyport.cli.auth import auth
from polyport.cli.ending import mute_stdout
from polyport.cli.evals import eval_command
from polyport.cli.schema import schema
from polyport.config.text import readable
from polyport.errors import PolyportError, unwrap
from polyport.version import VERSION

AGENT_HELP = """AGENT is a folder with an agent.py or a root_agent.yaml, a .py or .yaml file, or a module; `:name` behind it
says which agent of several. Without a name `app`, `root_agent` or `agent` is taken. A folder of agent folders gives all of
them. A `.env` beside the agent is read first."""


class Teaching(click.Group):
    """Turns our errors into one clear message and exit code 1, Ctrl-C into 130, and a closed pipe into a quiet end."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        if args is None:
            insist_on_utf8()
        return super().main(args, *rest, **options)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BaseException as raised:
            error = unwrap(raised)
            if isinstance(error, PolyportError):
                raise click.ClickException(readable(str(error))) from None
            if isinstance(error, KeyboardInterrupt):
                raise SystemExit(130) from None
            if isinstance(error, BrokenPipeError):
                mute_stdout()
                raise SystemExit(0) from None
            raise


def insist_on_utf8() -> None:
    """Start anew in Python's UTF-8 mode where the locale is another one: file names, the environment and the files that
    agents open depend on it (FR-233). The process stays the same, seen from outside."""
    if sys.getfilesystemencoding() != "utf-8" and sys.executable and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


@click.group(cls=Teaching, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="polyport", help="Show the version.")
def main() -> None:
    """Write an agent once; run it in the terminal, or serve it over REST and SSE.

    \b
    Start here:
      polyport new my_agent          make a project that runs without a key
      polyport run my_agent          talk to it in the terminal
      polyport serve my_agent        serve it on http://127.0.0.1:8000
      polyport check my_agent        find mistakes before users do
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure: Callable[..., Any] | None = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")


@main.command(epilog=AGENT_HELP)
@click.argument("agent")
@click.option("--once", metavar="QUESTION", help="Ask one question, print the answer, end.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one line of JSON instead of text.")
@click.option("--db", metavar="URL", help="Keep sessions here, such as sqlite:///chat.db. Default: in memory.")
@click.option("--session", metavar="ID", default="", help="Go on with this session (or start it). Default: a new one.")
@click.option("--user", metavar="ID", default="user", show_default=True, help="Who is talking.")
@click.option("--app", metavar="NAME", default="", help="Which one to talk to, if AGENT gives several.")
@click.option("--verbose", "-v", is_flag=True, help="Show logs, and whole tracebacks, on standard error.")
def run(agent: str, once: str | None, db: str | None, **options: Any) -> None:
    """Talk to AGENT in the terminal.

    Text streams as it comes, tool calls are shown. Ctrl-C stops the answer, `exit` or Ctrl-D ends. With a pipe as input every
    line is a question, and only answers go to standard output.

    Exit codes: 0; 1 if something failed; 130 if Ctrl-C ended it.
    """
    from polyport.cli.run import Chat, talk
    from polyport.cli.words import make_app

    words: dict[str, Any] = {
        name: readable(value) if isinstance(value, str) else value for name, value in options.items()
    }
    chat = Chat(**words, kept=db is not None)
    talk(make_app([agent], db=db), chat, None if once is None else readable(once))


@main.command(epilog=AGENT_HELP)
@click.argument("agents", nargs=-1, required=True)
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; only this machine by default.",
)
@click.option(
    "--port",
    default=8000,
    show_default=True,
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="0 takes a free port.",
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, 256),
    help="Processes; more need --db.",
)
@click.option("--reload", is_flag=True, help="When a file of AGENTS changes, take over the change; one worker only.")
@click.option("--db", metavar="URL", help="Where sessions live, such as sqlite:///data.db. Default: in memory.")
@click.option(
    "--on-busy",
    type=click.Choice(["queue", "reject", "interrupt"]),
    default="queue",
    show_default=True,
    help="What a message to a session with an active run does.",
)
@click.option(
    "--history-window", metavar="N", type=click.IntRange(1), help="Only this many newest events go into prompts."
)
@click.option(
    "--sse-timeout",
    metavar="SECONDS",
    type=float,
    default=120.0,
    show_default=True,
    help="How long a stream may last; -1: no limit.",
)
@click.option(
    "--grace",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="How long runs get to end after SIGTERM or Ctrl-C; then they are cancelled.",
)
@click.option("--allowed-hosts", multiple=True, metavar="HOST", help="More Host names to answer to (repeatable).")
@click.option(
    "--allowed-origins", multiple=True, metavar="ORIGIN", help="Pages that may call, as https://host (repeatable)."
)
@click.option(
    "--auth",
    multiple=True,
    metavar="KIND",
    help="How callers say who they are, see above; several: any of them (repeatable).",
)
@click.option(
    "--authorize",
    type=click.Choice(["strict", "open"]),
    help="With --auth, strict: callers act as themselves only, the role admin as anybody (default); open: as anybody.",
)
@click.option(
    "--trusted-proxy-cidr",
    multiple=True,
    metavar="CIDR",
    help="Addresses of the proxies whose --auth header: counts (repeatable).",
)
@click.option(
    "--insecure", is_flag=True, help="Listen on a --host that others can reach though nobody has to say who it is."
)
@click.option("--a2a", is_flag=True, help="Serve A2A too: see /.well-known/agent-card.json of the running server.")
@click.option(
    "--grpc-port", metavar="PORT", type=click.IntRange(0, 65535), help="With --a2a: serve it over gRPC there too."
)
@click.option("--push", is_flag=True, help="With --a2a: let callers have push notifications sent to public https URLs.")
@click.option(
    "--mcp", is_flag=True, help="Serve the agents as an MCP server at /mcp too, one tool each; one worker only."
)
@click.option("--trusted-proxy", is_flag=True, help="Believe X-Forwarded-Host and -Proto of the proxy in front.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON object a line; on standard error.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What to log at least; requests are `info`.",
)
@click.pass_context
def serve(ctx: click.Context, agents: tuple[str, ...], **options: Any) -> None:
    """Serve AGENTS over REST and server-sent events.

    At / and under /api; see /docs of the running server. SIGTERM or Ctrl-C stops it: running answers get --grace seconds, a
    second signal ends it at once.

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
    from polyport.cli.serve import ServeOptions, serve_forever

    sources = {name: ctx.get_parameter_source(name) for name in options}
    options["given"] = ["--" + n.replace("_", "-") for n, s in sources.items() if s is ParameterSource.COMMANDLINE]
    options["sse_timeout_s"] = options.pop("sse_timeout")
    options["grace_s"] = options.pop("grace")
    serve_forever(ServeOptions(agents=list(agents), **options))


@main.command()
@click.argument("name")
@click.option("--yaml", "as_yaml", is_flag=True, help="Write the agent in YAML; its tools stay in Python.")
def new(name: str, as_yaml: bool) -> None:
    """Make a project NAME that runs without a key.

    A folder with an agent, its tool, a test that passes and a README.
    """
    from polyport.cli.new import make_project

    make_project(name, as_yaml=as_yaml)


@main.command(epilog=AGENT_HELP)
@click.argument("agents", nargs=-1, required=True)
def check(agents: tuple[str, ...]) -> None:
    """Load AGENTS and show what looks wrong.

    As `serve` would load them; shows their models and tools too. Exit codes: 0; 1 on a mistake.
    """
    from polyport.cli.check import report

    report(list(agents))


main.add_command(a2a)
main.add_command(auth)
main.add_command(eval_command)
main.add_command(schema)

if __name__ == "__main__":
    main()
