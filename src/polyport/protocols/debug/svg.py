"""Drawings as SVG, without any other program: boxes in columns from left to right, frames around what belongs together.

Used by the graph routes. A frame is laid out by itself and is then one box of what it stands in. Names come from users and are
escaped; the picture has no scripts and no links.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from polyport.protocols.debug.drawing import DARK, DONE, PALE, WENT, Colours, Drawing, Edge, Frame, Node

LETTER, LINE = 8.5, 36.0
"""About the width of a letter, and the height of a node."""
GAP, COLUMN, MARGIN, TITLE = 18.0, 60.0, 16.0, 22.0


class _Box(NamedTuple):
    """Where something is; x and y are of its top left."""

    x: float
    y: float
    width: float
    height: float


class _Laid(NamedTuple):
    """Items with their places, relative to the top left of what they stand in."""

    width: float
    height: float
    boxes: list[tuple[Node | Frame, _Box, "_Laid | None"]]


def svg(drawing: Drawing, colours: Colours = DARK) -> str:
    """The picture as one SVG document."""
    laid = _lay(drawing.items, drawing.edges)
    width, height = laid.width + 2 * MARGIN, laid.height + 2 * MARGIN
    places: dict[str, _Box] = {}
    shapes = list(_shapes(laid, MARGIN, MARGIN, colours, places))
    lines = [_line(edge, places, colours) for edge in drawing.edges if edge.source in places and edge.target in places]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="14">'
    )
    marks = "".join(_arrow(name, colour) for name, colour in (("went", WENT), ("plain", PALE)))
    paper = f'<rect width="100%" height="100%" fill="{colours.paper}"/>'
    return "\n".join([head, f"<defs>{marks}</defs>", paper, *lines, *shapes, "</svg>"]) + "\n"


def _lay(items: Sequence[Node | Frame], edges: Sequence[Edge]) -> _Laid:
    """Columns by who follows whom, each column from top to bottom."""
    inside = [_lay(item.items, edges) if isinstance(item, Frame) else None for item in items]
    ranks = _ranks(items, edges)
    columns: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for at, rank in enumerate(ranks):
        columns[rank].append(at)
    boxes: list[tuple[Node | Frame, _Box, _Laid | None]] = []
    x = height = 0.0
    for column in columns:
        y = widest = 0.0
        for at in column:
            wide, high = _size(items[at], inside[at])
            boxes.append((items[at], _Box(x, y, wide, high), inside[at]))
            y += high + GAP
            widest = max(widest, wide)
        height = max(height, y - GAP)
        x += widest + COLUMN
    return _Laid(max(0.0, x - COLUMN), max(0.0, height), boxes)


def _size(item: Node | Frame, inside: _Laid | None) -> tuple[float, float]:
    wide = LETTER * len(item.label) + 2 * MARGIN
    if inside is None:
        return wide, LINE
    return max(wide, inside.width + 2 * MARGIN), inside.height + 2 * MARGIN + TITLE


def _ranks(items: Sequence[Node | Frame], edges: Sequence[Edge]) -> list[int]:
    """The column of each item: behind all that lead to it, but for lines that lead back."""
    home = {id: at for at, item in enumerate(items) for id in _ids(item)}
    after: dict[int, set[int]] = {}
    for edge in edges:
        one, other = home.get(edge.source), home.get(edge.target)
        if one is not None and other is not None and one < other:
            after.setdefault(one, set()).add(other)
    ranks = [0] * len(items)
    for at in range(len(items)):
        for other in after.get(at, ()):
            ranks[other] = max(ranks[other], ranks[at] + 1)
    return ranks


def _ids(item: Node | Frame) -> Iterator[str]:
    if isinstance(item, Node):
        yield item.id
    else:
        for inner in item.items:
            yield from _ids(inner)


def _shapes(laid: _Laid, x: float, y: float, colours: Colours, places: dict[str, _Box]) -> Iterator[str]:
    """The shapes from `x` and `y` on; `places` gets where the nodes are."""
    for item, box, inside in laid.boxes:
        at = _Box(x + box.x, y + box.y, box.width, box.height)
        if isinstance(item, Node):
            places[item.id] = at
            yield _shape(item, at, colours)
        else:
            yield (
                f'<rect x="{at.x:.1f}" y="{at.y:.1f}" width="{at.width:.1f}" height="{at.height:.1f}" rx="10" fill="none" '
                f'stroke="{colours.frame}"/>'
            )
            yield _text(item.label, at.x + at.width / 2, at.y + TITLE - 4, colours.frame)
            if inside is not None:
                yield from _shapes(inside, at.x + MARGIN, at.y + MARGIN + TITLE, colours, places)


def _shape(node: Node, at: _Box, colours: Colours) -> str:
    look = f'fill="{DONE}" stroke="{DONE}"' if node.done else f'fill="{colours.paper}" stroke="{PALE}"'
    middle_x, middle_y = at.x + at.width / 2, at.y + at.height / 2
    if node.shape == "box":
        rounded = f'x="{at.x:.1f}" y="{at.y:.1f}" width="{at.width:.1f}" height="{at.height:.1f}" rx="8"'
        shape = f"<rect {rounded} {look}/>"
    else:
        radii = f'rx="{at.width / 2:.1f}" ry="{at.height / 2:.1f}"'
        shape = f'<ellipse cx="{middle_x:.1f}" cy="{middle_y:.1f}" {radii} {look}/>'
    return shape + _text(node.label, middle_x, middle_y + 5, PALE if node.done else colours.ink)


def _line(edge: Edge, places: Mapping[str, _Box], colours: Colours) -> str:
    """From the right of one to the left of the other; below both where it leads back."""
    one, other = places[edge.source], places[edge.target]
    if one.x + one.width <= other.x:
        x1, y1, x2, y2 = one.x + one.width, one.y + one.height / 2, other.x, other.y + other.height / 2
        bend = (x2 - x1) / 2
        path = f"M{x1:.1f},{y1:.1f} C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    else:
        x1, y1 = one.x + one.width / 2, one.y + one.height
        x2, y2 = other.x + other.width / 2, other.y + other.height
        low = max(y1, y2) + GAP
        path = f"M{x1:.1f},{y1:.1f} C{x1:.1f},{low:.1f} {x2:.1f},{low:.1f} {x2:.1f},{y2:.1f}"
    ends = ""
    if edge.way or edge.route is not None:
        mark = "went" if edge.way else "plain"
        ends = f' marker-{"start" if edge.way == "back" else "end"}="url(#{mark})"'
    line = f'<path d="{path}" fill="none" stroke="{WENT if edge.way else PALE}"{ends}/>'
    if not edge.route:
        return line
    return line + _text(edge.route, (x1 + x2) / 2, (y1 + y2) / 2 - 5, colours.ink, 12)


def _text(text: str, x: float, y: float, colour: str, size: int = 14) -> str:
    shown = escape("".join(letter if letter.isprintable() else " " for letter in text))
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="middle" fill="{colour}">{shown}</text>'


def _arrow(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="{colour}"/></marker>'
    )
