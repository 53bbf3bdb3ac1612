"""Clock, ids and randomness behind one object, so that tests and replays are exact.

Handed down from App to stores, runs and models. Nothing else in Polyport reads the clock or makes an id.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

_random: list[str] = []
"""Hex digits for ids to come: one system call for many ids."""
os.register_at_fork(after_in_child=_random.clear)


def new_uuid() -> str:
    """A random UUID (version 4), 36 characters; made by hand, for it is made several times per run."""
    try:
        h = _random.pop()
    except IndexError:
        digits = os.urandom(1024).hex()
        _random.extend(digits[i : i + 32] for i in range(0, 2016, 32))
        h = digits[2016:]
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{_VARIANT[h[16]]}{h[17:20]}-{h[20:]}"


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


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
