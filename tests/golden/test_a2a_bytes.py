"""Exact bytes of A2A 1.0, 0.3 and JSON-RPC. Written from spec a2a 1.1-1.5 and 2.1, by hand."""

from typing import Any

import pytest

from polyport.codec import encode
from polyport.errors import Forbidden, Unauthenticated
from polyport.wire import a2a, a2a_card, a2a_v03, jsonrpc
from polyport.wire.a2a_errors import InvalidParams, TaskNotFound, Violation, rest_error
from polyport.wire.a2a_sign import canonical
from polyport.wire.a2a_v03_card import union_card

AT = 1_772_000_000_001
ASKED = a2a.Message(message_id="m1", role=a2a.Role.USER, parts=[a2a.Part(text="Hi")])
SAID = a2a.Message(message_id="m2", context_id="c", task_id="t", role=a2a.Role.AGENT, parts=[a2a.Part(text="Which?")])
WAITING = a2a.new_status(a2a.TaskState.INPUT_REQUIRED, AT, SAID)
TASK = a2a.Task(
    id="t",
    context_id="c",
    status=a2a.new_status(a2a.TaskState.CANCELED, AT),
    artifacts=[
        a2a.Artifact(
            artifact_id="a",
            name="out",
            parts=[
                a2a.Part(raw=b"\xff\xfe", media_type="image/png", filename="x.png"),
                a2a.Part(url="https://h/f"),
                a2a.Part(data=None, metadata={"k": None}),
            ],
        )
    ],
    history=[ASKED],
)
STATUS = a2a.TaskStatusUpdateEvent(task_id="t", context_id="c", status=WAITING)
CHUNK = a2a.TaskArtifactUpdateEvent(
    task_id="t",
    context_id="c",
    artifact=a2a.Artifact(artifact_id="a", parts=[a2a.Part(text="")]),
    append=True,
    last_chunk=True,
    metadata={},
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (a2a.Part(text=""), '{"text":""}'),
        (a2a.Part(raw=b""), '{"raw":""}'),
        (a2a.Part(data=None), '{"data":null}'),
        (a2a.Part(data=[0, "x", {}]), '{"data":[0,"x",{}]}'),
        (
            a2a.Part(url="u", metadata={}, filename="f", media_type="a/b"),
            '{"url":"u","metadata":{},"filename":"f","mediaType":"a/b"}',
        ),
        (ASKED, '{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"Hi"}]}'),
        (
            STATUS,
            '{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"m2",'
            '"contextId":"c","taskId":"t","role":"ROLE_AGENT","parts":[{"text":"Which?"}]},'
            '"timestamp":"2026-02-25T06:13:20.001Z"}}',
        ),
        (
            a2a.frame(CHUNK),
            '{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":""}]},'
            '"append":true,"lastChunk":true,"metadata":{}}}',
        ),
        (
            a2a.reply(TASK),
            '{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_CANCELED","timestamp":'
            '"2026-02-25T06:13:20.001Z"},"artifacts":[{"artifactId":"a","name":"out","parts":[{"raw":"//4=","filename":'
            '"x.png","mediaType":"image/png"},{"url":"https://h/f"},{"data":null,"metadata":{"k":null}}]}],'
            '"history":[{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"Hi"}]}]}}',
        ),
        (a2a.reply(ASKED), '{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"Hi"}]}}'),
        (
            a2a.SendMessageRequest(
                message=ASKED,
                configuration=a2a.SendMessageConfiguration(
                    accepted_output_modes=["text/plain"],
                    task_push_notification_config=a2a.TaskPushNotificationConfig(
                        url="https://w", authentication=a2a.AuthenticationInfo(scheme="Bearer", credentials="s")
                    ),
                    history_length=0,
                    return_immediately=True,
                ),
            ),
            '{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"Hi"}]},"configuration":'
            '{"acceptedOutputModes":["text/plain"],"taskPushNotificationConfig":{"url":"https://w","authentication":'
            '{"scheme":"Bearer","credentials":"s"}},"historyLength":0,"returnImmediately":true}}',
        ),
    ],
)
def test_messages_of_1_0(value: Any, expected: str):
    assert encode(value).decode() == expected
    assert a2a.read(expected, type(value)) == value


def test_T046_FR_153_a_list_of_tasks_always_has_its_four_members():
    assert encode(a2a.ListTasksResponse()) == b'{"tasks":[],"nextPageToken":"","pageSize":0,"totalSize":0}'


def test_T050_artifacts_are_a_key_only_when_they_are_shown():
    bare = a2a.Task(id="t", status=a2a.TaskStatus(state=a2a.TaskState.WORKING))
    assert encode(bare) == b'{"id":"t","status":{"state":"TASK_STATE_WORKING"}}'
    shown = a2a.Task(id="t", status=bare.status, artifacts=[])
    assert encode(shown) == b'{"id":"t","status":{"state":"TASK_STATE_WORKING"},"artifacts":[]}'


def test_T056_times_are_utc_with_milliseconds():
    assert a2a.time_text(1_767_222_000_999) == "2025-12-31T23:00:00.999Z"
    assert a2a.time_text(1_767_225_600_000) == "2026-01-01T00:00:00.000Z"


def small_card(**changes: Any) -> a2a_card.AgentCard:
    return a2a_card.AgentCard(
        **{
            "name": "w",
            "description": "weather",
            "supported_interfaces": [
                a2a_card.AgentInterface(url="https://h/", protocol_binding="JSONRPC", protocol_version="1.0"),
                a2a_card.AgentInterface(url="https://h/", protocol_binding="JSONRPC", protocol_version="0.3"),
            ],
            "version": "1",
            "capabilities": a2a_card.AgentCapabilities(streaming=False),
            "default_input_modes": ["text/plain"],
            "default_output_modes": ["text/plain"],
        }
        | changes
    )


CARD = (
    '{"name":"w","description":"weather","supportedInterfaces":[{"url":"https://h/","protocolBinding":"JSONRPC",'
    '"protocolVersion":"1.0"},{"url":"https://h/","protocolBinding":"JSONRPC","protocolVersion":"0.3"}],"version":"1",'
    '"capabilities":{"streaming":false},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[]}'
)


def test_T001_a_card_has_all_required_members_and_no_null():
    assert encode(small_card()).decode() == CARD


def test_T005_the_union_card_adds_what_0_3_reads():
    security = [a2a_card.SecurityRequirement(schemes={"key": a2a_card.StringList(values=["a"])})]
    schemes = {
        "key": a2a_card.SecurityScheme(
            api_key_security_scheme=a2a_card.ApiKeySecurityScheme(location="header", name="X-Key")
        )
    }
    card = small_card(security_requirements=security, security_schemes=schemes)
    assert encode(union_card(card)).decode() == CARD.replace(
        '"defaultInputModes"',
        '"securitySchemes":{"key":{"apiKeySecurityScheme":{"location":"header","name":"X-Key"},"name":"X-Key",'
        '"in":"header","type":"apiKey"}},"securityRequirements":[{"schemes":{"key":{"list":["a"]}}}],"defaultInputModes"',
    ).removesuffix("}") + (
        ',"url":"https://h/","preferredTransport":"JSONRPC","additionalInterfaces":[{"url":"https://h/","transport":'
        '"JSONRPC"}],"protocolVersion":"0.3.0","supportsAuthenticatedExtendedCard":false,"security":[{"key":["a"]}]}'
    )


def test_T007_the_canonical_payload_keeps_an_explicit_false_and_drops_what_was_never_set():
    text = canonical(small_card(capabilities=a2a_card.AgentCapabilities(streaming=False, extensions=[]))).decode()
    assert text == (
        '{"capabilities":{"streaming":false},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],'
        '"description":"weather","name":"w","skills":[],"supportedInterfaces":[{"protocolBinding":"JSONRPC",'
        '"protocolVersion":"1.0","url":"https://h/"},{"protocolBinding":"JSONRPC","protocolVersion":"0.3",'
        '"url":"https://h/"}],"version":"1"}'
    )
    assert '"documentationUrl":""' in canonical(small_card(documentation_url="")).decode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            ASKED,
            '{"kind":"message","messageId":"m1","role":"user","parts":[{"text":"Hi","kind":"text"}]}',
        ),
        (
            TASK,
            '{"kind":"task","id":"t","contextId":"c","status":{"state":"canceled","timestamp":"2026-02-25T06:13:20.001Z"},'
            '"artifacts":[{"artifactId":"a","parts":[{"file":{"bytes":"//4=","mimeType":"image/png","name":"x.png"},'
            '"kind":"file"},{"file":{"uri":"https://h/f"},"kind":"file"},{"data":{"value":null},"kind":"data","metadata":'
            '{"k":null,"data_part_compat":true}}],"name":"out"}],"history":[{"kind":"message","messageId":"m1","role":'
            '"user","parts":[{"text":"Hi","kind":"text"}]}]}',
        ),
        (
            STATUS,
            '{"taskId":"t","contextId":"c","kind":"status-update","status":{"state":"input-required","message":{"kind":'
            '"message","messageId":"m2","contextId":"c","taskId":"t","role":"agent","parts":[{"text":"Which?","kind":"text"}]},'
            '"timestamp":"2026-02-25T06:13:20.001Z"},"final":true}',
        ),
        (
            CHUNK,
            '{"taskId":"t","contextId":"c","kind":"artifact-update","artifact":{"artifactId":"a","parts":[{"text":"",'
            '"kind":"text"}]},"append":true,"lastChunk":true,"metadata":{}}',
        ),
    ],
)
def test_T080_messages_of_0_3(value: a2a.Payload, expected: str):
    assert encode(a2a_v03.event(value)).decode() == expected
    assert a2a_v03.read_event(expected) == value


def test_T084_messages_of_0_3_over_REST():
    assert encode(a2a_v03.rest_event(STATUS)).decode() == (
        '{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{'
        '"messageId":"m2","contextId":"c","taskId":"t","role":"ROLE_AGENT","content":[{"text":"Which?"}]},"timestamp":'
        '"2026-02-25T06:13:20.001Z"},"final":true}}'
    )
    assert encode(a2a_v03.rest_result(a2a.reply(TASK))).decode() == (
        '{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_CANCELLED","timestamp":"2026-02-25T06:13:20.001Z"},'
        '"artifacts":[{"artifactId":"a","parts":[{"file":{"fileWithBytes":"//4=","mimeType":"image/png","name":"x.png"}},'
        '{"file":{"fileWithUri":"https://h/f"}},{"data":{"data":{"value":null}},"metadata":{"k":null,"data_part_compat":'
        'true}}],"name":"out"}],"history":[{"messageId":"m1","role":"ROLE_USER","content":[{"text":"Hi"}]}]}}'
    )


INFO = '"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":'


def test_T073_an_error_of_JSON_RPC():
    error = TaskNotFound("no task t", {"taskId": "t"})
    assert jsonrpc.failure(b'"7"', error).decode() == (
        '{"jsonrpc":"2.0","id":"7","error":{"code":-32001,"message":"no task t","data":[{'
        f'{INFO}"TASK_NOT_FOUND","domain":"a2a-protocol.org","metadata":{{"taskId":"t"}}}}]}}}}'
    )


def test_T073_an_error_of_REST():
    status, body = rest_error(InvalidParams([Violation("message.parts", "is required"), Violation("id", "is bad")]))
    assert status == 400
    assert encode(body).decode() == (
        '{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"message.parts is required; id is bad","details":[{'
        f'{INFO}"INVALID_ARGUMENT","domain":"a2a-protocol.org","metadata":{{}}}},'
        '{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"message.parts","description":'
        '"is required"},{"field":"id","description":"is bad"}]}]}}'
    )
    assert [rest_error(e)[0] for e in (Unauthenticated("x"), Forbidden("x"))] == [401, 403]


def test_T033_a_success_of_JSON_RPC_is_one_line():
    assert jsonrpc.success(b"7", a2a.frame(ASKED)) == (
        b'{"jsonrpc":"2.0","id":7,"result":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"Hi"}]}}}'
    )
