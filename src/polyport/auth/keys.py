"""API keys: one long random text for each program that calls, of which the server knows the hash only.

`polyport auth key` makes them. A key has 256 random bits, so a single SHA-256 is the right hash: there is nothing to guess,
and what makes password hashes slow would only slow down every request. Never logs a key.
"""

import hashlib
import logging
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
import msgspec
import yaml
from msgspec import Struct

from polyport.auth.read import MAX_TOKEN, bearer, one_value, sane_user
from polyport.data.auth import Caller, Credentials
from polyport.errors import ConfigError, Unauthenticated
from polyport.seams import REAL, Seams

log = logging.getLogger("polyport.auth")
PREFIX = "pp_"
"""What keys begin with, so that scanners for secrets find them."""
LOOK_EVERY_S = 1.0
"""How often the file is looked at for changes."""
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_Stamp = tuple[int, int, int]


class ApiKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key as it is kept: `hash` is `sha256:` and 64 hex digits of the key."""

    hash: str
    user: str
    roles: list[str] = []

    @property
    def line(self) -> str:
        """The key as one line of a file of keys (YAML, and its item is JSON)."""
        return "- " + msgspec.json.encode(self).decode()


def new_key(user: str, roles: Iterable[str] = ()) -> tuple[str, ApiKey]:
    """A new key, and what to keep of it. ConfigError for what cannot be a user id."""
    try:
        sane_user(user)
    except Unauthenticated:
        raise ConfigError(f"{user[:80]!r} cannot be a user id: it needs 1 to 256 printable characters") from None
    key = PREFIX + secrets.token_urlsafe(32)
    return key, ApiKey(hash=_hash(key), user=user, roles=list(roles))


def _hash(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class ApiKeyAuth:
    """Knows callers by `Authorization: Bearer KEY` or `X-API-Key: KEY`.

    Keys are in `file` (a list in YAML or JSON: `hash`, `user`, `roles`; read again when it changes), in the environment
    variable `env` (the same text), or given as `keys`. ConfigError for keys that cannot be read at the start; later a broken
    file is logged, and the keys stay as they were. An empty list lets nobody in.
    """

    challenge = "Bearer"
    key_headers = ("X-API-Key",)

    def __init__(
        self,
        file: str | Path | None = None,
        *,
        env: str = "",
        keys: Iterable[ApiKey] | None = None,
        seams: Seams = REAL,
    ) -> None:
        if (file is not None) + bool(env) + (keys is not None) != 1:
            raise ConfigError("ApiKeyAuth needs exactly one of file=, env= and keys=")
        self._file = Path(file) if file is not None else None
        self._seams = seams
        self._looked = seams.clock()
        self._stamp: _Stamp | None = None
        if self._file is not None:
            self._stamp, self._known = _read_file(self._file)
        elif env:
            if env not in os.environ:
                raise ConfigError(f"the environment variable {env} with the API keys is not set")
            self._known = _table(_parse(os.environ[env], env), env)
        else:
            self._known = _table(keys or (), "keys")

    async def authenticate(self, credentials: Credentials) -> Caller | None:
        """See ports.auth."""
        given = [key for key in (bearer(credentials), one_value(credentials, "x-api-key")) if key]
        if not given:
            return None
        if len(given) > 1:
            raise Unauthenticated("unauthorized: send one key, as Authorization: Bearer or as X-API-Key")
        if self._file is not None and abs(self._seams.clock() - self._looked) >= LOOK_EVERY_S:
            await self._look(self._file)
        # How long this takes tells at most something of the hash of what was sent, from which no key can be made.
        return self._known.get(_hash(given[0])) if len(given[0]) <= MAX_TOKEN else None

    async def _look(self, file: Path) -> None:
        """Read the file again if it is another one than before."""
        self._looked = self._seams.clock()
        try:
            if await anyio.to_thread.run_sync(_stamp_of, file) == self._stamp:
                return
            self._stamp, self._known = await anyio.to_thread.run_sync(_read_file, file)
            log.info("API keys: %d read from %s", len(self._known), file)
        except ConfigError as error:
            log.error("API keys stay as they were: %s", error)


def _stamp_of(file: Path) -> _Stamp:
    try:
        found = file.stat()
    except OSError as error:
        raise ConfigError(f"the API keys in {file} cannot be read: {error.strerror or error}") from None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_file(file: Path) -> tuple[_Stamp, dict[str, Caller]]:
    stamp = _stamp_of(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the API keys in {file} cannot be read: {error}") from None
    return stamp, _table(_parse(text, str(file)), str(file))


def _parse(text: str, where: str) -> list[ApiKey]:
    """ConfigError never shows the text: somebody may have written a key where its hash belongs."""
    try:
        raw: Any = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise ConfigError(f"{where} is no YAML or JSON{'' if line is None else f', in line {line + 1}'}") from None
    if not isinstance(raw, list | None):
        raise ConfigError(f"{where} must be a list of keys; `polyport auth key` writes its lines")
    found: list[ApiKey] = []
    for number, item in enumerate(cast("list[Any]", raw or []), 1):
        try:
            found.append(msgspec.convert(item, ApiKey))
        except msgspec.ValidationError as error:
            told = str(error)  # which may name a field
            if PREFIX in told:
                told = "a key itself stands where the name of a field belongs; `polyport auth key` writes its line"
            raise ConfigError(f"{where}: key {number}: {told}") from None
    return found


def _table(keys: Iterable[ApiKey], where: str) -> dict[str, Caller]:
    """By hash. ConfigError for a hash or user that cannot be one, and for one hash twice."""
    table: dict[str, Caller] = {}
    for number, key in enumerate(keys, 1):
        if not _HASH.fullmatch(key.hash):
            raise ConfigError(f"{where}: key {number}: hash must be sha256: and 64 hex digits, never the key itself")
        if key.hash in table:
            raise ConfigError(f"{where}: key {number} is there twice")
        try:
            table[key.hash] = Caller(sane_user(key.user), roles=frozenset(key.roles))
        except Unauthenticated:
            raise ConfigError(f"{where}: key {number}: user must be 1 to 256 printable characters") from None
    return table
