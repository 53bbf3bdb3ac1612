"""The web page of google-adk, a foreign client, in a real browser against our server (spec rest 9).

The page comes in the google-adk package and the driver in playwright-core, both into `.bench` on first use; nothing of them is
kept here. The browser is Debian's chromium.
"""

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from support.processes import environment

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".bench" / "page"
PACKAGE = "google-adk==2.13.0"
DRIVER = "playwright-core@1.64.1"
KNOWN = ("prism-dark.css",)
"""What the page asks for and its package does not have."""


class Missing(Enum):
    """The only reasons to leave these tests out."""

    BROWSER = "Debian's chromium is not installed (/usr/bin/chromium)"
    NODE = "node and npm (20 or newer) are not installed; the driver of the browser is a node package"


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def page_folder() -> Path:
    """The compiled page, with the driver of the browser beside it."""
    if not Path("/usr/bin/chromium").exists():
        pytest.skip(Missing.BROWSER.value)
    if shutil.which("npm") is None:
        pytest.skip(Missing.NODE.value)
    CACHE.mkdir(parents=True, exist_ok=True)
    if not (CACHE / "node_modules" / "playwright-core").is_dir():
        run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), DRIVER)
    folder = CACHE / "google" / "adk" / "cli" / "browser"
    if not (folder / "index.html").is_file():
        run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE), PACKAGE)
        with zipfile.ZipFile(next(CACHE.glob("google_adk-*.whl"))) as wheel:
            wheel.extractall(CACHE, [name for name in wheel.namelist() if name.startswith("google/adk/cli/browser/")])
    return folder


@pytest.fixture
def address(page_folder: Path, tmp_path: Path) -> Iterator[str]:
    """Where the page is served, with an eval set in place."""
    sets = tmp_path / "teller"
    sets.mkdir()
    cases = {"evalSetId": "cases_of_the_house", "evalCases": []}
    (sets / "cases_of_the_house.evalset.json").write_text(json.dumps(cases))
    command = [sys.executable, str(HERE / "adk_page_server.py"), str(page_folder), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().split()[1]
            yield f"http://127.0.0.1:{port}/dev-ui/?app=teller&userId=user"
        finally:
            server.terminate()


def test_the_page_chats_approves_and_shows_traces_graph_state_artifacts_and_evals(
    page_folder: Path, address: str, tmp_path: Path
) -> None:
    driver = [str(HERE / "adk_page.mjs"), str(CACHE), address, str(tmp_path)]
    done = subprocess.run(["node", *driver], capture_output=True, text=True, check=False)
    seen: list[tuple[str, Any]] = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and seen[-1] == ("done", True), (seen, done.stderr[-3000:], sorted(tmp_path.iterdir()))
    trouble = [(what, told) for what, told in seen if what in ("console", "pageerror", "status")]
    assert [t for t in trouble if not any(known in str(t) for known in KNOWN)] == []
    told = [(what, value) for what, value in seen if what not in ("console", "status")]
    assert told[0][0] == "sse" and told[0][1] >= 4, "the call, the result, pieces of the answer, the answer"
    assert ("approved", True) in told
    assert [value for what, value in told if what == "tab"] == ["State", "Artifacts", "Evals", "Traces", "Graph"]
