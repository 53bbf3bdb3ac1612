"""What the page on models shows is run as pasted, and the names that it lists are those of the registry."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from polyport.models.registry import FORMS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[str(n) for n in range(len(BLOCKS))])
def test_blocks_of_the_models_page_run_as_pasted(code: str, tmp_path: Path):
    file = tmp_path / "pasted.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_every_form_of_a_name_is_on_the_page():
    rows = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)}
    assert rows == {form for forms, _ in FORMS for form in forms.split(", ")}


def test_every_extra_on_the_page_is_one():
    extras = set(re.findall(r"polyport\[(\w+)\]", PAGE))
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert extras == {"vertex", "bedrock", "azure"}
    assert all(re.search(rf"^{extra} = \[", text, re.MULTILINE) for extra in extras)


def test_every_variable_on_the_page_is_read():
    source = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "src" / "polyport" / "models").glob("*.py"))
    by_libraries = {"GOOGLE_APPLICATION_CREDENTIALS", "AWS_PROFILE"}
    for name in set(re.findall(r"`([A-Z]+_[A-Z_]+)", PAGE)) - by_libraries:
        assert f'"{name}"' in source, name
