"""LiveDouble: a live model that the test plays itself, one connection at a time.

The test waits for the connection that the agent opens, reads what the model gets, and says what the model says:

    model = LiveDouble()
    ...                                        # a client connects to an app whose agent has this model
    line = await model.connection()
    assert line.request.system.startswith("You are")
    said = await line.heard()                  # the next LiveInput
    await line.say(content=model_text("hello"), turn_complete=True)

`open` is how many connections are open: 0 when a session has ended, on whatever way. Runs that are not live use the steps of
the script, as those of a ScriptedModel. Public: users' own tests are meant to use it.
"""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from polyport.data.live import LiveConfig, LiveInput, LiveMessage
from polyport.data.model import ModelRequest
from polyport.errors import ModelError
from polyport.ports.live import CONNECTION_LOST
from polyport.testing.scripted import ScriptedModel, Step


class LiveLine:
    """One connection, seen from the model. `request` and `config` are what it was opened with."""

    def __init__(self, request: ModelRequest, config: LiveConfig) -> None:
        self.request = request
        self.config = config
        self.closed = False
        self.inputs: list[LiveInput] = []
        """All that was sent so far."""
        self._heard = 0
        self._said: deque[LiveMessage | Exception | None] = deque()
        self._changed = anyio.Event()
        self._full = False
        self._lost = False

    # -- the test's side

    async def heard(self) -> LiveInput:
        """The next input that the test has not seen yet."""
        while self._heard >= len(self.inputs):
            await self._changed.wait()
        self._heard += 1
        return self.inputs[self._heard - 1]

    async def say(self, **fields: Any) -> None:
        """Say a LiveMessage of these fields, and wait until it was taken."""
        self._push(LiveMessage(**fields))
        while self._said and not self.closed:
            await self._changed.wait()

    def drop(self, error: Exception | None = None) -> None:
        """Lose the connection; with an error of your own, or as a broken network does."""
        self._lost = True
        self._push(error or ModelError("the connection broke", code=CONNECTION_LOST))

    def hang_up(self) -> None:
        """End the session as the provider does."""
        self._push(None)

    async def gone(self) -> None:
        """Return when the agent has closed the connection."""
        while not self.closed:
            await self._changed.wait()

    def stall(self, full: bool = True) -> None:
        """Take no more inputs, or take them again."""
        self._full = full
        self._notify()

    # -- the agent's side

    async def send(self, message: LiveInput) -> None:
        while self._full:
            await self._changed.wait()
        if self.closed or self._lost:
            raise ModelError("the connection is closed", code=CONNECTION_LOST)
        self.inputs.append(message)
        self._notify()

    def __aiter__(self) -> AsyncIterator[LiveMessage]:
        return self

    async def __anext__(self) -> LiveMessage:
        while not self._said:
            await self._changed.wait()
        item = self._said.popleft()
        self._notify()
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, Exception):
            raise item
        return item

    def end(self) -> None:
        self.closed = True
        self._notify()

    def _push(self, item: LiveMessage | Exception | None) -> None:
        self._said.append(item)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class LiveDouble(ScriptedModel):
    """See the module. `line` is the class of its connections."""

    def __init__(self, *steps: Step, name: str = "double", line: type[LiveLine] = LiveLine) -> None:
        super().__init__(*steps, name=name)
        self._line = line
        self.lines: list[LiveLine] = []
        """All connections so far, oldest first."""
        self.refusals: deque[Exception] = deque()
        """Errors for the next attempts to connect."""
        self.open = 0
        self._seen = 0
        self._changed = anyio.Event()

    @asynccontextmanager
    async def connect(self, request: ModelRequest, config: LiveConfig) -> AsyncGenerator[LiveLine]:
        await self.before()
        if self.refusals:
            raise self.refusals.popleft()
        line = self._line(request, config)
        self.lines.append(line)
        self.open += 1
        self._notify()
        try:
            yield line
        finally:
            self.open -= 1
            line.end()
            self._notify()

    async def before(self) -> None:
        """Comes before each connection; for tests to overwrite."""
        await anyio.lowlevel.checkpoint()

    async def connection(self) -> LiveLine:
        """The next connection that the test has not seen yet."""
        while self._seen >= len(self.lines):
            await self._changed.wait()
        self._seen += 1
        return self.lines[self._seen - 1]

    async def all_closed(self) -> None:
        """Return when no connection is open."""
        while self.open:
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
