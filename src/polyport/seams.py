"""Clock, ids and randomness behind one object, so that tests and replays are exact.

Handed down from App to stores, runs and models. Nothing else in Polyport reads the clock or makes an id.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def new_uuid() -> str:
    """A random UUID (version 4), 36 characters; made by hand, for it is made several times per run."""
    h = os.urandom(16).hex()
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
