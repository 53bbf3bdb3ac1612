"""Authorizers: what a caller may do (spec rest 3.4).

Given to an App, asked by the guard's host before any storage is touched. They never look at a request.
"""

from collections.abc import Collection

from polyport.data.auth import Caller
from polyport.errors import Forbidden


class Open:
    """Everybody may do everything: for a server whose callers trust each other."""

    async def act_as(self, caller: Caller, user: str, app: str) -> None:
        """See ports.auth."""

    async def use(self, caller: Caller, app: str) -> None:
        """See ports.auth."""

    async def administer(self, caller: Caller, app: str) -> None:
        """See ports.auth."""


class Strict:
    """A caller may act as the user of exactly its own id only. Who has one of the `admin_roles` may act as anybody, and
    administer."""

    def __init__(self, admin_roles: Collection[str] = ("admin",)) -> None:
        self._admins = frozenset(admin_roles)

    async def act_as(self, caller: Caller, user: str, app: str) -> None:
        """See ports.auth."""
        if caller.user != user and self._admins.isdisjoint(caller.roles):
            raise Forbidden("forbidden: authz: unauthorized: caller doesn't match the provided userID")

    async def use(self, caller: Caller, app: str) -> None:
        """See ports.auth."""

    async def administer(self, caller: Caller, app: str) -> None:
        """See ports.auth."""
        if self._admins.isdisjoint(caller.roles):
            raise Forbidden(f"forbidden: this needs the role {' or '.join(sorted(self._admins))}")
