"""`.env` files: settings and keys that lie beside an agent, put into the environment of the process.

Used by the loader before it imports an agent. What is set in the environment already stays. Values are never shown.
"""

import io
import logging
import os
from pathlib import Path

from polyport.errors import ConfigError

log = logging.getLogger("polyport.config")

_set_by: dict[str, Path] = {}
"""Which file each variable came from."""


def read_env(folder: Path) -> None:
    """Read `.env` of `folder`, then those of the folders above it up to the current one, if it lies in there.

    The nearest file wins. UTF-8 whatever the locale is, with or without a byte order mark; bad bytes are replaced.
    ConfigError when a file cannot be read.
    """
    here = Path.cwd()
    folders = [folder, *folder.parents]
    reach = folders.index(here) + 1 if here in folders else 1
    for above in folders[:reach]:
        file = above / ".env"
        if file.is_file():
            _read(file)


def _read(file: Path) -> None:
    from dotenv import dotenv_values  # imported here, for a start without such a file need not wait for it

    try:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    for name, value in dotenv_values(stream=io.StringIO(text)).items():
        if value is None or "\0" in value:
            continue
        if name not in os.environ:
            os.environ[name] = value
            _set_by[name] = file
        elif _set_by.get(name, file) != file and os.environ[name] != value and not _is_above(file, _set_by[name]):
            log.warning(
                "%s of %s is not used: all agents share one environment, and %s set it first", name, file, _set_by[name]
            )


def _is_above(file: Path, other: Path) -> bool:
    return file.parent in other.parent.parents
