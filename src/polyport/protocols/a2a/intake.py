"""How messages come to tasks: new ones, follow-ups, those that came before; and who works on a task.

Used by the handler. A message is stored before it is worked on, together with what it changes, and what happens then does not
depend on its sender any more. One worker per task, in the task group that `serving` holds.
"""

import hashlib
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import NamedTuple

import anyio
import anyio.abc
from msgspec import structs

from polyport.codec import encode
from polyport.engine.hooks import ask
from polyport.errors import AgentError, LimitExceeded, PolyportError, Unavailable
from polyport.ports.tasks import MessageKey, TaskHead, TaskScope
from polyport.protocols.a2a.answers import content_of, without_credentials
from polyport.protocols.a2a.calls import CallContext
from polyport.protocols.a2a.elsewhere import Elsewhere
from polyport.protocols.a2a.executor import Executor
from polyport.protocols.a2a.fold import update_of
from polyport.protocols.a2a.registry import Tasks
from polyport.protocols.a2a.settings import A2aSettings
from polyport.protocols.a2a.tasks import LiveTask, NewStatus, StateChanged
from polyport.protocols.a2a.turns import Turn
from polyport.runs.workers import Workers
from polyport.seams import Seams
from polyport.wire import a2a_translate as translate
from polyport.wire.a2a import INTERRUPTED, TERMINAL, Message, Role, SendMessageRequest, Task, TaskState, new_status
from polyport.wire.a2a_errors import InvalidParams, UnsupportedOperation, Violation

log = logging.getLogger("polyport.a2a")
AT_WORK = (TaskState.SUBMITTED, TaskState.WORKING)


class Accepted(NamedTuple):
    """A message that was taken in: its task, held for the caller, and the turn that it waits for (None: for nothing)."""

    live: LiveTask
    turn: Turn | None


class Intake:
    """See the module."""

    def __init__(self, tasks: Tasks, executor: Executor, settings: A2aSettings, seams: Seams) -> None:
        self.tasks = tasks
        self._executor = executor
        self._settings = settings
        self._seams = seams
        self._group: anyio.abc.TaskGroup | None = None
        self._workers: Workers | None = None
        self._swept_ms = 0
        self._elsewhere = Elsewhere(tasks.backing.peers)

    # ---- life

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """See A2aHandler.serving."""
        raised: BaseException | None = None
        async with anyio.create_task_group() as group:
            self._group = group
            self._workers = workers = Workers(group)
            try:
                yield
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001  raised below, for it should leave as it is, not in a group
                raised = error
            finally:
                self._group = self._workers = None
                self._elsewhere.close()
                workers.close()
        if raised is not None:
            raise raised

    def group(self) -> anyio.abc.TaskGroup:
        """Where tasks are worked on. Unavailable when the handler does not serve."""
        if self._group is None:
            raise Unavailable(
                "A2A is not being served: the ASGI lifespan of the app did not run, or the server is shutting down. An app "
                "that is mounted in another one needs that one to enter its lifespan"
            )
        return self._group

    def follow(self, live: LiveTask) -> None:
        """See to it that what other replicas write to a task is seen here while somebody holds it."""
        if self.tasks.backing.shared and self._group is not None:
            self._elsewhere.watch(self._group, live)

    def take_up(self, live: LiveTask, turns: Sequence[Turn]) -> None:
        """Work on a task that no process works on; whoever waits here for one of its messages waits for these turns."""
        for turn in turns:
            turn.taken_up = True
            waiting = self._waiting_for(live, turn.request.message.message_id)
            if waiting is not None:
                waiting.adopt(turn)
            self._enqueue(live, waiting or turn)

    # ---- messages

    async def direct_reply(self, call: CallContext, request: SendMessageRequest) -> Message | None:
        """What the `message_reply` hook answers without a task (T014)."""
        hook = self._executor.config.message_reply
        if hook is None or request.message.task_id:
            return None
        message = await ask(hook, call, request)
        if message is None:
            return None
        if not isinstance(message, Message):
            raise AgentError(f"message_reply gave a {type(message).__name__}, not a Message or None")
        return structs.replace(
            message,
            message_id=message.message_id or self._seams.new_id(),
            context_id=message.context_id or request.message.context_id or self._seams.new_id(),
            role=Role.AGENT,
        )

    async def accept(
        self, call: CallContext, scope: TaskScope, request: SendMessageRequest, *, streaming: bool
    ) -> Accepted:
        """Take a message in. Not stopped by a cancellation, so that no task is left without a worker. The caller releases the
        task. BadRequest names a part that makes no sense."""
        content = content_of(request.message, self._executor.config.from_a2a_part)
        turn = Turn(call, request, streaming=streaming, content=content)
        self._sweep_if_due()
        take = self._follow_up if request.message.task_id else self._new_task
        if self.tasks.backing.instant:
            return await take(scope, turn)
        with anyio.CancelScope(shield=True):
            return await take(scope, turn)
        raise AssertionError("unreachable")

    async def _new_task(self, scope: TaskScope, turn: Turn) -> Accepted:
        request, said = turn.request, turn.request.message
        task_id, context_id = self._seams.new_id(), said.context_id or self._seams.new_id()
        message = structs.replace(said, task_id=task_id, context_id=context_id)
        key = self._executor.key(scope, turn.call, context_id)
        now, state = self.tasks.backing.now_ms(), TaskState.SUBMITTED
        head = TaskHead(
            id=task_id, scope=scope, context_id=context_id, state=state.value, status_ms=now, created_ms=now
        )
        task = Task(
            id=task_id,
            context_id=context_id,
            status=new_status(state, now),
            history=[message],
            metadata={translate.EXTENSION: True, **translate.base_metadata(key.app, key.user, key.id)},
        )
        push, config = self.tasks.backing.push, request.configuration.task_push_notification_config
        if push is not None and config is not None:  # first, for it may be refused
            config = await push.create(scope, structs.replace(config, task_id=task_id, tenant=scope.tenant))
        made = False
        try:
            live = await self.tasks.create(head, task, message_key(said, said.context_id), self._since_ms())
            made = live.id == task_id
        finally:
            if push is not None and config is not None and not made:
                await push.delete(scope, task_id, config.id)
        if not made:
            return Accepted(live, await self._same(live, turn))
        if push is not None:
            await live.tell([update_of(task, 1)])
        turn.request = structs.replace(request, message=message)
        return Accepted(live, self._enqueue(live, turn))

    async def _follow_up(self, scope: TaskScope, turn: Turn) -> Accepted:
        said = turn.request.message
        live = await self.tasks.get(scope, said.task_id)
        try:
            if said.context_id and said.context_id != live.context_id:
                raise InvalidParams(
                    [Violation("message.contextId", "is not the context of the task")], {"taskId": live.id}
                )
            key = message_key(said, live.context_id)
            known = await self.tasks.backing.store.find_message(scope, key, self._since_ms())
            if known != live.id and await self._told_and_taken_in(live, turn, key):
                return Accepted(live, turn)
            return Accepted(live, await self._same(live, turn))
        except BaseException:
            self.tasks.release(live)
            raise

    async def _told_and_taken_in(self, live: LiveTask, turn: Turn, key: MessageKey) -> bool:
        """As `_take_in`, with the push configuration that the message brings, if it does: first, for that may be refused."""
        push, config = self.tasks.backing.push, turn.request.configuration.task_push_notification_config
        if push is None or config is None:
            return await self._take_in(live, turn, key)
        named = structs.replace(config, task_id=live.id, tenant=live.scope.tenant)
        made = await push.create(live.scope, named, live.head.version)
        taken = False
        try:
            taken = await self._take_in(live, turn, key)
        finally:
            if not taken and not config.id:  # it is new, and the message came before or is refused
                await push.delete(live.scope, live.id, made.id)
        return taken

    async def _take_in(self, live: LiveTask, turn: Turn, key: MessageKey) -> bool:
        """Add a message to a task, and let it be worked on; False when it came before."""
        message = structs.replace(turn.request.message, context_id=live.context_id)
        turn.request = structs.replace(turn.request, message=message)
        working = NewStatus(state=TaskState.WORKING)
        while True:
            if live.broken is not None:
                raise live.broken
            if live.state.terminal:
                raise UnsupportedOperation(f"task {live.id!r} has ended ({live.state})", {"taskId": live.id})
            late = live.state in AT_WORK
            if late and not live.working and not live.shared:
                raise Unavailable(f"task {live.id!r} is being worked on by another process; try again later")
            if late and len(live.turns if live.working else live.waiting) > self._settings.queued_messages:
                raise LimitExceeded(f"{self._settings.queued_messages} messages wait for task {live.id!r} already", 1.0)
            try:
                kept = without_credentials(message, live.view.status.message)
                with nullcontext() if late else self.tasks.claiming(live):
                    written = await live.write(
                        *((kept,) if late else (kept, working)),
                        message=key,
                        run_id=None if late else "",
                        only_in=AT_WORK if late else INTERRUPTED,
                        unless=lambda: key in live.messages,
                    )
            except StateChanged:
                if await self.tasks.backing.store.find_message(live.scope, key, self._since_ms()) == live.id:
                    return False
                continue
            if written and late and not live.working:  # whoever works on it finds the message when it writes
                live.waiting.append(turn)
                self.follow(live)
            elif written:
                asked = live.view.history[-2] if len(live.view.history) > 1 and not late else None
                turn.question = asked if asked is not None and asked.role is Role.AGENT else None
                turn.late = late
                self._enqueue(live, turn)
            return written

    async def _same(self, live: LiveTask, turn: Turn) -> Turn | None:
        """The turn of a message that came before, here or to another replica; None when it is over."""
        found = self._waiting_for(live, turn.request.message.message_id)
        if found is None and live.shared and not live.working:
            async with live.lock:
                await live.refresh()
            if not live.working and live.state in AT_WORK:
                live.waiting.append(found := turn)
                self.follow(live)
        return found

    def _waiting_for(self, live: LiveTask, message_id: str) -> Turn | None:
        """The turn of a message that came before; None when it is over."""
        for turn in live.waiting:
            if turn.request.message.message_id == message_id:
                return turn
        return None

    def _since_ms(self) -> int:
        return self.tasks.backing.now_ms() - int(self._settings.dedup_window_s * 1000)

    # ---- work

    def _enqueue(self, live: LiveTask, turn: Turn) -> Turn:
        live.turns.append(turn)
        live.waiting.append(turn)
        if not live.working:
            live.working, live.heard = True, self._heard
            self.tasks.keep(live)
            self.group()
            assert self._workers is not None  # as long as there is a group
            live.worker = self._workers.start(self._work(live))
        return turn

    async def _work(self, live: LiveTask) -> None:
        turns = live.turns
        try:
            while turns and live.turns is turns and not live.state.terminal and live.broken is None:
                await self._executor.carry_out(live, turns[0])
                turns.popleft()
        finally:
            turns.clear()
            if live.turns is turns:
                live.working, live.heard, live.worker = False, None, None
            elif live.waiting:  # for what another replica does now
                self.follow(live)
            self.tasks.release(live)

    def _heard(self, live: LiveTask, said: Sequence[Message], claimed: bool) -> None:
        """What other replicas did to a task that is worked on here."""
        if claimed:
            live.lose()
            return
        call = CallContext(caller=live.scope.owner, tenant=live.scope.tenant)
        for message in said:
            if message.role is Role.USER:
                live.turns.append(Turn(call, SendMessageRequest(message=message), streaming=True, late=True))

    # ---- retention

    def _sweep_if_due(self) -> None:
        now = self.tasks.backing.now_ms()
        if now - self._swept_ms >= self._settings.sweep_every_s * 1000:
            self._swept_ms = now
            self.group().start_soon(self.sweep)

    async def sweep(self) -> int:
        """Remove tasks whose time is over; how many. An error is logged: there will be another time."""
        now, settings = self.tasks.backing.now_ms(), self._settings
        gone = 0
        for states, keep_s in ((TERMINAL, settings.retention_s), (INTERRUPTED, settings.abandoned_s)):
            try:
                gone += await self._forget(now - int(keep_s * 1000), [state.value for state in states])
            except PolyportError as error:
                log.warning("old tasks could not be removed: %s", error)
        return gone

    async def _forget(self, before_ms: int, states: list[str]) -> int:
        backing, gone = self.tasks.backing, 0
        while heads := await backing.store.forget(self._executor.app, before_ms, states):
            gone += len(heads)
            if backing.push is not None:
                await backing.push.forget(heads)
        return gone


def message_key(message: Message, context: str) -> MessageKey:
    """By which a message is known again; its content counts, for senders are not careful with ids."""
    digest = hashlib.blake2b(encode(message.parts), digest_size=12).hexdigest()
    return MessageKey(context, message.message_id, digest)
