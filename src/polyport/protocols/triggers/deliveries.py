"""Deliveries: each message is carried out once, by a run that goes on when it failed for a passing reason.

Used by `mount` and `timetable`. A delivery is a task of its own (so that a sender who hangs up stops nothing), in a bounded
number of places. What it is at is kept in the store: a message that comes again joins, or is told that it was done; what a
process left behind is taken up by the next one; what fails for good is a dead letter. Knows no path.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import anyio
import anyio.abc
from msgspec import structs

from polyport.data.content import user_text
from polyport.data.limits import Limits
from polyport.data.run import RunOutcome, RunRequest
from polyport.data.session import SessionKey
from polyport.errors import (
    AgentError,
    LimitExceeded,
    ModelError,
    NotFound,
    PolyportError,
    RunCancelled,
    Unavailable,
    describe,
)
from polyport.models.retry import provider_fault
from polyport.ports.runs import Run, Runs
from polyport.ports.triggers import Delivery, DeliveryKey, TriggerStore
from polyport.protocols.triggers.settings import Retry
from polyport.seams import Seams
from polyport.wire.triggers import Incoming

log = logging.getLogger("polyport.triggers")

STATE = "trigger_delivery"
"""The key of session state that says where the message came from."""
SUCCESS = "success"
STRANDED = 1000
"""How many deliveries of a process that died are taken up at once."""
MAX_HELD = 256 << 20
"""How many characters the messages that are under way or waiting may have together."""
_SPARE_S = 60.0
"""What a lease has above the longest attempt."""


class Job:
    """A delivery that is being carried out here. When `done` is set, `error` says why it was not, or `status` how it was."""

    __slots__ = ("delivery", "done", "error", "status")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.done = anyio.Event()
        self.error: Exception | None = None
        self.status = SUCCESS


class Ended(NamedTuple):
    """How one attempt ended: `error` is why it failed, and `passing` whether another attempt may do better."""

    error: Exception | None = None
    passing: bool = False


class Deliveries:
    """See the module. Use inside `async with deliveries.working()`."""

    def __init__(self, runs: Runs, store: TriggerStore, limits: Limits, seams: Seams, retry: Retry) -> None:
        self.store = store
        self._runs = runs
        self._limits = limits
        self._seams = seams
        self._retry = retry
        self._jobs: dict[DeliveryKey, Job] = {}
        self._held = 0
        self._group: anyio.abc.TaskGroup | None = None
        self._closing = anyio.Event()
        self._places = anyio.Semaphore(retry.max_concurrent_runs)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Take deliveries inside the block. On leaving, runs have ended; what is left has a moment to be noted."""
        self._closing = anyio.Event()
        self._places = anyio.Semaphore(self._retry.max_concurrent_runs)
        raised: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                try:
                    yield
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as error:  # noqa: BLE001  raised below, as it is and not in a group
                    raised = error
                self._closing.set()
                with anyio.move_on_after(10, shield=True):
                    for job in list(self._jobs.values()):
                        await job.done.wait()
                group.cancel_scope.cancel()
        finally:
            self._group = None
        if raised is not None:
            raise raised

    @asynccontextmanager
    async def taking(self, due: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None]:
        """Have `due` run inside the block. On leaving take no more, and start nothing anew: what is interrupted from now on
        is left for the next process."""
        assert self._group is not None
        clock = self._group.start_soon(due)
        try:
            yield
        finally:
            clock.cancel()
            self._closing.set()

    def new(self, app: str, message: Incoming) -> Delivery:
        """A message as a delivery, with a session of its own. One without an id can never be known again."""
        id = message.id or self._seams.new_id()
        return Delivery(
            key=DeliveryKey(app, message.source, message.origin, id),
            user=message.user,
            text=message.text,
            session_id=self._seams.new_id(),
            kind=message.kind,
        )

    def take(self, delivery: Delivery, *, again: bool = True) -> Job:
        """Begin to carry out a delivery, or join in if that is happening here already. Without `again`, one that anybody
        has, or had, is left alone. LimitExceeded when too many wait, Unavailable when shutting down."""
        job = self._jobs.get(delivery.key)
        if job is not None:
            return job
        if self._group is None or self._closing.is_set():
            raise Unavailable("the server is shutting down, or has not been started")
        limit = self._retry.max_concurrent_runs + self._retry.max_queued
        if len(self._jobs) >= limit:
            raise LimitExceeded(f"{limit} deliveries are under way or waiting; send it again later", 1.0)
        if self._jobs and self._held + len(delivery.text) > MAX_HELD:
            raise LimitExceeded("the deliveries that are under way or waiting are too large; send it again later", 1.0)
        self._held += len(delivery.text)
        job = self._jobs[delivery.key] = Job(delivery)
        self._group.start_soon(self._carry, job, again)
        return job

    async def take_up(self) -> None:
        """Go on with what processes that died, or were stopped, have left behind."""
        for delivery in await self.store.stranded(self._now(), STRANDED):
            try:
                self.take(delivery)
            except LimitExceeded:
                return

    async def _carry(self, job: Job, again: bool) -> None:
        held = len(job.delivery.text)
        job.error = Unavailable("the server is shutting down")  # if this is broken off, the sender must send it again
        try:
            async with self._places:
                if self._closing.is_set():
                    raise Unavailable("the server is shutting down")
                await self._settle(job, again)
            job.error = None
        except PolyportError as error:
            log.warning("%s: %s", _shown(job.delivery), error)
            job.error = error
        except Exception as error:
            log.exception("%s failed", _shown(job.delivery))
            job.error = error
        finally:
            del self._jobs[job.delivery.key]
            self._held -= held
            job.done.set()

    async def _settle(self, job: Job, again: bool) -> None:
        """Claim the delivery, carry it out, note how that went. Raises what its sender is to be told."""
        ours, job.delivery = await self.store.claim(self._leased(job.delivery), again=again)
        if not ours:
            if job.delivery.state == "running" and again:
                raise LimitExceeded("another process is at this message; ask again later", self._retry.max_delay_s)
            return
        if job.delivery.attempts >= 2 * (self._retry.max_retries + 1):
            ended = Ended(AgentError(f"given up after {job.delivery.attempts} attempts, for the server died at them"))
        else:
            ended = await self._attempts(job)
        await self._note(job.delivery, ended)
        if isinstance(ended.error, RunCancelled):
            job.status = str(ended.error)
        elif ended.error is not None:
            text = f"failed to run agent: {describe(ended.error)['message']}"
            raise Unavailable(text) if ended.passing else AgentError(text)

    async def _note(self, delivery: Delivery, ended: Ended) -> None:
        """Done, dead, or left for the next process."""
        now = structs.replace(delivery, at_ms=self._now(), lease_ms=0)
        if ended.error is None:
            now = structs.replace(now, state="done")
        elif not (ended.passing and self._closing.is_set()):
            now = structs.replace(now, state="dead", error=describe(ended.error)["message"])
        else:
            now = structs.replace(now, attempts=0)
        await self.store.update(now)

    async def _attempts(self, job: Job) -> Ended:
        ended = Ended()
        for retries in range(self._retry.max_retries + 1):
            job.delivery = self._leased(structs.replace(job.delivery, attempts=job.delivery.attempts + 1))
            await self.store.update(job.delivery)
            ended = await self._attempt(job.delivery)
            wait = self._wait(ended, retries)
            if wait is None:
                break
            log.info("%s: attempt %d failed: %s", _shown(job.delivery), retries + 1, ended.error)
            with anyio.move_on_after(wait):
                await self._closing.wait()
            if self._closing.is_set():
                break
        return ended

    def _wait(self, ended: Ended, retries: int) -> float | None:
        """Seconds until the next attempt; None for none. A provider that asks for more than we wait is not asked again: the
        sender comes again."""
        if not ended.passing or retries == self._retry.max_retries:
            return None
        asked = ended.error.retry_after_s if isinstance(ended.error, ModelError | LimitExceeded) else None
        if asked is not None and asked > self._retry.max_delay_s:
            return None
        return max(asked or 0.0, self._retry.delay(retries, self._seams.chance()))

    async def _attempt(self, delivery: Delivery) -> Ended:
        """One run, or one more part of it: the message is stored once, and what was done is not done again."""
        try:
            run = await self._run(delivery)
        except (LimitExceeded, Unavailable) as error:
            return Ended(error, passing=True)
        except PolyportError as error:
            return Ended(error)
        return self._ended(await run.wait()) if run is not None else Ended()

    async def _run(self, delivery: Delivery) -> Run | None:
        """The run of a delivery, begun or gone on with; None when it has ended already."""
        key = SessionKey(delivery.key.app, delivery.user, delivery.session_id)
        run_id = ""
        with suppress(NotFound):
            session = await self._runs.stores.sessions.get(key)
            run_id = next((e.invocation_id for e in reversed(session.events) if e.invocation_id), "")
            live = await self._runs.get(run_id)
            if live is not None and live.outcome is None:
                return live
            if run_id and not self._runs.can_go_on(session, run_id):
                return None
        if run_id:
            return await self._runs.start(RunRequest(key=key, invocation_id=run_id))
        _, source, origin, id = delivery.key
        told = {"source": source, "origin": origin, "id": id, "type": delivery.kind}
        request = RunRequest(key=key, message=user_text(delivery.text), state_delta={STATE: told}, create_session=True)
        return await self._runs.start(request)

    def _ended(self, outcome: RunOutcome) -> Ended:
        if outcome.status == "cancelled":
            if self._closing.is_set():
                return Ended(Unavailable(outcome.reason), passing=True)
            return Ended(RunCancelled(f"cancelled: {outcome.reason}"))
        error = outcome.error
        return Ended(error, error is not None and (provider_fault(error) or isinstance(error, Unavailable)))

    def _leased(self, delivery: Delivery) -> Delivery:
        """The delivery, ours until the longest attempt, and the longest wait after it, are over."""
        now = self._now()
        lease_s = self._limits.run_timeout_s + self._retry.longest_s + _SPARE_S
        return structs.replace(delivery, state="running", at_ms=now, lease_ms=now + int(lease_s * 1000))

    def _now(self) -> int:
        return int(self._seams.clock() * 1000)


def _shown(delivery: Delivery) -> str:
    key = delivery.key
    return f"{key.source} message {key.id[:100]!a} of {key.origin[:100]!a} for {key.app!r}"
