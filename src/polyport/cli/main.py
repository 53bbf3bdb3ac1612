"""`polyport`: the commands. Each lives in a module of its own and is imported when it is used."""

import sys
from collections.abc import Callable
from typing import Any

import click

from polyport.errors import PolyportError
from polyport.version import VERSION

AGENT_HELP = """AGENT is `module:attr`, a .py file or a folder with an agent.py. Without an attribute, `app`, `root_agent` or
`agent` is taken. A folder of agent folders gives all of them."""


class Teaching(click.Group):
    """Turns our errors into one clear message and exit code 1, and a closed pipe into a quiet end."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PolyportError as error:
            raise click.ClickException(str(error)) from None
        except BrokenPipeError:
            sys.stderr.close()
            raise SystemExit(0) from None


@click.group(cls=Teaching, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="polyport")
def main() -> None:
    """Write an agent once; run it in the terminal, or serve it over REST and SSE.

    \b
    Start here:
      polyport new my_agent          make a project that runs without a key
      polyport run my_agent          talk to it in the terminal
      polyport serve my_agent        serve it on http://127.0.0.1:8000
      polyport check my_agent        find mistakes before users do
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Callable[..., Any] | None = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")


@main.command(epilog=AGENT_HELP)
@click.argument("agent")
@click.option("--once", metavar="QUESTION", help="Ask one question, print the answer, end.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one line of JSON instead of text.")
@click.option("--db", metavar="URL", help="Keep sessions here, such as sqlite:///chat.db. Default: in memory.")
@click.option("--session", default="", help="Go on with this session (or start it). Default: a new one.")
@click.option("--user", default="user", show_default=True, help="Who is talking.")
def run(agent: str, once: str | None, as_json: bool, db: str | None, session: str, user: str) -> None:
    """Talk to AGENT in the terminal. Text streams as it comes, tool calls are shown; Ctrl-C stops the answer, `exit` or
    Ctrl-D ends."""
    from polyport.cli.run import Chat, talk
    from polyport.cli.words import make_app

    talk(make_app([agent], db=db), Chat(user=user, session=session, as_json=as_json), once)


@main.command(epilog=AGENT_HELP)
@click.argument("agents", nargs=-1, required=True)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; only this machine by default."
)
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free port.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 256), help="Processes; more need --db.")
@click.option("--db", metavar="URL", help="Where sessions live, such as sqlite:///data.db. Default: in memory.")
@click.option(
    "--on-busy",
    type=click.Choice(["queue", "reject", "interrupt"]),
    default="queue",
    show_default=True,
    help="What a message to a session with an active run does.",
)
@click.option("--history-window", type=click.IntRange(1), help="Only this many newest events go into prompts.")
@click.option(
    "--sse-timeout", type=float, default=120.0, show_default=True, help="Seconds a stream may last; -1: no limit."
)
@click.option("--allowed-hosts", multiple=True, metavar="HOST", help="More Host names to answer to (repeatable).")
@click.option(
    "--allowed-origins", multiple=True, metavar="ORIGIN", help="Pages that may call, as https://host (repeatable)."
)
@click.option("--trusted-proxy", is_flag=True, help="Believe X-Forwarded-Host and -Proto of the proxy in front.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def serve(agents: tuple[str, ...], **options: Any) -> None:
    """Serve AGENTS over REST and server-sent events, at / and under /api; see /docs of the running server."""
    from polyport.cli.serve import ServeOptions, serve_forever

    options["sse_timeout_s"] = options.pop("sse_timeout")
    serve_forever(ServeOptions(agents=list(agents), **options))


@main.command()
@click.argument("name")
def new(name: str) -> None:
    """Make a project NAME: an agent that runs without a key, and a test that passes."""
    from polyport.cli.new import make_project

    make_project(name)


@main.command(epilog=AGENT_HELP)
@click.argument("agents", nargs=-1, required=True)
def check(agents: tuple[str, ...]) -> None:
    """Load AGENTS as `serve` would, and show their models, tools and what looks wrong. Exit code 1 on a mistake."""
    from polyport.cli.check import report

    report(list(agents))


if __name__ == "__main__":
    main()
