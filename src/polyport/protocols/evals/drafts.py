"""The files of the YAML editor: agent files of an app, and a draft of them that is not in use yet (spec rest 10.1).

A draft lies in `<app>/.tmp/<app>` until it is saved for good, or cancelled. What comes from the page is checked: only YAML
files inside the app's folder, that name no code but the app's own, start no program and lead to no other file. `!env` is
taken where it is a plain value. Used by `builder`, in worker threads.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import unquote

import yaml

from polyport.errors import BadRequest
from polyport.evals.folder import AppFolder, bare, write

MAIN = "root_agent.yaml"
ENDINGS = (".yaml", ".yml")
MAX_FILES, MAX_BYTES, MAX_DEPTH, MAX_NODES = 200, 1024 * 1024, 64, 20_000
"""The last three are those of agent files, for a file, where they are read."""
CODE_KEYS = frozenset(
    {
        *("code", "tools", "func", "function", "funccode", "toolcode", "edges", "agentclass", "modelcode", "headers"),
        *(
            "headerprovider",
            "refresh",
            "options",
            "buildmessage",
            "beforerequest",
            "afterevent",
            "summariser",
            "response",
        ),
        *("inputschema", "outputschema", "stateschema", "requireconfirmation", "examples", "plugins", "protocols"),
        *("toolfilter", "auth", "instructionprovider", "instruction", "globalinstruction"),
    }
)
"""Keys below which a dotted name is code, besides all that end with `callbacks` or `callback`. These and the other keys are
compared in lower case, without underscores."""
PROGRAM_KEYS = frozenset({"command", "stdioconnectionparams", "stdioserverparams", "serverparams"})
"""Keys that start a program."""
PATH_KEYS = frozenset({"configpath", "file", "folders", "cwd", "spec", "card", "path", "stores"})
URL_KEYS = frozenset({"spec", "card"})
TEXT_KEYS = frozenset({"instruction", "globalinstruction"})
"""Keys whose texts are no code, whatever stands in them; a mapping below them may name some."""


class FromEnvironment(str):
    """What `!env` stands for, which nobody knows here. A secret or an address may come from there; code and files may not."""

    __slots__ = ()


class _Loader(yaml.CSafeLoader):
    """Plain YAML, and the one tag that agent files have."""


def _from_environment(loader: _Loader, node: yaml.ScalarNode) -> FromEnvironment:
    return FromEnvironment(node.value)


_Loader.add_constructor("!env", cast("Any", _from_environment))


def read_draft(folder: AppFolder, file: str, tmp: bool) -> bytes:
    """The text of a file, that of the draft first if `tmp`; b"" if there is none, or it is not to be read."""
    try:
        parts = _parts(folder.app, file or MAIN)
        drafted = folder.inside(".tmp", folder.app, *parts)
        path = drafted if tmp and drafted.is_file() else folder.inside(*parts)
        return path.read_bytes()
    except (BadRequest, OSError):
        return b""


def save(folder: AppFolder, files: Mapping[str, bytes], tmp: bool) -> None:
    """Write files into the draft; or for good, after what is in the draft, which is gone then. All are checked before one is
    written. BadRequest; OSError."""
    if not files or len(files) > MAX_FILES:
        raise BadRequest(f"send from 1 to {MAX_FILES} files, as `files`", "files")
    checked = {_parts(folder.app, name): text for name, text in files.items()}
    for name, text in files.items():
        check_yaml(folder.app, name, text)
    base = (".tmp", folder.app) if tmp else ()
    paths = {folder.inside(*base, *parts): text for parts, text in checked.items()}
    draft = folder.inside(".tmp", folder.app)
    if not tmp and draft.is_dir():
        for path in sorted(p for p in draft.rglob("*") if p.is_file() and not p.is_symlink() and p.suffix in ENDINGS):
            write(folder.inside(*path.relative_to(draft).parts), path.read_bytes())
    for path, text in paths.items():
        write(path, text)
    if not tmp:
        cancel(folder)


def cancel(folder: AppFolder) -> None:
    """Throw the draft away."""
    draft: Path = folder.inside(".tmp")
    if draft.is_dir():
        shutil.rmtree(draft)


def _parts(app: str, name: str) -> tuple[str, ...]:
    """The path of a file inside the app's folder; `<app>/` before it is left out. BadRequest."""
    if "\\" in name or name.startswith("/") or len(name) > 1000:
        raise BadRequest(f"{name[:100]!r} must be a relative path with forward slashes")
    parts = PurePosixPath(name).parts
    if ".." in parts:
        raise BadRequest(f"Path traversal rejected: {name[:100]!r}")
    if len(parts) > 1 and parts[0] == app:
        parts = parts[1:]
    if not parts or not parts[-1].endswith(ENDINGS):
        raise BadRequest(f"File type not allowed: {name[:100]!r} (allowed: {', '.join(ENDINGS)})")
    for part in parts:
        bare(part, "file name")
    return parts


def check_yaml(app: str, name: str, text: bytes) -> None:
    """BadRequest for a text that is not plain YAML, or that names code, programs or files outside."""
    where = ascii(name[:100])
    if len(text) > MAX_BYTES:
        raise BadRequest(f"{where} is larger than {MAX_BYTES} bytes")
    try:
        decoded = text.decode()
        _check_shape(decoded, where)
        parsed: Any = yaml.load(decoded, _Loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadRequest(f"{where} is no YAML that can be read: {str(error)[:500]}") from None
    for key, value in _pairs(parsed, ""):
        plain = key.replace("_", "").lower()
        if plain in PROGRAM_KEYS:
            raise BadRequest(f"{where}: the key {key!r} starts a program, which this editor may not set up")
        if plain in PATH_KEYS and isinstance(value, str) and _leads_out(plain, value):
            raise BadRequest(f"{where}: {key} leads out of the folder of the app: {value[:100]!r}")
        if plain in CODE_KEYS or plain.endswith(("callbacks", "callback")):
            _check_code(app, where, key, value)


def _check_code(app: str, where: str, key: str, value: Any) -> None:
    if key.replace("_", "").lower() in TEXT_KEYS and isinstance(value, str):
        return
    for reference in _steps(value) if key == "edges" else _references(value):
        is_file = key == "edges" and reference.endswith(ENDINGS) and not isinstance(reference, FromEnvironment)
        if is_file and _leads_out("", reference):
            raise BadRequest(f"{where}: {key} leads out of the folder of the app: {reference[:100]!r}")
        if not is_file and not _allowed(app, reference):
            raise BadRequest(
                f"Blocked code reference {reference[:100]!r} in {where}: `{key}` may only name code under {app!r}, "
                "or what is built in"
            )


def _check_shape(text: str, where: str) -> None:
    depth = nodes = 0
    events: Iterator[yaml.Event] = cast("Any", yaml).parse(text, Loader=yaml.CSafeLoader)
    for event in events:
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > MAX_NODES:
            raise BadRequest(f"{where} has more than {MAX_NODES} values")
        if isinstance(event, yaml.AliasEvent):
            raise BadRequest(f"{where} has an alias (*{event.anchor}), which this editor does not take")
        tag: str | None = getattr(event, "tag", None)
        known = tag == "!env" if isinstance(event, yaml.ScalarEvent) else False
        if tag is not None and not known and not tag.startswith("tag:yaml.org,2002:"):
            raise BadRequest(f"{where} has the tag {tag[:100]!r}, which this editor does not take")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise BadRequest(f"{where} nests deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _pairs(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Every value below `value` with the key under which it stands; the items of a list stand under the key of the list."""
    if key:
        yield key, value
    if isinstance(value, dict):
        for inner, item in cast("dict[Any, Any]", value).items():
            yield from _pairs(item, str(inner))
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _pairs(item, key)


def _leads_out(key: str, value: str) -> bool:
    if isinstance(value, FromEnvironment):
        return True
    if key in URL_KEYS and value.startswith(("https://", "http://")):
        return False
    if key == "stores":
        value = unquote(value.removeprefix("sqlite:///"))
        value = "" if value.startswith("memory:") else value  # and no page chooses a host to connect to
    path = PurePosixPath(value.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or ":" in value


def _references(value: Any) -> Iterator[str]:
    """What may name code in a value: a text, the texts of a list, and the `name` of a mapping."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _references(item)
    elif isinstance(value, dict):
        yield from _references(cast("dict[Any, Any]", value).get("name"))


def _steps(value: Any) -> Iterator[str]:
    """What the chains of a workflow name: every text in them, also behind a route."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        inner = cast("dict[Any, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        for item in inner:
            yield from _steps(item)


def _allowed(app: str, reference: str) -> bool:
    if isinstance(reference, FromEnvironment):
        return False
    plain = not any(mark in reference for mark in ".:/\\")
    return plain or reference.startswith((f"{app}.", f"{app}:", "google.adk."))
