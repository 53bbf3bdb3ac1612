"""Artifacts over REST: list, load, save, delete, versions (spec rest 1.2, 1.4). 503 without an artifact store."""

from polyport.data.limits import Limits
from polyport.errors import BadRequest, Unavailable
from polyport.ports.stores import ArtifactStore, Stores
from polyport.protocols.answers import send_empty, send_json
from polyport.protocols.http import Request, Send
from polyport.protocols.rest.sessions import session_key
from polyport.protocols.routes import Route
from polyport.wire.adk import ArtifactBody

_BASE = "/apps/{app}/users/{user}/sessions/{session}/artifacts"


class Artifacts:
    def __init__(self, stores: Stores, limits: Limits) -> None:
        self._stores = stores
        self._limits = limits

    def routes(self) -> list[Route]:
        one = _BASE + "/{name}"
        return [
            Route("GET", _BASE, self.names, summary="The names of a session's artifacts"),
            Route("POST", _BASE, self.save, summary="Save a new version of an artifact", body=ArtifactBody),
            Route("GET", one, self.load, summary="An artifact, the newest version or ?version=N"),
            Route("DELETE", one, self.delete, summary="Delete an artifact with all its versions"),
            Route("GET", one + "/versions", self.versions, summary="The version numbers of an artifact"),
            Route("GET", one + "/versions/{version}", self.load, summary="One version of an artifact"),
            Route("GET", one + "/versions/{version}/metadata", self.metadata, summary="What is known of a version"),
        ]

    @property
    def _store(self) -> ArtifactStore:
        if self._stores.artifacts is None:
            raise Unavailable("artifact service is not configured")
        return self._stores.artifacts

    async def names(self, request: Request, send: Send) -> None:
        await send_json(send, await self._store.names(session_key(request)))

    async def load(self, request: Request, send: Send) -> None:
        version = _version(request)
        await send_json(send, await self._store.load(session_key(request), request.params["name"], version))

    async def save(self, request: Request, send: Send) -> None:
        body = await request.json(ArtifactBody, unknown="drop")
        if not body.filename:
            raise BadRequest("filename is required", "filename")
        if body.artifact is None:
            raise BadRequest("artifact is required", "artifact")
        key = session_key(request)
        await self._stores.sessions.get(key, recent=0)
        version = await self._store.save(key, body.filename, body.artifact, body.custom_metadata)
        found = await self._store.versions(key, body.filename)
        await send_json(send, next(v for v in found if v.version == version))

    async def delete(self, request: Request, send: Send) -> None:
        await self._store.delete(session_key(request), request.params["name"])
        await send_empty(send)

    async def versions(self, request: Request, send: Send) -> None:
        found = await self._store.versions(session_key(request), request.params["name"])
        await send_json(send, [v.version for v in found])

    async def metadata(self, request: Request, send: Send) -> None:
        version = _version(request)
        found = await self._store.versions(session_key(request), request.params["name"])
        match = next((v for v in found if v.version == version), None)
        if match is None:
            await self._store.load(session_key(request), request.params["name"], version)  # says what is missing
        await send_json(send, match)


def _version(request: Request) -> int:
    """The version asked for in the path or the query; 0 (also for "latest") is the newest."""
    text = request.params.get("version") or request.query_text("version")
    if not text or text == "latest":
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise BadRequest("version parameter must be an integer", "version")
    return int(text)
