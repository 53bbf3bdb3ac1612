"""`polyport a2a`: talk to any A2A agent from the terminal.

The words only; `cli/a2a_calls` does the work and is imported when it is used.
"""

from collections.abc import Callable
from typing import Any

import click

from polyport.config.text import readable

Command = Callable[..., Any]


def _common(command: Command) -> Command:
    """The options that every command has."""
    for option in reversed(
        [
            click.argument("url"),
            click.option(
                "--header", "-H", "headers", multiple=True, metavar="'NAME: VALUE'", help="Send it along (repeatable)."
            ),
            click.option(
                "--token-env", metavar="VARIABLE", help="Send the token in this environment variable as Bearer."
            ),
            click.option(
                "--binding",
                type=click.Choice(["JSONRPC", "HTTP+JSON", "GRPC"], case_sensitive=False),
                help="Speak this one only.",
            ),
            click.option(
                "--key",
                "keys",
                multiple=True,
                metavar="FILE",
                help="The card must be signed by a key (JWK or set) in it.",
            ),
            click.option(
                "--trust",
                "trusted",
                multiple=True,
                metavar="HOST",
                help="Send headers to this host too, if the card names it.",
            ),
            click.option("--public-only", is_flag=True, help="Call addresses of the internet only."),
            click.option(
                "--timeout",
                type=click.FloatRange(0, min_open=True),
                default=600.0,
                show_default=True,
                metavar="SECONDS",
                help="How long all of it may take.",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print what comes as JSON, one object a line."),
        ]
    ):
        command = option(command)
    return command


@click.group()
def a2a() -> None:
    """Talk to an agent over A2A, 1.0 or 0.3.

    URL is the agent's base URL, or that of its card. Answers go to standard output, the task's id and state to standard
    error.

    Exit codes: 0; 1 if the agent failed, refused, or could not be reached; 3 if it asks for something; 130 after Ctrl-C (the
    task goes on).
    """


@a2a.command()
@_common
@click.option("--extended", is_flag=True, help="The card for signed-in callers.")
def card(**options: Any) -> None:
    """Show the agent's card."""
    from polyport.cli.a2a_calls import run

    run("card", options)


@a2a.command()
@_common
@click.argument("text", required=False)
@click.option("--task", metavar="ID", default="", help="The task this is an answer to.")
@click.option("--context", metavar="ID", default="", help="The context (conversation) to go on with.")
@click.option("--file", "files", multiple=True, metavar="PATH", help="Send a file along (repeatable).")
@click.option("--data", metavar="JSON", help="Send a data part along.")
@click.option("--no-stream", is_flag=True, help="Look at the task again and again instead of streaming.")
@click.option("--no-wait", is_flag=True, help="Only begin the task.")
def send(text: str | None, **options: Any) -> None:
    """Send TEXT (or what standard input has) and show the answer as it comes."""
    from polyport.cli.a2a_calls import run

    run("send", {**options, "text": None if text is None else readable(text)})


@a2a.command()
@_common
@click.argument("task")
@click.option("--history", type=click.IntRange(0), metavar="N", help="Only the newest N messages.")
def get(**options: Any) -> None:
    """Show a task as it is now."""
    from polyport.cli.a2a_calls import run

    run("get", options)


@a2a.command()
@_common
@click.argument("task")
def cancel(**options: Any) -> None:
    """Stop a task."""
    from polyport.cli.a2a_calls import run

    run("cancel", options)


@a2a.command()
@_common
@click.argument("task")
def subscribe(**options: Any) -> None:
    """Follow a task to its end."""
    from polyport.cli.a2a_calls import run

    run("subscribe", options)


@a2a.command()
@click.argument("file", default="card-key.jwk", metavar="[FILE]")
@click.option("--kid", metavar="NAME", help="What cards call the key; the file's name without this.")
@click.option(
    "--alg",
    type=click.Choice(["ES256", "ES384", "ES512", "Ed25519"]),
    default="ES256",
    show_default=True,
    help="How it signs.",
)
def key(file: str, kid: str | None, alg: str) -> None:
    """Make a key that signs your agent's card.

    The private key goes to FILE (card-key.jwk), which must be new; the public one, a JWK Set, to standard output.
    """
    from polyport.cli.a2a_key import make

    make(file, kid, alg)
