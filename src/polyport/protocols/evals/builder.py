"""The YAML editor of the ADK web page: read an agent file, save files or a draft of them, cancel the draft (spec rest 10.1)."""

import email.message
import email.parser
import email.policy
import logging

from polyport.errors import BadRequest
from polyport.evals.folder import AppFolder
from polyport.protocols.answers import send_body, send_json
from polyport.protocols.evals import drafts
from polyport.protocols.evals.place import DEV, Place
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route

log = logging.getLogger("polyport.evals")

MAX_PARTS, MAX_HEAD = 1000, 8192
"""Parts of a form, and bytes of the headers of one."""
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
    """The files of a multipart form: file name -> content. BadRequest. Takes time in proportion to the body only, whatever is
    in it, which the standard library's parser of whole messages does not."""
    head = _headers(f"Content-Type: {kind}".encode("latin-1", "replace"))
    boundary = head.get_boundary() or ""
    if head.get_content_type() != "multipart/form-data" or not boundary or not boundary.isascii():
        raise BadRequest("send the files as multipart/form-data")
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), MAX_PARTS + 2)
    if not parts or not parts[-1].startswith(b"--"):
        raise BadRequest(
            f"the body is not the multipart form that its Content-Type says, or has more than {MAX_PARTS} parts"
        )
    found: dict[str, bytes] = {}
    for part in parts[:-1]:
        words, _, content = part.partition(b"\r\n\r\n")
        if len(words) > MAX_HEAD:
            raise BadRequest(f"the headers of a part of the form are larger than {MAX_HEAD} bytes")
        name = _headers(words.lstrip()).get_filename()
        if name is None:
            continue
        if name in found:
            raise BadRequest(f"the file {name[:100]!r} was sent twice")
        found[name] = content
    return found


def _headers(text: bytes) -> email.message.EmailMessage:
    try:
        return email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(text + b"\r\n\r\n", headersonly=True)
    except Exception as error:  # the parser of the standard library raises all kinds on hostile input
        raise BadRequest(f"the multipart form cannot be read: {type(error).__name__}") from error
