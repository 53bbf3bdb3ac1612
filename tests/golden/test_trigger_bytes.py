"""Exact bytes of triggers: what an agent is told, and what a sender is answered. Written from spec rest 7.5, by hand.

Differences from the reference: errors also have the names that REST gives them, and data that is no text is base64.
"""

from typing import Any

import pytest

from polyport.errors import ModelError
from polyport.testing.samples import Clock
from polyport.wire.triggers import eventarc, pubsub, safe_user
from support.triggers import push, triggers


def headers(**values: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in values.items()}
    return lambda name: named.get(name.lower(), "")


def test_rest_118_the_text_of_a_push() -> None:
    body = (
        b'{"message":{"data":"aGk=","messageId":"1","publishTime":"2026-01-01T00:00:00Z","attributes":{"a":"b"},'
        b'"orderingKey":"k"},"subscription":"projects/p/subscriptions/s"}'
    )
    message = pubsub(body)
    assert message.text == '{"attributes":{"a":"b"},"data":"hi"}'
    assert (message.id, message.origin) == ("1", "projects/p/subscriptions/s")
    assert message.user == "projects--p--subscriptions--s"
    assert pubsub(b'{"message":{"data":"-_8"}}').text == '{"data_base64":"+/8="}'  # the other alphabet, no padding
    both = b'{"message":{"data":"aGk=","message_id":"1","messageId":"1","publish_time":"t","publishTime":"t"}}'
    assert pubsub(both).id == "1"  # real pushes have both spellings


def test_rest_120_the_text_of_a_binary_event() -> None:
    given = headers(
        ce_id="1", ce_source="/%E2%82%AC", ce_type="t", ce_specversion="1.0", ce_time="2026-01-01T00:00:00Z"
    )
    assert eventarc(given, b'{"b":2,"a":"1"}').text == (
        '{"data":{"b":2,"a":"1"},"id":"1","source":"/€","specversion":"1.0","time":"2026-01-01T00:00:00Z","type":"t"}'
    )
    bare = headers(ce_id="1", ce_source="s", ce_type="t", ce_specversion="1.0", ce_subject="objects/o")
    assert eventarc(bare, b"").text == ('{"id":"1","source":"s","specversion":"1.0","subject":"objects/o","type":"t"}')
    assert '"data":null' in eventarc(bare, b"null").text


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("s", "s"),
        ("//storage.test/b", "----storage.test--b"),
        ("a\r\nb\x00c\x85", "abc"),
        ("", "otherwise"),
        ("..", "otherwise"),
        (" \n", "otherwise"),
        ("日本", "日本"),
    ],
)
def test_users(name: str, user: str) -> None:
    assert safe_user(name, "otherwise") == user


def test_long_users_are_cut_and_stay_apart() -> None:
    one, other = safe_user("x" * 300 + "1", ""), safe_user("x" * 300 + "2", "")
    assert len(one) == len(other) == 256 and one != other
    assert safe_user("x" * 256, "") == "x" * 256


async def test_rest_118_119_122_answers() -> None:
    clock = Clock(1_772_000_000.25)
    async with triggers("ok", ModelError("no", http_status=400), seams=clock.seams()) as to:
        response = await to.pubsub()
        assert (response.status, response.text) == (200, '{"status":"success"}\n')
        response = await to.pubsub({"message": {}})
        text = "failed to retrieve message content: the message has neither data nor attributes"
        assert (response.status, response.text) == (
            400,
            f'{{"status":"{text}","error":"{text}","detail":"{text}"}}\n',
        )
        response = await to.pubsub(push(id="m1", subscription="p/s"))
        text = "failed to run agent: no"
        assert (response.status, response.text) == (
            500,
            f'{{"status":"{text}","error":"{text}","detail":"{text}"}}\n',
        )
        (letter,) = await to.letters()
        session = letter["id"]
        listed = await to.client.get("/apps/a/trigger/dead-letters")
        assert listed.text == (
            f'{{"deadLetters":[{{"id":"{session}","appName":"a","source":"pubsub","origin":"p/s","messageId":"m1",'
            f'"userId":"p--s","sessionId":"{session}","attempts":1,"error":"no","failedAt":1772000000.25,'
            '"text":"{\\"data\\":\\"hi\\"}"}]}\n'
        )
