"""A2A 0.3 at the edge: params, results, events, errors and cards, written from spec a2a 2.1 and 2.2."""

import json
from typing import Any

import pytest
from msgspec import structs

from polyport.codec import encode
from polyport.errors import BadRequest, ConfigError
from polyport.wire import a2a, a2a_check, a2a_errors, a2a_v03, a2a_v03_write
from polyport.wire.a2a_card import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    ApiKeySecurityScheme,
    AuthorizationCodeFlow,
    HttpAuthSecurityScheme,
    MutualTlsSecurityScheme,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from polyport.wire.a2a_errors import InvalidAgentResponse, TaskNotFound, UnsupportedOperation
from polyport.wire.a2a_v03_card import read_card, speaks_v03, union_card

STATES = {
    "submitted": a2a.TaskState.SUBMITTED,
    "working": a2a.TaskState.WORKING,
    "input-required": a2a.TaskState.INPUT_REQUIRED,
    "completed": a2a.TaskState.COMPLETED,
    "canceled": a2a.TaskState.CANCELED,
    "failed": a2a.TaskState.FAILED,
    "rejected": a2a.TaskState.REJECTED,
    "auth-required": a2a.TaskState.AUTH_REQUIRED,
    "unknown": a2a.TaskState.UNSPECIFIED,
}
PUSH = {
    "id": "p",
    "url": "https://w",
    "token": "k",
    "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "s"},
}
CONFIG = a2a.TaskPushNotificationConfig(
    id="p",
    task_id="t",
    url="https://w",
    token="k",
    authentication=a2a.AuthenticationInfo(scheme="Bearer", credentials="s"),
)
SEND = {
    "message": {
        "kind": "message",
        "messageId": "m",
        "role": "user",
        "contextId": "c",
        "parts": [
            {"kind": "text", "text": "Hi", "metadata": {"a": 1}},
            {"kind": "file", "file": {"bytes": "_-8", "mimeType": "a/b", "name": "f"}},
            {"kind": "file", "file": {"uri": "https://h/f", "mimeType": "a/b"}},
            {"kind": "data", "data": {"data": {"x": 1}}},
            {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True, "k": 0}},
            {"kind": "data", "data": {"value": None}, "metadata": {"data_part_compat": True}},
        ],
        "referenceTaskIds": ["r"],
        "extensions": ["urn:x"],
    },
    "configuration": {
        "acceptedOutputModes": ["text/plain"],
        "blocking": False,
        "historyLength": 2,
        "pushNotificationConfig": PUSH,
    },
    "metadata": {"a": None},
}
REQUEST = a2a.SendMessageRequest(
    message=a2a.Message(
        message_id="m",
        role=a2a.Role.USER,
        context_id="c",
        parts=[
            a2a.Part(text="Hi", metadata={"a": 1}),
            a2a.Part(raw=b"\xff\xef", media_type="a/b", filename="f"),
            a2a.Part(url="https://h/f", media_type="a/b"),
            a2a.Part(data={"data": {"x": 1}}),
            a2a.Part(data=[1], metadata={"k": 0}),
            a2a.Part(data=None),
        ],
        reference_task_ids=["r"],
        extensions=["urn:x"],
    ),
    configuration=a2a.SendMessageConfiguration(
        accepted_output_modes=["text/plain"],
        return_immediately=True,
        history_length=2,
        task_push_notification_config=a2a.TaskPushNotificationConfig(
            id="p", url="https://w", token="k", authentication=a2a.AuthenticationInfo(scheme="Bearer", credentials="s")
        ),
    ),
    metadata={"a": None},
)


def read(method: str, params: Any) -> tuple[str, Any]:
    return a2a_v03.read_params(method, json.dumps(params))


def test_the_methods_of_both_versions_do_not_overlap():
    assert len(a2a_v03.METHODS) == 10
    assert not a2a_v03.METHODS.keys() & set(a2a_v03.METHODS.values())


@pytest.mark.parametrize(
    ("method", "operation"), [("message/send", "SendMessage"), ("message/stream", "SendStreamingMessage")]
)
def test_T080_T085_a_send_with_every_kind_of_part(method: str, operation: str):
    assert read(method, SEND) == (operation, REQUEST)
    assert a2a_check.violations(REQUEST) == []


def test_snake_case_is_read_as_well():
    text = json.dumps(SEND)
    for name in ("messageId", "contextId", "mimeType", "historyLength", "pushNotificationConfig", "referenceTaskIds"):
        text = text.replace(name, "".join("_" + c.lower() if c.isupper() else c for c in name))
    assert a2a_v03.read_params("message/send", text)[1] == REQUEST


@pytest.mark.parametrize(
    ("configuration", "at_once"), [({}, False), ({"blocking": True}, False), ({"blocking": False}, True)]
)
def test_T081_FR_156_blocking_is_the_default_and_the_opposite_of_1_0s_word(
    configuration: dict[str, Any], at_once: bool
):
    _, request = read("message/send", SEND | {"configuration": configuration})
    assert request.configuration.return_immediately is at_once
    _, bare = read("message/send", {"message": SEND["message"]})
    assert bare.configuration == a2a.SendMessageConfiguration()


@pytest.mark.parametrize(
    ("method", "params", "operation", "request_"),
    [
        ("tasks/get", {"id": "t", "historyLength": 0}, "GetTask", a2a.GetTaskRequest(id="t", history_length=0)),
        ("tasks/get", {"id": "t"}, "GetTask", a2a.GetTaskRequest(id="t")),
        (
            "tasks/cancel",
            {"id": "t", "metadata": {"a": 1}},
            "CancelTask",
            a2a.CancelTaskRequest(id="t", metadata={"a": 1}),
        ),
        ("tasks/resubscribe", {"id": "t"}, "SubscribeToTask", a2a.SubscribeToTaskRequest(id="t")),
        (
            "tasks/pushNotificationConfig/set",
            {"taskId": "t", "pushNotificationConfig": PUSH},
            "CreateTaskPushNotificationConfig",
            CONFIG,
        ),
        (
            "tasks/pushNotificationConfig/get",
            {"id": "t", "pushNotificationConfigId": "p"},
            "GetTaskPushNotificationConfig",
            a2a.GetTaskPushNotificationConfigRequest(task_id="t", id="p"),
        ),
        (
            "tasks/pushNotificationConfig/get",
            {"id": "t"},
            "ListTaskPushNotificationConfigs",
            a2a.ListTaskPushNotificationConfigsRequest(task_id="t"),
        ),
        (
            "tasks/pushNotificationConfig/list",
            {"id": "t"},
            "ListTaskPushNotificationConfigs",
            a2a.ListTaskPushNotificationConfigsRequest(task_id="t"),
        ),
        (
            "tasks/pushNotificationConfig/delete",
            {"id": "t", "pushNotificationConfigId": "p"},
            "DeleteTaskPushNotificationConfig",
            a2a.DeleteTaskPushNotificationConfigRequest(task_id="t", id="p"),
        ),
        ("agent/getAuthenticatedExtendedCard", {}, "GetExtendedAgentCard", a2a.GetExtendedAgentCardRequest()),
    ],
)
def test_T082_T083_the_other_methods(method: str, params: Any, operation: str, request_: Any):
    assert read(method, params) == (operation, request_)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("message/send", {"message": "x"}),
        ("message/send", {"message": {"parts": "x"}}),
        ("message/send", {"message": {"parts": [{"kind": "text", "text": 5}]}}),
        ("message/send", {"message": {"parts": [{"kind": "file", "file": "x"}]}}),
        ("message/send", {"message": {"parts": [{"kind": "file", "file": {"bytes": "?"}}]}}),
        ("message/send", {"message": {"parts": [7]}}),
        ("message/send", {"configuration": {"blocking": "yes"}}),
        ("message/send", {"configuration": []}),
        ("message/send", []),
        ("tasks/get", {}),
        ("tasks/get", {"id": 7}),
        ("tasks/cancel", {"id": "t", "metadata": 1}),
        ("tasks/pushNotificationConfig/set", {"taskId": "t", "pushNotificationConfig": "x"}),
        ("tasks/pushNotificationConfig/set", {"taskId": "t", "pushNotificationConfig": {"authentication": "x"}}),
    ],
)
def test_T083_wrong_params_are_minus_32602(method: str, params: Any):
    with pytest.raises(BadRequest) as caught:
        read(method, params)
    assert a2a_v03.error_object(caught.value)["code"] == -32602


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ({}, ["message"]),
        ({"messageId": "m", "parts": [{"kind": "text", "text": "x"}]}, ["message.role"]),
        ({"messageId": "m", "role": "boss", "parts": [{"kind": "text", "text": "x"}]}, ["message.role"]),
        ({"messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "x"}]}, ["message.role"]),
        ({"messageId": "m", "role": "user", "parts": [{"kind": "text"}, {"kind": "file", "file": {}}, {}]}, 3),
        ({"messageId": "m", "role": "user", "parts": [{"kind": "data", "data": None}]}, ["message.parts[0]"]),
    ],
)
def test_T020_what_a_message_lacks_is_found_by_the_same_check(message: Any, fields: list[str] | int):
    found = [v.field for v in a2a_check.violations(read("message/send", {"message": message})[1])]
    assert (len(found) if isinstance(fields, int) else found) == fields


@pytest.mark.parametrize(("name", "state"), STATES.items())
def test_T080_states_have_lower_case_names(name: str, state: a2a.TaskState):
    task = a2a.Task(id="t", context_id="c", status=a2a.TaskStatus(state=state))
    plain = a2a_v03.result("tasks/get", task)
    assert plain == {"kind": "task", "id": "t", "contextId": "c", "status": {"state": name}}
    assert a2a_v03.read_answer("GetTask", encode(plain)) == task
    assert a2a_v03.read_answer("GetTask", encode(a2a_v03.rest_result(task))) == task


def test_an_unknown_state_is_unspecified():
    found = a2a_v03.read_event('{"kind":"task","id":"t","contextId":"c","status":{"state":"paused"}}')
    assert isinstance(found, a2a.Task)
    assert found.status.state is a2a.TaskState.UNSPECIFIED


@pytest.mark.parametrize("state", list(a2a.TaskState))
def test_T080_the_last_status_of_a_stream_is_final(state: a2a.TaskState):
    update = a2a.TaskStatusUpdateEvent(task_id="t", context_id="c", status=a2a.TaskStatus(state=state))
    last = state.terminal or state is a2a.TaskState.INPUT_REQUIRED
    assert a2a_v03.event(update)["final"] is last
    assert a2a_v03.rest_event(update)["statusUpdate"]["final"] is last
    assert a2a_v03.event(update, final=not last)["final"] is not last


def test_T080_a_send_gives_the_bare_task_or_message():
    message = a2a.Message(message_id="m", role=a2a.Role.AGENT, parts=[a2a.Part(text="x")])
    assert a2a_v03.result("message/send", a2a.reply(message)) == a2a_v03.event(message)
    task = a2a.Task(id="t", status=a2a.TaskStatus(state=a2a.TaskState.WORKING))
    assert a2a_v03.result("message/send", a2a.reply(task))["kind"] == "task"
    assert a2a_v03.rest_result(a2a.reply(task)) == {"task": a2a_v03.rest_result(task)}
    assert a2a_v03.rest_result(a2a.reply(message))["message"]["content"] == [{"text": "x"}]


def test_T082_push_configurations_are_nested():
    one = {
        "taskId": "t",
        "pushNotificationConfig": PUSH | {"authentication": {"schemes": ["Bearer"], "credentials": "s"}},
    }
    listed = a2a.ListTaskPushNotificationConfigsResponse(configs=[CONFIG])
    assert a2a_v03.result("tasks/pushNotificationConfig/set", CONFIG) == one
    assert a2a_v03.result("tasks/pushNotificationConfig/get", CONFIG) == one
    assert a2a_v03.result("tasks/pushNotificationConfig/get", listed) == one
    assert a2a_v03.result("tasks/pushNotificationConfig/list", listed) == [one]
    assert a2a_v03.result("tasks/pushNotificationConfig/delete", None) is None
    with pytest.raises(TaskNotFound):
        a2a_v03.result("tasks/pushNotificationConfig/get", a2a.ListTaskPushNotificationConfigsResponse())
    assert a2a_v03.rest_result(CONFIG)["name"] == "tasks/t/pushNotificationConfigs/p"
    assert a2a_v03.rest_result(listed)["configs"] == [a2a_v03.rest_result(CONFIG)]
    assert a2a_v03.rest_result(None) == {}


@pytest.mark.parametrize(
    ("said", "scheme"),
    [
        ({}, None),
        ({"schemes": []}, None),
        ({"credentials": "s"}, "Bearer"),
        ({"schemes": ["Basic", "Bearer"]}, "Basic"),
    ],
)
def test_an_authentication_that_says_nothing_is_none(said: dict[str, Any], scheme: str | None):
    config = {"taskId": "t", "pushNotificationConfig": {"url": "https://w", "authentication": said}}
    found = read("tasks/pushNotificationConfig/set", config)[1]
    assert (found.authentication and found.authentication.scheme) == scheme
    assert a2a_check.violations(found) == []


@pytest.mark.parametrize(
    "body",
    [
        {"parent": "tasks/t", "config_id": "p", "config": {"push_notification_config": PUSH | {"id": ""}}},
        {"config": {"name": "tasks/x/pushNotificationConfigs/p", "pushNotificationConfig": PUSH}},
        {"pushNotificationConfig": PUSH},
        {"taskId": "x", "pushNotificationConfig": PUSH},
        PUSH,
    ],
)
def test_T084_a_push_configuration_over_REST(body: Any):
    assert a2a_v03.read_rest_push(encode(body), "t") == CONFIG


def test_T084_a_send_over_REST_in_either_spelling():
    body = {
        "request": {
            "message_id": "m",
            "role": "ROLE_USER",
            "context_id": "c",
            "content": [
                {"text": "Hi", "metadata": {"a": 1}},
                {"file": {"file_with_bytes": "/+8=", "mime_type": "a/b", "name": "f"}},
                {"file": {"fileWithUri": "https://h/f", "mimeType": "a/b"}},
                {"data": {"data": {"data": {"x": 1}}}},
                {"data": {"data": {"value": [1]}}, "metadata": {"data_part_compat": True, "k": 0}},
                {"data": {"data": {"value": None}}, "metadata": {"data_part_compat": True}},
            ],
            "extensions": ["urn:x"],
            "reference_task_ids": ["r"],
        },
        "configuration": {
            "accepted_output_modes": ["text/plain"],
            "history_length": 2,
            "push_notification": PUSH,
            "blocking": False,
        },
        "metadata": {"a": None},
    }
    assert a2a_v03.read_rest_send(encode(body)) == REQUEST
    assert a2a_v03.read_rest_send(encode(SEND)) == REQUEST


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("history", [None, 2])
def test_T084_what_our_client_sends_over_REST_is_what_our_server_reads(at_once: bool, history: int | None):
    message = structs.replace(REQUEST.message, reference_task_ids=[])  # 0.3's proto has no such member
    said = structs.replace(REQUEST.configuration, return_immediately=at_once, history_length=history)
    request = structs.replace(REQUEST, message=message, configuration=said)
    assert a2a_v03.read_rest_send(encode(a2a_v03_write.rest_send_body(request))) == request


def test_T084_a_REST_configuration_without_blocking_says_false():
    said = [
        a2a_v03.read_rest_send(encode(SEND | {"configuration": c})).configuration.return_immediately
        for c in ({}, {"blocking": False}, {"blocking": True})
    ]
    assert said == [True, True, False]
    assert not a2a_v03.read_rest_send(encode({"message": SEND["message"]})).configuration.return_immediately


@pytest.mark.parametrize("name", ["historyLength", "history_length"])
def test_T084_history_length_0_is_all_in_the_proto_form_only(name: str):
    body = SEND | {"configuration": {name: 0}}
    assert a2a_v03.read_rest_send(encode(body)).configuration.history_length is None
    assert read("message/send", body)[1].configuration.history_length == 0


def test_T083_errors_that_0_3_does_not_know_are_invalid_requests():
    codes = {kind.__name__: a2a_v03.error_object(kind("x"))["code"] for kind in a2a_errors.TABLE}
    assert codes == {kind.__name__: a2a_errors.row(kind("x")).jsonrpc for kind in a2a_errors.TABLE} | {
        "ExtensionSupportRequired": -32600,
        "VersionNotSupported": -32600,
    }


def test_a_REST_error_has_what_clients_of_both_versions_read():
    status, body = a2a_v03.rest_error_body(TaskNotFound("no t"), "1.0.1")
    assert (status, body["type"], body["message"], body["error"]["status"]) == (
        404,
        "TaskNotFoundError",
        "no t",
        "NOT_FOUND",
    )
    assert a2a_v03.rest_error_body(BadRequest("x"), "1.0.1")[1]["type"] == "InvalidParamsError"


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("SendMessage", REQUEST),
        ("SendStreamingMessage", REQUEST),
        ("GetTask", a2a.GetTaskRequest(id="t", history_length=0)),
        ("GetTask", a2a.GetTaskRequest(id="t")),
        ("CancelTask", a2a.CancelTaskRequest(id="t", metadata={"a": 1})),
        ("SubscribeToTask", a2a.SubscribeToTaskRequest(id="t")),
        ("CreateTaskPushNotificationConfig", CONFIG),
        ("GetTaskPushNotificationConfig", a2a.GetTaskPushNotificationConfigRequest(task_id="t", id="p")),
        ("ListTaskPushNotificationConfigs", a2a.ListTaskPushNotificationConfigsRequest(task_id="t")),
        ("DeleteTaskPushNotificationConfig", a2a.DeleteTaskPushNotificationConfigRequest(task_id="t", id="p")),
        ("GetExtendedAgentCard", a2a.GetExtendedAgentCardRequest()),
    ],
)
def test_what_our_client_asks_is_what_our_server_reads(operation: str, request_: Any):
    method, params = a2a_v03.call(operation, request_)
    assert read(method, params) == (operation, request_)


def test_a_client_cannot_list_tasks_of_a_0_3_server():
    with pytest.raises(UnsupportedOperation, match="ListTasks"):
        a2a_v03.call("ListTasks", a2a.ListTasksRequest())


TASK = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}}


@pytest.mark.parametrize("drop", ["", "kind"])
def test_a_frame_is_known_by_its_kind_or_its_members(drop: str):
    status = {"kind": "status-update", "taskId": "t", "contextId": "c", "final": False, "status": {"state": "working"}}
    artifact = {
        "kind": "artifact-update",
        "taskId": "t",
        "contextId": "c",
        "artifact": {"artifactId": "a", "parts": []},
    }
    message = {"kind": "message", "messageId": "m", "role": "agent", "parts": []}
    frames = [{k: v for k, v in f.items() if k != drop} for f in (TASK, status, artifact, message)]
    assert [type(a2a_v03.read_event(encode(f))).__name__ for f in frames] == [
        *("Task", "TaskStatusUpdateEvent", "TaskArtifactUpdateEvent", "Message")
    ]


@pytest.mark.parametrize(
    "body", ["[]", "5", "{", "{}", '{"kind":"note"}', '{"kind":5}', '{"kind":"task","id":"t"}', '{"task":{"id":7}}']
)
def test_a_frame_that_is_none_is_an_invalid_agent_response(body: str):
    with pytest.raises(InvalidAgentResponse):
        a2a_v03.read_event(body)


def test_answers_of_a_0_3_server():
    task = a2a.Task(id="t", context_id="c", status=a2a.TaskStatus(state=a2a.TaskState.WORKING))
    assert a2a_v03.read_answer("SendMessage", encode(TASK)) == a2a.reply(task)
    assert a2a_v03.read_answer("SendMessage", encode({"task": TASK})) == a2a.reply(task)
    assert a2a_v03.read_answer("CancelTask", encode(TASK)) == task
    assert a2a_v03.read_answer("DeleteTaskPushNotificationConfig", b"null") is None
    listed = a2a_v03.result(
        "tasks/pushNotificationConfig/list", a2a.ListTaskPushNotificationConfigsResponse(configs=[CONFIG])
    )
    assert a2a_v03.read_answer("ListTaskPushNotificationConfigs", encode(listed)).configs == [CONFIG]
    assert a2a_v03.read_answer("ListTaskPushNotificationConfigs", encode({"configs": listed})).configs == [CONFIG]
    assert a2a_v03.read_answer("GetTaskPushNotificationConfig", encode(listed[0])) == CONFIG
    assert a2a_v03.read_answer("CreateTaskPushNotificationConfig", encode(a2a_v03.rest_result(CONFIG))) == CONFIG
    for operation, body in (
        ("SendMessage", '{"kind":"status-update","taskId":"t","contextId":"c","status":{"state":"working"}}'),
        ("GetTask", "null"),
        ("GetTask", '{"kind":"task"}'),
        ("ListTaskPushNotificationConfigs", "5"),
        ("ListTaskPushNotificationConfigs", "["),
    ):
        with pytest.raises(InvalidAgentResponse):
            a2a_v03.read_answer(operation, body)


CARD = AgentCard(
    name="w",
    description="d",
    supported_interfaces=[
        AgentInterface(url="https://h/1", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url="https://h/03", protocol_binding="JSONRPC", protocol_version="0.3"),
        AgentInterface(url="http://h:50051", protocol_binding="GRPC", protocol_version="0.3"),
    ],
    version="2",
    documentation_url="https://h/docs",
    capabilities=AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=True),
    security_schemes={
        "key": SecurityScheme(
            api_key_security_scheme=ApiKeySecurityScheme(location="query", name="k", description="x")
        ),
        "http": SecurityScheme(http_auth_security_scheme=HttpAuthSecurityScheme(scheme="Bearer", bearer_format="JWT")),
        "oauth": SecurityScheme(
            oauth2_security_scheme=OAuth2SecurityScheme(
                flows=OAuthFlows(
                    authorization_code=AuthorizationCodeFlow(
                        authorization_url="https://a", token_url="https://t", scopes={"r": "read"}
                    )
                )
            )
        ),
        "oidc": SecurityScheme(
            open_id_connect_security_scheme=OpenIdConnectSecurityScheme(open_id_connect_url="https://o")
        ),
        "mtls": SecurityScheme(mtls_security_scheme=MutualTlsSecurityScheme()),
    },
    security_requirements=[SecurityRequirement(schemes={"oauth": StringList(values=["r"]), "key": StringList()})],
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[
        AgentSkill(id="s", name="S", description="D", tags=["t"]),
        AgentSkill(
            id="u",
            name="U",
            description="D",
            security_requirements=[SecurityRequirement(schemes={"key": StringList()})],
        ),
    ],
)
ONLY_10 = ("supportedInterfaces", "securityRequirements")


def pure_v03(card: AgentCard) -> dict[str, Any]:
    """What a 0.3 server would send: the union document without what only 1.0 has."""
    plain = json.loads(encode(union_card(card)))
    for name in ONLY_10:
        plain.pop(name, None)
    for scheme in plain["securitySchemes"].values():
        for name in [n for n in scheme if n.endswith("SecurityScheme")]:
            del scheme[name]
    for skill in plain["skills"]:
        skill.pop("securityRequirements", None)
    plain["capabilities"].pop("extendedAgentCard")
    return plain


def test_T005_a_union_card_is_1_0s_card_for_readers_of_1_0():
    assert speaks_v03(CARD)
    plain = json.loads(encode(union_card(CARD)))
    assert read_card(plain) == CARD
    assert a2a.read_plain(plain, AgentCard) == CARD
    assert plain["url"] == "https://h/03"
    assert plain["additionalInterfaces"] == [
        {"url": "https://h/03", "transport": "JSONRPC"},
        {"url": "http://h:50051", "transport": "GRPC"},
    ]
    assert plain["supportsAuthenticatedExtendedCard"] is True


def test_T005_a_pure_0_3_card_is_read_with_all_it_says():
    expected = CARD.supported_interfaces[1:]
    found = read_card(pure_v03(CARD))
    assert found.supported_interfaces == expected
    assert found.security_schemes == CARD.security_schemes
    assert found.security_requirements == CARD.security_requirements
    assert found.skills == CARD.skills
    assert found.capabilities == CARD.capabilities


def test_a_card_without_a_0_3_interface_has_no_union_form():
    card = AgentCard(supported_interfaces=CARD.supported_interfaces[:1])
    assert not speaks_v03(card)
    with pytest.raises(ConfigError, match=r"0\.3"):
        union_card(card)


@pytest.mark.parametrize(
    "odd",
    [
        {"url": 5},
        {"additionalInterfaces": "x"},
        {"additionalInterfaces": [5]},
        {"security": "x"},
        {"security": [5, {"a": 5}]},
        {"preferredTransport": 5},
        {"supportsAuthenticatedExtendedCard": "yes"},
    ],
)
def test_odd_members_of_a_0_3_card_are_left_out(odd: dict[str, Any]):
    assert read_card(pure_v03(CARD) | odd).name == "w"
