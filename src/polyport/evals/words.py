"""How much two texts have in common: ROUGE-1, the F measure over single words, as `response_match_score` counts it.

Used by the metrics. Words are stemmed by the Porter algorithm when they are longer than three letters, as in Google's
scorer; unlike there, letters of all scripts count, and in scripts without spaces each character is a word.
"""

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

from polyport.errors import ConfigError

_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_ALONE}]|[^\\W_{_ALONE}]+")
STEM_FROM = 4
"""Letters."""


class Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...


@lru_cache(maxsize=1)
def stemmer() -> Stemmer:
    """The Porter stemmer. ConfigError without the library."""
    try:
        library: Any = import_module("snowballstemmer")  # an optional dependency, without types
    except ModuleNotFoundError:
        raise ConfigError(
            "response_match_score: the package 'snowballstemmer' is not installed: pip install 'polyport[eval]'"
        ) from None
    return library.stemmer("porter")


def words(text: str) -> list[str]:
    stem = stemmer().stemWord
    found = _WORD.findall(unicodedata.normalize("NFKC", text).lower())
    return [stem(word) if len(word) >= STEM_FROM else word for word in found]


def rouge_1(expected: str, actual: str) -> float:
    """From 0.0 (no word in common) to 1.0 (the same words, in any order). Two texts without words are the same."""
    want, have = Counter(words(expected)), Counter(words(actual))
    if not want and not have:
        return 1.0
    shared = (want & have).total()
    return 2 * shared / (want.total() + have.total())
