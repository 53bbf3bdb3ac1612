"""The sound of a live session as artifacts, for those who ask for it (`LiveConfig.save_blobs`).

Used by the live loop. What each side says until the model's turn is over becomes one artifact, `live_<run>_<number>_user` or
`_model`, told of by an event without content. Nothing is kept in memory for longer than that, or above a limit of bytes.
"""

from polyport.data.content import Blob, Part
from polyport.data.event import Event
from polyport.ports.agent import CallbackContext, RunContext

MOST_BYTES = 8 * 1024 * 1024
"""How much sound one artifact holds."""


class Track:
    """The sound of one side, of one kind."""

    def __init__(self) -> None:
        self.mime_type = ""
        self.data = bytearray()

    def fits(self, blob: Blob) -> bool:
        same = not self.data or self.mime_type == blob.mime_type
        return same and len(self.data) + len(blob.data) <= MOST_BYTES

    def add(self, blob: Blob) -> None:
        self.mime_type = blob.mime_type
        self.data += blob.data


class Recording:
    """Takes sound while `on`; `flush` gives the event that tells of what was stored, or None."""

    def __init__(self, ctx: RunContext, on: bool) -> None:
        self.on = on
        self._ctx = ctx
        self._tracks = {"user": Track(), "model": Track()}
        self._number = 0
        if on:
            ctx.scope.stores.need_artifacts()

    async def take(self, side: str, blob: Blob) -> Event | None:
        """Add sound of the "user" or the "model"; other media are not kept."""
        if not self.on or not blob.mime_type.startswith("audio/"):
            return None
        event = None if self._tracks[side].fits(blob) else await self.flush()
        self._tracks[side].add(blob)
        return event

    async def flush(self) -> Event | None:
        """Store what there is."""
        callback = CallbackContext(self._ctx)
        for side, track in self._tracks.items():
            if track.data:
                name = f"live_{self._ctx.invocation_id}_{self._number}_{side}"
                self._tracks[side] = Track()
                blob = Blob(mime_type=track.mime_type, data=bytes(track.data))
                await callback.save_artifact(name, Part(inline_data=blob))
        if not callback.changed:
            return None
        self._number += 1
        return self._ctx.event(actions=callback.actions)
