"""Live as part of an app: `App(protocols=["rest", Live()])`, one route, and how many sessions may be open (spec rest 2.4).

What is checked before a connection is taken becomes an HTTP status, what comes later a close code. Never touches an agent.
"""

from dataclasses import dataclass, field
from functools import partial

from polyport.data.live import LiveConfig
from polyport.data.run import RunConfig, RunRequest
from polyport.data.session import SessionKey
from polyport.errors import BadRequest, Unavailable
from polyport.protocols.answers import close_reason
from polyport.protocols.http import Request, Send
from polyport.protocols.live.connection import Connection, begun
from polyport.protocols.parts import Parts, Still
from polyport.protocols.routes import Route
from polyport.wire.adk_live import MODALITIES, read_config

PATH = "/run_live"
POLICY, BROKEN = 1008, 1011
"""Close codes: what the client asked for is wrong; the session cannot go on."""

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
QUERY = (
    ("appName", {**_TEXT, "description": "The app; also app_name"}),
    ("userId", {**_TEXT, "description": "The user; also user_id"}),
    ("sessionId", {**_TEXT, "description": "A session that exists; also session_id"}),
    (
        "modalities",
        {"type": "string", "enum": list(MODALITIES), "description": "What the model answers with; repeatable"},
    ),
    ("activity", {"type": "string", "enum": ["automatic", "manual"], "description": "Who says when the user speaks"}),
    ("voice", _TEXT),
    ("language", _TEXT),
    ("proactive_audio", _FLAG),
    ("enable_affective_dialog", _FLAG),
    ("enable_session_resumption", _FLAG),
    ("explicit_vad_signal", _FLAG),
    ("save_live_blob", {**_FLAG, "description": "Whether sound is kept as artifacts"}),
)


@dataclass(frozen=True, kw_only=True)
class Live:
    """Live sessions, for `App(protocols=[...])`. `config` is how sessions are, unless the query of a handshake differs."""

    config: LiveConfig = field(default_factory=LiveConfig)

    def mount(self, parts: Parts) -> "LiveServer":
        return LiveServer(self, parts)


class LiveServer(Still):
    """See the module. `open` is how many connections there are now."""

    def __init__(self, options: Live, parts: Parts) -> None:
        self._options = options
        self._parts = parts
        self.open = 0

    def routes(self) -> list[Route]:
        return [Route("WEBSOCKET", PATH, self.live, summary="Talk with an agent, both at the same time", query=QUERY)]

    async def live(self, request: Request, send: Send) -> None:
        """One connection, from its handshake to its close. 400 for a missing id, 403 for another user's, 503 when there are too
        many; later a close code and its reason."""
        app = request.query_text("appName", "app_name")
        user = request.query_text("userId", "user_id")
        session = request.query_text("sessionId", "session_id")
        if not (app and user and session):
            raise BadRequest("appName, userId, and sessionId are required")
        await request.act_as(user, app)
        limit = self._parts.limits.max_live_sessions
        if self.open >= limit:
            raise Unavailable(f"live session limit of {limit} reached")
        self.open += 1
        try:
            await request.receive()
            await send({"type": "websocket.accept"})
            code, reason = await self._serve(request, send, SessionKey(app, user, session))
            if code:
                await send({"type": "websocket.close", "code": code, "reason": close_reason(reason)})
        finally:
            self.open -= 1

    async def _serve(self, request: Request, send: Send, key: SessionKey) -> tuple[int, str]:
        """The code and reason to close with; 0 when the client has closed."""
        trees = self._parts.trees
        try:
            config = read_config(request.query, self._options.config)
        except BadRequest as error:
            return POLICY, str(error)
        if key.app not in trees:
            known = ", ".join(await request.usable(sorted(trees)))
            return BROKEN, f"agent {key.app[:50]} not found for original error: the apps are: {known}"
        asked = RunRequest(key=key, config=RunConfig(streaming=True, live=config))
        run, early = await begun(request, partial(self._parts.runs.start, asked, attached=True))
        request.run_id = run.id
        connection = Connection(request, send, run, early, trees[key.app].root.name)
        async with run.watching():
            return await connection.talk()
