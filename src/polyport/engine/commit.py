"""Commit: the one place where an Event becomes true.

Called by agents through `ctx.emit`, and by the runner. Order: plugins, store, sinks, feed; one lock per run, so the order in
the store is the order in the feed. Once an event is stored it is published, even when the run is being cancelled. Never
called by a protocol.
"""

from collections.abc import Callable, Sequence

import anyio

from polyport.data.event import Event
from polyport.data.session import Session
from polyport.errors import AgentError, TimedOut
from polyport.ports.agent import Hooks, ReadContext
from polyport.ports.runs import Sink
from polyport.ports.stores import SessionStore

Publish = Callable[[Event], None]

STORE_TIMEOUT_S = 30.0
"""How long a store may take over one event before the run fails."""


class Commit:
    """The commit of one run. The first event that it stores claims the session (see SessionStore.append)."""

    def __init__(
        self, session: Session, store: SessionStore, publish: Publish, hooks: Hooks, sinks: Sequence[Sink] = ()
    ) -> None:
        self._session = session
        self._store = store
        self._publish = publish
        self._sinks = sinks
        self._on_event = hooks.get("on_event", ())
        self._lock = anyio.Lock(fast_acquire=True)
        self._claimed = False
        self.context: ReadContext | None = None

    async def __call__(self, event: Event) -> Event:
        """Store and publish; the event as stored. A partial event is only published. Superseded when another run owns the
        session now; TimedOut when the store hangs."""
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]  user code is not checked
            raise AgentError(f"an agent emitted a {type(event).__name__}, not an Event")
        if self._on_event:
            event = await self._plugins(event)
        if event.partial:
            self._publish(event)
            return event
        return await self.store(event, publish=True)

    async def store(self, event: Event, *, publish: bool) -> Event:
        """Store an event that no plugin sees, and publish it or not (the user's own message)."""
        async with self._lock:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + STORE_TIMEOUT_S) as waited:
                stored = await self._store.append(self._session, event, claim=not self._claimed)
                self._claimed = True
                for sink in self._sinks:
                    await sink(stored)
                if publish:
                    self._publish(stored)
                return stored
            assert waited.cancelled_caught
            raise TimedOut(f"the session store did not take an event within {STORE_TIMEOUT_S:.0f} s")

    async def _plugins(self, event: Event) -> Event:
        assert self.context is not None
        for hook in self._on_event:
            replaced = await hook(self.context, event)
            if replaced is not None:
                return replaced
        return event
