"""Push notifications: who wants them for which task, and the outbox they wait in (spec a2a 1.10).

A `calls.Push`, made by the mount. A change of a task is only noted here; `push_delivery` sends it, one after another for each
configuration, so that neither a slow receiver nor a dead one is felt by the task. Configurations and what waits live in the
memory of this process.
"""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.abc
from msgspec import Struct, structs

from polyport.agents.a2a_http import HttpClient, leads_inside, origin, place
from polyport.errors import BadRequest, LimitExceeded
from polyport.ports.tasks import TaskHead, TaskScope
from polyport.protocols.a2a.fold import Update
from polyport.protocols.a2a.push_delivery import Delivery, GaveUp
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


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A notification that was given up. `url` has neither query nor credentials; `body` is what was to be sent."""

    task_id: str
    config_id: str
    url: str
    reason: str
    body: bytes


class Entry:
    """A configuration and what waits for its receiver. `number` orders those of a task."""

    __slots__ = ("at_work", "config", "number", "waiting")

    def __init__(self, number: int, config: TaskPushNotificationConfig) -> None:
        self.number = number
        self.config = config
        self.waiting: deque[bytes] = deque()
        self.at_work = False


class PushOutbox:
    """See the module and `calls.Push`. `dead_letters` are for the operator."""

    def __init__(self, settings: PushSettings, seams: Seams) -> None:
        self.settings = settings
        self.dead_letters: deque[DeadLetter] = deque(maxlen=settings.dead_letters)
        self._seams = seams
        self._entries: dict[tuple[TaskScope, str], dict[str, Entry]] = {}
        self._numbers = 0
        self._http = HttpClient(connect_s=settings.timeout_s)
        self._delivery: Delivery | None = None
        self._group: anyio.abc.TaskGroup | None = None
        self._at_work = 0

    # ---- life

    @asynccontextmanager
    async def delivering(self) -> AsyncGenerator[None]:
        """Deliver inside the block. On leaving, what is on its way gets `drain_s`; the rest is given up, and said so."""
        raised: BaseException | None = None
        async with anyio.create_task_group() as group:
            self._group = group
            self._delivery = delivery = Delivery(self.settings, self._http, self._seams)
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
        for (_, task_id), entries in self._entries.items():
            for entry in entries.values():
                self._bury(task_id, entry, "the server stopped", all=True)
        if raised is not None:
            raise raised

    # ---- configurations

    async def create(self, scope: TaskScope, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        await self._check(config)
        entries = self._entries.setdefault((scope, config.task_id), {})
        known = entries.get(config.id) if config.id else None
        if known is None and len(entries) >= self.settings.configs_per_task:
            raise LimitExceeded(
                f"a task has at most {self.settings.configs_per_task} push configurations (configs_per_task)"
            )
        config = structs.replace(config, id=config.id or self._seams.new_id(), tenant=scope.tenant)
        if known is None:
            self._numbers += 1
            entries[config.id] = Entry(self._numbers, config)
        else:
            known.config = config
        return config

    async def get(self, scope: TaskScope, task_id: str, config_id: str) -> TaskPushNotificationConfig:
        entry = self._entries.get((scope, task_id), {}).get(config_id)
        if entry is None:
            raise TaskNotFound(f"task {task_id!r} has no push configuration {config_id[:200]!r}", {"taskId": task_id})
        return self._shown(scope, entry.config)

    async def list(
        self, scope: TaskScope, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse:
        token = request.page_token
        if token and not (token.isascii() and token.isdigit() and len(token) < 19):
            raise InvalidParams([Violation("pageToken", "is not one that this server gave")])
        after = int(token or 0)
        entries = sorted(self._entries.get((scope, request.task_id), {}).values(), key=lambda e: e.number)
        found = [entry for entry in entries if entry.number > after]
        page = found[: min(request.page_size or PAGE_SIZE, PAGE_SIZE)]
        more = str(page[-1].number) if len(page) < len(found) else ""
        configs = [self._shown(scope, entry.config) for entry in page]
        return ListTaskPushNotificationConfigsResponse(configs=configs, next_page_token=more)

    async def delete(self, scope: TaskScope, task_id: str, config_id: str) -> None:
        entries = self._entries.get((scope, task_id), {})
        entry = entries.pop(config_id, None)
        if entry is not None:
            entry.waiting.clear()  # it was asked not to be told any more
        if not entries:
            self._entries.pop((scope, task_id), None)

    async def forget(self, tasks: Sequence[TaskHead]) -> None:
        for head in tasks:
            for entry in self._entries.pop((head.scope, head.id), {}).values():
                self._bury(head.id, entry, "the task is gone", all=True)

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

    # ---- the outbox

    async def changed(self, scope: TaskScope, task_id: str, updates: Sequence[Update]) -> None:
        for entry in self._entries.get((scope, task_id), {}).values():
            entry.waiting.extend(update.json for update in updates)
            if len(entry.waiting) > self.settings.waiting:
                self._bury(task_id, entry, f"{self.settings.waiting} others wait for this receiver (waiting)")
            if not entry.at_work and self._group is not None and self._delivery is not None:
                entry.at_work = True
                self._at_work += 1
                self._group.start_soon(self._deliver, self._delivery, task_id, entry)

    async def _deliver(self, delivery: Delivery, task_id: str, entry: Entry) -> None:
        """Send what waits, in order, until nothing does."""
        try:
            while entry.waiting:
                body = entry.waiting.popleft()
                try:
                    await delivery.send(lambda: entry.config, body)
                except GaveUp as reason:
                    self._note(task_id, entry, body, str(reason))
                except BaseException:
                    self._note(task_id, entry, body, "the server stopped")
                    raise
        finally:
            entry.at_work = False
            self._at_work -= 1
            delivery.tell()

    def _bury(self, task_id: str, entry: Entry, reason: str, *, all: bool = False) -> None:
        """Give up what waits longest: what is too many, or all of it."""
        while len(entry.waiting) > (0 if all else self.settings.waiting):
            self._note(task_id, entry, entry.waiting.popleft(), reason)

    def _note(self, task_id: str, entry: Entry, body: bytes, reason: str) -> None:
        url = place(entry.config.url)
        letter = DeadLetter(task_id=task_id, config_id=entry.config.id, url=url, reason=reason, body=body)
        self.dead_letters.append(letter)
        log.warning("task %s: a push notification to %s was given up: %s", task_id, url, reason)
