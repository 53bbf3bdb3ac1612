"""Imports the user's files, wherever they lie and whatever they are called.

Used by the loader only. A folder of an agent is a package, with or without an `__init__.py`, so that relative imports work; the
files beside an agent can be imported by their bare names too. Two files of one name, and names of standard modules, do not
get in each other's way. What goes wrong in a file is told with the line of the user's own code (LoadError).
"""

import importlib
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from polyport.config.env import read_env
from polyport.errors import ConfigError

OURS = str(Path(__file__).parent.parent) + os.sep


class LoadError(ConfigError):
    """The user's agent could not be loaded; the message has the file and line where it went wrong."""


def import_path(path: Path) -> ModuleType:
    """The module of a `.py` file, or of a package's folder. An absolute path. Reads the `.env` files first."""
    package = path.is_dir()
    read_env(path if package else path.parent)
    names, above = _place(path)
    if package or len(names) > 1:
        top = _package(above / names[0])
        return _import(".".join([top, *names[1:]]), path)
    with _siblings(path.parent):
        return _file(path)


def import_agent_file(path: Path) -> ModuleType:
    """The module of an `agent.py`, as a member of a package that is its folder, even without an `__init__.py`."""
    if (path.parent / "__init__.py").is_file():
        return import_path(path)
    read_env(path.parent)
    with _siblings(path.parent):
        return _import(f"{_package(path.parent)}.{path.stem}", path)


def import_inside(folder: Path, path: Path) -> ModuleType:
    """The module of a file or a package at `path`, somewhere below `folder`, as a member of the package that `folder` is, even
    without an `__init__.py`. Absolute paths. Reads the `.env` files first."""
    read_env(folder)
    inner = path.relative_to(folder).with_suffix("").parts
    with _siblings(folder):
        return _import(".".join([_package(folder), *inner]), path)


def import_name(name: str) -> ModuleType | None:
    """The module with this dotted name, None if there is no such module. The current folder counts."""
    add_to_path(Path.cwd())
    top, *rest = name.split(".")
    spec = _find(top)
    if spec is None:
        return None
    homes = [Path(p) for p in spec.submodule_search_locations or ()] or [Path(spec.origin or "").parent]
    inner = homes[0].joinpath(*rest[:-1])
    read_env(inner if inner.is_dir() else homes[0])
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        raise told(error, name, homes[0]) from error
    except (Exception, SystemExit) as error:
        raise told(error, name, homes[0]) from error


def add_to_path(folder: Path) -> None:
    """Let modules of `folder` be found: after those of Python itself, before those that are installed."""
    if str(folder) in sys.path:
        return
    at = (i for i, entry in enumerate(sys.path) if "site-packages" in entry or "dist-packages" in entry)
    sys.path.insert(next(at, len(sys.path)), str(folder))


@contextmanager
def _siblings(folder: Path) -> Generator[None]:
    """Inside the block, bare names of files in `folder` mean those files, also where another agent's file of that name is
    loaded; afterwards such a name is the other's again. An import inside a function comes too late for that."""
    add_to_path(folder)
    others = _ADDED - {folder}
    _ADDED.add(folder)
    names = {entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    taken = {name for name in names if any(_lies_in(sys.modules.get(name), other) for other in others)}
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in taken}
    before = sys.path.copy()
    sys.path[:] = [entry for entry in before if entry not in {str(other) for other in others}]
    try:
        yield
    finally:
        sys.path[:] = [entry for entry in sys.path if entry not in before] + before
        for name in [name for name in sys.modules if name.partition(".")[0] in taken]:
            del sys.modules[name]
        sys.modules.update(hidden)


_ADDED: set[Path] = set()
"""The folders of agents whose files can be imported by bare names."""


def _lies_in(module: ModuleType | None, folder: Path) -> bool:
    """Whether a module is a file or a package right in a folder."""
    spec = getattr(module, "__spec__", None)
    homes = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])] if spec else []
    return any(Path(home).parent == folder for home in homes)


def _place(path: Path) -> tuple[list[str], Path]:
    """The module's name with all packages above it, and the folder in which the first of them lies."""
    names = [path.name if path.is_dir() else path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return names, folder


def _package(folder: Path) -> str:
    """The name under which the package of `folder` is in `sys.modules`; it is put there if need be."""
    init = folder / "__init__.py"
    real = init.is_file()
    name = _name_for(folder, real)
    if name in sys.modules:
        return name
    if real:
        add_to_path(folder.parent)
        spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[str(folder)])
    else:
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
    _run(spec, init if real else folder)
    return name


def _file(path: Path) -> ModuleType:
    """The module of a file that belongs to no package."""
    name = _name_for(path, False)
    if name in sys.modules:
        return sys.modules[name]
    return _run(importlib.util.spec_from_file_location(name, path), path)


def _name_for(path: Path, owns_name: bool) -> str:
    """A module name for `path`: its own, unless that is Python's or another module's. A regular package owns its name even
    if an installed one is called the same; anything else must not hide what is installed."""
    stem = path.stem if path.suffix == ".py" else path.name
    wanted = "".join(c if c.isalnum() else "_" for c in stem) or "agent"
    name, number = wanted, 1
    while not _is_free(name, path, owns_name):
        number += 1
        name = f"{wanted}_{number}"
    return name


def _is_free(name: str, path: Path, owns_name: bool) -> bool:
    loaded = sys.modules.get(name)
    if loaded is not None:
        return _lies_at(getattr(loaded, "__spec__", None), path)
    if name in sys.stdlib_module_names:
        return False
    if owns_name:
        return True
    found = _find(name)
    return found is None or _lies_at(found, path)


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    """The spec of a module with a name without dots: nothing is imported by asking."""
    try:
        return importlib.util.find_spec(name)
    except ValueError:  # loaded, but not from anywhere
        return None


def _lies_at(spec: importlib.machinery.ModuleSpec | None, path: Path) -> bool:
    if spec is None:
        return False
    homes = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]
    return any(Path(home).resolve() == path for home in homes)


def _import(name: str, path: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise told(error, str(path), path.parent) from error


def _run(spec: importlib.machinery.ModuleSpec | None, path: Path) -> ModuleType:
    if spec is None:
        raise LoadError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if spec.loader is not None and hasattr(spec.loader, "exec_module") and spec.origin is not None:
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            sys.modules.pop(spec.name, None)
            raise told(error, str(path), path.parent) from error
    return module


def told(error: BaseException, what: str, home: Path) -> LoadError:
    """The error with the line of the user's code that it comes from: the last one below `home`, else the last that is not
    Polyport's or Python's import machinery."""
    lines = [f"{what} could not be loaded."]
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
        lines.append(f"  {error.filename}, line {error.lineno}: {(error.text or '').strip()}")
        lines.append(f"  {type(error).__name__}: {error.msg}")
        return LoadError("\n".join(lines))
    lines += [f"  {line}" for line in blame(error, home)]
    lines.append(f"  {type(error).__name__}: {error}")
    lines += [f"  {note}" for note in getattr(error, "__notes__", ())]
    if isinstance(error, ImportError):
        lines += _hint(error, home)
    return LoadError("\n".join(lines))


def blame(error: BaseException, home: Path | None = None) -> list[str]:
    """One line `file, line 3: code` with the last line of the user's code that an error went through: below `home`, else
    outside of Polyport and what is installed. Empty if it went through none."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours(f.filename)]
    own = [f for f in frames if "site-packages" not in f.filename]
    if home is not None:
        own = [f for f in own if Path(f.filename).is_relative_to(home)]
    for frame in (own or frames)[-1:]:
        line = linecache.getline(frame.filename, frame.lineno or 0).strip()
        return [f"{frame.filename}, line {frame.lineno}: {line}"]
    return []


def _hint(error: ImportError, home: Path) -> list[str]:
    """Why a file that is there was not imported."""
    name = error.name or ""
    if name in sys.stdlib_module_names and (home / f"{name}.py").is_file():
        return [f"  Python's own module {name!r} hides {name}.py; give the file another name"]
    return []


def _is_ours(filename: str) -> bool:
    return filename.startswith("<frozen") or filename.startswith(OURS)
