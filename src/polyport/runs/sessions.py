"""Turnstile: one active run per session, the others wait in line (DESIGN section 5, "two messages on one session").

Used by the coordinator only. In order of arrival, bounded in length and in waiting time.
"""

import anyio

from polyport.data.session import SessionKey
from polyport.errors import Conflict, LimitExceeded


class _Line:
    __slots__ = ("holder", "waiting")

    def __init__(self) -> None:
        self.holder = ""
        self.waiting: list[anyio.Event] = []  # short, and nearly always empty


class Turnstile:
    def __init__(self, max_waiting: int, max_wait_s: float) -> None:
        self._max_waiting = max_waiting
        self._max_wait_s = max_wait_s
        self._lines: dict[SessionKey, _Line] = {}

    def holder(self, key: SessionKey) -> str | None:
        """The run that holds the session ("" while it is starting), or None when the session is free."""
        line = self._lines.get(key)
        return line.holder if line is not None else None

    async def enter(self, key: SessionKey) -> None:
        """Wait until the session is ours. LimitExceeded when the line is full, Conflict when it takes too long."""
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = _Line()
            return
        if len(line.waiting) >= self._max_waiting:
            raise LimitExceeded(f"{key} has an active run and {self._max_waiting} more are waiting", 1.0)
        turn = anyio.Event()
        line.waiting.append(turn)
        try:
            with anyio.move_on_after(self._max_wait_s):
                await turn.wait()
        except BaseException:
            self._give_up(key, line, turn)
            raise
        if not turn.is_set():
            self._give_up(key, line, turn)
            raise Conflict(f"{key} has been busy for {self._max_wait_s:g} s; the active run goes on")

    def _give_up(self, key: SessionKey, line: _Line, turn: anyio.Event) -> None:
        """Leave the line, or pass on a turn that came in the same moment."""
        if turn.is_set():
            self.leave(key)
        else:
            line.waiting.remove(turn)

    def waiting(self, key: SessionKey) -> bool:
        line = self._lines.get(key)
        return line is not None and bool(line.waiting)

    def hold(self, key: SessionKey, run_id: str) -> None:
        """Note which run holds the session that `enter` gave us."""
        self._lines[key].holder = run_id

    def leave(self, key: SessionKey) -> None:
        """Hand the session to the next in line."""
        line = self._lines[key]
        line.holder = ""
        if line.waiting:
            line.waiting.pop(0).set()
        else:
            del self._lines[key]
