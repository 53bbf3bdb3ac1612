"""What a deployment needs, found out from the agents: files, extras, requirements, and the names of secrets.

Used by `cli.deployment`. Loads the agents as `serve` would, but makes no model, so that no key is needed here. Writes nothing.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType

from dotenv import dotenv_values
from msgspec import Struct

from polyport.agents.remote import RemoteAgent
from polyport.app import App
from polyport.assembly import Models
from polyport.cli.identity import Identity
from polyport.cli.served import KNOWN, served_by
from polyport.config.load import load
from polyport.config.text import readable
from polyport.engine.tree import AgentTree
from polyport.errors import ConfigError
from polyport.models.demo import DemoModel
from polyport.ports.model import Model
from polyport.protocols.guard import Guard
from polyport.tools.mcp import McpToolset

MODELS = (
    (r"gemini[-/].+", "GEMINI_API_KEY", ""),
    (r"(gpt-|o\d|openai/).*", "OPENAI_API_KEY", ""),
    (r"(claude-|anthropic/).+", "ANTHROPIC_API_KEY", ""),
    (r"vertex/.+", "", "vertex"),
    (r"bedrock/.+", "", "bedrock"),
    (r"azure/.+", "", "azure"),
)
"""The name of a model -> the variable with its key, the extra that it needs."""

_PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)*")
"""Paths that mean themselves in a Dockerfile and in a shell."""
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)")
_NEED = re.compile(r"([\w.-]+)\s*(?:\[([^]]*)\])?")
"""Of a line of metadata: the package, and its extras."""
_NOT_THEIRS = frozenset({"polyport", "__main__"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REQUIREMENT = re.compile(r"polyport(?:[=<>~!@\[][\w.~!=<>@+:/\[\],-]*)?")


class Wanted(Struct, frozen=True, kw_only=True):
    """The options of the command, see `polyport deploy --help`."""

    kind: str
    agents: list[str]
    out: str = "deploy"
    force: bool = False
    postgres: bool = False
    cluster: bool = False
    name: str = ""
    image: str = ""
    include: list[str] = []
    extra: list[str] = []
    package: str = ""
    protocols: list[str] = []
    allowed_hosts: list[str] = []
    auth: list[str] = []
    trusted_proxy_cidr: list[str] = []
    insecure: bool = False
    secrets: list[str] = []


class Plan(Struct, frozen=True, kw_only=True):
    """`words` are the agents as the server in the image gets them; `copies` the paths below the current folder that it needs,
    `.` for all of it, which then is `folder` there; `hosts` are the names that it answers to, None for an App that says so
    itself; `db` says whether it is told where sessions live. In a `cluster` some processes take requests in and others carry
    runs out; `postgres` and `nats` say whether the files bring these servers."""

    name: str
    image: str
    out: str
    words: list[str]
    copies: list[str]
    folder: str
    requirements: list[str]
    extras: list[str]
    package: str
    pins: list[str]
    secrets: list[str]
    flags: list[str]
    hosts: list[str] | None
    db: bool
    cluster: bool
    postgres: bool
    nats: bool

    @property
    def passwords(self) -> list[str]:
        """The variables with the passwords of the servers that the files bring."""
        return ["POSTGRES_PASSWORD"] * self.postgres + ["NATS_PASSWORD"] * self.nats


class Own(Struct, frozen=True):
    """What an App of the user's own sees to itself: who calls, and by which Host names."""

    asks: bool = False
    guards: bool = False


class _Named(Models):
    """Models that are not made: a deployment needs their names only."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def of(self, name: str) -> Model:
        self.names.add(name)
        return DemoModel()


def plan(wanted: Wanted) -> Plan:
    """ConfigError for what could not run, or would run open to everybody."""
    if wanted.postgres and wanted.kind != "compose":
        raise ConfigError(
            "--postgres is for compose; elsewhere name your server with --secret POLYPORT_DB --extra postgres"
        )
    if wanted.cluster and wanted.kind not in ("compose", "kubernetes"):
        raise ConfigError("--cluster is for compose and kubernetes, which run several containers")
    here = Path.cwd()
    found = load(wanted.agents)
    named = _Named()
    roots = {n: tree.root for n, tree in found.trees.items()} if isinstance(found, App) else found
    trees = {name: AgentTree(root, named.bind) for name, root in roots.items()}
    models = sorted(named.names)
    words = [_agent(word, here) for word in wanted.agents]
    places = [place for place, _ in words if place]
    copies = _distinct([*places, *_imported(here, places), *(_below(Path(path), here) for path in wanted.include)])
    name = wanted.name or re.sub(r"[^a-z0-9]+", "-", next(iter(trees)).lower()).strip("-")[:40] or "agents"
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", name):
        raise ConfigError(
            f"the name {readable(name)!r} must be lower-case letters, digits and -; say another with --name"
        )
    own = _settings(found, wanted) if isinstance(found, App) else Own()
    extras = _extras(wanted, found, trees, models)
    secrets = _distinct([*_secrets(wanted, models), *map(_variable, [*wanted.secrets, *_of_env_files(places, here)])])
    return Plan(
        name=name,
        image=_word(wanted.image or f"{name}:1", "--image"),
        out=_below(Path(wanted.out), here, exists=False),
        words=[word for _, word in words],
        copies=["."] if "." in copies else copies,
        folder=_word(here.name, "the current folder") if "." in copies else "",
        requirements=_requirements(places, here),
        extras=extras,
        package=_package(wanted.package, here),
        pins=_pins(extras),
        secrets=secrets,
        flags=[*_access(wanted, own.asks), *(f"--{protocol}" for protocol in wanted.protocols)],
        hosts=None if own.guards else [name, *wanted.allowed_hosts],
        db=not isinstance(found, App),
        cluster=wanted.cluster,
        postgres=(wanted.postgres or wanted.cluster) and "POLYPORT_DB" not in secrets,
        nats=wanted.cluster and "POLYPORT_CLUSTER" not in secrets,
    )


def _settings(app: App, wanted: Wanted) -> Own:
    """ConfigError for flags that an App of the user's own would refuse, and for one without the routes that probes ask."""
    guard = app.asgi.guard
    asks = guard.auth is not None or type(guard).admit is not Guard.admit
    guards = not guard.is_open or type(guard) is not Guard
    refused = [
        flag
        for flag, given in (
            ("--with", wanted.protocols),
            ("--postgres", wanted.postgres),
            ("--cluster", wanted.cluster),
            ("--allowed-hosts", guards and wanted.allowed_hosts),
        )
        if given
    ]
    if refused:
        raise ConfigError(f"{wanted.agents[0]} is an App with settings of its own: leave out {', '.join(refused)}")
    if not any(route.pattern == "/ready" for route in app.asgi.routes):
        raise ConfigError(
            f'{wanted.agents[0]} has no /health and /ready, which are asked all the time: serve "rest", too'
        )
    return Own(asks, guards)


# ---- what the agents are made of


def _extras(wanted: Wanted, found: object, trees: Mapping[str, AgentTree], models: list[str]) -> list[str]:
    """FR-235: what the agents, their protocols and their callers' identities need beside Polyport itself."""
    flags = {f"--{protocol}" for protocol in wanted.protocols}
    served = served_by(found.asgi.routes) if isinstance(found, App) else [k for k in KNOWN if k.flag in flags]
    extras = {known.extra for known in served} | {_word(extra, "--extra") for extra in wanted.extra}
    extras |= {"postgres"} if wanted.postgres or wanted.cluster else set()
    extras |= {"nats"} if wanted.cluster or (isinstance(found, App) and found.runs.peers.name) else set()
    extras |= {extra for name in models for pattern, _, extra in MODELS if re.fullmatch(pattern, name)}
    agents = [agent for tree in trees.values() for agent in tree.agents()]
    tools = [tool for tree in trees.values() for bound in tree.bounds() for tool in bound.tools]
    kinds = {word.partition(":")[0] for word in wanted.auth}
    for extra, needed in (
        ("mcp", any(isinstance(tool, McpToolset) for tool in tools)),
        ("a2a", any(isinstance(agent, RemoteAgent) for agent in agents)),
        ("auth", bool(kinds & {"jwt", "google", "iap"})),
        ("triggers", "triggers" in wanted.protocols),
        ("pydantic", _uses("pydantic")),
    ):
        if needed:
            extras.add(extra)
    return sorted(filter(None, extras))


def _theirs(here: Path) -> Iterator[tuple[ModuleType, Path]]:
    """The modules of the project that are loaded now, and their files."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        path = Path(file) if isinstance(file, str) else here
        apart = path.is_relative_to(sys.prefix) or "site-packages" in path.parts or name.split(".")[0] in _NOT_THEIRS
        if path != here and path.is_relative_to(here) and not apart:
            yield module, path


def _imported(here: Path, places: list[str]) -> list[str]:
    """What the agents have imported from the current folder besides their own: the file, or the folder right below it."""
    files = [path for _, path in _theirs(here) if not any(path.is_relative_to(here / place) for place in places)]
    return [_below(here / path.relative_to(here).parts[0], here) for path in files]


def _uses(package: str) -> bool:
    """Whether a module of the project has a name of this package in it."""
    values = (value for module, _ in _theirs(Path.cwd()) for value in vars(module).values())
    homes = (getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in values)
    return any(isinstance(home, str) and home.split(".")[0] == package for home in homes)


def _requirements(places: list[str], here: Path) -> list[str]:
    files = [folder / "requirements.txt" for folder in _folders(places, here)]
    return _distinct([_below(file, here) for file in files if file.is_file()])


def _folders(places: list[str], here: Path) -> list[Path]:
    return [here, *(here / place if (here / place).is_dir() else (here / place).parent for place in places)]


def _of_env_files(places: list[str], here: Path) -> Iterator[str]:
    """The names in the `.env` files of the agents, which are not in the image. Settings of the server are made anew."""
    for folder in _folders(places, here):
        if (folder / ".env").is_file():
            yield from (name for name in dotenv_values(folder / ".env") if not name.startswith("POLYPORT_"))


def _pins(extras: list[str]) -> list[str]:
    """The versions of all that Polyport needs with these extras, as far as it is installed here."""
    found: dict[str, str] = {}
    todo = [("polyport", frozenset(extras))]
    seen = set(todo)
    for name, wanted in todo:  # it grows meanwhile
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue
        found[one.name] = one.version
        for line in one.requires or ():
            extra = _EXTRA.search(line)
            need = _NEED.match(line)
            if need is not None and (extra is None or extra[1] in wanted):
                more = need[1], frozenset((need[2] or "").replace(" ", "").split(","))
                if more not in seen:
                    seen.add(more)
                    todo.append(more)
    return sorted(f"{name}=={version}" for name, version in found.items() if name != "polyport" and "+" not in version)


# ---- words


def _agent(word: str, here: Path) -> tuple[str, str]:
    """The path of an agent below the current folder, "" for a module, which `_imported` finds; and the word for it there."""
    path_word, colon, attr = word.rpartition(":")
    if not colon or not attr.isidentifier():
        path_word, attr = word, ""
    path = Path(path_word).expanduser()
    if not path.exists():
        return "", word
    place = _below(path, here)
    return place, f"{place}:{attr}" if attr else place


def _below(path: Path, here: Path, *, exists: bool = True) -> str:
    """A path relative to the current folder. ConfigError for one outside, and for one that a Dockerfile would not take."""
    shown = readable(str(path))
    whole = (here / path.expanduser()).resolve()
    if exists and not whole.exists():
        raise ConfigError(f"there is no {shown!r}")
    if not whole.is_relative_to(here.resolve()):
        raise ConfigError(
            f"{shown!r} is not below the current folder, from which the image is built: go to a folder above it"
        )
    relative = whole.relative_to(here.resolve()).as_posix()
    if relative != "." and not _PATH.fullmatch(relative):
        raise ConfigError(f"{readable(relative)!r} cannot be named in a Dockerfile: use letters, digits and . _ - + @")
    return relative


def _word(word: str, what: str) -> str:
    if not re.fullmatch(r"[\w.@+-][\w.@+:/-]*", word):
        raise ConfigError(f"{what}: {readable(word)!r} must be letters, digits and . _ - + @ : /")
    return word


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ConfigError(f"{readable(name)!r} is no name of an environment variable")
    return name


def _package(word: str, here: Path) -> str:
    if word.endswith(".whl"):
        return _below(Path(word), here)
    if not _REQUIREMENT.fullmatch(word):
        raise ConfigError(f"--package {readable(word)!r} must be polyport==VERSION, polyport@URL, or a wheel")
    return word


# ---- who may call


def _access(wanted: Wanted, asked: bool) -> list[str]:
    """The flags for `serve`. ConfigError without authentication, unless that is wanted."""
    if asked:
        if wanted.auth or wanted.insecure:
            raise ConfigError(f"{wanted.agents[0]} is an App with auth of its own: leave out --auth and --insecure")
        return []
    kinds = [word for word in wanted.auth if word != "none"]
    if not kinds:
        if not wanted.insecure:
            raise ConfigError(
                "say who may call: --auth keys-env:POLYPORT_KEYS for API keys (see polyport serve --help for others), or "
                "--insecure if nobody else can reach the server"
            )
        return ["--insecure"]
    for word in kinds:
        if word.startswith("keys:"):
            raise ConfigError(
                f"--auth {readable(word)}: the file is not in the image; use keys-env:POLYPORT_KEYS, a secret"
            )
    checked = [word for word in kinds if not word.startswith("keys-env:")]
    if checked:
        Identity(auth=checked, trusted_proxy_cidr=wanted.trusted_proxy_cidr).made()
    flags = [flag for word in kinds for flag in ("--auth", word)]
    return [*flags, *(flag for cidr in wanted.trusted_proxy_cidr for flag in ("--trusted-proxy-cidr", cidr))]


def _secrets(wanted: Wanted, models: list[str]) -> Iterator[str]:
    yield "POLYPORT_SECRET"
    for word in wanted.auth:
        if word.startswith("keys-env:"):
            yield _variable(word.removeprefix("keys-env:"))
    for name in models:
        for pattern, variable, _ in MODELS:
            if variable and re.fullmatch(pattern, name):
                yield variable


def _distinct(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))
