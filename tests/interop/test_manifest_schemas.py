"""The Kubernetes manifests of `polyport deploy` against the schemas of Kubernetes itself, as the package kubernetes-validate
brings them: strict, so that a name that Kubernetes does not know is found."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from polyport.cli.main import main

OLDEST, NEWEST = "1.25", kubernetes_validate.latest_version()


@pytest.fixture
def manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    (tmp_path / "agent.py").write_text("from polyport import LlmAgent\nroot_agent = LlmAgent(name='a', model='demo')\n")
    monkeypatch.chdir(tmp_path)
    words = ["deploy", "kubernetes", "agent.py", "--auth", "keys-env:POLYPORT_KEYS", "--with", "a2a"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all((tmp_path / "deploy/kubernetes.yaml").read_text()))


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_knows_every_word(manifests: list[dict[str, Any]], version: str):
    assert len(manifests) == 4
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_word_that_kubernetes_does_not_know_would_be_found(manifests: list[dict[str, Any]]):
    (stateful,) = [manifest for manifest in manifests if manifest["kind"] == "StatefulSet"]
    stateful["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(stateful, NEWEST, strict=True)
