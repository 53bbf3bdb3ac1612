"""Blocks: other people's text inside an instruction, fenced by tags that the text itself cannot close.

Used by the tools that add to a request (memory, examples, skills). Pure: no I/O. It keeps a text from leaving its block; what
the text says inside it is still only data, and the lead of each block says so.
"""

import re
from collections.abc import Iterable

from polyport.data.model import ModelRequest


def block(tag: str, lines: Iterable[str]) -> str:
    """`lines` between `<tag>` and `</tag>`; the tag in them, in any spelling, is made harmless."""
    fence = re.compile(rf"<(?=\s*/?\s*{re.escape(tag)}\b)", re.IGNORECASE)
    return "\n".join([f"<{tag}>", *(fence.sub("&lt;", line) for line in lines), f"</{tag}>"])


def entry(label: str, text: str) -> str:
    """`label: text`, further lines of the text indented, so that none of them looks like an entry of its own."""
    return f"{label}: " + "\n  ".join(text.strip().splitlines())


def add_instruction(request: ModelRequest, text: str) -> None:
    """Append to the system instruction, a blank line between."""
    request.system = f"{request.system}\n\n{text}" if request.system.strip() else text
