"""The URL of a PostgreSQL database: what of it is for the driver, what is ours, and how it may be shown.

Called by `postgres_database.py` and `open.py`. Never connects, and never lets a password into a message.
"""

import urllib.parse
from typing import NamedTuple

from polyport.errors import ConfigError

SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")
POOL_SIZE = 10
CONNECT_S = 10.0
STATEMENT_S = 30.0


class PostgresUrl(NamedTuple):
    """`dsn` is what the driver gets, with all secrets; `shown` names the database without any. Times are in seconds."""

    dsn: str
    shown: str
    pool_size: int
    connect_s: float
    statement_s: float

    def __repr__(self) -> str:
        return f"PostgresUrl({self.shown!r})"


def is_postgres(url: str) -> bool:
    return url.partition(":")[0] in SCHEMES


def parse(url: str) -> PostgresUrl:
    """Read `postgresql://user:password@host:port/database?pool_size=10&connect_timeout=10&statement_timeout=30`.

    Those three settings are ours (times in seconds); others, such as `sslmode`, are the driver's. ConfigError for what is none.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        raise ConfigError(f"the URL of the PostgreSQL database is none: {_FORM} (its port must be a number)") from None
    if parts.scheme not in SCHEMES or not url.startswith(f"{parts.scheme}://"):
        raise ConfigError(f"the URL of the PostgreSQL database is none: {_FORM}")
    if parts.fragment or "#" in url:
        raise ConfigError("the URL of the PostgreSQL database has a `#`: write it as %23 in a password")
    query = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in query if name in _OURS}
    theirs = urllib.parse.urlencode([pair for pair in query if pair[0] not in _OURS])
    dsn = urllib.parse.urlunsplit(("postgresql", parts.netloc, parts.path, theirs, ""))
    host = host or dict(query).get("host", "")
    user = f"{urllib.parse.unquote(parts.username)}@" if parts.username else ""
    place = f"[{host}]" if ":" in host else host
    return PostgresUrl(
        dsn=dsn,
        shown=f"postgresql://{user}{place}{f':{port}' if port else ''}{parts.path}",
        pool_size=int(_number(ours, "pool_size", POOL_SIZE, 1, 1000)),
        connect_s=_number(ours, "connect_timeout", CONNECT_S, 0.1, 3600),
        statement_s=_number(ours, "statement_timeout", STATEMENT_S, 0.1, 3600),
    )


def shown(url: str) -> str:
    """A URL without its secrets, for people to see; what is none is not shown."""
    try:
        return parse(url).shown
    except ConfigError:
        return f"{url.partition(':')[0]}:..."


_FORM = "write postgresql://user:password@host:5432/database"
_OURS = ("pool_size", "connect_timeout", "statement_timeout")


def _number(given: dict[str, str], name: str, default: float, least: float, most: float) -> float:
    try:
        value = float(given.get(name, default))
    except ValueError:
        value = -1
    if not least <= value <= most:
        raise ConfigError(
            f"{name} in the URL of the PostgreSQL database is {given[name]!r}; it must be {least:g} to {most:g}"
        )
    return value
