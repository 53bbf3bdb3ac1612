"""Routes as data, and how a raw path finds one.

Protocols hand lists of `Route` to the host, which builds one `Table`. Literal paths are found in a dict, others in a trie of
segments: a literal before `{id}:verb` before `{id}` before `{rest*}`. Segments are decoded after the split (spec rest
4.2); hostile ones are refused here, so that no handler sees them. Never redirects.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct

from polyport.errors import BadRequest, ConfigError
from polyport.protocols.http import Request, Scope, Send

Handler = Callable[[Request, Send], Awaitable[None]]
ErrorWriter = Callable[[Send, Request, BaseException], Awaitable[None]]

_PARAM = re.compile(r"\{([a-z_]+)(\*?)\}(:[A-Za-z]+)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Route:
    """One method on one path. `method` "WEBSOCKET" takes handshakes: its handler gets the same request, and talks through
    `request.receive` and `send`.

    Patterns: `/apps/{app}/users/{user}`, `/runs/{id}:cancel`, `/ui/{path*}` (the rest, also empty after a slash).
    `public` routes need no caller and no known Origin. Of a caller the host asks the authorizer: may it act as the {user} of
    the path, may it `use` the {app}, or `app` where the path names none, may it administer (`admin`). `head=False` keeps HEAD
    off a GET, for streams. `on_error` writes the errors of this route, also those found before the handler runs. `body`,
    `returns` (types), `query` (names with JSON Schemas) and `streams` are what the OpenAPI document says of it.
    """

    method: str
    pattern: str
    handler: Handler
    public: bool = False
    admin: bool = False
    app: str = ""
    summary: str = ""
    head: bool = True
    yields: bool = False
    on_error: ErrorWriter | None = None
    body: Any = None
    returns: Any = None
    query: Sequence[tuple[str, Mapping[str, Any]]] = ()
    streams: bool = False


class Target(NamedTuple):
    """A route under one prefix, with the names of its path parameters in order."""

    route: Route
    prefix: str
    names: tuple[str, ...]


class Leaf:
    """All methods of one path."""

    __slots__ = ("methods",)

    def __init__(self) -> None:
        self.methods: dict[str, Target] = {}

    @property
    def allow(self) -> bytes:
        """The value of the Allow header: sorted methods."""
        names = {"GET" if name == "WEBSOCKET" else name for name in self.methods}
        return ", ".join(sorted({*names, "OPTIONS"})).encode()


class Path(Struct, gc=False):
    """A path split up: segments as sent, the same decoded, and whether it ended with a slash."""

    raw: list[str]
    names: list[str]
    slash: bool


class Node:
    """`forks`: a segment that is no literal here may be more than one thing. `open_ended`: one that is a literal may be
    something else, too, should the literal lead nowhere."""

    __slots__ = ("forks", "leaf", "literals", "open_ended", "param", "rest", "verbs")

    def __init__(self) -> None:
        self.literals: dict[str, Node] = {}
        self.verbs: dict[str, Node] = {}
        self.param: Node | None = None
        self.leaf: Leaf | None = None
        self.rest: Leaf | None = None
        self.forks = self.open_ended = False

    def find(self, path: Path, at: int, values: list[str]) -> Leaf | None:
        """The leaf for the segments from `at` on; `values` gets the parameters."""
        node, names = self, path.names
        for i in range(at, len(names)):
            name = names[i]
            child = node.literals.get(name)
            if child is None:
                if node.forks:
                    return node.search(path, i, values)
                child = node.param
                if child is None:
                    return None
                values.append(name)
            elif node.open_ended:
                return node.search(path, i, values)
            node = child
        if path.slash and node.rest is not None:
            values.append("")
            return node.rest
        return node.leaf

    def search(self, path: Path, at: int, values: list[str]) -> Leaf | None:
        """All ways on from this node, the most exact first."""
        mark = len(values)
        child = self.literals.get(path.names[at])
        if child is not None and (found := child.find(path, at + 1, values)):
            return found
        del values[mark:]
        if self.verbs and (found := self._find_verb(path, at, values)):
            return found
        del values[mark:]
        if self.param is not None:
            values.append(path.names[at])
            if found := self.param.find(path, at + 1, values):
                return found
            del values[mark:]
        if self.rest is not None:
            values.append(_joined(path.names[at:]))
        return self.rest

    def _find_verb(self, path: Path, at: int, values: list[str]) -> Leaf | None:
        """`{id}:verb`. An encoded colon belongs to the id."""
        stem, colon, verb = path.raw[at].rpartition(":")
        child = self.verbs.get(verb) if colon and stem else None
        if child is None:
            return None
        values.append(decode_segment(stem))
        return child.find(path, at + 1, values)


class Table:
    """All routes under all prefixes. ConfigError for a bad pattern or two routes for one method and path."""

    def __init__(self, routes: Iterable[Route], prefixes: Sequence[str]) -> None:
        self._root = Node()
        self._exact: dict[bytes, Leaf] = {}
        for prefix in prefixes:
            if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
                raise ConfigError(f"prefix {prefix!r} must start with a slash and not end with one")
        routes = tuple(routes)
        taken = {(route.method, route.pattern) for route in routes if not route.yields}
        for route in routes:
            if not (route.yields and (route.method, route.pattern) in taken):
                for prefix in prefixes:
                    self._add(route, prefix)

    def find(self, scope: Scope, values: list[str]) -> Leaf | None:
        """The leaf for a request, its path parameters appended to `values`. BadRequest for a hostile path."""
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        root: str = scope.get("root_path", "")
        if not root and (leaf := self._exact.get(raw)):
            return leaf
        path = split_path(raw)
        if root:
            path = _below(path, root)
        return self._root.find(path, 0, values)

    def _add(self, route: Route, prefix: str) -> None:
        whole = prefix + route.pattern
        if not route.pattern.startswith("/") or (route.pattern.endswith("/") and route.pattern != "/"):
            raise ConfigError(f"route {route.pattern!r} must start with a slash and not end with one")
        names: list[str] = []
        leaf = self._leaf([part for part in whole.split("/") if part], names)
        if len(set(names)) != len(names):
            raise ConfigError(f"route {route.pattern!r} uses a parameter name twice")
        target = Target(route, prefix, tuple(names))
        if route.method in leaf.methods and leaf.methods[route.method].route.method == route.method:
            other = leaf.methods[route.method].route
            raise ConfigError(f"two routes for {route.method}: {other.pattern!r} and {route.pattern!r}")
        leaf.methods[route.method] = target
        if route.method == "GET" and route.head:
            leaf.methods.setdefault("HEAD", target)
        if not names:
            self._exact[whole.encode()] = leaf

    def _leaf(self, parts: list[str], names: list[str]) -> Leaf:
        node = self._root
        for i, part in enumerate(parts):
            if "{" not in part:
                node = node.literals.setdefault(part, Node())
                continue
            match = _PARAM.fullmatch(part)
            if match is None or (match[2] and (match[3] or i != len(parts) - 1)):
                raise ConfigError(f"route segment {part!r} is not {{name}}, {{name}}:verb or a last {{name*}}")
            names.append(match[1])
            node.open_ended = True
            if match[2] or match[3]:
                node.forks = True
            if match[2]:
                node.rest = node.rest or Leaf()
                return node.rest
            if match[3]:
                node = node.verbs.setdefault(match[3][1:], Node())
            else:
                node.param = node = node.param or Node()
        node.leaf = node.leaf or Leaf()
        return node.leaf


def split_path(raw: bytes) -> Path:
    """A raw path as segments. Trailing slashes are noted and dropped (spec rest 4.1). BadRequest for empty, `.` and `..`
    segments, control characters and broken escapes."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise BadRequest("the path is not UTF-8") from None
    if text[:1] != "/":
        raise BadRequest("the path must start with a slash")
    parts = text[1:].split("/")
    slash = not parts[-1]
    while parts and not parts[-1]:
        parts.pop()
    if text.isascii() and text.isprintable() and "%" not in text and "//" not in text and "/." not in text:
        return Path(parts, parts, slash)
    return Path(parts, [decode_segment(part) for part in parts], slash)


def decode_segment(part: str) -> str:
    """One segment without its percent-encoding. BadRequest for what no id may be."""
    if "%" in part:
        if _BAD_ESCAPE.search(part):
            raise BadRequest("the path has a broken percent-escape")
        try:
            part = unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            raise BadRequest("the path is not UTF-8") from None
    if part in ("", ".", ".."):
        raise BadRequest(f"the path has a segment {part!r}, which is never resolved here")
    if _CONTROL.search(part):
        raise BadRequest("the path has a control character")
    return part


def _joined(names: list[str]) -> str:
    for name in names:
        if "/" in name or "\\" in name:
            raise BadRequest("the path has an encoded slash where files are named")
    return "/".join(names)


def _below(path: Path, root: str) -> Path:
    """The part of a path below the mount point; the whole path if the server left the mount point out of it."""
    mount = [part for part in root.split("/") if part]
    if path.names[: len(mount)] != mount:
        return path
    return Path(path.raw[len(mount) :], path.names[len(mount) :], path.slash)
