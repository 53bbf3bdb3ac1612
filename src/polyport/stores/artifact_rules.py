"""What every artifact store does in the same way: names, scopes, parts, metadata (spec core 8.2).

Called by the artifact stores of this package, and meant for those of others. Pure functions; never does I/O.
"""

from typing import Any, NamedTuple
from urllib.parse import quote

from polyport.codec import json_safe
from polyport.data.content import Blob, Part
from polyport.data.session import USER, SessionKey
from polyport.errors import BadRequest, NotFound
from polyport.ports.stores import ArtifactVersion
from polyport.stores.session_rules import check_part

MAX_NAME = 255
"""How many characters an artifact's name may have."""
NO_TYPE = "application/octet-stream"


class Shelf(NamedTuple):
    """Where artifacts lie: in a session, or with the user when `session` is None."""

    app: str
    user: str
    session: str | None


def shelves(key: SessionKey) -> tuple[Shelf, Shelf]:
    """The two shelves that a session sees: its own and its user's. BadRequest listing the empty parts of the key."""
    _check(key, {})
    return Shelf(key.app, key.user, key.id), Shelf(key.app, key.user, None)


def shelf_of(key: SessionKey, name: str, version: int = 0) -> Shelf:
    """Where the artifact `name` lies. BadRequest listing, in order, what is empty, or saying what is wrong."""
    _check(key, {"file name": name})
    check_name(name)
    if version < 0:
        raise BadRequest("the version must be 0 (the latest) or more", "version")
    return Shelf(key.app, key.user, None if name.startswith(USER) else key.id)


def to_save(
    key: SessionKey, name: str, part: Part | None, custom_metadata: dict[str, Any] | None
) -> tuple[Shelf, Part, dict[str, Any]]:
    """Where to save, and what exactly: a part of text or inline data only. BadRequest as `shelf_of`."""
    holds = part is not None and (part.text is not None or part.inline_data is not None)
    _check(key, {"file name": name, "part (text or inline data)": "given" if holds else ""})
    shelf = shelf_of(key, name)
    assert part is not None
    metadata = json_safe(custom_metadata or {}, "custom metadata")
    blob = part.inline_data
    if blob is None:
        _check_text(part.text or "")
        return shelf, Part(text=part.text), metadata
    if part.text is not None:
        raise BadRequest("a part has either text or inline data, not both", "part")
    return (
        shelf,
        Part(inline_data=Blob(mime_type=blob.mime_type or NO_TYPE, data=blob.data, display_name=blob.display_name)),
        metadata,
    )


def _check_text(text: str) -> None:
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise BadRequest("the text holds half a character pair", "part") from None


def check_name(name: str) -> None:
    """BadRequest unless `name` follows the rules of the port. A prefix `user:` does not count as part of a file name."""
    bare = name.removeprefix(USER)
    if not bare or len(name) > MAX_NAME:
        raise BadRequest(f"an artifact's name has 1 to {MAX_NAME} characters", "name")
    if "/" in name or "\\" in name:
        raise BadRequest("an artifact's name must not hold a slash or a backslash", "name")
    if bare in (".", ".."):
        raise BadRequest("an artifact cannot be named '.' or '..'", "name")
    check_part("artifact name", name)


def _check(key: SessionKey, more: dict[str, str]) -> None:
    parts = {"app": key.app, "user": key.user, "session id": key.id}
    missing = [what for what, value in (parts | more).items() if not value]
    if missing:
        raise BadRequest(f"required, but empty: {', '.join(missing)}", missing[0])
    for what, value in parts.items():
        check_part(what, value)


def describe(
    shelf: Shelf, name: str, version: int, part: Part, created: float, custom_metadata: dict[str, Any]
) -> ArtifactVersion:
    """The metadata of one stored version."""
    return ArtifactVersion(
        version=version,
        mime_type="text/plain" if part.inline_data is None else part.inline_data.mime_type,
        canonical_uri=canonical_uri(shelf, name, version),
        create_time=created,
        custom_metadata=custom_metadata,
    )


def canonical_uri(shelf: Shelf, name: str, version: int) -> str:
    """The same in every store; tells no path of the server."""
    owner = [shelf.app, "users", shelf.user]
    if shelf.session is not None:
        owner += ["sessions", shelf.session]
    return "artifact://" + "/".join(quote(step, safe="") for step in [*owner, name, "versions", str(version)])


def no_artifact(name: str, version: int) -> NotFound:
    return NotFound(f"no artifact {name!r}" + (f" of version {version}" if version else ""))
