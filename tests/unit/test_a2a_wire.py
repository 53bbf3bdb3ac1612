"""The A2A 1.0 vocabulary: tolerant reading, checks, errors, JSON-RPC, signatures."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import rfc8785
from joserfc import jws
from joserfc.jwk import import_key

from polyport.codec import encode
from polyport.errors import BadRequest, ConfigError, Forbidden, LimitExceeded, NotFound, TooLarge, Unauthenticated
from polyport.wire import a2a, a2a_check, a2a_errors, a2a_sign, jsonrpc
from polyport.wire.a2a_card import AgentCapabilities, AgentCard, AgentExtension, AgentInterface
from polyport.wire.a2a_errors import InvalidAgentResponse, InvalidParams, VersionNotSupported, Violation

JSON = "application/json"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_T027_both_spellings_are_read_and_unknown_members_ignored():
    body = """{"tenant": null, "message": {"message_id": "m", "contextId": "c", "taskId": null, "role": "ROLE_USER",
        "parts": [{"raw": "_-8", "media_type": "a/b", "kind": "x"}, {"text": null, "data": null}], "reference_task_ids": ["r"]},
        "configuration": {"return_immediately": true, "blocking": false, "history_length": 3}, "new": {"a": [1]}}"""
    request = a2a.read(body, a2a.SendMessageRequest)
    assert request.message == a2a.Message(
        message_id="m",
        context_id="c",
        role=a2a.Role.USER,
        parts=[a2a.Part(raw=b"\xff\xef", media_type="a/b"), a2a.Part(data=None)],
        reference_task_ids=["r"],
    )
    assert request.configuration == a2a.SendMessageConfiguration(return_immediately=True, history_length=3)
    assert a2a.read_plain(json.loads(body), a2a.SendMessageRequest) == request


def test_FR_156_the_old_word_blocking_has_no_effect():
    request = a2a.read('{"configuration": {"blocking": true}}', a2a.SendMessageRequest)
    assert request == a2a.SendMessageRequest()


@pytest.mark.parametrize("value", [None, 0, False, [], {}, "x", 1.5, {"a": {"b": [None]}}])
def test_T029_data_of_any_JSON_type_survives(value: Any):
    part = a2a.Part(data=value)
    assert part.kinds == ["data"]
    assert a2a.read(encode(part), a2a.Part) == part


@pytest.mark.parametrize("text", ["".join(map(chr, range(32))), "😀", "\U0010ffff", "\ufeff", "é\u2028"])
def test_T030_text_survives(text: str):
    assert a2a.read(encode(a2a.Part(text=text)), a2a.Part).text == text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"message": {"role": "ROLE_X"}}', "message.role"),
        ('{"message": {"role": "user"}}', "message.role"),
        ('{"message": {"parts": [{"text": 5}]}}', "message.parts[0].text"),
        ('{"message": {"parts": [{"raw": "?"}]}}', "message.parts[0].raw"),
        ('{"message": "x"}', "message"),
    ],
)
def test_T028_what_does_not_fit_is_named(body: str, field: str):
    with pytest.raises(BadRequest) as caught:
        a2a.read(body, a2a.SendMessageRequest)
    assert caught.value.field == field


def test_T028_an_unknown_state_is_no_filter():
    with pytest.raises(BadRequest, match="TASK_STATE_DONE"):
        a2a.read('{"status": "TASK_STATE_DONE"}', a2a.ListTasksRequest)


def test_states_are_terminal_interrupted_or_neither():
    told = {s.name: (s.terminal, s.interrupted) for s in a2a.TaskState}
    assert told == {
        "UNSPECIFIED": (False, False),
        "SUBMITTED": (False, False),
        "WORKING": (False, False),
        "COMPLETED": (True, False),
        "FAILED": (True, False),
        "CANCELED": (True, False),
        "INPUT_REQUIRED": (False, True),
        "REJECTED": (True, False),
        "AUTH_REQUIRED": (False, True),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00.000Z"),
        ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123Z"),
        ("2026-01-01T00:00:00", None),
        ("2026-01-01", None),
        ("0001-01-01T00:00:00+10:00", None),
        ("x", None),
    ],
)
def test_times_are_read_with_any_offset_but_not_without_one(text: str, expected: str | None):
    if expected is None:
        with pytest.raises(BadRequest, match="when"):
            a2a.read_time(text, "when")
    else:
        at = a2a.read_time(text, "when")
        assert a2a.time_text((at - EPOCH) // timedelta(milliseconds=1)) == expected


def checked(body: str, kind: type[Any]) -> list[str]:
    return [v.field for v in a2a_check.violations(a2a.read(body, kind))]


PARTS = '"parts": [{"text": ""}]'


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (f'{{"messageId": "m", "role": "ROLE_USER", {PARTS}}}', []),
        ("{}", ["message"]),
        (f'{{"role": "ROLE_USER", {PARTS}}}', ["message.messageId"]),
        (f'{{"messageId": "m", {PARTS}}}', ["message.role"]),
        (f'{{"messageId": "m", "role": "ROLE_UNSPECIFIED", {PARTS}}}', ["message.role"]),
        (f'{{"messageId": "m", "role": "ROLE_AGENT", {PARTS}}}', ["message.role"]),
        ('{"messageId": "m", "role": "ROLE_USER", "parts": []}', ["message.parts"]),
        ('{"messageId": "m", "role": "ROLE_USER", "parts": [{"text": ""}, {"metadata": {}}]}', ["message.parts[1]"]),
        ('{"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "", "data": null}]}', ["message.parts[0]"]),
        ('{"parts": [{}]}', ["message.messageId", "message.role", "message.parts[0]"]),
    ],
)
def test_T020_T021_what_is_wrong_with_a_message_is_listed(message: str, fields: list[str]):
    assert checked(f'{{"message": {message}}}', a2a.SendMessageRequest) == fields


OK = '"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}'


@pytest.mark.parametrize(
    ("kind", "body", "fields"),
    [
        (a2a.SendMessageRequest, f'{{{OK}, "configuration": {{"historyLength": 0}}}}', []),
        (
            a2a.SendMessageRequest,
            f'{{{OK}, "configuration": {{"historyLength": -1}}}}',
            ["configuration.historyLength"],
        ),
        (
            a2a.SendMessageRequest,
            f'{{{OK}, "configuration": {{"taskPushNotificationConfig": {{"authentication": {{}}}}}}}}',
            [
                "configuration.taskPushNotificationConfig.url",
                "configuration.taskPushNotificationConfig.authentication.scheme",
            ],
        ),
        (a2a.GetTaskRequest, '{"id": "t", "historyLength": 0}', []),
        (a2a.GetTaskRequest, '{"history_length": -5}', ["id", "historyLength"]),
        (a2a.CancelTaskRequest, "{}", ["id"]),
        (a2a.SubscribeToTaskRequest, "{}", ["id"]),
        (a2a.ListTasksRequest, "{}", []),
        (a2a.ListTasksRequest, '{"pageSize": 1, "statusTimestampAfter": "2026-01-01T00:00:00Z"}', []),
        (a2a.ListTasksRequest, '{"page_size": 100}', []),
        (a2a.ListTasksRequest, '{"pageSize": 0, "historyLength": -1}', ["historyLength", "pageSize"]),
        (
            a2a.ListTasksRequest,
            '{"pageSize": 101, "statusTimestampAfter": "now"}',
            ["pageSize", "statusTimestampAfter"],
        ),
        (a2a.TaskPushNotificationConfig, '{"taskId": "t", "url": "https://w"}', []),
        (a2a.TaskPushNotificationConfig, '{"url": "https://w"}', ["taskId"]),
        (a2a.GetTaskPushNotificationConfigRequest, "{}", ["taskId", "id"]),
        (a2a.DeleteTaskPushNotificationConfigRequest, '{"taskId": "t"}', ["id"]),
        (a2a.ListTaskPushNotificationConfigsRequest, '{"pageSize": -1}', ["taskId", "pageSize"]),
        (a2a.GetExtendedAgentCardRequest, "{}", []),
    ],
)
def test_T025_T047_FR_154_what_is_wrong_with_a_request_is_listed(kind: type[Any], body: str, fields: list[str]):
    assert checked(body, kind) == fields


def test_check_raises_one_error_with_all_violations():
    with pytest.raises(InvalidParams) as caught:
        a2a_check.check(a2a.GetTaskRequest(history_length=-1))
    assert str(caught.value) == "id is required; historyLength must not be negative, got -1"
    assert caught.value.violations[0] == Violation("id", "is required")
    right = a2a.GetTaskRequest(id="t")
    assert a2a_check.check(right) is right


def test_T022_media_types_are_held_against_the_modes():
    message = a2a.Message(
        parts=[
            a2a.Part(text="x"),
            a2a.Part(text="x", media_type="Text/Markdown; charset=utf-8"),
            a2a.Part(data={}),
            a2a.Part(raw=b"", media_type="image/png"),
            a2a.Part(url="u"),
        ]
    )
    assert a2a_check.refused(message, ["text/plain"]) == ["text/markdown", "application/json", "image/png"]
    assert a2a_check.refused(message, ["text/*", "application/json", "IMAGE/png"]) == []
    assert a2a_check.refused(message, ["text", "*/*"]) == []
    assert a2a_check.refused(message, ["texts/*", "textplain", "image/pn"]) == [
        *("text/plain", "text/markdown", "application/json", "image/png")
    ]
    assert a2a_check.refused(message, []) == ["text/plain", "text/markdown", "application/json", "image/png"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (None, "0.3"),
        ("", "0.3"),
        (" ", "0.3"),
        ("1.0", "1.0"),
        ("1.0.7", "1.0"),
        ("0.3.0", "0.3"),
        ("1.5", "1.5"),
        ("99.0", "99.0"),
    ],
)
def test_T066_FR_149_versions_are_major_and_minor(text: str | None, version: str):
    assert a2a_check.read_version(text) == version


@pytest.mark.parametrize("text", ["abc", "1", "1.", "1.x", "1.0.0.0", "-1.0", "1.0,1.1", "²³.0", "1" * 9 + ".0"])
def test_T066_what_is_no_version_is_refused(text: str):
    with pytest.raises(VersionNotSupported, match=r"Major\.Minor"):
        a2a_check.read_version(text)


def test_T068_extensions_come_alone_in_lists_and_in_more_than_one_header():
    assert a2a_check.read_extensions(["urn:a , urn:b,", "urn:a", "", "urn:C"]) == ["urn:a", "urn:b", "urn:C"]


def table(codes: str) -> dict[str, tuple[int, int, str, str]]:
    return {
        kind.__name__: (row.jsonrpc, row.http, row.grpc, row.reason)
        for kind in a2a_errors.TABLE
        for row in [a2a_errors.row(kind("x"), codes)]
    }


PRE, ARG, NONE = "FAILED_PRECONDITION", "INVALID_ARGUMENT", "UNIMPLEMENTED"
NEW = {
    "TaskNotFound": (-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    "TaskNotCancelable": (-32002, 400, PRE, "TASK_NOT_CANCELABLE"),
    "PushNotificationNotSupported": (-32003, 400, PRE, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "UnsupportedOperation": (-32004, 400, PRE, "UNSUPPORTED_OPERATION"),
    "ContentTypeNotSupported": (-32005, 400, ARG, "CONTENT_TYPE_NOT_SUPPORTED"),
    "InvalidAgentResponse": (-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
    "ExtendedAgentCardNotConfigured": (-32007, 400, PRE, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    "ExtensionSupportRequired": (-32008, 400, PRE, "EXTENSION_SUPPORT_REQUIRED"),
    "VersionNotSupported": (-32009, 400, PRE, "VERSION_NOT_SUPPORTED"),
    "ParseFailed": (-32700, 400, ARG, "PARSE_ERROR"),
    "InvalidRequest": (-32600, 400, ARG, "INVALID_REQUEST"),
    "MethodNotFound": (-32601, 404, NONE, "METHOD_NOT_FOUND"),
}
OLD = NEW | {
    "TaskNotCancelable": (-32002, 409, PRE, "TASK_NOT_CANCELABLE"),
    "PushNotificationNotSupported": (-32003, 400, NONE, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "UnsupportedOperation": (-32004, 400, NONE, "UNSUPPORTED_OPERATION"),
    "ContentTypeNotSupported": (-32005, 415, ARG, "CONTENT_TYPE_NOT_SUPPORTED"),
    "InvalidAgentResponse": (-32006, 502, "INTERNAL", "INVALID_AGENT_RESPONSE"),
    "VersionNotSupported": (-32009, 400, NONE, "VERSION_NOT_SUPPORTED"),
}


def test_T074_both_status_tables():
    assert table("1.0.1") == NEW
    assert table("1.0.0") == OLD
    assert a2a_errors.row(InvalidParams([]))[:3] == (400, -32602, ARG)
    assert a2a_errors.row(ValueError())[:3] == (500, -32603, "INTERNAL")


def test_T076_the_text_of_a_foreign_error_is_not_told():
    body = encode([a2a_errors.rest_error(ValueError("secret"))[1], a2a_errors.jsonrpc_error(KeyError("secret"))])
    assert b"secret" not in body
    assert b"ValueError" in body


@pytest.mark.parametrize("kind", a2a_errors.TABLE)
def test_an_error_is_the_same_after_a_trip_over_each_wire(kind: type[a2a_errors.A2AError]):
    error = kind("what", {"taskId": "t"})
    told = a2a_errors.jsonrpc_error(error)
    http, body = a2a_errors.rest_error(error)
    found = [
        a2a_errors.remote_error(told["message"], told["data"], code=told["code"]),
        a2a_errors.remote_error(body["error"]["message"], body["error"]["details"], http=http),
        a2a_errors.remote_error("what", None, code=told["code"]),
    ]
    assert [type(e) for e in found] == [kind] * 3
    assert [str(e) for e in found] == ["what"] * 3
    assert isinstance(found[0], a2a_errors.A2AError)
    assert found[0].metadata == {"taskId": "t"}


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"http": 401}, Unauthenticated),
        ({"http": 403}, Forbidden),
        ({"http": 404}, NotFound),
        ({"http": 413}, TooLarge),
        ({"http": 429}, LimitExceeded),
        ({"grpc": "UNAUTHENTICATED"}, Unauthenticated),
        ({"code": -32602}, BadRequest),
        ({"code": -32050}, a2a_errors.RemoteFailed),
        ({"http": 500}, a2a_errors.RemoteFailed),
        ({}, a2a_errors.RemoteFailed),
    ],
)
def test_an_error_of_a_stranger_gets_the_nearest_name(told: dict[str, Any], kind: type[Exception]):
    for details in (
        None,
        "x",
        [5, {"@type": 1}],
        [{"@type": a2a_errors.ERROR_INFO, "reason": "OTHER", "metadata": [1]}],
    ):
        assert type(a2a_errors.remote_error("m", details, **told)) is kind


def test_T073_a_bad_request_with_a_field_has_a_violation():
    told = a2a_errors.jsonrpc_error(BadRequest("a.b is bad", "a.b"))
    assert told["code"] == -32602
    assert told["data"][1] == {
        "@type": a2a_errors.BAD_REQUEST,
        "fieldViolations": [{"field": "a.b", "description": "a.b is bad"}],
    }
    assert len(a2a_errors.details(BadRequest("bad"))) == 1


def test_violations_of_a_remote_come_back():
    told = a2a_errors.jsonrpc_error(InvalidParams([Violation("a.b", "is bad")]))
    found = a2a_errors.remote_error(told["message"], told["data"], code=told["code"])
    assert isinstance(found, InvalidParams)
    assert found.violations == [Violation("a.b", "is bad")]


def refusal(body: bytes, content_type: str | None = JSON) -> tuple[bytes, int]:
    with pytest.raises(jsonrpc.Refused) as caught:
        jsonrpc.read_call(body, content_type)
    answer = jsonrpc.failure(caught.value.id, caught.value.error)
    return caught.value.id, json.loads(answer)["error"]["code"] if answer else 0


@pytest.mark.parametrize(
    ("body", "id", "code"),
    [
        (b'{"jsonrpc":"2.0",', b"null", -32700),
        (b"", b"null", -32700),
        (b"\xff", b"null", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"N"} x', b"null", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"N","params":{"a":[}}', b"null", -32700),
        (b'{"jsonrpc":"2.0","id":"\xff","method":"N"}', b"null", -32700),
        (b"[]", b"null", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]', b"null", -32600),
        (b'"x"', b"null", -32600),
        (b"{}", b"null", -32600),
        (b'{"id":1,"method":"N"}', b"1", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"N"}', b"1", -32600),
        (b'{"jsonrpc":2.0,"id":1,"method":"N"}', b"1", -32600),
        (b'{"jsonrpc":"2.0","id":"a"}', b'"a"', -32600),
        (b'{"jsonrpc":"2.0","id":"a","method":5}', b'"a"', -32600),
        (b'{"jsonrpc":"2.0","id":"a","method":""}', b'"a"', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"N"}', b"null", -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"N"}', b"null", -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":"N","params":"x"}', b"7", -32602),
        (b'{"jsonrpc":"2.0","id":7,"method":"N","params":[]}', b"7", -32602),
        (b'{"jsonrpc":"2.0","id":7,"method":"N","params":5}', b"7", -32602),
        (b'{"jsonrpc":"2.0","method":"N","params":[]}', b"", 0),
    ],
)
def test_T070_FR_152_what_is_no_call(body: bytes, id: bytes, code: int):
    assert refusal(body) == (id, code)


@pytest.mark.parametrize(
    "id", [b'"a"', b"7", b"null", b'"\\u00e9"', b"1.50", b"123456789012345678901234567890", b'""', b"-0"]
)
def test_T071_ids_come_back_as_they_were_written(id: bytes):
    call = jsonrpc.read_call(b'{"method":"GetTask","params": {"id":"t"} ,"id": %b ,"jsonrpc":"2.0","x":1}' % id, JSON)
    assert call == jsonrpc.Call(id, "GetTask", b'{"id":"t"}')
    assert not call.notification
    assert jsonrpc.success(call.id, None) == b'{"jsonrpc":"2.0","id":%b,"result":null}' % id


@pytest.mark.parametrize("body", [b'{"jsonrpc":"2.0","method":"N"}', b'{"jsonrpc":"2.0","method":"N","params":null}'])
def test_T071_a_notification_gets_no_answer(body: bytes):
    call = jsonrpc.read_call(body, JSON)
    assert call.notification
    assert call.params == b"{}"
    assert jsonrpc.success(call.id, {}) == jsonrpc.failure(call.id, ValueError()) == b""


@pytest.mark.parametrize(
    ("content_type", "right"),
    [
        ("application/json", True),
        ("Application/JSON ; Charset=UTF-8", True),
        ("application/a2a+json", True),
        ('application/json; x=1; charset="utf-8"', True),
        ("application/json; charset=utf-16", False),
        ("text/plain", False),
        ("text/json+json", False),
        ("application/jsonx", False),
        ("", False),
        (None, False),
    ],
)
def test_T072_the_content_type_is_looked_at_before_the_body(content_type: str | None, right: bool):
    assert jsonrpc.is_json(content_type) is right
    assert refusal(b"{'jsonrpc': no json}", content_type)[1] == (-32700 if right else -32005)


def test_T078_a_nesting_bomb_is_an_error():
    deep = b"[" * 100_000 + b"]" * 100_000
    assert refusal(deep) == (b"null", -32600)
    assert refusal(b'{"jsonrpc":"2.0","id":1,"method":"N","params":{"a":%b}}' % deep) == (b"null", -32600)


def test_a_client_reads_the_result_of_its_call():
    assert json.loads(jsonrpc.encode_call("1", "GetTask", a2a.GetTaskRequest(id="t"))) == {
        "jsonrpc": "2.0",
        "id": "1",
        "method": "GetTask",
        "params": {"id": "t"},
    }
    assert jsonrpc.read_result(b'{"jsonrpc":"2.0","id":"1","result":{"a":1}}', "1") == b'{"a":1}'
    with pytest.raises(a2a_errors.TaskNotFound, match="gone"):
        jsonrpc.read_result(b'{"id":"1","error":{"code":-32001,"message":"gone"}}', "1")
    with pytest.raises(a2a_errors.ParseFailed):
        jsonrpc.read_result(b'{"id":null,"error":{"code":-32700,"message":"broken"}}', "1")


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":"other","result":{}}',
        b'{"result":{}}',
        b'{"id":1,"result":{}}',
        b'{"id":null,"result":{}}',
        b'{"id":"other","error":{"code":-32001,"message":"x"}}',
        b'{"id":"1"}',
        b'{"id":"1","error":"x"}',
        b"<html>",
        b"[]",
    ],
)
def test_FR_181_the_answer_to_another_call_is_no_answer(body: bytes):
    with pytest.raises(InvalidAgentResponse):
        jsonrpc.read_result(body, "1")


CARD = AgentCard(
    name="wéather",
    supported_interfaces=[AgentInterface(url="https://h/", protocol_binding="JSONRPC", protocol_version="1.0")],
    capabilities=AgentCapabilities(
        streaming=False, extensions=[AgentExtension(uri="urn:x", params={"n": 1e21, "é": 0.5})]
    ),
)
KEYS = [a2a_sign.new_key("k1"), a2a_sign.new_key("k2", "Ed25519")]


def received(card: AgentCard) -> dict[str, Any]:
    return msgspec.json.decode(encode(card))


def test_T006_a_signature_verifies_with_plain_JCS_and_JWS():
    plain = received(a2a_sign.sign(CARD, KEYS[:1], jku="https://h/keys"))
    [signature] = plain.pop("signatures")
    payload = base64.urlsafe_b64encode(rfc8785.dumps(plain)).rstrip(b"=").decode()
    public = import_key(a2a_sign.public_keys(KEYS)["keys"][0])
    found = jws.deserialize_json({"payload": payload, **signature}, public, algorithms=["ES256"])
    assert found.members[0].protected == {"alg": "ES256", "kid": "k1", "typ": "JOSE", "jku": "https://h/keys"}


def test_T006_a_changed_card_does_not_verify():
    plain = received(a2a_sign.sign(CARD, KEYS))
    assert a2a_sign.verify(plain, KEYS) == "k1"
    for change in ({"name": "weather"}, {"documentationUrl": ""}, {"capabilities": {"streaming": True}}):
        with pytest.raises(InvalidAgentResponse, match="no signature"):
            a2a_sign.verify(plain | change, KEYS)
    broken = json.loads(json.dumps(plain))
    for signature in broken["signatures"]:
        signature["signature"] = ("A" if signature["signature"][0] != "A" else "B") + signature["signature"][1:]
    with pytest.raises(InvalidAgentResponse, match="no signature"):
        a2a_sign.verify(broken, KEYS)


def test_a_card_may_be_signed_again():
    once = a2a_sign.sign(CARD, KEYS[:1])
    assert a2a_sign.canonical(once) == a2a_sign.canonical(CARD)
    again = a2a_sign.sign(once, KEYS[1:])
    assert a2a_sign.verify(received(again), KEYS) == "k2"
    assert len(again.signatures) == 1


def test_T008_each_of_two_keys_is_enough():
    plain = received(a2a_sign.sign(CARD, KEYS))
    assert [a2a_sign.verify(plain, [key]) for key in a2a_sign.public_keys(KEYS)["keys"]] == ["k1", "k2"]


def test_a_card_with_members_of_a_newer_version_verifies_over_what_was_received():
    plain = received(CARD) | {"newMember": {"b": 1, "a": []}}
    made = jws.serialize_json({"protected": {"alg": "ES256", "kid": "k1"}}, rfc8785.dumps(plain), import_key(KEYS[0]))
    plain["signatures"] = [{"protected": made["protected"], "signature": made["signature"]}]
    assert a2a_sign.verify(plain, KEYS) == "k1"


def header(**members: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(members).encode()).rstrip(b"=").decode()


SECRET = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0IQ", "kid": "k1"}


def test_neither_none_nor_another_key_nor_another_algorithm_is_trusted():
    plain = received(a2a_sign.sign(CARD, KEYS[:1]))
    [right] = plain["signatures"]
    for protected in (header(alg="none", kid="k1"), header(alg="HS256", kid="k1"), header(kid="k1"), "!", "W10"):
        for signature in (right["signature"], ""):
            odd = plain | {"signatures": [{"protected": protected, "signature": signature}]}
            for keys in (KEYS, [{k: v for k, v in KEYS[0].items() if k != "alg"}], [SECRET]):
                with pytest.raises(InvalidAgentResponse, match="no signature"):
                    a2a_sign.verify(odd, keys)
    shared = base64.urlsafe_b64encode(a2a_sign.canonical(CARD)).rstrip(b"=")
    protected = header(alg="HS256", kid="k1")
    made = jws.JWSRegistry.algorithms["HS256"].sign(protected.encode() + b"." + shared, import_key(SECRET))
    forged = {"protected": protected, "signature": base64.urlsafe_b64encode(made).rstrip(b"=").decode()}
    with pytest.raises(InvalidAgentResponse, match="no signature"):
        a2a_sign.verify(plain | {"signatures": [forged]}, [SECRET])
    for keys in ([], [a2a_sign.new_key("k1")], [KEYS[0] | {"kid": "k9"}], [KEYS[0] | {"alg": "ES384"}]):
        with pytest.raises(InvalidAgentResponse, match="no signature"):
            a2a_sign.verify(plain, keys)
    with pytest.raises(InvalidAgentResponse, match="not signed"):
        a2a_sign.verify(received(CARD), KEYS)


def test_a_large_card_is_signed_and_verified():
    card = msgspec.structs.replace(CARD, description="x" * 300_000)
    assert a2a_sign.verify(received(a2a_sign.sign(card, KEYS[:1])), KEYS) == "k1"


@pytest.mark.parametrize(
    ("more", "right"),
    [
        ({"iat": 5}, True),
        ({"jku": None}, True),
        ({"crit": ["b64"], "b64": False}, False),
        ({"crit": ["x"], "x": 1}, False),
    ],
)
def test_header_parameters_that_we_do_not_know_are_ignored_unless_they_are_critical(more: dict[str, Any], right: bool):
    plain = received(CARD)
    protected = header(alg="ES256", kid="k1", **more)
    payload = base64.urlsafe_b64encode(a2a_sign.canonical(CARD)).rstrip(b"=").decode()
    key = import_key(KEYS[0])
    made = jws.JWSRegistry.algorithms["ES256"].sign(f"{protected}.{payload}".encode(), key)
    signature = base64.urlsafe_b64encode(made).rstrip(b"=").decode()
    plain["signatures"] = [{"protected": protected, "signature": signature}]
    if right:
        assert a2a_sign.verify(plain, KEYS) == "k1"
    else:
        with pytest.raises(InvalidAgentResponse, match="no signature"):
            a2a_sign.verify(plain, KEYS)


def test_public_keys_have_no_private_half():
    found = a2a_sign.public_keys(KEYS)["keys"]
    assert [key["kid"] for key in found] == ["k1", "k2"]
    assert not [key for key in found if "d" in key]
    assert all("d" in key for key in KEYS)


def test_a_key_that_cannot_sign_is_named():
    for key in (
        {k: v for k, v in KEYS[0].items() if k != "kid"},
        KEYS[0] | {"alg": "HS256"},
        SECRET | {"alg": "HS256"},
        KEYS[0] | {"alg": "RS256"},
        a2a_sign.public_keys(KEYS)["keys"][0],
        {"kid": "x", "alg": "ES256", "kty": "EC"},
    ):
        with pytest.raises(ConfigError, match="key"):
            a2a_sign.sign(CARD, [key])
    with pytest.raises(ConfigError, match="ES256, ES384"):
        a2a_sign.new_key("k", "HS256")


def test_a_number_that_JSON_cannot_carry_exactly_is_not_signed():
    odd = AgentCard(capabilities=AgentCapabilities(extensions=[AgentExtension(params={"n": 2**60})]))
    with pytest.raises(ConfigError, match="canonical"):
        a2a_sign.canonical(odd)
