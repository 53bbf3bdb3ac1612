"""The YAML editor of the ADK web page: read an agent file, save files or a draft of them, cancel the draft (spec rest 10.1)."""

import email.parser
import email.policy
import logging

from polyport.errors import BadRequest, PolyportError
from polyport.evals.folder import AppFolder
from polyport.protocols.answers import send_body, send_json
from polyport.protocols.evals import drafts
from polyport.protocols.evals.place import DEV, Place
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route

log = logging.getLogger("polyport.evals")

_NO_STORE = (b"cache-control", b"no-store")


class BuilderRoutes:
    def __init__(self, place: Place) -> None:
        self._place = place

    def routes(self) -> list[Route]:
        local = self._place.local
        text, flag = {"type": "string"}, {"type": "boolean"}
        return [
            local(
                "GET",
                f"{DEV}/builder",
                self.get,
                "The text of an agent file; empty if there is none",
                query=[("file_path", text), ("tmp", flag), ("ts", text)],
            ),
            local("POST", f"{DEV}/builder/save", self.save, "Save agent files", query=[("tmp", flag)], returns=bool),
            local("POST", f"{DEV}/builder/cancel", self.cancel, "Throw the draft away", returns=bool),
        ]

    async def get(self, request: Request, send: Send) -> None:
        """200 in any case."""
        folder, tmp = self._place.folder(request), request.query_bool("tmp")
        found = await self._place.read(drafts.read_draft, folder, request.query_text("file_path"), tmp)
        kind = b"application/x-yaml" if found else b"text/plain; charset=utf-8"
        await send_body(send, 200, found, [(b"content-type", kind), _NO_STORE])

    async def save(self, request: Request, send: Send) -> None:
        """`true`; BadRequest for files that may not be saved, `false` when the disk says no."""
        folder, tmp = self._place.folder(request), request.query_bool("tmp")
        body = await request.body()
        kind = request.header("content-type")
        await send_json(send, await self._place.change(_save, folder, kind, body, tmp))

    async def cancel(self, request: Request, send: Send) -> None:
        await self._place.change(drafts.cancel, self._place.folder(request))
        await send_json(send, True)


def _save(folder: AppFolder, kind: str, body: bytes, tmp: bool) -> bool:
    try:
        drafts.save(folder, uploads(kind, body), tmp)
    except OSError as error:
        log.warning("the files of app %s could not be saved: %s", folder.app, error)
        return False
    return True


def uploads(kind: str, body: bytes) -> dict[str, bytes]:
    """The files of a multipart form: file name -> content. BadRequest."""
    if kind.partition(";")[0].strip().lower() != "multipart/form-data" or "\n" in kind or "\r" in kind:
        raise BadRequest("send the files as multipart/form-data")
    head = f"MIME-Version: 1.0\r\nContent-Type: {kind}\r\n\r\n".encode("latin-1")
    try:
        message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
        if not message.is_multipart():
            raise BadRequest("the body is not the multipart form that its Content-Type says")
        found: dict[str, bytes] = {}
        for part in message.iter_parts():
            name = part.get_filename()
            if name is None or part.is_multipart():
                continue
            if name in found:
                raise BadRequest(f"the file {name[:100]!r} was sent twice")
            content = part.get_payload(decode=True)
            found[name] = content if isinstance(content, bytes) else b""
    except PolyportError:
        raise
    except Exception as error:  # the parser of the standard library raises all kinds on hostile input
        raise BadRequest(f"the multipart form cannot be read: {type(error).__name__}") from error
    return found
