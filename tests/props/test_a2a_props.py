"""Whatever the value: A2A's forms carry it both ways; whatever the input: readers answer or refuse, and never break."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from polyport.codec import encode
from polyport.data.content import Part
from polyport.errors import BadRequest, PolyportError
from polyport.wire import a2a, a2a_check, a2a_translate, a2a_v03, a2a_v03_card, jsonrpc
from polyport.wire.a2a_card import AgentCard
from polyport.wire.a2a_errors import InvalidAgentResponse, remote_error
from support import a2a_values as values

SOME = settings(max_examples=80, deadline=None)


def plain(value: Any) -> Any:
    return msgspec.json.decode(encode(value))


DATA = ("metadata", "data", "params", "scopes", "schemes", "securitySchemes")
"""Members whose names are not A2A's."""


def renamed(value: Any, name: Callable[[str], str]) -> Any:
    """The same JSON with every name that is A2A's changed; what is called "" is dropped."""
    if isinstance(value, list):
        return [renamed(item, name) for item in value]
    if not isinstance(value, dict):
        return value
    return {name(k): v if k in DATA else renamed(v, name) for k, v in value.items() if name(k)}


def snake(value: Any) -> Any:
    return renamed(value, lambda k: re.sub("([A-Z])", lambda m: "_" + m[1].lower(), k))


@SOME
@given(values.OUR_PARTS, st.sets(values.TEXT, max_size=2))
def test_T097_a_part_comes_back_as_it_was(part: Part, long_running: set[str]):
    sent = a2a_translate.to_a2a_part(part, long_running)
    if sent is None:
        assert part.empty
        return
    assert len(sent.kinds) == 1
    assert a2a_translate.from_a2a_part(a2a.read(encode(sent), a2a.Part)) == part


@SOME
@given(values.PARTS)
def test_T097_a_part_of_another_agent_comes_back_as_it_was(part: a2a.Part):
    back = a2a_translate.to_a2a_part(a2a_translate.from_a2a_part(part))
    assert back is not None
    assert back == msgspec.structs.replace(
        part,
        metadata=part.metadata,
        media_type=part.media_type if part.raw is not None or part.url is not None else "",
    )


@SOME
@given(values.PAYLOADS)
def test_T027_a_payload_is_read_from_either_spelling(payload: a2a.Payload):
    frame = a2a.frame(payload)
    assert a2a.read(encode(frame), a2a.StreamResponse).payload == payload
    assert a2a.read_plain(snake(plain(frame)), a2a.StreamResponse).payload == payload


@SOME
@given(values.SENDS, values.cards("1.0"))
def test_T027_a_request_and_a_card_are_read_from_either_spelling(request: a2a.SendMessageRequest, card: AgentCard):
    assert a2a.read(encode(request), a2a.SendMessageRequest) == request
    assert a2a.read(encode(snake(plain(request))), a2a.SendMessageRequest) == request
    assert a2a.read(encode(card), AgentCard) == card


@SOME
@given(values.PAYLOADS)
def test_T085_a_payload_comes_back_from_0_3(payload: a2a.Payload):
    assert a2a_v03.read_event(encode(a2a_v03.event(payload))) == payload


@SOME
@given(values.TASKS, st.booleans())
def test_T085_a_task_comes_back_from_0_3s_REST(task: a2a.Task, bare: bool):
    body = encode(a2a_v03.rest_result(task if bare else a2a.reply(task)))
    back = a2a_v03.read_answer("GetTask", body) if bare else a2a_v03.read_answer("SendMessage", body).task
    assert plain(back) == renamed(plain(task), lambda k: "" if k == "referenceTaskIds" else k)


@SOME
@given(values.SENDS, values.CONFIGS)
def test_T085_requests_come_back_from_0_3(request: a2a.SendMessageRequest, config: a2a.TaskPushNotificationConfig):
    for operation, value in (("SendMessage", request), ("CreateTaskPushNotificationConfig", config)):
        method, params = a2a_v03.call(operation, value)
        assert a2a_v03.read_params(method, encode(params)) == (operation, value)
    assert a2a_v03.read_rest_push(encode(a2a_v03.rest_result(config)), "") == config


@SOME
@given(values.cards("1.0", "0.3", "0.3"))
def test_T005_a_union_card_is_the_card_for_1_0(card: AgentCard):
    union = plain(a2a_v03_card.union_card(card))
    assert a2a_v03_card.read_card(union) == card
    assert union["url"] == card.supported_interfaces[1].url


NAMES = st.sampled_from(
    [
        *(
            "message",
            "parts",
            "kind",
            "task",
            "status",
            "state",
            "text",
            "file",
            "raw",
            "bytes",
            "data",
            "metadata",
            "role",
        ),
        *(
            "configuration",
            "blocking",
            "historyLength",
            "authentication",
            "schemes",
            "config",
            "name",
            "parent",
            "content",
        ),
        *(
            "pushNotificationConfig",
            "data_part_compat",
            "artifact",
            "artifacts",
            "history",
            "statusUpdate",
            "value",
            "id",
        ),
        *(
            "adk_type",
            "security",
            "securitySchemes",
            "skills",
            "url",
            "type",
            "additionalInterfaces",
            "capabilities",
            "uri",
        ),
        *("jsonrpc", "method", "params", "error", "result", "code", "@type", "reason", "fieldViolations", "taskId"),
    ]
)
LEAVES = st.one_of(
    values.JSON,
    st.sampled_from(
        ["task", "message", "data", "file", "user", "2.0", "apiKey", "working", "tasks/a/b/c", True, "part"]
    ),
)
WILD = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=5)),
    max_leaves=14,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, WILD, max_size=6))
def test_any_JSON_is_read_or_refused(body: dict[str, Any]):
    text = encode(body)
    readers = [
        lambda: a2a_check.violations(a2a.read(text, a2a.SendMessageRequest)),
        lambda: a2a.read(text, a2a.StreamResponse),
        lambda: a2a_v03.read_rest_send(text),
        lambda: a2a_v03.read_rest_push(text, ""),
        *(lambda method=method: a2a_v03.read_params(method, text) for method in a2a_v03.METHODS),
        lambda: a2a_v03_card.read_card(body),
        lambda: jsonrpc.read_call(text, "application/json"),
        lambda: a2a_translate.from_a2a_part(a2a.read(text, a2a.Part)),
    ]
    for reader in readers:
        try:
            reader()
        except BadRequest as error:
            assert str(error)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, WILD, max_size=6))
def test_any_answer_of_a_remote_is_read_or_is_an_invalid_agent_response(body: dict[str, Any]):
    text = encode(body)
    operations = ("SendMessage", "GetTask", "ListTaskPushNotificationConfigs", "GetExtendedAgentCard", "CreateTask")
    for reader in [
        lambda: a2a_v03.read_event(text),
        *(lambda operation=operation: a2a_v03.read_answer(operation, text) for operation in operations),
    ]:
        try:
            reader()
        except InvalidAgentResponse as error:
            assert str(error)
    a2a_translate.restored(body)
    assert isinstance(remote_error("", [body, body.get("error")]), PolyportError)


@given(st.binary(max_size=30))
def test_any_bytes_are_a_call_or_refused(body: bytes):
    try:
        jsonrpc.read_call(body, "application/json")
    except jsonrpc.Refused as refused:
        answer = msgspec.json.decode(jsonrpc.failure(refused.id, refused.error))
        assert answer["error"]["code"] in (-32700, -32600, -32602)
