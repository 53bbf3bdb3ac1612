"""Streams of A2A: a snapshot of a task and what follows, or one message.

Made by the handler for SendStreamingMessage and SubscribeToTask, read by the bindings. The snapshot and the place from which a
reader goes on are taken in one step, so that nothing is lost or doubled between them (T036). Never writes.
"""

from collections.abc import AsyncGenerator, Sequence

from polyport.protocols.a2a.fold import Update, update_of
from polyport.protocols.a2a.tasks import LiveTask
from polyport.protocols.a2a.turns import Turn
from polyport.wire.a2a import Message


class Following:
    """A TaskStream on a live task: a snapshot, then what follows. `close` when it is not read any more.

    With a turn it ends where that turn's streams end; with neither a turn nor `to_end` the snapshot is all.
    """

    def __init__(
        self, live: LiveTask, *, turn: Turn | None = None, to_end: bool = False, history_length: int | None = None
    ) -> None:
        self._live = live
        self._turn = turn
        self._to_end = to_end
        self.last = turn is None and not to_end
        self.after = live.offset
        self._first = update_of(live.view.snapshot(history_length), live.head.version)
        live.enter(self)

    def close(self) -> None:
        self._live.leave(self)

    async def batches(self) -> AsyncGenerator[Sequence[Update]]:
        yield [self._first]
        live, turn = self._live, self._turn
        while turn is not None or self._to_end:
            end = turn.ended_at if turn is not None else None
            items = live.read(self.after)
            if end is not None:
                items = items[: max(0, end - self.after)]
            self.after += len(items)
            self.last = (end is not None and self.after >= end) or (live.state.terminal and self.after >= live.offset)
            if items:
                yield items
            if self.last:
                return
            if self.after < live.offset:
                continue
            if live.broken is not None:
                raise live.broken
            await live.changed()


class OneMessage:
    """A TaskStream of a direct answer (T032)."""

    last = True

    def __init__(self, message: Message) -> None:
        self._update = update_of(message)

    async def batches(self) -> AsyncGenerator[Sequence[Update]]:
        yield [self._update]
