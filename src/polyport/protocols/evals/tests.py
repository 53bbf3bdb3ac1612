"""Tests of an app over HTTP: recorded sessions, kept as files, played again, and recorded anew (spec rest 10.1)."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from polyport.codec import Data
from polyport.errors import PolyportError
from polyport.evals.folder import AppFolder
from polyport.evals.replay import record, run_test
from polyport.protocols.answers import send_json
from polyport.protocols.evals.place import DEV, Place
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route
from polyport.protocols.streaming import SseStream, pump, unless_gone


class TestBody(Data, frozen=True, kw_only=True):
    """The body that stores a test: a session as REST shows it."""

    session_data: dict[str, Any]


class TestRoutes:
    def __init__(self, place: Place) -> None:
        self._place = place

    def routes(self) -> list[Route]:
        local, one = self._place.local, f"{DEV}/tests/{{name}}"
        which = [("test_name", {"type": "string", "description": "Only this one; all without it"})]
        return [
            Route("GET", f"{DEV}/tests", self.names, admin=True, summary="The tests of an app", returns=list[str]),
            Route("GET", one, self.get, admin=True, summary="A test", returns=dict[str, Any]),
            local("PUT", one, self.put, "Store a test", body=TestBody),
            local("DELETE", one, self.delete, "Delete a test"),
            local("POST", f"{DEV}/tests/rebuild", self.rebuild, "Record tests anew, with the real model", query=which),
            local("POST", f"{DEV}/tests/run", self.run, "Run tests; the answer is text", query=which, streams=True),
        ]

    async def names(self, request: Request, send: Send) -> None:
        await send_json(send, await self._place.read(self._place.folder(request).test_names))

    async def get(self, request: Request, send: Send) -> None:
        await send_json(send, await self._place.read(self._place.folder(request).test, request.params["name"]))

    async def put(self, request: Request, send: Send) -> None:
        body = await request.json(TestBody, unknown="drop")
        await self._place.known(request)
        folder = self._place.folder(request)
        name = await self._place.change(folder.save_test, request.params["name"], body.session_data)
        await send_json(send, {"status": "success", "file": name})

    async def delete(self, request: Request, send: Send) -> None:
        await self._place.change(self._place.folder(request).delete_test, request.params["name"])
        await send_json(send, {"status": "success"})

    async def rebuild(self, request: Request, send: Send) -> None:
        """Nothing is written if one of them cannot be recorded."""
        app, folder = await self._place.known(request), self._place.folder(request)
        recorded: dict[str, dict[str, Any]] = {}
        for name in await self._wanted(request):
            stored = await self._place.read(folder.test, name)
            recorded[name] = await unless_gone(request, partial(record, self._place.subject, app, name, stored))
        for name, session in recorded.items():
            await self._place.change(folder.save_test, name, session)
        await send_json(send, {"status": "success"})

    async def run(self, request: Request, send: Send) -> None:
        """One line for each test as it ends, what is different below it, and a line with the sums. A client that hangs up
        stops the tests."""
        app, names = await self._place.known(request), await self._wanted(request)
        stream = SseStream(send)
        await stream.start(kind=(b"content-type", b"text/plain; charset=utf-8"))
        if await pump(request, stream, self._lines(app, self._place.folder(request), names)) != "gone":
            await stream.close()

    async def _lines(self, app: str, folder: AppFolder, names: list[str]) -> AsyncIterator[bytes]:
        counts: dict[str, int] = {}
        for name in names:
            status, why = await self._outcome(app, name, await self._place.read(_stored, folder, name))
            counts[status] = counts.get(status, 0) + 1
            yield "".join([f"{app}/{name} {status}\n", *(f"    {line}\n" for line in why)]).encode()
        sums = ", ".join(f"{count} {status.lower()}" for status, count in sorted(counts.items())) or "no tests"
        yield f"{sums}\n".encode()

    async def _outcome(self, app: str, name: str, stored: dict[str, Any] | str) -> tuple[str, list[str]]:
        if isinstance(stored, str):
            return "FAILED", [stored]
        outcome = await run_test(self._place.subject, app, name, stored)
        return outcome.status, outcome.why

    async def _wanted(self, request: Request) -> list[str]:
        """NotFound for the name of a test that is not there."""
        folder, name = self._place.folder(request), request.query_text("test_name")
        if not name:
            return await self._place.read(folder.test_names)
        await self._place.read(folder.test, name)
        return [name]


def _stored(folder: AppFolder, name: str) -> dict[str, Any] | str:
    """The session of a test, or why there is none: one bad file does not stop the others."""
    try:
        return folder.test(name)
    except PolyportError as error:
        return str(error)
