"""Server-sent events, both ways, without I/O (the event stream section of the HTML standard).

`frame` is used by protocols, `SseDecoder` by model and protocol clients. A decoder takes bytes cut anywhere, even inside a
UTF-8 character.
"""

from msgspec import Struct

from polyport.errors import TooLarge

HEARTBEAT = b": ping\n\n"
"""A comment that keeps proxies from closing a quiet stream; clients ignore it."""

MAX_EVENT = 32 * 1024 * 1024
"""How many bytes one event from outside may have."""


def frame(data: bytes, *, event: str = "", id: str = "") -> bytes:
    """One event. `data` must hold no line break (compact JSON never does)."""
    if not event and not id:
        return b"data: " + data + b"\n\n"
    head = (f"id: {id}\n" if id else "") + (f"event: {event}\n" if event else "")
    return head.encode() + b"data: " + data + b"\n\n"


class SseEvent(Struct, frozen=True):
    """One dispatched event. `id` is the last id seen so far ("" when none or reset), `retry_ms` the last wish to wait."""

    data: str
    event: str = "message"
    id: str = ""
    retry_ms: int | None = None


class SseDecoder:
    """Bytes in, whole events out. Bad UTF-8 is replaced. TooLarge when one event passes MAX_EVENT."""

    def __init__(self) -> None:
        self._buffer = b""
        self._data: list[str] = []
        self._size = 0
        self._event = ""
        self._after_cr = False
        self._started = False
        self.last_id = ""
        self.retry_ms: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that `chunk` completes."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        self._buffer += chunk
        if len(self._buffer) + self._size > MAX_EVENT:
            raise TooLarge(f"one server-sent event is larger than {MAX_EVENT} bytes")
        if not self._started and self._buffer:
            if self._buffer[:3] != b"\xef\xbb\xbf"[: len(self._buffer)]:
                self._started = True
            elif len(self._buffer) >= 3:
                self._started, self._buffer = True, self._buffer[3:]
            else:
                return []
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        *lines, rest = self._buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._after_cr = self._buffer.endswith(b"\r")
        self._buffer = rest
        out: list[SseEvent] = []
        for line in lines:
            self._line(line, out)
        return out

    def _line(self, line: bytes, out: list[SseEvent]) -> None:
        if not line:
            if self._data:
                out.append(SseEvent("\n".join(self._data), self._event or "message", self.last_id, self.retry_ms))
            self._data, self._size, self._event = [], 0, ""
            return
        name, _, raw = line.partition(b":")
        value = raw[1:] if raw[:1] == b" " else raw
        if name == b"data":
            self._data.append(value.decode("utf-8", "replace"))
            self._size += len(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry_ms = int(value)
