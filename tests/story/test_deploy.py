"""`polyport deploy`: what it writes, what it refuses, and that the server of the image starts."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import yaml
from click.testing import CliRunner

from polyport.cli.main import main
from polyport.protocols.agent_engine import class_methods
from polyport.version import VERSION
from support.processes import Process, Serving

AGENT = "from polyport import LlmAgent\nroot_agent = LlmAgent(name='weather', model={model!r})\n"
MODULE = """
from polyport import App, LlmAgent, McpToolset, RemoteAgent
{imports}
root_agent = LlmAgent(name="weather", model="demo", tools=[McpToolset("python -m nothing")],
                      sub_agents=[RemoteAgent(name="far", description="Far.", url="http://127.0.0.1:9")])
"""
OWN = "app = App(root_agent, protocols=['rest', 'metrics'], auth=FunctionAuth(lambda credentials: 'ann'))\n"
KEYS = ("--auth", "keys-env:POLYPORT_KEYS")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an agent in it."""
    (tmp_path / "weather").mkdir()
    (tmp_path / "weather/agent.py").write_text(AGENT.format(model="demo"))
    for name in [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("POLYPORT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def polyport(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(args), prog_name="polyport")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def deployed(*args: str) -> dict[str, str]:
    """The files of the folder `deploy`."""
    code, _, err = polyport("deploy", *args)
    assert code == 0, err
    return {path.name: path.read_text() for path in Path("deploy").iterdir()}


def instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def command(text: str) -> list[str]:
    return json.loads(dict(instructions(text))["CMD"])


def environment(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in dict(instructions(text))["ENV"].split())


def extras(text: str) -> set[str]:
    found = re.search(r"polyport(?:\[([\w,-]*)\])?==", text)
    assert found
    return set((found[1] or "").split(",")) - {""}


# ---- the image


def test_the_image_runs_as_nobody_in_particular_asks_who_calls_and_is_looked_after(project: Path):
    files = deployed("docker", "weather", *KEYS)
    assert set(files) == {"Dockerfile", "Dockerfile.dockerignore", "constraints.txt"}
    steps = instructions(files["Dockerfile"])
    known = {"FROM", "RUN", "COPY", "WORKDIR", "USER", "ENV", "VOLUME", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert {name for name, _ in steps} == known
    assert dict(steps)["FROM"] == f"python:{sys.version_info[0]}.{sys.version_info[1]}-slim"
    names = [name for name, _ in steps]
    assert names.index("USER") > max(n for n, name in enumerate(names) if name in ("RUN", "COPY")), (
        "written by root only"
    )
    assert dict(steps)["USER"].split(":")[0] not in ("0", "root")
    assert "/health" in dict(steps)["HEALTHCHECK"]
    for name, rest in steps:
        if name == "COPY":
            assert all((project / path).exists() for path in json.loads(rest)[:-1]), rest
    assert "**/.env*" in files["Dockerfile.dockerignore"].splitlines()
    run = command(files["Dockerfile"])
    assert run[:3] == ["polyport", "serve", "weather"]
    assert run[run.index("--host") + 1] == "0.0.0.0" and run[run.index("--auth") + 1] == "keys-env:POLYPORT_KEYS"


def test_the_versions_are_those_that_are_installed_here(project: Path):
    files = deployed("docker", "weather", *KEYS)
    pins = dict(line.split("==") for line in files["constraints.txt"].splitlines() if "==" in line)
    assert {"msgspec", "anyio", "uvicorn", "aiohttp", "click", "frozenlist"} <= pins.keys()
    assert not {"pytest", "polyport", "grpcio"} & pins.keys(), "what it needs, and no more"
    assert "grpcio" not in files["Dockerfile"]
    assert f'"polyport=={VERSION}"' in files["Dockerfile"] and '"-c", "/setup/constraints.txt"' in files["Dockerfile"]


def test_FR_235_the_image_has_the_extras_and_the_requirements_of_the_agents(project: Path):
    (project / "weather/agent.py").write_text(MODULE.format(imports="import pydantic"))
    (project / "weather/requirements.txt").write_text("humanize\n")
    (project / "requirements.txt").write_text("tabulate\n")
    text = deployed(
        "docker", "weather", "--auth", "iap:aud", "--with", "triggers", "--with", "metrics", "--extra", "grpc"
    )["Dockerfile"]
    assert extras(text) == {"mcp", "a2a", "auth", "triggers", "otel", "pydantic", "grpc"}
    steps = [json.loads(rest) for name, rest in instructions(text) if name in ("COPY", "RUN") and rest.startswith("[")]
    assert ["requirements.txt", "/setup/requirements-0.txt"] in steps
    assert ["weather/requirements.txt", "/setup/requirements-1.txt"] in steps
    install = next(step for step in steps if step[:2] == ["pip", "install"])
    assert install[-4:] == ["-r", "/setup/requirements-0.txt", "-r", "/setup/requirements-1.txt"]


@pytest.mark.parametrize(
    ("model", "extra", "key"),
    [
        ("vertex/gemini-2.5-flash", "vertex", None),
        ("bedrock/anthropic.claude-x", "bedrock", None),
        ("azure/mine", "azure", None),
        ("gpt-5-mini", None, "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", None, "ANTHROPIC_API_KEY"),
        ("gemini-flash-latest", None, "GEMINI_API_KEY"),
    ],
)
def test_FR_235_models_bring_their_extras_and_name_their_keys(
    project: Path, model: str, extra: str | None, key: str | None
):
    (project / "weather/agent.py").write_text(AGENT.format(model=model))
    files = deployed("compose", "weather", *KEYS)
    assert extras(files["Dockerfile"]) == ({extra} if extra else set())
    told = yaml.safe_load(files["compose.yaml"])["services"]["weather"]["environment"]
    assert [name for name in told if name.endswith("_API_KEY")] == ([key] if key else [])


def test_the_command_in_the_image_is_one_that_serve_takes(project: Path):
    every = ["a2a", "mcp", "agent-engine", "triggers", "debug", "metrics"]
    with_all = [word for name in every for word in ("--with", name)]
    given = ("--auth", "header:X-User", "--trusted-proxy-cidr", "10.0.0.0/8")
    run = command(deployed("docker", "weather", *given, *with_all)["Dockerfile"])
    serve = main.commands["serve"]
    with serve.make_context("serve", run[2:]) as taken:
        assert all(taken.params[name.replace("-", "_")] is True for name in every)
        assert taken.params["agents"] == ("weather",)


def test_words_mean_in_the_image_what_they_mean_here(project: Path, monkeypatch: pytest.MonkeyPatch):
    agent = project / "weather/agent.py"
    text = deployed("docker", f"{agent}:root_agent", *KEYS)["Dockerfile"]
    assert command(text)[2] == "weather/agent.py:root_agent"
    assert ["weather/agent.py", "./weather/agent.py"] in [json.loads(r) for n, r in instructions(text) if n == "COPY"]
    monkeypatch.chdir(project / "weather")
    text = deployed("docker", ".", *KEYS)["Dockerfile"]
    assert command(text)[2] == "." and dict(instructions(text))["WORKDIR"] == "/app/weather", "the app keeps its name"


def test_what_agents_import_from_the_project_goes_along(project: Path):
    (project / "shared_words.py").write_text("X = 1\n")
    (project / "mine").mkdir()
    (project / "mine/__init__.py").write_text("import shared_words\n" + AGENT.format(model="demo"))
    text = deployed("docker", "mine:root_agent", *KEYS, "--include", "weather")["Dockerfile"]
    copied = {json.loads(rest)[0] for name, rest in instructions(text) if name == "COPY"}
    assert {"mine", "shared_words.py", "weather"} <= copied


def test_a_wheel_is_taken_along(project: Path):
    (project / "dist").mkdir()
    (project / "dist/polyport-9-py3-none-any.whl").touch()
    text = deployed("docker", "weather", *KEYS, "--with", "a2a", "--package", "dist/polyport-9-py3-none-any.whl")[
        "Dockerfile"
    ]
    assert (
        '"/setup/polyport-9-py3-none-any.whl[a2a]"' in text and '"dist/polyport-9-py3-none-any.whl", "/setup/"' in text
    )


# ---- an App of one's own


def test_an_app_of_ones_own_is_told_nothing_that_it_says_itself(project: Path):
    own = "from polyport.auth.combine import FunctionAuth\n"
    (project / "weather/agent.py").write_text(MODULE.format(imports=own) + OWN)
    files = deployed("kubernetes", "weather")
    assert command(files["Dockerfile"]) == ["polyport", "serve", "weather", "--host", "0.0.0.0", "--log-format", "json"]
    assert "POLYPORT_DB" not in environment(files["Dockerfile"])
    assert {"mcp", "a2a", "otel"} <= extras(files["Dockerfile"])
    for flags in (KEYS, ("--insecure",), ("--with", "a2a")):
        code, _, err = polyport("deploy", "docker", "weather", "--force", *flags)
        assert code == 1 and flags[0] in err


def test_an_app_without_the_routes_that_probes_ask_is_refused(project: Path):
    (project / "weather/agent.py").write_text(MODULE.format(imports="") + "app = App(root_agent, protocols=['a2a'])\n")
    code, _, err = polyport("deploy", "docker", "weather", *KEYS)
    assert code == 1 and "/health" in err and not Path("deploy").exists()


# ---- secrets and refusals


def test_no_value_of_a_secret_gets_into_a_file(project: Path, monkeypatch: pytest.MonkeyPatch):
    (project / "weather/agent.py").write_text(AGENT.format(model="gpt-5-mini"))
    (project / "weather/.env").write_text("TICKETS_TOKEN=tell-nobody-1\nOPENAI_API_KEY=tell-nobody-2\n")
    for name in ("TICKETS_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "x")  # so that it is gone after the test, whatever the file sets
        monkeypatch.delenv(name)
    monkeypatch.setenv("POLYPORT_SECRET", "tell-nobody-at-all-3")
    (project / "deploy").mkdir()
    for kind, out in (("compose", "one"), ("kubernetes", "two")):
        code, told, err = polyport("deploy", kind, "weather", *KEYS, "--out", out)
        assert code == 0, err
        texts = [told, *(path.read_text() for path in Path(out).iterdir())]
        assert not any("tell-nobody" in text for text in texts)
        for name in ("POLYPORT_SECRET", "POLYPORT_KEYS", "OPENAI_API_KEY", "TICKETS_TOKEN"):
            assert sum(name in text for text in texts) >= 2, "in the next commands, and in the file"


def test_a_database_that_there_is_comes_as_a_secret_and_wins_over_the_image(project: Path):
    files = deployed("kubernetes", "weather", *KEYS, "--secret", "POLYPORT_DB")
    container = documents(files["kubernetes.yaml"])["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert "POLYPORT_DB" in [one["name"] for one in container["env"]]
    assert "--db" not in command(files["Dockerfile"]), "a flag would win over it"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "--insecure"),
        (("--auth", "none"), "--insecure"),
        (("--auth", "keys:keys.yaml"), "keys-env:"),
        (("--auth", "password:x"), "keys:FILE"),
        (("--auth", "keys-env:NOT A NAME"), "NOT A NAME"),
        (("--auth", "header:X-User"), "--trusted-proxy-cidr"),
        ((*KEYS, "--out", "../elsewhere"), "below the current folder"),
        ((*KEYS, "--include", "/etc/hosts"), "below the current folder"),
        ((*KEYS, "--include", "nothing"), "nothing"),
        ((*KEYS, "--name", "Not Good"), "--name"),
        ((*KEYS, "--image", "a b"), "--image"),
        ((*KEYS, "--package", "polyport; rm -rf /"), "--package"),
        ((*KEYS, "--package", "otherport==1"), "--package"),
        ((*KEYS, "--secret", "A-B"), "A-B"),
        ((*KEYS, "--extra", 'x"]'), "--extra"),
    ],
)
def test_what_could_not_run_or_would_be_open_to_all_is_refused_before_anything_is_written(
    project: Path, args: tuple[str, ...], told: str
):
    before = sorted(project.rglob("*"))
    code, out, err = polyport("deploy", "docker", "weather", *args)
    assert code == 1 and err.startswith("Error: ") and told in err and out == ""
    assert [p for p in sorted(project.rglob("*")) if "__pycache__" not in p.parts] == before


def test_a_name_that_means_more_in_a_dockerfile_is_refused(project: Path):
    (project / "a $b").mkdir()
    (project / "a $b/agent.py").write_text(AGENT.format(model="demo"))
    code, _, err = polyport("deploy", "docker", "a $b", *KEYS)
    assert code == 1 and "Dockerfile" in err


def test_nothing_is_replaced_unless_that_is_wanted(project: Path):
    (project / "deploy").mkdir()
    (project / "deploy/compose.yaml").write_text("mine")
    code, _, err = polyport("deploy", "compose", "weather", *KEYS)
    assert code == 1 and "compose.yaml" in err and "--force" in err
    assert [p.name for p in (project / "deploy").iterdir()] == ["compose.yaml"], "all or nothing"
    assert deployed("compose", "weather", *KEYS, "--force")["compose.yaml"] != "mine"


# ---- compose and Kubernetes


def test_compose_reads_secrets_from_the_environment_and_keeps_the_data(project: Path):
    made = yaml.safe_load(deployed("compose", "weather", *KEYS, "--allowed-hosts", "bot.test")["compose.yaml"])
    service = made["services"]["weather"]
    assert (Path("deploy") / service["build"]["context"]).resolve() == project
    assert service["build"]["dockerfile"] == "deploy/Dockerfile"
    assert service["environment"]["POLYPORT_ALLOWED_HOSTS"].split() == ["weather", "bot.test"]
    for name in ("POLYPORT_SECRET", "POLYPORT_KEYS"):
        assert service["environment"][name].startswith(f"${{{name}:?")
    assert [mount.split(":")[1] for mount in service["volumes"]] == ["/data"] and made["volumes"] == {"data": {}}
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]


def test_compose_brings_a_database_when_asked_whose_password_is_in_no_file(project: Path):
    files = deployed("compose", "weather", *KEYS, "--postgres")
    made = yaml.safe_load(files["compose.yaml"])
    service, database = made["services"]["weather"], made["services"]["postgres"]
    assert service["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    password = "${POSTGRES_PASSWORD:?set it in the environment}"
    url = service["environment"]["POLYPORT_DB"].replace(password, "s3cret")
    shown = urlsplit(url)
    assert (shown.scheme, shown.username, shown.password, shown.hostname) == (
        "postgresql",
        database["environment"]["POSTGRES_USER"],
        "s3cret",
        "postgres",
    )
    assert shown.path == f"/{database['environment']['POSTGRES_DB']}"
    assert database["environment"]["POSTGRES_PASSWORD"] == password and "ports" not in database
    assert set(made["volumes"]) == {"data", "postgres"} and "asyncpg==" in files["constraints.txt"]
    assert "[" in files["Dockerfile"] and "postgres" in files["Dockerfile"]
    code, _, err = polyport("deploy", "kubernetes", "weather", *KEYS, "--postgres", "--out", "other")
    assert code == 1 and "--secret POLYPORT_DB" in err


def documents(text: str) -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def test_kubernetes_has_one_careful_process_with_a_disk(project: Path):
    made = documents(deployed("kubernetes", "weather", *KEYS)["kubernetes.yaml"])
    assert set(made) == {"ConfigMap", "Service", "StatefulSet", "NetworkPolicy"}, (
        "and no Secret: its values are the user's"
    )
    stateful = made["StatefulSet"]["spec"]
    assert stateful["replicas"] == 1
    pod = stateful["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["enableServiceLinks"] is False, "a Service named polyport would set POLYPORT_PORT"
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts["/data"] == stateful["volumeClaimTemplates"][0]["metadata"]["name"]
    assert mounts["/tmp"] == pod["volumes"][0]["name"]
    keys = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"]}
    assert keys["POLYPORT_KEYS"] == {"name": "weather-secrets", "key": "POLYPORT_KEYS"}
    labels = made["Service"]["spec"]["selector"].items()
    assert labels <= stateful["template"]["metadata"]["labels"].items()
    assert stateful["selector"]["matchLabels"].items() <= stateful["template"]["metadata"]["labels"].items()
    port = container["ports"][0]
    assert made["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    assert made["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"] == port["containerPort"]
    assert container["envFrom"] == [{"configMapRef": {"name": made["ConfigMap"]["metadata"]["name"]}}]


def test_the_metadata_of_agent_engine_is_that_of_its_methods(project: Path):
    files = deployed("agent-engine", "weather")
    assert json.loads(files["class_methods.json"]) == class_methods() and len(files) == 1


def test_the_next_commands_are_words_that_exist(project: Path):
    _, out, _ = polyport("deploy", "kubernetes", "weather", *KEYS)
    commands = [line.strip().partition("#")[0] for line in out.splitlines() if line.startswith("  ")]
    ours = [line.split() for line in commands if line.startswith("polyport ")]
    assert ours
    for words in ours:
        group: click.Command = main
        for word in words[1:]:
            if isinstance(group, click.Group):
                group = group.commands[word]
        options = {name for parameter in group.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options
    for line in commands:
        assert subprocess.run(["bash", "-n", "-c", line], check=False).returncode == 0, line


# ---- the real thing


def test_the_command_of_the_image_serves_and_asks_who_calls(project: Path, tmp_path_factory: pytest.TempPathFactory):
    files = deployed("kubernetes", "weather", *KEYS, "--with", "a2a", "--with", "metrics")
    with Process("auth", "key", "--user", "ann") as made:
        assert made.ended() == 0
        key, line = made.out.text.strip(), made.err.text.strip().splitlines()[-1]
    told = environment(files["Dockerfile"])
    assert told["POLYPORT_DB"] == "sqlite:////data/polyport.db" and told["POLYPORT_PORT"] == "8000"
    disk = tmp_path_factory.mktemp("data")
    settings = {
        **told,
        **documents(files["kubernetes.yaml"])["ConfigMap"]["data"],
        "POLYPORT_DB": told["POLYPORT_DB"].replace("/data/", f"{disk}/"),
        "POLYPORT_KEYS": line,
        "POLYPORT_SECRET": "s" * 32,
    }
    with Serving(*command(files["Dockerfile"])[2:], cwd=project, env=settings) as serving:
        local = f"http://127.0.0.1:{serving.port}"
        check = json.loads(dict(instructions(files["Dockerfile"]))["HEALTHCHECK"].partition("CMD ")[2])
        probe = [sys.executable, *(word.replace(":8000", f":{serving.port}") for word in check[1:])]
        assert subprocess.run(probe, check=False, timeout=60).returncode == 0

        def status(path: str, **headers: str) -> int:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            try:
                with urllib.request.urlopen(urllib.request.Request(local + path, headers=sent), timeout=60) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                with error:
                    return error.code

        assert status("/ready") == 200
        assert status("/ready", host="10.1.2.3:8000") == 200, "as the kubelet asks"
        assert status("/ready", host="weather:8000") == status("/ready", host="weather.ns.svc.cluster.local") == 200
        assert status("/ready", host="elsewhere.test") == 403
        assert status("/list-apps") == 401
        assert status("/list-apps", x_api_key=key) == 200
        assert status("/.well-known/agent-card.json") == 200
        assert (disk / "polyport.db").exists()
