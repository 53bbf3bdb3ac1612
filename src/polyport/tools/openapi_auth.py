"""Which credentials an operation of an OpenAPI document gets.

Called when a toolset reads its document. Follows the document's `security`: an operation that needs none gets none.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from polyport.errors import ConfigError
from polyport.tools.credentials import ApiKey, Basic, Bearer, Credential, HeaderProvider
from polyport.tools.openapi_operations import Operation
from polyport.tools.openapi_spec import Document, mapping

Auth = Credential | str | Callable[..., Any] | Mapping[str, Credential | str | Callable[..., Any]] | None
"""A credential for all operations; a secret for the document's only scheme; a function `(ctx) -> dict` of headers; or a mapping
of the names of security schemes to any of these."""


class Keyring:
    """The credentials of one toolset, sorted by the security schemes of its document."""

    def __init__(self, document: Document, auth: Auth) -> None:
        self._schemes = mapping(document.components.get("securitySchemes"))
        self._document = document
        self._for_all: Credential | None = None
        self._named: dict[str, Credential] = {}
        if isinstance(auth, Mapping):
            given = cast("Mapping[str, Any]", auth)
            for name, value in given.items():
                if name not in self._schemes:
                    known = ", ".join(self._schemes) or "none"
                    raise ConfigError(f"auth: the document has no security scheme {name!r}; it has: {known}")
                self._named[name] = self._credential(name, value)
        elif isinstance(auth, str):
            if len(self._schemes) != 1:
                schemes = ", ".join(self._schemes) or "none"
                raise ConfigError(f"auth: a text is for a document with one security scheme; this one has: {schemes}")
            name = next(iter(self._schemes))
            self._named[name] = self._credential(name, auth)
        elif auth is not None:
            self._for_all = self._credential("", auth)

    def _credential(self, name: str, value: Any) -> Credential:
        if isinstance(value, Credential):
            return value
        if callable(value):
            return HeaderProvider(value)
        if not isinstance(value, str) or not value:
            raise ConfigError(
                f"auth: {name or 'it'} must be a credential, a text or a function, not {type(value).__name__}"
            )
        return of_scheme(name, self._document.follow(self._schemes[name]), value)

    @property
    def all(self) -> list[Credential]:
        return [self._for_all] if self._for_all is not None else list(self._named.values())

    @property
    def fills(self) -> frozenset[tuple[str, str]]:
        """The parameters that the model need not give."""
        return frozenset(place for credential in self.all for place in credential.fills)

    def of(self, operation: Operation) -> tuple[Credential, ...]:
        """The credentials for an operation: those of the first alternative of its `security` that are all there."""
        if operation.security == []:
            return ()  # the document says that it is open to all
        if self._for_all is not None:
            return (self._for_all,)
        if operation.security is None:
            return tuple(self._named.values())
        for option in operation.security:
            if all(name in self._named for name in option):
                return tuple(self._named[name] for name in option)
        return ()


def of_scheme(name: str, scheme: dict[str, Any], value: str) -> Credential:
    """A text as the credential that a security scheme wants: a key, `user:password`, or a token."""
    kind = scheme.get("type")
    if kind == "apiKey":
        place = scheme.get("in")
        if place not in ("header", "query", "cookie") or not isinstance(scheme.get("name"), str):
            raise ConfigError(f"auth: the security scheme {name!r} does not say where its key goes")
        return ApiKey(value, scheme["name"], place)
    if kind == "http" and str(scheme.get("scheme", "")).lower() == "basic":
        user, colon, password = value.partition(":")
        if not colon:
            raise ConfigError(f"auth: the security scheme {name!r} wants user:password")
        return Basic(user, password)
    if kind in ("oauth2", "openIdConnect") or (kind == "http" and str(scheme.get("scheme", "")).lower() == "bearer"):
        return Bearer(value)
    said = f"http {scheme.get('scheme')}" if kind == "http" else kind
    raise ConfigError(
        f"auth: the security scheme {name!r} is of the kind {said!r}; give a function that makes the headers"
    )
