"""PostgreSQL and NATS as a deployment brings them: images, settings, commands and probes.

Used by `deploy_compose` and `deploy_kubernetes`. Holds values only; passwords come from the environment of the servers.
"""

from polyport.cli.deploy_files import DATA
from polyport.version import VERSION

POSTGRES = "postgres:17"
NATS = "nats:2.15-alpine"
NATS_CONF = "/etc/nats/nats.conf"
NATS_COMMAND = ["nats-server", "-c", NATS_CONF, "-sd", DATA]
NATS_PROBE = ["wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8222/healthz"]


def postgres_environment() -> dict[str, str]:
    """Without the password."""
    return {"POSTGRES_USER": "polyport", "POSTGRES_DB": "polyport"}


def nats_conf() -> str:
    """One server. A run's request is one message, and a request to Polyport may have 10 MiB."""
    return f"""# Written by polyport {VERSION}; yours to change.
listen: "0.0.0.0:4222"
http: "127.0.0.1:8222" # for the probe only: whoever reaches it can see who is connected
max_payload: 16MB # more than the largest request, which may have 10 MiB
authorization {{
  user: polyport
  password: $NATS_PASSWORD # begins with a letter, else it might be read as a number
}}
jetstream {{
  # What is true is in the database. With "always" a power failure loses no run that was just taken in, at a quarter of the
  # speed.
  sync_interval: "2m"
}}
"""
