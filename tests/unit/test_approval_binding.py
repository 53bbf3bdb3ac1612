"""What binds an approval to its call: the seal, and what it does not survive (spec core 12.14)."""

import enum
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from polyport.codec import decode, encode
from polyport.data.asking import CONFIRMATION, INPUT, answers, input_value, verdict
from polyport.data.content import Content, FunctionCall, FunctionResponse, Part
from polyport.data.event import Event
from polyport.data.session import Session, SessionKey
from polyport.engine.approvals import find_requests, sealed_call
from polyport.engine.pause import RECORD, canonical, disarmed, records_of, seal
from polyport.errors import BadRequest, Conflict

KEY = SessionKey("app", "user", "s1")
MADE_AT = 1790000000.123456
CALL = FunctionCall(id="c1", name="pay", args={"amount": 5, "to": {"name": "Ann", "tags": ["a", "b"]}})
ASKED = Event(
    id="e1",
    author="app",
    invocation_id="i1",
    branch="b",
    isolation_scope="t1",
    content=Content(role="model", parts=[Part(function_call=CALL)]),
)
SECRET = b"a secret of this app"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def made(*facts: Any, secret: bytes = SECRET, at: float = MADE_AT) -> str:
    key, asked, request, call = facts or (KEY, ASKED, "w1", CALL)
    return seal(secret, Session(key=key, created_at=at), asked, request, call)


@pytest.mark.parametrize(
    "other",
    [
        (KEY._replace(app="x"), ASKED, "w1", CALL),
        (KEY._replace(user="x"), ASKED, "w1", CALL),
        (KEY._replace(id="x"), ASKED, "w1", CALL),
        (KEY, structs.replace(ASKED, invocation_id="x"), "w1", CALL),
        (KEY, structs.replace(ASKED, author="x"), "w1", CALL),
        (KEY, structs.replace(ASKED, branch="x"), "w1", CALL),
        (KEY, structs.replace(ASKED, isolation_scope="x"), "w1", CALL),
        (KEY, ASKED, "x", CALL),
        (KEY, ASKED, "w1", structs.replace(CALL, id="x")),
        (KEY, ASKED, "w1", structs.replace(CALL, name="x")),
        (KEY, ASKED, "w1", structs.replace(CALL, args={**CALL.args, "amount": 6})),
        (KEY, ASKED, "w1", structs.replace(CALL, args={**CALL.args, "more": None})),
        (KEY._replace(app="ap", user="puser"), ASKED, "w1", CALL),
    ],
)
@pytest.mark.parametrize("secret", [b"", SECRET])
def test_every_fact_is_bound(other: Any, secret: bytes):
    assert made(*other, secret=secret) != made(secret=secret)


def test_a_seal_depends_on_the_secret_and_says_how_it_was_made():
    assert made(secret=b"").startswith("sha256:") and made().startswith("hmac-sha256:")
    assert made(secret=b"another secret, as long") != made()
    assert made() == made()
    assert made(at=MADE_AT + 0.000001) != made(), (
        "a session of the same name that was made at another time is another one"
    )


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_FR_134_a_seal_is_the_same_for_the_call_that_a_store_gives_back(args: dict[str, Any]):
    call = structs.replace(CALL, args=args)
    stored = decode(encode(call), FunctionCall)
    shuffled = structs.replace(call, args=dict(reversed(list(args.items()))))
    assert made(KEY, ASKED, "w1", call) == made(KEY, ASKED, "w1", stored) == made(KEY, ASKED, "w1", shuffled)


class Colour(enum.Enum):
    RED = "red"


def test_FR_134_also_with_values_that_only_python_knows():
    args = {"at": datetime(2026, 1, 2, tzinfo=UTC), "cost": Decimal("1.50"), "colour": Colour.RED, "pair": (1, 2)}
    call = structs.replace(CALL, args=args)
    assert made(KEY, ASKED, "w1", call) == made(KEY, ASKED, "w1", decode(encode(call), FunctionCall))


def test_numbers_that_differ_and_values_that_only_look_alike_are_told_apart():
    assert canonical({"a": 1}) != canonical({"a": "1"}) and canonical({"a": 1}) != canonical({"a": 1.5})
    assert canonical({"a": None}) != canonical({}) and canonical([1, [2]]) != canonical([[1], 2])


# ---- requests in a history


def request(id: str = "w1", call: FunctionCall = CALL, secret: bytes = SECRET, **changes: Any) -> Event:
    args = {"originalFunctionCall": {"id": call.id, "name": call.name, "args": call.args}}
    asking = FunctionCall(id=id, name=CONFIRMATION, args=args)
    event = Event(
        id="e-" + id,
        author="app",
        invocation_id="i1",
        branch="b",
        isolation_scope="t1",
        long_running_tool_ids=[id],
        content=Content(role="model", parts=[Part(function_call=asking)]),
        custom_metadata={RECORD: {id: {"call": "c1", "seal": made(KEY, ASKED, id, CALL, secret=secret)}}},
    )
    return structs.replace(event, **changes)


def said(id: str, response: dict[str, Any] | None, name: str = CONFIRMATION, **fields: Any) -> Event:
    answer = FunctionResponse(id=id, name=name, response=response)
    content = Content(role="user", parts=[Part(function_response=answer)])
    return Event(**{"author": "user", "invocation_id": "i1", "content": content, **fields})


def verified(events: list[Event], id: str = "w1", secret: bytes = SECRET) -> FunctionCall:
    session = Session(key=KEY, created_at=MADE_AT, events=events)
    return sealed_call(session, find_requests(events)[id], secret).call


def test_an_untouched_request_leads_to_its_call():
    assert verified([ASKED, request()]) == CALL
    assert verified([ASKED, request(secret=b"")], secret=b"") == CALL


@pytest.mark.parametrize(
    "events",
    [
        [ASKED, request(secret=b"")],
        [ASKED, request(secret=b"another secret, as long")],
        [ASKED, request(custom_metadata=None)],
        [ASKED, request(custom_metadata={RECORD: "x"})],
        [ASKED, request(custom_metadata={RECORD: {"w1": "x"}})],
        [ASKED, request(custom_metadata={RECORD: {"w1": {"call": "c1", "seal": None}}})],
        [ASKED, request(custom_metadata={RECORD: {"w1": {"call": "c1", "seal": "é"}}})],
        [ASKED, request(custom_metadata={RECORD: {"w1": {"seal": "x"}}})],
        [ASKED, request(call=structs.replace(CALL, args={}))],
        [ASKED, request(author="other")],
        [ASKED, request(isolation_scope="")],
        [request(), ASKED],
        [request()],
        [structs.replace(ASKED, author="user"), request()],
        [ASKED, request(), request(call=structs.replace(CALL, args={"amount": 1}))],
        [ASKED, request(call=structs.replace(CALL, args={"amount": 1})), request()],
        [ASKED, structs.replace(ASKED, id="e2", branch=""), request()],
    ],
)
def test_core_83_anything_else_does_not(events: list[Event]):
    with pytest.raises(Conflict, match="'w1' cannot be verified"):
        verified(events)


def test_the_newest_call_of_a_reused_id_is_meant():
    later = structs.replace(ASKED, id="e2", content=Content(role="model", parts=[Part(function_call=CALL)]))
    session = Session(key=KEY, created_at=MADE_AT, events=[ASKED, later, request(), structs.replace(ASKED, id="e3")])
    assert sealed_call(session, find_requests(session.events)["w1"], SECRET).event is later


def test_the_first_clear_answer_counts_and_only_after_the_request():
    yes, no = {"confirmed": True}, {"confirmed": False}
    events = [said("w1", yes), ASKED, request(), said("w1", {"x": 1}), said("w1", yes, name="pay"), said("w1", no)]
    found = find_requests([*events, said("w1", yes)])["w1"]
    assert found.answer is not None and found.answer.response == no and found.answered_at == 5
    assert find_requests(events[:5])["w1"].answer is None
    assert find_requests([ASKED, request(), said("w1", yes, author="app")])["w1"].answer is None


def test_what_was_not_announced_as_long_running_or_has_another_name_is_no_request():
    assert find_requests([ASKED, request(long_running_tool_ids=[])]) == {}
    assert find_requests([structs.replace(ASKED, long_running_tool_ids=["c1"])]) == {}
    assert find_requests([request(author="user")]) == {}


def test_a_seal_that_anybody_can_make_is_taken_off_an_imported_event():
    plain, keyed = request(secret=b""), request()
    assert records_of(disarmed(plain)) == {"w1": {"call": "c1", "seal": ""}}
    assert disarmed(keyed) is keyed and disarmed(ASKED) is ASKED
    with pytest.raises(Conflict):
        verified([ASKED, disarmed(plain)], secret=b"")
    more = structs.replace(plain, custom_metadata={**(plain.custom_metadata or {}), "mine": 1})
    assert (disarmed(more).custom_metadata or {})["mine"] == 1


# ---- reading answers


@given(json_values)
def test_section_3_11_3_a_verdict_is_read_only_where_it_is_clear(value: Any):
    response = value if isinstance(value, dict) else {"confirmed": value}
    told = FunctionResponse(id="w1", name=CONFIRMATION, response=response)
    clear = isinstance(response.get("confirmed"), bool)
    text = FunctionResponse(id="w1", response={"response": msgspec.json.encode(response).decode()})
    for form in (told, text):
        try:
            assert verdict(form).confirmed is response["confirmed"] and clear
        except BadRequest as error:
            assert not clear and "w1" in str(error)


def test_a_verdict_keeps_payload_and_hint():
    said = verdict(FunctionResponse(id="w", response={"confirmed": True, "payload": [1], "hint": "h", "other": 2}))
    assert (said.confirmed, said.payload, said.hint) == (True, [1], "h")
    assert verdict(FunctionResponse(id="w", response={"confirmed": False, "hint": 7})).hint == ""


@given(st.text())
def test_any_text_is_an_input(text: str):
    assert input_value(FunctionResponse(id="i", response={"response": text})) is not ...


def test_core_102_answers_belong_to_a_run_an_agent_and_the_latest_question():
    asking = FunctionCall(id="q", name=INPUT, args={})
    question = Event(
        author="a",
        invocation_id="i1",
        long_running_tool_ids=["q"],
        content=Content(role="model", parts=[Part(function_call=asking)]),
    )
    answer = said("q", {"response": "1"}, name=INPUT)
    assert answers([question, answer], "i1", "a") == {"q": 1}
    assert answers([question, answer, question], "i1", "a") == {}
    assert answers([question, answer, question, said("q", {"response": "2"}, name=INPUT)], "i1", "a") == {"q": 2}
    assert answers([answer, question], "i1", "a") == {}
    assert answers([question, answer], "i2", "a") == {} == answers([question, answer], "i1", "b")
    assert answers([question, answer, answer], "i1", "a") == {"q": 1}
