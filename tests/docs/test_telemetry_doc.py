"""What docs/telemetry.md shows is run as pasted, and what it names is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from polyport import App, LlmAgent
from polyport.protocols.debug.mount import Debug
from polyport.protocols.metrics.mount import Metrics

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[str(n) for n in range(len(BLOCKS))])
def test_python_blocks_run_as_pasted(code: str, tmp_path: Path):
    file = tmp_path / "pasted.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "error", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_routes_that_it_names_are_served():
    debug, metrics = Debug(), Metrics()
    app = App(
        LlmAgent(name="a", model="demo"),
        plugins=[*debug.plugins, *metrics.plugins],
        protocols=["rest", debug, metrics],
    )
    served = {route.pattern for route in app.asgi.routes}
    named = {path.partition("?")[0] for path in re.findall(r"`GET (/[^`]+)`", TEXT)}
    assert len(named) == 7 and named <= served


def test_the_numbers_that_it_names_are_counted():
    text = Metrics().counts.text()[1].decode()
    names = set(re.findall(r"`(polyport_\w+)`", TEXT))
    assert len(names) == 10
    for name in names:
        assert f"# TYPE {name}" in text, name
