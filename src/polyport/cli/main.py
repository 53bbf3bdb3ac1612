"""`polyport`: the commands. Each lives in a module of its own and is imported when it is used."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from polyport.cli.a2a import a2a
from polyport.cli.auth import auth
from polyport.cli.deploy import deploy
from polyport.cli.ending import mute_stdout
from polyport.cli.evals import eval_command
from polyport.cli.schema import schema
from polyport.cli.serving import serve
from polyport.cli.topics import AGENT_HELP
from polyport.cli.working import worker
from polyport.config.text import readable
from polyport.errors import PolyportError, unwrap
from polyport.version import VERSION


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
      polyport deploy docker my_agent   write what it takes to run it elsewhere
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure: Callable[..., Any] | None = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")


@main.command(epilog=AGENT_HELP)
@click.argument("agent")
@click.option("--once", metavar="QUESTION", help="Ask one question, print the answer, end.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one line of JSON instead of text.")
@click.option(
    "--db",
    metavar="URL",
    help="Keep sessions here: sqlite:///chat.db or postgresql://user@host/database. Default: in memory.",
)
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
main.add_command(deploy)
main.add_command(eval_command)
main.add_command(schema)
main.add_command(serve)
main.add_command(worker)

if __name__ == "__main__":
    main()
