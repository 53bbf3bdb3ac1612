"""The texts of a deployment: Dockerfile, what an image must not hold, compose file, Kubernetes manifests.

Made from a Plan by `cli.deployment`. No value of a secret ever gets in: only names of variables. Reads and writes nothing.
"""

import json
import os
import re
import sys
from typing import Any

import yaml

from polyport.cli.deploy_plan import Plan
from polyport.version import VERSION

UID = 10001
PORT = 8000
DATA = "/data"
SETUP = "/setup/"
TMP = "/tmp"  # noqa: S108  of the container
POSTGRES = "postgres:17"
PASSWORD = "${POSTGRES_PASSWORD:?set it in the environment}"
DATABASE = f"postgresql://polyport:{PASSWORD}@postgres:5432/polyport"
STOP_S = 40
"""How long a server gets to stop: its runs get ten seconds (`--grace`), then it closes what it holds."""
IGNORED = (
    *("**/.env*", "**/.git", "**/.venv", "**/venv", "**/node_modules", "**/__pycache__", "**/*.pyc", "**/.adk"),
    *("**/*.db", "**/*.db-*", "**/keys.y*ml", "**/*.pem", "**/*.key", "**/*credentials*.json", "**/.aws", "**/.ssh"),
)


def dockerfile(plan: Plan) -> str:
    """The build's context is the folder of the project. Nothing runs as root, and a `.env` ends the build."""
    wheel = plan.package.endswith(".whl")
    copied = [place(plan, "constraints.txt"), *([plan.package] if wheel else [])]
    extras = f"[{','.join(plan.extras)}]" if plan.extras else ""
    package = f"{SETUP}{plan.package.rpartition('/')[2]}{extras}" if wheel else _with_extras(plan.package, extras)
    home = f"/app/{plan.folder}".rstrip("/")
    requirements = [f"{SETUP}requirements-{n}.txt" for n, _ in enumerate(plan.requirements)]
    installs = ["pip", "install", "--no-cache-dir", "-c", f"{SETUP}constraints.txt", package]
    settings = {"PYTHONUNBUFFERED": "1", "POLYPORT_PORT": str(PORT)}
    if plan.db:
        settings["POLYPORT_DB"] = f"sqlite:///{DATA}/polyport.db"
    check = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/health', timeout=3)"
    return "\n".join(
        [
            f"# Written by polyport {VERSION}. In the folder of the project: {build(plan)}",
            f"FROM python:{sys.version_info[0]}.{sys.version_info[1]}-slim",
            f"RUN useradd --uid {UID} --create-home polyport && install -d -o {UID} -g {UID} {DATA}",
            f"COPY {json.dumps([*copied, SETUP])}",
            *(f"COPY {json.dumps([a, b])}" for a, b in zip(plan.requirements, requirements, strict=True)),
            f"RUN {json.dumps([*installs, *(word for file in requirements for word in ('-r', file))])}",
            f"WORKDIR {home}",
            *(f"COPY {json.dumps([path, _target(path)])}" for path in plan.copies),
            "# Keys come from the environment; a .env in an image would be everybody's.",
            "RUN if find . -name '.env*' | grep .; then echo 'keep these out of the image' >&2; exit 1; fi; "
            "python -m compileall -q .",
            f"USER {UID}:{UID}",
            "ENV " + " ".join(f"{name}={value}" for name, value in settings.items()),
            f"VOLUME {json.dumps([DATA])}",
            f"EXPOSE {PORT}",
            f"HEALTHCHECK --start-period=20s --interval=15s --timeout=5s CMD {json.dumps(['python', '-c', check])}",
            f"CMD {json.dumps(command(plan))}",
            "",
        ]
    )


def command(plan: Plan) -> list[str]:
    """What the container runs."""
    fixed = ["--host", "0.0.0.0", "--log-format", "json"]
    return ["polyport", "serve", *plan.words, *fixed, *plan.flags]


def ignored(plan: Plan) -> str:
    return "\n".join([f"# What never gets into the image of {plan.name}.", *IGNORED, ""])


def constraints(plan: Plan) -> str:
    return "\n".join(["# The versions with which it was tried. Made by polyport deploy.", *plan.pins, ""])


def compose(plan: Plan) -> str:
    context = os.path.relpath(".", plan.out)
    secrets = {name: f"${{{name}:?set it in the environment}}" for name in plan.secrets}
    service: dict[str, Any] = {
        "image": plan.image,
        "build": {"context": context, "dockerfile": place(plan, "Dockerfile")},
        "environment": {**_settings(plan), **secrets, **({"POLYPORT_DB": DATABASE} if plan.postgres else {})},
        "ports": [f"127.0.0.1:{PORT}:{PORT}"],
        "volumes": [f"data:{DATA}"],
        "tmpfs": [TMP],
        "read_only": True,
        "init": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_S}s",
        "deploy": {"resources": {"limits": {"memory": "512M"}}},
    }
    services: dict[str, Any] = {plan.name: service}
    volumes: dict[str, Any] = {"data": {}}
    if plan.postgres:
        service["depends_on"] = {"postgres": {"condition": "service_healthy"}}
        services["postgres"] = _postgres()
        volumes["postgres"] = {}
    return _yaml({"name": plan.name, "services": services, "volumes": volumes})


def _postgres() -> dict[str, Any]:
    """A server that only this project reaches."""
    return {
        "image": POSTGRES,
        "environment": {"POSTGRES_USER": "polyport", "POSTGRES_DB": "polyport", "POSTGRES_PASSWORD": PASSWORD},
        "volumes": ["postgres:/var/lib/postgresql/data"],
        "healthcheck": {"test": ["CMD", "pg_isready", "-U", "polyport"], "interval": "5s", "retries": 20},
        "security_opt": ["no-new-privileges:true"],
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_S}s",
    }


def kubernetes(plan: Plan) -> str:
    """A StatefulSet, for at most one process may have the SQLite file."""
    name, labels = plan.name, {"app.kubernetes.io/name": plan.name}
    meta = {"name": name, "labels": labels}
    ports = [{"name": "http", "port": PORT, "targetPort": "http"}]
    policy = {
        "podSelector": {"matchLabels": labels},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": PORT}]}],
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    stateful = {
        "serviceName": name,
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod(plan)},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    }
    return _yaml(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": _settings(plan, "*.svc", "*.svc.cluster.local"),
        },
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": labels, "ports": ports}},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": stateful},
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": policy},
    )


def build(plan: Plan) -> str:
    return f"docker build -f {place(plan, 'Dockerfile')} -t {plan.image} ."


def secret(plan: Plan) -> str:
    """The name of the Secret with the values, which the user makes."""
    return f"{plan.name}-secrets"


def _pod(plan: Plan) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 5}
    keys = [{"name": k, "valueFrom": {"secretKeyRef": {"name": secret(plan), "key": k}}} for k in plan.secrets]
    container = {
        "name": "polyport",
        "image": plan.image,
        "envFrom": [{"configMapRef": {"name": plan.name}}],
        "env": keys,
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**probe, "httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "data", "mountPath": DATA}, {"name": "tmp", "mountPath": TMP}],
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # else a Service named polyport would set POLYPORT_PORT to a URL
        "terminationGracePeriodSeconds": STOP_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": UID,
            "runAsGroup": UID,
            "fsGroup": UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }


def _settings(plan: Plan, *hosts: str) -> dict[str, str]:
    """What the server is told by its environment."""
    return {} if plan.hosts is None else {"POLYPORT_ALLOWED_HOSTS": " ".join([*plan.hosts, *hosts])}


def place(plan: Plan, file: str) -> str:
    """Where a file of the deployment is, from the folder of the project."""
    return file if plan.out == "." else f"{plan.out}/{file}"


def _target(path: str) -> str:
    return "./" if path == "." else f"./{path}"


def _with_extras(package: str, extras: str) -> str:
    """`polyport==1` -> `polyport[a2a]==1`; one that names its extras stays as it is."""
    return re.sub(r"^polyport(?=[=<>~!@]|$)", f"polyport{extras}", package)


class _Plain(yaml.SafeDumper):
    """Writes what occurs twice twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(*documents: Any) -> str:
    head = f"# Written by polyport {VERSION}; yours to change.\n"
    return head + str(yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=1000))
