"""A function call whose arguments are streamed in pieces (spec core 3.13).

Used by the stream reader of `wire/gemini.py`. Never does I/O.
"""

import itertools
import re
from typing import Any, cast

from polyport.data.content import FunctionCall, PartialArg
from polyport.errors import ModelError

MAX_INDEX = 10_000
"""The largest array index that a piece may name: a provider must not make us allocate at will."""

_STEP = re.compile(r"""\[\s*(\d+)\s*\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]|\.?([^.\[\]]+)""")
_MISSING = object()


def parse_path(path: str) -> list[str | int]:
    """The steps of a path such as `$.stops[0].city`; names may be quoted in brackets, the `$` may be left out.

    ModelError for anything else.
    """
    rest = path.removeprefix("$")
    steps: list[str | int] = []
    at = 0
    for match in _STEP.finditer(rest):
        if match.start() != at:
            break
        at = match.end()
        index, single, double, bare = match.groups()
        if index is not None:
            steps.append(int(index))
        else:
            quoted = single if single is not None else double
            steps.append(bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
    if (
        at != len(rest)
        or not steps
        or isinstance(steps[0], int)
        or any(isinstance(s, int) and s > MAX_INDEX for s in steps)
    ):
        raise _malformed(f"the path {path[:200]!r} of a streamed argument cannot be followed")
    return steps


class StreamedCall:
    """Collects the pieces of one call. `id` is the same from the first piece on."""

    def __init__(self, id: str, name: str, signature: bytes | None) -> None:
        self.id = id
        self.name = name
        self.signature = signature
        self.args: dict[str, Any] = {}

    def add(self, call: FunctionCall, signature: bytes | None) -> None:
        """One more piece: whole arguments are merged, pieces of one string are joined, other values are set."""
        self.name = self.name or call.name
        self.signature = self.signature or signature
        self.args.update(call.args)
        for piece in call.partial_args:
            self._set(parse_path(piece.json_path), piece)

    def done(self) -> FunctionCall:
        """The whole call. ModelError when no piece named the function."""
        if not self.name:
            raise _malformed("the model streamed a function call without a name")
        return FunctionCall(id=self.id, name=self.name, args=self.args)

    def _set(self, steps: list[str | int], piece: PartialArg) -> None:
        holder: Any = self.args
        for step, following in itertools.pairwise(steps):
            inner = _get(holder, step)
            if inner is _MISSING or inner is None:
                empty: list[Any] | dict[str, Any] = [] if isinstance(following, int) else {}
                _put(holder, step, empty)
                inner = empty
            holder = inner
        last = steps[-1]
        old = _get(holder, last)
        value = _value(piece, old)
        if value is not _MISSING:
            _put(holder, last, value)


def _value(piece: PartialArg, old: Any) -> Any:
    if piece.string_value is not None:
        return old + piece.string_value if isinstance(old, str) else piece.string_value
    if piece.number_value is not None:
        number = piece.number_value
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if piece.bool_value is not None:
        return piece.bool_value
    # JSON spells the null value as null, which reads like an absent one: it is meant when nothing else came or follows.
    if piece.null_value is not None or (old is _MISSING and not piece.will_continue):
        return None
    return _MISSING


def _get(holder: Any, step: str | int) -> Any:
    if isinstance(step, str) and isinstance(holder, dict):
        return cast("dict[str, Any]", holder).get(step, _MISSING)
    if isinstance(step, int) and isinstance(holder, list):
        items = cast("list[Any]", holder)
        return items[step] if step < len(items) else _MISSING
    raise _malformed(f"a streamed argument changed its type at {step!r}")


def _put(holder: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int):
        holder.extend([None] * (step + 1 - len(holder)))
    holder[step] = value


def _malformed(message: str) -> ModelError:
    return ModelError(message, code="MALFORMED_FUNCTION_CALL")
