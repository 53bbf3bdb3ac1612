"""Deliveries to triggers in PostgreSQL, beside the sessions; several processes may share them. Made by `protocols/triggers`.

A claim is one statement, so that of two at once one wins.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from polyport.codec import encode
from polyport.errors import NotFound
from polyport.ports.triggers import SHOWN, Delivery, DeliveryKey
from polyport.stores.postgres_database import PostgresDatabase

_COLUMNS = "app, source, origin, id, user_id, text, session_id, kind, state, attempts, error, at_ms, lease_ms"
_SELECT = f"SELECT {_COLUMNS} FROM polyport_trigger_deliveries"
_CLAIM = f"""
INSERT INTO polyport_trigger_deliveries AS d (digest, {_COLUMNS})
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    ON CONFLICT (digest) DO UPDATE SET state = 'running', error = '', at_ms = excluded.at_ms, lease_ms = excluded.lease_ms,
        attempts = CASE WHEN d.state = 'dead' THEN 0 ELSE d.attempts END
    WHERE $15 AND (d.state = 'dead' OR (d.state = 'running' AND d.lease_ms <= excluded.at_ms))
    RETURNING {_COLUMNS}
"""
_UPDATE = (
    "UPDATE polyport_trigger_deliveries SET state = $2, attempts = $3, error = $4, at_ms = $5, lease_ms = $6,"
    " text = CASE WHEN $2 = 'done' THEN ''::bytea ELSE text END WHERE digest = $1 AND state <> 'done'"
)
_FORGET = (
    "DELETE FROM polyport_trigger_deliveries WHERE (state = 'done' AND at_ms < $1) OR (state = 'dead' AND at_ms < $2)"
    " RETURNING 1"
)


class PostgresTriggers:
    """Deliveries in `database`, which is closed with its sessions."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def claim(self, delivery: Delivery, *, again: bool) -> tuple[bool, Delivery]:
        d = delivery
        key, about = _digest(d.key), (d.user, d.text.encode(), d.session_id, d.kind, d.state, d.attempts)
        values = (key, *d.key, *about, _text(d.error), d.at_ms, d.lease_ms, again)
        row = await self._database.write(lambda con: con.fetchrow(_CLAIM, *values))
        if row is not None:
            return True, _delivery(row)
        found = await self._select("digest = $1", key)
        if not found:  # it was forgotten between the two
            return await self.claim(delivery, again=again)
        return False, found[0]

    async def update(self, delivery: Delivery) -> None:
        d = delivery
        values = (_digest(d.key), d.state, d.attempts, _text(d.error), d.at_ms, d.lease_ms)
        await self._database.write(lambda con: con.execute(_UPDATE, *values))

    async def get(self, app: str, session_id: str) -> Delivery:
        found = await self._select("app = $1 AND session_id = $2", app, session_id)
        if not found:
            raise NotFound(f"there is no delivery {session_id[:100]!r} of app {app!r}")
        return found[0]

    async def dead(self, app: str, limit: int) -> Sequence[Delivery]:
        where = "app = $1 AND state = 'dead' ORDER BY at_ms DESC, session_id DESC LIMIT $2"
        return await self._select(where, app, limit, shown=SHOWN)

    async def stranded(self, now_ms: int, limit: int) -> Sequence[Delivery]:
        where = "state = 'running' AND lease_ms <= $1 ORDER BY at_ms, session_id LIMIT $2"
        return await self._select(where, now_ms, limit, shown=0)

    async def _select(self, where: str, *values: Any, shown: int | None = None) -> Sequence[Delivery]:
        """`shown` is how many characters of the texts are given; None is all."""
        # one character has 4 bytes at most: what is read is cut, what is given is cut exactly
        select = _SELECT if shown is None else _SELECT.replace(" text,", f" substr(text, 1, {4 * shown}) AS text,")
        rows = await self._database.read(lambda con: con.fetch(f"{select} WHERE {where}", *values))
        return [_delivery(row, shown) for row in rows]

    async def remove(self, app: str, session_id: str) -> None:
        sql = "DELETE FROM polyport_trigger_deliveries WHERE app = $1 AND session_id = $2"
        await self._database.write(lambda con: con.execute(sql, app, session_id))

    async def forget(self, done_before_ms: int, dead_before_ms: int) -> int:
        return len(await self._database.write(lambda con: con.fetch(_FORGET, done_before_ms, dead_before_ms)))

    async def aclose(self) -> None:
        return None


def _digest(key: DeliveryKey) -> bytes:
    return hashlib.blake2b(encode(key), digest_size=16).digest()


def _text(error: str) -> str:
    """What PostgreSQL's text can hold of the words of an error."""
    return error.encode("utf-8", "replace").decode().replace("\0", "?")


def _delivery(row: Any, shown: int | None = None) -> Delivery:
    return Delivery(
        key=DeliveryKey(row["app"], row["source"], row["origin"], row["id"]),
        user=row["user_id"],
        text=row["text"].decode("utf-8", "ignore")[:shown],
        session_id=row["session_id"],
        kind=row["kind"],
        state=row["state"],
        attempts=row["attempts"],
        error=row["error"],
        at_ms=row["at_ms"],
        lease_ms=row["lease_ms"],
    )
