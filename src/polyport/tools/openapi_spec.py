"""An OpenAPI document as data: read, checked, and its local references followed.

Called by the toolset. Takes OpenAPI 3.0 and 3.1 as a dict or as JSON or YAML text. Never fetches anything: a reference to
another document leads nowhere.
"""

import ipaddress
import re
from collections.abc import Hashable
from typing import Any, cast
from urllib.parse import unquote, urljoin, urlsplit

import msgspec
import yaml

from polyport.errors import ConfigError, TooLarge
from polyport.tools.json_schema import is_list, is_map

MAX_NODES = 2_000_000
"""Values in a document, counted as often as YAML aliases repeat them."""
MAX_NESTING = 100

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Yaml(_Loader):
    """YAML as version 1.2 reads it: `no`, `on` and dates are text, `012` is no octal number."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _tag, _pattern, _first in (
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", list("-+0123456789.")),
    ("merge", r"<<", ["<"]),
):
    _Yaml.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern + r"\Z"), _first)


def _float(loader: Any, node: Any) -> float:
    return float(loader.construct_scalar(node))  # PyYAML's own takes 1:30 and 1e3 for something else


_Yaml.add_constructor("tag:yaml.org,2002:float", _float)


def parse(text: str | bytes) -> Any:
    """JSON or YAML text as plain data. ConfigError with the place for text that is neither."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return yaml.load(text, Loader=_Yaml)  # a subclass of the safe loader
    except RecursionError:
        raise ConfigError(f"the OpenAPI document nests deeper than {MAX_NESTING} levels") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or type(error).__name__
        raise ConfigError(f"the OpenAPI document is neither JSON nor YAML{place}: {reason}") from None


class Document:
    """A checked document. `source` is the URL that it came from, or ""."""

    def __init__(self, data: Any, source: str = "") -> None:
        self.source = source
        self.root = cast("dict[str, Any]", _Plain().any(data, 0))
        self._check()

    def _check(self) -> None:
        root = self.root
        if not is_map(root):
            raise ConfigError("an OpenAPI document is an object")
        if "swagger" in root:
            raise ConfigError(
                f"this is Swagger {root['swagger']}, which is not supported: convert it to OpenAPI 3 first (the Swagger "
                "editor and swagger2openapi do that)"
            )
        version = root.get("openapi")
        if not isinstance(version, str) or not re.match(r"3\.[01](\.|$)", version):
            said = "says no version" if version is None else f"says openapi: {version!r:.40}"
            raise ConfigError(f"the document {said}; OpenAPI 3.0 and 3.1 are supported")
        if not is_map(root.get("paths", {})):
            raise ConfigError("`paths` of an OpenAPI document must be an object")

    @property
    def title(self) -> str:
        info = self.root.get("info")
        return str(info.get("title", "")) if is_map(info) else ""

    @property
    def paths(self) -> dict[str, Any]:
        return self.root.get("paths", {})

    @property
    def components(self) -> dict[str, Any]:
        return mapping(self.root.get("components"))

    def follow(self, node: Any) -> dict[str, Any]:
        """`node`, or what its `$ref` leads to, with the notes beside it. ConfigError when that is not in the document."""
        seen: list[str] = []
        beside: dict[str, Any] = {}
        while is_map(node) and isinstance(node.get("$ref"), str):
            ref = node["$ref"]
            if ref in seen:
                raise ConfigError(f"the reference {ref!r} leads back to itself")
            seen.append(ref)
            beside = {**{k: v for k, v in node.items() if k in ("summary", "description")}, **beside}
            node = self._at(ref)
        if not is_map(node):
            what = f"the reference {seen[-1]!r} leads to" if seen else "there is"
            raise ConfigError(f"{what} no object")
        return {**node, **beside} if beside else node

    def _at(self, ref: str) -> Any:
        if not ref.startswith("#/"):
            raise ConfigError(f"{ref!r:.200} is in another document, which is not fetched: bundle the document first")
        node: Any = self.root
        for raw in ref[2:].split("/"):
            key = raw.replace("~1", "/").replace("~0", "~")
            if is_map(node) and key in node:
                node = node[key]
            elif is_list(node) and key.isdigit() and int(key) < len(node):
                node = node[int(key)]
            else:
                raise ConfigError(f"the reference {ref!r:.200} leads nowhere")
        return node

    def server(self, *nodes: Any) -> str:
        """The URL of the first server of the first of `nodes` that names one, or of the document; without a slash at its end.

        ConfigError when there is none, when it is not http or https, or when a document from elsewhere names a server inside
        this network.
        """
        for node in (*nodes, self.root):
            servers = node.get("servers") if is_map(node) else None
            if is_list(servers) and servers and is_map(servers[0]):
                url = urljoin(self.source, _filled(servers[0])) if self.source else _filled(servers[0])
                return self._outward(checked_url(url, "the server of the OpenAPI document"))
        if self.source:
            return checked_url(urljoin(self.source, "/"), "the address of the OpenAPI document")
        raise ConfigError("the OpenAPI document names no server: give base_url=")

    def _outward(self, url: str) -> str:
        if self.source and not is_inside(self.source) and is_inside(url):
            host = urlsplit(url).hostname
            raise ConfigError(
                f"the OpenAPI document from {urlsplit(self.source).hostname} names the server {host}, which is inside this "
                "network: give base_url= if that is meant"
            )
        return url


def _filled(server: dict[str, Any]) -> str:
    """A server's URL with the defaults of its variables."""
    url = str(server.get("url", ""))
    for name, variable in mapping(server.get("variables")).items():
        url = url.replace("{" + name + "}", str(mapping(variable).get("default", "")))
    return url


def checked_url(url: str, what: str) -> str:
    """`url` without a slash at its end; ConfigError unless it is a plain absolute http(s) URL."""
    try:
        parts = urlsplit(url)
        ok = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        ok, parts = False, urlsplit("")
    if not ok or any(c in url for c in "{}\\ ") or not url.isprintable():
        raise ConfigError(f"{what} is {url!r:.200}, which is no absolute http(s) URL: give base_url=")
    if parts.username is not None:
        raise ConfigError(f"{what} has a user name in it: give auth= instead")
    if parts.query or parts.fragment:
        raise ConfigError(f"{what} must have no query and no fragment")
    return url.rstrip("/")


def is_inside(url: str) -> bool:
    """Whether the host of `url` is, by its spelling, this machine or in a private network."""
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal"))


def mapping(value: Any) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if is_map(value) else {}


class _Plain:
    """A copy as plain JSON data: keys are text, references are unescaped, size and depth are bounded."""

    def __init__(self) -> None:
        self.nodes = 0

    def any(self, value: Any, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_NESTING:
            raise TooLarge(f"the OpenAPI document has more than {MAX_NODES} values or {MAX_NESTING} levels")
        if isinstance(value, dict):
            out: dict[str, Any] = {}
            for key, item in cast("dict[Hashable, Any]", value).items():
                out[_key(key)] = self.any(item, depth + 1)
            if isinstance(out.get("$ref"), str) and out["$ref"].startswith("#"):
                out["$ref"] = unquote(out["$ref"])
            return out
        if isinstance(value, list | tuple):
            return [self.any(item, depth + 1) for item in cast("list[Any]", value)]
        if value is None or isinstance(value, str | bool | int | float):
            return value
        return str(value)


def _key(key: Hashable) -> str:
    """A key as text: YAML has numbers and null there, such as the status codes of responses."""
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return str(key)
