"""What one caller may take of a server: requests per second, and requests that are open at one time (spec rest 11.12).

Asked by the guard and the host for every request that is not public, and by gRPC; the numbers are in `data.limits`. A caller is
its user, and its address while it is anonymous. Keeps a number for each caller, of KEPT callers at most. Never waits.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager

from polyport.data.auth import Caller
from polyport.errors import LimitExceeded
from polyport.protocols.http import Request

KEPT = 20_000
"""Callers whose pace is remembered; of more the one is forgotten that called longest ago."""


class CallerLimits:
    """State of one server."""

    def __init__(self) -> None:
        self._ahead: OrderedDict[str, float] = OrderedDict()
        self._open: dict[str, int] = {}

    def take(self, caller: Caller, request: Request) -> None:
        """Count one request. LimitExceeded above `caller_requests_per_s`, after `caller_burst` at once."""
        limits = request.limits
        each = 1 / limits.caller_requests_per_s
        name, now = name_of(caller, request.peer), request.seams.clock()
        ahead = min(
            max(0.0, self._ahead.pop(name, now) - now), each * limits.caller_burst
        )  # also after a clock was set back
        """How many seconds of its share the caller has used up in advance."""
        refused = ahead > each * (limits.caller_burst - 1) + 1e-9
        self._ahead[name] = now + (ahead if refused else ahead + each)
        if len(self._ahead) > KEPT:
            self._ahead.popitem(last=False)
        if refused:
            raise LimitExceeded(
                f"too many requests: {limits.caller_requests_per_s:g} per second are allowed (caller_requests_per_s)",
                ahead - each * (limits.caller_burst - 1),
            )

    @contextmanager
    def open(self, request: Request) -> Generator[None]:
        """Inside the block the request counts as open. LimitExceeded above `caller_requests`; 0 counts nothing."""
        limit = request.limits.caller_requests
        if not limit:
            yield
            return
        name = name_of(request.caller, request.peer)
        if self._open.get(name, 0) >= limit:
            raise LimitExceeded(f"{limit} of your requests and streams are open (caller_requests); end one first", 1.0)
        self._open[name] = self._open.get(name, 0) + 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]


def name_of(caller: Caller, peer: str) -> str:
    """The user; of an anonymous caller the address, of version 6 the network of 64 bits, for all of it belongs to one."""
    if caller.user:
        return "user " + caller.user
    if ":" in peer:
        try:
            return "peer " + ipaddress.IPv6Address(peer.partition("%")[0]).packed[:8].hex()
        except ValueError:
            pass
    return "peer " + peer
