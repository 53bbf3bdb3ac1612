"""What `polyport deploy` does: plans, writes the files that are not there yet, and prints the next commands.

Used by the command only. It replaces nothing unless told to, builds nothing, and asks no agent.
"""

import json
from pathlib import Path

from polyport.cli import deploy_files as files
from polyport.cli.deploy_compose import compose
from polyport.cli.deploy_kubernetes import kubernetes, secret
from polyport.cli.deploy_plan import Plan, Wanted, plan
from polyport.cli.deploy_servers import nats_conf
from polyport.config.load import load
from polyport.config.text import readable
from polyport.errors import ConfigError
from polyport.protocols.agent_engine.mount import class_methods


def write(wanted: Wanted) -> None:
    """All files of the deployment, or none. ConfigError when one is there already, and as `deploy_plan.plan`."""
    if wanted.kind == "agent-engine":
        texts, then = _agent_engine(wanted)
    else:
        made = plan(wanted)
        texts, then = _texts(wanted.kind, made), _next(wanted.kind, made)
    out = Path(wanted.out)
    there = [name for name in texts if (out / name).exists() or (out / name).is_symlink()]
    if there and not wanted.force:
        raise ConfigError(
            f"{readable(str(out))} has {', '.join(there)} already: --force replaces, --out names another folder"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write to {readable(str(out))}: {error.strerror or error}") from None
    print(f"Wrote {', '.join(readable(str(out / name)) for name in texts)}.\n\nNext:")
    for line in then:
        print(f"  {line}" if line else "")


def _texts(kind: str, made: Plan) -> dict[str, str]:
    texts = {
        "Dockerfile": files.dockerfile(made),
        "Dockerfile.dockerignore": files.ignored(made),
        "constraints.txt": files.constraints(made),
    }
    if kind == "compose":
        texts["compose.yaml"] = compose(made)
    if kind == "compose" and made.nats:
        texts["nats.conf"] = nats_conf()
    if kind == "kubernetes":
        texts["kubernetes.yaml"] = kubernetes(made)
    return texts


def _agent_engine(wanted: Wanted) -> tuple[dict[str, str], list[str]]:
    """The `class_methods` of spec rest 6.5. Methods of one's own are added by code: `class_methods([...])`."""
    load(wanted.agents)  # a mistake shows here
    return {"class_methods.json": json.dumps(class_methods(), indent=2) + "\n"}, [
        "register these class_methods with your deployment; the container serves them with",
        f"polyport serve {' '.join(readable(word) for word in wanted.agents)} --agent-engine",
    ]


def _next(kind: str, made: Plan) -> list[str]:
    """The commands for a shell; secrets are taken from its environment."""
    lines = ["export POLYPORT_SECRET=$(python3 -c 'import secrets; print(secrets.token_hex(16))')   # keep it"]
    for name in made.secrets[1:]:
        if f"keys-env:{name}" in made.flags:
            lines.append("polyport auth key --user YOU     # prints a key, and the line that is the value of the next")
        lines.append(f"export {name}=...")
    lines += [
        f"export {name}=$(python3 -c 'import secrets; print(\"p\" + secrets.token_hex(16))')   # keep it, too"
        for name in made.passwords
    ]
    url = f"http://127.0.0.1:{files.PORT}"
    variables = " ".join(f"-e {name}" for name in made.secrets)
    if kind == "docker":
        lines += [
            files.build(made),
            f"docker run --rm --init -p 127.0.0.1:{files.PORT}:{files.PORT} -v {made.name}-data:{files.DATA} "
            f"{variables} {made.image}",
        ]
    elif kind == "compose":
        lines.append(f"docker compose -f {files.place(made, 'compose.yaml')} up --build")
        if made.cluster:
            lines.append(f"# more workers: add --scale {made.name}-worker=4")
    else:
        values = " ".join(f'--from-literal={name}="${name}"' for name in (*made.secrets, *made.passwords))
        lines += [
            files.build(made),
            f"docker push {made.image}   # to the registry of your cluster: name it with --image",
            f"kubectl create secret generic {secret(made)} {values}",
            f"kubectl apply -f {files.place(made, 'kubernetes.yaml')}",
            f"kubectl port-forward service/{made.name} {files.PORT}",
        ]
    return [*lines, f"curl {url}/health"]
