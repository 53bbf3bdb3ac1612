"""Finds agents by what a user writes on the command line: `module:attr`, a .py or .yaml file, a folder, or a folder of folders.

Used by the command line only. A word that names nothing is answered with what is near; a mistake in the user's own file with
its file and line (LoadError). Serves nothing and asks no agent.
"""

import difflib
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from polyport.app import App
from polyport.config.importing import LoadError, add_to_path, import_agent_file, import_name, import_path
from polyport.config.places import AGENT_FILE, ROOT_FILES, YAML, has_agent, root_file
from polyport.config.text import readable
from polyport.ports.agent import Agent

NAMES = ("app", "root_agent", "agent")
"""What is looked for in a module, in this order."""


class Found(NamedTuple):
    """One agent or App, the app name it will have, and where it is from."""

    name: str
    item: App | Agent
    source: str


def load(words: list[str]) -> App | dict[str, Agent]:
    """All agents that the words name, by app name; or the App itself when that is all they name."""
    importlib.invalidate_caches()  # files may be younger than what the import system remembers of their folder
    found: dict[str, Found] = {}
    for word in words:
        for one in _load_one(word):
            other = found.get(one.name)
            if other is not None and other.item is not one.item:
                raise LoadError(
                    f"two agents would be served as {one.name!r}: {other.source} and {one.source}; rename one, "
                    "or make an App({...}) with names of your own"
                )
            found[one.name] = one
    agents: dict[str, Agent] = {}
    for one in found.values():
        if isinstance(one.item, App):
            if len(found) > 1:
                raise LoadError(f"{one.source} is an App of its own and cannot be served beside others; give it alone")
            return one.item
        agents[one.name] = one.item
    return agents


def _load_one(word: str) -> list[Found]:
    path_word, colon, attr = word.rpartition(":")
    if not colon or not attr.isidentifier():
        path_word, attr = word, ""
    path = Path(path_word).expanduser()
    if path.is_dir():
        return _folder(path.resolve(), attr)
    if path.is_file():
        return [_file(path.resolve(), attr)]
    if path.suffix in (".py", *YAML):
        raise LoadError(f"there is no file {readable(path_word)}{_near(path, attr)}")
    if all(part.isidentifier() for part in path_word.split(".")):
        module = import_name(path_word)
        if module is not None:
            item = _pick(module, attr, word)
            return [Found(_own_name(item), item, word)]
    raise LoadError(f"{readable(word)!r} is not a folder, a .py or .yaml file, or module:attr{_near(path, attr)}")


def _file(path: Path, attr: str) -> Found:
    if path.suffix in YAML:
        return _yaml(path, attr, "")
    if path.suffix != ".py":
        raise LoadError(f"{readable(str(path))} is not a .py file, and not a .yaml file")
    module = import_agent_file(path) if path.name == AGENT_FILE else import_path(path)
    item = _pick(module, attr, str(path))
    return Found(_own_name(item), item, str(path))


def _folder(folder: Path, attr: str) -> list[Found]:
    """An agent's folder (with agent.py, or a package that has an agent), or a folder of such folders."""
    written = root_file(folder)
    if (folder / AGENT_FILE).is_file():
        if written is not None:
            shown = readable(str(folder))
            raise LoadError(f"{shown} has both {AGENT_FILE} and {written.name}; name one of the files, or rename one")
        return [_of_folder(folder, import_agent_file(folder / AGENT_FILE), attr)]
    if written is not None:
        return [_yaml(written, attr, readable(folder.name))]
    below = sorted(p for p in folder.iterdir() if has_agent(p))
    if (folder / "__init__.py").is_file():
        module = import_path(folder)
        if attr or not below or _agents(module):
            return [_of_folder(folder, module, attr)]
    if not below:
        raise LoadError(
            f"folder {readable(str(folder))} has no {AGENT_FILE} and no root_agent.yaml, and no folder in it has one"
            f"{_near(folder)}"
        )
    if attr:
        names = ", ".join(readable(p.name) for p in below)
        raise LoadError(f"{readable(str(folder))} holds several agents, so :{attr} says too little; they are: {names}")
    return [one for sub in below for one in _folder(sub, "")]


def _of_folder(folder: Path, module: ModuleType, attr: str) -> Found:
    """The app's name is that of the folder, but for an agent that was asked for by its own name."""
    item = _pick(module, attr, str(folder))
    name = "" if attr and attr not in NAMES else readable(folder.name)
    return Found(name or _own_name(item), item, str(folder))


def _yaml(path: Path, attr: str, name: str) -> Found:
    from polyport.config.yaml_agents import (
        load_yaml,  # needed by this choice only: it knows all kinds of agents and tools
    )

    if attr:
        raise LoadError(f"{readable(str(path))} holds one agent; leave out :{attr}")
    item = load_yaml(path, app_name=name)
    return Found(name or _own_name(item), item, str(path))


def _own_name(item: App | Agent) -> str:
    return item.name if isinstance(item, Agent) else "app"


def _pick(module: ModuleType, attr: str, word: str) -> App | Agent:
    """The agent or App of a module: the named one, else one of NAMES, else the only root there is."""
    if attr:
        return _asked_for(module, attr, word)
    for name in NAMES:
        item = getattr(module, name, None)
        if isinstance(item, App | Agent):
            return item
    agents = _agents(module)
    below = {id(child) for agent in agents.values() for child in agent.sub_agents}
    roots = {name: agent for name, agent in agents.items() if id(agent) not in below}
    if len({id(agent) for agent in roots.values()}) == 1:
        return next(iter(roots.values()))
    if roots:
        raise LoadError(
            f"{word} has several agents; say which, as {word}:{next(iter(roots))}; they are: {', '.join(roots)}"
        )
    wrong = next((n for n in NAMES if hasattr(module, n)), "")
    if wrong:
        raise LoadError(f"{word}: {wrong!r} is {_what(getattr(module, wrong))}, not an agent or an App of Polyport")
    raise LoadError(f"{word} has no agent: name one `root_agent`, `agent` or `app`; it has: {_public(module)}")


def _asked_for(module: ModuleType, attr: str, word: str) -> App | Agent:
    item: Any = getattr(module, attr, None)
    if isinstance(item, App | Agent):
        return item
    agents = ", ".join([n for n in vars(module) if n in NAMES or n in _agents(module)])
    there = f"Its agents are: {agents}" if agents else f"It has: {_public(module)}"
    if item is None:
        meant = difflib.get_close_matches(attr, list(vars(module)), n=1)
        guess = f"; did you mean {meant[0]!r}?" if meant else "."
        raise LoadError(f"{word}: there is no {attr!r} in it{guess} {there}")
    raise LoadError(f"{word}: {attr!r} is {_what(item)}, not an agent or an App of Polyport. {there}")


def _agents(module: ModuleType) -> dict[str, Agent]:
    """The agents of a module by their variables' names; an App counts by being named as one of NAMES."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Agent)}


def _what(item: object) -> str:
    kind = type(item)
    return (
        f"of type {kind.__name__}"
        if kind.__module__ == "builtins"
        else f"of type {kind.__module__}.{kind.__qualname__}"
    )


def _public(module: ModuleType) -> str:
    names = [n for n, v in vars(module).items() if not n.startswith("_") and not isinstance(v, ModuleType)]
    return ", ".join(names) or "nothing"


def _near(path: Path, attr: str = "") -> str:
    """What a user may have meant, and what there is: the end of a message."""
    add_to_path(Path.cwd())
    above = next((p for p in path.parents if p.is_dir()), Path())
    there = {
        str(p) if above != Path() else p.name: p.name
        for p in sorted(above.iterdir(), key=_folders_first)
        if _looks_like_agent(p)
    }
    where = "this folder" if above == Path() else readable(str(above))
    meant = difflib.get_close_matches(path.name, [*there.values()], n=1, cutoff=0.6)
    name = next((word for word, last in there.items() if meant and last == meant[0]), "")
    guess = f"; did you mean {readable(name)}{':' + attr if attr else ''}?" if name else ""
    names = ", ".join(readable(word) for word in list(there)[:10])
    more = ", ..." if len(there) > 10 else ""
    return f"{guess or '.'} In {where} there is: {names or 'no agent'}{more}"


def _looks_like_agent(path: Path) -> bool:
    if path.name.startswith((".", "_")):
        return False
    if path.suffix in YAML:
        return path.name in ROOT_FILES
    if path.suffix == ".py":
        return not path.name.startswith("test_") and path.name not in ("setup.py", "conftest.py")
    return path.is_dir() and any(has_agent(sub) for sub in (path, *_subfolders(path)))


def _folders_first(path: Path) -> tuple[bool, str]:
    return path.is_file(), path.name


def _subfolders(path: Path) -> list[Path]:
    try:
        return [p for p in path.iterdir() if p.is_dir()]
    except OSError:
        return []
