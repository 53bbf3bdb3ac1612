"""The address of NATS: what the client gets, and how it may be shown.

Called by `cluster.py` and by the command line. Never connects, and never lets a password or a token into a message.
"""

import ssl
import urllib.parse
from typing import Any, NamedTuple

from polyport.errors import ConfigError

PORT = 4222
_FORM = "write nats://user:password@host:4222 (tls:// for TLS; more hosts after commas)"
_OPTIONS = ("creds", "token", "ca", "cert", "key")


class NatsUrl(NamedTuple):
    """`servers` have no secrets; `options` are those of the client. `shown` is for people."""

    servers: list[str]
    shown: str
    options: dict[str, Any]

    def __repr__(self) -> str:
        return f"NatsUrl({self.shown!r})"


def parse(url: str) -> NatsUrl:
    """Read `nats://user:password@host:4222,host2?creds=FILE`.

    Other options: `token`, and for `tls://` the files `ca`, `cert` and `key`. ConfigError for what is none.
    """
    scheme, colon, rest = url.partition("://")
    if scheme not in ("nats", "tls") or not colon or "#" in url:
        raise ConfigError(f"the URL of the cluster is none: {_FORM}")
    place, _, query = rest.partition("?")
    sign_in, _, hosts = place.rpartition("@")
    servers = [_server(scheme, host) for host in hosts.rstrip("/").split(",")]
    given = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    if unknown := given.keys() - set(_OPTIONS):
        name = repr(min(unknown)) if min(unknown).isalpha() else "one"  # what is no word may be of a password with a ?
        raise ConfigError(f"the URL of the cluster has the option {name}; known are {', '.join(_OPTIONS)}")
    if "@" in sign_in and "," in sign_in:
        raise ConfigError(f"the URL of the cluster has one sign-in for all hosts: {_FORM}; @ in a password is %40")
    user, colon, password = sign_in.partition(":")
    options: dict[str, Any] = {}
    if colon:
        options |= {"user": urllib.parse.unquote(user), "password": urllib.parse.unquote(password)}
    elif sign_in or "token" in given:
        options["token"] = urllib.parse.unquote(sign_in) or given["token"]
    if "creds" in given:
        options["user_credentials"] = given["creds"]
    if scheme == "tls":
        options["tls"] = _tls(given)
    name = f"{urllib.parse.unquote(user)}@" if colon else ""
    return NatsUrl(servers, f"{scheme}://{name}{hosts.rstrip('/')}", options)


def shown(url: str) -> str:
    """A URL without its secrets, for people to see; what is none is not shown."""
    try:
        return parse(url).shown
    except ConfigError:
        return f"{url.partition(':')[0]}:..."


def _server(scheme: str, host: str) -> str:
    try:
        parts = urllib.parse.urlsplit(f"//{host}")
        port = parts.port or PORT
    except ValueError:
        raise ConfigError(f"the URL of the cluster is none: {_FORM} (the port must be a number)") from None
    if not parts.hostname or parts.path:
        raise ConfigError(f"the URL of the cluster is none: {_FORM}")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{scheme}://{name}:{port}"


def _tls(given: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=given.get("ca"))
        if "cert" in given:
            context.load_cert_chain(given["cert"], given.get("key"))
    except OSError as error:  # an SSLError is one
        raise ConfigError(f"the TLS files of the cluster cannot be read: {error.strerror or error}") from None
    return context
