"""The options of `polyport serve` and `polyport worker` as data: filled by the command, read by all that serves, and sent to
the processes of `--workers`."""

from msgspec import Struct


class ServeOptions(Struct, kw_only=True):
    """See `polyport serve --help`. `given` are the flags that the user wrote, or set in the environment; `worker` says that
    the command is `polyport worker`, with options of its own."""

    agents: list[str]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    reload: bool = False
    db: str | None = None
    on_busy: str = "queue"
    history_window: int | None = None
    sse_timeout_s: float = 120.0
    grace_s: float = 10.0
    allowed_hosts: list[str] = []
    allowed_origins: list[str] = []
    trusted_proxy: bool = False
    auth: list[str] = []
    authorize: str | None = None
    trusted_proxy_cidr: list[str] = []
    insecure: bool = False
    rest: bool = True
    live: bool | None = None
    a2a: bool = False
    grpc_port: int | None = None
    grpc_tls: list[str] | None = None
    card_key: list[str] = []
    push: bool = False
    mcp: bool = False
    agent_engine: bool = False
    engine_id: str = ""
    triggers: bool = False
    trigger_max_retries: int | None = None
    trigger_max_runs: int | None = None
    oidc_audience: str | None = None
    oidc_service_accounts: list[str] = []
    web: str | None = None
    adk_web: bool = False
    debug: bool = False
    evals: bool = False
    metrics: bool = False
    prefix: list[str] = []
    cluster: str | None = None
    cluster_runs: str = "here"
    cluster_prefix: str = "polyport"
    cluster_lease_s: float = 6.0
    cluster_replicas: int = 1
    worker: bool = False
    health: str | None = None
    max_runs: int | None = None
    caller_rate: float = 0.0
    caller_burst: int | None = None
    caller_requests: int = 0
    user_runs: int = 0
    body_mib: int | None = None
    log_format: str = "text"
    log_level: str = "info"
    given: list[str] = []
