"""Authorizers: what a caller may do (spec rest 3.4).

Given to an App, asked by the guard's host before any storage is touched. They never look at a request.
"""

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from polyport.data.auth import Caller
from polyport.errors import ConfigError, Forbidden

NOT_YOURS = "forbidden: authz: unauthorized: caller doesn't match the provided userID"


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
        self._admins = frozenset([admin_roles] if isinstance(admin_roles, str) else admin_roles)

    async def act_as(self, caller: Caller, user: str, app: str) -> None:
        """See ports.auth."""
        if caller.user != user and self._admins.isdisjoint(caller.roles):
            raise Forbidden(NOT_YOURS)

    async def use(self, caller: Caller, app: str) -> None:
        """See ports.auth."""

    async def administer(self, caller: Caller, app: str) -> None:
        """See ports.auth."""
        if self._admins.isdisjoint(caller.roles):
            raise Forbidden(f"forbidden: this needs the role {' or '.join(sorted(self._admins))}")


class Role(Struct, frozen=True, kw_only=True):
    """What callers of one role may do, for `Roles`. Patterns are exact names, or have `*` and `?` in them; case counts.

    - `apps`: which apps they may know of and call, as themselves.
    - `act_as`: as which other users they may act there.
    - `administer`: whether they see what belongs to no single user of these apps; of the whole server if `apps` has "*".
    """

    name: str
    apps: tuple[str, ...] = ("*",)
    act_as: tuple[str, ...] = ()
    administer: bool = False


class Roles:
    """A caller may do what its roles say, and nothing else. The role named "*" is everybody's, also that of callers without a
    role. ConfigError for one role twice.

        Roles([Role(name="*", apps=("helpdesk",)), Role(name="support", act_as=("*",)), Role(name="admin", administer=True)])
    """

    def __init__(self, roles: Iterable[Role]) -> None:
        self._roles: dict[str, Role] = {}
        for role in roles:
            if role.name in self._roles:
                raise ConfigError(f"the role {role.name!r} is there twice")
            for field in ("apps", "act_as"):
                if isinstance(getattr(role, field), str):
                    raise ConfigError(f"the role {role.name!r}: {field} must be several patterns, not one text")
            self._roles[role.name] = role

    async def act_as(self, caller: Caller, user: str, app: str) -> None:
        """See ports.auth. Whoever acts as a user of an app uses the app."""
        roles = self._at(caller, app)
        if not roles:
            raise Forbidden(_not_for(app))
        if caller.user != user and not any(_fits(user, role.act_as) for role in roles):
            raise Forbidden(NOT_YOURS)

    async def use(self, caller: Caller, app: str) -> None:
        """See ports.auth."""
        if not self._at(caller, app):
            raise Forbidden(_not_for(app))

    async def administer(self, caller: Caller, app: str) -> None:
        """See ports.auth."""
        roles = self._at(caller, app) if app else [role for role in self._of(caller) if "*" in role.apps]
        if not any(role.administer for role in roles):
            raise Forbidden("forbidden: none of your roles may administer this")

    def _of(self, caller: Caller) -> list[Role]:
        return [role for name, role in self._roles.items() if name == "*" or name in caller.roles]

    def _at(self, caller: Caller, app: str) -> list[Role]:
        return [role for role in self._of(caller) if _fits(app, role.apps)]


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    # A bracket is a bracket here: it is common in the names of users from other systems.
    return any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns)


def _not_for(app: str) -> str:
    return f"forbidden: none of your roles may use the app {app[:100]!r}"
