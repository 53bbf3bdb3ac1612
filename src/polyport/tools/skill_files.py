"""Skills as folders: reads SKILL.md and the files beside it, and checks both (spec core 6.5, "Skill toolset").

Called by `tools/skills` in worker threads, for everything here blocks. Reads inside the folder of a skill only, whatever a
path says and wherever a link leads. Runs nothing.
"""

import os
import posixpath
import re
import stat
from pathlib import Path
from typing import Any, cast

import yaml
from msgspec import Struct

from polyport.errors import BadRequest, NotFound, PolyportError, TooLarge, Unavailable

FILE = "SKILL.md"
RESOURCES = ("references", "assets", "scripts")
"""The folders of a skill whose files may be read."""
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500
MAX_FRONTMATTER_BYTES = 64 * 1024

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")


class Frontmatter(Struct, frozen=True, rename="kebab", omit_defaults=True):
    """What the head of a SKILL.md says."""

    name: str
    description: str
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str] = {}
    allowed_tools: list[str] = []


class Skill(Struct, frozen=True):
    """A skill as read; `folder` is its real place."""

    head: Frontmatter
    instructions: str
    folder: Path

    @property
    def name(self) -> str:
        return self.head.name


class BadSkill(BadRequest):
    """A folder that is meant to be a skill but is none; the message names the folder and what is wrong."""


def parse_skill(text: str, folder: str) -> tuple[Frontmatter, str]:
    """The head and the body of a SKILL.md in a folder of this name. BadRequest for what breaks a rule."""
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        raise BadRequest("the first line must be ---")
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
    if not end:
        raise BadRequest("a line --- must end the head")
    head = "".join(lines[1:end])
    if len(head.encode("utf-8", "replace")) > MAX_FRONTMATTER_BYTES:
        raise BadRequest(f"the head has more than {MAX_FRONTMATTER_BYTES} bytes")
    return _frontmatter(_members(head), folder), "".join(lines[end + 1 :]).strip()


def _members(head: str) -> dict[str, yaml.Node]:
    """The members of the head, unparsed: texts are as they are written, so that a name of `007` or `on` stays one."""
    try:
        node = cast("Any", yaml).compose(head, Loader=yaml.CSafeLoader)  # its stubs leave the types open
    except yaml.YAMLError as error:
        raise BadRequest(f"the head is not YAML: {_one_line(error)}") from None
    except RecursionError:
        raise BadRequest("the head is nested too deeply") from None
    if not isinstance(node, yaml.MappingNode):
        raise BadRequest("the head must be a mapping such as `name: ...`")
    return _mapping(node, "the head")


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "unreadable"
    return f"{problem} (line {mark.line + 2})" if mark is not None else str(problem)


def _mapping(node: yaml.MappingNode, where: str) -> dict[str, yaml.Node]:
    found: dict[str, yaml.Node] = {}
    for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
        name = _text(key, f"a key of {where}")
        if name in found:
            raise BadRequest(f"{name!r} stands twice in {where}", name)
        found[name] = value
    return found


def _text(node: yaml.Node | None, where: str) -> str:
    """A scalar as it is written; "" for none and for null."""
    if node is None:
        return ""
    if not isinstance(node, yaml.ScalarNode):
        raise BadRequest(f"{where} must be text", where)
    return "" if node.tag == "tag:yaml.org,2002:null" else str(node.value)


def _frontmatter(members: dict[str, yaml.Node], folder: str) -> Frontmatter:
    unknown = [key for key in members if key not in _KEYS]
    if unknown:
        raise BadRequest(f"unknown key {unknown[0]!r} in the head; known are {', '.join(_KEYS)}", unknown[0])
    name, description, licence, compatibility = (_text(members.get(key), key) for key in _KEYS[:4])
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise BadRequest(
            f"name {name[:80]!r}: a skill's name has 1 to {MAX_NAME} characters a-z, 0-9 and single hyphens inside",
            "name",
        )
    if name != folder:
        raise BadRequest(f"the skill is named {name!r}, but its folder {folder!r}; they must be the same", "name")
    if not description.strip() or len(description) > MAX_DESCRIPTION:
        raise BadRequest(
            f"the description must have 1 to {MAX_DESCRIPTION} characters; it has {len(description.strip())}",
            "description",
        )
    if len(compatibility) > MAX_COMPATIBILITY:
        raise BadRequest(f"compatibility may have {MAX_COMPATIBILITY} characters", "compatibility")
    return Frontmatter(
        name=name,
        description=description.strip(),
        license=licence,
        compatibility=compatibility,
        metadata=_metadata(members.get("metadata")),
        allowed_tools=_allowed_tools(members.get("allowed-tools")),
    )


def _metadata(node: yaml.Node | None) -> dict[str, str]:
    if isinstance(node, yaml.MappingNode):
        return {key: _text(value, f"metadata.{key}") for key, value in _mapping(node, "metadata").items()}
    if _text(node, "metadata"):
        raise BadRequest("metadata must be a mapping of texts", "metadata")
    return {}


def _allowed_tools(node: yaml.Node | None) -> list[str]:
    if isinstance(node, yaml.SequenceNode):
        return [_text(item, "allowed-tools") for item in cast("list[yaml.Node]", node.value)]
    return split_tools(_text(node, "allowed-tools"))


def split_tools(text: str) -> list[str]:
    """Split at blanks and commas that are outside parentheses: `Bash(git add:*), Read` are two."""
    found: list[str] = []
    depth, word = 0, ""
    for c in text:
        depth += (c == "(") - (c == ")" and depth > 0)
        if depth == 0 and (c == "," or c.isspace()):
            found.append(word)
            word = ""
        else:
            word += c
    return [word for word in [*found, word] if word]


def skill_folders(folder: Path) -> list[Path]:
    """The folders with a SKILL.md: `folder` itself, or else those in it, sorted by name. NotFound if there is no folder."""
    try:
        if _exists(folder / FILE):
            return [folder]
        return sorted(child for child in folder.iterdir() if _exists(child / FILE))
    except OSError as error:
        raise NotFound(f"the folder of skills {folder} cannot be read: {error.strerror}") from None


def _exists(path: Path) -> bool:
    """Whether there is something of this name, if only a link that leads nowhere."""
    return os.path.lexists(path)


def read_skill(folder: Path, max_bytes: int) -> Skill:
    """The skill in `folder`. BadSkill, with the name of the folder, whatever is wrong with it."""
    try:
        root = _real(folder)
        body = _read(root, FILE, max_bytes)
        head, instructions = parse_skill(body.decode("utf-8", "replace"), folder.name)
    except (PolyportError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadSkill(f"{folder.name}/{FILE}: {why}") from None
    return Skill(head, instructions, root)


def clean_path(path: str) -> str:
    """`path` below one of RESOURCES, without detours. BadRequest for every other path."""
    steps = posixpath.normpath(path).split("/") if path else []
    bad = "\\" in path or "\0" in path or path.startswith("/") or len(steps) < 2 or steps[0] not in RESOURCES
    if bad:
        allowed = ", ".join(f"{name}/" for name in RESOURCES)
        raise BadRequest(
            f"{path[:200]!r} is not a file of a skill: a path begins with one of {allowed}", "resource_path"
        )
    return "/".join(steps)


def read_resource(skill: Skill, path: str, max_bytes: int) -> bytes:
    """The bytes of a file of the skill. BadRequest for a path that leads elsewhere, NotFound, TooLarge, Unavailable."""
    clean = clean_path(path)
    try:
        return _read(skill.folder, clean, max_bytes)
    except (FileNotFoundError, NotADirectoryError):
        there = ", ".join(resource_names(skill)) or "none"
        raise NotFound(f"the skill {skill.name!r} has no file {clean!r}; its files are: {there}") from None
    except OSError as error:
        raise Unavailable(f"the file {clean!r} of the skill {skill.name!r} cannot be read: {error.strerror}") from None


def _read(root: Path, path: str, max_bytes: int) -> bytes:
    """The bytes of the real file `path` below `root`, an absolute path without links. OSError if it cannot be read."""
    real = _real(root / path)
    first = path.split("/")[0]
    if not real.is_relative_to(root) or real.relative_to(root).parts[:1] != (first,):
        raise BadRequest(f"{path!r} leads out of the skill", "resource_path")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(real, flags)  # does not wait for a pipe's other end
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise BadRequest(f"{path!r} is not a file", "resource_path")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            body = stream.read(max_bytes + 1) if about.st_size <= max_bytes else b""
        if about.st_size > max_bytes or len(body) > max_bytes:
            raise TooLarge(f"{path!r} has more than {max_bytes} bytes")
        return body
    finally:
        os.close(handle)


def _real(path: Path) -> Path:
    """Where `path` leads. OSError if that is nowhere."""
    return Path(os.path.realpath(path, strict=True))  # `Path.resolve` raises something else for a link to itself


def resource_names(skill: Skill, limit: int = 100) -> list[str]:
    """The paths of the files that may be read, sorted; at most `limit`, then `...`. Links to folders are not followed."""
    found: list[str] = []
    for top in RESOURCES:
        if (skill.folder / top).is_symlink():
            continue
        for folder, _, files in os.walk(skill.folder / top):
            found += [(Path(folder) / file).relative_to(skill.folder).as_posix() for file in files]
            if len(found) > limit:
                return [*sorted(found)[:limit], "..."]
    return sorted(found)
