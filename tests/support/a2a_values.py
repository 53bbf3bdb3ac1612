"""Any value of the A2A vocabulary, as hypothesis strategies; used by the property tests and by the peer tests."""

from typing import Any

from hypothesis import strategies as st

from polyport.data.content import (
    Blob,
    CodeExecutionResult,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
)
from polyport.data.content import Part as OurPart
from polyport.wire import a2a
from polyport.wire.a2a_card import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    ApiKeySecurityScheme,
    AuthorizationCodeFlow,
    ClientCredentialsFlow,
    HttpAuthSecurityScheme,
    MutualTlsSecurityScheme,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ID = st.text("abc-1é", min_size=1, max_size=4)
NUMBERS = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False, width=32))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=5,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
METADATA = st.one_of(st.none(), OBJECT)
MEDIA = st.sampled_from(["", "text/plain", "image/png"])
TIMES = st.integers(1, 999).map(lambda ms: f"2026-01-31T08:00:00.{ms:03d}Z")

CONTENTS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    TEXT.map(lambda v: {"text": v}),
    st.builds(lambda v, m, f: {"raw": v, "media_type": m, "filename": f}, st.binary(max_size=5), MEDIA, TEXT),
    st.builds(lambda v, m, f: {"url": v, "media_type": m, "filename": f}, TEXT, MEDIA, TEXT),
    JSON.map(lambda v: {"data": v}),
)
PART_METADATA = st.none() | st.dictionaries(TEXT, JSON, min_size=1, max_size=3)
PARTS = st.builds(lambda content, metadata: a2a.Part(**content, metadata=metadata), CONTENTS, PART_METADATA)
SOME_PARTS = st.lists(PARTS, min_size=1, max_size=3)
MESSAGES = st.builds(
    a2a.Message,
    message_id=ID,
    context_id=TEXT,
    task_id=TEXT,
    role=st.sampled_from([a2a.Role.USER, a2a.Role.AGENT]),
    parts=SOME_PARTS,
    metadata=METADATA,
    extensions=st.lists(ID, max_size=2),
    reference_task_ids=st.lists(ID, max_size=2),
)
STATUSES = st.builds(
    a2a.TaskStatus,
    state=st.sampled_from(list(a2a.TaskState)[1:]),
    message=st.none() | MESSAGES,
    timestamp=st.just("") | TIMES,
)
ARTIFACTS = st.builds(
    a2a.Artifact,
    artifact_id=ID,
    name=TEXT,
    description=TEXT,
    parts=SOME_PARTS,
    metadata=METADATA,
    extensions=st.lists(ID, max_size=2),
)
TASKS = st.builds(
    a2a.Task,
    id=ID,
    context_id=ID,
    status=STATUSES,
    artifacts=st.none() | st.lists(ARTIFACTS, min_size=1, max_size=2),
    history=st.lists(MESSAGES, max_size=2),
    metadata=METADATA,
)
PAYLOADS: st.SearchStrategy[a2a.Payload] = st.one_of(
    TASKS,
    MESSAGES,
    st.builds(a2a.TaskStatusUpdateEvent, task_id=ID, context_id=ID, status=STATUSES, metadata=METADATA),
    st.builds(
        a2a.TaskArtifactUpdateEvent,
        task_id=ID,
        context_id=ID,
        artifact=ARTIFACTS,
        append=st.booleans(),
        last_chunk=st.booleans(),
        metadata=METADATA,
    ),
)
AUTHENTICATIONS = st.builds(a2a.AuthenticationInfo, scheme=ID, credentials=TEXT)
CONFIGS = st.builds(
    a2a.TaskPushNotificationConfig,
    id=ID,
    task_id=ID,
    url=ID,
    token=TEXT,
    authentication=st.none() | AUTHENTICATIONS,
)
INLINE = st.builds(a2a.TaskPushNotificationConfig, id=TEXT, url=ID, authentication=st.none() | AUTHENTICATIONS)
SENDS = st.builds(
    a2a.SendMessageRequest,
    message=MESSAGES,
    configuration=st.builds(
        a2a.SendMessageConfiguration,
        accepted_output_modes=st.lists(ID, max_size=2),
        task_push_notification_config=st.none() | INLINE,
        history_length=st.none() | st.integers(0, 5),
        return_immediately=st.booleans(),
    ),
    metadata=METADATA,
)

SCOPES = st.dictionaries(ID, TEXT, max_size=2)
FLOWS = st.one_of(
    st.builds(
        lambda v: OAuthFlows(authorization_code=v),
        st.builds(AuthorizationCodeFlow, authorization_url=ID, token_url=ID, refresh_url=TEXT, scopes=SCOPES),
    ),
    st.builds(
        lambda v: OAuthFlows(client_credentials=v),
        st.builds(ClientCredentialsFlow, token_url=ID, refresh_url=TEXT, scopes=SCOPES),
    ),
)
SCHEMES = st.one_of(
    st.builds(
        lambda v: SecurityScheme(api_key_security_scheme=v),
        st.builds(
            ApiKeySecurityScheme, description=TEXT, location=st.sampled_from(["query", "header", "cookie"]), name=ID
        ),
    ),
    st.builds(
        lambda v: SecurityScheme(http_auth_security_scheme=v),
        st.builds(HttpAuthSecurityScheme, description=TEXT, scheme=ID, bearer_format=TEXT),
    ),
    st.builds(
        lambda v: SecurityScheme(oauth2_security_scheme=v),
        st.builds(OAuth2SecurityScheme, description=TEXT, flows=FLOWS, oauth2_metadata_url=TEXT),
    ),
    st.builds(
        lambda v: SecurityScheme(open_id_connect_security_scheme=v),
        st.builds(OpenIdConnectSecurityScheme, description=TEXT, open_id_connect_url=ID),
    ),
    st.builds(lambda d: SecurityScheme(mtls_security_scheme=MutualTlsSecurityScheme(description=d)), TEXT),
)
REQUIREMENTS = st.lists(
    st.builds(
        SecurityRequirement,
        schemes=st.dictionaries(ID, st.builds(StringList, values=st.lists(ID, max_size=2)), min_size=1, max_size=2),
    ),
    max_size=2,
)
EXTENSIONS = st.builds(AgentExtension, uri=ID, description=TEXT, required=st.booleans(), params=METADATA)
SKILLS = st.builds(
    AgentSkill,
    id=ID,
    name=ID,
    description=ID,
    tags=st.lists(ID, min_size=1, max_size=2),
    examples=st.lists(ID, max_size=2),
    input_modes=st.lists(ID, max_size=1),
    output_modes=st.lists(ID, max_size=1),
    security_requirements=REQUIREMENTS,
)
FLAG = st.sampled_from([None, False, True])


def interfaces(*versions: str) -> st.SearchStrategy[list[AgentInterface]]:
    """One interface per version."""
    return st.tuples(
        *(st.builds(AgentInterface, url=ID, protocol_binding=ID, protocol_version=st.just(v)) for v in versions)
    ).map(list)


def cards(*versions: str) -> st.SearchStrategy[AgentCard]:
    """Any card with one interface per version."""
    return st.builds(
        AgentCard,
        name=ID,
        description=ID,
        supported_interfaces=interfaces(*versions),
        provider=st.none() | st.builds(AgentProvider, url=ID, organization=ID),
        version=ID,
        documentation_url=st.none() | ID,
        capabilities=st.builds(
            AgentCapabilities,
            streaming=FLAG,
            push_notifications=FLAG,
            extensions=st.lists(EXTENSIONS, max_size=2),
            extended_agent_card=FLAG,
        ),
        security_schemes=st.dictionaries(ID, SCHEMES, max_size=2),
        security_requirements=REQUIREMENTS,
        default_input_modes=st.lists(ID, min_size=1, max_size=2),
        default_output_modes=st.lists(ID, min_size=1, max_size=2),
        skills=st.lists(SKILLS, min_size=1, max_size=2),
        icon_url=st.none() | ID,
    )


SIGNATURES = st.none() | st.binary(max_size=3)
OUR_METADATA = st.one_of(
    st.none(), OBJECT, st.dictionaries(st.sampled_from(["adk_thought", "adk_type", "adk_part_metadata", "k"]), JSON)
)
WRAPPED = JSON.map(lambda v: a2a.Part(data=v))
OUR_CONTENTS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    TEXT.map(lambda v: {"text": v}),
    st.builds(Blob, mime_type=MEDIA, data=st.binary(max_size=5), display_name=TEXT).map(lambda v: {"inline_data": v}),
    st.builds(FileData, file_uri=TEXT, mime_type=MEDIA, display_name=TEXT).map(lambda v: {"file_data": v}),
    st.builds(FunctionCall, id=TEXT, name=TEXT, args=OBJECT, will_continue=st.booleans()).map(
        lambda v: {"function_call": v}
    ),
    st.builds(
        FunctionResponse,
        id=TEXT,
        name=TEXT,
        response=METADATA,
        parts=st.lists(OBJECT, max_size=1),
        will_continue=FLAG,
        scheduling=TEXT,
    ).map(lambda v: {"function_response": v}),
    st.builds(ExecutableCode, language=TEXT, code=TEXT, id=TEXT).map(lambda v: {"executable_code": v}),
    st.builds(CodeExecutionResult, outcome=TEXT, output=TEXT).map(lambda v: {"code_execution_result": v}),
    OBJECT.map(lambda v: {"tool_call": v}),
    OBJECT.map(lambda v: {"tool_response": v}),
    st.just({}),
)
OUR_PARTS = st.builds(
    lambda content, thought, signature, metadata, video, resolution: OurPart(
        **content,
        thought=thought,
        thought_signature=signature,
        part_metadata=metadata,
        video_metadata=video,
        media_resolution=resolution,
    ),
    OUR_CONTENTS,
    st.booleans(),
    SIGNATURES,
    OUR_METADATA,
    METADATA,
    st.none() | OBJECT,
)
