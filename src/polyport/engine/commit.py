"""Commit: the one place where an Event becomes true.

Called by agents through `ctx.emit`, and by the runner. Order: plugins, store, sinks, feed; one lock per run, so the order in
the store is the order in the feed. Once an event is stored it is published, even when the run is being cancelled. Never
called by a protocol.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import anyio
from msgspec import structs

from polyport.data.event import UNPUBLISHED, Event
from polyport.data.session import Session, temp_of, without_temp
from polyport.engine.hooks import first
from polyport.engine.pause import GRAPH, RECORD
from polyport.errors import AgentError, TimedOut
from polyport.ports.agent import Delegation, Hooks, ReadContext
from polyport.ports.runs import Sink
from polyport.ports.stores import STORE_TIMEOUT_S, SessionStore


class Publish(Protocol):
    """Hands an event to those who watch the run; `stored` says whether it can be read again later."""

    def __call__(self, event: Event, stored: bool = True) -> None: ...


class Commit:
    """The commit of one run. With `claims` the first event that it stores claims the session (see SessionStore.append)."""

    def __init__(
        self,
        session: Session,
        store: SessionStore,
        publish: Publish,
        hooks: Hooks,
        sinks: Sequence[Sink] = (),
        claims: bool = True,
    ) -> None:
        self._session = session
        self._store = store
        self._publish = publish
        self._sinks = sinks
        instant = all(sink.instant for sink in sinks)
        self._lock = None if store.instant and instant else asyncio.Lock()
        """None where nothing waits: then no shield from cancellation is needed either. This lock is the cheapest when nobody
        else wants it, as nearly always."""
        self._shield = not (store.finishes and instant)  # an append that finishes is as good as a shielded one
        self._hooks = hooks
        self._on_event = "on_event" in hooks
        self._claimed = not claims
        self.context: ReadContext | None = None

    async def __call__(self, event: Event) -> Event:
        """Store and publish; the event as stored. A partial event is only published. Superseded when another run owns the
        session now; TimedOut when the store hangs."""
        if event.node_info is not None and event.node_info.message_as_output and event.content is not None:
            event = structs.replace(event, output=None)  # the message says it already (spec core 2.2.7b)
        if self._on_event:
            event = await self._plugins(event)
        shown = not event.isolation_scope or self._shown(event)
        if event.partial:
            if shown:
                self._publish(event)
            return event
        if not shown:
            event = structs.replace(event, custom_metadata={**(event.custom_metadata or {}), UNPUBLISHED: True})
        return await self.store(event, publish=shown)

    async def show(self, event: Event) -> None:
        """Publish an event that is not to be stored; plugins see it."""
        self._publish(await self._plugins(event) if self._on_event else event, stored=False)

    def _shown(self, event: Event) -> bool:
        """Whether those who watch the run get to see it: not what happens inside a tool, unless it asks somebody outside."""
        inner = self._delegation(event)
        return inner is None or not inner.hidden or bool(event.long_running_tool_ids)

    def _delegation(self, event: Event) -> Delegation | None:
        return self.context.scope.delegations.get(event.isolation_scope) if self.context is not None else None

    async def store(self, event: Event, *, publish: bool, strict: bool = False) -> Event:
        """Store an event that no plugin sees, and publish it or not (the user's own message). With `strict`, Conflict if the
        session has changed since it was loaded."""
        if self._lock is None:
            return await self._make_true(event, publish, strict)
        async with self._lock:
            if not self._shield:
                return await self._make_true(event, publish, strict)
            limit = asyncio.get_running_loop().time() + STORE_TIMEOUT_S
            with anyio.CancelScope(shield=True, deadline=limit):
                return await self._make_true(event, publish, strict)
            raise TimedOut(f"the session store did not take an event within {STORE_TIMEOUT_S:.0f} s")

    async def _make_true(self, event: Event, publish: bool, strict: bool) -> Event:
        inner = self._delegation(event) if event.isolation_scope else None
        temp = temp_of(event.actions.state_delta) if inner is not None else None
        if temp:
            rest = without_temp(event.actions.state_delta or {})
            event = structs.replace(event, actions=structs.replace(event.actions, state_delta=rest))
        stored = await self._store.append(self._session, event, claim=not self._claimed, strict=strict)
        if inner is not None and temp:
            inner.temp.update(temp)
        self._claimed = True
        if not stored.unpublished:
            for sink in self._sinks:
                await sink.take(stored)
        if publish:
            self._publish(stored)
        return stored

    async def _plugins(self, event: Event) -> Event:
        if self.context is None:
            raise AgentError("an event was emitted after its run had ended")
        replaced = await first(self._hooks, "on_event", (), self.context, event)
        return event if replaced is None else _same(event, replaced)


def _same(event: Event, replaced: Event) -> Event:
    """A plugin's replacement; it stays the same event of the same run, also where the plugin left that out. What it asks a
    human for can still be carried out, and the notes of a workflow are kept."""
    kept = {key: value for key, value in (event.custom_metadata or {}).items() if key in (RECORD, GRAPH)}
    if kept:
        replaced = structs.replace(replaced, custom_metadata={**(replaced.custom_metadata or {}), **kept})
    return structs.replace(
        replaced,
        partial=event.partial,
        id=replaced.id or event.id,
        timestamp=replaced.timestamp or event.timestamp,
        invocation_id=replaced.invocation_id or event.invocation_id,
        author=replaced.author or event.author,
        branch=replaced.branch or event.branch,
        isolation_scope=replaced.isolation_scope or event.isolation_scope,
    )
