"""Paths of requests: those that are plain at first sight are read as all others are."""

from itertools import product

import pytest

from polyport.errors import BadRequest
from polyport.protocols.answers import send_empty
from polyport.protocols.http import Request, Send
from polyport.protocols.routes import Route, Table, decode_segment, split_path

SEGMENTS = [
    "",
    ".",
    "..",
    "a",
    ".a",
    "a.",
    "a..b",
    "%2e",
    "%2E%2e",
    "%2f",
    "a%00",
    "a:b",
    "a b",
    "a\x7f",
    "a\x1f",
    "é",
    "\u2028",
    "%",
    "~!$&'()*+,;=@",
]


def read(raw: str) -> tuple[list[str], list[str], bool] | str:
    try:
        path = split_path(raw.encode())
    except BadRequest:
        return "refused"
    return path.raw, path.names, path.slash


def spelled(raw: str) -> tuple[list[str], list[str], bool] | str:
    """What the path is, segment by segment."""
    parts = raw[1:].split("/")
    slash = parts[-1] == ""
    while parts and not parts[-1]:
        parts.pop()
    try:
        return parts, [decode_segment(part) for part in parts], slash
    except BadRequest:
        return "refused"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_plain_path_is_what_its_segments_are(count: int):
    for segments in product(SEGMENTS, repeat=count):
        raw = "/" + "/".join(segments)
        assert read(raw) == spelled(raw), raw


@pytest.mark.parametrize(
    "raw", ["", "a", "*", "http://h/a", "//a", "/a//b", "/./a", "/a/..", "/a/%2e%2e/b", "/a/%c0%ae", "/\x00"]
)
def test_hostile_paths_are_refused(raw: str):
    assert read(raw) == "refused"


async def handler(request: Request, send: Send) -> None:
    await send_empty(send)


PATTERNS = [
    "/a",
    "/a/b",
    "/{x}",
    "/a/{x}",
    "/{x}/b",
    "/a/{x}:go",
    "/{x}:go",
    "/f/{rest*}",
    "/f/g",
    "/f/{x}/h",
    "/{x}/{y}/{z}",
]


def matches(pattern: str, names: list[str], raw: list[str]) -> bool:
    """Whether a pattern can be this path; slow and plain."""
    parts = pattern[1:].split("/")
    for i, part in enumerate(parts):
        if part.endswith("*}"):
            return i <= len(names) and i < len(raw)
        if i >= len(names):
            return False
        if part.endswith(":go"):
            if not (raw[i].endswith(":go") and len(raw[i]) > 3):
                return False
        elif not part.startswith("{") and part != names[i]:
            return False
    return len(parts) == len(names)


def test_a_route_is_found_wherever_there_is_one_and_only_there():
    table = Table([Route("GET", pattern, handler) for pattern in PATTERNS], [""])
    for count in (1, 2, 3, 4):
        for segments in product(["a", "b", "f", "g", "h", "z", "z:go", "a:go", ":go", "b%3Ago", "%61"], repeat=count):
            raw = "/" + "/".join(segments)
            values: list[str] = []
            leaf = table.find({"raw_path": raw.encode(), "path": raw}, values)
            path = split_path(raw.encode())
            able = [p for p in PATTERNS if matches(p, path.names, path.raw)]
            if leaf is None:
                assert not able, raw
                continue
            found = leaf.methods["GET"]
            assert found.route.pattern in able, raw
            assert len(found.names) == len(values), raw
