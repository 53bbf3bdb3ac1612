"""What the page on live sessions shows is run as pasted, and what it lists is what there is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from polyport.data.limits import MIB, Limits
from polyport.protocols.live.mount import QUERY

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "live.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[str(n) for n in range(len(BLOCKS))])
def test_blocks_of_the_live_page_run_as_pasted(code: str, tmp_path: Path):
    file = tmp_path / "pasted.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_every_parameter_is_on_the_page():
    for name, _ in QUERY:
        assert f"`{name}`" in PAGE or f"{name}=" in PAGE, name


def test_limits_on_the_page_have_their_defaults():
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+)( MiB)? \|", PAGE, re.MULTILINE)
    assert len(rows) == 7
    for name, value, unit in rows:
        assert getattr(Limits(), name) == float(value) * (MIB if unit else 1), name
