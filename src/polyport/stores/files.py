"""Artifacts in a folder, one folder for each version, readable without Polyport. Several processes may share it.

    <root>/<app>/<user>/sessions/<session>/<name>/<version>/content     the bytes, or the text in UTF-8
    <root>/<app>/<user>/shared/<name>/<version>/about.json              what is known of it

A version is made aside and renamed into place, which is also what claims its number. Of a deleted version an empty folder
with a mark stays, so that its number is not used again. Never touches a file on the event loop, nor one outside the root.
"""

import hashlib
import os
import shutil
import string
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio.to_thread
import msgspec

from polyport.codec import Data, encode
from polyport.data.content import Blob, Part
from polyport.data.session import SessionKey
from polyport.errors import ConfigError, PolyportError, Unavailable
from polyport.ports.stores import ArtifactVersion
from polyport.seams import REAL, Seams
from polyport.stores import artifact_rules as rules

CONTENT, ABOUT, GONE, ASIDE = "content", "about.json", "deleted", ".aside"
_SAFE = frozenset(string.ascii_lowercase + string.digits + "_-")
_LONGEST = 120
_HASHED = "~"  # stands in folder names that were too long, and in no others


class About(Data, frozen=True, kw_only=True, omit_defaults=False):
    """What lies in `about.json`. `text` tells a text from inline data."""

    name: str
    text: bool
    mime_type: str = ""
    display_name: str = ""
    create_time: float = 0.0
    custom_metadata: dict[str, Any] = {}


def folder_name(name: str) -> str:
    """A folder name for any name: one for each, also where case does not count, and never a path or a special one.

    Lower-case letters, digits, `_` and `-` stay; every other byte is `%xx`. Too long ones are cut and end in a hash.
    """
    encoded = "".join(chr(byte) if chr(byte) in _SAFE else f"%{byte:02x}" for byte in name.encode())
    if len(encoded) <= _LONGEST:
        return encoded
    return encoded[: _LONGEST - 41] + _HASHED + hashlib.sha256(name.encode()).hexdigest()[:40]


class FileArtifacts:
    """Artifacts below the folder `root`, made if there is none."""

    def __init__(self, root: str | Path, *, seams: Seams = REAL) -> None:
        self._seams = seams
        try:
            Path(root).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root = Path(root).resolve(strict=True)
            (self.root / ASIDE).mkdir(mode=0o700, exist_ok=True)
            self._sweep()
        except OSError as error:
            raise ConfigError(f"cannot use {root} as a folder for artifacts: {error.strerror}") from None

    async def save(self, key: SessionKey, name: str, part: Part, custom_metadata: dict[str, Any] | None = None) -> int:
        shelf, kept, metadata = rules.to_save(key, name, part, custom_metadata)
        blob = kept.inline_data
        about = About(
            name=name,
            text=blob is None,
            mime_type="text/plain" if blob is None else blob.mime_type,
            display_name="" if blob is None else blob.display_name,
            create_time=self._seams.clock(),
            custom_metadata=metadata,
        )
        content = (kept.text or "").encode() if blob is None else blob.data
        return await _in_thread(self._save, shelf, about, content)

    async def load(self, key: SessionKey, name: str, version: int = 0) -> Part:
        return await _in_thread(self._load, rules.shelf_of(key, name, version), name, version)

    async def delete(self, key: SessionKey, name: str, version: int = 0) -> None:
        await _in_thread(self._delete, rules.shelf_of(key, name, version), name, version)

    async def names(self, key: SessionKey) -> list[str]:
        return await _in_thread(self._names, *rules.shelves(key))

    async def versions(self, key: SessionKey, name: str) -> list[ArtifactVersion]:
        return await _in_thread(self._versions, rules.shelf_of(key, name), name)

    async def aclose(self) -> None: ...

    def _sweep(self) -> None:
        """Remove what was being made when a process died, a day ago or more."""
        for folder in _folders(self.root / ASIDE):
            with suppress(FileNotFoundError):  # another process has just put it in its place
                if folder.stat().st_mtime < self._seams.clock() - 86400:
                    shutil.rmtree(folder, ignore_errors=True)  # another process may be sweeping too

    def _shelf(self, shelf: rules.Shelf) -> Path:
        owner = [folder_name(shelf.app), folder_name(shelf.user)]
        steps = ["shared"] if shelf.session is None else ["sessions", folder_name(shelf.session)]
        return self.root.joinpath(*owner, *steps)

    def _inside(self, folder: Path) -> Path:
        """`folder`, unless a link leads out of the root."""
        if not folder.resolve().is_relative_to(self.root):
            raise Unavailable("the folder of this artifact is a link that leads out of the artifact store")
        return folder

    def _folder(self, shelf: rules.Shelf, name: str) -> Path:
        return self._inside(self._shelf(shelf) / folder_name(name))

    def _save(self, shelf: rules.Shelf, about: About, content: bytes) -> int:
        folder = self._folder(shelf, about.name)
        self._make(folder)
        aside = Path(tempfile.mkdtemp(dir=self.root / ASIDE))
        try:
            _write(aside / CONTENT, content)
            _write(aside / ABOUT, encode(about))
            _sync(aside)
            version = max(_numbers(folder), default=0) + 1
            while not _claim(aside, folder / str(version)):
                version += 1
        except BaseException:
            shutil.rmtree(aside)
            raise
        _sync(folder)
        return version

    def _make(self, folder: Path) -> None:
        """Make `folder` with its parents, durably."""
        new = [step for step in (folder, *folder.parents) if step.is_relative_to(self.root) and not step.exists()]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for step in new:
            _sync(step.parent)

    def _load(self, shelf: rules.Shelf, name: str, version: int) -> Part:
        folder = self._folder(shelf, name)
        for number in [version] if version else sorted(_numbers(folder), reverse=True):
            about = _about(folder / str(number))
            content = _read(folder / str(number) / CONTENT)
            if about is None or content is None:
                continue
            if about.text:
                return Part(text=content.decode("utf-8", "replace"))
            return Part(inline_data=Blob(mime_type=about.mime_type, data=content, display_name=about.display_name))
        raise rules.no_artifact(name, version)

    def _delete(self, shelf: rules.Shelf, name: str, version: int) -> None:
        folder = self._folder(shelf, name)
        for number in [version] if version else sorted(_numbers(folder)):
            kept = folder / str(number)
            if _about(kept) is not None:
                (kept / GONE).touch()
                (kept / ABOUT).unlink(missing_ok=True)
                (kept / CONTENT).unlink(missing_ok=True)
                _sync(kept)

    def _names(self, *shelves: rules.Shelf) -> list[str]:
        return sorted(name for shelf in shelves for name in self._names_on(self._inside(self._shelf(shelf))))

    def _names_on(self, shelf: Path) -> Iterator[str]:
        for folder in _folders(shelf):
            newest = (_about(folder / str(number)) for number in sorted(_numbers(folder), reverse=True))
            about = next((found for found in newest if found is not None), None)
            if about is not None:
                yield about.name if _HASHED in folder.name else unquote(folder.name)

    def _versions(self, shelf: rules.Shelf, name: str) -> list[ArtifactVersion]:
        folder = self._folder(shelf, name)
        found = [(number, _about(folder / str(number))) for number in sorted(_numbers(folder))]
        return [
            ArtifactVersion(
                version=number,
                mime_type=about.mime_type,
                canonical_uri=rules.canonical_uri(shelf, name, number),
                create_time=about.create_time,
                custom_metadata=about.custom_metadata,
            )
            for number, about in found
            if about is not None
        ]


async def _in_thread(step: Any, *args: Any) -> Any:
    """`step(*args)` in a worker thread; what the disk says becomes Unavailable."""
    try:
        return await anyio.to_thread.run_sync(partial(step, *args))
    except PolyportError:
        raise
    except OSError as error:
        raise Unavailable(f"the artifact store cannot be used: {error.strerror}") from error


def _folders(folder: Path) -> list[Path]:
    """The real folders in `folder`, links left out; none if it does not exist."""
    try:
        with os.scandir(folder) as found:
            return [Path(item.path) for item in found if item.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _numbers(folder: Path) -> list[int]:
    """All version numbers that were ever used."""
    return [int(item.name) for item in _folders(folder) if item.name.isdecimal()]


def _claim(aside: Path, target: Path) -> bool:
    """Rename `aside` to `target`; False if it is taken. A taken one is never empty, so nothing is replaced."""
    try:
        aside.rename(target)
    except OSError:
        if target.exists():
            return False
        raise
    return True


def _about(version: Path) -> About | None:
    body = None if version.is_symlink() else _read(version / ABOUT)
    if body is None or (version / GONE).exists():
        return None
    try:
        return msgspec.json.decode(body, type=About)
    except msgspec.DecodeError as error:
        raise Unavailable(f"the metadata of an artifact is damaged: {error}") from None


def _read(path: Path) -> bytes | None:
    """The bytes of a real file, None if there is none. A link is refused."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(file, "rb") as stream:
        return stream.read()


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    """Make renames in `folder` durable, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
