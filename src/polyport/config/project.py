"""The folder that an agent file belongs to: its files, and the code that it names. One for each load.

Used by the builders of agents. A path leads to a file inside the folder, whatever links and `..` say (spec core 9). Code is
taken from the folder's own modules and from installed ones, as for agents in Python; never from Python's standard library. What
is wrong becomes a problem with the place of the word that named it.
"""

import difflib
import inspect
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from polyport.config.importing import LoadError, import_inside, import_name
from polyport.config.schema import CodeSection
from polyport.config.text import readable
from polyport.config.yaml_read import BROKEN
from polyport.config.yaml_text import Node, Problems, read_file
from polyport.errors import PolyportError

MAX_TEXT_BYTES = 1024 * 1024
"""Of a text file, such as an instruction."""
WORDS = "tools"
"""The module of the project in which a name without dots is looked up."""
WRAP = "wrap what you need in a function of your project"


class Project:
    """`root` is the folder; `names` are objects that the program gives by name, before anything else is looked at."""

    def __init__(self, root: Path, names: Mapping[str, Any]) -> None:
        self.root = root.resolve()
        self.names = names
        self.problems = Problems()

    # ---- files

    def shown(self, path: Path) -> str:
        """A path for messages: from the current folder if it is below it."""
        here = Path.cwd()
        return readable(str(path.relative_to(here) if path.is_relative_to(here) else path))

    def path(self, word: str, node: Node, *, near: Path | None = None, folder: bool = False) -> Path | None:
        """The file (or folder) that `word` names, relative to the folder of the file `near`, or to the project; None and a
        problem if it is none, or lies outside (FR-217: both slashes are taken)."""
        given, said = word.replace("\\", "/"), word if len(word) <= 200 else f"{word[:197]}..."
        if not given or "\0" in given:
            return self._refused(node, "a path is needed")
        if given.startswith("/") or Path(word).is_absolute() or given[1:3] == ":/":
            return self._refused(node, f"{said!r} is absolute; write it relative to this file")
        start = near.parent if near is not None else self.root
        path = Path(os.path.normpath(start / given))
        try:
            real = path.resolve()
        except (OSError, RuntimeError):
            return self._refused(node, f"{said!r} cannot be followed")
        if not real.is_relative_to(self.root) or not path.is_relative_to(self.root):
            return self._refused(node, f"{said!r} leads out of the project's folder {self.shown(self.root)}")
        kind, wanted = _kind(real), "folder" if folder else "file"
        if kind == "folder" and not folder:
            return self._refused(node, f"{said!r} is a folder; a file is needed")
        if kind != wanted:
            return self._refused(node, f"there is no {wanted} {said!r}{self._near(path)}")
        return real

    def _refused(self, node: Node, message: str) -> None:
        self.problems.add(node, message)

    def _near(self, path: Path) -> str:
        there = [p.name for p in path.parent.iterdir()] if _kind(path.parent) == "folder" else []
        meant = difflib.get_close_matches(path.name, there, n=1, cutoff=0.6)
        return f"; did you mean {readable(meant[0])!r}?" if meant else ""

    def read(self, path: Path) -> Node | None:
        """A YAML file of the project as a node."""
        return read_file(path, self.shown(path), self.problems)

    def text(self, word: str, node: Node, near: Path) -> str:
        """What is in a text file of the project; "" and a problem if that cannot be told."""
        path = self.path(word, node, near=near)
        if path is None:
            return ""
        try:
            body = path.read_bytes()
        except OSError as error:
            self._refused(node, f"{word!r} cannot be read: {error.strerror or error}")
            return ""
        if len(body) > MAX_TEXT_BYTES:
            self._refused(node, f"{word!r} is larger than {MAX_TEXT_BYTES} bytes")
            return ""
        return body.decode("utf-8-sig", "replace").replace("\r\n", "\n")

    # ---- code

    def code(self, given: str | CodeSection, node: Node) -> Any:
        """What a code reference stands for; BROKEN and a problem if nothing does."""
        if isinstance(given, str):
            return self.find(given, node)
        if bool(given.name) == bool(given.code):
            self.problems.add(given.node, "a code reference needs `name`, which is `module:attr` or `module.attr`")
            return BROKEN
        if given.args is not None and given.params is not None:
            self.problems.add(given.node, "args and params are the same; give one of them")
            return BROKEN
        found = self.find(given.name or given.code, given.node.of("name" if given.name else "code"))
        args = given.args if given.args is not None else given.params
        return found if args is None or found is BROKEN else self.call(found, args)

    def call(self, made_by: Any, args: Node) -> Any:
        """What a function or class gives for `args`, a mapping, or a list of `{name, value}`."""
        values = self.arguments(args)
        if values is None or not self._fits(made_by, values, args):
            return BROKEN
        try:
            return made_by(**{name: node.value() for name, node in values.items()})
        except Exception as error:  # noqa: BLE001  the user's code; told with its place in the file
            said = "" if args.hidden else f": {error}"  # its words may hold what came from the environment
            ours = isinstance(error, PolyportError) and bool(said)
            failed = f"{_named(made_by)} failed: {type(error).__name__}{said}"
            self.problems.add(args, str(error) if ours else failed)
        return BROKEN

    def arguments(self, args: Node) -> dict[str, Node] | None:
        if args.is_null:
            return {}
        if args.kind == "map":
            return {name: node for name, (_, node) in args.members.items()}
        found: dict[str, Node] = {}
        for item in args.items:
            if item.kind != "map" or item.members.keys() != {"name", "value"} or item.of("name").kind != "text":
                self.problems.add(item, "an argument is `name: value`, or an item with `name` and `value`")
                return None
            found[item.of("name").text] = item.of("value")
        if args.kind == "text":
            self.problems.add(args, f"args takes a mapping, not {args.shown()}")
            return None
        return found

    def _fits(self, made_by: Any, values: dict[str, Node], args: Node) -> bool:
        if not callable(made_by):
            self.problems.add(args, f"args are given, but this is {_named(made_by)}, which cannot be called")
            return False
        try:
            parameters = inspect.signature(made_by).parameters
        except (TypeError, ValueError):
            return True
        free = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        known = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        for name, node in values.items():
            if name not in known and not free:
                meant = difflib.get_close_matches(name, known, n=1)
                guess = f"; did you mean {meant[0]!r}?" if meant else "."
                takes = ", ".join(known) or "nothing"
                self.problems.add(node, f"{_named(made_by)} has no argument {name!r}{guess} It takes: {takes}")
                return False
        missing = [n for n in known if parameters[n].default is inspect.Parameter.empty and n not in values]
        if missing:
            self.problems.add(args, f"{_named(made_by)} needs the argument {missing[0]!r}")
        return not missing

    def find(self, ref: str, node: Node) -> Any:
        """The object that `module:attr`, `module.attr` or a bare name stands for; BROKEN and a problem if there is none."""
        if ref in self.names:
            return self.names[ref]
        module_name, colon, rest = ref.strip().partition(":")
        path, attrs = module_name.split("."), rest.split(".") if colon else []
        if not all(part.isidentifier() and not part.startswith("__") for part in [*path, *attrs]):
            self.problems.add(node, f"{ref!r} is no code reference; write `module:attr` or `module.attr`")
            return BROKEN
        try:
            if not colon and len(path) == 1:
                own = self._own([WORDS])
                module = None if own is None else import_inside(self.root, own)
                return self._attribute(module, [WORDS], path, ref, node)
            if colon:
                return self._attribute(self._module(path), path, attrs, ref, node)
            for cut in range(len(path) - 1, 0, -1):
                module = self._module(path[:cut])
                if module is not None:
                    return self._attribute(module, path[:cut], path[cut:], ref, node)
            return self._attribute(None, path[:-1], path[-1:], ref, node)
        except LoadError as error:
            self.problems.add(node, f"{ref!r} cannot be imported. {error}".replace("\n", "\n  "))
            return BROKEN

    def _attribute(self, module: ModuleType | None, path: list[str], attrs: list[str], ref: str, node: Node) -> Any:
        name = ".".join(path)
        if module is None:
            where = self.shown(self.root)
            if path == [WORDS] and ref == attrs[0]:
                self.problems.add(node, f"{ref!r} is not known, and {where} has no {WORDS}.py that could define it")
            elif path[0] in sys.stdlib_module_names:
                self.problems.add(node, f"{ref!r} is Python's own; {WRAP}")
            else:
                self.problems.add(node, f"{ref!r}: there is no module {name!r} in {where}, and none is installed")
            return BROKEN
        found: Any = module
        for attr in attrs:
            if not hasattr(found, attr):
                public = [n for n in dir(found) if not n.startswith("_")]
                meant = difflib.get_close_matches(attr, public, n=1, cutoff=0.6)
                guess = f"; did you mean {meant[0]!r}?" if meant else ""
                self.problems.add(node, f"{ref!r}: {name!r} has no {attr!r}{guess}")
                return BROKEN
            found = getattr(found, attr)
            if isinstance(found, ModuleType) and found.__name__.partition(".")[0] in sys.stdlib_module_names:
                self.problems.add(node, f"{ref!r} goes through {found.__name__!r}, which is Python's own; {WRAP}")
                return BROKEN
        return found

    def _module(self, path: list[str]) -> ModuleType | None:
        """A module of the project, else an installed one; None if there is neither."""
        own = self._own(path)
        if own is None and path[0] == self.root.name and len(path) > 1:
            own = self._own(path[1:])  # the project's folder as a package, as ADK names it
        if own is not None:
            return import_inside(self.root, own)
        if path[0] in sys.stdlib_module_names:
            return None
        return import_name(".".join(path))

    def _own(self, path: list[str]) -> Path | None:
        base = self.root.joinpath(*path)
        for candidate in (base.with_suffix(".py"), base):
            if _kind(candidate if candidate.suffix == ".py" else base / "__init__.py") == "file":
                return candidate
        return None


def _named(found: Any) -> str:
    name = getattr(found, "__name__", "")
    return repr(name) if name else f"a {type(found).__name__}"


def _kind(path: Path) -> str:
    """What is there: "file", "folder" or "", which a name is that no file can have (`Path.is_file` raises for some)."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return ""
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else ""
