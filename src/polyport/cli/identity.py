"""Words about identity: `--auth keys:keys.yaml` and the like become an authenticator and an authorizer.

Used by `serve`. It also says no to a server that everybody could reach and that asks nobody. The authenticators are
imported when they are named.
"""

import logging
import os
from typing import NamedTuple

from msgspec import Struct

from polyport.app import App
from polyport.auth.authorize import Open, Strict
from polyport.cli.banner import is_loopback
from polyport.errors import ConfigError
from polyport.ports.auth import Auth, Authenticator, Authorizer
from polyport.protocols.guard import Guard

log = logging.getLogger("polyport")


class _Kind(NamedTuple):
    """How many plain parts a kind takes, at least and at most, and which options."""

    usage: str
    least: int = 1
    most: int = 1
    options: frozenset[str] = frozenset()


_KINDS = {
    "keys": _Kind("keys:FILE"),
    "keys-env": _Kind("keys-env:VARIABLE"),
    "jwt": _Kind(
        "jwt:ISSUER,AUDIENCE[,user=CLAIM][,roles=CLAIM][,jwks=URL_OR_FILE]", 2, 2, frozenset({"user", "roles", "jwks"})
    ),
    "header": _Kind("header:NAME[,roles=HEADER][,prefix=TEXT]", options=frozenset({"roles", "prefix"})),
    "google": _Kind("google:AUDIENCE,EMAIL,...", 2, 10_000),
    "iap": _Kind("iap:AUDIENCE"),
}
_OPTIONS = frozenset[str]().union(*(kind.options for kind in _KINDS.values()))


class Identity(Struct, frozen=True, kw_only=True):
    """The options of the command, empty where nothing was said. The environment has the same: POLYPORT_AUTH,
    POLYPORT_AUTHORIZE, POLYPORT_TRUSTED_PROXY_CIDR, several words with spaces between them."""

    auth: list[str] = []
    authorize: str = ""
    trusted_proxy_cidr: list[str] = []

    def made(self) -> Auth | None:
        """None for no authentication. ConfigError for words that make no sense. To be called after the agents were loaded, for
        a `.env` beside them counts."""
        words = self.auth or os.environ.get("POLYPORT_AUTH", "").split()
        proxies = self.trusted_proxy_cidr or os.environ.get("POLYPORT_TRUSTED_PROXY_CIDR", "").split()
        authorize = self.authorize or os.environ.get("POLYPORT_AUTHORIZE", "")
        if authorize not in ("", "strict", "open"):
            raise ConfigError(f"POLYPORT_AUTHORIZE is {authorize!r}; it must be strict or open")
        if words in ([], ["none"]):
            if authorize == "strict" or self.trusted_proxy_cidr:
                raise ConfigError("--authorize strict and --trusted-proxy-cidr need to know who calls: add --auth")
            return None
        found = [_authenticator(word, proxies) for word in words]
        authorizer: Authorizer = Open() if authorize == "open" else Strict()
        if len(found) == 1:
            return Auth(found[0], authorizer)
        from polyport.auth.combine import AnyOf  # needed by this choice only

        return Auth(AnyOf(*found), authorizer)


def check_open(app: App, host: str, insecure: bool) -> None:
    """ConfigError for an app without authentication on an address that others can reach, unless that is wanted (spec rest
    11.1, FR-195)."""
    if not insecure and _is_open(app, host):
        raise ConfigError(
            f"on {host} without authentication everybody who reaches the port can act as any user: add --auth (see polyport "
            "serve --help), or --insecure if nobody else can reach it"
        )


def warn_if_open(app: App, host: str) -> None:
    """Log what `--insecure` means."""
    if _is_open(app, host):
        log.warning("listening on %s without authentication: everybody who reaches this port can act as any user", host)


def _is_open(app: App, host: str) -> bool:
    guard = app.asgi.guard
    return guard.auth is None and type(guard).admit is Guard.admit and not is_loopback(host)


def _authenticator(word: str, proxies: list[str]) -> Authenticator:
    kind, _, rest = word.partition(":")
    parts = [part.strip() for part in rest.split(",")]
    plain = [part for part in parts if not _is_option(part)]
    options = dict(part.split("=", 1) for part in parts if _is_option(part))
    known = _KINDS.get(kind)
    if known is None:
        usages = "\n  ".join(["none", *(other.usage for other in _KINDS.values())])
        raise ConfigError(f"--auth {word!r} is not known; it takes\n  {usages}")
    if not all(plain) or not known.least <= len(plain) <= known.most or not options.keys() <= known.options:
        raise ConfigError(f"--auth {word!r} is not understood; it must be {known.usage}")
    return _made(kind, plain, options, proxies)


def _is_option(part: str) -> bool:
    return part.partition("=")[0] in _OPTIONS and "=" in part


def _made(kind: str, plain: list[str], options: dict[str, str], proxies: list[str]) -> Authenticator:
    """The imports are of what was named only: some need packages that others do not."""
    if kind in ("keys", "keys-env"):
        from polyport.auth.keys import ApiKeyAuth

        return ApiKeyAuth(plain[0]) if kind == "keys" else ApiKeyAuth(env=plain[0])
    if kind == "header":
        from polyport.auth.header import HeaderAuth

        if not proxies:
            raise ConfigError("--auth header: anybody could send it; name your proxies with --trusted-proxy-cidr")
        return HeaderAuth(plain[0], proxies, prefix=options.get("prefix", ""), roles_header=options.get("roles", ""))
    from polyport.auth.jwt import JwtAuth, google_iap, google_oidc

    if kind == "google":
        return google_oidc(plain[0], plain[1:])
    if kind == "iap":
        return google_iap(plain[0])
    return JwtAuth(
        issuer=plain[0],
        audience=plain[1],
        jwks=options.get("jwks"),
        user_claim=options.get("user", "sub"),
        roles_claim=options.get("roles", "roles"),
    )
