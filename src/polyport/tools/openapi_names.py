"""Names and media types: how an OpenAPI document's become a tool's.

Pure functions for the reader of operations and for the encoder of bodies.
"""

import re

MAX_NAME = 64
"""Characters of a tool's or an argument's name: what all providers take."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")


def snake(text: str) -> str:
    """`text` as snake_case of ASCII letters, digits and underscores; may be empty."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower()


def unique(name: str, taken: set[str]) -> str:
    """`name`, at most 64 characters, with a number at its end if it is taken."""
    count, found = 1, name[:MAX_NAME]
    while found in taken:
        count += 1
        found = f"{name[: MAX_NAME - 1 - len(str(count))]}_{count}"
    return found


def is_plain(name: str) -> bool:
    """Whether every provider takes `name` as that of an argument."""
    return _PLAIN.match(name) is not None


def fit(name: str) -> str:
    """`name` of characters that every provider takes."""
    out = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_.-")
    return (out if out[:1].isalpha() else f"p_{out}".rstrip("_"))[:MAX_NAME]


def kind_of_media(media: str) -> str:
    """A media type without its parameters, in lower case."""
    return media.partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    kind = kind_of_media(media)
    return kind in ("application/json", "text/json") or kind.endswith("+json")


def is_form(media: str) -> bool:
    return kind_of_media(media) in ("application/x-www-form-urlencoded", "multipart/form-data")


def is_text(media: str) -> bool:
    kind = kind_of_media(media)
    return kind.startswith("text/") or kind.endswith(("xml", "yaml", "javascript", "graphql", "sql", "urlencoded"))


def preference(media: str) -> int:
    """Which of several media types of a body to send: JSON first, then forms, then text, then bytes."""
    kind = kind_of_media(media)
    if is_json(media):
        return 0 if kind == "application/json" else 1
    if kind in ("*/*", "application/*"):
        return 2
    if is_form(media):
        return 3 if kind.endswith("urlencoded") else 4
    return 5 if is_text(media) else 6
