"""`polyport deploy --cluster`: PostgreSQL, NATS, servers and workers, as compose and Kubernetes run them."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from polyport.cli.main import main
from polyport.data.limits import Limits

AGENT = "from polyport import LlmAgent\nroot_agent = LlmAgent(name='weather', model='demo')\n"
OWN = "from polyport import App, LlmAgent\napp = App(LlmAgent(name='weather', model='demo'))\n"
KEYS = ("--auth", "keys-env:POLYPORT_KEYS")
INSISTED = "${%s:?set it in the environment}"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an agent in it."""
    (tmp_path / "weather").mkdir()
    (tmp_path / "weather/agent.py").write_text(AGENT)
    for name in [name for name in os.environ if name.startswith("POLYPORT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def polyport(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(args), prog_name="polyport")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def deployed(kind: str, *args: str) -> dict[str, str]:
    """The files of the folder `deploy`."""
    code, _, err = polyport("deploy", kind, "weather", *KEYS, "--cluster", *args)
    assert code == 0, err
    return {path.name: path.read_text() for path in Path("deploy").iterdir()}


def manifests(text: str) -> dict[tuple[str, str], Any]:
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}


# ---- compose


def test_compose_has_servers_workers_and_what_they_share(project: Path):
    made = yaml.safe_load(deployed("compose")["compose.yaml"])
    services = made["services"]
    assert set(services) == {"weather", "weather-worker", "postgres", "nats"}
    assert set(made["volumes"]) == {"postgres", "nats"}, "servers and workers keep nothing"
    web, worker = services["weather"], services["weather-worker"]
    for service in (web, worker):
        assert service["depends_on"] == {name: {"condition": "service_healthy"} for name in ("postgres", "nats")}
        assert service["read_only"] is True and "volumes" not in service
    assert "ports" not in worker and all(port.startswith("127.0.0.1:") for port in web["ports"])
    assert worker["deploy"]["replicas"] == 2 and web["environment"]["POLYPORT_WORKERS"] == "2"
    assert web["environment"]["POLYPORT_CLUSTER_RUNS"] == "workers"
    shared = ("POLYPORT_DB", "POLYPORT_CLUSTER", "POLYPORT_SECRET")
    assert [web["environment"][name] for name in shared] == [worker["environment"][name] for name in shared]
    for server in ("postgres", "nats"):
        assert "ports" not in services[server] and services[server]["healthcheck"]["test"][0] == "CMD"


def test_the_urls_name_the_services_and_the_passwords_of_the_environment(project: Path):
    services = yaml.safe_load(deployed("compose")["compose.yaml"])["services"]
    told = services["weather"]["environment"]
    for variable, service, password, port in (
        ("POLYPORT_DB", "postgres", "POSTGRES_PASSWORD", 5432),
        ("POLYPORT_CLUSTER", "nats", "NATS_PASSWORD", 4222),
    ):
        insisted = INSISTED % password
        url = urlsplit(told[variable].replace(insisted, "s3cret"))
        assert (url.username, url.password, url.hostname, url.port) == ("polyport", "s3cret", service, port)
        assert services[service]["environment"][password] == insisted
    code, out, _ = polyport("deploy", "compose", "weather", *KEYS, "--cluster", "--force")
    assert code == 0 and "export POSTGRES_PASSWORD=" in out and "export NATS_PASSWORD=" in out
    assert "--scale weather-worker=" in out


def test_nats_takes_every_request_that_polyport_takes_and_asks_who_connects(project: Path):
    files = deployed("compose")
    conf = files["nats.conf"]
    taken = re.search(r"^max_payload: (\d+)MB", conf, re.MULTILINE)
    assert taken and int(taken[1]) << 20 > Limits().body_bytes
    assert "authorization" in conf and "jetstream" in conf
    nats = yaml.safe_load(files["compose.yaml"])["services"]["nats"]
    source, place, mode = next(volume for volume in nats["volumes"] if "conf" in volume).split(":")
    assert (Path("deploy") / source).is_file() and mode == "ro"
    command = nats["command"]
    assert command[command.index("-c") + 1] == place
    kept = command[command.index("-sd") + 1]
    assert f"nats:{kept}" in nats["volumes"]


def test_what_counts_in_one_process_is_served_by_one(project: Path):
    web = yaml.safe_load(deployed("compose", "--with", "metrics")["compose.yaml"])["services"]["weather"]
    assert "POLYPORT_WORKERS" not in web["environment"]


def test_the_workers_command_is_one_that_exists(project: Path):
    files = deployed("compose", "--with", "a2a")
    command = yaml.safe_load(files["compose.yaml"])["services"]["weather-worker"]["command"]
    assert command[:3] == ["polyport", "worker", "weather"]
    with main.commands["worker"].make_context("worker", command[2:]) as taken:
        assert taken.params["a2a"] is True and taken.params["health"] == "0.0.0.0:8000"
    assert "POLYPORT_DB" not in files["Dockerfile"] and "VOLUME" not in files["Dockerfile"]
    assert "http://127.0.0.1:8000/health" in files["Dockerfile"], "the image's check is for workers, too"
    assert re.search(r"polyport\[[\w,]*nats[\w,]*postgres", files["Dockerfile"])
    pins = {line.partition("==")[0] for line in files["constraints.txt"].splitlines()}
    assert {"nats-py", "asyncpg"} <= pins


@pytest.mark.parametrize(
    ("variable", "left_out", "stays"),
    [("POLYPORT_DB", "postgres", "nats"), ("POLYPORT_CLUSTER", "nats", "postgres")],
)
def test_a_server_that_there_is_is_not_brought(project: Path, variable: str, left_out: str, stays: str):
    files = deployed("compose", "--secret", variable)
    services = yaml.safe_load(files["compose.yaml"])["services"]
    assert left_out not in services and stays in services
    assert services["weather"]["environment"][variable] == INSISTED % variable
    assert list(services["weather"]["depends_on"]) == [stays]
    assert ("nats.conf" in files) == (stays == "nats")
    found = manifests(deployed("kubernetes", "--secret", variable, "--force")["kubernetes.yaml"])
    assert ("StatefulSet", f"weather-{left_out}") not in found and ("StatefulSet", f"weather-{stays}") in found
    (container,) = found["Deployment", "weather-worker"]["spec"]["template"]["spec"]["containers"]
    (told,) = [one for one in container["env"] if one["name"] == variable]
    assert told["valueFrom"]["secretKeyRef"]["name"] == "weather-secrets"


def test_one_container_is_no_cluster(project: Path):
    code, _, err = polyport("deploy", "docker", "weather", *KEYS, "--cluster")
    assert code == 1 and "compose and kubernetes" in err and not Path("deploy").exists()


def test_an_app_of_ones_own_says_itself_what_it_belongs_to(project: Path):
    (project / "weather/agent.py").write_text(OWN)
    code, _, err = polyport("deploy", "compose", "weather", *KEYS, "--cluster")
    assert code == 1 and "--cluster" in err


# ---- Kubernetes


@pytest.mark.parametrize("version", ["1.25", kubernetes_validate.latest_version()])
def test_kubernetes_knows_every_word_of_a_cluster(project: Path, version: str):
    found = manifests(deployed("kubernetes", "--with", "a2a")["kubernetes.yaml"])
    assert len(found) == 15
    for manifest in found.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_kubernetes_runs_servers_and_workers_that_may_come_and_go(project: Path):
    found = manifests(deployed("kubernetes")["kubernetes.yaml"])
    for name, component in (("weather", "web"), ("weather-worker", "worker")):
        spec = found["Deployment", name]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/component"] == component and spec["replicas"] >= 2
        assert spec["selector"]["matchLabels"] == labels
        assert found["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"] == labels
        assert found["NetworkPolicy", name]["spec"]["podSelector"]["matchLabels"] == labels
        (container,) = spec["template"]["spec"]["containers"]
        assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "http"}
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/tmp"}, "it keeps nothing"
        assert spec["template"]["spec"]["terminationGracePeriodSeconds"] >= 40
    assert found["Service", "weather"]["spec"]["selector"]["app.kubernetes.io/component"] == "web"
    (worker,) = found["Deployment", "weather-worker"]["spec"]["template"]["spec"]["containers"]
    assert worker["command"][:3] == ["polyport", "worker", "weather"]
    assert (
        worker["command"][worker["command"].index("--health") + 1] == f"0.0.0.0:{worker['ports'][0]['containerPort']}"
    )
    assert found["ConfigMap", "weather"]["data"]["POLYPORT_CLUSTER_RUNS"] == "workers"


def test_kubernetes_names_its_servers_and_lets_in_nobody_else(project: Path):
    found = manifests(deployed("kubernetes")["kubernetes.yaml"])
    (container,) = found["Deployment", "weather"]["spec"]["template"]["spec"]["containers"]
    names = [one["name"] for one in container["env"]]
    for variable, server, password, port in (
        ("POLYPORT_DB", "weather-postgres", "POSTGRES_PASSWORD", 5432),
        ("POLYPORT_CLUSTER", "weather-nats", "NATS_PASSWORD", 4222),
    ):
        assert names.index(password) < names.index(variable), "Kubernetes puts in what stands before"
        (value,) = [one["value"] for one in container["env"] if one["name"] == variable]
        url = urlsplit(value.replace(f"$({password})", "s3cret"))
        assert (url.username, url.password, url.hostname, url.port) == ("polyport", "s3cret", server, port)
        spec = found["StatefulSet", server]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert found["Service", server]["spec"]["selector"] == labels
        (served,) = spec["template"]["spec"]["containers"]
        assert served["ports"] == [
            {"name": found["Service", server]["spec"]["ports"][0]["targetPort"], "containerPort": port}
        ]
        (rule,) = found["NetworkPolicy", server]["spec"]["ingress"]
        assert rule["ports"] == [{"protocol": "TCP", "port": port}]
        (source,) = rule["from"]
        (who,) = source["podSelector"]["matchExpressions"]
        assert who["values"] == ["web", "worker"]
    assert found["NetworkPolicy", "weather-worker"]["spec"]["ingress"] == []
    conf = found["ConfigMap", "weather-nats"]["data"]["nats.conf"]
    assert conf == deployed("compose", "--force")["nats.conf"]


def test_no_value_of_a_secret_gets_into_a_cluster(project: Path, monkeypatch: pytest.MonkeyPatch):
    names = ("POLYPORT_SECRET", "POLYPORT_KEYS", "POSTGRES_PASSWORD", "NATS_PASSWORD")
    for name in names:
        monkeypatch.setenv(name, f"tell-nobody-{name}")
    for kind in ("compose", "kubernetes"):
        code, told, err = polyport("deploy", kind, "weather", *KEYS, "--cluster", "--out", kind)
        assert code == 0, err
        texts = [told, *(path.read_text() for path in Path(kind).iterdir())]
        assert not any("tell-nobody" in text for text in texts)
        for name in names:
            assert sum(name in text for text in texts) >= 2, "in the next commands, and in the file"
