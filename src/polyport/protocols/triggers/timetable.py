"""The timetable: schedules become deliveries at their times, and old deliveries are forgotten.

Kept running by `mount`. Each time of a schedule is one delivery with that time as its id, so that of several processes one
carries it out. A time at which no process ran is not made up for. Never runs an agent itself.
"""

import logging
import math
from collections.abc import Sequence
from datetime import UTC, datetime

import anyio

from polyport.errors import PolyportError
from polyport.protocols.triggers.deliveries import Deliveries
from polyport.protocols.triggers.settings import Schedule
from polyport.seams import Seams
from polyport.wire.triggers import SCHEDULE, Incoming

log = logging.getLogger("polyport.triggers")

CLEAN_S = 300.0
"""How often old deliveries are forgotten, and left ones taken up."""
LOOK_S = 30.0
"""The longest sleep: clocks are set, and machines are put to sleep."""


class Timetable:
    """`keep_s` and `keep_dead_s` are how long deliveries that were done, or died, are remembered."""

    def __init__(
        self, schedules: Sequence[Schedule], deliveries: Deliveries, seams: Seams, keep_s: float, keep_dead_s: float
    ) -> None:
        self._schedules = schedules
        self._deliveries = deliveries
        self._seams = seams
        self._keep_s = keep_s
        self._keep_dead_s = keep_dead_s

    async def run(self) -> None:
        """For ever: do what is due, then sleep until something is."""
        begin = self._seams.clock()
        due = [self._next(schedule, begin) for schedule in self._schedules]
        clean = begin
        while True:
            now = self._seams.clock()
            for index, schedule in enumerate(self._schedules):
                if due[index] <= now:
                    self._ask(schedule, due[index])
                    due[index] = self._next(schedule, max(now, due[index]))
            if clean <= now:
                await self._clean(now)
                clean = now + CLEAN_S
            soonest = min([clean, *due])
            await anyio.sleep(min(max(soonest - now, 0.0), LOOK_S))

    def _next(self, schedule: Schedule, after: float) -> float:
        return schedule.next(datetime.fromtimestamp(after, schedule.zone())).timestamp()

    def _ask(self, schedule: Schedule, at: float) -> None:
        when = datetime.fromtimestamp(at, UTC).isoformat(timespec="minutes")
        message = Incoming(SCHEDULE, schedule.name, when, schedule.user, schedule.message)
        try:
            self._deliveries.take(self._deliveries.new(schedule.app, message), again=False)
        except PolyportError as error:
            log.warning("schedule %r could not be carried out at %s: %s", schedule.name, when, error)

    async def _clean(self, now: float) -> None:
        """What goes wrong here is tried again the next time."""
        try:
            store = self._deliveries.store
            await store.forget(math.floor((now - self._keep_s) * 1000), math.floor((now - self._keep_dead_s) * 1000))
            await self._deliveries.take_up()
        except PolyportError as error:
            log.warning("old deliveries could not be looked through: %s", error)
