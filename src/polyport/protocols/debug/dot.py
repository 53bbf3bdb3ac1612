"""Drawings in the DOT language (spec rest 5.3). Used by the graph routes. Names come from users and are quoted."""

from collections.abc import Iterator, Sequence

from polyport.protocols.debug.drawing import DARK, DONE, PALE, WENT, Colours, Drawing, Edge, Frame, Node


def dot(drawing: Drawing, colours: Colours = DARK) -> str:
    """The source of a digraph named AgentGraph."""
    lines = [*_items(drawing.items, colours), *(_edge(edge, colours) for edge in drawing.edges)]
    body = "\n".join(f"  {line}" for line in lines)
    return f"digraph AgentGraph {{\n  graph [bgcolor={_quoted(colours.paper)} rankdir=LR]\n{body}\n}}\n"


def _items(items: Sequence[Node | Frame], colours: Colours) -> Iterator[str]:
    for item in items:
        if isinstance(item, Node):
            yield _node(item, colours)
            continue
        frame = _quoted(colours.frame)
        yield f"subgraph {_quoted(item.id)} {{"
        yield f"label={_quoted(item.label)} style=rounded color={frame} fontcolor={frame}"
        yield from _items(item.items, colours)
        yield "}"


def _node(node: Node, colours: Colours) -> str:
    look = f"style=filled,color={_quoted(DONE)}" if node.done else f"style=rounded,color={_quoted(PALE)}"
    ink = _quoted(PALE if node.done else colours.ink)
    return f"{_quoted(node.id)} [label={_quoted(node.label)},shape={node.shape},{look},fontcolor={ink}]"


def _edge(edge: Edge, colours: Colours) -> str:
    if edge.way:
        look = f"color={_quoted(WENT)},arrowhead=normal{',dir=back' if edge.way == 'back' else ''}"
    else:
        look = f"color={_quoted(PALE)},arrowhead={'none' if edge.route is None else 'vee'}"
    if edge.route:
        look += f",label={_quoted(edge.route)},fontcolor={_quoted(colours.ink)}"
    return f"{_quoted(edge.source)} -> {_quoted(edge.target)} [{look}]"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", " ").replace("\n", " ")
    return f'"{escaped}"'
