"""What docs/workflows.md shows is run as pasted."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from polyport.workflow.nodes import FunctionNode, Node

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "workflows.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[str(n) for n in range(len(BLOCKS))])
def test_python_blocks_of_the_workflows_page_run_as_pasted(code: str, tmp_path: Path):
    file = tmp_path / "pasted.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_every_setting_of_a_node_is_named():
    for kind in (Node, FunctionNode):
        for setting in fields(kind):
            if setting.init and setting.name != "fn":
                assert f"`{setting.name}`" in TEXT, setting.name
