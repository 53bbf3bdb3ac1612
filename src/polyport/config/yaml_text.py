"""From the text of a YAML file to nodes that know where they stand. Called by the reader of agent files.

PyYAML parses; what a plain word means is decided here, as in YAML 1.2: `yes`, `on` and `1:30` are texts, and a name is what was
written. Keys given twice, several documents, unknown tags, and files that are too large, too deep or blown up by aliases are
refused. `!env` is the one tag: a value from the environment. Never makes an object of the user's, never imports anything.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import yaml
from msgspec import Struct, field

from polyport.config.importing import LoadError
from polyport.config.text import count, readable

MAX_BYTES = 1024 * 1024
"""Of one file."""
MAX_DEPTH = 64
MAX_NODES = 20_000
"""Of one file, what an alias stands for counted each time."""
MAX_SHOWN = 30
"""Mistakes that are listed."""

_INT = re.compile(r"[-+]?[0-9]+")
_OTHER_INT = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_IN_TEXT = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


class Node(Struct, eq=False, kw_only=True):
    """A value of the file and its place; `members` has the key's node beside each value. Lines and columns begin at 1."""

    kind: Literal["text", "list", "map"]
    file: str = ""
    line: int = 0
    column: int = 0
    text: str = ""
    plain: bool = False
    """Whether a text was written without quotes, so that it may be a number, a truth value or nothing."""
    secret: bool = False
    """Whether it came from the environment: its text is never shown."""
    items: "list[Node]" = field(default_factory=list["Node"])
    members: "dict[str, tuple[Node, Node]]" = field(default_factory=dict[str, tuple["Node", "Node"]])

    def of(self, key: str, at: int | None = None) -> "Node":
        """The node of a member (or of the item `at` of it), or this node if there is no such member."""
        found = self.members[key][1] if key in self.members else self
        return found if at is None or not 0 <= at < len(found.items) else found.items[at]

    @property
    def is_null(self) -> bool:
        return self.kind == "text" and self.plain and not self.secret and self.text in _NULLS

    @property
    def hidden(self) -> "list[str]":
        """The texts in it that must not be shown."""
        below = [*self.items, *(node for _, node in self.members.values())]
        found = [self.text] if self.secret else [text for node in below for text in node.hidden]
        return [text for text in found if text]

    def value(self) -> Any:
        """The node as plain data."""
        if self.kind == "map":
            return {key: node.value() for key, (_, node) in self.members.items()}
        if self.kind == "list":
            return [node.value() for node in self.items]
        return scalar(self.text) if self.plain and not self.secret else self.text

    def shown(self) -> str:
        """The value for a message."""
        if self.kind != "text":
            return "a mapping" if self.kind == "map" else "a list"
        if self.is_null:
            return "nothing"
        if self.secret:
            return FROM_OUTSIDE
        return repr(self.text if len(self.text) <= 60 else f"{self.text[:57]}...")


NOWHERE = Node(kind="map")
FROM_OUTSIDE = "a value from the environment"
"""Stands in messages for a text that is never shown."""


def scalar(text: str) -> Any:
    """What a word without quotes means: None, a bool, an int, a float, else the text itself."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return int(text) if len(text) < 1000 else text
    if _OTHER_INT.fullmatch(text):
        return int(text[2:], 16 if text[1] == "x" else 8)
    return float(text) if _FLOAT.fullmatch(text) else text


class Problems:
    """The mistakes of one load, in all its files."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, int, str]] = []

    def add(self, node: Node, message: str) -> None:
        """Note a mistake at this place. What came from the environment is left out of the message."""
        for text in node.hidden:
            message = message.replace(repr(text), FROM_OUTSIDE)
            if len(text) > 3:
                message = message.replace(text, FROM_OUTSIDE)
        entry = (node.file, node.line, node.column, message)
        if entry not in self.found:
            self.found.append(entry)

    def check(self, what: str) -> None:
        """LoadError with all of them, if there are any."""
        if not self.found:
            return
        lines = [f"{what} could not be loaded: {count(len(self.found), 'mistake')}."]
        files = list(dict.fromkeys(entry[0] for entry in self.found))
        found = sorted(self.found, key=lambda entry: (files.index(entry[0]), *entry[1:3]))
        for file, line, column, message in found[:MAX_SHOWN]:
            lines.append(f"  {file}:{line}:{column}: {message}" if line else f"  {file}: {message}")
        if len(self.found) > MAX_SHOWN:
            lines.append(f"  and {len(self.found) - MAX_SHOWN} more")
        raise LoadError("\n".join(lines))


class _TooMuch(Exception):
    """The file breaks a limit; nothing of it is used."""


def read_file(path: Path, shown: str, problems: Problems) -> Node | None:
    """The file's one document, None (and a problem) when there is nothing to go on with. UTF-8, with or without a byte order
    mark; bad bytes are replaced (FR-233)."""
    here = Node(kind="text", file=shown)
    try:
        with path.open("rb") as file:
            body = file.read(MAX_BYTES + 1)
    except OSError as error:
        problems.add(here, f"cannot be read: {error.strerror or error}")
        return None
    if len(body) > MAX_BYTES:
        problems.add(here, f"is larger than {MAX_BYTES} bytes")
        return None
    return read_text(body.decode("utf-8-sig", "replace"), shown, problems)


def read_text(text: str, shown: str, problems: Problems) -> Node | None:
    """The one document in `text`; see `read_file`."""
    composer = _Composer(readable(shown), problems)
    before = len(problems.found)
    try:
        node = composer.document(iter(cast("Any", yaml).parse(text, Loader=yaml.CSafeLoader)))
    except _TooMuch:
        return None
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        place = composer.at(mark.line, mark.column) if mark else composer.at(0, 0)
        said = ", ".join(part for part in (error.problem, error.context) if part)
        problems.add(place, f"is not YAML: {said}{_tab(text, place.line)}")
        return None
    except yaml.YAMLError as error:
        problems.add(composer.at(0, 0), f"is not YAML: {str(error).splitlines()[0]}")
        return None
    if node is None and len(problems.found) == before:
        problems.add(composer.at(0, 0), "is empty")
    return node


def _tab(text: str, line: int) -> str:
    lines = text.splitlines()
    row = lines[line - 1] if 0 < line <= len(lines) else ""
    indent = row[: len(row) - len(row.lstrip())]
    return "; a line begins with a tab, and YAML takes only spaces there" if "\t" in indent else ""


def _height(node: Node) -> int:
    below = [*node.items, *(value for _, value in node.members.values())]
    return 1 + max(map(_height, below), default=0)


class _Composer:
    """Makes nodes of parser events, one at a time, so that the limits hold before memory is used."""

    def __init__(self, file: str, problems: Problems) -> None:
        self._file = file
        self._problems = problems
        self._anchors: dict[str, Node] = {}
        self._sizes: dict[str, int] = {}
        self._open: set[str] = set()
        self._nodes = 0

    def at(self, line: int, column: int) -> Node:
        return Node(kind="text", file=self._file, line=line + 1, column=column + 1)

    def document(self, events: Iterator[Any]) -> Node | None:
        found: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents == 2:
                    self._refuse(self._place(event), "a second document begins here (`---`); an agent is one document")
            elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent | yaml.AliasEvent):
                found = self._node(event, events, 0)
        return found

    def _place(self, event: Any) -> Node:
        return self.at(event.start_mark.line, event.start_mark.column)

    def _refuse(self, place: Node, message: str) -> None:
        self._problems.add(place, message)
        raise _TooMuch

    def _count(self, place: Node, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            self._refuse(place, f"the file stands for more than {MAX_NODES} values, aliases counted")

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        place = self._place(event)
        if depth >= MAX_DEPTH:
            self._refuse(place, f"is nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, place, depth)
        before = self._nodes
        self._count(place, 1)
        anchor: str | None = event.anchor
        if anchor is not None:
            self._open.add(anchor)
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, place)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._list(event, events, depth, place)
        else:
            node = self._map(event, events, depth, place)
        if anchor is not None:
            self._open.discard(anchor)
            self._anchors[anchor] = node
            self._sizes[anchor] = self._nodes - before
        return node

    def _alias(self, anchor: str, place: Node, depth: int) -> Node:
        if anchor in self._open:
            self._refuse(place, f"*{anchor} stands inside of what it stands for")
        if anchor not in self._anchors:
            self._refuse(place, f"there is no &{anchor} before this *{anchor}")
        self._count(place, self._sizes[anchor])
        if depth + _height(self._anchors[anchor]) > MAX_DEPTH:
            self._refuse(place, f"is nested more than {MAX_DEPTH} deep")
        return self._anchors[anchor]

    def _scalar(self, event: Any, place: Node) -> Node:
        place.text = event.value
        place.plain = bool(event.implicit[0]) and event.tag is None
        if event.tag == "!env":
            self._from_environment(place)
        elif event.tag == "tag:yaml.org,2002:str":
            place.plain = False
        else:
            self._check_tag(event.tag, place)
        return place

    def _check_tag(self, tag: str | None, place: Node) -> None:
        if tag is not None and tag != "!":
            name = tag.replace("tag:yaml.org,2002:", "!!")
            self._problems.add(place, f"the tag {name!r} is not known; there is only !env, for the environment")

    def _list(self, event: Any, events: Iterator[Any], depth: int, place: Node) -> Node:
        self._check_tag(event.tag, place)
        place.kind = "list"
        for inner in events:
            if isinstance(inner, yaml.SequenceEndEvent):
                break
            place.items.append(self._node(inner, events, depth + 1))
        return place

    def _map(self, event: Any, events: Iterator[Any], depth: int, place: Node) -> Node:
        self._check_tag(event.tag, place)
        place.kind = "map"
        merged: list[Node] = []
        for inner in events:
            if isinstance(inner, yaml.MappingEndEvent):
                break
            key = self._node(inner, events, depth + 1)
            value = self._node(next(events), events, depth + 1)
            if key.kind != "text" or key.secret:
                self._problems.add(key, f"a key must be a text, not {key.shown()}")
            elif key.plain and key.text == "<<":
                merged += value.items if value.kind == "list" else [value]
            elif key.text in place.members:
                first = place.members[key.text][0]
                self._problems.add(key, f"the key {key.text!r} is given twice; first in line {first.line}")
            else:
                place.members[key.text] = (key, value)
        for other in merged:
            if other.kind != "map":
                self._problems.add(other, f"<< takes a mapping, not {other.shown()}")
            for name, pair in other.members.items():
                place.members.setdefault(name, pair)
        return place

    def _from_environment(self, node: Node) -> None:
        """`!env NAME`, or `!env "Bearer ${NAME}"`; `${NAME:-text}` when it need not be set."""
        template = f"${{{node.text}}}" if _ENV_NAME.fullmatch(node.text) else node.text
        if not _ENV_IN_TEXT.search(template):
            self._problems.add(node, f"!env takes the name of a variable, or a text with ${{NAME}}, not {node.text!r}")

        def value_of(found: re.Match[str]) -> str:
            value = os.environ.get(found["name"])
            if not value and found["default"] is not None:
                return found["default"]
            if value is None:
                name = found["name"]
                self._problems.add(
                    node, f"the environment variable {name} is not set; export it, or write it into .env"
                )
            return value or ""

        node.text = _ENV_IN_TEXT.sub(value_of, template)
        node.plain = bool(node.text)
        node.secret = True
