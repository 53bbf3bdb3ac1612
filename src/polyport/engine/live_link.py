"""The link to a live model: one connection after the other, seen as one.

Used by the live loop, which opens and closes connections, and by the tools, which outlive them. What could not be sent is kept
for the next connection if that goes on with the same conversation; one that begins anew is told by the history instead.
"""

from collections import deque
from contextlib import suppress

import anyio

from polyport.data.content import FunctionResponse, user_text
from polyport.data.live import LiveContent, LiveInput, LiveResponses
from polyport.engine.pairing import result_text
from polyport.errors import BadRequest, ModelError
from polyport.ports.live import CONNECTION_LOST, LiveConnection


class Link:
    """`epoch` counts conversations of the provider: it knows the calls of its own one only."""

    def __init__(self) -> None:
        self.epoch = 0
        self.told = 0
        """How many events of the session the provider was told as history."""
        self.error: ModelError | None = None
        """Why the connection was lost, if a sender was the first to notice."""
        self._connection: LiveConnection | None = None
        self._scope: anyio.CancelScope | None = None
        self._kept: deque[LiveInput] = deque()

    def restart(self, told: int) -> None:
        """The next connection begins a new conversation, with the first `told` events of the session."""
        self.epoch += 1
        self.told = told
        self._kept.clear()

    async def open(self, connection: LiveConnection, scope: anyio.CancelScope) -> None:
        """Use this connection, whose work is in `scope`. What was kept is sent first."""
        self._scope, self.error = scope, None
        while self._kept:
            with suppress(BadRequest):  # it was sent once: who said it was told, or could not be
                await connection.send(self._kept[0])
            self._kept.popleft()
        self._connection = connection

    def close(self) -> None:
        self._connection = None
        self._scope = None

    def cut(self) -> None:
        """Leave the connection that is open now, if there is one."""
        if self._scope is not None:
            self._scope.cancel()

    async def send(self, *items: LiveInput) -> None:
        """Send, or keep. A lost connection is noted, other errors are raised; BadRequest for what the model does not take, when
        all else is sent."""
        left = deque(items)
        refused: BadRequest | None = None
        try:
            while left and self._connection is not None:
                try:
                    await self._connection.send(left[0])
                except BadRequest as error:
                    refused = error
                left.popleft()
        except ModelError as error:
            if error.code != CONNECTION_LOST:
                raise
            self.error, self._connection = error, None
            self.cut()
        finally:
            self._kept.extend(left)
        if refused is not None:
            raise refused

    def keep(self, *items: LiveInput) -> None:
        """Send these when the next connection is open."""
        self._kept.extend(items)

    async def respond(self, response: FunctionResponse, epoch: int, at: int) -> None:
        """Give the result of a call of the conversation `epoch`, which was stored as event number `at` of the session. A later
        conversation has it in its history, or is told by a note."""
        if epoch == self.epoch:
            await self.send(LiveResponses([response]))
        else:
            await self.news(late(response), at)

    async def news(self, said: LiveContent, at: int) -> None:
        """Tell what was stored as event number `at` of the session, or behind it, unless the provider has it as history."""
        if at >= self.told:
            await self.send(said)


def late(response: FunctionResponse) -> LiveContent:
    """How a result is told to a provider that does not know the call, or has got a result of it before."""
    return LiveContent(user_text(f"A result of `{response.name}` has come in since: {result_text(response)}"))
