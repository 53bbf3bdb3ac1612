"""HeaderAuth: a proxy in front has found out who is calling, and says so in a header (spec rest 3.2).

Given to an App by whoever runs a server behind such a proxy. The header is worth nothing from anybody else, so the addresses
of the proxies have to be named (spec rest 11.2), and the proxy must remove the header from what its callers send.
"""

import ipaddress
import logging
import re
from collections.abc import Sequence

from polyport.auth.read import names_in, one_value, sane_user
from polyport.data.auth import Caller, Credentials
from polyport.errors import ConfigError, Unauthenticated

log = logging.getLogger("polyport.auth")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Peers:
    """A set of addresses, given as CIDR blocks or single addresses. ConfigError for what is neither, and for none."""

    def __init__(self, blocks: Sequence[str]) -> None:
        if isinstance(blocks, str) or not blocks:
            raise ConfigError("name the addresses of the proxies, such as trusted_proxies=['10.0.0.0/8', '127.0.0.1']")
        self._networks = [_network(block) for block in blocks]

    def __contains__(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped  # how a socket for both versions shows callers of version 4
        return any(address in network for network in self._networks)


def _network(block: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(block)
    except ValueError as error:
        raise ConfigError(f"{block!r} is no address and no CIDR block: {error}") from None


class HeaderAuth:
    """The caller is the value of the header `name`, once, not empty and without a comma, from one of `trusted_proxies`.

    `prefix` is taken off the value, and has to be there. `roles_header` has the caller's roles, with commas or spaces between
    them; it is read from the same proxies only.
    """

    challenge = ""

    def __init__(self, name: str, trusted_proxies: Sequence[str], *, prefix: str = "", roles_header: str = "") -> None:
        for header in (name, roles_header or name):
            if not _NAME.fullmatch(header):
                raise ConfigError(f"{header!r} is not the name of a header")
        self._name = name
        self._prefix = prefix
        self._roles = roles_header
        self._proxies = Peers(trusted_proxies)

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        """See ports.auth."""
        value = one_value(credentials, self._name)
        if value is None:
            return None
        if credentials.peer not in self._proxies:
            log.warning(
                "%s was sent by %s, which is not a trusted proxy", self._name, credentials.peer or "nobody known"
            )
            raise Unauthenticated(f"unauthorized: {self._name} is taken from trusted proxies only")
        if "," in value or not value.startswith(self._prefix):
            raise Unauthenticated(f"unauthorized: {self._name} names no single user")
        try:
            user = value.encode("latin-1").decode()
        except UnicodeDecodeError:
            raise Unauthenticated(f"unauthorized: {self._name} is not UTF-8") from None
        return Caller(sane_user(user[len(self._prefix) :]), roles=self._roles_of(credentials))

    def _roles_of(self, credentials: Credentials) -> frozenset[str]:
        said = one_value(credentials, self._roles) if self._roles else None
        return names_in((said or "").replace(",", " "))
