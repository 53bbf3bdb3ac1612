"""The mirrors of a process: one for each run of others that somebody here looks at (see mirror.py).

Used by the cluster. An ended one is kept a while, for those who look again.
"""

from collections import OrderedDict

import anyio
import anyio.lowlevel

from polyport.cluster.link import Link
from polyport.cluster.mirror import Mirror, Stop
from polyport.data.session import SessionKey
from polyport.ports.peers import Ticket

KEPT = 256
KEPT_ITEMS = 20_000
"""How many events those hold together that nobody follows."""
ITEMS = 100_000
BEHIND_S = 2.0
"""How long a copy of a stream may be behind."""
BEGINS_S = 2.0
"""How long the first word of a run may take that another process has begun."""


class Mirrors:
    """`stop` stops a run of another process."""

    def __init__(self, link: Link, stop: Stop) -> None:
        self._link = link
        self._stop = stop
        self._kept: OrderedDict[str, Mirror] = OrderedDict()

    @property
    def handed_out(self) -> int:
        return sum(mirror.handed_out and mirror.outcome is None for mirror in self._kept.values())

    def of(self, run_id: str, life: int) -> Mirror:
        """The mirror of a life of a run."""
        mirror = self._kept.get(run_id)
        if mirror is None or mirror.life != life:
            mirror = self._kept[run_id] = Mirror(self._link, run_id, life, ITEMS, self._stop)
            self._make_room(mirror)
        self._kept.move_to_end(run_id)
        return mirror

    def _make_room(self, new: Mirror) -> None:
        spare = [old for old in self._kept.values() if not old.running and old is not new]
        items = sum(old.kept for old in spare)
        for old in spare:
            if len(self._kept) <= KEPT and items <= KEPT_ITEMS:
                break
            del self._kept[old.id]
            items -= old.kept

    def handed(self, ticket: Ticket, attached: bool) -> Mirror:
        """The mirror of a run that was handed out."""
        mirror = self.of(ticket.run_id, ticket.life)
        mirror.key, mirror.base = ticket.request.key, ticket.base
        mirror.handed_out, mirror.attached = True, attached
        mirror.use()
        return mirror

    async def find(self, run_id: str, begun: bool = False) -> Mirror | None:
        """The mirror of the newest life of a run, as it is shown now; None when nothing is shown. `begun`: somebody has begun
        it, so that something will be."""
        link = self._link
        until = anyio.current_time() + BEGINS_S
        while (message := await link.jetstream.last(link.subjects.feeds, link.subjects.lives(run_id))) is None:
            if not begun or anyio.current_time() > until:
                return None
            await anyio.sleep(0.01)
        life = message.subject.rpartition(".")[2]
        if not (life.isascii() and life.isdigit() and len(life) < 18):
            return None
        mirror = self.of(run_id, int(life))
        until = anyio.current_time() + BEHIND_S
        while mirror.seq < message.seq and mirror.outcome is None:  # a copy of the stream may be behind
            await mirror.catch_up()
            await anyio.lowlevel.checkpoint()
            if anyio.current_time() > until:
                break  # or the message is so old that it was just forgotten
        mirror.use()
        return mirror if mirror.key != NOBODY else None

    def nudge(self) -> None:
        """Something may have been lost."""
        for mirror in self._kept.values():
            mirror.nudge()


NOBODY = SessionKey("", "", "")
