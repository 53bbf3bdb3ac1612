"""Instructions: templates filled from state and artifacts, and the pieces of a system instruction (spec core 3.5).

Called by `engine/prepare`. Knows nothing of stores: state is a mapping, artifacts are a function. What was filled in is
never read as a template again, so state cannot smuggle in keys.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from polyport import codec
from polyport.data.session import APP, TEMP, USER
from polyport.errors import BadRequest, NotFound, Unavailable

LoadArtifact = Callable[[str], Awaitable[str | None]]
"""The text of an artifact's latest version; "" when it is no text, None (or NotFound) when there is none."""

ARTIFACT = "artifact."
_SLOT = re.compile(r"(?<!\{)\{++[^{}]*+\}++")


async def render(template: str, state: Mapping[str, Any], load_artifact: LoadArtifact | None) -> str:
    """`template` with its slots filled.

    A slot is a key, or `artifact.<name>`, in any number of braces, with blanks around it or not; a `?` behind it makes it
    optional, which is "" when missing. Keys are identifiers with or without `app:`, `user:` or `temp:`. Text values go in
    as they are, null as "", others as compact JSON. All other braces stay as they are, so that JSON may be written.

    BadRequest for a missing key or artifact, or one that has no text form, Unavailable without an artifact store.
    """
    out: list[str] = []
    end = 0
    for match in _SLOT.finditer(template):
        out.append(template[end : match.start()])
        end = match.end()
        slot = match[0].strip("{}").strip()
        name = slot.removesuffix("?")
        optional = name != slot
        if name.startswith(ARTIFACT):
            out.append(await _artifact(name.removeprefix(ARTIFACT), optional, load_artifact))
        elif _is_key(name):
            out.append(_value(name, optional, state))
        else:
            out.append(match[0])
    out.append(template[end:])
    return "".join(out)


def _is_key(name: str) -> bool:
    for prefix in (APP, USER, TEMP):
        if name.startswith(prefix):
            return name.removeprefix(prefix).isidentifier()
    return name.isidentifier()


def _value(key: str, optional: bool, state: Mapping[str, Any]) -> str:
    if key not in state:
        if optional:
            return ""
        raise BadRequest(
            f"the instruction names the state key {key!r}, which is not set: set it before the run, "
            f"or write {{{key}?}} if it may be missing",
            f"state.{key}",
        )
    value = state[key]
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return codec.encode(value).decode()
    except (TypeError, NotImplementedError, ValueError, RecursionError):
        raise BadRequest(
            f"the state key {key!r} holds a {type(value).__name__}, which cannot be put into an instruction: store text or "
            "JSON data",
            f"state.{key}",
        ) from None


async def _artifact(name: str, optional: bool, load: LoadArtifact | None) -> str:
    if load is None:
        raise Unavailable(f"the instruction names the artifact {name!r}, but no artifact store is configured")
    text: str | None = None
    if name:
        try:
            text = await load(name)
        except NotFound:
            text = None
    if text is not None or optional:
        return text or ""
    raise BadRequest(
        f"the instruction names the artifact {name!r}, which does not exist: save it before the run, "
        f"or write {{{ARTIFACT}{name}?}} if it may be missing",
        f"{ARTIFACT}{name}",
    )


def identity_text(name: str, description: str = "") -> str:
    """Tells a model which agent it is. Left out by the caller for single_turn agents (spec core 11, 70)."""
    who = f'You are the agent named "{name}".'
    return f"{who} Your task in short: {description}" if description else who


def join(parts: Iterable[str]) -> str:
    """The parts that say something, a blank line between them."""
    return "\n\n".join([part for part in parts if part.strip()])
