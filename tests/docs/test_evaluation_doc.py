"""What docs/evaluation.md shows is run as pasted, and its tables are true."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from polyport.cli.main import main
from polyport.codec import decode
from polyport.evals.cases import read_set
from polyport.evals.metrics import BY_NAME
from polyport.evals.results import EvalConfig

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
JSON = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[str(n) for n in range(len(BLOCKS))])
def test_python_blocks_of_the_evaluation_page_run_as_pasted(code: str, tmp_path: Path):
    file = tmp_path / "pasted.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_the_set_and_the_configuration_are_ones():
    assert read_set(JSON[0].encode(), "the page").eval_cases[0].eval_id == "paris"
    config = decode(JSON[1], EvalConfig, unknown="refuse")
    assert {m.metric_name for m in config.metrics()} <= {*BY_NAME, "polite"} and json.loads(JSON[1])


def test_every_metric_and_option_is_named_and_real():
    assert all(f"`{name}`" in TEXT for name in BY_NAME)
    help_text = CliRunner().invoke(main, ["eval", "--help"]).output
    for option in set(re.findall(r"--[a-z][a-z-]+", TEXT)):
        assert option in help_text, option
