"""The agent card of one app: made from the agent and its CardConfig, and served with what caches need (spec a2a 1.2, 1.3).

Used by the mount and the bindings. The URLs in a card are those under which its reader reached this server, so a card is made
for each base URL, signed, and kept. Never publishes an instruction.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from polyport.codec import encode
from polyport.engine.hooks import ask
from polyport.engine.tree import AgentTree
from polyport.errors import ConfigError, Unauthenticated
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.settings import A2aSettings
from polyport.protocols.a2a.skills import describe_agent, skills_of
from polyport.seams import Seams
from polyport.wire import a2a_sign
from polyport.wire.a2a_card import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    HttpAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from polyport.wire.a2a_translate import EXTENSION
from polyport.wire.a2a_v03_card import union_card

BINDINGS = ("JSONRPC", "HTTP+JSON")
"""Those over HTTP."""
KEPT = 64
"""How many cards are kept, for as many base URLs; a caller chooses among those that the guard admits."""
MODES = ("text/plain", "application/json")


@dataclass(frozen=True, kw_only=True)
class CardConfig:
    """What a card says beyond what the agent says itself.

    - `url` is the base URL of this server for its callers; without it that of each request counts.
    - `skills` replaces those that are made from the agent and its tools.
    - `security_schemes` is how callers say who they are; without it what the app's authenticator asks for ({}: nothing).
    - `keys` are private JWKs, or the files that hold them (`polyport a2a key`); the card has a signature by each.
    - `extended(call, card)` gives the card for one caller, or None; True is the capability without a card. It is for
      authenticated callers only, unless `extended_for_all`.
    - `union` adds the members of 0.3; None does when 0.3 is served, but not for a reader whose A2A-Version is another.
    """

    name: str = ""
    description: str = ""
    version: str = "1.0.0"
    url: str = ""
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    input_modes: Sequence[str] = ()
    output_modes: Sequence[str] = MODES
    skills: Sequence[AgentSkill] | None = None
    security_schemes: Mapping[str, SecurityScheme] | None = None
    security_requirements: Sequence[SecurityRequirement] = ()
    keys: Sequence[a2a_sign.Jwk | str | Path] = ()
    jku: str = ""
    max_age_s: int = 300
    extended: Callable[..., Any] | bool = False
    extended_for_all: bool = False
    union: bool | None = None


class Document(NamedTuple):
    """A card as it is served."""

    body: bytes
    etag: bytes


class Place(NamedTuple):
    """Where an app is served: the path below a base URL, the port of its gRPC server (0: none), whether that speaks TLS, and
    the tenant that names the app there ("" for the first one)."""

    path: str
    grpc_port: int = 0
    grpc_tls: bool = False
    grpc_tenant: str = ""


class Card:
    """See the module."""

    def __init__(
        self, tree: AgentTree, config: CardConfig, settings: A2aSettings, place: Place, seams: Seams, *, push: bool
    ) -> None:
        self.config = config
        self._settings = settings
        self._place = place
        self._made = seams.now().replace(microsecond=0)
        self._plain = self._make(tree, push)
        self._kept: dict[tuple[str, bool], Document] = {}
        self._base = config.url.rstrip("/")
        self.keys = [_key(key) for key in config.keys]
        """Those that sign, private."""
        self._signed(self._plain)  # a key that cannot sign is found now

    def _make(self, tree: AgentTree, push: bool) -> AgentCard:
        config, root = self.config, tree.root
        required = set(self._settings.required_extensions)
        uris = dict.fromkeys((EXTENSION, *self._settings.required_extensions, *self._settings.extensions))
        return AgentCard(
            name=config.name or root.name,
            description=config.description or describe_agent(root),
            provider=config.provider,
            version=config.version,
            documentation_url=config.documentation_url,
            icon_url=config.icon_url,
            capabilities=AgentCapabilities(
                streaming=self._settings.streaming,
                push_notifications=push,
                extensions=[AgentExtension(uri=uri, required=uri in required) for uri in uris],
                extended_agent_card=bool(config.extended),
            ),
            security_schemes=dict(config.security_schemes or {}),
            security_requirements=list(config.security_requirements),
            default_input_modes=list(config.input_modes or self._settings.input_modes or MODES),
            default_output_modes=list(config.output_modes),
            skills=skills_of(tree, root) if config.skills is None else _checked(config.skills),
        )

    def at_grpc(self, port: int, *, tls: bool = False, tenant: str = "") -> None:
        """The app is served over gRPC as well, from now on; see Place."""
        self._place = self._place._replace(grpc_port=port, grpc_tls=tls, grpc_tenant=tenant)
        self._kept.clear()

    def asks_for(self, challenge: str) -> None:
        """Callers need a credential, from now on: the scheme that a 401 asks for, unless the settings name schemes."""
        if self.config.security_schemes is None and challenge:
            scheme = challenge.replace(",", " ").split()[0]
            http = SecurityScheme(http_auth_security_scheme=HttpAuthSecurityScheme(scheme=scheme))
            needed = SecurityRequirement(schemes={scheme.lower(): StringList()})
            self._plain = structs.replace(
                self._plain, security_schemes={scheme.lower(): http}, security_requirements=[needed]
            )
            self._kept.clear()

    # ---- the public card

    def document(self, base: str, *, union: bool) -> Document:
        """The card for readers who reached this server at `base`, a URL without a slash at its end."""
        self._base = self._base or base
        base = self.config.url.rstrip("/") or base
        found = self._kept.get((base, union))
        if found is None:
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            found = self._kept[base, union] = self._document(base, union)
        return found

    def _document(self, base: str, union: bool) -> Document:
        card = self._located(self._plain, base)
        digest = hashlib.blake2b(encode(card), digest_size=12)
        digest.update(repr((union, self.config.jku, [key.get("kid") for key in self.keys])).encode())
        card = self._signed(card)
        # Two signatures of the same text differ, and are worth the same: that is a weak validator.
        etag = f'{"W/" if self.keys else ""}"{digest.hexdigest()}"'
        return Document(encode(union_card(card) if union else card), etag.encode())

    def _located(self, card: AgentCard, base: str) -> AgentCard:
        """The card with the interfaces that are served, in order of preference. Without a base only gRPC has a place."""
        url = base + self._place.path
        found: list[AgentInterface] = []
        for version in self._settings.versions:
            for binding in BINDINGS if base else ():
                found.append(AgentInterface(url=url, protocol_binding=binding, protocol_version=version))
            over_grpc = self._over_grpc(base, version)
            if over_grpc is not None:
                found.append(over_grpc)
        return structs.replace(card, supported_interfaces=found)

    def _over_grpc(self, base: str, version: str) -> AgentInterface | None:
        """The gRPC interface of a version. 0.3 has no tenants, so only an app that needs none is there."""
        place, old = self._place, version == "0.3"
        if not place.grpc_port or (old and place.grpc_tenant):
            return None
        url = f"{_host(base)}:{place.grpc_port}"
        if old:
            url = f"{'https' if place.grpc_tls else 'http'}://{url}"
        return AgentInterface(url=url, protocol_binding="GRPC", protocol_version=version, tenant=place.grpc_tenant)

    def _signed(self, card: AgentCard) -> AgentCard:
        return a2a_sign.sign(card, self.keys, self.config.jku) if self.keys else card

    # ---- headers

    @property
    def cache_control(self) -> bytes:
        return b"public, max-age=%d" % self.config.max_age_s

    @property
    def last_modified(self) -> bytes:
        return format_datetime(self._made, usegmt=True).encode()

    def not_modified(self, document: Document, if_none_match: str, if_modified_since: str) -> bool:
        """Whether the reader has this card already. The tag decides when there is one."""
        if if_none_match:
            tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
            return "*" in tags or document.etag.decode().removeprefix("W/") in tags
        try:
            return bool(if_modified_since) and self._made <= _aware(parsedate_to_datetime(if_modified_since))
        except ValueError:
            return False

    def unites(self, version: str) -> bool:
        """Whether a reader that sends this A2A-Version gets the members of 0.3 as well."""
        if "0.3" not in self._settings.versions or self.config.union is False:
            return False
        return bool(self.config.union) or version in ("", "0.3") or version.startswith("0.3.")

    # ---- the extended card

    async def extended(self, call: CallContext) -> AgentCard | None:
        """The card for this caller, without its place. None when there is none; Unauthenticated for nobody (T009)."""
        make = self.config.extended
        if not callable(make):
            return None
        if not call.caller and not self.config.extended_for_all:
            raise Unauthenticated("the extended card is for authenticated callers only")
        found = await ask(make, call, self._plain)
        if found is not None and not isinstance(found, AgentCard):
            raise ConfigError(f"CardConfig.extended gave a {type(found).__name__}, not an AgentCard or None")
        return found

    def completed(self, card: AgentCard, base: str = "") -> AgentCard:
        """An extended card with its place and signatures, for a caller who came by `base`, if that is known."""
        base = self.config.url.rstrip("/") or base or self._base
        return self._signed(card if card.supported_interfaces else self._located(card, base))


def _key(given: a2a_sign.Jwk | str | Path) -> a2a_sign.Jwk:
    """A key, read if it is in a file. ConfigError."""
    if not isinstance(given, str | Path):
        return given
    try:
        found = msgspec.json.decode(Path(given).read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise ConfigError(f"a key for agent cards: cannot read {given}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = {}
    if not found.get("kid") or not found.get("d"):
        raise ConfigError(
            f"a key for agent cards: {given} is not a JWK with a private key; make one by: polyport a2a key FILE"
        )
    return found


def _checked(skills: Collection[AgentSkill]) -> list[AgentSkill]:
    ids = [skill.id for skill in skills]
    for id in ids:
        if not id or ids.count(id) > 1:
            raise ConfigError(f"the skills of a card need ids of their own; {id!r} is empty or used twice")
    return list(skills)


def _host(base: str) -> str:
    host = urlsplit(base).hostname or "localhost"
    return f"[{host}]" if ":" in host else host


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
