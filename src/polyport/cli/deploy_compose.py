"""The compose file of a deployment: one service, or a cluster with the servers that it needs.

Made from a Plan by `cli.deployment`. Values of secrets come from the environment of compose. Reads and writes nothing.
"""

import os
from collections.abc import Sequence
from typing import Any

from polyport.cli.deploy_files import DATA, PORT, REPLICAS, STOP_S, TMP, place, settings, to_yaml, worker_command
from polyport.cli.deploy_plan import Plan
from polyport.cli.deploy_servers import NATS, NATS_COMMAND, NATS_CONF, NATS_PROBE, POSTGRES, postgres_environment
from polyport.cli.served import ONE_PROCESS


def compose(plan: Plan) -> str:
    """In a cluster the service that takes requests in has several processes behind one port, and its workers a service of
    their own, which can be scaled."""
    service = _service(plan)
    services: dict[str, Any] = {plan.name: {**service, "ports": [f"127.0.0.1:{PORT}:{PORT}"]}}
    volumes: dict[str, Any] = {}
    if plan.cluster:
        if not any(f"--{name.replace('_', '-')}" in plan.flags for name in ONE_PROCESS):
            services[plan.name]["environment"] = {**service["environment"], "POLYPORT_WORKERS": str(REPLICAS)}
        limits = service["deploy"]
        services[f"{plan.name}-worker"] = {
            **service,
            "command": worker_command(plan),
            "deploy": {"replicas": REPLICAS, **limits},
        }
    else:
        services[plan.name]["volumes"] = [f"data:{DATA}"]
        volumes["data"] = {}
    if plan.postgres:
        services["postgres"] = _postgres()
        volumes["postgres"] = {}
    if plan.nats:
        services["nats"] = _nats()
        volumes["nats"] = {}
    return to_yaml({"name": plan.name, "services": services, **({"volumes": volumes} if volumes else {})})


def _service(plan: Plan) -> dict[str, Any]:
    """What every container of the image has."""
    brought = ["postgres"] * plan.postgres + ["nats"] * plan.nats
    urls = {
        "POLYPORT_DB": f"postgresql://polyport:{_secret('POSTGRES_PASSWORD')}@postgres:5432/polyport",
        "POLYPORT_CLUSTER": f"nats://polyport:{_secret('NATS_PASSWORD')}@nats:4222",
    }
    told = {
        name: urls[name] for name, there in (("POLYPORT_DB", plan.postgres), ("POLYPORT_CLUSTER", plan.nats)) if there
    }
    return {
        "image": plan.image,
        "build": {"context": os.path.relpath(".", plan.out), "dockerfile": place(plan, "Dockerfile")},
        **({"depends_on": {name: {"condition": "service_healthy"} for name in brought}} if brought else {}),
        "environment": {**settings(plan), **{name: _secret(name) for name in plan.secrets}, **told},
        "tmpfs": [TMP],
        "read_only": True,
        "init": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_S}s",
        "deploy": {"resources": {"limits": {"memory": "512M"}}},
    }


def _secret(name: str) -> str:
    """Compose does not start without it."""
    return f"${{{name}:?set it in the environment}}"


def _server(image: str, volume: str, check: Sequence[str], **more: Any) -> dict[str, Any]:
    """A server that only this project reaches."""
    return {
        "image": image,
        **more,
        "volumes": [volume, *more.get("volumes", ())],
        "healthcheck": {"test": ["CMD", *check], "interval": "5s", "retries": 20},
        "security_opt": ["no-new-privileges:true"],
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_S}s",
    }


def _postgres() -> dict[str, Any]:
    return _server(
        POSTGRES,
        "postgres:/var/lib/postgresql/data",
        ["pg_isready", "-U", "polyport"],
        environment={**postgres_environment(), "POSTGRES_PASSWORD": _secret("POSTGRES_PASSWORD")},
    )


def _nats() -> dict[str, Any]:
    return _server(
        NATS,
        f"nats:{DATA}",
        NATS_PROBE,
        command=NATS_COMMAND,
        environment={"NATS_PASSWORD": _secret("NATS_PASSWORD")},
        volumes=[f"./nats.conf:{NATS_CONF}:ro"],
        cap_drop=["ALL"],
        read_only=True,
    )
