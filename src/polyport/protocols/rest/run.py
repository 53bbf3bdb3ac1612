"""Running agents over REST: `/run`, `/run_sse`, and following, cancelling and resuming runs (spec rest 2.1-2.3).

A protocol is only an edge: these handlers decode a request, start or find a run, and spell its feed. They never touch an
agent.
"""

from collections.abc import Sequence
from typing import Self

from msgspec import Struct

from polyport.data.content import Content
from polyport.data.limits import Limits
from polyport.data.run import RunConfig, RunOutcome, RunRequest
from polyport.data.session import SessionKey
from polyport.engine.resume import shown
from polyport.errors import BadRequest, Conflict, Forbidden, ModelError, NotFound, PolyportError, RunCancelled, TimedOut
from polyport.ports.runs import FeedItem, Run, Runs
from polyport.protocols.answers import error_frame, send_json
from polyport.protocols.http import Request, Send
from polyport.protocols.rest.openapi import Query, needs
from polyport.protocols.routes import Route
from polyport.protocols.streaming import UNWATCHED_S, SseStream, attached_run, pump, unless_gone
from polyport.wire import sse
from polyport.wire.adk import EventShape, RunBody, clean_message, encode_event

SHAPE = "rest"
_RUN = needs(RunBody, "appName", "userId", "sessionId")
_DETACH: Query = ("detach", {"type": "boolean", "description": "Whether the run goes on when the caller hangs up"})


class RunStarted(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a detached or cancelled run looks like to a caller."""

    invocation_id: str
    status: str
    reason: str = ""


class CancelBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: str = ""


class RunRoutes:
    def __init__(self, runs: Runs, limits: Limits) -> None:
        self._runs = runs
        self._limits = limits

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/run",
                self.run,
                summary="Run an agent and wait for all its events",
                body=_RUN,
                returns={200: list[EventShape], 202: RunStarted},
                query=(_DETACH,),
            ),
            Route(
                "POST",
                "/run_sse",
                self.run_sse,
                summary="Run an agent and stream its events",
                body=_RUN,
                streams=True,
                query=(_DETACH,),
            ),
            Route("GET", "/runs/{run}", self.status, summary="How a run is doing", returns=RunStarted),
            Route(
                "GET",
                "/runs/{run}/events",
                self.follow,
                summary="Follow a run, from an earlier event on",
                streams=True,
                query=(("after", {"type": "string", "description": "The id of the last frame that was seen"}),),
            ),
            Route(
                "POST",
                "/runs/{run}:cancel",
                self.cancel,
                summary="Stop a run",
                body=CancelBody | None,
                returns=RunStarted,
            ),
        ]

    async def _start(self, request: Request, *, detach: bool) -> Run:
        body = await request.json(RunBody)
        asked = run_request(body)
        await request.act_as(asked.key.user, asked.key.app)
        await request.change_state(asked.key.app, asked.state_delta)
        run = await (self._runs.start(asked) if detach else attached_run(request, self._runs, asked))
        request.run_id = run.id
        return run

    async def run(self, request: Request, send: Send) -> None:
        """All events of the run in one array; with `?detach=true` 202 and the run's id at once."""
        detach = request.query_bool("detach")
        try:
            run = await self._start(request, detach=detach)
        except BadRequest as error:
            raise BadRequest(f"failed to decode request: {error}", error.field) from None
        except NotFound as error:
            raise NotFound(_prefixed("failed to get session: ", error)) from None
        if detach:
            return await send_json(send, RunStarted(invocation_id=run.id, status="running"), 202)
        async with run.watching():
            if not await run.ends_within(UNWATCHED_S):
                await unless_gone(request, run.wait)
        outcome = run.outcome
        assert outcome is not None
        if outcome.status == "failed" or outcome.status == "cancelled":
            raise failure(outcome, "failed to run agent: ")
        events = [item.bytes(SHAPE, encode_event) for item in run.read(0)]
        await send_json(send, b"[" + b",".join(events) + b"]", headers=[_run_header(run)])

    async def run_sse(self, request: Request, send: Send) -> None:
        """The run's events as server-sent events. With `?detach=true` the run outlives the connection, and each frame has
        an id to go on from."""
        detach = request.query_bool("detach")
        try:
            run = await self._start(request, detach=detach)
        except BadRequest as error:
            raise BadRequest(f"failed to decode request body: failed to decode request: {error}", error.field) from None
        except NotFound as error:
            raise NotFound(_prefixed("failed to find the session: failed to get session: ", error)) from None
        await self._stream(request, send, run, 0, ids=detach)

    async def _stream(
        self, request: Request, send: Send, run: Run, after: int, *, ids: bool, first: bytes = b""
    ) -> None:
        stream = SseStream(send)
        async with run.watching():
            await stream.start([_run_header(run)])
            if first:
                await stream.send(first)
            frames = _Frames(run, after, ids)
            ended = await pump(
                request,
                stream,
                frames,
                nudge=frames.nudge,
                heartbeat_s=self._limits.heartbeat_s,
                timeout_s=self._limits.sse_deadline_s,
            )
            if ended == "gone":
                return
            if ended == "timeout":
                limit = self._limits.sse_deadline_s
                await stream.send(
                    error_frame(TimedOut(f"timeout: the stream was open for {limit:g} s (sse_timeout_s)"))
                )
            elif run.outcome is not None and run.outcome.status in ("failed", "cancelled"):
                await stream.send(error_frame(failure(run.outcome, "")))
            await stream.close()

    async def follow(self, request: Request, send: Send) -> None:
        """Replay the run from after `Last-Event-ID` (or `?after=`), then follow it. What a run did before it went on, and a
        run that ended long ago, is replayed from the session store: the stored events, without partial ones."""
        run_id = request.params["run"]
        request.run_id = run_id
        offset, stored, base = _cursor(request.header("last-event-id") or request.query_text("after"))
        key = await self._own_run(request)
        run = await self._runs.get(run_id)
        if run is not None and run.base == base:
            return await self._stream(request, send, run, min(offset, run.offset), ids=True)
        session = await self._runs.stores.sessions.get(key)
        events = [e for e in session.events if e.invocation_id == run_id and shown(e)]
        missed = list(enumerate(events[: run.base] if run is not None else events, 1))[stored:]
        frames = b"".join([sse.frame(encode_event(e), id=f"{n}.{n}") for n, e in missed])
        if run is not None:
            return await self._stream(request, send, run, 0, ids=True, first=frames)
        stream = SseStream(send)
        await stream.start([(b"x-run-id", run_id.encode())])
        if frames:
            await stream.send(frames)
        await stream.close()

    async def _own_run(self, request: Request) -> SessionKey:
        """The session of the run that the path names. NotFound also for a run of somebody else, who alone needs to know that
        it is there."""
        run_id = request.params["run"]
        run = await self._runs.get(run_id)
        key = run.key if run is not None else await self._runs.stores.sessions.find_run(run_id)
        try:
            if key is not None:
                await request.act_as(key.user, key.app)
                return key
        except Forbidden:
            pass
        raise NotFound(f"there is no run {run_id!r}")

    async def status(self, request: Request, send: Send) -> None:
        """`{"invocationId", "status", "reason"?}`; status is running, finished, paused, failed or cancelled; of a run of
        which only the stored events are left, `stopped` when it may be resumed (POST /run with its id), else `ended`."""
        run_id = request.params["run"]
        key = await self._own_run(request)
        run = await self._runs.get(run_id)
        if run is None:
            session = await self._runs.stores.sessions.get(key)
            status = "stopped" if self._runs.can_go_on(session, run_id) else "ended"
            return await send_json(send, RunStarted(invocation_id=run_id, status=status))
        outcome = run.outcome
        if outcome is None:
            return await send_json(send, RunStarted(invocation_id=run_id, status="running"))
        await send_json(send, RunStarted(invocation_id=run_id, status=outcome.status, reason=outcome.reason))

    async def cancel(self, request: Request, send: Send) -> None:
        """Stop a run and wait for its clean-up. 409 when it has ended already."""
        run_id = request.params["run"]
        request.run_id = run_id
        body = await request.json(CancelBody, empty=CancelBody())
        await self._own_run(request)
        if await self._runs.cancel(run_id, body.reason or "cancelled by the caller"):
            return await self.status(request, send)
        raise Conflict(f"run {run_id!r} has ended already; there is nothing to cancel")


def run_request(body: RunBody) -> RunRequest:
    """The run that a body asks for. BadRequest naming what is missing."""
    for name, value in (("appName", body.app_name), ("userId", body.user_id), ("sessionId", body.session_id)):
        if not value:
            raise BadRequest(f"{name} is required", name)
    message: Content | None = None
    if body.new_message is not None and body.new_message.parts:
        message = clean_message(body.new_message)
    elif not body.invocation_id:
        raise BadRequest("newMessage is required (with parts), or invocationId to go on with a run", "newMessage")
    return RunRequest(
        key=SessionKey(body.app_name, body.user_id, body.session_id),
        message=message,
        invocation_id=body.invocation_id,
        state_delta=body.state_delta or {},
        config=RunConfig(
            streaming=body.streaming,
            save_input_blobs=body.save_input_blobs_as_artifacts,
            metadata=body.custom_metadata or {},
        ),
    )


def failure(outcome: RunOutcome, prefix: str) -> Exception:
    """The error that a run which did not finish is for its caller."""
    if outcome.status == "cancelled":
        return RunCancelled(f"the run was cancelled: {outcome.reason}")
    error = outcome.error or RunCancelled(outcome.reason)
    if prefix and isinstance(error, ModelError):
        return ModelError(prefix + str(error), http_status=error.http_status, code=error.code)
    return error


class _Frames:
    """The frames of a run after an offset, joined: events that are there together leave together."""

    def __init__(self, run: Run, after: int, ids: bool) -> None:
        self._run = run
        self._after = after
        self._ids = ids
        self._nudged = False

    def nudge(self) -> None:
        """See `pump`."""
        self._nudged = True
        self._run.stir()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        run = self._run
        while not (items := run.read(self._after)):
            if run.outcome is not None:
                raise StopAsyncIteration
            if self._nudged:
                self._nudged = False
                return b""
            await run.stirred()
        self._after = items[-1].offset
        return _batch(items, run.base, self._ids)


def _batch(items: Sequence[FeedItem], base: int, ids: bool) -> bytes:
    if ids:
        life = f".{base}" if base else ""
        return b"".join(sse.frame(i.bytes(SHAPE, encode_event), id=f"{i.offset}.{i.stored}{life}") for i in items)
    return b"".join([b"data: " + i.bytes(SHAPE, encode_event) + b"\n\n" for i in items])


def _cursor(text: str) -> tuple[int, int, int]:
    """`offset.stored` of the last frame that a client has seen, with `.base` if the run had gone on; zeros for none. `offset`
    counts within the feed of that `base`, `stored` within the whole run."""
    numbers = text.split(".") if text else []
    if len(numbers) > 3 or not all(n.isascii() and n.isdigit() and len(n) < 18 for n in numbers):
        raise BadRequest(f"Last-Event-ID {text[:40]!r} is not one that this server gave", "Last-Event-ID")
    offset, stored, base = [*map(int, numbers), 0, 0, 0][:3]
    return offset, stored, base


def _run_header(run: Run) -> tuple[bytes, bytes]:
    return b"x-run-id", run.id.encode()


def _prefixed(prefix: str, error: PolyportError) -> str:
    text = str(error)
    return text if text.startswith("failed to") else prefix + text
