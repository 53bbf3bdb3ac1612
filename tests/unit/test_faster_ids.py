"""Ids that are spelled many at a time: each is a UUID of version 4, and nobody gets one that somebody else has."""

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

from polyport.seams import new_uuid


def test_each_is_a_random_uuid_of_version_4():
    ids = [new_uuid() for _ in range(1000)]
    for text in ids:
        read = uuid.UUID(text)
        assert (str(read), read.version, read.variant) == (text, 4, uuid.RFC_4122)
    for place in set(range(36)) - {8, 13, 14, 18, 19, 23}:
        assert {text[place] for text in ids} == set("0123456789abcdef")
    assert {text[19] for text in ids} == set("89ab")


def test_threads_share_none():
    def some(_: int) -> list[str]:
        return [new_uuid() for _ in range(500)]

    with ThreadPoolExecutor(8) as threads:
        ids = [text for found in threads.map(some, range(40)) for text in found]
    assert len(set(ids)) == len(ids) == 20_000


def test_a_forked_process_shares_none():
    new_uuid()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, " ".join(new_uuid() for _ in range(80)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    ours = {new_uuid() for _ in range(80)}
    with os.fdopen(reader, encoding="ascii") as told:
        theirs = set(told.read().split())
    os.waitpid(child, 0)
    assert len(theirs) == 80
    assert not ours & theirs
