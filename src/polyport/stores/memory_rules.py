"""What every memory store does in the same way: what of a session is remembered, and the words to find it by (spec core 8.1).

Called by the memory stores of this package, and meant for those of others. Pure functions; never does I/O.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from polyport.codec import json_safe
from polyport.data.content import Content, Part
from polyport.data.event import Event
from polyport.errors import ConfigError
from polyport.ports.stores import MemoryEntry

MAX_RESULTS = 50
"""How many entries a search gives at most, unless the store was told another number."""
MAX_QUERY_WORDS = 100
"""How many different words of a question are looked for: its first ones."""

_ASCII = re.compile(r"[a-z0-9]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\U00020000-\U0003ffff]+"
)
"""Scripts that put no spaces between words, or put endings on them: Thai to Burmese, Khmer, Chinese, Japanese, Korean."""


def words(text: str) -> list[str]:
    """The words of a text as an index keeps them, in order: no case, no punctuation, one spelling for equal characters.

    What is written without spaces gives each character and each pair of neighbours.
    """
    return [word for run in _runs(text) for word in (_with_pairs(run) if _unspaced(run) else (run,))]


def query_words(text: str) -> list[str]:
    """The words that a question asks for, each once; a run without spaces asks for its pairs. MAX_QUERY_WORDS at most."""
    asked = (word for run in _runs(text) for word in (_pairs(run) if _unspaced(run) else (run,)))
    return list(dict.fromkeys(asked))[:MAX_QUERY_WORDS]


def _runs(text: str) -> Iterator[str]:
    """Runs of letters, digits and marks, those of unspaced scripts apart."""
    if text.isascii():
        yield from _ASCII.findall(text.lower())
        return
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    bare = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in folded)
    for run in bare.split():
        at = 0
        for match in _UNSPACED.finditer(run):
            if match.start() > at:
                yield run[at : match.start()]
            yield match[0]
            at = match.end()
        if at < len(run):
            yield run[at:]


def _unspaced(run: str) -> bool:
    return not run.isascii() and _UNSPACED.match(run) is not None


def _pairs(run: str) -> Iterable[str]:
    return (run,) if len(run) == 1 else (run[i : i + 2] for i in range(len(run) - 1))


def _with_pairs(run: str) -> Iterator[str]:
    yield from run
    if len(run) > 1:
        yield from _pairs(run)


def remembered(event: Event) -> MemoryEntry | None:
    """What is kept of an event: its text without thoughts. None if it has none, as most calls and results of tools."""
    if event.partial or event.content is None or not event.text.strip():
        return None
    parts = [Part(text=part.text) for part in event.content.parts if part.text and not part.thought]
    return MemoryEntry(
        id=event.id,
        content=Content(role=event.content.role, parts=parts),
        author=event.author,
        timestamp=event.timestamp.isoformat() if event.timestamp is not None else "",
        custom_metadata=json_safe(event.custom_metadata or {}, "custom metadata"),
    )


def check_limit(max_results: int) -> int:
    """ConfigError unless a search may give at least one entry."""
    if max_results < 1:
        raise ConfigError(f"a memory store's max_results is {max_results}; it must be 1 or more")
    return max_results
