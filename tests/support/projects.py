"""Projects of agent files for tests: written from one dict, loaded, and what loading leaves in the process taken back."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from polyport.config.importing import LoadError
from polyport.config.yaml_agents import load_yaml


@contextmanager
def clean_process() -> Iterator[None]:
    """Modules, paths and variables are as before afterwards."""
    modules, environ, path = set(sys.modules), dict(os.environ), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environ)


def write(files: dict[str, str | bytes], folder: Path = Path()) -> None:
    """Write files, path -> text, dedented."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            file.write_bytes(text)
        else:
            file.write_text(dedent(text), encoding="utf-8")


def agent_of(root: str, files: dict[str, str | bytes] | None = None, **options: Any) -> Any:
    """The agent of a root_agent.yaml in the current folder, beside `files`."""
    write({"root_agent.yaml": root, **(files or {})})
    return load_yaml("root_agent.yaml", **options)


def mistakes(root: str | bytes, files: dict[str, str | bytes] | None = None, **options: Any) -> list[str]:
    """What is wrong with it, as lines `file:line:column: message`."""
    write({"root_agent.yaml": root, **(files or {})})
    with pytest.raises(LoadError) as caught:
        load_yaml("root_agent.yaml", **options)
    message = str(caught.value)
    assert "Traceback" not in message
    return [line.strip() for line in message.splitlines()[1:]]
