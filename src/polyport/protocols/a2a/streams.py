"""Streams of A2A: a snapshot of a task and what follows, or one message.

Made by the handler for SendStreamingMessage and SubscribeToTask, read by the bindings. The snapshot and the place from which a
reader goes on are taken in one step, so that nothing is lost or doubled between them (T036). Never writes.
"""

from collections.abc import Sequence
from typing import Self

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
        self._first: Update | None = update_of(live.view.snapshot(history_length), live.head.version)
        self._nudged = False
        live.enter(self)

    def close(self) -> None:
        self._live.leave(self)

    def nudge(self) -> None:
        """See calls.TaskStream."""
        self._nudged = True
        self._live.ring()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Update]:
        if self._first is not None:
            first, self._first = self._first, None
            return [first]
        live, turn = self._live, self._turn
        while not self.last:
            end = turn.ended_at if turn is not None else None
            items = live.read(self.after)
            if end is not None:
                items = items[: max(0, end - self.after)]
            self.after += len(items)
            self.last = (end is not None and self.after >= end) or (live.state.terminal and self.after >= live.offset)
            if items:
                return items
            if self.last or self.after < live.offset:
                continue
            if live.broken is not None:
                raise live.broken
            if self._nudged:
                self._nudged = False
                return ()
            await live.changed()
        raise StopAsyncIteration


class OneMessage:
    """A TaskStream of a direct answer (T032)."""

    last = True

    def __init__(self, message: Message) -> None:
        self._batches = iter([[update_of(message)]])

    def nudge(self) -> None:
        """See calls.TaskStream. It never waits."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Update]:
        for batch in self._batches:
            return batch
        raise StopAsyncIteration
