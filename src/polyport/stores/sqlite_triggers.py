"""Deliveries to triggers in the SQLite file of the sessions; several processes may share it. Made by `protocols/triggers`.

Everything is done by the sessions' writer, in its thread: a claim must be one with what it looked at, and the rest is rare.
Never touches the file on the event loop.
"""

from collections.abc import Sequence
from typing import Any, cast

from polyport.errors import NotFound
from polyport.ports.triggers import SHOWN, Delivery, DeliveryKey, DeliveryState, taken_over
from polyport.stores.sqlite_file import Connection
from polyport.stores.sqlite_writer import GroupWriter

_COLUMNS = "app, source, origin, id, user, text, session_id, kind, state, attempts, error, at_ms, lease_ms"
_SELECT = f"SELECT {_COLUMNS} FROM trigger_deliveries"
_KEY = "app = ? AND source = ? AND origin = ? AND id = ?"


class SqliteTriggers:
    """Deliveries in the file of `writer`, which is that of the sessions and is closed with them."""

    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer

    async def claim(self, delivery: Delivery, *, again: bool) -> tuple[bool, Delivery]:
        return await self._writer.do(lambda con: _claim(con, delivery, again))

    async def update(self, delivery: Delivery) -> None:
        await self._writer.do(lambda con: _update(con, delivery))

    async def get(self, app: str, session_id: str) -> Delivery:
        found = await self._select("app = ? AND session_id = ?", (app, session_id))
        if not found:
            raise NotFound(f"there is no delivery {session_id[:100]!r} of app {app!r}")
        return found[0]

    async def dead(self, app: str, limit: int) -> Sequence[Delivery]:
        where = "app = ? AND state = 'dead' ORDER BY at_ms DESC, session_id DESC LIMIT ?"
        return await self._select(where, (app, limit), SHOWN)

    async def stranded(self, now_ms: int, limit: int) -> Sequence[Delivery]:
        where = "state = 'running' AND lease_ms <= ? ORDER BY at_ms, session_id LIMIT ?"
        return await self._select(where, (now_ms, limit), 0)

    async def _select(self, where: str, values: Sequence[Any], shown: int | None = None) -> Sequence[Delivery]:
        """`shown` is how many characters of the texts are read; None is all."""
        select = _SELECT if shown is None else _SELECT.replace(" text,", f" substr(text, 1, {shown}),")

        def query(con: Connection) -> Sequence[Delivery]:
            return [_delivery(row) for row in con.execute(f"{select} WHERE {where}", values)]

        return await self._writer.do(query)

    async def remove(self, app: str, session_id: str) -> None:
        sql = "DELETE FROM trigger_deliveries WHERE app = ? AND session_id = ?"

        def delete(con: Connection) -> None:
            con.execute(sql, (app, session_id))

        await self._writer.do(delete)

    async def forget(self, done_before_ms: int, dead_before_ms: int) -> int:
        old = "(state = 'done' AND at_ms < ?) OR (state = 'dead' AND at_ms < ?)"
        sql = f"DELETE FROM trigger_deliveries WHERE {old} RETURNING 1"
        return await self._writer.do(lambda con: len(list(con.execute(sql, (done_before_ms, dead_before_ms)))))

    async def aclose(self) -> None:
        return None


def _delivery(row: Sequence[Any]) -> Delivery:
    app, source, origin, id, user, text, session_id, kind, state, attempts, error, at_ms, lease_ms = row
    return Delivery(
        key=DeliveryKey(app, source, origin, id),
        user=user,
        text=text,
        session_id=session_id,
        kind=kind,
        state=cast("DeliveryState", state),
        attempts=attempts,
        error=error,
        at_ms=at_ms,
        lease_ms=lease_ms,
    )


def _claim(con: Connection, delivery: Delivery, again: bool) -> tuple[bool, Delivery]:
    row = con.execute(f"{_SELECT} WHERE {_KEY}", delivery.key).get
    if row is None:
        d = delivery
        values = (*d.key, d.user, d.text, d.session_id, d.kind, d.state, d.attempts, d.error, d.at_ms, d.lease_ms)
        marks = ", ".join("?" * len(values))
        con.execute(f"INSERT INTO trigger_deliveries ({_COLUMNS}) VALUES ({marks})", values)
        return True, delivery
    found = _delivery(row)
    mine = taken_over(found, delivery, again=again)
    if mine is None:
        return False, found
    _update(con, mine)
    return True, mine


def _update(con: Connection, delivery: Delivery) -> None:
    d = delivery
    con.execute(
        "UPDATE trigger_deliveries SET state = ?, attempts = ?, error = ?, at_ms = ?, lease_ms = ?,"
        f" text = iif(? = 'done', '', text) WHERE {_KEY} AND state <> 'done'",
        (d.state, d.attempts, d.error, d.at_ms, d.lease_ms, d.state, *d.key),
    )
