"""From an HTTP answer to what the model sees.

Called by the OpenAPI tool. JSON stays JSON, text stays text, other bytes become an artifact; whatever is not a success is an
error result with the status and a bounded body.
"""

import mimetypes
import re
from email.message import Message
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import msgspec

from polyport import codec
from polyport.data.content import Blob, Part
from polyport.errors import BadRequest
from polyport.ports.agent import ToolContext
from polyport.tools.credentials import struck
from polyport.tools.json_schema import is_map
from polyport.tools.openapi_names import is_json, is_text, kind_of_media
from polyport.tools.rest_call import Answer

ERROR_CHARS = 4_000
"""Characters of the body that an error result shows."""

_NO_JSON = object()


class Results:
    """Makes the results of one tool."""

    def __init__(self, name: str, where: str, max_bytes: int) -> None:
        self.name = name
        self.where = where
        self.max_bytes = max_bytes

    async def of(self, ctx: ToolContext, answer: Answer, secrets: set[str]) -> Any:
        """The result of a call; never None. `secrets` are struck out wherever the API repeats them."""
        if not 200 <= answer.status < 300:
            return struck(self._error(answer), secrets)
        if answer.cut:
            return self._refusal(answer, f"answered more than {self.max_bytes} bytes; ask for less")
        if not answer.body:
            return {"status": answer.status}
        media = answer.headers.get("content-type", "")
        data = _json(answer.body) if is_json(media) or not media else _NO_JSON
        if data is not _NO_JSON:
            return struck(data if is_map(data) else {"result": data}, secrets)
        if is_json(media):
            return struck(
                {**self._refusal(answer, "answered with JSON that cannot be read"), "body": _shown(answer)}, secrets
            )
        if is_text(media) or (not media and _is_utf8(answer.body)):
            return struck({"result": _text(answer)}, secrets)
        return await self._file(ctx, answer, media)

    def _refusal(self, answer: Answer, what: str) -> dict[str, Any]:
        return {"error": f"{self.where}: the API {what}", "status": answer.status}

    def _error(self, answer: Answer) -> dict[str, Any]:
        try:
            reason = f" {HTTPStatus(answer.status).phrase}"
        except ValueError:
            reason = ""
        out = self._refusal(answer, f"answered {answer.status}{reason}")
        if 300 <= answer.status < 400 and "location" in answer.headers:
            host = urlsplit(answer.headers["location"]).netloc.rpartition("@")[2]
            out["error"] += f", a redirect{f' to {host}' if host else ''} that is not followed"
        if "retry-after" in answer.headers:
            out["retry_after"] = answer.headers["retry-after"]
        if answer.body:
            out["body"] = _shown(answer)
        return out

    async def _file(self, ctx: ToolContext, answer: Answer, media: str) -> dict[str, Any]:
        """Bytes become an artifact of the session."""
        kind = kind_of_media(media) or "application/octet-stream"
        if ctx.scope.stores.artifacts is None:
            return self._refusal(
                answer, f"answered with {kind}, which can only be kept as an artifact; the app has no store"
            )
        name = _file_name(answer.headers.get("content-disposition", ""), self.name, kind)
        version = await ctx.save_artifact(name, Part(inline_data=Blob(mime_type=kind, data=answer.body)))
        return {"artifact": name, "version": version, "mime_type": kind, "bytes": len(answer.body)}


def _json(body: bytes) -> Any:
    try:
        codec.check_depth(body)
        return msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadRequest):
        return _NO_JSON


def _shown(answer: Answer) -> Any:
    """The body of an error: JSON as data if it is short, else as much of the text as is shown."""
    media = answer.headers.get("content-type", "")
    data = _json(answer.body) if is_json(media) and len(answer.body) <= ERROR_CHARS else _NO_JSON
    if data is not _NO_JSON:
        return data
    if not (is_json(media) or is_text(media) or not media):
        return f"{len(answer.body)} bytes of {kind_of_media(media)}"
    text = _text(answer)
    return text if len(text) <= ERROR_CHARS else f"{text[:ERROR_CHARS]} ..."


def _text(answer: Answer) -> str:
    message = Message()
    message["content-type"] = answer.headers.get("content-type", "")
    charset = message.get_content_charset() or "utf-8"
    try:
        return answer.body.decode(charset, "replace")
    except LookupError:
        return answer.body.decode("utf-8", "replace")


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in body


def _file_name(disposition: str, tool: str, kind: str) -> str:
    """A name for an artifact: what the API says, without what artifact names may not have, or the tool's."""
    message = Message()
    message["content-disposition"] = disposition
    said = re.sub(r"[^\w .()-]+", "_", (message.get_filename() or "").rpartition("/")[2]).strip(" ._")[:200]
    return said or f"{tool}{mimetypes.guess_extension(kind) or '.bin'}"
