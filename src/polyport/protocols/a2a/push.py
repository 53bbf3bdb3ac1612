"""Push notifications: who wants them for which task, and telling them (spec a2a 1.10).

A `calls.Push`, made by the mount. What is to be told are the changes of a task, which its store has. Here it is only noted that
there is one; each receiver is told from where it is, in order, one notification after another. So neither a slow receiver nor a
dead one is felt by the task, and with a store that lasts nothing is forgotten when the process ends.
"""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.abc
from msgspec import Struct, structs

from polyport.agents.a2a_http import HttpClient, leads_inside, origin, place
from polyport.codec import decode, encode
from polyport.errors import BadRequest, NotFound, PolyportError
from polyport.ports.tasks import PushKey, PushStore, PushTarget, TaskChange, TaskHead, TaskScope, TaskStore
from polyport.protocols.a2a.fold import Update, read_change
from polyport.protocols.a2a.push_delivery import Delivery, GaveUp, Lost
from polyport.protocols.a2a.push_settings import PushSettings
from polyport.seams import Seams
from polyport.wire.a2a import (
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)
from polyport.wire.a2a_errors import InvalidParams, TaskNotFound, Violation

log = logging.getLogger("polyport.a2a")

PAGE_SIZE = 100
KNOWN = 10_000
"""Of how many tasks it is known at once that there is somebody to be told."""
DUE = 100
"""How many receivers are taken on at a time that nobody else tells."""
SLACK_S = 5.0
"""How much longer than a notification may take its receiver is held."""
STOPPED = "the server stopped"


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A notification that was given up. `url` has neither query nor credentials; `body` is what was to be sent."""

    task_id: str
    config_id: str
    url: str
    reason: str
    body: bytes


class PushOutbox:
    """See the module and `calls.Push`. `dead_letters` are for the operator; `apps` are those whose receivers are told here."""

    def __init__(
        self, settings: PushSettings, pushes: PushStore, tasks: TaskStore, apps: Collection[str], seams: Seams
    ) -> None:
        self.settings = settings
        self.dead_letters: deque[DeadLetter] = deque(maxlen=settings.dead_letters)
        self._pushes = pushes
        self._tasks = tasks
        self._apps = tuple(apps)
        self._seams = seams
        self._me = seams.new_id()
        self._known: dict[tuple[TaskScope, str], set[str]] = {}
        """The configurations made here whose tasks go on."""
        self._at_work: dict[PushKey, bool] = {}
        """The receivers that are being told here -> whether there was a change since it was looked for one."""
        self._http = HttpClient(connect_s=settings.timeout_s)
        self._delivery: Delivery | None = None
        self._group: anyio.abc.TaskGroup | None = None

    # ---- life

    @asynccontextmanager
    async def delivering(self) -> AsyncGenerator[None]:
        """Deliver inside the block. On leaving, what is on its way gets `drain_s`; the rest is left to the next process, or,
        when nothing of it lasts, given up, and said so."""
        raised: BaseException | None = None
        async with anyio.create_task_group() as group:
            self._group = group
            self._delivery = delivery = Delivery(self.settings, self._http, self._seams)
            if self._pushes.durable:
                group.start_soon(self._look)
            try:
                yield
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001  raised below, for it should leave as it is, not in a group
                raised = error
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(self.settings.drain_s):
                    while self._at_work:
                        await delivery.done()
                group.cancel_scope.cancel()
                self._group = None
        with anyio.CancelScope(shield=True):
            await self._http.aclose()
            if not self._pushes.durable:
                await self._give_up_all()
            await self._pushes.aclose()
        if raised is not None:
            raise raised

    async def _look(self) -> None:
        """Again and again take on receivers that nobody tells: of a process that died, of a task that another one works on."""
        while True:
            try:
                for key in await self._pushes.due(self._apps, self._now(), DUE):
                    self._wake(key)
            except PolyportError as error:
                log.warning("it cannot be seen which push notifications wait: %s", error)
            await anyio.sleep(self.settings.look_s)

    async def _give_up_all(self) -> None:
        for scope, task_id in list(self._known):
            for target in await self._pushes.list(scope, task_id):
                for _, change in await self._changes(target):
                    self._note(target, change.body, STOPPED)

    def _now(self) -> int:
        return int(self._seams.clock() * 1000)

    # ---- configurations

    async def create(
        self, scope: TaskScope, config: TaskPushNotificationConfig, after: int = 0
    ) -> TaskPushNotificationConfig:
        await self._check(config)
        config = structs.replace(config, id=config.id or self._seams.new_id(), tenant=scope.tenant)
        key = PushKey(scope, config.task_id, config.id)
        await self._pushes.put(key, encode(config), after, self.settings.configs_per_task)
        self._known.setdefault((scope, config.task_id), set()).add(config.id)
        if self._pushes.durable and len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]  # `_look` finds it
        return config

    async def get(self, scope: TaskScope, task_id: str, config_id: str) -> TaskPushNotificationConfig:
        for target in await self._pushes.list(scope, task_id):
            if target.key.id == config_id:
                return self._shown(scope, _config(target))
        raise TaskNotFound(f"task {task_id!r} has no push configuration {config_id[:200]!r}", {"taskId": task_id})

    async def list(
        self, scope: TaskScope, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse:
        token = request.page_token
        if token and not (token.isascii() and token.isdigit() and len(token) < 19):
            raise InvalidParams([Violation("pageToken", "is not one that this server gave")])
        after = int(token or 0)
        found = [target for target in await self._pushes.list(scope, request.task_id) if target.number > after]
        page = found[: min(request.page_size or PAGE_SIZE, PAGE_SIZE)]
        more = str(page[-1].number) if len(page) < len(found) else ""
        configs = [self._shown(scope, _config(target)) for target in page]
        return ListTaskPushNotificationConfigsResponse(configs=configs, next_page_token=more)

    async def delete(self, scope: TaskScope, task_id: str, config_id: str) -> None:
        await self._pushes.delete(PushKey(scope, task_id, config_id))  # who tells it sees that it is gone
        self._forget(PushKey(scope, task_id, config_id))

    async def forget(self, tasks: Sequence[TaskHead]) -> None:
        for head in tasks:
            self._known.pop((head.scope, head.id), None)
        await self._pushes.forget(tasks)

    def _forget(self, key: PushKey) -> None:
        known = self._known.get((key.scope, key.task_id), set())
        known.discard(key.id)
        if not known:
            self._known.pop((key.scope, key.task_id), None)

    def _shown(self, scope: TaskScope, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        """A configuration without its secrets, unless the one who asks is known to be the one who gave them."""
        if scope.owner or self.settings.show_secrets_to_anonymous:
            return config
        said = config.authentication
        return structs.replace(
            config, token="", authentication=structs.replace(said, credentials="") if said is not None else None
        )

    async def _check(self, config: TaskPushNotificationConfig) -> None:
        """InvalidParams for where, or with what, nothing is sent (T063)."""
        settings, said = self.settings, config.authentication
        secrets = {"token": config.token}
        if said is not None:
            secrets |= {"authentication.scheme": said.scheme, "authentication.credentials": said.credentials}
        wrong = [
            Violation(name, f"must be at most {settings.url_chars} printable ASCII characters")
            for name, value in {"url": config.url, **secrets}.items()
            if len(value) > settings.url_chars or not (value.isascii() and value.isprintable())
        ]
        if not wrong:
            problem = await self._problem(config.url)
            wrong = [Violation("url", problem)] if problem else []
        if wrong:
            raise InvalidParams(wrong)

    async def _problem(self, url: str) -> str:
        try:
            scheme = origin(url)[0]
        except BadRequest:
            return "must begin with https:// and name a host"
        if "@" in url.partition("://")[2].partition("/")[0]:
            return "must not have a user name or password; use `authentication`"
        if scheme == "http" and not self.settings.allow_http:
            return "must begin with https:// (allow_http)"
        if not self.settings.allow_private and await leads_inside(url):
            return "must not lead to an address of this network (allow_private)"
        return ""

    # ---- telling

    async def changed(self, scope: TaskScope, task_id: str, updates: Sequence[Update]) -> None:
        for id in self._known.get((scope, task_id), ()):
            self._wake(PushKey(scope, task_id, id))

    def _wake(self, key: PushKey) -> None:
        if key in self._at_work:
            self._at_work[key] = True
        elif self._group is not None and self._delivery is not None:
            self._at_work[key] = True
            self._group.start_soon(self._tell, self._delivery, key)

    async def _tell(self, delivery: Delivery, key: PushKey) -> None:
        """Tell a receiver all there is, and what comes meanwhile."""
        try:
            while self._at_work[key]:
                self._at_work[key] = False
                await self._catch_up(delivery, key)
        except Lost:
            pass  # it was deleted, or another process does it
        except PolyportError as error:
            log.warning("task %s: its push notifications wait: %s", key.task_id, error)
        except Exception:  # one receiver's trouble is not the server's
            log.exception("task %s: its push notifications wait", key.task_id)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._let_go(key)
            raise
        finally:
            del self._at_work[key]
            delivery.tell()

    async def _let_go(self, key: PushKey) -> None:
        try:
            await self._pushes.release(key, self._me, done=False)
        except PolyportError as error:
            log.warning("task %s: another process will tell its receiver a little later: %s", key.task_id, error)

    async def _catch_up(self, delivery: Delivery, key: PushKey) -> None:
        """Send what the receiver does not have, in order; Lost when that is not ours to do."""
        ended, well = False, True
        target = await self._hold(key)
        while changes := await self._changes(target):
            for n, (version, change) in enumerate(changes):
                ended = ended or _ends(key.task_id, change)
                if change.kind in ("message", "claim"):
                    pass  # what callers say is not told, nor who works
                elif len(changes) - n > self.settings.waiting:
                    self._note(target, change.body, f"{self.settings.waiting} others wait for this receiver (waiting)")
                    continue
                else:
                    target, well = await self._send(delivery, target, change.body, well)
                target = await self._hold(key, sent=version)
        await self._pushes.release(key, self._me, done=ended)
        if ended:
            self._forget(key)

    async def _send(self, delivery: Delivery, target: PushTarget, body: bytes, well: bool) -> tuple[PushTarget, bool]:
        """The target as it is after the receiver has the body, or the body was given up; whether the receiver took it."""

        async def again(wait_s: float) -> TaskPushNotificationConfig:
            nonlocal target
            target = await self._hold(target.key, wait_s=wait_s)
            return _config(target)

        try:
            await delivery.send(_config(target), again, body, well=well)
        except GaveUp as reason:
            self._note(target, body, str(reason))
            return target, False
        return target, True

    async def _hold(self, key: PushKey, *, sent: int = 0, wait_s: float = 0.0) -> PushTarget:
        """Say that the receiver is told from here, for as long as one notification may take and `wait_s` more."""
        now = self._now()
        until = now + int((self.settings.timeout_s + SLACK_S + wait_s) * 1000)
        found = await self._pushes.hold(key, self._me, now, until, sent)
        if found is None:
            raise Lost(key.id)
        return found

    async def _changes(self, target: PushTarget) -> Sequence[tuple[int, TaskChange]]:
        """What its receiver has not been told."""
        try:
            return await self._tasks.changes(target.key.scope, target.key.task_id, target.sent)
        except NotFound:  # it is gone after its time, or not made yet
            return ()

    def _note(self, target: PushTarget, body: bytes, reason: str) -> None:
        key, url = target.key, place(_config(target).url)
        self.dead_letters.append(DeadLetter(task_id=key.task_id, config_id=key.id, url=url, reason=reason, body=body))
        log.warning("task %s: a push notification to %s was given up: %s", key.task_id, url, reason)


def _config(target: PushTarget) -> TaskPushNotificationConfig:
    return decode(target.body, TaskPushNotificationConfig, unknown="drop")


def _ends(task_id: str, change: TaskChange) -> bool:
    """Whether nothing comes after this change of a task."""
    if change.kind != "status":
        return False
    update = read_change(task_id, change).status_update
    return update is not None and update.status.state.terminal
