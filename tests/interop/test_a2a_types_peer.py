"""The A2A vocabulary against a2a-sdk: its protobuf types, ProtoJSON, error tables, 0.3 types and converters, signatures."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

pytest.importorskip("a2a")

from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import a2a_v0_3_pb2 as proto_v03
from a2a.compat.v0_3 import conversions, proto_utils
from a2a.compat.v0_3 import types as types_v03
from a2a.types import a2a_pb2 as proto
from a2a.utils import errors as peer_errors
from a2a.utils.signing import create_agent_card_signer, create_signature_verifier
from google.protobuf.json_format import MessageToDict, MessageToJson, Parse
from google.protobuf.message import Message as ProtoMessage
from jwt.api_jwk import PyJWK

from polyport.codec import encode
from polyport.wire import a2a, a2a_card, a2a_errors, a2a_sign, a2a_v03, a2a_v03_card
from polyport.wire.a2a_card import AgentCard
from support import a2a_values as values

SOME = settings(max_examples=40, deadline=None)
OTHER_NAMES = {
    "ApiKeySecurityScheme": "APIKeySecurityScheme",
    "HttpAuthSecurityScheme": "HTTPAuthSecurityScheme",
    "AuthorizationCodeFlow": "AuthorizationCodeOAuthFlow",
    "ClientCredentialsFlow": "ClientCredentialsOAuthFlow",
    "DeviceCodeFlow": "DeviceCodeOAuthFlow",
    "ImplicitFlow": "ImplicitOAuthFlow",
    "PasswordFlow": "PasswordOAuthFlow",
}


def structs() -> dict[str, type[msgspec.Struct]]:
    """Our Structs by the name of their message."""
    found = [*vars(a2a).values(), *vars(a2a_card).values()]
    ours = {
        s.__name__: s for s in found if isinstance(s, type) and issubclass(s, msgspec.Struct) and "a2a" in s.__module__
    }
    return {OTHER_NAMES.get(name, name): struct for name, struct in ours.items()}


def plain(value: Any) -> Any:
    return msgspec.json.decode(encode(value))


def test_every_message_has_the_members_of_the_proto_in_its_order():
    theirs = {
        name: [f.json_name for f in sorted(message.fields, key=lambda f: f.number)]
        for name, message in proto.DESCRIPTOR.message_types_by_name.items()
    }
    assert {name: [f.encode_name for f in msgspec.structs.fields(s)] for name, s in structs().items()} == theirs


def test_enums_have_the_names_of_the_proto():
    assert [s.value for s in a2a.TaskState] == list(proto.TaskState.keys())
    assert [r.value for r in a2a.Role] == list(proto.Role.keys())


def theirs_of(value: Any, kind: type[ProtoMessage]) -> ProtoMessage:
    """What a2a-sdk makes of our JSON; it refuses unknown members."""
    return Parse(encode(value), kind())


def forms(message: ProtoMessage) -> list[str]:
    """The ways in which a2a-sdk may write it."""
    return [
        MessageToJson(message),
        MessageToJson(message, preserving_proto_field_name=True),
        MessageToJson(message, always_print_fields_with_no_presence=True),
    ]


@SOME
@given(values.PAYLOADS)
def test_payloads_both_ways(payload: a2a.Payload):
    message = theirs_of(a2a.frame(payload), proto.StreamResponse)
    for text in forms(message)[:2]:
        assert a2a.read(text, a2a.StreamResponse).payload == payload


@SOME
@given(values.SENDS)
def test_requests_both_ways(request: a2a.SendMessageRequest):
    for text in forms(theirs_of(request, proto.SendMessageRequest)):
        assert a2a.read(text, a2a.SendMessageRequest) == request


@SOME
@given(values.cards("1.0", "1.0"))
def test_cards_both_ways(card: AgentCard):
    message = theirs_of(card, proto.AgentCard)
    for text in forms(message)[:2]:
        assert a2a.read(text, AgentCard) == card
    assert parse_agent_card(plain(card)) == message


SMALL: list[Any] = [
    a2a.GetTaskRequest(id="t", history_length=0),
    a2a.ListTasksRequest(
        status=a2a.TaskState.WORKING,
        page_size=5,
        status_timestamp_after="2026-01-01T00:00:00.001Z",
        include_artifacts=False,
    ),
    a2a.ListTasksResponse(tasks=[], next_page_token="", page_size=50, total_size=0),
    a2a.CancelTaskRequest(id="t", metadata={}),
    a2a.SubscribeToTaskRequest(id="t", tenant="x"),
    a2a.TaskPushNotificationConfig(task_id="t", url="u"),
    a2a.GetTaskPushNotificationConfigRequest(task_id="t", id="p"),
    a2a.DeleteTaskPushNotificationConfigRequest(task_id="t", id="p"),
    a2a.ListTaskPushNotificationConfigsRequest(task_id="t", page_size=3),
    a2a.ListTaskPushNotificationConfigsResponse(configs=[a2a.TaskPushNotificationConfig(url="u")]),
    a2a.GetExtendedAgentCardRequest(tenant="x"),
]


@pytest.mark.parametrize("value", SMALL, ids=lambda v: type(v).__name__)
def test_the_other_messages_both_ways(value: Any):
    kind = getattr(proto, type(value).__name__)
    for text in forms(theirs_of(value, kind))[:2]:
        assert a2a.read(text, type(value)) == value


def test_presence_is_kept():
    written = theirs_of(a2a.SendMessageConfiguration(history_length=0), proto.SendMessageConfiguration)
    assert written.HasField("history_length")  # pyright: ignore[reportUnknownMemberType]
    card = theirs_of(a2a_card.AgentCapabilities(streaming=False), proto.AgentCapabilities)
    assert MessageToDict(card) == {"streaming": False}
    part = theirs_of(a2a.Part(data=None), proto.Part)
    assert isinstance(part, proto.Part)
    assert part.WhichOneof("content") == "data"


def test_T074_the_error_table_is_theirs():
    for peer, code in peer_errors.JSON_RPC_ERROR_CODE_MAP.items():
        kind = getattr(a2a_errors, peer.__name__.removesuffix("Error"), None)
        if kind in a2a_errors.TABLE and -32100 < code <= -32000:
            row = a2a_errors.row(kind("x"))
            assert (row.jsonrpc, row.http, row.grpc, row.reason) == (code, *peer_errors.A2A_ERROR_MAPPING[peer])


def result_of_0_3(plain_result: Any) -> types_v03.SendStreamingMessageSuccessResponse:
    return types_v03.SendStreamingMessageSuccessResponse.model_validate({"id": 1, "result": plain_result})


@SOME
@given(values.PAYLOADS)
def test_T085_our_0_3_is_read_by_their_types_and_converted_alike(payload: a2a.Payload):
    ours = plain(a2a_v03.event(payload))
    response = result_of_0_3(ours)
    core = conversions.to_core_stream_response(response)
    assert without_presence(a2a.read(MessageToJson(core), a2a.StreamResponse).payload) == without_presence(payload)


@SOME
@given(values.PAYLOADS)
def test_T085_their_0_3_is_read_by_us(payload: a2a.Payload):
    core = theirs_of(a2a.frame(payload), proto.StreamResponse)
    assert isinstance(core, proto.StreamResponse)
    theirs = conversions.to_compat_stream_response(core).result
    for text in (theirs.model_dump_json(by_alias=True, exclude_none=True), theirs.model_dump_json(by_alias=True)):
        assert without_presence(a2a_v03.read_event(text)) == without_presence(payload)


def without_presence(value: Any) -> Any:
    """Plain data without empty metadata: a2a-sdk's converters do not tell {} from nothing."""
    if isinstance(value, msgspec.Struct):
        value = plain(value)
    if isinstance(value, list):
        return [without_presence(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {k: v if k == "data" else without_presence(v) for k, v in value.items() if k != "metadata" or v}


def without_files_and_references(value: Any) -> Any:
    """Plain data without what 0.3's proto, or a2a-sdk's reading of it, does not carry: references to other tasks, and the bytes
    of files (a2a-sdk puts their base64 text where the proto has bytes)."""
    value = without_presence(value)
    if isinstance(value, list):
        return [without_files_and_references(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        k: v if k in ("data", "metadata") else without_files_and_references(v)
        for k, v in value.items()
        if k not in ("raw", "referenceTaskIds")
    }


def textual(task: a2a.Task) -> a2a.Task:
    """The task with files of bytes that a2a-sdk can read: see above."""

    def part(p: a2a.Part) -> a2a.Part:
        return p if p.raw is None else msgspec.structs.replace(p, raw=b"QUJD")

    def holder(m: Any) -> Any:
        return m and msgspec.structs.replace(m, parts=[part(p) for p in m.parts])

    return msgspec.structs.replace(
        task,
        status=msgspec.structs.replace(task.status, message=holder(task.status.message)),
        history=[holder(m) for m in task.history],
        artifacts=[holder(a) for a in task.artifacts] if task.artifacts else None,
    )


@SOME
@given(values.TASKS)
def test_T084_our_0_3_REST_is_their_proto(task: a2a.Task):
    task = textual(task)
    message = Parse(encode(a2a_v03.rest_event(task)), proto_v03.StreamResponse(), ignore_unknown_fields=False)
    core = conversions.to_core_task(proto_utils.FromProto.task(message.task))
    found = a2a.read(MessageToJson(core), a2a.Task)
    assert without_files_and_references(found) == without_files_and_references(task)
    for text in forms(message)[:2]:
        read = a2a_v03.read_event(text)
        assert without_files_and_references(read) == without_files_and_references(task)
        assert encode(read).count(b'"raw":"UVVKRA=="') == encode(task).count(b'"raw":"UVVKRA=="')


@SOME
@given(values.SENDS)
def test_T084_T085_their_0_3_requests_are_read_by_us(request: a2a.SendMessageRequest):
    core = theirs_of(request, proto.SendMessageRequest)
    assert isinstance(core, proto.SendMessageRequest)
    params = conversions.to_compat_send_message_request(core, 1).params
    sent = proto_v03.SendMessageRequest(
        request=proto_utils.ToProto.message(params.message),
        configuration=proto_utils.ToProto.message_send_configuration(params.configuration),
        metadata=proto_utils.ToProto.metadata(params.metadata),
    )
    for text in forms(sent):
        found = a2a_v03.read_rest_send(text.encode())
        said = request.configuration
        assert without_files_and_references(found.message) == without_files_and_references(request.message)
        assert found.configuration.history_length == (said.history_length or None)
        assert found.configuration.return_immediately == said.return_immediately
        assert (found.metadata or {}) == (request.metadata or {})
    for text in (params.model_dump_json(by_alias=True), params.model_dump_json(by_alias=True, exclude_none=True)):
        assert without_presence(a2a_v03.read_params("message/send", text)[1]) == without_presence(request)


@SOME
@given(values.cards("1.0", "0.3"))
def test_T005_the_union_card_is_read_by_both_of_their_versions(card: AgentCard):
    union = plain(a2a_v03_card.union_card(card))
    old = types_v03.AgentCard.model_validate(union)
    assert (old.url, old.preferred_transport) == (
        card.supported_interfaces[1].url,
        card.supported_interfaces[1].protocol_binding,
    )
    core = Parse(encode(union), proto.AgentCard(), ignore_unknown_fields=True)
    assert a2a.read(MessageToJson(core), AgentCard) == card
    again = a2a_v03_card.read_card(msgspec.json.decode(old.model_dump_json(by_alias=True, exclude_none=True)))
    assert again.supported_interfaces == card.supported_interfaces[1:]
    assert again.security_requirements == card.security_requirements
    assert again.security_schemes == card.security_schemes


KEY = a2a_sign.new_key("k1")


def signed_card() -> AgentCard:
    return AgentCard(
        name="wéather",
        description="d",
        version="1",
        supported_interfaces=[
            a2a_card.AgentInterface(url="https://h", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=a2a_card.AgentCapabilities(streaming=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[a2a_card.AgentSkill(id="s", name="S", description="D", tags=["t"])],
    )


def test_T006_T007_a_card_that_we_sign_verifies_there():
    card = theirs_of(a2a_sign.sign(signed_card(), [KEY]), proto.AgentCard)
    assert isinstance(card, proto.AgentCard)
    key = PyJWK(a2a_sign.public_keys([KEY])["keys"][0])
    verify = create_signature_verifier(lambda kid, jku: key, ["ES256"])
    verify(card)
    card.name = "x"
    with pytest.raises(Exception, match="signature"):
        verify(card)


@pytest.mark.parametrize("skills", [True, False])
def test_T006_a_card_that_they_sign_verifies_here(skills: bool):
    card = signed_card() if skills else msgspec.structs.replace(signed_card(), skills=[])
    message = theirs_of(card, proto.AgentCard)
    assert isinstance(message, proto.AgentCard)
    sign = create_agent_card_signer(PyJWK(KEY).key, {"kid": "k1", "alg": "ES256", "jku": None, "typ": "JOSE"})
    received = MessageToDict(sign(message))
    assert a2a_sign.verify(received, a2a_sign.public_keys([KEY])["keys"]) == "k1"
