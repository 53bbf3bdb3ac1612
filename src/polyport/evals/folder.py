"""The files of evaluation in an app's folder, in ADK's places: eval sets, results, tests (spec rest 10.1).

    <root>/<app>/<id>.evalset.json
    <root>/<app>/.adk/eval_history/<id>.evalset_result.json
    <root>/<app>/tests/<name>.json

Used by the eval routes and the command line, in worker threads: all here blocks. Names from outside never lead out of the
folder. A file is replaced whole or not at all; what another program wrote into a set beside the cases is kept.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any, cast

import msgspec

from polyport.codec import MAX_DEPTH, check_depth, decode, encode
from polyport.errors import BadRequest, NotFound, PolyportError
from polyport.evals.cases import EvalCase, EvalSet, read_case, read_set, set_shape
from polyport.evals.results import EvalSetResult

SET, RESULT, TEST = ".evalset.json", ".evalset_result.json", ".json"
_SET_ID = re.compile(r"[a-zA-Z0-9_]{1,200}")
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,200}")
_NAME_BYTES = 200
"""File systems count bytes; with an ending, a name must stay below 255."""


class CorruptFile(PolyportError):
    """A stored file cannot be read; 500, for the caller did nothing wrong."""


def bare(name: str, what: str) -> str:
    """`name` if it can only be that of a file directly inside a folder. BadRequest."""
    if not _NAME.fullmatch(name) or name.startswith(".") or name != name.strip():
        raise BadRequest(f"{what} {name[:100]!r} must be the bare name of a file, not a path", what)
    if len(name.encode("utf-8", "replace")) > _NAME_BYTES:
        raise BadRequest(f"{what} {name[:100]!r} is longer than {_NAME_BYTES} bytes, too long for a file", what)
    return name


class AppFolder:
    """The folder of one app; it need not exist to be read."""

    def __init__(self, path: Path, app: str) -> None:
        self.app = app
        self.path = path

    @classmethod
    def below(cls, root: Path, app: str) -> "AppFolder":
        """The one that is named like the app. BadRequest for a name that is a path."""
        return cls(root / bare(app, "app"), app)

    def inside(self, *parts: str) -> Path:
        """A path in the folder. BadRequest when it leads out of it, through a symbolic link say."""
        path = self.path.joinpath(*parts)
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise BadRequest(f"{'/'.join(parts)!r} leads out of the folder of the app")
        return path

    # ---- eval sets

    def set_ids(self) -> list[str]:
        return self._names(self.path, SET)

    def eval_set(self, id: str) -> EvalSet:
        """NotFound; CorruptFile for a file that is no eval set."""
        text = self._set_text(id)
        try:
            return read_set(text, id + SET)
        except BadRequest as error:
            raise CorruptFile(str(error)) from None

    def create_set(self, given: EvalSet) -> None:
        """BadRequest for a bad id, or if there is one of this id (spec rest 10.1)."""
        if not _SET_ID.fullmatch(given.eval_set_id):
            raise BadRequest(f"Invalid eval set id {given.eval_set_id[:100]!r}: it must match {_SET_ID.pattern}")
        path = self.inside(given.eval_set_id + SET)
        if path.exists():
            raise BadRequest(f"Eval set `{given.eval_set_id}` exists already.")
        write(path, pretty(set_shape(given)))

    def delete_set(self, id: str) -> None:
        self._set_text(id)
        self.inside(bare(id, "eval set") + SET).unlink()

    def put_case(self, set_id: str, case: EvalCase, *, new: bool) -> None:
        """Add a case (BadRequest if there is one of its id), or replace one (NotFound)."""
        whole, cases, at = self._find(set_id, case.eval_id)
        if new and at is not None:
            raise BadRequest(f"Eval id `{case.eval_id}` already exists in `{set_id}` eval set.")
        if not new and at is None:
            raise NotFound(f"Eval case `{case.eval_id}` not found in eval set `{set_id}`.")
        plain = msgspec.json.decode(encode(case))
        cases[len(cases) if at is None else at : len(cases) if at is None else at + 1] = [plain]
        write(self.inside(set_id + SET), pretty(whole))

    def delete_case(self, set_id: str, case_id: str) -> None:
        whole, cases, at = self._find(set_id, case_id)
        if at is None:
            raise NotFound(f"Eval case `{case_id}` not found in eval set `{set_id}`.")
        del cases[at]
        write(self.inside(set_id + SET), pretty(whole))

    def case(self, set_id: str, case_id: str) -> EvalCase:
        found = next((case for case in self.eval_set(set_id).eval_cases if case.eval_id == case_id), None)
        if found is None:
            raise NotFound(f"Eval set `{set_id}` or Eval `{case_id}` not found.")
        return found

    def _find(self, set_id: str, case_id: str) -> tuple[dict[str, Any], list[Any], int | None]:
        """(the set as plain data, its cases therein, where the case is)."""
        self.eval_set(set_id)  # says what is wrong with the file
        whole = cast("dict[str, Any]", msgspec.json.decode(self._set_text(set_id)))
        name = next((name for name in whole if name.replace("_", "").lower() == "evalcases"), "eval_cases")
        cases: list[Any] = whole.setdefault(name, [])
        ids = [read_case(raw).eval_id for raw in cases]
        return whole, cases, ids.index(case_id) if case_id in ids else None

    def _set_text(self, id: str) -> bytes:
        return self._read(self.inside(bare(id, "eval set") + SET), f"Eval set `{id}` not found.")

    # ---- results

    def result_ids(self) -> list[str]:
        return self._names(self.inside(".adk", "eval_history"), RESULT)

    def result(self, id: str) -> EvalSetResult:
        """NotFound; CorruptFile. Files of old versions of ADK hold the JSON as a JSON string."""
        path = self.inside(".adk", "eval_history", bare(id, "eval result") + RESULT)
        text = self._read(path, f"Eval set result `{id}` not found.")
        try:
            check_depth(text, 2 * MAX_DEPTH)
            if text.lstrip().startswith(b'"'):
                text = msgspec.json.decode(text, type=str).encode()
            return decode(text, EvalSetResult, unknown="drop")
        except (PolyportError, msgspec.DecodeError) as error:
            raise CorruptFile(f"the file of eval set result `{id}` is corrupt: {error}") from None

    def save_result(self, result: EvalSetResult) -> Path:
        """Where it was stored."""
        path = self.inside(".adk", "eval_history", bare(result.eval_set_result_id, "eval result") + RESULT)
        write(path, pretty(result))
        return path

    # ---- tests

    def test_names(self) -> list[str]:
        """File names, with `.json`."""
        return [name + TEST for name in self._names(self.inside("tests"), TEST)]

    def test(self, name: str) -> dict[str, Any]:
        """The stored session. NotFound; CorruptFile."""
        text = self._read(self._test_path(name), "Test file not found")
        try:
            check_depth(text, 2 * MAX_DEPTH)
            return msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, BadRequest) as error:
            raise CorruptFile(f"test file {name!r} is corrupt: {error}") from None

    def save_test(self, name: str, session: dict[str, Any]) -> str:
        """The name of the file."""
        path = self._test_path(name)
        write(path, msgspec.json.format(msgspec.json.encode(session, order="sorted"), indent=2) + b"\n")
        return path.name

    def delete_test(self, name: str) -> None:
        path = self._test_path(name)
        self._read(path, "Test file not found")
        path.unlink()

    def _test_path(self, name: str) -> Path:
        return self.inside("tests", bare(name, "test name").removesuffix(TEST) + TEST)

    # ---- all of them

    @staticmethod
    def _names(folder: Path, ending: str) -> list[str]:
        """Sorted names of the files, without the ending."""
        try:
            found = [p.name for p in folder.iterdir() if p.name.endswith(ending) and not p.name.startswith(".")]
        except OSError:
            return []
        return sorted(name.removesuffix(ending) for name in found)

    @staticmethod
    def _read(path: Path, missing: str) -> bytes:
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise NotFound(missing) from None


def pretty(value: Any) -> bytes:
    return msgspec.json.format(encode(value), indent=2) + b"\n"


def write(path: Path, text: bytes) -> None:
    """Replace a file, or make it and its folders; a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
