"""Agent cards of A2A 0.3: written as the union document that both versions read, and read from either (spec a2a 2.1, 2.2).

Used by the card routes when 0.3 is on, and by clients. `union_card` keeps every member of 1.0 and adds those of 0.3. Pure.
"""

from typing import Any, cast

import msgspec
from msgspec import structs

from polyport.codec import encode
from polyport.errors import ConfigError
from polyport.wire import a2a
from polyport.wire.a2a_card import (
    AgentCard,
    AgentInterface,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

VERSION = "0.3"
DEFAULT_TRANSPORT = "JSONRPC"
_TYPES = {
    "apiKey": "api_key_security_scheme",
    "http": "http_auth_security_scheme",
    "oauth2": "oauth2_security_scheme",
    "openIdConnect": "open_id_connect_security_scheme",
    "mutualTLS": "mtls_security_scheme",
}
"""0.3's `type` -> the member of 1.0."""


def speaks_v03(card: AgentCard) -> bool:
    """Whether one interface is for 0.3."""
    return any(map(_is_v03, card.supported_interfaces))


def _is_v03(interface: AgentInterface) -> bool:
    return interface.protocol_version.split(".")[:2] == VERSION.split(".")


def union_card(card: AgentCard) -> dict[str, Any]:
    """The union document. ConfigError when no interface says 0.3."""
    ours = [i for i in card.supported_interfaces if _is_v03(i)]
    if not ours:
        raise ConfigError("a card for A2A 0.3 needs an interface with protocol_version 0.3")
    found = cast("dict[str, Any]", msgspec.json.decode(encode(card)))
    others = [{"url": i.url, "transport": i.protocol_binding} for i in ours]
    found |= {
        "url": ours[0].url,
        "preferredTransport": ours[0].protocol_binding,
        "additionalInterfaces": others,
        "protocolVersion": "0.3.0",
        "supportsAuthenticatedExtendedCard": card.capabilities.extended_agent_card or False,
    }
    if card.security_requirements:
        found["security"] = _security(card.security_requirements)
    for skill, plain in zip(card.skills, found["skills"], strict=True):
        if skill.security_requirements:
            plain["security"] = _security(skill.security_requirements)
    for name, scheme in card.security_schemes.items():
        found["securitySchemes"][name] |= _typed(scheme)
    return found


def _security(requirements: list[SecurityRequirement]) -> list[dict[str, list[str]]]:
    return [{name: scopes.values for name, scopes in r.schemes.items()} for r in requirements]


def _typed(scheme: SecurityScheme) -> dict[str, Any]:
    """0.3's members of a scheme: they say its `type`, and where an API key is in `in`."""
    for kind, member in _TYPES.items():
        value = getattr(scheme, member)
        if value is not None:
            found = cast("dict[str, Any]", msgspec.json.decode(encode(value)))
            if "location" in found:
                found["in"] = found.pop("location")
            return found | {"type": kind}
    return {}


def read_card(plain: Any) -> AgentCard:
    """A card of 1.0, of 0.3, or a union document. BadRequest for what is none.

    A card of 1.0 keeps only its 1.0 members; a pure one of 0.3 has its interfaces made from `url` and `additionalInterfaces`.
    """
    card = a2a.read_plain(plain, AgentCard)
    if card.supported_interfaces or not isinstance(plain, dict):
        return card
    said = {key.replace("_", "").lower(): value for key, value in cast("dict[str, Any]", plain).items()}
    schemes = {
        name: scheme
        for name, value in _dict(said.get("securityschemes")).items()
        if (scheme := _untyped(_dict(value))) is not None
    }
    extended = said.get("supportsauthenticatedextendedcard")
    capabilities = card.capabilities
    if isinstance(extended, bool) and capabilities.extended_agent_card is None:
        capabilities = structs.replace(capabilities, extended_agent_card=extended)
    skills = [
        structs.replace(skill, security_requirements=_requirements(_dict(value).get("security")))
        for skill, value in zip(card.skills, cast("list[Any]", said.get("skills") or []), strict=True)
    ]
    return structs.replace(
        card,
        supported_interfaces=_interfaces(said),
        capabilities=capabilities,
        security_schemes=schemes,
        security_requirements=_requirements(said.get("security")),
        skills=skills,
    )


def _dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: Any, default: str = "") -> str:
    return value if isinstance(value, str) and value else default


def _interfaces(said: dict[str, Any]) -> list[AgentInterface]:
    """The main one first, each once."""
    pairs = [(_text(said.get("url")), _text(said.get("preferredtransport"), DEFAULT_TRANSPORT))]
    listed = said.get("additionalinterfaces")
    for item in cast("list[Any]", listed) if isinstance(listed, list) else []:
        pairs.append((_text(_dict(item).get("url")), _text(_dict(item).get("transport"), DEFAULT_TRANSPORT)))
    return [
        AgentInterface(url=url, protocol_binding=transport, protocol_version=VERSION)
        for url, transport in dict.fromkeys(pairs)
        if url
    ]


def _requirements(value: Any) -> list[SecurityRequirement]:
    found: list[SecurityRequirement] = []
    for item in cast("list[Any]", value) if isinstance(value, list) else []:
        schemes = {
            name: StringList(values=[s for s in cast("list[Any]", scopes) if isinstance(s, str)])
            for name, scopes in _dict(item).items()
            if isinstance(scopes, list)
        }
        found.append(SecurityRequirement(schemes=schemes))
    return found


def _untyped(value: dict[str, Any]) -> SecurityScheme | None:
    member = _TYPES.get(_text(value.get("type")))
    if member is None:
        return None
    if "in" in value:
        value = {**value, "location": value["in"]}
    return a2a.read_plain({member: value}, SecurityScheme)
