"""Who may begin a run, and which run it is: the session's ticket, the session itself, the invocation id.

Used by the coordinator, once it has made a session its own in this process. Begins nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

import anyio
from msgspec import structs

from polyport.data.content import Content
from polyport.data.event import Event
from polyport.data.limits import Limits
from polyport.data.run import RunRequest
from polyport.data.session import Session
from polyport.engine.flow import more_follows
from polyport.engine.replies import check_awaited, check_replies
from polyport.engine.resume import shown, unfinished
from polyport.engine.runner import Engine
from polyport.errors import Conflict, LimitExceeded, NotFound
from polyport.ports.peers import Peers, Ticket
from polyport.ports.stores import Stores
from polyport.runs.run import LiveRun
from polyport.tools.json_schema import check

SLOW_S = 0.3
"""After so long without a word others may soon take this process for gone: less than a third of the shortest lease."""
INTERRUPTED = "interrupted by a newer message"


class Admitted(NamedTuple):
    """What a run needs to begin."""

    engine: Engine
    session: Session
    ticket: Ticket


class Admission:
    """See the module. `live` are the runs that are alive in this process, by id."""

    def __init__(
        self, engines: Mapping[str, Engine], stores: Stores, limits: Limits, peers: Peers, live: Mapping[str, LiveRun]
    ) -> None:
        self._engines = engines
        self._stores = stores
        self._limits = limits
        self._peers = peers
        self._live = live
        self._seams = next(iter(engines.values())).seams

    async def claim(self, request: RunRequest, *, kept: bool) -> Ticket:
        """The right to run on the session, by the policy for busy sessions if another process has it. `kept`: see Ticket."""
        wait_s = self._limits.queue_wait_s
        until = 0.0
        ticket = Ticket(request=request, run_id=request.invocation_id or self._new_id(), kept=kept)
        while True:
            asked = anyio.current_time() if self._peers.name else 0.0
            ours, held = await self._peers.claim(ticket)
            if ours:
                return await self._sure(held, asked)
            until = until or anyio.current_time() + wait_s
            await self.check_answers(request)
            patience_s = until - anyio.current_time()
            if self._limits.on_busy == "interrupt":
                with anyio.move_on_after(patience_s):
                    if not await self._peers.cancel(held.run_id, INTERRUPTED):
                        patience_s = min(patience_s, 1.0)  # it may only be beginning: then it is told again
            elif self._limits.on_busy == "reject":
                run = await self._peers.find(held.run_id)
                if run is None or run.outcome is None:
                    raise Conflict(f"{request.key} has an active run; wait for it, or cancel it")
            patience_s = min(patience_s, until - anyio.current_time())
            if not await self._peers.freed(held, patience_s) and anyio.current_time() >= until:
                raise Conflict(f"{request.key} has been busy for {wait_s:g} s; the active run goes on")

    async def admit(self, request: RunRequest, ticket: Ticket) -> Admitted:
        """The session, and the ticket with the run that it is: a new one, or the one that goes on. NotFound (session, then
        app), Conflict when there is nothing to go on with."""
        key = request.key
        began = anyio.current_time() if self._peers.name else 0.0
        session = await self._load(request)
        ticket = await self._sure(ticket, began)
        engine = self._engines.get(key.app)
        if engine is None:
            raise NotFound(f"failed to load agent: there is no app {key.app!r}; see /list-apps")
        run_id = self._run_id(request, session, engine, ticket.run_id)
        self.check_user(key.user)
        if run_id == ticket.run_id and request.message is not None and not request.message.responses:
            return Admitted(engine, session, ticket)  # as nearly always: a new run
        base = len(events_of(session, run_id))
        return Admitted(engine, session, await self._peers.renew(structs.replace(ticket, run_id=run_id, base=base)))

    async def _sure(self, ticket: Ticket, since: float) -> Ticket:
        """The ticket, if it is still ours. Whoever takes it raises the session's fence: who has read the session before cannot
        write any more, but who reads it later could, after standing still meanwhile."""
        if not since or anyio.current_time() - since < SLOW_S:
            return ticket
        try:
            return await self._peers.renew(ticket)
        except BaseException:
            await self._peers.release(ticket)
            raise

    async def take(self, request: RunRequest) -> tuple[Engine, Session]:
        """The same for a run of another process, which admitted it. NotFound."""
        session = await self._load(request)
        engine = self._engines.get(request.key.app)
        if engine is None:
            raise NotFound(f"there is no app {request.key.app!r} here")
        return engine, session

    def check_user(self, user: str) -> None:
        limit = self._limits.user_runs
        if limit and sum(run.key.user == user for run in self._live.values()) >= limit:
            raise LimitExceeded(f"{limit} of your runs are active (user_runs); wait for one, or cancel it", 1.0)

    async def check_answers(self, request: RunRequest) -> None:
        """Refuse a message with answers that must not be acted on, as things are now."""
        engine = self._engines.get(request.key.app)
        if engine is not None and request.message is not None and request.message.responses:
            session = await self._stores.sessions.get(request.key)
            _check_replies(engine, session, request.message)

    async def _load(self, request: RunRequest) -> Session:
        sessions = self._stores.sessions
        key = request.key
        try:
            return await sessions.get(key)
        except NotFound:
            if not request.create_session:
                raise
        try:
            return await sessions.create(key.app, key.user, key.id)
        except Conflict:  # somebody else made it in this moment
            return await sessions.get(key)

    def _run_id(self, request: RunRequest, session: Session, engine: Engine, new: str) -> str:
        """The new invocation id, or the one that the message answers or resumes (spec core 2.2.4)."""
        if request.message is None and request.config.live is None:
            return self._resumable(request.invocation_id, session, engine)
        if request.message is not None and request.message.responses:
            _check_replies(engine, session, request.message)
            wanted = {r.id for r in request.message.responses if r.id}
            for event in reversed(session.events):
                if event.author != "user" and any(call.id in wanted for call in event.calls):
                    return event.invocation_id if event.invocation_id not in self._live else new
        return new

    def _new_id(self) -> str:
        return "e-" + self._seams.new_id()

    def can_go_on(self, session: Session, run_id: str) -> bool:
        """See ports.runs.Runs.can_go_on."""
        engine = self._engines.get(session.key.app)
        if engine is None or run_id in self._live:
            return False
        return unfinished(session.events, run_id) or more_follows(engine.tree, session.events, run_id)

    def _resumable(self, invocation_id: str, session: Session, engine: Engine) -> str:
        if invocation_id in self._live:
            raise Conflict(f"run {invocation_id!r} is active; follow it at /runs/{invocation_id}/events")
        if not any(e.invocation_id == invocation_id for e in session.events):
            raise NotFound(f"{session.key} has no run {invocation_id!r} to go on with")
        if not self.can_go_on(session, invocation_id):
            raise Conflict(f"run {invocation_id!r} has ended or waits for an answer; there is nothing to resume")
        return invocation_id


def events_of(session: Session, run_id: str) -> list[Event]:
    """The stored events of a run that its followers see."""
    return [e for e in session.events if e.invocation_id == run_id and shown(e)]


def has_begun(session: Session, run_id: str, message: Content | None) -> bool:
    """Whether the message with which a run begins, or goes on, is stored."""
    answers = {r.id for r in message.responses} if message is not None else set[str]()
    said = [
        e.content for e in session.events if e.invocation_id == run_id and e.author == "user" and e.content is not None
    ]
    return any(not answers or any(r.id in answers for r in content.responses) for content in said)


def _check_replies(engine: Engine, session: Session, message: Content) -> None:
    """See engine.replies.check_replies."""
    check_replies(engine.tree, session, message, engine.secret, check)


def check_told(engine: Engine, session: Session, message: Content) -> None:
    """The same, of what a live client says."""
    _check_replies(engine, session, message)
    check_awaited(session, message)
