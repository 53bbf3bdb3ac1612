"""`polyport new --yaml`: a project that runs, is tested and checks clean; the editor finds its schema."""

import json
import subprocess
import sys
from pathlib import Path

from polyport.config.json_schema import json_schema
from support.processes import Process, environment


def test_a_new_project_in_yaml_runs_is_tested_and_checks_clean(tmp_path: Path):
    with Process("new", "my-agent", "--yaml", cwd=tmp_path) as process:
        assert process.ended() == 0
    project = tmp_path / "my-agent"
    text = (project / "root_agent.yaml").read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=agent.schema.json\n") and "\nname: my_agent\n" in text
    assert json.loads((project / "agent.schema.json").read_text(encoding="utf-8")) == json_schema()
    assert "`model:` in root_agent.yaml" in (project / "README.md").read_text(encoding="utf-8")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert tested.returncode == 0 and "1 passed" in tested.stdout, tested.stdout + tested.stderr
    with Process("run", "my-agent", "--once", "roll a die with 1 sides", cwd=tmp_path) as process:
        assert process.ended() == 0
        assert "rolled 1" in process.out.text
    with Process("check", ".", cwd=project) as process:
        assert process.ended() == 0
        assert process.out.text.endswith("\nok") and process.err.text == ""
        assert "tool roll_dice(sides)" in process.out.text
