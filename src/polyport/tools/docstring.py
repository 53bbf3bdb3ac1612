"""Reads docstrings: the first paragraph, and what is said of each parameter, in Google, numpy and reST style.

Used for the descriptions in tool declarations. Takes text, gives text; never fails on odd text, it finds less then.
"""

import inspect
import re
from typing import NamedTuple

_NAMES = "args|arguments|parameters|params|attributes|keyword args|keyword arguments|other parameters|fields"
_ENDS = "returns?|yields?|raises?|examples?|notes?|see also|references|warnings?|todo"
_SECTION = re.compile(rf"(?:{_NAMES})\s*:?\s*$", re.IGNORECASE)
_HEADER = re.compile(rf"(?:{_NAMES}|{_ENDS})\s*:\s*$", re.IGNORECASE)
_RULE = re.compile(r"-{3,}\s*$")
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*))?$")
_NUMPY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_REST = re.compile(r":(?:param|parameter|arg|argument|key|keyword|ivar|var)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")


class Doc(NamedTuple):
    """`summary` is the first paragraph on one line; `params` maps names to descriptions on one line."""

    summary: str
    params: dict[str, str]


def read_docstring(text: str | None) -> Doc:
    """The parts of a docstring that a model is told."""
    if not text:
        return Doc("", {})
    lines = inspect.cleandoc(text).splitlines()
    params: dict[str, list[str]] = {}
    summary: list[str] = []
    open_summary = True
    at = 0
    while at < len(lines):
        line = lines[at]
        numpy = at + 1 < len(lines) and _RULE.match(lines[at + 1]) is not None
        if numpy or _HEADER.match(line):
            open_summary = False
            end = _section_end(lines, at + 1 + numpy, numpy)
            if _SECTION.match(line):
                (_numpy if numpy else _google)(lines[at + 1 + numpy : end], params)
            at = end
            continue
        if found := _REST.match(line.strip()):
            open_summary = False
            at = _rest(lines, at, found[1], found[2], params)
            continue
        open_summary = open_summary and bool(line.strip()) and not line.lstrip().startswith(":")
        if open_summary:
            summary.append(line.strip())
        at += 1
    return Doc(" ".join(summary), {name: " ".join(p for p in parts if p) for name, parts in params.items()})


def _section_end(lines: list[str], at: int, numpy: bool) -> int:
    """Where the section that starts at `at` ends: a Google one at the next text without indent, a numpy one at the
    next ruled header."""
    while at < len(lines):
        line = lines[at]
        if line.strip() and not line[0].isspace():
            ruled = at + 1 < len(lines) and _RULE.match(lines[at + 1])
            if ruled or not numpy:
                return at
        at += 1
    return at


def _google(lines: list[str], params: dict[str, list[str]]) -> None:
    indent: int | None = None
    current: list[str] | None = None
    for line in lines:
        text = line.strip()
        if not text:
            continue
        depth = len(line) - len(line.lstrip())
        indent = depth if indent is None else indent
        found = _GOOGLE.match(text) if depth <= indent else None
        if found:
            current = params.setdefault(found[1], [])
            current.append(found[2] or "")
        elif current is not None:
            current.append(text)


def _numpy(lines: list[str], params: dict[str, list[str]]) -> None:
    current: list[list[str]] = []
    for line in lines:
        text = line.strip()
        if not text:
            continue
        if line[0].isspace():
            for parts in current:
                parts.append(text)
        elif found := _NUMPY.match(text):
            current = [params.setdefault(name.strip().lstrip("*"), []) for name in found[1].split(",")]
        else:
            current = []


def _rest(lines: list[str], at: int, name: str, text: str, params: dict[str, list[str]]) -> int:
    """Read one `:param name:` with its indented continuation; the index after it."""
    parts = params.setdefault(name, [])
    parts.append(text.strip())
    depth = len(lines[at]) - len(lines[at].lstrip())
    at += 1
    while at < len(lines) and lines[at].strip() and len(lines[at]) - len(lines[at].lstrip()) > depth:
        parts.append(lines[at].strip())
        at += 1
    return at
