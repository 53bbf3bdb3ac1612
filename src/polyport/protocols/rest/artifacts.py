"""Artifacts over REST: list, load, save, delete, versions (spec rest 1.2, 1.4). 503 without an artifact store."""

from typing import Any

from polyport.data.content import Part
from polyport.data.limits import Limits
from polyport.errors import BadRequest, NotFound, Unavailable
from polyport.ports.stores import ArtifactStore, ArtifactVersion, Stores
from polyport.protocols.answers import send_empty, send_json
from polyport.protocols.http import Request, Send
from polyport.protocols.rest.openapi import Query, needs
from polyport.protocols.rest.sessions import session_key
from polyport.protocols.routes import Route
from polyport.wire.adk import ArtifactBody

_BASE = "/apps/{app}/users/{user}/sessions/{session}/artifacts"
_ONE = _BASE + "/{name}"
_VERSION: Query = ("version", {"type": "string", "description": 'A number from 1 on; 0 or "latest" is the newest'})


class Artifacts:
    def __init__(self, stores: Stores, limits: Limits) -> None:
        self._stores = stores
        self._limits = limits

    def routes(self) -> list[Route]:
        def get(pattern: str, handler: Any, summary: str, returns: Any, *query: Query) -> Route:
            return Route("GET", pattern, handler, summary=summary, returns=returns, query=query)

        save = needs(ArtifactBody, "filename", "artifact")
        about, versions = ArtifactVersion, _ONE + "/versions"
        return [
            get(_BASE, self.names, "The names of a session's artifacts, and of its user's", list[str]),
            Route(
                "POST",
                _BASE,
                self.save,
                summary="Save a new version of an artifact",
                body=save,
                returns=ArtifactVersion,
            ),
            get(_ONE, self.load, "An artifact, the newest version or ?version=N", Part, _VERSION),
            Route("DELETE", _ONE, self.delete, summary="Delete an artifact with all its versions"),
            get(versions, self.versions, "The version numbers of an artifact", list[int]),
            get(versions + "/metadata", self.all_metadata, "What is known of all versions", list[about]),
            get(versions + "/{version}", self.load, "One version of an artifact", Part),
            get(versions + "/{version}/metadata", self.metadata, "What is known of a version", about),
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
        """The artifact is a part with text or inline data. Its session must exist. Answers with the new version."""
        store = self._store
        body = await request.json(ArtifactBody, unknown="drop")
        if not body.filename:
            raise BadRequest("filename is required", "filename")
        if body.artifact is None:
            raise BadRequest("artifact is required", "artifact")
        key = session_key(request)
        await self._stores.sessions.get(key, recent=0)
        version = await store.save(key, body.filename, body.artifact, body.custom_metadata)
        found = await store.versions(key, body.filename)
        # somebody else may have deleted it by now, which does not make this save a failure
        await send_json(send, _of_version(found, version) or ArtifactVersion(version=version))

    async def delete(self, request: Request, send: Send) -> None:
        """Also 200 if there is none."""
        await self._store.delete(session_key(request), request.params["name"])
        await send_empty(send)

    async def versions(self, request: Request, send: Send) -> None:
        """Oldest first; empty if there is no such artifact."""
        await send_json(send, [v.version for v in await self._versions(request)])

    async def all_metadata(self, request: Request, send: Send) -> None:
        """Oldest first; empty if there is no such artifact."""
        await send_json(send, await self._versions(request))

    async def metadata(self, request: Request, send: Send) -> None:
        version = _version(request)
        found = _of_version(await self._versions(request), version)
        if found is None:
            raise NotFound(f"no artifact {request.params['name']!r}" + (f" of version {version}" if version else ""))
        await send_json(send, found)

    async def _versions(self, request: Request) -> list[ArtifactVersion]:
        return await self._store.versions(session_key(request), request.params["name"])


def _of_version(found: list[ArtifactVersion], version: int) -> ArtifactVersion | None:
    """That version, the newest for 0; None if there is none."""
    if not version:
        return found[-1] if found else None
    return next((v for v in found if v.version == version), None)


def _version(request: Request) -> int:
    """The version asked for in the path or the query; 0 (also for "latest") is the newest."""
    text = request.params.get("version") or request.query_text("version")
    if not text or text == "latest":
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise BadRequest("version parameter must be an integer", "version")
    return int(text)
