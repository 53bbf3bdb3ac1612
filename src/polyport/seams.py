"""Clock, ids and randomness behind one object, so that tests and replays are exact.

Handed down from App to stores, runs and models. Nothing else in Polyport reads the clock or makes an id.
"""

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def new_uuid() -> str:
    """A random id in the usual form, 36 characters."""
    return str(uuid.uuid4())


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
