"""Sessions over REST, on every embedded store: create, get, list, patch, delete (spec rest 1.4, 1.5, 8 statements 11-31)."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polyport import Content, FunctionAgent, Part, RunContext, ToolContext
from polyport.data.content import Blob
from polyport.data.event import Event, ToolConfirmation
from polyport.data.session import Session
from polyport.ports.stores import Stores
from polyport.stores.memory import MemorySessions
from polyport.testing import call
from polyport.testing.samples import full_event, together
from polyport.wire.adk import encode_event
from support.talk import Serve, Talk


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of each kind."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/sessions.db"


async def silent(ctx: RunContext) -> None:
    return None


@pytest.fixture
async def talk(serve: Serve, stores: str) -> AsyncGenerator[Talk]:
    """No session is made yet."""
    async with serve(FunctionAgent(name="weather", function=silent), stores=stores, create=False) as talk:
        yield talk


def home(talk: Talk, user: str = "u1") -> str:
    return f"/apps/weather/users/{user}/sessions"


async def refused(talk: Talk, method: str, path: str, status: int, *words: str, **options: Any) -> None:
    response = await talk.client.request(method, path, **options)
    assert response.status == status, response.text
    assert set(response.json()) == {"error", "detail"}
    assert response.json()["error"] == response.json()["detail"]
    for word in words:
        assert word in response.json()["error"]


# ---- create


@pytest.mark.parametrize("body", [None, b"", b"null", b" \n", b"{}", b'{"state":null,"events":null,"sessionId":null}'])
async def test_rest_11_12_a_session_without_a_body(talk: Talk, body: bytes | None):
    response = await talk.client.post(home(talk), body=body)
    session = response.json()
    assert response.status == 200
    assert session["id"] and session["events"] == [] and session["state"] == {}
    assert (session["appName"], session["userId"]) == ("weather", "u1")


async def test_rest_14_a_chunked_empty_body(talk: Talk):
    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    assert (await talk.client.post(home(talk), body=nothing())).status == 200


async def test_rest_13_state_is_echoed_and_kept(talk: Talk):
    made = await talk.create(state={"city": "Tokyo"})
    assert made["state"] == {"city": "Tokyo"}
    assert await talk.stored() == made


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'"x"', b"1", b'{"state":1}', b'{"state":[]}', b'{"events":{}}', b"\xff"]
)
async def test_rest_15_a_body_that_is_no_session_is_400(talk: Talk, body: bytes):
    await refused(talk, "POST", home(talk), 400, body=body)
    assert (await talk.client.get(home(talk))).json() == []


async def test_rest_16_unknown_fields_are_ignored(talk: Talk):
    body = {"foo": 1, "options": {}, "state": {"k": 1}, "events": [{"author": "user", "foo": 1}]}
    assert (await talk.create(**body))["state"] == {"k": 1}


async def test_FR_003_rest_17_the_same_id_twice_is_409_and_the_first_stays(talk: Talk):
    first = await talk.client.post(home(talk), json={"sessionId": "dup", "state": {"n": 1}})
    assert first.status == 200
    await refused(talk, "POST", home(talk), 409, "dup", json={"sessionId": "dup", "state": {"n": 2}})
    await refused(talk, "POST", home(talk) + "/dup", 409, "dup", json={"state": {"n": 3}})
    assert (await talk.at("dup").stored())["state"] == {"n": 1}


async def test_FR_003_one_of_twenty_parallel_creates_wins(talk: Talk):
    async def make(n: int) -> int:
        return (await talk.client.post(home(talk), json={"sessionId": "dup", "state": {"n": n}})).status

    statuses = await together(*[lambda n=n: make(n) for n in range(20)])
    assert sorted(statuses) == [200] + [409] * 19


@pytest.mark.parametrize("id", ["s 1", "a/b", "ünï", "x" * 256, "q?#", "a:b", "%41", "100%", "...", "-"])
async def test_rest_89_ids_of_any_printable_text_are_found_again(talk: Talk, id: str):
    from urllib.parse import quote

    made = (await talk.client.post(home(talk), json={"sessionId": id, "state": {"n": 1}})).json()
    assert made["id"] == id
    path = f"{home(talk)}/{quote(id, safe='')}"
    assert (await talk.client.get(path)).json() == made
    assert (await talk.client.delete(path)).status == 200
    await refused(talk, "GET", path, 404)


@pytest.mark.parametrize("id", [".", "..", "x" * 257, "a\nb", "a\0b", "a\x85b", "\x7f"])
async def test_ids_that_no_session_may_have(talk: Talk, id: str):
    await refused(talk, "POST", home(talk), 400, "session", json={"sessionId": id})


@pytest.mark.parametrize(
    ("field", "path"), [("app", "/apps/{}/users/u/sessions"), ("user", "/apps/a/users/{}/sessions")]
)
async def test_names_of_a_new_session_have_at_most_256_characters(talk: Talk, field: str, path: str):
    assert (await talk.client.post(path.format("n" * 256))).status == 200
    await refused(talk, "POST", path.format("n" * 257), 400, f"{field} has 257 characters; 256 are allowed")


async def test_two_ids_that_differ_are_refused(talk: Talk):
    await refused(talk, "POST", home(talk) + "/s1", 400, "s1", "s2", json={"sessionId": "s2"})
    assert (await talk.create(sessionId="s1"))["id"] == "s1"


async def test_rest_18_20_events_are_imported_in_order_with_id_and_time(talk: Talk):
    said = {"parts": [{"text": "hi"}], "role": "user"}
    events = [
        {"id": "b", "author": "user", "content": said, "timestamp": 1772000000.123457},
        {"id": "a", "author": "weather", "content": said, "timestamp": "2020-02-02T02:02:02.000002Z"},
        {"author": "weather"},
    ]
    made = await talk.create(events=events)
    assert [e["id"] for e in made["events"]][:2] == ["b", "a"] and made["events"][2]["id"]
    assert [e["timestamp"] for e in made["events"]][:2] == [1772000000.123457, 1580608922.000002]
    assert made["events"][2]["timestamp"] > 1.6e9, "an event without a time gets one"
    assert made["events"][0]["content"] == said
    assert made["lastUpdateTime"] > 0
    assert await talk.stored() == made


async def test_rest_19_deltas_of_imported_events_are_applied_in_order(talk: Talk):
    deltas = [{"k": 1, "j": 1}, {"k": 2, "temp:t": 1}, {"user:lang": "fr"}]
    events = [{"author": "a", "actions": {"stateDelta": delta}} for delta in deltas]
    made = await talk.create(state={"k": 0}, events=events)
    assert made["state"] == {"k": 2, "j": 1, "user:lang": "fr"}


async def test_rest_19_imported_events_may_not_change_state_that_all_users_share(talk: Talk):
    events = [{"author": "a"}, {"author": "a", "actions": {"stateDelta": {"app:k": 1}}}]
    await refused(talk, "POST", talk.path, 400, "events[1]", "app:k", json={"events": events})
    await refused(talk, "GET", talk.path, 404)


async def test_a_bad_event_makes_no_session_at_all(talk: Talk):
    events = [{"author": "a"}, {"author": "a", "timestamp": 1e300}]
    await refused(talk, "POST", talk.path, 400, "events[1].timestamp", json={"events": events})
    await refused(talk, "GET", talk.path, 404)


@pytest.mark.parametrize("at", [-1, 0, -62135596800, 253402300799, "0001-01-01T00:00:00Z"])
async def test_rest_20_last_update_time_is_never_that_of_an_imported_event(talk: Talk, at: Any):
    made = await talk.create(events=[{"author": "a", "timestamp": at}])
    assert 1.6e9 < made["lastUpdateTime"] < 1e10
    assert await talk.stored() == made


# ---- what is kept


ODD_STATE: dict[str, Any] = {
    "": "empty key",
    "__class__": "x",
    "a.b": {"c": [[], {}, None, True, False]},
    "sp ace": "ü\u2028\u2029<script>&\0\x7f\U0001f600",
    "big": 2**53 + 1,
    "bigger": -(2**63),
    "largest": 2**64 - 1,
    "huge": 123456789012345678901234567890,
    "float": 1.0,
    "tiny": 5e-324,
    "great": 1.7976931348623157e308,
    "null": None,
    "user:k": "u",
    "app:k": "a",
    "user:": "only a prefix",
    "root_directory": "/",
    "é": 1,
    "e\u0301": 2,
}


async def test_FR_095_rest_9_odd_state_is_kept_exactly(talk: Talk):
    made = await talk.create(state={**ODD_STATE, "temp:gone": 1})
    stored = await talk.client.get(talk.path)
    assert json.loads(stored.body)["state"] == json.loads(json.dumps(ODD_STATE)) == made["state"]
    for key in ("big", "largest", "huge"):
        assert type(made["state"][key]) is int
    assert type(made["state"]["float"]) is float
    assert list(json.loads(stored.body)["state"]).count("é") == 1


async def test_FR_095_patched_state_is_kept_exactly(talk: Talk):
    await talk.create()
    own = {k: v for k, v in ODD_STATE.items() if not k.startswith(("user:", "app:"))}
    patched = await talk.client.patch(talk.path, json={"stateDelta": own})
    assert patched.json()["state"] == own == (await talk.stored())["state"]


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "1e400", "'x'", '"\\ud800"', "9" * 5000, "01", "[1,]", '{"a":}', "\x01", "-"]
)
async def test_FR_095_values_that_are_no_json_are_refused(talk: Talk, text: str):
    await refused(talk, "POST", home(talk), 400, body=b'{"state":{"k":' + text.encode() + b"}}")


def twin(event: dict[str, Any]) -> dict[str, Any]:
    """The same event under another id and with times that floats do not hold exactly."""
    return {**event, "id": "event-2", "timestamp": 1772000000.999999}


async def test_FR_010_events_survive_get_post_get(talk: Talk):
    """All fields, bytes, confirmations and numbers; times to the microsecond."""
    stored_form = msgspec.json.decode(msgspec.json.encode(full_event()))
    first = {**stored_form, "timestamp": 1772000000.123457}
    bare = {"id": "e3", "actions": {"stateDelta": None, "artifactDelta": None}, "timestamp": 0.000001}
    await talk.create(events=[first, twin(first), bare])
    one = await talk.client.get(talk.path)
    events = msgspec.json.decode(one.body)["events"]
    assert events[0] == first, "every field, though it was written in another form"
    assert [e["timestamp"] for e in events] == [first["timestamp"], 1772000000.999999, 0.000001]
    assert events[2]["actions"] == {"stateDelta": None, "artifactDelta": None}

    copy = talk.at("copy")
    await copy.create(events=events)
    two = await talk.client.get(copy.path)
    again = msgspec.json.decode(two.body)["events"]
    assert again == events
    assert msgspec.json.encode(again, order="sorted") == msgspec.json.encode(events, order="sorted"), "1 is not 1.0"


async def test_FR_010_a_run_with_a_confirmation_and_bytes_survives(serve: Serve, scripted: Any, stores: str):
    def pay(ctx: ToolContext) -> dict[str, Any]:
        """Pay."""
        ctx.actions.requested_tool_confirmations["c1"] = ToolConfirmation(hint="sure?", payload={"sum": 1.0})
        return {"status": "pending", "raw": [1, 1.0, None]}

    image = Content(parts=[Part(inline_data=Blob(mime_type="image/png", data=bytes(range(256))))], role="model")
    signed = Content(parts=[Part(function_call=call("pay", id="c1"), thought_signature=b"\xfb\xff\x00")], role="model")
    agent, _ = scripted(signed, image, tools=[pay])
    async with serve(agent, stores=stores, secret="seals survive a copy") as talk:
        await talk.run("pay", stateDelta={"k": 1})
        before = await talk.stored()
        copy = talk.at("copy")
        await copy.create(events=before["events"])
        after = await copy.stored()
    assert after["events"] == before["events"] and after["state"] == before["state"]
    actions = [e["actions"] for e in after["events"] if "requestedToolConfirmations" in e["actions"]]
    assert [a["requestedToolConfirmations"] for a in actions] == [
        {"c1": {"hint": "sure?", "confirmed": False, "payload": {"sum": 1.0}}}
    ]
    assert "+/8A" in json.dumps(after), "bytes leave in the standard alphabet"


async def test_FR_010_bytes_are_read_in_both_alphabets(talk: Talk):
    parts = [{"inlineData": {"mimeType": "a/b", "data": text}} for text in ("+/8A", "-_8A", "-_8", "+/8=")]
    made = await talk.create(events=[{"author": "a", "content": {"parts": parts}}])
    data = [p["inlineData"]["data"] for p in made["events"][0]["content"]["parts"]]
    assert data == ["+/8A", "+/8A", "+/8=", "+/8="]


async def test_nulls_of_python_clients_mean_not_set(talk: Talk):
    """pydantic writes every unset member as null."""
    part = {"text": "x", "thought": None, "inline_data": None, "thought_signature": None, "function_call": None}
    event = {
        "author": "a",
        "partial": None,
        "branch": None,
        "actions": None,
        "content": {"parts": [part], "role": None},
    }
    made = await talk.create(events=[event])
    assert made["events"][0]["content"] == {"parts": [{"text": "x"}]}
    await refused(talk, "POST", home(talk), 400, "events[0]", json={"events": [None]})


# ---- read


async def test_rest_21_31_FR_011_what_is_missing_is_404_and_named(talk: Talk):
    await talk.create()
    for path in (talk.at("zz").path, talk.at("s1", "u2").path, "/apps/other/users/u1/sessions/s1"):
        _, _, app, _, user, _, session = path.split("/")
        await refused(talk, "GET", path, 404, app, user, session)


async def test_rest_22_23_26_FR_004_lists(talk: Talk):
    assert (await talk.client.get(home(talk))).json() == []
    for n in range(3):
        await talk.at(f"s{n}").create(state={"title": f"T{n}", "user:lang": "fr"}, events=[{"author": "a"}])
    await talk.at("theirs", "u2").create(state={"title": "other"})
    listed = (await talk.client.get(home(talk) + "/")).json()
    assert [s["state"] for s in listed] == [{"title": f"T{n}", "user:lang": "fr"} for n in (2, 1, 0)]
    assert all(s["events"] == [] and s["userId"] == "u1" for s in listed)
    times = [s["lastUpdateTime"] for s in listed]
    assert times == sorted(times, reverse=True) and all(type(t) is float for t in times)
    assert (await talk.client.get(home(talk))).json() == listed


async def test_FR_054_lists_have_pages(talk: Talk):
    for n in range(5):
        await talk.at(f"s{n}").create()
    seen: list[str] = []
    pages = 0
    query: dict[str, Any] = {"page_size": 2}
    while query:
        response = await talk.client.get(home(talk), query=query)
        seen += [s["id"] for s in response.json()]
        pages += 1
        token = response.headers.get("x-next-page-token")
        query = {"page_size": 2, "page_token": token} if token else {}
    assert sorted(seen) == [f"s{n}" for n in range(5)] and pages == 3
    await refused(talk, "GET", home(talk), 400, "page token", query={"page_token": "AAAA"})
    first = (await talk.client.get(home(talk), query={"page_size": 2})).headers["x-next-page-token"]
    await refused(talk, "GET", home(talk, "u2"), 400, "page token", query={"page_token": first})


async def test_FR_054_events_are_read_in_part(talk: Talk):
    await talk.create(events=[{"id": str(n), "author": "a", "timestamp": 1000.5 + n} for n in range(10)])

    async def ids(**query: Any) -> str:
        response = await talk.client.get(talk.path, query=query)
        assert response.status == 200, response.text
        return "".join(e["id"] for e in response.json()["events"])

    assert await ids() == await ids(num_recent_events="", after_timestamp="") == "0123456789"
    assert await ids(num_recent_events=3) == "789"
    assert await ids(num_recent_events=0) == ""
    assert await ids(num_recent_events=99) == "0123456789"
    assert await ids(after_timestamp=1007.5) == "789"
    assert await ids(after_timestamp="1.0075e3") == "789"
    assert await ids(after_timestamp=1007.5, num_recent_events=1) == "9"
    assert await ids(after_timestamp=-5) == "0123456789"
    assert await ids(after_timestamp=9e9) == ""
    for text in ("nan", "inf", "-inf", "1e999", "1_0", "x", " 1", "0x10", "\u0661"):
        await refused(talk, "GET", talk.path, 400, "after_timestamp", query={"after_timestamp": text})
    for text in ("-1", "x", "1.5", "1000001", "99999999999999999999"):
        await refused(talk, "GET", talk.path, 400, "num_recent_events", query={"num_recent_events": text})


# ---- patch and delete


async def test_rest_27_patch_changes_state_by_one_event_of_the_user(talk: Talk):
    made = await talk.create(state={"city": "Tokyo"})
    response = await talk.client.patch(
        talk.path, json={"stateDelta": {"x": 1, "__session_metadata__": {"displayName": "T"}}}
    )
    patched = response.json()
    assert patched["state"] == {"city": "Tokyo", "x": 1, "__session_metadata__": {"displayName": "T"}}
    assert [(e["author"], e["actions"]["stateDelta"]["x"]) for e in patched["events"]] == [("user", 1)]
    assert patched["lastUpdateTime"] >= made["lastUpdateTime"]
    assert await talk.stored() == patched
    renamed = await talk.client.patch(talk.path, json={"state_delta": {"x": None}})
    assert renamed.json()["state"]["x"] is None and len(renamed.json()["events"]) == 2


@pytest.mark.parametrize("body", [b"{}", b'{"stateDelta":{}}', b'{"stateDelta":null}', b'{"foo":1}'])
async def test_rest_28_an_empty_patch_adds_no_event(talk: Talk, body: bytes):
    made = await talk.create(state={"k": 1})
    response = await talk.client.patch(talk.path, body=body)
    assert response.status == 200 and response.json() == made


async def test_rest_29_echoed_shared_keys_are_ignored(talk: Talk):
    shared = {"user:k": {"b": [1.0, True], "a": None}, "app:k": 5}
    await talk.create(state={**shared, "mine": 1})
    as_a_browser_says_it = {"user:k": {"a": None, "b": [1, True]}, "app:k": 5}
    response = await talk.client.patch(talk.path, json={"stateDelta": as_a_browser_says_it})
    assert response.json()["events"] == []
    response = await talk.client.patch(talk.path, json={"stateDelta": {**as_a_browser_says_it, "mine": 2}})
    assert response.json()["events"][0]["actions"]["stateDelta"] == {"mine": 2}
    assert response.json()["state"] == {**shared, "mine": 2}


@pytest.mark.parametrize(
    "delta",
    [
        {"user:k": 2},
        {"user:k": True},
        {"user:k": "1"},
        {"app:k": {"a": 1, "b": 2}},
        {"app:k": {}},
        {"app:k": [1]},
        {"app:l": [1]},
        {"app:l": [1, 2, 3]},
        {"app:l": [2, 1]},
        {"user:new": None},
        {"temp:k": 1},
        {"temp:k": None},
    ],
)
async def test_rest_29_changing_a_shared_key_is_400_and_changes_nothing(talk: Talk, delta: dict[str, Any]):
    made = await talk.create(state={"user:k": 1, "app:k": {"a": 1}, "app:l": [1, 2], "mine": 1})
    await refused(talk, "PATCH", talk.path, 400, next(iter(delta)), json={"stateDelta": {"mine": 2, **delta}})
    assert await talk.stored() == made


async def test_rest_30_patch_of_an_unknown_session_is_404(talk: Talk):
    await refused(talk, "PATCH", talk.path, 404, "s1", json={"stateDelta": {"x": 1}})
    await refused(talk, "PATCH", talk.path, 404, "s1", json={})


async def test_parallel_patches_lose_nothing(talk: Talk):
    await talk.create()

    async def patch(n: int) -> int:
        return (await talk.client.patch(talk.path, json={"stateDelta": {f"k{n}": n}})).status

    assert await together(*[lambda n=n: patch(n) for n in range(10)]) == [200] * 10
    assert (await talk.stored())["state"] == {f"k{n}": n for n in range(10)}


@pytest.mark.parametrize(("runs", "status"), [(1, 200), (2, 200), (3, 409)])
async def test_a_patch_that_a_run_overtakes_is_tried_again(serve: Serve, runs: int, status: int):
    class Overtaken(MemorySessions):
        """A store in which a run begins between the reading and the writing of a patch, `runs` times."""

        left = runs

        async def append(self, session: Session, event: Event, **options: Any) -> Event:
            if self.left and event.author == "user":
                self.left -= 1
                await super().append(await self.get(session.key), Event(author="run"), claim=True)
            return await super().append(session, event, **options)

    async with serve(FunctionAgent(name="weather", function=silent), stores=Stores(Overtaken())) as talk:
        response = await talk.client.patch(talk.path, json={"stateDelta": {"x": 1}})
        assert response.status == status
        assert (await talk.stored())["state"] == ({"x": 1} if status == 200 else {})


async def test_rest_24_25_delete_is_200_and_empty_also_the_second_time(talk: Talk):
    await talk.create(state={"k": 1, "user:k": 2}, events=[{"author": "a"}])
    for _ in range(2):
        response = await talk.client.delete(talk.path)
        assert response.status == 200 and response.body == b""
        assert response.headers["content-length"] == "0"
        await refused(talk, "GET", talk.path, 404)
    assert (await talk.client.get(home(talk))).json() == []
    assert (await talk.create())["state"] == {"user:k": 2}, "the session's own state and events are gone"
    assert (await talk.stored())["events"] == []


async def test_head_tells_the_length_and_nothing_else(talk: Talk):
    await talk.create(state={"k": 1})
    whole = await talk.client.get(talk.path)
    head = await talk.client.request("HEAD", talk.path)
    assert head.status == 200 and head.body == b""
    assert head.headers["content-length"] == str(len(whole.body))


async def test_FR_011_sessions_outlive_the_process_where_the_store_does(serve: Serve, tmp_path: Path):
    stores = f"sqlite:///{tmp_path}/kept.db"
    agent = FunctionAgent(name="weather", function=silent)
    async with serve(agent, stores=stores, create=False) as talk:
        made = await talk.create(state=ODD_STATE, events=[json.loads(encode_event(full_event()))])
    async with serve(agent, stores=stores, create=False) as talk:
        assert await talk.stored() == made
