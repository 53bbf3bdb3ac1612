"""Finds agents by what a user writes on the command line: `module:attr`, a .py file, or a folder.

Used by the command line only. An error in the user's own file is told with its file and line (LoadError), never as a bare
"not found". A `.env` file beside the agent is read; what is set already stays.
"""

import importlib
import importlib.util
import linecache
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from dotenv import load_dotenv

from polyport.app import App
from polyport.errors import ConfigError
from polyport.ports.agent import Agent

NAMES = ("app", "root_agent", "agent")
"""What is looked for in a module, in this order."""


class LoadError(ConfigError):
    """The user's agent could not be loaded; the message has the file and line where it went wrong."""


def load(words: list[str]) -> App | dict[str, Agent]:
    """All agents that the words name, by app name; or the App itself when one word names an App."""
    found: dict[str, Agent] = {}
    for word in words:
        for name, item in _load_one(word).items():
            if isinstance(item, App):
                if len(words) > 1:
                    raise LoadError(f"{word} is an App of its own and cannot be served beside others; give it alone")
                return item
            if name in found:
                raise LoadError(f"two agents would be served as {name!r}; rename one")
            found[name] = item
    return found


def _load_one(word: str) -> dict[str, App | Agent]:
    path_word, colon, attr = word.rpartition(":")
    if not colon or not attr.isidentifier():
        path_word, attr = word, ""
    path = Path(path_word).expanduser()
    if path.is_dir():
        return _folder(path.resolve(), attr)
    if path.suffix == ".py" or path.is_file():
        if not path.is_file():
            raise LoadError(f"there is no file {path_word}")
        path = path.resolve()
        return _named(_pick(_import_file(path), attr, word), "")
    if all(part.isidentifier() for part in path_word.split(".")) and (colon or _importable(path_word)):
        return _named(_pick(_import_module(path_word), attr, word), "")
    raise LoadError(f"{word!r} is not a folder, a .py file or module:attr. In this folder there is: {_nearby()}")


def _folder(folder: Path, attr: str) -> dict[str, App | Agent]:
    """An agent's folder (with agent.py or a package), or a folder of such folders."""
    if (folder / "agent.py").is_file() or (folder / "__init__.py").is_file():
        load_dotenv(folder / ".env", override=False, encoding="utf-8")
        if (folder / "__init__.py").is_file():
            _put_first(folder.parent)
            has_agent = (folder / "agent.py").is_file()
            module = _import_module(folder.name + (".agent" if has_agent else ""))
        else:
            module = _import_file(folder / "agent.py")
        return _named(_pick(module, attr, str(folder)), folder.name)
    below = sorted(p for p in folder.iterdir() if p.is_dir() and (p / "agent.py").is_file())
    if not below:
        raise LoadError(f"folder {folder} has no agent.py, and no folder in it has one")
    found: dict[str, App | Agent] = {}
    for sub in below:
        found.update(_folder(sub, attr))
    return found


def _named(item: App | Agent, name: str) -> dict[str, App | Agent]:
    return {name or (item.name if isinstance(item, Agent) else "app"): item}


def _importable(name: str) -> bool:
    _put_first(Path.cwd())
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _put_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_module(name: str) -> ModuleType:
    _put_first(Path.cwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _told(error, name) from error


def _import_file(path: Path) -> ModuleType:
    load_dotenv(path.parent / ".env", override=False, encoding="utf-8")
    _put_first(path.parent)
    name = f"{path.parent.name}_{path.stem}" if path.stem == "agent" else path.stem
    if path.stem in sys.stdlib_module_names:
        name = f"agent_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        raise _told(error, str(path)) from error
    return module


def _told(error: Exception, what: str) -> LoadError:
    """The error with the line of the user's code that it comes from."""
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}, line {error.lineno}: {(error.text or '').strip()}"
        return LoadError(f"{what} could not be loaded.\n  {where}\n  {type(error).__name__}: {error.msg}")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _ours(f.filename)]
    text = f"{type(error).__name__}: {error}"
    if not frames:
        return LoadError(f"{what} could not be loaded.\n  {text}")
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return LoadError(f"{what} could not be loaded.\n  {last.filename}, line {last.lineno}: {line}\n  {text}")


def _ours(filename: str) -> bool:
    return filename.startswith("<frozen") or str(Path(__file__).parent.parent) in filename


def _pick(module: ModuleType, attr: str, word: str) -> App | Agent:
    if attr:
        item: Any = getattr(module, attr, None)
        if item is None:
            raise LoadError(f"{word}: there is no {attr!r} in it; it has: {_public(module)}")
        if not isinstance(item, App | Agent):
            raise LoadError(f"{word}: {attr!r} is a {type(item).__name__}, not an agent or an App")
        return item
    for name in NAMES:
        item = getattr(module, name, None)
        if isinstance(item, App | Agent):
            return item
    agents = {id(v): v for v in vars(module).values() if isinstance(v, Agent)}
    children = {id(c) for a in agents.values() for c in a.sub_agents}
    roots = [a for i, a in agents.items() if i not in children]
    if len(roots) == 1:
        return roots[0]
    if roots:
        raise LoadError(f"{word} has several agents ({', '.join(a.name for a in roots)}); say which: {word}:NAME")
    raise LoadError(f"{word} has no agent: name one `root_agent`, `agent` or `app`; it has: {_public(module)}")


def _public(module: ModuleType) -> str:
    return ", ".join(n for n in vars(module) if not n.startswith("_")) or "nothing"


def _nearby() -> str:
    names = [
        p.name for p in sorted(Path.cwd().iterdir()) if p.suffix == ".py" or (p.is_dir() and (p / "agent.py").is_file())
    ]
    return ", ".join(names[:10]) or "no agent"
