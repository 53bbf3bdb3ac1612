"""What the model gets to see of an MCP server: schemas made fit for every provider, results as JSON, images beside them.

Called by the tools of an MCP toolset. Text is cut at a limit; images, sounds and files become artifacts, never base64 in a
prompt (FR-213). Whatever is wrong with a schema costs that schema only.
"""

import logging
import re
from typing import Any, cast

import msgspec

from polyport.codec import encode
from polyport.data.content import Blob, Content, Part
from polyport.data.model import ModelRequest, Schema
from polyport.errors import AgentError, ConfigError, PolyportError
from polyport.ports.agent import CallbackContext, ToolContext
from polyport.tools.json_schema import check, is_map
from polyport.tools.mcp_data import CallResult, McpLimits, McpToolInfo
from polyport.tools.normalize import normalize

log = logging.getLogger("polyport.mcp")

ARTIFACTS = "artifacts"
"""The member of a response that names the artifacts which hold its images and files."""

SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The kinds of images that all providers take."""

_ENDINGS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "text/plain": ".txt",
}


def parameters_of(info: McpToolInfo) -> Schema:
    """The input schema as a model gets it: an object. A schema that cannot be understood leaves the arguments open."""
    try:
        schema = normalize(info.input_schema)
    except ConfigError as error:
        log.warning(
            "the input schema of MCP tool %r is not usable, its arguments are not described: %s", info.name, error
        )
        schema = {}
    if schema.get("type") != "object":
        if "type" in schema:
            log.warning("the input schema of MCP tool %r is not an object; its arguments are not described", info.name)
            schema = {}
        schema = {**schema, "type": "object"}
    if not isinstance(schema.get("properties", {}), dict):
        schema.pop("properties")
    schema.setdefault("properties", {})
    return schema


def returns_of(info: McpToolInfo) -> Schema | None:
    """The output schema as a model gets it, None when there is none (FR-215)."""
    if info.output_schema is None:
        return None
    try:
        return normalize(info.output_schema)
    except ConfigError as error:
        log.warning("the output schema of MCP tool %r is not usable, results are not checked: %s", info.name, error)
        return None


async def response_of(
    ctx: ToolContext, name: str, result: CallResult, returns: Schema | None, limits: McpLimits
) -> Any:
    """The response of a call: `{"output": structured data or text}`, and `artifacts` when it has images or files.

    AgentError with the server's text for a failed call. A result that breaks the tool's own output schema comes with an
    `error` that says so (FR-215); an empty one is an empty text.
    """
    if result.is_error:
        texts = [p.text for p in result.parts if p.text]
        raise AgentError(_cut("\n".join(texts), limits) or f"tool {name} failed, and its server did not say why")
    shelf = _Shelf(ctx, name, limits)
    lines = [await shelf.line(part) for part in result.parts]
    text = _cut("\n".join(lines), limits)
    out: dict[str, Any] = {}
    if result.has_structured:
        problems = check(result.structured, returns) if returns is not None else []
        if problems:
            out["error"] = f"the result does not fit the tool's output schema: {'; '.join(problems[:10])}"
        out["output"] = _bounded(result.structured, limits)
        others = [line for part, line in zip(result.parts, lines, strict=True) if not _repeats(part, result.structured)]
        if others:
            out["text"] = _cut("\n".join(others), limits)
    else:
        if returns is not None:
            out["error"] = "the tool has an output schema, but this result has no structured data"
        out["output"] = text
    if shelf.names:
        out[ARTIFACTS] = shelf.names
    return out


def _repeats(part: Part, structured: Any) -> bool:
    """Whether a text is the structured data once more, as the protocol wants it for old clients, or one of its members."""
    if part.text is None:
        return False
    if is_map(structured) and any(value == part.text for value in structured.values()):
        return True
    try:
        again = msgspec.json.decode(part.text)
    except (msgspec.DecodeError, RecursionError):
        return False
    if is_map(structured) and structured.keys() == {"result"}:  # the SDKs wrap a value that is no object
        return again in (structured, structured["result"])
    return bool(again == structured)


def _cut(text: str, limits: McpLimits) -> str:
    left = len(text) - limits.text_chars
    if left <= 0:
        return text
    return f"{text[: limits.text_chars]}\n[cut: {left} more characters; ask for less]"


def _bounded(structured: Any, limits: McpLimits) -> Any:
    """Structured data, as cut JSON text when it is too long."""
    if len(encoded := encode(structured)) <= limits.text_chars:
        return structured
    return _cut(encoded.decode(), limits)


class _Shelf:
    """Puts what is no text away as artifacts, and says where in a line of text."""

    def __init__(self, ctx: ToolContext, tool: str, limits: McpLimits) -> None:
        self._ctx = ctx
        self._stem = re.sub(r"[^A-Za-z0-9_-]", "_", f"{tool[:60]}-{ctx.function_call_id[:60]}")
        self._limits = limits
        self.names: list[str] = []

    async def line(self, part: Part) -> str:
        if part.text is not None:
            return part.text
        if part.file_data is not None:
            link = part.file_data
            return f"[resource {link.file_uri}{f' ({link.display_name})' if link.display_name else ''}]"
        blob = part.inline_data or Blob()
        what = f"{blob.mime_type}, {len(blob.data)} bytes"
        if len(blob.data) > self._limits.blob_bytes:
            return f"[{what}: larger than the limit of {self._limits.blob_bytes} bytes (blob_bytes), not kept]"
        if self._ctx.scope.stores.artifacts is None:
            return f"[{what}: not kept, for there is no artifact store]"
        name = f"{self._stem}-{len(self.names) + 1}{_ENDINGS.get(blob.mime_type, '.bin')}"
        try:
            await self._ctx.save_artifact(name, Part(inline_data=blob))
        except PolyportError as error:
            return f"[{what}: not kept: {error}]"
        self.names.append(name)
        return f"[{what}: artifact {name}]"


async def show_images(ctx: CallbackContext, request: ModelRequest, tool: str) -> None:
    """Put the images of the tool's newest results into a request, after the results. Only the request that answers them has
    the images; later ones have their names."""
    names: list[str] = []
    for content in reversed(request.contents):
        if content.role == "model":
            break
        for response in content.responses:
            if response.name == tool and response.response is not None:
                found = response.response.get(ARTIFACTS)
                names += [str(n) for n in cast("list[Any]", found)] if isinstance(found, list) else []
    parts: list[Part] = []
    for name in names:
        try:
            part = await ctx.load_artifact(name)
        except PolyportError as error:
            log.info("the image %s cannot be shown: %s", name, error)
            continue
        if part.inline_data is not None and part.inline_data.mime_type in SHOWN:
            parts += [Part(text=f"Artifact {name}:"), part]
    if parts:
        request.contents = [*request.contents, Content(role="user", parts=parts)]
