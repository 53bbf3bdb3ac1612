"""The log events of a model call: what it was asked and what it answered (spec core 10).

Used by TelemetryPlugin. Bodies say `<elided>` unless content was asked for; the bytes of files are left out in any case. Builds
nothing while nobody listens to the logger.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from opentelemetry._logs import Logger

from polyport import codec
from polyport.data.content import Content
from polyport.data.model import ModelRequest, ModelResponse
from polyport.errors import BadRequest

ELIDED = "<elided>"
"""Stands for what is not told."""
OTHER_SYSTEM = "_OTHER"
"""`gen_ai.system` of a model that nobody knows; log events do without."""
SYSTEM, USER, CHOICE = "gen_ai.system.message", "gen_ai.user.message", "gen_ai.choice"


class Messages:
    """Events on a logger, attached to the span that is current."""

    def __init__(self, logger: Logger, capture_content: bool) -> None:
        self._logger = logger
        self._capture = capture_content

    def asked(self, request: ModelRequest, system: str) -> None:
        """One event for the system instruction, one for each content, whatever its role."""
        if self._logger.enabled(event_name=USER):
            if request.system:
                self._emit(SYSTEM, {"content": request.system if self._capture else ELIDED}, system)
            for content in request.contents:
                self._emit(USER, {"content": self._shown(content)}, system)

    def answered(self, response: ModelResponse, system: str) -> None:
        """One event for the final answer."""
        if self._logger.enabled(event_name=CHOICE):
            body: dict[str, Any] = {"content": self._shown(response.content), "index": 0}
            if response.finish_reason:
                body["finish_reason"] = response.finish_reason
            self._emit(CHOICE, body, system)

    def _emit(self, name: str, body: Mapping[str, Any], system: str) -> None:
        attributes = {"gen_ai.system": system} if system != OTHER_SYSTEM else {}
        self._logger.emit(event_name=name, body=body, attributes=attributes)

    def _shown(self, content: Content | None) -> Any:
        return plain(content) if self._capture else ELIDED


def plain(content: Content | None) -> Any:
    """A content as JSON data, without the bytes of files; its text as far as it has no JSON form."""
    if content is None:
        return None
    try:
        return _without_bytes(codec.json_safe(content, "a message"))
    except BadRequest:
        return {"role": content.role, "parts": [{"text": content.text}]}


def as_json(value: Any) -> str:
    """JSON text of anything; the type alone of what has no JSON form."""
    try:
        return codec.encode(value).decode()
    except (TypeError, NotImplementedError, ValueError, RecursionError, msgspec.MsgspecError):
        return f"a {type(value).__name__}"


def _without_bytes(content: Any) -> Any:
    parts = cast("dict[str, Any]", content).get("parts", [])
    for part in parts:
        if "data" in part.get("inlineData", {}):
            part["inlineData"]["data"] = ELIDED
    return content
