"""The file of RecordReplay: one JSON object a line, its exchanges, how they are compared and how a difference is shown.

Used by `plugins/record_replay` only. Reads a file when it is told to; never asks a model.
"""

import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from polyport import codec, errors
from polyport.errors import AgentError, ConfigError, ModelError, PolyportError

HEAD = {"polyport": "recording", "version": 1}
"""The first line of a file."""
_DIFF_LINES = 60
_LINE_CHARS = 240
_MADE_ID = re.compile(r"(?<![0-9a-zA-Z])(?:adk|e)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-zA-Z])")


class ReplayMismatch(AgentError):
    """A run asked something else than the recorded one. The message shows the difference."""


class Failure(Struct, rename="camel", omit_defaults=True, frozen=True, kw_only=True):
    """An exception, by name."""

    type: str
    message: str = ""
    http_status: int = 0
    code: str = ""
    retry_after_s: float | None = None

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        if isinstance(error, ModelError):
            return cls(
                type="ModelError",
                message=str(error),
                http_status=error.http_status,
                code=error.code,
                retry_after_s=error.retry_after_s,
            )
        return cls(type=type(error).__name__, message=str(error))

    def error(self) -> Exception:
        """The exception: of the same class if it is Polyport's, else of a class of the same name."""
        if self.type == "ModelError":
            return ModelError(
                self.message, http_status=self.http_status, code=self.code, retry_after_s=self.retry_after_s
            )
        known = getattr(errors, self.type, None)
        if isinstance(known, type) and issubclass(known, PolyportError):
            return known(self.message)
        made = cast("type[Exception]", type(self.type, (Exception,), {}))
        return made(self.message) if self.message else made()


class Exchange(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """One question and its answer, as plain data. `tool` is empty for a model. `actions` are what a tool call wrote."""

    kind: Literal["model", "tool"]
    agent: str
    branch: str = ""
    tool: str = ""
    request: Any = None
    pieces: list[Any] = []
    response: Any = None
    actions: dict[str, Any] | None = None
    error: Failure | None = None

    def like(self, other: "Exchange") -> bool:
        """Whether both are questions of the same agent to its model, or to the same tool."""
        return (self.kind, self.agent, self.branch, self.tool) == (other.kind, other.agent, other.branch, other.tool)

    @property
    def asker(self) -> str:
        where = f" on branch {self.branch!r}" if self.branch else ""
        what = f"a call of tool {self.tool!r}" if self.kind == "tool" else "a model call"
        return f"{what} by agent {self.agent!r}{where}"


def load(path: Path) -> list[Exchange]:
    """The exchanges of a file. ConfigError when there is none, or names the line that is wrong."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"the recording {path} cannot be read ({type(error).__name__}); record it first") from None
    found: list[Exchange] = []
    for number, line in enumerate(lines, 1):
        try:
            if number == 1:
                if msgspec.json.decode(line) != HEAD:
                    raise ConfigError(f"{path} is no recording of this version; record it again")
            else:
                found.append(msgspec.json.decode(line, type=Exchange))
        except msgspec.DecodeError as error:
            raise ConfigError(f"line {number} of the recording {path} is damaged: {error}") from None
    return found


class Masks:
    """Replaces what differs from run to run: ids that Polyport makes, and what `patterns` match."""

    def __init__(self, patterns: Sequence[str]) -> None:
        try:
            self._patterns = [re.compile(pattern) for pattern in patterns]
        except re.error as error:
            raise ConfigError(f"mask has a pattern that is no regular expression: {error}") from None

    def plain(self, value: Any) -> Any:
        """`value` as plain JSON data, masked. Ids get the numbers in which they come."""
        return self._walk(msgspec.json.decode(codec.encode(value)), {})

    def _walk(self, value: Any, ids: dict[str, str]) -> Any:
        if isinstance(value, str):
            value = _MADE_ID.sub(lambda found: ids.setdefault(found[0], f"id-{len(ids) + 1}"), value)
            for pattern in self._patterns:
                value = pattern.sub("***", value)
            return value
        if isinstance(value, list):
            return [self._walk(item, ids) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {self._walk(key, ids): self._walk(item, ids) for key, item in cast("dict[str, Any]", value).items()}
        return value


def difference(recorded: Any, asked: Any) -> str:
    """What differs, as lines of a unified diff of the indented JSON; not more than can be read."""
    lines = [
        line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}... ({len(line)} characters)"
        for line in difflib.unified_diff(_lines(recorded), _lines(asked), "recorded", "asked now", n=2, lineterm="")
    ]
    more = len(lines) - _DIFF_LINES
    return "\n".join(lines[:_DIFF_LINES] + ([f"... ({more} more lines)"] if more > 0 else []))


def _lines(value: Any) -> list[str]:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).splitlines()
