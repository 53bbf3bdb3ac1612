"""Eval sets and configurations by what a user writes: a file, a folder, an id in the app's folder, and cases behind a colon.

Used by `polyport eval` and `polyport.testing.evaluate`. Blocks; reads only.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from polyport.codec import decode
from polyport.errors import ConfigError, PolyportError
from polyport.evals.cases import EvalSet, read_set
from polyport.evals.folder import SET
from polyport.evals.results import DEFAULT_CONFIG, EvalConfig

ENDINGS = (SET, ".test.json")
CONFIG = "test_config.json"


class Source(NamedTuple):
    """An eval set, with the cases that are wanted, and the file it is from."""

    path: Path
    found: EvalSet


def read_sources(words: Sequence[str | Path], folder: Path) -> list[Source]:
    """What the words name: files, folders of eval sets, or ids of sets in `folder`; all sets of `folder` without words.
    ConfigError says what is not there, also when there is no case at all."""
    sources = [source for word in words or [folder] for source in _read_one(word, folder)]
    if not any(source.found.eval_cases for source in sources):
        raise ConfigError(f"there is no case in {', '.join(str(source.path) for source in sources)}")
    return sources


def _read_one(word: str | Path, folder: Path) -> list[Source]:
    name, _, cases = str(word).rpartition(":")
    candidates = [(Path(word), ()), (folder / f"{word}{SET}", ())]
    if name:
        picked = tuple(case.strip() for case in cases.split(",") if case.strip())
        candidates += [(Path(name), picked), (folder / f"{name}{SET}", picked)]
    for path, picked in candidates:
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.name.endswith(ENDINGS) and not p.name.startswith("."))
            if not files:
                raise ConfigError(f"there is no eval set in {path}: a file that ends with {' or '.join(ENDINGS)}")
            return [_source(file, picked) for file in files]
        if path.is_file():
            return [_source(path, picked)]
    raise ConfigError(f"there is no eval set {str(word)!r}: no such file, and no {word}{SET} in {folder}")


def _source(path: Path, cases: tuple[str, ...]) -> Source:
    try:
        found = read_set(path.read_bytes(), str(path))
    except (OSError, PolyportError) as error:
        raise ConfigError(str(error)) from None
    known = {case.eval_id: case for case in found.eval_cases}
    missing = next((id for id in cases if id not in known), None)
    if missing is not None:
        raise ConfigError(f"there is no case {missing!r} in {path}; the cases are: {', '.join(known) or 'none'}")
    return Source(path, structs.replace(found, eval_cases=[known[id] for id in cases]) if cases else found)


def read_config(path: Path) -> EvalConfig:
    """The configuration in a file. ConfigError."""
    try:
        return decode(path.read_bytes(), EvalConfig, unknown="drop")
    except (OSError, PolyportError) as error:
        raise ConfigError(f"{path} is not a configuration of evaluation: {error}") from None


def config_beside(sources: Sequence[Source]) -> EvalConfig:
    """The `test_config.json` beside the first set, or ADK's default."""
    path = sources[0].path.parent / CONFIG
    return read_config(path) if path.is_file() else DEFAULT_CONFIG
