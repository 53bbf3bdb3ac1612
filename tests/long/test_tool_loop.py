"""10,000 turns of a tool loop under a memory limit: many short runs, and one long run."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytestmark = pytest.mark.long
PROCESS = Path(__file__).with_name("loop_process.py")


async def turns(kind: str, path: Path) -> dict[str, Any]:
    done = await anyio.run_process([sys.executable, str(PROCESS), kind, str(path)], check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    found = json.loads(done.stdout)
    assert found["ended"] == ["done"]
    return {int(turn): size for turn, size in found["marks"].items()}


async def test_ten_thousand_turns_of_many_runs_do_not_grow(tmp_path: Path) -> None:
    marks = await turns("many_runs", tmp_path / "many.db")
    assert max(marks) == 20_000
    assert marks[20_000] < 1.15 * marks[5_000], marks


async def test_ten_thousand_steps_of_one_run_hold_little_more_than_what_they_stored(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    marks = await turns("one_run", path)
    assert max(marks) == 10_000
    stored = sum(file.stat().st_size for file in tmp_path.iterdir()) / 1e6
    assert marks[10_000] - marks[1_000] < 3 * stored, (marks, stored)
