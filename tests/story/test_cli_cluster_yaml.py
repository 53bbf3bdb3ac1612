"""A cluster in the settings of an agent file: `app: {cluster: ...}`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polyport import App
from polyport.cluster import Cluster
from support.projects import agent_of, clean_process, mistakes

ROOT = "name: desk\nmodel: demo\napp:\n  stores: data.db\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with clean_process():
        os.environ["POLYPORT_SECRET"] = "a secret of the cluster"
        os.environ["TOY_NATS"] = "nats://me:hunter2@queue:4222"
        yield


def cluster_of(text: str) -> Any:
    app = agent_of(f"{ROOT}{text}")
    assert isinstance(app, App)
    return app.runs.peers


def test_an_agent_file_names_the_server_that_processes_share():
    peers = cluster_of("  cluster: nats://queue:4222\n")
    assert isinstance(peers, Cluster) and peers.shown == "nats://queue:4222" and peers.name
    peers = cluster_of("  cluster: !env TOY_NATS\n")
    assert peers.shown == "nats://me@queue:4222"
    assert not cluster_of("  remember: false\n").name, "alone without it"


def test_or_gives_settings_of_the_cluster():
    peers = cluster_of("  cluster: {url: !env TOY_NATS, runs: workers, worker: true, prefix: desk, lease_s: 3}\n")
    assert isinstance(peers, Cluster) and peers.shown == "nats://me@queue:4222"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("  cluster: redis://queue\n", "5:12: the URL of the cluster is none: write nats://"),
        ("  cluster: {url: nats://queue, runs: there}\n", "5:38: 'runs' takes 'here' or 'workers'"),
        (
            "  cluster: {url: nats://queue, lease: 3}\n",
            "5:32: there is no key 'lease' in cluster; did you mean 'lease_s'?",
        ),
        ("  cluster: {url: nats://queue, lease_s: 0.5}\n", "5:12: the cluster's lease_s is 0.5"),
        ("  cluster: {runs: here}\n", "5:12: cluster needs the key 'url'"),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_place(text: str, told: str):
    (line,) = mistakes(f"{ROOT}{text}")
    assert line.startswith(f"root_agent.yaml:{told}")


def test_sessions_in_memory_and_a_missing_secret_are_told_with_their_place():
    (line,) = mistakes("name: desk\nmodel: demo\napp: {cluster: nats://queue}\n")
    assert line.startswith("root_agent.yaml:3:6: ") and "stores" in line
    del os.environ["POLYPORT_SECRET"]
    (line,) = mistakes(f"{ROOT}  cluster: !env TOY_NATS\n")
    assert line.startswith("root_agent.yaml:4:3: ") and "POLYPORT_SECRET" in line and "hunter2" not in line
