"""Triggers as part of an app: the paths at which messages come in, and those of dead letters (spec rest 7.5).

`POST /apps/{app}/trigger/pubsub`, `/eventarc`, `/webhook` and `/webhook/{name}` answer `{"status": "success"}` once the message
was carried out, so that a sender who gets anything else sends it again. `/apps/{app}/trigger/dead-letters` is for those who
administer the app.
"""

import logging
import math
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from polyport import codec
from polyport.data.auth import Caller
from polyport.errors import ConfigError, Conflict, Forbidden, Unauthenticated, Unavailable, unwrap
from polyport.ports.stores import Stores
from polyport.ports.triggers import Delivery, TriggerStore
from polyport.protocols.answers import error_body, error_headers, send_json, status_of
from polyport.protocols.http import Header, Request, Send
from polyport.protocols.parts import Parts
from polyport.protocols.routes import Route
from polyport.protocols.streaming import unless_gone
from polyport.protocols.triggers.deliveries import SUCCESS, Deliveries, Job
from polyport.protocols.triggers.settings import Retry, Schedule, Webhook
from polyport.protocols.triggers.timetable import Timetable
from polyport.stores.memory_triggers import MemoryTriggers
from polyport.stores.postgres import PostgresSessions
from polyport.stores.postgres_triggers import PostgresTriggers
from polyport.stores.sqlite import SqliteSessions
from polyport.stores.sqlite_triggers import SqliteTriggers
from polyport.wire.triggers import EVENTARC, PUBSUB, WEBHOOK, Incoming, eventarc, media_type, pubsub, webhook
from polyport.wire.webhook_sign import check_hub, check_standard

log = logging.getLogger("polyport.triggers")

BASE = "/apps/{app}/trigger"
LETTERS = BASE + "/dead-letters"
SOURCES = (PUBSUB, EVENTARC, WEBHOOK)
ROLE = "trigger"
"""The role of a caller that may send messages to any app, but do nothing else."""
DAY_S = 86_400.0
MAX_PAGE = 1000
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class Triggers:
    """Triggers, for `App(protocols=[...])`.

    - `sources` are what is served: "pubsub", "eventarc", "webhook".
    - `max_retries`, `base_delay_s`, `max_delay_s`: how often, and after how long, a run that failed for a passing reason goes
      on.
    - `max_concurrent_runs` are carried out at once, `max_queued` more may wait; beyond that it is 429.
    - `webhooks` are those whose messages are signed, by name. They need no other authentication.
    - `schedules` are agents that are asked at certain times.
    - `oidc_audience` and `oidc_service_accounts`, both or neither: the token that the app's authenticator has verified must be
      for this audience, and of one of these accounts. Without them a caller needs the role `trigger` or `admin`, where callers
      have to say who they are.
    - `keep_s` and `keep_dead_s` are how long messages that were done, and dead letters, are remembered.
    - `store` is where that is kept; beside the sessions without it.
    """

    sources: Collection[str] = SOURCES
    max_retries: int = 3
    base_delay_s: float = 1.0
    max_delay_s: float = 10.0
    max_concurrent_runs: int = 100
    max_queued: int = 1000
    webhooks: Mapping[str, Webhook] = field(default_factory=dict[str, Webhook])
    schedules: Sequence[Schedule] = ()
    oidc_audience: str = ""
    oidc_service_accounts: Collection[str] = ()
    keep_s: float = 7 * DAY_S
    keep_dead_s: float = 30 * DAY_S
    store: TriggerStore | None = None

    def mount(self, parts: Parts) -> "TriggerServer":
        """ConfigError for what makes no sense."""
        for source in self.sources:
            if source not in SOURCES:
                raise ConfigError(f"triggers: there is no source {source!r}; known are: {', '.join(SOURCES)}")
        if bool(self.oidc_audience) != bool(self.oidc_service_accounts):
            raise ConfigError("triggers: oidc_audience and oidc_service_accounts are set together, or not at all")
        for name in self.webhooks:
            if not _NAME.fullmatch(name):
                raise ConfigError(f"triggers: webhook {name!r} must be letters, digits, `-`, `_` and `.`")
        if self.webhooks and WEBHOOK not in self.sources:
            raise ConfigError('triggers: webhooks are set, but "webhook" is not among the sources')
        if self.keep_s <= 0 or self.keep_dead_s <= 0:
            raise ConfigError("triggers: keep_s and keep_dead_s must be above zero")
        return TriggerServer(self, parts)

    def retry(self) -> Retry:
        return Retry(
            max_retries=self.max_retries,
            base_delay_s=self.base_delay_s,
            max_delay_s=self.max_delay_s,
            max_concurrent_runs=self.max_concurrent_runs,
            max_queued=self.max_queued,
        )


class TriggerServer:
    """See the module."""

    def __init__(self, settings: Triggers, parts: Parts) -> None:
        self._settings = settings
        self._parts = parts
        self._keys = {name: one.keys() for name, one in settings.webhooks.items()}
        self._store = settings.store or trigger_store(parts.runs.stores)
        retry = settings.retry()
        self._retry_after_s = retry.max_delay_s
        self.deliveries = Deliveries(parts.runs, self._store, parts.limits, parts.seams, retry)
        schedules = _placed(settings.schedules, list(parts.trees))
        self._timetable = Timetable(schedules, self.deliveries, parts.seams, settings.keep_s, settings.keep_dead_s)

    # ---- life

    @asynccontextmanager
    async def around(self) -> AsyncGenerator[None]:
        """See protocols.parts.Mounted: deliveries hear how their runs ended."""
        try:
            async with self.deliveries.working():
                yield
        finally:
            await self._store.aclose()

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        """See protocols.parts.Mounted: what is due is begun, until the server is told to stop."""
        async with self.deliveries.taking(self._timetable.run):
            yield

    # ---- messages

    def routes(self) -> list[Route]:
        routes: list[Route] = []
        if PUBSUB in self._settings.sources:
            routes.append(self._route("/pubsub", self.pubsub, "a Pub/Sub push message"))
        if EVENTARC in self._settings.sources:
            routes.append(self._route("/eventarc", self.eventarc, "a CloudEvent, structured or binary"))
        if WEBHOOK in self._settings.sources:
            routes.append(self._route("/webhook", self.webhook, "JSON or text"))
            routes.append(self._route("/webhook/{name}", self.webhook, "JSON or text, from a sender with a name"))
            for name in self._keys:
                signed = partial(self.signed, name)
                routes.append(self._route(f"/webhook/{name}", signed, f"a signed message of {name}", public=True))
        listed, one = "Messages that could not be carried out", LETTERS + "/{letter}"
        return [
            *routes,
            Route("GET", LETTERS, self.letters, admin=True, summary=listed),
            Route("GET", one, self.letter, admin=True, summary="A dead letter, with its whole text"),
            Route(
                "POST", one + ":retry", self.again, admin=True, summary="Carry out a dead letter", on_error=self._error
            ),
            Route("DELETE", one, self.drop, admin=True, summary="Forget a dead letter"),
        ]

    def _route(self, path: str, handler: Any, what: str, *, public: bool = False) -> Route:
        return Route("POST", BASE + path, handler, public=public, summary=f"Trigger: {what}", on_error=self._error)

    async def pubsub(self, request: Request, send: Send) -> None:
        app = await self._admitted(request)
        request.refuse_forms()
        await self._deliver(request, send, app, pubsub(await self._body(request)))

    async def eventarc(self, request: Request, send: Send) -> None:
        app = await self._admitted(request)
        await self._deliver(request, send, app, eventarc(request.header, await self._body(request)))

    async def webhook(self, request: Request, send: Send) -> None:
        app = await self._admitted(request)
        message = webhook(request.params.get("name", ""), request.header, await request.body())
        await self._deliver(request, send, app, message)

    async def signed(self, name: str, request: Request, send: Send) -> None:
        """The signature is checked first, and over the raw bytes."""
        body = await request.body()
        if self._settings.webhooks[name].scheme == "github":
            check_hub(self._keys[name], request.header, body)
        else:
            check_standard(self._keys[name], request.header, body, self._parts.seams.clock())
        await self._deliver(request, send, await self._app(request), webhook(name, request.header, body))

    async def _admitted(self, request: Request) -> str:
        """The app that is asked, if the caller may ask it. Before anything is read."""
        app = await self._app(request)
        if self._settings.oidc_audience:
            _check_token(request.caller, self._settings.oidc_audience, self._settings.oidc_service_accounts)
        elif ROLE not in request.caller.roles:
            try:
                await request.administer(app)
            except Forbidden as error:
                raise Forbidden(f"{error}, or the role {ROLE}, which may send messages only") from None
        return app

    async def _app(self, request: Request) -> str:
        app = request.params["app"]
        if app not in self._parts.trees:
            raise await request.no_app(app, self._parts.trees, "failed to load agent: ")
        return app

    async def _body(self, request: Request) -> bytes:
        body = await request.body()
        if "json" in media_type(request.header("content-type")) or body[:1] in (b"{", b"["):
            codec.check_depth(body, request.limits.json_depth)
        return body

    async def _deliver(self, request: Request, send: Send, app: str, message: Incoming) -> None:
        await self._told(request, send, self.deliveries.take(self.deliveries.new(app, message)))

    async def _told(self, request: Request, send: Send, job: Job) -> None:
        """How a delivery went. A sender that hangs up is told when it sends the message again."""
        await unless_gone(request, job.done.wait)
        if job.error is not None:
            raise job.error
        await send_json(send, {"status": job.status})

    async def _error(self, send: Send, request: Request, error: BaseException) -> None:
        """`{"status", "error", "detail"}`, and when to come again."""
        error = unwrap(error)
        headers: list[Header] = error_headers(error)
        if isinstance(error, Unavailable):
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(self._retry_after_s))))
        body = error_body(error, request.id)
        await send_json(send, {"status": body["error"], **body}, status_of(error), headers)

    # ---- dead letters

    async def letters(self, request: Request, send: Send) -> None:
        """`{"deadLetters": [...]}`, the newest first; `?page_size=N` of them, 100 without it. Long texts are cut."""
        limit = request.query_int("page_size", 1, MAX_PAGE, 100) or 100
        found = await self._store.dead(await self._app(request), limit)
        await send_json(send, {"deadLetters": [_letter(one) for one in found]})

    async def letter(self, request: Request, send: Send) -> None:
        await send_json(send, _letter(await self._dead(request)))

    async def again(self, request: Request, send: Send) -> None:
        """Go on with a dead letter, and answer like the path that it came by. 409 when it is none (any more)."""
        await self._told(request, send, self.deliveries.take(await self._dead(request)))

    async def drop(self, request: Request, send: Send) -> None:
        letter = await self._dead(request)
        await self._store.remove(letter.key.app, letter.session_id)
        await send_json(send, {"status": SUCCESS})

    async def _dead(self, request: Request) -> Delivery:
        letter = await self._store.get(await self._app(request), request.params["letter"])
        if letter.state != "dead":
            raise Conflict(f"{letter.session_id!r} is no dead letter: it is {letter.state}")
        return letter


def trigger_store(stores: Stores) -> TriggerStore:
    """Where deliveries are kept: beside the sessions."""
    sessions = stores.sessions
    if isinstance(sessions, SqliteSessions):
        return SqliteTriggers(sessions.writer)
    return PostgresTriggers(sessions.database) if isinstance(sessions, PostgresSessions) else MemoryTriggers()


def _placed(schedules: Sequence[Schedule], apps: list[str]) -> list[Schedule]:
    """The schedules, each with its app. ConfigError for an app that there is not, and two of one name."""
    found: dict[str, Schedule] = {}
    for one in schedules:
        app = one.app or apps[0]
        if app not in apps:
            raise ConfigError(f"triggers: schedule {one.name!r} is for app {app!r}; the apps are: {', '.join(apps)}")
        if one.name in found:
            raise ConfigError(f"triggers: two schedules are named {one.name!r}")
        found[one.name] = replace(one, app=app)
    return list(found.values())


def _check_token(caller: Caller, audience: str, accounts: Collection[str]) -> None:
    """Forbidden unless the verified token is for us, and of an account that may send messages."""
    if not caller.claims:
        raise Unauthenticated("an OIDC token is required, and an authenticator of this app that verifies it")
    meant: Any = caller.claims.get("aud")
    if audience not in (meant if isinstance(meant, list) else [meant]):
        raise Forbidden("the token is for another audience")
    if caller.claims.get("email") not in accounts or caller.claims.get("email_verified") is not True:
        raise Forbidden("the token is not of a service account that may send messages here")


def _letter(delivery: Delivery) -> dict[str, Any]:
    app, source, origin, id = delivery.key
    return {
        "id": delivery.session_id,
        "appName": app,
        "source": source,
        "origin": origin,
        "messageId": id,
        "userId": delivery.user,
        "sessionId": delivery.session_id,
        "attempts": delivery.attempts,
        "error": delivery.error,
        "failedAt": delivery.at_ms / 1000,
        "text": delivery.text,
    }
