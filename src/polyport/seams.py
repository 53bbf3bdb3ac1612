"""Clock, ids and randomness behind one object, so that tests and replays are exact.

Handed down from App to stores, runs and models. Nothing else in Polyport reads the clock or makes an id.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

_ready: list[str] = []
"""Ids to come: one system call for many, and spelled all at once."""
os.register_at_fork(after_in_child=_ready.clear)

_COUNT, _LENGTH = 64, 37
_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]
_VARIANT = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)


def new_uuid() -> str:
    """A random UUID (version 4), 36 characters; made by hand, for it is made several times per run."""
    try:
        return _ready.pop()
    except IndexError:
        first, *more = _spell(os.urandom(16 * _COUNT).hex().encode())
        _ready.extend(more)
        return first


def _spell(digits: bytes) -> list[str]:
    """The ids that hex digits make, column by column: one slice for a place of all ids costs less than five for each id."""
    text = bytearray(b"-" * (_LENGTH * _COUNT))
    for column, place in enumerate(_DIGITS):
        text[place::_LENGTH] = digits[column::32]
    text[14::_LENGTH] = b"4" * _COUNT
    text[19::_LENGTH] = text[19::_LENGTH].translate(_VARIANT)
    text[36::_LENGTH] = b" " * _COUNT
    return text.decode().split()


@dataclass(frozen=True, slots=True)
class Seams:
    """`clock` gives epoch seconds, `new_id` a fresh bare id, `chance` a float in [0, 1)."""

    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = new_uuid
    chance: Callable[[], float] = random.random

    def now(self) -> datetime:
        """The clock as an aware UTC time, microseconds kept."""
        return datetime.fromtimestamp(self.clock(), UTC)


REAL = Seams()
