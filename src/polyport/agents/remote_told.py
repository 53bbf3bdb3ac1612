"""How far the artifacts of a remote task have been told, so that a later turn of the same task tells only what is new.

Used by `remote_reply`. A task that goes on after a question begins its next stream with all its artifacts; where the session
stands is kept in the custom metadata of its events, as positions: parts, and characters of the last text. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from msgspec import structs

from polyport.agents.a2a_task import joined, same_kind
from polyport.data.event import Event
from polyport.wire.a2a import Artifact, Part
from polyport.wire.a2a_translate import TASK_ID

TOLD = "a2a:told"
"""In custom metadata: artifact id -> [parts, characters of the last one if it is text]. Neighbouring texts count as one."""


class Told:
    """Positions by artifact id."""

    def __init__(self, before: dict[str, tuple[int, int]] | None = None) -> None:
        self._at = dict(before or {})
        self._last: dict[str, Part] = {}

    def note(self, artifact_id: str, parts: Sequence[Part], *, append: bool) -> None:
        """Parts of an artifact have come."""
        count, length = self._at.get(artifact_id, (0, 0)) if append else (0, 0)
        last = self._last.get(artifact_id) if append else None
        for part in parts:
            if part.text is not None and last is not None and last.text is not None and same_kind(last, part):
                length += len(part.text)
                continue
            count, length, last = count + 1, len(part.text or ""), part
        self._at[artifact_id] = count, length
        if last is not None:
            self._last[artifact_id] = structs.replace(last, text=last.text and "")

    def rest(self, artifact: Artifact) -> list[Part]:
        """What an artifact, as it is now, has after its position; all of it when it is shorter than that."""
        parts = joined(artifact.parts)
        count, length = self._at.get(artifact.artifact_id, (0, 0))
        if count == 0 or len(parts) < count:
            return parts
        last = parts[count - 1]
        if last.text is None or len(last.text) <= length:
            return parts[count:]
        return [structs.replace(last, text=last.text[length:]), *parts[count:]]

    def plain(self, ids: Iterable[str]) -> dict[str, Any]:
        """The positions of some artifacts, for custom metadata."""
        return {id: list(self._at[id]) for id in ids if id in self._at}


def told_of(events: Iterable[Event], task_id: str) -> dict[str, tuple[int, int]]:
    """The positions in a session's events of one remote task."""
    found: dict[str, tuple[int, int]] = {}
    for event in events:
        said = event.custom_metadata or {}
        kept = said.get(TOLD)
        if said.get(TASK_ID) != task_id or not isinstance(kept, dict):
            continue
        for id, place in cast("dict[str, Any]", kept).items():
            if isinstance(place, list) and len(cast("list[Any]", place)) == 2:
                count, length = cast("list[Any]", place)
                if isinstance(count, int) and isinstance(length, int):
                    found[id] = count, length
    return found
