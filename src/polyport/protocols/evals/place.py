"""What the eval routes share: the folders of the apps, one writer at a time, and who may change something.

Used by all route groups of the package. Work on files is done in worker threads.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio

from polyport.errors import Forbidden
from polyport.evals.folder import AppFolder
from polyport.evals.playing import Subject
from polyport.protocols.guard import Guard
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Handler, Route

T = TypeVar("T")
DEV = "/dev/apps/{app}"
OLD = "/apps/{app}"
_STRICT = Guard()
"""For servers whose own guard lets every page through: pages of other sites must not change files here."""


class Place:
    def __init__(self, root: Path, subject: Subject, guard: Callable[[], Guard]) -> None:
        self._root = root
        self.subject = subject
        self._guard = guard
        self._writing = anyio.Lock()

    def folder(self, request: Request) -> AppFolder:
        """The folder of the app in the path, which need not exist. BadRequest for a name that is a path."""
        return AppFolder.below(self._root, request.params["app"])

    async def known(self, request: Request) -> str:
        """The name of the app in the path. NotFound if it is not served here."""
        app = request.params["app"]
        if app not in self.subject.trees:
            raise await request.no_app(app, self.subject.trees)
        return app

    async def read(self, work: Callable[..., T], *args: Any) -> T:
        return await anyio.to_thread.run_sync(work, *args)

    async def change(self, work: Callable[..., T], *args: Any) -> T:
        """Like `read`, one after the other; not broken off in the middle, for a worker thread is waited for."""
        async with self._writing:
            return await anyio.to_thread.run_sync(work, *args)

    def local(self, method: str, pattern: str, handler: Handler, summary: str, **more: Any) -> Route:
        """A route for programs on this machine only (spec rest 10.1, "L"); Forbidden for others."""

        async def guarded(request: Request, send: Send) -> None:
            if not request.loopback:
                raise Forbidden("this is only for programs on the machine of the server (a loopback client)")
            if self._guard().is_open:
                _STRICT.check_host(request)
                _STRICT.check_origin(request, False)
            await handler(request, send)

        return Route(method, pattern, guarded, admin=True, summary=summary, **more)
