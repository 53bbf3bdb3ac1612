"""The protobuf messages of A2A as tables: field names, numbers and types (spec a2a 1.1, 2.1), and the status of gRPC.

Read by `wire/a2a_proto.py`, which makes messages of them. A field is `name=number:type`, without a type a string; `*` is
repeated, `%` a map from strings, `?` optional, `|group` one of a group, `@name` another name in JSON.
"""

STATES = "SUBMITTED WORKING COMPLETED FAILED {canceled} INPUT_REQUIRED REJECTED AUTH_REQUIRED"

V10 = """
SendMessageConfiguration: accepted_output_modes=1* task_push_notification_config=2:TaskPushNotificationConfig
    history_length=3:int32? return_immediately=4:bool
Task: id=1 context_id=2 status=3:TaskStatus artifacts=4:Artifact* history=5:Message* metadata=6:Struct
TaskStatus: state=1:TaskState message=2:Message timestamp=3:Timestamp
Part: text=1|content raw=2:bytes|content url=3|content data=4:Value|content metadata=5:Struct filename=6 media_type=7
Message: message_id=1 context_id=2 task_id=3 role=4:Role parts=5:Part* metadata=6:Struct extensions=7*
    reference_task_ids=8*
Artifact: artifact_id=1 name=2 description=3 parts=4:Part* metadata=5:Struct extensions=6*
TaskStatusUpdateEvent: task_id=1 context_id=2 status=3:TaskStatus metadata=4:Struct
TaskArtifactUpdateEvent: task_id=1 context_id=2 artifact=3:Artifact append=4:bool last_chunk=5:bool metadata=6:Struct
AuthenticationInfo: scheme=1 credentials=2
TaskPushNotificationConfig: tenant=1 id=2 task_id=3 url=4 token=5 authentication=6:AuthenticationInfo
AgentInterface: url=1 protocol_binding=2 tenant=3 protocol_version=4
AgentCard: name=1 description=2 supported_interfaces=3:AgentInterface* provider=4:AgentProvider version=5
    documentation_url=6? capabilities=7:AgentCapabilities security_schemes=8:SecurityScheme%
    security_requirements=9:SecurityRequirement* default_input_modes=10* default_output_modes=11* skills=12:AgentSkill*
    signatures=13:AgentCardSignature* icon_url=14?
AgentProvider: url=1 organization=2
AgentCapabilities: streaming=1:bool? push_notifications=2:bool? extensions=3:AgentExtension* extended_agent_card=4:bool?
AgentExtension: uri=1 description=2 required=3:bool params=4:Struct
AgentSkill: id=1 name=2 description=3 tags=4* examples=5* input_modes=6* output_modes=7*
    security_requirements=8:SecurityRequirement*
AgentCardSignature: protected=1 signature=2 header=3:Struct
StringList: list=1*
SecurityRequirement: schemes=1:StringList%
SecurityScheme: api_key_security_scheme=1:APIKeySecurityScheme|scheme
    http_auth_security_scheme=2:HTTPAuthSecurityScheme|scheme oauth2_security_scheme=3:OAuth2SecurityScheme|scheme
    open_id_connect_security_scheme=4:OpenIdConnectSecurityScheme|scheme
    mtls_security_scheme=5:MutualTlsSecurityScheme|scheme
APIKeySecurityScheme: description=1 location=2 name=3
HTTPAuthSecurityScheme: description=1 scheme=2 bearer_format=3
OAuth2SecurityScheme: description=1 flows=2:OAuthFlows oauth2_metadata_url=3
OpenIdConnectSecurityScheme: description=1 open_id_connect_url=2
MutualTlsSecurityScheme: description=1
OAuthFlows: authorization_code=1:AuthorizationCodeOAuthFlow|flow client_credentials=2:ClientCredentialsOAuthFlow|flow
    implicit=3:ImplicitOAuthFlow|flow password=4:PasswordOAuthFlow|flow device_code=5:DeviceCodeOAuthFlow|flow
AuthorizationCodeOAuthFlow: authorization_url=1 token_url=2 refresh_url=3 scopes=4% pkce_required=5:bool
ClientCredentialsOAuthFlow: token_url=1 refresh_url=2 scopes=3%
ImplicitOAuthFlow: authorization_url=1 refresh_url=2 scopes=3%
PasswordOAuthFlow: token_url=1 refresh_url=2 scopes=3%
DeviceCodeOAuthFlow: device_authorization_url=1 token_url=2 refresh_url=3 scopes=4%
SendMessageRequest: tenant=1 message=2:Message configuration=3:SendMessageConfiguration metadata=4:Struct
GetTaskRequest: tenant=1 id=2 history_length=3:int32?
ListTasksRequest: tenant=1 context_id=2 status=3:TaskState page_size=4:int32? page_token=5 history_length=6:int32?
    status_timestamp_after=7:Timestamp include_artifacts=8:bool?
ListTasksResponse: tasks=1:Task* next_page_token=2 page_size=3:int32 total_size=4:int32
CancelTaskRequest: tenant=1 id=2 metadata=3:Struct
GetTaskPushNotificationConfigRequest: tenant=1 task_id=2 id=3
DeleteTaskPushNotificationConfigRequest: tenant=1 task_id=2 id=3
SubscribeToTaskRequest: tenant=1 id=2
ListTaskPushNotificationConfigsRequest: task_id=1 page_size=2:int32 page_token=3 tenant=4
GetExtendedAgentCardRequest: tenant=1
SendMessageResponse: task=1:Task|payload message=2:Message|payload
StreamResponse: task=1:Task|payload message=2:Message|payload status_update=3:TaskStatusUpdateEvent|payload
    artifact_update=4:TaskArtifactUpdateEvent|payload
ListTaskPushNotificationConfigsResponse: configs=1:TaskPushNotificationConfig* next_page_token=2
"""

V03 = """
SendMessageConfiguration: accepted_output_modes=1* push_notification=2:PushNotificationConfig history_length=3:int32
    blocking=4:bool
Task: id=1 context_id=2 status=3:TaskStatus artifacts=4:Artifact* history=5:Message* metadata=6:Struct
TaskStatus: state=1:TaskState update=2:Message@message timestamp=3:Timestamp
Part: text=1|part file=2:FilePart|part data=3:DataPart|part metadata=4:Struct
FilePart: file_with_uri=1|file file_with_bytes=2:bytes|file mime_type=3 name=4
DataPart: data=1:Struct
Message: message_id=1 context_id=2 task_id=3 role=4:Role content=5:Part* metadata=6:Struct extensions=7*
Artifact: artifact_id=1 name=3 description=4 parts=5:Part* metadata=6:Struct extensions=7*
TaskStatusUpdateEvent: task_id=1 context_id=2 status=3:TaskStatus final=4:bool metadata=5:Struct
TaskArtifactUpdateEvent: task_id=1 context_id=2 artifact=3:Artifact append=4:bool last_chunk=5:bool metadata=6:Struct
PushNotificationConfig: id=1 url=2 token=3 authentication=4:AuthenticationInfo
AuthenticationInfo: schemes=1* credentials=2
AgentInterface: url=1 transport=2
AgentCard: name=1 description=2 url=3 provider=4:AgentProvider version=5 documentation_url=6
    capabilities=7:AgentCapabilities security_schemes=8:SecurityScheme% security=9:Security* default_input_modes=10*
    default_output_modes=11* skills=12:AgentSkill* supports_authenticated_extended_card=13:bool preferred_transport=14
    additional_interfaces=15:AgentInterface* protocol_version=16 signatures=17:AgentCardSignature* icon_url=18
AgentProvider: url=1 organization=2
AgentCapabilities: streaming=1:bool push_notifications=2:bool extensions=3:AgentExtension*
AgentExtension: uri=1 description=2 required=3:bool params=4:Struct
AgentSkill: id=1 name=2 description=3 tags=4* examples=5* input_modes=6* output_modes=7* security=8:Security*
AgentCardSignature: protected=1 signature=2 header=3:Struct
TaskPushNotificationConfig: name=1 push_notification_config=2:PushNotificationConfig
StringList: list=1*
Security: schemes=1:StringList%
SecurityScheme: api_key_security_scheme=1:APIKeySecurityScheme|scheme
    http_auth_security_scheme=2:HTTPAuthSecurityScheme|scheme oauth2_security_scheme=3:OAuth2SecurityScheme|scheme
    open_id_connect_security_scheme=4:OpenIdConnectSecurityScheme|scheme
    mtls_security_scheme=5:MutualTlsSecurityScheme|scheme
APIKeySecurityScheme: description=1 location=2 name=3
HTTPAuthSecurityScheme: description=1 scheme=2 bearer_format=3
OAuth2SecurityScheme: description=1 flows=2:OAuthFlows oauth2_metadata_url=3
OpenIdConnectSecurityScheme: description=1 open_id_connect_url=2
MutualTlsSecurityScheme: description=1
OAuthFlows: authorization_code=1:AuthorizationCodeOAuthFlow|flow client_credentials=2:ClientCredentialsOAuthFlow|flow
    implicit=3:ImplicitOAuthFlow|flow password=4:PasswordOAuthFlow|flow
AuthorizationCodeOAuthFlow: authorization_url=1 token_url=2 refresh_url=3 scopes=4%
ClientCredentialsOAuthFlow: token_url=1 refresh_url=2 scopes=3%
ImplicitOAuthFlow: authorization_url=1 refresh_url=2 scopes=3%
PasswordOAuthFlow: token_url=1 refresh_url=2 scopes=3%
SendMessageRequest: request=1:Message@message configuration=2:SendMessageConfiguration metadata=3:Struct
GetTaskRequest: name=1 history_length=2:int32
CancelTaskRequest: name=1
GetTaskPushNotificationConfigRequest: name=1
DeleteTaskPushNotificationConfigRequest: name=1
CreateTaskPushNotificationConfigRequest: parent=1 config_id=2 config=3:TaskPushNotificationConfig
TaskSubscriptionRequest: name=1
ListTaskPushNotificationConfigRequest: parent=1 page_size=2:int32 page_token=3
GetAgentCardRequest:
SendMessageResponse: task=1:Task|payload msg=2:Message|payload@message
StreamResponse: task=1:Task|payload msg=2:Message|payload@message status_update=3:TaskStatusUpdateEvent|payload
    artifact_update=4:TaskArtifactUpdateEvent|payload
ListTaskPushNotificationConfigResponse: configs=1:TaskPushNotificationConfig* next_page_token=2
"""

RPC = """
Status: code=1:int32 message=2 details=3:Any*
ErrorInfo: reason=1 domain=2 metadata=3%
FieldViolation: field=1 description=2
BadRequest: field_violations=1:FieldViolation*
"""
"""google.rpc, as far as A2A uses it. `FieldViolation` is nested there, which does not show on the wire."""
