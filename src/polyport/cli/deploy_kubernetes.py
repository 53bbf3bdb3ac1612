"""The Kubernetes manifests of a deployment: one careful process with a disk, or a cluster with the servers that it needs.

Made from a Plan by `cli.deployment`. Values of secrets are in a Secret that the user makes. Reads and writes nothing.
"""

from collections.abc import Sequence
from typing import Any

from polyport.cli.deploy_files import DATA, PORT, REPLICAS, STOP_S, TMP, UID, settings, to_yaml, worker_command
from polyport.cli.deploy_plan import Plan
from polyport.cli.deploy_servers import (
    NATS,
    NATS_COMMAND,
    NATS_CONF,
    NATS_PROBE,
    POSTGRES,
    nats_conf,
    postgres_environment,
)

Manifest = dict[str, Any]
POSTGRES_UID = 999
"""Of the user `postgres` in its image."""
PGDATA = "/var/lib/postgresql/data"


def kubernetes(plan: Plan) -> str:
    """A StatefulSet, for at most one process may have the SQLite file; in a cluster Deployments, which share nothing but their
    servers."""
    found = [
        _manifest("v1", "ConfigMap", plan.name, _labels(plan), data=settings(plan, "*.svc", "*.svc.cluster.local")),
        *(_cluster(plan) if plan.cluster else _single(plan)),
    ]
    return to_yaml(*found)


def secret(plan: Plan) -> str:
    """The name of the Secret with the values, which the user makes."""
    return f"{plan.name}-secrets"


def _single(plan: Plan) -> list[Manifest]:
    labels = _labels(plan)
    return [
        _service(plan.name, labels, "http", PORT),
        _stateful(plan.name, labels, _pod(plan, ("data", DATA))),
        _policy(plan.name, labels, PORT),
    ]


def _cluster(plan: Plan) -> list[Manifest]:
    web, worker = _labels(plan, "web"), _labels(plan, "worker")
    found = [
        _service(plan.name, web, "http", PORT),
        _deployment(plan.name, web, _pod(plan)),
        _budget(plan.name, web),
        _policy(plan.name, web, PORT),
        _deployment(f"{plan.name}-worker", worker, _pod(plan, command=worker_command(plan))),
        _budget(f"{plan.name}-worker", worker),
        _policy(f"{plan.name}-worker", worker, None),
    ]
    if plan.postgres:
        name, labels = f"{plan.name}-postgres", _labels(plan, "postgres")
        found += [
            _service(name, labels, "postgres", 5432),
            _stateful(name, labels, _postgres(plan)),
            _policy(name, labels, 5432, plan),
        ]
    if plan.nats:
        name, labels = f"{plan.name}-nats", _labels(plan, "nats")
        found += [
            _manifest("v1", "ConfigMap", name, labels, data={"nats.conf": nats_conf()}),
            _service(name, labels, "nats", 4222),
            _stateful(name, labels, _nats(plan)),
            _policy(name, labels, 4222, plan),
        ]
    return found


# ---- manifests


def _labels(plan: Plan, component: str = "") -> dict[str, str]:
    named = {"app.kubernetes.io/name": plan.name}
    return {**named, "app.kubernetes.io/component": component} if component else named


def _manifest(version: str, kind: str, name: str, labels: dict[str, str], **body: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}, **body}


def _service(name: str, labels: dict[str, str], port: str, number: int) -> Manifest:
    ports = [{"name": port, "port": number, "targetPort": port}]
    return _manifest("v1", "Service", name, labels, spec={"selector": labels, "ports": ports})


def _stateful(name: str, labels: dict[str, str], pod: Manifest) -> Manifest:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec = {
        "serviceName": name,
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    }
    return _manifest("apps/v1", "StatefulSet", name, labels, spec=spec)


def _deployment(name: str, labels: dict[str, str], pod: Manifest) -> Manifest:
    """On several nodes, if there are several; never fewer than there should be while it is renewed."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    spec = {
        "replicas": REPLICAS,
        "selector": {"matchLabels": labels},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": {"labels": labels}, "spec": {**pod, "topologySpreadConstraints": [spread]}},
    }
    return _manifest("apps/v1", "Deployment", name, labels, spec=spec)


def _budget(name: str, labels: dict[str, str]) -> Manifest:
    """Nodes that are emptied take one after the other."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    return _manifest("policy/v1", "PodDisruptionBudget", name, labels, spec=spec)


def _policy(name: str, labels: dict[str, str], port: int | None, only: Plan | None = None) -> Manifest:
    """Who may connect: to this port, from anywhere or from the pods of a plan; without a port nobody but the node's probes."""
    ours = {
        "matchLabels": _labels(only) if only else {},
        "matchExpressions": [{"key": "app.kubernetes.io/component", "operator": "In", "values": ["web", "worker"]}],
    }
    sources = {"from": [{"podSelector": ours}]} if only else {}
    rule = {**sources, "ports": [{"protocol": "TCP", "port": port}]}
    spec = {
        "podSelector": {"matchLabels": labels},
        "policyTypes": ["Ingress"],
        "ingress": [] if port is None else [rule],
    }
    return _manifest("networking.k8s.io/v1", "NetworkPolicy", name, labels, spec=spec)


# ---- pods


def _pod(plan: Plan, *disks: tuple[str, str], command: Sequence[str] = ()) -> Manifest:
    """A pod of the image; what it runs is the image's command unless another is given."""
    probe = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 5}
    mounts = [{"name": name, "mountPath": path} for name, path in (*disks, ("tmp", TMP))]
    container = {
        "name": "polyport",
        "image": plan.image,
        **({"command": list(command)} if command else {}),
        "envFrom": [{"configMapRef": {"name": plan.name}}],
        "env": [*(_of_secret(plan, name) for name in (*plan.passwords, *plan.secrets)), *_urls(plan)],
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {**probe, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**probe, "httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": _contained(),
        "volumeMounts": mounts,
    }
    return _spec(UID, [container], [{"name": "tmp", "emptyDir": {}}])


def _postgres(plan: Plan) -> Manifest:
    """It keeps its data in a folder of the disk, whose root may hold more."""
    probe = {"exec": {"command": ["pg_isready", "-U", "polyport"]}, "periodSeconds": 5, "timeoutSeconds": 5}
    told = {**postgres_environment(), "PGDATA": f"{PGDATA}/data"}
    container = {
        "name": "postgres",
        "image": POSTGRES,
        "env": [
            _of_secret(plan, "POSTGRES_PASSWORD"),
            *({"name": name, "value": value} for name, value in told.items()),
        ],
        "ports": [{"name": "postgres", "containerPort": 5432}],
        "readinessProbe": probe,
        "livenessProbe": {**probe, "initialDelaySeconds": 60, "failureThreshold": 6},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": _contained(),
        "volumeMounts": [
            {"name": "data", "mountPath": PGDATA},
            {"name": "run", "mountPath": "/var/run/postgresql"},
            {"name": "tmp", "mountPath": TMP},
        ],
    }
    return _spec(POSTGRES_UID, [container], [{"name": name, "emptyDir": {}} for name in ("run", "tmp")])


def _nats(plan: Plan) -> Manifest:
    probe = {"exec": {"command": NATS_PROBE}, "periodSeconds": 5, "timeoutSeconds": 5}
    container = {
        "name": "nats",
        "image": NATS,
        "command": NATS_COMMAND,
        "env": [_of_secret(plan, "NATS_PASSWORD")],
        "ports": [{"name": "nats", "containerPort": 4222}],
        "readinessProbe": probe,
        "livenessProbe": {**probe, "initialDelaySeconds": 60, "failureThreshold": 6},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": _contained(),
        "volumeMounts": [
            {"name": "data", "mountPath": DATA},
            {"name": "conf", "mountPath": NATS_CONF, "subPath": "nats.conf"},
        ],
    }
    return _spec(UID, [container], [{"name": "conf", "configMap": {"name": f"{plan.name}-nats"}}])


def _spec(uid: int, containers: list[Manifest], volumes: list[Manifest]) -> Manifest:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # else a Service named polyport would set POLYPORT_PORT to a URL
        "terminationGracePeriodSeconds": STOP_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": uid,
            "runAsGroup": uid,
            "fsGroup": uid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
        "volumes": volumes,
    }


def _contained() -> Manifest:
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def _of_secret(plan: Plan, name: str) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret(plan), "key": name}}}


def _urls(plan: Plan) -> list[Manifest]:
    """Where the servers are that the manifests bring. Kubernetes puts in the variables that stand before."""
    database = f"postgresql://polyport:$(POSTGRES_PASSWORD)@{plan.name}-postgres:5432/polyport"
    cluster = f"nats://polyport:$(NATS_PASSWORD)@{plan.name}-nats:4222"
    urls = (("POLYPORT_DB", database, plan.postgres), ("POLYPORT_CLUSTER", cluster, plan.nats))
    return [{"name": name, "value": value} for name, value, there in urls if there]
