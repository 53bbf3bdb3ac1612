"""`polyport auth`: make API keys for those who call a server (see `polyport serve --auth keys:FILE`)."""

import os
from pathlib import Path

import click

from polyport.config.text import readable
from polyport.errors import ConfigError


@click.group()
def auth() -> None:
    """Make API keys for `serve --auth keys:FILE`.

    Exit codes: 0; 1 on a mistake.
    """


@auth.command()
@click.option("--user", metavar="ID", required=True, help="Whose key it is; its sessions are under /users/ID.")
@click.option(
    "--role", "roles", multiple=True, metavar="ROLE", help="A role of its (repeatable); `admin` may do everything."
)
@click.option("--file", metavar="FILE", help="Add it to this file of keys; a running server reads it by itself.")
def key(user: str, roles: tuple[str, ...], file: str | None) -> None:
    """Make a key and print it, once.

    Only its hash is kept, in a line of the file of keys. To withdraw a key, delete its line.
    """
    from polyport.auth.keys import new_key  # needed by this command only

    made, kept = new_key(readable(user), [readable(role) for role in roles])
    if file is None:
        click.echo(f"Add this line to your file of keys, or let --file do it:\n{kept.line}", err=True)
    else:
        _append(Path(file), kept.line)
        click.echo(f"Added to {file}. The key is not kept anywhere; this is it:", err=True)
    click.echo(made)


def _append(file: Path, line: str) -> None:
    """ConfigError for a file that cannot be written, and for one to which this line cannot be added, such as `[]`: it stays as
    it was. A new one is for its owner only."""
    from polyport.auth.keys import ApiKeyAuth  # needed by this command only

    try:
        number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(number, "r+b") as opened:
            opened.seek(0)
            before = opened.read()
            opened.write((b"\n" if before and not before.endswith(b"\n") else b"") + line.encode() + b"\n")
            opened.flush()
            try:
                ApiKeyAuth(file)
            except ConfigError:
                opened.truncate(len(before))
                raise
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror or error}") from None
