"""The image of a deployment: Dockerfile, what it must not hold, and what its containers run.

Made from a Plan by `cli.deployment`; `deploy_compose` and `deploy_kubernetes` say where it runs. No value of a secret ever gets
in: only names of variables. Reads and writes nothing.
"""

import json
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
REPLICAS = 2
"""Of what takes requests in, and of what carries runs out, unless somebody says another number."""
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
    if plan.db and not plan.cluster:
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
            *([] if plan.cluster else [f"VOLUME {json.dumps([DATA])}"]),
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


def worker_command(plan: Plan) -> list[str]:
    """What a container runs that takes no requests, but for the probes."""
    flags = [flag for flag in plan.flags if flag == "--a2a"]
    return ["polyport", "worker", *plan.words, "--health", f"0.0.0.0:{PORT}", "--log-format", "json", *flags]


def ignored(plan: Plan) -> str:
    return "\n".join([f"# What never gets into the image of {plan.name}.", *IGNORED, ""])


def constraints(plan: Plan) -> str:
    return "\n".join(["# The versions with which it was tried. Made by polyport deploy.", *plan.pins, ""])


def build(plan: Plan) -> str:
    return f"docker build -f {place(plan, 'Dockerfile')} -t {plan.image} ."


def place(plan: Plan, file: str) -> str:
    """Where a file of the deployment is, from the folder of the project."""
    return file if plan.out == "." else f"{plan.out}/{file}"


def _target(path: str) -> str:
    return "./" if path == "." else f"./{path}"


def _with_extras(package: str, extras: str) -> str:
    """`polyport==1` -> `polyport[a2a]==1`; one that names its extras stays as it is."""
    return re.sub(r"^polyport(?=[=<>~!@]|$)", f"polyport{extras}", package)


def settings(plan: Plan, *hosts: str) -> dict[str, str]:
    """What the servers are told by their environment."""
    told = {} if plan.hosts is None else {"POLYPORT_ALLOWED_HOSTS": " ".join([*plan.hosts, *hosts])}
    return {**told, "POLYPORT_CLUSTER_RUNS": "workers"} if plan.cluster else told


class _Plain(yaml.SafeDumper):
    """Writes what occurs twice twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_yaml(*documents: Any) -> str:
    head = f"# Written by polyport {VERSION}; yours to change.\n"
    return head + str(yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=1000))
