"""The shape of the code: what is public, what an import costs, where tasks are made."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import polyport
from polyport.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "polyport"

TASK_GROUPS = {
    "agents/flows.py": "place 3: parallel agents",
    "agents/remote.py": "the first frame of a remote task, which a cancelled run still waits for so that it can cancel it",
    "cli/serve.py": "draining beside the server's shutdown",
    "engine/live_loop.py": "place 4: the calls and the connection of a live session",
    "engine/tool_calls.py": "place 2: the calls of one answer",
    "evals/evaluate.py": "cases that are played side by side",
    "protocols/a2a/intake.py": "one worker per A2A task: it outlives the request, and may wait for its session",
    "protocols/a2a/push.py": "notifications on their way, beside the tasks that they tell of",
    "protocols/live/connection.py": "reading beside writing, on a WebSocket",
    "protocols/streaming.py": "hang-up and heartbeat beside an answer",
    "protocols/triggers/deliveries.py": "one task per message, which a sender that hangs up does not stop; the timetable",
    "runs/coordinator.py": "place 1: one task per run",
    "cluster/link.py": "what a process does for its cluster: showing its runs, following those of others, being there",
    "testing/connect.py": "the app beside the test",
    "testing/samples.py": "many writers at once, in the contract suites",
    "workflow/scheduler.py": "one task per node of a graph that works, and per item of a parallel worker",
    "tools/mcp_pool.py": "one task per MCP session, which opens and closes it",
}
"""The only files that open a task group, and why."""


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def test_task_groups_are_opened_only_where_they_are_listed():
    found = {p.relative_to(SRC).as_posix() for p in modules() if "create_task_group(" in p.read_text(encoding="utf-8")}
    assert found == set(TASK_GROUPS)
    for path in modules():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\.create_task\(|ensure_future\(|asyncio\.gather", text), path


def test_nothing_hides_an_import():
    for path in modules():
        assert "TYPE_CHECKING" not in path.read_text(encoding="utf-8"), path


def test_every_module_says_what_it_is_for():
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), f"{path} has no docstring"


def test_banned_words_in_names():
    banned = re.compile(r"^(class|def) \w*(Manager|Helper|Util|Impl|Service)(?![a-z])", re.MULTILINE)
    for path in modules():
        assert not banned.search(path.read_text(encoding="utf-8")), path


def test_public_names_are_few_real_and_typed():
    stub = (SRC / "__init__.pyi").read_text(encoding="utf-8")
    in_stub = {name: home for home, name in re.findall(r"^from ([\w.]+) import (\w+) as \2$", stub, re.MULTILINE)}
    homes: dict[str, str] = polyport._HOMES  # pyright: ignore[reportPrivateUsage]
    assert in_stub == homes
    assert len(homes) <= 40
    for name in homes:
        assert getattr(polyport, name) is not None


def test_one_version_everywhere():
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{VERSION}"' in pyproject
    assert polyport.__version__ == VERSION
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_polyport_pulls_in_nothing_heavy():
    heavy = {"uvicorn", "aiohttp", "apsw", "click", "msgspec", "anyio", "asyncio", "yaml"}
    assert not heavy & loaded_by("import polyport")


def test_the_app_needs_no_http_client_and_no_vendor_sdk():
    heavy = {"aiohttp", "pydantic", "openai", "anthropic", "google.genai", "uvicorn", "starlette"}
    assert not heavy & loaded_by("from polyport import App, LlmAgent\nApp(LlmAgent(name='a', model='demo'))")


def test_no_registry_host_and_no_machine_path_is_written_anywhere():
    words = [
        "pypi" + ".org",
        "python" + "hosted",
        "registry.npm" + "js",
        "deb." + "debian",
        "/wo" + "rk/",
        "/ro" + "ot/",
    ]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            assert not [w for w in words if w in text], name
