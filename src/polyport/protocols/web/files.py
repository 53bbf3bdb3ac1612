"""The files of a compiled page: found by name inside one folder, never outside it.

Used by the mount. Files are read when asked for, in a worker thread; nothing is listed.
"""

import mimetypes
import os
import re
from pathlib import Path
from typing import NamedTuple

from polyport.errors import NotFound

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
"""Kept here, for what a machine thinks of these differs."""
_HASHED = re.compile(r"[-.](?=[a-z_]*[A-Z0-9])[A-Za-z0-9_]{8,}\.[a-z0-9]+$")
"""A word alone (`angular-material.css`) is no hash: it stays the same when the file changes."""
_BASE = re.compile(rb"<base\s+href=\"[^\"]*\"\s*/?>")


class Found(NamedTuple):
    """A file as it is sent. `lasting` files have their version in their name."""

    body: bytes
    kind: str
    lasting: bool


def read(root: Path, name: str) -> Found:
    """The file `name` below `root`; the index for a name without an ending, which is a place inside the page. NotFound."""
    if not name or ("." not in name.rsplit("/", 1)[-1]):
        return Found((root / "index.html").read_bytes(), _TYPES[".html"], False)
    path = (root / name).resolve()
    if not path.is_relative_to(root) or not os.path.isfile(path):  # noqa: PTH113  a name too long for a file is none, too
        raise NotFound(f"the page has no file {name[:200]!r}")
    kind = _TYPES.get(path.suffix.lower()) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Found(path.read_bytes(), kind, bool(_HASHED.search(path.name)))


def based(index: bytes, base: str) -> bytes:
    """The index with its base address, so that a link deep into the page finds the files."""
    return _BASE.sub(lambda _: f'<base href="{base}">'.encode(), index, count=1)
