"""RemoteAgent: an agent that lives elsewhere and is called over A2A, as a member of a local tree (spec a2a 4, core 8.4).

For users, as a root, a sub-agent, or in an AgentTool. It tells the remote agent what is new in the session and turns what comes
back into events. What goes wrong over there becomes an event with an error, never an exception. Knows no transport: `A2AClient`
does.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import anyio
from msgspec import structs

from polyport.agents.a2a_client import A2AClient, A2AOptions
from polyport.agents.a2a_door import ANYONE, Caller
from polyport.agents.remote_message import Draft, draft, message_id, metadata_of, visible, waiting
from polyport.agents.remote_reply import Fields, Reply
from polyport.agents.remote_told import Told, told_of
from polyport.data.event import NO_ACTIONS, Event
from polyport.data.run import Ending
from polyport.engine.hooks import ask
from polyport.errors import AgentError, ConfigError, PolyportError, TimedOut
from polyport.ports.agent import Agent, ReadContext, RunContext
from polyport.wire import a2a
from polyport.wire.a2a_card import AgentCard
from polyport.wire.a2a_sign import Jwk
from polyport.wire.a2a_translate import TASK_ID

log = logging.getLogger("polyport.a2a")

_USUAL = A2AOptions()
_FIRST_FRAME_S = 1.0
"""How long a cancelled run waits to learn which remote task it began."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RemoteAgent(Agent):
    """`RemoteAgent(name="prime", url="https://host/agent")`; or `card_url`, the card's own URL; or `card`, an object or JSON.

    - `headers` go with every request; `header_provider(ctx)` gives more, each time; `refresh(ctx, challenge)` is called once
      after a 401, then the provider is asked again. They are never sent to a host that only the card names.
    - `metadata`, a dict or `f(ctx)`, goes with each message; `configuration` too: accepted output modes, a push config.
    - `card_keys` are JWKs: the card must then be signed by one of them. `options` has limits, trusted hosts, rules for cards.
    - `build_message(ctx)` gives the parts to send (A2A's, or a whole Message) instead of what is new in the session.
    - `before_request(ctx, request)` may give another request, or an Event that is the answer; `after_event(ctx, event)` may
      give another event.
    - `stream=False` never streams. `escalate` lets the remote agent end the loop around this one.
    - A run that is cancelled cancels the task over there, within `cancel_timeout_s`, unless `cancel_remote` is False.
    """

    url: str = ""
    card_url: str = ""
    card: AgentCard | Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    header_provider: Callable[[ReadContext], Any] | None = None
    refresh: Callable[[ReadContext, str], Any] | None = None
    metadata: Mapping[str, Any] | Callable[[ReadContext], Any] | None = None
    configuration: a2a.SendMessageConfiguration = a2a.NO_CONFIGURATION
    card_keys: Iterable[Jwk] = field(default=(), repr=False)
    options: A2AOptions = _USUAL
    build_message: Callable[[RunContext], Any] | None = None
    before_request: Callable[[RunContext, a2a.SendMessageRequest], Any] | None = None
    after_event: Callable[[RunContext, Event], Any] | None = None
    stream: bool = True
    escalate: bool = False
    cancel_remote: bool = True
    cancel_timeout_s: float = 5.0
    client: A2AClient | None = field(default=None, repr=False)
    """Made from the above, unless one is given."""

    def __post_init__(self) -> None:
        if self.client is not None:
            return
        given: list[Any] = [one for one in (self.url, self.card_url, self.card) if one]
        if len(given) != 1:
            raise ConfigError(f"remote agent {self.name!r} needs exactly one of url, card_url and card")
        options, keys = self.options, list(self.card_keys)
        if keys:
            options = structs.replace(options, card=structs.replace(options.card, keys=keys))
        object.__setattr__(self, "client", A2AClient(given[0], options=options, card_url=bool(self.card_url)))

    @property
    def _client(self) -> A2AClient:
        assert self.client is not None
        return self.client

    def caller(self, ctx: ReadContext) -> Caller:
        """Who calls in this run: the headers for its requests."""
        provider, refresh = self.header_provider, self.refresh

        async def headers() -> Any:
            return await ask(provider, ctx) if provider is not None else {}

        async def fresh(challenge: str) -> None:
            if refresh is not None:
                await ask(refresh, ctx, challenge)

        return Caller(
            headers=self.headers,
            provider=None if provider is None else headers,
            refresh=None if refresh is None else fresh,
            identity="" if provider is None else f"{ctx.app_name}/{ctx.user_id}",
        )

    # ---- one turn

    async def run(self, ctx: RunContext) -> Ending | None:
        caller = self.caller(ctx)
        unfinished = self._unfinished(ctx)
        if unfinished:
            payloads = self._client.subscribe(unfinished, caller=caller, until_input=True)
            return await self._hear(ctx, self._reply(ctx, unfinished), caller, payloads)
        found = await self._draft(ctx)
        if not found.parts:
            await ctx.emit(ctx.event())
            return None
        request: Any = await self._request(ctx, found)
        if self.before_request is not None:
            request = await ask(self.before_request, ctx, request) or request
        if isinstance(request, Event):
            await self._emit(ctx, request)
            return None
        if not isinstance(request, a2a.SendMessageRequest):
            raise AgentError(f"before_request of remote agent {self.name!r} returned a {type(request).__name__}")
        payloads = self._client.stream(request, caller=caller, streaming=self.stream)
        return await self._hear(ctx, self._reply(ctx, request.message.task_id), caller, payloads)

    def _reply(self, ctx: RunContext, task_id: str) -> Reply:
        mine = (e for e in ctx.session.events if e.author == self.name)
        told = Told(told_of(mine, task_id) if task_id else None)
        return Reply(ctx.scope.seams.new_id, told, escalate=self.escalate)

    async def _draft(self, ctx: RunContext) -> Draft:
        found = draft(ctx)
        if self.build_message is None:
            return found
        built = await ask(self.build_message, ctx)
        if isinstance(built, a2a.Message):
            return Draft(built.parts, built.task_id or found.task_id, built.context_id or found.context_id)
        return structs.replace(found, parts=list(built or ()))

    async def _request(self, ctx: RunContext, found: Draft) -> a2a.SendMessageRequest:
        metadata = await ask(self.metadata, ctx) if callable(self.metadata) else self.metadata
        message = a2a.Message(
            message_id=message_id(ctx, found),
            role=a2a.Role.USER,
            parts=found.parts,
            task_id=found.task_id,
            context_id=found.context_id,
        )
        return a2a.SendMessageRequest(
            message=message, configuration=self.configuration, metadata=dict(metadata) if metadata else None
        )

    async def _hear(
        self, ctx: RunContext, reply: Reply, caller: Caller, payloads: AsyncGenerator[a2a.Payload]
    ) -> Ending | None:
        """Emit what comes until it is over. Whatever stops this early cancels the remote task."""
        limit = self.options.limits.timeout_s
        try:
            with anyio.move_on_after(limit) as waited:
                async with aclosing(_events(reply, _begun(reply, payloads))) as events:
                    async for fields in events:
                        if ctx.config.streaming or not fields.get("partial"):
                            await self._emit(ctx, self._event(ctx, fields))
            if waited.cancelled_caught:
                late = reply.failed(TimedOut(f"remote agent {self.name!r} was not done within {limit:g} s"))
                await self._emit(ctx, self._event(ctx, late))
        finally:
            await self._give_up(reply, caller)
        return "paused" if reply.paused else None

    def _event(self, ctx: RunContext, fields: Fields) -> Event:
        return ctx.event(**({"actions": NO_ACTIONS} if fields.get("partial") else {}), **fields)

    async def _emit(self, ctx: RunContext, event: Event) -> None:
        if self.after_event is not None:
            event = await ask(self.after_event, ctx, event) or event
        await ctx.emit(event)

    def _unfinished(self, ctx: RunContext) -> str:
        """In a run that died in the middle of this turn: the remote task that was at work."""
        if not ctx.goes_on:
            return ""
        mine = (e for e in reversed(ctx.session.events) if e.author == self.name and visible(ctx, e))
        newest = next((e for e in mine if e.invocation_id == ctx.invocation_id), None)
        return "" if newest is None or newest.turn_complete else metadata_of(newest, TASK_ID)

    # ---- cancelling

    async def _give_up(self, reply: Reply, caller: Caller) -> None:
        """Cancel the remote task if it is still at work; bounded, also while the run is being cancelled."""
        if self.cancel_remote and reply.task_id and not reply.over:
            await self._cancel(reply.task_id, caller)

    async def _cancel(self, task_id: str, caller: Caller) -> bool:
        with anyio.move_on_after(self.cancel_timeout_s, shield=True):
            try:
                await self._client.cancel(task_id, caller=caller)
                return True
            except Exception as error:  # noqa: BLE001  what stopped the run is the news, not this
                log.warning("task %s of remote agent %r could not be cancelled: %s", task_id, self.name, error)
                return False
        log.warning("task %s of remote agent %r was not cancelled in time", task_id, self.name)
        return False

    async def cancel_waiting(self, events: Sequence[Event], caller: Caller = ANYONE) -> list[str]:
        """Cancel the remote tasks whose questions are still open in a session (T099); the ids of those that were."""
        return [task_id for task_id in waiting(events, self.name) if await self._cancel(task_id, caller)]

    async def aclose(self) -> None:
        """Close the connections of the running event loop; it does so itself when it ends."""
        await self._client.aclose()


async def _events(reply: Reply, payloads: AsyncGenerator[a2a.Payload]) -> AsyncGenerator[Fields]:
    """What payloads lead to; the remote agent's errors become the last event."""
    try:
        async with aclosing(payloads):
            async for payload in payloads:
                for fields in reply.take(payload):
                    yield fields
    except PolyportError as error:
        yield reply.failed(error)
        return
    for fields in reply.end():
        yield fields


async def _begun(reply: Reply, payloads: AsyncGenerator[a2a.Payload]) -> AsyncGenerator[a2a.Payload]:
    """The same payloads. Who is cancelled while the first one is on its way still learns which task it began, so that it can
    be cancelled, too."""
    async with aclosing(payloads):
        first = await _first(reply, payloads)
        if first is None:
            return
        yield first
        async for payload in payloads:
            yield payload


async def _first(reply: Reply, payloads: AsyncGenerator[a2a.Payload]) -> a2a.Payload | None:
    found: a2a.Payload | None = None
    problem: Exception | None = None
    came, shield = anyio.Event(), anyio.CancelScope(shield=True)

    async def read() -> None:
        nonlocal found, problem
        with shield:
            try:
                found = await anext(payloads, None)
            except Exception as error:  # noqa: BLE001  raised below, for it should leave as it is, not in a group
                problem = error
        came.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        try:
            await came.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_FIRST_FRAME_S, shield=True):
                await came.wait()
            if found is not None:
                reply.take(found)
            shield.cancel()
            raise
    if problem is not None:
        raise problem
    return found
