"""What docs/a2a.md shows works as pasted, and what it names is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from polyport.cli.main import main
from polyport.protocols.a2a.push_settings import PushSettings

TEXT = (Path(__file__).resolve().parents[2] / "docs/a2a.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[str(n) for n in range(len(BLOCKS))])
def test_a2a_python_blocks_run_as_pasted(code: str, tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_a2a_options_and_settings_are_there():
    helped = CliRunner().invoke(main, ["serve", "--help"]).output
    for option in ("--a2a", "--grpc-port", "--push", "--trusted-proxy"):
        assert option in TEXT and option in helped
    for name in ("attempts", "backoff_s", "allow_http", "allow_private"):
        assert f"`{name}`" in TEXT and hasattr(PushSettings(), name)
    commands = CliRunner().invoke(main, ["a2a", "--help"]).output
    for command in ("card", "send", "get", "cancel", "subscribe", "key"):
        assert command in commands
