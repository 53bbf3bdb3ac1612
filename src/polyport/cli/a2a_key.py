"""`polyport a2a key`: makes a key that signs agent cards. Writes one new file, readable by its owner only; overwrites none."""

import os
import sys
from pathlib import Path

import click

from polyport.codec import encode
from polyport.config.text import readable
from polyport.errors import ConfigError
from polyport.wire import a2a_sign

HOW = """\
Kept in {path}; whoever has this file can sign in your name.
Sign with it:   polyport serve AGENT --a2a --card-key "{path}", or A2a(card=CardConfig(keys=["{path}"]))
Published at:   /.well-known/jwks.json beside the card; give it to your callers by a way that they trust
Callers check:  RemoteAgent(..., card_keys=...), or polyport a2a card URL --key FILE
To replace it, sign with the old and the new one until your callers have the new one."""


def make(file: str, kid: str | None, alg: str) -> None:
    """Make a key: the private JWK goes to `file`, the public JWK Set to standard output. ConfigError for a file that is there
    or cannot be made."""
    path = Path(readable(file))
    name = readable(kid) if kid is not None else path.stem
    if not name.isprintable() or not name.strip():
        raise ConfigError("--kid needs a name for the key")
    key = a2a_sign.new_key(name, alg)
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} is there already, and may be in use: name another file") from None
    except OSError as error:
        raise ConfigError(f"cannot make {path}: {error.strerror}") from None
    with os.fdopen(opened, "wb") as out:
        out.write(encode(key) + b"\n")
    click.echo(encode(a2a_sign.public_keys([key])).decode())
    click.echo(HOW.format(path=path), err=True)
    sys.stdout.flush()
