"""`load_artifacts`: lets a model look at the session's artifacts (spec core 6.5, statement 116).

Used in `LlmAgent(tools=[load_artifacts])`. The call answers with names only; the request that carries this answer to the model
gets the artifacts themselves behind it, so that they are in no event and no later prompt. Needs an artifact store.
"""

import logging
from collections.abc import Iterable
from typing import Any, cast

from polyport.codec import encode
from polyport.data.content import Content, Part
from polyport.data.model import ModelRequest, ToolDeclaration
from polyport.errors import BadRequest, ConfigError, NotFound, Unavailable
from polyport.ports.agent import CallbackContext, Tool, ToolContext
from polyport.tools.blocks import add_instruction

log = logging.getLogger("polyport.tools")

MAX_REQUEST_BYTES = 20 * 1024 * 1024
"""How many bytes of artifacts one request may get."""

_SEEN_BY_MODELS = ("image/", "audio/", "video/", "application/pdf")
_TEXTS = frozenset(("json", "xml", "yaml", "javascript", "csv", "sql", "toml", "x-sh"))


class LoadArtifacts(Tool):
    """Show artifacts to the model, by name, in the order asked for; together at most `max_request_bytes` in one request.

    Text in any form is shown as text; images, audio, video and PDF as they are; of other files only the type and size is told.
    """

    name = "load_artifacts"
    description = "Look at files of this session. Call it before you say anything about what is in them."
    idempotent = True
    needs = ("artifacts",)

    def __init__(self, *, max_request_bytes: int = MAX_REQUEST_BYTES) -> None:
        if max_request_bytes < 1:
            raise ConfigError(f"max_request_bytes is {max_request_bytes}; it must be 1 or more")
        self._max_request_bytes = max_request_bytes
        self._warned = False
        names = {"type": "array", "items": {"type": "string"}, "description": "The names of the files to look at."}
        self._declaration = ToolDeclaration(
            name=self.name,
            description=self.description,
            parameters={"type": "object", "properties": {"artifact_names": names}, "required": ["artifact_names"]},
        )

    def declaration(self) -> ToolDeclaration:
        return self._declaration

    async def call(self, ctx: ToolContext, args: dict[str, Any]) -> Any:
        """The names that there are, each once. BadRequest for what is no list of names, NotFound if none of them exists,
        Unavailable without an artifact store."""
        names = _names(args.get("artifact_names"))
        if not names:
            raise BadRequest("load_artifacts needs `artifact_names`, a list of names", "artifact_names")
        known = await ctx.artifact_names()
        found = [name for name in names if name in known]
        missing = [name for name in names if name not in known]
        if missing and not found:
            there = ", ".join(map(repr, known)) or "none"
            raise NotFound(f"there is no artifact {', '.join(map(repr, missing))}; the artifacts are: {there}")
        result: dict[str, Any] = {"artifact_names": found}
        if missing:
            result |= {"not_found": missing, "available": known}
        return result

    async def prepare(self, ctx: CallbackContext, request: ModelRequest) -> None:
        """List what there is, and append what was asked for. An artifact that is gone is told, not fatal."""
        if ctx.scope.stores.artifacts is None:
            if not self._warned:
                self._warned = True
                log.warning(
                    "agent %r has the tool load_artifacts, but no artifact store is configured: App(stores=...)",
                    ctx.agent_name,
                )
            return
        known = await self._known(ctx)
        if known:
            add_instruction(
                request,
                f"This session has files, in JSON: {encode(known).decode()}. Before you answer a question about one, look at "
                f"it with `{self.name}`, also when you have seen it before.",
            )
        asked = self._asked(request)
        if asked:
            request.contents = [*request.contents, *await self._shown(ctx, asked)]

    def _asked(self, request: ModelRequest) -> list[str]:
        """What the last content answers that this tool found; answers of other functions are not looked at."""
        last = request.contents[-1] if request.contents else Content()
        answers = [r.response or {} for r in last.responses if r.name == self.name]
        return _names([name for answer in answers for name in _names(answer.get("artifact_names"), lenient=True)])

    async def _known(self, ctx: CallbackContext) -> list[str]:
        try:
            return await ctx.artifact_names()
        except Unavailable as error:
            log.warning("the artifacts of %s cannot be listed: %s", ctx.session.key, error)
            return []

    async def _shown(self, ctx: CallbackContext, names: Iterable[str]) -> list[Content]:
        shown: list[Content] = []
        room = self._max_request_bytes
        for name in names:
            try:
                content = _as_shown(name, await ctx.load_artifact(name))
            except (NotFound, BadRequest):  # a name that is none stands in a response that somebody else made
                content = _told(name, "is not there (any more).")
            except Unavailable as error:
                log.warning("artifact %r of %s cannot be loaded: %s", name, ctx.session.key, error)
                content = _told(name, "cannot be loaded now.")
            size = sum(map(_size, content.parts[1:]))
            if size > room:
                content = _told(name, f"has {size} bytes, which is more than there is room for ({room} bytes).")
            else:
                room -= size
            shown.append(content)
        return shown


def _size(part: Part) -> int:
    return len(part.inline_data.data) if part.inline_data is not None else len((part.text or "").encode())


def _as_shown(name: str, part: Part) -> Content:
    blob = part.inline_data
    if blob is None:
        return _told(name, "is:", Part(text=part.text or "(empty)"))
    kind = blob.mime_type.partition(";")[0].strip().lower()
    if kind.startswith("text/") or kind.rpartition("/")[2].rpartition("+")[2] in _TEXTS:
        return _told(name, f"({kind}) is:", Part(text=blob.data.decode("utf-8", "replace") or "(empty)"))
    if kind.startswith(_SEEN_BY_MODELS):
        return _told(name, "is:", part)
    return _told(name, f"is a file of the type {kind} with {len(blob.data)} bytes; it cannot be shown.")


def _told(name: str, what: str, *parts: Part) -> Content:
    return Content(role="user", parts=[Part(text=f"The artifact {encode(name).decode()} {what}"), *parts])


def _names(value: object, *, lenient: bool = False) -> list[str]:
    """Names, each once, from a text or any list of texts. BadRequest for anything else, unless `lenient`."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        if value is None or lenient:
            return []
        raise BadRequest(f"artifact_names is a list of names, not {value!r:.100}", "artifact_names")
    items = cast("list[object]", value)
    wrong = [item for item in items if not isinstance(item, str)]
    if wrong and not lenient:
        raise BadRequest(f"artifact_names is a list of names; {wrong[0]!r:.100} is none", "artifact_names")
    return list(dict.fromkeys(item for item in items if isinstance(item, str)))


load_artifacts = LoadArtifacts()
