"""Artifacts in PostgreSQL, beside the sessions, so that all servers on one database have them.

Made by `open_stores` when no other place for artifacts is named. Each version is one row; a file must fit into memory, and into
the 1 GB that PostgreSQL takes at most. For large files a folder that all servers share is the better place.
"""

from typing import Any

import msgspec

from polyport.codec import decode, encode
from polyport.data.content import Blob, Part
from polyport.data.session import SessionKey
from polyport.ports.stores import ArtifactVersion
from polyport.seams import REAL, Seams
from polyport.stores import artifact_rules as rules
from polyport.stores.postgres_database import PostgresDatabase

_PLACE = "app = $1 AND user_id = $2 AND session = $3 AND name = $4"
_SAVE = """
WITH next AS (
    INSERT INTO polyport_artifact_names VALUES ($1, $2, $3, $4, 1)
        ON CONFLICT (app, user_id, session, name) DO UPDATE SET last = polyport_artifact_names.last + 1 RETURNING last
)
INSERT INTO polyport_artifacts (app, user_id, session, name, version, created_at, about, metadata, data)
    SELECT $1, $2, $3, $4, next.last, $5, $6, $7, $8 FROM next RETURNING version
"""
_LOAD = (
    f"SELECT about, data FROM polyport_artifacts WHERE {_PLACE} AND ($5::bigint = 0 OR version = $5)"
    " ORDER BY version DESC LIMIT 1"
)
_DELETE = f"DELETE FROM polyport_artifacts WHERE {_PLACE} AND ($5::bigint = 0 OR version = $5)"
_NAMES = (
    "SELECT name FROM polyport_artifact_names AS n WHERE app = $1 AND user_id = $2 AND session IN ($3, '')"
    " AND EXISTS (SELECT FROM polyport_artifacts AS a WHERE (a.app, a.user_id, a.session, a.name)"
    " = (n.app, n.user_id, n.session, n.name)) ORDER BY name"
)
_VERSIONS = f"SELECT version, created_at, about, metadata FROM polyport_artifacts WHERE {_PLACE} ORDER BY version"


class PostgresArtifacts:
    """Artifacts in `database`, which is closed with its sessions."""

    def __init__(self, database: PostgresDatabase, *, seams: Seams = REAL) -> None:
        self._database = database
        self._seams = seams

    async def save(self, key: SessionKey, name: str, part: Part, custom_metadata: dict[str, Any] | None = None) -> int:
        shelf, kept, metadata = rules.to_save(key, name, part, custom_metadata)
        blob = kept.inline_data
        about = "" if blob is None else encode(msgspec.structs.replace(blob, data=b"")).decode()
        data = (kept.text or "").encode() if blob is None else bytes(blob.data)
        values = (*_where(shelf, name), self._seams.clock(), about, encode(metadata).decode(), data)
        return await self._database.write(lambda con: con.fetchval(_SAVE, *values))

    async def load(self, key: SessionKey, name: str, version: int = 0) -> Part:
        where = _where(rules.shelf_of(key, name, version), name)
        row = None
        if version < 1 << 63:
            row = await self._database.read(lambda con: con.fetchrow(_LOAD, *where, version))
        if row is None:
            raise rules.no_artifact(name, version)
        if not row["about"]:
            return Part(text=row["data"].decode())
        return Part(inline_data=msgspec.structs.replace(decode(row["about"], Blob), data=row["data"]))

    async def delete(self, key: SessionKey, name: str, version: int = 0) -> None:
        where = _where(rules.shelf_of(key, name, version), name)
        if version < 1 << 63:
            await self._database.write(lambda con: con.execute(_DELETE, *where, version))

    async def names(self, key: SessionKey) -> list[str]:
        shelf, _ = rules.shelves(key)
        rows = await self._database.read(lambda con: con.fetch(_NAMES, shelf.app, shelf.user, shelf.session))
        return [row["name"] for row in rows]

    async def versions(self, key: SessionKey, name: str) -> list[ArtifactVersion]:
        shelf = rules.shelf_of(key, name)
        rows = await self._database.read(lambda con: con.fetch(_VERSIONS, *_where(shelf, name)))
        return [
            ArtifactVersion(
                version=row["version"],
                mime_type=decode(row["about"], Blob).mime_type if row["about"] else "text/plain",
                canonical_uri=rules.canonical_uri(shelf, name, row["version"]),
                create_time=row["created_at"],
                custom_metadata=msgspec.json.decode(row["metadata"]),
            )
            for row in rows
        ]

    async def aclose(self) -> None:
        return None


def _where(shelf: rules.Shelf, name: str) -> tuple[str, str, str, str]:
    return (shelf.app, shelf.user, shelf.session or "", name)
