"""The A2A 1.0 agent card and all below it as Structs, in ProtoJSON (spec a2a 1.1, 1.2).

Used by the card maker, the handler and clients; read with `a2a.read`. Required members are always written; the ones the proto
calls optional are None when they were never set, so that an explicit false stays. Pure.
"""

from typing import Any

from msgspec import field

from polyport.codec import Data


def _text() -> str:
    return ""  # a factory of our own makes msgspec write the member even when it is empty: required members are always there


def _list() -> list[Any]:
    return []


def _scopes() -> dict[str, str]:
    return {}


class AgentInterface(Data, frozen=True, kw_only=True):
    """`protocol_binding` is JSONRPC, GRPC, HTTP+JSON or a URI; `protocol_version` is Major.Minor."""

    url: str = field(default_factory=_text)
    protocol_binding: str = field(default_factory=_text)
    tenant: str = ""
    protocol_version: str = field(default_factory=_text)


class AgentProvider(Data, frozen=True, kw_only=True):
    url: str = field(default_factory=_text)
    organization: str = field(default_factory=_text)


class AgentExtension(Data, frozen=True, kw_only=True):
    uri: str = ""
    description: str = ""
    required: bool = False
    params: dict[str, Any] | None = None


class AgentCapabilities(Data, frozen=True, kw_only=True):
    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: list[AgentExtension] = []
    extended_agent_card: bool | None = None


class StringList(Data, frozen=True, kw_only=True):
    values: list[str] = field(default=[], name="list")


class SecurityRequirement(Data, frozen=True, kw_only=True):
    """Scheme name -> scopes; all schemes of one requirement are needed together."""

    schemes: dict[str, StringList] = {}


class AgentSkill(Data, frozen=True, kw_only=True):
    id: str = field(default_factory=_text)
    name: str = field(default_factory=_text)
    description: str = field(default_factory=_text)
    tags: list[str] = field(default_factory=_list)
    examples: list[str] = []
    input_modes: list[str] = []
    output_modes: list[str] = []
    security_requirements: list[SecurityRequirement] = []


class AgentCardSignature(Data, frozen=True, kw_only=True):
    """A JWS in flattened form without its payload: `protected` and `signature` are base64url."""

    protected: str = field(default_factory=_text)
    signature: str = field(default_factory=_text)
    header: dict[str, Any] | None = None


class ApiKeySecurityScheme(Data, frozen=True, kw_only=True):
    """`location` is query, header or cookie."""

    description: str = ""
    location: str = field(default_factory=_text)
    name: str = field(default_factory=_text)


class HttpAuthSecurityScheme(Data, frozen=True, kw_only=True):
    description: str = ""
    scheme: str = field(default_factory=_text)
    bearer_format: str = ""


class AuthorizationCodeFlow(Data, frozen=True, kw_only=True):
    authorization_url: str = field(default_factory=_text)
    token_url: str = field(default_factory=_text)
    refresh_url: str = ""
    scopes: dict[str, str] = field(default_factory=_scopes)
    pkce_required: bool = False


class ClientCredentialsFlow(Data, frozen=True, kw_only=True):
    token_url: str = field(default_factory=_text)
    refresh_url: str = ""
    scopes: dict[str, str] = field(default_factory=_scopes)


class ImplicitFlow(Data, frozen=True, kw_only=True):
    """Deprecated."""

    authorization_url: str = ""
    refresh_url: str = ""
    scopes: dict[str, str] = {}


class PasswordFlow(Data, frozen=True, kw_only=True):
    """Deprecated."""

    token_url: str = ""
    refresh_url: str = ""
    scopes: dict[str, str] = {}


class DeviceCodeFlow(Data, frozen=True, kw_only=True):
    device_authorization_url: str = field(default_factory=_text)
    token_url: str = field(default_factory=_text)
    refresh_url: str = ""
    scopes: dict[str, str] = field(default_factory=_scopes)


class OAuthFlows(Data, frozen=True, kw_only=True):
    """One member is set."""

    authorization_code: AuthorizationCodeFlow | None = None
    client_credentials: ClientCredentialsFlow | None = None
    implicit: ImplicitFlow | None = None
    password: PasswordFlow | None = None
    device_code: DeviceCodeFlow | None = None


def _flows() -> OAuthFlows:
    return OAuthFlows()


class OAuth2SecurityScheme(Data, frozen=True, kw_only=True):
    description: str = ""
    flows: OAuthFlows = field(default_factory=_flows)
    oauth2_metadata_url: str = ""


class OpenIdConnectSecurityScheme(Data, frozen=True, kw_only=True):
    description: str = ""
    open_id_connect_url: str = field(default_factory=_text)


class MutualTlsSecurityScheme(Data, frozen=True, kw_only=True):
    description: str = ""


class SecurityScheme(Data, frozen=True, kw_only=True):
    """One member is set; none in a scheme of a newer version."""

    api_key_security_scheme: ApiKeySecurityScheme | None = None
    http_auth_security_scheme: HttpAuthSecurityScheme | None = None
    oauth2_security_scheme: OAuth2SecurityScheme | None = None
    open_id_connect_security_scheme: OpenIdConnectSecurityScheme | None = None
    mtls_security_scheme: MutualTlsSecurityScheme | None = None


def _capabilities() -> AgentCapabilities:
    return AgentCapabilities()


class AgentCard(Data, frozen=True, kw_only=True):
    """`supported_interfaces` is in order of preference."""

    name: str = field(default_factory=_text)
    description: str = field(default_factory=_text)
    supported_interfaces: list[AgentInterface] = field(default_factory=_list)
    provider: AgentProvider | None = None
    version: str = field(default_factory=_text)
    documentation_url: str | None = None
    capabilities: AgentCapabilities = field(default_factory=_capabilities)
    security_schemes: dict[str, SecurityScheme] = {}
    security_requirements: list[SecurityRequirement] = []
    default_input_modes: list[str] = field(default_factory=_list)
    default_output_modes: list[str] = field(default_factory=_list)
    skills: list[AgentSkill] = field(default_factory=_list)
    signatures: list[AgentCardSignature] = []
    icon_url: str | None = None
